//! The end that listens: answers those who know the nonce, so many at once and in all, and ends with
//! its stdin.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use windlass_wire::host::Listening;
use windlass_wire::link::{
    Ask, Carried, DATAGRAM_HEAD, LINK_HELLO, MAX_ASK, MOST_STREAMS, MOST_TIME, NONCE, TRIP, halves,
};

use super::super::{address, probe, say};
use super::{carriers, packets, prepare, receive, send};

/// Connections answered at once; more are closed.
const MOST: usize = 2 * MOST_STREAMS as usize;
/// Connections answered in all, and datagrams.
const IN_ALL: usize = 1_000;
const DATAGRAMS: usize = 10_000;
/// How long it listens at most, should nobody end it.
const LIFE: Duration = Duration::from_secs(600);

/// Listens, says how that went, and answers until the input ends; then says which interfaces
/// carried anything. `false`: it does not listen.
///
/// # Errors
/// When nobody hears.
pub fn listen(
    text: &str,
    port: u16,
    nonce: &str,
    mut input: impl Read + Send + 'static,
    output: &mut impl Write,
) -> io::Result<bool> {
    let before = carriers::read();
    let failed = |reason: String| Listening::Failed { reason };
    let (said, listener) = match (address::parse(text, port), nonce.len() == NONCE) {
        (Err(reason), _) => (failed(reason), None),
        (_, false) => (failed(format!("a nonce has {NONCE} characters")), None),
        (Ok(address), true) => match TcpListener::bind(address) {
            Ok(listener) => {
                let address = listener.local_addr().map_or(address, |own| own);
                let text = address.to_string();
                (
                    Listening::Bound { address: text },
                    Some((listener, address)),
                )
            }
            Err(error) => (probe::not_bound(address, &error), None),
        },
    };
    let Some((listener, address)) = listener else {
        return say(output, &said).map(|()| false);
    };
    let nonce: Arc<str> = nonce.into();
    let own = nonce.clone();
    std::thread::Builder::new().spawn(move || accept(&listener, &own))?;
    // Without it only the size of packets stays unknown.
    if let Ok(socket) = datagrams(address) {
        std::thread::Builder::new().spawn(move || echo(&socket, &nonce))?;
    }
    say(output, &said)?;
    let (ended, end) = mpsc::channel();
    std::thread::Builder::new().spawn(move || {
        let _ = io::copy(&mut input, &mut io::sink());
        let _ = ended.send(());
    })?;
    let _ = end.recv_timeout(LIFE);
    let carriers = carriers::between(&before, carriers::read());
    say(output, &Carried { carriers }).map(|()| true)
}

fn accept(listener: &TcpListener, nonce: &Arc<str>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming().take(IN_ALL) {
        let Ok(stream) = stream else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        if open.fetch_add(1, Ordering::Relaxed) >= MOST {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (nonce, count) = (nonce.clone(), open.clone());
        let spawned = std::thread::Builder::new().spawn(move || {
            // Whoever breaks it off is told nothing more.
            let _ = answer(&stream, &nonce);
            count.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn answer(mut stream: &TcpStream, nonce: &str) -> io::Result<()> {
    prepare(stream)?;
    let Some((theirs, ours)) = halves(nonce) else {
        return Ok(());
    };
    let mut hello = vec![0; LINK_HELLO.len() + theirs.len()];
    stream.read_exact(&mut hello)?;
    if hello.strip_prefix(LINK_HELLO) != Some(theirs) {
        return Ok(());
    }
    stream.write_all(ours)?;
    // A reader would take bytes that follow the line: it is read by itself.
    let mut ask = Vec::new();
    let mut byte = [0];
    while byte != *b"\n" {
        if ask.len() >= MAX_ASK {
            return Ok(());
        }
        stream.read_exact(&mut byte)?;
        ask.extend_from_slice(&byte);
    }
    let moved = AtomicU64::new(0);
    let time = |millis: u64| Duration::from_millis(millis).min(MOST_TIME);
    match serde_json::from_slice(&ask).map_err(io::Error::other)? {
        Ask::Trips => {
            let mut message = [0; TRIP];
            for _ in 0..super::measure::TRIPS {
                stream.read_exact(&mut message)?;
                stream.write_all(&message)?;
            }
            Ok(())
        }
        Ask::Take { millis } => {
            let counted = receive(stream, time(millis), &moved)?;
            stream.write_all(&windlass_wire::host::line(&counted))?;
            // What is still on its way must not reset the connection before the line is read.
            let mut rest = BufReader::with_capacity(super::CHUNK, stream);
            let mut left = super::MOST_BYTES;
            while left > 0 {
                let got = rest.fill_buf()?.len();
                if got == 0 {
                    break;
                }
                rest.consume(got);
                left = left.saturating_sub(got as u64);
            }
            Ok(())
        }
        Ask::Give { millis } => send(stream, time(millis), &moved),
    }
}

fn datagrams(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    packets::whole(&socket, address)?;
    Ok(socket)
}

/// Sends datagrams back to those who know the nonce: never more than came.
fn echo(socket: &UdpSocket, nonce: &str) {
    let Some((theirs, _)) = halves(nonce) else {
        return;
    };
    let mut buffer = vec![0; 1 << 16];
    for _ in 0..DATAGRAMS {
        let Ok((got, from)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let Some(datagram) = buffer.get(..got) else {
            continue;
        };
        if got < DATAGRAM_HEAD || !datagram.starts_with(theirs) {
            continue;
        }
        if socket.send_to(datagram, from).is_err()
            && let Some(head) = datagram.get(..DATAGRAM_HEAD)
        {
            // It arrived, and does not fit the way back.
            let _ = socket.send_to(head, from);
        }
    }
}
