//! Puts tables together: ranges, groups, defaults, origins, and what must hold between tables.
//! Pure; must not know where the text came from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::fault::{Faults, offer};
use super::host::{
    ApiSettings, Cluster, Connection, DATA_PORT, Found, Group, Host, Inventory, Level, Origin,
    SshSettings,
};
use super::key::{self, Setting};
use super::range::{self, MOST_NAMES};
use super::read::{ClusterTable, HostTable, Placed, Settings, Tables, host_place};
use super::select::glob;
use crate::secret::Secret;

/// Where the API listens unless said otherwise.
const LISTEN: &str = "127.0.0.1:8080";
/// Address of a host that is this machine, unless said otherwise.
const THIS_MACHINE: &str = "127.0.0.1";

/// The tables that speak of one host.
#[derive(Default)]
struct Sources<'t> {
    own: Option<&'t HostTable>,
    /// With the host's place in each.
    ranges: Vec<(&'t HostTable, usize)>,
    groups: Vec<usize>,
}

/// A value for one host, before it is put in its place.
struct Picked {
    value: Setting,
    origin: Origin,
    at: usize,
}

/// Puts the tables together. `partial`: lines with faults are missing, so nothing is said of what
/// is absent.
pub(super) fn resolve(
    path: &Path,
    tables: &Tables,
    partial: bool,
    faults: &mut Faults<'_>,
    warnings: &mut Faults<'_>,
) -> Inventory {
    let mut order: Vec<&str> = Vec::new();
    let mut sources: BTreeMap<&str, Sources<'_>> = BTreeMap::new();
    for table in &tables.hosts {
        for (place, name) in table.hosts.iter().enumerate() {
            let entry = sources.entry(name).or_insert_with(|| {
                order.push(name);
                Sources::default()
            });
            if range::is_range(&table.name.value) {
                entry.ranges.push((table, place));
            } else {
                entry.own = Some(table);
            }
        }
    }
    if order.len() > MOST_NAMES {
        let at = tables.hosts.last().map_or(0, |table| table.name.at);
        faults.add(
            at,
            format!("there are more than {MOST_NAMES} hosts: split the inventory"),
        );
        order.truncate(MOST_NAMES);
    }
    if order.is_empty() && tables.hosts.is_empty() && !partial {
        faults.add(
            0,
            "there is no host: add one, as [hosts.halo1], or with `windlass inventory add NAME`",
        );
    }
    let groups = members(tables, &order, &mut sources, partial, faults, warnings);
    let mut inventory = Inventory {
        path: path.to_owned(),
        cluster: Cluster {
            name: String::new(),
            head: String::new(),
            api: ApiSettings {
                listen: LISTEN.into(),
                key: None,
            },
        },
        hosts: Vec::new(),
        groups,
        origins: BTreeMap::new(),
        warnings: Vec::new(),
        found: Found::default(),
    };
    let mut conflicts = Conflicts::default();
    let mut jumps = BTreeMap::new();
    for name in &order {
        let Some(from) = sources.get(name) else {
            continue;
        };
        let mut picked = pick_all(name, from, tables, faults, &mut conflicts);
        // Who inherits a jump over itself is the machine that the others jump over.
        let over_itself = picked.get("ssh.jump").is_some_and(|jump| {
            jump.origin.from != Level::Host && jump.value == Setting::Text((*name).to_owned())
        });
        if over_itself {
            picked.remove("ssh.jump");
        }
        if let Some(jump) = picked.get("ssh.jump") {
            jumps.insert((*name).to_owned(), jump.at);
        }
        let (host, origins) = build(name, picked, from, tables, path);
        inventory.hosts.push(host);
        inventory.origins.insert((*name).to_owned(), origins);
    }
    conflicts.tell(faults);
    circles(&inventory, &jumps, faults);
    cluster(&mut inventory, &tables.cluster, path, partial, faults);
    doubtful(&inventory, tables, warnings);
    inventory
}

/// The groups with their hosts; each host's groups are noted in its sources.
fn members<'t>(
    tables: &'t Tables,
    order: &[&'t str],
    sources: &mut BTreeMap<&'t str, Sources<'t>>,
    partial: bool,
    faults: &mut Faults<'_>,
    warnings: &mut Faults<'_>,
) -> Vec<Group> {
    let mut sets: Vec<BTreeSet<&str>> = Vec::new();
    for group in &tables.groups {
        let mut set = BTreeSet::new();
        for element in &group.hosts {
            let text = element.value.as_str();
            if text.starts_with(['@', '!']) || text.contains(['&', ' ']) {
                faults.add(
                    element.at,
                    format!("\"{}\" is no host: a group lists names, ranges and globs of hosts, as [\"halo1\", \"mac[1-5]\", \"spark*\"]", text.escape_debug()),
                );
                continue;
            }
            let names = match range::expand(text) {
                Ok(names) => names,
                Err(error) => {
                    faults.add(element.at, error.to_string());
                    continue;
                }
            };
            for name in names {
                if name.contains(['*', '?']) {
                    let before = set.len();
                    set.extend(order.iter().filter(|host| glob(&name, host)));
                    if set.len() == before && !order.iter().any(|host| glob(&name, host)) {
                        warnings.add(element.at, format!("\"{name}\" matches no host"));
                    }
                } else if let Some(host) = order.iter().find(|host| **host == name) {
                    set.insert(*host);
                } else if !partial {
                    let (offered, nearest) = offer(&name, order.iter().copied());
                    faults.add_named(
                        element.at,
                        format!("there is no host \"{}\"{offered}", name.escape_debug()),
                        nearest,
                    );
                }
            }
        }
        sets.push(set);
    }
    let valid: Vec<&str> = tables
        .groups
        .iter()
        .map(|g| g.name.value.as_str())
        .collect();
    let mut told = BTreeSet::new();
    for host in order {
        let Some(from) = sources.get_mut(host) else {
            continue;
        };
        let listed = from
            .own
            .into_iter()
            .chain(from.ranges.iter().map(|(table, _)| *table))
            .map(|table| &table.settings)
            .chain([&tables.defaults])
            .find_map(|settings| settings.get("groups"));
        if let Some(Placed {
            at,
            value: Setting::Groups(names),
        }) = listed
        {
            for name in names.iter().filter(|name| *name != "all") {
                match valid.iter().position(|known| known == name) {
                    Some(index) => {
                        if let Some(set) = sets.get_mut(index) {
                            set.insert(host);
                        }
                    }
                    None if !partial && told.insert((*at, name)) => {
                        let (offered, nearest) = offer(name, valid.iter().copied());
                        faults.add_named(
                            *at,
                            format!(
                                "there is no group \"{}\"{offered}{} a new group needs its table, [groups.NAME]",
                                name.escape_debug(),
                                if offered.ends_with('?') { "" } else { ";" }
                            ),
                            nearest,
                        );
                    }
                    None => {}
                }
            }
        }
        from.groups = sets
            .iter()
            .enumerate()
            .filter_map(|(index, set)| set.contains(host).then_some(index))
            .collect();
    }
    tables
        .groups
        .iter()
        .zip(sets)
        .map(|(group, set)| Group {
            name: group.name.value.clone(),
            hosts: order
                .iter()
                .filter(|host| set.contains(*host))
                .map(|host| (*host).to_owned())
                .collect(),
            line: faults.line(group.name.at),
        })
        .collect()
}

/// Where two values of one key stand, and the key.
type Clash<'t> = (usize, usize, &'t str);
/// The tables of both values, and the hosts that have both.
type Between = (String, String, Vec<String>);
/// A table's name, where the value stands in the text, and the value.
type Given = (String, usize, Setting);

/// Values that two tables of one rank give differently.
#[derive(Default)]
struct Conflicts<'t> {
    /// By key and the places of both values: the tables and the hosts.
    found: BTreeMap<Clash<'t>, Between>,
}

impl Conflicts<'_> {
    fn tell(self, faults: &mut Faults<'_>) {
        for ((first, second, key), (a, b, hosts)) in self.found {
            let host = hosts.first().map(String::as_str).unwrap_or_default();
            let others = match hosts.len() {
                0 | 1 => String::new(),
                more => format!(" (and {} more)", more - 1),
            };
            let line = faults.line(first);
            faults.add(
                second,
                format!(
                    "{a} (line {line}) and {b} give {host}{others} different values of {key}: set it in {}, or in one of the two only",
                    host_place(host)
                ),
            );
        }
    }
}

fn pick_all<'t>(
    host: &str,
    from: &Sources<'t>,
    tables: &'t Tables,
    faults: &Faults<'_>,
    conflicts: &mut Conflicts<'t>,
) -> BTreeMap<&'t str, Picked> {
    let groups = || {
        from.groups
            .iter()
            .filter_map(|index| tables.groups.get(*index))
    };
    let keys: BTreeSet<&str> = from
        .own
        .into_iter()
        .map(|table| &table.settings)
        .chain(from.ranges.iter().map(|(table, _)| &table.settings))
        .chain(groups().map(|group| &group.settings))
        .chain([&tables.defaults])
        .flat_map(|settings| settings.keys().map(String::as_str))
        .collect();
    let mut picked = BTreeMap::new();
    for key in keys {
        let of = |settings: &Settings, place: usize| {
            let placed = settings.get(key)?;
            let value = match &placed.value {
                Setting::Addresses(values, ranged) => {
                    let index = if *ranged { place } else { 0 };
                    Setting::Addresses(vec![values.get(index)?.clone()], false)
                }
                other => other.clone(),
            };
            Some((placed.at, value))
        };
        let ranks: [(Level, Vec<Given>); 4] = [
            (
                Level::Host,
                from.own
                    .into_iter()
                    .filter_map(|table| {
                        let (at, value) = of(&table.settings, 0)?;
                        Some((host_place(&table.name.value), at, value))
                    })
                    .collect(),
            ),
            (
                Level::Range,
                from.ranges
                    .iter()
                    .filter_map(|(table, place)| {
                        let (at, value) = of(&table.settings, *place)?;
                        Some((host_place(&table.name.value), at, value))
                    })
                    .collect(),
            ),
            (
                Level::Group,
                groups()
                    .filter_map(|group| {
                        let (at, value) = of(&group.settings, 0)?;
                        Some((format!("[groups.{}]", group.name.value), at, value))
                    })
                    .collect(),
            ),
            (
                Level::Defaults,
                of(&tables.defaults, 0)
                    .map(|(at, value)| ("[defaults]".to_owned(), at, value))
                    .into_iter()
                    .collect(),
            ),
        ];
        let Some((level, candidates)) = ranks.into_iter().find(|(_, found)| !found.is_empty())
        else {
            continue;
        };
        let mut candidates = candidates.into_iter();
        let Some((place, at, value)) = candidates.next() else {
            continue;
        };
        for (other_place, other_at, other) in candidates {
            if other != value {
                conflicts
                    .found
                    .entry((at, other_at, key))
                    .or_insert_with(|| (place.clone(), other_place, Vec::new()))
                    .2
                    .push(host.to_owned());
            }
        }
        let origin = Origin {
            from: level,
            line: Some(faults.line(at)),
            place,
        };
        picked.insert(key, Picked { value, origin, at });
    }
    picked
}

/// One host from its values.
fn build(
    name: &str,
    picked: BTreeMap<&str, Picked>,
    from: &Sources<'_>,
    tables: &Tables,
    path: &Path,
) -> (Host, BTreeMap<String, Origin>) {
    let mut host = Host {
        name: name.to_owned(),
        address: String::new(),
        data: String::new(),
        data_port: DATA_PORT,
        user: None,
        connection: Connection::Ssh,
        ssh: SshSettings::default(),
        sudo_password: None,
        memory_limit: None,
        threads: None,
        device: None,
        groups: from
            .groups
            .iter()
            .filter_map(|index| tables.groups.get(*index))
            .map(|group| group.name.value.clone())
            .collect(),
        vars: serde_json::Map::new(),
    };
    host.groups.sort();
    let mut origins = BTreeMap::new();
    for (key, Picked { value, origin, .. }) in picked {
        let path_value = |text: String| {
            let is_path = key::named(key).is_some_and(|key| key.kind.is_path());
            if is_path {
                in_folder(path, Path::new(&text))
            } else {
                PathBuf::from(text)
            }
        };
        match (key, value) {
            ("address", Setting::Addresses(mut all, _)) => {
                host.address = all.pop().unwrap_or_default();
            }
            ("data", Setting::Addresses(mut all, _)) => host.data = all.pop().unwrap_or_default(),
            ("data_port", Setting::Port(port)) => host.data_port = port,
            ("user", Setting::Text(text)) => host.user = Some(text),
            ("connection", Setting::Connection(how)) => host.connection = how,
            ("ssh.port", Setting::Port(port)) => host.ssh.port = Some(port),
            ("ssh.identity", Setting::Text(text)) => host.ssh.identity = Some(path_value(text)),
            ("ssh.jump", Setting::Text(text)) => {
                host.ssh.jump = (text != "none").then_some(text);
            }
            ("ssh.known_hosts", Setting::Text(text)) => {
                host.ssh.known_hosts = Some(path_value(text));
            }
            ("ssh.host_key", Setting::Text(text)) => host.ssh.host_key = Some(text),
            ("ssh.password", Setting::Secret(secret)) => {
                host.ssh.password = Some(placed_secret(path, secret));
            }
            ("sudo.password", Setting::Secret(secret)) => {
                host.sudo_password = Some(placed_secret(path, secret));
            }
            ("memory_limit", Setting::Size(bytes)) => host.memory_limit = Some(bytes),
            ("threads", Setting::Threads(count)) => host.threads = Some(count),
            ("device", Setting::Text(text)) => host.device = Some(text),
            (key, Setting::Json(value)) => {
                let name = key.strip_prefix("vars.").unwrap_or(key);
                host.vars.insert(name.to_owned(), value);
            }
            // Groups were taken when hosts were sorted into them.
            _ => {}
        }
        origins.insert(key.to_owned(), origin);
    }
    let mut built_in = |key: &str, place: &str| {
        origins.entry(key.to_owned()).or_insert_with(|| Origin {
            from: Level::BuiltIn,
            line: None,
            place: place.to_owned(),
        });
    };
    if host.address.is_empty() {
        if host.connection == Connection::Local {
            host.address = THIS_MACHINE.into();
            built_in("address", "this machine");
        } else {
            host.address = name.to_owned();
            built_in("address", "the host's name");
        }
    }
    if host.data.is_empty() {
        host.data = host.address.clone();
        built_in("data", "its address");
    }
    built_in("data_port", "built-in");
    built_in("connection", "built-in");
    (host, origins)
}

/// A file as the inventory means it: `~` is the home folder, a relative path begins at the
/// inventory's folder.
fn in_folder(inventory: &Path, file: &Path) -> PathBuf {
    if let Ok(rest) = file.strip_prefix("~")
        && let Ok(home) = etcetera::home_dir()
    {
        return home.join(rest);
    }
    match inventory.parent() {
        Some(folder) => folder.join(file),
        None => file.to_owned(),
    }
}

fn placed_secret(inventory: &Path, secret: Secret) -> Secret {
    match secret {
        Secret::File(file) => Secret::File(in_folder(inventory, &file)),
        other => other,
    }
}

/// Jumps that come back to where they began.
fn circles(inventory: &Inventory, jumps: &BTreeMap<String, usize>, faults: &mut Faults<'_>) {
    let next = |name: &str| {
        let jump = inventory.host(name)?.ssh.jump.as_deref()?;
        inventory.host(jump).map(|host| host.name.as_str())
    };
    let mut told = BTreeSet::new();
    for host in &inventory.hosts {
        let mut way = vec![host.name.as_str()];
        while let Some(hop) = way.last().copied().and_then(next) {
            if hop == host.name {
                let members: BTreeSet<&str> = way.iter().copied().collect();
                if told.insert(members)
                    && let Some(at) = jumps.get(&host.name)
                {
                    way.push(hop);
                    faults.add(
                        *at,
                        format!(
                            "ssh.jump goes in a circle, {}: let one of them be reached without",
                            way.join(" over ")
                        ),
                    );
                }
                break;
            }
            if way.contains(&hop) {
                // A circle that this host only leads into.
                break;
            }
            way.push(hop);
        }
    }
}

fn cluster(
    inventory: &mut Inventory,
    table: &ClusterTable,
    path: &Path,
    partial: bool,
    faults: &mut Faults<'_>,
) {
    match &table.name {
        Some(name) => inventory.cluster.name = name.value.clone(),
        None if !partial => {
            let (at, what) = match table.at {
                Some(at) => (at, "[cluster] has no name: add"),
                None => (0, "the cluster has no name: add [cluster] with"),
            };
            faults.add(
                at,
                format!("{what} name = \"home\"; one deployment runs under it"),
            );
        }
        None => {}
    }
    let first = inventory.hosts.first().map(|host| host.name.clone());
    inventory.cluster.head = match &table.head {
        Some(head) => {
            if inventory.host(&head.value).is_none() && !partial && first.is_some() {
                let names = inventory.hosts.iter().map(|host| host.name.as_str());
                let (offered, nearest) = offer(&head.value, names);
                faults.add_named(
                    head.at,
                    format!(
                        "head is \"{}\", which is no host{offered}",
                        head.value.escape_debug()
                    ),
                    nearest,
                );
            }
            head.value.clone()
        }
        None => first.unwrap_or_default(),
    };
    if let Some(listen) = &table.listen {
        if !listen.value.ip().is_loopback() && table.api_key.is_none() {
            faults.add(
                listen.at,
                format!(
                    "the API listens at {} for other machines, and there is no key: add api_key = {{ env = \"NAME\" }} to [cluster], or listen at 127.0.0.1",
                    listen.value
                ),
            );
        }
        inventory.cluster.api.listen = listen.value.to_string();
    }
    inventory.cluster.api.key = table
        .api_key
        .as_ref()
        .map(|key| placed_secret(path, key.value.clone()));
}

/// What is valid and probably not meant.
fn doubtful(inventory: &Inventory, tables: &Tables, warnings: &mut Faults<'_>) {
    let at = |host: &str| {
        tables
            .hosts
            .iter()
            .find(|table| table.hosts.iter().any(|name| name == host))
            .map_or(0, |table| table.name.at)
    };
    let mut machines: BTreeMap<(&str, Option<u16>, Option<&str>), &str> = BTreeMap::new();
    for host in &inventory.hosts {
        if host.connection == Connection::Local {
            if inventory.hosts.len() > 1 && host.data == THIS_MACHINE {
                warnings.add(
                    at(&host.name),
                    format!(
                        "the other hosts cannot reach {} at {THIS_MACHINE}: set its data to an address of this machine",
                        host.name
                    ),
                );
            }
            continue;
        }
        let machine = (
            host.address.as_str(),
            host.ssh.port,
            host.ssh.jump.as_deref(),
        );
        match machines.get(&machine) {
            Some(other) => warnings.add(
                at(&host.name),
                format!(
                    "{other} and {} have the same address {}: are they one machine?",
                    host.name, host.address
                ),
            ),
            None => {
                machines.insert(machine, &host.name);
            }
        }
    }
    for (group, table) in inventory.groups.iter().zip(&tables.groups) {
        if group.hosts.is_empty() {
            warnings.add(
                table.name.at,
                format!("the group {} has no host", group.name),
            );
        }
    }
}
