//! What orchestrator and workers say to each other. No sockets here: bytes in, values out.
//!
//! - [`frame`]: the data plane between stages; a fixed header, a row table, a payload.
//! - [`host`]: controller and worker's program on a host, over a channel: pieces, probes, locks.
//! - [`carry`]: a stream of bytes from one host to another.
//! - [`link`]: the two ends of a measured link, to each other and to their controller.
//! - [`source`]: controller and a host that holds a model file, likewise.
//! - [`reader`]: takes frames off any stream of bytes.
//! - [`payload`]: what frames carry besides hidden states.
//! - [`assignment`]: what the orchestrator tells a worker at its start, and what it answers.
//! - [`telemetry`]: what a deployment says of itself while it runs.
//! - [`api`]: the requests and responses of the HTTP API on the head.

pub mod api;
pub mod assignment;
pub mod carry;
pub mod frame;
pub mod host;
pub mod link;
pub mod payload;
pub mod reader;
pub mod source;
pub mod telemetry;

/// The worker's exit statuses that the orchestrator tells apart.
pub mod exit {
    /// Stopped as asked.
    pub const DONE: i32 = 0;
    /// Failed; the last report on stdout says why.
    pub const FAILED: i32 = 1;
    /// The assignment or the command line is invalid.
    pub const USAGE: i32 = 2;
    /// An address it must listen at is taken.
    pub const BUSY: i32 = 3;
}
