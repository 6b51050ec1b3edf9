//! What hosts are set up with: how it is read, changed, and given back. Must not know playbooks,
//! deployments, nor how anything is shown.
//!
//! - [`boot`]: kernel parameters, by every mechanism that hosts have for them; pure.
//! - [`memory`]: how much memory a host's GPU may use.

pub mod boot;
pub mod memory;
