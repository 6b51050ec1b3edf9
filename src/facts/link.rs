//! What kind of network interface one is, by what sysfs says of it and by its name; and which
//! addresses are there twice.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Interface;
use super::script::{number, says, value};

/// What kind of interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The host to itself.
    Loopback,
    /// A cable and a card.
    Ethernet,
    /// By radio.
    Wireless,
    /// A Thunderbolt or USB4 cable between two machines.
    Thunderbolt,
    /// InfiniBand.
    Infiniband,
    /// A tunnel over another interface: WireGuard, Tailscale, VXLAN. Never quicker than that one.
    Overlay,
    /// Several interfaces as one network.
    Bridge,
    /// Several interfaces as one link.
    Bond,
    /// A part of another interface's traffic.
    Vlan,
    /// Made of software: for containers and virtual machines.
    Virtual,
}

impl Kind {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Ethernet => "Ethernet",
            Self::Wireless => "Wi-Fi",
            Self::Thunderbolt => "Thunderbolt",
            Self::Infiniband => "InfiniBand",
            Self::Overlay => "overlay",
            Self::Bridge => "bridge",
            Self::Bond => "bond",
            Self::Vlan => "VLAN",
            Self::Virtual => "virtual",
        }
    }
}

/// Types of hardware as /sys/class/net/*/type numbers them (linux/if_arp.h).
mod arphrd {
    pub const ETHER: u32 = 1;
    pub const INFINIBAND: u32 = 32;
    pub const TUNNEL: u32 = 768;
    pub const TUNNEL6: u32 = 769;
    pub const LOOPBACK: u32 = 772;
    pub const SIT: u32 = 776;
    pub const GRE: u32 = 778;
    pub const GRE6: u32 = 823;
    pub const NONE: u32 = 65534;
}

/// A tun device as its flags say; else it is a tap (linux/if_tun.h).
const TUN: u32 = 1;

/// By what the script wrote of it.
pub fn kind(name: &str, text: &str) -> Option<Kind> {
    if says(text, "wireless") {
        return Some(Kind::Wireless);
    }
    match value(text, "devtype") {
        Some("wlan" | "wwan") => return Some(Kind::Wireless),
        Some("bridge") => return Some(Kind::Bridge),
        Some("bond") => return Some(Kind::Bond),
        Some("vlan") => return Some(Kind::Vlan),
        Some("wireguard" | "vxlan" | "geneve" | "gre" | "ip6gre") => return Some(Kind::Overlay),
        _ => {}
    }
    let named = by_name(name);
    if let Some(flags) = value(text, "tun_flags") {
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok();
        return match flags.map(|flags| flags & TUN != 0) {
            Some(true) => Some(Kind::Overlay),
            _ => named.or(Some(Kind::Virtual)),
        };
    }
    let driver = value(text, "driver").unwrap_or_default();
    if driver.starts_with("thunderbolt") {
        return Some(Kind::Thunderbolt);
    }
    let device = says(text, "device");
    match number(text, "type") {
        Some(arphrd::LOOPBACK) => Some(Kind::Loopback),
        Some(arphrd::INFINIBAND) => Some(Kind::Infiniband),
        Some(
            arphrd::NONE
            | arphrd::TUNNEL
            | arphrd::TUNNEL6
            | arphrd::SIT
            | arphrd::GRE
            | arphrd::GRE6,
        ) => Some(Kind::Overlay),
        Some(arphrd::ETHER) if device => named
            .filter(|kind| *kind == Kind::Thunderbolt)
            .or(Some(Kind::Ethernet)),
        Some(arphrd::ETHER) => named
            .filter(|kind| *kind != Kind::Ethernet)
            .or(Some(Kind::Virtual)),
        _ => named.or(device.then_some(Kind::Ethernet)),
    }
}

/// By its name alone, as systems and programs give them.
pub fn by_name(name: &str) -> Option<Kind> {
    const PREFIXES: &[(&str, Kind)] = &[
        ("tailscale", Kind::Overlay),
        ("wg", Kind::Overlay),
        ("tun", Kind::Overlay),
        ("utun", Kind::Overlay),
        ("zt", Kind::Overlay),
        ("wt", Kind::Overlay),
        ("nebula", Kind::Overlay),
        ("nordlynx", Kind::Overlay),
        ("vxlan", Kind::Overlay),
        ("flannel", Kind::Overlay),
        ("ipsec", Kind::Overlay),
        ("ppp", Kind::Overlay),
        ("ip6tnl", Kind::Overlay),
        ("sit", Kind::Overlay),
        ("gre", Kind::Overlay),
        ("gif", Kind::Overlay),
        ("stf", Kind::Overlay),
        ("docker", Kind::Bridge),
        ("podman", Kind::Bridge),
        ("cni", Kind::Bridge),
        ("lxdbr", Kind::Bridge),
        ("virbr", Kind::Bridge),
        ("vmbr", Kind::Bridge),
        ("bridge", Kind::Bridge),
        ("br", Kind::Bridge),
        ("bond", Kind::Bond),
        ("vlan", Kind::Vlan),
        ("thunderbolt", Kind::Thunderbolt),
        ("wl", Kind::Wireless),
        ("awdl", Kind::Wireless),
        ("llw", Kind::Wireless),
        ("ibp", Kind::Infiniband),
        ("ib", Kind::Infiniband),
        ("veth", Kind::Virtual),
        ("vnet", Kind::Virtual),
        ("tap", Kind::Virtual),
        ("dummy", Kind::Virtual),
        ("ifb", Kind::Virtual),
        ("anpi", Kind::Virtual),
        ("eth", Kind::Ethernet),
        ("en", Kind::Ethernet),
    ];
    // Behind a stem comes a number, or a dash and more; else it is another word.
    let rest = |prefix: &str| {
        let rest = name.strip_prefix(prefix)?;
        let free = matches!(prefix, "en" | "wl" | "zt" | "veth" | "vxlan" | "ibp");
        let begins = |c: char| c.is_ascii_digit() || c == '-' || c == '_' || c == '.';
        (free || rest.is_empty() || rest.starts_with(begins)).then_some(())
    };
    if name == "lo" || name == "lo0" {
        return Some(Kind::Loopback);
    }
    PREFIXES
        .iter()
        .find(|(prefix, _)| rest(prefix).is_some())
        .map(|(_, kind)| *kind)
}

/// Marks the addresses that two interfaces have. Those of one link in IPv6 are theirs each; what is
/// no way for data may have what it wants.
pub(super) fn mark_repeated(interfaces: &mut [Interface]) {
    let counts = |ip: IpAddr| match ip {
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        IpAddr::V4(_) => true,
    };
    let all: Vec<(usize, IpAddr)> = interfaces
        .iter()
        .enumerate()
        .flat_map(|(at, interface)| {
            interface
                .addresses
                .iter()
                .filter(|address| interface.may_carry(address) && counts(address.ip))
                .map(move |address| (at, address.ip))
        })
        .collect();
    for (at, interface) in interfaces.iter_mut().enumerate() {
        let own: Vec<IpAddr> = all
            .iter()
            .filter(|(other, ip)| {
                *other == at
                    && all
                        .iter()
                        .any(|(elsewhere, twin)| elsewhere != other && twin == ip)
            })
            .map(|(_, ip)| *ip)
            .collect();
        interface.repeated = own;
        interface.repeated.dedup();
    }
}
