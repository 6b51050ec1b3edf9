//! Why the engine refuses a model or a batch. Must not know sockets or screens.

use std::path::PathBuf;

use thiserror::Error;
use windlass_gguf::GgufError;

/// What the engine refuses, and what to do about it.
#[derive(Debug, Error)]
pub enum EngineError {
    /// A file that is no GGUF, or lacks something.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// An architecture without tests.
    #[error("architecture \"{found}\" is not supported; supported: {}", supported.join(", "))]
    Architecture {
        /// `general.architecture` of the file.
        found: String,
        /// Those that are tested.
        supported: &'static [&'static str],
    },
    /// A property of the model that the decoder does not compute.
    #[error("the model has {what}, which is not supported: {advice}")]
    Unsupported {
        /// The property, with its key and value.
        what: String,
        /// What to do.
        advice: &'static str,
    },
    /// Metadata that contradicts itself.
    #[error("metadata: {key} is {found}, expected {expected}")]
    Metadata {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What it may be.
        expected: String,
    },
    /// A tensor of another shape than the metadata says.
    #[error("tensor {tensor}: expected shape {expected:?}, found {found:?} (row length first)")]
    Shape {
        /// The tensor.
        tensor: String,
        /// Shape by the metadata.
        expected: Vec<u64>,
        /// Shape in the file.
        found: Vec<u64>,
    },
    /// A tensor stored in a way no kernel reads.
    #[error(
        "tensor {tensor} is stored as {found}, which no kernel here reads; supported: {supported}"
    )]
    Type {
        /// The tensor.
        tensor: String,
        /// Its type.
        found: String,
        /// Types that are read.
        supported: &'static str,
    },
    /// A tensor that the model needs and no mapped file has.
    #[error("tensor {tensor} is in none of the mapped files: cut or push the pieces again")]
    MissingTensor {
        /// The tensor.
        tensor: String,
    },
    /// A tensor that the decoder would ignore, so that its answers would be wrong.
    #[error(
        "tensor {tensor} is not part of a {architecture} model as it is computed here; the model is not supported"
    )]
    UnexpectedTensor {
        /// The tensor.
        tensor: String,
        /// The architecture.
        architecture: String,
    },
    /// A piece that is not the one the manifest lists.
    #[error("piece {}: {reason}; push the model again", file.display())]
    Piece {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A range of layers that the model does not have.
    #[error("layers {first} to {end} (exclusive) were asked for; the model has {available}")]
    Layers {
        /// First layer.
        first: u32,
        /// One past the last.
        end: u32,
        /// Layers of the model.
        available: u32,
    },
    /// More context than the model was trained for.
    #[error("a context of {asked} tokens was asked for; the model has {available}")]
    Context {
        /// Tokens asked for.
        asked: u32,
        /// Tokens the model has.
        available: u32,
    },
    /// No room for the batch; nothing was changed.
    #[error(transparent)]
    KvFull(#[from] super::kv::KvFull),
    /// A row that does not continue its sequence; nothing was changed.
    #[error("sequence {seq}: a row has position {found}, but the next one is {expected}")]
    Position {
        /// The sequence.
        seq: u32,
        /// Position of the row.
        found: u32,
        /// Position that comes next.
        expected: u32,
    },
    /// A row beyond the context; nothing was changed.
    #[error("sequence {seq}: position {pos} is beyond the context of {context} tokens")]
    BeyondContext {
        /// The sequence.
        seq: u32,
        /// Position of the row.
        pos: u32,
        /// Tokens a sequence may have.
        context: u32,
    },
    /// A buffer of another length than the rows need.
    #[error("{what}: {found} values, expected {expected}")]
    Length {
        /// The buffer.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length it should have.
        expected: usize,
    },
    /// A token id outside the vocabulary.
    #[error("token {id} is outside the vocabulary of {vocab}")]
    Token {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// The stage lacks what the operation needs.
    #[error("this stage does not hold the {what}: ask the stage that does")]
    NotHeld {
        /// `embedding` or `output`.
        what: &'static str,
    },
    /// The threads could not be started.
    #[error("cannot start {threads} threads for the kernels: {reason}; ask for fewer")]
    Threads {
        /// How many.
        threads: u32,
        /// What the system said.
        reason: String,
    },
}
