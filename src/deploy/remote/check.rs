//! `push` and `up` with `--check`: all that would be changed, as tasks, found without the worker's program
//! there and without writing anything.

use serde_json::{Map, Value, json};

use super::deployment;
use super::held;
use super::install;
use super::prepare::Prepared;
use super::reasons::Verdict;
use super::record::Record;
use super::start::record;
use super::unit::unit_name;
use super::up::{Order, decide};
use crate::event::{Emitter, Failure, Scope, Status};
use crate::figures::size;

/// The worker's program and the pieces that would be sent; of each host, how many bytes it is to hold and
/// whether any would be sent.
pub(super) async fn push(
    order: &Order,
    prepared: &Prepared<'_>,
    emitter: &Emitter,
    fields: &mut Map<String, Value>,
) -> Result<Vec<(u64, bool)>, Failure> {
    let mut would = Map::new();
    let mut all = Vec::new();
    for (member, stage) in prepared.members.iter().zip(&prepared.placement.stages) {
        let site = member.site;
        let task = emitter.task(Scope::host(site.name()).in_task("worker"), None);
        match install::look(site.session(), site.base(), member.program).await? {
            install::Have::Yes => task.finish(Status::Ok, "there already"),
            install::Have::No => task.finish(
                Status::WouldChange,
                format!("{} would be sent", size(member.program.bytes)),
            ),
        }
        let task = emitter.task(Scope::host(site.name()).in_task("push"), None);
        let planned = prepared
            .source
            .bytes(&stage.plan.slices)
            .map_err(|error| site.failed("plan", error))?;
        let lacking = held::look(
            &site.place,
            &prepared.source,
            &stage.plan.slices,
            order.verify,
        )
        .await?;
        would.insert(
            site.name().to_owned(),
            json!({
                "planned_bytes": planned,
                "missing_bytes": lacking.bytes,
                "damaged": lacking.damaged,
            }),
        );
        let damaged = match lacking.damaged.as_slice() {
            [] => String::new(),
            [one] => format!(", {one} is damaged"),
            [one, others @ ..] => format!(", {one} and {} others are damaged", others.len()),
        };
        if lacking.bytes == 0 {
            task.finish(Status::Ok, format!("{} there already", size(planned)));
        } else {
            let (lacking, planned) = (size(lacking.bytes), size(planned));
            task.finish(
                Status::WouldChange,
                format!("{lacking} of {planned} would be sent{damaged}"),
            );
        }
        all.push((planned, lacking.bytes > 0));
    }
    fields.insert("would_push".into(), would.into());
    Ok(all)
}

/// The same, and what would be written, started and stopped.
pub(super) async fn up(
    order: &Order,
    prepared: &Prepared<'_>,
    emitter: &Emitter,
    fields: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let pieces = push(order, prepared, emitter, fields).await?;
    let (planned, sent): (Vec<u64>, Vec<bool>) = pieces.into_iter().unzip();
    let record = record(order, prepared, &planned)?;
    let verdict = decide(order, prepared, &record, &sent).await?;
    let reasons = match &verdict {
        Verdict::Anew(reasons) => reasons.as_slice(),
        Verdict::First | Verdict::Serves => &[],
    };
    fields.insert("would_start".into(), json!(verdict != Verdict::Serves));
    fields.insert("reasons".into(), json!(reasons));
    if verdict == Verdict::Serves {
        let head = record.head();
        let task = emitter.task(Scope::host(head).in_task("start"), None);
        task.finish(Status::Ok, format!("{} serves already", record.model));
    } else {
        started(prepared, &record, reasons, emitter).await?;
    }
    for (site, _) in &prepared.leaving {
        let task = emitter.task(Scope::host(site.name()).in_task("stop"), None);
        task.finish(Status::WouldChange, "would be stopped, it gets no stage");
    }
    Ok(())
}

async fn started(
    prepared: &Prepared<'_>,
    record: &Record,
    reasons: &[String],
    emitter: &Emitter,
) -> Result<(), Failure> {
    let unit = unit_name(&record.cluster);
    for (member, stage) in prepared.members.iter().zip(&record.stages) {
        let would = |task: &str, what: &str| {
            let scope = Scope::worker(&stage.host, stage.stage).in_task(task);
            let task = emitter.task(scope, None);
            task.finish(Status::WouldChange, what);
        };
        would("orders", "its orders and the record would be written");
        let place = &member.site.place;
        match deployment::has_unit(place, &record.cluster, &stage.program_sha256).await? {
            Some(true) | None => {}
            Some(false) => would("unit", &format!("{unit} would be written and enabled")),
        }
        if reasons.is_empty() {
            would("start", "its worker would be started");
        } else {
            let why = reasons.join("; ");
            would("start", &format!("its worker would be started anew: {why}"));
        }
    }
    Ok(())
}
