//! Parses a GGUF header from bytes: metadata and tensor table, checked against the file's length.
//! Opens no file and reads no tensor data.

use std::collections::{HashMap, HashSet};
use std::io::Read;

use crate::error::{GgufError, Result};
use crate::metadata::{Array, Metadata, Value};
use crate::types::TensorType;

/// Alignment of tensor data when `general.alignment` is missing, in bytes.
pub const DEFAULT_ALIGNMENT: u64 = 32;
/// The most alignment that is accepted, in bytes.
pub const MAX_ALIGNMENT: u64 = 1 << 20;
/// The most bytes a header may have.
pub const MAX_HEADER: u64 = 512 << 20;
/// The most metadata keys.
pub const MAX_KEYS: u64 = 100_000;
/// The most tensors.
pub const MAX_TENSORS: u64 = 1_000_000;
/// The longest metadata key, in bytes.
pub const MAX_KEY_LEN: u64 = 65_535;
/// The longest tensor name, in bytes.
pub const MAX_TENSOR_NAME: u64 = 64;
/// How deep arrays may nest.
pub const MAX_NESTING: u32 = 4;

/// One tensor as the header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, unique in the file.
    pub name: String,
    /// Dimensions in ggml's order: `dims[0]` is the row length. Empty for a single number.
    pub dims: Vec<u64>,
    /// How the values are stored.
    pub ty: TensorType,
    /// Start in bytes from [`Gguf::data_start`].
    pub offset: u64,
    /// Size in bytes; 0 when the type is unknown (see [`TensorInfo::known_bytes`]).
    pub bytes: u64,
}

impl TensorInfo {
    /// Number of values. Checked not to overflow when the header was parsed.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Size in bytes, or an error that names the tensor when its type is unknown.
    pub fn known_bytes(&self) -> Result<u64> {
        match self.ty {
            TensorType::Unknown(id) => Err(GgufError::UnknownTensorType {
                tensor: self.name.clone(),
                id,
            }),
            _ => Ok(self.bytes),
        }
    }
}

/// A parsed header: metadata and tensor table, without tensor data.
#[derive(Clone, Debug)]
pub struct Gguf {
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
    alignment: u64,
    data_start: u64,
    file_len: u64,
}

impl Gguf {
    /// Parses the header at the start of a file of `file_len` bytes.
    ///
    /// `bytes` is the file's beginning. When it ends before the header does,
    /// [`GgufError::NeedMore`] says how many bytes are needed at least; a caller that reads by
    /// ranges should then fetch the larger of that and twice what it has, so that few rounds
    /// suffice. Never allocates more than a small multiple of `bytes`.
    pub fn parse(bytes: &[u8], file_len: u64) -> Result<Gguf> {
        let mut c = Cursor::new(bytes, file_len);
        let magic = c.take(4, "magic")?;
        if magic != b"GGUF" {
            return Err(GgufError::NotGguf {
                found: magic.to_vec(),
            });
        }
        let version = c.u32("version")?;
        match version {
            2 | 3 => {}
            // A small number read in the wrong byte order has its low half empty.
            v if v != 0 && v & 0xffff == 0 => {
                return Err(GgufError::BigEndian {
                    version: v.swap_bytes(),
                });
            }
            version => return Err(GgufError::UnsupportedVersion { version }),
        }
        let tensor_count = c.count("tensor count", MAX_TENSORS)?;
        let key_count = c.count("metadata key count", MAX_KEYS)?;
        // A key takes at least 13 bytes and a tensor 24 besides its name.
        let least = key_count * 13 + tensor_count * 24;
        c.require(least, "table of keys and tensors")?;

        let mut metadata = Metadata::new();
        for _ in 0..key_count {
            c.subject = "metadata".into();
            let at = c.pos;
            let key = c.name("key", MAX_KEY_LEN)?;
            if metadata.get(&key).is_some() {
                return Err(GgufError::DuplicateKey { key, offset: at });
            }
            c.subject = format!("metadata key {key}");
            let value = c.value()?;
            metadata.insert(key, value);
        }
        let alignment = match metadata.get_u64("general.alignment")? {
            None => DEFAULT_ALIGNMENT,
            Some(a) if a.is_power_of_two() && a <= MAX_ALIGNMENT => a,
            Some(found) => {
                return Err(GgufError::BadAlignment {
                    found,
                    limit: MAX_ALIGNMENT,
                });
            }
        };

        let mut tensors = Vec::new();
        let mut seen: HashSet<String> = HashSet::new();
        for _ in 0..tensor_count {
            let info = c.tensor(&seen, alignment)?;
            seen.insert(info.name.clone());
            tensors.push(info);
        }
        let index = tensors
            .iter()
            .enumerate()
            .map(|(i, t)| (t.name.clone(), i))
            .collect();
        let data_start = c.pos.next_multiple_of(alignment);
        check_extents(&tensors, data_start, file_len)?;
        Ok(Gguf {
            version,
            metadata,
            tensors,
            index,
            alignment,
            data_start,
            file_len,
        })
    }

    /// Reads just enough of `reader`, which is at the start of a file of `file_len` bytes, to
    /// parse its header. Also returns all bytes read, which may reach into the tensor data.
    ///
    /// `read_error` turns a failure of `reader` into an error that names what was read.
    pub fn read_from(
        reader: &mut dyn Read,
        file_len: u64,
        read_error: impl FnOnce(std::io::Error) -> GgufError,
    ) -> Result<(Gguf, Vec<u8>)> {
        let mut bytes = Vec::new();
        let mut want = file_len.min(256 << 10);
        loop {
            let missing = want - bytes.len() as u64;
            let got = match (&mut *reader).take(missing).read_to_end(&mut bytes) {
                Ok(got) => got,
                Err(e) => return Err(read_error(e)),
            };
            if (got as u64) < missing {
                // The reader is at its end: whatever is still missing will never come.
                let len = bytes.len() as u64;
                let gguf = Gguf::parse(&bytes, len.min(file_len))?;
                return Ok((gguf, bytes));
            }
            match Gguf::parse(&bytes, file_len) {
                Ok(gguf) => return Ok((gguf, bytes)),
                Err(GgufError::NeedMore { at_least }) => {
                    want = at_least.max(2 * want).min(file_len);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors in the order of the header.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).and_then(|i| self.tensors.get(*i))
    }

    /// The tensor of this name, or an error that names it.
    pub fn require_tensor(&self, name: &str) -> Result<&TensorInfo> {
        self.tensor(name).ok_or_else(|| GgufError::NoTensor {
            tensor: name.into(),
        })
    }

    /// Alignment of tensor data in bytes, a power of two.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Where tensor data starts, in bytes from the file's start.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// The format version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The file's whole length in bytes, as given to [`Gguf::parse`].
    pub fn file_len(&self) -> u64 {
        self.file_len
    }
}

/// Every tensor inside the file, no two sharing bytes.
fn check_extents(tensors: &[TensorInfo], data_start: u64, file_len: u64) -> Result<()> {
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|t| (t.offset, t.bytes));
    let mut last: Option<&TensorInfo> = None;
    for t in order {
        let end = data_start
            .checked_add(t.offset)
            .and_then(|start| start.checked_add(t.bytes));
        if !end.is_some_and(|end| end <= file_len || t.bytes == 0 && t.offset == 0) {
            return Err(GgufError::BeyondEnd {
                tensor: t.name.clone(),
                offset: t.offset,
                bytes: t.bytes,
                file_len,
            });
        }
        if let Some(last) = last
            && t.bytes > 0
            && last.offset + last.bytes > t.offset
        {
            return Err(GgufError::Overlap {
                first: last.name.clone(),
                second: t.name.clone(),
                offset: t.offset,
            });
        }
        if t.bytes > 0 {
            last = Some(t);
        }
    }
    Ok(())
}

/// Reads little-endian values, checking every length before it is used.
struct Cursor<'a> {
    /// What has not been read yet of the bytes given.
    rest: &'a [u8],
    /// Bytes from the file's start.
    pos: u64,
    file_len: u64,
    /// What is being read, for messages.
    subject: String,
}

impl<'a> Cursor<'a> {
    fn new(bytes: &'a [u8], file_len: u64) -> Self {
        let known = usize::try_from(file_len).unwrap_or(usize::MAX);
        Cursor {
            rest: bytes.get(..known).unwrap_or(bytes),
            pos: 0,
            file_len,
            subject: "header".into(),
        }
    }

    /// Refuses when fewer than `needed` bytes can follow.
    fn require(&self, needed: u64, what: &'static str) -> Result<()> {
        let end = self.pos.saturating_add(needed);
        if end > self.file_len {
            return Err(GgufError::TooShort {
                subject: self.subject.clone(),
                what,
                offset: self.pos,
                needed,
                file_len: self.file_len,
            });
        }
        if end > MAX_HEADER {
            return Err(GgufError::HeaderTooLarge {
                subject: self.subject.clone(),
                reaches: end,
                limit: MAX_HEADER,
            });
        }
        if needed > self.rest.len() as u64 {
            return Err(GgufError::NeedMore { at_least: end });
        }
        Ok(())
    }

    fn take(&mut self, len: u64, what: &'static str) -> Result<&'a [u8]> {
        self.require(len, what)?;
        let (taken, rest) = usize::try_from(len)
            .ok()
            .and_then(|len| self.rest.split_at_checked(len))
            .ok_or(GgufError::NeedMore {
                at_least: self.pos.saturating_add(len),
            })?;
        self.rest = rest;
        self.pos += len;
        Ok(taken)
    }

    fn bytes<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let taken = self.take(N as u64, what)?;
        let mut out = [0; N];
        out.copy_from_slice(taken);
        Ok(out)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(what)?))
    }

    fn u64(&mut self, what: &'static str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes(what)?))
    }

    fn count(&mut self, what: &'static str, limit: u64) -> Result<u64> {
        let offset = self.pos;
        let found = self.u64(what)?;
        if found > limit {
            return Err(GgufError::TooMany {
                subject: self.subject.clone(),
                what,
                offset,
                found,
                limit,
            });
        }
        Ok(found)
    }

    fn string(&mut self, what: &'static str, limit: u64) -> Result<String> {
        let len = self.count(what, limit)?;
        let offset = self.pos;
        let bytes = self.take(len, what)?;
        match std::str::from_utf8(bytes) {
            Ok(s) => Ok(s.to_owned()),
            Err(e) => Err(GgufError::NotUtf8 {
                subject: self.subject.clone(),
                what,
                offset: offset + e.valid_up_to() as u64,
            }),
        }
    }

    fn name(&mut self, what: &'static str, limit: u64) -> Result<String> {
        let offset = self.pos;
        let name = self.string(what, limit)?;
        if name.is_empty() {
            return Err(GgufError::EmptyName { what, offset });
        }
        Ok(name)
    }

    fn bool(&self, byte: u8, offset: u64) -> Result<bool> {
        match byte {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(GgufError::BadBool {
                subject: self.subject.clone(),
                offset,
                found,
            }),
        }
    }

    fn value(&mut self) -> Result<Value> {
        let offset = self.pos;
        let what = "value";
        Ok(match self.u32("value type")? {
            0 => Value::U8(u8::from_le_bytes(self.bytes(what)?)),
            1 => Value::I8(i8::from_le_bytes(self.bytes(what)?)),
            2 => Value::U16(u16::from_le_bytes(self.bytes(what)?)),
            3 => Value::I16(i16::from_le_bytes(self.bytes(what)?)),
            4 => Value::U32(self.u32(what)?),
            5 => Value::I32(i32::from_le_bytes(self.bytes(what)?)),
            6 => Value::F32(f32::from_le_bytes(self.bytes(what)?)),
            7 => {
                let at = self.pos;
                let [byte] = self.bytes(what)?;
                Value::Bool(self.bool(byte, at)?)
            }
            8 => Value::String(self.string("string", MAX_HEADER)?),
            9 => Value::Array(self.array(1)?),
            10 => Value::U64(self.u64(what)?),
            11 => Value::I64(i64::from_le_bytes(self.bytes(what)?)),
            12 => Value::F64(f64::from_le_bytes(self.bytes(what)?)),
            id => {
                return Err(GgufError::UnknownValueType {
                    subject: self.subject.clone(),
                    offset,
                    id,
                });
            }
        })
    }

    fn array(&mut self, depth: u32) -> Result<Array> {
        let offset = self.pos;
        if depth > MAX_NESTING {
            return Err(GgufError::NestedTooDeep {
                subject: self.subject.clone(),
                offset,
                limit: MAX_NESTING,
            });
        }
        let id = self.u32("array element type")?;
        let len = self.count("array length", MAX_HEADER)?;
        Ok(match id {
            0 => Array::U8(self.numbers(len, u8::from_le_bytes)?),
            1 => Array::I8(self.numbers(len, i8::from_le_bytes)?),
            2 => Array::U16(self.numbers(len, u16::from_le_bytes)?),
            3 => Array::I16(self.numbers(len, i16::from_le_bytes)?),
            4 => Array::U32(self.numbers(len, u32::from_le_bytes)?),
            5 => Array::I32(self.numbers(len, i32::from_le_bytes)?),
            6 => Array::F32(self.numbers(len, f32::from_le_bytes)?),
            7 => {
                let start = self.pos;
                let bytes = self.take(len, "array")?;
                let values: Result<Vec<bool>> = (start..)
                    .zip(bytes)
                    .map(|(at, byte)| self.bool(*byte, at))
                    .collect();
                Array::Bool(values?)
            }
            8 => {
                // Each string takes at least its length field.
                self.require(len.saturating_mul(8), "array")?;
                let mut values = Vec::new();
                for _ in 0..len {
                    values.push(self.string("string", MAX_HEADER)?);
                }
                Array::String(values)
            }
            9 => {
                self.require(len.saturating_mul(12), "array")?;
                let mut values = Vec::new();
                for _ in 0..len {
                    values.push(self.array(depth + 1)?);
                }
                Array::Array(values)
            }
            10 => Array::U64(self.numbers(len, u64::from_le_bytes)?),
            11 => Array::I64(self.numbers(len, i64::from_le_bytes)?),
            12 => Array::F64(self.numbers(len, f64::from_le_bytes)?),
            id => {
                return Err(GgufError::UnknownValueType {
                    subject: self.subject.clone(),
                    offset,
                    id,
                });
            }
        })
    }

    fn numbers<T, const N: usize>(&mut self, len: u64, make: fn([u8; N]) -> T) -> Result<Vec<T>> {
        let bytes = self.take(len.saturating_mul(N as u64), "array")?;
        let (whole, _) = bytes.as_chunks::<N>();
        Ok(whole.iter().map(|b| make(*b)).collect())
    }

    fn tensor(&mut self, seen: &HashSet<String>, alignment: u64) -> Result<TensorInfo> {
        self.subject = "tensor table".into();
        let at = self.pos;
        let name = self.name("tensor name", MAX_TENSOR_NAME)?;
        if seen.contains(&name) {
            return Err(GgufError::DuplicateTensor {
                tensor: name,
                offset: at,
            });
        }
        self.subject = format!("tensor {name}");
        let dims_at = self.pos;
        let n_dims = self.u32("number of dimensions")?;
        if n_dims > 4 {
            return Err(GgufError::TooManyDims {
                tensor: name,
                offset: dims_at,
                found: n_dims,
            });
        }
        let mut dims = Vec::new();
        for _ in 0..n_dims {
            dims.push(self.u64("dimension")?);
        }
        let ty = TensorType::from_id(self.u32("type")?);
        let offset = self.u64("offset")?;
        if !offset.is_multiple_of(alignment) {
            return Err(GgufError::Unaligned {
                tensor: name,
                offset,
                alignment,
            });
        }
        let bytes = tensor_bytes(&name, &dims, ty)?;
        Ok(TensorInfo {
            name,
            dims,
            ty,
            offset,
            bytes,
        })
    }
}

/// Size in bytes of a tensor with these dimensions (0 when the type is unknown), or why it has none.
pub(crate) fn tensor_bytes(name: &str, dims: &[u64], ty: TensorType) -> Result<u64> {
    let overflow = || GgufError::SizeOverflow {
        tensor: name.into(),
        dims: dims.to_vec(),
        ty: ty.name(),
    };
    // Each non-zero dimension counts even beside a zero one, so that any product of some of them fits.
    let elements = dims
        .iter()
        .try_fold(1u64, |n, d| n.checked_mul((*d).max(1)))
        .filter(|n| i64::try_from(*n).is_ok())
        .ok_or_else(overflow)?;
    let elements = if dims.contains(&0) { 0 } else { elements };
    let (Some(block_len), Some(block_bytes)) = (ty.block_len(), ty.block_bytes()) else {
        return Ok(0);
    };
    let row = dims.first().copied().unwrap_or(1);
    if !row.is_multiple_of(block_len) {
        return Err(GgufError::PartialBlock {
            tensor: name.into(),
            row,
            block: block_len,
            ty: ty.name(),
        });
    }
    (elements / block_len)
        .checked_mul(block_bytes)
        .filter(|n| i64::try_from(*n).is_ok())
        .ok_or_else(overflow)
}
