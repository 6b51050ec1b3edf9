//! Whether hosts are the same where it matters: facts, rules, and what differs by them. Must not know
//! how differences are shown, nor how they are mended.
//!
//! - [`subjects`]: what is compared, read from facts; of GPUs and what computes on them [`computing`],
//!   of links, sleep and settings [`tuned`]; [`parameters`]: the kernel's command line as such.
//! - [`rules`]: what is asked of each subject, and why; kept as data.
//! - [`known_bad`]: what is known to fail; kept as data. [`faults`]: settings that contradict themselves.
//! - [`compare`]: the comparison. [`judge`]: what a run says of it. [`version`]: the order of versions.

pub mod compare;
mod computing;
mod data;
pub mod faults;
pub mod judge;
pub mod known_bad;
pub mod parameters;
pub mod rules;
pub mod subjects;
mod tuned;
pub mod version;

pub use compare::{ABSENT, Comparison, Row, compare};
pub use judge::{Judged, bad, judge};
pub use known_bad::{Bad, known_bad};
pub use rules::{Needs, Rule, rules};
pub use subjects::Seen;
