//! What the two ends of a measured link say: to each other on the link itself, and to their
//! controller over a channel's stdin and stdout.
//!
//! **To the controller.** The end that listens (`link serve`) says one [`crate::host::Listening`] and,
//! when its stdin ends, one [`Carried`]. The end that measures (`link measure`) says one
//! [`crate::host::Connected`] and, when that is `reached`, [`Measuring`] lines, the last of which is
//! `done` or `broke`.
//!
//! **On the link**, one TCP connection for each part:
//!
//! ```text
//! measures                                listens
//! LINK_HELLO, first half of the nonce  →
//!                                      ←   second half of the nonce
//! Ask, a line                          →
//! ```
//!
//! then, by what is asked for:
//! - `trips`: every [`TRIP`] bytes come back as they are, until the connection ends.
//! - `take`: bytes →, until the sender ends; ← one [`Counted`] line.
//! - `give`: ← bytes, for as long as asked, then the end.
//!
//! Whoever receives counts, by its own clock, and leaves the first [`settling`] out: a connection
//! begins slowly.
//!
//! Datagrams go to the same port: [`DATAGRAM_HEAD`] bytes (first half of the nonce, a number), then
//! filler up to the size to try. They come back as they are; where the way back does not take that
//! size, only the head comes back.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a connection on the link begins with.
pub const LINK_HELLO: &[u8] = b"windlass link\n";
/// Length of a nonce; each half is half of it.
pub const NONCE: usize = 32;
/// Bytes of one small message whose round trip is measured.
pub const TRIP: usize = 64;
/// Length of the head of a datagram: half a nonce and four bytes.
pub const DATAGRAM_HEAD: usize = NONCE / 2 + 4;
/// Longest line on the link, in bytes.
pub const MAX_ASK: usize = 512;
/// Longest time that one direction may be measured for.
pub const MOST_TIME: Duration = Duration::from_secs(60);
/// Most connections that carry one direction together.
pub const MOST_STREAMS: u32 = 16;

/// How long the beginning of a measurement is left out: a quarter of it, half a second at most.
pub fn settling(time: Duration) -> Duration {
    (time / 4).min(Duration::from_millis(500))
}

/// The halves of a nonce; `None` when it has another length.
pub fn halves(nonce: &str) -> Option<(&[u8], &[u8])> {
    let bytes = nonce.as_bytes();
    (bytes.len() == NONCE).then(|| bytes.split_at(NONCE / 2))
}

/// What a connection is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Ask {
    /// Small messages there and back.
    Trips,
    /// Bytes from the one that asks, counted by the other for so many milliseconds.
    Take {
        /// Time that counts.
        millis: u64,
    },
    /// Bytes to the one that asks.
    Give {
        /// Time that counts.
        millis: u64,
    },
}

/// What a receiver counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Bytes received after the beginning that is left out.
    pub bytes: u64,
    /// Microseconds they took.
    pub micros: u64,
}

impl Counted {
    /// Megabits a second.
    pub fn mbit(self) -> f64 {
        if self.micros == 0 {
            return 0.0;
        }
        self.bytes as f64 * 8.0 / self.micros as f64
    }
}

/// A part of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Small messages there and back.
    Trips,
    /// Full packets.
    Packets,
    /// Bytes from the end that measures.
    There,
    /// Bytes to it.
    Back,
}

impl Part {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Trips => "small messages went there and back",
            Self::Packets => "full packets were tried",
            Self::There => "bytes went there",
            Self::Back => "bytes came back",
        }
    }
}

/// Round trips of small messages, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trips {
    /// How many.
    pub count: u32,
    /// The shortest.
    pub least: f64,
    /// The median.
    pub median: f64,
    /// What 99 of 100 do not exceed.
    pub p99: f64,
}

/// How large packets may be that must not be cut up on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// The largest that this end's interface takes, bytes.
    pub own: Option<u32>,
    /// The largest that came back whole, bytes. `None` with `answered`: none did.
    pub back: Option<u32>,
    /// The largest that arrived, whether or not the way back took it.
    pub there: Option<u32>,
    /// Whether any datagram was answered. Where none is, UDP is filtered and nothing is known.
    pub answered: bool,
}

/// An interface and what went through it while a link was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carrier {
    /// Its name.
    pub interface: String,
    /// Bytes it received.
    pub received: u64,
    /// Bytes it sent.
    pub sent: u64,
    /// Its largest packet, bytes.
    pub mtu_bytes: Option<u32>,
    /// Speed it says, megabits a second.
    pub speed_mbit: Option<u32>,
    /// What the kernel calls it when it is no plain card: `wlan`, `wireguard`, `bridge`, `vxlan`, ….
    pub kind: Option<String>,
}

/// The last word of the end that listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Every interface through which anything went.
    pub carriers: Vec<Carrier>,
}

/// What `link measure` says once it has reached the other end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Measuring {
    /// It is at work: at least every second.
    Moved {
        /// At which part.
        part: Part,
        /// Bytes of that part so far.
        bytes: u64,
    },
    /// All parts are done.
    Done {
        /// Own address on the link, without port.
        local: String,
        /// Round trips.
        trips: Trips,
        /// Packets.
        packets: Packets,
        /// From this end to the other.
        there: Counted,
        /// From the other end to this one.
        back: Counted,
        /// Every interface through which anything went.
        carriers: Vec<Carrier>,
    },
    /// The link broke.
    Broke {
        /// At which part.
        part: Part,
        /// The system's words.
        reason: String,
        /// Packets, where they were tried by then: bytes that stop for lost packets look like a cut.
        #[serde(default)]
        packets: Packets,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_bits_over_the_receiver_s_time() {
        let counted = Counted {
            bytes: 250_000_000,
            micros: 2_000_000,
        };
        assert_eq!(counted.mbit(), 1000.0);
        assert_eq!(Counted::default().mbit(), 0.0);
    }

    #[test]
    fn a_nonce_of_another_length_has_no_halves() {
        assert_eq!(halves(&"a".repeat(31)), None);
        assert_eq!(halves(""), None);
        let (first, second) = halves("0123456789abcdef0123456789ABCDEF").unwrap();
        assert_eq!(
            (first, second),
            (&b"0123456789abcdef"[..], &b"0123456789ABCDEF"[..])
        );
    }

    #[test]
    fn the_beginning_left_out_never_takes_over_the_measurement() {
        for (time, wanted) in [(400, 100), (2000, 500), (60_000, 500)] {
            let got = settling(Duration::from_millis(time));
            assert_eq!(got, Duration::from_millis(wanted), "{time}");
        }
    }
}
