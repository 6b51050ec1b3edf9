//! Who may connect: handshakes in threads of their own, bounded in number and time, each ending
//! in a link of a known stage or in one reported refusal. The worker goes on either way.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::Connection;
use windlass_wire::frame::{FrameType, Header};
use windlass_wire::payload::{Hello, Role};

use super::NetError;
use super::identity::StageTls;
use super::link::{Frame, FrameReader, FrameWriter};
use super::secure::establish;

/// Handshakes under way at once; more are closed unanswered.
const MAX_HANDSHAKES: usize = 64;

/// A peer that proved who it is.
pub struct Accepted {
    /// What it said, checked.
    pub hello: Hello,
    /// Frames from it.
    pub reader: FrameReader,
    /// Frames to it.
    pub writer: FrameWriter,
}

/// What this stage expects of its peers.
#[derive(Clone)]
pub struct Gate {
    /// Who we are; peers must match deployment, build, model and width.
    pub own: Hello,
    /// Number of stages.
    pub stages: u32,
    /// Whether a peer may connect again: it was started again, and its old link is dead.
    pub again: bool,
}

impl Gate {
    /// Decides on a peer's hello: pure, and the words of a refusal go back to it.
    pub fn judge(&self, hello: &Hello) -> Result<(), NetError> {
        let own = &self.own;
        let refuse = |why: String| Err(NetError::Refused(why));
        if hello.deployment != own.deployment {
            return refuse(format!(
                "it belongs to deployment {:?}, this is {:?}",
                hello.deployment, own.deployment
            ));
        }
        if hello.build != own.build {
            return refuse(format!(
                "it runs build {}, this is {}: put the same build on every host",
                hello.build, own.build
            ));
        }
        if hello.model_sha256 != own.model_sha256 || hello.hidden != own.hidden {
            return refuse("it holds pieces of another model".into());
        }
        if hello.tier != own.tier {
            return refuse(format!(
                "its kernels are {}, these are {}: answers would depend on the split",
                hello.tier, own.tier
            ));
        }
        let previous = (own.stage + self.stages - 1) % self.stages;
        match hello.role {
            Role::Data if hello.stage != previous => refuse(format!(
                "stage {} sends to another stage; {previous} sends here",
                hello.stage
            )),
            Role::Control if own.stage != 0 => {
                refuse("control connections go to the head, stage 0".into())
            }
            Role::Control if hello.stage == 0 || hello.stage >= self.stages => {
                refuse(format!("there is no stage {} to control", hello.stage))
            }
            _ => Ok(()),
        }
    }
}

/// Counts and reports refusals.
pub type Refused = Arc<dyn Fn(SocketAddr, &NetError) + Send + Sync>;

/// Accepts peers for ever, in a thread of its own. Slots: one link per (role, stage), unless peers
/// may connect again.
pub fn listen(
    listener: TcpListener,
    tls: StageTls,
    gate: Gate,
    accepted: Sender<Accepted>,
    refused: Refused,
    refusals: Arc<AtomicU64>,
) -> std::io::Result<()> {
    let busy = Arc::new(AtomicUsize::new(0));
    let taken: Arc<Mutex<Vec<(Role, u32)>>> = Arc::default();
    std::thread::Builder::new()
        .name("listener".into())
        .spawn(move || {
            for socket in listener.incoming() {
                let Ok(socket) = socket else {
                    // Out of descriptors or a peer gone before we looked: neither ends the worker.
                    std::thread::sleep(Duration::from_millis(10));
                    continue;
                };
                let Ok(peer) = socket.peer_addr() else {
                    continue;
                };
                if busy.fetch_add(1, Relaxed) >= MAX_HANDSHAKES {
                    busy.fetch_sub(1, Relaxed);
                    refusals.fetch_add(1, Relaxed);
                    continue;
                }
                let (tls, gate, accepted, refused) =
                    (tls.clone(), gate.clone(), accepted.clone(), refused.clone());
                let (busy, taken, refusals) = (busy.clone(), taken.clone(), refusals.clone());
                let spawned = std::thread::Builder::new().name("handshake".into()).spawn({
                    let busy = busy.clone();
                    move || {
                        match greet(socket, &tls, &gate, &taken) {
                            Ok(link) => drop(accepted.send(link)),
                            Err(error) => {
                                refusals.fetch_add(1, Relaxed);
                                refused(peer, &error);
                            }
                        }
                        busy.fetch_sub(1, Relaxed);
                    }
                });
                if spawned.is_err() {
                    busy.fetch_sub(1, Relaxed);
                }
            }
        })?;
    Ok(())
}

fn greet(
    socket: TcpStream,
    tls: &StageTls,
    gate: &Gate,
    taken: &Mutex<Vec<(Role, u32)>>,
) -> Result<Accepted, NetError> {
    let (reader, writer) = establish(Connection::Server(tls.accept()?), socket)?;
    let mut reader = FrameReader::new(reader, gate.own.hidden as usize);
    let mut writer = FrameWriter::new(writer);
    let verdict = read_hello(&mut reader).and_then(|hello| {
        let certificate = reader
            .stream()
            .peer_certificate()
            .ok_or_else(|| NetError::Tls("no certificate".into()))?;
        tls.check_stage(&certificate, hello.stage)?;
        gate.judge(&hello)?;
        if gate.again {
            return Ok(hello);
        }
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.contains(&(hello.role, hello.stage)) {
            return Err(NetError::Refused(format!(
                "stage {} is already connected for {:?}",
                hello.stage, hello.role
            )));
        }
        taken.push((hello.role, hello.stage));
        Ok(hello)
    });
    match verdict {
        Ok(hello) => {
            writer.write(Header::new(FrameType::Welcome, 0), &[], &[])?;
            reader.stream().wait_forever()?;
            Ok(Accepted {
                hello,
                reader,
                writer,
            })
        }
        Err(error) => {
            let _ = writer.write(
                Header::new(FrameType::Fault, 0),
                &[],
                error.to_string().as_bytes(),
            );
            writer.close();
            Err(error)
        }
    }
}

fn read_hello(reader: &mut FrameReader) -> Result<Hello, NetError> {
    let frame = reader.read()?;
    if frame.header.kind != FrameType::Hello {
        return Err(unexpected("hello", &frame));
    }
    serde_json::from_slice(&frame.message)
        .map_err(|e| NetError::Refused(format!("its hello is malformed: {e}")))
}

fn unexpected(expected: &'static str, frame: &Frame) -> NetError {
    NetError::Unexpected {
        expected,
        got: format!("{:?}", frame.header.kind),
    }
}

/// Connects to `stage` at `address`, trying until `deadline` while nothing listens there yet.
pub fn connect(
    address: SocketAddr,
    stage: u32,
    tls: &StageTls,
    hello: &Hello,
    deadline: Instant,
) -> Result<(FrameReader, FrameWriter), NetError> {
    let socket = loop {
        match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
            Ok(socket) => break socket,
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => {
                return Err(NetError::Io {
                    operation: format!("connect to stage {stage} at {address}"),
                    source: error,
                });
            }
        }
    };
    let (reader, writer) = establish(Connection::Client(tls.connect(stage)?), socket)?;
    let mut reader = FrameReader::new(reader, hello.hidden as usize);
    let mut writer = FrameWriter::new(writer);
    let greeting = serde_json::to_vec(hello).map_err(|e| NetError::Refused(e.to_string()))?;
    writer.write(Header::new(FrameType::Hello, 0), &[], &greeting)?;
    let answer = reader.read()?;
    match answer.header.kind {
        FrameType::Welcome => {
            reader.stream().wait_forever()?;
            Ok((reader, writer))
        }
        FrameType::Fault => Err(NetError::Refused(format!(
            "stage {stage} refused us: {}",
            String::from_utf8_lossy(&answer.message)
        ))),
        _ => Err(unexpected("welcome", &answer)),
    }
}
