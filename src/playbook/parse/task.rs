//! One task's table. Pure.

use std::time::Duration;

use serde_json::Value as Json;

use super::names::{self, Known};
use super::{Include, Item, Reader, json};
use crate::inventory::fault::offer;
use crate::inventory::tree::{Node, Table, Value};
use crate::playbook::expression::{Condition, Template};
use crate::playbook::kinds::argument::{Argument, Form, time};
use crate::playbook::kinds::{self, Kind};
use crate::playbook::model::{Place, Task};

/// Keys of every task.
const KEYS: [&str; 11] = [
    "name", "hosts", "when", "register", "tags", "retries", "delay", "timeout", "no_log", "serial",
    "max_fail",
];
/// The key of a task that stands for another file's tasks.
const INCLUDE: &str = "include";
/// Keys that such a task may have.
const INCLUDE_KEYS: [&str; 4] = ["name", "hosts", "when", "tags"];
/// Hosts of a task that names none.
pub(super) const ALL_HOSTS: &str = "@all";
/// Time between two tries unless said otherwise.
const DELAY: Duration = Duration::from_secs(2);

/// What a task is when all is well with it.
pub(super) fn task(reader: &mut Reader<'_, '_>, node: &Node, table: &Table) -> Option<Item> {
    let faults = reader.faults.count();
    let doing: Vec<(&str, &Node)> = table
        .entries
        .iter()
        .filter(|(name, _)| name == INCLUDE || kinds::of(name).is_some())
        .map(|(name, node)| (name.as_str(), node))
        .collect();
    for (name, inner) in &table.entries {
        if !KEYS.contains(&name.as_str()) && name != INCLUDE && kinds::of(name).is_none() {
            let valid = KEYS
                .into_iter()
                .chain([INCLUDE])
                .chain(kinds::ALL.iter().map(|kind| kind.name()));
            let (offered, nearest) = offer(name, valid);
            reader.faults.add_named(
                inner.key.start,
                format!("unknown key \"{name}\" of a task{offered}"),
                nearest,
            );
        }
    }
    let (what, value) = match doing.as_slice() {
        [one] => *one,
        [] => {
            if reader.faults.count() == faults {
                let all: Vec<&str> = kinds::ALL.iter().map(|kind| kind.name()).collect();
                reader.faults.add(
                    node.key.start,
                    format!(
                        "this task does nothing: give it one of {}, {INCLUDE}",
                        all.join(", ")
                    ),
                );
            }
            common(reader, table, "a task", None);
            return None;
        }
        [first, second, ..] => {
            reader.faults.add(
                second.1.key.start,
                format!(
                    "a task does one thing, and this one has \"{}\" and \"{}\": make two tasks of it",
                    first.0, second.0
                ),
            );
            return None;
        }
    };
    let shared = common(reader, table, what, kinds::of(what));
    if what == INCLUDE {
        return include(reader, table, value, shared).filter(|_| reader.faults.count() == faults);
    }
    let kind = kinds::of(what)?;
    let arguments = arguments(reader, kind, value);
    if let Some(register) = &shared.register {
        reader.known.results.insert(register.clone());
    }
    if reader.faults.count() != faults {
        return None;
    }
    if let Some(wrong) = kind.check(&arguments) {
        reader
            .faults
            .add(value.key.start, format!("{what}: {wrong}"));
        return None;
    }
    Some(Item::Task(Box::new(Task {
        name: reader.name(shared.name, what, value.key.start),
        hosts: shared.hosts,
        kind,
        arguments,
        when: shared.when,
        when_at: shared.when_at,
        register: shared.register,
        tags: shared.tags,
        retries: shared.retries,
        delay: shared.delay.unwrap_or(DELAY),
        timeout: shared.timeout,
        no_log: shared.no_log,
        serial: shared.serial,
        max_fail: shared.max_fail,
        scope: 0,
        folder: None,
        at: reader.stands(node.at.start),
    })))
}

/// What every task may say.
#[derive(Debug)]
struct Shared {
    name: Option<(String, usize)>,
    hosts: Template,
    hosts_given: bool,
    when: Vec<Condition>,
    when_at: Vec<Place>,
    register: Option<String>,
    tags: Vec<String>,
    retries: u32,
    delay: Option<Duration>,
    timeout: Option<Duration>,
    no_log: bool,
    serial: Option<usize>,
    max_fail: Option<usize>,
}

fn common(
    reader: &mut Reader<'_, '_>,
    table: &Table,
    what: &str,
    kind: Option<&'static dyn Kind>,
) -> Shared {
    let mut shared = Shared {
        name: None,
        hosts: Template::Value(ALL_HOSTS.into()),
        hosts_given: false,
        when: Vec::new(),
        when_at: Vec::new(),
        register: None,
        tags: Vec::new(),
        retries: 0,
        delay: None,
        timeout: None,
        no_log: false,
        serial: None,
        max_fail: None,
    };
    for (key, node) in &table.entries {
        let key = key.as_str();
        if !KEYS.contains(&key) {
            continue;
        }
        if what == INCLUDE && !INCLUDE_KEYS.contains(&key) {
            reader.faults.add(
                node.key.start,
                format!("{key} has no meaning for include: give it to the tasks of that file"),
            );
            continue;
        }
        if kind.is_some_and(Kind::together) && ["serial", "max_fail"].contains(&key) {
            reader.faults.add(
                node.key.start,
                format!("{key} has no meaning for {what}: it works on all its hosts at once"),
            );
            continue;
        }
        let count = |most: i64| Form::Whole(i64::from(key == "serial"), most);
        match key {
            "name" => {
                shared.name = literal(reader, key, node, Form::Text)
                    .and_then(|value| value.as_str().map(|text| (text.to_owned(), node.at.start)));
            }
            "hosts" => hosts(reader, node, &mut shared),
            "when" => {
                if let Some(value) = literal(reader, key, node, Form::Conditions) {
                    shared.when = conditions(&value);
                    let at = |node: &Node| reader.stands(node.at.start);
                    shared.when_at = match &node.value {
                        Value::List(items) => items.iter().map(at).collect(),
                        _ => vec![at(node)],
                    };
                    let known = reader.known.clone();
                    for condition in shared.when.clone() {
                        reader.names(&known, condition.names(), node);
                    }
                }
            }
            "register" => register(reader, node, &mut shared),
            "tags" => {
                if let Some(value) = literal(reader, key, node, Form::Texts) {
                    shared.tags = texts(&value);
                }
            }
            "retries" => {
                let value = literal(reader, key, node, count(1_000));
                shared.retries = value
                    .and_then(|value| u32::try_from(value.as_i64()?).ok())
                    .unwrap_or(0);
            }
            "delay" => {
                shared.delay = literal(reader, key, node, Form::Time).and_then(|v| time(&v));
            }
            "timeout" => {
                shared.timeout = literal(reader, key, node, Form::Time).and_then(|v| time(&v));
            }
            "no_log" => {
                shared.no_log =
                    literal(reader, key, node, Form::Flag).is_some_and(|v| v == Json::Bool(true));
            }
            "serial" | "max_fail" => {
                let value = literal(reader, key, node, count(100_000))
                    .and_then(|value| usize::try_from(value.as_i64()?).ok());
                if key == "serial" {
                    shared.serial = value;
                } else {
                    shared.max_fail = value;
                }
            }
            _ => {}
        }
    }
    shared
}

fn texts(value: &Json) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

fn conditions(value: &Json) -> Vec<Condition> {
    texts(value).into_iter().map(Condition).collect()
}

/// A value that must stand as it is, without `{{ }}`.
fn literal(reader: &mut Reader<'_, '_>, key: &str, node: &Node, form: Form) -> Option<Json> {
    let value = match json(node) {
        Ok(value) => value,
        Err((at, message)) => {
            reader.faults.add(at, message);
            return None;
        }
    };
    fitted(reader, key, node, form, &value)
}

fn fitted(
    reader: &mut Reader<'_, '_>,
    key: &str,
    node: &Node,
    form: Form,
    value: &Json,
) -> Option<Json> {
    match form.fit(value) {
        Ok(value) => Some(value),
        Err(unfit) => {
            let shown: String = value.to_string().chars().take(60).collect();
            let offered = unfit
                .nearest
                .as_ref()
                .map(|name| format!("; did you mean \"{name}\"?"))
                .unwrap_or_default();
            reader.faults.add_named(
                node.at.start,
                format!("{key} is {shown}: it must be {}{offered}", unfit.wanted),
                unfit.nearest,
            );
            None
        }
    }
}

fn hosts(reader: &mut Reader<'_, '_>, node: &Node, shared: &mut Shared) {
    let Value::Text(text) = &node.value else {
        reader.faults.add(
            node.at.start,
            format!(
                "hosts is {}: it must be a selector, as \"@all\"",
                node.kind()
            ),
        );
        return;
    };
    match Template::of_text(text) {
        Ok(template) => {
            if let Some(literal) = template.literal() {
                if let Some(wrong) = super::selector_fault(literal.as_str().unwrap_or_default()) {
                    reader.faults.add(node.at.start, wrong);
                }
            } else {
                let known = Known {
                    only_vars: true,
                    ..reader.known.clone()
                };
                reader.names(&known, template.names(), node);
            }
            shared.hosts = template;
            shared.hosts_given = true;
        }
        Err(error) => reader.faults.add(node.at.start, error.message),
    }
}

fn register(reader: &mut Reader<'_, '_>, node: &Node, shared: &mut Shared) {
    let Some(value) = literal(reader, "register", node, Form::Text) else {
        return;
    };
    let name = value.as_str().unwrap_or_default();
    let fine = name
        .chars()
        .enumerate()
        .all(|(index, c)| c == '_' || c.is_ascii_alphabetic() || (index > 0 && c.is_ascii_digit()));
    if !fine {
        reader.faults.add(
            node.at.start,
            format!("register is \"{name}\": it must be a name of letters, digits and _"),
        );
    } else if reader.known.results.contains(name) {
        reader.faults.add(
            node.at.start,
            format!("\"{name}\" is registered by an earlier task already: choose another name"),
        );
    } else {
        shared.register = Some(name.to_owned());
    }
}

/// Arguments, each checked as far as it is known before a run.
fn arguments(
    reader: &mut Reader<'_, '_>,
    kind: &'static dyn Kind,
    node: &Node,
) -> Vec<(String, Template)> {
    let mut given: Vec<(String, &Node)> = Vec::new();
    match &node.value {
        Value::Table(table) => {
            given.extend(
                table
                    .entries
                    .iter()
                    .map(|(name, node)| (name.clone(), node)),
            );
        }
        // `facts = true` reads better than `facts = {}`.
        Value::Flag(true) if kind.arguments().iter().all(|argument| !argument.required) => {}
        _ => match kind.main() {
            Some(main) => given.push((main.to_owned(), node)),
            None => {
                reader.faults.add(
                    node.at.start,
                    format!(
                        "{} is {}: it must be a table, {{ … }}",
                        kind.name(),
                        node.kind()
                    ),
                );
                return Vec::new();
            }
        },
    }
    let valid = kind.arguments();
    let mut arguments = Vec::new();
    for (name, inner) in &given {
        let Some(argument) = valid.iter().find(|argument| argument.name == name) else {
            let (offered, nearest) = offer(name, valid.iter().map(|argument| argument.name));
            reader.faults.add_named(
                inner.key.start,
                format!("unknown key \"{name}\" of {}{offered}", kind.name()),
                nearest,
            );
            continue;
        };
        if let Some(template) = argument_value(reader, kind, argument, inner) {
            arguments.push((name.clone(), template));
        }
    }
    for argument in valid {
        if argument.required && !given.iter().any(|(name, _)| name == argument.name) {
            reader.faults.add(
                node.key.start,
                format!("{} needs \"{}\"", kind.name(), argument.name),
            );
        }
    }
    arguments
}

fn argument_value(
    reader: &mut Reader<'_, '_>,
    kind: &'static dyn Kind,
    argument: &Argument,
    node: &Node,
) -> Option<Template> {
    let label = format!("{}.{}", kind.name(), argument.name);
    if argument.form.is_condition() {
        let value = literal(reader, &label, node, argument.form)?;
        let known = Known {
            further: &["result"],
            ..reader.known.clone()
        };
        for condition in conditions(&value) {
            reader.names(&known, condition.names(), node);
        }
        return Some(Template::Value(value));
    }
    let template = template(reader, node)?;
    if let Some(value) = template.literal() {
        fitted(reader, &label, node, argument.form, &value)?;
    } else {
        let known = Known {
            no_host: kind
                .together()
                .then(|| format!("{} works on all its hosts at once", kind.name())),
            ..reader.known.clone()
        };
        reader.names(&known, template.names(), node);
    }
    Some(template)
}

/// A value with templates in its texts.
fn template(reader: &mut Reader<'_, '_>, node: &Node) -> Option<Template> {
    Some(match &node.value {
        Value::Text(text) => match Template::of_text(text) {
            Ok(template) => template,
            Err(error) => {
                reader.faults.add(node.at.start, error.message);
                return None;
            }
        },
        Value::List(items) => {
            let items: Option<Vec<Template>> =
                items.iter().map(|item| template(reader, item)).collect();
            Template::List(items?)
        }
        Value::Table(table) => {
            let mut entries = Vec::new();
            for (name, inner) in &table.entries {
                entries.push((name.clone(), template(reader, inner)?));
            }
            Template::Table(entries)
        }
        _ => match json(node) {
            Ok(value) => Template::Value(value),
            Err((at, message)) => {
                reader.faults.add(at, message);
                return None;
            }
        },
    })
}

fn include(
    reader: &mut Reader<'_, '_>,
    table: &Table,
    node: &Node,
    shared: Shared,
) -> Option<Item> {
    let mut file = None;
    let mut vars = Vec::new();
    match &node.value {
        Value::Text(text) => file = Some((text.clone(), node.at.start)),
        Value::Table(inner) => {
            for (name, value) in &inner.entries {
                match (name.as_str(), &value.value) {
                    ("file", Value::Text(text)) => file = Some((text.clone(), value.at.start)),
                    ("vars", Value::Table(given)) => {
                        for (name, value) in &given.entries {
                            let known = Known {
                                only_vars: true,
                                ..reader.known.clone()
                            };
                            let template = template(reader, value)?;
                            reader.names(&known, template.names(), value);
                            vars.push((name.clone(), template, reader.place(value.key.start)));
                        }
                    }
                    ("file", _) => reader.faults.add(
                        value.at.start,
                        format!("include.file is {}: it must be text", value.kind()),
                    ),
                    ("vars", _) => reader.faults.add(
                        value.at.start,
                        format!("include.vars is {}: it must be a table", value.kind()),
                    ),
                    (other, _) => {
                        let (offered, nearest) = offer(other, ["file", "vars"]);
                        reader.faults.add_named(
                            value.key.start,
                            format!("unknown key \"{other}\" of include{offered}"),
                            nearest,
                        );
                    }
                }
            }
        }
        _ => {}
    }
    let Some((file, at)) = file.filter(|(file, _)| !file.is_empty()) else {
        reader.faults.add(
            node.key.start,
            "include needs a file, as include = \"more.toml\", or the name of a playbook that comes with windlass",
        );
        return None;
    };
    reader.included = true;
    let name = table.get("name").and(shared.name).map(|(name, _)| name);
    Some(Item::Include(Box::new(Include {
        file,
        place: reader.place(at),
        name,
        hosts: shared.hosts_given.then_some(shared.hosts),
        when: shared.when,
        when_at: shared.when_at,
        tags: shared.tags,
        vars,
    })))
}

impl Reader<'_, '_> {
    /// Looks at the names that a value uses.
    fn names(&mut self, known: &Known, used: impl IntoIterator<Item = String>, node: &Node) {
        for name in used {
            let Some(wrong) = known.wrong(&name) else {
                continue;
            };
            let written = self.text.get(node.at.clone()).unwrap_or_default();
            let at = node.at.start + names::find(written, &wrong.name).unwrap_or(0);
            match wrong.result.filter(|_| self.included) {
                // An included file may have registered it.
                Some(result) => {
                    let place = self.place(at);
                    self.pending.push(super::Pending {
                        before: self.items,
                        result,
                        place,
                        message: wrong.message,
                        nearest: wrong.nearest,
                    });
                }
                None => self.faults.add_named(at, wrong.message, wrong.nearest),
            }
        }
    }
}
