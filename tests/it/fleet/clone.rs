//! Cloning between hosts whose disks are loop devices: what arrives and what is refused.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::controller::{Ran, run};
use crate::lab::{Kind, Lab, absent};

pub(super) const MIB: u64 = 1 << 20;

/// Whether a program is missing that makes disks; says so.
pub(super) fn lacks(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output();
        !found.is_ok_and(|output| output.status.success())
    });
    if let Some(missing) = missing {
        eprintln!("SKIPPED: {missing} is missing");
    }
    absent() || missing.is_some()
}

/// A disk of a host: a loop device of the machine, whose nodes the host is shown as udev would.
pub(super) struct Disk {
    pub(super) node: String,
    pub(super) image: PathBuf,
}

impl Disk {
    pub(super) fn new(lab: &Lab, host: &str, bytes: u64) -> Self {
        let image = lab.home().join(format!("{host}.img"));
        std::fs::File::create(&image)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        let output = Command::new("losetup")
            .args(["-fP", "--show"])
            .arg(&image)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let node = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        let disk = Self { node, image };
        disk.shown(lab, host);
        disk
    }

    pub(super) fn name(&self) -> &str {
        self.node.rsplit('/').next().unwrap()
    }

    pub(super) fn shown(&self, lab: &Lab, host: &str) {
        let name = self.name();
        let number = name.trim_start_matches("loop");
        lab.sh(
            host,
            &format!(
                "mknod /dev/{name} b 7 {number}\n\
                 cat >/run/nodes-{name} <<'E'\nwhile sleep 0.05; do\n\
                 for node in /dev/{name}p*; do [ ! -b $node ] || [ -e /sys/block/{name}/${{node##*/}} ] || rm $node; done\n\
                 for one in /sys/block/{name}/{name}p*; do [ -e $one/dev ] || continue; node=/dev/${{one##*/}}\n\
                 [ \"$(stat -c %Hr:%Lr $node 2>/dev/null)\" = \"$(cat $one/dev)\" ] || {{ rm -f $node; mknod $node b $(tr : ' ' <$one/dev); }}; done\ndone\nE\n\
                 setsid sh /run/nodes-{name} >/dev/null 2>&1 </dev/null &"
            ),
        );
    }

    /// A shell's wait until the second partition's node is there and the kernel's: a table that was read
    /// anew gives partitions other numbers, and a node with the old one stands for a moment longer.
    pub(super) fn wait(&self) -> String {
        let (node, name) = (&self.node, self.name());
        format!(
            "until [ -b {node}p2 ] && [ \"$(stat -c %Hr:%Lr {node}p2)\" = \"$(cat /sys/block/{name}/{name}p2/dev)\" ]; \
             do sleep 0.05; done"
        )
    }

    /// What the disk says of itself: names, types and file systems of its partitions.
    pub(super) fn said(&self) -> String {
        let output = Command::new("sfdisk")
            .args(["--dump"])
            .arg(&self.image)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Asserts that nothing would take it for a system.
    #[track_caller]
    pub(super) fn is_unfinished(&self) {
        let said = self.said();
        let parts: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("start="))
            .collect();
        assert!(!parts.is_empty());
        for line in parts {
            assert!(line.contains("windlass-unfinished-"), "{said}");
        }
        let mut first = vec![0; 440];
        std::io::Read::read_exact(&mut std::fs::File::open(&self.image).unwrap(), &mut first)
            .unwrap();
        assert!(
            first.iter().all(|byte| *byte == 0),
            "there is a boot loader"
        );
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("partx").arg("-d").arg(&self.node).output();
        let _ = Command::new("losetup").arg("-d").arg(&self.node).output();
    }
}

/// A small system below a folder of a host: what is needed to be one, and all that is hard to copy.
const SYSTEM: &str = r#"
mkdir -p etc/ssh etc/default bin lib usr/sbin usr/bin var/lib/systemd var/lib/tailscale root/.ssh boot home proc sys dev run tmp
echo h1 >etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 h1.lan h1\n' >etc/hosts
echo 0123456789abcdef0123456789abcdef >etc/machine-id
printf 'PRETTY_NAME="A Linux"\n' >etc/os-release
echo old >etc/ssh/ssh_host_ed25519_key.pub
echo seed >var/lib/systemd/random-seed
echo node >var/lib/tailscale/tailscaled.state
echo key >root/.ssh/id_ed25519
cp /bin/dash bin/sh
for one in $(ldd /bin/dash | grep -o '/[^ )]*'); do mkdir -p .$(dirname $one); cp -L $one .$one; done
printf '#!/bin/sh\nprintf GRUB 1<>"$2"\n' >usr/sbin/grub-install
chmod 755 usr/sbin/grub-install
cp /bin/true usr/bin/ping && setcap cap_net_raw+ep usr/bin/ping
echo shared >home/one && ln home/one home/two && ln -s one home/three
setfacl -m u:daemon:r home/one
setfattr -n user.note -v kept home/one
truncate -s 200M home/sparse
head -c 30000000 /dev/urandom >home/noise
head -c 20000000 /dev/zero | tr '\0' x >home/text
chown 1234:1234 home/text && touch -d '2001-02-03 04:05:06.7' home/text
mkdir home/many && i=0; while [ $i -lt 500 ]; do echo $i >home/many/$i; i=$((i+1)); done
"#;

/// Makes a disk of a host one that holds a system, mounted at `/mnt/sys` there.
pub(super) fn with_system(lab: &Lab, host: &str, disk: &Disk, kind: &str) {
    let node = &disk.node;
    // What is left is for another file system.
    let size = match kind {
        "split" => "200MiB\\nsize=+",
        _ => "+",
    };
    let kind = kind.replace("split", "ext4");
    let make = match kind.as_str() {
        "btrfs" => "mkfs.btrfs -q -f -L root",
        _ => "mkfs.ext4 -q -F -L root",
    };
    let wait = disk.wait();
    let options = if kind == "btrfs" { "-o subvol=@" } else { "" };
    let subvolume = match kind.as_str() {
        "btrfs" => format!(
            "mount {node}p2 /mnt/sys; btrfs subvolume create /mnt/sys/@ >/dev/null; umount /mnt/sys;"
        ),
        _ => String::new(),
    };
    let nested = match kind.as_str() {
        "btrfs" => "btrfs subvolume create var/lib/machines >/dev/null",
        _ => "",
    };
    lab.sh(
        host,
        &format!(
            "set -e; mkdir -p /mnt/sys\n\
             printf 'label: gpt\\nsize=1MiB, type=21686148-6449-6E6F-744E-656564454649\\nsize={size}\\n' | sfdisk -q --no-reread {node}\n\
             partx -a {node}; {wait}\n\
             {make} {node}p2; {subvolume}\n\
             mount {options} {node}p2 /mnt/sys; cd /mnt/sys\n\
             printf 'UUID=%s / {kind} defaults 0 1\\n/dev/sdz1 /data ext4 defaults 0 2\\n' $(blkid -p -s UUID -o value {node}p2) >/root/fstab\n\
             {SYSTEM}\n{nested}\ncp /root/fstab etc/fstab; sync"
        ),
    );
}

pub(super) fn clone(lab: &Lab, from: &Disk, to: &Disk, more: &[&str]) -> Ran {
    let all = [
        "clone", "h1", "h2", "--source", &from.node, "--disk", &to.node,
    ];
    run(lab, &[&all, more].concat())
}

/// What the target is confirmed by.
pub(super) fn token(lab: &Lab, from: &Disk, to: &Disk) -> String {
    let ran = clone(lab, from, to, &["--check"]).ended(0);
    ran.summary["confirm"].as_str().unwrap().to_owned()
}

pub(super) fn cloned(lab: &Lab, from: &Disk, to: &Disk) -> Ran {
    let token = token(lab, from, to);
    clone(lab, from, to, &["--confirm", &token])
}

/// Names, owners, modes, times, attributes and bytes below a folder, by other tools than the product's.
fn listing(lab: &Lab, host: &str, folder: &str) -> String {
    lab.sh(
        host,
        &format!(
            "cd {folder}; find . -xdev \\( -path ./etc -o -path ./var -o -path ./lost+found -o -path './.windlass*' \\) -prune -o \
             -printf '%p %y %m %U %G %n %l ' \\( -type f -printf '%s %T@ ' -o -true \\) -printf '\\n' | sort; \
             find bin home root usr -type f -print0 | sort -z | xargs -0 sha256sum; \
             getcap usr/bin/ping; getfacl -c home/one; getfattr -d home/one"
        ),
    )
}

#[test]
fn a_system_arrives_whole_with_an_identity_of_its_own_on_a_larger_disk() {
    if lacks(&["sfdisk", "mkfs.ext4", "setfacl", "setcap", "setfattr"]) {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::SudoFree)]);
    let (from, to) = (
        Disk::new(&lab, "h1", 300 * MIB),
        Disk::new(&lab, "h2", 500 * MIB),
    );
    with_system(&lab, "h1", &from, "ext4");
    let before = to.said();
    let token = token(&lab, &from, &to);
    assert_eq!(to.said(), before, "a check writes nothing");
    let ran = clone(&lab, &from, &to, &["--confirm", &token]).ended(0);
    let said = &ran.summary;
    assert_eq!(said["unfinished"], false);
    assert_eq!(
        said["secrets"][0],
        "private SSH keys: /root/.ssh/id_ed25519"
    );
    assert!(said["sha256"]["/"].as_str().unwrap().len() == 64);
    // 50 MB of files, 20 MB of them one letter; nothing of the hole.
    assert!(
        said["copied_bytes"].as_u64().unwrap() < 60_000_000,
        "{said:#}"
    );

    let table = to.said().to_lowercase();
    assert!(!table.contains("windlass-unfinished"), "{table}");
    assert!(
        table.contains("21686148-6449-6e6f-744e-656564454649") && table.contains("name=\"linux\""),
        "{table}"
    );
    assert_eq!(&std::fs::read(&to.image).unwrap()[..4], b"GRUB");
    lab.sh(
        "h2",
        &format!(
            "mkdir -p /mnt/new; {}; mount {}p2 /mnt/new",
            to.wait(),
            to.node
        ),
    );
    let (ours, theirs) = (
        listing(&lab, "h1", "/mnt/sys"),
        listing(&lab, "h2", "/mnt/new"),
    );
    assert_eq!(ours, theirs);
    for wanted in ["cap_net_raw=ep", "user:daemon:r--", "user.note=\"kept\""] {
        assert!(theirs.contains(wanted), "no {wanted}: {theirs}");
    }
    let identity = lab.sh(
        "h2",
        "cd /mnt/new; cat etc/hostname etc/hosts etc/fstab; ls var/lib/systemd var/lib/tailscale; du -k home/sparse",
    );
    let uuid = lab.sh("h2", &format!("blkid -p -s UUID -o value {}p2", to.node));
    let size = lab.sh("h2", "df -B1 --output=size /mnt/new | tail -n 1");
    assert!(size.trim().parse::<u64>().unwrap() > 400 * MIB, "{size}");
    for wanted in [
        "h2\n",
        "127.0.1.1 h2.lan h2\n",
        &format!("UUID={} / ext4", uuid.trim()),
        "# not on this disk: /dev/sdz1",
    ] {
        assert!(identity.contains(wanted), "no {wanted}: {identity}");
    }
    assert!(
        !identity.contains("random-seed") && !identity.contains("tailscaled"),
        "{identity}"
    );
    assert!(identity.contains("\n0\thome/sparse"), "{identity}");
    let key = lab.sh(
        "h2",
        "cut -d ' ' -f 1,2 /mnt/new/etc/ssh/ssh_host_ed25519_key.pub",
    );
    assert_eq!(said["host_key"].as_str().unwrap(), key.trim());
    let id = lab.sh("h2", "cat /mnt/new/etc/machine-id");
    assert_eq!(said["machine_id"].as_str().unwrap(), id.trim());
    assert_ne!(id.trim(), "0123456789abcdef0123456789abcdef");
    for host in ["h1", "h2"] {
        assert_eq!(
            lab.sh(host, "grep windlass-clone /proc/self/mountinfo || true"),
            ""
        );
    }
    lab.sh("h2", "umount /mnt/new");
}

#[test]
fn what_would_go_wrong_is_refused_and_nothing_is_written() {
    if lacks(&["sfdisk", "mkfs.ext4", "setfacl", "setcap", "setfattr"]) {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    let (from, to) = (
        Disk::new(&lab, "h1", 300 * MIB),
        Disk::new(&lab, "h2", 300 * MIB),
    );
    with_system(&lab, "h1", &from, "ext4");
    let bytes = |disk: &Disk| std::fs::read(&disk.image).unwrap();
    let before = bytes(&to);
    let confirm = token(&lab, &from, &to);
    let refused = |arguments: &[&str], code: i32, wanted: &str| {
        let ran = run(&lab, arguments).ended(code);
        assert!(
            ran.message().contains(wanted),
            "{wanted}: {}",
            ran.message()
        );
    };
    let (source, disk) = (from.node.as_str(), to.node.as_str());
    let good = ["clone", "h1", "h2", "--source", source, "--disk", disk];
    refused(&good, 2, &format!("--confirm {confirm}"));
    refused(
        &[&good[..], &["--yes"]].concat(),
        2,
        "only when it is confirmed",
    );
    refused(
        &[&good[..], &["--confirm", "S123"]].concat(),
        2,
        "nothing was written",
    );
    refused(&["clone", "h1", "h1", "--disk", disk], 2, "onto itself");
    refused(
        &["clone", "h1", "h2", "--disk", disk],
        1,
        "name the disk that holds the system",
    );
    refused(
        &[
            "clone",
            "h1",
            "h2",
            "--source",
            source,
            "--disk",
            "/dev/nosuch",
        ],
        1,
        "no disk /dev/nosuch",
    );
    lab.sh(
        "h2",
        &format!("mkfs.ext4 -q -F {disk}; mkdir -p /mnt/x; mount {disk} /mnt/x"),
    );
    refused(&good, 1, "is mounted at /mnt/x");
    lab.sh("h2", "umount /mnt/x");
    std::fs::write(&to.image, &before).unwrap();
    // In use where this host does not see it: another's mount, as one of a container.
    lab.sh("h2", &format!("mkfs.ext4 -q -F {disk}; sync"));
    let confirm_used = token(&lab, &from, &to);
    let (held, used) = (lab.home().join("held"), bytes(&to));
    std::fs::create_dir(&held).unwrap();
    let mount = |program: &str, arguments: &[&Path]| {
        let status = Command::new(program).args(arguments).status().unwrap();
        assert!(status.success());
    };
    mount("mount", &[Path::new("-oro,noload"), Path::new(disk), &held]);
    refused(
        &[&good[..], &["--confirm", &confirm_used]].concat(),
        1,
        "is in use: nothing was written",
    );
    mount("umount", &[&held]);
    assert!(bytes(&to) == used, "something was written");
    std::fs::write(&to.image, &before).unwrap();
    let confirm = token(&lab, &from, &to);
    // Another disk in its place, since it was confirmed.
    lab.sh("h2", &format!("echo x >{disk}; sync"));
    refused(
        &[&good[..], &["--confirm", &confirm]].concat(),
        2,
        "nothing was written",
    );
    assert!(to.said().is_empty(), "{}", to.said());
    // Other machines than these.
    let check = [&good[..], &["--check"]].concat();
    lab.sh(
        "h2",
        "mount -t tmpfs tmpfs /sys/firmware; mkdir /sys/firmware/efi",
    );
    refused(&check, 1, "h1 was started by a BIOS and h2 by UEFI");
    lab.sh("h2", "umount /sys/firmware");
    let boot = lab.sh("h1", "cat /proc/sys/kernel/random/boot_id");
    lab.sh(
        "h2",
        &format!(
            "echo {} >/run/boot; mount --bind /run/boot /proc/sys/kernel/random/boot_id",
            boot.trim()
        ),
    );
    refused(&check, 1, "h1 and h2 are one machine");
    lab.sh("h2", "umount /proc/sys/kernel/random/boot_id");
    lab.sh(
        "h2",
        "printf '#!/bin/sh\\n[ \"$*\" != -m ] || { echo aarch64; exit; }\\nexec /run/own-uname \"$@\"\\n' >/run/uname; cp /usr/bin/uname /run/own-uname; chmod 755 /run/uname; mount --bind /run/uname /usr/bin/uname",
    );
    refused(&check, 1, "a system of the one does not run on the other");
}

#[test]
fn a_smaller_disk_is_fitted_and_one_too_small_is_refused_with_figures() {
    if lacks(&["sfdisk", "mkfs.ext4", "setfacl", "setcap", "setfattr"]) {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    let (from, to) = (
        Disk::new(&lab, "h1", 400 * MIB),
        Disk::new(&lab, "h2", 200 * MIB),
    );
    with_system(&lab, "h1", &from, "ext4");
    cloned(&lab, &from, &to).ended(0);
    lab.sh(
        "h1",
        "head -c 150000000 /dev/urandom >/mnt/sys/home/more; sync",
    );
    let ran = clone(&lab, &from, &to, &["--check"]).ended(1);
    assert!(ran.message().contains("needs"), "{}", ran.message());
}
