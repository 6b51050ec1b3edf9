//! Block devices and mounts as a host tells them: `lsblk --json`, `blkid -p -o export` and
//! `/proc/self/mountinfo`. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::figures::size;

/// Folder of all that is mounted on a host for a clone, by run.
pub const FOLDER: &str = "/run/windlass-clone";
/// Columns that `lsblk` is asked for. With the name it tells what lies in what; without, all in one row.
pub const COLUMNS: &str = "NAME,PATH,TYPE,SIZE,RO,MODEL,SERIAL,WWN,MOUNTPOINTS";

/// A block device with those that lie in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Block {
    /// Its node.
    pub path: String,
    /// `disk`, `part`, `lvm`, `crypt`, `loop` and others.
    #[serde(rename = "type")]
    pub kind: String,
    /// Bytes.
    pub size: u64,
    /// Whether it cannot be written.
    #[serde(default)]
    pub ro: bool,
    /// Of a disk.
    pub model: Option<String>,
    /// Of a disk.
    pub serial: Option<String>,
    /// Of a disk.
    pub wwn: Option<String>,
    /// Where it is mounted; `[SWAP]` for swap.
    #[serde(default)]
    mountpoints: Vec<Option<String>>,
    /// What lies in it.
    #[serde(default)]
    pub children: Vec<Block>,
    /// What its first bytes say.
    #[serde(skip)]
    pub probed: Probed,
}

/// What a device's own bytes and its entry in a partition table say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// File system or other use.
    pub kind: Option<String>,
    /// Its identifier.
    pub uuid: Option<String>,
    /// Its label.
    pub label: Option<String>,
    /// Identifier of the partition.
    pub part_uuid: Option<String>,
    /// Type of the partition.
    pub part_type: Option<String>,
    /// Name of the partition.
    pub part_name: Option<String>,
}

impl Block {
    /// Where it is mounted, by others than this.
    pub fn mounts(&self) -> impl Iterator<Item = &str> {
        let all = self.mountpoints.iter().flatten().map(String::as_str);
        all.filter(|at| !is_own(at))
    }

    /// It and all that lies in it.
    pub fn all(&self) -> Vec<&Block> {
        let mut all = vec![self];
        for child in &self.children {
            all.extend(child.all());
        }
        all
    }

    /// What a person types to confirm it: its serial; where it has none its WWN and size; else the kernel's
    /// name, the size and the beginning of the digest of its first MiB.
    pub fn token(&self, first: Option<&str>) -> Option<String> {
        let told = |text: &Option<String>| {
            let text = text.as_deref().unwrap_or_default().trim();
            let kept: String = text.split_whitespace().collect::<Vec<_>>().join("_");
            (!kept.is_empty()).then_some(kept)
        };
        if let Some(serial) = told(&self.serial) {
            return Some(serial);
        }
        if let Some(wwn) = told(&self.wwn) {
            return Some(format!("{wwn}-{}", self.size));
        }
        let first = first.filter(|first| first.len() == 64)?;
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let digest = first.get(..12)?;
        Some(format!("{name}-{}-{digest}", self.size))
    }

    /// The disk for people: model, node, size.
    pub fn words(&self) -> String {
        let model = self.model.as_deref().map(str::trim).unwrap_or_default();
        match model.is_empty() {
            true => format!("{} ({})", self.path, size(self.size)),
            false => format!("{model} at {} ({})", self.path, size(self.size)),
        }
    }
}

#[derive(Deserialize)]
struct Listing {
    blockdevices: Vec<Block>,
}

/// The devices that `lsblk` and `blkid` tell of.
///
/// # Errors
/// A sentence, when it is not what `lsblk` prints.
pub fn parse(lsblk: &str, blkid: &str) -> Result<Vec<Block>, String> {
    let listing: Listing = serde_json::from_str(lsblk)
        .map_err(|error| format!("lsblk (util-linux 2.37 or later) is not understood: {error}"))?;
    let probed = probed(blkid);
    let mut blocks = listing.blockdevices;
    for block in &mut blocks {
        fill(block, &probed);
    }
    Ok(blocks)
}

fn fill(block: &mut Block, probed: &BTreeMap<String, Probed>) {
    block.probed = probed.get(&block.path).cloned().unwrap_or_default();
    for child in &mut block.children {
        fill(child, probed);
    }
}

fn probed(text: &str) -> BTreeMap<String, Probed> {
    let mut all = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let value = unescaped(value);
        if key == "DEVNAME" {
            name.clone_from(&value);
            all.insert(value, Probed::default());
            continue;
        }
        let Some(one) = all.get_mut(&name) else {
            continue;
        };
        let field = match key {
            "TYPE" => &mut one.kind,
            "UUID" => &mut one.uuid,
            "LABEL" => &mut one.label,
            "PART_ENTRY_UUID" => &mut one.part_uuid,
            "PART_ENTRY_TYPE" => &mut one.part_type,
            "PART_ENTRY_NAME" => &mut one.part_name,
            _ => continue,
        };
        *field = Some(value).filter(|value| !value.is_empty());
    }
    all
}

/// `blkid` puts a backslash before what a shell would take for its own.
fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            c => out.push(c),
        }
    }
    out
}

/// A line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub at: String,
    /// Which folder of the file system.
    pub root: String,
    /// The file system.
    pub kind: String,
    /// Its device.
    pub source: String,
    /// The file system's own options.
    pub options: String,
}

/// Whether a mount is one of a clone that was cut off; those are ended before anything is written.
fn is_own(at: &str) -> bool {
    at.strip_prefix(FOLDER)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Reads `/proc/self/mountinfo`.
pub fn mounts(text: &str) -> Vec<Mount> {
    text.lines()
        .filter_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            let mut front = front.split(' ');
            let root = octal(front.nth(3)?);
            let at = octal(front.next()?);
            let mut back = back.split(' ');
            Some(Mount {
                at,
                root,
                kind: back.next()?.to_owned(),
                source: octal(back.next()?),
                options: back.next().unwrap_or_default().to_owned(),
            })
        })
        .filter(|mount| !is_own(&mount.at))
        .collect()
}

/// Takes `\040` and the like back.
pub fn octal(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 4);
        let code = digits
            .filter(|_| *byte == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                out.push(code);
                at += 4;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A disk of 512 GB with an ESP, a root and swap.
    pub const LSBLK: &str = r#"{"blockdevices":[
      {"path":"/dev/nvme0n1","type":"disk","size":512110190592,"ro":false,"model":"Fast One","serial":"S1 A ","wwn":"eui.01","mountpoints":[null],"children":[
        {"path":"/dev/nvme0n1p1","type":"part","size":536870912,"ro":false,"model":null,"serial":null,"wwn":"eui.01","mountpoints":["/boot/efi"]},
        {"path":"/dev/nvme0n1p2","type":"part","size":500000000000,"ro":false,"model":null,"serial":null,"wwn":"eui.01","mountpoints":["/"]},
        {"path":"/dev/nvme0n1p3","type":"part","size":8589934592,"ro":false,"model":null,"serial":null,"wwn":"eui.01","mountpoints":["[SWAP]"]}]},
      {"path":"/dev/sr0","type":"rom","size":1073741312,"ro":false,"model":"DVD","serial":null,"wwn":null,"mountpoints":[null]}]}"#;
    pub const BLKID: &str = "DEVNAME=/dev/nvme0n1p1\nUUID=AB12-CD34\nTYPE=vfat\nPART_ENTRY_UUID=11111111-0000-4000-8000-000000000001\nPART_ENTRY_TYPE=c12a7328-f81f-11d2-ba4b-00a0c93ec93b\n\nDEVNAME=/dev/nvme0n1p2\nLABEL=my\\ root\nUUID=22222222-0000-4000-8000-000000000002\nTYPE=ext4\nPART_ENTRY_UUID=11111111-0000-4000-8000-000000000002\nPART_ENTRY_TYPE=0fc63daf-8483-4772-8e79-3d69d8477de4\n\nDEVNAME=/dev/nvme0n1p3\nUUID=33333333-0000-4000-8000-000000000003\nTYPE=swap\nPART_ENTRY_UUID=11111111-0000-4000-8000-000000000003\n";

    #[test]
    fn devices_are_read_with_what_their_own_bytes_say() {
        let blocks = parse(LSBLK, BLKID).unwrap();
        let all = blocks[0].all();
        let kinds: Vec<_> = all.iter().map(|b| b.probed.kind.as_deref()).collect();
        assert_eq!(kinds, [None, Some("vfat"), Some("ext4"), Some("swap")]);
        assert_eq!(all[2].probed.label.as_deref(), Some("my root"));
        assert_eq!(all[2].mounts().collect::<Vec<_>>(), ["/"]);
        assert!(parse("{}", "").unwrap_err().contains("2.37"));
    }

    #[test]
    fn a_disk_is_confirmed_by_serial_else_wwn_and_size_else_name_size_and_first_bytes() {
        let first = "0123456789abcdef".repeat(4);
        let disk = |serial: Option<&str>, wwn: Option<&str>| Block {
            path: "/dev/sdb".into(),
            size: 1000,
            serial: serial.map(str::to_owned),
            wwn: wwn.map(str::to_owned),
            ..Block::default()
        };
        let table = [
            (disk(Some(" S1 A "), Some("w")), Some("S1_A")),
            (disk(Some("  "), Some("0x5")), Some("0x5-1000")),
            (disk(None, None), Some("sdb-1000-0123456789ab")),
        ];
        for (disk, wanted) in table {
            assert_eq!(disk.token(Some(&first)).as_deref(), wanted);
        }
        assert_eq!(disk(None, None).token(None), None);
        assert_eq!(disk(None, None).token(Some("0123")), None);
    }

    #[test]
    fn mounts_are_read_with_strange_names_and_subvolumes() {
        let text = "36 35 98:0 /@ / rw,noatime shared:1 - btrfs /dev/sda2 rw,subvol=/@\n\
                    41 36 98:1 / /run/windlass-clone/r/to/0 rw - ext4 /dev/sdb1 rw\n\
                    40 36 98:1 / /mnt/a\\040b rw - ext4 /dev/sdb1 rw\nnonsense\n";
        let all = mounts(text);
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].root.as_str(), all[0].at.as_str()), ("/@", "/"));
        assert_eq!(all[1].at, "/mnt/a b");
        assert_eq!(octal("\\9x\\04"), "\\9x\\04");
    }
}
