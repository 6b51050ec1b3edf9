//! How software gets onto the host: its package manager, and how the system is made.

use serde::{Deserialize, Serialize};

use super::Os;
use super::script::says;

/// How software gets there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Packaging {
    /// The one that the system itself is made with.
    pub manager: Option<String>,
    /// All that are there.
    pub managers: Vec<String>,
    /// How the system is made.
    pub system_kind: Option<SystemKind>,
}

/// How a system is made, and so how it is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SystemKind {
    /// Packages change files in place.
    Ordinary,
    /// Whole images, read only; a change is a new one for the next boot (Silverblue, Bazzite).
    Ostree,
    /// From one configuration; a change is a new generation.
    Nixos,
    /// In place, but in a copy that the next boot takes (MicroOS).
    Transactional,
}

impl SystemKind {
    /// Whether files of the system cannot be changed in place.
    pub fn immutable(self) -> bool {
        self != Self::Ordinary
    }
}

/// Editions of Fedora and its kin that are images.
const IMAGES: &[&str] = &[
    "silverblue",
    "kinoite",
    "sericea",
    "sway-atomic",
    "onyx",
    "budgie-atomic",
    "cosmic-atomic",
    "coreos",
    "iot",
    "bazzite",
    "bluefin",
    "aurora",
];

/// Reads the section `packaging`; what it does not show, the distribution's own file may.
pub fn parse(text: Option<&str>, os: &Os) -> Packaging {
    let text = text.filter(|text| !text.trim().is_empty());
    let managers: Vec<String> = text
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.strip_prefix("tool "))
        .filter(|tool| !matches!(*tool, "transactional-update" | "bootc"))
        .map(|tool| match tool.trim() {
            "apt-get" => "apt".to_owned(),
            other => other.to_owned(),
        })
        .collect();
    let system_kind = system_kind(text, os);
    let first = |names: &[&str]| {
        managers
            .iter()
            .find(|own| names.contains(&own.as_str()))
            .cloned()
    };
    let manager = match system_kind {
        Some(SystemKind::Ostree) => first(&["rpm-ostree"]),
        Some(SystemKind::Nixos) => first(&["nix"]),
        _ => None,
    };
    Packaging {
        // Others are there as guests: nix and brew run on any.
        manager: manager
            .or_else(|| first(&["apt", "dnf", "yum", "pacman", "zypper", "apk", "rpm-ostree"]))
            .or_else(|| first(&["brew", "nix"])),
        managers,
        system_kind,
    }
}

fn system_kind(text: Option<&str>, os: &Os) -> Option<SystemKind> {
    let section = text.unwrap_or_default();
    let is = |value: &Option<String>, names: &[&str]| {
        value.as_deref().is_some_and(|own| names.contains(&own))
    };
    if says(section, "ostree") || os.ostree.is_some() || is(&os.variant, IMAGES) {
        return Some(SystemKind::Ostree);
    }
    if says(section, "nixos") || is(&os.id, &["nixos"]) {
        return Some(SystemKind::Nixos);
    }
    if says(section, "tool transactional-update") {
        return Some(SystemKind::Transactional);
    }
    text.map(|_| SystemKind::Ordinary)
}
