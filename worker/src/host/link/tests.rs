//! Both ends in one process, and peers that do not do as they should.

use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use windlass_wire::host::{Connected, Listening, read_line};
use windlass_wire::link::{Carried, LINK_HELLO, Measuring, Part};

use super::{Wanted, listen, measure};

const NONCE: &str = "0123456789abcdef0123456789abcdef";

/// A listener: its port, what ends it, and what it says.
fn listening(address: &str) -> (u16, io::PipeWriter, BufReader<io::PipeReader>) {
    let (theirs, keep) = io::pipe().unwrap();
    let (told, mut tells) = io::pipe().unwrap();
    let address = address.to_owned();
    std::thread::spawn(move || listen(&address, 0, NONCE, theirs, &mut tells));
    let mut told = BufReader::new(told);
    let Some(Listening::Bound { address }) = read_line(&mut told).unwrap() else {
        panic!("it does not listen");
    };
    let port = address.parse::<SocketAddr>().unwrap().port();
    (port, keep, told)
}

fn wanted(address: &str, port: u16, nonce: &str) -> Wanted {
    Wanted {
        address: address.to_owned(),
        port,
        nonce: nonce.to_owned(),
        time: Duration::from_millis(300),
        streams: 2,
    }
}

/// All that an end that measures says.
fn said(wanted: &Wanted) -> (Connected, Vec<Measuring>) {
    let mut out = Vec::new();
    measure(wanted, &mut out).unwrap();
    let mut from = out.as_slice();
    let connected = read_line(&mut from).unwrap().unwrap();
    let mut all = Vec::new();
    while let Some(one) = read_line(&mut from).unwrap() {
        all.push(one);
    }
    (connected, all)
}

#[test]
fn a_link_is_measured_both_ways_with_trips_packets_and_carriers() {
    for address in ["127.0.0.1", "::1"] {
        let (port, keep, mut told) = listening(address);
        let (connected, all) = said(&wanted(address, port, NONCE));
        assert!(
            matches!(connected, Connected::Reached { .. }),
            "{connected:?}"
        );
        let Some(Measuring::Done {
            local,
            trips,
            packets,
            there,
            back,
            carriers,
        }) = all.last()
        else {
            panic!("{all:?}");
        };
        assert_eq!(local, address);
        assert!(trips.count > 10 && trips.least <= trips.median && trips.median <= trips.p99);
        for counted in [there, back] {
            assert!(counted.bytes > 1 << 20, "{counted:?}");
            // Of the receiver's time only what was asked for, and the end of its last read.
            assert!(
                (300_000..1_000_000).contains(&counted.micros),
                "{counted:?}"
            );
        }
        assert!(packets.answered, "{packets:?}");
        assert_eq!(packets.back, packets.own);
        let both = there.bytes + back.bytes;
        let lo = carriers.iter().find(|one| one.interface == "lo").unwrap();
        assert!(lo.sent > both, "{lo:?} {both}");
        drop(keep);
        let carried: Carried = read_line(&mut told).unwrap().unwrap();
        assert!(carried.carriers.iter().any(|one| one.interface == "lo"));
    }
}

#[test]
fn nobody_without_the_nonce_has_a_byte_taken_or_given() {
    let (port, _keep, _told) = listening("127.0.0.1");
    let other = "f".repeat(32);
    let (connected, all) = said(&wanted("127.0.0.1", port, &other));
    assert_eq!((connected, all), (Connected::Stranger, vec![]));
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream
        .write_all(&[LINK_HELLO, &[b'x'; 16]].concat())
        .unwrap();
    let mut answer = Vec::new();
    assert_eq!(
        stream.read_to_end(&mut answer).unwrap_or(0),
        0,
        "{answer:?}"
    );
    // Datagrams neither.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    socket
        .send_to(&[b'x'; 64], (Ipv4Addr::LOCALHOST, port))
        .unwrap();
    assert!(socket.recv(&mut [0; 64]).is_err());
}

#[test]
fn one_that_repeats_what_it_hears_is_a_stranger() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 512];
        while let Ok(got @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..got]).is_err() {
                break;
            }
        }
    });
    let (connected, _) = said(&wanted("127.0.0.1", port, NONCE));
    assert_eq!(connected, Connected::Stranger);
}

#[test]
fn a_request_without_end_or_sense_closes_the_connection() {
    let (port, _keep, _told) = listening("127.0.0.1");
    for ask in [&[b'a'; 4096][..], b"{\"do\":\"nothing\"}\n"] {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream
            .write_all(&[LINK_HELLO, &NONCE.as_bytes()[..16]].concat())
            .unwrap();
        let mut half = [0; 16];
        stream.read_exact(&mut half).unwrap();
        assert_eq!(half, NONCE.as_bytes()[16..]);
        let _ = stream.write_all(ask);
        assert_eq!(stream.read(&mut half).unwrap_or(0), 0);
    }
    // It still answers others.
    let (connected, _) = said(&wanted("127.0.0.1", port, NONCE));
    assert!(
        matches!(connected, Connected::Reached { .. }),
        "{connected:?}"
    );
}

#[test]
fn a_peer_that_falls_silent_in_the_middle_is_named_with_the_part() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut hello = vec![0; LINK_HELLO.len() + 16];
            let _ = stream.read_exact(&mut hello);
            let _ = stream.write_all(&NONCE.as_bytes()[16..]);
            open.push(stream);
        }
    });
    let (_, all) = said(&wanted("127.0.0.1", port, NONCE));
    let Some(Measuring::Broke { part, reason, .. }) = all.last() else {
        panic!("{all:?}");
    };
    assert_eq!(
        (*part, reason.as_str()),
        (Part::Trips, "nothing moved for 3 s")
    );
}

#[test]
fn a_closed_port_refuses() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let (connected, all) = said(&wanted("127.0.0.1", port, NONCE));
    assert!(
        matches!(connected, Connected::Refused { .. }),
        "{connected:?}"
    );
    assert!(all.is_empty());
}
