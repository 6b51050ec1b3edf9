//! Logical volumes of LVM as a host tells of them, and what a snapshot of one takes. Pure.

use super::source::Volume;
use crate::figures::size;

/// What `lvs` is asked for, a volume a line, fields with a bar between.
pub const FIELDS: &str =
    "lv_dm_path,vg_name,lv_name,lv_size,vg_free,pool_lv,origin,lv_attr,vg_uuid,lv_uuid";
/// How the name of a snapshot begins that is made for this.
pub const SNAPSHOT: &str = "windlass-clone-";
/// Least that a snapshot must be able to hold: what a machine writes in a minute or two.
const LEAST: u64 = 32 << 20;
/// Extents are as large as this or smaller, almost always.
const EXTENT: u64 = 4 << 20;

/// A logical volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logical {
    /// Its node, below `/dev/mapper`.
    pub path: String,
    /// Its volume group.
    pub group: String,
    /// Its name there.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Bytes of the group that nothing has.
    pub free: u64,
    /// Whether it lies in a thin pool.
    pub thin: bool,
    /// Whether it is a snapshot of another.
    pub snapshot: bool,
    /// Whether it is a snapshot that ran full: nothing can be read from it.
    pub lost: bool,
    /// Other nodes that mean it.
    pub names: Vec<String>,
}

/// How a snapshot is taken of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taking {
    /// Its volume group.
    pub group: String,
    /// Its name there.
    pub name: String,
    /// Bytes of what changes meanwhile; of a thin one the pool's.
    pub bytes: Option<u64>,
}

/// The volumes that `lvs` tells of; lines that are not understood are left out.
pub fn parse(text: &str) -> Vec<Logical> {
    text.lines().filter_map(one).collect()
}

fn one(line: &str) -> Option<Logical> {
    let mut fields = line.trim().split('|');
    let mut next = || fields.next().map(str::trim);
    let (path, group, name) = (next()?, next()?, next()?);
    let (size, free) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let (pool, origin, attributes) = (next()?, next()?, next()?);
    let bare = |id: &str| id.replace('-', "");
    let (group_id, id) = (bare(next()?), bare(next()?));
    let mapped = path.strip_prefix("/dev/mapper/")?;
    if !(is_name(group) && is_name(name)) {
        return None;
    }
    Some(Logical {
        path: path.to_owned(),
        group: group.to_owned(),
        name: name.to_owned(),
        size,
        free,
        thin: !pool.is_empty(),
        snapshot: !origin.is_empty(),
        // lvs(8): the fifth bit is the state, I and S of a snapshot that is invalid.
        lost: matches!(attributes.as_bytes().get(4), Some(b'I' | b'S')),
        names: vec![
            path.to_owned(),
            format!("/dev/{group}/{name}"),
            format!("/dev/disk/by-id/dm-name-{mapped}"),
            format!("/dev/disk/by-id/dm-uuid-LVM-{group_id}{id}"),
        ],
    })
}

/// Whether it is a name that LVM gives (lvm(8)): harmless in scripts and patterns.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+_.-".contains(&b))
}

/// Says of each volume that is mounted and a logical one how its snapshot is taken; sentences on those
/// that have no room for it. The room of a group is shared by its volumes; what snapshots of an earlier
/// transfer hold counts as free.
pub fn take(volumes: &mut [Volume], all: &[Logical]) -> Vec<String> {
    let own = |one: &&Logical| one.snapshot && one.name.starts_with(SNAPSHOT);
    let mut left = Vec::new();
    let wants = |volume: &Volume, group: &str| {
        let of = |one: &Logical| one.path == volume.path && one.group == group && !one.thin;
        copied(volume) && all.iter().any(of)
    };
    let wanted: Vec<usize> = volumes
        .iter()
        .map(|volume| {
            let group = all.iter().find(|one| one.path == volume.path);
            let group = group.map_or("", |one| one.group.as_str());
            volumes.iter().filter(|other| wants(other, group)).count()
        })
        .collect();
    for (volume, sharing) in volumes.iter_mut().zip(wanted) {
        let Some(logical) = all.iter().find(|one| one.path == volume.path) else {
            continue;
        };
        volume.names.clone_from(&logical.names);
        if !copied(volume) {
            continue;
        }
        let mut taking = Taking {
            group: logical.group.clone(),
            name: logical.name.clone(),
            bytes: None,
        };
        if !logical.thin {
            let held = all
                .iter()
                .filter(own)
                .filter(|one| one.group == logical.group);
            let free = logical.free + held.map(|one| one.size).sum::<u64>();
            let share = free / sharing.max(1) as u64 / EXTENT * EXTENT;
            // More than all of it can never change; an eighth more is what the snapshot's own tables take.
            let bytes = share.min((logical.size + logical.size / 8) / EXTENT * EXTENT);
            if bytes < LEAST {
                left.push(format!(
                    "{} is copied while it is in use: a snapshot of it needs {} that are free in the volume group {}, and {} are",
                    volume.path,
                    size(LEAST * sharing as u64),
                    logical.group,
                    size(free)
                ));
                continue;
            }
            taking.bytes = Some(bytes);
        }
        volume.logical = Some(taking);
    }
    left
}

/// Names of the snapshots of earlier transfers that can still be read.
pub fn held(all: &[Logical]) -> impl Iterator<Item = &str> {
    let own = |one: &&Logical| one.snapshot && !one.lost && one.name.starts_with(SNAPSHOT);
    all.iter().filter(own).map(|one| one.name.as_str())
}

/// Whether a snapshot serves: something may change in it. Btrfs has its own.
fn copied(volume: &Volume) -> bool {
    !volume.mounted.is_empty() && !matches!(volume.kind.as_str(), "swap" | "btrfs" | "vfat")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str =
        "  /dev/mapper/vg-root|vg|root|4294967296|1073741824|||-wi-ao----|aBc-1|dEf-2";

    fn volume(path: &str) -> Volume {
        Volume {
            path: path.into(),
            kind: "ext4".into(),
            mounted: vec![("/".into(), "/".into())],
            ..Volume::default()
        }
    }

    #[test]
    fn a_logical_volume_is_known_by_every_name_that_a_mount_may_have() {
        let all = parse(&format!("{ROOT}\nWARNING: something\n"));
        assert_eq!(all.len(), 1);
        assert_eq!(
            all[0].names,
            [
                "/dev/mapper/vg-root",
                "/dev/vg/root",
                "/dev/disk/by-id/dm-name-vg-root",
                "/dev/disk/by-id/dm-uuid-LVM-aBc1dEf2"
            ]
        );
        assert!(!all[0].thin && !all[0].snapshot && !all[0].lost);
        assert!(parse("  /dev/mapper/v|v$(x)|y|1|1||||a|b").is_empty());
    }

    #[test]
    fn volumes_share_the_room_of_their_group_and_one_without_room_is_named() {
        let home = ROOT.replace("root", "home");
        let all = parse(&format!("{ROOT}\n{home}\n"));
        let mut volumes = [volume("/dev/mapper/vg-root"), volume("/dev/mapper/vg-home")];
        assert!(take(&mut volumes, &all).is_empty());
        for volume in &volumes {
            let taking = volume.logical.as_ref().unwrap();
            assert_eq!(taking.bytes, Some(512 << 20));
        }
        let all = parse(&format!("{ROOT}\n{home}\n").replace("1073741824", "40000000"));
        let mut volumes = [volume("/dev/mapper/vg-root"), volume("/dev/mapper/vg-home")];
        let said = take(&mut volumes, &all);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].contains("/dev/mapper/vg-root is copied while it is in use"),
            "{said:?}"
        );
        assert!(volumes.iter().all(|one| one.logical.is_none()));
    }

    #[test]
    fn what_an_earlier_transfer_holds_counts_as_free_and_a_full_snapshot_is_known() {
        let held = "  /dev/mapper/vg-windlass--clone--k--0|vg|windlass-clone-k-0|1073741824|0||root|swi-I-s---|aBc-1|x";
        let all = parse(&format!("{}\n{held}\n", ROOT.replace("1073741824", "0")));
        assert!(all[1].lost && all[1].snapshot);
        let mut volumes = [volume("/dev/mapper/vg-root")];
        assert!(take(&mut volumes, &all).is_empty());
        assert_eq!(volumes[0].logical.as_ref().unwrap().bytes, Some(1 << 30));
    }

    #[test]
    fn a_thin_volume_needs_no_room_of_its_own() {
        let all = parse(&ROOT.replace("|||", "|pool||").replace("1073741824", "0"));
        let mut volumes = [volume("/dev/mapper/vg-root")];
        assert!(take(&mut volumes, &all).is_empty());
        assert_eq!(volumes[0].logical.as_ref().unwrap().bytes, None);
    }
}
