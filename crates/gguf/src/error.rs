//! Every way in which a GGUF file, a piece or a manifest is refused. Holds no logic.

use std::io;
use std::path::{Path, PathBuf};

/// Result with [`GgufError`].
pub type Result<T> = std::result::Result<T, GgufError>;

/// Why a model file or a piece could not be read, cut, written or trusted.
///
/// Offsets are bytes from the start of the file unless a message says otherwise.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says what its fields are")]
pub enum GgufError {
    #[error("the header continues beyond the bytes given: at least {at_least} bytes are needed")]
    NeedMore { at_least: u64 },
    #[error(
        "{subject}: its {what} at byte {offset} needs {needed} bytes, but the file ends at byte {file_len}; the file is cut short or damaged, fetch it again"
    )]
    TooShort {
        subject: String,
        what: &'static str,
        offset: u64,
        needed: u64,
        file_len: u64,
    },
    #[error("not a GGUF file: it starts with {found:02x?} instead of \"GGUF\"")]
    NotGguf { found: Vec<u8> },
    #[error("GGUF version {version} is big-endian; only little-endian files are read, convert it")]
    BigEndian { version: u32 },
    #[error("GGUF version {version} is not read, only versions 2 and 3; convert the file")]
    UnsupportedVersion { version: u32 },
    #[error("{subject}: {what} at byte {offset} is {found}, more than the limit of {limit}")]
    TooMany {
        subject: String,
        what: &'static str,
        offset: u64,
        found: u64,
        limit: u64,
    },
    #[error(
        "{subject}: the header would reach byte {reaches}, more than the limit of {limit} bytes"
    )]
    HeaderTooLarge {
        subject: String,
        reaches: u64,
        limit: u64,
    },
    #[error("{subject}: its {what} at byte {offset} is not UTF-8")]
    NotUtf8 {
        subject: String,
        what: &'static str,
        offset: u64,
    },
    #[error("{subject}: the boolean at byte {offset} is {found}, neither 0 nor 1")]
    BadBool {
        subject: String,
        offset: u64,
        found: u8,
    },
    #[error("{subject}: value type {id} at byte {offset} does not exist")]
    UnknownValueType {
        subject: String,
        offset: u64,
        id: u32,
    },
    #[error("{subject}: arrays nest deeper than {limit} at byte {offset}")]
    NestedTooDeep {
        subject: String,
        offset: u64,
        limit: u32,
    },
    #[error("the {what} at byte {offset} is empty")]
    EmptyName { what: &'static str, offset: u64 },
    #[error("metadata key {key} appears twice, the second time at byte {offset}")]
    DuplicateKey { key: String, offset: u64 },
    #[error("tensor {tensor} appears twice, the second time at byte {offset}")]
    DuplicateTensor { tensor: String, offset: u64 },
    #[error("tensor {tensor} at byte {offset} has {found} dimensions, more than the limit of 4")]
    TooManyDims {
        tensor: String,
        offset: u64,
        found: u32,
    },
    #[error("tensor {tensor}: dimensions {dims:?} of type {ty} exceed 2^63 bytes")]
    SizeOverflow {
        tensor: String,
        dims: Vec<u64>,
        ty: String,
    },
    #[error("tensor {tensor}: rows of {row} are not whole blocks of {block} ({ty})")]
    PartialBlock {
        tensor: String,
        row: u64,
        block: u64,
        ty: String,
    },
    #[error(
        "general.alignment is {found}; it must be a power of two, at least 1 and at most {limit}"
    )]
    BadAlignment { found: u64, limit: u64 },
    #[error("tensor {tensor}: offset {offset} is not a multiple of the alignment {alignment}")]
    Unaligned {
        tensor: String,
        offset: u64,
        alignment: u64,
    },
    #[error("tensors {first} and {second} overlap at data offset {offset}")]
    Overlap {
        first: String,
        second: String,
        offset: u64,
    },
    #[error(
        "tensor {tensor}: {bytes} bytes at data offset {offset} reach beyond the file's end at byte {file_len}; the file is cut short or damaged, fetch it again"
    )]
    BeyondEnd {
        tensor: String,
        offset: u64,
        bytes: u64,
        file_len: u64,
    },
    #[error("metadata key {key} is missing")]
    MissingKey { key: String },
    #[error("metadata key {key} is {found}, but {wanted} is needed")]
    WrongType {
        key: String,
        wanted: &'static str,
        found: String,
    },
    #[error("metadata key {key} is {found}, which is not a possible {wanted}")]
    OutOfRange {
        key: String,
        wanted: &'static str,
        found: String,
    },
    #[error("the file has no tensor {tensor}")]
    NoTensor { tensor: String },
    #[error(
        "tensor {tensor} is of type {id}, which this version does not know; use another quantisation of the model"
    )]
    UnknownTensorType { tensor: String, id: u32 },
    #[error("tensor {tensor} belongs to no known part of a model, so it cannot be placed")]
    UnknownPlace { tensor: String },
    #[error("tensor {tensor} names layer {layer}, but the model has {layers} layers")]
    NoSuchLayer {
        tensor: String,
        layer: u64,
        layers: u32,
    },
    #[error("the metadata counts {layers} layers, but layer {layer} has no tensor")]
    EmptyLayer { layer: u32, layers: u32 },
    #[error("slice {slice} does not exist: the model has {layers} layers")]
    NoSuchSlice { slice: String, layers: u32 },
    #[error("{text:?} is no slice; slices are metadata, embedding, layer-NNNN, output")]
    BadSlice { text: String },
    #[error(
        "the model is one of {count} split files; join them first (llama-gguf-split --merge) or choose a single file"
    )]
    SplitFile { count: u64 },
    #[error("the file is already a piece ({slice}); cut the whole model instead")]
    AlreadyPiece { slice: String },
    #[error("no dequantisation of {ty} exists; use another quantisation of the model")]
    NoDequantizer { ty: String },
    #[error("dequantising {ty}: {bytes} bytes do not hold exactly {elements} values")]
    WrongLength {
        ty: String,
        bytes: u64,
        elements: u64,
    },
    #[error("tensor {tensor}: {given} bytes were given, {wanted} are needed")]
    WrongData {
        tensor: String,
        given: u64,
        wanted: u64,
    },
    #[error("cannot make this model: {reason}")]
    BadSpec { reason: String },
    #[error("{text:?} is not a SHA-256 digest of 64 hexadecimal digits")]
    BadDigest { text: String },
    #[error("{path}: the digest is {found}, but {wanted} was expected; fetch it again")]
    DigestMismatch {
        path: String,
        wanted: String,
        found: String,
    },
    #[error("{path}: {found} bytes, but {wanted} were expected; fetch it again")]
    SizeMismatch {
        path: String,
        wanted: u64,
        found: u64,
    },
    #[error("{text:?} is not the name of a piece (16 hexadecimal digits, \"-\", slice, \".gguf\")")]
    BadPieceName { text: String },
    #[error("{path}: not a valid manifest: {reason}; cut the model again")]
    BadManifest { path: String, reason: String },
    #[error("{path}: another process is cutting into this folder; wait for it to end")]
    Busy { path: String },
    #[error(
        "{path}: it was changed while it was read; run the command again when nothing writes to it"
    )]
    Changed { path: String },
    #[error("{path}: {source}")]
    InFile {
        path: String,
        #[source]
        source: Box<GgufError>,
    },
    #[error("cannot {operation} {path}: {source}")]
    Io {
        operation: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
}

impl GgufError {
    /// An input/output failure of `operation` on `path`.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> GgufError {
        let path: PathBuf = path.into();
        move |source| GgufError::Io {
            operation,
            path: path.display().to_string(),
            source,
        }
    }

    /// The same error, naming the file it was found in.
    pub(crate) fn in_file(self, path: &Path) -> GgufError {
        GgufError::InFile {
            path: path.display().to_string(),
            source: Box::new(self),
        }
    }
}
