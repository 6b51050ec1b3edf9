//! Addresses as people and peers write them, and those this host has. Must not open connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;

/// Most bytes read of a table of the kernel's.
const MAX_TABLE: u64 = 4 << 20;

/// Reads an address without port: `10.0.0.1`, `fd00::1`, `[fd00::1]`, `fe80::1%eth0`, `fe80::1%2`.
///
/// # Errors
/// A sentence, when it is none, or its interface is not there.
pub fn parse(text: &str, port: u16) -> Result<SocketAddr, String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    let (ip, scope) = match bare.split_once('%') {
        Some((ip, scope)) => (ip, Some(scope)),
        None => (bare, None),
    };
    let ip: IpAddr = ip
        .parse()
        .map_err(|_| format!("{text:?} is not an IP address"))?;
    match (ip, scope) {
        (_, None) => Ok(SocketAddr::new(ip, port)),
        (IpAddr::V6(ip), Some(scope)) => {
            let scope = scope_id(scope)
                .ok_or_else(|| format!("this host has no interface {scope:?}, of {text}"))?;
            Ok(SocketAddrV6::new(ip, port, 0, scope).into())
        }
        (IpAddr::V4(_), Some(_)) => Err(format!("{text:?}: an IPv4 address has no interface")),
    }
}

/// Reads an address with port: `10.0.0.1:1`, `[fd00::1]:1`, `[fe80::1%eth0]:1`.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_port(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let bad = || format!("{text:?} is not an address of the form ip:port");
    let (ip, port) = text.rsplit_once(':').ok_or_else(bad)?;
    if ip.contains(':') && !ip.starts_with('[') {
        return Err(bad());
    }
    parse(ip, port.parse().map_err(|_| bad())?)
}

fn scope_id(scope: &str) -> Option<u32> {
    if let Ok(number) = scope.parse() {
        return Some(number);
    }
    // No name leaves the folder.
    if scope.is_empty() || scope.len() > 15 || scope.contains('/') || scope.starts_with('.') {
        return None;
    }
    let path = Path::new("/sys/class/net").join(scope).join("ifindex");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Addresses of this host, loopback last; empty where the kernel has no such tables.
pub fn own() -> Vec<String> {
    let mut all = ipv4(&table("/proc/net/fib_trie"));
    all.extend(ipv6(&table("/proc/net/if_inet6")));
    all.sort_by_key(|address| address.starts_with("127.") || address == "::1");
    all
}

/// A table of the kernel's as text, empty when it is not there.
pub(super) fn table(path: &str) -> String {
    use std::io::Read;
    let mut text = String::new();
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.take(MAX_TABLE).read_to_string(&mut text);
    }
    text
}

/// Addresses in the kernel's routing trie: a line `|-- ADDRESS` whose next line is `/32 host LOCAL`.
fn ipv4(trie: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut last = "";
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address;
        } else if line == "/32 host LOCAL"
            && last.parse::<Ipv4Addr>().is_ok()
            && !found.iter().any(|one| one == last)
        {
            found.push(last.to_owned());
        }
    }
    found
}

/// Addresses in `if_inet6`: 32 hexadecimal digits, index, prefix, scope (20: link), flags, name.
fn ipv6(table: &str) -> Vec<String> {
    table
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [hex, _, _, scope, _, name] = fields.as_slice() else {
                return None;
            };
            let address = Ipv6Addr::from(u128::from_str_radix(hex, 16).ok()?);
            Some(if *scope == "20" {
                format!("{address}%{name}")
            } else {
                address.to_string()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_every_form_people_write() {
        for (text, wanted) in [
            ("10.0.0.1", Some("10.0.0.1:7")),
            ("fd00::1", Some("[fd00::1]:7")),
            ("[fd00::1]", Some("[fd00::1]:7")),
            ("fe80::1%lo", Some("[fe80::1%1]:7")),
            ("fe80::1%2", Some("[fe80::1%2]:7")),
            ("fe80::1%nosuch0", None),
            ("fe80::1%../lo", None),
            ("10.0.0.1%lo", None),
            ("halo1", None),
            ("", None),
        ] {
            let got = parse(text, 7).map(|address| address.to_string());
            assert_eq!(got.as_deref().ok(), wanted, "{text}: {got:?}");
        }
        for (text, wanted) in [
            ("10.0.0.1:9", Some("10.0.0.1:9")),
            ("[fe80::1%lo]:9", Some("[fe80::1%1]:9")),
            ("fd00::1:9", None),
            ("10.0.0.1", None),
            ("10.0.0.1:x", None),
        ] {
            let got = parse_with_port(text).map(|address| address.to_string());
            assert_eq!(got.as_deref().ok(), wanted, "{text}: {got:?}");
        }
    }

    #[test]
    fn own_addresses_are_read_from_the_kernel_s_tables() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n\
            Local:\n     |-- 10.0.0.2\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n\
            \x20    |-- 10.0.0.2\n        /32 host LOCAL\n";
        assert_eq!(ipv4(trie), ["10.0.0.2"]);
        let table = "fe80000000000000021b21fffe1a2b3c 02 40 20 80     eth0\n\
            fd000000000000000000000000000002 02 40 00 80     eth0\nnonsense\n";
        assert_eq!(ipv6(table), ["fe80::21b:21ff:fe1a:2b3c%eth0", "fd00::2"]);
        assert!(own().iter().any(|address| address == "127.0.0.1"));
    }
}
