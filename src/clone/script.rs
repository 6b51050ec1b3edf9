//! What hosts are told to do, as scripts of a POSIX shell. Must not know sessions.

use std::collections::BTreeMap;

use super::after;
use super::disks::{COLUMNS, FOLDER};
use super::identity::{FIXED, REMOVED, SECRETS, fstab};
use super::judge;
use super::layout::{LINUX, Part};
use super::logical::FIELDS;
use super::source::{BIOS_BOOT, Volume};
use crate::ssh::quote;

/// How the name of a partition begins whose content is not all there yet.
pub const UNFINISHED: &str = "windlass-unfinished-";
/// How the name of a snapshot begins that is made for this.
pub const SNAPSHOT: &str = ".windlass-clone-";

const LOOK: &str = include_str!("look.sh");
const PREPARE: &str = include_str!("prepare.sh");
pub(super) const PATH: &str = "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\nexport PATH LC_ALL=C\n";

/// A shell's function: the path that a field of mountinfo means, where a space is `\\040`.
const MEANT: &str = r#"meant() { printf '%b' "$(printf %s "$1" | sed 's/\\\([0-7][0-7][0-7]\)/\\0\1/g')"; }
"#;

/// Says what a host is, and what its disk `disk` is.
pub fn look(disk: Option<&str>) -> String {
    let tools: Vec<String> = judge::tools().iter().map(|tool| quote(tool)).collect();
    format!(
        "disk={}\ntools={}\ncolumns={COLUMNS}\nfields={FIELDS}\n{LOOK}",
        quote(disk.unwrap_or_default()),
        quote(&tools.join(" "))
    )
}

/// Ends the mounts of a run, or of all runs.
pub fn leave(run: Option<&str>) -> String {
    let folder = match run {
        Some(run) => format!("{FOLDER}/{run}"),
        None => FOLDER.to_owned(),
    };
    format!(
        "{PATH}{MEANT}cut -d ' ' -f 5 /proc/self/mountinfo | grep -F {}/ | sort -r | while read -r at; do at=$(meant \"$at\"); umount \"$at\" || umount -l \"$at\"; done\n\
         # Never through a mount that is left.\n\
         grep -qF {}/ /proc/self/mountinfo || rm -rf --one-file-system {}\nexit 0\n",
        quote(&folder),
        quote(&folder),
        quote(&folder)
    )
}

/// Ends the mounts of a run on the target, and fails when a file system of the copy is still in use.
pub fn unmount(run: &str) -> String {
    let folder = quote(&format!("{FOLDER}/{run}"));
    let root = quote(&root(run));
    format!(
        "set -e\n{PATH}\
         gone() {{ tries=0; until umount \"$1\"; do tries=$((tries + 1)); [ $tries -lt 20 ] || return 1; sleep 0.5; done; }}\n\
         {MEANT}cut -d ' ' -f 5 /proc/self/mountinfo | grep -F {folder}/ | sort -r | while read -r at; do at=$(meant \"$at\")\n\
         case $at in {root}/dev | {root}/dev/* | {root}/proc | {root}/proc/* | {root}/sys | {root}/sys/* | {root}/run) umount \"$at\" 2>/dev/null || umount -l \"$at\" ;;\n\
         *) gone \"$at\" || exit 9 ;; esac; done\n\
         if grep -qF {folder}/ /proc/self/mountinfo; then echo 'a file system of the copy is still mounted' >&2; exit 9; fi\n"
    )
}

/// Writes out what was copied, with an error where that fails, and lets the memory forget it.
pub fn flush(run: &str, volumes: &[Volume]) -> String {
    let mut out = format!("set -e\n{PATH}");
    for (at, volume) in volumes.iter().enumerate() {
        if volume.kind != "swap" {
            out.push_str(&format!("sync -f {}\n", quote(&new(run, at))));
        }
    }
    out.push_str("{ echo 3 >/proc/sys/vm/drop_caches; } 2>/dev/null || true\n");
    out
}

/// Where a volume is seen on its host.
pub fn view(run: &str, at: usize) -> String {
    format!("{FOLDER}/{run}/from/{at}")
}

/// Where a new file system is mounted.
pub fn new(run: &str, at: usize) -> String {
    format!("{FOLDER}/{run}/to/{at}")
}

/// Mounts every volume of the source once more, to be seen without what is mounted over it, and says
/// how full each is and whether it holds a system.
pub fn views(run: &str, volumes: &[Volume]) -> String {
    let mut out = format!("set -e\n{PATH}");
    for (at, volume) in volumes.iter().enumerate() {
        if volume.kind == "swap" {
            continue;
        }
        let (here, device) = (quote(&view(run, at)), quote(&volume.path));
        out.push_str(&format!("mkdir -p {here}\n"));
        let whole = volume.mounted.iter().find(|(_, root)| root == "/");
        let whole = whole.or(volume.mounted.first());
        match (volume.kind.as_str(), whole) {
            // With all its subvolumes, to make snapshots.
            ("btrfs", Some(_)) => out.push_str(&format!("mount -t btrfs -o subvolid=5 {device} {here}\n")),
            (_, Some((at, root))) if root == "/" => out.push_str(&format!(
                "mount --bind {} {here}\nmount --make-private {here}\n",
                quote(at)
            )),
            // Without its journal where that may be: the disk is only read.
            _ => out.push_str(&format!(
                "mount -o ro,noload {device} {here} 2>/dev/null || mount -o ro,norecovery {device} {here} 2>/dev/null || mount -o ro {device} {here}\n"
            )),
        }
        out.push_str(&format!(
            "printf '\\n@@windlass used {at}\\n'\ndf --block-size=1 --output=used {here} | tail -n 1\n"
        ));
        if volume.kind == "btrfs" {
            out.push_str(&format!(
                "printf '\\n@@windlass snapshots {at}\\n'\nls -A {here} | grep '^{SNAPSHOT}' || true\n\
                 printf '\\n@@windlass subvolumes {at}\\n'\nbtrfs subvolume list {} {here} | sed 's/^ID [0-9]* gen [0-9]* top level [0-9]* path //'\n\
                 printf '\\n@@windlass default {at}\\n'\nbtrfs subvolume get-default {here} | sed -n 's/^ID [0-9]* gen [0-9]* top level [0-9]* path //p'\n",
                if volume.mounted.is_empty() { "-o" } else { "" }
            ));
        }
        for root in volume.subvolumes() {
            let root = quote(&format!("{}{}", view(run, at), root));
            out.push_str(&format!(
                "if [ -e {root}/etc/fstab ] && [ -d {root}/usr ]; then printf '\\n@@windlass root\\n{at}\\n%s\\n' {root}; fi\n"
            ));
        }
    }
    out
}

/// Says of the system below `root` what its copy must know, and what of it is secret.
pub fn system(root: &str) -> String {
    let root = quote(root);
    let mut out = format!(
        "{PATH}cd {root} || exit 1\n\
         section() {{ printf '\\n@@windlass %s\\n' \"$1\"; }}\n\
         section fstab\ncat etc/fstab 2>/dev/null\n\
         section hosts\ncat etc/hosts 2>/dev/null\n\
         section hostname\ncat etc/hostname 2>/dev/null\n\
         section release\n( . ./etc/os-release && printf '%s\\n' \"$PRETTY_NAME\" ) 2>/dev/null\n\
         section loaders\nfor one in usr/sbin/grub-install sbin/grub-install usr/sbin/grub2-install sbin/grub2-install usr/bin/grub-install; do if [ -x \"$one\" ]; then echo \"/$one\"; fi; done\n\
         section secrets\n"
    );
    for (what, patterns) in SECRETS {
        out.push_str(&format!(
            "for one in {}; do if [ -e \"$one\" ]; then printf '%s: /%s\\n' {} \"$one\"; fi; done\n",
            patterns.join(" "),
            quote(what)
        ));
    }
    out.push_str("section fixed\n");
    for (what, patterns, words) in FIXED {
        out.push_str(&format!(
            "for one in {}; do if [ -f \"$one\" ] && grep -Eq {} \"$one\"; then printf '%s in /%s\\n' {} \"$one\"; fi; done\n",
            patterns.join(" "),
            quote(words),
            quote(what)
        ));
    }
    // Numbers of subvolumes but the top's, with no name beside, that a kernel is started with.
    out.push_str(
        "section numbered\n\
         for one in etc/default/grub etc/default/grub.d/* etc/kernel/cmdline boot/loader/entries/* boot/efi/loader/entries/* efi/loader/entries/*; do\n\
         \x20 [ -f \"$one\" ] || continue\n\
         \x20 sed 's/#.*//' \"$one\" | grep -o \"rootflags=[^ \\\"']*\" | grep -v 'subvol=' | grep -Eq 'subvolid=(0*[1-46-9]|0*[1-9][0-9]+)(,|$)' && printf '/%s\\n' \"$one\"\n\
         done\n",
    );
    out.push_str("exit 0\n");
    out
}

/// A new partition with its identifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct New {
    /// Size, type, and which volume goes there.
    pub part: Part,
    /// Identifier of the file system; empty without one.
    pub uuid: String,
    /// Identifier of the partition.
    pub part_uuid: String,
}

/// The node of a disk's partition, by number from 1.
pub fn node(disk: &str, number: usize) -> String {
    match disk.chars().last().is_some_and(|c| c.is_ascii_digit()) {
        true => format!("{disk}p{number}"),
        false => format!("{disk}{number}"),
    }
}

/// Writes a table whose partitions are all called unfinished, makes file systems and mounts them. When
/// not `fresh`, only mounts them.
pub fn prepare(
    run: &str,
    key: &str,
    (disk, token): (&str, &str),
    news: &[New],
    volumes: &[Volume],
    fresh: bool,
) -> String {
    let mut table = "label: gpt\n".to_owned();
    for new in news {
        // What firmware or a boot loader looks for is named last; GRUB's own partition is empty until then.
        let kind = match new.part.kind {
            BIOS_BOOT => BIOS_BOOT,
            _ => LINUX,
        };
        table.push_str(&format!(
            "size={}MiB, type={kind}, uuid={}, name=\"{UNFINISHED}{key}\"\n",
            new.part.size >> 20,
            new.part_uuid
        ));
    }
    let mut out = format!(
        "{PATH}disk={}\ntoken={}\nfolder={}\nfresh={}\ntable={}\n{PREPARE}",
        quote(disk),
        quote(token),
        quote(&format!("{FOLDER}/{run}/to")),
        if fresh { "yes" } else { "no" },
        quote(&table)
    );
    for (index, one) in news.iter().enumerate() {
        let device = quote(&node(disk, index + 1));
        out.push_str(&format!(
            "tries=0\nuntil node {device}; do tries=$((tries + 1)); [ $tries -lt 100 ] || die \"the kernel does not show {device}\"; sleep 0.1; done\n"
        ));
        let Some((at, volume)) = one.part.volume.and_then(|at| Some((at, volumes.get(at)?))) else {
            continue;
        };
        // What has no snapshot begins anew.
        if fresh || !volume.frozen() {
            out.push_str(&make(volume, one, &device));
        }
        if volume.kind == "swap" {
            continue;
        }
        let here = quote(&new(run, at));
        let options = match volume.kind.as_str() {
            "btrfs" => "-o subvolid=5 ",
            _ => "",
        };
        out.push_str(&format!("mkdir -p {here}\n"));
        if let Some(compress) = &volume.compress {
            // A kernel may not know how; then it is written as it is.
            let options = quote(&format!("subvolid=5,{compress}"));
            out.push_str(&format!(
                "mount -o {options} {device} {here} 2>/dev/null || "
            ));
        }
        out.push_str(&format!("mount {options}{device} {here}\n"));
        for root in volume.subvolumes() {
            if root.is_empty() {
                continue;
            }
            let made = quote(&format!("{}{root}", new(run, at)));
            out.push_str(&format!(
                "mkdir -p \"$(dirname {made})\"\n[ -e {made} ] || btrfs subvolume create {made} >/dev/null\n"
            ));
            if volume.default.as_deref() == Some(root.as_str()) {
                out.push_str(&format!(
                    "btrfs subvolume set-default \"$(btrfs inspect-internal rootid {made})\" {here}\n"
                ));
            }
        }
    }
    out
}

fn make(volume: &Volume, new: &New, device: &str) -> String {
    let uuid = &new.uuid;
    let label = |flag: &str| match &volume.label {
        Some(label) => format!(" {flag} {}", quote(label)),
        None => String::new(),
    };
    match volume.kind.as_str() {
        "swap" => format!("mkswap -U {uuid}{} {device} >/dev/null\n", label("-L")),
        "vfat" => format!(
            "mkfs.vfat {}-i {}{} {device} >/dev/null\n",
            // Firmware need not read another in an EFI system partition; a small one has too few clusters.
            if volume.esp && new.part.size >= 64 << 20 {
                "-F 32 "
            } else {
                ""
            },
            uuid.replace('-', ""),
            label("-n")
        ),
        // As with ext4 below.
        "xfs" => format!(
            "mkfs.xfs -q -f -m uuid={uuid} -i nrext64=0{label} {device} 2>/dev/null || mkfs.xfs -q -f -m uuid={uuid}{label} {device}\n",
            label = label("-L")
        ),
        "btrfs" => format!("mkfs.btrfs -q -f -U {uuid}{} {device}\n", label("-L")),
        // Newer defaults are not read by older kernels and boot loaders, which the copy may have.
        kind => format!(
            "mkfs.{kind} -q -F -U {uuid}{label} -O ^orphan_file,^metadata_csum_seed {device} 2>/dev/null || mkfs.{kind} -q -F -U {uuid}{label} {device}\n",
            label = label("-L")
        ),
    }
}

/// Where the new system is put together to be finished.
pub fn root(run: &str) -> String {
    format!("{FOLDER}/{run}/root")
}

/// Puts the new system together below one folder, as it will be mounted; `text`: its fstab with the
/// identifiers that the source has.
pub fn assemble(
    run: &str,
    disk: &str,
    news: &[New],
    volumes: &[Volume],
    subvolume: &str,
    text: &str,
) -> String {
    let entries = fstab::entries(text);
    // By place: an outer one before those in it.
    let mut places: BTreeMap<String, (String, String)> = BTreeMap::new();
    for (index, new) in news.iter().enumerate() {
        let Some(volume) = new.part.volume.and_then(|at| volumes.get(at)) else {
            continue;
        };
        let node = node(disk, index + 1);
        if let Some(place) = volume.place.as_ref().filter(|_| volume.kind != "swap") {
            let options = match (volume.kind.as_str(), place.as_str()) {
                ("btrfs", "/") => format!("-o subvol={} ", quote(subvolume)),
                _ => String::new(),
            };
            places.insert(place.clone(), (options, node.clone()));
        }
        let own = |entry: &&fstab::Entry| {
            volume.kind == "btrfs" && entry.place != "/" && fstab::is_of(&entry.spec, volume)
        };
        for entry in entries.iter().filter(own) {
            let mut options = entry.options.split(',');
            let named = options.find_map(|option| option.strip_prefix("subvol="));
            let named = named.unwrap_or_default().trim_matches('/');
            let copied = volume.subvolumes();
            if copied.iter().any(|one| one.trim_matches('/') == named) && !named.is_empty() {
                let options = format!("-o subvol={} ", quote(named));
                places.insert(entry.place.clone(), (options, node.clone()));
            }
        }
    }
    let mut out = format!("set -e\n{PATH}");
    for (place, (options, device)) in places {
        let at = quote(format!("{}{place}", root(run)).trim_end_matches('/'));
        // A link may lead out of the copy.
        out.push_str(&format!(
            "mkdir -p {at}\n[ \"$(readlink -f {at})\" = {at} ] || {{ echo {at} is a link >&2; exit 9; }}\nmount {options}{} {at}\n",
            quote(&device)
        ));
    }
    out
}

/// What the new identity is made of.
pub struct Identity<'a> {
    /// Name of the new system.
    pub hostname: &'a str,
    /// Its machine id.
    pub machine_id: &'a str,
    /// Its fstab.
    pub fstab: &'a str,
    /// Its hosts.
    pub hosts: &'a str,
    /// Old and new identifiers of file systems and partitions.
    pub pairs: &'a [(String, String)],
    /// Nodes of logical volumes, and what means their copy.
    pub devices: &'a [(String, String)],
    /// Edits of `sed` by which fixed addresses become its own.
    pub addresses: &'a str,
    /// Swap files, from its root, with their bytes.
    pub swap_files: &'a [(String, u64)],
    /// What it is told of itself as a copy.
    pub record: &'a str,
}

/// Gives the new system below its root an identity of its own; says its SSH host key.
pub fn identify(run: &str, identity: &Identity<'_>) -> String {
    let mut out = format!(
        // A link may lead out of the copy, to the medium that this runs from.
        "set -e\n{PATH}cd {}\n\
         own() {{ case $(readlink -f \"$(dirname \"$1\")\") in \"$PWD\" | \"$PWD\"/*) true ;; *) false ;; esac }}\n",
        quote(&root(run))
    );
    for (_, patterns) in REMOVED {
        out.push_str(&format!(
            "for one in {}; do if own \"$one\"; then rm -rf -- \"$one\"; fi; done\n",
            patterns.join(" ")
        ));
    }
    // Of the copy, and a file of its own.
    out.push_str("put() { own \"$2\" || { echo \"/$2 lies outside the copy\" >&2; exit 9; }; [ ! -L \"$2\" ] || rm -f -- \"$2\"; printf %s \"$1\" >\"$2\"; }\n");
    let put = |path: &str, text: &str| format!("put {} {path}\n", quote(text));
    out.push_str(&put("etc/hostname", &format!("{}\n", identity.hostname)));
    out.push_str(&put(
        "etc/machine-id",
        &format!("{}\n", identity.machine_id),
    ));
    out.push_str(
        "if [ -e var/lib/dbus/machine-id ] && [ ! -L var/lib/dbus/machine-id ]; then cat etc/machine-id >var/lib/dbus/machine-id; fi\n",
    );
    out.push_str(&put(after::look::RECORD, identity.record));
    out.push_str(&put("etc/fstab", identity.fstab));
    if !identity.hosts.is_empty() {
        out.push_str(&put("etc/hosts", identity.hosts));
    }
    let edits: String = identity
        .pairs
        .iter()
        .filter(|(old, new)| fstab::is_identifier(old) && fstab::is_identifier(new))
        .map(|(old, new)| format!("s/{old}/{new}/gI\n"))
        .chain(
            identity
                .devices
                .iter()
                .map(|(node, new)| renamed(node, new)),
        )
        .collect();
    // What has nothing of it keeps its time.
    out.push_str(
        "edit() { if [ -f \"$1\" ] && [ ! -L \"$1\" ] && own \"$1\" && ! sed \"$2\" \"$1\" | cmp -s - \"$1\"; then sed -i \"$2\" \"$1\"; fi; }\n",
    );
    if !edits.is_empty() {
        out.push_str(&format!(
            "for one in etc/crypttab etc/default/grub etc/default/grub.d/* etc/kernel/cmdline etc/initramfs-tools/conf.d/* etc/dracut.conf.d/* boot/loader/entries/* boot/grub/*.cfg boot/grub/grubenv boot/grub2/*.cfg boot/grub2/grubenv boot/efi/EFI/*/*.cfg boot/efi/loader/entries/* efi/EFI/*/*.cfg efi/loader/entries/* boot/EFI/*/*.cfg; do\n\
             edit \"$one\" {}\ndone\n",
            quote(&edits)
        ));
    }
    if let (false, Some((_, files, _))) = (identity.addresses.is_empty(), FIXED.first()) {
        out.push_str(&format!(
            "for one in {}; do edit \"$one\" {}; done\n",
            files.join(" "),
            quote(identity.addresses)
        ));
    }
    for (path, bytes) in identity.swap_files {
        let path = quote(path.trim_start_matches('/'));
        out.push_str(&format!(
            "mkdir -p \"$(dirname {path})\"; : >{path}; chmod 600 {path}; chattr +C {path} 2>/dev/null || true; fallocate -l {bytes} {path}; mkswap {path} >/dev/null\n"
        ));
    }
    // What is written here has no labels of SELinux.
    out.push_str("if grep -Eqs '^SELINUX=(enforcing|permissive)' etc/selinux/config; then put '' .autorelabel; fi\n");
    out.push_str(
        "if [ -d etc/ssh ]; then ssh-keygen -q -A -f \"$PWD\" >/dev/null; printf '\\n@@windlass key\\n'; cat etc/ssh/ssh_host_ed25519_key.pub 2>/dev/null || true; fi\n",
    );
    out
}

/// The edit by which a logical volume's node becomes what means its copy; what has a dracut wait for it goes.
fn renamed(node: &str, new: &str) -> String {
    let plain = node.replace('.', "\\.");
    let wait = match node
        .strip_prefix("/dev/")
        .filter(|rest| !rest.contains("mapper/") && !rest.contains("disk/"))
    {
        Some(rest) => format!("s#rd\\.lvm\\.lv={}\\b##g\n", rest.replace('.', "\\.")),
        None => String::new(),
    };
    format!("s#{plain}\\([^A-Za-z0-9_.+-]\\)#{new}\\1#g\ns#{plain}$#{new}#\n{wait}")
}

/// Names the partitions what they are: only from then on is the disk a system's. Nothing of it may be
/// mounted.
pub fn finish(disk: &str, news: &[New]) -> String {
    let mut out = format!("set -e\n{PATH}disk={}\nsync\n", quote(disk));
    let set = |number: usize, flag: &str, value: &str| {
        format!("sfdisk --quiet --no-reread --no-tell-kernel {flag} \"$disk\" {number} {value}\n")
    };
    for (index, new) in news.iter().enumerate() {
        out.push_str(&set(index + 1, "--part-type", new.part.kind));
    }
    for (index, new) in news.iter().enumerate() {
        let name = match new.part.kind {
            BIOS_BOOT => "boot-loader",
            super::source::ESP => "efi",
            super::layout::SWAP => "swap",
            _ => "linux",
        };
        out.push_str(&set(index + 1, "--part-label", name));
    }
    out.push_str("sync\npartx -u \"$disk\" >/dev/null 2>&1 || true\n");
    out
}

/// Takes the boot loader's first bytes from a disk that is not finished, should they be there: a BIOS would
/// start it. Nothing is written when the disk is not the transfer's.
pub fn disarm(disk: &str, key: &str) -> String {
    format!(
        "set -e\n{PATH}[ \"$(blkid -p -s PART_ENTRY_NAME -o value {})\" = {} ] || exit 0\n\
         dd if=/dev/zero of={} bs=440 count=1 conv=notrunc,fsync 2>/dev/null\n",
        quote(&node(disk, 1)),
        quote(&format!("{UNFINISHED}{key}")),
        quote(disk)
    )
}

/// Has the firmware start the copy's loader first.
pub fn entry(disk: &str, news: &[New], loader: &str, label: &str) -> String {
    let esp = news
        .iter()
        .position(|new| new.part.kind == super::source::ESP);
    format!(
        "set -e\n{PATH}efibootmgr --quiet --create --disk {} --part {} --label {} --loader {}\n",
        quote(disk),
        esp.map_or(1, |at| at + 1),
        quote(label),
        quote(loader)
    )
}

#[cfg(test)]
mod tests {
    use super::super::boot::bootable;
    use super::super::logical::Taking;
    use super::super::snapshots::{forget, freeze, melt, snapshot};
    use super::*;

    #[test]
    fn partitions_have_the_kernel_s_names() {
        assert_eq!(node("/dev/sda", 2), "/dev/sda2");
        assert_eq!(node("/dev/nvme0n1", 2), "/dev/nvme0n1p2");
        assert_eq!(node("/dev/loop7", 1), "/dev/loop7p1");
    }

    #[test]
    fn every_subvolume_that_the_copy_mounts_is_there_when_it_gets_its_identity() {
        let volumes = [Volume {
            kind: "btrfs".into(),
            uuid: Some("A".into()),
            place: Some("/".into()),
            mounted: vec![("/".into(), "/@".into()), ("/var".into(), "/@var".into())],
            ..Volume::default()
        }];
        let news = [New {
            part: Part {
                volume: Some(0),
                size: 1 << 30,
                kind: LINUX,
            },
            uuid: "B".into(),
            part_uuid: "C".into(),
        }];
        let text = "UUID=A / btrfs subvol=@ 0 0\nUUID=A /var btrfs noatime,subvol=/@var 0 0\nUUID=A /x btrfs subvol=@x 0 0\n";
        let script = assemble("r", "/dev/sda", &news, &volumes, "@", text);
        let mounts: Vec<&str> = script
            .lines()
            .filter(|line| line.starts_with("mount"))
            .collect();
        assert_eq!(
            mounts,
            [
                "mount -o subvol=@ /dev/sda1 /run/windlass-clone/r/root",
                "mount -o subvol=@var /dev/sda1 /run/windlass-clone/r/root/var",
            ]
        );
    }

    #[test]
    fn nothing_has_its_own_type_before_the_end_and_every_script_is_one_of_a_shell() {
        let volumes = [Volume {
            kind: "vfat".into(),
            esp: true,
            label: Some("a 'b".into()),
            place: Some("/boot/efi".into()),
            ..Volume::default()
        }];
        let news = [New {
            part: Part {
                volume: Some(0),
                size: 64 << 20,
                kind: super::super::source::ESP,
            },
            uuid: "ABCD-1234".into(),
            part_uuid: "0-1".into(),
        }];
        let begin = prepare("r", "k", ("/dev/sda", "S 1"), &news, &volumes, true);
        assert!(!begin.contains(super::super::source::ESP), "{begin}");
        assert!(begin.contains(UNFINISHED));
        let end = finish("/dev/sda", &news);
        assert!(end.contains(super::super::source::ESP));
        let taking = Taking {
            group: "vg".into(),
            name: "root".into(),
            bytes: Some(4096),
        };
        let identity = Identity {
            hostname: "b",
            machine_id: "0",
            fstab: "it's\n",
            hosts: "x\n",
            pairs: &[("AB12-CD34".into(), "ABCD-1234".into())],
            devices: &[("/dev/mapper/vg-a.b".into(), "UUID=1".into())],
            addresses: "s#a#b#\n",
            swap_files: &[],
            record: "",
        };
        for script in [
            begin,
            end,
            look(Some("/dev/a b")),
            leave(None),
            leave(Some("r")),
            unmount("r"),
            flush("r", &volumes),
            disarm("/dev/sda", "k"),
            entry("/dev/sda", &news, "\\EFI\\x.efi", "a b"),
            views("r", &volumes),
            system("/x y"),
            snapshot("/x y", "/@", ".n", "k"),
            forget("/x"),
            freeze("r", "k", 1, &taking),
            melt("r", "vg"),
            assemble("r", "/dev/sda", &news, &volumes, "/@", ""),
            identify("r", &identity),
            bootable("r", "/dev/sda", Some("/usr/sbin/grub-install"), None, false),
            bootable(
                "r",
                "/dev/sda",
                Some("/usr/sbin/grub-install"),
                Some(("/boot/efi", "\\EFI\\arch\\grubx64.efi")),
                true,
            ),
        ] {
            let output = std::process::Command::new("sh")
                .args(["-n", "-c", &script])
                .output()
                .unwrap();
            assert!(output.status.success(), "{script}\n{output:?}");
        }
    }

    #[test]
    fn a_place_with_a_space_is_unmounted_by_its_name() {
        let script = format!("{MEANT}meant '/a\\040b\\134c/%d'");
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "/a b\\c/%d");
    }
}
