//! Playbooks through the program: on hosts that are this machine, and on the lab's.

mod bad;
pub mod desk;
mod kinds;
#[cfg(target_os = "linux")]
mod pipeline;
mod resume;
mod runs;
