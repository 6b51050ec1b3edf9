//! What is wrong with a link, by what both hosts say of their interfaces, what was measured, and what
//! was measured before. Pure: each finding is one sentence with host, interface, figures and what to
//! do.

use serde::{Deserialize, Serialize};
use windlass_wire::link::{Carrier, Packets, Trips};

use crate::figures::{rate, speed};

/// Part of the nominal speed below which a link is far below it.
const FAR_BELOW: f64 = 0.5;
/// Megabits a second that TCP of one host can be asked to move, whatever its card says.
const ASKED_OF_A_HOST: f64 = 40_000.0;
/// Speeds of ports, megabits a second: what a narrower port on the way would carry.
const PORTS: [f64; 9] = [
    10.0, 100.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0, 25_000.0, 40_000.0, 100_000.0,
];
/// Part of a port's speed that TCP carries at least and at most.
const CARRIED: (f64, f64) = (0.85, 1.0);
/// Part of the nominal speed up to which a narrower port is looked for.
const NARROWER: f64 = 0.7;
/// Part of the faster direction that the slower one must reach.
const LOPSIDED: f64 = 0.7;
/// Part of an earlier speed that must be reached.
const SLOWER: f64 = 0.8;
/// How much longer a round trip may take than before: so many times, and so many microseconds more.
const LONGER: (f64, f64) = (1.5, 100.0);
/// How many times the speeds of two ends may differ.
const APART: u32 = 4;
/// Megabits a second from which a card is one that can come up badly and needs a cold start.
const FAST_CARD: u32 = 25_000;

/// What is known of one end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct End {
    /// The host.
    pub host: String,
    /// Interface with its data address.
    pub interface: Option<String>,
    /// Speed that the interface says, megabits a second.
    pub speed_mbit: Option<u32>,
    /// Its largest packet, bytes.
    pub mtu_bytes: Option<u32>,
    /// Whether it is by radio.
    pub wireless: bool,
    /// Which boot of which machine it is.
    pub boot_id: Option<String>,
    /// Whether SSH goes over the same interface.
    pub shares_control: bool,
    /// Another interface on a network that both ends are on, at least as fast, and its address there.
    pub other: Option<(String, String)>,
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Round trips.
    pub trips: Trips,
    /// Packets.
    pub packets: Packets,
    /// Megabits a second there.
    pub there_mbit: f64,
    /// Megabits a second back.
    pub back_mbit: f64,
    /// Bytes counted in both directions.
    pub bytes: u64,
    /// Interfaces that carried something at the end that measured, and at the other.
    pub carriers: [Vec<Carrier>; 2],
}

/// What was measured of a link in an earlier run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Before {
    /// When.
    pub time: String,
    /// Megabits a second there.
    pub there_mbit: f64,
    /// Megabits a second back.
    pub back_mbit: f64,
    /// Median round trip, microseconds.
    pub round_trip_us: f64,
}

/// What kind of fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Both ends are one machine.
    Loopback,
    /// The way goes through a tunnel or a bridge for containers.
    Overlay,
    /// The way goes by radio.
    Wireless,
    /// The bytes went through another interface than that of the data address.
    OtherInterface,
    /// A narrower port is on the way.
    NarrowPort,
    /// Far below what the interfaces say.
    FarBelow,
    /// The ends' speeds are far apart.
    EndsApart,
    /// One direction is much slower.
    Lopsided,
    /// The ends take packets of different sizes.
    MtuDiffers,
    /// Packets that both ends take are lost.
    PacketLost,
    /// Data and SSH share an interface although there is another.
    SharesControl,
    /// Much slower than before.
    Slower,
    /// Much longer round trips than before.
    LongerTrips,
}

impl Kind {
    /// A word or two for a table.
    pub fn words(self) -> &'static str {
        match self {
            Self::Loopback => "one machine",
            Self::Overlay => "overlay",
            Self::Wireless => "Wi-Fi",
            Self::OtherInterface => "other interface",
            Self::NarrowPort => "narrow port",
            Self::FarBelow => "slow",
            Self::EndsApart => "unequal ends",
            Self::Lopsided => "lopsided",
            Self::MtuDiffers => "MTU differs",
            Self::PacketLost => "packets lost",
            Self::SharesControl => "shares control",
            Self::Slower => "slower than before",
            Self::LongerTrips => "longer trips than before",
        }
    }

    /// Whether the figures of this run should replace those of the one before it.
    pub fn worse_than_before(self) -> bool {
        matches!(self, Self::Slower | Self::LongerTrips)
    }
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// The host to look at.
    pub host: String,
    /// One sentence.
    pub message: String,
}

/// What an interface is when it is no cable of its own, by its name and what the kernel calls it.
pub fn overlay(name: &str, kind: Option<&str>) -> Option<&'static str> {
    let bridge = name
        .strip_prefix("br-")
        .is_some_and(|rest| rest.len() == 12 && rest.bytes().all(|b| b.is_ascii_hexdigit()));
    let starts = |words: &[&str]| {
        words.iter().any(|word| {
            name.strip_prefix(word).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit() || c == '-')
            })
        })
    };
    if starts(&["tailscale"]) {
        Some("a Tailscale tunnel")
    } else if kind == Some("wireguard") || starts(&["wg", "nordlynx"]) {
        Some("a WireGuard tunnel")
    } else if name.starts_with("zt") && name.len() > 4 {
        Some("a ZeroTier network")
    } else if starts(&["tun", "tap", "utun", "ppp", "nebula", "ipsec"]) {
        Some("a tunnel")
    } else if matches!(kind, Some("vxlan" | "geneve")) || starts(&["vxlan", "flannel"]) {
        Some("an overlay network")
    } else if bridge || starts(&["docker", "podman", "cni", "lxdbr", "virbr"]) {
        Some("a bridge for containers")
    } else {
        None
    }
}

/// The nominal speed of the way, megabits a second: that of its slower end.
pub fn nominal(from: &End, to: &End) -> Option<u32> {
    match (from.speed_mbit, to.speed_mbit) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

/// All that is wrong, the gravest first. Without `measured`, by what is known beforehand.
pub fn judge(
    from: &End,
    to: &End,
    measured: Option<&Measured>,
    before: Option<&Before>,
) -> Vec<Finding> {
    if let Some(finding) = loopback(from, to, measured) {
        return vec![finding];
    }
    let mut all = Vec::new();
    let none = Vec::new();
    let bytes = measured.map_or(0, |m| m.bytes);
    for (at, (own, far)) in [(from, to), (to, from)].into_iter().enumerate() {
        let carriers = measured.and_then(|m| m.carriers.get(at)).unwrap_or(&none);
        all.extend(medium(own, far, carriers, bytes));
    }
    if let Some(measured) = measured {
        all.extend(below(from, to, measured));
        all.extend(lopsided(from, to, measured));
    }
    all.extend(apart(from, to));
    all.extend(sizes(from, to, measured.map(|m| m.packets)));
    all.extend(control(from, to));
    if let (Some(measured), Some(before)) = (measured, before) {
        all.extend(worse(from, to, measured, before));
    }
    all
}

fn finding(kind: Kind, host: &str, message: String) -> Finding {
    Finding {
        kind,
        host: host.to_owned(),
        message: format!("{host}: {message}"),
    }
}

/// Interfaces that carried at least half of the bytes, the one that carried most first.
fn carrying(carriers: &[Carrier], bytes: u64) -> Vec<&Carrier> {
    let sum = |one: &Carrier| one.received.saturating_add(one.sent);
    let mut all: Vec<&Carrier> = carriers
        .iter()
        .filter(|one| bytes > 0 && sum(one) >= bytes / 2)
        .collect();
    all.sort_by_key(|one| std::cmp::Reverse(sum(one)));
    all
}

/// The interface that carried a measurement at an end, as a table names it: that of the data address
/// where it did, else the one that carried most.
pub fn carrier<'a>(end: &'a End, carriers: &'a [Carrier], bytes: u64) -> Option<&'a str> {
    let carrying = carrying(carriers, bytes);
    let own = end.interface.as_deref();
    match carrying.first() {
        Some(first)
            if !carrying
                .iter()
                .any(|one| Some(one.interface.as_str()) == own) =>
        {
            Some(&first.interface)
        }
        _ => own,
    }
}

fn interface(end: &End) -> &str {
    end.interface.as_deref().unwrap_or("its interface")
}

fn loopback(from: &End, to: &End, measured: Option<&Measured>) -> Option<Finding> {
    let same = from.boot_id.is_some() && from.boot_id == to.boot_id;
    let on_lo = measured.is_some_and(|measured| {
        measured.carriers.iter().any(|carriers| {
            carrying(carriers, measured.bytes)
                .iter()
                .any(|one| matches!(one.interface.as_str(), "lo" | "lo0"))
        })
    });
    if !same && !on_lo {
        return None;
    }
    let why = if same {
        "their boot is the same"
    } else {
        "the bytes went through lo"
    };
    Some(finding(
        Kind::Loopback,
        &from.host,
        format!(
            "it and {} are one machine ({why}), so no network was measured: correct `address` and `data` of the two in the inventory",
            to.host
        ),
    ))
}

/// What the way of one end is made of.
fn medium(own: &End, far: &End, carriers: &[Carrier], bytes: u64) -> Vec<Finding> {
    let carrying = carrying(carriers, bytes);
    let kind_of = |name: &str| {
        let found = carriers.iter().find(|one| one.interface == name);
        found.and_then(|one| one.kind.as_deref())
    };
    let mut names: Vec<&str> = own.interface.as_deref().into_iter().collect();
    names.extend(carrying.iter().map(|one| one.interface.as_str()));
    let better = match &own.other {
        Some((name, address)) => format!("set `data` of {} to {address} ({name})", own.host),
        None => "set `data` of both hosts to addresses of a cable between them".to_owned(),
    };
    if let Some((name, what)) = names
        .iter()
        .find_map(|name| Some((name, overlay(name, kind_of(name))?)))
    {
        return vec![finding(
            Kind::Overlay,
            &own.host,
            format!(
                "the way to {} goes through {name}, {what}, and not over a cable by itself: {better}",
                far.host
            ),
        )];
    }
    let radio = |name: &&&str| kind_of(name) == Some("wlan") || name.starts_with("wl");
    let by_radio = names.iter().find(radio).copied();
    if let Some(name) = by_radio.or(own.interface.as_deref().filter(|_| own.wireless)) {
        return vec![finding(
            Kind::Wireless,
            &own.host,
            format!("the way to {} goes by radio ({name}): {better}", far.host),
        )];
    }
    let taken = carrier(own, carriers, bytes);
    match (own.interface.as_deref(), taken) {
        (Some(meant), Some(taken)) if meant != taken => vec![finding(
            Kind::OtherInterface,
            &own.host,
            format!(
                "its data address is on {meant}, and the bytes to and from {} went through {taken}: two interfaces are on one network, or a route is wrong (`ip route get` there shows it); give each interface a network of its own",
                far.host
            ),
        )],
        _ => Vec::new(),
    }
}

/// The slower direction: from, to, megabits a second.
fn slower_way<'a>(from: &'a End, to: &'a End, measured: &Measured) -> (&'a End, &'a End, f64) {
    if measured.there_mbit <= measured.back_mbit {
        (from, to, measured.there_mbit)
    } else {
        (to, from, measured.back_mbit)
    }
}

fn below(from: &End, to: &End, measured: &Measured) -> Option<Finding> {
    let says = nominal(from, to)?;
    let nominal = f64::from(says);
    let (a, b, got) = slower_way(from, to, measured);
    let (low, high) = CARRIED;
    let port = PORTS
        .iter()
        .find(|port| **port < nominal && got >= **port * low && got <= **port * high)
        .filter(|_| got < nominal * NARROWER);
    let way = format!(
        "from it to {} {} pass, and {} says {}",
        b.host,
        rate(got),
        interface(a),
        speed(says)
    );
    if let Some(port) = port {
        return Some(finding(
            Kind::NarrowPort,
            &a.host,
            format!(
                "{way}: that is what a port of {} carries, so look at the cables and switch ports between the two (`ethtool {}` on both ends, and the switch's own page)",
                rate(*port),
                interface(a)
            ),
        ));
    }
    if got >= nominal.min(ASKED_OF_A_HOST) * FAR_BELOW {
        return None;
    }
    let remedy = if says >= FAST_CARD {
        "such a card can come up badly and say nothing of it: shut the host down, take its power away for a minute, start it and measure again; if it stays, compare the card's PCIe width (`lspci -vv`, LnkSta) on both hosts"
    } else {
        "look at cable and switch port, at errors of the interface (`ip -s link`), and at what else uses the link or the processor"
    };
    Some(finding(Kind::FarBelow, &a.host, format!("{way}: {remedy}")))
}

fn lopsided(from: &End, to: &End, measured: &Measured) -> Option<Finding> {
    let (a, b, slow) = slower_way(from, to, measured);
    let fast = measured.there_mbit.max(measured.back_mbit);
    (fast > 0.0 && slow < fast * LOPSIDED).then(|| {
        finding(
            Kind::Lopsided,
            &a.host,
            format!(
                "from it to {} {} pass, the other way {}: look at the duplex setting and errors of {} (`ethtool`, `ip -s link`) and at cable and switch port",
                b.host,
                rate(slow),
                rate(fast),
                interface(a)
            ),
        )
    })
}

fn apart(from: &End, to: &End) -> Option<Finding> {
    let (a, b) = (from.speed_mbit?, to.speed_mbit?);
    let (slow, fast) = if a <= b { (from, to) } else { (to, from) };
    (a.min(b).saturating_mul(APART) <= a.max(b)).then(|| {
        finding(
            Kind::EndsApart,
            &slow.host,
            format!(
                "{} runs at {} and {} of {} at {}: a bad cable or switch port lowers a link's speed; if the card can do no more, use another interface",
                interface(slow),
                speed(a.min(b)),
                interface(fast),
                fast.host,
                speed(a.max(b))
            ),
        )
    })
}

fn sizes(from: &End, to: &End, packets: Option<Packets>) -> Vec<Finding> {
    let mut all = Vec::new();
    let (Some(a), Some(b)) = (from.mtu_bytes, to.mtu_bytes) else {
        return all;
    };
    if a != b {
        let (small, large) = if a < b { (from, to) } else { (to, from) };
        all.push(finding(
            Kind::MtuDiffers,
            &small.host,
            format!(
                "{} takes packets of {} bytes and {} of {} of {}: give both the same (`ip link set dev {} mtu {}` on {}, and the same in its network settings)",
                interface(small),
                a.min(b),
                interface(large),
                large.host,
                a.max(b),
                interface(small),
                a.max(b),
                small.host
            ),
        ));
    }
    all.extend(packets.and_then(|packets| lost(from, to, packets)));
    all
}

/// Packets that both ends take and that do not come back whole. Nothing where no datagram was
/// answered: then nothing is known.
pub fn lost(from: &End, to: &End, packets: Packets) -> Option<Finding> {
    let both = from.mtu_bytes?.min(to.mtu_bytes?);
    let passes = packets.back.unwrap_or(0);
    (packets.answered && passes < both).then(|| {
        finding(
            Kind::PacketLost,
            &from.host,
            format!(
                "{} and {} of {} take packets of {both} bytes, and none larger than {passes} comes back from there: raise the MTU of the switch between them, or run `ip link set dev {} mtu {passes}` on both",
                interface(from),
                interface(to),
                to.host,
                interface(from),
            ),
        )
    })
}

fn control(from: &End, to: &End) -> Option<Finding> {
    let own = [from, to].into_iter().find(|end| end.shares_control)?;
    let (name, address) = own.other.as_ref()?;
    let far = if std::ptr::eq(own, from) { to } else { from };
    let theirs = far
        .other
        .as_ref()
        .map_or_else(String::new, |(name, address)| {
            format!(", and that of {} to {address} ({name})", far.host)
        });
    Some(finding(
        Kind::SharesControl,
        &own.host,
        format!(
            "data to {} and SSH share {}, and {name} is on a network with it too: set `data` of {} to {address}{theirs}",
            far.host,
            interface(own),
            own.host
        ),
    ))
}

fn worse(from: &End, to: &End, measured: &Measured, before: &Before) -> Vec<Finding> {
    let mut all = Vec::new();
    for (a, b, now, then) in [
        (from, to, measured.there_mbit, before.there_mbit),
        (to, from, measured.back_mbit, before.back_mbit),
    ] {
        if now < then * SLOWER {
            all.push(finding(
                Kind::Slower,
                &a.host,
                format!(
                    "from it to {} {} pass, and {} did at {}: see what changed on the way (`windlass net --forget` takes today's figures as the new measure)",
                    b.host,
                    rate(now),
                    rate(then),
                    before.time
                ),
            ));
        }
    }
    let (times, more) = LONGER;
    let (now, then) = (measured.trips.median, before.round_trip_us);
    if now > then * times && now > then + more {
        all.push(finding(
            Kind::LongerTrips,
            &from.host,
            format!(
                "a round trip to {} takes {now:.0} µs, and took {then:.0} µs at {}: see what changed on the way (`windlass net --forget` takes today's figures as the new measure)",
                to.host, before.time
            ),
        ));
    }
    all
}

#[cfg(test)]
mod tests;
