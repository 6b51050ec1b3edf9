//! Transfers that break: sender killed, disk full, two at once.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command};

use sha2::{Digest, Sha256};
use windlass_wire::host::{FromReceiver, ToReceiver, WantedFile, line, read_line};

use super::start;

struct Receiver {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Receiver {
    fn start(folder: &Path) -> Self {
        let mut child = start(&["receive", "--folder", folder.to_str().unwrap()]);
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn tell(&mut self, message: &ToReceiver) {
        self.raw(&line(message)).unwrap();
    }

    fn raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stdin.as_mut().unwrap().write_all(bytes)
    }

    fn hear(&mut self) -> Option<FromReceiver> {
        read_line(&mut self.stdout).unwrap()
    }

    /// Asks for one file; how much of it is there.
    fn want(&mut self, name: &str, bytes: usize) -> (usize, bool) {
        self.tell(&ToReceiver::Want {
            files: vec![WantedFile {
                file: name.into(),
                bytes: bytes as u64,
                sha256: None,
            }],
        });
        let have = self.hear();
        let Some(FromReceiver::Have {
            offset, complete, ..
        }) = have
        else {
            panic!("{have:?}");
        };
        let room = self.hear();
        assert!(matches!(room, Some(FromReceiver::Room { .. })), "{room:?}");
        (usize::try_from(offset).unwrap(), complete)
    }

    fn file(&mut self, name: &str, offset: usize, bytes: usize) {
        self.tell(&ToReceiver::File {
            file: name.into(),
            offset: offset as u64,
            bytes: bytes as u64,
        });
    }

    fn digest(&mut self, all: &[u8]) -> FromReceiver {
        let digest = Sha256::digest(all);
        self.tell(&ToReceiver::Digest {
            sha256: digest.iter().map(|b| format!("{b:02x}")).collect(),
        });
        self.hear().unwrap()
    }

    /// The sender vanishes.
    fn vanish(mut self) -> Option<i32> {
        drop(self.stdin.take());
        self.child.wait().unwrap().code()
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

#[test]
fn a_sender_that_is_killed_anywhere_costs_nothing_that_arrived() {
    let all = bytes(24 << 20);
    let folder = tempfile::tempdir().unwrap();
    let (mut sent, mut there) = (0, 0);
    for _ in 0..4 {
        let mut receiver = Receiver::start(folder.path());
        let (offset, complete) = receiver.want("a", all.len());
        assert!(!complete);
        assert_eq!(offset, there, "all that was sent was kept");
        receiver.file("a", offset, all.len());
        let random = usize::try_from(RandomState::new().hash_one(0u8) >> 1).unwrap();
        let now = random % (all.len() - offset);
        receiver.raw(&all[offset..offset + now]).unwrap();
        (sent, there) = (sent + now, offset + now);
        assert_eq!(receiver.vanish(), Some(1));
    }
    let mut receiver = Receiver::start(folder.path());
    let (offset, _) = receiver.want("a", all.len());
    receiver.file("a", offset, all.len());
    receiver.raw(&all[offset..]).unwrap();
    sent += all.len() - offset;
    let stored = receiver.digest(&all);
    assert!(matches!(stored, FromReceiver::Stored { .. }), "{stored:?}");
    receiver.tell(&ToReceiver::End);
    let received = (all.len() - offset) as u64;
    assert_eq!(receiver.hear(), Some(FromReceiver::Done { received }));
    assert_eq!(sent, all.len(), "no byte was sent twice");
    assert_eq!(receiver.vanish(), Some(0));
    assert_eq!(std::fs::read(folder.path().join("a")).unwrap(), all);
}

#[test]
fn a_receiver_that_is_killed_leaves_a_part_that_is_gone_on_with() {
    let all = bytes(8 << 20);
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start(folder.path());
    receiver.want("a", all.len());
    receiver.file("a", 0, all.len());
    receiver.raw(&all[..6 << 20]).unwrap();
    receiver.child.kill().unwrap();
    receiver.child.wait().unwrap();
    let mut receiver = Receiver::start(folder.path());
    let (offset, _) = receiver.want("a", all.len());
    assert!(offset <= 6 << 20);
    receiver.file("a", offset, all.len());
    receiver.raw(&all[offset..]).unwrap();
    let stored = receiver.digest(&all);
    assert!(matches!(stored, FromReceiver::Stored { .. }), "{stored:?}");
}

#[test]
fn a_second_transfer_into_the_folder_is_refused_and_names_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Receiver::start(folder.path());
    first.want("a", 10);
    let mut second = Receiver::start(folder.path());
    second.tell(&ToReceiver::Want { files: vec![] });
    match second.hear() {
        Some(FromReceiver::Refused { reason, .. }) => {
            let pid = format!("pid {}", first.child.id());
            assert!(reason.contains(&pid), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(second.vanish(), Some(1));
    first.file("a", 0, 10);
    first.raw(&bytes(10)).unwrap();
    let stored = first.digest(&bytes(10));
    assert!(matches!(stored, FromReceiver::Stored { .. }), "{stored:?}");
}

/// A small file system in memory.
struct SmallDisk(PathBuf, Option<tempfile::TempDir>);

impl SmallDisk {
    /// `None`, aloud, where this user may not mount.
    fn mount(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&path)
            .output();
        if done.is_ok_and(|done| done.status.success()) {
            return Some(Self(path, Some(folder)));
        }
        eprintln!("SKIPPED: a small disk needs the right to mount");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        drop(self.1.take());
    }
}

#[test]
fn a_disk_that_fills_up_is_named_and_the_next_transfer_goes_on() {
    let Some(disk) = SmallDisk::mount("120m") else {
        return;
    };
    let all = bytes(40 << 20);
    let folder = disk.0.join("pieces");
    let mut receiver = Receiver::start(&folder);
    receiver.want("a", all.len());
    // Someone else takes the room that was there.
    let filler = disk.0.join("filler");
    std::fs::write(&filler, vec![0; 100 << 20]).unwrap();
    receiver.file("a", 0, all.len());
    // It may stop reading at any byte.
    let _ = receiver.raw(&all);
    match receiver.hear() {
        Some(FromReceiver::Bad { file, reason }) => {
            assert_eq!(file, "a");
            for wanted in [folder.to_str().unwrap(), "full", "needs", "free"] {
                assert!(reason.contains(wanted), "{wanted}: {reason}");
            }
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(receiver.vanish(), Some(1));
    // Before the room is back, a new transfer is refused beforehand.
    let mut receiver = Receiver::start(&folder);
    receiver.tell(&ToReceiver::Want {
        files: vec![WantedFile {
            file: "a".into(),
            bytes: all.len() as u64,
            sha256: None,
        }],
    });
    receiver.hear().unwrap();
    match receiver.hear() {
        Some(FromReceiver::Refused {
            needed, free, path, ..
        }) => {
            assert!(needed > 0 && free < needed + (64 << 20));
            assert_eq!(path, folder.to_str().unwrap());
        }
        other => panic!("{other:?}"),
    }
    drop(receiver);
    std::fs::remove_file(&filler).unwrap();
    let mut receiver = Receiver::start(&folder);
    let (offset, _) = receiver.want("a", all.len());
    assert!(offset > 10 << 20, "{offset}");
    receiver.file("a", offset, all.len());
    receiver.raw(&all[offset..]).unwrap();
    let stored = receiver.digest(&all);
    assert!(matches!(stored, FromReceiver::Stored { .. }), "{stored:?}");
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It may have ended; nothing is left in either case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
