//! `windlass plan`: the model's sizes and the hosts' memory to a table, or the figures of why not.

use std::path::Path;

use serde_json::{Value, json};
use windlass_gguf::MappedGguf;

use super::arguments::{Common, PlanArguments};
use super::table::table;
use super::work::{Outcome, Work, perform_on};
use crate::deploy::fetch;
use crate::deploy::remote::deployment;
use crate::deploy::remote::hosts;
use crate::deploy::remote::prepare;
use crate::deploy::remote::record::Record;
use crate::deploy::remote::site::Site;
use crate::event::{Exit, Failure, FailureKind, Level};
use crate::figures::memory;
use crate::inventory::{self, Cluster, Inventory};
use crate::plan::{Capacity, Demand, DoesNotFit, Need, Placement, PlanError, largest_context};

/// What this machine is called where no inventory names it.
const HERE: &str = "here";

/// Plans a model.
pub fn plan(common: &Common, arguments: &PlanArguments) -> Exit {
    let arguments = arguments.clone();
    perform_on(common, "plan", None, move |work| async move {
        planned(&work, &arguments)
            .await
            .unwrap_or_else(Outcome::from)
    })
}

async fn planned(work: &Work, arguments: &PlanArguments) -> Result<Outcome, Failure> {
    let reference = fetch::reference(&arguments.model)?;
    let (sites, cluster) = sites(work).await?;
    let mut capacities = Vec::new();
    let mut devices = serde_json::Map::new();
    let mut records = Vec::new();
    for site in &sites {
        let record = deployment::read_record(&site.place, &cluster.name).await?;
        capacities.push(site.capacity(record.as_ref())?);
        records.extend(record);
        devices.insert(site.name().to_owned(), json!(site.device()?));
    }
    let options = fetch::options(&work.emitter);
    let model = fetch::fetch_task(&reference, &options, &work.emitter).await?;
    let sha256 = model.sha256.clone();
    let asked = (arguments.context, arguments.concurrency);
    let demand = tokio::task::spawn_blocking(move || demand(&model, asked))
        .await
        .map_err(|error| Failure::internal(error.to_string()))??;
    let (head, sha256) = (&cluster.head, &sha256);
    let mut outcome = decided(&demand, &capacities, head, (sha256, &records));
    for (host, device) in &devices {
        if let Some(device) = device.as_str() {
            outcome.text.push_str(&format!("{host}: {device}\n"));
        }
    }
    outcome.fields.insert("devices".into(), devices.into());
    if let Some(placement) = outcome.fields.get("plan").filter(|plan| !plan.is_null()) {
        let placed: Option<Placement> = serde_json::from_value(placement.clone()).ok();
        for remark in placed.iter().flat_map(Placement::remarks) {
            work.emitter.log(Level::Warn, remark);
        }
    }
    Ok(outcome)
}

/// The hosts to plan for: the inventory's, or this machine alone where there is none.
async fn sites(work: &Work) -> Result<(Vec<Site>, Cluster), Failure> {
    if work.common.inventory.is_none() && inventory::file::find(None, &work.paths).is_err() {
        if let Some(limit) = &work.common.limit {
            return Err(Failure::new(
                FailureKind::Usage,
                format!("--limit {limit} needs an inventory, and there is none"),
            ));
        }
        let text =
            format!("[cluster]\nname = \"{HERE}\"\n[hosts.{HERE}]\nconnection = \"local\"\n");
        let alone = Inventory::parse(Path::new("no inventory"), &text)
            .map_err(|faults| Failure::internal(format!("{faults:?}")))?;
        let chosen = hosts::select(work, &alone, None)?;
        let (sites, _) = hosts::sites(work, &alone, &chosen, true).await?;
        return Ok((sites, alone.cluster));
    }
    let inventory = hosts::inventory(work)?;
    let chosen = hosts::select(work, &inventory, None)?;
    let (sites, _) = hosts::sites(work, &inventory, &chosen, true).await?;
    let cluster = hosts::cluster(work, &inventory, &sites);
    Ok((sites, cluster))
}

/// The model's demand. Maps the file and reads its header.
fn demand(
    model: &crate::model::ModelFile,
    (context, concurrency): (Option<u32>, u32),
) -> Result<Demand, Failure> {
    let refused =
        |error: windlass_gguf::GgufError| Failure::new(FailureKind::Model, error.to_string());
    let file = MappedGguf::open(&model.path).map_err(refused)?;
    if let Some(reason) = windlass_gguf::why_unsupported(file.header()).map_err(refused)? {
        let message = format!("{} cannot be run: {reason}", model.name);
        return Err(Failure::new(FailureKind::Model, message).at("plan"));
    }
    Demand::of(
        &model.name,
        file.header(),
        &model.sha256,
        context,
        concurrency,
    )
    .map_err(|error| failure(&error))
}

fn failure(error: &PlanError) -> Failure {
    let kind = match error {
        PlanError::Model(_) | PlanError::Size { .. } => FailureKind::Model,
        _ => FailureKind::Plan,
    };
    Failure::new(kind, error.to_string()).at("plan")
}

/// The placement, or why there is none, as a table and as fields.
fn decided(
    demand: &Demand,
    capacities: &[Capacity],
    head: &str,
    (sha256, records): (&str, &[Record]),
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut field = |name: &str, value: Value| {
        outcome.fields.insert(name.to_owned(), value);
    };
    field("model", json!(demand.model));
    field("context", json!(demand.context));
    field("concurrency", json!(demand.concurrency));
    match prepare::again(demand, capacities, head, sha256, records.iter()) {
        Ok(placement) => {
            field("fits", json!(true));
            field("short_bytes", json!(0));
            field("plan", json!(placement));
            field(
                "largest_context",
                json!(largest_context(demand, capacities, head)),
            );
            outcome.text = placement_table(&placement);
        }
        Err(error) => {
            let misfit = match &*error {
                PlanError::DoesNotFit(misfit) => Some(misfit),
                _ => None,
            };
            field("fits", json!(false));
            field("short_bytes", json!(misfit.map(DoesNotFit::short_bytes)));
            field("plan", Value::Null);
            field(
                "largest_context",
                json!(misfit.and_then(|misfit| misfit.largest_context)),
            );
            field("hosts_needed", json!(misfit.map(|misfit| &misfit.hosts)));
            outcome.text = misfit.map(misfit_table).unwrap_or_default();
            outcome.failure = Some(failure(&error));
        }
    }
    outcome
}

fn placement_table(placement: &Placement) -> String {
    let rows: Vec<Vec<String>> = placement
        .stages
        .iter()
        .map(|stage| {
            let plan = &stage.plan;
            let mut row = vec![
                stage.host.clone(),
                plan.stage.to_string(),
                span(plan.first_layer, plan.layers),
            ];
            row.extend(figures(&stage.need));
            row.push(memory(stage.usable_bytes));
            row
        })
        .collect();
    let heading = [
        "HOST", "STAGE", "LAYERS", "PIECES", "KV", "WORKING", "NEEDS", "USABLE",
    ];
    let mut text = table(&heading, &rows, &[1, 2, 3, 4, 5, 6, 7]);
    text.push_str(&format!(
        "context {}, concurrency {}\n",
        placement.context, placement.concurrency
    ));
    text
}

fn misfit_table(misfit: &DoesNotFit) -> String {
    let rows: Vec<Vec<String>> = misfit
        .hosts
        .iter()
        .map(|host| {
            let mut row = vec![host.host.clone()];
            row.push(host.layers.map_or_else(|| "–".into(), |(a, n)| span(a, n)));
            row.extend(figures(&host.need));
            row.push(memory(host.least_bytes));
            row.push(memory(host.usable_bytes));
            row.push(memory(host.short_bytes()));
            row
        })
        .collect();
    let heading = [
        "HOST", "LAYERS", "PIECES", "KV", "WORKING", "NEEDS", "AT LEAST", "USABLE", "SHORT",
    ];
    table(&heading, &rows, &[1, 2, 3, 4, 5, 6, 7, 8])
}

fn figures(need: &Need) -> [String; 4] {
    [need.pieces, need.kv, need.working, need.total()].map(memory)
}

/// `0–14`: first and last layer.
fn span(first: u32, count: u32) -> String {
    format!("{first}–{}", first.saturating_add(count.saturating_sub(1)))
}
