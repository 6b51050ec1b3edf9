//! What of a host's links, sleep and settings for speed is compared, beside what `subjects` has. Must
//! not know what is asked of it.

use std::collections::{BTreeMap, BTreeSet};

use super::subjects::{Seen, Subject, Value, bytes, none, of, on, one, shown_as, subject};
use crate::facts::tuning::Limit;

/// The subjects.
pub(super) const TUNED: &[Subject] = &[
    subject("ostree", |h| {
        let os = &h.facts.os;
        of(&os.ostree).or_else(|| none(os.id.is_some()))
    }),
    subject("threads", |h| one(h.facts.cpu.threads?.to_string())),
    subject("usable_threads", |h| {
        one(h.facts.cpu.usable_threads?.to_string())
    }),
    subject("data_kind", |h| one(h.data_interface()?.kind?.name())),
    subject("data_duplex", |h| {
        one(match h.data_interface()?.full_duplex? {
            true => "full",
            false => "half",
        })
    }),
    subject("repeated_addresses", |h| {
        let interfaces = h.facts.interfaces.as_ref()?;
        let mut found: BTreeMap<String, String> = BTreeMap::new();
        for interface in interfaces {
            for ip in &interface.repeated {
                let names = found.entry(ip.to_string()).or_default();
                if !names.is_empty() {
                    names.push(' ');
                }
                names.push_str(&interface.name);
            }
        }
        Some(Value::Many(found))
    }),
    subject("rdma_ports", |h| {
        let ports = h.facts.rdma.as_ref()?.iter();
        let active = ports.filter(|port| port.active() == Some(true));
        one(active.count().to_string())
    }),
    shown_as("rdma_speed", rdma_speed, |text| format!("{text} Gb/s")),
    subject("rdma_firmware", |h| {
        let ports = h.facts.rdma.as_ref()?.iter();
        let versions: BTreeSet<&str> = ports
            .filter_map(|port| port.firmware_version.as_deref())
            .collect();
        let versions: Vec<&str> = versions.into_iter().collect();
        one(match versions.is_empty() {
            true => "none".to_owned(),
            false => versions.join(" "),
        })
    }),
    subject("sleep_settings", |h| {
        let sleep = &h.facts.sleep;
        sleep.lid?;
        let set = [
            ("lid", &sleep.lid_switch),
            ("lid with power", &sleep.lid_switch_powered),
            ("idle", &sleep.idle_action),
        ];
        let set = set
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
        Some(Value::Many(set.collect()))
    }),
    shown_as(
        "sleep_after",
        |h| one(h.facts.sleep.after_minutes?.to_string()),
        |text| match text {
            "0" => "never".to_owned(),
            minutes => format!("after {minutes} min"),
        },
    ),
    subject("hardware_clock", |h| {
        one(match h.facts.sync.hardware_is_local? {
            true => "local time",
            false => "UTC",
        })
    }),
    bytes("set_aside_pages", |h| {
        let pages = &h.facts.tuning.hugepages;
        let total = pages.total?;
        one(total.saturating_mul(pages.size_bytes?).to_string())
    }),
    subject("swappiness", |h| {
        one(h.facts.tuning.swappiness?.to_string())
    }),
    subject("zswap", |h| one(on(h.facts.tuning.zswap?))),
    bytes("zram", |h| one(h.facts.tuning.zram_bytes?.to_string())),
    shown_as(
        "locked_memory",
        |h| limit(h.facts.tuning.memlock),
        |text| limit_words(text, crate::figures::memory),
    ),
    shown_as(
        "open_files",
        |h| limit(h.facts.tuning.open_files),
        |text| limit_words(text, |count| count.to_string()),
    ),
    subject("taint", |h| of(&h.facts.tuning.taint)),
];

/// The fastest port that carries, Gb/s.
fn rdma_speed(seen: &Seen<'_>) -> Option<Value> {
    let ports = seen.facts.rdma.as_ref()?.iter();
    let active = ports.filter(|port| port.active() == Some(true));
    let fastest = active.filter_map(|port| port.gigabits).fold(0.0, f64::max);
    one(fastest.to_string())
}

/// A limit as a number; without one it is the highest that there is.
fn limit(limit: Option<Limit>) -> Option<Value> {
    one(limit?.soft.unwrap_or(u64::MAX).to_string())
}

fn limit_words(text: &str, words: fn(u64) -> String) -> String {
    match text.parse() {
        Ok(u64::MAX) => "no limit".to_owned(),
        Ok(number) => words(number),
        Err(_) => text.to_owned(),
    }
}
