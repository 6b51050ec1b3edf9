//! From a comparison and what is known bad to what a run says of each host, and how it ends. Pure but
//! for telling it; must not know how it is shown.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::compare::{Comparison, Row, compare};
use super::known_bad::{self, Bad, known_bad};
use super::subjects::Seen;
use super::{faults, rules};
use crate::event::{Emitter, Failure, FailureKind, Scope, Status};
use crate::figures::counted;

/// What came of a run that compared hosts.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// What differs.
    pub comparison: Comparison,
    /// What is known bad.
    pub bad: Vec<Bad>,
}

/// Compares hosts by all rules and looks for what is known bad. `reference` is one of them.
pub fn judge(reference: &str, hosts: &[Seen<'_>]) -> Judged {
    Judged {
        bad: bad(hosts),
        comparison: compare(reference, hosts, rules::rules()),
    }
}

/// What of the hosts is known bad, or at fault by itself.
pub fn bad(hosts: &[Seen<'_>]) -> Vec<Bad> {
    let found = hosts.iter().flat_map(|seen| {
        let mut found = faults::faults(seen);
        for bad in known_bad(seen, known_bad::entries()) {
            // The kernel's word for a name that is wrong where it stands.
            let told = found.iter().any(|other| other.subject == bad.subject);
            if !told {
                found.push(bad);
            }
        }
        found
    });
    found.collect()
}

impl Judged {
    /// The fields of the run's summary.
    pub fn fields(&self) -> Map<String, Value> {
        let comparison = &self.comparison;
        let fields = [
            ("reference", json!(comparison.reference)),
            ("drift", to_value(&comparison.rows)),
            ("equal", json!(comparison.equal)),
            ("untold", json!(comparison.untold)),
            ("known_bad", to_value(&self.bad)),
        ];
        let fields = fields.into_iter();
        fields.map(|(name, value)| (name.into(), value)).collect()
    }

    /// Tells the verdict of each host.
    pub fn tell(&self, hosts: &[Seen<'_>], emitter: &Emitter) {
        for seen in hosts {
            let task = emitter.task(Scope::host(seen.host).in_task("verify"), None);
            let (status, words) = self.verdict(seen.host);
            task.finish(status, words);
        }
    }

    /// What is said of one host.
    pub fn verdict(&self, host: &str) -> (Status, String) {
        let count = |of: fn(&Row) -> &BTreeSet<String>| {
            let rows = self.comparison.rows.iter();
            rows.filter(|row| of(row).contains(host)).count()
        };
        let differs = count(|row| &row.differs);
        let unknown = count(|row| &row.unknown);
        let bad = self.bad.iter().filter(|bad| bad.host == host).count();
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
        let reference = &self.comparison.reference;
        match (words.is_empty(), differs + bad) {
            (true, _) if host == reference => (Status::Ok, "the reference".into()),
            (true, _) => (Status::Ok, format!("as {reference}")),
            (false, 0) => (Status::Unknown, words.join(", ")),
            (false, _) => (Status::Failed, words.join(", ")),
        }
    }

    /// Why the run ends with the status for drift; `None` when all is as it should be.
    pub fn failure(&self) -> Option<Failure> {
        let mut hosts = self.comparison.drifted();
        hosts.extend(self.bad.iter().map(|bad| bad.host.as_str()));
        if hosts.is_empty() {
            return None;
        }
        let names: Vec<&str> = hosts.into_iter().collect();
        let rows = self.comparison.rows.len();
        let mut what = Vec::new();
        if rows > 0 {
            what.push(counted(rows, "difference", "differences"));
        }
        if !self.bad.is_empty() {
            what.push(format!("{} known bad", self.bad.len()));
        }
        Some(Failure::new(
            FailureKind::Drift,
            format!(
                "{} against {}, on {}; the table says why each matters and what mends it",
                what.join(" and "),
                self.comparison.reference,
                names.join(", ")
            ),
        ))
    }
}

fn to_value(value: impl serde::Serialize) -> Value {
    // They hold texts alone.
    serde_json::to_value(value).unwrap_or_default()
}
