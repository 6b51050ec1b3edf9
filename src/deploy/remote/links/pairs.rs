//! Which links are measured, in which order, and what is known of their ends beforehand. Pure.

use std::net::IpAddr;

use super::verdict::{End, overlay};
use crate::facts::{Address, Facts, Interface};

/// Every pair among `hosts` hosts, each once, as indices; with `one`, only that host's.
pub fn pairs(hosts: usize, one: Option<usize>) -> Vec<(usize, usize)> {
    let all = (0..hosts).flat_map(|from| (from + 1..hosts).map(move |to| (from, to)));
    match one {
        None => all.collect(),
        Some(one) => (0..hosts)
            .filter(|other| *other != one)
            .map(|other| (one, other))
            .collect(),
    }
}

/// Pairs in rounds, in which no host is twice: what may be measured at once. Else one a round.
pub fn rounds(pairs: &[(usize, usize)], at_once: bool) -> Vec<Vec<(usize, usize)>> {
    let mut rounds: Vec<Vec<(usize, usize)>> = Vec::new();
    for (from, to) in pairs {
        let free = rounds.iter_mut().find(|round| {
            at_once
                && !round
                    .iter()
                    .any(|(a, b)| [a, b].contains(&from) || [a, b].contains(&to))
        });
        match free {
            Some(round) => round.push((*from, *to)),
            None => rounds.push(vec![(*from, *to)]),
        }
    }
    rounds
}

/// Connections that fill a link of this nominal speed.
pub fn streams(nominal_mbit: Option<u32>) -> u32 {
    match nominal_mbit {
        Some(25_001..) => 8,
        Some(10_001..) => 4,
        _ => 1,
    }
}

/// One end by its facts. `data`: its data address; `control`: where SSH reaches it, if by SSH.
pub fn end(host: &str, facts: &Facts, data: IpAddr, control: Option<IpAddr>) -> End {
    let found = facts.interface_of(data).map(|(interface, _)| interface);
    let ssh = control.and_then(|ip| facts.interface_of(ip));
    End {
        host: host.to_owned(),
        interface: found.map(|one| one.name.clone()),
        speed_mbit: found.and_then(|one| one.speed_mbit),
        mtu_bytes: found.and_then(|one| one.mtu_bytes),
        wireless: found.is_some_and(|one| one.wireless),
        boot_id: facts.machine.boot_id.clone(),
        shares_control: match (found, ssh) {
            (Some(data), Some((ssh, _))) => data.name == ssh.name,
            _ => false,
        },
        other: None,
    }
}

/// Names for both ends another way between them: interfaces on one network, by cable, at least as fast
/// as those in use. Link-local addresses of IPv4 count, for direct cables have no others; those of
/// IPv6 do not, for every interface has one.
pub fn other_way(ends: (&mut End, &mut End), facts: (&Facts, &Facts)) {
    let fit = |interface: &&Interface, used: &End| {
        let faster = match (interface.speed_mbit, used.speed_mbit) {
            (Some(own), Some(used)) => own >= used,
            _ => true,
        };
        interface.up != Some(false)
            && !interface.wireless
            && !matches!(interface.name.as_str(), "lo" | "lo0")
            && overlay(&interface.name, None).is_none()
            && Some(&interface.name) != used.interface.as_ref()
            && faster
    };
    let addresses = |facts: &'_ Facts, used: &End| -> Vec<(String, Address)> {
        let interfaces = facts.interfaces.iter().flatten();
        interfaces
            .filter(|interface| fit(interface, used))
            .flat_map(|one| one.addresses.iter().map(|a| (one.name.clone(), a.clone())))
            .collect()
    };
    let (from, to) = ends;
    let theirs = addresses(facts.1, to);
    let found = addresses(facts.0, from).into_iter().find_map(|own| {
        let same = theirs
            .iter()
            .find(|(_, other)| one_network(&own.1, other) && own.1.ip != other.ip)?;
        Some((own, same.clone()))
    });
    if let Some(((own, at), (far, far_at))) = found {
        from.other = Some((own, at.ip.to_string()));
        to.other = Some((far, far_at.ip.to_string()));
    }
}

/// Whether two addresses are of one network.
fn one_network(a: &Address, b: &Address) -> bool {
    let (Some(prefix), true) = (a.prefix, a.prefix == b.prefix) else {
        return false;
    };
    let prefix = u32::from(prefix);
    match (a.ip, b.ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) if prefix < 32 => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            u32::from(a) & mask == u32::from(b) & mask
        }
        (IpAddr::V6(a), IpAddr::V6(b)) if prefix < 128 && !a.is_unicast_link_local() => {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            u128::from(a) & mask == u128::from(b) & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_measured_once_and_no_host_twice_at_once() {
        assert_eq!(pairs(3, None), [(0, 1), (0, 2), (1, 2)]);
        assert_eq!(pairs(3, Some(1)), [(1, 0), (1, 2)]);
        assert_eq!(pairs(1, None), []);
        let all = pairs(5, None);
        assert_eq!(rounds(&all, false).len(), 10);
        let together = rounds(&all, true);
        assert!(together.len() <= 7, "{together:?}");
        let mut seen: Vec<_> = together.concat();
        seen.sort_unstable();
        assert_eq!(seen, all);
        for round in together {
            let mut hosts: Vec<usize> = round.iter().flat_map(|(a, b)| [*a, *b]).collect();
            let count = hosts.len();
            hosts.sort_unstable();
            hosts.dedup();
            assert_eq!(hosts.len(), count);
        }
    }

    fn interface(name: &str, speed: u32, address: &str, prefix: u8) -> Interface {
        Interface {
            name: name.to_owned(),
            up: Some(true),
            speed_mbit: Some(speed),
            addresses: vec![Address {
                ip: address.parse().unwrap(),
                prefix: Some(prefix),
                dynamic: None,
            }],
            ..Interface::default()
        }
    }

    #[test]
    fn another_way_is_a_cable_on_one_network_that_is_no_slower() {
        let facts = |others: Vec<Interface>| Facts {
            interfaces: Some(others),
            ..Facts::default()
        };
        let control = |n| interface("eth0", 1_000, &format!("10.0.0.{n}"), 24);
        // What each host has beside eth0, and whether that is another way.
        let table = [
            (
                interface("eth1", 10_000, "169.254.3.1", 16),
                interface("eth1", 10_000, "169.254.9.9", 16),
                true,
            ),
            (
                interface("eth1", 10_000, "10.1.0.1", 24),
                interface("eth1", 10_000, "10.2.0.2", 24),
                false,
            ),
            (
                interface("eth1", 100, "10.1.0.1", 24),
                interface("eth1", 100, "10.1.0.2", 24),
                false,
            ),
            (
                interface("tailscale0", 10_000, "100.64.0.1", 10),
                interface("tailscale0", 10_000, "100.64.0.2", 10),
                false,
            ),
            (
                interface("eth1", 10_000, "fe80::1", 64),
                interface("eth1", 10_000, "fe80::2", 64),
                false,
            ),
            (
                interface("eth1", 10_000, "fd00::1", 64),
                interface("eth1", 10_000, "fd00::2", 64),
                true,
            ),
            (
                interface("eth1", 10_000, "192.0.2.10", 24),
                interface("eth1", 10_000, "192.0.2.10", 24),
                false,
            ),
        ];
        for (own, far, wanted) in table {
            let a = facts(vec![control(1), own.clone()]);
            let b = facts(vec![control(2), far.clone()]);
            let ip = |text: &str| text.parse::<IpAddr>().unwrap();
            let mut from = end("a", &a, ip("10.0.0.1"), Some(ip("10.0.0.1")));
            let mut to = end("b", &b, ip("10.0.0.2"), None);
            assert!(from.shares_control && !to.shares_control);
            other_way((&mut from, &mut to), (&a, &b));
            assert_eq!(from.other.is_some(), wanted, "{own:?} {far:?}");
            assert_eq!(to.other.is_some(), wanted);
        }
    }
}
