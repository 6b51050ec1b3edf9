//! The first half of `up` and `push`: everything that can be known without changing a host. Must not
//! change one.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use windlass_gguf::{GgufError, OpenGguf};

use super::behind::{self, Behind};
use super::conditions::{self, Breach};
use super::deployment;
use super::failures::all_or_first;
use super::feed::{Far, Feed};
use super::probe;
use super::program::{self, Program};
use super::record::Record;
use super::site::Site;
use super::source::Source;
use super::up::{Order, Origin};
use crate::event::{Emitter, Event, Failure, FailureKind, Level, Scope};
use crate::plan::{self, Capacity, Demand, Placement, PlanError};

/// A host with what it is to do.
pub(super) struct Member<'a> {
    pub(super) site: &'a Site,
    pub(super) program: &'a Program,
    pub(super) address: SocketAddr,
    pub(super) record: Option<Record>,
}

/// What is known before anything is changed.
pub(super) struct Prepared<'a> {
    pub(super) source: Arc<Source>,
    /// The model file.
    pub(super) model: Model,
    pub(super) placement: Placement,
    pub(super) members: Vec<Member<'a>>,
    /// Hosts that get no stage and have a record: what runs there is stopped.
    pub(super) leaving: Vec<(&'a Site, Record)>,
    /// Hosts of what ran before that are out of reach, so that it stays there.
    pub(super) behind: Vec<Behind>,
}

impl Prepared<'_> {
    /// The record of what ran before: the one that most of its hosts have.
    pub(super) fn old(&self) -> Option<&Record> {
        Record::leading(
            self.members
                .iter()
                .filter_map(|member| member.record.as_ref())
                .chain(self.leaving.iter().map(|(_, record)| record)),
        )
    }
}

/// The model file, open or with the program that opens it.
pub(super) enum Model {
    Here(Arc<OpenGguf>),
    There(Box<Far>),
}

/// Everything that can be known without changing a host: the plan, and all conditions but the data
/// path.
pub(super) async fn prepare<'a>(
    order: &'a Order,
    sites: &'a [Site],
    emitter: &Emitter,
    fields: &mut Map<String, Value>,
) -> Result<Prepared<'a>, Failure> {
    let (source, model) = opened(order).await?;

    // Architecture first: a host that cannot take part at all is told before any figure.
    let mut chosen = Vec::new();
    let mut failures = Vec::new();
    for site in sites {
        match program_for(order, site) {
            Ok(program) => chosen.push((site, program)),
            Err(failure) => failures.push(failure),
        }
    }
    let records = join_all(
        chosen
            .iter()
            .map(|(site, _)| deployment::read_record(&site.place, &order.cluster.name)),
    )
    .await;
    let mut found = Vec::new();
    for ((site, program), record) in chosen.into_iter().zip(records) {
        match record {
            Ok(record) => found.push((site, program, record)),
            Err(failure) => failures.push(failure),
        }
    }
    all_or_first(failures, emitter)?;

    let placement = placed(order, &source, &found)?;
    fields.insert("model".into(), json!(order.name));
    fields.insert("plan".into(), json!(placement));
    for remark in placement.remarks() {
        emitter.log(Level::Warn, remark);
    }
    let mut members = Vec::new();
    let mut failures = Vec::new();
    for stage in &placement.stages {
        let Some((site, program, record)) = found.iter().find(|(s, ..)| s.name() == stage.host)
        else {
            return Err(Failure::internal(format!("{} has no session", stage.host)));
        };
        match probe::resolve(&site.host.data, site.host.data_port) {
            Ok(address) => members.push(Member {
                site,
                program,
                address,
                record: record.clone(),
            }),
            Err(message) => failures.push(site.failed("data", message)),
        }
        failures.extend(
            breaches(site, &source, &stage.plan.slices)
                .into_iter()
                .map(|breach| site.failed(breach.step, breach.message)),
        );
    }
    let mut seen: Vec<SocketAddr> = Vec::new();
    for member in &members {
        // One machine may run several stages only on different ports.
        if seen.contains(&member.address) && placement.stages.len() > 1 {
            failures.push(member.site.failed(
                "data",
                format!(
                    "its data address {} is another host's too: give each its own `data` or `data_port`",
                    member.address
                ),
            ));
        }
        seen.push(member.address);
    }
    for member in &members {
        // A loopback address leads each machine to itself.
        let apart = |other: &&Member<'_>| {
            !(is_here(member.site) && is_here(other.site))
                && member.site.host.address != other.site.host.address
        };
        if member.address.ip().is_loopback() && members.iter().any(|other| apart(&other)) {
            let address = member.address.ip().to_string();
            let breach = conditions::loopback(&member.site.host.data, &address);
            failures.push(member.site.failed(breach.step, breach.message));
        }
    }
    all_or_first(failures, emitter)?;
    for member in &members {
        let sentence = member.site.device()?;
        emitter.emit(
            Scope::host(member.site.name()).in_task("plan"),
            Event::log(Level::Info, sentence),
        );
    }
    let mut prepared = Prepared {
        source,
        model,
        placement,
        members,
        leaving: Vec::new(),
        behind: Vec::new(),
    };
    let has_stage = |site: &Site| {
        prepared
            .members
            .iter()
            .any(|m| m.site.name() == site.name())
    };
    prepared.leaving = found
        .iter()
        .filter(|(site, ..)| !has_stage(site))
        .filter_map(|(site, _, record)| Some((*site, record.clone()?)))
        .collect();
    if let Some(old) = prepared.old() {
        let mut behind = behind::behind(old, &tried(sites), &order.inventory);
        // What was left behind before this one's predecessor was told then.
        behind.retain(|one| old.stage_on(&one.host).is_some());
        prepared.behind = behind;
    }
    Ok(prepared)
}

/// Names and addresses of hosts.
pub(super) fn tried(sites: &[Site]) -> Vec<(&str, &str)> {
    let sites = sites.iter();
    sites
        .map(|site| (site.name(), site.host.address.as_str()))
        .collect()
}

/// Whether a host is this machine, whatever way leads there.
fn is_here(site: &Site) -> bool {
    let address = site.host.address.parse::<std::net::IpAddr>();
    site.session().is_local() || address.is_ok_and(|address| address.is_loopback())
}

/// Opens the model file, or chooses the program that will.
async fn opened(order: &Order) -> Result<(Arc<Source>, Model), Failure> {
    let refused = |error: GgufError| Failure::new(FailureKind::Model, error.to_string()).at("plan");
    let (sha256, cache) = (order.model_sha256.clone(), order.paths.cache.clone());
    let (header, model) = match &order.origin {
        Origin::Here(path) => {
            let path = path.clone();
            let file = super::blocking("plan", move || OpenGguf::open(&path))
                .await?
                .map_err(refused)?;
            (file.header().clone(), Model::Here(Arc::new(file)))
        }
        Origin::There(found) => {
            let site = &found.site;
            let program = program_for(order, site)?;
            let far = Far {
                site: site.clone(),
                program: program.clone(),
                file: found.file.clone(),
            };
            (found.header.clone(), Model::There(Box::new(far)))
        }
    };
    let source = super::blocking("plan", move || Source::of(header, &sha256, &cache))
        .await?
        .map_err(|error| match &order.origin {
            Origin::Here(path) => {
                let message = format!("{}: {error}", path.display());
                Failure::new(FailureKind::Model, message).at("plan")
            }
            Origin::There(found) => {
                let reason = format!("{}: {error}", found.file.path);
                let mut failure = found.site.failed("plan", reason);
                failure.kind = FailureKind::Model;
                failure
            }
        })?;
    Ok((Arc::new(source), model))
}

/// The worker's program for a host.
fn program_for<'a>(order: &'a Order, site: &Site) -> Result<&'a Program, Failure> {
    let (system, arch) = (
        site.facts.system.as_deref().unwrap_or("linux"),
        site.facts
            .arch
            .as_deref()
            .unwrap_or("an unknown architecture"),
    );
    program::pick(&order.programs, system, arch, site.libc())
        .map_err(|message| site.failed("arch", message))
}

fn placed(
    order: &Order,
    source: &Source,
    found: &[(&Site, &Program, Option<Record>)],
) -> Result<Placement, Failure> {
    let of_plan = |error: PlanError| Failure::new(FailureKind::Plan, error.to_string()).at("plan");
    let demand = Demand::of(
        &order.name,
        source.header(),
        source.sha256(),
        order.context,
        order.concurrency,
    )
    .map_err(of_plan)?;
    let mut capacities = Vec::new();
    for (site, _, record) in found {
        capacities.push(site.capacity(record.as_ref())?);
    }
    let records = found.iter().filter_map(|(.., record)| record.as_ref());
    let (head, sha256) = (&order.cluster.head, source.sha256());
    again(&demand, &capacities, head, sha256, records).map_err(|error| of_plan(*error))
}

/// Places the model of this digest where the hosts' records say that it is already, while it still
/// fits there; else afresh.
///
/// # Errors
/// As [`plan::place`].
pub fn again<'r>(
    demand: &Demand,
    capacities: &[Capacity],
    head: &str,
    sha256: &str,
    records: impl Iterator<Item = &'r Record> + Clone,
) -> Result<Placement, Box<PlanError>> {
    match Record::leading(records).filter(|record| record.model_sha256 == sha256) {
        Some(record) => plan::place_again(demand, capacities, head, &record.before()),
        None => plan::place(demand, capacities, head),
    }
}

/// What does not hold on a host by what is known of it.
fn breaches(site: &Site, source: &Source, slices: &[windlass_gguf::Slice]) -> Vec<Breach> {
    let mut all = Vec::new();
    let (skew, error) = site.facts.clock.skew_seconds();
    all.extend(conditions::clock(skew, error));
    // The receiver asks again, knowing what is there already; this catches the plain case early.
    let bytes = source.bytes(slices).unwrap_or(0);
    let free = site.facts.free_bytes(&site.base().folder);
    if site
        .facts
        .disk_total(&site.base().folder)
        .is_some_and(|total| total < bytes)
    {
        all.extend(conditions::disk(&site.base().folder, bytes, free));
    }
    all
}

/// Where a host's pieces come from.
pub(super) fn feed(prepared: &Prepared<'_>, member: &Member<'_>) -> Feed {
    match &prepared.model {
        Model::Here(file) => {
            let sha256 = prepared.source.sha256().to_owned();
            Feed::Here(Arc::clone(file), sha256)
        }
        Model::There(far) if far.site.name() == member.site.name() => {
            Feed::Itself(far.file.clone())
        }
        Model::There(far) => Feed::There(far.clone()),
    }
}
