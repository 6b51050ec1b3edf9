//! `push` and `up`: every host's pieces of a model onto it, and a model that serves. What `down` shares
//! with them: hosts looked at anew, and what the parts came to by host.

use std::collections::BTreeMap;
use std::path::PathBuf;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use super::argument::{Argument, Form};
use super::work::{Acted, Done, Work, of_all, spread};
use super::{Kind, model};
use crate::deploy::remote::order::{self, Wish};
use crate::deploy::remote::site::{self, Site};
use crate::deploy::remote::up;
use crate::event::{Emitter, Failure, HostCounters, Status};
use crate::figures::size;
use crate::plan::DEFAULT_CONCURRENCY;

/// The two kinds.
#[derive(Debug)]
pub struct Serve {
    name: &'static str,
    /// Whether what was sent is started.
    start: bool,
}

/// `push`: pieces are sent and nothing is started.
pub const PUSH: Serve = Serve {
    name: "push",
    start: false,
};
/// `up`: a model serves on the hosts.
pub const UP: Serve = Serve {
    name: "up",
    start: true,
};

impl Kind for Serve {
    fn name(&self) -> &'static str {
        self.name
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            Argument::must("model", Form::Text),
            Argument::may("context", Form::Whole(1, u32::MAX as i64)),
            Argument::may("concurrency", Form::Whole(1, 4096)),
            Argument::may("verify", Form::Flag),
        ];
        ALL
    }

    fn main(&self) -> Option<&'static str> {
        Some("model")
    }

    fn together(&self) -> bool {
        true
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        serve(work, self.start).boxed()
    }
}

async fn serve(work: &Work<'_>, start: bool) -> Result<Acted, Failure> {
    let Some(model) = model::wanted(work).await? else {
        return Ok(of_all(
            work,
            &Done::new(
                Status::Unknown,
                format!(
                    "{} is not on this machine yet; what would be sent shows only then",
                    work.given.must("model")
                ),
            ),
        ));
    };
    let emitter = work.steps();
    let sites = sites(work, &emitter).await?;
    let wish = Wish {
        model: work.given.must("model").to_owned(),
        context: work.given.count("context"),
        concurrency: work
            .given
            .count("concurrency")
            .unwrap_or(DEFAULT_CONCURRENCY),
        verify: work.given.flag("verify"),
        source: None,
        workers: work.workers.iter().map(PathBuf::clone).collect(),
    };
    let order = order::of(work.context, work.inventory, &sites, &wish, model).await?;
    let (fields, failure) = if start {
        up::up(&order, &sites, &emitter).await
    } else {
        up::push(&order, &sites, &emitter).await
    };
    Ok(came_to(work, &emitter, fields, failure))
}

/// The task's hosts, looked at anew: what is free there changes.
///
/// # Errors
/// The failure that counts most, when one of them is none.
pub(super) async fn sites(work: &Work<'_>, emitter: &Emitter) -> Result<Vec<Site>, Failure> {
    let sessions = work
        .hosts
        .iter()
        .map(|host| (host.host.clone(), Ok(host.session.clone())))
        .collect();
    let mut sites = Vec::new();
    let mut failures = Vec::new();
    for (_, found) in site::look(sessions, emitter).await {
        match found {
            Ok(site) => sites.push(site),
            Err(failure) => failures.push(failure),
        }
    }
    failures.sort_by_key(|failure| failure.kind.exit());
    let others: Vec<String> = failures.iter().skip(1).map(|f| f.message.clone()).collect();
    match failures.into_iter().next() {
        None => Ok(sites),
        Some(mut first) => {
            for other in others {
                first.message.push('\n');
                first.message.push_str(&other);
            }
            Err(first)
        }
    }
}

/// What the parts told through `emitter` came to on every host.
pub(super) fn came_to(
    work: &Work<'_>,
    emitter: &Emitter,
    fields: Map<String, Value>,
    failure: Option<Failure>,
) -> Acted {
    let counted = emitter.counted();
    let spread = failure
        .as_ref()
        .map(|failure| spread(failure, work.hosts))
        .unwrap_or_default();
    let mut hosts = BTreeMap::new();
    for host in work.hosts {
        let name = host.name();
        let none = HostCounters::default();
        let counters = counted.get(name).unwrap_or(&none);
        let status = status(counters);
        let verdict = match spread.get(name) {
            Some(Err(failure)) => Err(failure.clone()),
            // What was done there before another host failed counts as done.
            Some(Ok(unfinished)) if status == Status::Ok => Ok(unfinished.clone()),
            _ => Ok(Done::new(status, sent(counters, work.context.check))
                .with("bytes_sent", counters.bytes_sent)),
        };
        hosts.insert(name.to_owned(), verdict);
    }
    Acted {
        hosts,
        values: fields,
        ..Acted::default()
    }
}

/// How a task ends on a host whose parts ended so.
fn status(counters: &HostCounters) -> Status {
    let table = [
        (counters.unknown, Status::Unknown),
        (counters.changed, Status::Changed),
        (counters.would_change, Status::WouldChange),
    ];
    table
        .into_iter()
        .find_map(|(count, status)| (count > 0).then_some(status))
        .unwrap_or(Status::Ok)
}

fn sent(counters: &HostCounters, check: bool) -> String {
    match counters.bytes_sent {
        0 if check => String::new(),
        0 => "nothing to send".to_owned(),
        bytes => format!("{} sent", size(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_ends_as_the_most_telling_of_its_parts() {
        let of = |ok, changed, would_change, unknown| {
            status(&HostCounters {
                ok,
                changed,
                would_change,
                unknown,
                ..HostCounters::default()
            })
        };
        assert_eq!(of(3, 0, 0, 0), Status::Ok);
        assert_eq!(of(3, 1, 0, 0), Status::Changed);
        assert_eq!(of(3, 0, 1, 0), Status::WouldChange);
        assert_eq!(of(3, 1, 0, 1), Status::Unknown);
    }
}
