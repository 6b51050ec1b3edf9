//! Whether the host may go to sleep by itself: systemd's targets, logind's and sleep's settings, and
//! macOS's pmset.

use serde::{Deserialize, Serialize};

use super::script::{Sections, says};

/// Whether and when it sleeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sleep {
    /// Whether any way to sleep is left open; not when, or whether it is ever taken.
    pub possible: Option<bool>,
    /// The ways that are closed: `suspend`, `hibernate`, ….
    pub masked: Vec<String>,
    /// Whether it has a lid.
    pub lid: Option<bool>,
    /// What closing the lid does, where a file sets it; else systemd suspends.
    pub lid_switch: Option<String>,
    /// The same with external power, where a file sets it.
    pub lid_switch_powered: Option<String>,
    /// What being idle does, where a file sets it; else nothing.
    pub idle_action: Option<String>,
    /// Minutes until macOS sleeps; 0 is never.
    pub after_minutes: Option<u32>,
}

/// The targets that lead to sleep. The first is part of all others.
const WAYS: &[&str] = &[
    "sleep",
    "suspend",
    "hibernate",
    "hybrid-sleep",
    "suspend-then-hibernate",
];

/// Reads the sections `sleep` and `pmset`.
pub fn parse(sections: &Sections<'_>) -> Sleep {
    let mut sleep = sections
        .find("sleep")
        .filter(|text| !text.trim().is_empty())
        .map(systemd)
        .unwrap_or_default();
    if let Some(minutes) = sections.find("pmset").and_then(pmset) {
        sleep.after_minutes = Some(minutes);
        sleep.possible = Some(minutes != 0);
    }
    sleep
}

fn systemd(text: &str) -> Sleep {
    let found = |word: &str, way: &str| says(text, &format!("{word} {way}"));
    let masked: Vec<String> = WAYS
        .iter()
        .filter(|way| found("masked", way))
        .map(|way| (*way).to_owned())
        .collect();
    let allowed = |way: &str| {
        let name = match way {
            "suspend" => "AllowSuspend",
            "hibernate" => "AllowHibernation",
            "hybrid-sleep" => "AllowHybridSleep",
            _ => "AllowSuspendThenHibernate",
        };
        let no = |value: &str| matches!(value, "no" | "false" | "off" | "0");
        !setting(text, "sleep.conf", name).is_some_and(no)
    };
    let known = WAYS
        .iter()
        .any(|way| found("target", way) || found("masked", way));
    let open = !found("masked", "sleep")
        && WAYS
            .iter()
            .skip(1)
            .any(|way| found("target", way) && allowed(way));
    let owned = |name: &str| setting(text, "logind.conf", name).map(str::to_owned);
    Sleep {
        possible: known.then_some(open),
        masked,
        lid: Some(says(text, "lid")),
        lid_switch: owned("HandleLidSwitch"),
        lid_switch_powered: owned("HandleLidSwitchExternalPower"),
        idle_action: owned("IdleAction"),
        after_minutes: None,
    }
}

/// The value in force among lines `FILE:NAME=VALUE`. The pieces beside a main file stand before
/// it, of them the one whose name comes last; of one name, /etc stands before /run and that before
/// /usr/lib (logind.conf(5)).
fn setting<'a>(text: &'a str, main: &str, name: &str) -> Option<&'a str> {
    let rank = |folder: &str| match folder {
        _ if folder.starts_with("/etc/") => 2,
        _ if folder.starts_with("/run/") => 1,
        _ => 0,
    };
    let found: Vec<(&str, usize, Option<&str>)> = text
        .lines()
        .filter_map(|line| {
            let (file, rest) = line.split_once(':')?;
            let (folder, base) = file.rsplit_once('/')?;
            let is_main = base == main;
            let is_piece = folder.ends_with(&format!("{main}.d"));
            let (key, value) = rest.split_once('=')?;
            let value = (key.trim() == name).then(|| value.trim());
            let base = if is_main { "" } else { base };
            (is_main || is_piece).then_some((base, rank(file), value))
        })
        .collect();
    // A file of the same name further up hides one below as a whole.
    let hidden = |base: &str, rank: usize| {
        found
            .iter()
            .any(|(other, above, _)| *other == base && *above > rank)
    };
    let mut best: Option<(&str, &str)> = None;
    for (base, rank, value) in &found {
        let Some(value) = value else { continue };
        if !hidden(base, *rank) && best.is_none_or(|(last, _)| *base >= last) {
            best = Some((base, value));
        }
    }
    best.map(|(_, value)| value)
        .filter(|value| !value.is_empty())
}

/// ` sleep                10 (sleep prevented by …)`, in minutes.
fn pmset(text: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == "sleep").then_some(())?;
        words.next()?.parse().ok()
    })
}
