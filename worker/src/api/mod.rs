//! The HTTP API on the head, in the OpenAI form, over TCP for users and over a Unix socket for
//! the controller.
//!
//! Owns requests from their bytes to the last byte of the answer: checks, chat template,
//! tokenizing, stop strings, log-probabilities, streams, metrics. Submits sequences through a
//! [`HeadHandle`]; must not know stages, lanes or tensors.
//!
//! - [`gate`]: who may use it · [`request`]: from a body to sequences · [`generate`]: a request
//!   while it is answered · [`shapes`]: how answers are written · [`routes`]: which path does
//!   what · [`serve`]: sockets · [`metrics`], [`error`], [`language`].

pub mod error;
pub mod gate;
pub mod generate;
pub mod language;
pub mod metrics;
pub mod request;
pub mod routes;
pub mod serve;
pub mod shapes;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use serve::{ServeError, Server, serve};

use crate::head::handle::HeadHandle;
use language::Language;

/// What the API serves.
#[derive(Clone)]
pub struct ApiState {
    /// The head.
    pub handle: HeadHandle,
    /// Tokenizer and template of the model.
    pub language: Arc<dyn Language>,
    /// Name the model is served under.
    pub model: String,
    /// SHA-256 of the API key, hex. Without one the listener must be on loopback.
    pub api_key_sha256: Option<String>,
    /// How long open requests may go on when the server ends; then they end with an error.
    pub grace: Duration,
}
