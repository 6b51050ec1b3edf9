//! Clones that are cut off, killed, or run out of room, and sources that cannot be read or are written to:
//! each goes on, is resumed, or ends in a sentence, and no disk looks done that is not.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::clone::{Disk, MIB, clone, cloned, lacks, token, with_system};
use crate::lab::{Cut, Kind, Lab};

/// Starts a clone in the background and waits until bytes have moved.
fn begun(lab: &Lab, from: &Disk, to: &Disk) -> (Child, PathBuf) {
    let token = token(lab, from, to);
    let said = lab.home().join("said");
    let file = std::fs::File::create(&said).unwrap();
    let child = lab
        .windlass(&[
            "--json",
            "clone",
            "h1",
            "h2",
            "--source",
            &from.node,
            "--disk",
            &to.node,
            "--confirm",
            &token,
        ])
        .stdout(file)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until(&said, "\"transfer\"");
    (child, said)
}

fn until(said: &Path, wanted: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    let text = || std::fs::read_to_string(said).unwrap_or_default();
    while !text()
        .lines()
        .any(|line| line.contains(wanted) && line.contains("\"copy\""))
    {
        assert!(Instant::now() < end, "no {wanted}: {}", text());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until so many bytes of the copy have moved.
fn until_bytes(said: &Path, wanted: u64) {
    let end = Instant::now() + Duration::from_secs(60);
    let text = || std::fs::read_to_string(said).unwrap_or_default();
    let moved = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        event["event"] == "transfer"
            && event["scope"]["task"] == "copy"
            && event["done"].as_u64() >= Some(wanted)
    };
    while !text().lines().any(moved) {
        assert!(Instant::now() < end, "not {wanted} bytes: {}", text());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn last(said: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(said).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn a_cut_link_is_survived_and_killed_ends_leave_a_disk_that_is_told_unfinished() {
    if lacks(&["sfdisk", "mkfs.ext4", "setfacl", "setcap", "setfattr"]) {
        return;
    }
    let lab = Lab::with(&[("h1", Kind::Root), ("h2", Kind::Root)], |wanted| {
        wanted.rate = Some("100mbit".to_owned());
    });
    let (from, to) = (
        Disk::new(&lab, "h1", 400 * MIB),
        Disk::new(&lab, "h2", 400 * MIB),
    );
    with_system(&lab, "h1", &from, "ext4");
    lab.sh(
        "h1",
        "head -c 60000000 /dev/urandom >/mnt/sys/home/more; sync",
    );

    // The controller.
    let (mut child, _) = begun(&lab, &from, &to);
    child.kill().unwrap();
    child.wait().unwrap();
    for host in ["h1", "h2"] {
        lab.wait_for(host, "! pgrep -f '[w]indlass-worker carry'");
    }
    to.is_unfinished();

    // The sender.
    let (mut child, said) = begun(&lab, &from, &to);
    lab.sh("h1", "pkill -9 -f '[w]indlass-worker carry give'");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let message = last(&said)["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("h1: the sending program was lost") && message.contains("unfinished"),
        "{message}"
    );
    assert!(!message.contains('\n'), "{message}");
    assert_eq!(last(&said)["unfinished"], true);
    to.is_unfinished();

    // The receiver, which is told of though the sender would wait for it a while.
    let (mut child, said) = begun(&lab, &from, &to);
    lab.sh("h2", "pkill -9 -f '[w]indlass-worker carry take'");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let message = last(&said)["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("h2: the receiving program was lost") && message.contains("unfinished"),
        "{message}"
    );
    to.is_unfinished();

    // The link, for ten seconds.
    let (mut child, said) = begun(&lab, &from, &to);
    lab.cut("h1", Cut::Silent);
    std::thread::sleep(Duration::from_secs(10));
    lab.mend("h1");
    let code = child.wait().unwrap().code();
    assert_eq!(code, Some(0), "{:#}", last(&said));
    let table = to.said();
    assert!(!table.contains("windlass-unfinished"), "{table}");
}

#[test]
fn a_target_that_fills_up_ends_the_clone_in_a_sentence_and_is_told_unfinished() {
    if lacks(&["sfdisk", "mkfs.ext4", "setfacl", "setcap", "setfattr"]) {
        return;
    }
    let lab = Lab::with(&[("h1", Kind::Root), ("h2", Kind::Root)], |wanted| {
        wanted.rate = Some("100mbit".to_owned());
    });
    let (from, to) = (
        Disk::new(&lab, "h1", 500 * MIB),
        Disk::new(&lab, "h2", 220 * MIB),
    );
    with_system(&lab, "h1", &from, "ext4");
    lab.sh(
        "h1",
        "head -c 60000000 /dev/urandom >/mnt/sys/home/more; echo >/mnt/sys/usr/zz; sync",
    );
    let (mut child, said) = begun(&lab, &from, &to);
    // It fitted when it was looked at. The sender must not come to the file before it is there.
    lab.sh(
        "h1",
        "pkill -STOP -f '[w]indlass-worker carry give'; pkill -STOP -x tar\n\
         head -c 170000000 /dev/urandom >/mnt/sys/usr/zz\n\
         pkill -CONT -x tar; pkill -CONT -f '[w]indlass-worker carry give'",
    );
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let message = last(&said)["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("h2: ")
            && message.contains("No space left on device")
            && message.contains("unfinished")
            && !message.contains('\n'),
        "{message}"
    );
    to.is_unfinished();
    lab.sh("h1", "rm /mnt/sys/usr/zz");
    cloned(&lab, &from, &to).ended(0);
}

#[test]
fn a_source_that_cannot_be_read_ends_the_clone_in_a_sentence_with_the_file() {
    if lacks(&["sfdisk", "mkfs.ext4", "setfacl", "setcap", "setfattr"]) {
        return;
    }
    let lab = Lab::with(&[("h1", Kind::Root), ("h2", Kind::Root)], |wanted| {
        wanted.rate = Some("100mbit".to_owned());
    });
    let (from, to) = (
        Disk::new(&lab, "h1", 300 * MIB),
        Disk::new(&lab, "h2", 300 * MIB),
    );
    with_system(&lab, "h1", &from, "split");
    // A second file system, of one file.
    lab.sh(
        "h1",
        &format!(
            "set -e; mkdir /mnt/sys/more; mkfs.ext4 -q -F {node}p3; mount {node}p3 /mnt/sys/more\n\
             head -c 70000000 /dev/zero | tr '\\0' y >/mnt/sys/more/zz\n\
             sync; umount /mnt/sys/more; mount -o ro {node}p3 /mnt/sys/more",
            node = from.node
        ),
    );
    // Past the end of its file a loop device gives zeros, or errors where no cache of the file is between.
    let status = Command::new("losetup")
        .args(["--direct-io=on", &from.node])
        .status()
        .unwrap();
    assert!(status.success());
    let (mut child, said) = begun(&lab, &from, &to);
    // The end of the disk is gone now: what lies there gives read errors.
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&from.image)
        .unwrap();
    file.set_len(250 * MIB).unwrap();
    std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let message = last(&said)["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("h1:")
            && message.contains("/zz: ")
            && message.ends_with("clone again")
            && message.contains("Input/output error")
            && message.contains("unfinished")
            && !message.contains('\n'),
        "{message}"
    );
    to.is_unfinished();
    // Before anything is written it is seen as well: what is mounted is not left out in silence.
    let ran = clone(&lab, &from, &to, &["--check"]).ended(1);
    assert!(
        ran.message().contains("its disk may be failing"),
        "{}",
        ran.message()
    );
}

#[test]
fn a_btrfs_that_is_written_to_arrives_as_of_one_instant_and_is_resumed_with_its_snapshot() {
    if lacks(&["sfdisk", "mkfs.btrfs", "setfacl", "setcap", "setfattr"]) {
        return;
    }
    let lab = Lab::with(&[("h1", Kind::Root), ("h2", Kind::Root)], |wanted| {
        wanted.rate = Some("100mbit".to_owned());
    });
    let (from, to) = (
        Disk::new(&lab, "h1", 500 * MIB),
        Disk::new(&lab, "h2", 600 * MIB),
    );
    with_system(&lab, "h1", &from, "btrfs");
    // Numbers of subvolumes do not travel.
    let grub = "/mnt/sys/etc/default/grub";
    lab.sh(
        "h1",
        &format!("mkdir -p /mnt/sys/etc/default; [ ! -e {grub} ] || mv {grub} /root/grub; echo 'GRUB_CMDLINE_LINUX=\"rootflags=subvolid=258 quiet\"' >{grub}"),
    );
    let ran = clone(&lab, &from, &to, &["--check"]).ended(1);
    assert!(
        ran.message()
            .contains("/etc/default/grub starts the system by rootflags=subvolid="),
        "{}",
        ran.message()
    );
    lab.sh(
        "h1",
        &format!("rm {grub}; [ ! -e /root/grub ] || mv /root/grub {grub}"),
    );
    // Enough that the copy is on its way for some seconds, and what would not fit uncompressed.
    lab.sh(
        "h1",
        "mount -o remount,compress=zstd:1 /mnt/sys\n\
         yes | head -c 700000000 >/mnt/sys/home/yes; head -c 60000000 /dev/urandom >/mnt/sys/home/more; sync",
    );
    // The first file and the last one say the same number, or the last one the number before.
    lab.sh(
        "h1",
        "cat >/run/count <<'E'\nn=0\nwhile :; do n=$((n+1)); echo $n >/mnt/sys/bin/aa.new; mv /mnt/sys/bin/aa.new /mnt/sys/bin/aa; echo $n >/mnt/sys/usr/zz.new; mv /mnt/sys/usr/zz.new /mnt/sys/usr/zz; sleep 0.01; done\nE\n\
         setsid sh /run/count >/dev/null 2>&1 </dev/null & sleep 0.5",
    );
    let (mut child, said) = begun(&lab, &from, &to);
    // What has come is kept from then on.
    until_bytes(&said, 8 << 20);
    child.kill().unwrap();
    child.wait().unwrap();
    for host in ["h1", "h2"] {
        lab.wait_for(host, "! pgrep -f '[w]indlass-worker carry'");
    }
    to.is_unfinished();
    let ran = cloned(&lab, &from, &to).ended(0);
    assert_eq!(ran.summary["resumed"], true, "{:#}", ran.summary);
    assert!(
        ran.summary["kept_files"].as_u64().unwrap() > 0,
        "{:#}",
        ran.summary
    );
    let left = ran.summary["left"][0].as_str().unwrap();
    assert!(
        left.ends_with("not copied, as /@/var/lib/machines"),
        "{left}"
    );
    lab.sh(
        "h2",
        &format!(
            "mkdir -p /mnt/new; {}; mount -o subvol=@ {}p2 /mnt/new",
            to.wait(),
            to.node
        ),
    );
    let numbers = lab.sh("h2", "cat /mnt/new/bin/aa /mnt/new/usr/zz");
    let numbers: Vec<u64> = numbers.lines().map(|line| line.parse().unwrap()).collect();
    assert!(
        numbers[0] == numbers[1] || numbers[0] == numbers[1] + 1,
        "{numbers:?}"
    );
    let left = lab.sh(
        "h1",
        &format!(
            "mkdir -p /mnt/top; mount -o subvolid=5 {}p2 /mnt/top; ls -A /mnt/top",
            from.node
        ),
    );
    assert_eq!(left.trim(), "@");
    lab.sh("h1", "pkill -f '[/]run/count'; umount /mnt/top");
    lab.sh("h2", "umount /mnt/new");
}
