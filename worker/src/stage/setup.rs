//! Brings a stage's links up: listens, tells where, connects, is connected to.

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use windlass_wire::assignment::{Assignment, FromWorker};
use windlass_wire::frame::{FrameType, Header};
use windlass_wire::payload::{Hello, Role};
use windlass_wire::telemetry::StageTelemetry;

use super::compute::Compute;
use super::downstream::Downstream;
use super::executor::{End, Executor, Input, ToHead};
use super::stats::{Stats, describe};
use crate::net::NetError;
use crate::net::identity::StageTls;
use crate::net::link::{FrameReader, FrameWriter};
use crate::net::listener::{Accepted, Gate, Refused, connect, listen};

/// How long a stage waits for its neighbours to come up.
const LINK_UP: Duration = Duration::from_secs(60);
/// How often counters go to the head.
const TELEMETRY_EVERY: Duration = Duration::from_millis(250);

/// Sends reports to the orchestrator.
pub type Report = Arc<dyn Fn(FromWorker) + Send + Sync>;

/// A stage that listens, before its peers are known.
pub struct Listening {
    tls: StageTls,
    hello: Hello,
    stages: u32,
    accepted: Mutex<Receiver<Accepted>>,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Listening {
    /// Listens at the assignment's address; refusals are reported and counted.
    pub fn new(
        assignment: &Assignment,
        hello: Hello,
        stats: &Stats,
        report: Report,
    ) -> Result<Self, NetError> {
        let listener = TcpListener::bind(&assignment.listen)
            .map_err(NetError::io(format!("listen at {}", assignment.listen)))?;
        let refused = Arc::new(move |peer: SocketAddr, error: &NetError| {
            report(FromWorker::PeerRefused {
                peer: peer.to_string(),
                reason: error.to_string(),
            });
        });
        Self::on(listener, assignment, hello, stats, refused, false)
    }

    /// Listens with a listener that stands. `again`: peers may connect more than once.
    pub fn on(
        listener: TcpListener,
        assignment: &Assignment,
        hello: Hello,
        stats: &Stats,
        refused: Refused,
        again: bool,
    ) -> Result<Self, NetError> {
        let identity = assignment
            .identity
            .as_ref()
            .ok_or_else(|| NetError::Identity {
                what: "the key",
                reason: "the assignment has none, and there are other stages".into(),
            })?;
        let tls = StageTls::new(&assignment.deployment, identity)?;
        let address = listener
            .local_addr()
            .map_err(NetError::io("read the own address"))?;
        let (sender, accepted) = channel();
        let gate = Gate {
            own: hello.clone(),
            stages: assignment.stages,
            again,
        };
        listen(
            listener,
            tls.clone(),
            gate,
            sender,
            refused,
            stats.refused.clone(),
        )
        .map_err(NetError::io("start a thread"))?;
        Ok(Self {
            tls,
            hello,
            stages: assignment.stages,
            accepted: Mutex::new(accepted),
            address,
        })
    }

    /// Connects to `stage` for `role`.
    pub fn connect(
        &self,
        peers: &[SocketAddr],
        stage: u32,
        role: Role,
    ) -> Result<(FrameReader, FrameWriter), NetError> {
        self.connect_until(peers, stage, role, 0, Instant::now() + LINK_UP)
    }

    /// Connects to `stage` for `role` in a round, trying until `deadline`; once when that is past.
    pub fn connect_until(
        &self,
        peers: &[SocketAddr],
        stage: u32,
        role: Role,
        round: u64,
        deadline: Instant,
    ) -> Result<(FrameReader, FrameWriter), NetError> {
        let address = *peers
            .get(stage as usize)
            .ok_or_else(|| NetError::Refused(format!("no address of stage {stage} was given")))?;
        let hello = Hello {
            role,
            round,
            ..self.hello.clone()
        };
        connect(address, stage, &self.tls, &hello, deadline)
    }

    /// The next peer that connected, if one does within `wait`.
    pub fn next_peer(&self, wait: Duration) -> Option<Accepted> {
        self.accepted().recv_timeout(wait).ok()
    }

    fn accepted(&self) -> MutexGuard<'_, Receiver<Accepted>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `count` peers to connect.
    pub fn accept(&self, count: usize) -> Result<Vec<Accepted>, NetError> {
        let deadline = Instant::now() + LINK_UP;
        (0..count)
            .map(|_| {
                self.accepted().recv_timeout(deadline.saturating_duration_since(Instant::now())).map_err(|_| {
                    NetError::Refused(format!(
                        "stage {} was not reached by its peers within {} s: see what they report",
                        self.hello.stage,
                        LINK_UP.as_secs()
                    ))
                })
            })
            .collect()
    }

    /// Stage after this one.
    pub fn next(&self) -> u32 {
        (self.hello.stage + 1) % self.stages
    }
}

/// Reads frames from the previous stage into `input` until the link ends.
pub fn read_upstream(
    mut reader: FrameReader,
    spare: Receiver<Vec<f32>>,
    mut input: impl FnMut(Result<crate::net::link::Frame, NetError>) -> bool + Send + 'static,
) -> Result<(), NetError> {
    std::thread::Builder::new()
        .name("upstream".into())
        .spawn(move || {
            loop {
                while let Ok(buffer) = spare.try_recv() {
                    reader.recycle(buffer);
                }
                let next = reader.read().map_err(NetError::from);
                let end = next.is_err();
                if !input(next) || end {
                    return;
                }
            }
        })
        .map(drop)
        .map_err(NetError::io("start a thread"))
}

/// Runs a stage that is not the head, from connected peers to the end.
#[allow(
    clippy::too_many_arguments,
    reason = "what a stage is made of, put together once"
)]
pub fn run_stage<C: Compute>(
    assignment: &Assignment,
    listening: &Listening,
    peers: &[SocketAddr],
    compute: C,
    piece_bytes: u64,
    stats: &Arc<Stats>,
    report: &Report,
    stop: (Sender<Input>, Receiver<Input>),
) -> Result<End, NetError> {
    let (input, inputs) = stop;
    let stage = assignment.stage;
    let who = describe(assignment, piece_bytes, compute.kv_total());
    let (control_reader, control_writer) = listening.connect(peers, 0, Role::Control)?;
    let (down_reader, down_writer) = listening.connect(peers, listening.next(), Role::Data)?;
    let [previous]: [Accepted; 1] = listening
        .accept(1)?
        .try_into()
        .map_err(|_| NetError::Refused("more than one stage sends here".into()))?;

    let next = listening.next();
    let lost = input.clone();
    let downstream = Downstream::new(down_reader, down_writer, move |error| {
        let _ = lost.send(Input::Lost { stage: next, error });
    })?;
    let (spare, spares) = channel();
    let frames = input.clone();
    let before = previous.hello.stage;
    read_upstream(previous.reader, spares, move |frame| {
        frames
            .send(match frame {
                Ok(frame) => Input::Frame(frame),
                Err(error) => Input::Lost {
                    stage: before,
                    error,
                },
            })
            .is_ok()
    })?;
    read_control(control_reader, input.clone())?;
    let to_head = report_to_head(control_writer, stats.clone(), who, downstream.sent())?;
    report(FromWorker::Ready);
    let mut executor = Executor {
        compute,
        last: stage + 1 == assignment.stages,
        leaves: false,
        upstream: previous.writer,
        downstream,
        spare,
        stats: stats.clone(),
        to_head,
        report: report.clone(),
    };
    Ok(executor.run(&inputs))
}

/// Reads what the head orders into `input` until the connection ends.
pub fn read_control(mut reader: FrameReader, input: Sender<Input>) -> Result<(), NetError> {
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            loop {
                let next = match reader.read() {
                    Ok(frame) => match frame.header.kind {
                        FrameType::Reset => Input::Reset(frame.header.epoch),
                        FrameType::Shutdown => Input::Shutdown,
                        FrameType::Form => Input::Form(frame.header.step),
                        _ => continue,
                    },
                    Err(error) => Input::HeadLost(error.into()),
                };
                let end = matches!(next, Input::HeadLost(_) | Input::Shutdown);
                if input.send(next).is_err() || end {
                    return;
                }
            }
        })
        .map(drop)
        .map_err(NetError::io("start a thread"))
}

/// Starts the thread that owns the control connection's writing half; what it returns wakes it.
pub fn report_to_head(
    mut writer: FrameWriter,
    stats: Arc<Stats>,
    who: StageTelemetry,
    sent: Arc<crate::net::link::Sent>,
) -> Result<Box<dyn FnMut(ToHead) + Send>, NetError> {
    let (sender, messages) = channel::<ToHead>();
    std::thread::Builder::new()
        .name("telemetry".into())
        .spawn(move || {
            let mut last = StageTelemetry::default();
            loop {
                let message = match messages.recv_timeout(TELEMETRY_EVERY) {
                    Ok(message) => message,
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => ToHead::Telemetry,
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
                };
                let ok = match message {
                    ToHead::Fault { epoch, message } => writer.write(
                        Header::new(FrameType::Fault, epoch),
                        &[],
                        message.as_bytes(),
                    ),
                    ToHead::LinkLost { stage, reason } => {
                        let header = Header {
                            step: u64::from(stage),
                            ..Header::new(FrameType::LinkLost, 0)
                        };
                        writer.write(header, &[], reason.as_bytes())
                    }
                    ToHead::Telemetry => {
                        let now = stats.telemetry(&who, Some(&sent));
                        // Waiting alone is no news.
                        let quiet = StageTelemetry {
                            wait_ns: last.wait_ns,
                            anonymous_bytes: last.anonymous_bytes,
                            ..now.clone()
                        };
                        if quiet == last {
                            continue;
                        }
                        let Ok(payload) = serde_json::to_vec(&now) else {
                            continue;
                        };
                        last = now;
                        writer.write(Header::new(FrameType::Telemetry, 0), &[], &payload)
                    }
                };
                if ok.is_err() {
                    return; // the control reader sees the same loss and ends the stage
                }
            }
        })
        .map_err(NetError::io("start a thread"))?;
    Ok(Box::new(move |message| drop(sender.send(message))))
}
