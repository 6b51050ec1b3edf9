//! The disk that every virtual machine starts from: a Debian system with its own kernel and GRUB, made
//! once and kept. Must not know which machines there are.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::{Context, Result, run, wrong};

/// What makes the system on the disk.
const RECIPE: &str = include_str!("image.sh");
/// Size of the disk, bytes. It is sparse: about one GiB of it is used.
const BYTES: u64 = 3 << 30;
/// A partition for GRUB's core, which BIOS machines need on GPT disks, one for the system, and one for
/// UEFI, which finds GRUB there.
const PARTITIONS: &str = "label: gpt\n\
                          size=1MiB, type=21686148-6449-6E6F-744E-656564454649\n\
                          size=3000MiB, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4\n\
                          type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B\n";

/// The disk from which machines start. They never write to it.
#[derive(Clone, Debug)]
pub struct Image {
    disk: PathBuf,
}

impl Image {
    /// The image that is kept in this folder. Another recipe has another name.
    pub fn at(folder: &Path) -> Self {
        let number = RECIPE
            .bytes()
            .chain(PARTITIONS.bytes())
            .chain(BYTES.to_le_bytes())
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        Self {
            disk: folder.join(format!("debian-{:06x}.raw", number >> 40)),
        }
    }

    /// The disk's file, in raw form.
    pub fn disk(&self) -> &Path {
        &self.disk
    }

    /// Whether it was made.
    pub fn is_there(&self) -> bool {
        self.disk.exists()
    }

    /// Makes it where it is not there yet: some 700 MB of packages, a minute or two. What earlier
    /// recipes left is removed.
    ///
    /// # Errors
    /// When a tool fails; its last words are in the error, and nothing is left but a log.
    pub fn make(&self) -> Result<()> {
        if self.is_there() {
            return Ok(());
        }
        if let Some(reason) = super::refusal() {
            return wrong(reason);
        }
        let folder = self.disk.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).during(folder.display())?;
        for entry in fs::read_dir(folder).during(folder.display())?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("debian-") {
                detach_all(&entry.path());
                fs::remove_file(entry.path()).during(entry.path().display())?;
            }
        }
        let new = self.disk.with_extension("new");
        let made = make(&new, folder);
        detach_all(&new);
        if made.is_err() {
            let _ = fs::remove_file(&new);
        }
        made?;
        // On the disk before it has its name: a machine that lost power finds it whole or not at all.
        let file = File::open(&new).during(new.display())?;
        file.sync_all().during(new.display())?;
        fs::rename(&new, &self.disk).during(self.disk.display())
    }
}

fn make(disk: &Path, folder: &Path) -> Result<()> {
    let text = disk.to_string_lossy();
    File::create(disk)
        .and_then(|file| file.set_len(BYTES))
        .during(disk.display())?;
    crate::command::feed("sfdisk", &["--quiet", &text], PARTITIONS)?;
    let device = run("losetup", &["--find", "--show", &text])?;
    let device = device.trim();
    // The kernel may be one that reads no partition tables by itself.
    run("partx", &["--add", device]).or_else(|_| run("partx", &["--update", device]))?;
    let root = folder.join("root");
    fs::create_dir_all(&root).during(root.display())?;
    let log = folder.join("image.log");
    let output = File::create(&log).during(log.display())?;
    let errors = output.try_clone().during(log.display())?;
    let ended = Command::new("unshare")
        // What it mounts is seen by nobody else and ends with it, however it ends.
        .args(["--mount", "--propagation", "private", "/bin/sh", "-c"])
        .args([RECIPE, "image.sh", device])
        .arg(&root)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .status()
        .during("unshare")?;
    let _ = fs::remove_dir(&root);
    if ended.success() {
        return Ok(());
    }
    let said = fs::read_to_string(&log).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    let last = lines
        .get(lines.len().saturating_sub(15)..)
        .unwrap_or(&[])
        .join("\n");
    wrong(format!(
        "the image could not be made: {ended}; {} ends with\n{last}",
        log.display()
    ))
}

/// Lets go of every loop device of a file.
fn detach_all(disk: &Path) {
    let listed = run("losetup", &["--associated", &disk.to_string_lossy()]).unwrap_or_default();
    for device in listed.lines().filter_map(|line| line.split(':').next()) {
        let _ = run("partx", &["--delete", device]);
        let _ = run("losetup", &["--detach", device]);
    }
}
