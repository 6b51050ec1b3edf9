//! Results of tasks, and what expressions see of them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::event::Status;
use crate::facts::Facts;
use crate::inventory::{Connection, Host};

use super::progress::Kept;

/// The results of one registered task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Registered {
    /// By host.
    pub hosts: BTreeMap<String, Kept>,
    /// Values of the task as a whole.
    pub whole: Map<String, Value>,
}

/// All registered results, by name.
pub type Results = BTreeMap<String, Registered>;

/// What a task's expressions need to see; all else is left out, for many hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Whether they name facts.
    pub facts: bool,
    /// Names of results; with whether those of all hosts are wanted.
    results: BTreeMap<String, bool>,
    /// Whether they name `results` as a whole.
    all: bool,
}

impl Needs {
    /// From the names that are used, with their dots.
    pub fn of(names: &BTreeSet<String>) -> Self {
        let mut needs = Self::default();
        for name in names {
            let mut parts = name.split('.');
            match (parts.next(), parts.next(), parts.next()) {
                (Some("facts"), ..) => needs.facts = true,
                (Some("results"), None, _) => needs.all = true,
                (Some("results"), Some(result), third) => {
                    let all_hosts = needs.results.entry(result.to_owned()).or_default();
                    *all_hosts |= third.is_none_or(|third| third == "hosts");
                }
                _ => {}
            }
        }
        needs
    }

    /// What expressions see on a host, or of all together when there is none.
    pub fn names(
        &self,
        vars: &Value,
        host: Option<(&Host, Option<&Facts>)>,
        results: &Results,
    ) -> Value {
        let mut names = Map::new();
        names.insert("vars".into(), vars.clone());
        if let Some((host, facts)) = host {
            names.insert("host".into(), host_value(host));
            if self.facts
                && let Some(facts) = facts
            {
                names.insert("facts".into(), json!(facts));
            }
        }
        let mut seen = Map::new();
        for (name, registered) in results {
            let Some(all_hosts) = self
                .all
                .then_some(true)
                .or_else(|| self.results.get(name).copied())
            else {
                continue;
            };
            seen.insert(
                name.clone(),
                registered.seen(host.map(|(host, _)| host.name.as_str()), all_hosts),
            );
        }
        names.insert("results".into(), seen.into());
        names.into()
    }
}

/// What expressions see of a host.
pub fn host_value(host: &Host) -> Value {
    json!({
        "name": host.name,
        "address": host.address,
        "data": host.data,
        "data_port": host.data_port,
        "user": host.user,
        "connection": match host.connection {
            Connection::Ssh => "ssh",
            Connection::Local => "local",
        },
        "groups": host.groups,
        "vars": host.vars,
    })
}

/// A host's result as a table: its values, `status`, `changed`.
fn fields(kept: &Kept) -> Map<String, Value> {
    let mut fields = kept.values.clone();
    fields.insert("status".into(), json!(kept.status));
    fields.insert("changed".into(), is_change(kept.status).into());
    fields
}

fn is_change(status: Status) -> bool {
    matches!(status, Status::Changed | Status::WouldChange)
}

impl Registered {
    /// As a host sees it, its own result first; as all see it when there is none.
    fn seen(&self, host: Option<&str>, all_hosts: bool) -> Value {
        let mut seen = self.whole.clone();
        match host.map(|host| self.hosts.get(host)) {
            Some(Some(kept)) => seen.extend(fields(kept)),
            Some(None) => {
                // It was not done there.
                seen.insert("status".into(), json!(Status::Skipped));
                seen.insert("changed".into(), false.into());
            }
            None => seen.extend(self.together()),
        }
        if all_hosts {
            seen.insert("hosts".into(), self.by_host());
        }
        seen.into()
    }

    fn together(&self) -> Map<String, Value> {
        let changed = self.hosts.values().any(|kept| is_change(kept.status));
        let worst = [
            Status::Unknown,
            Status::Changed,
            Status::WouldChange,
            Status::Ok,
        ]
        .into_iter()
        .find(|status| self.hosts.values().any(|kept| kept.status == *status))
        .unwrap_or(Status::Skipped);
        let mut fields = Map::new();
        fields.insert("status".into(), json!(worst));
        fields.insert("changed".into(), changed.into());
        fields
    }

    fn by_host(&self) -> Value {
        let hosts: Map<String, Value> = self
            .hosts
            .iter()
            .map(|(host, kept)| (host.clone(), fields(kept).into()))
            .collect();
        hosts.into()
    }

    /// All of it, for the summary.
    pub fn value(&self) -> Value {
        self.seen(None, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let kept = |status, text: &str| Kept {
            status,
            values: json!({"stdout": text}).as_object().unwrap().clone(),
        };
        let registered = Registered {
            hosts: [
                ("a".to_owned(), kept(Status::Ok, "1")),
                ("b".to_owned(), kept(Status::Changed, "2")),
            ]
            .into(),
            whole: json!({"api": "x"}).as_object().unwrap().clone(),
        };
        [("r".to_owned(), registered)].into()
    }

    fn host(name: &str) -> Host {
        let text = format!(
            "[cluster]\nname = \"home\"\n[hosts.{name}]\nconnection = \"local\"\nvars = {{ rack = 3 }}\n"
        );
        let inventory =
            crate::inventory::Inventory::parse(std::path::Path::new("i"), &text).unwrap();
        inventory.hosts[0].clone()
    }

    #[test]
    fn a_host_sees_its_own_result_and_a_task_of_all_sees_all() {
        let needs = Needs::of(&["results.r.stdout".to_owned()].into());
        let host = host("b");
        let names = needs.names(&json!({"v": 1}), Some((&host, None)), &results());
        assert_eq!(
            names["results"]["r"],
            json!({"api": "x", "stdout": "2", "status": "changed", "changed": true})
        );
        assert_eq!(
            (&names["vars"]["v"], &names["host"]["vars"]["rack"]),
            (&json!(1), &json!(3))
        );
        let together = needs.names(&json!({}), None, &results());
        assert_eq!(
            together["results"]["r"],
            json!({"api": "x", "status": "changed", "changed": true})
        );
        assert!(together.get("host").is_none());
        let all = Needs::of(&["results.r.hosts.a.stdout".to_owned()].into());
        let names = all.names(&json!({}), Some((&host, None)), &results());
        assert_eq!(names["results"]["r"]["hosts"]["a"]["stdout"], "1");
    }

    #[test]
    fn a_host_where_it_was_not_done_sees_it_as_skipped() {
        let needs = Needs::of(&["results.r.changed".to_owned()].into());
        let names = needs.names(&json!({}), Some((&host("c"), None)), &results());
        assert_eq!(names["results"]["r"]["status"], "skipped");
        assert_eq!(names["results"]["r"]["changed"], false);
    }

    #[test]
    fn only_what_is_named_is_seen() {
        let needs = Needs::of(&["vars.v".to_owned()].into());
        let facts = Facts::default();
        let names = needs.names(&json!({}), Some((&host("a"), Some(&facts))), &results());
        assert_eq!(names["results"], json!({}));
        assert!(names.get("facts").is_none());
    }
}
