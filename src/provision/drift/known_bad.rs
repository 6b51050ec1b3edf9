//! Versions and settings that are known to fail on some machines: a list kept as data
//! (`known_bad.toml`), with where each is told. Must not know how facts are read.

use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use super::data;
use super::subjects::{self, Seen, Value};
use super::version;

/// What a host has of a subject.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Has {
    /// The subject whose value is looked at.
    pub subject: String,
    /// The keys within it, of which any counts; `*` at an end stands for anything. Empty for a subject
    /// that has one value.
    #[serde(default)]
    pub keys: Vec<String>,
    /// From this version on.
    #[serde(default)]
    pub from: Option<String>,
    /// Before this version.
    #[serde(default)]
    pub below: Option<String>,
    /// A part of the value.
    #[serde(default)]
    pub holds: Option<String>,
    /// The whole value is one of these.
    #[serde(default)]
    pub is: Vec<String>,
    /// Where the value holds this, it is another build, of which nothing is known.
    #[serde(default)]
    pub unless: Option<String>,
}

/// Something that is known to be bad.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What a host has.
    pub has: Has,
    /// What it has beside it, for what is bad only together.
    #[serde(default)]
    pub with: Option<Has>,
    /// Only with one of these GPUs, `vendor:device` in hexadecimal; empty: with any, or none.
    #[serde(default)]
    pub gpus: Vec<String>,
    /// What happens.
    pub what: String,
    /// What mends it.
    pub mend: String,
    /// Where it is told.
    pub source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    bad: Vec<Entry>,
}

static FILE: LazyLock<Option<File>> =
    LazyLock::new(|| data::read(include_str!("known_bad.toml")).ok());

/// The list.
pub fn entries() -> &'static [Entry] {
    FILE.as_ref().map_or(&[], |file| &file.bad)
}

/// A host that has what is known to be bad.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bad {
    /// The host.
    pub host: String,
    /// The subject.
    pub subject: String,
    /// Its value there.
    pub value: String,
    /// What happens.
    pub what: String,
    /// What mends it.
    pub mend: String,
    /// Where it is told.
    pub source: String,
}

impl Bad {
    /// One sentence, without the host.
    pub fn words(&self) -> String {
        format!(
            "{} {} is known bad: {}; {} ({})",
            self.subject, self.value, self.what, self.mend, self.source
        )
    }
}

/// What of the list a host has.
pub fn known_bad(seen: &Seen<'_>, entries: &[Entry]) -> Vec<Bad> {
    let mut found: Vec<Bad> = Vec::new();
    for entry in entries {
        if !entry.gpus.is_empty() && !entry.gpus.iter().any(|gpu| has_gpu(seen, gpu)) {
            continue;
        }
        let beside = entry.with.as_ref();
        if beside.is_some_and(|with| values(seen, with).is_empty()) {
            continue;
        }
        for (key, value) in values(seen, &entry.has) {
            // Packages of one source say the same.
            let told = found
                .iter()
                .any(|bad| bad.what == entry.what && bad.value == value);
            if !told {
                found.push(Bad {
                    host: seen.host.to_owned(),
                    subject: key.unwrap_or_else(|| entry.has.subject.clone()),
                    value,
                    what: entry.what.clone(),
                    mend: entry.mend.clone(),
                    source: entry.source.clone(),
                });
            }
        }
    }
    found
}

/// The values of a host that are as asked, with their keys.
fn values(seen: &Seen<'_>, has: &Has) -> Vec<(Option<String>, String)> {
    let value = subjects::named(&has.subject).and_then(|subject| (subject.read)(seen));
    let value = value.map(|value| match value {
        Value::Held(map) => Value::Many(Arc::unwrap_or_clone(map)),
        other => other,
    });
    match value {
        Some(Value::One(value)) if has.keys.is_empty() && is_so(&value, has) => {
            vec![(None, value)]
        }
        Some(Value::Many(map) | Value::Shared(map)) => map
            .into_iter()
            .filter(|(key, value)| has.keys.iter().any(|own| names(own, key)) && is_so(value, has))
            .map(|(key, value)| (Some(key), value))
            .collect(),
        _ => Vec::new(),
    }
}

fn names(pattern: &str, key: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => key.starts_with(start),
        None => pattern == key,
    }
}

fn is_so(value: &str, has: &Has) -> bool {
    let holds = |part: &Option<String>| {
        part.as_ref()
            .is_some_and(|part| value.contains(part.as_str()))
    };
    // Packagers count anew in front of a colon; bounds are of what they package.
    let bare = value.split_once(':').map_or(value, |(_, rest)| rest);
    !holds(&has.unless)
        && (has.holds.is_none() || holds(&has.holds))
        && (has.is.is_empty() || has.is.iter().any(|own| own == value))
        && version::within(bare, has.from.as_deref(), has.below.as_deref())
}

fn has_gpu(seen: &Seen<'_>, wanted: &str) -> bool {
    seen.facts.gpus.iter().flatten().any(|gpu| {
        gpu.vendor_id
            .zip(gpu.device_id)
            .is_some_and(|(vendor, device)| format!("{vendor:04x}:{device:04x}") == wanted)
    })
}

#[cfg(test)]
#[path = "known_bad_tests.rs"]
mod tests;
