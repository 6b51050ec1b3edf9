//! Whether hosts are the same where it matters: facts, rules, and what differs by them. Must not know
//! how differences are shown, nor how they are mended.
//!
//! - [`subjects`]: what is compared, read from facts; [`parameters`]: the kernel's command line as such.
//! - [`rules`]: what is asked of each subject, and why; kept as data.
//! - [`known_bad`]: what is known to fail; kept as data.
//! - [`compare`]: the comparison. [`version`]: the order of versions.

pub mod compare;
mod data;
pub mod known_bad;
pub mod parameters;
pub mod rules;
pub mod subjects;
pub mod version;

pub use compare::{ABSENT, Comparison, Row, compare};
pub use known_bad::{Bad, known_bad};
pub use rules::{Needs, Rule, rules};
pub use subjects::Seen;
