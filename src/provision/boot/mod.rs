//! How a host's kernel parameters are set, and edited in place. Must not know which ones are wanted.
//!
//! - [`parameters`]: parameters within a line.
//! - [`grub`]: `/etc/default/grub` and the files beside it.

pub mod grub;
pub mod parameters;
