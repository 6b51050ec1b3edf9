//! Network interfaces and their addresses: from sysfs and ip(8), else from /proc/net; and of their
//! cards what ethtool(8) adds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::link::{self, Kind};
use super::script::{Sections, number, parts, says, value};
use super::tools::{ethtool, ip};

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Whether it carries: `Some(true)` for up, `None` where it does not say (loopback, tunnels).
    pub up: Option<bool>,
    /// The largest packet, bytes.
    pub mtu_bytes: Option<u32>,
    /// Speed of the link as negotiated, megabits a second. Not what it carries.
    pub speed_mbit: Option<u32>,
    /// Hardware address.
    pub mac: Option<String>,
    /// Whether there is a device behind it, and not only software.
    pub device: bool,
    /// Whether it is by radio.
    pub wireless: bool,
    /// What kind it is.
    pub kind: Option<Kind>,
    /// The highest speed that its card can do, megabits a second.
    pub max_mbit: Option<u32>,
    /// The highest that the other end offers.
    pub partner_mbit: Option<u32>,
    /// Whether the link goes both ways at once.
    pub full_duplex: Option<bool>,
    /// Whether the two ends agree on their speed by themselves.
    pub autonegotiation: Option<bool>,
    /// What the cable plugs into, e.g. `Twisted Pair`.
    pub port: Option<String>,
    /// The driver.
    pub driver: Option<String>,
    /// The driver's version; one that comes with the kernel has the kernel's.
    pub driver_version: Option<String>,
    /// The version of the card's firmware.
    pub firmware_version: Option<String>,
    /// What it is a part of: a bridge, a bond.
    pub master: Option<String>,
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// Those of them that another interface of this host has too: where an answer goes is then
    /// chance.
    pub repeated: Vec<IpAddr>,
}

impl Interface {
    /// Whether data between stages may go by this address. Addresses of one link (169.254.0.0/16,
    /// fe80::/10) are good ones: a cable between two machines often has no others.
    pub fn may_carry(&self, address: &Address) -> bool {
        !matches!(self.kind, Some(Kind::Loopback | Kind::Overlay))
            && !address.ip.is_loopback()
            && !address.ip.is_unspecified()
    }
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Bits of it that name the network; `None` where the host does not say.
    pub prefix: Option<u8>,
    /// Whether it was given for a time (by DHCP or a router) and may change; `None` where the host
    /// does not say.
    #[serde(default)]
    pub dynamic: Option<bool>,
}

/// Reads the sections `ethtool`, `interfaces` and `ip`, or `if_inet6`, `fib_trie` and `route`.
pub fn parse(sections: &Sections<'_>) -> Option<Vec<Interface>> {
    let text = sections.find("interfaces")?;
    let mut interfaces: Vec<Interface> = parts(text, "interface")
        .into_iter()
        .map(|(name, text)| Interface {
            name: name.to_owned(),
            up: match value(text, "state") {
                Some("up") => Some(true),
                Some("down" | "lowerlayerdown" | "notpresent" | "dormant") => Some(false),
                _ => None,
            },
            mtu_bytes: number(text, "mtu"),
            // Without a link it is -1, or cannot be read at all.
            speed_mbit: number(text, "speed").filter(|speed| *speed > 0 && *speed < u32::MAX),
            mac: value(text, "mac")
                .filter(|mac| !mac.chars().all(|c| matches!(c, '0' | ':')))
                .map(str::to_owned),
            device: says(text, "device"),
            wireless: says(text, "wireless"),
            kind: link::kind(name, text),
            full_duplex: match value(text, "duplex") {
                Some("full") => Some(true),
                Some("half") => Some(false),
                _ => None,
            },
            driver: value(text, "driver").map(str::to_owned),
            driver_version: value(text, "driver_version").map(str::to_owned),
            master: value(text, "master").map(str::to_owned),
            ..Interface::default()
        })
        .collect();
    for (name, text) in parts(sections.get("ethtool"), "interface") {
        if let Some(interface) = interfaces.iter_mut().find(|own| own.name == name) {
            add(interface, ethtool::parse(text));
        }
    }
    let found = match sections.find("ip") {
        Some(text) => of_ip(text),
        None => proc_net(sections),
    };
    for (name, address) in found {
        match interfaces
            .iter_mut()
            .find(|interface| interface.name == name)
        {
            Some(interface) => interface.addresses.push(address),
            None => interfaces.push(Interface {
                kind: link::by_name(&name),
                name,
                addresses: vec![address],
                ..Interface::default()
            }),
        }
    }
    link::mark_repeated(&mut interfaces);
    Some(interfaces)
}

/// What ethtool says stands before what sysfs says: it has the card's own words.
fn add(interface: &mut Interface, card: ethtool::Card) {
    let fastest = |modes: &[ethtool::Mode]| ethtool::fastest(modes).map(|mode| mode.mbit);
    interface.max_mbit = fastest(&card.supported);
    interface.partner_mbit = fastest(&card.partner);
    interface.speed_mbit = card.speed_mbit.or(interface.speed_mbit);
    interface.full_duplex = card.full_duplex.or(interface.full_duplex);
    interface.autonegotiation = card.autonegotiation;
    interface.port = card.port;
    interface.driver = card.driver.or(interface.driver.take());
    interface.driver_version = card.driver_version.or(interface.driver_version.take());
    interface.firmware_version = card.firmware;
}

/// Addresses with the interface of each.
fn of_ip(text: &str) -> Vec<(String, Address)> {
    let address = |found: ip::LinkAddress| Address {
        ip: found.ip,
        prefix: found.prefix,
        dynamic: found.dynamic,
    };
    ip::parse(text)
        .into_iter()
        .flat_map(|link| {
            let name = link.name;
            let addresses = link.addresses.into_iter();
            addresses.map(move |found| (name.clone(), address(found)))
        })
        .collect()
}

/// Addresses without ip(8): those of IPv6 are listed with their interface; those of IPv4 are the
/// local ones among the routes, on the interface whose network they are in.
fn proc_net(sections: &Sections<'_>) -> Vec<(String, Address)> {
    let mut found = Vec::new();
    let networks: Vec<(String, u32, u32)> = sections
        .get("route")
        .lines()
        .skip(1)
        .filter_map(network)
        .collect();
    for ip in local(sections.get("fib_trie")) {
        let number = u32::from(ip);
        let on = networks
            .iter()
            .filter(|(_, network, mask)| *mask != 0 && number & mask == *network)
            .max_by_key(|(_, _, mask)| *mask);
        let (name, prefix) = match on {
            Some((name, _, mask)) => (name.clone(), u8::try_from(mask.leading_ones()).ok()),
            None if ip.is_loopback() => ("lo".to_owned(), Some(8)),
            None => continue,
        };
        let ip = IpAddr::V4(ip);
        let address = Address {
            ip,
            prefix,
            dynamic: None,
        };
        found.push((name, address));
    }
    for line in sections.get("if_inet6").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [digits, _, prefix, _, _, name] = words.as_slice()
            && let Ok(number) = u128::from_str_radix(digits, 16)
            && digits.len() == 32
        {
            let address = Address {
                ip: IpAddr::V6(Ipv6Addr::from(number)),
                prefix: u8::from_str_radix(prefix, 16).ok(),
                dynamic: None,
            };
            found.push(((*name).to_owned(), address));
        }
    }
    found
}

/// A line of /proc/net/route: interface, network and mask; the numbers are in the host's own order,
/// which is the little end first on all that run workers.
fn network(line: &str) -> Option<(String, u32, u32)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |index: usize| {
        let text = words.get(index)?;
        Some(u32::from_str_radix(text, 16).ok()?.swap_bytes())
    };
    Some(((*words.first()?).to_owned(), number(1)?, number(7)?))
}

/// The host's own addresses in /proc/net/fib_trie: a line `|-- ADDRESS`, and below it one that says
/// `/32 host LOCAL`. Tables repeat them.
fn local(text: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.trim().parse().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = last
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}
