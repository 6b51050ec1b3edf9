//! What of a disk is the system that is to be cloned. Pure.

use std::collections::BTreeSet;

use super::disks::{Block, Mount};
use super::identity::fstab;
use super::logical::{Logical, Taking};

/// Type of a GPT partition that GRUB puts its core into where the firmware is a BIOS.
pub const BIOS_BOOT: &str = "21686148-6449-6e6f-744e-656564454649";
/// Type of an EFI system partition.
pub const ESP: &str = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b";

/// Type of a partition that holds kernels beside one of EFI (the Boot Loader Specification).
const XBOOTLDR: &str = "bc13c2ff-59e6-4262-a352-b275fd6f7172";

/// A file system or swap of the system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Its device.
    pub path: String,
    /// `ext4`, `vfat`, `swap` and others.
    pub kind: String,
    /// Bytes of the device.
    pub size: u64,
    /// Bytes that files take.
    pub used: u64,
    /// Identifier of the file system.
    pub uuid: Option<String>,
    /// Label of the file system.
    pub label: Option<String>,
    /// Identifier of the partition.
    pub part_uuid: Option<String>,
    /// Type of the partition.
    pub part_type: Option<String>,
    /// Whether it is an EFI system partition.
    pub esp: bool,
    /// Where it is mounted now: where, and which folder of it.
    pub mounted: Vec<(String, String)>,
    /// The subvolume of a btrfs that is mounted when none is named, from its top; none for the top.
    pub default: Option<String>,
    /// Where the system mounts it; none where it does not.
    pub place: Option<String>,
    /// The option by which a btrfs compresses what is written: uncompressed, its files may not fit.
    pub compress: Option<String>,
    /// How a snapshot of it is taken by LVM, when it is.
    pub logical: Option<Taking>,
    /// Other nodes that mean it.
    pub names: Vec<String>,
}

impl Volume {
    /// Whether it is copied as of one instant, from a snapshot.
    pub fn frozen(&self) -> bool {
        self.logical.is_some() || (self.kind == "btrfs" && !self.mounted.is_empty())
    }

    /// The folders of it that are copied, each for itself: the subvolumes of a btrfs that are mounted,
    /// else the whole, whose name is empty.
    pub fn subvolumes(&self) -> Vec<String> {
        let mut all: Vec<String> = match self.kind.as_str() {
            "btrfs" => self
                .mounted
                .iter()
                .map(|(_, root)| root.trim_end_matches('/').to_owned())
                .collect(),
            _ => Vec::new(),
        };
        if all.is_empty() {
            all.push(String::new());
        }
        // An outer one before those in it.
        all.sort();
        all.dedup();
        all
    }
}

/// What of a disk is read, and what is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    /// The disk.
    pub disk: Block,
    /// What is copied.
    pub volumes: Vec<Volume>,
    /// Sentences on what is not.
    pub left: Vec<String>,
}

/// File systems that are copied.
const KINDS: [&str; 7] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "vfat", "swap"];

/// Finds the system's disk, `wanted` or the one that is run from, and what is on it.
///
/// # Errors
/// A sentence, when there is none or it is of a kind that is not cloned.
pub fn find(
    blocks: &[Block],
    mounts: &[Mount],
    logical: &[Logical],
    wanted: Option<&str>,
) -> Result<Volumes, String> {
    let disk = match wanted {
        Some(path) => blocks.iter().find(|block| block.path == path),
        None => {
            let root = mounts.iter().rev().find(|mount| mount.at == "/");
            let device = root.map(|mount| mount.source.as_str()).unwrap_or_default();
            let holds = |block: &&Block| block.all().iter().any(|one| one.path == device);
            blocks.iter().find(holds)
        }
    };
    let Some(disk) = disk else {
        return Err(match wanted {
            Some(path) => format!("there is no disk {path}; disks are {}", disks(blocks)),
            None => {
                let root = mounts.iter().rev().find(|mount| mount.at == "/");
                let kind = root.map_or("nothing known", |mount| mount.kind.as_str());
                format!(
                    "the system runs from {kind}, which lies on no disk that can be read; name the disk that holds the system with --source: {}",
                    disks(blocks)
                )
            }
        });
    };
    let mut found = Volumes {
        disk: disk.clone(),
        ..Volumes::default()
    };
    let mut seen = BTreeSet::new();
    for block in disk.all() {
        let probed = &block.probed;
        if block.kind == "crypt" {
            return Err(format!(
                "{} is encrypted (dm-crypt), and a copy of it would not be: this is not cloned yet",
                block.path
            ));
        }
        let Some(kind) = probed.kind.as_deref() else {
            // Silence would leave out what somebody uses.
            if let Some(mount) = mounts.iter().find(|mount| mount.source == block.path) {
                return Err(format!(
                    "{} is mounted at {}, but blkid cannot read from it what it is: its disk may be failing (dmesg tells)",
                    block.path, mount.at
                ));
            }
            continue;
        };
        // One that lies in two places is told twice.
        if !seen.insert(block.path.as_str()) {
            continue;
        }
        if block.kind == "lvm" && !logical.is_empty() {
            match logical.iter().find(|one| one.path == block.path) {
                // What LVM makes a volume of is none.
                None => continue,
                Some(one) if one.snapshot && one.name.starts_with(super::logical::SNAPSHOT) => {
                    continue;
                }
                Some(one) if one.snapshot => {
                    found
                        .left
                        .push(format!("{} is a snapshot and not copied", block.path));
                    continue;
                }
                Some(_) => {}
            }
        }
        match kind {
            "crypto_LUKS" => {
                return Err(format!(
                    "{} is encrypted (LUKS), and a copy of it would not be: this is not cloned yet",
                    block.path
                ));
            }
            "zfs_member" | "linux_raid_member" | "bcache" => {
                return Err(format!(
                    "{} is part of {kind}, which is not cloned yet",
                    block.path
                ));
            }
            "LVM2_member" => continue,
            _ => {}
        }
        if !KINDS.contains(&kind) {
            found.left.push(format!(
                "{} ({kind}) is not copied: only {} are",
                block.path,
                KINDS.join(", ")
            ));
            continue;
        }
        let same = |one: &&Volume| one.kind == "btrfs" && one.uuid == probed.uuid;
        if kind == "btrfs" && found.volumes.iter().any(|one| same(&one)) {
            return Err(format!(
                "{} is one of several devices of one btrfs, which is not cloned yet",
                block.path
            ));
        }
        found.volumes.push(Volume {
            path: block.path.clone(),
            kind: kind.to_owned(),
            size: block.size,
            used: 0,
            uuid: probed.uuid.clone(),
            label: probed.label.clone(),
            part_uuid: probed.part_uuid.clone(),
            part_type: probed.part_type.clone(),
            names: names(block),
            esp: probed.part_type.as_deref() == Some(ESP),
            mounted: mounts
                .iter()
                .filter(|mount| mount.source == block.path && kind != "swap")
                .map(|mount| (mount.at.clone(), mount.root.clone()))
                .collect(),
            ..Volume::default()
        });
    }
    if found.volumes.iter().all(|one| one.kind == "swap") {
        return Err(format!("no file system is on {}", disk.words()));
    }
    Ok(found)
}

/// What names a partition and is another on the new disk, where partitions stand in another order and have
/// names of their own. Only what is safe in a pattern.
fn names(block: &Block) -> Vec<String> {
    let safe = |text: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"/_.+-=".contains(&b);
        !text.is_empty() && text.bytes().all(plain)
    };
    let name = block.probed.part_name.iter();
    let mut all: Vec<String> = name
        .flat_map(|name| {
            ["PARTLABEL=", "/dev/disk/by-partlabel/"].map(|how| format!("{how}{name}"))
        })
        .collect();
    all.push(block.path.clone());
    all.retain(|name| safe(name));
    all
}

/// Disks for people.
pub fn disks(blocks: &[Block]) -> String {
    let all: Vec<String> = blocks
        .iter()
        .filter(|block| matches!(block.kind.as_str(), "disk" | "loop") && block.size > 0)
        .map(Block::words)
        .collect();
    match all.is_empty() {
        true => "none".to_owned(),
        false => all.join(", "),
    }
}

/// Keeps of a btrfs' mounts those of subvolumes, by the list of them from the top; others are folders that
/// are mounted once more. A sentence on those that are not copied.
pub fn subvolumes(volume: &mut Volume, list: &str) -> Option<String> {
    let all: Vec<String> = list
        .lines()
        .filter(|path| !path.is_empty() && !path.starts_with(super::script::SNAPSHOT))
        .map(|path| format!("/{path}"))
        .collect();
    volume
        .mounted
        .retain(|(_, root)| root == "/" || all.contains(root));
    let mounted = |path: &&String| volume.mounted.iter().any(|(_, root)| root == *path);
    let left: Vec<&String> = all.iter().filter(|path| !mounted(path)).collect();
    let first = left.first()?;
    Some(format!(
        "{} of {} not mounted and not copied, as {first}",
        crate::figures::counted(left.len(), "subvolume", "subvolumes"),
        match left.len() {
            1 => format!("{} is", volume.path),
            _ => format!("{} are", volume.path),
        }
    ))
}

/// Where systemd mounts a boot partition of its own accord when somebody looks there, and unmounts it soon
/// after; `base`: where the system's root is.
fn awaited(volume: &Volume, base: &str, mounts: &[Mount]) -> Option<String> {
    let places: &[&str] = match volume.part_type.as_deref() {
        Some(ESP) => &["/efi", "/boot/efi", "/boot"],
        Some(XBOOTLDR) => &["/boot"],
        _ => &[],
    };
    let waits = |place: &&&str| {
        let at = |mount: &Mount| mount.at.strip_prefix(base) == Some(**place);
        mounts
            .iter()
            .any(|mount| mount.kind == "autofs" && at(mount))
    };
    places.iter().find(waits).map(|place| (*place).to_owned())
}

/// The option by which a btrfs compresses, as it does now, else as the system's fstab has it.
fn compress(volume: &Volume, entries: &[fstab::Entry], mounts: &[Mount]) -> Option<String> {
    if volume.kind != "btrfs" {
        return None;
    }
    let own = mounts.iter().filter(|mount| mount.source == volume.path);
    let listed = entries.iter().filter(|one| fstab::is_of(&one.spec, volume));
    let all = own
        .map(|mount| &mount.options)
        .chain(listed.map(|entry| &entry.options));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '=' | ':');
    all.flat_map(|options| options.split(','))
        .find(|option| option.starts_with("compress") && option.chars().all(plain))
        .map(str::to_owned)
}

/// Says of every volume where the system mounts it, by its fstab; `root`: the volume with that file.
pub fn place(volumes: &mut [Volume], root: usize, text: &str, mounts: &[Mount]) {
    let entries = fstab::entries(text);
    let base = volumes
        .get(root)
        .and_then(|volume| volume.mounted.first())
        .map(|(at, _)| at.trim_end_matches('/').to_owned());
    for (number, volume) in volumes.iter_mut().enumerate() {
        volume.compress = compress(volume, &entries, mounts);
        if number == root {
            volume.place = Some("/".to_owned());
            continue;
        }
        let entry = entries
            .iter()
            .find(|entry| fstab::is_of(&entry.spec, volume));
        volume.place = match entry {
            Some(entry) if entry.place.starts_with('/') => Some(entry.place.clone()),
            Some(_) => None,
            // Mounted without a line: systemd does so with an EFI system partition.
            None => base.as_ref().and_then(|base| {
                let Some((at, _)) = volume.mounted.first() else {
                    return awaited(volume, base, mounts);
                };
                let below = at.strip_prefix(base.as_str())?;
                below.starts_with('/').then(|| below.to_owned())
            }),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::disks::tests::{BLKID, LSBLK};
    use super::super::disks::{mounts, parse};
    use super::*;

    const MOUNTS: &str = "1 0 8:2 / / rw - ext4 /dev/nvme0n1p2 rw\n2 1 8:1 / /boot/efi rw - vfat /dev/nvme0n1p1 rw\n";

    #[test]
    fn the_disk_that_is_run_from_is_the_system() {
        let blocks = parse(LSBLK, BLKID).unwrap();
        let mut found = find(&blocks, &mounts(MOUNTS), &[], None).unwrap();
        let kinds: Vec<_> = found.volumes.iter().map(|v| v.kind.as_str()).collect();
        assert_eq!(kinds, ["vfat", "ext4", "swap"]);
        assert!(found.volumes[0].esp);
        place(
            &mut found.volumes,
            1,
            "LABEL=my\\040root / ext4 defaults 0 1\n",
            &mounts(MOUNTS),
        );
        let places: Vec<_> = found.volumes.iter().map(|v| v.place.as_deref()).collect();
        assert_eq!(places, [Some("/boot/efi"), Some("/"), None]);
    }

    #[test]
    fn a_btrfs_is_written_compressed_as_it_is_now_or_as_its_fstab_has_it() {
        let volume = Volume {
            path: "/dev/sda2".into(),
            kind: "btrfs".into(),
            uuid: Some("A".into()),
            ..Volume::default()
        };
        let of = |now: &str, fstab: &str| {
            let text =
                format!("1 0 0:30 /@ / rw,noatime - btrfs /dev/sda2 rw,{now}ssd,subvol=/@\n");
            let fstab = format!("UUID=A / btrfs subvol=@{fstab} 0 0\n");
            let mut volumes = [volume.clone()];
            place(&mut volumes, 0, &fstab, &mounts(&text));
            let [volume] = volumes;
            volume.compress
        };
        assert_eq!(of("", ""), None);
        assert_eq!(of("compress=zstd:1,", ""), Some("compress=zstd:1".into()));
        assert_eq!(
            of("", ",compress-force=lzo"),
            Some("compress-force=lzo".into())
        );
        assert_eq!(
            of("compress=zstd:3,", ",compress=lzo"),
            Some("compress=zstd:3".into())
        );
        assert_eq!(of("compress=$(reboot),", ""), None);
    }

    #[test]
    fn a_boot_partition_that_systemd_mounts_when_it_is_looked_at_has_its_place() {
        let text = "1 0 8:2 / / rw - ext4 /dev/nvme0n1p2 rw\n2 1 0:40 / /efi rw - autofs systemd-1 rw,fd=52\n";
        let blocks = parse(LSBLK, BLKID).unwrap();
        let mut found = find(&blocks, &mounts(text), &[], None).unwrap();
        let fstab = "LABEL=my\\040root / ext4 defaults 0 1\n";
        place(&mut found.volumes, 1, fstab, &mounts(text));
        assert_eq!(found.volumes[0].place.as_deref(), Some("/efi"));
        place(&mut found.volumes, 1, fstab, &[]);
        assert_eq!(found.volumes[0].place, None);
    }

    #[test]
    fn of_logical_volumes_those_are_copied_that_people_made() {
        let lvm = |name: &str, inner: &str| {
            format!(
                r#"{{"name":"x","path":"/dev/mapper/{name}","type":"lvm","size":99,"children":[{inner}]}}"#
            )
        };
        let (root, own, other) = (
            lvm("vg-root", ""),
            lvm("vg-windlass--clone--k--0", ""),
            lvm("vg-before", ""),
        );
        let real = lvm("vg-root-real", &format!("{root},{own},{other}"));
        let lsblk = format!(
            r#"{{"blockdevices":[{{"name":"sda","path":"/dev/sda","type":"disk","size":999,"children":[{real},{}]}}]}}"#,
            lvm("vg-cow", &own)
        );
        let names = [
            "vg-root",
            "vg-root-real",
            "vg-windlass--clone--k--0",
            "vg-before",
        ];
        let blkid: String = names
            .iter()
            .map(|name| format!("DEVNAME=/dev/mapper/{name}\nUUID=a\nTYPE=ext4\n\n"))
            .collect();
        let blocks = parse(&lsblk, &blkid).unwrap();
        let lvs = "/dev/mapper/vg-root|vg|root|99|0||||a|b\n\
                   /dev/mapper/vg-windlass--clone--k--0|vg|windlass-clone-k-0|99|0||root||a|c\n\
                   /dev/mapper/vg-before|vg|before|99|0||root||a|d\n";
        let logical = super::super::logical::parse(lvs);
        let found = find(&blocks, &[], &logical, Some("/dev/sda")).unwrap();
        let paths: Vec<_> = found.volumes.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(paths, ["/dev/mapper/vg-root"]);
        assert_eq!(
            found.left,
            ["/dev/mapper/vg-before is a snapshot and not copied"]
        );
    }

    #[test]
    fn of_a_btrfs_only_subvolumes_that_are_mounted_are_copied_and_others_are_named() {
        let mount = |root: &str| ("/x".to_owned(), root.to_owned());
        let mut volume = Volume {
            path: "/dev/sda1".into(),
            kind: "btrfs".into(),
            mounted: vec![mount("/@"), mount("/@/home/x"), mount("/@home")],
            ..Volume::default()
        };
        let list = "@\n@home\n@/var/lib/machines\n.windlass-clone-a-0-0\n";
        let said = subvolumes(&mut volume, list).unwrap();
        assert_eq!(volume.subvolumes(), ["/@", "/@home"]);
        assert_eq!(
            said,
            "1 subvolume of /dev/sda1 is not mounted and not copied, as /@/var/lib/machines"
        );
        assert_eq!(subvolumes(&mut volume, "@\n@home\n"), None);
    }

    #[test]
    fn what_cannot_be_cloned_is_said_with_what_there_is() {
        let blocks = parse(LSBLK, BLKID).unwrap();
        let overlay = "1 0 0:5 / / rw - overlay overlay rw\n";
        let error = find(&blocks, &mounts(overlay), &[], None).unwrap_err();
        assert!(
            error.contains("overlay") && error.contains("--source") && error.contains("Fast One")
        );
        let error = find(&blocks, &[], &[], Some("/dev/sda")).unwrap_err();
        assert!(error.contains("no disk /dev/sda"), "{error}");
        for (from, to, wanted) in [
            ("TYPE=ext4", "TYPE=crypto_LUKS", "LUKS"),
            ("TYPE=ext4", "TYPE=zfs_member", "zfs"),
        ] {
            let blocks = parse(LSBLK, &BLKID.replace(from, to)).unwrap();
            let error = find(&blocks, &[], &[], Some("/dev/nvme0n1")).unwrap_err();
            assert!(
                error.contains(wanted) && error.contains("/dev/nvme0n1p2"),
                "{error}"
            );
        }
        let blocks = parse(LSBLK, &BLKID.replace("TYPE=vfat", "X=vfat")).unwrap();
        let error = find(&blocks, &mounts(MOUNTS), &[], None).unwrap_err();
        assert!(
            error.contains("/dev/nvme0n1p1 is mounted at /boot/efi") && error.contains("failing"),
            "{error}"
        );
        let blocks = parse(LSBLK, &BLKID.replace("TYPE=vfat", "TYPE=ntfs")).unwrap();
        let found = find(&blocks, &[], &[], Some("/dev/nvme0n1")).unwrap();
        assert_eq!((found.volumes.len(), found.left.len()), (2, 1));
    }
}
