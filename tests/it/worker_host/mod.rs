//! The worker's program as a host's helper: real processes over pipes, and things broken on purpose.

mod receive;
mod serve;
mod small;
mod supervise;
mod unit;

use std::process::{Child, Command, Stdio};

use super::cluster::harness::worker_program;

/// The worker's program with these arguments, its three streams piped.
fn start(arguments: &[&str]) -> Child {
    Command::new(worker_program())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}
