//! A deployment that exists: finding it on its hosts, telling how it is, stopping it. All that is
//! needed lies on the hosts, so any controller can do it.

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use windlass_wire::telemetry::HeadStatus;

use super::behind::{self, Behind};
use super::context::Context;
use super::deployment::{self, Place};
use super::hosts;
use super::locks::{self, Lock};
use super::prepare::tried;
use super::record::Record;
use super::site::{Site, status_of};
use super::unit::Look;
use super::up::Done;
use crate::event::bus::Task;
use crate::event::{Emitter, Failure, FailureKind, Level, Scope, Status};
use crate::figures::size;
use crate::inventory::Inventory;
use crate::paths::Paths;

/// A deployment as its hosts tell it.
#[derive(Debug)]
pub struct Found<'a> {
    /// Its record: the one that most hosts have, the newest of those.
    pub record: Record,
    /// Hosts of its stages that were reached, with what their keepers say.
    pub stages: Vec<(&'a Site, Result<Look, Failure>)>,
    /// Hosts of its stages that were not reached, or that lack the record.
    pub missing: Vec<String>,
    /// Hosts with a record of another deployment under the same name.
    pub stray: Vec<String>,
}

impl<'a> Found<'a> {
    /// The head's host, when it was reached.
    pub fn head(&self) -> Option<&'a Site> {
        let name = self.record.head();
        self.stages
            .iter()
            .map(|(site, _)| *site)
            .find(|site| site.name() == name)
    }
}

/// Finds the cluster's deployment on these hosts. `None` when no host has a record.
///
/// # Errors
/// The first record that cannot be read, when none can.
pub async fn find<'a>(sites: &'a [Site], cluster: &str) -> Result<Option<Found<'a>>, Failure> {
    let records = join_all(
        sites
            .iter()
            .map(|site| deployment::read_record(&site.place, cluster)),
    )
    .await;
    let mut all: Vec<(&Site, Record)> = Vec::new();
    let mut failure = None;
    for (site, record) in sites.iter().zip(records) {
        match record {
            Ok(Some(record)) => all.push((site, record)),
            Ok(None) => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let Some(record) = Record::leading(all.iter().map(|(_, record)| record)).cloned() else {
        return failure.map_or(Ok(None), Err);
    };
    let mut stages = Vec::new();
    let mut missing = Vec::new();
    for stage in &record.stages {
        match all
            .iter()
            .find(|(site, own)| site.name() == stage.host && own.deployment == record.deployment)
        {
            Some((site, _)) => {
                stages.push((*site, deployment::look_closely(&site.place, cluster).await));
            }
            None => missing.push(stage.host.clone()),
        }
    }
    let stray = all
        .iter()
        .filter(|(site, own)| {
            own.deployment != record.deployment || record.stage_on(site.name()).is_none()
        })
        .map(|(site, _)| site.name().to_owned())
        .collect();
    Ok(Some(Found {
        record,
        stages,
        missing,
        stray,
    }))
}

/// How a deployment is: fields, a text for people, and a failure when it does not serve.
pub async fn status(
    sites: &[Site],
    inventory: &Inventory,
    paths: &Paths,
    run: &str,
) -> (Map<String, Value>, String, Option<Failure>) {
    let cluster = inventory.cluster.name.as_str();
    let mut fields = Map::new();
    fields.insert("cluster".into(), json!(cluster));
    fields.insert("state".into(), json!("absent"));
    let found = match find(sites, cluster).await {
        Ok(Some(found)) => found,
        Ok(None) => {
            let failure = Failure::new(
                FailureKind::Nothing,
                format!(
                    "nothing runs under the name {cluster} on these hosts: bring it up with `windlass up MODEL`"
                ),
            );
            return (fields, String::new(), Some(failure));
        }
        Err(failure) => return (fields, String::new(), Some(failure)),
    };
    let record = &found.record;
    let head_status = match found.head() {
        Some(head) => ask_head(&head.place, record, paths, run).await,
        None => Err(format!(
            "{}: the head's host was not reached",
            record.head()
        )),
    };
    let behind = not_listed(record, sites, inventory);
    let (state, reason) = state(&found, &behind, head_status.as_ref());
    fields.insert("state".into(), json!(state));
    fields.insert("reason".into(), json!(reason));
    fields.insert("deployment".into(), json!(record.deployment));
    fields.insert("model".into(), json!(record.model));
    fields.insert("api".into(), json!(record.api));
    fields.insert("head".into(), json!(record.head()));
    fields.insert("version".into(), json!(record.version));
    fields.insert("by".into(), json!(record.by));
    fields.insert("at".into(), json!(record.at));
    fields.insert("context".into(), json!(record.context));
    fields.insert("concurrency".into(), json!(record.concurrency));
    fields.insert("stray".into(), json!(found.stray));
    fields.insert("left_behind".into(), json!(behind));
    let live = head_status.as_ref().ok();
    fields.insert("stages".into(), stage_fields(&found, live));
    if let Some(status) = live {
        fields.insert("running".into(), json!(status.running));
        fields.insert("waiting".into(), json!(status.waiting));
        fields.insert("generated_tokens".into(), json!(status.generated_tokens));
        fields.insert("uptime_s".into(), json!(status.uptime_s));
    }
    let mut text = text(&found, &behind, live, state, reason.as_deref());
    for one in &behind {
        text.push_str(&format!("  {}\n", one.sentence(cluster)));
    }
    let failure = (state != "serving").then(|| {
        Failure::new(
            FailureKind::Worker,
            format!(
                "{} is {state}: {}",
                record.cluster,
                reason.as_deref().unwrap_or("no reason is known")
            ),
        )
        .at("status")
    });
    (fields, text, failure)
}

async fn ask_head(
    place: &Place,
    record: &Record,
    paths: &Paths,
    run: &str,
) -> Result<HeadStatus, String> {
    let head = deployment::head(place, record, &paths.runtime, run).map_err(|f| f.message)?;
    head.client
        .status()
        .await
        .map_err(|error| format!("{}: the head does not answer ({error})", record.head()))
}

/// Hosts that a record names and the inventory does not.
fn not_listed(record: &Record, sites: &[Site], inventory: &Inventory) -> Vec<Behind> {
    let mut behind = behind::behind(record, &tried(sites), inventory);
    behind.retain(|one| !one.listed);
    behind
}

/// One word for the whole, and why.
fn state(
    found: &Found<'_>,
    behind: &[Behind],
    head: Result<&HeadStatus, &String>,
) -> (&'static str, Option<String>) {
    let gone = |host: &String| behind.iter().any(|one| one.host == *host);

    let down: Vec<String> = found
        .stages
        .iter()
        .filter_map(|(site, look)| match look {
            Ok(look) if look.state == "active" => None,
            Ok(look) => Some(format!("{}: its worker is {}", site.name(), look.state)),
            Err(failure) => Some(failure.message.clone()),
        })
        .chain(found.missing.iter().map(|host| match gone(host) {
            true => format!("{host}: not in the inventory any more, so it was not asked"),
            false => format!("{host}: not reached, or its part of the deployment is gone"),
        }))
        .collect();
    match head {
        Ok(status) if status.state == "serving" && down.is_empty() => ("serving", None),
        // A serving head knows better than a unit's state: the stage answers it.
        Ok(status) if status.state == "serving" => ("serving", Some(down.join("; "))),
        Ok(status) => (
            if status.state == "starting" {
                "starting"
            } else {
                "degraded"
            },
            status
                .reason
                .clone()
                .or_else(|| (!down.is_empty()).then(|| down.join("; "))),
        ),
        Err(error) if down.is_empty() => ("degraded", Some(error.clone())),
        Err(_) if down.len() >= found.record.stages.len() => ("stopped", Some(down.join("; "))),
        Err(_) => ("degraded", Some(down.join("; "))),
    }
}

fn stage_fields(found: &Found<'_>, live: Option<&HeadStatus>) -> Value {
    found
        .record
        .stages
        .iter()
        .map(|stage| {
            let look = found
                .stages
                .iter()
                .find(|(site, _)| site.name() == stage.host)
                .map(|(site, look)| (site, look.as_ref().ok()));
            let counters = live.and_then(|s| s.stages.iter().find(|c| c.stage == stage.stage));
            json!({
                "stage": stage.stage,
                "host": stage.host,
                "first_layer": stage.first_layer,
                "layers": stage.layers,
                "piece_bytes": stage.piece_bytes,
                "data": stage.data,
                "reached": look.is_some(),
                "worker": look.and_then(|(_, l)| l).map(|l| l.state.clone()),
                "pid": look.and_then(|(_, l)| l).and_then(|l| l.pid),
                "stale": look.and_then(|(_, l)| l).map(|l| l.stale.clone()),
                "restarts": look.and_then(|(_, l)| l).and_then(|l| l.restarts),
                "keeper": look.map(|(site, _)| site.base().keeper.words()),
                "survives_reboot": look.map(|(site, _)| site.base().keeper != super::base::Keeper::Process),
                "alive": counters.map(|c| c.alive),
                "kv_used": counters.map(|c| c.kv_used),
                "kv_total": counters.map(|c| c.kv_total),
                "anonymous_bytes": counters.map(|c| c.anonymous_bytes),
            })
        })
        .collect()
}

fn text(
    found: &Found<'_>,
    behind: &[Behind],
    live: Option<&HeadStatus>,
    state: &str,
    reason: Option<&str>,
) -> String {
    let record = &found.record;
    let mut text = format!(
        "{}  {state}  {}  context {}, {} at once  up since {} by {}\n",
        record.cluster, record.model, record.context, record.concurrency, record.at, record.by
    );
    if let Some(reason) = reason {
        text.push_str(&format!("  {reason}\n"));
    }
    let width = record
        .stages
        .iter()
        .map(|s| s.host.len())
        .max()
        .unwrap_or(0);
    for stage in &record.stages {
        let look = found
            .stages
            .iter()
            .find(|(site, _)| site.name() == stage.host);
        let word = match look {
            Some((_, Ok(look))) => look.state.as_str(),
            Some((_, Err(_))) => "unknown",
            None if behind.iter().any(|one| one.host == stage.host) => "not in the inventory",
            None => "not reached",
        };
        let mut keeper = look
            .map_or("", |(site, _)| site.base().keeper.words())
            .to_owned();
        if let Some((_, Ok(look))) = look
            && !look.stale.is_empty()
        {
            let count = look.stale.len();
            let s = if count == 1 { " was" } else { "s were" };
            keeper.push_str(&format!(
                "  {count} piece{s} replaced since it began: `windlass up` starts it anew"
            ));
        }
        text.push_str(&format!(
            "  {:width$}  stage {}  layers {:>3}–{:<3}  {:>9}  {word}  {keeper}\n",
            stage.host,
            stage.stage,
            stage.first_layer,
            stage.first_layer + stage.layers.saturating_sub(1),
            size(stage.piece_bytes),
        ));
    }
    if let Some(status) = live {
        text.push_str(&format!(
            "  {} running, {} waiting, {} tokens generated\n",
            status.running, status.waiting, status.generated_tokens
        ));
    }
    for host in &found.stray {
        text.push_str(&format!(
            "  {host} holds the rest of another deployment: `windlass down --limit {host}` removes it\n"
        ));
    }
    text
}

/// Stops the cluster's deployment on all hosts that have any of it. With `pieces`, all pieces of these
/// hosts go too, also where nothing runs.
pub async fn down(
    sites: &[Site],
    inventory: &Inventory,
    run: &str,
    pieces: bool,
    check: bool,
    emitter: &Emitter,
) -> Done {
    let cluster = inventory.cluster.name.as_str();
    let mut fields = Map::new();
    fields.insert("cluster".into(), json!(cluster));
    let records = join_all(
        sites
            .iter()
            .map(|site| deployment::read_record(&site.place, cluster)),
    )
    .await;
    let one = |site, record| One {
        site,
        record,
        cluster,
        run,
        pieces,
        check,
        emitter,
    };
    let work = sites.iter().zip(&records).map(|(site, record)| {
        let one = one(site, record);
        async move { one.down().await }
    });
    let (mut stopped, mut removed, mut failures) = (Vec::new(), Map::new(), Vec::new());
    for (site, (was, bytes, failure)) in sites.iter().zip(join_all(work).await) {
        if was {
            stopped.push(site.name());
        }
        if let Some(bytes) = bytes {
            removed.insert(site.name().to_owned(), json!(bytes));
        }
        failures.extend(failure);
    }
    let nothing = stopped.is_empty() && removed.is_empty();
    fields.insert("stopped".into(), json!(stopped));
    if pieces {
        fields.insert("removed_bytes".into(), removed.into());
    }
    let known = Record::leading(
        records
            .iter()
            .filter_map(|record| record.as_ref().ok()?.as_ref()),
    );
    let behind = known.map_or_else(Vec::new, |record| not_listed(record, sites, inventory));
    for one in &behind {
        emitter.log(Level::Warn, one.sentence(cluster));
    }
    fields.insert("left_behind".into(), json!(behind));
    let failure = failures.into_iter().next().or_else(|| {
        nothing.then(|| {
            let none = if pieces {
                ", and no pieces are there"
            } else {
                ""
            };
            Failure::new(
                FailureKind::Nothing,
                format!("nothing runs under the name {cluster} on these hosts{none}"),
            )
        })
    });
    (fields, failure)
}

/// What is done on one host to take a deployment down.
struct One<'a> {
    site: &'a Site,
    record: &'a Result<Option<Record>, Failure>,
    cluster: &'a str,
    run: &'a str,
    pieces: bool,
    check: bool,
    emitter: &'a Emitter,
}

impl One<'_> {
    /// Whether it was stopped, or would be; how many bytes of pieces went, or would; why it failed.
    async fn down(&self) -> (bool, Option<u64>, Option<Failure>) {
        // A record that is not understood is still one to stop.
        let runs = !matches!(self.record, Ok(None));
        if runs && let Err(failure) = self.stop().await {
            return (false, None, Some(failure));
        }
        if !self.pieces {
            return (runs, None, None);
        }
        match self.remove_pieces().await {
            Ok(bytes) => (runs, bytes, None),
            Err(failure) => (runs, None, Some(failure)),
        }
    }

    fn task(&self, name: &str) -> Task {
        let scope = Scope::host(self.site.name()).in_task(name);
        self.emitter.task(scope, None)
    }

    async fn stop(&self) -> Result<(), Failure> {
        let task = self.task("stop");
        if self.check {
            task.finish(Status::WouldChange, "would be stopped");
            return Ok(());
        }
        let record = self.record.as_ref().ok().and_then(Option::as_ref);
        let result = stop_one(self.site, record, self.cluster, self.run).await;
        match &result {
            Ok(()) => task.finish(Status::Changed, "stopped"),
            Err(failure) => task.finish(status_of(failure), ""),
        }
        result
    }

    async fn remove_pieces(&self) -> Result<Option<u64>, Failure> {
        let place = &self.site.place;
        let Some(bytes) = deployment::held_pieces(place).await? else {
            return Ok(None);
        };
        let task = self.task("pieces");
        if self.check {
            let what = format!("{} would be removed", size(bytes));
            task.finish(Status::WouldChange, what);
            return Ok(Some(bytes));
        }
        let removed = async {
            // Somebody may be sending pieces there.
            let program = deployment::any_program(place).await?;
            let _lock = lock(self.site, program.as_deref(), self.run).await?;
            deployment::remove_pieces(place).await
        }
        .await;
        match removed {
            Ok(()) => {
                task.finish(Status::Changed, format!("{} removed", size(bytes)));
                Ok(Some(bytes))
            }
            Err(failure) => {
                task.finish(status_of(&failure), "");
                Err(failure)
            }
        }
    }
}

/// Reaches the hosts and stops what runs there under the cluster's name. A host that could not be
/// reached counts when nothing was found on the others: it may be there.
pub async fn take_down(context: &Context, pieces: bool) -> Done {
    let reached = async {
        let inventory = hosts::inventory(context)?;
        let chosen = hosts::select(context, &inventory, None)?;
        let (sites, unreached) = hosts::sites(context, &inventory, &chosen, false).await?;
        Ok((inventory, sites, unreached))
    };
    let (inventory, sites, unreached) = match reached.await {
        Ok(reached) => reached,
        Err(failure) => return (Map::new(), Some(failure)),
    };
    let (fields, failure) = down(
        &sites,
        &inventory,
        &context.run,
        pieces,
        context.check,
        &context.emitter,
    )
    .await;
    let failure = match failure {
        Some(failure) if failure.kind != FailureKind::Nothing => Some(failure),
        other => unreached.into_iter().next().or(other),
    };
    (fields, failure)
}

/// A host's lock, held with a worker's program that is there. Where that is gone, nobody else can be at
/// work either.
async fn lock(site: &Site, program: Option<&str>, run: &str) -> Result<Option<Lock>, Failure> {
    let Some(program) = program else {
        return Ok(None);
    };
    let holder = locks::holder(run);
    match locks::take(site.session(), site.base(), program, &holder).await {
        Ok(lock) => Ok(Some(lock)),
        Err(locks::NotTaken::Held(failure)) => Err(failure),
        Err(locks::NotTaken::Failed(_)) => Ok(None),
    }
}

/// Stops the worker on a host, and removes the unit that keeps it and the deployment's files.
pub(super) async fn stop_one(
    site: &Site,
    record: Option<&Record>,
    cluster: &str,
    run: &str,
) -> Result<(), Failure> {
    let stage = record.and_then(|record| record.stage_on(site.name()));
    let program = stage.map(|stage| stage.program_sha256.as_str());
    let _lock = lock(site, program, run).await?;
    deployment::remove(&site.place, cluster).await
}

/// A line from a host without what a terminal would obey.
pub fn plain(line: &str) -> String {
    line.chars()
        .map(|c| {
            if c.is_control() && c != '\t' {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn the_record_most_hosts_have_leads_and_of_equals_the_newest() {
        let old = record();
        let mut new = record();
        new.deployment = "halo-2b".into();
        new.at = "2026-02-02T00:00:00Z".into();
        let lead = |all: &[&Record]| {
            Record::leading(all.iter().copied())
                .unwrap()
                .deployment
                .clone()
        };
        assert_eq!(lead(&[&old, &new]), "halo-2b");
        assert_eq!(lead(&[&old, &old, &new]), "halo-1a");
        assert!(Record::leading(std::iter::empty()).is_none());
    }

    #[test]
    fn control_sequences_of_a_log_are_shown_and_not_obeyed() {
        assert_eq!(plain("a\u{1b}[31mb\r"), "a\u{fffd}[31mb\u{fffd}");
    }
}
