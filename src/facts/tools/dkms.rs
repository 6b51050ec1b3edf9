//! Drivers that are built on the machine, as `dkms status` lists them, in the form it has now
//! (`name/version, kernel, arch: state`) and in that of old (`name, version, kernel, arch: state`).

use serde::{Deserialize, Serialize};

/// A driver, for one kernel or for none yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Built {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The kernel it is built for.
    pub kernel: Option<String>,
    /// The architecture.
    pub arch: Option<String>,
    /// `added` (its source is there), `built`, or `installed`.
    pub state: String,
    /// What is not as it should be, as dkms says it.
    pub warning: Option<String>,
}

/// Reads it. Complaints, which may be glued to a line, are not part of it.
pub fn parse(text: &str) -> Vec<Built> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Built> {
    let (what, rest) = line.split_once(": ")?;
    let state = rest
        .split(|c: char| !c.is_ascii_lowercase())
        .next()
        .filter(|word| ["added", "built", "installed"].contains(word))?;
    let mut parts: Vec<&str> = what.split(',').map(str::trim).collect();
    if let Some((name, version)) = parts.first()?.split_once('/') {
        parts.splice(0..1, [name, version]);
    }
    let (name, version) = (*parts.first()?, *parts.get(1)?);
    let plain = |text: &str| !text.is_empty() && !text.contains(' ');
    if !plain(name) || !plain(version) {
        return None;
    }
    let warning = rest
        .split_once("(WARNING! ")
        .and_then(|(_, rest)| rest.split_once(')'));
    let of = |at: usize| parts.get(at).map(|text| (*text).to_owned());
    Some(Built {
        name: name.to_owned(),
        version: version.to_owned(),
        kernel: of(2),
        arch: of(3),
        state: state.to_owned(),
        warning: warning.map(|(text, _)| text.to_owned()),
    })
}
