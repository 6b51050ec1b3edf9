//! Watches a running deployment from outside: finds it, follows what its head says, and tells that
//! as events. Reads only; must not know who looks at it.
//!
//! A connection that breaks is made again after a pause that grows. What is wrong is told as a
//! sentence, once for each cause.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, timeout};
use windlass_wire::telemetry::{HeadEvent, HeadStatus};

use super::context::Context;
use super::deployment::{self, Head};
use super::hosts;
use super::losses::Losses;
use super::record::Record;
use super::service;
use super::site::Site;
use crate::deploy::speeds::Speeds;
use crate::event::{Emitter, Event, Failure, FailureKind, Level, Scope, WorkerEvent, WorkerState};
use crate::facts::Facts;

/// Pause before a first new try, and the longest one.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(20)];
/// How often hosts on which nothing runs are looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Seconds between two rates.
const RATES_EVERY: f64 = 0.5;
/// A head that says nothing for this long computes nothing.
const QUIET: Duration = Duration::from_millis(1_500);
/// Lines of a lost worker's log that are looked through for its reason.
const LAST_LINES: u32 = 40;
/// How often that log is read until it has the reason, and the pause between.
const REASON_TRIES: u32 = 3;
const REASON_PAUSE: Duration = Duration::from_millis(300);

/// What is told besides events.
pub enum Told {
    /// Looking for the deployment; with what is to be known of the cluster.
    Looking {
        /// Name of the cluster.
        cluster: String,
    },
    /// The hosts that were reached, and how their commands are run.
    Sites(Vec<Site>),
    /// What was read from a host.
    Facts(String, Box<Facts>),
    /// Nothing runs under the cluster's name.
    Absent,
    /// Something runs; this is its record.
    Found(Box<Record>),
    /// A way to its head, for whoever wants to talk to it.
    Way(Arc<Head>),
    /// The head's last word: its state, the reason, and seconds since it began to serve.
    State(String, Option<String>, f64),
    /// The way to the head is gone, or was never there: a sentence that says why.
    Trouble(String),
}

/// Watches until it is dropped. Everything is told to `told` or emitted; an end of `told` ends it.
pub async fn watch(context: Context, told: UnboundedSender<Told>) {
    let [first, longest] = PAUSES;
    let mut pause = first;
    let mut last = String::new();
    loop {
        let begun = Instant::now();
        let failure = match once(&context, &told).await {
            Ok(()) => return,
            Err(failure) => failure,
        };
        if failure.message != last {
            last.clone_from(&failure.message);
            context.emitter.log(Level::Warn, failure.message.clone());
        }
        if told.send(Told::Trouble(failure.message)).is_err() {
            return;
        }
        // A file that is wrong stays wrong until somebody mends it; no host is asked meanwhile.
        pause = match failure.kind {
            FailureKind::Config | FailureKind::Usage | FailureKind::Nothing => LOOK_AGAIN,
            _ if begun.elapsed() > longest => first,
            _ => (pause * 2).min(longest),
        };
        tokio::time::sleep(pause).await;
    }
}

/// One connection: from the inventory to the head's stream. `Ok` when nobody listens any more.
async fn once(context: &Context, told: &UnboundedSender<Told>) -> Result<(), Failure> {
    let inventory = hosts::inventory(context)?;
    let cluster = inventory.cluster.name.clone();
    let tell = |what: Told| told.send(what).is_ok();
    if !tell(Told::Looking {
        cluster: cluster.clone(),
    }) {
        return Ok(());
    }
    let chosen = hosts::select(context, &inventory, None)?;
    let (sites, _) = hosts::sites(context, &inventory, &chosen, false).await?;
    for site in &sites {
        let facts = Box::new(site.facts.clone());
        if !tell(Told::Facts(site.name().to_owned(), facts)) {
            return Ok(());
        }
    }
    if !tell(Told::Sites(sites.clone())) {
        return Ok(());
    }
    let mut number = 0_u32;
    loop {
        let Some(found) = service::find(&sites, &cluster).await? else {
            if !tell(Told::Absent) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            continue;
        };
        let record = found.record.clone();
        let place = found.head().map(|site| site.place.clone()).ok_or_else(|| {
            Failure::new(
                FailureKind::Unreachable,
                format!(
                    "{}: the head's host was not reached, so nothing is known of what runs",
                    record.head()
                ),
            )
        })?;
        if !tell(Told::Found(Box::new(record.clone()))) {
            return Ok(());
        }
        number += 1;
        let name = format!("{}-{number}", context.run);
        let head = Arc::new(deployment::head(
            &place,
            &record,
            &context.paths.runtime,
            &name,
        )?);
        let restarts = restarts(&sites, &record).await;
        let followed = follow(context, &sites, &record, &head, told).await;
        match followed {
            End::Deaf => return Ok(()),
            End::Silent(reason) => {
                if !tell(Told::Trouble(reason)) {
                    return Ok(());
                }
                tell_workers(&sites, &record, &restarts, &context.emitter).await?;
                tokio::time::sleep(PAUSES[0]).await;
            }
        }
    }
}

enum End {
    /// Nobody listens.
    Deaf,
    /// The head does, but says nothing more; why.
    Silent(String),
}

/// Follows one head until it is gone.
async fn follow(
    context: &Context,
    sites: &[Site],
    record: &Record,
    head: &Arc<Head>,
    told: &UnboundedSender<Told>,
) -> End {
    let emitter = &context.emitter;
    let gone = |error: String| {
        End::Silent(format!(
            "{}: the head does not answer ({error})",
            record.head()
        ))
    };
    // The stream begins with what happened before: what is true now is asked after it was opened.
    let mut events = match head.client.events().await {
        Ok(events) => events,
        Err(error) => return gone(error.to_string()),
    };
    let first = match head.client.status().await {
        Ok(status) => status,
        Err(error) => return gone(error.to_string()),
    };
    if told.send(Told::Way(Arc::clone(head))).is_err() {
        return End::Deaf;
    }
    let mut speeds = Speeds::new(RATES_EVERY);
    let mut stages: BTreeMap<u32, bool> = BTreeMap::new();
    let mut losses = Losses::default();
    let mut known = first.stages.clone();
    let mut state = None;
    let mut waiting = Some(Box::new(first));
    loop {
        let status = match waiting.take() {
            Some(status) => status,
            None => match timeout(QUIET, events.next()).await {
                Ok(Some(HeadEvent::Status(status))) => {
                    for event in losses.settle(&status.stages) {
                        if let HeadEvent::StageLost { stage, .. } = &event {
                            stages.insert(*stage, false);
                        }
                        other(event, &mut speeds, sites, record, emitter).await;
                    }
                    status
                }
                Ok(Some(event @ HeadEvent::StageLost { stage, .. })) => {
                    if let Some(event) = losses.lost(stage, event) {
                        stages.insert(stage, false);
                        other(event, &mut speeds, sites, record, emitter).await;
                    }
                    continue;
                }
                Ok(Some(event)) => {
                    other(event, &mut speeds, sites, record, emitter).await;
                    continue;
                }
                Ok(None) => return gone("its stream of events ended".to_owned()),
                Err(_) => {
                    for event in losses.settle(&known) {
                        other(event, &mut speeds, sites, record, emitter).await;
                    }
                    if let Some(rates) = speeds.nothing_new(QUIET.as_secs_f64()) {
                        emitter.emit(Scope::run(), Event::Telemetry(Box::new(rates)));
                    }
                    if told.is_closed() {
                        return End::Deaf;
                    }
                    continue;
                }
            },
        };
        for stage in &status.stages {
            if stages.insert(stage.stage, stage.alive) != Some(stage.alive) {
                let worker = WorkerEvent {
                    layers: Some(stage.layers),
                    bytes: Some(stage.piece_bytes),
                    ..WorkerEvent::new(if stage.alive {
                        WorkerState::Ready
                    } else {
                        WorkerState::Lost
                    })
                };
                let scope = Scope::worker(stage.host.clone(), stage.stage);
                emitter.emit(scope, Event::Worker(Box::new(worker)));
            }
        }
        known.clone_from(&status.stages);
        if told_state(&mut state, &status, told).is_err() {
            return End::Deaf;
        }
        if let Some(rates) = speeds.status(&status) {
            emitter.emit(Scope::run(), Event::Telemetry(Box::new(rates)));
        }
    }
}

/// Tells the head's state when it is a new one.
fn told_state(
    last: &mut Option<(String, Option<String>)>,
    status: &HeadStatus,
    told: &UnboundedSender<Told>,
) -> Result<(), ()> {
    let now = (status.state.clone(), status.reason.clone());
    if last.as_ref() == Some(&now) {
        return Ok(());
    }
    *last = Some(now.clone());
    told.send(Told::State(now.0, now.1, status.uptime_s))
        .map_err(|_| ())
}

/// What the head says besides its state.
async fn other(
    event: HeadEvent,
    speeds: &mut Speeds,
    sites: &[Site],
    record: &Record,
    emitter: &Emitter,
) {
    match event {
        HeadEvent::Request {
            outcome,
            tokens,
            ttft_ms,
            decode_ms,
            ..
        } => speeds.request(&outcome, tokens, ttft_ms, decode_ms),
        HeadEvent::StageLost {
            stage,
            host,
            reason,
            ended_after_us,
            requests,
        } => {
            let scope = Scope::worker(host.clone(), stage);
            emitter.emit(
                scope.clone(),
                Event::StageLost {
                    reason,
                    ended_after_us,
                    requests,
                },
            );
            let Some(site) = sites.iter().find(|site| site.name() == host) else {
                return;
            };
            if let Some(why) = last_reason(site, record).await {
                let worker = WorkerEvent {
                    message: Some(why),
                    ..WorkerEvent::new(WorkerState::Lost)
                };
                emitter.emit(scope, Event::Worker(Box::new(worker)));
            }
        }
        HeadEvent::Status(_) => {}
    }
}

/// Why a worker ended, from its log, into which its keeper may write only a moment later.
async fn last_reason(site: &Site, record: &Record) -> Option<String> {
    let mut tries = REASON_TRIES;
    loop {
        tries -= 1;
        let lines = deployment::last_log(&site.place, &record.cluster, LAST_LINES).await;
        let why = why(&lines.ok()?);
        if why.is_some() || tries == 0 {
            return why;
        }
        tokio::time::sleep(REASON_PAUSE).await;
    }
}

/// How often each stage's keeper has started its worker again, where it counts that.
async fn restarts(sites: &[Site], record: &Record) -> BTreeMap<u32, u32> {
    let asked = record.stages.iter().map(|stage| async move {
        let site = sites.iter().find(|site| site.name() == stage.host)?;
        let look = deployment::look(&site.place, &record.cluster).await.ok()?;
        Some((stage.stage, look.restarts?))
    });
    join_all(asked).await.into_iter().flatten().collect()
}

/// With no head to ask, what the keepers of the workers say, and why those ended that did. One that its
/// keeper has started again since `restarts` ended too.
///
/// # Errors
/// When a host cannot be asked: then its connection is to be made again.
async fn tell_workers(
    sites: &[Site],
    record: &Record,
    restarts: &BTreeMap<u32, u32>,
    emitter: &Emitter,
) -> Result<(), Failure> {
    for stage in &record.stages {
        let Some(site) = sites.iter().find(|site| site.name() == stage.host) else {
            continue;
        };
        let look = deployment::look(&site.place, &record.cluster).await?;
        let before = restarts.get(&stage.stage);
        let again = look
            .restarts
            .zip(before)
            .is_some_and(|(now, before)| now > *before);
        if look.state == "active" && !again {
            continue;
        }
        // Its keeper was told to stop it: that is no loss.
        let worker = if look.state == "inactive" {
            WorkerEvent {
                message: Some("it was stopped".into()),
                ..WorkerEvent::new(WorkerState::Stopped)
            }
        } else {
            let state = || match again {
                true => "its worker ended and was started again".to_owned(),
                false => format!("its worker is {}", look.state),
            };
            WorkerEvent {
                message: Some(last_reason(site, record).await.unwrap_or_else(state)),
                ..WorkerEvent::new(WorkerState::Lost)
            }
        };
        let scope = Scope::worker(stage.host.clone(), stage.stage);
        emitter.emit(scope, Event::Worker(Box::new(worker)));
    }
    Ok(())
}

/// Why a worker ended, from its log's last lines: its own word, else its keeper's.
fn why(lines: &[String]) -> Option<String> {
    if let Some(message) = deployment::failed_message(lines) {
        return Some(message);
    }
    lines.iter().rev().find_map(|line| {
        let (_, end) = line.split_once("Main process exited, ")?;
        let word = |name: &str| {
            end.split([',', ' '])
                .find_map(|part| part.trim().strip_prefix(name))
        };
        let (code, status) = (word("code=")?, word("status=")?);
        let (number, name) = status.split_once('/').unwrap_or((status, ""));
        Some(match code {
            "killed" | "dumped" => format!(
                "its process was killed by signal {number} ({})",
                match name {
                    "KILL" => "SIGKILL: somebody, or the kernel for want of memory",
                    other => other,
                }
            ),
            _ => format!("its process ended with status {number}"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_worker_ended_is_its_own_word_else_its_keepers() {
        let of = |lines: &[&str]| {
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            why(&lines)
        };
        let killed = "2026-01-01T00:00:00 h1 systemd[1]: windlass-a.service: Main process exited, code=killed, status=9/KILL";
        assert!(of(&[killed, "x"]).unwrap().contains("signal 9"));
        let exited =
            "systemd[1]: w.service: Main process exited, code=exited, status=3/NOTIMPLEMENTED";
        assert_eq!(
            of(&[exited]).as_deref(),
            Some("its process ended with status 3")
        );
        let said = r#"w[1]: {"event":"failed","kind":"network","message":"port 47600 is taken"}"#;
        assert_eq!(of(&[said, killed]).as_deref(), Some("port 47600 is taken"));
        assert_eq!(of(&["nothing of note"]), None);
        assert_eq!(of(&["Main process exited, "]), None);
    }
}
