//! Files that appear under their name only when they are complete and on disk: written beside it
//! with the ending `.partial`, synced, renamed; removed when dropped before. Knows no format.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{GgufError, Result};

/// Counts and hashes what it passes on.
pub(crate) struct HashingFile {
    pub(crate) partial: Partial,
    pub(crate) hasher: Sha256,
    pub(crate) bytes: u64,
}

impl Write for HashingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.partial.file.write(bytes)?;
        self.hasher.update(bytes.get(..written).unwrap_or(bytes));
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.partial.file.flush()
    }
}

/// A file under its temporary name, open.
pub(crate) struct Partial {
    pub(crate) file: File,
    pub(crate) target: PathBuf,
    path: PartialPath,
}

/// A temporary name that is removed when dropped before it was published.
pub(crate) struct PartialPath {
    temporary: PathBuf,
    target: PathBuf,
    published: bool,
}

impl Partial {
    pub(crate) fn create(dir: &Path, name: &str) -> Result<Partial> {
        let target = dir.join(name);
        let temporary = dir.join(format!("{name}.partial"));
        // The folder is locked, so a leftover is of a cut that was killed.
        match fs::remove_file(&temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(GgufError::io("remove", &temporary)(e));
            }
            _ => {}
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(GgufError::io("create", &temporary))?;
        Ok(Partial {
            file,
            target: target.clone(),
            path: PartialPath {
                temporary,
                target,
                published: false,
            },
        })
    }

    pub(crate) fn close(self) -> PartialPath {
        self.path
    }

    pub(crate) fn publish(self) -> Result<()> {
        self.close().publish()
    }
}

impl PartialPath {
    pub(crate) fn publish(mut self) -> Result<()> {
        fs::rename(&self.temporary, &self.target).map_err(GgufError::io("rename", &self.target))?;
        self.published = true;
        // The rename itself must survive a power cut before a manifest may list the file.
        let dir = self.target.parent().unwrap_or(Path::new("."));
        File::open(dir)
            .and_then(|dir| dir.sync_all())
            .map_err(GgufError::io("sync", dir))
    }
}

impl Drop for PartialPath {
    fn drop(&mut self) {
        if !self.published {
            // Nothing can be done about a failure here, and the original error matters more.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
