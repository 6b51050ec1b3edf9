//! Connections between stages: mutual TLS over blocking TCP, frames, who may connect.
//!
//! Must not know models, engines or HTTP. Everything a peer sends is checked before use.

pub mod identity;
pub mod link;
pub mod listener;
pub mod secure;

use std::io;

use thiserror::Error;
use windlass_wire::frame::FrameError;
use windlass_wire::reader::ReadError;

/// Why a connection failed or was refused.
#[derive(Debug, Error)]
pub enum NetError {
    /// A key or certificate handed over at the start is unusable.
    #[error("{what} of this stage is unusable: {reason}")]
    Identity {
        /// Which part.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused something.
    #[error("{operation}: {source}")]
    Io {
        /// What was tried.
        operation: String,
        /// What it said.
        source: io::Error,
    },
    /// TLS failed: plain text, a foreign certificate, an alert.
    #[error("TLS handshake failed: {0}")]
    Tls(String),
    /// The peer closed.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer closed inside a frame.
    #[error("the peer closed the connection inside a frame")]
    Truncated,
    /// The bytes are no frame of ours.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame came where another was due.
    #[error("expected a {expected} frame, got {got}")]
    Unexpected {
        /// What was due.
        expected: &'static str,
        /// What came.
        got: String,
    },
    /// The peer is genuine and still not to be accepted.
    #[error("{0}")]
    Refused(String),
}

impl From<ReadError> for NetError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Closed => Self::Closed,
            ReadError::Truncated => Self::Truncated,
            ReadError::Frame(error) => Self::Frame(error),
            ReadError::Io(source) => Self::Io {
                operation: "read from the peer".into(),
                source,
            },
        }
    }
}

impl NetError {
    pub(crate) fn io(operation: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let operation = operation.into();
        move |source| Self::Io { operation, source }
    }
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
pub(crate) mod test_keys;
