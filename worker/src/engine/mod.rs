//! The engine: pieces of a model in, hidden states, logits and sampled tokens out.
//!
//! - [`spec`]: what a model computes, read from its metadata.
//! - [`weights`]: tensors of mapped pieces, checked.
//! - [`ops`]: arithmetic on slices.
//! - [`kv`]: which sequence holds which KV blocks.
//! - [`decoder`]: a stage's layers.
//! - [`sample`]: from logits to a token.
//!
//! Must not know sockets, frames' bytes, text or the API.

pub mod decoder;
pub mod error;
pub mod kv;
pub mod ops;
pub mod sample;
pub mod spec;
pub mod weights;

pub use decoder::{Engine, EngineOptions, FileOptions};
pub use error::EngineError;
pub use kv::KvFull;
pub use sample::Sampler;
pub use spec::ModelSpec;
