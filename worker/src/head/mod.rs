//! The head: admits requests, builds micro-batches, runs stage 0, hands out tokens.
//!
//! Knows stages and links; knows no HTTP, no text. Requests come as token ids through
//! [`handle::HeadHandle`].

pub mod board;
pub mod former;
pub mod handle;
pub mod links;
pub mod scheduler;
pub mod sequence;
