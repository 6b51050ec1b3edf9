//! What of a host is compared: a name for each subject, and how its value is read from facts. Must not
//! know what is asked of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::computing::COMPUTING;
use super::parameters;
use super::tuned::TUNED;
use crate::facts::{Facts, Interface, Settings};
use crate::figures::memory;
use crate::inventory::Host;

/// A host as it was seen.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// Its name.
    pub host: &'a str,
    /// Its facts.
    pub facts: &'a Facts,
    /// What is installed and set there, where that was read.
    pub settings: Option<&'a Settings>,
    /// Its address on the data path, where it is a literal.
    pub data: Option<IpAddr>,
}

impl<'a> Seen<'a> {
    /// A host of the inventory and what was read of it.
    pub fn of(host: &'a Host, facts: &'a Facts, settings: &'a Settings) -> Self {
        Self {
            host: &host.name,
            facts,
            settings: Some(settings),
            data: host.data.parse().ok(),
        }
    }

    /// The interface that carries the data path.
    pub fn data_interface(&self) -> Option<&'a Interface> {
        self.facts.interface_of(self.data?).map(|(found, _)| found)
    }
}

/// A value of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// One text.
    One(String),
    /// A text for each key, compared key by key; a key that is not there is a value too.
    Many(BTreeMap<String, String>),
    /// The same, held by several.
    Held(Arc<BTreeMap<String, String>>),
    /// The same, but only keys that both hosts have are compared.
    Shared(BTreeMap<String, String>),
}

/// What the subject `sleep` says where every way to sleep is open.
const NOTHING_MASKED: &str = "nothing masked";
/// What stands before the ways that are closed.
const MASKED: &str = "masked: ";

/// The ways to sleep that a value of the subject `sleep` says are closed; `None` when it is no such
/// value.
pub fn masked(value: &str) -> Option<BTreeSet<&str>> {
    match value {
        NOTHING_MASKED => Some(BTreeSet::new()),
        _ => Some(value.strip_prefix(MASKED)?.split(' ').collect()),
    }
}

/// Something that is compared.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Its name, as in rules and playbooks.
    pub name: &'static str,
    /// Reads its value; `None` when it is unknown.
    pub read: fn(&Seen<'_>) -> Option<Value>,
    /// What a value looks like to people; `None` as it is.
    pub show: Option<fn(&str) -> String>,
}

pub(super) fn one(text: impl Into<String>) -> Option<Value> {
    Some(Value::One(text.into()))
}

/// `none`, where the host was asked.
pub(super) fn none(asked: bool) -> Option<Value> {
    asked.then(|| Value::One("none".to_owned()))
}

pub(super) fn on(flag: bool) -> &'static str {
    if flag { "on" } else { "off" }
}

pub(super) fn of(text: &Option<String>) -> Option<Value> {
    text.clone().map(Value::One)
}

fn many(map: Option<&BTreeMap<String, String>>) -> Option<Value> {
    map.cloned().map(Value::Many)
}

pub(super) const fn subject(name: &'static str, read: fn(&Seen<'_>) -> Option<Value>) -> Subject {
    Subject {
        name,
        read,
        show: None,
    }
}

pub(super) const fn bytes(name: &'static str, read: fn(&Seen<'_>) -> Option<Value>) -> Subject {
    shown_as(name, read, show_bytes)
}

pub(super) const fn shown_as(
    name: &'static str,
    read: fn(&Seen<'_>) -> Option<Value>,
    show: fn(&str) -> String,
) -> Subject {
    Subject {
        name,
        read,
        show: Some(show),
    }
}

fn show_bytes(text: &str) -> String {
    text.parse().map_or_else(|_| text.to_owned(), memory)
}

/// All that is compared.
pub const SUBJECTS: &[Subject] = &joined::<{ OWN.len() + COMPUTING.len() + TUNED.len() }>();

const fn joined<const ALL: usize>() -> [Subject; ALL] {
    let mut all = [subject("", |_| None); ALL];
    let lists = [OWN, COMPUTING, TUNED];
    let (mut list, mut at) = (0, 0);
    #[expect(
        clippy::indexing_slicing,
        reason = "computed when it is compiled, within all lengths"
    )]
    while list < lists.len() {
        let mut of = 0;
        while of < lists[list].len() {
            all[at] = lists[list][of];
            at += 1;
            of += 1;
        }
        list += 1;
    }
    all
}

const OWN: &[Subject] = &[
    subject("system", |h| of(&h.facts.system)),
    subject("os", |h| {
        let os = &h.facts.os;
        of(&os.name)
            .or_else(|| of(&os.id))
            .or_else(|| of(&h.facts.system))
    }),
    subject("os_version", |h| of(&h.facts.os.version)),
    subject("os_build", |h| of(&h.facts.os.build)),
    subject("kernel", |h| of(&h.facts.kernel.release)),
    subject("kernel_build", |h| of(&h.facts.kernel.version)),
    subject("parameters", |h| {
        let line = h.facts.kernel.command_line.as_deref()?;
        Some(Value::Many(parameters::comparable(line)))
    }),
    subject("command_line", |h| of(&h.facts.kernel.command_line)),
    subject("arch", |h| of(&h.facts.arch)),
    subject("libc", |h| {
        let libc = h.facts.libc.as_ref()?;
        let version = libc.version.as_deref().unwrap_or("of unknown version");
        one(format!("{} {version}", libc.name))
    }),
    subject("cpu", |h| of(&h.facts.cpu.model)),
    subject("cores", |h| one(h.facts.cpu.cores?.to_string())),
    subject("cpu_flags", |h| {
        let flags = h.facts.cpu.flags.as_ref()?;
        one(if flags.is_empty() {
            "none".to_owned()
        } else {
            flags.join(" ")
        })
    }),
    // Firmware takes a little of it, and differently from boot to boot.
    shown_as(
        "memory",
        |h| one(gib(h.facts.memory.total_bytes?).to_string()),
        |text| format!("{text} GiB"),
    ),
    subject("swap", |h| {
        one(gib(h.facts.memory.swap_total_bytes?).to_string())
    }),
    subject("gpu", |h| {
        let names = h.facts.gpus.as_ref().map(|_| h.facts.gpu_names())?;
        one(if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        })
    }),
    bytes("gpu_own_memory", |h| pool(h, |gpu| gpu.vram_total_bytes)),
    bytes("gpu_shared_memory", |h| pool(h, |gpu| gpu.gtt_total_bytes)),
    subject("product", |h| of(&h.facts.machine.product)),
    subject("data_mtu", |h| {
        one(h.data_interface()?.mtu_bytes?.to_string())
    }),
    Subject {
        name: "data_link",
        read: |h| one(h.data_interface()?.speed_mbit?.to_string()),
        show: Some(|text| format!("{text} Mb/s")),
    },
    subject("data_medium", |h| {
        one(if h.data_interface()?.wireless {
            "wireless"
        } else {
            "wired"
        })
    }),
    Subject {
        name: "clock",
        read: |h| {
            let skew = h.facts.clock.skew?;
            let sure = skew
                .ahead_ns
                .unsigned_abs()
                .saturating_sub(skew.uncertain_ns);
            one((sure / 1_000_000).to_string())
        },
        show: Some(|text| format!("{text} ms off")),
    },
    subject("init", |h| {
        one(match h.facts.init.systemd? {
            true => "systemd".to_owned(),
            false => h
                .facts
                .init
                .process
                .clone()
                .unwrap_or_else(|| "no systemd".to_owned()),
        })
    }),
    subject("systemd", |h| {
        one(h.facts.init.systemd_version?.to_string())
    }),
    subject("groups", |h| {
        let login = &h.facts.login;
        login.user.as_ref()?;
        // Those that open devices and engines; others are the owner's own affair.
        let wanted = |group: &&String| {
            [
                "render",
                "video",
                "docker",
                "podman",
                "kvm",
                "rdma",
                "systemd-journal",
            ]
            .contains(&group.as_str())
        };
        let groups = login.groups.iter().filter(wanted);
        Some(Value::Many(
            groups
                .map(|group| (group.clone(), "member".to_owned()))
                .collect(),
        ))
    }),
    subject("login", |h| of(&h.facts.login.user)),
    subject("packages", |h| {
        h.settings?.packages.clone().map(Value::Held)
    }),
    subject("services", |h| {
        let units = h.settings?.units.as_ref()?.iter();
        // Units of deployments say where they run, not what the host is.
        let units = units.filter(|(name, _)| !name.starts_with("windlass"));
        Some(Value::Shared(
            units
                .map(|(name, state)| (name.clone(), state.clone()))
                .collect(),
        ))
    }),
    subject("modules", |h| many(h.settings?.modprobe.as_ref())),
    subject("sysctl", |h| many(h.settings?.sysctl.as_ref())),
    subject("system_kind", |h| {
        let kind = h.facts.packaging.system_kind?;
        one(format!("{kind:?}").to_lowercase())
    }),
    subject("boot_firmware", |h| {
        let kind = h.facts.boot_firmware.kind?;
        one(format!("{kind:?}").to_lowercase())
    }),
    subject("secure_boot", |h| {
        one(on(h.facts.boot_firmware.secure_boot?))
    }),
    subject("sleep", |h| {
        let sleep = &h.facts.sleep;
        let mut masked = sleep.masked.clone();
        masked.sort_unstable();
        sleep.possible?;
        one(match masked.is_empty() {
            true => NOTHING_MASKED.to_owned(),
            false => format!("{MASKED}{}", masked.join(" ")),
        })
    }),
    subject("time_sync", |h| one(on(h.facts.sync.synchronised?))),
    subject("time_zone", |h| of(&h.facts.sync.zone)),
    subject("governor", |h| {
        let governors = &h.facts.tuning.governors;
        (!governors.is_empty()).then(|| Value::One(governors.join(" ")))
    }),
    subject("platform_profile", |h| of(&h.facts.tuning.platform_profile)),
    subject("huge_pages", |h| of(&h.facts.tuning.transparent_hugepages)),
    subject("cgroup", |h| one(format!("v{}", h.facts.tuning.cgroup?))),
    subject("data_driver", |h| {
        let interface = h.data_interface()?;
        let driver = interface.driver.as_ref()?;
        one(match &interface.driver_version {
            Some(version) => format!("{driver} {version}"),
            None => driver.clone(),
        })
    }),
    subject("data_firmware", |h| {
        of(&h.data_interface()?.firmware_version)
    }),
    subject("host_keys", |h| {
        let keys = h.facts.identity.host_keys.as_ref()?.iter();
        let keys = keys.map(|key| (key.fingerprint.clone(), key.algorithm.clone()));
        Some(Value::Many(keys.collect()))
    }),
    subject("hostname", |h| of(&h.facts.kernel.hostname)),
    subject("machine_id", |h| of(&h.facts.machine.machine_id)),
    subject("addresses", |h| {
        own(h, |interface| {
            let addresses = interface.addresses.iter();
            addresses
                .map(|address| address.ip)
                .filter(is_own)
                .map(|ip| ip.to_string())
                .collect()
        })
    }),
    subject("mac", |h| {
        own(h, |interface| match interface.device {
            true => interface.mac.iter().cloned().collect(),
            false => Vec::new(),
        })
    }),
];

impl Subject {
    /// A value as people read it.
    pub fn shown(&self, value: &str) -> String {
        self.show
            .map_or_else(|| value.to_owned(), |show| show(value))
    }
}

/// Whether a subject is read from [`Settings`].
pub fn of_settings(name: &str) -> bool {
    ["packages", "services", "modules", "sysctl"].contains(&name)
}

/// The subject of this name.
pub fn named(name: &str) -> Option<&'static Subject> {
    SUBJECTS.iter().find(|subject| subject.name == name)
}

/// Whole GiB, rounded.
fn gib(bytes: u64) -> u64 {
    bytes.saturating_add(1 << 29) >> 30
}

/// The pools of all GPUs, in their order.
fn pool(seen: &Seen<'_>, of: fn(&crate::facts::Gpu) -> Option<u64>) -> Option<Value> {
    let found: Vec<String> = seen
        .facts
        .gpus
        .iter()
        .flatten()
        .filter_map(of)
        .map(|bytes| bytes.to_string())
        .collect();
    (!found.is_empty()).then(|| Value::One(found.join(" + ")))
}

/// What is a host's alone, as the keys of a map.
fn own(seen: &Seen<'_>, of: fn(&Interface) -> Vec<String>) -> Option<Value> {
    let interfaces = seen.facts.interfaces.as_ref()?;
    let all = interfaces.iter().flat_map(|interface| {
        of(interface)
            .into_iter()
            .map(|value| (value, interface.name.clone()))
    });
    Some(Value::Many(all.collect()))
}

/// Addresses that name one host: not loopback, nor those that every host gives itself.
fn is_own(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    }
}
