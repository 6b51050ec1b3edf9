//! Real hosts in namespaces of this machine, and what a lab promises about them.

mod harness;
mod hosts;
mod kinds;
mod network;

pub use harness::{Lab, PATIENCE, absent, as_controller, test_name};
pub use windlass_lab::{Cut, Kind};
