//! GGUF model files: read, size, cut into pieces, write. Knows nothing of hosts, networks or inference.
//!
//! Everything read from a file is untrusted: counts, lengths, offsets and types are checked before
//! they are used, and every refusal says what was wrong and where.

pub mod checked;
pub mod dequant;
pub mod error;
pub mod header;
pub mod map;
pub mod metadata;
pub mod open;
mod partial;
pub mod piece;
pub mod slice;
pub mod stream;
pub mod support;
pub mod tiny;
pub mod types;
pub mod write;

pub use dequant::dequantize;
pub use error::{GgufError, Result};
pub use header::{Gguf, TensorInfo};
pub use map::MappedGguf;
pub use metadata::{Array, Metadata, Value};
pub use open::{OpenGguf, Stamp};
pub use piece::{
    Manifest, PieceEntry, PieceName, cut, cut_stream, hex, load_manifest, manifest_file_name,
    verify_piece,
};
pub use slice::{Home, ModelSize, Slice, SliceSize, model_size, slice_of};
pub use stream::{piece_len, write_known_piece, write_piece};
pub use support::why_unsupported;
pub use tiny::{TinySpec, TinyTokenizer, tiny_llama};
pub use types::TensorType;
pub use write::{GgufWriter, TensorSpec, write_f32};
