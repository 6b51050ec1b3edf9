//! Making hosts the same: what differs and what mends it. Must not know
//! playbooks, deployments, nor how anything is shown.
//!
//! - [`align`]: what is done about it, and taking it back.
//! - [`boot`]: kernel parameters where a host keeps them.
//! - [`drift`]: what differs between hosts that must be identical.

pub mod align;
pub mod boot;
pub mod drift;
