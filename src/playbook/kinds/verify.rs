//! `verify`: what must be the same on all hosts, compared with a reference: named fields, or all that
//! the rules of `verify` ask, and then also what is known bad.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use super::Kind;
use super::argument::{Argument, Form};
use super::work::{Acted, Done, Reached, Work};
use crate::event::{Failure, FailureKind, Status};
use crate::facts::{self, Facts, Settings, settings};
use crate::provision::drift::subjects::{self, SUBJECTS};
use crate::provision::drift::{self, Bad, Comparison, Needs, Row, Rule, Seen, compare};

/// Names of what can be compared, for the argument.
const NAMES: &[&str] = &{
    let mut names = [""; SUBJECTS.len()];
    let mut at = 0;
    while at < names.len() {
        #[expect(
            clippy::indexing_slicing,
            reason = "computed when it is compiled, within both lengths"
        )]
        {
            names[at] = SUBJECTS[at].name;
        }
        at += 1;
    }
    names
};

/// What is read of a host.
pub(super) type Found = (Facts, Option<Settings>);

/// The kind.
#[derive(Debug)]
pub struct Verify;

impl Kind for Verify {
    fn name(&self) -> &'static str {
        "verify"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            Argument::may("equal", Form::Words(NAMES)),
            Argument::may("against", Form::Text),
        ];
        ALL
    }

    fn main(&self) -> Option<&'static str> {
        Some("equal")
    }

    fn together(&self) -> bool {
        true
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let named = work.given.texts("equal");
            let rules = rules(&named);
            let wide = rules
                .iter()
                .any(|rule| subjects::of_settings(&rule.subject));
            let read = join_all(work.hosts.iter().map(|host| async move {
                (host, found(work, host, host.facts.as_ref(), wide).await)
            }))
            .await;
            let reference = reference(work, &read)?;
            let seen = seen(&read);
            let comparison = compare(&reference, &seen, &rules);
            // Who names fields asks for nothing else.
            let bad = match named.is_empty() {
                true => drift::bad(&seen),
                false => Vec::new(),
            };
            let mut acted = Acted::default();
            for (host, found) in &read {
                let verdict = match found {
                    Err(failure) => Err(failure.clone()),
                    Ok((facts, _)) => {
                        let seen = seen.iter().find(|seen| seen.host == host.name());
                        judge(&comparison, &bad, host.name(), seen, &rules)
                            .map(|mut done| {
                                done.facts = Some(Box::new(facts.clone()));
                                done
                            })
                            .map_err(|differs| work.failed(host.name(), differs))
                    }
                };
                acted.hosts.insert(host.name().to_owned(), verdict);
            }
            Ok(acted)
        }
        .boxed()
    }
}

/// The rules of the task: the fields that were named must be equal, or all that there are.
fn rules(equal: &[String]) -> Vec<Rule> {
    if equal.is_empty() {
        return drift::rules().to_vec();
    }
    equal
        .iter()
        .map(|subject| Rule {
            subject: subject.clone(),
            needs: Needs::Equal,
            limit: None,
            why: String::new(),
            mend: String::new(),
            systems: Vec::new(),
        })
        .collect()
}

/// What was read, to be compared.
pub(super) fn seen<'a>(read: &'a [(&Reached, Result<Found, Failure>)]) -> Vec<Seen<'a>> {
    read.iter()
        .filter_map(|(host, found)| {
            let (facts, settings) = found.as_ref().ok()?;
            Some(Seen {
                host: host.name(),
                facts,
                settings: settings.as_ref(),
                data: host.host.data.parse().ok(),
            })
        })
        .collect()
}

/// Reads a host. `known`: facts that are not read again. `wide`: settings too.
pub(super) async fn found(
    work: &Work<'_>,
    host: &Reached,
    known: Option<&Facts>,
    wide: bool,
) -> Result<Found, Failure> {
    let facts = async {
        match known {
            Some(facts) => Ok(facts.clone()),
            None => facts::gather(&host.session).await,
        }
    };
    let settings = async {
        match wide {
            true => settings::gather(&host.session).await.map(Some),
            false => Ok(None),
        }
    };
    let (facts, settings) = tokio::join!(facts, settings);
    let failed = |error| work.ssh(host.name(), &error);
    Ok((facts.map_err(failed)?, settings.map_err(failed)?))
}

/// The host that the others are compared with; the first that said its facts.
pub(super) fn reference(
    work: &Work<'_>,
    read: &[(&Reached, Result<Found, Failure>)],
) -> Result<String, Failure> {
    let Some(against) = work.given.text("against") else {
        let first = read.iter().find(|(_, found)| found.is_ok());
        return Ok(first
            .map(|(host, _)| host.name().to_owned())
            .unwrap_or_default());
    };
    if read.iter().any(|(host, _)| host.name() == against) {
        return Ok(against.to_owned());
    }
    let names = read.iter().map(|(host, _)| host.name());
    let near = crate::nearest::nearest(against, names).unwrap_or("none");
    Err(Failure::new(
        FailureKind::Host,
        format!("the reference {against} is none of the task's hosts (the nearest is {near})"),
    )
    .at(work.task))
}

/// What is said of a host; `Err` with what differs, and what is known bad.
fn judge(
    comparison: &Comparison,
    bad: &[Bad],
    host: &str,
    seen: Option<&Seen<'_>>,
    rules: &[Rule],
) -> Result<Done, String> {
    let reference = comparison.reference.as_str();
    let text = |row: &Row, of: &str| {
        let value = row.values.get(of).cloned().flatten();
        value.unwrap_or_else(|| "unknown".to_owned())
    };
    let name = |row: &Row| match &row.key {
        Some(key) => format!("{} {key}", row.subject),
        None => row.subject.clone(),
    };
    let mut differs: Vec<String> = comparison
        .rows
        .iter()
        .filter(|row| row.differs.contains(host))
        .map(|row| {
            let (own, other) = (text(row, host), text(row, reference));
            match row.needs {
                Needs::Differ => format!("{} {own} is another host's too", name(row)),
                Needs::AtMost => format!("{} is {own}", name(row)),
                _ => format!("{} is {own}, {reference} has {other}", name(row)),
            }
        })
        .collect();
    let bad = bad.iter().filter(|bad| bad.host == host);
    differs.extend(bad.map(Bad::words));
    if !differs.is_empty() {
        return Err(differs.join("; "));
    }
    let mut unknown: Vec<String> = comparison
        .rows
        .iter()
        .filter(|row| row.unknown.contains(host) || row.unknown.contains(reference))
        .map(name)
        .collect();
    unknown.extend(comparison.untold.iter().cloned());
    let mut done = if reference.is_empty() {
        Done::new(Status::Unknown, "the reference said nothing")
    } else if unknown.is_empty() {
        let what = match host == reference {
            true => "the reference",
            false => "as the reference",
        };
        Done::new(Status::Ok, what)
    } else {
        Done::new(
            Status::Unknown,
            format!("{} cannot be told", unknown.join(", ")),
        )
    };
    for rule in rules {
        let subject = subjects::named(&rule.subject);
        if let Some((subject, seen)) = subject.zip(seen)
            && let Some(subjects::Value::One(value)) = (subject.read)(seen)
        {
            done = done.with(subject.name, subject.shown(&value));
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named_with_both_values_and_what_is_unknown_is_no_match() {
        let facts = |kernel: Option<&str>, arch: &str| {
            let mut facts = Facts {
                arch: Some(arch.to_owned()),
                ..Facts::default()
            };
            facts.kernel.release = kernel.map(str::to_owned);
            facts
        };
        let rules = rules(&["kernel".to_owned(), "arch".to_owned()]);
        let wanted = facts(Some("6.18.9"), "x86_64");
        let of = |facts: &Facts, bad: Vec<Bad>| {
            let seen = [("halo1", &wanted), ("halo2", facts)].map(|(host, facts)| Seen {
                host,
                facts,
                settings: None,
                data: None,
            });
            let comparison = compare("halo1", &seen, &rules);
            match judge(&comparison, &bad, "halo2", seen.get(1), &rules) {
                Ok(done) => (done.status, done.message),
                Err(differs) => (Status::Failed, differs),
            }
        };
        let table = [
            (
                facts(Some("6.18.9"), "x86_64"),
                Status::Ok,
                "as the reference",
            ),
            (
                facts(Some("6.17.1"), "x86_64"),
                Status::Failed,
                "kernel is 6.17.1, halo1 has 6.18.9",
            ),
            (
                facts(Some("6.17.1"), "aarch64"),
                Status::Failed,
                "kernel is 6.17.1, halo1 has 6.18.9; arch is aarch64, halo1 has x86_64",
            ),
            (
                facts(None, "x86_64"),
                Status::Unknown,
                "kernel cannot be told",
            ),
        ];
        for (facts, status, words) in table {
            assert_eq!(of(&facts, Vec::new()), (status, words.to_owned()));
        }
        let bad = |host: &str| Bad {
            host: host.to_owned(),
            subject: "firmware".to_owned(),
            value: "20250101".to_owned(),
            what: "it hangs".to_owned(),
            mend: "install another".to_owned(),
            source: "a report".to_owned(),
        };
        let wanted = "firmware 20250101 is known bad: it hangs; install another (a report)";
        let found = of(
            &facts(Some("6.18.9"), "x86_64"),
            vec![bad("halo1"), bad("halo2")],
        );
        assert_eq!(found, (Status::Failed, wanted.to_owned()));
    }
}
