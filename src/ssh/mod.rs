//! One host as reached: by SSH, or this machine. Commands and byte streams on it, nothing else.
//! Must not know inventories or what is run.
//!
//! - [`target`]: whom to reach and how, resolved from inventory and ssh configuration.
//! - [`connect`]: from a target to a session; its parts are `hop` (what is decided beforehand),
//!   `dial` (TCP), `trust` (host keys; `learn`: a host that gets others), `keys` and `login`, `budget` (time).
//! - [`session`]: a host as reached, and what can be done there; its parts are `connection`, `lines`
//!   (several of them) and `local` (the two ways), `process` (a started shell), `shell` and [`fence`] (what it is told
//!   and what it says), `root` (sudo).
//! - [`windows`]: recognises a host that runs Windows.
//! - [`known_hosts`]: which keys hosts are known by, and the verdict on a key.
//! - [`place`]: a line of a file, as messages name it.
//! - [`public_key`]: a host key as bytes, and its fingerprint.
//! - [`config`]: what the user's ssh configuration says of a host.
//! - [`pattern`]: the patterns of OpenSSH's files.
//! - [`quote`]: the one function that quotes text for a remote shell.
//! - [`refusal`], [`openssh`]: what sudo's and OpenSSH's own words mean.
//! - [`error`]: why it did not work.

mod budget;
pub mod config;
pub mod connect;
mod connection;
mod dial;
pub mod error;
pub mod fence;
mod hop;
mod keys;
pub mod known_hosts;
mod learn;
mod lines;
mod local;
mod login;
pub mod openssh;
pub mod pattern;
pub mod place;
mod process;
pub mod public_key;
pub mod quote;
pub mod refusal;
mod root;
pub mod session;
mod shell;
pub mod target;
mod trust;
pub mod windows;

pub use connect::{Connector, Options, Trusted};
pub use error::SshError;
pub use quote::quote;
pub use session::{Caps, Ending, Login, Output, Session, Stream};
pub use target::Target;
