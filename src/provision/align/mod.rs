//! Making hosts the same: differences become changes, made so that they can be taken back. Must not
//! know how differences are found or shown.
//!
//! - [`grub`]: parameters within one of GRUB's files; `words`: within a line; pure.
//! - [`plan`]: which changes, and what is left to a person; pure.
//! - [`script`]: changes as scripts, and what is kept to take them back; pure.
//! - [`work`]: making them and taking them back over a session.

pub mod grub;
pub mod plan;
pub mod script;
mod words;
pub mod work;

pub use plan::{ByHand, Change, Plan, Subject, plan};
pub use script::Record;
