//! The last step of `up`: from pieces in their places to a deployment that serves.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use windlass_gguf::manifest_file_name;
use windlass_wire::assignment::{ApiAssignment, Assignment, Orders};

use super::deployment::{self, CONTROL, Place};
use super::failures::all_or_first;
use super::locks;
use super::prepare::Prepared;
use super::record::{FORM, Record, StageRecord};
use super::up::{Order, first, leave};
use crate::deploy::keys;
use crate::event::{Emitter, Event, Failure, Level, Scope, Status};
use crate::plan;

/// Rows in a micro-batch.
const BATCH_ROWS: u32 = plan::demand::BATCH_ROWS;
/// How long a deployment may take to serve, beside reading its pieces.
const STARTING: Duration = Duration::from_secs(90);
/// Bytes a second that a host surely reads its pieces with.
const SLOWEST_DISK: u64 = 50 << 20;

/// What the hosts are to remember of the deployment. `planned` are the bytes of pieces of each stage.
pub(super) fn record(
    order: &Order,
    prepared: &Prepared<'_>,
    planned: &[u64],
) -> Result<Record, Failure> {
    let placement = &prepared.placement;
    let mut stages = Vec::new();
    for ((member, stage), planned) in prepared.members.iter().zip(&placement.stages).zip(planned) {
        stages.push(StageRecord {
            stage: stage.plan.stage,
            host: stage.host.clone(),
            data: member.address.to_string(),
            first_layer: stage.plan.first_layer,
            layers: stage.plan.layers,
            piece_bytes: *planned,
            threads: member.site.threads(),
            program_sha256: member.program.sha256.clone(),
            address: Some(member.site.host.address.clone()),
        });
    }
    Ok(Record {
        v: FORM,
        cluster: order.cluster.name.clone(),
        deployment: format!("{}-{}", order.cluster.name, order.run),
        version: env!("CARGO_PKG_VERSION").into(),
        worker_sha256: first(prepared)?.program.sha256.clone(),
        model: order.name.clone(),
        model_sha256: order.model_sha256.clone(),
        context: placement.context,
        concurrency: placement.concurrency,
        kv_blocks: placement.kv_blocks,
        api: order.cluster.api.listen.clone(),
        api_key_sha256: order.api_key.as_ref().map(|key| {
            use sha2::Digest;
            sha2::Sha256::digest(key.as_bytes())
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect()
        }),
        by: locks::holder(&order.run),
        at: format!("{:.0}", jiff::Timestamp::now()),
        stages,
        left_out: placement.left_out.clone(),
        left_behind: prepared.behind.clone(),
    })
}

/// Stops what ran before, writes the files, starts all, and waits until it serves.
pub(super) async fn start(
    order: &Order,
    prepared: &Prepared<'_>,
    record: &Record,
    reasons: &[String],
    emitter: &Emitter,
    fields: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let members = &prepared.members;
    let orders = orders(order, prepared, record)?;
    replaces(prepared, record, reasons, emitter, fields);
    let tasks: Vec<_> = record
        .stages
        .iter()
        .map(|s| emitter.task(Scope::worker(&s.host, s.stage).in_task("start"), None))
        .collect();
    // All are stopped before any is started: an old neighbour must not be met.
    let stopped = join_all(
        members
            .iter()
            .map(|m| deployment::stop(&m.site.place, &record.cluster)),
    );
    let result = async {
        leave(order, prepared, emitter).await?;
        all_or_first(failed(stopped.await), emitter)?;
        let started = join_all(members.iter().zip(&orders).zip(&record.stages).map(
            |((m, orders), stage)| async move {
                deployment::write_files(&m.site.place, record, orders).await?;
                deployment::start(&m.site.place, record, &stage.program_sha256).await
            },
        ))
        .await;
        all_or_first(failed(started), emitter)?;
        let places: Vec<Place> = members.iter().map(|m| m.site.place.clone()).collect();
        let head = deployment::head(
            &first(prepared)?.site.place,
            record,
            &order.paths.runtime,
            &order.run,
        )?;
        let most = record
            .stages
            .iter()
            .map(|s| s.piece_bytes)
            .max()
            .unwrap_or(0);
        let patience = STARTING + Duration::from_secs(most / SLOWEST_DISK);
        deployment::serving(&places, record, &head, patience, |state| {
            emitter.emit(
                Scope::host(record.head()).in_task("start"),
                Event::log(Level::Debug, state.to_owned()),
            );
        })
        .await
    }
    .await;
    for (task, member) in tasks.into_iter().zip(members) {
        match &result {
            Ok(_) => task.finish(
                Status::Changed,
                format!("ready, kept by a {}", member.site.base().keeper.words()),
            ),
            Err(failure) if failure.host == task.scope().host => task.finish(Status::Failed, ""),
            Err(_) => task.finish(Status::Unknown, "not ready when another host failed"),
        }
    }
    let status = result?;
    served(fields, record, true);
    fields.insert("api".into(), json!(status.api));
    Ok(())
}

fn failed(results: Vec<Result<(), Failure>>) -> Vec<Failure> {
    results.into_iter().filter_map(Result::err).collect()
}

/// Says which deployment this one takes the place of, and why.
fn replaces(
    prepared: &Prepared<'_>,
    record: &Record,
    reasons: &[String],
    emitter: &Emitter,
    fields: &mut Map<String, Value>,
) {
    let old = prepared.old();
    fields.insert(
        "replaced".into(),
        old.map_or(Value::Null, |old| {
            json!({
                "deployment": old.deployment,
                "model": old.model,
                "version": old.version,
                "changes": reasons,
            })
        }),
    );
    let Some(old) = old else { return };
    let why = reasons.join("; ");
    emitter.emit(
        Scope::host(record.head()).in_task("start"),
        Event::log(
            Level::Info,
            format!(
                "replaces {} of windlass {}, up since {} by {}, because of: {why}",
                old.model, old.version, old.at, old.by
            ),
        ),
    );
}

pub(super) fn served(fields: &mut Map<String, Value>, record: &Record, changed: bool) {
    fields.insert("deployment".into(), json!(record.deployment));
    fields.insert("head".into(), json!(record.head()));
    fields.insert("api".into(), json!(record.api));
    fields.insert("changed".into(), json!(changed));
    fields.insert("stages".into(), json!(record.stages));
}

/// What each stage is told.
fn orders(order: &Order, prepared: &Prepared<'_>, record: &Record) -> Result<Vec<Orders>, Failure> {
    let internal = |error: &dyn std::fmt::Display| Failure::internal(error.to_string()).at("start");
    let count = u32::try_from(record.stages.len()).map_err(|error| internal(&error))?;
    let mut identities = if count > 1 {
        keys::mint(&record.deployment, count)
            .map_err(|error| internal(&error))?
            .into_iter()
            .map(Some)
            .collect()
    } else {
        vec![None]
    };
    let peers: Vec<String> = record.stages.iter().map(|s| s.data.clone()).collect();
    let manifest = manifest_file_name(&record.model_sha256).map_err(|error| internal(&error))?;
    let mut all = Vec::new();
    for (member, stage) in prepared.members.iter().zip(&record.stages) {
        let base = member.site.base();
        all.push(Orders {
            assignment: Assignment {
                deployment: record.deployment.clone(),
                host: stage.host.clone(),
                stage: stage.stage,
                stages: count,
                first_layer: stage.first_layer,
                layers: stage.layers,
                listen: stage.data.clone(),
                pieces: base.pieces(&record.model_sha256).into(),
                manifest: manifest.clone(),
                identity: identities
                    .get_mut(stage.stage as usize)
                    .and_then(Option::take),
                api: (stage.stage == 0).then(|| ApiAssignment {
                    listen: record.api.clone(),
                    control: format!("{}/{CONTROL}", base.deployment(&record.cluster)).into(),
                    model: order.name.clone(),
                    api_key_sha256: record.api_key_sha256.clone(),
                }),
                context: record.context,
                kv_blocks: record.kv_blocks,
                threads: stage.threads,
                batch_rows: BATCH_ROWS,
                follow_stdin: false,
            },
            peers: peers.clone(),
            hosts: record.stages.iter().map(|s| s.host.clone()).collect(),
        });
    }
    Ok(all)
}
