//! Versions and settings that are known to fail on some machines: a list kept as data
//! (`known_bad.toml`), with where each is told. Must not know how facts are read.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::data;
use super::subjects::{self, Seen, Value};
use super::version;

/// Something that is known to be bad.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The subject whose value is looked at.
    pub subject: String,
    /// The key within it.
    #[serde(default)]
    pub key: Option<String>,
    /// From this version on.
    #[serde(default)]
    pub from: Option<String>,
    /// Before this version.
    #[serde(default)]
    pub below: Option<String>,
    /// A part of the value.
    #[serde(default)]
    pub holds: Option<String>,
    /// Where the value holds this, it is another build, of which nothing is known.
    #[serde(default)]
    pub unless: Option<String>,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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

/// What of the list a host has.
pub fn known_bad(seen: &Seen<'_>, entries: &[Entry]) -> Vec<Bad> {
    let has =
        |entry: &&Entry| entry.gpus.is_empty() || entry.gpus.iter().any(|gpu| has_gpu(seen, gpu));
    let entries = entries.iter().filter(has);
    entries
        .filter_map(|entry| {
            let subject = subjects::named(&entry.subject)?;
            let value = match ((subject.read)(seen)?, &entry.key) {
                (Value::One(value), None) => value,
                (Value::Many(map) | Value::Shared(map), Some(key)) => map.get(key)?.clone(),
                _ => return None,
            };
            is_bad(&value, entry).then(|| Bad {
                host: seen.host.to_owned(),
                subject: entry.key.clone().unwrap_or_else(|| entry.subject.clone()),
                value,
                what: entry.what.clone(),
                mend: entry.mend.clone(),
                source: entry.source.clone(),
            })
        })
        .collect()
}

fn is_bad(value: &str, entry: &Entry) -> bool {
    let holds = |part: &Option<String>| {
        part.as_ref()
            .is_some_and(|part| value.contains(part.as_str()))
    };
    !holds(&entry.unless)
        && (entry.holds.is_none() || holds(&entry.holds))
        && version::within(value, entry.from.as_deref(), entry.below.as_deref())
}

fn has_gpu(seen: &Seen<'_>, wanted: &str) -> bool {
    seen.facts.gpus.iter().flatten().any(|gpu| {
        gpu.vendor_id
            .zip(gpu.device_id)
            .is_some_and(|(vendor, device)| format!("{vendor:04x}:{device:04x}") == wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Facts, Gpu};

    #[test]
    fn the_list_can_be_read_and_names_subjects_that_there_are() {
        let file: File = data::read(include_str!("known_bad.toml")).unwrap();
        for entry in &file.bad {
            assert!(subjects::named(&entry.subject).is_some(), "{entry:?}");
            let bounds = [&entry.from, &entry.below, &entry.holds, &entry.key];
            assert!(bounds.iter().any(|bound| bound.is_some()), "{entry:?}");
            assert!(
                !entry.source.is_empty() && !entry.mend.is_empty(),
                "{entry:?}"
            );
        }
    }

    fn found(kernel: &str, line: &str, device: Option<u16>) -> Vec<String> {
        let mut facts = Facts::default();
        facts.kernel.release = Some(kernel.into());
        facts.kernel.command_line = Some(line.into());
        facts.gpus = Some(
            device
                .map(|device| Gpu {
                    vendor_id: Some(0x1002),
                    device_id: Some(device),
                    ..Gpu::default()
                })
                .into_iter()
                .collect(),
        );
        let seen = Seen {
            host: "h",
            facts: &facts,
            settings: None,
            data: None,
        };
        known_bad(&seen, entries())
            .into_iter()
            .map(|bad| bad.value)
            .collect()
    }

    #[test]
    fn old_kernels_are_bad_for_the_gpu_that_they_fail_with_only() {
        assert_eq!(
            found("6.17.1-300.fc43.x86_64", "", Some(0x1586)),
            ["6.17.1-300.fc43.x86_64"]
        );
        for (kernel, device) in [
            ("6.18.4", Some(0x1586)),
            ("6.18.9-200.fc43.x86_64", Some(0x1586)),
            ("6.17.0-1018-oem", Some(0x1586)),
            ("6.17.1-300.fc43.x86_64", Some(0x150e)),
            ("6.17.1-300.fc43.x86_64", None),
        ] {
            assert_eq!(found(kernel, "", device), [""; 0], "{kernel} {device:?}");
        }
    }

    #[test]
    fn a_parameter_that_the_driver_does_not_have_is_told_wherever_it_stands() {
        assert_eq!(
            found("6.18.9", "quiet amdgpu.gtt_size=131072", None),
            ["131072"]
        );
        assert_eq!(found("6.18.9", "amdgpu.gttsize=131072", None), [""; 0]);
    }
}
