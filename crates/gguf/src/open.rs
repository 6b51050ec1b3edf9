//! A model file read by position. Where others may change the file meanwhile, a mapping would end
//! the process when it is cut short, and mix old with new when it is written over; here both are
//! errors.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::{GgufError, Result};
use crate::header::{Gguf, TensorInfo};

/// Bytes read at a time: they stay in the processor's cache until they are hashed and sent.
const CHUNK: usize = 128 << 10;

/// What a file looks like to whoever wants to know whether it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Size in bytes.
    pub bytes: u64,
    /// Time of change of the content, seconds and nanoseconds.
    pub modified: (i64, i64),
    /// Time of change of the file's entry, seconds and nanoseconds.
    pub changed: (i64, i64),
    /// Its number in the file system.
    pub inode: u64,
}

impl Stamp {
    fn of(meta: &Metadata) -> Stamp {
        Stamp {
            bytes: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
            inode: meta.ino(),
        }
    }

    /// Whether the content may have changed between two looks: another name or owner does not
    /// matter.
    fn same_content(&self, other: &Stamp) -> bool {
        (self.bytes, self.modified, self.inode) == (other.bytes, other.modified, other.inode)
    }
}

/// An open model file with its header.
#[derive(Debug)]
pub struct OpenGguf {
    path: PathBuf,
    file: File,
    stamp: Stamp,
    header: Gguf,
}

impl OpenGguf {
    /// Opens the file and parses its header. Errors name the file.
    pub fn open(path: impl AsRef<Path>) -> Result<OpenGguf> {
        let path = path.as_ref();
        let mut file = File::open(path).map_err(GgufError::io("open", path))?;
        let meta = file.metadata().map_err(GgufError::io("read", path))?;
        if !meta.is_file() {
            let what = io::Error::other("it is not a regular file");
            return Err(GgufError::io("read", path)(what));
        }
        let (header, _) = Gguf::read_from(&mut file, meta.len(), GgufError::io("read", path))
            .map_err(|error| error.in_file(path))?;
        Ok(OpenGguf {
            path: path.into(),
            file,
            stamp: Stamp::of(&meta),
            header,
        })
    }

    /// The parsed header.
    pub fn header(&self) -> &Gguf {
        &self.header
    }

    /// Where the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file looked like when it was opened.
    pub fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// Gives the bytes of a tensor of this file's header to `sink`, in chunks.
    pub(crate) fn pass(
        &self,
        info: &TensorInfo,
        buffer: &mut Vec<u8>,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let bytes = info
            .known_bytes()
            .map_err(|error| error.in_file(&self.path))?;
        // The header was checked against the file's length; no sum overflows.
        let mut at = self.header.data_start().saturating_add(info.offset);
        let end = at.saturating_add(bytes);
        while at < end {
            let now = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            buffer.resize(now, 0);
            match self.file.read_exact_at(buffer, at) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(self.changed());
                }
                Err(error) => return Err(GgufError::io("read", &self.path)(error)),
            }
            sink(buffer)?;
            at += now as u64;
        }
        Ok(())
    }

    /// Checks that the file is the one whose header was read, unchanged since.
    ///
    /// # Errors
    /// [`GgufError::Changed`] when its size, time or number differs.
    pub fn check(&self) -> Result<()> {
        let meta = self
            .file
            .metadata()
            .map_err(GgufError::io("read", &self.path))?;
        if self.stamp.same_content(&Stamp::of(&meta)) {
            Ok(())
        } else {
            Err(self.changed())
        }
    }

    fn changed(&self) -> GgufError {
        GgufError::Changed {
            path: self.path.display().to_string(),
        }
    }
}
