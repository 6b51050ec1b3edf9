//! `assert`: conditions that must hold on the host.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::Kind;
use super::argument::{Argument, Form};
use super::work::{Acted, Done, Work};
use crate::event::{Failure, Status};

/// The kind.
#[derive(Debug)]
pub struct Assert;

impl Kind for Assert {
    fn name(&self) -> &'static str {
        "assert"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            Argument::must("that", Form::Conditions),
            Argument::may("message", Form::Text),
        ];
        ALL
    }

    fn main(&self) -> Option<&'static str> {
        Some("that")
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let host = work.host()?;
            for condition in work.given.conditions("that") {
                match work.holds(&condition, &[]) {
                    Ok(true) => {}
                    Ok(false) => {
                        let message = match work.given.text("message") {
                            Some(message) => message.to_owned(),
                            None => format!("`{}` does not hold", condition.0.trim()),
                        };
                        return Err(work.failed(host.name(), message));
                    }
                    Err(error) if work.context.check && error.undefined => {
                        return Ok(work.one(Done::new(Status::Unknown, error.message)));
                    }
                    Err(error) => return Err(work.failed(host.name(), error)),
                }
            }
            Ok(work.one(Done::new(Status::Ok, "")))
        }
        .boxed()
    }
}
