//! `probe`: whether a port can be listened at, and whether it can be reached from elsewhere. Proves
//! by a nonce that the two ends are the two that were meant.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use windlass_wire::host::{Connected, Listening, PROBE_HELLO};

use super::{address, busy, say};

/// Connections answered at once; more are closed.
const MOST: usize = 64;
/// How long one connection may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest nonce, in bytes.
const MAX_NONCE: usize = 256;
/// Round trips measured; the shortest counts.
const TRIPS: usize = 5;

/// Listens, says how that went, and answers until the input ends. `false`: it does not listen.
///
/// # Errors
/// When nobody hears.
pub fn listen(
    text: &str,
    port: u16,
    nonce: &str,
    input: &mut impl Read,
    output: &mut impl Write,
) -> io::Result<bool> {
    let failed = |reason: String| Listening::Failed { reason };
    let (said, listener) = match address::parse(text, port) {
        Err(reason) => (failed(reason), None),
        Ok(address) => match TcpListener::bind(address) {
            Ok(listener) => {
                let address = listener.local_addr().map_or(address, |own| own);
                let address = address.to_string();
                (Listening::Bound { address }, Some(listener))
            }
            Err(error) => (not_bound(address, &error), None),
        },
    };
    let Some(listener) = listener else {
        return say(output, &said).map(|()| false);
    };
    let nonce: Arc<str> = nonce.chars().take(MAX_NONCE).collect::<String>().into();
    std::thread::Builder::new().spawn(move || accept(&listener, &nonce))?;
    say(output, &said)?;
    io::copy(input, &mut io::sink())?;
    Ok(true)
}

/// Why an address could not be listened at.
pub fn not_bound(address: SocketAddr, error: &io::Error) -> Listening {
    match error.kind() {
        io::ErrorKind::AddrInUse => Listening::Busy {
            by: busy::holder(address),
        },
        io::ErrorKind::AddrNotAvailable => Listening::NoAddress {
            has: address::own(),
        },
        io::ErrorKind::PermissionDenied => Listening::Failed {
            reason: format!(
                "this user may not listen at port {}: ports below 1024 need root",
                address.port()
            ),
        },
        _ => Listening::Failed {
            reason: error.to_string(),
        },
    }
}

fn accept(listener: &TcpListener, nonce: &Arc<str>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
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
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut hello = vec![0; PROBE_HELLO.len()];
    stream.read_exact(&mut hello)?;
    if hello != PROBE_HELLO {
        return Ok(());
    }
    stream.write_all(format!("{nonce}\n").as_bytes())?;
    // Its trips: few, so that nobody keeps a thread.
    let mut byte = [0];
    for _ in 0..TRIPS {
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)?;
    }
    Ok(())
}

/// Tries to reach a listener with this nonce within `time`.
pub fn connect(text: &str, port: u16, nonce: &str, time: Duration) -> Connected {
    let address = match address::parse(text, port) {
        Ok(address) => address,
        Err(reason) => return Connected::NoRoute { reason },
    };
    let began = Instant::now();
    let local = route(address);
    let stream = match TcpStream::connect_timeout(&address, time.max(Duration::from_millis(1))) {
        Ok(stream) => stream,
        Err(error) => return unreached(&error, local),
    };
    let left = time
        .saturating_sub(began.elapsed())
        .max(Duration::from_millis(200));
    match greet(&stream, nonce, left) {
        Ok(Some(micros)) => Connected::Reached {
            micros,
            local: stream
                .local_addr()
                .map_or_else(|_| local.unwrap_or_default(), |own| own.ip().to_string()),
        },
        // It accepts and does not answer as ours does.
        Ok(None) | Err(_) => Connected::Stranger,
    }
}

/// Own address that packets to there would carry; nothing is sent.
pub(super) fn route(to: SocketAddr) -> Option<String> {
    let socket = match to {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
    }
    .ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}

/// Why a connection did not come about; `local` is the own address that the route begins with.
pub(super) fn unreached(error: &io::Error, local: Option<String>) -> Connected {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
            Connected::Refused { local }
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Connected::Silent { local },
        _ => Connected::NoRoute {
            reason: match local {
                // Firewalls that reject answer so, too.
                Some(local) => format!(
                    "{error}, though packets would leave from {local}: that machine is off, or a firewall rejects them"
                ),
                None => error.to_string(),
            },
        },
    }
}

/// The shortest round trip in microseconds; `None` when the nonce is another.
fn greet(mut stream: &TcpStream, nonce: &str, time: Duration) -> io::Result<Option<u64>> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(time))?;
    stream.set_write_timeout(Some(time))?;
    stream.write_all(PROBE_HELLO)?;
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    let most = MAX_NONCE * 4 + 1;
    Read::take(&mut reader, most as u64).read_until(b'\n', &mut line)?;
    if line.strip_suffix(b"\n") != Some(nonce.as_bytes()) {
        return Ok(None);
    }
    let mut shortest = Duration::MAX;
    let mut byte = [0];
    for _ in 0..TRIPS {
        let began = Instant::now();
        stream.write_all(b".")?;
        reader.read_exact(&mut byte)?;
        shortest = shortest.min(began.elapsed());
    }
    Ok(Some(
        u64::try_from(shortest.as_micros()).unwrap_or(u64::MAX),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_wire::host::read_line;

    /// A listener, and what ends it.
    fn listening(address: &str) -> (u16, io::PipeWriter) {
        let (mut theirs, keep) = io::pipe().unwrap();
        let (told, mut tells) = io::pipe().unwrap();
        let address = address.to_owned();
        std::thread::spawn(move || listen(&address, 0, "nonce", &mut theirs, &mut tells));
        let said = read_line(&mut BufReader::new(told)).unwrap();
        let Some(Listening::Bound { address }) = said else {
            panic!("{said:?}");
        };
        (address.parse::<SocketAddr>().unwrap().port(), keep)
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_listener_is_reached_with_its_nonce_and_is_a_stranger_with_another() {
        for address in ["127.0.0.1", "::1"] {
            let (port, _keep) = listening(address);
            let got = connect(address, port, "nonce", LONG);
            assert!(
                matches!(&got, Connected::Reached { local, .. } if local == address),
                "{got:?}"
            );
            assert_eq!(connect(address, port, "other", LONG), Connected::Stranger);
        }
    }

    #[test]
    fn one_that_says_something_else_or_nothing_is_a_stranger() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let silent = connect("127.0.0.1", port, "nonce", Duration::from_millis(50));
        assert_eq!(silent, Connected::Stranger);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = stream.unwrap().write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
            }
        });
        assert_eq!(
            connect("127.0.0.1", port, "nonce", LONG),
            Connected::Stranger
        );
    }

    #[test]
    fn a_closed_port_refuses_and_names_the_own_address() {
        let port = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let local = Some("127.0.0.1".to_owned());
        assert_eq!(
            connect("127.0.0.1", port, "n", LONG),
            Connected::Refused { local }
        );
    }

    #[test]
    fn a_backlog_that_is_full_is_silence() {
        // Linux drops a connection's first packet when the queue is full, as a firewall would.
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        socket.bind(&any.into()).unwrap();
        socket.listen(0).unwrap();
        let to = socket.local_addr().unwrap().as_socket().unwrap();
        let _filled: Vec<_> = (0..8)
            .map_while(|_| TcpStream::connect_timeout(&to, Duration::from_millis(200)).ok())
            .collect();
        let got = connect("127.0.0.1", to.port(), "n", Duration::from_millis(200));
        assert!(
            matches!(got, Connected::Silent { local: Some(_) }),
            "{got:?}"
        );
    }

    #[test]
    fn a_taken_port_names_its_holder_and_a_foreign_address_what_there_is() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let said = |address: &str, port| {
            let mut out = Vec::new();
            assert!(!listen(address, port, "n", &mut io::empty(), &mut out).unwrap());
            read_line::<Listening>(&mut out.as_slice())
                .unwrap()
                .unwrap()
        };
        let pid = format!("(pid {})", std::process::id());
        match said("127.0.0.1", port) {
            Listening::Busy { by: Some(by) } => assert!(by.ends_with(&pid), "{by}"),
            other => panic!("{other:?}"),
        }
        // An address of the documentation's network (RFC 5737), which nobody has.
        match said("192.0.2.77", 0) {
            Listening::NoAddress { has } => assert!(has.contains(&"127.0.0.1".to_owned())),
            other => panic!("{other:?}"),
        }
        assert!(matches!(said("halo1", 0), Listening::Failed { .. }));
    }
}
