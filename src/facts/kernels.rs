//! The kernels that are installed, and which of them runs.

use serde::{Deserialize, Serialize};

/// An installed kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Installed {
    /// Its release, e.g. `6.17.4-200.fc43.x86_64`; where the image does not have it in its name,
    /// that of its modules.
    pub release: String,
    /// Whether its modules are there.
    pub modules: bool,
    /// Whether its image is seen in /boot; some systems keep it elsewhere.
    pub image: bool,
    /// Whether it runs now.
    pub running: bool,
}

/// Reads the section `kernels`; the one that runs is `running`, and is there in any case. By
/// version, the newest last. `None` when the host does not say.
pub fn parse(text: Option<&str>, running: Option<&str>) -> Option<Vec<Installed>> {
    let text = text.filter(|text| !text.trim().is_empty())?;
    let mut found: Vec<Installed> = Vec::new();
    let mut packages: Vec<(&str, usize)> = Vec::new();
    for line in text.lines() {
        if let Some(release) = line.strip_prefix("modules ") {
            let at = place(&mut found, release.trim());
            if let Some(kernel) = found.get_mut(at) {
                kernel.modules = true;
            }
        } else if let Some(package) = line.strip_prefix("package ") {
            // Of the modules in the line before.
            packages.push((package.trim(), found.len().saturating_sub(1)));
        }
    }
    for line in text.lines() {
        let Some(release) = line.strip_prefix("image ").and_then(release) else {
            continue;
        };
        let by_package = packages.iter().find(|(package, _)| *package == release);
        let at = match by_package {
            Some((_, at)) => *at,
            // A package's name alone is no release.
            None if !release.starts_with(|c: char| c.is_ascii_digit()) => continue,
            None => place(&mut found, release),
        };
        if let Some(kernel) = found.get_mut(at) {
            kernel.image = true;
        }
    }
    if let Some(running) = running {
        let at = place(&mut found, running);
        if let Some(kernel) = found.get_mut(at) {
            kernel.running = true;
        }
    }
    found.sort_by(|a, b| order(&a.release).cmp(&order(&b.release)));
    Some(found)
}

/// Where a release is in the list; it is added when it is not there.
fn place(found: &mut Vec<Installed>, release: &str) -> usize {
    match found.iter().position(|kernel| kernel.release == release) {
        Some(at) => at,
        None => {
            found.push(Installed {
                release: release.to_owned(),
                ..Installed::default()
            });
            found.len() - 1
        }
    }
}

/// What an image's name says behind its stem; none for a rescue image or an older copy.
fn release(image: &str) -> Option<&str> {
    let image = image.trim();
    let release = ["vmlinuz-", "vmlinux-", "Image-", "kernel-"]
        .iter()
        .find_map(|stem| image.strip_prefix(stem))?;
    let aside = release.contains("rescue")
        || [
            ".old",
            ".bak",
            ".signed",
            ".efi.signed",
            ".sig",
            ".hmac",
            ".img",
        ]
        .iter()
        .any(|end| release.ends_with(end));
    (!aside && !release.is_empty()).then_some(release)
}

/// Numbers count as numbers, the rest as text.
fn order(release: &str) -> Vec<(u64, &str)> {
    let mut parts = Vec::new();
    let mut rest = release;
    while !rest.is_empty() {
        let text = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at_checked(text).unwrap_or((rest, ""));
        let end = after
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(after.len());
        let (digits, next) = after.split_at_checked(end).unwrap_or((after, ""));
        parts.push((digits.parse().unwrap_or(u64::MAX), word));
        rest = next;
    }
    parts
}
