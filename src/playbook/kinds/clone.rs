//! `clone`: one host's system onto another's disk, and with `reboot` seen through its first start. A host
//! that runs from its copy already is left as it is.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::argument::{Argument, Form};
use super::work::{Acted, Done, Reached, Work, spread};
use super::{Kind, serve};
use crate::clone::{self, Reboot, Wish};
use crate::deploy::remote::context::Context;
use crate::deploy::remote::site;
use crate::event::{Failure, FailureKind, Status};
use crate::facts;
use crate::playbook::expression::Template;

/// How long a host may stay away unless said otherwise.
const PATIENCE: Duration = Duration::from_secs(600);

/// The kind.
#[derive(Debug)]
pub struct CloneSystem;

impl Kind for CloneSystem {
    fn name(&self) -> &'static str {
        "clone"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            Argument::must("from", Form::Text),
            Argument::must("to", Form::Text),
            Argument::must("disk", Form::Text),
            // An empty one is asked for.
            Argument::may("confirm", Form::Content),
            Argument::may("source", Form::Text),
            Argument::may("hostname", Form::Text),
            Argument::may("reboot", Form::Flag),
            Argument::may("reboot_timeout", Form::Time),
            Argument::may("update_inventory", Form::Flag),
        ];
        ALL
    }

    fn together(&self) -> bool {
        true
    }

    fn check(&self, arguments: &[(String, Template)]) -> Option<String> {
        let of = |name: &str| {
            let mut all = arguments.iter();
            all.find(|(given, _)| given == name)
                .map(|(_, template)| template.literal())
        };
        if let (Some(Some(from)), Some(Some(to))) = (of("from"), of("to"))
            && from == to
        {
            return Some(format!("{from} cannot be cloned onto itself"));
        }
        let further = ["reboot_timeout", "update_inventory"];
        if of("reboot").is_none() && further.iter().any(|name| of(name).is_some()) {
            return Some(format!("{} go with reboot only", further.join(" and ")));
        }
        None
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let wish = wish(work);
            let (from, to) = (host(work, &wish.from)?, host(work, &wish.to)?);
            if let Some(done) = already(work, &wish, from, to).await? {
                return Ok(all(work, &wish, Acted::default(), Some(done)));
            }
            let emitter = work.steps();
            let context = Context {
                emitter: emitter.clone(),
                ..work.context.clone()
            };
            let sessions = [from, to].map(|host| (host.host.clone(), Ok(host.session.clone())));
            let mut sites = Vec::new();
            for (_, found) in site::look(sessions.into(), &emitter).await {
                sites.push(found.map_err(|failure| failure.at(work.task))?);
            }
            let [from, to] = sites.as_slice() else {
                return Err(Failure::internal("two hosts were wanted").at(work.task));
            };
            let report = clone::between(&context, work.inventory, &wish, from, to)
                .await
                .map_err(|failure| failure.at(work.task))?;
            let mut acted = serve::came_to(work, &emitter, report.fields, None);
            if let Some(session) = report.session {
                acted.sessions.insert(wish.to.clone(), session);
            }
            if let Some(failure) = report.failure {
                let failure = failure.at(work.task);
                acted.hosts = spread(&failure, work.hosts);
            }
            acted.text = plain(&report.text);
            Ok(all(work, &wish, acted, None))
        }
        .boxed()
    }
}

fn wish(work: &Work<'_>) -> Wish {
    let given = &work.given;
    let told = |name: &str| given.text(name).map(str::to_owned);
    Wish {
        from: given.must("from").to_owned(),
        to: given.must("to").to_owned(),
        disk: given.must("disk").to_owned(),
        source: told("source"),
        confirm: told("confirm").filter(|text| !text.is_empty()),
        hostname: told("hostname"),
        reboot: given.flag("reboot").then(|| Reboot {
            patience: given.time("reboot_timeout").unwrap_or(PATIENCE),
            update_inventory: given.flag("update_inventory"),
            // A task of the kind `verify` does.
            compare: false,
        }),
        workers: work.workers.to_vec(),
    }
}

/// The task's host of this name.
fn host<'a>(work: &'a Work<'_>, name: &str) -> Result<&'a Reached, Failure> {
    let found = work.hosts.iter().find(|host| host.name() == name);
    found.ok_or_else(|| {
        let names = work.hosts.iter().map(Reached::name);
        let near = crate::nearest::nearest(name, names).unwrap_or("none");
        Failure::new(
            FailureKind::Host,
            format!("{name} is none of the task's hosts that take part (the nearest is {near})"),
        )
        .at(work.task)
    })
}

/// What is said of a target that runs from its copy already; `None` when it is to be made.
async fn already(
    work: &Work<'_>,
    wish: &Wish,
    from: &Reached,
    to: &Reached,
) -> Result<Option<Done>, Failure> {
    let running = clone::after::running(&to.session, &wish.disk)
        .await
        .map_err(|failure| failure.at(work.task))?;
    if running.record.is_empty() {
        return Ok(None);
    }
    let id = match &from.facts {
        Some(facts) => facts.machine.machine_id.clone(),
        None => {
            let facts = facts::gather(&from.session).await;
            let facts = facts.map_err(|error| work.ssh(from.name(), &error))?;
            facts.machine.machine_id
        }
    };
    let hostname = wish.hostname.as_deref().unwrap_or(&wish.to);
    Ok(running.is_copy(id.as_deref(), hostname).then(|| {
        let words = format!(
            "it runs from {} already, as a copy of {}",
            wish.disk, wish.from
        );
        Done::new(Status::Ok, words)
    }))
}

/// With what is said of the hosts that are not the target.
fn all(work: &Work<'_>, wish: &Wish, mut acted: Acted, of_target: Option<Done>) -> Acted {
    for host in work.hosts {
        let name = host.name();
        if name == wish.to {
            if let Some(done) = &of_target {
                acted.hosts.insert(name.to_owned(), Ok(done.clone()));
            }
            if let Some(Ok(done)) = acted.hosts.get_mut(name)
                && done.status == Status::Changed
            {
                done.message = format!("{} has {}'s system", wish.disk, wish.from);
            }
            continue;
        }
        if matches!(acted.hosts.get(name), Some(Err(_))) {
            continue;
        }
        let done = match name == wish.from {
            true => Done::new(Status::Ok, "the source"),
            false => Done::new(Status::Skipped, "neither source nor target"),
        };
        acted.hosts.insert(name.to_owned(), Ok(done));
    }
    acted
}

fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
    text.chars().map(plain).collect()
}
