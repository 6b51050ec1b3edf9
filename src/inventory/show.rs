//! An inventory as people and scripts read it. Pure: text and JSON out; must not know where they
//! are shown. A secret's place is named, its command's arguments are not.

use serde_json::{Map, Value as Json, json};

use super::host::{Connection, DATA_PORT, Host, Inventory, Level};
use super::key::KEYS;
use crate::secret::Secret;

/// A table for people: columns as wide as their widest cell, two spaces between, none at the end.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The hosts, one a line.
pub fn list(inventory: &Inventory, hosts: &[&Host]) -> String {
    let mut rows = vec![
        ["host", "address", "data", "groups", ""]
            .map(str::to_owned)
            .to_vec(),
    ];
    for host in hosts {
        let address = if host.connection == Connection::Local {
            "this machine".to_owned()
        } else {
            let user = host
                .user
                .as_ref()
                .map_or(String::new(), |u| format!("{u}@"));
            match host.ssh.port {
                Some(port) => format!("{user}{}", with_port(&host.address, port)),
                None => format!("{user}{}", host.address),
            }
        };
        let data = if host.data_port == DATA_PORT {
            host.data.clone()
        } else {
            with_port(&host.data, host.data_port)
        };
        let mark = if host.name == inventory.cluster.head {
            "head"
        } else {
            ""
        };
        rows.push(vec![
            host.name.clone(),
            address,
            data,
            host.groups.join(", "),
            mark.to_owned(),
        ]);
    }
    columns(&rows)
}

fn with_port(address: &str, port: u16) -> String {
    if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

/// The cluster's values, one a line.
pub fn cluster(inventory: &Inventory) -> String {
    let cluster = &inventory.cluster;
    let key = match &cluster.api.key {
        Some(key) => key.origin(),
        None => "none".to_owned(),
    };
    let rows = [
        ("cluster", cluster.name.clone()),
        ("head", cluster.head.clone()),
        ("api", cluster.api.listen.clone()),
        ("api key", key),
        ("file", inventory.path.display().to_string()),
    ];
    columns(&rows.map(|(name, value)| vec![name.to_owned(), value]))
}

/// Every value of a host with where it comes from, one a line.
pub fn host(inventory: &Inventory, host: &Host) -> String {
    let file = inventory
        .path
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut rows = Vec::new();
    for (key, value) in values(host) {
        let origin = inventory
            .origins
            .get(&host.name)
            .and_then(|origins| origins.get(&key));
        let (place, table) = match origin {
            Some(origin) => (
                match origin.line {
                    Some(line) => format!("{file}:{line}"),
                    None => "built-in".to_owned(),
                },
                match origin.from {
                    Level::BuiltIn if origin.place == "built-in" => String::new(),
                    _ => origin.place.clone(),
                },
            ),
            // Groups are listed by the groups' own tables.
            None => (String::new(), String::new()),
        };
        rows.push(vec![format!("  {key}"), value, place, table]);
    }
    format!("{}\n{}", host.name, columns(&rows))
}

/// The values that a host has, by key with dots, as people read them.
fn values(host: &Host) -> Vec<(String, String)> {
    let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|p| p.display().to_string());
    let secret = |secret: &Option<Secret>| secret.as_ref().map(Secret::origin);
    let mut all = Vec::new();
    for key in KEYS {
        let value = match key.name {
            "address" => Some(host.address.clone()),
            "data" => Some(host.data.clone()),
            "data_port" => Some(host.data_port.to_string()),
            "user" => host.user.clone(),
            "connection" => Some(
                match host.connection {
                    Connection::Ssh => "ssh",
                    Connection::Local => "local",
                }
                .to_owned(),
            ),
            "ssh.port" => host.ssh.port.map(|port| port.to_string()),
            "ssh.identity" => path(&host.ssh.identity),
            "ssh.jump" => host.ssh.jump.clone(),
            "ssh.known_hosts" => path(&host.ssh.known_hosts),
            "ssh.host_key" => host.ssh.host_key.clone(),
            "ssh.password" => secret(&host.ssh.password),
            "sudo.password" => secret(&host.sudo_password),
            "memory_limit" => host.memory_limit.map(memory),
            "threads" => host.threads.map(|count| count.to_string()),
            "device" => host.device.clone(),
            "groups" => (!host.groups.is_empty()).then(|| host.groups.join(", ")),
            _ => None,
        };
        if let Some(value) = value {
            all.push((key.name.to_owned(), value));
        }
    }
    for (name, value) in &host.vars {
        all.push((format!("vars.{name}"), value.to_string()));
    }
    all
}

/// Memory in the unit in which it is written, for a limit is compared with what was written.
fn memory(bytes: u64) -> String {
    let unit = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB")]
        .into_iter()
        .chain([(1_000_000_000, "GB"), (1_000_000, "MB")])
        .find(|(factor, _)| bytes.is_multiple_of(*factor));
    match unit {
        Some((factor, name)) => format!("{}{name}", bytes / factor),
        None => format!("{bytes} bytes"),
    }
}

/// The inventory for scripts; `origins` adds where each value comes from.
pub fn json(inventory: &Inventory, hosts: &[&Host], origins: bool) -> Json {
    let hosts: Vec<Json> = hosts
        .iter()
        .map(|host| {
            let mut fields = match serde_json::to_value(host) {
                Ok(Json::Object(fields)) => fields,
                _ => Map::new(),
            };
            let place = |secret: &Option<Secret>| json!(secret.as_ref().map(Secret::origin));
            if let Some(ssh) = fields.get_mut("ssh") {
                ssh["password"] = place(&host.ssh.password);
            }
            fields.insert("sudo_password".into(), place(&host.sudo_password));
            if origins {
                fields.insert("origins".into(), json!(inventory.origins.get(&host.name)));
            }
            Json::Object(fields)
        })
        .collect();
    json!({
        "path": inventory.path.display().to_string(),
        "found": inventory.found,
        "cluster": {
            "name": inventory.cluster.name,
            "head": inventory.cluster.head,
            "api": {
                "listen": inventory.cluster.api.listen,
                "key": inventory.cluster.api.key.as_ref().map(Secret::origin),
            },
        },
        "hosts": hosts,
        "groups": inventory.groups.iter().map(|group| json!({
            "name": group.name,
            "hosts": group.hosts,
        })).collect::<Vec<_>>(),
    })
}
