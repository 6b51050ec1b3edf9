//! `down`: stops what runs under the cluster's name on the hosts.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::argument::{Argument, Form};
use super::work::{Acted, Work};
use super::{Kind, serve};
use crate::deploy::remote::service;
use crate::event::{Failure, FailureKind};

/// The kind.
#[derive(Debug)]
pub struct Down;

impl Kind for Down {
    fn name(&self) -> &'static str {
        "down"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[Argument::may("pieces", Form::Flag)];
        ALL
    }

    fn together(&self) -> bool {
        true
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let emitter = work.steps();
            let sites = serve::sites(work, &emitter).await?;
            let (fields, failure) = service::down(
                &sites,
                work.inventory,
                &work.context.run,
                work.given.flag("pieces"),
                work.context.check,
                &emitter,
            )
            .await;
            // Nothing that runs is what is wanted.
            let failure = failure.filter(|failure| failure.kind != FailureKind::Nothing);
            let mut acted = serve::came_to(work, &emitter, fields, failure);
            let stopped = acted.values.get("stopped").cloned().unwrap_or_default();
            for (host, done) in &mut acted.hosts {
                let Ok(done) = done else { continue };
                let was = stopped
                    .as_array()
                    .is_some_and(|all| all.iter().any(|name| name == host));
                done.message = match done.status {
                    crate::event::Status::Ok => "nothing runs there".to_owned(),
                    crate::event::Status::Changed if was => "stopped".to_owned(),
                    crate::event::Status::Changed => {
                        "nothing ran there, its pieces are removed".to_owned()
                    }
                    _ => std::mem::take(&mut done.message),
                };
            }
            Ok(acted)
        }
        .boxed()
    }
}
