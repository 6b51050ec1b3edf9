//! `windlass verify`: whether the hosts are the same where it matters; the table of what is not, and
//! the summary. Decides nothing about what matters.

mod text;

use std::net::IpAddr;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::arguments::{Common, VerifyArguments};
use super::work::{Outcome, Work, perform};
use crate::deploy::remote::hosts;
use crate::event::{Event, Exit, Failure, FailureKind, Level, Scope, Status};
use crate::facts::{Facts, Settings, settings};
use crate::figures::counted;
use crate::inventory::Host;
use crate::nearest::nearest;
use crate::provision::drift::{self, Bad, Comparison, Seen, compare, known_bad};
use crate::ssh::Session;

/// A host and what was read of it.
pub(super) struct Read {
    /// The host.
    pub host: Host,
    /// Its session.
    pub session: Session,
    /// Its facts.
    pub facts: Facts,
    /// What is installed and set there.
    pub settings: Settings,
}

/// Runs the command.
pub fn verify(common: &Common, arguments: &VerifyArguments) -> Exit {
    let against = arguments.against.clone();
    perform(common, "verify", Vec::new(), move |work| async move {
        match run(&work, against.as_deref()).await {
            Ok(outcome) => outcome,
            Err(failure) => failure.into(),
        }
    })
}

async fn run(work: &Work, against: Option<&str>) -> Result<Outcome, Failure> {
    let (reference, read, failures) = read_all(work, against).await?;
    Ok(judged(work, &reference, &read, failures))
}

/// Reads all hosts of the run. Returns the reference's name, what was read, and why the others were
/// not, the gravest first.
pub(super) async fn read_all(
    work: &Work,
    against: Option<&str>,
) -> Result<(String, Vec<Read>, Vec<Failure>), Failure> {
    let inventory = hosts::inventory(work)?;
    let selected = hosts::select(work, &inventory, None)?;
    if let Some(against) = against
        && !selected.iter().any(|host| host.name == against)
    {
        let names = selected.iter().map(|host| host.name.as_str());
        let near = nearest(against, names).map(|near| format!("; the nearest is {near}"));
        return Err(Failure::new(
            FailureKind::Nothing,
            format!(
                "the reference {against} is none of the hosts that are compared{}",
                near.unwrap_or_default()
            ),
        ));
    }
    let sessions = hosts::connect(work, &inventory, &selected).await?;
    let found = join_all(sessions.into_iter().map(|(host, session)| async {
        let session = session?;
        read(work, host, session).await
    }))
    .await;
    let mut failures = Vec::new();
    let mut read = Vec::new();
    for result in found {
        match result {
            Ok(one) => read.push(one),
            Err(failure) => failures.push(failure),
        }
    }
    failures.sort_by_key(|failure: &Failure| failure.kind.exit());
    let reference = against.unwrap_or(&inventory.cluster.head);
    let reference = match read.iter().find(|read| read.host.name == reference) {
        Some(read) => read.host.name.clone(),
        None if against.is_some() => {
            // Without it there is nothing to compare with; why it is missing was told.
            let failure = failures.into_iter().find(|f| f.host.as_deref() == against);
            return Err(failure.unwrap_or_else(|| {
                Failure::internal(format!("the reference {reference} was not read"))
            }));
        }
        None => match read.first() {
            Some(first) => first.host.name.clone(),
            None => {
                let failure = failures.into_iter().next();
                return Err(failure.unwrap_or_else(|| Failure::internal("no host was read")));
            }
        },
    };
    Ok((reference, read, failures))
}

/// Reads a host: facts and settings at once.
pub(super) async fn read(work: &Work, host: Host, session: Session) -> Result<Read, Failure> {
    let (facts, settings) = tokio::join!(
        super::facts::one(work, &host, &session),
        settings::gather(&session)
    );
    let facts = facts?;
    let settings = settings.unwrap_or_else(|error| {
        // What is unknown is shown as such; the facts are compared all the same.
        work.emitter.emit(
            Scope::host(&host.name),
            Event::log(Level::Warn, error.failure(&host.name).message),
        );
        Settings::default()
    });
    Ok(Read {
        host,
        session,
        facts,
        settings,
    })
}

/// What was read, to be compared.
pub(super) fn seen<'a>(read: impl IntoIterator<Item = &'a Read>) -> Vec<Seen<'a>> {
    read.into_iter()
        .map(|read| Seen {
            host: &read.host.name,
            facts: &read.facts,
            settings: Some(&read.settings),
            data: read.host.data.parse::<IpAddr>().ok(),
        })
        .collect()
}

fn judged(work: &Work, reference: &str, read: &[Read], failures: Vec<Failure>) -> Outcome {
    let seen = seen(read);
    let comparison = compare(reference, &seen, drift::rules());
    let bad: Vec<Bad> = seen
        .iter()
        .flat_map(|seen| known_bad(seen, drift::known_bad::entries()))
        .collect();
    for one in &seen {
        let task = work
            .emitter
            .task(Scope::host(one.host).in_task("verify"), None);
        let (status, words) = verdict(one.host, &comparison, &bad);
        task.finish(status, words);
    }
    let mut outcome = Outcome {
        text: text::text(&comparison, &bad),
        ..Outcome::default()
    };
    let fields = [
        ("reference", json!(comparison.reference)),
        ("drift", to_value(&comparison.rows)),
        ("equal", json!(comparison.equal)),
        ("untold", json!(comparison.untold)),
        ("known_bad", to_value(&bad)),
    ];
    for (name, value) in fields {
        outcome.fields.insert(name.into(), value);
    }
    outcome.failure = failures
        .into_iter()
        .next()
        .or_else(|| drifted(&comparison, &bad));
    outcome
}

fn to_value(value: impl serde::Serialize) -> Value {
    // Rows hold texts alone.
    serde_json::to_value(value).unwrap_or_default()
}

/// What is said of one host.
fn verdict(host: &str, comparison: &Comparison, bad: &[Bad]) -> (Status, String) {
    let count = |of: fn(&drift::Row) -> &std::collections::BTreeSet<String>| {
        comparison
            .rows
            .iter()
            .filter(|row| of(row).contains(host))
            .count()
    };
    let differs = count(|row| &row.differs);
    let unknown = count(|row| &row.unknown);
    let bad = bad.iter().filter(|bad| bad.host == host).count();
    let mut words = Vec::new();
    if differs > 0 {
        words.push(counted(differs, "difference", "differences"));
    }
    if bad > 0 {
        words.push(format!("{bad} known bad"));
    }
    if unknown > 0 {
        words.push(format!("{unknown} unknown"));
    }
    match (words.is_empty(), differs + bad) {
        (true, _) if host == comparison.reference => (Status::Ok, "the reference".into()),
        (true, _) => (Status::Ok, format!("as {}", comparison.reference)),
        (false, 0) => (Status::Unknown, words.join(", ")),
        (false, _) => (Status::Failed, words.join(", ")),
    }
}

/// Why the run ends with the status for drift; `None` when all is as it should be.
fn drifted(comparison: &Comparison, bad: &[Bad]) -> Option<Failure> {
    let mut hosts = comparison.drifted();
    hosts.extend(bad.iter().map(|bad| bad.host.as_str()));
    if hosts.is_empty() {
        return None;
    }
    let names: Vec<&str> = hosts.into_iter().collect();
    let rows = comparison.rows.len();
    let mut what = Vec::new();
    if rows > 0 {
        what.push(counted(rows, "difference", "differences"));
    }
    if !bad.is_empty() {
        what.push(format!("{} known bad", bad.len()));
    }
    Some(Failure::new(
        FailureKind::Drift,
        format!(
            "{} against {}, on {}; the table says why each matters and what mends it",
            what.join(" and "),
            comparison.reference,
            names.join(", ")
        ),
    ))
}
