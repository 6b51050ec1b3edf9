//! What listens on TCP, from /proc/net/tcp and tcp6, which every host has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::script::Sections;

/// A socket that listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listening {
    /// Port.
    pub port: u16,
    /// Address; the unspecified one stands for all.
    pub address: IpAddr,
    /// Number of the user it belongs to.
    pub uid: Option<u32>,
}

impl Listening {
    /// Whether it keeps another from listening on this address with this port.
    pub fn takes(&self, address: IpAddr, port: u16) -> bool {
        let all = |ip: IpAddr| ip.is_unspecified();
        // A socket for all of IPv6 takes IPv4 too unless told otherwise, which cannot be seen.
        let both = self.address.is_ipv4() == address.is_ipv4()
            || self.address == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        self.port == port
            && (self.address == address || (both && (all(self.address) || all(address))))
    }
}

/// Reads the sections `tcp` and `tcp6`; `None` when the host has neither.
pub fn parse(sections: &Sections<'_>) -> Option<Vec<Listening>> {
    let texts = [sections.get("tcp"), sections.get("tcp6")];
    // A heading without lines is an answer: nothing listens.
    if texts.iter().all(|text| !text.contains("local_address")) {
        return None;
    }
    let mut found: Vec<Listening> = texts
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(line)
        .collect();
    found.sort();
    found.dedup();
    Some(found)
}

/// `sl local rem st queues timer retrnsmt uid …`, of which state 0A is listening.
fn line(line: &str) -> Option<Listening> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.get(3) != Some(&"0A") {
        return None;
    }
    let (address, port) = words.get(1)?.split_once(':')?;
    Some(Listening {
        port: u16::from_str_radix(port, 16).ok()?,
        address: parse_address(address)?,
        uid: words.get(7).and_then(|uid| uid.parse().ok()),
    })
}

/// One or four words of 32 bits, each with its little end first.
fn parse_address(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = digits.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.swap_bytes())
    };
    match digits.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let number = (0..4).try_fold(0_u128, |number, at| {
                Some((number << 32) | u128::from(word(at)?))
            })?;
            let ip = Ipv6Addr::from(number);
            Some(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4))
        }
        _ => None,
    }
}
