//! What a host says of the system it runs from, and whether that is the copy. Pure.

use crate::clone::judge::sections;
use crate::ssh::quote;

/// Where a copy says what it is, from its root.
pub const RECORD: &str = "etc/windlass-clone";

/// What a copy is told of itself.
pub fn record(source: &str, source_id: Option<&str>, machine_id: &str) -> String {
    let id = source_id.unwrap_or("unknown");
    format!(
        "# This system is a copy, made by windlass clone.\nsource={source}\nsource_machine_id={id}\nmachine_id={machine_id}\n"
    )
}

/// Says from where the system runs, and what it is.
pub fn script(disk: &str) -> String {
    format!(
        "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\nexport PATH LC_ALL=C\n\
         section() {{ printf '\\n@@windlass %s\\n' \"$1\"; }}\n\
         from=$(findmnt -nvo SOURCE / 2>/dev/null | tail -n 1)\n\
         # Without an initramfs the kernel gives it a name of its own.\n\
         [ -b \"$from\" ] || from=$(readlink -f \"/dev/block/$(mountpoint -d / 2>/dev/null)\" 2>/dev/null)\n\
         section from\nprintf '%s\\n' \"$from\"\n\
         section part\n[ ! -b \"$from\" ] || blkid -p -s PART_ENTRY_UUID -o value \"$from\"\n\
         section disk\nreal=$(readlink -f \"$from\")\nwhole=$(readlink -f \"/sys/class/block/${{real##*/}}/..\" 2>/dev/null)\n\
         [ -z \"$real\" ] || [ \"${{whole##*/}}\" = block ] || printf '/dev/%s\\n' \"${{whole##*/}}\"\n\
         section wanted\nreadlink -f {}\n\
         section hostname\ncat /etc/hostname 2>/dev/null\n\
         section machine\ncat /etc/machine-id 2>/dev/null\n\
         section record\nhead -c 4096 /{RECORD} 2>/dev/null\n\
         section keys\ncat /etc/ssh/ssh_host_*_key.pub 2>/dev/null\n\
         exit 0\n",
        quote(disk)
    )
}

/// What a host said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// The device with its root.
    pub from: String,
    /// The identifier of that partition.
    pub part: String,
    /// The disk of that partition.
    pub disk: String,
    /// The disk that was asked about, with links followed.
    pub wanted: String,
    /// Its name.
    pub hostname: String,
    /// Its machine id.
    pub machine_id: String,
    /// What it says of itself as a copy.
    pub record: String,
    /// Its public SSH host keys.
    pub keys: Vec<String>,
}

impl Running {
    /// From what the script said.
    pub fn parse(text: &str) -> Self {
        let all = sections(text);
        let of = |name: &str| {
            let text = all.get(name).map(|text| text.trim()).unwrap_or_default();
            text.to_owned()
        };
        let keys = of("keys");
        Self {
            from: of("from"),
            part: of("part"),
            disk: of("disk"),
            wanted: of("wanted"),
            hostname: of("hostname"),
            machine_id: of("machine"),
            record: of("record"),
            keys: keys
                .lines()
                .map(|line| {
                    let words: Vec<&str> = line.split_whitespace().take(2).collect();
                    words.join(" ")
                })
                .collect(),
        }
    }

    /// Why it is not the copy that was made; `None` when it is. `machine_id`: the one the copy was given;
    /// `part`: the identifier of the partition with its root, on `disk`.
    pub fn differs(&self, machine_id: &str, part: &str, disk: &str) -> Option<String> {
        let from = match self.from.as_str() {
            "" => "where its root lies cannot be told".to_owned(),
            from => format!("its root is {from}"),
        };
        if self.machine_id != machine_id {
            return Some(format!(
                "it shows the copy's host key, and its machine id is {:?}: the copy was given {machine_id}",
                self.machine_id
            ));
        }
        if self.part.is_empty() || !self.part.eq_ignore_ascii_case(part) {
            return Some(format!(
                "it shows the copy's host key, and {from}: the copy's root is the partition {part} of {disk}"
            ));
        }
        None
    }

    /// Whether it is a copy already of the system whose machine id is `source`: it runs from the disk that
    /// was asked about, has this name, and both ids are as it was told when it was made.
    pub fn is_copy(&self, source: Option<&str>, hostname: &str) -> bool {
        let of = |key: &str| {
            let mut lines = self.record.lines();
            lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
        };
        let source = source.filter(|id| id.len() == 32);
        !self.wanted.is_empty()
            && self.disk == self.wanted
            && self.hostname == hostname
            && source.is_some()
            && of("source_machine_id") == source
            && of("machine_id") == Some(self.machine_id.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "0123456789abcdef0123456789abcdef";
    const OWN: &str = "fedcba9876543210fedcba9876543210";

    fn running() -> Running {
        let record = record("halo1", Some(SOURCE), OWN);
        Running::parse(&format!(
            "\n@@windlass from\n/dev/nvme0n1p2\n\n@@windlass part\nAB-1\n\n@@windlass disk\n/dev/nvme0n1\n\
             \n@@windlass wanted\n/dev/nvme0n1\n\n@@windlass hostname\nhalo2\n\n@@windlass machine\n{OWN}\n\
             \n@@windlass record\n{record}\n@@windlass keys\nssh-ed25519 AAAA root@live\nssh-rsa BBBB\n"
        ))
    }

    #[test]
    fn the_copy_runs_when_machine_id_and_partition_are_those_that_it_was_given() {
        let running = running();
        assert_eq!(running.keys, ["ssh-ed25519 AAAA", "ssh-rsa BBBB"]);
        assert_eq!(running.differs(OWN, "ab-1", "/dev/nvme0n1"), None);
        let why = running.differs(SOURCE, "ab-1", "/dev/nvme0n1").unwrap();
        assert!(why.contains(OWN) && why.contains(SOURCE), "{why}");
        let why = running.differs(OWN, "ab-2", "/dev/nvme0n1").unwrap();
        assert!(
            why.contains("/dev/nvme0n1p2") && why.contains("ab-2 of /dev/nvme0n1"),
            "{why}"
        );
        let untold = Running {
            from: String::new(),
            part: String::new(),
            ..running
        };
        let why = untold.differs(OWN, "", "/dev/nvme0n1").unwrap();
        assert!(why.contains("cannot be told"), "{why}");
    }

    #[test]
    fn a_host_is_the_copy_already_only_when_all_of_it_says_so() {
        let good = running();
        assert!(good.is_copy(Some(SOURCE), "halo2"));
        assert!(!good.is_copy(Some(OWN), "halo2"), "of another source");
        assert!(!good.is_copy(None, "halo2"));
        assert!(!good.is_copy(Some(SOURCE), "halo3"));
        let but = |change: fn(&mut Running)| {
            let mut other = good.clone();
            change(&mut other);
            other.is_copy(Some(SOURCE), "halo2")
        };
        assert!(!but(|one| one.disk = "/dev/sda".into()));
        assert!(!but(|one| one.record.clear()));
        // A system that was copied on by other means, and has its record.
        assert!(!but(|one| one.machine_id = SOURCE.into()));
        assert!(!but(|one| {
            one.disk.clear();
            one.wanted.clear();
        }));
        // Of a source without a machine id nothing is known.
        let unknown = record("halo1", None, OWN);
        assert!(unknown.contains("source_machine_id=unknown"));
    }

    #[test]
    fn what_a_host_is_asked_is_a_script_of_a_shell() {
        let output = std::process::Command::new("sh")
            .args(["-n", "-c", &script("/dev/a 'b")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}
