//! From a playbook's text to its tasks, or to all that is wrong with it. Pure: no file is read.

pub mod names;
mod task;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::{Map, Value as Json};

use super::expression::{Condition, Template};
use super::model::{Place, Task};
use crate::inventory::Inventory;
use crate::inventory::fault::{Fault, Faults, offer, position};
use crate::inventory::select::SelectError;
use crate::inventory::tree::{self, Node, Value};
use names::Known;

/// Keys at the top of a playbook.
const TOP: [&str; 4] = ["name", "about", "vars", "tasks"];
/// Most tasks of one file.
const MOST_TASKS: usize = 1_000;

/// A playbook's text, read.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// Its name, when it says one.
    pub name: Option<String>,
    /// What it is for.
    pub about: String,
    /// Its values.
    pub vars: Map<String, Json>,
    /// Tasks and includes, in order.
    pub items: Vec<Item>,
    /// Names that an included file may have registered.
    pub pending: Vec<Pending>,
}

/// A task, or what stands for tasks.
#[derive(Clone, Debug)]
pub enum Item {
    /// A task.
    Task(Box<Task>),
    /// The tasks of another file.
    Include(Box<Include>),
}

/// The tasks of another file.
#[derive(Clone, Debug)]
pub struct Include {
    /// The file, or the name of a shipped playbook.
    pub file: String,
    /// Line and column of it.
    pub place: (usize, usize),
    /// What its tasks' names begin with.
    pub name: Option<String>,
    /// Hosts of its tasks that name none of their own.
    pub hosts: Option<Template>,
    /// Conditions for all its tasks.
    pub when: Vec<Condition>,
    /// Where each of them stands.
    pub when_at: Vec<Place>,
    /// Tags for all its tasks.
    pub tags: Vec<String>,
    /// Values it is given, with where each stands.
    pub vars: Vec<(String, Template, (usize, usize))>,
}

/// A result that no task of this file registers, and that an included file may.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Index of the item that uses it.
    pub before: usize,
    /// The result's name.
    pub result: String,
    /// Line and column of its use.
    pub place: (usize, usize),
    /// What is wrong when nobody registers it.
    pub message: String,
    /// The nearest valid name.
    pub nearest: Option<String>,
}

impl Pending {
    /// As a fault.
    pub fn fault(&self) -> Fault {
        Fault {
            line: self.place.0,
            column: self.place.1,
            message: self.message.clone(),
            nearest: self.nearest.clone(),
        }
    }
}

/// What is known while a text is read.
struct Reader<'f, 't> {
    text: &'t str,
    faults: &'f mut Faults<'t>,
    known: Known,
    taken: BTreeSet<String>,
    pending: Vec<Pending>,
    /// Items read so far.
    items: usize,
    /// Whether an include was among them.
    included: bool,
}

impl Reader<'_, '_> {
    fn place(&self, at: usize) -> (usize, usize) {
        position(self.text, at)
    }

    /// The same, of a file whose name is not known here.
    fn stands(&self, at: usize) -> Place {
        let (line, column) = self.place(at);
        Place {
            file: String::new(),
            line,
            column,
        }
    }

    /// A task's name, unique in the file.
    fn name(&mut self, given: Option<(String, usize)>, kind: &str, _at: usize) -> String {
        if let Some((name, at)) = given {
            if !self.taken.insert(name.clone()) {
                self.faults.add(
                    at,
                    format!("another task is named \"{name}\" already: choose another name"),
                );
            }
            return name;
        }
        let name = free_name(kind, &self.taken);
        self.taken.insert(name.clone());
        name
    }
}

/// The name, or it with the first number behind it that is not taken.
pub fn free_name(name: &str, taken: &BTreeSet<String>) -> String {
    if !taken.contains(name) {
        return name.to_owned();
    }
    (2..)
        .map(|number| format!("{name} {number}"))
        .find(|candidate| !taken.contains(candidate))
        .unwrap_or_else(|| name.to_owned())
}

/// The hosts of a task that names none.
pub fn all_hosts() -> Template {
    Template::Value(task::ALL_HOSTS.into())
}

/// Reads a text.
///
/// # Errors
/// All that is wrong with it, in the order of the text.
pub fn parse(text: &str) -> Result<Parsed, Vec<Fault>> {
    let mut faults = Faults::new(text);
    let root = tree::parse(text, &mut faults);
    if !faults.is_empty() {
        // What is no TOML says nothing about its tasks.
        return Err(faults.sorted());
    }
    let mut parsed = Parsed::default();
    for (name, node) in &root.entries {
        match (name.as_str(), &node.value) {
            ("name", Value::Text(value)) if !value.trim().is_empty() => {
                parsed.name = Some(value.clone());
            }
            ("about", Value::Text(value)) => parsed.about.clone_from(value),
            ("name" | "about", _) => faults.add(
                node.at.start,
                format!("{name} is {}: it must be text", said(node)),
            ),
            ("vars", Value::Table(table)) => {
                for (name, inner) in &table.entries {
                    match json(inner) {
                        Ok(value) if has_template(&value) => faults.add(
                            inner.at.start,
                            format!("vars.{name} holds {{{{ }}}}: values are plain, templates belong in tasks"),
                        ),
                        Ok(value) => {
                            parsed.vars.insert(name.clone(), value);
                        }
                        Err((at, message)) => faults.add(at, message),
                    }
                }
            }
            ("vars", _) => faults.add(
                node.at.start,
                format!("vars is {}: it must be a table", node.kind()),
            ),
            ("tasks", Value::Tables(_) | Value::List(_)) => {}
            ("tasks", _) => faults.add(
                node.at.start,
                format!(
                    "tasks is {}: write each task as a table under [[tasks]]",
                    node.kind()
                ),
            ),
            _ => {
                let (offered, nearest) = offer(name, TOP);
                faults.add_named(
                    node.key.start,
                    format!("unknown key \"{name}\" of a playbook{offered}"),
                    nearest,
                );
            }
        }
    }
    let mut reader = Reader {
        text,
        known: Known {
            // Those with faults are known too: one fault is enough.
            vars: root
                .table("vars")
                .map(|table| table.entries.iter().map(|(name, _)| name.clone()).collect())
                .unwrap_or_default(),
            ..Known::default()
        },
        faults: &mut faults,
        taken: BTreeSet::new(),
        pending: Vec::new(),
        items: 0,
        included: false,
    };
    let tasks: &[Node] = match root.get("tasks").map(|node| &node.value) {
        Some(Value::Tables(tasks) | Value::List(tasks)) => tasks,
        _ => &[],
    };
    if tasks.len() > MOST_TASKS {
        reader.faults.add(
            0,
            format!("more than {MOST_TASKS} tasks: make several files"),
        );
    }
    for node in tasks.iter().take(MOST_TASKS) {
        match node.table() {
            Some(table) => parsed.items.extend(task::task(&mut reader, node, table)),
            None => reader.faults.add(
                node.at.start,
                format!("a task is {}: it must be a table", node.kind()),
            ),
        }
        reader.items += 1;
    }
    parsed.pending = std::mem::take(&mut reader.pending);
    if tasks.is_empty() && root.get("tasks").is_none() && faults.is_empty() {
        faults.add(0, "this playbook has no tasks: write them under [[tasks]]");
    }
    if faults.is_empty() {
        Ok(parsed)
    } else {
        Err(faults.sorted())
    }
}

fn said(node: &Node) -> &'static str {
    match node.kind() {
        "text" => "empty",
        other => other,
    }
}

fn has_template(value: &Json) -> bool {
    match value {
        Json::String(text) => text.contains("{{") || text.contains("{%"),
        Json::Array(items) => items.iter().any(has_template),
        Json::Object(fields) => fields.values().any(has_template),
        _ => false,
    }
}

/// A value as it is used; or where it cannot be used, and why.
fn json(node: &Node) -> Result<Json, (usize, String)> {
    Ok(match &node.value {
        Value::Text(text) => text.clone().into(),
        Value::Whole(number) => (*number).into(),
        Value::Float(number) => {
            let value = serde_json::Number::from_f64(*number).ok_or_else(|| {
                (
                    node.at.start,
                    "this is no number that can be used".to_owned(),
                )
            })?;
            value.into()
        }
        Value::Flag(flag) => (*flag).into(),
        Value::Date(date) => date.clone().into(),
        Value::List(items) | Value::Tables(items) => items
            .iter()
            .map(json)
            .collect::<Result<Vec<_>, _>>()?
            .into(),
        Value::Table(table) => {
            let mut fields = Map::new();
            for (name, inner) in &table.entries {
                fields.insert(name.clone(), json(inner)?);
            }
            fields.into()
        }
    })
}

/// An inventory in which every selector can be tried for its form.
static ANY: LazyLock<Option<Inventory>> = LazyLock::new(|| {
    let text = "[cluster]\nname = \"any\"\n[hosts.any]\nconnection = \"local\"\n";
    Inventory::parse(Path::new("any"), text).ok()
});

/// What is wrong with the form of a selector.
fn selector_fault(selector: &str) -> Option<String> {
    match ANY.as_ref()?.select(selector) {
        Err(error @ SelectError::Malformed { .. }) => Some(error.to_string()),
        _ => None,
    }
}
