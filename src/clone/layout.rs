//! The partitions of the new disk, fitted to it: a table of its own, always GPT, plain partitions. Pure.

use super::source::{BIOS_BOOT, ESP, Volume};
use crate::figures::size;

/// Type of a partition with a Linux file system.
pub const LINUX: &str = "0fc63daf-8483-4772-8e79-3d69d8477de4";
/// Type of a partition with swap.
pub const SWAP: &str = "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f";

/// Types that say what a partition is for, and are looked for: the boot loader's own, root on x86-64 and on
/// arm64, home, srv, usr (UAPI group, discoverable partitions). One for /var is bound to the machine id.
const KEPT: [&str; 6] = [
    "bc13c2ff-59e6-4262-a352-b275fd6f7172",
    "4f68bce3-e8cd-4db1-96e7-fbcaf984b709",
    "b921b045-1df0-41c3-af44-4c6f280d3fae",
    "933ac7e1-2eb4-4f13-b844-0e14e2aef915",
    "3b8f8425-20e0-4f3b-907f-1a25a76f98e8",
    "8484680c-9521-48c6-9c11-b0720656f69e",
];

const MIB: u64 = 1 << 20;
/// What a table takes at both ends, with room for alignment.
const EDGES: u64 = 4 * MIB;
/// Room that a file system needs beside its files: an eighth, and this.
const BESIDE: u64 = 64 * MIB;
/// Least size of an EFI system partition, as its files need little.
const LEAST: u64 = 16 * MIB;

/// A partition of the new disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The volume that goes there; none for the partition of a BIOS's boot loader.
    pub volume: Option<usize>,
    /// Bytes.
    pub size: u64,
    /// Its type once all is done.
    pub kind: &'static str,
}

/// Bytes that a volume needs at least.
fn least(volume: &Volume) -> u64 {
    let files = volume.used + volume.used / 8 + BESIDE;
    match volume.kind.as_str() {
        "swap" => volume.size,
        "vfat" => (volume.used + volume.used / 8 + LEAST).min(volume.size),
        // It refuses less.
        "xfs" => files.max(320 * MIB),
        "btrfs" => files.max(256 * MIB),
        _ => files,
    }
}

/// Whether a volume keeps its size where there is room.
fn fixed(volume: &Volume) -> bool {
    matches!(volume.kind.as_str(), "swap" | "vfat")
}

fn whole(bytes: u64) -> u64 {
    bytes / MIB * MIB
}

/// Fits volumes to a disk of so many bytes. On a larger one the largest file system grows; on a smaller
/// one all file systems shrink, each in proportion to what it has to spare. The root or, without one,
/// the largest comes last.
///
/// # Errors
/// A sentence with what is needed, when the disk is too small.
pub fn fit(volumes: &[Volume], disk: u64, uefi: bool) -> Result<Vec<Part>, String> {
    let bios = if uefi { 0 } else { MIB };
    let room = whole(disk.saturating_sub(EDGES + bios));
    let least_all: u64 = volumes.iter().map(|one| round(least(one))).sum();
    if least_all > room {
        return Err(format!(
            "the disk has {}, and what is to be copied needs {}",
            size(disk),
            size(least_all + EDGES + bios)
        ));
    }
    let wanted: u64 = volumes.iter().map(|one| whole(one.size)).sum();
    let mut sizes: Vec<u64> = if wanted <= room {
        volumes
            .iter()
            .map(|one| whole(one.size).max(round(least(one))))
            .collect()
    } else {
        let fix: u64 = volumes.iter().filter(|one| fixed(one)).map(keeps).sum();
        let loose_least: u64 = volumes
            .iter()
            .filter(|one| !fixed(one))
            .map(|one| round(least(one)))
            .sum();
        // Even what keeps its size gives way before nothing fits.
        let kept = fix + loose_least <= room;
        let base = |one: &Volume| match fixed(one) && kept {
            true => keeps(one),
            false => round(least(one)),
        };
        let spare = |one: &Volume| match fixed(one) {
            true => 0,
            false => whole(one.size).saturating_sub(round(least(one))),
        };
        let based: u64 = volumes.iter().map(base).sum();
        let left = room.saturating_sub(based);
        let spares: u64 = volumes.iter().map(spare).sum();
        volumes
            .iter()
            .map(|one| base(one) + share(left, spare(one), spares))
            .collect()
    };
    let grows = (0..volumes.len())
        .filter(|at| volumes.get(*at).is_some_and(|one| !fixed(one)))
        .max_by_key(|at| {
            let root = volumes
                .get(*at)
                .is_some_and(|one| one.place.as_deref() == Some("/"));
            (sizes.get(*at).copied().unwrap_or(0), root)
        });
    let used: u64 = sizes.iter().sum();
    if let Some(size) = grows.and_then(|at| sizes.get_mut(at)) {
        *size += room.saturating_sub(used);
    }
    let mut parts = Vec::new();
    if !uefi {
        parts.push(Part {
            volume: None,
            size: MIB,
            kind: BIOS_BOOT,
        });
    }
    let mut order: Vec<usize> = (0..volumes.len()).filter(|at| Some(*at) != grows).collect();
    order.extend(grows);
    for at in order {
        let (Some(volume), Some(size)) = (volumes.get(at), sizes.get(at)) else {
            continue;
        };
        parts.push(Part {
            volume: Some(at),
            size: *size,
            kind: match volume.kind.as_str() {
                "swap" => SWAP,
                _ if volume.esp => ESP,
                _ => kept(volume),
            },
        });
    }
    Ok(parts)
}

/// The partition's type: of those that tell a loader or systemd what is in it, its own.
fn kept(volume: &Volume) -> &'static str {
    let own = volume.part_type.as_deref().unwrap_or_default();
    let mut kept = KEPT.into_iter();
    kept.find(|kind| kind.eq_ignore_ascii_case(own))
        .unwrap_or(LINUX)
}

fn keeps(volume: &Volume) -> u64 {
    whole(volume.size).max(round(least(volume)))
}

fn round(bytes: u64) -> u64 {
    bytes.div_ceil(MIB) * MIB
}

fn share(left: u64, own: u64, all: u64) -> u64 {
    if all == 0 {
        return 0;
    }
    let part = u128::from(left) * u128::from(own) / u128::from(all);
    whole(u64::try_from(part).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn volume(kind: &str, size: u64, used: u64, place: &str) -> Volume {
        Volume {
            kind: kind.into(),
            size,
            used,
            esp: kind == "vfat",
            place: Some(place.into()),
            ..Volume::default()
        }
    }

    fn system() -> Vec<Volume> {
        vec![
            volume("vfat", GIB / 2, 8 << 20, "/boot/efi"),
            volume("ext4", 100 * GIB, 20 * GIB, "/"),
            volume("ext4", 100 * GIB, 60 * GIB, "/home"),
            volume("swap", 8 * GIB, 0, ""),
        ]
    }

    #[test]
    fn a_larger_disk_gives_the_rest_to_one_file_system_and_none_is_lost() {
        let parts = fit(&system(), 1000 * GIB, true).unwrap();
        let sizes: Vec<u64> = parts.iter().map(|part| part.size).collect();
        let all: u64 = sizes.iter().sum();
        assert_eq!(all, 1000 * GIB - EDGES);
        // ESP, /home, swap as they were; the root grows, and lies last.
        assert_eq!(sizes[..3], [GIB / 2, 100 * GIB, 8 * GIB]);
        assert_eq!(parts[3].volume, Some(1));
        assert_eq!((parts[0].kind, parts[2].kind), (ESP, SWAP));
    }

    #[test]
    fn a_smaller_disk_shrinks_file_systems_but_never_below_their_files() {
        let parts = fit(&system(), 120 * GIB, false).unwrap();
        assert_eq!((parts[0].kind, parts[0].volume), (BIOS_BOOT, None));
        let of = |at: usize| {
            parts
                .iter()
                .find(|part| part.volume == Some(at))
                .unwrap()
                .size
        };
        assert_eq!((of(0), of(3)), (GIB / 2, 8 * GIB));
        assert!(of(1) > 22 * GIB && of(2) > 67 * GIB, "{parts:?}");
        let all: u64 = parts.iter().map(|part| part.size).sum();
        assert!(all <= 120 * GIB - EDGES);
        let error = fit(&system(), 90 * GIB, false).unwrap_err();
        assert!(
            error.contains("96.6 GB") && error.contains("needs"),
            "{error}"
        );
    }
}
