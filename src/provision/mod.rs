//! Making hosts the same: what differs and what mends it. Must not know
//! playbooks, deployments, nor how anything is shown.
//!
//! - [`drift`]: what differs between hosts that must be identical.

pub mod drift;
