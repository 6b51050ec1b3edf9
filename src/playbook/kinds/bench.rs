//! `bench`: measures the deployment that runs on the hosts.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::argument::{Argument, Form};
use super::work::{Acted, Done, Work, of_all};
use super::{Kind, serve};
use crate::bench::{self, Load};
use crate::event::{Failure, Status};

/// The kind.
#[derive(Debug)]
pub struct Bench;

impl Kind for Bench {
    fn name(&self) -> &'static str {
        "bench"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            Argument::may("concurrency", Form::Wholes(1, 1024)),
            Argument::may("tokens", Form::Whole(2, 100_000)),
            Argument::may("requests", Form::Whole(0, 100_000)),
            Argument::may("prompt", Form::Text),
        ];
        ALL
    }

    fn together(&self) -> bool {
        true
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            if work.context.check {
                return Ok(of_all(
                    work,
                    &Done::new(Status::Unknown, "would measure; figures show only then"),
                ));
            }
            let emitter = work.steps();
            let sites = serve::sites(work, &emitter).await?;
            let mut load = Load::default();
            let levels = work.given.counts("concurrency");
            if !levels.is_empty() {
                load.concurrency = levels;
            }
            if let Some(tokens) = work.given.count("tokens") {
                load.tokens = tokens;
            }
            load.requests = work.given.count("requests").filter(|count| *count > 0);
            if let Some(prompt) = work.given.text("prompt") {
                load.prompt = prompt.to_owned();
            }
            let report = bench::serve(
                &sites,
                &work.inventory.cluster.name,
                &work.context.paths,
                &work.context.run,
                &load,
                &work.context.stop,
                &emitter,
            )
            .await?;
            let mut acted = of_all(work, &Done::new(Status::Ok, report.headline()));
            acted.text = report.text();
            if let Value::Object(values) = report.value() {
                acted.values = values;
            }
            Ok(acted)
        }
        .boxed()
    }
}
