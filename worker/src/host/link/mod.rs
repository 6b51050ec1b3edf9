//! `link`: how fast, how far and how wide the way to another host is, measured with real bytes. One
//! end listens ([`listen`]), the other measures ([`measure`]); what they say to each other stands in
//! [`windlass_wire::link`].
//!
//! Must not know which figures are good: the controller judges. Memory is bounded by one buffer for
//! each connection, whatever the peer does.

mod carriers;
mod listen;
mod measure;
mod packets;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use windlass_wire::link::{Counted, settling};

pub use listen::listen;
pub use measure::{Wanted, measure};

/// How long nothing may move before a link counts as broken.
const STALL: Duration = Duration::from_secs(3);
/// How much longer than asked for a sender sends: its first bytes are on their way then.
const LONGER: Duration = Duration::from_millis(300);
/// Bytes read or written at a time.
const CHUNK: usize = 256 << 10;
/// Most bytes taken on one connection: a minute of more than a terabit a second.
const MOST_BYTES: u64 = 1 << 43;

/// Limits a connection's silences and sends small messages at once.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STALL))?;
    stream.set_write_timeout(Some(STALL))
}

/// Receives for `time` after the beginning that is left out, and counts. Adds what comes to `moved`.
///
/// # Errors
/// When nothing comes for [`STALL`], or the sender ends before the time counts for half.
fn receive(mut stream: &TcpStream, time: Duration, moved: &AtomicU64) -> io::Result<Counted> {
    let mut buffer = vec![0; CHUNK];
    let mut all = 0u64;
    let mut began: Option<Instant> = None;
    let mut counting: Option<Instant> = None;
    let mut counted = Counted::default();
    loop {
        let got = match stream.read(&mut buffer) {
            Ok(got) => got as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let now = Instant::now();
        let lasted = counting.map_or(Duration::ZERO, |start| now - start);
        if got == 0 {
            if lasted < time / 2 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            return Ok(counted);
        }
        all += got;
        moved.fetch_add(got, Ordering::Relaxed);
        match (began, counting) {
            (None, _) => began = Some(now),
            (Some(start), None) if now - start >= settling(time) => counting = Some(now),
            (Some(_), None) => {}
            (_, Some(_)) => {
                counted.bytes += got;
                counted.micros = u64::try_from(lasted.as_micros()).unwrap_or(u64::MAX);
                if lasted >= time || all >= MOST_BYTES {
                    return Ok(counted);
                }
            }
        }
    }
}

/// Sends until what counts there has passed. Adds what went to `moved`.
///
/// # Errors
/// When nothing goes for [`STALL`], or the other end is gone.
fn send(mut stream: &TcpStream, time: Duration, moved: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    // What can be compressed on its way would go faster than data does.
    getrandom::fill(&mut buffer).map_err(io::Error::other)?;
    let end = Instant::now() + settling(time) + time + LONGER;
    let mut all = 0u64;
    while Instant::now() < end && all < MOST_BYTES {
        match stream.write(&buffer) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(went) => {
                all += went as u64;
                moved.fetch_add(went as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
