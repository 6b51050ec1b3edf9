//! The closed list of keys that hosts, groups and defaults may have, and what each may hold. Must
//! not know which host a value is for.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use serde_json::{Map, Value as Json};

use super::fault::offer;
use super::host::Connection;
use super::range;
use super::tree::{Node, Value};
use crate::secret::Secret;

/// What a key may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A host's name or address, or a range of them.
    Address,
    /// A port, 1 to 65535.
    Port,
    /// One word.
    Word,
    /// `ssh` or `local`.
    Connection,
    /// A file.
    Path,
    /// Free text.
    Text,
    /// Where a secret is to be had from.
    Secret,
    /// An amount of memory.
    Size,
    /// A whole number of threads.
    Threads,
    /// Names of groups.
    Groups,
    /// Free values.
    Vars,
}

/// A key and what it is for.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name, with a dot when it stands in a table of its own.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// An example of its value, as TOML.
    pub example: &'static str,
}

const fn key(name: &'static str, kind: Kind, example: &'static str) -> Key {
    Key {
        name,
        kind,
        example,
    }
}

/// All keys, in the order in which they are shown.
pub const KEYS: &[Key] = &[
    key("address", Kind::Address, "\"192.168.1.11\""),
    key("data", Kind::Address, "\"10.10.0.1\""),
    key("data_port", Kind::Port, "47600"),
    key("user", Kind::Word, "\"ai\""),
    key("connection", Kind::Connection, "\"ssh\" or \"local\""),
    key("ssh.port", Kind::Port, "22"),
    key("ssh.identity", Kind::Path, "\"~/.ssh/id_ed25519\""),
    key("ssh.jump", Kind::Word, "\"gate\""),
    key("ssh.known_hosts", Kind::Path, "\"~/.ssh/known_hosts\""),
    key("ssh.host_key", Kind::Text, "\"ssh-ed25519 AAAA…\""),
    key("ssh.password", Kind::Secret, SECRETS),
    key("sudo.password", Kind::Secret, SECRETS),
    key("memory_limit", Kind::Size, "\"110GiB\""),
    key("threads", Kind::Threads, "8"),
    key("device", Kind::Word, "\"cpu\""),
    key("groups", Kind::Groups, "[\"halos\"]"),
    key("vars", Kind::Vars, "{ rack = 3 }"),
];

const SECRETS: &str =
    "{ env = \"NAME\" }, { file = \"PATH\" } or { command = [\"PROGRAM\", \"ARGUMENT\"] }";

/// The key of this name.
pub fn named(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Setting {
    /// What an address stands for, and whether it was written with a range.
    Addresses(Vec<String>, bool),
    Port(u16),
    Text(String),
    Connection(Connection),
    Secret(Secret),
    Size(u64),
    Threads(u32),
    Groups(Vec<String>),
    Json(Json),
}

/// Reads a value; what is wrong with it otherwise, as the end of a sentence that begins with the
/// key's name. A literal secret is never repeated.
pub(super) fn read(key: &Key, node: &Node) -> Result<Setting, String> {
    let wrong = |node: &Node| {
        format!(
            "{} is {}: write it as {}",
            key.name,
            node.kind(),
            key.example
        )
    };
    let text = || match &node.value {
        Value::Text(text) if text.is_empty() => Err(format!(
            "{} is empty: write it as {}, or leave it out",
            key.name, key.example
        )),
        Value::Text(text) if text.chars().any(char::is_control) => Err(format!(
            "{} holds a control character: write it as {}",
            key.name, key.example
        )),
        Value::Text(text) => Ok(text.as_str()),
        _ => Err(wrong(node)),
    };
    let whole = |least: i64, most: i64| match node.value {
        Value::Whole(number) if (least..=most).contains(&number) => Ok(number),
        Value::Whole(number) => Err(format!(
            "{} is {number}: it goes from {least} to {most}",
            key.name
        )),
        _ => Err(wrong(node)),
    };
    Ok(match key.kind {
        Kind::Address => {
            let (all, ranged) = addresses(key.name, text()?)?;
            Setting::Addresses(all, ranged)
        }
        Kind::Port => Setting::Port(u16::try_from(whole(1, 65535)?).unwrap_or(u16::MAX)),
        Kind::Threads => Setting::Threads(u32::try_from(whole(1, 4096)?).unwrap_or(u32::MAX)),
        Kind::Word => {
            let word = text()?;
            if word.contains(char::is_whitespace) || word.starts_with('-') {
                return Err(format!(
                    "{} is \"{word}\", which is not one word: write it as {}",
                    key.name, key.example
                ));
            }
            Setting::Text(word.to_owned())
        }
        Kind::Path | Kind::Text => Setting::Text(text()?.to_owned()),
        Kind::Connection => match text()? {
            "ssh" => Setting::Connection(Connection::Ssh),
            "local" => Setting::Connection(Connection::Local),
            other => {
                let (offered, _) = offer(other, ["ssh", "local"]);
                return Err(format!("connection is \"{other}\"{offered}"));
            }
        },
        Kind::Secret => Setting::Secret(secret(key.name, node)?),
        Kind::Size => Setting::Size(match &node.value {
            Value::Whole(number) => u64::try_from(*number)
                .ok()
                .filter(|bytes| *bytes > 0)
                .ok_or_else(|| format!("{} is {number}: it must be above 0", key.name))?,
            _ => size(key.name, text()?)?,
        }),
        Kind::Groups => {
            let Value::List(list) = &node.value else {
                return Err(wrong(node));
            };
            let mut names = Vec::new();
            for element in list {
                let Value::Text(name) = &element.value else {
                    return Err(wrong(element));
                };
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
            Setting::Groups(names)
        }
        Kind::Vars => Setting::Json(json(node)?),
    })
}

/// Reads where a secret is to be had from.
pub(super) fn secret(name: &str, node: &Node) -> Result<Secret, String> {
    let Some(table) = node.table() else {
        return Err(format!(
            "{name} must say where the secret is, not the secret itself: write {SECRETS}"
        ));
    };
    let [(how, value)] = table.entries.as_slice() else {
        return Err(format!(
            "{name} needs exactly one place to have the secret from: write {SECRETS}"
        ));
    };
    let text = |value: &Node| match &value.value {
        Value::Text(text) if !text.is_empty() && !text.contains('\0') => Ok(text.clone()),
        _ => Err(format!("{name}.{how} is not a text: write {SECRETS}")),
    };
    match how.as_str() {
        "env" => {
            let variable = text(value)?;
            if variable.contains('=') {
                return Err(format!(
                    "{name}.env is not the name of a variable: write {SECRETS}"
                ));
            }
            Ok(Secret::Env(variable))
        }
        "file" => Ok(Secret::File(PathBuf::from(text(value)?))),
        "command" => match &value.value {
            Value::List(words) if !words.is_empty() => words
                .iter()
                .map(text)
                .collect::<Result<_, _>>()
                .map(Secret::Command),
            _ => Err(format!(
                "{name}.command is no list of words: write {{ command = [\"PROGRAM\", \"ARGUMENT\"] }}"
            )),
        },
        other => {
            let (offered, _) = offer(other, ["env", "file", "command"]);
            Err(format!("unknown key \"{other}\" in {name}{offered}"))
        }
    }
}

/// All that an address stands for, without brackets, and whether it has a range.
fn addresses(name: &str, text: &str) -> Result<(Vec<String>, bool), String> {
    // An IPv6 literal may stand in brackets, which are no range then.
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    if let Some(inner) = inner.filter(|inner| ipv6(inner).is_some()) {
        return Ok((vec![inner.to_owned()], false));
    }
    if let Some((inner, port)) = text.strip_prefix('[').and_then(|t| t.split_once("]:"))
        && ipv6(inner).is_some()
    {
        return Err(with_port(name, text, port));
    }
    let all = range::expand(text).map_err(|error| format!("{name}: {error}"))?;
    for one in &all {
        address(name, one)?;
    }
    Ok((all, range::is_range(text)))
}

/// An IPv6 address with or without a scope.
fn ipv6(text: &str) -> Option<Ipv6Addr> {
    let address = match text.split_once('%') {
        Some((address, scope)) => {
            let word = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
            if scope.is_empty() || !scope.chars().all(word) {
                return None;
            }
            address
        }
        None => text,
    };
    address.parse().ok()
}

/// Checks that a text is a name or an address, without a port.
fn address(name: &str, text: &str) -> Result<(), String> {
    if let Some(address) = ipv6(text) {
        return specific(name, address.into());
    }
    if text.contains(':') {
        return Err(match text.split_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => with_port(name, text, port),
            _ => format!("{name} is \"{text}\", which is no IPv6 address"),
        });
    }
    if text.contains('@') {
        return Err(format!(
            "{name} is \"{text}\", with a user: that stands under user, as user = \"ai\""
        ));
    }
    let labels: Vec<&str> = text.trim_end_matches('.').split('.').collect();
    if labels.iter().all(|l| l.bytes().all(|b| b.is_ascii_digit())) {
        let Ok(address) = text.parse() else {
            return Err(format!("{name} is \"{text}\", which is no IPv4 address"));
        };
        return specific(name, IpAddr::V4(address));
    }
    let fits = |label: &&str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && label
                .chars()
                .all(|c| c.is_alphanumeric() || c == '-' || c == '_')
    };
    if text.len() > 253 || !labels.iter().all(fits) {
        return Err(format!(
            "{name} is \"{text}\", which is neither a name nor an address"
        ));
    }
    Ok(())
}

fn with_port(name: &str, text: &str, port: &str) -> String {
    let (key, value) = if name == "data" {
        ("data_port", format!("data_port = {port}"))
    } else {
        ("ssh.port", format!("ssh = {{ port = {port} }}"))
    };
    format!("{name} is \"{text}\", with a port: that stands under {key}, as {value}")
}

fn specific(name: &str, address: IpAddr) -> Result<(), String> {
    if address.is_unspecified() || address.is_multicast() {
        return Err(format!(
            "{name} is \"{address}\", at which no one machine can be reached: write the host's own address"
        ));
    }
    Ok(())
}

/// Bytes of `110GiB`, `110 GB`, `1.5TiB`, `4096`.
pub(crate) fn size(name: &str, text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 9] = [
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ];
    let wrong = || {
        format!("{name} is \"{text}\", which is no size: write 110GiB, 110GB or a number of bytes")
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end).ok_or_else(wrong)?;
    let unit = unit.trim_start();
    let factor = match unit {
        "" => 1,
        _ => UNITS
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(unit))
            .map(|(_, factor)| *factor)
            .ok_or_else(|| {
                let full = |ending: &str| {
                    let first = unit.chars().next().unwrap_or('G').to_ascii_uppercase();
                    format!(
                        "{number}{}{ending}",
                        if "KMGT".contains(first) { first } else { 'G' }
                    )
                };
                format!(
                    "{name} is \"{text}\", whose unit is unknown: write {} or {}",
                    full("iB"),
                    full("B").replace("KB", "kB")
                )
            })?,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() > 18 || fraction.len() > 6 || (number.contains('.') && fraction.is_empty()) {
        return Err(wrong());
    }
    let whole: u128 = whole.parse().map_err(|_| wrong())?;
    let scale = 10u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let part: u128 = match fraction {
        "" => 0,
        digits => digits.parse().map_err(|_| wrong())?,
    };
    let bytes = (whole * scale + part) * u128::from(factor) / scale;
    u64::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes > 0)
        .ok_or_else(wrong)
}

/// A free value.
fn json(node: &Node) -> Result<Json, String> {
    Ok(match &node.value {
        Value::Text(text) | Value::Date(text) => Json::String(text.clone()),
        Value::Whole(number) => (*number).into(),
        Value::Float(number) => serde_json::Number::from_f64(*number)
            .map(Json::Number)
            .ok_or("vars holds a number that is not finite")?,
        Value::Flag(flag) => (*flag).into(),
        Value::List(list) => list.iter().map(json).collect::<Result<_, _>>()?,
        Value::Table(table) => {
            let mut map = Map::new();
            for (name, inner) in &table.entries {
                map.insert(name.clone(), json(inner)?);
            }
            Json::Object(map)
        }
        Value::Tables(_) => {
            return Err("vars holds [[…]]: write a list of tables as [{ … }]".into());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_both_families_of_units() {
        let table = [
            ("110GiB", Some(118_111_600_640)),
            ("110 GiB", Some(118_111_600_640)),
            ("110GB", Some(110_000_000_000)),
            ("1.5TiB", Some(1_649_267_441_664)),
            ("4096", Some(4096)),
            ("4096B", Some(4096)),
            ("16kib", Some(16_384)),
            ("0GiB", None),
            ("110G", None),
            ("GiB", None),
            ("1.GiB", None),
            ("-1GiB", None),
            ("999999999TiB", None),
            ("1.2.3GiB", None),
        ];
        for (text, wanted) in table {
            assert_eq!(size("m", text).ok(), wanted, "{text}");
        }
        let error = size("memory_limit", "110G").unwrap_err();
        assert!(error.contains("write 110GiB or 110GB"), "{error}");
    }

    #[test]
    fn addresses_are_names_or_literals_without_ports() {
        let table: [(&str, &[&str]); 9] = [
            ("192.168.1.11", &["192.168.1.11"]),
            ("halo1.home.arpa", &["halo1.home.arpa"]),
            ("::1", &["::1"]),
            ("[::1]", &["::1"]),
            ("fe80::1%eth0", &["fe80::1%eth0"]),
            ("[fe80::1%eth0]", &["fe80::1%eth0"]),
            ("fe80::[1-2]%eth0", &["fe80::1%eth0", "fe80::2%eth0"]),
            ("10.0.0.2[1-2]", &["10.0.0.21", "10.0.0.22"]),
            ("[a-b].x", &["a.x", "b.x"]),
        ];
        for (text, wanted) in table {
            assert_eq!(addresses("address", text).unwrap().0, wanted, "{text}");
        }
        for (text, wanted) in [
            ("10.0.0.256", "no IPv4"),
            ("10.0.0", "no IPv4"),
            ("10.0.0.1:22", "ssh = { port = 22 }"),
            ("halo:22", "ssh = { port = 22 }"),
            ("[::1]:22", "ssh = { port = 22 }"),
            ("fe80::g", "no IPv6"),
            ("fe80::1%", "no IPv6"),
            ("ai@halo1", "user = \"ai\""),
            ("a b", "neither"),
            ("a/b", "neither"),
            ("-x", "neither"),
            ("0.0.0.0", "own address"),
            ("::", "own address"),
            ("2[5-6].0.0.2[55-56]", "no IPv4"),
        ] {
            let error = addresses("address", text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
