//! What a run of `verify` found, for the screens: taken from its summary, whoever ran it. Pure; every
//! text in it may be shown as it is.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::provision::drift::{Bad, Row};
use crate::tui::text::shown;
use crate::tui::theme::Tone;

/// Most rows kept; a machine that lacks a desktop has a thousand packages less.
const ROWS: usize = 2_000;

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriftView {
    /// When it ended.
    pub time: String,
    /// The host the others are compared with.
    pub reference: String,
    /// The hosts: the reference, then those of which something is not as asked, then the others that
    /// are known from rows.
    pub hosts: Vec<String>,
    /// What differs, and before it what is known bad.
    pub rows: Vec<DriftRow>,
    /// How many subjects are as asked on all hosts.
    pub equal: u64,
}

/// A row of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriftRow {
    /// The subject, with the key within it.
    pub name: String,
    /// What each host has; `None` where it is unknown.
    pub values: BTreeMap<String, Option<String>>,
    /// Hosts whose value is not as asked, or known bad.
    pub wrong: BTreeSet<String>,
    /// Hosts whose value is unknown while others' is known.
    pub unknown: BTreeSet<String>,
    /// Whether it is wrong by itself, whatever others have.
    pub bad: bool,
    /// Why it matters, and where that is told.
    pub why: String,
    /// What mends it.
    pub mend: String,
}

impl DriftView {
    /// From the fields of a summary; `None` when they tell of no comparison.
    pub fn of(fields: &Map<String, Value>, time: String) -> Option<Self> {
        let reference = shown(fields.get("reference")?.as_str()?);
        let rows: Vec<Row> = read(fields.get("drift")?)?;
        let bad: Vec<Bad> = fields.get("known_bad").and_then(read).unwrap_or_default();
        let mut view = Self {
            time,
            equal: fields.get("equal").and_then(Value::as_u64).unwrap_or(0),
            reference,
            ..Self::default()
        };
        for bad in bad {
            view.add_bad(&bad);
        }
        for row in rows {
            view.rows.push(DriftRow::of(&row));
        }
        view.rows.truncate(ROWS);
        view.hosts = view.in_order();
        Some(view)
    }

    /// What several hosts have in common is one row.
    fn add_bad(&mut self, bad: &Bad) {
        let (name, host) = (shown(&bad.subject), shown(&bad.host));
        let why = shown(&format!("{} ({})", bad.what, bad.source));
        let same = |row: &&mut DriftRow| row.name == name && row.why == why;
        let at = match self.rows.iter_mut().find(same) {
            Some(row) => row,
            None => {
                self.rows.push(DriftRow {
                    name,
                    why,
                    bad: true,
                    mend: shown(&bad.mend),
                    ..DriftRow::default()
                });
                let Some(row) = self.rows.last_mut() else {
                    return;
                };
                row
            }
        };
        at.values.insert(host.clone(), Some(shown(&bad.value)));
        at.wrong.insert(host);
    }

    fn in_order(&self) -> Vec<String> {
        let mut hosts = vec![self.reference.clone()];
        let wrong = self
            .rows
            .iter()
            .flat_map(|row| row.wrong.iter().chain(&row.unknown));
        let known = self.rows.iter().flat_map(|row| row.values.keys());
        let wrong: BTreeSet<&String> = wrong.collect();
        let known: BTreeSet<&String> = known.collect();
        for host in wrong.into_iter().chain(known) {
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
        hosts
    }
}

impl DriftRow {
    fn of(row: &Row) -> Self {
        let names = |set: &BTreeSet<String>| set.iter().map(|name| shown(name)).collect();
        let values = row.values.iter().map(|(host, value)| {
            let value = value.as_deref().map(shown);
            (shown(host), value)
        });
        Self {
            name: shown(&match &row.key {
                Some(key) => format!("{} {key}", row.subject),
                None => row.subject.clone(),
            }),
            values: values.collect(),
            wrong: names(&row.differs),
            unknown: names(&row.unknown),
            bad: false,
            why: shown(&row.why),
            mend: shown(&row.mend),
        }
    }

    /// What stands for a host: how it is, and words. The value of the reference is written out; one
    /// that is the same is `=`.
    pub fn cell(&self, host: &str, reference: &str) -> (Tone, String) {
        let value = self.values.get(host);
        let words = match value {
            Some(Some(value)) => value.as_str(),
            Some(None) => "unknown",
            None => "–",
        };
        if self.wrong.contains(host) {
            (Tone::Bad, format!("✗ {words}"))
        } else if self.unknown.contains(host) {
            (Tone::Careful, format!("? {words}"))
        } else if host != reference && value.is_some() && value == self.values.get(reference) {
            (Tone::Faint, "=".to_owned())
        } else if value.is_none() {
            (Tone::Faint, words.to_owned())
        } else {
            (Tone::Plain, words.to_owned())
        }
    }
}

fn read<T: DeserializeOwned>(value: &Value) -> Option<T> {
    // A journal of another version may tell it otherwise: then nothing is shown.
    serde_json::from_value(value.clone()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn rows_are_taken_with_what_is_known_bad_before_them_and_one_row_for_several_hosts() {
        let bad = |host: &str| {
            json!({"host": host, "subject": "kernel", "value": "6.17.1", "what": "it hangs",
                   "mend": "boot another", "source": "a report"})
        };
        let view = DriftView::of(
            &fields(json!({
                "reference": "b", "equal": 26, "known_bad": [bad("c"), bad("d")],
                "drift": [{"subject": "packages", "key": "zstd\u{1b}", "needs": "equal",
                    "values": {"a": "1", "b": "1", "c": null}, "differs": [], "unknown": ["c"],
                    "why": "w", "mend": "m"}],
            })),
            "12:00:00".into(),
        )
        .unwrap();
        assert_eq!(view.hosts, ["b", "c", "d", "a"]);
        assert_eq!(view.rows.len(), 2);
        let (bad, row) = (&view.rows[0], &view.rows[1]);
        assert!(bad.bad && bad.wrong.len() == 2 && bad.why == "it hangs (a report)");
        assert_eq!(row.name, "packages zstd^[");
        assert_eq!(row.cell("b", "b").1, "1");
        assert_eq!(row.cell("a", "b").1, "=");
        assert_eq!(row.cell("c", "b").1, "? unknown");
        assert_eq!(row.cell("d", "b").1, "–");
        assert_eq!(bad.cell("c", "b").1, "✗ 6.17.1");
    }

    #[test]
    fn what_tells_of_no_comparison_is_none() {
        for value in [
            json!({}),
            json!({"reference": "a"}),
            json!({"reference": "a", "drift": [{"subject": 1}]}),
        ] {
            assert_eq!(DriftView::of(&fields(value), String::new()), None);
        }
    }
}
