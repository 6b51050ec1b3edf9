//! Interfaces and addresses as ip(8) prints them: `ip addr`, `ip -o addr`, `ip -br addr` and
//! `ip -j addr`. Which form it is shows.

use std::net::IpAddr;

use serde_json::Value;

/// An interface with what the form at hand says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its name, without what it is stacked on.
    pub name: String,
    /// State of operation, e.g. `UP`, `UNKNOWN`, `LOWERLAYERDOWN`.
    pub state: Option<String>,
    /// Whether it is set up by the host, whatever its state; `None` where no flags are shown.
    pub set_up: Option<bool>,
    /// The largest packet, bytes.
    pub mtu_bytes: Option<u32>,
    /// What it is a part of: a bridge, a bond.
    pub master: Option<String>,
    /// What it is stacked on.
    pub below: Option<String>,
    /// Hardware address.
    pub mac: Option<String>,
    /// Its addresses.
    pub addresses: Vec<LinkAddress>,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    /// The address.
    pub ip: IpAddr,
    /// Bits of it that name the network; not with a peer, whose they would be.
    pub prefix: Option<u8>,
    /// Whether it was given for a time; `None` where the form does not say.
    pub dynamic: Option<bool>,
}

/// Reads any form. A line or object that is not understood is left out.
pub fn parse(text: &str) -> Vec<Link> {
    if text.trim_start().starts_with('[') {
        return json(text);
    }
    let mut links: Vec<Link> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let indented = line.starts_with(char::is_whitespace);
        let number = |word: &str| {
            word.strip_suffix(':')
                .is_some_and(|number| number.parse::<u32>().is_ok())
        };
        match words.as_slice() {
            [] => {}
            [family @ ("inet" | "inet6"), rest @ ..] if indented => {
                let found = address(family, rest);
                if let (Some(link), Some(found)) = (links.last_mut(), found) {
                    link.addresses.push(found);
                }
            }
            [kind, mac, ..] if indented && kind.starts_with("link/") => {
                if let Some(link) = links.last_mut() {
                    link.mac = hardware(mac);
                }
            }
            // One line for each address.
            [index, name, family @ ("inet" | "inet6"), rest @ ..] if number(index) => {
                if let Some(found) = address(family, rest) {
                    let (name, below) = stacked(name.trim_end_matches(':'));
                    match links.iter_mut().find(|link| link.name == name) {
                        Some(link) => link.addresses.push(found),
                        None => links.push(Link {
                            name,
                            below,
                            addresses: vec![found],
                            ..Link::default()
                        }),
                    }
                }
            }
            [index, name, flags, rest @ ..] if number(index) && flags.starts_with('<') => {
                let (name, below) = stacked(name.trim_end_matches(':'));
                let behind = |word: &str| {
                    let at = rest.iter().position(|own| *own == word)?;
                    rest.get(at + 1).copied()
                };
                links.push(Link {
                    name,
                    below,
                    state: behind("state").map(str::to_owned),
                    set_up: Some(
                        flags
                            .trim_matches(['<', '>'])
                            .split(',')
                            .any(|flag| flag == "UP"),
                    ),
                    mtu_bytes: behind("mtu").and_then(|mtu| mtu.parse().ok()),
                    master: behind("master").map(str::to_owned),
                    ..Link::default()
                });
            }
            // The brief form: name, state, addresses.
            [name, state, rest @ ..]
                if !indented && !number(name) && state.chars().all(|c| c.is_ascii_uppercase()) =>
            {
                let (name, below) = stacked(name);
                links.push(Link {
                    name,
                    below,
                    state: Some((*state).to_owned()),
                    addresses: rest.iter().filter_map(|word| brief(word)).collect(),
                    ..Link::default()
                });
            }
            _ => {}
        }
    }
    links
}

/// `eth0.5@eth0`: a name, and what it is stacked on.
fn stacked(name: &str) -> (String, Option<String>) {
    match name.split_once('@') {
        Some((name, below)) => (
            name.to_owned(),
            Some(below.to_owned()).filter(|below| below != "NONE"),
        ),
        None => (name.to_owned(), None),
    }
}

fn hardware(mac: &str) -> Option<String> {
    let nothing = mac.chars().all(|c| matches!(c, '0' | ':'));
    (mac.contains(':') && !nothing).then(|| mac.to_owned())
}

/// What stands behind the family: `10.0.0.4/24 brd … scope global dynamic eth0`.
fn address(family: &str, words: &[&str]) -> Option<LinkAddress> {
    let mut found = brief(words.first()?)?;
    if found.ip.is_ipv6() != (family == "inet6") {
        return None;
    }
    found.dynamic = Some(words.contains(&"dynamic"));
    Some(found)
}

fn brief(word: &str) -> Option<LinkAddress> {
    let (ip, prefix) = match word.split_once('/') {
        Some((ip, prefix)) => (ip, prefix.parse().ok()),
        None => (word, None),
    };
    Some(LinkAddress {
        ip: ip.parse().ok()?,
        prefix,
        dynamic: None,
    })
}

fn json(text: &str) -> Vec<Link> {
    let Ok(Value::Array(links)) = serde_json::from_str(text) else {
        return Vec::new();
    };
    let word = |value: &Value, name: &str| {
        let text = value.get(name)?.as_str()?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    links
        .iter()
        .filter_map(|link| {
            let flags = link.get("flags").and_then(Value::as_array);
            let addresses = link.get("addr_info").and_then(Value::as_array);
            Some(Link {
                name: word(link, "ifname")?,
                state: word(link, "operstate"),
                set_up: flags.map(|flags| flags.iter().any(|flag| flag == "UP")),
                mtu_bytes: link
                    .get("mtu")
                    .and_then(Value::as_u64)
                    .and_then(|mtu| u32::try_from(mtu).ok()),
                master: word(link, "master"),
                below: word(link, "link"),
                mac: word(link, "address").and_then(|mac| hardware(&mac)),
                addresses: addresses
                    .into_iter()
                    .flatten()
                    .filter_map(|address| {
                        Some(LinkAddress {
                            ip: word(address, "local")?.parse().ok()?,
                            prefix: match address.get("address") {
                                // The peer's.
                                Some(_) => None,
                                None => address
                                    .get("prefixlen")
                                    .and_then(Value::as_u64)
                                    .and_then(|bits| u8::try_from(bits).ok()),
                            },
                            dynamic: Some(
                                address.get("dynamic").and_then(Value::as_bool) == Some(true),
                            ),
                        })
                    })
                    .collect(),
            })
        })
        .collect()
}
