//! `windlass align`: shows what would make the hosts the same, asks, does it, compares again; or takes
//! such a run back. Decides nothing about what is done.

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use super::arguments::{AlignArguments, Common};
use super::verify::{self, Read};
use super::work::{Outcome, Work, perform};
use crate::deploy::remote::{hosts, locks};
use crate::event::{Exit, Failure, FailureKind, Scope, Status};
use crate::provision::align::{self, Plan, work as doing};
use crate::provision::drift::{self, compare};

/// Runs the command.
pub fn align(common: &Common, arguments: &AlignArguments) -> Exit {
    let arguments = arguments.clone();
    perform(common, "align", Vec::new(), move |work| async move {
        let done = match &arguments.undo {
            Some(run) => undo(&work, run).await,
            None => run(&work, arguments.against.as_deref()).await,
        };
        done.unwrap_or_else(Outcome::from)
    })
}

async fn run(work: &Work, against: Option<&str>) -> Result<Outcome, Failure> {
    let (reference, read, failures) = verify::read_all(work, against).await?;
    let comparison = compare(&reference, &verify::seen(&read), drift::rules());
    let Some(source) = read.iter().find(|read| read.host.name == reference) else {
        return Err(Failure::internal(format!(
            "the reference {reference} was not read"
        )));
    };
    let plans: Vec<(&Read, Plan)> = read
        .iter()
        .filter(|read| read.host.name != reference)
        .map(|read| {
            let host = align::Subject {
                host: &read.host.name,
                settings: &read.settings,
                user: read.facts.login.user.as_deref().unwrap_or("root"),
            };
            (read, align::plan(&comparison, host, &source.settings))
        })
        .collect();
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
    let changes: usize = plans.iter().map(|(_, plan)| plan.changes.len()).sum();
    let mut failure = failures.into_iter().next();
    if work.common.check || changes == 0 {
        for (read, plan) in &plans {
            let task = work
                .emitter
                .task(Scope::host(&read.host.name).in_task("align"), None);
            match plan.changes.len() {
                0 => task.finish(Status::Ok, "nothing to change"),
                count => task.finish(Status::WouldChange, counted(count)),
            }
        }
        outcome.failure = failure.or_else(|| match work.common.check {
            true => None,
            false => left(&reference, &plans),
        });
        return Ok(outcome);
    }
    match work
        .asker
        .leave(
            Scope::run(),
            format!("{}\nmake these changes?", outcome.text),
        )
        .await
    {
        Some(true) => {}
        Some(false) => {
            let mut refused = Outcome::from(Failure::new(
                FailureKind::Interrupted,
                "nothing was changed",
            ));
            refused.fields = outcome.fields;
            return Ok(refused);
        }
        None => {
            let mut refused = Outcome::from(Failure::new(
                FailureKind::Usage,
                format!(
                    "{changes} changes wait for a yes: give --yes, or --check to see them only"
                ),
            ));
            refused.fields = outcome.fields;
            refused.text = outcome.text;
            return Ok(refused);
        }
    }
    let made = join_all(
        plans
            .iter()
            .filter(|(_, plan)| !plan.changes.is_empty())
            .map(|(read, plan)| async move {
                let task = work
                    .emitter
                    .task(Scope::host(&read.host.name).in_task("align"), None);
                match make(work, read, plan).await {
                    Ok(()) => {
                        task.finish(Status::Changed, counted(plan.changes.len()));
                        Ok(())
                    }
                    Err(error) => {
                        task.finish(Status::Failed, error.message.clone());
                        Err(error)
                    }
                }
            }),
    )
    .await;
    outcome.fields.insert("undo".into(), json!(work.run));
    outcome.text.push_str(&format!(
        "\nto take this back: windlass align --undo {}\n",
        work.run
    ));
    failure = made.into_iter().find_map(Result::err).or(failure);
    outcome.failure = failure.or_else(|| left(&reference, &plans));
    Ok(outcome)
}

/// Makes one host's changes.
async fn make(work: &Work, read: &Read, plan: &Plan) -> Result<(), Failure> {
    let session = &read.session;
    let _lock = doing::lock(session, &locks::holder(&work.run)).await?;
    doing::begin(session, &work.run, &plan.changes, &read.settings).await?;
    for change in &plan.changes {
        doing::apply(session, change).await?;
    }
    Ok(())
}

/// What stays different: the run ends with the status for drift. `None` when nothing does.
fn left(reference: &str, plans: &[(&Read, Plan)]) -> Option<Failure> {
    let by_hand: usize = plans.iter().map(|(_, plan)| plan.by_hand.len()).sum();
    let reboots: Vec<&str> = plans
        .iter()
        .filter(|(_, plan)| plan.reboot.is_some())
        .map(|(read, _)| read.host.name.as_str())
        .collect();
    let mut what = Vec::new();
    if by_hand > 0 {
        what.push(match by_hand {
            1 => format!("1 difference to {reference} is left to be mended by hand"),
            count => format!("{count} differences to {reference} are left to be mended by hand"),
        });
    }
    if !reboots.is_empty() {
        what.push(format!("a reboot is pending on {}", reboots.join(", ")));
    }
    (!what.is_empty()).then(|| Failure::new(FailureKind::Drift, what.join("; ")))
}

async fn undo(work: &Work, run: &str) -> Result<Outcome, Failure> {
    if !run.bytes().all(|byte| byte.is_ascii_alphanumeric()) || run.is_empty() {
        return Err(Failure::new(
            FailureKind::Usage,
            format!("{run:?} is no run: letters and digits, as `windlass align` printed them"),
        ));
    }
    let inventory = hosts::inventory(work)?;
    let selected = hosts::select(work, &inventory, None)?;
    let sessions = hosts::connect(work, &inventory, &selected).await?;
    let found = join_all(sessions.into_iter().map(|(host, session)| async move {
        let session = session?;
        let record = doing::record(&session, run).await?;
        let others = match record {
            Some(_) => Vec::new(),
            None => doing::runs(&session).await.unwrap_or_default(),
        };
        Ok::<_, Failure>((host, session, record, others))
    }))
    .await;
    let mut failures = Vec::new();
    let (mut wanted, mut others) = (Vec::new(), Vec::new());
    for result in found {
        match result {
            Ok((host, session, Some(record), _)) => wanted.push((host, session, record)),
            Ok((_, _, None, runs)) => others.extend(runs),
            Err(failure) => failures.push(failure),
        }
    }
    if wanted.is_empty() && failures.is_empty() {
        others.sort_unstable();
        others.dedup();
        let known = match others.is_empty() {
            true => "none is kept there".to_owned(),
            false => format!("kept are {}", others.join(", ")),
        };
        return Err(Failure::new(
            FailureKind::Nothing,
            format!("no host keeps what takes the run {run} back; {known}"),
        ));
    }
    let mut text = String::new();
    for (host, _, record) in &wanted {
        text.push_str(&format!("{}\n", host.name));
        for change in record.changes.iter().rev() {
            text.push_str(&format!("  back: {}\n", change.words()));
        }
    }
    let mut outcome = Outcome {
        text,
        ..Outcome::default()
    };
    outcome.fields.insert("undone".into(), json!(run));
    if work.common.check {
        for (host, _, record) in &wanted {
            let task = work
                .emitter
                .task(Scope::host(&host.name).in_task("undo"), None);
            task.finish(Status::WouldChange, counted(record.changes.len()));
        }
        outcome.failure = failures.into_iter().next();
        return Ok(outcome);
    }
    if !wanted.is_empty() {
        match work
            .asker
            .leave(Scope::run(), format!("{}take this back?", outcome.text))
            .await
        {
            Some(true) => {}
            Some(false) => {
                return Err(Failure::new(
                    FailureKind::Interrupted,
                    "nothing was changed",
                ));
            }
            None => {
                return Err(Failure::new(
                    FailureKind::Usage,
                    "taking a run back waits for a yes: give --yes, or --check to see it only",
                ));
            }
        }
    }
    let done = join_all(wanted.iter().map(|(host, session, record)| async move {
        let task = work
            .emitter
            .task(Scope::host(&host.name).in_task("undo"), None);
        let undone = async {
            let _lock = doing::lock(session, &locks::holder(&work.run)).await?;
            doing::undo(session, record).await
        };
        match undone.await {
            Ok(()) => {
                task.finish(Status::Changed, counted(record.changes.len()));
                Ok(())
            }
            Err(error) => {
                task.finish(Status::Failed, error.message.clone());
                Err(error)
            }
        }
    }))
    .await;
    failures.extend(done.into_iter().filter_map(Result::err));
    failures.sort_by_key(|failure| failure.kind.exit());
    outcome.failure = failures.into_iter().next();
    Ok(outcome)
}

fn counted(count: usize) -> String {
    match count {
        1 => "1 change".to_owned(),
        count => format!("{count} changes"),
    }
}

fn shown(plan: &Plan) -> Value {
    let words = plan.changes.iter().map(align::Change::words);
    json!({
        "changes": words.collect::<Vec<_>>(),
        "by_hand": plan.by_hand,
        "reboot": plan.reboot,
    })
}

fn text(reference: &str, plans: &[(&Read, Plan)]) -> String {
    let plain = |text: String| -> String {
        text.chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect()
    };
    let mut out = String::new();
    for (read, plan) in plans {
        out.push_str(&format!("{}\n", read.host.name));
        if plan.changes.is_empty() && plan.by_hand.is_empty() {
            out.push_str(&format!("  as {reference}\n"));
        }
        for change in &plan.changes {
            out.push_str(&format!("  {}\n", plain(change.words())));
        }
        for one in &plan.by_hand {
            let key = one
                .key
                .as_ref()
                .map(|key| format!(" {key}"))
                .unwrap_or_default();
            out.push_str(&plain(format!(
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
