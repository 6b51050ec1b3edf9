//! Expressions that can have no value on a host, found before anything is reached: those that use only
//! `vars` and `host`, which the inventory tells. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::choice;
use super::expression::ExpressionError;
use super::model::{Place, Playbook, Task};
use super::results::host_value;
use crate::inventory::{Fault, Host, Inventory};

/// Faults of these tasks on these hosts, by name, each told once with the hosts it is on. `values` are
/// those of every scope.
pub fn faults(
    playbook: &Playbook,
    values: &[Value],
    inventory: &Inventory,
    chosen: &[(usize, Vec<String>)],
) -> Vec<(String, Fault)> {
    let mut found: BTreeMap<(Place, String), BTreeSet<&str>> = BTreeMap::new();
    for (index, hosts) in chosen {
        let Some(task) = playbook.tasks.get(*index) else {
            continue;
        };
        let vars = values.get(task.scope).cloned().unwrap_or_default();
        for host in hosts.iter().filter_map(|host| inventory.host(host)) {
            if let Some(fault) = on_host(task, &vars, host) {
                found.entry(fault).or_default().insert(&host.name);
            }
        }
    }
    let fault = |((at, message), hosts): ((Place, String), BTreeSet<&str>)| {
        let hosts: Vec<&str> = hosts.into_iter().collect();
        let fault = Fault {
            line: at.line,
            column: at.column,
            message: format!("{message} (on {})", hosts.join(", ")),
            nearest: None,
        };
        (at.file, fault)
    };
    found.into_iter().map(fault).collect()
}

/// The same for a whole playbook with its own values. Hosts that a task names and that are none are left
/// to the run.
pub fn of_playbook(playbook: &Playbook, inventory: &Inventory) -> Vec<(String, Fault)> {
    let Ok(values) = choice::values(playbook, &[]) else {
        return Vec::new();
    };
    let hosts = |task: &Task| {
        let vars = values.get(task.scope).cloned().unwrap_or_default();
        let selector = task.hosts.render(&table([("vars", vars)])).ok()?;
        let hosts = inventory.select(selector.as_str()?).ok()?;
        Some(hosts.into_iter().map(|host| host.name.clone()).collect())
    };
    let tasks = playbook.tasks.iter().enumerate();
    let chosen: Vec<(usize, Vec<String>)> = tasks
        .filter_map(|(index, task)| Some((index, hosts(task)?)))
        .collect();
    faults(playbook, &values, inventory, &chosen)
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Value {
    let entries = entries.into_iter();
    let table: Map<String, Value> = entries
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    table.into()
}

/// Whether expressions with these names can be told here.
fn is_known(used: &BTreeSet<String>) -> bool {
    let root = |name: &String| name.split('.').next().unwrap_or_default().to_owned();
    !used
        .iter()
        .map(root)
        .any(|root| ["facts", "results", "result"].contains(&root.as_str()))
}

/// The first expression of a task that has no value on a host, where and why. What is behind one that
/// cannot be told here may never be asked, so it is left to the run.
fn on_host(task: &Task, vars: &Value, host: &Host) -> Option<(Place, String)> {
    let names = table([("vars", vars.clone()), ("host", host_value(host))]);
    for (condition, at) in task.when.iter().zip(&task.when_at) {
        if !is_known(&condition.names()) {
            return None;
        }
        match condition.holds(&names) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some((at.clone(), said("when", &error))),
        }
    }
    // What works on all hosts at once knows no single one, and that was looked at before.
    for (name, template) in &task.arguments {
        let form = task
            .kind
            .arguments()
            .iter()
            .find(|known| known.name == name);
        let is_condition = form.is_some_and(|known| known.form.is_condition());
        if is_condition || task.kind.together() || !is_known(&template.names()) {
            continue;
        }
        if let Err(error) = template.render(&names)
            && error.undefined
        {
            return Some((task.at.clone(), said(name, &error)));
        }
    }
    None
}

/// What is wrong, as the run would say it.
pub fn said(what: &str, error: &ExpressionError) -> String {
    format!("{what} {}", error.message)
}
