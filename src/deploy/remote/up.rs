//! `up` and `push`: from the inventory's hosts and a model to pieces in their places, and to a
//! deployment that serves.

use std::path::PathBuf;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::check;
use super::deployment;
use super::elsewhere::Elsewhere;
use super::failures::all_or_first;
use super::feed::Feed;
use super::install;
use super::locks::{self, Lock};
use super::prepare::{Member, Model, Prepared, feed, prepare};
use super::probe::{self, Endpoint};
use super::program::Program;
use super::push::{self, Asked, Pushed, Shard};
use super::reasons::{self, Seen, Verdict};
use super::record::Record;
use super::service;
use super::site::{Site, status_of};
use super::start::{record, served, start};
use crate::event::{Emitter, Event, Failure, Level, Scope, Status};
use crate::figures::size;
use crate::inventory::{Cluster, Inventory};
use crate::paths::Paths;

/// Where the model file lies.
#[derive(Clone, Debug)]
pub enum Origin {
    /// On this machine.
    Here(PathBuf),
    /// On a host.
    There(Box<Elsewhere>),
}

/// What to bring up, and how.
#[derive(Clone, Debug)]
pub struct Order {
    /// The model, as it was named.
    pub asked: String,
    /// The inventory.
    pub inventory: Inventory,
    /// The cluster, as the hosts of this run are it.
    pub cluster: Cluster,
    /// The model file.
    pub origin: Origin,
    /// Its digest.
    pub model_sha256: String,
    /// Name to serve it under.
    pub name: String,
    /// Tokens of context; the default when `None`.
    pub context: Option<u32>,
    /// Sequences at once.
    pub concurrency: u32,
    /// Whether every piece on the hosts is read and compared.
    pub verify: bool,
    /// Whether nothing is to be changed.
    pub check: bool,
    /// Programs of the worker on this machine.
    pub programs: Vec<Program>,
    /// The folders on this machine.
    pub paths: Paths,
    /// Id of the run.
    pub run: String,
    /// The key that clients of the API must give; only its hash leaves this machine.
    pub api_key: Option<Zeroizing<String>>,
}

/// Fields of the summary, and the failure.
pub type Done = (Map<String, Value>, Option<Failure>);

/// Sends every host its pieces and starts nothing.
pub async fn push(order: &Order, sites: &[Site], emitter: &Emitter) -> Done {
    let mut fields = Map::new();
    let failure = pushed(order, sites, emitter, &mut fields).await.err();
    (fields, failure)
}

async fn pushed(
    order: &Order,
    sites: &[Site],
    emitter: &Emitter,
    fields: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let prepared = prepare(order, sites, emitter, fields).await?;
    if order.check {
        check::push(order, &prepared, emitter, fields).await?;
    } else {
        let _locks = install_and_lock(order, &prepared, emitter).await?;
        let asked = ask(order, &prepared).await?;
        send(&prepared, asked, emitter, fields).await?;
    }
    say_stale(order, &prepared, emitter, fields).await
}

/// Says which workers go on with pieces as they were before they were replaced: a push starts nothing.
async fn say_stale(
    order: &Order,
    prepared: &Prepared<'_>,
    emitter: &Emitter,
    fields: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let cluster = &order.cluster.name;
    let running: Vec<_> = prepared
        .members
        .iter()
        .filter(|member| member.record.is_some())
        .collect();
    let looks = running
        .iter()
        .map(|member| deployment::look_closely(&member.site.place, cluster));
    let mut stale = Map::new();
    for (member, look) in running.iter().zip(join_all(looks).await) {
        let files = look?.stale;
        if files.is_empty() {
            continue;
        }
        let host = member.site.name();
        let (what, them) = match files.len() {
            1 => ("1 piece".to_owned(), "it was"),
            count => (format!("{count} pieces"), "they were"),
        };
        emitter.emit(
            Scope::host(host).in_task("push"),
            Event::log(
                Level::Warn,
                format!(
                    "the worker that serves there still has {what} as {them} before the file was replaced: `windlass up {}` starts it anew",
                    order.asked
                ),
            ),
        );
        stale.insert(host.to_owned(), json!(files));
    }
    fields.insert("stale".into(), stale.into());
    Ok(())
}

/// Brings the deployment up.
pub async fn up(order: &Order, sites: &[Site], emitter: &Emitter) -> Done {
    let mut fields = Map::new();
    let failure = brought_up(order, sites, emitter, &mut fields).await.err();
    (fields, failure)
}

async fn brought_up(
    order: &Order,
    sites: &[Site],
    emitter: &Emitter,
    fields: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let prepared = prepare(order, sites, emitter, fields).await?;
    for behind in &prepared.behind {
        emitter.log(Level::Warn, behind.sentence(&order.cluster.name));
    }
    fields.insert("left_behind".into(), json!(prepared.behind));
    if order.check {
        return check::up(order, &prepared, emitter, fields).await;
    }
    let _locks = install_and_lock(order, &prepared, emitter).await?;
    data_path(order, &prepared, emitter).await?;
    let asked = ask(order, &prepared).await?;
    let sent = send(&prepared, asked, emitter, fields).await?;
    let planned: Vec<u64> = sent.iter().map(|pushed| pushed.planned).collect();
    let record = record(order, &prepared, &planned)?;
    fields.insert("deployment".into(), json!(record.deployment));
    let new: Vec<bool> = sent.iter().map(|pushed| !pushed.files.is_empty()).collect();
    let reasons = match decide(order, &prepared, &record, &new).await? {
        Verdict::Serves => {
            let old = prepared.old().unwrap_or(&record);
            let left = leave(order, &prepared, emitter).await?;
            let task = emitter.task(Scope::host(old.head()).in_task("start"), None);
            task.finish(Status::Ok, format!("{} serves already", old.model));
            served(fields, old, left);
            return Ok(());
        }
        Verdict::First => Vec::new(),
        Verdict::Anew(reasons) => reasons,
    };
    start(order, &prepared, &record, &reasons, emitter, fields).await
}

/// Whether anything is to be started, and why. `sent` says of each member whether pieces were sent there,
/// or would be.
pub(super) async fn decide(
    order: &Order,
    prepared: &Prepared<'_>,
    record: &Record,
    sent: &[bool],
) -> Result<Verdict, Failure> {
    let members = &prepared.members;
    let looks = members
        .iter()
        .map(|member| deployment::look_closely(&member.site.place, &record.cluster));
    let looks = join_all(looks).await;
    let seen: Vec<Seen<'_>> = members
        .iter()
        .zip(&looks)
        .zip(sent)
        .map(|((member, look), sent)| Seen {
            host: member.site.name(),
            record: member.record.as_ref(),
            worker: look.as_ref().ok().map(|look| look.state.as_str()),
            stale: look.as_ref().map_or(0, |look| look.stale.len()),
            sent: *sent,
        })
        .collect();
    let old = prepared.old();
    let verdict = reasons::verdict(old, record, &seen, None);
    let (Verdict::Serves, Some(old)) = (&verdict, old) else {
        return Ok(verdict);
    };
    let place = &first(prepared)?.site.place;
    let head = deployment::head(place, old, &order.paths.runtime, &order.run)?;
    let said = head
        .client
        .status()
        .await
        .map_err(|error| error.to_string());
    let said = match &said {
        Ok(status) => Ok(status.state.as_str()),
        Err(why) => Err(why.as_str()),
    };
    Ok(reasons::verdict(Some(old), record, &seen, Some(said)))
}

/// Stops what runs on hosts that get no stage; whether there was any.
pub(super) async fn leave(
    order: &Order,
    prepared: &Prepared<'_>,
    emitter: &Emitter,
) -> Result<bool, Failure> {
    let cluster = &order.cluster.name;
    let stopped = join_all(prepared.leaving.iter().map(|(site, record)| async move {
        let task = emitter.task(Scope::host(site.name()).in_task("stop"), None);
        let result = service::stop_one(site, Some(record), cluster, &order.run).await;
        match &result {
            Ok(()) => task.finish(Status::Changed, "stopped, it gets no stage"),
            Err(failure) => task.finish(status_of(failure), ""),
        }
        result
    }))
    .await;
    all_or_first(
        stopped.into_iter().filter_map(Result::err).collect(),
        emitter,
    )?;
    Ok(!prepared.leaving.is_empty())
}

pub(super) fn first<'p, 'a>(prepared: &'p Prepared<'a>) -> Result<&'p Member<'a>, Failure> {
    prepared
        .members
        .first()
        .ok_or_else(|| Failure::internal("a plan without stages"))
}

/// Puts the program everywhere, then takes every host's lock.
async fn install_and_lock(
    order: &Order,
    prepared: &Prepared<'_>,
    emitter: &Emitter,
) -> Result<Vec<Lock>, Failure> {
    let holder = locks::holder(&order.run);
    let results = join_all(prepared.members.iter().map(|member| async {
        let site = member.site;
        install::put(site.session(), site.base(), member.program, emitter).await?;
        locks::take(site.session(), site.base(), &member.program.sha256, &holder)
            .await
            .map_err(Failure::from)
    }))
    .await;
    let mut held = Vec::new();
    let mut failures = Vec::new();
    // The host of the model, where it gets no stage: only the program is put there.
    if let Model::There(far) = &prepared.model
        && !prepared
            .members
            .iter()
            .any(|m| m.site.name() == far.site.name())
    {
        let site = &far.site;
        let put = install::put(site.session(), site.base(), &far.program, emitter).await;
        failures.extend(put.err());
    }
    for result in results {
        match result {
            Ok(lock) => held.push(lock),
            Err(failure) => failures.push(failure),
        }
    }
    all_or_first(failures, emitter)?;
    Ok(held)
}

/// Tries the data path.
async fn data_path(
    order: &Order,
    prepared: &Prepared<'_>,
    emitter: &Emitter,
) -> Result<(), Failure> {
    let ends: Vec<Endpoint> = prepared
        .members
        .iter()
        .map(|member| Endpoint {
            session: member.site.session().clone(),
            base: member.site.base().clone(),
            worker_sha256: member.program.sha256.clone(),
            address: member.address,
            own_worker: member.record.is_some(),
        })
        .collect();
    let tasks: Vec<_> = prepared
        .members
        .iter()
        .map(|m| emitter.task(Scope::host(m.site.name()).in_task("data path"), None))
        .collect();
    let mut breaches = probe::check(&ends, &order.run).await;
    let failures: Vec<Failure> = breaches
        .drain(..)
        .filter_map(|(index, breach)| {
            let member = prepared.members.get(index)?;
            Some(member.site.failed(breach.step, breach.message))
        })
        .collect();
    for task in tasks {
        let host = task.scope().host.clone();
        let broken = failures.iter().any(|failure| failure.host == host);
        task.finish(if broken { Status::Failed } else { Status::Ok }, "");
    }
    all_or_first(failures, emitter)
}

fn shards(prepared: &Prepared<'_>) -> Vec<Shard> {
    prepared
        .placement
        .stages
        .iter()
        .map(|stage| Shard {
            slices: stage.plan.slices.clone(),
        })
        .collect()
}

/// Asks every host what it has. A disk too small on one is found here, before a byte is sent to it;
/// the others are still served, so that what they get need not be sent again.
async fn ask(
    order: &Order,
    prepared: &Prepared<'_>,
) -> Result<Vec<Result<Asked, Failure>>, Failure> {
    let shards = shards(prepared);
    Ok(
        join_all(prepared.members.iter().zip(&shards).map(|(member, shard)| {
            push::ask(
                member.site.session(),
                member.site.base(),
                &member.program.sha256,
                &prepared.source,
                shard,
                order.verify,
            )
        }))
        .await,
    )
}

/// Sends all hosts what they lack, in parallel.
async fn send(
    prepared: &Prepared<'_>,
    asked: Vec<Result<Asked, Failure>>,
    emitter: &Emitter,
    fields: &mut Map<String, Value>,
) -> Result<Vec<Pushed>, Failure> {
    let results = join_all(
        prepared
            .members
            .iter()
            .zip(asked)
            .map(|(member, asked)| async {
                let task = emitter.task(Scope::host(member.site.name()).in_task("push"), None);
                let result = match asked {
                    Ok(asked) => {
                        let feed = feed(prepared, member);
                        asked
                            .send(member.site.session(), &prepared.source, &feed, emitter)
                            .await
                    }
                    Err(failure) => Err(failure),
                };
                match &result {
                    Ok(done) if done.files.is_empty() => {
                        task.finish(Status::Ok, format!("{} there already", size(done.planned)));
                    }
                    Ok(done) if matches!(feed(prepared, member), Feed::Itself(_)) => task.finish(
                        Status::Changed,
                        format!(
                            "{} of {} made of its own file",
                            size(done.missing),
                            size(done.planned)
                        ),
                    ),
                    Ok(done) => task.finish(
                        Status::Changed,
                        format!("{} of {} sent", size(done.sent), size(done.planned)),
                    ),
                    Err(failure) => task.finish(status_of(failure), ""),
                }
                result
            }),
    )
    .await;
    // Digests learned on the way serve the next push, also when this one failed.
    if let Err(error) = prepared.source.keep() {
        emitter.log(
            Level::Warn,
            format!("the digests of the pieces could not be kept: {error}; the next push reads the model again"),
        );
    }
    let mut done = Vec::new();
    let mut failures = Vec::new();
    let mut told = Map::new();
    for (member, result) in prepared.members.iter().zip(results) {
        match result {
            Ok(pushed) => {
                told.insert(
                    member.site.name().to_owned(),
                    json!({
                        "planned_bytes": pushed.planned,
                        "sent_bytes": pushed.sent,
                        "received_bytes": pushed.received,
                        "files": pushed.files.len(),
                    }),
                );
                done.push(pushed);
            }
            Err(failure) => failures.push(failure),
        }
    }
    fields.insert("pushed".into(), told.into());
    all_or_first(failures, emitter)?;
    Ok(done)
}
