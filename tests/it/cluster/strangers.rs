//! Whoever connects to a running stage without belonging there is named and changes nothing.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use windlass_wire::assignment::FromWorker;

use super::harness::{Cluster, Model, Settings};
use super::http::{Chat, text};

/// Sends bytes, closes, and says from where.
fn intrude(target: SocketAddr, bytes: &[u8]) -> SocketAddr {
    let mut socket = TcpStream::connect(target).unwrap();
    let own = socket.local_addr().unwrap();
    // It may be cut off while it sends.
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(Shutdown::Write);
    let _ = socket.read_to_end(&mut Vec::new());
    own
}

#[test]
fn garbage_at_a_running_stage_is_named_and_leaves_the_answer_alone() {
    let model = Model::tiny();
    let cluster = Cluster::start(&model, &Settings::of(3));
    let alone = text(cluster.api, "Steady now", 1200);
    let mut chat = Chat::begin(cluster.api, "Steady now", 1200);
    chat.hear(3);
    let garbage: Vec<u8> = (0..20_000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let attacks: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &garbage,
        b"",
        b"WNDL\x01\x00\x03\x00",
    ];
    for (stage, target) in cluster.data.iter().enumerate() {
        for bytes in attacks {
            let peer = intrude(*target, bytes).to_string();
            let reason = cluster.workers[stage].report("whom it refused", |r| match r {
                FromWorker::PeerRefused { peer: who, reason } if *who == peer => {
                    Some(reason.clone())
                }
                _ => None,
            });
            assert!(reason.contains("TLS handshake failed"), "{reason}");
        }
    }
    assert_eq!(chat.end(), Ok(alone));
    let status = cluster.until("counted", |s| s.stages.iter().all(|x| x.peers_refused == 4));
    assert_eq!(status.state, "serving");
    cluster.at_rest();
}
