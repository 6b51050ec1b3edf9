//! `net_check`: the links among the task's hosts, measured; what is wrong with one fails its host.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;

use super::argument::{Argument, Form};
use super::work::{Acted, Done, Work};
use super::{Kind, serve};
use crate::deploy::remote::links::{self, Link, Wish};
use crate::event::{Failure, Status};

/// Seconds that each direction is measured for, unless said otherwise.
const SECONDS: u32 = 2;

/// The kind.
#[derive(Debug)]
pub struct NetCheck;

impl Kind for NetCheck {
    fn name(&self) -> &'static str {
        "net_check"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            Argument::may("seconds", Form::Whole(1, 60)),
            Argument::may("at_once", Form::Flag),
        ];
        ALL
    }

    fn together(&self) -> bool {
        true
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let emitter = work.steps();
            let sites = serve::sites(work, &emitter).await?;
            let mut context = work.context.clone();
            context.emitter = emitter;
            let wish = Wish {
                selector: None,
                time: Duration::from_secs(u64::from(
                    work.given.count("seconds").unwrap_or(SECONDS),
                )),
                at_once: work.given.flag("at_once"),
                forget: false,
                workers: work.workers.to_vec(),
            };
            let report =
                links::of_sites(&context, work.inventory, &sites, None, &wish, Vec::new()).await?;
            let mut acted = Acted::default();
            for host in work.hosts {
                let verdict = of_host(work, host.name(), &report.links);
                acted.hosts.insert(host.name().to_owned(), verdict);
            }
            let links: Vec<_> = report.links.iter().map(Link::json).collect();
            acted.values.insert("links".to_owned(), json!(links));
            Ok(acted)
        }
        .boxed()
    }
}

/// What the links say of one host: all that is to be looked at there.
fn of_host(work: &Work<'_>, host: &str, links: &[Link]) -> Result<Done, Failure> {
    let own: Vec<&Link> = links
        .iter()
        .filter(|link| link.from.host == host || link.to.host == host)
        .collect();
    let prefix = format!("{host}: ");
    let bare = |text: &str| text.strip_prefix(&prefix).unwrap_or(text).to_owned();
    let mut wrong: Vec<String> = own
        .iter()
        .flat_map(|link| &link.findings)
        .filter(|finding| finding.host == host)
        .map(|finding| bare(&finding.message))
        .collect();
    wrong.extend(
        own.iter()
            .filter_map(|link| link.error.as_deref().map(bare)),
    );
    if !wrong.is_empty() {
        return Err(work.failed(host, wrong.join("; ")));
    }
    let count = own.iter().filter(|link| link.measured.is_some()).count();
    Ok(match (own.is_empty(), count) {
        (true, _) => Done::new(Status::Skipped, "it has no link to another of the hosts"),
        (_, 0) if work.context.check => Done::new(Status::Skipped, "would be measured"),
        (_, 1) => Done::new(Status::Ok, "1 link is well"),
        (_, count) => Done::new(Status::Ok, format!("{count} links are well")),
    })
}
