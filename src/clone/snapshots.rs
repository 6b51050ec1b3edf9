//! What a source is told about snapshots, as scripts of a POSIX shell: read-only ones of subvolumes, and
//! of logical volumes. Must not know sessions.

use super::disks::FOLDER;
use super::logical::{self, Taking};
use super::script::{PATH, SNAPSHOT};
use crate::ssh::quote;

/// Makes a read-only snapshot unless it is there; older ones of this kind are removed.
pub fn snapshot(top: &str, subvolume: &str, name: &str, key: &str) -> String {
    let (from, own) = (
        quote(&format!("{top}{subvolume}")),
        format!("{SNAPSHOT}{key}-"),
    );
    let top = quote(top);
    format!(
        "{PATH}cd {top} || exit 1\n\
         for one in {SNAPSHOT}*; do case $one in {own}*) ;; *) [ ! -e \"$one\" ] || btrfs subvolume delete \"$one\" >/dev/null ;; esac; done\n\
         if [ ! -e {name} ]; then sync -f . ; btrfs subvolume snapshot -r {from} {name} >/dev/null; fi\n",
        name = quote(name)
    )
}

/// Where the snapshot of a logical volume is seen.
pub fn frozen(run: &str, at: usize) -> String {
    format!("{}/{at}", shown(run))
}

fn shown(run: &str) -> String {
    format!("{FOLDER}/{run}/frozen")
}

/// Makes a snapshot of a logical volume unless it is there, removes those of other transfers, and shows
/// it without writing to it.
pub fn freeze(run: &str, key: &str, at: usize, taking: &Taking) -> String {
    let begin = format!("{}{key}-", logical::SNAPSHOT);
    let name = format!("{begin}{at}");
    let (group, of) = (&taking.group, &taking.name);
    let how = match taking.bytes {
        Some(bytes) => format!("--size {bytes}b"),
        None => "--setactivationskip n".to_owned(),
    };
    let (device, here) = (
        quote(&format!("/dev/{group}/{name}")),
        quote(&frozen(run, at)),
    );
    format!(
        "set -e\n{PATH}{}         if ! lvs --noheadings {new} >/dev/null 2>&1; then sync; lvcreate --yes --quiet --snapshot {how} --name {} {} </dev/null >/dev/null; fi\n         mkdir -p {here}\n         mount -o ro,noload {device} {here} 2>/dev/null || mount -o ro,nouuid,norecovery {device} {here} 2>/dev/null || mount -o ro {device} {here}\n",
        thaw(group, Some(&begin)),
        quote(&name),
        quote(&format!("{group}/{of}")),
        new = quote(&format!("{group}/{name}")),
    )
}

/// Removes this kind of snapshots of a volume group, but for those whose name begins so.
pub fn thaw(group: &str, but: Option<&str>) -> String {
    let keep = match but {
        Some(begin) => format!("{}* | ", quote(begin)),
        None => String::new(),
    };
    format!(
        "lvs --noheadings -o lv_name {group} | while read -r one; do case $one in {keep}'') ;;\n         {}*) lvremove --yes --quiet {group}/\"$one\" </dev/null >/dev/null ;; esac; done\n",
        logical::SNAPSHOT,
        group = quote(group),
    )
}

/// Ends what shows snapshots of logical volumes in a run, all of them, and removes those of a volume group.
pub fn melt(run: &str, group: &str) -> String {
    format!(
        "set -e\n{PATH}for one in {here}/*; do if mountpoint -q \"$one\"; then umount \"$one\"; fi; done\n{}",
        thaw(group, None),
        here = quote(&shown(run)),
    )
}

/// Removes all snapshots of this kind.
pub fn forget(top: &str) -> String {
    format!(
        "{PATH}cd {} || exit 0\nfor one in {SNAPSHOT}*; do [ ! -e \"$one\" ] || btrfs subvolume delete \"$one\" >/dev/null; done\n",
        quote(top)
    )
}
