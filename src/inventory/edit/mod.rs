//! Edits of an inventory's text that leave every other byte as it is. Pure: text in, text out; must
//! not know files.
//!
//! Every step is proved before it is taken for good: the new text is parsed again, and must say
//! exactly what the old one said, but for the one thing that was to change.

mod place;
mod remove;
mod value;

use std::path::Path;

use serde_json::{Map, Value as Json};
use thiserror::Error;

use super::fault::{Fault, Faults, offer, position};
use super::host::Inventory;
use super::key;
use super::range;
use super::read::{host_place, unknown_setting};
use super::tree::{self, Table, Value};
use crate::event::{Failure, FailureKind};

/// Whom an edit is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// A host, a range of hosts, or one host of a range.
    Host(String),
    /// A group.
    Group(String),
    /// All hosts: the defaults.
    All,
}

impl Whom {
    /// From the command line: `halo1`, `mac[1-5]`, `@group`, `@all`.
    pub fn parse(text: &str) -> Self {
        match text.strip_prefix('@') {
            Some("all") => Self::All,
            Some(name) => Self::Group(name.to_owned()),
            None => Self::Host(text.to_owned()),
        }
    }

    /// The way to its table.
    fn way(&self) -> Vec<String> {
        match self {
            Self::Host(name) => vec!["hosts".into(), name.clone()],
            Self::Group(name) => vec!["groups".into(), name.clone()],
            Self::All => vec!["defaults".into()],
        }
    }

    /// Its table as written.
    fn place(&self) -> String {
        match self {
            Self::Host(name) => host_place(name),
            Self::Group(name) => format!("[groups.{name}]"),
            Self::All => "[defaults]".into(),
        }
    }
}

/// An edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// A new host, range or group, with these values, `KEY=VALUE` each.
    Add(Whom, Vec<String>),
    /// Values of what is there. An empty value takes the key out.
    Set(Whom, Vec<String>),
    /// A host or group goes.
    Remove(Whom),
}

/// Why an edit was not made.
#[derive(Debug, Error)]
pub enum EditError {
    /// What was asked is no edit.
    #[error("{0}")]
    Usage(String),
    /// What it is about is not there.
    #[error("{0}")]
    Unknown(String),
    /// The text is no valid TOML, so nothing can be found in it.
    #[error("the inventory has faults, mend them first: {}", list(.0))]
    Before(Vec<Fault>),
    /// The edited text would be no valid inventory.
    #[error("this would make the inventory invalid, so nothing is changed: {}", list(.0))]
    After(Vec<Fault>),
    /// It cannot be made without touching other lines.
    #[error("{0}: change it by hand, with `windlass inventory edit`")]
    ByHand(String),
}

fn list(faults: &[Fault]) -> String {
    let all: Vec<String> = faults.iter().map(|f| format!("line {f}")).collect();
    all.join("\n")
}

impl EditError {
    /// As a run's failure.
    pub fn failure(&self) -> Failure {
        let kind = match self {
            Self::Usage(_) => FailureKind::Usage,
            Self::Unknown(_) => FailureKind::Nothing,
            Self::Before(_) | Self::After(_) | Self::ByHand(_) => FailureKind::Config,
        };
        Failure::new(kind, self.to_string())
    }
}

/// The text after an edit; the same text when nothing is to be changed.
///
/// # Errors
/// When the edit is impossible, or what it leads to is no valid inventory.
pub fn edited(path: &Path, text: &str, edit: &Edit) -> Result<String, EditError> {
    let new = match edit {
        Edit::Add(whom, values) => add(text, whom, values)?,
        Edit::Set(whom, values) => set(text, whom, values)?,
        Edit::Remove(whom) => match whom {
            Whom::Host(name) => remove::host(text, name)?,
            Whom::Group(name) => remove::group(text, name)?,
            Whom::All => {
                return Err(EditError::Usage(
                    "@all is every host and cannot be removed".into(),
                ));
            }
        },
    };
    if new == text {
        return Ok(new);
    }
    match Inventory::parse(path, &new) {
        Ok(_) => Ok(new),
        Err(faults) => Err(match Inventory::parse(path, text) {
            // A fault that was there before is no fault of the edit.
            Err(before)
                if faults
                    .iter()
                    .all(|f| before.iter().any(|b| b.message == f.message)) =>
            {
                EditError::Before(before)
            }
            _ => EditError::After(faults),
        }),
    }
}

/// The tree of a text in which things can be found.
fn tree_of(text: &str) -> Result<Table, EditError> {
    let mut faults = Faults::new(text);
    let root = tree::parse(text, &mut faults);
    if faults.is_empty() {
        Ok(root)
    } else {
        Err(EditError::Before(faults.sorted()))
    }
}

/// Names of all hosts in a tree, ranges expanded; what is no range is left out.
fn host_names(root: &Table) -> Vec<String> {
    root.table("hosts")
        .into_iter()
        .flat_map(|hosts| &hosts.entries)
        .flat_map(|(name, _)| range::expand(name).unwrap_or_default())
        .collect()
}

fn add(text: &str, whom: &Whom, values: &[String]) -> Result<String, EditError> {
    let start = if text.trim().is_empty() {
        format!("{text}[cluster]\nname = \"home\"\n")
    } else {
        text.to_owned()
    };
    let root = tree_of(&start)?;
    match whom {
        Whom::All => {
            return Err(EditError::Usage(
                "@all is every host: set its values with `windlass inventory set @all KEY=VALUE`"
                    .into(),
            ));
        }
        Whom::Group(name) => {
            if root.table("groups").is_some_and(|g| g.get(name).is_some()) {
                return Err(EditError::Usage(format!(
                    "the group {name} is already there: change it with `windlass inventory set @{name} KEY=VALUE`"
                )));
            }
        }
        Whom::Host(name) => {
            let new = range::expand(name).map_err(|error| EditError::Usage(error.to_string()))?;
            let known = host_names(&root);
            if let Some(there) = new.iter().find(|one| known.contains(one)) {
                return Err(EditError::Usage(format!(
                    "the host {there} is already there: change it with `windlass inventory set {there} KEY=VALUE`"
                )));
            }
        }
    }
    let mut new = place::table(&start, &root, &whom.way(), None)?;
    let wanted = with(&plain(&root), &whom.way(), Json::Object(Map::new()));
    prove(&new, &wanted, whom)?;
    for value in values {
        // To take a key out is nothing to say of what is not there yet.
        if let Some((key, given)) = value.split_once('=')
            && given.trim().is_empty()
            && let Some(key) = key::named(key.trim())
        {
            return Err(EditError::Usage(format!(
                "{name} is given no value: write it as {name}={example}, or leave it out",
                name = key.name,
                example = key.example.trim_matches('"')
            )));
        }
        new = assign(&new, whom, value)?;
    }
    Ok(new)
}

fn set(text: &str, whom: &Whom, values: &[String]) -> Result<String, EditError> {
    if values.is_empty() {
        return Err(EditError::Usage(
            "nothing is to be set: write KEY=VALUE, as user=ai".into(),
        ));
    }
    let root = tree_of(text)?;
    let mut whoms = vec![whom.clone()];
    match whom {
        Whom::All => {}
        Whom::Group(name) => {
            let groups = root.table("groups");
            if groups.and_then(|groups| groups.get(name)).is_none() {
                let names = groups.into_iter().flat_map(|groups| &groups.entries);
                let (offered, _) = offer(name, names.map(|(name, _)| name.as_str()).chain(["all"]));
                return Err(EditError::Unknown(format!(
                    "there is no group \"{name}\"{offered}"
                )));
            }
        }
        Whom::Host(name) => {
            let hosts = root.table("hosts");
            if hosts.and_then(|hosts| hosts.get(name)).is_none() {
                let known = host_names(&root);
                let all =
                    range::expand(name).map_err(|error| EditError::Usage(error.to_string()))?;
                if let Some(missing) = all.iter().find(|one| !known.contains(one)) {
                    return Err(no_host(missing, &known));
                }
                whoms = all.into_iter().map(Whom::Host).collect();
            }
        }
    }
    let mut new = text.to_owned();
    for whom in &whoms {
        for value in values {
            new = assign(&new, whom, value)?;
        }
    }
    Ok(new)
}

fn no_host(name: &str, known: &[String]) -> EditError {
    let (offered, _) = offer(name, known.iter().map(String::as_str));
    EditError::Unknown(format!("there is no host \"{name}\"{offered}"))
}

/// Sets one `KEY=VALUE` in the table of `whom`, which may have to be made.
fn assign(text: &str, whom: &Whom, pair: &str) -> Result<String, EditError> {
    let (key, given) = pair.split_once('=').ok_or_else(|| {
        EditError::Usage(format!(
            "\"{}\" sets nothing: write KEY=VALUE, as user=ai",
            pair.escape_debug()
        ))
    })?;
    let (key, given) = (key.trim(), given.trim());
    let of_group = matches!(whom, Whom::Group(_));
    let mut names: Vec<String> = match value::way(key, of_group) {
        Ok(names) => names,
        Err(value::NoKey::Unknown) => {
            let others: &[&str] = if of_group { &["hosts"] } else { &[] };
            return Err(EditError::Usage(
                unknown_setting(key, &whom.place(), others).0,
            ));
        }
        Err(value::NoKey::Because(reason)) => return Err(EditError::Usage(reason)),
    };
    let root = tree_of(text)?;
    let old = plain(&root);
    let mut way = whom.way();
    let depth = way.len();
    way.append(&mut names);
    if given.is_empty() {
        if at(&old, &way).is_none() {
            return Ok(text.to_owned());
        }
        let new = remove::entry(text, &way, depth)?;
        prove(&new, &without(&old, &way), whom)?;
        return Ok(new);
    }
    let written = value::written(key, given).map_err(EditError::Usage)?;
    let wanted = value::meaning(&written)
        .ok_or_else(|| EditError::Usage(format!("the value of {key} cannot be written in TOML")))?;
    if at(&old, &way) == Some(&wanted) {
        return Ok(text.to_owned());
    }
    let new = place::value(text, &root, &way, depth, &written)?;
    prove(&new, &with(&old, &way, wanted), whom)?;
    Ok(new)
}

/// What a tree says, without where.
fn plain(table: &Table) -> Json {
    let value = |value: &Value| -> Json { plain_value(value) };
    Json::Object(
        table
            .entries
            .iter()
            .map(|(name, node)| (name.clone(), value(&node.value)))
            .collect(),
    )
}

fn plain_value(value: &Value) -> Json {
    match value {
        Value::Text(text) => Json::String(text.clone()),
        Value::Date(date) => serde_json::json!({ "a date": date }),
        Value::Whole(number) => (*number).into(),
        Value::Float(number) => serde_json::json!({ "bits": number.to_bits() }),
        Value::Flag(flag) => (*flag).into(),
        Value::List(list) => list.iter().map(|node| plain_value(&node.value)).collect(),
        Value::Table(table) => plain(table),
        Value::Tables(_) => Json::Null,
    }
}

fn at<'j>(root: &'j Json, way: &[String]) -> Option<&'j Json> {
    way.iter().try_fold(root, |json, name| json.get(name))
}

fn with(root: &Json, way: &[String], value: Json) -> Json {
    let Some((first, rest)) = way.split_first() else {
        return value;
    };
    let mut map = root.as_object().cloned().unwrap_or_default();
    let inner = map.get(first).cloned().unwrap_or(Json::Null);
    map.insert(first.clone(), with(&inner, rest, value));
    Json::Object(map)
}

fn without(root: &Json, way: &[String]) -> Json {
    let Some((first, rest)) = way.split_first() else {
        return Json::Null;
    };
    let mut map = root.as_object().cloned().unwrap_or_default();
    if rest.is_empty() {
        map.remove(first);
    } else if let Some(inner) = map.get(first) {
        let left = without(inner, rest);
        map.insert(first.clone(), left);
    }
    Json::Object(map)
}

/// Without tables that say nothing: an edit may leave one or take it along. A host or group without
/// values says that it is there.
fn pruned(json: &Json, names_things: bool) -> Json {
    let Json::Object(map) = json else {
        return json.clone();
    };
    map.iter()
        .map(|(name, inner)| (name.clone(), pruned(inner, false)))
        .filter(|(_, inner)| names_things || inner.as_object().is_none_or(|map| !map.is_empty()))
        .collect::<Map<_, _>>()
        .into()
}

/// What a text says, as far as an edit has to keep it.
fn essence(root: &Json) -> Json {
    let Json::Object(map) = root else {
        return root.clone();
    };
    map.iter()
        .map(|(name, inner)| {
            let names_things = matches!(name.as_str(), "hosts" | "groups");
            (name.clone(), pruned(inner, names_things))
        })
        .filter(|(_, inner)| inner.as_object().is_none_or(|map| !map.is_empty()))
        .collect::<Map<_, _>>()
        .into()
}

/// Checks that a text says what is wanted; the order of keys aside, as in TOML.
fn prove(new: &str, wanted: &Json, whom: &Whom) -> Result<(), EditError> {
    let mut faults = Faults::new(new);
    let root = tree::parse(new, &mut faults);
    if faults.is_empty() && essence(&plain(&root)) == essence(wanted) {
        return Ok(());
    }
    Err(EditError::ByHand(format!(
        "{} is written so that this cannot be changed without touching other lines",
        whom.place()
    )))
}

/// A replacement of bytes.
#[derive(Clone, Debug)]
struct Patch {
    range: std::ops::Range<usize>,
    text: String,
}

/// The text with all patches made; overlapping ones count as one removal.
fn patched(text: &str, mut patches: Vec<Patch>) -> String {
    patches.sort_by_key(|patch| (patch.range.start, patch.range.end));
    let mut new = String::with_capacity(text.len() + 64);
    let mut done = 0;
    for patch in patches {
        if patch.range.start > done {
            new.push_str(text.get(done..patch.range.start).unwrap_or_default());
        }
        new.push_str(&patch.text);
        done = done.max(patch.range.end);
    }
    new.push_str(text.get(done..).unwrap_or_default());
    new
}

/// First byte of the line of a byte.
fn line_start(text: &str, at: usize) -> usize {
    text.get(..at)
        .and_then(|before| before.rfind('\n'))
        .map_or(0, |newline| newline + 1)
}

/// First byte after the line of a byte, its line end included.
fn line_end(text: &str, at: usize) -> usize {
    text.get(at..)
        .and_then(|after| after.find('\n'))
        .map_or(text.len(), |newline| at + newline + 1)
}

/// How lines end in a text: as its first one does.
fn newline(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text.get(..at).is_some_and(|line| line.ends_with('\r')) => "\r\n",
        _ => "\n",
    }
}

/// Line of a byte, for messages.
fn line_of(text: &str, at: usize) -> usize {
    position(text, at).0
}
