//! A running machine's system on another machine's disk, started from there by its firmware; and a logical
//! volume that is written to while it is copied.

use std::collections::BTreeSet;
use std::thread;

use windlass_lab::{Firmware, Hardware};

use super::harness::Vms;
use crate::fleet::controller::Ran;

const GIB: u64 = 1 << 30;

/// A small system in two logical volumes of h1's second disk, with a writer: the first file and the last one
/// say the same number, or the last one the number before.
const LOGICAL: &str = r#"set -e
printf 'label: gpt\nsize=70MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B\nsize=+, type=E6D6D379-F507-44C2-A23C-238F2A3DF928\n' | sfdisk -q /dev/vdb
udevadm settle
mkfs.vfat -F 32 -n SMALL /dev/vdb1 >/dev/null
pvcreate -q /dev/vdb2; vgcreate -q small-group /dev/vdb2; lvcreate -q -y -n root -L 300M small-group; lvcreate -q -y -n home -L 100M small-group
mkfs.ext4 -q -L sysroot /dev/small-group/root; mkfs.ext4 -q /dev/small-group/home
mkdir -p /mnt/sys; mount /dev/small-group/root /mnt/sys; cd /mnt/sys
mkdir -p etc/ssh usr/bin bin home boot/efi proc sys dev run
mount /dev/small-group/home home
printf '/dev/mapper/small--group-root / ext4 defaults 0 1\n/dev/small-group/home /home ext4 defaults 0 2\nLABEL=SMALL /boot/efi vfat noauto 0 0\n' >etc/fstab
echo small >etc/hostname; echo 0123456789abcdef0123456789abcdef >etc/machine-id
head -c 30000000 /dev/urandom >home/noise
mkdir usr/many; i=0; while [ $i -lt 300 ]; do echo $i >usr/many/$i; i=$((i+1)); done
cat >/run/count <<'E'
n=0
while :; do n=$((n+1)); echo $n >bin/aa.new; mv bin/aa.new bin/aa; echo $n >usr/zz.new; mv usr/zz.new usr/zz; sleep 0.01; done
E
setsid sh /run/count >/dev/null 2>&1 </dev/null &
sleep 1
"#;

/// Every byte, owner, mode, time and link of what no machine has for itself, by other tools than the
/// product's: digests of programs and libraries, of what is set, of homes.
const TREE: &str = r#"set -e
cd /
pax=--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime
tar --sort=name --numeric-owner --xattrs --acls $pax -cf - usr root home opt srv | md5sum
find etc ! -type d ! -path etc/hostname ! -path etc/machine-id ! -path etc/fstab ! -path etc/hosts \
    ! -path 'etc/ssh/ssh_host_*' ! -path etc/systemd/network/lab.network ! -path 'etc/windlass*' -print0 |
    sort -z | tar --null --no-recursion --numeric-owner --xattrs --acls $pax -T - -cf - | md5sum
"#;

/// The same as lines that a person can compare.
const LINES: &str = r#"cd /
find usr root home opt srv etc -printf '%p %y %m %U %G %T@ %n %l\n' | sort
find usr root home opt srv etc -type f -print0 | sort -z | xargs -0 md5sum
getfattr -Rdhm - usr root home opt srv etc 2>/dev/null || true
"#;

/// What the copy says of itself.
const ITSELF: &str = "hostname; cat /etc/machine-id; findmnt -no FSTYPE,LABEL /; cut -d ' ' -f 1,2 /etc/ssh/ssh_host_ed25519_key.pub; ls /var/lib/systemd/random-seed 2>/dev/null || true";

const CLONE: [&str; 5] = ["clone", "h1", "h2", "--disk", "/dev/vdb"];

/// What confirms that h2's second disk may be erased.
fn token(vms: &Vms, words: &[&str]) -> String {
    let ran = vms.run(&[&CLONE, words, &["--check"]].concat()).ended(0);
    ran.summary["confirm"].as_str().unwrap().to_owned()
}

fn clone_of(vms: &Vms, words: &[&str], more: &[&str]) -> Ran {
    let token = token(vms, words);
    vms.run(&[&CLONE, words, &["--confirm", &token], more].concat())
}

/// The whole way by the command; the copy's host key.
fn by_command(vms: &Vms) -> String {
    let further = ["--reboot", "--reboot-timeout", "400", "--update-inventory"];
    let said = clone_of(vms, &[], &further);
    // An emulated processor that is busy for minutes loses time, so clocks may differ, and nothing else.
    let drift = said.summary["verify"]["drift"].as_array().unwrap();
    let other = drift.iter().any(|row| row["subject"] != "clock");
    let code = if drift.is_empty() { 0 } else { 5 };
    let said = said.ended(code).summary;
    assert!(!other, "{said:#}");
    assert_eq!(said["unfinished"], false);
    said["host_key"].as_str().unwrap().to_owned()
}

fn playbook(vms: &Vms, disk: &str, token: &str) -> Ran {
    let disk = format!("disk={disk}");
    let confirm = format!("confirm={token}");
    let vars = ["from=h1", "to=h2", &disk, "reboot_timeout=400s", &confirm];
    let vars = vars.iter().flat_map(|one| ["--var", one]);
    let words: Vec<&str> = ["playbook", "run", "clone-os"]
        .into_iter()
        .chain(vars)
        .collect();
    vms.run(&words)
}

/// The whole way by the playbook; the copy's host key, which the inventory has then.
fn by_playbook(vms: &Vms) -> String {
    let ran = playbook(vms, "/dev/vdb", &token(vms, &[]));
    assert!([0, 5].contains(&ran.code), "{:#}", ran.summary);
    let inventory = std::fs::read_to_string(vms.machines().place().inventory()).unwrap();
    let mut words = inventory.split('"');
    words
        .find(|word| word.starts_with("ssh-ed25519 "))
        .unwrap()
        .to_owned()
}

fn a_logical_volume(vms: &Vms) {
    vms.sh("h1", LOGICAL);
    let said = clone_of(vms, &["--source", "/dev/vdb", "--hostname", "small2"], &[])
        .ended(0)
        .summary;
    assert_eq!(said["left"].as_array().unwrap().len(), 0, "{said:#}");
    assert_eq!(said["changed_meanwhile"].as_array().unwrap().len(), 0);
    assert_eq!(
        vms.sh("h1", "echo $(lvs --noheadings -o lv_name)").trim(),
        "home root"
    );
    let seen = vms.sh(
        "h2",
        "mkdir -p /mnt/new; mount -L SMALL /mnt/new; umount /mnt/new\n\
         part=$(blkid -L sysroot); mount $part /mnt/new; cd /mnt/new\n\
         cat bin/aa usr/zz; cat etc/hostname; grep -c \"^UUID=$(blkid -s UUID -o value $part) / ext4\" etc/fstab; ls usr/many | wc -l; grep -c '^UUID=.* /home ext4' etc/fstab\n\
         cd /; umount /mnt/new",
    );
    let lines: Vec<&str> = seen.lines().collect();
    let number = |at: usize| lines[at].parse::<u64>().unwrap();
    assert!(
        number(0) == number(1) || number(0) == number(1) + 1,
        "{seen}"
    );
    assert!(number(0) > 10, "nothing was written: {seen}");
    assert_eq!(lines[2..], ["small2", "1", "300", "1"]);
    vms.sh(
        "h1",
        "pkill -f '[/]run/count'; umount /mnt/sys/home /mnt/sys; vgchange -q -an small-group; wipefs -qaf /dev/vdb2 /dev/vdb",
    );
}

/// `way` does it, from the look at both to the reboot; what it says is the copy's host key.
fn whole(firmware: Firmware, before: fn(&Vms), way: fn(&Vms) -> String) -> Vms {
    let disk = |bytes| Hardware {
        firmware,
        blank: Some(bytes),
    };
    let vms = Vms::with(&[("h1", disk(GIB)), ("h2", disk(4 * GIB))]);
    before(&vms);
    let own = vms.sh("h1", ITSELF);
    vms.machines()
        .stop_at_reboot("h2")
        .unwrap_or_else(|error| panic!("{error}"));
    let boot = vms.boot("h2");
    // The medium is taken out while the machine is off; its firmware has only the new disk to start then.
    let key = thread::scope(|scope| {
        let person = scope.spawn(|| vms.machines().start_from_second("h2"));
        let key = way(&vms);
        person
            .join()
            .unwrap()
            .unwrap_or_else(|error| panic!("{error}"));
        key
    });
    // Whoever logs in by other means is told the new key, and no other is taken.
    vms.knows("h2", &key);
    assert_ne!(vms.boot("h2"), boot);
    let copy = vms.sh("h2", ITSELF);
    let (ours, theirs): (Vec<&str>, Vec<&str>) = (own.lines().collect(), copy.lines().collect());
    assert_eq!((ours[0], theirs[0]), ("h1", "h2"));
    assert_ne!(ours[1], theirs[1]);
    assert_eq!(theirs[2], ours[2]);
    assert_eq!(theirs[3], key);
    assert_ne!(ours[3], theirs[3]);
    assert_eq!(
        vms.sh(
            "h2",
            "lsblk -dno NAME -t 2>/dev/null | wc -l; lsblk -dno SIZE -b /dev/vda"
        )
        .split_whitespace()
        .last(),
        Some("4294967296")
    );
    for host in ["h1", "h2"] {
        vms.set_clock(host);
    }
    vms.run(&["verify"]).ended(0);
    vms.say("comparing every file");
    if vms.sh("h1", TREE) != vms.sh("h2", TREE) {
        let (ours, theirs) = (vms.sh("h1", LINES), vms.sh("h2", LINES));
        let other = |a: &str, b: &str| {
            let known: BTreeSet<&str> = b.lines().collect();
            let lines = a.lines().filter(|line| !known.contains(line)).take(40);
            lines.collect::<Vec<_>>().join("\n")
        };
        let (ours, theirs) = (other(&ours, &theirs), other(&theirs, &ours));
        panic!("only h1:\n{ours}\nonly h2:\n{theirs}");
    }
    vms
}

#[test]
#[ignore = "boots virtual machines for minutes; cargo xtask deep runs it"]
fn a_running_machine_is_cloned_onto_another_s_disk_and_the_copy_starts_by_uefi_as_itself() {
    whole(Firmware::Uefi, a_logical_volume, by_command);
}

#[test]
#[ignore = "boots virtual machines for minutes; cargo xtask deep runs it"]
fn a_playbook_clones_a_running_machine_and_the_copy_starts_by_a_bios_as_itself() {
    let vms = whole(Firmware::Bios, |_| (), by_playbook);
    // Once more, with the name that its disk has now: it is the copy already, and nothing is confirmed.
    let boot = vms.boot("h2");
    let ran = playbook(&vms, "/dev/vda", "").ended(0);
    assert_eq!(
        ran.summary["hosts"]["h2"]["changed"], 0,
        "{:#}",
        ran.summary
    );
    assert_eq!(vms.boot("h2"), boot);
}
