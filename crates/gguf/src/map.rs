//! A model file mapped into memory. The only unsafe code of this crate is the mapping itself.

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::error::{GgufError, Result};
use crate::header::{Gguf, TensorInfo};

/// A model file whose tensors are read in place.
#[derive(Debug)]
pub struct MappedGguf {
    path: PathBuf,
    map: Mmap,
    header: Gguf,
}

impl MappedGguf {
    /// Maps the file and parses its header. Errors name the file.
    pub fn open(path: impl AsRef<Path>) -> Result<MappedGguf> {
        let path = path.as_ref();
        let file = File::open(path).map_err(GgufError::io("open", path))?;
        let kind = file.metadata().map_err(GgufError::io("read", path))?;
        if !kind.is_file() {
            return Err(GgufError::io("map", path)(std::io::Error::other(
                "it is not a regular file",
            )));
        }
        // SAFETY: the mapping is read-only and the bytes are never assumed valid before they are
        // checked. Model files and pieces are written under another name and renamed, never
        // changed in place, so the mapped inode keeps its content and length; a file that someone
        // truncates all the same ends the process with SIGBUS, which no mapping can avoid.
        #[allow(
            unsafe_code,
            reason = "mapping a file is the one operation that needs it"
        )]
        let map = unsafe { Mmap::map(&file) }.map_err(GgufError::io("map", path))?;
        let header = Gguf::parse(&map, map.len() as u64).map_err(|error| error.in_file(path))?;
        Ok(MappedGguf {
            path: path.into(),
            map,
            header,
        })
    }

    /// The parsed header.
    pub fn header(&self) -> &Gguf {
        &self.header
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// The bytes of the tensor of this name.
    pub fn tensor_bytes(&self, name: &str) -> Result<&[u8]> {
        self.header
            .require_tensor(name)
            .and_then(|info| self.bytes_of(info))
            .map_err(|error| error.in_file(&self.path))
    }

    /// The bytes of a tensor of this file's header.
    pub(crate) fn bytes_of(&self, info: &TensorInfo) -> Result<&[u8]> {
        let bytes = info.known_bytes()?;
        let beyond = || GgufError::BeyondEnd {
            tensor: info.name.clone(),
            offset: info.offset,
            bytes,
            file_len: self.map.len() as u64,
        };
        if bytes == 0 {
            return Ok(&[]);
        }
        let start = self
            .header
            .data_start()
            .checked_add(info.offset)
            .ok_or_else(beyond)?;
        let end = start.checked_add(bytes).ok_or_else(beyond)?;
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        range
            .and_then(|(start, end)| self.map.get(start..end))
            .ok_or_else(beyond)
    }

    /// Where the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
