//! What hosts are set up with: what differs and what mends it, what is set and given back. Must not know
//! playbooks, deployments, nor how anything is shown.
//!
//! - [`align`]: what is done about a difference, and taking it back.
//! - [`boot`]: kernel parameters, by every mechanism that hosts have for them; pure.
//! - [`drift`]: what differs between hosts that must be identical.
//! - [`lock`]: a host held against other runs that change it.
//! - [`memory`]: how much memory a host's GPU may use.
//! - [`reboot`]: hosts rebooted and waited for.

pub mod align;
pub mod boot;
pub mod drift;
pub mod lock;
pub mod memory;
pub mod reboot;
