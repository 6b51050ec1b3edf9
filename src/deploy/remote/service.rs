//! A deployment that exists: finding it on its hosts, telling how it is, stopping it. All that is
//! needed lies on the hosts, so any controller can do it.

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use windlass_wire::telemetry::HeadStatus;

use super::context::Context;
use super::deployment::{self, Place};
use super::hosts;
use super::locks;
use super::record::Record;
use super::site::{Site, status_of};
use super::unit::Look;
use super::up::Done;
use crate::event::{Emitter, Failure, FailureKind, Scope, Status};
use crate::figures::size;
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
                stages.push((*site, deployment::look(&site.place, cluster).await));
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
    cluster: &str,
    paths: &Paths,
    run: &str,
) -> (Map<String, Value>, String, Option<Failure>) {
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
    let (state, reason) = state(&found, head_status.as_ref());
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
    let live = head_status.as_ref().ok();
    fields.insert("stages".into(), stage_fields(&found, live));
    if let Some(status) = live {
        fields.insert("running".into(), json!(status.running));
        fields.insert("waiting".into(), json!(status.waiting));
        fields.insert("generated_tokens".into(), json!(status.generated_tokens));
        fields.insert("uptime_s".into(), json!(status.uptime_s));
    }
    let text = text(&found, live, state, reason.as_deref());
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

/// One word for the whole, and why.
fn state(found: &Found<'_>, head: Result<&HeadStatus, &String>) -> (&'static str, Option<String>) {
    let down: Vec<String> = found
        .stages
        .iter()
        .filter_map(|(site, look)| match look {
            Ok(look) if look.state == "active" => None,
            Ok(look) => Some(format!("{}: its worker is {}", site.name(), look.state)),
            Err(failure) => Some(failure.message.clone()),
        })
        .chain(
            found
                .missing
                .iter()
                .map(|host| format!("{host}: not reached, or its part of the deployment is gone")),
        )
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

fn text(found: &Found<'_>, live: Option<&HeadStatus>, state: &str, reason: Option<&str>) -> String {
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
            None => "not reached",
        };
        let keeper = look.map_or("", |(site, _)| site.base().keeper.words());
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

/// Stops the cluster's deployment on all hosts that have any of it. With `pieces`, their pieces go
/// too.
pub async fn down(
    sites: &[Site],
    cluster: &str,
    run: &str,
    pieces: bool,
    check: bool,
    emitter: &Emitter,
) -> Done {
    let mut fields = Map::new();
    fields.insert("cluster".into(), json!(cluster));
    let records = join_all(
        sites
            .iter()
            .map(|site| deployment::read_record(&site.place, cluster)),
    )
    .await;
    let mut stopped = Vec::new();
    let mut failures = Vec::new();
    let work = sites.iter().zip(&records).map(|(site, record)| async move {
        // A record that is not understood is still one to stop.
        if matches!(record, Ok(None)) {
            return None;
        }
        let task = emitter.task(Scope::host(site.name()).in_task("stop"), None);
        if check {
            task.finish(Status::WouldChange, "would be stopped");
            return Some(Ok(site.name().to_owned()));
        }
        let result = stop_one(
            site,
            record.as_ref().ok().and_then(Option::as_ref),
            cluster,
            run,
            pieces,
        )
        .await;
        match &result {
            Ok(_) => task.finish(Status::Changed, "stopped"),
            Err(failure) => task.finish(status_of(failure), ""),
        }
        Some(result)
    });
    for result in join_all(work).await.into_iter().flatten() {
        match result {
            Ok(name) => stopped.push(name),
            Err(failure) => failures.push(failure),
        }
    }
    fields.insert("stopped".into(), json!(stopped));
    let failure = failures.into_iter().next().or_else(|| {
        stopped.is_empty().then(|| {
            Failure::new(
                FailureKind::Nothing,
                format!("nothing runs under the name {cluster} on these hosts"),
            )
        })
    });
    (fields, failure)
}

/// Reaches the hosts and stops what runs there under the cluster's name. A host that could not be
/// reached counts when nothing was found on the others: it may be there.
pub async fn take_down(context: &Context, pieces: bool) -> Done {
    let reached = async {
        let inventory = hosts::inventory(context)?;
        let chosen = hosts::select(context, &inventory, None)?;
        let (sites, unreached) = hosts::sites(context, &inventory, &chosen, false).await?;
        Ok((inventory.cluster.name, sites, unreached))
    };
    let (cluster, sites, unreached) = match reached.await {
        Ok(reached) => reached,
        Err(failure) => return (Map::new(), Some(failure)),
    };
    let (fields, failure) = down(
        &sites,
        &cluster,
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

async fn stop_one(
    site: &Site,
    record: Option<&Record>,
    cluster: &str,
    run: &str,
    pieces: bool,
) -> Result<String, Failure> {
    // The lock needs the worker's program; where that is gone, nobody else can be at work either.
    let program = record.and_then(|record| record.stage_on(site.name()));
    let _lock = match program {
        Some(stage) => {
            match locks::take(
                site.session(),
                site.base(),
                &stage.program_sha256,
                &locks::holder(run),
            )
            .await
            {
                Ok(lock) => Some(lock),
                Err(locks::NotTaken::Held(failure)) => return Err(failure),
                Err(locks::NotTaken::Failed(_)) => None,
            }
        }
        None => None,
    };
    deployment::remove(&site.place, cluster, pieces).await?;
    Ok(site.name().to_owned())
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
