//! Whether a system may be cloned onto a disk, by what both hosts told. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::disks::{self, Block, Mount};
use super::logical::{self, Logical};
use super::source::{self, Volume};

/// Programs that the source needs.
const OF_SOURCE: &[&str] = &["tar"];
/// Programs that the target needs whatever is copied.
const OF_TARGET: &[&str] = &[
    "tar",
    "sfdisk",
    "wipefs",
    "partx",
    "blockdev",
    "blkid",
    "chroot",
    "sed",
    "ssh-keygen",
];

/// What a host told of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// As `uname -m` says.
    pub arch: String,
    /// Whether it was started by UEFI; else by a BIOS.
    pub uefi: bool,
    /// Whether Secure Boot is in force.
    pub secure: bool,
    /// Which boot this is.
    pub boot: String,
    /// Programs that are there, of those asked for.
    pub tools: BTreeSet<String>,
    /// Devices.
    pub blocks: Vec<Block>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// The disk that was asked about, with links followed.
    pub disk: Option<String>,
    /// SHA-256 of that disk's first MiB.
    pub first: Option<String>,
    /// Swap files in use, with their bytes.
    pub swap_files: Vec<(String, u64)>,
    /// Logical volumes.
    pub logical: Vec<Logical>,
    /// What firmware of UEFI starts, by `efibootmgr -v`.
    pub entries: String,
}

impl Machine {
    /// From what the script said.
    ///
    /// # Errors
    /// A sentence, when it is not understood.
    pub fn parse(host: &str, text: &str) -> Result<Self, String> {
        let sections = sections(text);
        let of = |name: &str| {
            sections
                .get(name)
                .map(|text| text.trim())
                .unwrap_or_default()
        };
        let told = |name: &str| Some(of(name).to_owned()).filter(|text| !text.is_empty());
        let swaps = of("swaps").lines().skip(1);
        Ok(Self {
            host: host.to_owned(),
            arch: of("arch").to_owned(),
            uefi: of("firmware") == "uefi",
            secure: of("secure") == "1",
            boot: of("boot").to_owned(),
            tools: of("tools").lines().map(str::to_owned).collect(),
            blocks: disks::parse(of("lsblk"), of("blkid"))?,
            mounts: disks::mounts(of("mounts")),
            disk: told("disk"),
            first: of("first").split_whitespace().next().map(str::to_owned),
            swap_files: swaps
                .filter_map(|line| {
                    let mut fields = line.split_whitespace();
                    let path = fields.next()?;
                    let is_file = fields.next()? == "file";
                    let kib: u64 = fields.next()?.parse().ok()?;
                    is_file.then(|| {
                        (
                            disks::octal(path),
                            kib.saturating_add(4).saturating_mul(1024),
                        )
                    })
                })
                .collect(),
            logical: logical::parse(of("lvs")),
            entries: of("entries").to_owned(),
        })
    }

    /// The file that firmware of UEFI starts, `\EFI\…`: of the system that runs, or of the one whose EFI
    /// system partition has the identifier `esp`.
    pub fn loader(&self, esp: Option<&str>) -> Option<String> {
        loader(&self.entries, &self.arch, esp)
    }

    /// The disk that was asked about.
    pub fn target(&self) -> Option<&Block> {
        let path = self.disk.as_deref()?;
        self.blocks.iter().find(|block| block.path == path)
    }

    /// What the disk that was asked about is confirmed by.
    pub fn token(&self) -> Option<String> {
        self.target()?.token(self.first.as_deref())
    }
}

/// The parts of a script's output, each behind a line that names it.
pub fn sections(text: &str) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    let mut name = String::new();
    for line in text.split_inclusive('\n') {
        match line.strip_prefix("@@windlass ") {
            Some(rest) => {
                name = rest.trim_end().to_owned();
                all.insert(name.clone(), String::new());
            }
            None => {
                if let Some(text) = all.get_mut(&name) {
                    text.push_str(line);
                }
            }
        }
    }
    all
}

/// The file of the entry that the firmware started, by `efibootmgr -v`. With `esp`, of an entry for that
/// partition, the one that was started before others.
fn loader(text: &str, arch: &str, esp: Option<&str>) -> Option<String> {
    // An entry that names no file means the one that all firmware tries (UEFI specification, 3.5.1.1).
    let usual = match arch {
        "aarch64" => "\\EFI\\BOOT\\BOOTAA64.EFI",
        _ => "\\EFI\\BOOT\\BOOTX64.EFI",
    };
    let current = text
        .lines()
        .find_map(|line| line.strip_prefix("BootCurrent:"))?
        .trim();
    let entry = format!("Boot{current}");
    let started = text.lines().find(|line| line.starts_with(&entry));
    let line = match esp {
        None => started?,
        Some(esp) => {
            let esp = esp.to_ascii_lowercase();
            let mut all = started.into_iter().chain(text.lines());
            match all.find(|line| line.to_ascii_lowercase().contains(&esp)) {
                Some(line) => line,
                None => return Some(usual.to_owned()),
            }
        }
    };
    let Some(at) = line.to_ascii_lowercase().find("\\efi\\") else {
        return Some(usual.to_owned());
    };
    let rest = line.get(at..)?;
    let end = rest.to_ascii_lowercase().find(".efi")? + 4;
    rest.get(..end).map(str::to_owned)
}

/// Programs that a script asks both hosts for.
pub fn tools() -> Vec<&'static str> {
    let mut all: Vec<&str> = [OF_SOURCE, OF_TARGET].concat();
    all.extend([
        "mkfs.ext2",
        "mkfs.ext3",
        "mkfs.ext4",
        "mkfs.xfs",
        "mkfs.btrfs",
        "mkfs.vfat",
        "mkswap",
        "btrfs",
        "efibootmgr",
    ]);
    all.sort_unstable();
    all.dedup();
    all
}

/// What is against it, before anything of the source is read. Empty: nothing.
pub fn machines(from: &Machine, to: &Machine, asked: &str) -> Vec<String> {
    let mut all = Vec::new();
    let (a, b) = (&from.host, &to.host);
    if !from.boot.is_empty() && from.boot == to.boot {
        all.push(format!(
            "{a} and {b} are one machine: the target must be another"
        ));
    }
    if from.arch != to.arch {
        all.push(format!(
            "{a} is {} and {b} is {}: a system of the one does not run on the other",
            from.arch, to.arch
        ));
    }
    let kind = |uefi| if uefi { "UEFI" } else { "a BIOS" };
    if from.uefi != to.uefi {
        all.push(format!(
            "{a} was started by {} and {b} by {}: the copy would not start. Start {b} from its medium by {} (its firmware's setup has the choice)",
            kind(from.uefi), kind(to.uefi), kind(from.uefi)
        ));
    }
    if to.secure && !from.secure {
        all.push(format!(
            "{b} has Secure Boot in force and {a} has not, so what {a} starts may be unsigned: turn it off in the setup of {b}"
        ));
    }
    let Some(disk) = to.target() else {
        all.push(format!(
            "{b} has no disk {asked}; disks are {}",
            source::disks(&to.blocks)
        ));
        return all;
    };
    if disk.ro {
        all.push(format!("{b}: {} cannot be written", disk.words()));
    }
    if disk.kind == "part" || !matches!(disk.kind.as_str(), "disk" | "loop") {
        all.push(format!("{b}: {} is no whole disk", disk.path));
    }
    for one in disk.all() {
        if let Some(at) = one.mounts().next() {
            let what = match at {
                "[SWAP]" => format!("{b}: {} is in use as swap", one.path),
                at => format!("{b}: {} is mounted at {at}", one.path),
            };
            all.push(format!(
                "{what}: start {b} from another medium, or unmount it if it is not in use"
            ));
        } else if !matches!(one.kind.as_str(), "disk" | "part" | "loop") {
            all.push(format!(
                "{b}: {} ({}) lies on that disk and is in use",
                one.path, one.kind
            ));
        }
    }
    all
}

/// What is against it, once the source's volumes are known.
pub fn volumes(from: &Machine, to: &Machine, disk: &Block, volumes: &[Volume]) -> Vec<String> {
    let mut all = Vec::new();
    if let (Some(own), Some(theirs)) = (
        disk.token(None),
        to.target().and_then(|one| one.token(None)),
    ) && own == theirs
    {
        all.push(format!(
            "{} is one disk at both hosts ({own}): target and source are the same",
            disk.words()
        ));
    }
    let mut lacks = |host: &Machine, wanted: &mut dyn Iterator<Item = String>| {
        let missing: BTreeSet<String> = wanted.filter(|tool| !host.tools.contains(tool)).collect();
        if !missing.is_empty() {
            let names: Vec<String> = missing.into_iter().collect();
            all.push(format!(
                "{} lacks {}: install it there",
                host.host,
                names.join(", ")
            ));
        }
    };
    let btrfs = volumes.iter().any(|one| one.kind == "btrfs");
    let own = |tool: &&str| (*tool).to_owned();
    let snapshots = btrfs.then_some("btrfs");
    lacks(from, &mut OF_SOURCE.iter().chain(&snapshots).map(own));
    let makers = volumes.iter().map(|one| match one.kind.as_str() {
        "swap" => "mkswap".to_owned(),
        kind => format!("mkfs.{kind}"),
    });
    let loads = to.uefi.then_some("efibootmgr");
    let fixed = OF_TARGET.iter().chain(&snapshots).chain(&loads);
    lacks(to, &mut fixed.map(own).chain(makers));
    if to.uefi && !volumes.iter().any(|one| one.esp) {
        all.push(format!(
            "{} has no EFI system partition on the disk of its system",
            from.host
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::disks::tests::{BLKID, LSBLK};
    use super::*;

    fn machine(host: &str, change: impl FnOnce(&mut Machine)) -> Machine {
        let lsblk = LSBLK
            .replace("\"/boot/efi\"", "null")
            .replace("\"/\"", "null")
            .replace("\"[SWAP]\"", "null");
        let mut one = Machine {
            host: host.into(),
            arch: "x86_64".into(),
            uefi: true,
            boot: host.into(),
            tools: tools().into_iter().map(str::to_owned).collect(),
            blocks: disks::parse(&lsblk, BLKID).unwrap(),
            disk: Some("/dev/nvme0n1".into()),
            ..Machine::default()
        };
        change(&mut one);
        one
    }

    #[test]
    fn every_reason_against_it_is_said_in_a_sentence() {
        let from = machine("a", |_| {});
        let of = |change: fn(&mut Machine)| machines(&from, &machine("b", change), "/dev/sdz");
        assert_eq!(of(|_| {}), Vec::<String>::new());
        type Change = fn(&mut Machine);
        let table: [(Change, &str); 9] = [
            (|b| b.boot = "a".into(), "a and b are one machine"),
            (
                |b| b.arch = "aarch64".into(),
                "a is x86_64 and b is aarch64",
            ),
            (|b| b.uefi = false, "by UEFI and b by a BIOS"),
            (|b| b.secure = true, "Secure Boot"),
            (
                |b| b.disk = None,
                "no disk /dev/sdz; disks are Fast One at /dev/nvme0n1",
            ),
            (
                |b| b.blocks = disks::parse(LSBLK, "").unwrap(),
                "is mounted at /boot/efi",
            ),
            (
                |b| b.blocks = disks::parse(LSBLK, "").unwrap(),
                "in use as swap",
            ),
            (|b| b.disk = Some("/dev/sr0".into()), "no whole disk"),
            (|b| b.blocks[0].ro = true, "cannot be written"),
        ];
        for (change, wanted) in table {
            let said = of(change).join("\n");
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }

    #[test]
    fn one_disk_at_both_hosts_and_missing_programs_are_refused() {
        let (from, to) = (
            machine("a", |_| {}),
            machine("b", |b| {
                b.tools.remove("mkfs.btrfs");
                b.tools.remove("sfdisk");
            }),
        );
        let disk = from.target().unwrap();
        let kinds = [Volume {
            kind: "btrfs".into(),
            ..Volume::default()
        }];
        let said = volumes(&from, &to, disk, &kinds).join("\n");
        for wanted in [
            "one disk at both hosts",
            "b lacks mkfs.btrfs, sfdisk",
            "no EFI system partition",
        ] {
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
        assert!(!said.contains("a lacks"), "{said}");
    }

    #[test]
    fn the_loader_that_was_started_is_found_among_the_entries() {
        let text = "BootCurrent: 0001\nBootOrder: 0001,0000\nBoot0000* Disk\tHD(1,GPT)/File(\\EFI\\BOOT\\BOOTX64.EFI)\nBoot0001* debian\tHD(1,GPT,1)/File(\\EFI\\debian\\shimx64.efi)\n";
        assert_eq!(
            loader(text, "x86_64", None).as_deref(),
            Some("\\EFI\\debian\\shimx64.efi")
        );
        assert_eq!(loader("BootCurrent: 0009\n", "x86_64", None), None);
        let bare = "BootCurrent: 0001\nBoot0001* UEFI Misc Device PciRoot(0x0)/Pci(0x2,0x0)\n";
        assert_eq!(
            loader(bare, "aarch64", None).as_deref(),
            Some("\\EFI\\BOOT\\BOOTAA64.EFI")
        );
        // Of another disk than the one that is run from.
        let two = "BootCurrent: 0001\nBoot0001* debian\tHD(1,GPT,aa-11)/File(\\EFI\\debian\\shimx64.efi)\nBoot0002* arch\tHD(1,GPT,BB-22)/File(\\EFI\\arch\\grubx64.efi)\nBoot0003* old\tHD(1,GPT,aa-11)/File(\\EFI\\old\\x.efi)\n";
        for (esp, wanted) in [
            ("bb-22", "\\EFI\\arch\\grubx64.efi"),
            ("aa-11", "\\EFI\\debian\\shimx64.efi"),
            ("cc-33", "\\EFI\\BOOT\\BOOTX64.EFI"),
        ] {
            assert_eq!(loader(two, "x86_64", Some(esp)).as_deref(), Some(wanted));
        }
    }
}
