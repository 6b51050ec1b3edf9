//! Writes GGUF version 3 as a stream: metadata, tensor table, then each tensor's bytes in order.
//! Holds at most a header in memory; decides nothing about what goes into a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::dequant::dequantize;
use crate::error::{GgufError, Result};
use crate::header::{DEFAULT_ALIGNMENT, tensor_bytes};
use crate::map::MappedGguf;
use crate::metadata::{Array, Metadata, Value};
use crate::types::TensorType;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name.
    pub name: String,
    /// Dimensions in ggml's order (row length first).
    pub dims: Vec<u64>,
    /// Type of the bytes that will be given.
    pub ty: TensorType,
}

/// Writes one file: [`GgufWriter::begin`], the tensors' bytes in order by [`GgufWriter::data`] in
/// any chunks, [`GgufWriter::finish`].
#[derive(Debug)]
pub struct GgufWriter<W: Write> {
    out: W,
    path: PathBuf,
    alignment: u64,
    /// Name and size of each tensor.
    tensors: Vec<(String, u64)>,
    /// The tensor being written.
    current: usize,
    /// Bytes of it written so far.
    written: u64,
}

impl<W: Write> GgufWriter<W> {
    /// Writes the header. `path` only names the file in errors. The alignment is
    /// `general.alignment` of `metadata`, or 32 bytes.
    pub fn begin(
        out: W,
        path: &Path,
        metadata: &Metadata,
        tensors: &[TensorSpec],
    ) -> Result<GgufWriter<W>> {
        let alignment = match metadata.get_u64("general.alignment")? {
            None => DEFAULT_ALIGNMENT,
            Some(a) if a.is_power_of_two() && a <= crate::header::MAX_ALIGNMENT => a,
            Some(found) => {
                return Err(GgufError::BadAlignment {
                    found,
                    limit: crate::header::MAX_ALIGNMENT,
                });
            }
        };
        let mut sizes = Vec::new();
        let mut table = Vec::new();
        let mut offset = 0u64;
        for t in tensors {
            let bytes = tensor_bytes(&t.name, &t.dims, t.ty)?;
            if let TensorType::Unknown(id) = t.ty {
                return Err(GgufError::UnknownTensorType {
                    tensor: t.name.clone(),
                    id,
                });
            }
            put_string(&mut table, &t.name);
            table.extend((t.dims.len() as u32).to_le_bytes());
            for d in &t.dims {
                table.extend(d.to_le_bytes());
            }
            table.extend(t.ty.id().to_le_bytes());
            table.extend(offset.to_le_bytes());
            offset = offset
                .checked_add(bytes)
                .and_then(|end| end.checked_next_multiple_of(alignment))
                .ok_or_else(|| GgufError::SizeOverflow {
                    tensor: t.name.clone(),
                    dims: t.dims.clone(),
                    ty: t.ty.name(),
                })?;
            sizes.push((t.name.clone(), bytes));
        }
        let mut head = b"GGUF".to_vec();
        head.extend(3u32.to_le_bytes());
        head.extend((tensors.len() as u64).to_le_bytes());
        head.extend((metadata.len() as u64).to_le_bytes());
        for (key, value) in metadata.iter() {
            put_string(&mut head, key);
            put_value(&mut head, value);
        }
        head.append(&mut table);
        pad(&mut head, alignment);

        let mut writer = GgufWriter {
            out,
            path: path.into(),
            alignment,
            tensors: sizes,
            current: 0,
            written: 0,
        };
        writer.put(&head)?;
        Ok(writer)
    }

    /// Bytes that all tensors take, padding included.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.tensors
            .iter()
            .map(|(_, size)| size.next_multiple_of(self.alignment))
            .fold(0, u64::saturating_add)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out
            .write_all(bytes)
            .map_err(GgufError::io("write", &self.path))
    }

    /// The next bytes of the tensors, in any chunks; padding between tensors is added here.
    pub fn data(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            self.close_full()?;
            let Some((_, size)) = self.tensors.get(self.current) else {
                return Err(GgufError::WrongData {
                    tensor: "beyond the last".into(),
                    given: bytes.len() as u64,
                    wanted: 0,
                });
            };
            let room = usize::try_from(size - self.written).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            self.put(now)?;
            self.written += now.len() as u64;
            bytes = later;
        }
        self.close_full()
    }

    /// Pads and passes every tensor that is complete.
    fn close_full(&mut self) -> Result<()> {
        while let Some((_, size)) = self.tensors.get(self.current) {
            if self.written < *size {
                break;
            }
            let padding = size.next_multiple_of(self.alignment) - size;
            self.put(&vec![0; usize::try_from(padding).unwrap_or(0)])?;
            self.current += 1;
            self.written = 0;
        }
        Ok(())
    }

    /// Checks that all tensors were given in full and returns the destination.
    pub fn finish(mut self) -> Result<W> {
        self.close_full()?;
        if let Some((name, size)) = self.tensors.get(self.current) {
            return Err(GgufError::WrongData {
                tensor: name.clone(),
                given: self.written,
                wanted: *size,
            });
        }
        self.out
            .flush()
            .map_err(GgufError::io("write", &self.path))?;
        Ok(self.out)
    }
}

fn pad(out: &mut Vec<u8>, alignment: u64) {
    let alignment = usize::try_from(alignment).unwrap_or(1);
    out.resize(out.len().next_multiple_of(alignment), 0);
}

fn put_string(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    let mut put = |id: u32, bytes: &[u8]| {
        out.extend(id.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Value::U8(v) => put(0, &v.to_le_bytes()),
        Value::I8(v) => put(1, &v.to_le_bytes()),
        Value::U16(v) => put(2, &v.to_le_bytes()),
        Value::I16(v) => put(3, &v.to_le_bytes()),
        Value::U32(v) => put(4, &v.to_le_bytes()),
        Value::I32(v) => put(5, &v.to_le_bytes()),
        Value::F32(v) => put(6, &v.to_le_bytes()),
        Value::Bool(v) => put(7, &[u8::from(*v)]),
        Value::String(v) => {
            put(8, &[]);
            put_string(out, v);
        }
        Value::Array(v) => {
            put(9, &[]);
            put_array(out, v);
        }
        Value::U64(v) => put(10, &v.to_le_bytes()),
        Value::I64(v) => put(11, &v.to_le_bytes()),
        Value::F64(v) => put(12, &v.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    let id: u32 = match array {
        Array::U8(_) => 0,
        Array::I8(_) => 1,
        Array::U16(_) => 2,
        Array::I16(_) => 3,
        Array::U32(_) => 4,
        Array::I32(_) => 5,
        Array::F32(_) => 6,
        Array::Bool(_) => 7,
        Array::String(_) => 8,
        Array::Array(_) => 9,
        Array::U64(_) => 10,
        Array::I64(_) => 11,
        Array::F64(_) => 12,
    };
    out.extend(id.to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(v) => out.extend(v),
        Array::I8(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::U16(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::I16(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::U32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::I32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::F32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::Bool(v) => out.extend(v.iter().map(|x| u8::from(*x))),
        Array::String(v) => v.iter().for_each(|s| put_string(out, s)),
        Array::Array(v) => v.iter().for_each(|a| put_array(out, a)),
        Array::U64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::I64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::F64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
    }
}

/// Whether values of this type are weights; integers are kept as they are.
fn is_weight(ty: TensorType) -> bool {
    !matches!(
        ty,
        TensorType::I8 | TensorType::I16 | TensorType::I32 | TensorType::I64
    )
}

/// Writes the model `source` to `out` with all weights dequantised to F32, and sets
/// `general.file_type` to 0 (all F32). A reference for comparisons; memory stays at one chunk.
pub fn write_f32(source: &MappedGguf, out: &Path) -> Result<()> {
    let header = source.header();
    let mut metadata = header.metadata().clone();
    metadata.insert("general.file_type", Value::U32(0));
    metadata.insert("general.alignment", Value::U32(32));
    let specs: Vec<TensorSpec> = header
        .tensors()
        .iter()
        .map(|t| TensorSpec {
            name: t.name.clone(),
            dims: t.dims.clone(),
            ty: if is_weight(t.ty) {
                TensorType::F32
            } else {
                t.ty
            },
        })
        .collect();
    let file = File::create(out).map_err(GgufError::io("create", out))?;
    let mut writer = GgufWriter::begin(BufWriter::new(file), out, &metadata, &specs)?;
    let mut values = vec![0f32; 1 << 16];
    for t in header.tensors() {
        let bytes = source.bytes_of(t)?;
        if !is_weight(t.ty) {
            writer.data(bytes)?;
            continue;
        }
        let unknown = || GgufError::NoDequantizer { ty: t.ty.name() };
        let len = t.ty.block_len().ok_or_else(unknown)?;
        let size = t.ty.block_bytes().ok_or_else(unknown)?;
        // Whole blocks only: 2^16 values are a multiple of every block length.
        let chunk = usize::try_from((values.len() as u64 / len) * size).map_err(|_| unknown())?;
        for part in bytes.chunks(chunk.max(1)) {
            let count = usize::try_from(part.len() as u64 / size * len).unwrap_or(0);
            let Some(values) = values.get_mut(..count) else {
                return Err(unknown());
            };
            dequantize(t.ty, part, values)?;
            let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            writer.data(&raw)?;
        }
    }
    let file = writer
        .finish()?
        .into_inner()
        .map_err(io::IntoInnerError::into_error)
        .map_err(GgufError::io("write", out))?;
    file.sync_all().map_err(GgufError::io("write", out))
}
