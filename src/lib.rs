//! The orchestrator's core: knows hosts, models, plans and deployments; nothing of screens.
//!
//! From low to high; a module may use those above it in this list and never those below:
//!
//! - [`paths`], [`figures`], `nearest`: the folders on this machine; sizes and times for people;
//!   the valid name that was probably meant.
//! - [`secret`]: where passwords and keys are to be had from.
//! - [`event`]: the one stream of what happens, exit statuses, commands.
//! - [`model`]: which files a model reference means, and fetching them.
//! - [`inventory`]: the hosts as a person wrote them down.
//! - [`ssh`]: one host as reached: commands and streams on it.
//! - [`reach`]: the inventory's hosts as sessions, all at once.
//! - [`facts`]: what was read from a host.
//! - [`plan`]: which stage holds what; pure.
//! - [`provision`]: whether hosts are the same where it matters, making them so, setting their GPU memory,
//!   and taking all that back.
//! - [`deploy`]: keys, pieces, workers, the control connection, the demo.
//! - [`bench`]: measures what runs.
//! - [`clone`]: one machine's system onto another's disk.
//! - [`playbook`]: files of tasks, checked and run.
//! - [`report`]: readers of the event stream: plain lines, JSON lines, journal.
//! - [`tui`]: the screens, a reader too.
//! - [`cli`]: the command line.

pub mod bench;
pub mod cli;
pub mod clone;
pub mod deploy;
pub mod event;
pub mod facts;
pub mod figures;
pub mod inventory;
pub mod model;
mod nearest;
pub mod paths;
pub mod plan;
pub mod playbook;
pub mod provision;
pub mod reach;
pub mod report;
pub mod secret;
pub mod ssh;
pub mod tui;
