//! What matters of a host for the memory of its GPU: one script, one round trip, a pure parser.

use std::collections::BTreeMap;
use std::time::Duration;

use super::script::Record;
use crate::provision::boot::Ground;
use crate::provision::boot::grub::File;
use crate::provision::boot::tools;
use crate::ssh::{Caps, Session, SshError};

const SCRIPT: &str = include_str!("look.sh");

/// What the script may take: 4 MiB, 64 KiB of complaints, 60 s.
const CAPS: Caps = Caps {
    stdout: 4 << 20,
    stderr: 64 << 10,
    time: Duration::from_secs(60),
};

/// A graphics device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// The kernel's name for it.
    pub name: String,
    /// Its driver.
    pub driver: Option<String>,
    /// Main memory that it may use, bytes.
    pub gtt: Option<u64>,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// What decides the mechanism.
    pub ground: Ground,
    /// Main memory that the system has, bytes.
    pub ram: Option<u64>,
    /// Bytes of a page.
    pub page: u64,
    /// Which boot this is.
    pub boot: Option<String>,
    /// `pages_limit` of modules that are loaded, by module.
    pub limits: BTreeMap<String, u64>,
    /// Graphics devices.
    pub cards: Vec<Card>,
    /// On a Mac: the limit in MiB, 0 for the system's own choice.
    pub wired: Option<u64>,
    /// On a Mac: the service that sets it.
    pub plist: Option<String>,
    /// On a Mac: the processor's architecture.
    pub arch: Option<String>,
    /// What may not be read by the login.
    pub unreadable: Vec<String>,
    /// Files whose bytes are no text.
    pub not_text: Vec<String>,
    /// What earlier runs did here and was not taken back, the newest first.
    pub records: Vec<Record>,
}

impl Seen {
    /// From what the script said.
    ///
    /// # Errors
    /// When that ends too early, or a record is not understood.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut seen = Self {
            page: 4096,
            ..Self::default()
        };
        let mut modprobe = Vec::new();
        let mut module = String::new();
        let mut rest = bytes;
        loop {
            let end = rest.iter().position(|byte| *byte == b'\n');
            let Some((line, after)) = end.and_then(|end| rest.split_at_checked(end)) else {
                return Err("the answer was cut off".to_owned());
            };
            rest = after.get(1..).unwrap_or_default();
            let line = String::from_utf8_lossy(line).into_owned();
            let (name, value) = line.split_once(' ').unwrap_or((&line, ""));
            let number = || value.trim().parse::<u64>().ok();
            match name {
                "end" => break,
                "file" => {
                    let mut words = value.splitn(3, ' ');
                    let (kind, size) = (words.next().unwrap_or_default(), words.next());
                    let path = words.next().unwrap_or_default().to_owned();
                    let size: usize = size.and_then(|size| size.parse().ok()).unwrap_or(0);
                    let Some((text, after)) = rest.split_at_checked(size) else {
                        return Err(format!("{path} was cut off"));
                    };
                    rest = after.get(1..).unwrap_or_default();
                    match std::str::from_utf8(text) {
                        Ok(text) => seen.file(kind, path, text, &mut modprobe)?,
                        Err(_) => seen.not_text.push(path),
                    }
                }
                "is" => match value {
                    "darwin" => seen.ground.darwin = true,
                    "nixos" => seen.ground.nixos = true,
                    "ostree" => seen.ground.ostree = true,
                    "proxmox" => seen.ground.proxmox = true,
                    "grub_stale" => seen.ground.grub_stale = true,
                    "early" => seen.ground.early = true,
                    _ => {}
                },
                "newer" => seen.ground.newer.push(value.to_owned()),
                "tool" => seen.ground.tools.push(value.to_owned()),
                "ram" => seen.ram = number(),
                "ram_kib" => seen.ram = number().and_then(|kib| kib.checked_mul(1024)),
                "page" => seen.page = number().filter(|page| *page > 0).unwrap_or(4096),
                "boot" => seen.boot = some(value),
                "arch" => seen.arch = some(value),
                "wired" => seen.wired = number(),
                "kargs" => seen.ground.kargs = some(value),
                "grub_cfg" => seen.ground.grub_cfg = some(value),
                "release" => value.clone_into(&mut seen.ground.release),
                "unreadable" => seen.unreadable.push(value.to_owned()),
                "module" => {
                    value.clone_into(&mut module);
                    // AMD's own takes the other's place.
                    seen.ground.module = some(value);
                }
                "limit" => {
                    if let Some(limit) = number() {
                        seen.limits.insert(module.clone(), limit);
                    }
                }
                "card" => seen.cards.push(Card {
                    name: value.to_owned(),
                    ..Card::default()
                }),
                "driver" => {
                    if let Some(card) = seen.cards.last_mut() {
                        card.driver = some(value);
                    }
                }
                "gtt" => {
                    if let Some(card) = seen.cards.last_mut() {
                        card.gtt = number();
                    }
                }
                _ => {}
            }
        }
        seen.ground.modprobe = in_order(modprobe);
        // The first of them is the one that new assignments go into.
        if seen
            .ground
            .grub
            .first()
            .is_some_and(|file| file.path != "/etc/default/grub")
        {
            seen.ground
                .grub
                .insert(0, File::new("/etc/default/grub", ""));
        }
        Ok(seen)
    }

    fn file(
        &mut self,
        kind: &str,
        path: String,
        text: &str,
        modprobe: &mut Vec<File>,
    ) -> Result<(), String> {
        match kind {
            "cmdline" => text.trim_end().clone_into(&mut self.ground.command_line),
            "grub" => self.ground.grub.push(File::new(path, text)),
            "entry" => self.ground.entries.push(File::new(path, text)),
            "install" => self.ground.kernel_cmdline = Some(File::new(path, text)),
            "modprobe" => modprobe.push(File::new(path, text)),
            "plist" => self.plist = Some(text.to_owned()),
            "record" => {
                let record = Record::parse(text).map_err(|error| format!("{path}: {error}"))?;
                self.records.push(record);
            }
            _ => {}
        }
        Ok(())
    }

    /// The service's limit on a Mac, MiB.
    pub fn plist_limit(&self) -> Option<u64> {
        tools::macos_limit(self.plist.as_deref()?)
    }
}

fn some(value: &str) -> Option<String> {
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

/// Files of modprobe.d in the order in which they count: by name; one in a folder named earlier takes
/// the place of one of its name in a later one.
fn in_order(files: Vec<File>) -> Vec<File> {
    let mut by_name: BTreeMap<String, File> = BTreeMap::new();
    for file in files {
        let name = file.path.rsplit('/').next().unwrap_or_default().to_owned();
        by_name.entry(name).or_insert(file);
    }
    by_name.into_values().collect()
}

/// Looks at a host, as root or as the login user.
///
/// # Errors
/// When the script could not be run to its end, or what it said is not understood.
pub async fn look(session: &Session, root: bool) -> Result<Seen, SshError> {
    let what = "looking at memory and boot settings";
    let output = session.run_as(root, what, SCRIPT, CAPS).await?;
    Seen::parse(&output.stdout).map_err(|reason| SshError::Broken {
        what: what.to_owned(),
        reason: match output.last_words() {
            words if words.is_empty() => reason,
            words => format!("{reason}; the host said: {words}"),
        },
    })
}

/// Looks at a host as its login, and as root where that login may not read all and root can be had.
///
/// # Errors
/// As [`look`].
pub async fn look_as_login(session: &Session) -> Result<Seen, SshError> {
    let seen = look(session, false).await?;
    match seen.unreadable.is_empty() {
        true => Ok(seen),
        false => Ok(look(session, true).await.unwrap_or(seen)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_keep_their_bytes_and_count_in_their_order() {
        let text = "ram_kib 1024\npage 4096\nfile cmdline 8 /proc/cmdline\nro quiet\n\
                    file grub 4 /etc/default/grub.d/1.cfg\nA=\n\n\nmodule ttm\nlimit 7\n\
                    file modprobe 2 /etc/modprobe.d/b.conf\n#b\nfile modprobe 2 /etc/modprobe.d/a.conf\n#a\n\
                    file modprobe 2 /usr/lib/modprobe.d/a.conf\n#c\n\
                    card card1\ndriver amdgpu\ngtt 5\nis early\nnewer /etc/modprobe.d/a.conf\nend .\n";
        let seen = Seen::parse(text.as_bytes()).unwrap();
        assert_eq!(seen.ram, Some(1 << 20));
        assert_eq!(seen.ground.command_line, "ro quiet");
        assert_eq!(seen.ground.grub[1].text, "A=\n\n");
        let texts: Vec<&str> = seen
            .ground
            .modprobe
            .iter()
            .map(|file| file.text.as_str())
            .collect();
        assert_eq!(texts, ["#a", "#b"]);
        assert_eq!(seen.limits.get("ttm"), Some(&7));
        assert_eq!(seen.cards[0].gtt, Some(5));
        assert!(seen.ground.early);
        assert_eq!(seen.ground.newer, ["/etc/modprobe.d/a.conf"]);
        assert!(Seen::parse(b"ram 5\n").is_err());
        assert!(Seen::parse(b"file grub 9 /x\nab\n").is_err());
        let seen = Seen::parse(b"file grub 1 /x\n\xff\nend .\n").unwrap();
        assert_eq!(seen.not_text, ["/x"]);
    }

    #[test]
    fn the_script_is_understood_on_this_machine_by_dash_and_bash() {
        for shell in ["dash", "bash"] {
            let ran = std::process::Command::new(shell)
                .args(["-c", SCRIPT])
                .output()
                .unwrap();
            assert!(
                ran.status.success() && ran.stderr.is_empty(),
                "{shell}: {ran:?}"
            );
            let seen = Seen::parse(&ran.stdout).unwrap();
            assert!(
                seen.ram > Some(0) && !seen.ground.command_line.is_empty(),
                "{shell}"
            );
        }
    }
}
