//! What must be the same on all hosts, and why: rules kept as data (`rules.toml`). Must not know how a
//! value is read, nor whose it is.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::data;

/// How the hosts' values of a subject must stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Needs {
    /// As the reference has it.
    Equal,
    /// As the reference has it, or newer, or more.
    AtLeast,
    /// No two hosts have the same.
    Differ,
    /// A number of at most the rule's limit, whatever the reference has.
    AtMost,
}

/// A rule for one subject.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The subject's name.
    pub subject: String,
    /// What is asked of it.
    pub needs: Needs,
    /// The limit of [`Needs::AtMost`], in the subject's unit.
    #[serde(default)]
    pub limit: Option<f64>,
    /// Why it matters.
    pub why: String,
    /// What mends it.
    pub mend: String,
    /// Only hosts of this system have it; empty for all.
    #[serde(default)]
    pub systems: Vec<String>,
}

/// Facts that may differ, and why nobody minds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Free {
    /// The subject's name, where they are one.
    #[serde(default)]
    pub subject: Option<String>,
    /// The facts, by their paths.
    pub facts: Vec<String>,
    /// Why they may differ.
    pub why: String,
}

/// A rule as the file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    subject: String,
    facts: Vec<String>,
    needs: Needs,
    #[serde(default)]
    limit: Option<f64>,
    #[serde(default)]
    slack: Option<f64>,
    why: String,
    mend: String,
    #[serde(default)]
    systems: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rule: Vec<Entry>,
    may_differ: Vec<Free>,
}

/// What the file says.
#[derive(Debug, Default)]
struct Read {
    rules: Vec<Rule>,
    free: Vec<Free>,
    slack: BTreeMap<String, f64>,
    facts: BTreeMap<String, Vec<String>>,
}

static FILE: LazyLock<Read> =
    LazyLock::new(|| read(include_str!("rules.toml")).unwrap_or_default());

fn read(text: &str) -> Result<Read, String> {
    let file: File = data::read(text)?;
    let mut read = Read {
        free: file.may_differ,
        ..Read::default()
    };
    for entry in file.rule {
        read.facts.insert(entry.subject.clone(), entry.facts);
        if let Some(slack) = entry.slack {
            read.slack.insert(entry.subject.clone(), slack);
        }
        read.rules.push(Rule {
            subject: entry.subject,
            needs: entry.needs,
            limit: entry.limit,
            why: entry.why,
            mend: entry.mend,
            systems: entry.systems,
        });
    }
    Ok(read)
}

/// The rules, in the order in which differences are shown.
pub fn rules() -> &'static [Rule] {
    &FILE.rules
}

/// What may differ.
pub fn may_differ() -> &'static [Free] {
    &FILE.free
}

/// The part of the larger one by which numbers of a subject may differ and count as equal.
pub fn slack(subject: &str) -> Option<f64> {
    FILE.slack.get(subject).copied()
}

/// The facts that a ruled subject is made of, by their paths: fields joined by dots, `[]` behind lists;
/// those of settings begin with `settings.`.
pub fn facts(subject: &str) -> &'static [String] {
    FILE.facts.get(subject).map_or(&[], Vec::as_slice)
}

/// The rule of a subject.
pub fn rule(subject: &str) -> Option<&'static Rule> {
    rules().iter().find(|rule| rule.subject == subject)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value as Json;

    use super::*;
    use crate::facts::drivers::{Driver, Nvidia};
    use crate::facts::gpu_memory::Module;
    use crate::facts::{
        Address, ContainerEngine, EngineBuild, Facts, Gpu, Interface, RdmaPort, Settings,
    };
    use crate::provision::drift::subjects::SUBJECTS;

    #[test]
    fn the_rules_can_be_read_and_each_subject_has_one_place() {
        read(include_str!("rules.toml")).unwrap();
        let ruled = rules().iter().map(|rule| &rule.subject);
        let free = may_differ().iter().filter_map(|free| free.subject.as_ref());
        let mut named: Vec<&str> = ruled.chain(free).map(String::as_str).collect();
        let mut known: Vec<&str> = SUBJECTS.iter().map(|subject| subject.name).collect();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
        for rule in rules() {
            assert_eq!(
                rule.limit.is_some(),
                rule.needs == Needs::AtMost,
                "{}",
                rule.subject
            );
            assert!(
                !rule.why.is_empty() && !rule.mend.is_empty(),
                "{}",
                rule.subject
            );
        }
        assert!(may_differ().iter().all(|free| !free.why.is_empty()));
    }

    /// Facts with one element in each list whose elements have facts of their own.
    fn full() -> Facts {
        let mut facts = Facts {
            gpus: Some(vec![Gpu::default()]),
            interfaces: Some(vec![Interface {
                addresses: vec![Address {
                    ip: [10, 0, 0, 1].into(),
                    prefix: None,
                    dynamic: None,
                }],
                ..Interface::default()
            }]),
            containers: Some(vec![ContainerEngine::default()]),
            engines: Some(vec![EngineBuild::default()]),
            rdma: Some(vec![RdmaPort::default()]),
            ..Facts::default()
        };
        facts.gpu_memory.modules = Some(vec![Module::default()]);
        facts.drivers.loaded = Some(vec![Driver::default()]);
        facts.drivers.nvidia = Some(Nvidia::default());
        facts
    }

    fn leaves(path: &str, value: &Json, found: &mut BTreeSet<String>) {
        match value {
            Json::Object(fields) if !fields.is_empty() => {
                for (name, value) in fields {
                    let dot = if path.is_empty() { "" } else { "." };
                    leaves(&format!("{path}{dot}{name}"), value, found);
                }
            }
            Json::Array(items) if !items.is_empty() => {
                for item in items {
                    leaves(&format!("{path}[]"), item, found);
                }
            }
            _ => {
                found.insert(path.to_owned());
            }
        }
    }

    /// Which of the places in the file a fact stands at.
    fn places(fact: &str) -> Vec<String> {
        let holds = |path: &String| {
            fact.strip_prefix(path.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let ruled = rules()
            .iter()
            .filter(|rule| facts(&rule.subject).iter().any(holds))
            .map(|rule| rule.subject.clone());
        let free = may_differ()
            .iter()
            .filter(|free| free.facts.iter().any(holds))
            .map(|free| format!("may differ: {}", free.why));
        ruled.chain(free).collect()
    }

    #[test]
    fn every_fact_that_is_gathered_has_one_rule_or_a_reason_why_it_may_differ() {
        let mut found = BTreeSet::new();
        let json = serde_json::to_value(full()).unwrap();
        leaves("", &json, &mut found);
        let settings = serde_json::to_value(Settings::default()).unwrap();
        leaves("settings", &settings, &mut found);
        let wrong: Vec<String> = found
            .iter()
            .filter(|fact| places(fact).len() != 1)
            .map(|fact| format!("{fact}: {:?}", places(fact)))
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        // Nor is there a rule for a fact that is no more.
        let ruled = rules().iter().flat_map(|rule| facts(&rule.subject));
        let free = may_differ().iter().flat_map(|free| &free.facts);
        for path in ruled.chain(free) {
            let is_there = found.iter().any(|fact| fact.starts_with(path.as_str()));
            assert!(is_there, "{path}");
        }
    }
}
