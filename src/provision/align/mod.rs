//! Making hosts the same: differences become changes, made so that they can be taken back. Must not
//! know how differences are found or shown.
//!
//! - [`parameters`]: kernel parameters, by the host's own way to them; pure.
//! - [`plan`]: which changes, and what is left to a person; pure.
//! - [`script`]: changes as scripts, and what is kept to take them back; pure.
//! - [`work`]: making them and taking them back over a session.

mod change;
mod hand;
mod parameters;
pub mod plan;
pub mod script;
pub mod work;

pub use change::{Change, STATIC};
pub use hand::ByHand;
pub use plan::{Plan, Subject, plan};
pub use script::Record;

/// Name of the step in failures and events.
pub const STEP: &str = "align";
