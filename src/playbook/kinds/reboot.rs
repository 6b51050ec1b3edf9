//! `reboot`: hosts rebooted one at a time, each waited for until it is there in another boot. When one
//! stays away, those after it are left as they are. A host that this very task rebooted before the run
//! was killed is not rebooted again.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::argument::{Argument, Form};
use super::work::{Acted, Done, Reached, Work};
use super::{Kind, once, remote};
use crate::deploy::remote::hosts;
use crate::event::{Failure, FailureKind, Status};
use crate::provision::reboot::{self as rebooting, Return};
use crate::ssh::Session;

/// How long a host may stay away unless said otherwise.
const PATIENCE: Duration = Duration::from_secs(600);

/// The kind.
#[derive(Debug)]
pub struct Reboot;

impl Kind for Reboot {
    fn name(&self) -> &'static str {
        "reboot"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[Argument::may("timeout", Form::Time)];
        ALL
    }

    fn main(&self) -> Option<&'static str> {
        Some("timeout")
    }

    fn together(&self) -> bool {
        true
    }

    fn leaves_marks(&self) -> bool {
        true
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let mut acted = Acted::default();
            let mut away: Option<String> = None;
            for host in work.hosts {
                let name = host.name().to_owned();
                if let Some(first) = &away {
                    let words = format!("left as it is, since {first} failed");
                    acted
                        .hosts
                        .insert(name, Ok(Done::new(Status::Skipped, words)));
                    continue;
                }
                let stopped = || {
                    Failure::new(FailureKind::Interrupted, "interrupted while it waited")
                        .on(host.name())
                        .at(work.task)
                };
                let result = tokio::select! {
                    result = one(work, host) => result,
                    () = work.context.stop.wait() => Err(stopped()),
                };
                match result {
                    Ok((done, session)) => {
                        acted
                            .sessions
                            .extend(session.map(|session| (name.clone(), session)));
                        acted.hosts.insert(name, Ok(done));
                    }
                    Err(failure) => {
                        away = Some(name.clone());
                        acted.hosts.insert(name, Err(failure));
                    }
                }
            }
            Ok(acted)
        }
        .boxed()
    }
}

/// One host; with the session to it in its new boot.
async fn one(work: &Work<'_>, host: &Reached) -> Result<(Done, Option<Session>), Failure> {
    let patience = work.given.time("timeout").unwrap_or(PATIENCE);
    let connector = hosts::connector(work.context);
    let back = Return::new(connector, work.inventory, &host.host, patience);
    // A try before this one may have found it too late.
    let anew = match host.session.is_lost() {
        true => {
            let session = back.connect().await;
            Some(session.map_err(|error| work.ssh(host.name(), &error))?)
        }
        false => None,
    };
    let session = anew.as_ref().unwrap_or(&host.session);
    let before = rebooting::may(session, work.task).await?;
    if work.context.check {
        return Ok((Done::change(true, "it reboots"), anew));
    }
    let mark = once::boot_mark(&format!("{}@{}", work.mark, host.name()), &before);
    let begun = session
        .run(work.task, &mark, remote::SHORT)
        .await
        .map_err(|error| work.ssh(host.name(), &error))?
        .text();
    if ![before.as_str(), ""].contains(&begun.trim()) {
        let done = Done::new(
            Status::Changed,
            "it is in another boot since this task began",
        );
        return Ok((done, anew));
    }
    let began = std::time::Instant::now();
    let look = |_| async { Ok(()) };
    let (session, ()) = back
        .reboot(session, &before, work.task, &work.context.emitter, look)
        .await
        .map_err(|away| {
            away.failure(
                host.name(),
                work.task,
                "Look at its console: choose another entry or an older kernel there, if it does not start",
            )
        })?;
    let words = format!("in another boot after {} s", began.elapsed().as_secs());
    Ok((Done::new(Status::Changed, words), Some(session)))
}
