//! Deployments on the inventory's hosts: everything from the first look to chat, over sessions.
//! Emits events; must not know how they are shown.
//!
//! - [`base`], [`unit`], [`conditions`], [`record`], [`program`], [`reasons`], [`behind`]: decisions and
//!   texts; pure.
//! - [`install`], [`locks`], [`probe`], [`push`], [`deployment`], [`forward`]: what is done there.
//! - [`source`]: what is known of a model's pieces; [`feed`]: where their bytes come from;
//!   [`elsewhere`]: a model file on a host; [`held`]: what a host holds of them, by `sh` alone.
//! - [`watch`]: a running deployment as events, for those who only look; `losses`: which of the losses
//!   that a head tells are news.
//! - [`links`]: the links between hosts, measured.

pub mod base;
pub mod behind;
mod check;
pub mod conditions;
pub mod context;
pub mod deployment;
pub mod each;
pub mod elsewhere;
mod failures;
pub mod feed;
pub mod follow;
pub mod forward;
pub mod held;
pub mod hosts;
pub mod install;
pub mod links;
pub mod locks;
pub mod logs;
mod losses;
pub mod order;
pub mod prepare;
pub mod probe;
pub mod program;
pub mod push;
pub mod read;
pub mod reasons;
pub mod record;
pub mod service;
pub mod site;
pub mod source;
mod start;
pub mod talk;
pub mod unit;
pub mod up;
pub mod watch;

use crate::event::Failure;

/// Runs blocking work on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    step: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Failure::internal(error.to_string()).at(step))
}
