//! The files of one file system below a folder, always in the same order: by the bytes of their names,
//! a folder before what it holds. Must not read what is in files.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A folder that `mke2fs` makes in every file system; nothing of it is anyone's.
const LOST: &[u8] = b"lost+found";

/// What is walked over.
pub struct Tree {
    root: PathBuf,
    device: u64,
    /// Whether a folder that stands for a subvolume has this number.
    stub: Option<u64>,
    leave: BTreeSet<Vec<u8>>,
}

/// One of its files.
pub struct Entry {
    /// Below the first folder, without a slash before it.
    pub path: Vec<u8>,
    /// What is known of it; of a link, of itself.
    pub metadata: Metadata,
}

impl Entry {
    /// Its last name.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or(&[])
    }
}

impl Tree {
    /// The tree below a folder.
    ///
    /// # Errors
    /// A sentence, when there is no such folder.
    pub fn new(folder: &str, leave: &[String]) -> Result<Self, String> {
        let root = PathBuf::from(folder);
        let metadata = fs::metadata(&root).map_err(|error| format!("{folder}: {error}"))?;
        if !metadata.is_dir() {
            return Err(format!("{folder} is no folder"));
        }
        let stub = stub(&root);
        Ok(Self {
            root,
            device: metadata.dev(),
            stub,
            leave: leave
                .iter()
                .map(|path| path.trim_matches('/').as_bytes().to_vec())
                .collect(),
        })
    }

    /// Where an entry lies.
    pub fn at(&self, path: &[u8]) -> PathBuf {
        self.root.join(Path::new(std::ffi::OsStr::from_bytes(path)))
    }

    /// The first folder's own metadata.
    ///
    /// # Errors
    /// When it is gone.
    pub fn top(&self) -> io::Result<Metadata> {
        fs::symlink_metadata(&self.root)
    }

    /// Whether what lies in this folder is of the tree: it is on the same file system.
    pub fn enters(&self, entry: &Entry) -> bool {
        entry.metadata.is_dir() && entry.metadata.dev() == self.device
    }

    /// What is never of the tree: sockets, which no archive holds, and folders where another file system or
    /// subvolume begins.
    fn is_other(&self, metadata: &Metadata) -> bool {
        let other = metadata.dev() != self.device || self.stub == Some(metadata.ino());
        metadata.file_type().is_socket() || metadata.is_dir() && other
    }

    /// What lies in a folder, in order. What vanishes meanwhile is not there.
    ///
    /// # Errors
    /// A sentence with the path that cannot be read.
    pub fn list(&self, folder: &[u8]) -> Result<Vec<Entry>, String> {
        let at = self.at(folder);
        let bad = |error: io::Error| format!("{}: {error}", at.display());
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let read = match fs::read_dir(&at) {
            Ok(read) => read,
            Err(error) if gone(&error) && !folder.is_empty() => return Ok(Vec::new()),
            Err(error) => return Err(bad(error)),
        };
        let mut names: Vec<OsString> = Vec::new();
        for entry in read {
            names.push(entry.map_err(bad)?.file_name());
        }
        names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        let mut all = Vec::new();
        for name in names {
            let name = name.into_vec();
            let mut path = folder.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            } else if name == LOST {
                continue;
            }
            path.extend(name);
            if self.leave.contains(&path) {
                continue;
            }
            match fs::symlink_metadata(self.at(&path)) {
                Ok(metadata) if self.is_other(&metadata) => {}
                Ok(metadata) => all.push(Entry { path, metadata }),
                Err(error) if gone(&error) => {}
                Err(error) => {
                    return Err(format!("{}: {error}", self.at(&path).display()));
                }
            }
        }
        Ok(all)
    }

    /// Walks over all of it; `each` hears every entry and stops it with an error.
    ///
    /// # Errors
    /// As [`Tree::list`], or what `each` says.
    pub fn walk(&self, each: &mut impl FnMut(&Entry) -> Result<(), String>) -> Result<(), String> {
        // Folders that are open, each with what is left of it, last first.
        let mut open = vec![self.reversed(b"")?];
        while let Some(entries) = open.last_mut() {
            let Some(entry) = entries.pop() else {
                open.pop();
                continue;
            };
            each(&entry)?;
            if self.enters(&entry) {
                open.push(self.reversed(&entry.path)?);
            }
        }
        Ok(())
    }

    fn reversed(&self, folder: &[u8]) -> Result<Vec<Entry>, String> {
        let mut entries = self.list(folder)?;
        entries.reverse();
        Ok(entries)
    }
}

/// The inode number that the kernel gives to a subvolume's place in a snapshot of the one around it
/// (`BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`).
fn stub(root: &Path) -> Option<u64> {
    /// `BTRFS_SUPER_MAGIC` of `linux/magic.h`.
    const BTRFS: u32 = 0x9123_683e;
    #[cfg(target_os = "linux")]
    {
        let known = rustix::fs::statfs(root).ok()?;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it has 32 bits"
        )]
        let kind = known.f_type as u32;
        (kind == BTRFS).then_some(2)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (root, BTRFS);
        None
    }
}
