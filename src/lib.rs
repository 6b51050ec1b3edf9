//! The orchestrator's core: knows hosts, models, plans and deployments; nothing of screens.
//!
//! From low to high; a module may use those above it in this list and never those below:
//!
//! - [`paths`], [`figures`]: the folders on this machine; sizes and times for people.
//! - [`event`]: the one stream of what happens, exit statuses, commands.
//! - [`model`]: which files a model reference means, and fetching them.
//! - [`plan`]: which stage holds what; pure.
//! - [`deploy`]: keys, pieces, workers, the control connection, the demo.
//! - [`report`]: readers of the event stream: plain lines, JSON lines, journal.
//! - [`cli`]: the command line.

pub mod cli;
pub mod deploy;
pub mod event;
pub mod figures;
pub mod model;
pub mod paths;
pub mod plan;
pub mod report;
