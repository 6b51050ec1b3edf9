//! All integration tests of the orchestrator, as one program.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod cluster;
mod command_line;
mod demo;
mod hub;
mod keys;
mod layering;
mod local;
mod pieces;
mod support;
