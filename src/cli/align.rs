//! `windlass align`: shows what would make the hosts the same, asks, does it, compares again; or takes
//! such a run back. Decides nothing about what is done.
//!
//! - `alone`: one host after the other, with a reboot where that is needed.
//! - `undo`: taking a run back.

mod alone;
mod undo;

use std::ops::Deref;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use super::arguments::{AlignArguments, Common, Reboot};
use super::verify::{self, Read};
use super::work::{Outcome, Work, perform};
use crate::deploy::remote::locks;
use crate::event::bus::Task;
use crate::event::{Event, Exit, Failure, FailureKind, Level, Scope, Status};
use crate::figures::counted;
use crate::provision::align::{self, Plan, STEP, work as doing};
use crate::provision::boot::Ground;
use crate::provision::drift::{self, Comparison, compare};
use crate::report::plain::harmless;
use crate::ssh::Session;

/// Runs the command.
pub fn align(common: &Common, arguments: &AlignArguments) -> Exit {
    let arguments = arguments.clone();
    perform(common, "align", Vec::new(), move |work| async move {
        let done = match &arguments.undo {
            Some(run) => undo::undo(&work, run).await,
            None => run(&work, arguments.against.as_deref(), arguments.reboot).await,
        };
        done.unwrap_or_else(Outcome::from)
    })
}

async fn run(work: &Work, against: Option<&str>, reboot: Reboot) -> Result<Outcome, Failure> {
    let keep = |session| session;
    let (reference, read, failures) = verify::read_all(work, against, keep).await?;
    let read: Vec<Open> = read
        .into_iter()
        .map(|(read, session)| Open { read, session })
        .collect();
    let seen = verify::seen(read.iter().map(Deref::deref));
    let comparison = compare(&reference, &seen, drift::rules());
    let (sources, others): (Vec<Open>, Vec<Open>) = read
        .into_iter()
        .partition(|read| read.host.name == reference);
    let Some(source) = sources.into_iter().next() else {
        return Err(Failure::internal(format!(
            "the reference {reference} was not read"
        )));
    };
    let (told, from) = (&comparison, &source);
    let there = match reboot.reboot {
        true => doing::ground(&source.session).await.ok(),
        false => None,
    };
    let ahead = reboot.reboot.then_some(there.as_ref());
    let plans = join_all(others.into_iter().map(|read| async move {
        let plan = planned(work, told, &read, from, ahead).await;
        (read, plan)
    }))
    .await;
    let mut outcome = Outcome {
        text: text(&reference, &plans),
        ..Outcome::default()
    };
    let shown: Map<String, Value> = plans
        .iter()
        .map(|(read, plan)| (read.host.name.clone(), shown(plan)))
        .collect();
    outcome.fields.insert("reference".into(), json!(reference));
    outcome
        .fields
        .insert("hosts_planned".into(), Value::Object(shown));
    let waiting: usize = plans.iter().map(|(_, plan)| plan.changes.len()).sum();
    let reboots = reboot.reboot && plans.iter().any(|(_, plan)| plan.reboot.is_some());
    let failure = failures.into_iter().next();
    if work.common.check || (waiting == 0 && !reboots) {
        for (read, plan) in &plans {
            let task = task(work, &read.host.name);
            match plan.changes.len() {
                0 => task.finish(Status::Ok, "nothing to change"),
                count => task.finish(Status::WouldChange, changes(count)),
            }
        }
        outcome.failure = failure.or_else(|| match work.common.check {
            true => None,
            false => left(&reference, &plans),
        });
        return Ok(outcome);
    }
    let wish = match reboots {
        true => "make these changes and reboot, one host after the other?",
        false => "make these changes?",
    };
    let question = format!("{}\n{wish}", outcome.text);
    match leave(work, question, &changes(waiting)).await {
        Ok(true) => {}
        Ok(false) => {
            skipped(
                work,
                STEP,
                plans.iter().map(|(read, _)| read.host.name.as_str()),
            );
            return Ok(outcome);
        }
        Err(failure) => {
            outcome.failure = Some(failure);
            return Ok(outcome);
        }
    }
    if waiting > 0 {
        outcome.fields.insert("undo".into(), json!(work.run));
        outcome.text.push_str(&format!(
            "\nto take this back: windlass align --undo {}\n",
            work.run
        ));
    }
    let (made, plans) = match reboot.reboot {
        true => alone::all(work, &source, plans, reboot).await?,
        false => (make_all(work, &plans).await, plans),
    };
    if reboot.reboot {
        let shown = plans.iter().map(|(read, plan)| (&read.host.name, plan));
        let left: Map<String, Value> = shown
            .map(|(name, plan)| (name.clone(), json!(plan.by_hand)))
            .collect();
        outcome.fields.insert("left".into(), Value::Object(left));
    }
    outcome.failure = made.or(failure).or_else(|| left(&reference, &plans));
    Ok(outcome)
}

/// A host that was read and is still reached.
struct Open {
    read: Read,
    session: Session,
}

impl Deref for Open {
    type Target = Read;

    fn deref(&self) -> &Read {
        &self.read
    }
}

/// What is to be done on a host by a comparison with the reference. With `ahead`, what the host's next
/// boot brings is taken back too where that boot is to be; in it is what the reference's next boot goes
/// by, where that is known.
async fn planned(
    work: &Work,
    comparison: &Comparison,
    read: &Open,
    source: &Read,
    ahead: Option<Option<&Ground>>,
) -> Plan {
    let name = &read.host.name;
    let ground = match ahead.is_some() || align::plan::needs_ground(comparison, name) {
        true => doing::ground(&read.session).await,
        false => Ok(Ground::default()),
    };
    if let Err(error) = &ground {
        let event = Event::log(Level::Warn, error.message.clone());
        work.emitter.emit(Scope::host(name).in_task(STEP), event);
    }
    let host = align::Subject {
        host: name,
        settings: &read.settings,
        user: read.facts.login.user.as_deref().unwrap_or("root"),
        interface: verify::interface(&read.read),
        ground: ground.as_ref().ok(),
    };
    let mut plan = align::plan(comparison, host, &source.settings);
    if plan.reboot.is_none() {
        plan.reboot = doing::pending(&read.session).await;
    }
    if let (Some(reference), Some(ground), Some(why)) = (ahead, host.ground, &plan.reboot) {
        let rows = align::plan::next_boot(comparison, name, ground, reference);
        if !rows.is_empty() {
            let why = why.clone();
            let mut comparison = comparison.clone();
            comparison.rows.extend(rows);
            plan = align::plan(&comparison, host, &source.settings);
            plan.reboot.get_or_insert(why);
        }
    }
    plan
}

/// Makes the changes of all hosts at once; the first that failed.
async fn make_all(work: &Work, plans: &[(Open, Plan)]) -> Option<Failure> {
    let open = plans.iter().filter(|(_, plan)| !plan.changes.is_empty());
    let made = join_all(open.map(|(read, plan)| async move {
        let task = task(work, &read.host.name);
        let made = make(work, &read.session, plan).await;
        match &made {
            Ok(()) => task.finish(Status::Changed, changes(plan.changes.len())),
            Err(error) => task.finish(Status::Failed, error.message.clone()),
        }
        made
    }))
    .await;
    made.into_iter().find_map(Result::err)
}

/// Makes the changes of a host.
async fn make(work: &Work, session: &Session, plan: &Plan) -> Result<(), Failure> {
    if plan.changes.is_empty() {
        return Ok(());
    }
    let holder = locks::holder(&work.run);
    doing::make(session, &work.run, &holder, plan).await
}

fn task(work: &Work, host: &str) -> Task {
    work.emitter.task(Scope::host(host).in_task(STEP), None)
}

/// What stays different: the run ends with the status for drift. `None` when nothing does.
fn left(reference: &str, plans: &[(Open, Plan)]) -> Option<Failure> {
    let by_hand: usize = plans.iter().map(|(_, plan)| plan.by_hand.len()).sum();
    let reboots: Vec<&str> = plans
        .iter()
        .filter(|(_, plan)| plan.reboot.is_some())
        .map(|(read, _)| read.host.name.as_str())
        .collect();
    let mut what = Vec::new();
    if by_hand > 0 {
        let differences = counted(by_hand, "difference", "differences");
        what.push(format!(
            "left to be mended by hand: {differences} to {reference}"
        ));
    }
    if !reboots.is_empty() {
        what.push(format!("a reboot is pending on {}", reboots.join(", ")));
    }
    (!what.is_empty()).then(|| Failure::new(FailureKind::Drift, what.join("; ")))
}

/// Asks for leave; an error where nobody can be asked.
async fn leave(work: &Work, question: String, what: &str) -> Result<bool, Failure> {
    let answer = work.asker.leave(Scope::run(), question).await;
    answer.ok_or_else(|| {
        Failure::new(
            FailureKind::Usage,
            format!("{what} needs leave, and nobody can be asked here: give --yes, or --check to see it only"),
        )
    })
}

/// Tells that a person said no.
fn skipped<'a>(work: &Work, task: &str, hosts: impl Iterator<Item = &'a str>) {
    for host in hosts {
        let task = work.emitter.task(Scope::host(host).in_task(task), None);
        task.finish(Status::Skipped, "nothing was changed");
    }
}

fn changes(count: usize) -> String {
    counted(count, "change", "changes")
}

fn shown(plan: &Plan) -> Value {
    let words = plan.changes.iter().map(align::Change::words);
    json!({
        "changes": words.collect::<Vec<_>>(),
        "by_hand": plan.by_hand,
        "reboot": plan.reboot,
    })
}

fn text(reference: &str, plans: &[(Open, Plan)]) -> String {
    let mut out = String::new();
    for (read, plan) in plans {
        out.push_str(&format!("{}\n", read.host.name));
        if plan.changes.is_empty() && plan.by_hand.is_empty() {
            out.push_str(&format!("  as {reference}\n"));
        }
        for change in &plan.changes {
            out.push_str(&format!("  {}\n", harmless(&change.words())));
        }
        for one in &plan.by_hand {
            let key = one
                .key
                .as_ref()
                .map(|key| format!(" {key}"))
                .unwrap_or_default();
            out.push_str(&harmless(&format!(
                "  by hand, {}{key}: {}",
                one.subject, one.line
            )));
            out.push('\n');
        }
        if let Some(why) = &plan.reboot {
            out.push_str(&format!("  takes effect with the next reboot: {why}\n"));
        }
    }
    out
}
