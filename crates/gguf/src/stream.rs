//! One piece as a stream, straight from the source: nothing is kept on this machine's disk.

use std::io::{self, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{GgufError, Result};
use crate::header::{Gguf, TensorInfo};
use crate::open::OpenGguf;
use crate::piece::{PieceEntry, PieceName, describe, hex};
use crate::slice::Slice;
use crate::write::{GgufWriter, TensorSpec};

/// Writes the bytes of a slice's piece to `out`: those that [`cut`](crate::cut) would put into the
/// file, from `offset` on. What stands before is made and hashed, but not written, so a transfer
/// can go on where it broke off. `source_sha256` is the digest of the whole source.
///
/// # Errors
/// When the source has no such slice or changed since it was opened, or `out` fails.
pub fn write_piece(
    source: &OpenGguf,
    source_sha256: &str,
    slice: Slice,
    offset: u64,
    out: &mut dyn Write,
) -> Result<PieceEntry> {
    write(source, source_sha256, slice, offset, None, out)
}

/// The same for a piece whose digest is known from an earlier time, which is then not computed again:
/// hashing is the larger part of what making a piece costs. Whoever receives the piece must check it.
///
/// # Errors
/// As [`write_piece`].
pub fn write_known_piece(
    source: &OpenGguf,
    source_sha256: &str,
    slice: Slice,
    offset: u64,
    piece_sha256: &str,
    out: &mut dyn Write,
) -> Result<PieceEntry> {
    write(
        source,
        source_sha256,
        slice,
        offset,
        Some(piece_sha256),
        out,
    )
}

fn write(
    source: &OpenGguf,
    source_sha256: &str,
    slice: Slice,
    offset: u64,
    known: Option<&str>,
    out: &mut dyn Write,
) -> Result<PieceEntry> {
    let (metadata, tensors) = describe(source.header(), source_sha256, slice)
        .map_err(|error| error.in_file(source.path()))?;
    let specs = specs(&tensors);
    let file = PieceName::new(source_sha256, slice)?.file();
    let path = Path::new(&file);
    let sink = Sink {
        out,
        hasher: known.is_none().then(Sha256::new),
        bytes: 0,
        offset,
    };
    let mut writer = GgufWriter::begin(sink, path, &metadata, &specs)?;
    let mut buffer = Vec::new();
    for info in &tensors {
        source.pass(info, &mut buffer, &mut |chunk| writer.data(chunk))?;
    }
    let sink = writer.finish()?;
    // Before its digest is given to anyone.
    source.check()?;
    sink.out.flush().map_err(GgufError::io("write", path))?;
    Ok(PieceEntry {
        slice,
        bytes: sink.bytes,
        sha256: match (sink.hasher, known) {
            (Some(hasher), _) => hex(&hasher.finalize()),
            (None, known) => known.unwrap_or_default().to_owned(),
        },
        file,
    })
}

/// The size in bytes of a slice's piece file, without reading any tensor.
///
/// # Errors
/// When the source has no such slice.
pub fn piece_len(header: &Gguf, source_sha256: &str, slice: Slice) -> Result<u64> {
    let (metadata, tensors) = describe(header, source_sha256, slice)?;
    let specs = specs(&tensors);
    let mut count = Count(0);
    let writer = GgufWriter::begin(&mut count, Path::new("a piece"), &metadata, &specs)?;
    let data = writer.data_bytes();
    Ok(count.0.saturating_add(data))
}

fn specs(tensors: &[TensorInfo]) -> Vec<TensorSpec> {
    tensors
        .iter()
        .map(|t| TensorSpec {
            name: t.name.clone(),
            dims: t.dims.clone(),
            ty: t.ty,
        })
        .collect()
}

/// Counts and keeps nothing.
struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hashes everything, passes on what lies behind the offset.
struct Sink<'a> {
    out: &'a mut dyn Write,
    /// `None` where the digest is known.
    hasher: Option<Sha256>,
    bytes: u64,
    offset: u64,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let skip = usize::try_from(self.offset.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
        if let Some(rest) = bytes.get(skip..)
            && !rest.is_empty()
        {
            self.out.write_all(rest)?;
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
