//! Which host gets which layers. Pure: memory as numbers in, a placement or the figures of why not
//! out.
//!
//! Every host gets one run of layers, the head the first, the others in the inventory's order.
//! Where the most equal split fits, it is taken. Where it does not, layers move to where there is
//! room: as few hosts as possible stay empty, then the fullest host is as empty as can be. The same
//! input always gives the same placement.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use windlass_gguf::Slice;

use super::demand::BLOCK;
use super::misfit::{DoesNotFit, HostNeed};
use super::{Demand, Need, PlanError, StagePlan, number, slices, split};

/// What a host can give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Name of the host.
    pub host: String,
    /// Bytes of memory a worker may take.
    pub usable_bytes: u64,
    /// Threads it computes with; each has scratch of its own.
    pub threads: u32,
}

impl Capacity {
    /// Of a host with this much memory available (`MemAvailable`) and this limit by the inventory:
    /// the smaller counts.
    pub fn of(
        host: impl Into<String>,
        available: u64,
        memory_limit: Option<u64>,
        threads: u32,
    ) -> Self {
        Self {
            host: host.into(),
            usable_bytes: memory_limit.map_or(available, |limit| limit.min(available)),
            threads,
        }
    }
}

/// A stage on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedStage {
    /// The host.
    pub host: String,
    /// What it holds.
    #[serde(flatten)]
    pub plan: StagePlan,
    /// Bytes it needs.
    pub need: Need,
    /// Bytes it may take, as they were when this was decided.
    pub usable_bytes: u64,
}

/// Which host holds what, and for how much context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Tokens of context a sequence may have.
    pub context: u32,
    /// Sequences of full context for which there is room.
    pub concurrency: u32,
    /// KV blocks of each stage.
    pub kv_blocks: u32,
    /// The stages in order, the head first.
    pub stages: Vec<PlacedStage>,
    /// Hosts that hold nothing.
    pub left_out: Vec<String>,
}

impl Placement {
    /// What a person should know beside the figures: each host that is left out, and why.
    pub fn remarks(&self) -> Vec<String> {
        let layers: u32 = self.stages.iter().map(|stage| stage.plan.layers).sum();
        let full = self.stages.len() >= layers as usize;
        self.left_out
            .iter()
            .map(|host| {
                if full {
                    format!(
                        "{host} is left out: {layers} layer{} can be shared by {layers} host{} at most",
                        if layers == 1 { "" } else { "s" },
                        if layers == 1 { "" } else { "s" },
                    )
                } else {
                    format!("{host} is left out: it has no room for a stage beside the others'")
                }
            })
            .collect()
    }

    /// The stage on a host.
    pub fn on(&self, host: &str) -> Option<&PlacedStage> {
        self.stages.iter().find(|stage| stage.host == host)
    }

    /// What each host must get that it did not hold before.
    pub fn new_since(&self, before: &Placement) -> Vec<(String, Vec<Slice>)> {
        self.stages
            .iter()
            .map(|stage| {
                let had = before.on(&stage.host).map(|old| &old.plan.slices);
                let fresh = stage.plan.slices.iter().copied();
                let fresh = fresh.filter(|slice| !had.is_some_and(|had| had.contains(slice)));
                (stage.host.clone(), fresh.collect())
            })
            .collect()
    }
}

/// What was placed before, as much as is remembered of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Each host with its first layer and its number of layers, in the order of the stages.
    pub runs: Vec<(String, u32, u32)>,
    /// Hosts that held nothing.
    pub left_out: Vec<String>,
}

impl From<&Placement> for Before {
    fn from(placement: &Placement) -> Self {
        let run = |stage: &PlacedStage| {
            let plan = &stage.plan;
            (stage.host.clone(), plan.first_layer, plan.layers)
        };
        Self {
            runs: placement.stages.iter().map(run).collect(),
            left_out: placement.left_out.clone(),
        }
    }
}

/// Decides where the layers go. `capacities` are in the inventory's order; `head` names one.
///
/// # Errors
/// [`PlanError::DoesNotFit`] with all figures; or no host, no layer, or no such head.
pub fn place(
    demand: &Demand,
    capacities: &[Capacity],
    head: &str,
) -> Result<Placement, Box<PlanError>> {
    let (hosts, demand) = (in_order(capacities, head)?, demand.clone());
    let stages = hosts.len().min(demand.layers());
    // Also refuses a model without layers.
    let equal = split(&demand.parts, stages)?;
    let runs = equal_runs(&demand, &hosts, &equal).or_else(|| best_runs(&demand, &hosts));
    match runs {
        Some(runs) => Ok(placement(&demand, &hosts, &runs)),
        None => Err(Box::new(PlanError::DoesNotFit(misfit(&demand, &hosts)))),
    }
}

/// Like [`place`], but keeps what was placed before where that still fits on the same hosts: memory
/// that came or went elsewhere moves no layers. A host that runs a stage must be given with the
/// memory which that stage will free.
///
/// # Errors
/// As [`place`].
pub fn place_again(
    demand: &Demand,
    capacities: &[Capacity],
    head: &str,
    before: &Before,
) -> Result<Placement, Box<PlanError>> {
    let hosts = in_order(capacities, head)?;
    Ok(match kept_runs(demand, &hosts, before) {
        Some(runs) => placement(demand, &hosts, &runs),
        None => return place(demand, capacities, head),
    })
}

/// The runs of an earlier placement on the same hosts, if they are still possible.
fn kept_runs(demand: &Demand, hosts: &[&Capacity], before: &Before) -> Option<Runs> {
    let known = before.runs.len() + before.left_out.len();
    if known != hosts.len() {
        return None;
    }
    let mut runs = Runs::new();
    let mut next = 0;
    for (host, capacity) in hosts.iter().enumerate() {
        let run = before.runs.iter().find(|(host, ..)| *host == capacity.host);
        let Some((_, first, layers)) = run else {
            before
                .left_out
                .iter()
                .find(|left| **left == capacity.host)?;
            runs.push(None);
            continue;
        };
        let from = *first as usize;
        let to = from.checked_add(*layers as usize)?;
        // The record may be of another model, or of an order that the inventory no longer has.
        if from != next || to <= from || to > demand.layers() {
            return None;
        }
        if need(demand, hosts, host, from, to).total() > capacity.usable_bytes {
            return None;
        }
        next = to;
        runs.push(Some((from, to)));
    }
    (next == demand.layers()).then_some(runs)
}

/// The largest context, in whole blocks or as asked, at which the model fits with the demand's
/// concurrency; `None` when not even one block does.
pub fn largest_context(demand: &Demand, capacities: &[Capacity], head: &str) -> Option<u32> {
    let hosts = in_order(capacities, head).ok()?;
    largest(demand, &hosts, demand.most_context())
}

/// The head first, then the inventory's order.
fn in_order<'a>(capacities: &'a [Capacity], head: &str) -> Result<Vec<&'a Capacity>, PlanError> {
    if capacities.is_empty() {
        return Err(PlanError::NoStages);
    }
    let first = capacities
        .iter()
        .find(|capacity| capacity.host == head)
        .ok_or_else(|| PlanError::NoHead { head: head.into() })?;
    let others = capacities.iter().filter(|capacity| capacity.host != head);
    Ok(std::iter::once(first).chain(others).collect())
}

/// The layers `from..to` of each host; `None`: it is left out.
type Runs = Vec<Option<(usize, usize)>>;

fn need(demand: &Demand, hosts: &[&Capacity], host: usize, from: usize, to: usize) -> Need {
    let threads = hosts.get(host).map_or(1, |capacity| capacity.threads);
    demand.need(from, to, host == 0, to == demand.layers(), threads)
}

fn usable(hosts: &[&Capacity], host: usize) -> u64 {
    hosts.get(host).map_or(0, |capacity| capacity.usable_bytes)
}

/// The most equal split, if it fits.
fn equal_runs(demand: &Demand, hosts: &[&Capacity], equal: &[StagePlan]) -> Option<Runs> {
    let mut runs = Runs::new();
    for (host, stage) in equal.iter().enumerate() {
        let from = stage.first_layer as usize;
        let to = from + stage.layers as usize;
        if need(demand, hosts, host, from, to).total() > usable(hosts, host) {
            return None;
        }
        runs.push(Some((from, to)));
    }
    runs.resize(hosts.len(), None);
    Some(runs)
}

/// Share of the usable memory in 2^-64, at least that of any smaller need; `None`: it does not fit.
fn share(need: u64, usable: u64) -> Option<u128> {
    (need <= usable).then(|| (u128::from(need) << 64) / u128::from(usable.max(1)))
}

/// Of the placements that fit, those with the most hosts; of these, those whose fullest host is the
/// emptiest; of these, the one with the least sum of squared shares.
fn best_runs(demand: &Demand, hosts: &[&Capacity]) -> Option<Runs> {
    let layers = demand.layers();
    let fill = |host, from, to| {
        share(
            need(demand, hosts, host, from, to).total(),
            usable(hosts, host),
        )
    };
    let ((_, fullest), _) = cheapest(
        hosts.len(),
        layers,
        |host, from, to| Some((Reverse(1u32), fill(host, from, to)?)),
        |a, b| (Reverse(a.0.0 + b.0.0), a.1.max(b.1)),
    )?;
    let (_, runs) = cheapest(
        hosts.len(),
        layers,
        |host, from, to| {
            let share = fill(host, from, to).filter(|share| *share <= fullest)?;
            // In 2^-20, so that the squares of all hosts add up.
            let coarse = share >> 44;
            Some((Reverse(1u32), coarse * coarse))
        },
        |a, b| (Reverse(a.0.0 + b.0.0), a.1.saturating_add(b.1)),
    )?;
    Some(runs)
}

/// The cheapest way to share `layers` among `hosts` in order, each taking one run or none, the
/// first host the first layers. `cost` of a run (`None`: not allowed) on a host, combined by
/// `join`, which must keep order: what is cheaper before stays cheaper after.
fn cheapest<C: Ord + Copy>(
    hosts: usize,
    layers: usize,
    cost: impl Fn(usize, usize, usize) -> Option<C>,
    join: impl Fn(C, C) -> C,
) -> Option<(C, Runs)> {
    /// The best total for the layers before a point, and the run that ends there, if one does.
    type Cell<C> = Option<(C, Option<usize>)>;
    let mut table: Vec<Vec<Cell<C>>> = Vec::with_capacity(hosts);
    for host in 0..hosts {
        let previous = table.last();
        let mut row: Vec<Cell<C>> = vec![None; layers + 1];
        for (end, slot) in row.iter_mut().enumerate().skip(1) {
            let Some(previous) = previous else {
                *slot = cost(host, 0, end).map(|total| (total, Some(0)));
                continue;
            };
            let mut least = None;
            if let Some((total, _)) = previous.get(end).copied().flatten() {
                least = Some((total, None));
            }
            for start in 1..end {
                let Some((before, _)) = previous.get(start).copied().flatten() else {
                    continue;
                };
                let Some(run) = cost(host, start, end) else {
                    continue;
                };
                let total = join(before, run);
                if least.is_none_or(|(known, _)| total < known) {
                    least = Some((total, Some(start)));
                }
            }
            *slot = least;
        }
        table.push(row);
    }
    let (total, _) = table.last()?.get(layers).copied().flatten()?;
    let mut runs: Runs = vec![None; hosts];
    let mut end = layers;
    for (row, run) in table.iter().zip(runs.iter_mut()).rev() {
        if let Some((_, Some(start))) = row.get(end).copied().flatten() {
            *run = Some((start, end));
            end = start;
        }
    }
    Some((total, runs))
}

fn placement(demand: &Demand, hosts: &[&Capacity], runs: &Runs) -> Placement {
    let mut stages: Vec<PlacedStage> = Vec::new();
    let mut left_out = Vec::new();
    for (host, (capacity, run)) in hosts.iter().zip(runs).enumerate() {
        let Some((from, to)) = *run else {
            left_out.push(capacity.host.clone());
            continue;
        };
        let (first, last) = (host == 0, to == demand.layers());
        stages.push(PlacedStage {
            host: capacity.host.clone(),
            plan: StagePlan {
                stage: number(stages.len()),
                first_layer: number(from),
                layers: number(to - from),
                bytes: demand.parts.bytes(from, to, first, last),
                slices: slices(
                    number(from),
                    number(to),
                    first,
                    last,
                    demand.parts.tied_output,
                ),
            },
            need: need(demand, hosts, host, from, to),
            usable_bytes: capacity.usable_bytes,
        });
    }
    Placement {
        context: demand.context,
        concurrency: demand.concurrency,
        kv_blocks: demand.kv_blocks(),
        stages,
        left_out,
    }
}

/// The figures of a model that does not fit: the placement that is short of the fewest bytes.
fn misfit(demand: &Demand, hosts: &[&Capacity]) -> DoesNotFit {
    let layers = demand.layers();
    let lacking = |host, from, to| {
        let need = need(demand, hosts, host, from, to).total();
        u128::from(need.saturating_sub(usable(hosts, host)))
    };
    let (_, runs) = cheapest(
        hosts.len(),
        layers,
        // Where as many bytes are short, more hosts come nearer to working.
        |host, from, to| Some((lacking(host, from, to), Reverse(1u32))),
        |a, b| (a.0 + b.0, Reverse(a.1.0 + b.1.0)),
    )
    .unwrap_or_default();
    let table = hosts
        .iter()
        .zip(&runs)
        .enumerate()
        .map(|(host, (capacity, run))| HostNeed {
            host: capacity.host.clone(),
            layers: run.map(|(from, to)| (number(from), number(to - from))),
            need: run.map_or_else(Need::default, |(from, to)| {
                need(demand, hosts, host, from, to)
            }),
            least_bytes: least(demand, hosts, host),
            usable_bytes: capacity.usable_bytes,
        })
        .collect();
    DoesNotFit {
        model: demand.model.clone(),
        context: demand.context,
        concurrency: demand.concurrency,
        hosts: table,
        largest_context: largest(demand, hosts, demand.context),
    }
}

/// The least a host needs to hold any stage at all: the head its first layer, another host the
/// smallest.
fn least(demand: &Demand, hosts: &[&Capacity], host: usize) -> u64 {
    let starts = if host == 0 { 0..1 } else { 1..demand.layers() };
    starts
        .map(|from| need(demand, hosts, host, from, from + 1).total())
        .min()
        .unwrap_or_default()
}

fn fits(demand: &Demand, hosts: &[&Capacity]) -> bool {
    cheapest(
        hosts.len(),
        demand.layers(),
        |host, from, to| {
            (need(demand, hosts, host, from, to).total() <= usable(hosts, host)).then_some(())
        },
        |(), ()| (),
    )
    .is_some()
}

/// By halving: more context never needs less memory.
fn largest(demand: &Demand, hosts: &[&Capacity], most: u32) -> Option<u32> {
    let at = |blocks: u32| blocks.saturating_mul(BLOCK).min(most);
    let fits_at = |blocks| fits(&demand.with_context(at(blocks)), hosts);
    if most == 0 || !fits_at(1) {
        return None;
    }
    let (mut good, mut bad) = (1, most.div_ceil(BLOCK) + 1);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits_at(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Some(at(good))
}

#[cfg(test)]
mod tests;
