//! Whether the host's clock is kept right, by what, and its time zone: from chronyc, ntpq and files; and
//! from what timedatectl says, where someone asked it.

use serde::{Deserialize, Serialize};

use super::script::{Sections, says, value};

/// How the clock is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sync {
    /// Whether it follows a source of time now.
    pub synchronised: Option<bool>,
    /// What keeps it: `chrony`, `ntpd`, `systemd-timesyncd`.
    pub by: Option<String>,
    /// How far it is from its source by that one's own estimate, seconds; positive is ahead.
    pub offset_seconds: Option<f64>,
    /// Steps to a clock of reference.
    pub stratum: Option<u8>,
    /// Time zone, e.g. `Europe/Berlin`, or its short name where only that is shown.
    pub zone: Option<String>,
    /// Whether the hardware's clock holds local time, as Windows wants it.
    pub hardware_is_local: Option<bool>,
}

/// Reads the sections `sync`, `timedatectl`, `chronyc` and `ntpq`.
pub fn parse(sections: &Sections<'_>) -> Sync {
    let files = sections.get("sync");
    let mut sync = timedatectl(sections.get("timedatectl"));
    let link = value(files, "zone_link").and_then(|path| path.split_once("zoneinfo/"));
    let zone = link.map(|(_, zone)| zone).or(value(files, "zone"));
    sync.zone = sync.zone.or(zone.map(str::to_owned));
    if says(files, "timesyncd") {
        sync.by = Some("systemd-timesyncd".into());
        sync.synchronised = sync.synchronised.or(Some(true));
    }
    let chrony = chronyc(sections.get("chronyc"));
    let ntpd = ntpq(sections.get("ntpq"));
    for own in [chrony, ntpd] {
        if own.by.is_some() {
            sync.by = own.by;
            // The kernel's mark, which timedatectl shows, is set late and cleared late.
            sync.synchronised = own.synchronised.or(sync.synchronised);
            sync.offset_seconds = own.offset_seconds;
            sync.stratum = own.stratum;
            break;
        }
    }
    sync
}

/// What `timedatectl show` says.
pub fn timedatectl(text: &str) -> Sync {
    let of = |name: &str| {
        text.lines()
            .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))
            .map(str::trim)
            .filter(|value| !value.is_empty())
    };
    let yes = |name: &str| match of(name)? {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    };
    // `Wed 2026-05-13 01:33:56 KST`: the zone's short name stands behind the time.
    let short = || {
        let words: Vec<&str> = of("TimeUSec")?.split_whitespace().collect();
        let last = words.last()?;
        (words.len() == 4
            && last.starts_with(|c: char| c.is_ascii_alphabetic() || c == '+' || c == '-'))
        .then_some(*last)
    };
    Sync {
        synchronised: yes("NTPSynchronized"),
        zone: of("Timezone").or_else(short).map(str::to_owned),
        hardware_is_local: yes("LocalRTC"),
        ..Sync::default()
    }
}

/// What `chronyc tracking` says.
fn chronyc(text: &str) -> Sync {
    let of = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then_some(value.trim())
        })
    };
    let Some(leap) = of("Leap status") else {
        return Sync::default();
    };
    // `0.000012 seconds slow of NTP time`.
    let offset = of("System time").and_then(|value| {
        let seconds: f64 = value.split_whitespace().next()?.parse().ok()?;
        let sign = if value.contains("slow") { -1.0 } else { 1.0 };
        seconds.is_finite().then_some(sign * seconds)
    });
    Sync {
        by: Some("chrony".into()),
        synchronised: Some(leap != "Not synchronised"),
        offset_seconds: offset,
        stratum: of("Stratum").and_then(|value| value.parse().ok()),
        ..Sync::default()
    }
}

/// What `ntpq -c rv` says: `leap_none, sync_ntp, …, stratum=3, …, offset=-0.2, …`, in milliseconds.
fn ntpq(text: &str) -> Sync {
    let words = || text.split([',', '\n']).map(str::trim);
    let of = |name: &str| words().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let Some(stratum) = of("stratum").and_then(|value| value.parse::<u8>().ok()) else {
        return Sync::default();
    };
    let offset = of("offset").and_then(|value| value.parse::<f64>().ok());
    Sync {
        by: Some("ntpd".into()),
        synchronised: Some(stratum < 16 && !text.contains("sync_unspec")),
        offset_seconds: offset
            .filter(|offset| offset.is_finite())
            .map(|milliseconds| milliseconds / 1e3),
        stratum: Some(stratum),
        ..Sync::default()
    }
}
