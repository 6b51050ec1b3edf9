//! The screens: a reader of the same events as plain lines and journals are, and a way to give
//! commands. Must not know how a deployment is made or a run is done.
//!
//! - [`text`], [`ring`], [`theme`], [`input`]: small parts; pure.
//! - [`command`]: the one table of what can be done.
//! - [`model`]: what is known and where the person is; pure.
//! - [`draw`]: from that to a picture; pure.
//! - [`term`]: the terminal, the only place that touches it.
//! - [`app`]: the loop between them.
//! - [`attach`]: what is done in the background: watching, runs, chat, logs, the inventory.

pub mod app;
pub mod attach;
pub mod command;
pub mod draw;
pub mod input;
pub mod model;
pub mod ring;
pub mod term;
pub mod text;
pub mod theme;

pub use app::{Ended, Options, replay, run};
pub use theme::Theme;
