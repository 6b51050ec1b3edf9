//! `facts`: reads what is to be known of the host, anew.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;

use super::Kind;
use super::argument::Argument;
use super::work::{Acted, Done, Work};
use crate::event::{Failure, Status};
use crate::facts;

/// The kind.
#[derive(Debug)]
pub struct Facts;

impl Kind for Facts {
    fn name(&self) -> &'static str {
        "facts"
    }

    fn arguments(&self) -> &'static [Argument] {
        &[]
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let host = work.host()?;
            let facts = facts::gather(&host.session)
                .await
                .map_err(|error| work.ssh(host.name(), &error))?;
            let mut done = Done::new(Status::Ok, facts.headline()).with("facts", json!(facts));
            done.facts = Some(Box::new(facts));
            Ok(work.one(done))
        }
        .boxed()
    }
}
