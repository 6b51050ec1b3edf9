//! What crosses a boundary between stages for each token: as the stages count their frames, and
//! as a relay between them counts what is on the wire.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use super::harness::{Cluster, Model, Settings};
use super::http::{Chat, text};

/// Passes bytes between whoever connects and `target`; counts those towards it.
struct Relay {
    address: SocketAddr,
    target: Arc<std::sync::OnceLock<SocketAddr>>,
    forward: Arc<AtomicU64>,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Self {
            address: listener.local_addr().unwrap(),
            target: Arc::default(),
            forward: Arc::default(),
            sockets: Arc::default(),
        };
        let (target, forward) = (relay.target.clone(), relay.forward.clone());
        let sockets = relay.sockets.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let far = TcpStream::connect(target.get().unwrap()).unwrap();
                let (near2, far2) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let forward = forward.clone();
                for socket in [&near, &far] {
                    sockets.lock().unwrap().push(socket.try_clone().unwrap());
                }
                std::thread::spawn(move || pump(near, far, &forward));
                std::thread::spawn(move || pump(far2, near2, &AtomicU64::new(0)));
            }
        });
        relay
    }

    /// Ends every connection that passes here.
    fn cut(&self) {
        for socket in self.sockets.lock().unwrap().iter() {
            // The other side may have ended it already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, count: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        // Counted before it is passed on: who has received it finds it counted.
        count.fetch_add(n as u64, SeqCst);
        if to.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

/// TLS 1.3 adds to each record a header of 5 bytes, a type of 1 and a tag of 16.
const RECORD: u64 = 22;

#[test]
fn a_decoded_token_costs_one_row_of_hidden_states_at_the_frame_and_on_the_wire() {
    let model = Model::tiny();
    let hidden = model.number("embedding_length");
    let relay = Relay::start();
    let cluster = Cluster::start_with(&model, &Settings::of(3), |stage, peers| {
        if stage == 0 {
            // Several stages may be told; the first to know says it.
            let _ = relay.target.set(peers[1]);
            peers[1] = relay.address;
        }
    });
    // Two answers to the same prompt that differ by their number of tokens only.
    let cost = |tokens: u32| {
        let before = (cluster.at_rest(), relay.forward.load(SeqCst));
        text(cluster.api, "How much?", tokens);
        let after = (cluster.at_rest(), relay.forward.load(SeqCst));
        let stages = before.0.stages.iter().zip(&after.0.stages);
        let counts: Vec<_> = stages
            .map(|(b, a)| {
                (
                    a.data_bytes_sent - b.data_bytes_sent,
                    a.data_frames_sent - b.data_frames_sent,
                    a.frames_sent - b.frames_sent,
                    a.bytes_sent - b.bytes_sent,
                )
            })
            .collect();
        (counts, after.1 - before.1)
    };
    let (few, few_wire) = cost(10);
    let (many, many_wire) = cost(210);
    for stage in 0..2 {
        let (few, many) = (few[stage], many[stage]);
        assert_eq!(many.1 - few.1, 200, "one frame a token");
        assert_eq!(
            many.0 - few.0,
            200 * (64 + 16 + 4 * hidden),
            "stage {stage}"
        );
    }
    // The last stage sends the tokens: header, row, and id, log-probability and count of each.
    assert_eq!(many[2].0 - few[2].0, 200 * (64 + 16 + 12));

    // On the wire: the same bytes, plus one record's framing for each frame.
    for (counts, wire) in [(few[0], few_wire), (many[0], many_wire)] {
        let (frames, bytes) = (counts.2, counts.3);
        println!(
            "{frames} frames of {bytes} bytes are {wire} on the wire: {:.1} more a frame",
            (wire - bytes) as f64 / frames as f64
        );
        assert_eq!(wire, bytes + frames * RECORD, "{frames} frames");
    }
    let per_token = (many_wire - few_wire) as f64 / 200.0;
    println!("{per_token} bytes a token on the wire, hidden {hidden}");
}

#[test]
fn a_cut_wire_between_two_living_stages_ends_the_requests() {
    let model = Model::tiny();
    let relay = Relay::start();
    let cluster = Cluster::start_with(&model, &Settings::of(3), |stage, peers| {
        if stage == 1 {
            let _ = relay.target.set(peers[2]);
            peers[2] = relay.address;
        }
    });
    let mut chat = Chat::begin(cluster.api, "go on", 1500);
    chat.hear(2);
    relay.cut();
    let error = chat.end().unwrap_err();
    println!("{error}");
    assert!(error.contains("stage 2"), "{error}");
    let status = cluster.until("degraded and freed", |s| {
        s.state == "degraded" && s.stages.iter().all(|x| x.kv_used == 0)
    });
    assert!(status.reason.unwrap().contains("stage 2"));
}
