//! Network interfaces and their addresses: from sysfs and ip(8), else from /proc/net.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::script::{Sections, number, parts, says, value};

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
    /// Its addresses.
    pub addresses: Vec<Address>,
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Bits of it that name the network; `None` where the host does not say.
    pub prefix: Option<u8>,
}

/// Reads the sections `interfaces` and `ip`, or `if_inet6`, `fib_trie` and `route`.
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
            addresses: Vec::new(),
        })
        .collect();
    let found = match sections.find("ip") {
        Some(text) => text.lines().filter_map(ip_line).collect(),
        None => proc_net(sections),
    };
    for (name, address) in found {
        match interfaces
            .iter_mut()
            .find(|interface| interface.name == name)
        {
            Some(interface) => interface.addresses.push(address),
            None => interfaces.push(Interface {
                name,
                addresses: vec![address],
                ..Interface::default()
            }),
        }
    }
    Some(interfaces)
}

/// A line of `ip -o addr show`: `2: eth0    inet 10.0.0.4/24 …`. With a peer, the own address comes
/// without a prefix.
fn ip_line(line: &str) -> Option<(String, Address)> {
    let mut words = line.split_whitespace().skip(1);
    let name = words.next()?;
    let family = words.next()?;
    if family != "inet" && family != "inet6" {
        return None;
    }
    let word = words.next()?;
    let (ip, prefix) = match word.split_once('/') {
        Some((ip, prefix)) => (ip, prefix.parse().ok()),
        None => (word, None),
    };
    // Stacked interfaces are named with what is below: `eth0.5@eth0`.
    let name = name.split('@').next().unwrap_or(name).trim_end_matches(':');
    let ip = ip.parse().ok()?;
    Some((name.to_owned(), Address { ip, prefix }))
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
        found.push((name, Address { ip, prefix }));
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
