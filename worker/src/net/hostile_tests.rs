//! Peers that lie, break off or do not belong: the listener says who and why, and goes on.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustls::Connection;
use windlass_wire::frame::{FrameType, Header, RowEntry};
use windlass_wire::payload::{Hello, Role};
use windlass_wire::reader::ReadError;

use super::NetError;
use super::identity::StageTls;
use super::link::{FrameReader, FrameWriter};
use super::listener::{Accepted, Gate, connect, listen};
use super::secure::establish;
use super::test_keys::Authority;

const HIDDEN: usize = 8;

struct Victim {
    address: SocketAddr,
    accepted: Receiver<Accepted>,
    refused: Receiver<(SocketAddr, String)>,
    authority: Authority,
}

fn hello(stage: u32, role: Role) -> Hello {
    Hello {
        deployment: "d1".into(),
        stage,
        host: format!("host-{stage}"),
        role,
        build: "1".into(),
        model_sha256: "aa".into(),
        hidden: HIDDEN as u32,
        round: 0,
        tier: "t".into(),
    }
}

/// Stage 1 of 3: stage 0 sends to it.
fn victim() -> Victim {
    let authority = Authority::new();
    let tls = StageTls::new("d1", &authority.stage("d1", 1)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (links, accepted) = channel();
    let (reports, refused) = channel();
    let report =
        Arc::new(move |peer, error: &NetError| drop(reports.send((peer, error.to_string()))));
    let gate = Gate {
        own: hello(1, Role::Data),
        stages: 3,
        again: false,
    };
    listen(listener, tls, gate, links, report, Arc::default()).unwrap();
    Victim {
        address,
        accepted,
        refused,
        authority,
    }
}

impl Victim {
    fn tls(&self, stage: u32) -> StageTls {
        StageTls::new("d1", &self.authority.stage("d1", stage)).unwrap()
    }

    /// The one refusal of `peer`; then a genuine peer is still welcome.
    fn expect_refusal(self, peer: SocketAddr, words: &str) {
        let (who, why) = self.refused.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(who, peer);
        assert!(why.contains(words), "{why}");
        let tls = self.tls(0);
        connect(self.address, 1, &tls, &hello(0, Role::Data), Instant::now())
            .map(drop)
            .unwrap();
        assert_eq!(self.accepted.recv().unwrap().hello.stage, 0);
    }

    fn raw(&self, bytes: &[u8]) -> SocketAddr {
        let mut socket = TcpStream::connect(self.address).unwrap();
        let _ = socket.write_all(bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest);
        socket.local_addr().unwrap()
    }

    /// Connects with a valid certificate of `stage` and sends raw plaintext through TLS.
    fn inside(&self, stage: u32, bytes: &[u8]) -> SocketAddr {
        let socket = TcpStream::connect(self.address).unwrap();
        let own = socket.local_addr().unwrap();
        let session = self.tls(stage).connect(1).unwrap();
        let (_reader, mut writer) = establish(Connection::Client(session), socket).unwrap();
        writer.write_all_parts(&[bytes]).unwrap();
        writer.close();
        own
    }
}

fn hello_frame(hello: &Hello) -> Vec<u8> {
    let payload = serde_json::to_vec(hello).unwrap();
    let header = Header {
        payload: payload.len() as u64,
        ..Header::new(FrameType::Hello, 0)
    };
    [header.encode().as_slice(), &payload].concat()
}

#[test]
fn plain_tcp_is_refused_and_named() {
    let victim = victim();
    let peer = victim.raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    victim.expect_refusal(peer, "TLS handshake failed");
}

#[test]
fn garbage_is_refused_and_named() {
    let victim = victim();
    let garbage: Vec<u8> = (0..4096u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let peer = victim.raw(&garbage);
    victim.expect_refusal(peer, "TLS handshake failed");
}

#[test]
fn a_certificate_of_another_deployment_is_refused() {
    let victim = victim();
    let socket = TcpStream::connect(victim.address).unwrap();
    let peer = socket.local_addr().unwrap();
    // Same names, signed by another authority; it takes the victim's certificate for good, so that
    // the refusal is the victim's.
    let mut intruder = Authority::new().stage("d1", 0);
    intruder.authority = victim.authority.stage("d1", 0).authority;
    let tls = StageTls::new("d1", &intruder).unwrap();
    let session = Connection::Client(tls.connect(1).unwrap());
    if let Ok((mut reader, mut writer)) = establish(session, socket) {
        // TLS 1.3: the client learns of the refusal with its first read.
        let _ = writer.write_all_parts(&[&hello_frame(&hello(0, Role::Data))]);
        assert!(
            reader
                .read(&mut [0; 1])
                .is_err_and(|e| e.to_string().contains("alert"))
        );
    }
    victim.expect_refusal(peer, "TLS handshake failed");
}

#[test]
fn a_certificate_of_another_stage_is_refused() {
    let victim = victim();
    let error = connect(
        victim.address,
        1,
        &victim.tls(2),
        &hello(0, Role::Data),
        Instant::now(),
    )
    .map(drop)
    .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("certificate is of another stage"),
        "{error}"
    );
}

#[test]
fn a_genuine_stage_that_does_not_send_here_is_refused() {
    let victim = victim();
    let error = connect(
        victim.address,
        1,
        &victim.tls(2),
        &hello(2, Role::Data),
        Instant::now(),
    )
    .map(drop)
    .unwrap_err();
    assert!(
        error.to_string().contains("sends to another stage"),
        "{error}"
    );
}

#[test]
fn a_server_that_is_another_stage_is_not_talked_to() {
    let victim = victim();
    let error = connect(
        victim.address,
        2,
        &victim.tls(0),
        &hello(0, Role::Data),
        Instant::now(),
    )
    .map(drop)
    .unwrap_err();
    assert!(
        error.to_string().contains("TLS handshake failed"),
        "{error}"
    );
}

#[test]
fn a_second_connection_of_the_same_stage_is_refused() {
    let victim = victim();
    let tls = victim.tls(0);
    let first = connect(
        victim.address,
        1,
        &tls,
        &hello(0, Role::Data),
        Instant::now(),
    )
    .unwrap();
    let error = connect(
        victim.address,
        1,
        &tls,
        &hello(0, Role::Data),
        Instant::now(),
    )
    .map(drop)
    .unwrap_err();
    assert!(error.to_string().contains("already connected"), "{error}");
    drop(first);
}

#[test]
fn garbage_inside_a_genuine_session_is_refused() {
    let victim = victim();
    let peer = victim.inside(0, &[0x41; 200]);
    victim.expect_refusal(peer, "not a windlass frame");
}

#[test]
fn a_truncated_frame_is_refused() {
    let victim = victim();
    let whole = hello_frame(&hello(0, Role::Data));
    let peer = victim.inside(0, &whole[..whole.len() - 5]);
    victim.expect_refusal(peer, "inside a frame");
}

#[test]
fn a_frame_claiming_a_tebibyte_is_refused() {
    let victim = victim();
    let mut bytes = Header::new(FrameType::Hello, 0).encode();
    bytes[32..40].copy_from_slice(&(1u64 << 40).to_le_bytes());
    let peer = victim.inside(0, &bytes);
    victim.expect_refusal(peer, "1099511627776 payload bytes");
}

#[test]
fn another_build_is_refused_with_what_to_do() {
    let victim = victim();
    let other = Hello {
        build: "2".into(),
        ..hello(0, Role::Data)
    };
    let error = connect(victim.address, 1, &victim.tls(0), &other, Instant::now())
        .map(drop)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("put the same build on every host"),
        "{error}"
    );
}

fn pair() -> (FrameReader, FrameWriter, FrameReader, FrameWriter) {
    let victim = victim();
    let (reader, writer) = connect(
        victim.address,
        1,
        &victim.tls(0),
        &hello(0, Role::Data),
        Instant::now(),
    )
    .unwrap();
    let theirs = victim.accepted.recv().unwrap();
    (reader, writer, theirs.reader, theirs.writer)
}

#[test]
fn a_decode_frame_is_four_times_hidden_plus_header_and_row() {
    let (_r, mut writer, mut theirs, _w) = pair();
    let before = writer
        .sent()
        .bytes
        .load(std::sync::atomic::Ordering::Relaxed);
    let row = RowEntry {
        seq: 3,
        pos: 9,
        flags: 1,
    };
    let states: Vec<f32> = (0..HIDDEN)
        .map(|i| i as f32 * 0.1 - f32::MIN_POSITIVE)
        .collect();
    writer
        .hidden(Header::new(FrameType::Hidden, 1), &[row], &states)
        .unwrap();
    let frame = theirs.read().unwrap();
    assert_eq!(frame.rows, [row]);
    assert_eq!(frame.hidden, states);
    let sent = writer
        .sent()
        .bytes
        .load(std::sync::atomic::Ordering::Relaxed)
        - before;
    assert_eq!(sent, 64 + 16 + 4 * HIDDEN as u64);
}

#[test]
fn large_frames_pass_both_ways_at_once() {
    let (mut r1, mut w1, mut r2, mut w2) = pair();
    let rows: Vec<_> = (0..4096)
        .map(|pos| RowEntry {
            seq: 1,
            pos,
            flags: 0,
        })
        .collect();
    let states: Vec<f32> = (0..4096 * HIDDEN).map(|i| i as f32).collect();
    std::thread::scope(|scope| {
        for writer in [&mut w1, &mut w2] {
            let (rows, states) = (&rows, &states);
            scope.spawn(move || {
                for _ in 0..20 {
                    writer
                        .hidden(Header::new(FrameType::Hidden, 1), rows, states)
                        .unwrap();
                }
            });
        }
        for reader in [&mut r1, &mut r2] {
            let states = &states;
            scope.spawn(move || {
                for _ in 0..20 {
                    let frame = reader.read().unwrap();
                    assert_eq!(&frame.hidden, states);
                    reader.recycle(frame.hidden);
                }
            });
        }
    });
}

#[test]
fn a_closed_link_is_told_from_a_cut_frame() {
    let (_r, mut writer, mut theirs, _w) = pair();
    writer.close();
    assert!(matches!(theirs.read(), Err(ReadError::Closed)));
}

#[test]
fn hidden_states_of_another_width_end_the_link() {
    let (_r, mut writer, mut theirs, _w) = pair();
    let row = RowEntry {
        seq: 3,
        pos: 9,
        flags: 1,
    };
    writer
        .hidden(
            Header::new(FrameType::Hidden, 1),
            &[row],
            &[0.0; HIDDEN + 1],
        )
        .unwrap();
    assert!(matches!(theirs.read(), Err(ReadError::Frame(_))));
}
