//! Reading hosts whole: facts, and what is installed and set, all hosts at once. Must not know what
//! they are read for.

use super::context::Context;
use super::hosts;
use crate::event::{Event, Failure, FailureKind, Level, Scope, Status};
use crate::facts::{self, Facts, Settings, clock, settings};
use crate::inventory::Host;
use crate::nearest::nearest;
use crate::ssh::Session;

/// How sure the comparison of clocks must be before it is measured again, nanoseconds.
const SURE_NS: u64 = 50_000_000;

/// A host and what was read of it.
pub struct Read {
    /// The host.
    pub host: Host,
    /// Its facts.
    pub facts: Facts,
    /// What is installed and set there.
    pub settings: Settings,
}

/// What was read of all hosts: the reference's name (`against`, else the cluster's head, else the first
/// that was read), each host with what is kept of its session, and why the others were not read, the
/// gravest first.
pub type All<T> = (String, Vec<(Read, T)>, Vec<Failure>);

/// Reads all hosts of the run. Each host's session ends when it is read, unless `keep` keeps it: memory
/// then follows how many are read at a time.
///
/// # Errors
/// When no host is left, none could be read, or the one that `against` names could not.
pub async fn read_all<T>(
    context: &Context,
    against: Option<&str>,
    keep: impl Fn(Session) -> T,
) -> Result<All<T>, Failure> {
    let inventory = hosts::inventory(context)?;
    let selected = hosts::select(context, &inventory, None)?;
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
    let shared = settings::Shared::default();
    let found = hosts::each(context, &inventory, &selected, async |host, session| {
        let mut read = read(context, host, &session).await?;
        shared.take(&mut read.settings);
        Ok((read, keep(session)))
    })
    .await?;
    let mut failures = Vec::new();
    let mut read = Vec::new();
    for (_, result) in found {
        match result {
            Ok(one) => read.push(one),
            Err(failure) => failures.push(failure),
        }
    }
    failures.sort_by_key(|failure: &Failure| failure.kind.exit());
    let reference = against.unwrap_or(&inventory.cluster.head);
    let reference = match read.iter().find(|(read, _)| read.host.name == reference) {
        Some((read, _)) => read.host.name.clone(),
        None if against.is_some() => {
            // Without it there is nothing to compare with; why it is missing was told.
            let failure = failures.into_iter().find(|f| f.host.as_deref() == against);
            return Err(failure.unwrap_or_else(|| {
                Failure::internal(format!("the reference {reference} was not read"))
            }));
        }
        None => match read.first() {
            Some((first, _)) => first.host.name.clone(),
            None => {
                let failure = failures.into_iter().next();
                return Err(failure.unwrap_or_else(|| Failure::internal("no host was read")));
            }
        },
    };
    Ok((reference, read, failures))
}

/// Reads a host: facts and settings at once.
///
/// # Errors
/// When its facts cannot be read.
pub async fn read(context: &Context, host: &Host, session: &Session) -> Result<Read, Failure> {
    let (facts, settings) = tokio::join!(facts(context, host, session), settings::gather(session));
    let facts = facts?;
    let settings = settings.unwrap_or_else(|error| {
        // What is unknown is shown as such; the facts are compared all the same.
        context.emitter.emit(
            Scope::host(&host.name),
            Event::log(Level::Warn, error.failure(&host.name).message),
        );
        Settings::default()
    });
    Ok(Read {
        host: host.clone(),
        facts,
        settings,
    })
}

/// Reads a host's facts, as a task of the run.
///
/// # Errors
/// When they cannot be read.
pub async fn facts(context: &Context, host: &Host, session: &Session) -> Result<Facts, Failure> {
    let task = context
        .emitter
        .task(Scope::host(&host.name).in_task("facts"), None);
    let read = async {
        let mut facts = facts::gather(session).await?;
        // A slow way leaves the first comparison vague. A host that cannot be asked again still has
        // its facts.
        let vague = |skew: clock::Skew| skew.uncertain_ns > SURE_NS;
        if facts.clock.skew.is_none_or(vague)
            && let Ok(skew) = clock::measure(session).await
        {
            facts.clock.skew = Some(skew);
        }
        Ok::<_, crate::ssh::SshError>(facts)
    };
    match read.await {
        Ok(facts) => {
            task.finish(Status::Ok, facts.headline());
            Ok(facts)
        }
        Err(error) => {
            let failure = error.failure(&host.name);
            let status = match failure.kind {
                FailureKind::Unreachable | FailureKind::Refused => Status::Unreachable,
                _ => Status::Failed,
            };
            task.finish(status, error.to_string());
            Err(failure)
        }
    }
}
