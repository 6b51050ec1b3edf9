//! Values as given on a command line, and as TOML. Must not know where they go.

use serde_json::Value as Json;

use super::super::fault::Faults;
use super::super::key::{self, KEYS, Kind};
use super::super::tree;
use super::plain;

/// Why a text names no key.
pub(super) enum NoKey {
    /// It is not in the list.
    Unknown,
    /// One sentence.
    Because(String),
}

/// The way from a table to the value of a key: `ssh.port` is two steps; all behind `vars.` is one.
pub(super) fn way(key: &str, of_group: bool) -> Result<Vec<String>, NoKey> {
    if of_group && key == "hosts" {
        return Ok(vec![key.into()]);
    }
    if of_group && key == "groups" {
        return Err(NoKey::Because(
            "a group is in no group: set the hosts of each, as hosts=halo1,halo2".into(),
        ));
    }
    if let Some(name) = key.strip_prefix("vars.").filter(|name| !name.is_empty()) {
        return Ok(vec!["vars".into(), name.into()]);
    }
    let inner: Vec<&str> = KEYS
        .iter()
        .map(|known| known.name)
        .filter(|name| name.split_once('.').is_some_and(|(table, _)| table == key))
        .collect();
    if !inner.is_empty() {
        return Err(NoKey::Because(format!(
            "{key} is a table: set one of its keys, {}",
            inner.join(", ")
        )));
    }
    match key::named(key) {
        Some(known) if known.kind == Kind::Vars => Err(NoKey::Because(
            "vars is a table: set one of its values, as vars.rack=3".into(),
        )),
        Some(known) => Ok(known.name.split('.').map(str::to_owned).collect()),
        None => Err(NoKey::Unknown),
    }
}

/// A value as TOML. Whether it is valid is found out when the edited text is read.
pub(super) fn written(key: &str, given: &str) -> Result<String, String> {
    if key == "hosts" {
        return Ok(names(given));
    }
    let Some(known) = key::named(key) else {
        // A free value: as TOML where it is some, else as text.
        let is_toml = !given.contains(['\n', '\r', '#']) && meaning(given).is_some();
        return Ok(if is_toml { given.into() } else { basic(given) });
    };
    Ok(match known.kind {
        Kind::Port | Kind::Threads => match given.parse::<u32>() {
            Ok(number) => number.to_string(),
            Err(_) => {
                return Err(format!("{key} takes a number, as {key}={}", known.example));
            }
        },
        Kind::Size => match given.parse::<u64>() {
            Ok(number) => number.to_string(),
            Err(_) => basic(given),
        },
        Kind::Groups => names(given),
        Kind::Secret => secret(key, given)?,
        _ => basic(given),
    })
}

/// Where a secret is: `env:NAME`, `file:PATH`, `command:PROGRAM ARGUMENT…`, or as in the file. What
/// else was given may be the secret itself, and is not repeated.
fn secret(key: &str, given: &str) -> Result<String, String> {
    if given.starts_with('{') && !given.contains(['\n', '\r', '#']) && meaning(given).is_some() {
        return Ok(given.to_owned());
    }
    let wrong = || {
        format!(
            "{key} says where the secret is, not the secret itself: write {key}=env:NAME, {key}=file:PATH or {key}='command:PROGRAM ARGUMENT'"
        )
    };
    let (how, what) = given.split_once(':').ok_or_else(wrong)?;
    if what.is_empty() {
        return Err(wrong());
    }
    match how {
        "env" | "file" => Ok(format!("{{ {how} = {} }}", basic(what))),
        "command" => {
            let words: Vec<String> = what.split_whitespace().map(basic).collect();
            Ok(format!("{{ command = [{}] }}", words.join(", ")))
        }
        _ => Err(wrong()),
    }
}

/// Names with commas between, outside of brackets, as a list; or a list as in the file.
fn names(given: &str) -> String {
    let is_list = given.starts_with("[\"") || given.starts_with("['") || given == "[]";
    if is_list && !given.contains(['\n', '\r', '#']) && meaning(given).is_some() {
        return given.to_owned();
    }
    let mut depth = 0_usize;
    let all: Vec<String> = given
        .split(|c: char| {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == ',' && depth == 0
        })
        .map(|name| basic(name.trim()))
        .collect();
    format!("[{}]", all.join(", "))
}

/// A text as a TOML basic string on one line.
pub(super) fn basic(text: &str) -> String {
    let mut written = String::with_capacity(text.len() + 2);
    written.push('"');
    for c in text.chars() {
        match c {
            '"' => written.push_str("\\\""),
            '\\' => written.push_str("\\\\"),
            '\n' => written.push_str("\\n"),
            '\r' => written.push_str("\\r"),
            '\t' => written.push_str("\\t"),
            c if c.is_control() => written.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => written.push(c),
        }
    }
    written.push('"');
    written
}

/// What a TOML value says; `None` when it is none.
pub(super) fn meaning(written: &str) -> Option<Json> {
    let text = format!("x = {written}\n");
    let mut faults = Faults::new(&text);
    let root = tree::parse(&text, &mut faults);
    match root.entries.as_slice() {
        [(name, _)] if name == "x" && faults.is_empty() => plain(&root).get("x").cloned(),
        _ => None,
    }
}
