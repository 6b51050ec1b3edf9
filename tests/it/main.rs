//! All integration tests of the orchestrator, as one program.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod cluster;
mod command_line;
#[cfg(target_os = "linux")]
mod deep;
mod demo;
mod field;
#[cfg(target_os = "linux")]
mod fleet;
mod hub;
mod inventory;
mod keys;
#[cfg(target_os = "linux")]
mod lab;
mod layering;
mod local;
mod model_commands;
mod pieces;
mod playbook;
#[cfg(target_os = "linux")]
mod readers;
mod recorded;
mod schema;
mod ssh;
mod support;
mod surface;
#[cfg(target_os = "linux")]
mod tui;
mod worker_host;
