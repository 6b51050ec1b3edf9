//! Several hosts failed at once: each is told of, and one sentence ends the run.

use crate::event::{Emitter, Event, Failure, Level, Scope};

/// Ends with the gravest of these failures. When there are several, each is told by itself, and
/// the one that ends the run names the hosts of the others.
///
/// # Errors
/// The gravest failure, the first of equals.
pub(super) fn all_or_first(mut failures: Vec<Failure>, emitter: &Emitter) -> Result<(), Failure> {
    // What broke for several hosts at once is told once.
    let mut told = Vec::new();
    failures.retain(|failure| {
        let new = !told.contains(&failure.message);
        told.push(failure.message.clone());
        new
    });
    if failures.len() > 1 {
        for failure in &failures {
            let scope = failure.host.as_ref().map_or_else(Scope::run, Scope::host);
            emitter.emit(
                match &failure.step {
                    Some(step) => scope.in_task(step),
                    None => scope,
                },
                Event::log(Level::Error, failure.message.clone()),
            );
        }
    }
    match summed(failures) {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

/// The gravest, with a word on the others.
pub(super) fn summed(mut failures: Vec<Failure>) -> Option<Failure> {
    failures.sort_by_key(|failure| failure.kind.exit());
    let mut failures = failures.into_iter();
    let mut first = failures.next()?;
    let count = failures.len();
    if count > 0 {
        let mut hosts: Vec<String> = failures.filter_map(|other| other.host).collect();
        hosts.sort();
        hosts.dedup();
        first.message = format!(
            "{} (and {count} more failure{}{})",
            first.message,
            if count == 1 { "" } else { "s" },
            if hosts.is_empty() {
                String::new()
            } else {
                format!(", on {}", hosts.join(", "))
            }
        );
    }
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Bus, FailureKind};

    fn failure(host: &str, kind: FailureKind) -> Failure {
        Failure::new(kind, format!("{host}: no"))
            .on(host)
            .at("disk")
    }

    #[test]
    fn several_failures_are_an_event_each_and_one_sentence() {
        let bus = Bus::new("r");
        let mailbox = bus.subscribe();
        assert_eq!(all_or_first(Vec::new(), &bus.emitter()), Ok(()));
        let error = all_or_first(
            vec![
                failure("h3", FailureKind::Unreachable),
                failure("h1", FailureKind::Host),
                failure("h2", FailureKind::Host),
            ],
            &bus.emitter(),
        )
        .unwrap_err();
        assert_eq!(error.message, "h1: no (and 2 more failures, on h2, h3)");
        assert_eq!(error.host.as_deref(), Some("h1"));
        bus.close();
        let mut told = Vec::new();
        while let Some(envelope) = mailbox.next() {
            let Event::Log { level, message } = &envelope.event else {
                panic!("{envelope:?}");
            };
            assert_eq!(*level, Level::Error);
            told.push((envelope.scope.host.clone().unwrap(), message.clone()));
        }
        let wanted = ["h3", "h1", "h2"].map(|host| (host.to_owned(), format!("{host}: no")));
        assert_eq!(told, wanted);
    }

    #[test]
    fn one_failure_is_told_by_the_summary_alone() {
        let bus = Bus::new("r");
        let mailbox = bus.subscribe();
        let one = failure("h1", FailureKind::Host);
        let twice = vec![one.clone(), one.clone()];
        assert_eq!(all_or_first(twice, &bus.emitter()), Err(one.clone()));
        assert_eq!(all_or_first(vec![one.clone()], &bus.emitter()), Err(one));
        bus.close();
        assert!(mailbox.next().is_none());
    }
}
