//! From the tree of a text to what each table says, every value read and every unknown key
//! refused. Must not know how tables are put together: see [`super::resolve`].

use std::collections::BTreeMap;

use toml_edit::Key as TomlKey;

use super::fault::{Faults, offer};
use super::key::{self, KEYS, Kind, Setting};
use super::range;
use super::tree::{Node, Table, Value};
use crate::figures::counted;
use crate::secret::Secret;

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed<T> {
    /// First byte of the value.
    pub at: usize,
    /// The value.
    pub value: T,
}

/// Settings of one table, by the key's name with dots; free values as `vars.NAME`.
pub(super) type Settings = BTreeMap<String, Placed<Setting>>;

/// One table of hosts.
#[derive(Clone, Debug)]
pub(super) struct HostTable {
    /// Its name as written, perhaps a range.
    pub name: Placed<String>,
    /// The hosts it is for.
    pub hosts: Vec<String>,
    /// What it says.
    pub settings: Settings,
}

/// One group.
#[derive(Clone, Debug)]
pub(super) struct GroupTable {
    /// Its name.
    pub name: Placed<String>,
    /// Names, ranges and globs of hosts, as written.
    pub hosts: Vec<Placed<String>>,
    /// What it says for them.
    pub settings: Settings,
}

/// What the table `cluster` says.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterTable {
    pub name: Option<Placed<String>>,
    pub head: Option<Placed<String>>,
    pub listen: Option<Placed<std::net::SocketAddr>>,
    pub api_key: Option<Placed<Secret>>,
    /// Where the table stands.
    pub at: Option<usize>,
}

/// All tables.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    pub cluster: ClusterTable,
    pub defaults: Settings,
    pub groups: Vec<GroupTable>,
    pub hosts: Vec<HostTable>,
}

/// Longest name of a cluster, host or group.
const LONGEST_NAME: usize = 40;
/// Longest name of a host: it may be a name of the domain name system.
const LONGEST_HOST: usize = 253;

/// Reads all tables.
pub(super) fn read(root: &Table, faults: &mut Faults<'_>) -> Tables {
    let mut tables = Tables::default();
    for (name, node) in &root.entries {
        let Some(inner) = node.table() else {
            match name.as_str() {
                "cluster" | "defaults" | "groups" | "hosts" => faults.add(
                    node.key.start,
                    format!("{name} is {}: write a table, [{name}]", node.kind()),
                ),
                _ => unknown(
                    faults,
                    node,
                    name,
                    "at the top",
                    &["cluster", "defaults", "groups", "hosts"],
                ),
            }
            continue;
        };
        match name.as_str() {
            "cluster" => tables.cluster = cluster(node, inner, faults),
            "defaults" => tables.defaults = settings(inner, "[defaults]", &[], faults),
            "groups" => groups(inner, &mut tables, faults),
            "hosts" => hosts(inner, &mut tables, faults),
            _ => unknown(
                faults,
                node,
                name,
                "at the top",
                &["cluster", "defaults", "groups", "hosts"],
            ),
        }
    }
    tables
}

fn unknown(faults: &mut Faults<'_>, node: &Node, name: &str, place: &str, valid: &[&str]) {
    let (offered, nearest) = offer(name, valid.iter().copied());
    faults.add_named(
        node.key.start,
        format!("unknown key \"{name}\" {place}{offered}"),
        nearest,
    );
}

fn cluster(node: &Node, table: &Table, faults: &mut Faults<'_>) -> ClusterTable {
    let mut cluster = ClusterTable {
        at: Some(node.key.start),
        ..ClusterTable::default()
    };
    for (name, node) in &table.entries {
        let placed = |value: String| Placed {
            at: node.at.start,
            value,
        };
        match (name.as_str(), &node.value) {
            ("name", Value::Text(text)) => {
                let fits = !text.is_empty()
                    && text.len() <= LONGEST_NAME
                    && !text.starts_with('-')
                    && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
                if !fits {
                    faults.add(
                        node.at.start,
                        format!(
                            "the cluster's name is \"{}\": it takes letters, digits and dashes, at most {LONGEST_NAME}, and begins with no dash",
                            text.escape_debug()
                        ),
                    );
                }
                cluster.name = Some(placed(text.clone()));
            }
            ("head", Value::Text(text)) => cluster.head = Some(placed(text.clone())),
            ("name", _) => faults.add(node.at.start, "name is no text: write name = \"home\""),
            ("head", _) => {
                faults.add(
                    node.at.start,
                    "head is no text: write a host's name, as head = \"halo1\"",
                );
            }
            ("api", Value::Table(api)) => {
                for (name, node) in &api.entries {
                    if name != "listen" {
                        let extra = if name == "key" || name == "api_key" {
                            "; the key stands in [cluster], as api_key = { env = \"NAME\" }"
                        } else {
                            ""
                        };
                        let (offered, nearest) = offer(name, ["listen"]);
                        let offered = if extra.is_empty() { &offered } else { extra };
                        faults.add_named(
                            node.key.start,
                            format!("unknown key \"{name}\" in api{offered}"),
                            nearest,
                        );
                        continue;
                    }
                    let parsed = match &node.value {
                        Value::Text(text) => text.parse::<std::net::SocketAddr>().ok(),
                        _ => None,
                    };
                    match parsed.filter(|address| address.port() != 0) {
                        Some(value) => {
                            cluster.listen = Some(Placed {
                                at: node.at.start,
                                value,
                            });
                        }
                        None => faults.add(
                            node.at.start,
                            "api.listen is no address with a port: write it as \"127.0.0.1:8080\" or \"[::1]:8080\"",
                        ),
                    }
                }
            }
            ("api", _) => faults.add(
                node.at.start,
                "api is no table: write api = { listen = \"127.0.0.1:8080\" }",
            ),
            ("api_key", _) => match key::secret("api_key", node) {
                Ok(value) => {
                    cluster.api_key = Some(Placed {
                        at: node.at.start,
                        value,
                    });
                }
                Err(message) => {
                    // So that its absence is no second fault.
                    cluster.api_key = Some(Placed {
                        at: node.at.start,
                        value: Secret::Env(String::new()),
                    });
                    faults.add(node.at.start, message);
                }
            },
            _ => unknown(
                faults,
                node,
                name,
                "in [cluster]",
                &["name", "head", "api", "api_key"],
            ),
        }
    }
    cluster
}

/// Settings of a host, group or the defaults. `others` are keys that the caller reads.
fn settings(table: &Table, place: &str, others: &[&str], faults: &mut Faults<'_>) -> Settings {
    let mut settings = Settings::new();
    for (name, node) in &table.entries {
        if others.contains(&name.as_str()) {
            continue;
        }
        if name == "vars" {
            match node.table() {
                Some(vars) => {
                    for (name, node) in &vars.entries {
                        take(&mut settings, "vars", &format!("vars.{name}"), node, faults);
                    }
                }
                None => faults.add(
                    node.at.start,
                    format!("vars is {}: write it as vars = {{ rack = 3 }}", node.kind()),
                ),
            }
            continue;
        }
        if key::named(name).is_some() {
            take(&mut settings, name, name, node, faults);
            continue;
        }
        let inner: Vec<&str> = KEYS
            .iter()
            .filter_map(|key| key.name.strip_prefix(name.as_str())?.strip_prefix('.'))
            .collect();
        if inner.is_empty() {
            let (message, nearest) = unknown_setting(name, place, others);
            faults.add_named(node.key.start, message, Some(nearest));
            continue;
        }
        match node.table() {
            Some(table) => {
                for (key, node) in &table.entries {
                    let full = format!("{name}.{key}");
                    if key::named(&full).is_some() {
                        take(&mut settings, &full, &full, node, faults);
                    } else {
                        unknown(faults, node, key, &format!("in {name} of {place}"), &inner);
                    }
                }
            }
            None if inner == ["password"] => {
                let message = format!(
                    "{name} is {}: write {name} = {{ password = {{ env = \"NAME\" }} }}",
                    node.kind()
                );
                faults.add(node.at.start, message);
            }
            None => faults.add(
                node.at.start,
                format!(
                    "{name} is {}: write a table, as {name} = {{ {} = … }}",
                    node.kind(),
                    inner.first().copied().unwrap_or_default()
                ),
            ),
        }
    }
    settings
}

/// What to say of a key that is not in the list, and the nearest that is.
pub(super) fn unknown_setting(name: &str, place: &str, others: &[&str]) -> (String, String) {
    // A key without the table it stands in, such as "port", is an exact hit of its last word.
    let inner = KEYS.iter().find(|key| {
        key.name
            .split_once('.')
            .is_some_and(|(_, last)| last == name)
    });
    if let Some(key) = inner {
        let message = format!(
            "unknown key \"{name}\" in {place}; did you mean \"{}\"?",
            key.name
        );
        return (message, key.name.to_owned());
    }
    let valid: Vec<&str> = KEYS
        .iter()
        .flat_map(|key| match key.name.split_once('.') {
            Some((table, _)) => [table, key.name],
            None => [key.name, key.name],
        })
        .chain(others.iter().copied())
        .collect();
    let (mut offered, nearest) = offer(name, valid);
    if !offered.ends_with('?') {
        offered.push_str(", and free values go under \"vars\"");
    }
    (
        format!("unknown key \"{name}\" in {place}{offered}"),
        nearest.unwrap_or_default(),
    )
}

fn take(settings: &mut Settings, key: &str, name: &str, node: &Node, faults: &mut Faults<'_>) {
    let Some(key) = key::named(key) else { return };
    match key::read(key, node) {
        Ok(value) => {
            let at = node.at.start;
            settings.insert(name.to_owned(), Placed { at, value });
        }
        Err(message) => faults.add(node.at.start, message),
    }
}

fn groups(table: &Table, tables: &mut Tables, faults: &mut Faults<'_>) {
    for (name, node) in &table.entries {
        let place = format!("[groups.{}]", TomlKey::new(name).display_repr());
        let Some(inner) = node.table() else {
            faults.add(
                node.key.start,
                format!("groups.{name} is {}: write a table, {place}", node.kind()),
            );
            continue;
        };
        if name == "all" {
            faults.add(
                node.key.start,
                "the group \"all\" is always there and has every host: write [defaults] for what all have",
            );
        } else if !is_name(name, LONGEST_NAME) {
            faults.add(node.key.start, bad_name("group", name, LONGEST_NAME));
        }
        let mut hosts = Vec::new();
        for (key, node) in &inner.entries {
            match (key.as_str(), &node.value) {
                ("groups", _) => faults.add(
                    node.key.start,
                    format!("a group is in no group: put \"groups\" into the hosts' tables, or list the hosts in {place}"),
                ),
                ("hosts", Value::List(list)) => {
                    for element in list {
                        match &element.value {
                            Value::Text(text) => hosts.push(Placed {
                                at: element.at.start,
                                value: text.clone(),
                            }),
                            _ => faults.add(
                                element.at.start,
                                format!(
                                    "hosts has {}: write names, as hosts = [\"halo1\", \"mac[1-5]\"]",
                                    element.kind()
                                ),
                            ),
                        }
                    }
                }
                ("hosts", _) => faults.add(
                    node.at.start,
                    format!(
                        "hosts is {}: write a list, as hosts = [\"halo1\", \"mac[1-5]\"]",
                        node.kind()
                    ),
                ),
                _ => {}
            }
        }
        let settings = settings(inner, &place, &["hosts", "groups"], faults);
        for (name, placed) in &settings {
            if matches!(placed.value, Setting::Addresses(_, true)) {
                faults.add(
                    placed.at,
                    format!("{name} has a range, which only the table of a range of hosts pairs up: move it into [hosts.\"…[1-5]\"]"),
                );
            }
        }
        tables.groups.push(GroupTable {
            name: Placed {
                at: node.key.start,
                value: name.clone(),
            },
            hosts,
            settings,
        });
    }
}

fn hosts(table: &Table, tables: &mut Tables, faults: &mut Faults<'_>) {
    for (name, node) in &table.entries {
        let place = host_place(name);
        let Some(inner) = node.table() else {
            faults.add(
                node.key.start,
                format!("hosts.{name} is {}: write a table, {place}", node.kind()),
            );
            continue;
        };
        let expanded = match range::expand(name) {
            Ok(names) => names,
            Err(error) => {
                faults.add(node.key.start, error.to_string());
                Vec::new()
            }
        };
        let mut seen = std::collections::BTreeSet::new();
        for one in &expanded {
            if !is_name(one, LONGEST_HOST) {
                faults.add(node.key.start, bad_name("host", one, LONGEST_HOST));
                break;
            }
            if !seen.insert(one.as_str()) {
                faults.add(
                    node.key.start,
                    format!("\"{name}\" names \"{one}\" twice: take it out of the range once"),
                );
                break;
            }
        }
        let settings = settings(inner, &place, &[], faults);
        for (name, placed) in &settings {
            if let Setting::Addresses(values, true) = &placed.value
                && !expanded.is_empty()
                && values.len() != expanded.len()
            {
                faults.add(
                    placed.at,
                    format!(
                        "{name} stands for {} and {place} for {}: make both ranges as long",
                        counted(values.len(), "address", "addresses"),
                        counted(expanded.len(), "host", "hosts")
                    ),
                );
            }
        }
        tables.hosts.push(HostTable {
            name: Placed {
                at: node.key.start,
                value: name.clone(),
            },
            hosts: expanded,
            settings,
        });
    }
}

/// A host's table as written.
pub(super) fn host_place(name: &str) -> String {
    format!("[hosts.{}]", TomlKey::new(name).display_repr())
}

/// Whether a text may name a host or group: nothing in it may mean something in a selector or a
/// path.
pub(super) fn is_name(text: &str, longest: usize) -> bool {
    !text.is_empty()
        && text.len() <= longest
        && !text.starts_with(['-', '.'])
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn bad_name(what: &str, name: &str, longest: usize) -> String {
    format!(
        "\"{}\" names no {what}: a name takes letters, digits, \"-\", \"_\" and \".\", at most {longest}, and begins with a letter, digit or \"_\"",
        name.escape_debug()
    )
}

impl Kind {
    /// Whether values of it are files, to be taken from the inventory's folder.
    pub(super) fn is_path(self) -> bool {
        self == Self::Path
    }
}
