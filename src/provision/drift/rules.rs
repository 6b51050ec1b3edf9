//! What must be the same on all hosts, and why: rules kept as data (`rules.toml`). Must not know how a
//! value is read, nor whose it is.

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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rule: Vec<Rule>,
    /// Subjects that may differ, so that a test sees that none was forgotten.
    may_differ: Vec<String>,
}

static FILE: LazyLock<Option<File>> = LazyLock::new(|| data::read(include_str!("rules.toml")).ok());

/// The rules, in the order in which differences are shown.
pub fn rules() -> &'static [Rule] {
    FILE.as_ref().map_or(&[], |file| &file.rule)
}

/// Names of subjects that may differ.
pub fn may_differ() -> &'static [String] {
    FILE.as_ref().map_or(&[], |file| &file.may_differ)
}

/// The rule of a subject.
pub fn rule(subject: &str) -> Option<&'static Rule> {
    rules().iter().find(|rule| rule.subject == subject)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provision::drift::subjects::SUBJECTS;

    #[test]
    fn the_rules_can_be_read_and_each_subject_has_one_place() {
        data::read::<File>(include_str!("rules.toml")).unwrap();
        let ruled = rules().iter().map(|rule| &rule.subject);
        let mut named: Vec<&str> = ruled.chain(may_differ()).map(String::as_str).collect();
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
    }
}
