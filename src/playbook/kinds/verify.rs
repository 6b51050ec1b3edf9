//! `verify`: facts that must be the same on all hosts, compared with a reference.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use super::Kind;
use super::argument::{Argument, Form};
use super::work::{Acted, Done, Reached, Work};
use crate::event::{Failure, FailureKind, Status};
use crate::facts::{self, Facts};
use crate::figures::memory;

/// What can be compared: its name in a playbook, and its value on a host.
type Field = (&'static str, fn(&Facts) -> Option<String>);

/// All that can be compared.
const FIELDS: [Field; 12] = [
    ("system", |facts| facts.system.clone()),
    ("os", |facts| {
        let os = &facts.os;
        os.name
            .clone()
            .or_else(|| os.id.clone())
            .or_else(|| facts.system.clone())
    }),
    ("os_version", |facts| facts.os.version.clone()),
    ("kernel", |facts| facts.kernel.release.clone()),
    ("command_line", |facts| facts.kernel.command_line.clone()),
    ("arch", |facts| facts.arch.clone()),
    ("libc", |facts| {
        let libc = facts.libc.as_ref()?;
        let version = libc.version.as_deref().unwrap_or("of unknown version");
        Some(format!("{} {version}", libc.name))
    }),
    ("cpu", |facts| facts.cpu.model.clone()),
    ("cores", |facts| {
        facts.cpu.cores.map(|cores| cores.to_string())
    }),
    ("memory", |facts| facts.memory.total_bytes.map(memory)),
    ("gpu", |facts| {
        let names = facts.gpus.as_ref()?;
        if names.is_empty() {
            return Some("none".to_owned());
        }
        Some(facts.gpu_names().join(", "))
    }),
    ("product", |facts| facts.machine.product.clone()),
];

/// Names of what can be compared, for the argument.
const NAMES: &[&str] = &[
    "system",
    "os",
    "os_version",
    "kernel",
    "command_line",
    "arch",
    "libc",
    "cpu",
    "cores",
    "memory",
    "gpu",
    "product",
];

/// The kind.
#[derive(Debug)]
pub struct Verify;

impl Kind for Verify {
    fn name(&self) -> &'static str {
        "verify"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            Argument::must("equal", Form::Words(NAMES)),
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
            let read = join_all(work.hosts.iter().map(|host| async move {
                let facts = match &host.facts {
                    Some(facts) => Ok(facts.clone()),
                    None => facts::gather(&host.session)
                        .await
                        .map_err(|error| work.ssh(host.name(), &error)),
                };
                (host, facts)
            }))
            .await;
            let reference = reference(work, &read)?;
            let mut acted = Acted::default();
            for (host, facts) in &read {
                let verdict = match facts {
                    Err(failure) => Err(failure.clone()),
                    Ok(facts) => judge(work, host, facts, reference.as_ref()),
                };
                acted.hosts.insert(host.name().to_owned(), verdict);
            }
            Ok(acted)
        }
        .boxed()
    }
}

/// The host that the others are compared with, and its facts; the first that said them.
fn reference(
    work: &Work<'_>,
    read: &[(&Reached, Result<Facts, Failure>)],
) -> Result<Option<(String, Facts)>, Failure> {
    let found = |(host, facts): &(&Reached, Result<Facts, Failure>)| {
        let facts = facts.as_ref().ok()?;
        Some((host.name().to_owned(), facts.clone()))
    };
    let Some(against) = work.given.text("against") else {
        return Ok(read.iter().find_map(found));
    };
    let named = read.iter().find(|(host, _)| host.name() == against);
    named.map(found).ok_or_else(|| {
        let names = read.iter().map(|(host, _)| host.name());
        let near = crate::nearest::nearest(against, names).unwrap_or("none");
        Failure::new(
            FailureKind::Host,
            format!("the reference {against} is none of the task's hosts (the nearest is {near})"),
        )
        .at(work.task)
    })
}

fn judge(
    work: &Work<'_>,
    host: &Reached,
    facts: &Facts,
    reference: Option<&(String, Facts)>,
) -> Result<Done, Failure> {
    let Some((name, wanted)) = reference else {
        return Ok(Done::new(Status::Unknown, "the reference said nothing"));
    };
    let (differs, unknown, values) = compare(&work.given.texts("equal"), facts, name, wanted);
    if !differs.is_empty() {
        return Err(work.failed(host.name(), differs.join("; ")));
    }
    let mut done = if unknown.is_empty() {
        let what = if host.name() == name {
            "the reference"
        } else {
            "as the reference"
        };
        Done::new(Status::Ok, what)
    } else {
        Done::new(
            Status::Unknown,
            format!("{} cannot be told", unknown.join(", ")),
        )
    };
    for (field, value) in values {
        done = done.with(&field, value);
    }
    done.facts = Some(Box::new(facts.clone()));
    Ok(done)
}

/// What differs, what cannot be told, and the host's values.
fn compare(
    names: &[String],
    facts: &Facts,
    reference: &str,
    wanted: &Facts,
) -> (Vec<String>, Vec<String>, BTreeMap<String, String>) {
    let (mut differs, mut unknown, mut values) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (name, read) in FIELDS
        .iter()
        .filter(|(name, _)| names.iter().any(|n| n == name))
    {
        let own = read(facts);
        if let Some(own) = &own {
            values.insert((*name).to_owned(), own.clone());
        }
        match (own, read(wanted)) {
            (Some(own), Some(wanted)) if own == wanted => {}
            (Some(own), Some(wanted)) => {
                differs.push(format!("{name} is {own}, {reference} has {wanted}"));
            }
            _ => unknown.push((*name).to_owned()),
        }
    }
    (differs, unknown, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_s_words_are_the_fields() {
        let fields: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
        assert_eq!(fields, NAMES);
    }

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
        let names = ["kernel".to_owned(), "arch".to_owned()];
        let wanted = facts(Some("6.18.9"), "x86_64");
        let of = |facts: &Facts| {
            let (differs, unknown, _) = compare(&names, facts, "halo1", &wanted);
            (differs.join("; "), unknown.join(", "))
        };
        let table = [
            (facts(Some("6.18.9"), "x86_64"), "", ""),
            (
                facts(Some("6.17.1"), "x86_64"),
                "kernel is 6.17.1, halo1 has 6.18.9",
                "",
            ),
            (
                facts(Some("6.17.1"), "aarch64"),
                "kernel is 6.17.1, halo1 has 6.18.9; arch is aarch64, halo1 has x86_64",
                "",
            ),
            (facts(None, "x86_64"), "", "kernel"),
        ];
        for (facts, differs, unknown) in table {
            assert_eq!(of(&facts), (differs.to_owned(), unknown.to_owned()));
        }
    }
}
