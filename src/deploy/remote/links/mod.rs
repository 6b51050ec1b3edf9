//! `net`: the links between hosts, measured over their data addresses, and what is wrong with them.
//! Must not know how that is shown.
//!
//! - [`pairs`]: which links, and what is known of them beforehand; [`verdict`]: what is wrong. Pure.
//! - [`pair`]: one link, measured by the worker's program on both ends.
//! - [`before`]: what was measured earlier.

pub mod before;
mod pair;
pub mod pairs;
pub mod verdict;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::conditions::Breach;
use super::context::Context;
use super::failures::summed;
use super::locks::{self, Lock, NotTaken};
use super::probe::{self, Endpoint};
use super::program::{self, Program};
use super::site::{Site, status_of};
use super::{hosts, install, order};
use crate::event::{Event, Failure, FailureKind, Level, Scope, Status};
use crate::figures::rate;
use crate::inventory::{Connection, Inventory};
use before::History;
use verdict::{Before, End, Finding, Measured};

/// What somebody wants measured.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Hosts: one means its links to all others, several those among them.
    pub selector: Option<String>,
    /// How long each direction counts.
    pub time: Duration,
    /// Whether links without a common host are measured at once.
    pub at_once: bool,
    /// Whether earlier figures are not compared with.
    pub forget: bool,
    /// Programs of the worker to choose from, before the one beside this program.
    pub workers: Vec<PathBuf>,
}

/// A link and what came of it.
#[derive(Clone, Debug)]
pub struct Link {
    /// The end that measured.
    pub from: End,
    /// The other.
    pub to: End,
    /// Where the other listened, `ip:port`; the address alone when it did not.
    pub address: String,
    /// What was measured.
    pub measured: Option<Measured>,
    /// What was measured before.
    pub before: Option<Before>,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Why nothing was measured.
    pub error: Option<String>,
}

impl Link {
    /// The link for scripts.
    pub fn json(&self) -> Value {
        let measured = self.measured.as_ref();
        json!({
            "from": self.from.host,
            "to": self.to.host,
            "address": self.address,
            "interfaces": [self.interface(0), self.interface(1)],
            "nominal_mbit": verdict::nominal(&self.from, &self.to),
            "there_mbit": measured.map(|m| m.there_mbit),
            "back_mbit": measured.map(|m| m.back_mbit),
            "round_trip_us": measured.map(|m| json!({
                "count": m.trips.count, "least": m.trips.least,
                "median": m.trips.median, "p99": m.trips.p99,
            })),
            "mtu_bytes": [self.from.mtu_bytes, self.to.mtu_bytes],
            "packet_bytes": measured.and_then(|m| m.packets.back),
            "before": self.before,
            "findings": self.findings,
            "error": self.error,
        })
    }

    /// The interface at an end: 0 measured, 1 listened.
    pub fn interface(&self, at: usize) -> Option<&str> {
        let end = if at == 0 { &self.from } else { &self.to };
        match &self.measured {
            Some(measured) => {
                let carriers = measured.carriers.get(at).map_or(&[][..], Vec::as_slice);
                verdict::carrier(end, carriers, measured.bytes)
            }
            None => end.interface.as_deref(),
        }
    }
}

/// Links, and how the run ends.
#[derive(Debug, Default)]
pub struct Report {
    /// The links.
    pub links: Vec<Link>,
    /// The gravest of what failed; else what was found.
    pub failure: Option<Failure>,
}

/// Reaches the hosts and measures.
///
/// # Errors
/// When inventory, hosts, or the worker's program cannot be had.
pub async fn measure(context: &Context, wish: &Wish) -> Result<Report, Failure> {
    let inventory = hosts::inventory(context)?;
    let chosen = hosts::select(context, &inventory, wish.selector.as_deref())?;
    let one = match chosen.as_slice() {
        [only] if wish.selector.is_some() => Some(only.name.clone()),
        _ => None,
    };
    // One host's links lead to all that the run may touch.
    let wanted = match one {
        Some(_) => hosts::select(context, &inventory, None)?,
        None => chosen,
    };
    if wanted.len() < 2 {
        return Err(Failure::new(
            FailureKind::Nothing,
            "a link has two ends, and the run is about one host: name more of them, or add hosts to the inventory",
        ));
    }
    let (sites, failures) = hosts::sites(context, &inventory, &wanted, false).await?;
    of_sites(context, &inventory, &sites, one.as_deref(), wish, failures).await
}

/// Measures the links among hosts that were reached; `one`: only that host's. `failures` are of
/// hosts that were not reached.
///
/// # Errors
/// When the worker's program cannot be had.
pub async fn of_sites(
    context: &Context,
    inventory: &Inventory,
    sites: &[Site],
    one: Option<&str>,
    wish: &Wish,
    mut failures: Vec<Failure>,
) -> Result<Report, Failure> {
    let one = match one {
        None => None,
        Some(name) => match sites.iter().position(|site| site.name() == name) {
            Some(at) => Some(at),
            None => {
                let failure = summed(failures);
                return Ok(Report {
                    failure,
                    ..Report::default()
                });
            }
        },
    };
    let programs = order::programs(&wish.workers)?;
    let at = before::path(&context.paths.state, &inventory.cluster.name);
    let earlier = match wish.forget {
        true => Ok(History::default()),
        false => before::read(&at),
    };
    let mut history = earlier.unwrap_or_else(|error| {
        context.emitter.log(
            Level::Warn,
            format!(
                "earlier figures in {} cannot be read ({error}): nothing is compared with them",
                at.display()
            ),
        );
        History::default()
    });
    // Two names of one machine would take its lock from each other, and write one file at once.
    let known = |at: usize, site: &Site| {
        let boot = site.facts.machine.boot_id.as_ref();
        let mut earlier = sites.iter().take(at);
        boot.is_some() && earlier.any(|other| other.facts.machine.boot_id.as_ref() == boot)
    };
    let mut ready = join_all(sites.iter().enumerate().map(|(at, site)| {
        let (programs, again) = (&programs, known(at, site));
        async move {
            match again {
                true => None,
                false => Some(Ready::of(context, site, programs, false).await),
            }
        }
    }))
    .await;
    for (found, site) in ready.iter_mut().zip(sites) {
        if found.is_none() {
            *found = Some(Ready::of(context, site, &programs, true).await);
        }
    }
    // Until all is measured.
    let mut held: Vec<Lock> = Vec::new();
    let mut usable: Vec<Option<Ready<'_>>> = Vec::new();
    for found in ready.into_iter().flatten() {
        match found {
            Ok((found, lock)) => {
                held.extend(lock);
                usable.push(Some(found));
            }
            Err(failure) => {
                let scope = failure.host.as_ref().map_or_else(Scope::run, Scope::host);
                context
                    .emitter
                    .emit(scope, Event::log(Level::Error, failure.message.clone()));
                failures.push(failure);
                usable.push(None);
            }
        }
    }
    let wanted: Vec<(usize, usize)> = pairs::pairs(sites.len(), one)
        .into_iter()
        .filter(|(a, b)| {
            [a, b]
                .iter()
                .all(|i| usable.get(**i).is_some_and(Option::is_some))
        })
        .collect();
    let mut links = Vec::new();
    for round in pairs::rounds(&wanted, wish.at_once) {
        let measured = join_all(round.iter().filter_map(|(a, b)| {
            let from = usable.get(*a)?.as_ref()?;
            let to = usable.get(*b)?.as_ref()?;
            Some(link(context, from, to, wish, &history))
        }))
        .await;
        for (link, failure) in measured {
            failures.extend(failure);
            learn(&mut history, &link);
            links.push(link);
        }
    }
    if !context.check
        && links.iter().any(|link| link.measured.is_some())
        && let Err(error) = before::write(&at, &history)
    {
        context.emitter.log(
            Level::Warn,
            format!("the figures cannot be kept in {}: {error}", at.display()),
        );
    }
    drop(held);
    let failure = summed(failures).or_else(|| found(&links));
    Ok(Report { links, failure })
}

/// Figures that are worse than before do not become the measure of later ones.
fn learn(history: &mut History, link: &Link) {
    let Some(measured) = &link.measured else {
        return;
    };
    if link.findings.iter().any(|f| f.kind.worse_than_before()) {
        return;
    }
    let figures = Before {
        time: format!("{:.0}", jiff::Timestamp::now()),
        there_mbit: measured.there_mbit,
        back_mbit: measured.back_mbit,
        round_trip_us: measured.trips.median,
    };
    history.learn(&link.from.host, &link.to.host, figures);
}

/// What was found, as the run's end.
fn found(links: &[Link]) -> Option<Failure> {
    let mut all = links.iter().flat_map(|link| &link.findings);
    let first = all.next()?;
    let more = all.count();
    let rest = match more {
        0 => String::new(),
        1 => " (and 1 more finding)".to_owned(),
        more => format!(" (and {more} more findings)"),
    };
    Some(
        Failure::new(FailureKind::Drift, format!("{}{rest}", first.message))
            .on(&first.host)
            .at("link"),
    )
}

/// A host that can be measured from and to.
pub(super) struct Ready<'a> {
    site: &'a Site,
    endpoint: Endpoint,
    /// Where SSH reaches it.
    control: Option<IpAddr>,
}

impl<'a> Ready<'a> {
    /// `again`: its machine is ready under another name already.
    async fn of(
        context: &Context,
        site: &'a Site,
        programs: &[Program],
        again: bool,
    ) -> Result<(Self, Option<Lock>), Failure> {
        let (system, arch) = (
            site.facts.system.as_deref().unwrap_or("linux"),
            site.facts
                .arch
                .as_deref()
                .unwrap_or("an unknown architecture"),
        );
        let program = program::pick(programs, system, arch, site.libc())
            .map_err(|message| site.failed("arch", message))?;
        let address = probe::resolve(&site.host.data, site.host.data_port)
            .map_err(|message| site.failed("data", message))?;
        let control = match site.host.connection {
            Connection::Local => None,
            Connection::Ssh => probe::resolve(&site.host.address, 0)
                .ok()
                .map(|address| address.ip()),
        };
        let mut lock = None;
        if !context.check {
            install::put(site.session(), site.base(), program, &context.emitter).await?;
            // What is pushed meanwhile would be measured too.
            let holder = locks::holder(&context.run);
            lock = match locks::take(site.session(), site.base(), &program.sha256, &holder).await {
                Ok(lock) => Some(lock),
                // By this very run.
                Err(NotTaken::Held(_)) if again => None,
                Err(why) => return Err(why.into()),
            };
        }
        let ready = Self {
            site,
            endpoint: Endpoint {
                session: site.session().clone(),
                base: site.base().clone(),
                worker_sha256: program.sha256.clone(),
                address,
                // A worker that runs there proves by itself that the port can be had.
                own_worker: true,
            },
            control,
        };
        Ok((ready, lock))
    }

    fn end(&self) -> End {
        let data = self.endpoint.address.ip();
        pairs::end(self.site.name(), &self.site.facts, data, self.control)
    }
}

/// One link: measured, judged, told.
async fn link(
    context: &Context,
    from: &Ready<'_>,
    to: &Ready<'_>,
    wish: &Wish,
    history: &History,
) -> (Link, Option<Failure>) {
    let (mut near, mut far) = (from.end(), to.end());
    pairs::other_way((&mut near, &mut far), (&from.site.facts, &to.site.facts));
    let scope = Scope::host(&near.host).in_task(format!("link to {}", far.host));
    let task = context.emitter.task(scope.clone(), None);
    let mut link = Link {
        address: to.endpoint.address.ip().to_string(),
        before: history.of(&near.host, &far.host),
        from: near,
        to: far,
        measured: None,
        findings: Vec::new(),
        error: None,
    };
    // One machine at one address has no link to measure.
    let same = link.from.boot_id.is_some() && link.from.boot_id == link.to.boot_id;
    let came = if context.check || same {
        Ok(None)
    } else {
        measured(context, from, to, &mut link, wish, &scope)
            .await
            .map(Some)
    };
    let failure = match came {
        Ok(measured) => {
            link.measured = measured;
            link.findings = verdict::judge(
                &link.from,
                &link.to,
                link.measured.as_ref(),
                link.before.as_ref(),
            );
            None
        }
        Err(failure) => {
            link.error = Some(failure.message.clone());
            Some(failure)
        }
    };
    for finding in &link.findings {
        let scope = Scope::host(&finding.host).in_task("link");
        context
            .emitter
            .emit(scope, Event::log(Level::Warn, finding.message.clone()));
    }
    let (status, message) = match (&failure, &link.measured) {
        (Some(failure), _) => (status_of(failure), failure.message.clone()),
        (None, None) if same => (Status::Failed, "one machine".to_owned()),
        (None, None) => (
            Status::Skipped,
            format!(
                "would be measured for {} s each way, at {} port {}",
                wish.time.as_secs_f64(),
                link.address,
                to.endpoint.address.port()
            ),
        ),
        (None, Some(measured)) => {
            let status = match link.findings.is_empty() {
                true => Status::Ok,
                false => Status::Failed,
            };
            let figures = format!(
                "{} there, {} back, round trip {:.0} µs",
                rate(measured.there_mbit),
                rate(measured.back_mbit),
                measured.trips.median
            );
            (status, figures)
        }
    };
    task.finish(status, message);
    (link, failure)
}

async fn measured(
    context: &Context,
    from: &Ready<'_>,
    to: &Ready<'_>,
    link: &mut Link,
    wish: &Wish,
    scope: &Scope,
) -> Result<Measured, Failure> {
    let nonce = pair::nonce().map_err(Failure::internal)?;
    let ends = [from.endpoint.clone(), to.endpoint.clone()];
    let failures: Vec<Failure> = probe::check(&ends, &nonce)
        .await
        .into_iter()
        .filter_map(|(at, breach)| Some(failed([from, to].get(at)?.site, &breach)))
        .collect();
    if let Some(failure) = summed(failures) {
        return Err(failure);
    }
    let streams = pairs::streams(verdict::nominal(&link.from, &link.to));
    let asked = pair::Asked {
        nonce: &nonce,
        time: wish.time,
        streams,
    };
    let tell = |what: &str, bytes: u64| {
        context.emitter.emit(
            scope.clone(),
            Event::Transfer {
                what: what.to_owned(),
                done: bytes,
                total: None,
            },
        );
    };
    let (address, measured) = pair::measure(&from.endpoint, &to.endpoint, &asked, tell)
        .await
        .map_err(|broken| match broken {
            pair::Broken::Breach(breach) => failed(from.site, &breach),
            pair::Broken::Session(failure) => failure,
            pair::Broken::Stalled(words, packets) => {
                let lost = verdict::lost(&link.from, &link.to, packets);
                link.findings.extend(lost);
                let why = match link.findings.first() {
                    Some(_) => "full packets are lost on it".to_owned(),
                    None => {
                        let host = to.site.name();
                        format!("look at the cable, and whether {host} is still on (`windlass facts {host}`)")
                    }
                };
                from.site.failed("link", format!("{words}; {why}"))
            }
        })?;
    link.address = address;
    Ok(measured)
}

fn failed(site: &Site, breach: &Breach) -> Failure {
    site.failed(breach.step, &breach.message)
}
