//! Taking a run back.

use futures_util::future::join_all;
use serde_json::json;

use super::{changes, leave, skipped};
use crate::cli::work::{Outcome, Work};
use crate::deploy::remote::{hosts, locks};
use crate::event::{Failure, FailureKind, Scope, Status};
use crate::provision::align::work as doing;
use crate::report::plain::harmless;

/// `align --undo RUN`.
pub async fn undo(work: &Work, run: &str) -> Result<Outcome, Failure> {
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
            text.push_str(&format!("  back: {}\n", harmless(&change.words())));
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
            task.finish(Status::WouldChange, changes(record.changes.len()));
        }
        outcome.failure = failures.into_iter().next();
        return Ok(outcome);
    }
    if !wanted.is_empty() {
        let question = format!("{}take this back?", outcome.text);
        if !leave(work, question, "taking this back").await? {
            skipped(
                work,
                "undo",
                wanted.iter().map(|(host, ..)| host.name.as_str()),
            );
            return Ok(outcome);
        }
    }
    let done = join_all(wanted.iter().map(|(host, session, record)| async move {
        let task = work
            .emitter
            .task(Scope::host(&host.name).in_task("undo"), None);
        match doing::undo(session, &locks::holder(&work.run), record).await {
            Ok(undone) => {
                task.finish(Status::Changed, changes(record.changes.len()));
                Ok((host.name.as_str(), undone))
            }
            Err(error) => {
                task.finish(Status::Failed, error.message.clone());
                Err(error)
            }
        }
    }))
    .await;
    let (mut left, mut reboots) = (Vec::new(), Vec::new());
    for one in done {
        match one {
            Ok((host, undone)) => {
                left.extend(undone.left.iter().map(|what| format!("{host}: {what}")));
                if let Some(why) = &undone.reboot {
                    reboots.push(format!("{host} ({why})"));
                }
            }
            Err(failure) => failures.push(failure),
        }
    }
    failures.sort_by_key(|failure| failure.kind.exit());
    outcome.failure = failures
        .into_iter()
        .next()
        .or_else(|| remains(left, &reboots));
    Ok(outcome)
}

/// What is not as before yet: the run ends with the status for drift. `None` when all is.
fn remains(mut left: Vec<String>, reboots: &[String]) -> Option<Failure> {
    if !reboots.is_empty() {
        left.push(format!("a reboot is pending on {}", reboots.join(", ")));
    }
    let words = harmless(&left.join("; "));
    (!words.is_empty()).then(|| Failure::new(FailureKind::Drift, words))
}
