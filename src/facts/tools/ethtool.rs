//! A card's link, as ethtool(8) shows it, and its driver, as `ethtool -i` does.

use super::field;

/// A way a link can work: `10000baseT/Full`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Megabits a second.
    pub mbit: u32,
    /// As it is written.
    pub name: String,
}

/// What is said of a card. What it does not say, or calls unknown, is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Speed of the link, megabits a second.
    pub speed_mbit: Option<u32>,
    /// Whether it goes both ways at once.
    pub full_duplex: Option<bool>,
    /// Whether the two ends agree on it by themselves.
    pub autonegotiation: Option<bool>,
    /// Whether there is a link.
    pub link: Option<bool>,
    /// What the cable plugs into: `Twisted Pair`, `FIBRE`.
    pub port: Option<String>,
    /// All that the card can do.
    pub supported: Vec<Mode>,
    /// What it offers to the other end.
    pub advertised: Vec<Mode>,
    /// What the other end offers.
    pub partner: Vec<Mode>,
    /// The driver.
    pub driver: Option<String>,
    /// The driver's version; one that comes with the kernel has the kernel's.
    pub driver_version: Option<String>,
    /// The firmware's version.
    pub firmware: Option<String>,
    /// Where it is on the bus.
    pub bus: Option<String>,
}

/// The fastest of them.
pub fn fastest(modes: &[Mode]) -> Option<&Mode> {
    modes.iter().max_by_key(|mode| mode.mbit)
}

/// Reads either answer, or both one after the other.
pub fn parse(text: &str) -> Card {
    let said = |name: &str| {
        field(text, name)
            .filter(|value| !value.starts_with("Unknown") && *value != "N/A" && *value != "n/a")
    };
    let owned = |name: &str| said(name).map(str::to_owned);
    let yes = |name: &str, yes: &str, no: &str| match said(name)? {
        value if value == yes => Some(true),
        value if value == no => Some(false),
        _ => None,
    };
    Card {
        speed_mbit: said("Speed")
            .and_then(|speed| speed.strip_suffix("Mb/s")?.trim().parse().ok())
            .filter(|speed| *speed > 0 && *speed < u32::MAX),
        full_duplex: yes("Duplex", "Full", "Half"),
        autonegotiation: yes("Auto-negotiation", "on", "off"),
        link: yes("Link detected", "yes", "no").or_else(|| {
            // With a reason behind it: `no (No cable)`.
            said("Link detected")?.starts_with("no ").then_some(false)
        }),
        port: owned("Port"),
        supported: modes(text, "Supported link modes:"),
        advertised: modes(text, "Advertised link modes:"),
        partner: modes(text, "Link partner advertised link modes:"),
        driver: owned("driver"),
        driver_version: owned("version"),
        firmware: owned("firmware-version"),
        bus: owned("bus-info"),
    }
}

/// The modes behind a heading, which go on over lines that have no heading of their own.
fn modes(text: &str, heading: &str) -> Vec<Mode> {
    let mut lines = text.lines().map(str::trim);
    let Some(first) = lines.find_map(|line| line.strip_prefix(heading)) else {
        return Vec::new();
    };
    std::iter::once(first)
        .chain(lines.take_while(|line| !line.contains(':')))
        .flat_map(str::split_whitespace)
        .filter_map(mode)
        .collect()
}

fn mode(word: &str) -> Option<Mode> {
    let (digits, rest) = word.split_at_checked(word.find(|c: char| !c.is_ascii_digit())?)?;
    (rest.starts_with("base")).then_some(())?;
    Some(Mode {
        mbit: digits.parse().ok()?,
        name: word.to_owned(),
    })
}
