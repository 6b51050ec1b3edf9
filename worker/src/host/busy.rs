//! Which process holds a port, as far as the kernel tells this user. Reads `/proc` only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::address::table;

/// The kernel's number of the state "listens" (`TCP_LISTEN`).
const LISTENS: &str = "0A";

/// A socket that listens.
#[derive(Debug, PartialEq, Eq)]
struct Listener {
    address: IpAddr,
    port: u16,
    uid: u32,
    inode: u64,
}

/// Who holds `address`, `name (pid 12)`; with other users' processes perhaps only whose it is.
pub fn holder(address: SocketAddr) -> Option<String> {
    let text = table("/proc/net/tcp") + &table("/proc/net/tcp6");
    let listener = listeners(&text)
        .into_iter()
        .find(|one| one.port == address.port() && overlap(one.address, address.ip()))?;
    Some(process(listener.inode).unwrap_or_else(|| format!("a process of uid {}", listener.uid)))
}

/// Whether sockets at these addresses exclude each other.
fn overlap(a: IpAddr, b: IpAddr) -> bool {
    let (a, b) = (a.to_canonical(), b.to_canonical());
    a == b
        || match (a.is_unspecified(), b.is_unspecified()) {
            // `::` takes IPv4 too, unless told not to.
            (true, _) => a.is_ipv6() || b.is_ipv4(),
            (_, true) => b.is_ipv6() || a.is_ipv4(),
            _ => false,
        }
}

/// Lines of `/proc/net/tcp` and `tcp6` (Linux, `Documentation/networking/proc_net_tcp`): addresses
/// are 32-bit words in the machine's order.
fn listeners(text: &str) -> Vec<Listener> {
    text.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, state, _, _, _, uid, _, inode, ..] = fields.as_slice() else {
                return None;
            };
            if *state != LISTENS {
                return None;
            }
            let (ip, port) = local.split_once(':')?;
            Some(Listener {
                address: address(ip)?,
                port: u16::from_str_radix(port, 16).ok()?,
                uid: uid.parse().ok()?,
                inode: inode.parse().ok()?,
            })
        })
        .collect()
}

fn address(hex: &str) -> Option<IpAddr> {
    let mut bytes = Vec::new();
    for word in hex.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    if let Ok(four) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Some(Ipv4Addr::from(four).into());
    }
    let sixteen = <[u8; 16]>::try_from(bytes.as_slice()).ok()?;
    Some(Ipv6Addr::from(sixteen).into())
}

/// The process that has a socket open, among those whose descriptors this user may see.
fn process(inode: u64) -> Option<String> {
    let wanted = format!("socket:[{inode}]");
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(open) = std::fs::read_dir(entry.path().join("fd")) else {
            continue;
        };
        let held = open
            .flatten()
            .any(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() == &*wanted));
        if held {
            let comm = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            let comm: String = comm.trim().chars().filter(|c| !c.is_control()).collect();
            return Some(format!("{comm} (pid {pid})"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read_from_the_kernel_s_tables() {
        // 127.0.0.1:8080 listening, one connection of it, and [::]:47600 listening.
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 100 0 0 10 0\n\
            1: 0100007F:1F90 0100007F:8000 01 00000000:00000000 00:00000000 00000000  1000        0 4243 1 0 100 0 0 10 0\n\
            0: 00000000000000000000000000000000:B9F0 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000   998        0 99 1 0 100 0 0 10 0\n";
        let found = listeners(text);
        let expected = [("127.0.0.1", 8080, 1000, 4242), ("::", 47600, 998, 99)];
        assert_eq!(found.len(), expected.len());
        for (one, (address, port, uid, inode)) in found.iter().zip(expected) {
            assert_eq!(one.address, address.parse::<IpAddr>().unwrap());
            assert_eq!((one.port, one.uid, one.inode), (port, uid, inode));
        }
    }

    #[test]
    fn a_listener_everywhere_excludes_every_address_of_its_family() {
        for (a, b, wanted) in [
            ("0.0.0.0", "10.0.0.1", true),
            ("::", "10.0.0.1", true),
            ("10.0.0.1", "0.0.0.0", true),
            ("127.0.0.1", "10.0.0.1", false),
            ("0.0.0.0", "fd00::1", false),
            ("::", "fd00::1", true),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
        ] {
            assert_eq!(
                overlap(a.parse().unwrap(), b.parse().unwrap()),
                wanted,
                "{a} {b}"
            );
        }
    }

    #[test]
    fn the_holder_of_a_port_is_named_with_its_pid() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let by = holder(listener.local_addr().unwrap()).unwrap();
        assert!(
            by.ends_with(&format!("(pid {})", std::process::id())),
            "{by}"
        );
    }
}
