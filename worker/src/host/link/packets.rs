//! The largest packet that passes without being cut up: datagrams that must not be, up to the size
//! that the own interface takes, and their echo. Only Linux says how (`IP_MTU_DISCOVER`); elsewhere
//! nothing is known.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use windlass_wire::link::{Carrier, DATAGRAM_HEAD, Packets};

/// A packet that every path takes (RFC 1122 asks 576 of IPv4, RFC 8200 1280 of IPv6).
const SMALL: u32 = 512;
/// Largest packet of IP, bytes.
const LARGEST: u32 = 65_535;
/// How often a packet of one size is tried before it counts as lost.
const TRIES: usize = 3;

/// Forbids that packets of a socket are cut up, also where the kernel has learnt of a narrow path.
#[cfg(target_os = "linux")]
pub(super) fn whole(socket: &UdpSocket, address: SocketAddr) -> io::Result<()> {
    use rustix::net::sockopt;
    match address {
        SocketAddr::V4(_) => {
            sockopt::set_ip_mtu_discover(socket, sockopt::Ipv4PathMtuDiscovery::PROBE)?;
        }
        SocketAddr::V6(_) => {
            sockopt::set_ipv6_mtu_discover(socket, sockopt::Ipv6PathMtuDiscovery::PROBE)?;
        }
    }
    Ok(())
}

/// Only Linux has it.
#[cfg(not(target_os = "linux"))]
pub(super) fn whole(_socket: &UdpSocket, _address: SocketAddr) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// How a datagram fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// It came back.
    Whole,
    /// It arrived; the way back does not take its size.
    There,
    /// Nothing came.
    Nothing,
    /// The own interface does not take it.
    TooBig,
}

struct Tries<'a> {
    socket: UdpSocket,
    nonce: &'a [u8],
    /// Bytes of a packet before its data.
    header: u32,
    patience: Duration,
    number: u32,
    buffer: Vec<u8>,
}

/// Tries sizes between two ends of a connection. `nonce` is its first half.
pub(super) fn packets(
    local: SocketAddr,
    peer: SocketAddr,
    nonce: &[u8],
    patience: Duration,
    interfaces: &[Carrier],
) -> Packets {
    let Ok(mut tries) = Tries::new(local, peer, nonce, patience) else {
        return Packets::default();
    };
    let mut sizes: Vec<u32> = interfaces
        .iter()
        .filter_map(|interface| interface.mtu_bytes)
        .map(|mtu| mtu.min(LARGEST))
        .filter(|mtu| *mtu >= SMALL)
        .collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.dedup();
    search(&sizes, |size| tries.attempt(size))
}

/// The sizes of which a packet passes. `sizes`: what interfaces take, the largest first.
fn search(sizes: &[u32], mut attempt: impl FnMut(u32) -> Came) -> Packets {
    let mut found = Packets {
        answered: attempt(SMALL) != Came::Nothing,
        ..Packets::default()
    };
    let mut full = None;
    for size in sizes {
        let came = attempt(*size);
        if came != Came::TooBig {
            full = Some((*size, came));
            break;
        }
    }
    let Some((own, came)) = full else {
        return found;
    };
    found.own = Some(own);
    if !found.answered {
        return found;
    }
    let mut note = |size: u32, came: Came| {
        if came == Came::Whole {
            found.back = found.back.max(Some(size));
        }
        if matches!(came, Came::Whole | Came::There) {
            found.there = found.there.max(Some(size));
        }
        came == Came::Whole
    };
    note(SMALL, Came::Whole);
    if note(own, came) {
        return found;
    }
    let (mut passes, mut lost) = (SMALL, own);
    while lost - passes > 1 {
        let size = passes + (lost - passes) / 2;
        if note(size, attempt(size)) {
            passes = size;
        } else {
            lost = size;
        }
    }
    found
}

impl<'a> Tries<'a> {
    fn new(
        local: SocketAddr,
        peer: SocketAddr,
        nonce: &'a [u8],
        patience: Duration,
    ) -> io::Result<Self> {
        let mut own = local;
        own.set_port(0);
        let socket = UdpSocket::bind(own)?;
        whole(&socket, own)?;
        socket.connect(peer)?;
        Ok(Self {
            socket,
            nonce,
            header: if peer.is_ipv4() { 20 + 8 } else { 40 + 8 },
            patience,
            number: 0,
            buffer: vec![0; 1 << 16],
        })
    }

    fn attempt(&mut self, size: u32) -> Came {
        let mut best = Came::Nothing;
        for _ in 0..TRIES {
            match self.once(size) {
                Ok(Came::Nothing) | Err(_) => {}
                Ok(Came::There) => best = Came::There,
                Ok(came) => return came,
            }
        }
        best
    }

    fn once(&mut self, size: u32) -> io::Result<Came> {
        self.number += 1;
        let data = (size.saturating_sub(self.header) as usize).max(DATAGRAM_HEAD);
        let mut datagram = vec![0; data];
        let head = self.nonce.iter().copied().chain(self.number.to_be_bytes());
        for (to, from) in datagram.iter_mut().zip(head) {
            *to = from;
        }
        if let Err(error) = self.socket.send(&datagram) {
            return match error.raw_os_error() {
                Some(code) if code == libc::EMSGSIZE => Ok(Came::TooBig),
                _ => Err(error),
            };
        }
        let end = Instant::now() + self.patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Came::Nothing);
            }
            self.socket.set_read_timeout(Some(left))?;
            let got = match self.socket.recv(&mut self.buffer) {
                Ok(got) => got,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        return Ok(Came::Nothing);
                    }
                    _ => return Err(error),
                },
            };
            // Late answers to earlier ones have another number.
            let head = datagram.get(..DATAGRAM_HEAD);
            if self.buffer.get(..DATAGRAM_HEAD.min(got)) != head {
                continue;
            }
            return Ok(if got == data {
                Came::Whole
            } else {
                Came::There
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path whose own interface takes `own`, whose way there `there` and back `back`.
    fn over(sizes: &[u32], own: u32, there: u32, back: u32) -> (Packets, usize) {
        let mut asked = 0;
        let found = search(sizes, |size| {
            asked += 1;
            match size {
                size if size > own => Came::TooBig,
                size if size > there => Came::Nothing,
                size if size > back => Came::There,
                _ => Came::Whole,
            }
        });
        (found, asked)
    }

    #[test]
    fn the_largest_packet_is_found_in_few_tries() {
        let packets = |own, there, back| Packets {
            own: Some(own),
            there: Some(there),
            back: Some(back),
            answered: true,
        };
        let table = [
            // All alike: two tries.
            (&[1500][..], 1500, 1500, 1500, packets(1500, 1500, 1500)),
            // A switch between two ends with large packets.
            (&[9000, 1500], 9000, 1500, 1500, packets(9000, 1500, 1500)),
            // The other end takes more than it sends.
            (&[1500], 1500, 1404, 1400, packets(1500, 1404, 1400)),
            // A larger interface than that of the link.
            (&[65_535, 1500], 1500, 1500, 1500, packets(1500, 1500, 1500)),
        ];
        for (sizes, own, there, back, wanted) in table {
            let (found, asked) = over(sizes, own, there, back);
            // What only arrived is found on the way to what came back.
            assert_eq!(
                (found.own, found.back),
                (wanted.own, wanted.back),
                "{sizes:?}"
            );
            assert!(found.there >= found.back && found.there <= wanted.there);
            assert!(asked < 20, "{asked} tries");
        }
        let silent = search(&[1500], |_| Came::Nothing);
        assert_eq!(
            silent,
            Packets {
                own: Some(1500),
                ..Packets::default()
            }
        );
        assert_eq!(search(&[], |_| Came::Whole).own, None);
    }
}
