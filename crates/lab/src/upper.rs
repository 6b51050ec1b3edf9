//! Writes the upper layer of a host's overlay: files of its own, and marks that hide what the
//! machine has at the same path.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, lsetxattr, mknodat};

use crate::command::{Context, Result};

/// A host's disk, seen from outside; the layer below is the machine's own `/`.
pub struct Upper {
    folder: PathBuf,
}

impl Upper {
    /// The layer in this folder, which is made.
    pub fn new(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).during(folder.display())?;
        mode(&folder, 0o755)?;
        Ok(Self { folder })
    }

    /// Where a path of the host lies.
    fn at(&self, path: &str) -> PathBuf {
        self.folder.join(path.trim_start_matches('/'))
    }

    /// A folder that shows what the machine has there, and what is added here.
    pub fn merged(&self, path: &str) -> Result<()> {
        let mut below = PathBuf::from("/");
        let mut here = self.folder.clone();
        for part in Path::new(path.trim_start_matches('/')).components() {
            below.push(part);
            here.push(part);
            if here.symlink_metadata().is_ok() {
                continue;
            }
            fs::create_dir(&here).during(here.display())?;
            // The merged folder shows the mode and owner of the upper one.
            match fs::metadata(&below) {
                Ok(machine) => {
                    mode(&here, machine.mode() & 0o7777)?;
                    chown(&here, Some(machine.uid()), Some(machine.gid()))
                        .during(here.display())?;
                }
                Err(_) => mode(&here, 0o755)?,
            }
        }
        Ok(())
    }

    fn parent(&self, path: &str) -> Result<()> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.merged(parent),
            None => Ok(()),
        }
    }

    /// A folder in which nothing of the machine's shows.
    pub fn opaque(&self, path: &str, bits: u32) -> Result<()> {
        self.merged(path)?;
        let here = self.at(path);
        mode(&here, bits)?;
        chown(&here, Some(0), Some(0)).during(here.display())?;
        lsetxattr(&here, "trusted.overlay.opaque", b"y", XattrFlags::empty())
            .during(format_args!("{}: cannot be marked opaque", here.display()))
    }

    /// Nothing, though the machine has something there.
    pub fn absent(&self, path: &str) -> Result<()> {
        self.parent(path)?;
        let here = self.at(path);
        if here.symlink_metadata().is_ok() {
            return Ok(());
        }
        mknodat(CWD, &here, FileType::CharacterDevice, Mode::empty(), 0).during(here.display())
    }

    /// A file of the host's own.
    pub fn file(&self, path: &str, text: &str, bits: u32) -> Result<()> {
        self.parent(path)?;
        let here = self.at(path);
        fs::write(&here, text).during(here.display())?;
        mode(&here, bits)
    }

    /// A symbolic link of the host's own.
    pub fn link(&self, path: &str, target: &str) -> Result<()> {
        self.parent(path)?;
        let here = self.at(path);
        symlink(target, &here).during(here.display())
    }

    /// Gives a path to a user.
    pub fn give(&self, path: &str, uid: u32, gid: u32) -> Result<()> {
        let here = self.at(path);
        chown(&here, Some(uid), Some(gid)).during(here.display())
    }
}

fn mode(path: &Path, bits: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(bits)).during(path.display())
}
