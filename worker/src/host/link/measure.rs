//! The end that measures: round trips first, while the link is idle, then sizes of packets, then bytes
//! each way.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use windlass_wire::host::{Connected, line};
use windlass_wire::link::{
    Ask, Counted, LINK_HELLO, MAX_ASK, MOST_STREAMS, MOST_TIME, Measuring, NONCE, Packets, Part,
    TRIP, Trips, halves,
};

use super::super::{address, probe, say};
use super::{STALL, carriers, packets, prepare, receive, send};

/// Round trips measured at most, and for how long.
pub(super) const TRIPS: usize = 1_000;
const TRIP_TIME: Duration = Duration::from_secs(1);
/// How long a connection may take.
const CONNECTING: Duration = Duration::from_secs(5);
/// How often the controller hears that something moves.
const TELL_EVERY: Duration = Duration::from_millis(250);
/// How long an echo is waited for: so many times the slowest usual round trip, within these.
const ECHO_TIMES: f64 = 4.0;
const ECHO: (Duration, Duration) = (Duration::from_millis(60), Duration::from_millis(500));

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Address of the end that listens.
    pub address: String,
    /// Its port.
    pub port: u16,
    /// What both know.
    pub nonce: String,
    /// How long each direction counts.
    pub time: Duration,
    /// Connections that carry a direction together.
    pub streams: u32,
}

/// Measures, and says how it goes.
///
/// # Errors
/// When nobody hears.
pub fn measure(wanted: &Wanted, output: &mut impl Write) -> io::Result<bool> {
    let before = carriers::read();
    let (peer, first) = match reach(wanted) {
        Ok(reached) => reached,
        Err(said) => return say(output, &said).map(|()| false),
    };
    let local = first.local_addr()?;
    let said = Connected::Reached {
        micros: 0,
        local: local.ip().to_string(),
    };
    say(output, &said)?;
    let mut end = End {
        wanted,
        peer,
        output,
        packets: Packets::default(),
    };
    let last = match end.all(&first, local, before) {
        Ok(done) => done,
        Err(Broken::Link(part, error)) => Measuring::Broke {
            part,
            reason: words(&error),
            packets: end.packets,
        },
        Err(Broken::Deaf(error)) => return Err(error),
    };
    let done = matches!(last, Measuring::Done { .. });
    say(end.output, &last).map(|()| done)
}

/// What an error of a link means to people.
fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("nothing moved for {} s", STALL.as_secs())
        }
        io::ErrorKind::UnexpectedEof => "the other end closed the connection".to_owned(),
        _ => error.to_string(),
    }
}

/// How a measurement ends early.
enum Broken {
    /// The link broke.
    Link(Part, io::Error),
    /// The controller is gone.
    Deaf(io::Error),
}

/// The first connection, greeted; or what the controller is told.
fn reach(wanted: &Wanted) -> Result<(SocketAddr, TcpStream), Connected> {
    let no_route = |reason| Connected::NoRoute { reason };
    let peer = address::parse(&wanted.address, wanted.port).map_err(no_route)?;
    if halves(&wanted.nonce).is_none() {
        return Err(no_route(format!("a nonce has {NONCE} characters")));
    }
    let local = probe::route(peer);
    let stream = TcpStream::connect_timeout(&peer, CONNECTING)
        .map_err(|error| probe::unreached(&error, local))?;
    match greet(&stream, &wanted.nonce) {
        Ok(true) => Ok((peer, stream)),
        // It accepts and does not answer as ours does.
        Ok(false) | Err(_) => Err(Connected::Stranger),
    }
}

/// Whether the other end knows the nonce.
fn greet(mut stream: &TcpStream, nonce: &str) -> io::Result<bool> {
    prepare(stream)?;
    let Some((ours, theirs)) = halves(nonce) else {
        return Ok(false);
    };
    stream.write_all(&[LINK_HELLO, ours].concat())?;
    let mut answer = vec![0; theirs.len()];
    stream.read_exact(&mut answer)?;
    Ok(answer == theirs)
}

struct End<'a, W> {
    wanted: &'a Wanted,
    peer: SocketAddr,
    output: &'a mut W,
    /// What is known of them by now.
    packets: Packets,
}

impl<W: Write> End<'_, W> {
    fn all(
        &mut self,
        first: &TcpStream,
        local: SocketAddr,
        before: Vec<windlass_wire::link::Carrier>,
    ) -> Result<Measuring, Broken> {
        self.tell(Part::Trips, 0)?;
        let trips = trips(first).map_err(|error| Broken::Link(Part::Trips, error))?;
        self.tell(Part::Packets, 0)?;
        let nonce = halves(&self.wanted.nonce).map_or(&[][..], |(first, _)| first);
        let patience = Duration::from_secs_f64((trips.p99 * ECHO_TIMES / 1e6).clamp(0.0, 10.0));
        self.packets = packets::packets(
            local,
            self.peer,
            nonce,
            patience.clamp(ECHO.0, ECHO.1),
            &before,
        );
        let there = self.direction(Part::There)?;
        let back = self.direction(Part::Back)?;
        Ok(Measuring::Done {
            local: local.ip().to_string(),
            trips,
            packets: self.packets,
            there,
            back,
            carriers: carriers::between(&before, carriers::read()),
        })
    }

    fn tell(&mut self, part: Part, bytes: u64) -> Result<(), Broken> {
        say(self.output, &Measuring::Moved { part, bytes }).map_err(Broken::Deaf)
    }

    /// Bytes in one direction, over all connections at once.
    fn direction(&mut self, part: Part) -> Result<Counted, Broken> {
        self.tell(part, 0)?;
        let moved = AtomicU64::new(0);
        let (wanted, peer) = (self.wanted, self.peer);
        let count = wanted.streams.clamp(1, MOST_STREAMS);
        let results = thread::scope(|scope| {
            let threads: Vec<_> = (0..count)
                .map(|_| scope.spawn(|| one_stream(wanted, peer, part, &moved)))
                .collect();
            let mut told = Instant::now();
            while threads.iter().any(|thread| !thread.is_finished()) {
                thread::sleep(Duration::from_millis(10));
                if told.elapsed() >= TELL_EVERY {
                    told = Instant::now();
                    self.tell(part, moved.load(Ordering::Relaxed))?;
                }
            }
            let joined = threads.into_iter().map(|thread| {
                let fault = || io::Error::other("a thread ended in a panic");
                thread.join().unwrap_or_else(|_| Err(fault()))
            });
            joined
                .collect::<io::Result<Vec<Counted>>>()
                .map_err(|error| Broken::Link(part, error))
        })?;
        Ok(together(&results))
    }
}

/// Several connections' counts as one: the sum of their rates, over the longest of their times.
fn together(all: &[Counted]) -> Counted {
    let micros = all.iter().map(|one| one.micros).max().unwrap_or(0);
    let scaled =
        |one: &Counted| u128::from(one.bytes) * u128::from(micros) / u128::from(one.micros.max(1));
    let bytes = all.iter().map(scaled).sum::<u128>();
    Counted {
        bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
        micros,
    }
}

fn one_stream(
    wanted: &Wanted,
    peer: SocketAddr,
    part: Part,
    moved: &AtomicU64,
) -> io::Result<Counted> {
    let stream = TcpStream::connect_timeout(&peer, CONNECTING)?;
    if !greet(&stream, &wanted.nonce)? {
        return Err(io::Error::other("another machine answers there now"));
    }
    let time = wanted.time.min(MOST_TIME);
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let counted = if part == Part::There {
        (&stream).write_all(&line(&Ask::Take { millis }))?;
        send(&stream, time, moved)?;
        let mut answer = String::new();
        BufReader::new(&stream)
            .take(MAX_ASK as u64)
            .read_line(&mut answer)?;
        if answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_str(&answer).map_err(io::Error::other)?
    } else {
        (&stream).write_all(&line(&Ask::Give { millis }))?;
        receive(&stream, time, moved)?
    };
    // What is still waiting to be sent must not disturb what is measured next.
    let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    Ok(counted)
}

/// Small messages there and back, one after the other.
fn trips(mut stream: &TcpStream) -> io::Result<Trips> {
    stream.write_all(&line(&Ask::Trips))?;
    let mut times: Vec<Duration> = Vec::with_capacity(TRIPS);
    let message = [b'.'; TRIP];
    let mut answer = [0; TRIP];
    let began = Instant::now();
    while times.len() < TRIPS && (times.is_empty() || began.elapsed() < TRIP_TIME) {
        let sent = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut answer)?;
        times.push(sent.elapsed());
    }
    Ok(quantiles(times))
}

/// The least, the median and the 99th of a hundred, by rank.
fn quantiles(mut times: Vec<Duration>) -> Trips {
    times.sort_unstable();
    let rank = |part: f64| {
        let at = (times.len() as f64 * part).ceil() as usize;
        let time = times.get(at.saturating_sub(1)).copied();
        time.unwrap_or_default().as_nanos() as f64 / 1e3
    };
    Trips {
        count: u32::try_from(times.len()).unwrap_or(u32::MAX),
        least: rank(0.0),
        median: rank(0.5),
        p99: rank(0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_by_rank() {
        let of =
            |millis: &[u64]| quantiles(millis.iter().map(|m| Duration::from_millis(*m)).collect());
        let hundred: Vec<u64> = (1..=100).rev().collect();
        let got = of(&hundred);
        assert_eq!(
            (got.count, got.least, got.median, got.p99),
            (100, 1e3, 50e3, 99e3)
        );
        let one = of(&[7]);
        assert_eq!((one.least, one.median, one.p99), (7e3, 7e3, 7e3));
        assert_eq!(of(&[]), Trips::default());
    }

    #[test]
    fn connections_of_unlike_times_add_up_by_their_rates() {
        let counted = |bytes, micros| Counted { bytes, micros };
        let sum = together(&[counted(1000, 1000), counted(1000, 500)]);
        assert_eq!(sum, counted(3000, 1000));
        assert_eq!(together(&[]), Counted::default());
    }
}
