//! How much of a host's memory its GPU may use: seen, set, and given back. Must not know the inventory,
//! nor how anything is shown.
//!
//! - [`look`]: what matters of a host, in one round trip.
//! - [`plan`]: from a size to a change, and what is in force or waits for a reboot; pure.
//! - [`script`]: what is done on a host, as scripts; pure.
//! - [`work`]: changes made and taken back over a session.

pub mod look;
pub mod plan;
pub mod script;
pub mod work;

pub use look::{Seen, look, look_as_login};
pub use plan::{Plan, Way, plan};
pub use script::Record;

/// Name of the step in failures and events.
pub const STEP: &str = "memory";
