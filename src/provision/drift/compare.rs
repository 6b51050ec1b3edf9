//! From hosts' facts and the rules to what differs. Pure; must not know how facts are read, nor how
//! differences are shown or mended.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::rules::{self, Needs, Rule};
use super::subjects::{self, Seen, Subject, Value};
use super::version;

/// What a host has of a key that others have and it has not.
pub const ABSENT: &str = "absent";

/// A subject, or a key of it, that is not as its rule asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The subject.
    pub subject: String,
    /// The key within it, e.g. a package.
    pub key: Option<String>,
    /// What is asked.
    pub needs: Needs,
    /// Each host's value; `None` where it is unknown.
    pub values: BTreeMap<String, Option<String>>,
    /// Hosts whose value is not as asked.
    pub differs: BTreeSet<String>,
    /// Hosts whose value is unknown while others' is known.
    pub unknown: BTreeSet<String>,
    /// Why it matters.
    pub why: String,
    /// What mends it.
    pub mend: String,
}

/// What came of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of the host the others are compared with.
    pub reference: String,
    /// What differs, in the rules' order.
    pub rows: Vec<Row>,
    /// How many subjects are as asked on all hosts.
    pub equal: usize,
    /// Subjects that no host tells.
    pub untold: Vec<String>,
}

impl Comparison {
    /// Hosts of which something is not as asked, or not known.
    pub fn drifted(&self) -> BTreeSet<&str> {
        let rows = self.rows.iter();
        rows.flat_map(|row| row.differs.iter().chain(&row.unknown))
            .map(String::as_str)
            .collect()
    }
}

/// Compares hosts by rules. `reference` is one of them.
pub fn compare(reference: &str, hosts: &[Seen<'_>], rules: &[Rule]) -> Comparison {
    let mut comparison = Comparison {
        reference: reference.to_owned(),
        ..Comparison::default()
    };
    for rule in rules {
        let Some(subject) = subjects::named(&rule.subject) else {
            continue;
        };
        let system = |seen: &&Seen<'_>| {
            let system = seen.facts.system.as_ref();
            rule.systems.is_empty() || system.is_some_and(|system| rule.systems.contains(system))
        };
        let values: Vec<(&str, Option<Value>)> = hosts
            .iter()
            .filter(system)
            .map(|seen| (seen.host, (subject.read)(seen)))
            .collect();
        if values.iter().all(|(_, value)| value.is_none()) {
            if !values.is_empty() {
                comparison.untold.push(rule.subject.clone());
            }
            continue;
        }
        let rows = judge(reference, subject, rule, &values);
        comparison.equal += usize::from(rows.is_empty());
        comparison.rows.extend(rows);
    }
    comparison
}

/// The rows of one subject, of which at least one host tells a value.
fn judge(
    reference: &str,
    subject: &Subject,
    rule: &Rule,
    values: &[(&str, Option<Value>)],
) -> Vec<Row> {
    let unknown: BTreeSet<String> = values
        .iter()
        .filter(|(_, value)| value.is_none())
        .map(|(host, _)| (*host).to_owned())
        .collect();
    let mut rows = Vec::new();
    for key in keys(values) {
        let told: Vec<(&str, String)> = values
            .iter()
            .filter_map(|(host, value)| Some((*host, at(value.as_ref()?, key.as_deref())?)))
            .collect();
        let differs = differing(reference, rule, key.is_some(), &told);
        if differs.is_empty() {
            continue;
        }
        rows.push(row(subject, rule, key, values, differs, unknown.clone()));
    }
    if rows.is_empty() && !unknown.is_empty() {
        // One row says so for all keys.
        let single = !values
            .iter()
            .any(|(_, value)| !matches!(value, Some(Value::One(_)) | None));
        let shown: Vec<(&str, Option<Value>)> = match single {
            true => values.to_vec(),
            false => values
                .iter()
                .map(|(host, value)| {
                    let known = value.as_ref().map(|_| Value::One("known".into()));
                    (*host, known)
                })
                .collect(),
        };
        rows.push(row(subject, rule, None, &shown, BTreeSet::new(), unknown));
    }
    rows
}

fn row(
    subject: &Subject,
    rule: &Rule,
    key: Option<String>,
    values: &[(&str, Option<Value>)],
    differs: BTreeSet<String>,
    unknown: BTreeSet<String>,
) -> Row {
    let show = |text: String| match text == ABSENT {
        true => text,
        false => subject.shown(&text),
    };
    let values = values.iter().map(|(host, value)| {
        let text = value.as_ref().and_then(|value| at(value, key.as_deref()));
        // A key that a host has not, where only shared ones count.
        let text = text.or_else(|| value.as_ref().map(|_| ABSENT.to_owned()));
        ((*host).to_owned(), text.map(show))
    });
    Row {
        subject: rule.subject.clone(),
        needs: rule.needs,
        values: values.collect(),
        differs,
        unknown,
        why: rule.why.clone(),
        mend: rule
            .mend
            .replace("{key}", key.as_deref().unwrap_or_default()),
        key,
    }
}

/// All keys of the values; one that is no key for a single value.
fn keys(values: &[(&str, Option<Value>)]) -> BTreeSet<Option<String>> {
    let mut keys = BTreeSet::new();
    for (_, value) in values {
        match value {
            Some(Value::One(_)) => {
                keys.insert(None);
            }
            Some(Value::Many(map) | Value::Shared(map)) => {
                keys.extend(map.keys().cloned().map(Some));
            }
            Some(Value::Held(map)) => keys.extend(map.keys().cloned().map(Some)),
            None => {}
        }
    }
    keys
}

/// A value's text at a key; `None` where it does not count.
fn at(value: &Value, key: Option<&str>) -> Option<String> {
    match (value, key) {
        (Value::One(text), None) => Some(text.clone()),
        (Value::Many(map), Some(key)) => Some(or_absent(map.get(key))),
        (Value::Held(map), Some(key)) => Some(or_absent(map.get(key))),
        (Value::Shared(map), Some(key)) => map.get(key).cloned(),
        _ => None,
    }
}

fn or_absent(value: Option<&String>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), Clone::clone)
}

/// Hosts whose value is not as the rule asks.
fn differing(
    reference: &str,
    rule: &Rule,
    keyed: bool,
    told: &[(&str, String)],
) -> BTreeSet<String> {
    let wanted = told
        .iter()
        .find(|(host, _)| *host == reference)
        .map(|(_, value)| value);
    let hosts = |wrong: &dyn Fn(&str) -> bool| -> BTreeSet<String> {
        let wrong = told.iter().filter(|(_, value)| wrong(value));
        wrong.map(|(host, _)| (*host).to_owned()).collect()
    };
    let slack = rules::slack(&rule.subject);
    match (rule.needs, wanted) {
        (Needs::Equal, Some(wanted)) => {
            hosts(&|value| value != wanted && !slack.is_some_and(|part| near(value, wanted, part)))
        }
        (Needs::AtLeast, Some(wanted)) => {
            hosts(&|value| value == ABSENT || version::compare(value, wanted) == Ordering::Less)
        }
        // Without a word of the reference nothing can be said of the others.
        (Needs::Equal | Needs::AtLeast, None) => BTreeSet::new(),
        (Needs::Differ, _) => hosts(&|value| {
            // Where the values are keys, what counts is who has the key at all.
            let same = |other: &String| match keyed {
                true => other != ABSENT,
                false => other == value,
            };
            value != ABSENT && told.iter().filter(|(_, other)| same(other)).count() > 1
        }),
        (Needs::AtMost, _) => {
            let limit = rule.limit.unwrap_or(f64::INFINITY);
            hosts(&|value| value.parse::<f64>().is_ok_and(|value| value > limit))
        }
    }
}

/// Whether numbers, or sums of as many numbers, differ by no more than a part of the larger one.
fn near(a: &str, b: &str, part: f64) -> bool {
    let (a, b): (Vec<&str>, Vec<&str>) = (a.split(" + ").collect(), b.split(" + ").collect());
    a.len() == b.len()
        && a.iter().zip(&b).all(|(a, b)| {
            let numbers = a.parse::<f64>().ok().zip(b.parse::<f64>().ok());
            numbers.is_some_and(|(a, b)| (a - b).abs() <= part * a.abs().max(b.abs()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(needs: Needs) -> Rule {
        Rule {
            subject: "kernel".into(),
            needs,
            limit: Some(1000.0),
            why: "why".into(),
            mend: "install {key}".into(),
            systems: Vec::new(),
        }
    }

    fn rows(
        needs: Needs,
        values: &[(&str, Option<Value>)],
    ) -> Vec<(Option<String>, String, String)> {
        let subject = subjects::named("kernel").unwrap();
        let words = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(" ");
        judge("a", subject, &rule(needs), values)
            .into_iter()
            .map(|row| (row.key, words(row.differs), words(row.unknown)))
            .collect()
    }

    fn one(text: &str) -> Option<Value> {
        Some(Value::One(text.into()))
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    }

    #[test]
    fn a_single_value_is_judged_by_what_its_rule_asks() {
        type Case<'a> = (Needs, [Option<Value>; 3], Option<(&'a str, &'a str)>);
        let table: [Case<'_>; 9] = [
            (Needs::Equal, [one("1"), one("1"), one("1")], None),
            (
                Needs::Equal,
                [one("1"), one("2"), one("1")],
                Some(("b", "")),
            ),
            (Needs::Equal, [one("1"), None, one("2")], Some(("c", "b"))),
            (Needs::Equal, [one("1"), None, one("1")], Some(("", "b"))),
            (Needs::Equal, [None, one("1"), one("2")], Some(("", "a"))),
            (
                Needs::AtLeast,
                [one("9"), one("10"), one("8")],
                Some(("c", "")),
            ),
            (Needs::Differ, [one("1"), one("2"), one("3")], None),
            (
                Needs::Differ,
                [one("1"), one("2"), one("2")],
                Some(("b c", "")),
            ),
            (
                Needs::AtMost,
                [one("0"), one("1000"), one("1001")],
                Some(("c", "")),
            ),
        ];
        for (needs, [a, b, c], wanted) in table {
            let found = rows(
                needs,
                &[("a", a.clone()), ("b", b.clone()), ("c", c.clone())],
            );
            let wanted: Vec<_> = wanted
                .map(|(differs, unknown)| (None, differs.to_owned(), unknown.to_owned()))
                .into_iter()
                .collect();
            assert_eq!(found, wanted, "{needs:?} {a:?} {b:?} {c:?}");
        }
    }

    #[test]
    fn sizes_that_differ_by_less_than_their_slack_are_equal() {
        // Half of memory as two kernels count it, and half of less memory.
        assert!(near("66789105664", "66774003712", 0.01));
        assert!(!near("66789105664", "64424509440", 0.01));
        assert!(near("1000 + 500", "1001 + 500", 0.01));
        assert!(!near("1000 + 500", "1001", 0.01));
        assert!(!near("none", "1000", 0.01) && !near("0", "1", 0.01));
    }

    #[test]
    fn of_many_values_each_key_that_differs_is_a_row() {
        let a = map(&[("curl", "1"), ("zstd", "2")]);
        let b = map(&[("curl", "1"), ("zstd", "3"), ("more", "1")]);
        let row =
            |key: &str, differs: &str| (Some(key.to_owned()), differs.to_owned(), String::new());
        assert_eq!(
            rows(
                Needs::Equal,
                &[
                    ("a", Some(Value::Many(a.clone()))),
                    ("b", Some(Value::Many(b.clone())))
                ]
            ),
            [row("more", "b"), row("zstd", "b")]
        );
        assert_eq!(
            rows(
                Needs::Equal,
                &[
                    ("a", Some(Value::Shared(a.clone()))),
                    ("b", Some(Value::Shared(b)))
                ]
            ),
            [row("zstd", "b")]
        );
        let unknown = [("a", Some(Value::Many(a))), ("b", None)];
        assert_eq!(
            rows(Needs::Equal, &unknown),
            [(None, String::new(), "b".to_owned())]
        );
    }

    #[test]
    fn a_key_that_two_hosts_have_is_shared_where_it_must_not_be() {
        let a = map(&[("10.0.0.1", "eth0"), ("10.0.0.9", "eth1")]);
        let b = map(&[("10.0.0.2", "eth0"), ("10.0.0.9", "eth0")]);
        let c = map(&[("10.0.0.3", "eth0")]);
        let hosts = [("a", a), ("b", b), ("c", c)];
        let values = hosts.map(|(host, map)| (host, Some(Value::Many(map))));
        let wanted = (Some("10.0.0.9".to_owned()), "a b".to_owned(), String::new());
        assert_eq!(rows(Needs::Differ, &values), [wanted]);
    }

    #[test]
    fn what_a_row_says_is_for_people_and_names_the_key() {
        let values = [
            ("a", Some(Value::Many(map(&[("curl", "1")])))),
            ("b", Some(Value::Many(map(&[])))),
        ];
        let subject = subjects::named("kernel").unwrap();
        let found = judge("a", subject, &rule(Needs::Equal), &values);
        let row = found.first().unwrap();
        assert_eq!(row.mend, "install curl");
        assert_eq!(row.values["b"].as_deref(), Some(ABSENT));
        assert_eq!(row.values["a"].as_deref(), Some("1"));
    }
}
