//! A stage that is not the head, through any number of rounds of links (see [`crate::head::former`],
//! which begins them): its layers stay loaded, and only an order or the end of the process ends it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use windlass_wire::assignment::{Assignment, FromWorker};
use windlass_wire::frame::{FrameType, Header};
use windlass_wire::payload::Role;

use super::compute::Compute;
use super::downstream::Downstream;
use super::executor::{End, Executor, Input};
use super::setup::{Listening, Report, read_control, read_upstream, report_to_head};
use super::stats::{Stats, describe};
use crate::net::NetError;
use crate::net::link::Sent;
use crate::net::listener::Accepted;
use crate::net::secure::Closer;

/// Shortest and longest pause between two tries to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long the head has to end a round in which this stage lost a neighbour, before the stage
/// leaves it by itself.
const LEAVING: Duration = Duration::from_secs(2);

/// What stays the same in all rounds.
pub struct Rejoin<'a> {
    /// What the stage is.
    pub assignment: &'a Assignment,
    /// Where peers connect.
    pub listening: &'a Listening,
    /// Addresses of all stages.
    pub peers: &'a [SocketAddr],
    /// Names of all stages' hosts, as far as known.
    pub hosts: &'a [String],
    /// Bytes of the stage's pieces.
    pub piece_bytes: u64,
    /// Counters.
    pub stats: &'a Arc<Stats>,
    /// Reports.
    pub report: &'a Report,
}

/// Ends a round's connections when it goes.
#[derive(Default)]
struct Links(Vec<Closer>);

impl Drop for Links {
    fn drop(&mut self) {
        for closer in &self.0 {
            closer.close();
        }
    }
}

/// Why a round ended before its links stood.
enum Early {
    /// The head ended it, or is gone.
    Head(String),
    /// Something of this process.
    Own(NetError),
}

impl From<NetError> for Early {
    fn from(error: NetError) -> Self {
        Self::Own(error)
    }
}

impl Rejoin<'_> {
    /// Runs rounds for ever.
    pub fn run<C: Compute>(&self, mut compute: C) -> ! {
        let mut said = String::new();
        let mut pause = PAUSES.0;
        let sent: Arc<Sent> = Arc::default();
        loop {
            let began = Instant::now();
            match self.round(compute, &sent, &mut said) {
                (back, Ok(reason)) => {
                    compute = back;
                    self.say(&mut said, "warn", &reason);
                }
                (back, Err(Early::Head(reason))) => {
                    compute = back;
                    self.say(&mut said, "warn", &reason);
                }
                (back, Err(Early::Own(error))) => {
                    compute = back;
                    self.say(&mut said, "warn", &error.to_string());
                }
            }
            compute.reset();
            self.stats
                .kv_used
                .store(0, std::sync::atomic::Ordering::Relaxed);
            // A head that is being started again is asked often, one that is off now and then.
            if began.elapsed() > PAUSES.1 {
                pause = PAUSES.0;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// One round: from the control connection to its loss. `Ok` when links stood.
    fn round<C: Compute>(
        &self,
        compute: C,
        sent: &Arc<Sent>,
        said: &mut String,
    ) -> (C, Result<String, Early>) {
        let mut links = Links::default();
        let (input, inputs) = channel();
        let parts = match self.form(&mut links, sent, said, &input, &inputs) {
            Ok(parts) => parts,
            Err(early) => return (compute, Err(early)),
        };
        let who = describe(self.assignment, self.piece_bytes, compute.kv_total());
        let to_head = match report_to_head(
            parts.control,
            self.stats.clone(),
            who,
            parts.downstream.sent(),
        ) {
            Ok(to_head) => to_head,
            Err(error) => return (compute, Err(error.into())),
        };
        said.clear();
        (self.report)(FromWorker::Ready);
        let mut executor = Executor {
            compute,
            last: self.assignment.stage + 1 == self.assignment.stages,
            leaves: true,
            upstream: parts.previous,
            downstream: parts.downstream,
            spare: parts.spare,
            stats: self.stats.clone(),
            to_head,
            report: self.report.clone(),
        };
        let reason = match executor.run(&inputs) {
            End::HeadLost(error) => format!("{} ended the round: {error}", self.name(0)),
            // The head ends; another will come.
            End::Shutdown => format!("{} ends", self.name(0)),
            End::Left => {
                let until = Instant::now() + LEAVING;
                while let Ok(next) =
                    inputs.recv_timeout(until.saturating_duration_since(Instant::now()))
                {
                    if matches!(next, Input::HeadLost(_)) {
                        break;
                    }
                }
                "a neighbour was lost".to_owned()
            }
        };
        drop(links);
        (executor.compute, Ok(reason))
    }

    fn form(
        &self,
        links: &mut Links,
        sent: &Arc<Sent>,
        said: &mut String,
        input: &std::sync::mpsc::Sender<Input>,
        inputs: &Receiver<Input>,
    ) -> Result<Parts, Early> {
        let lost =
            |what: &str, error: &dyn std::fmt::Display| Early::Head(format!("{what}: {error}"));
        let (reader, mut control) = self
            .listening
            .connect_until(self.peers, 0, Role::Control, 0, Instant::now())
            .map_err(|error| lost(&format!("{} cannot be reached", self.name(0)), &error))?;
        links.0.push(control.closer()?);
        read_control(reader, input.clone())?;
        self.say(said, "info", &format!("connected to {}", self.name(0)));
        let round = loop {
            match inputs.recv() {
                Ok(Input::Form(round)) => break round,
                Ok(Input::HeadLost(error)) => {
                    return Err(lost(&format!("{} let go", self.name(0)), &error));
                }
                Ok(_) => {}
                Err(error) => return Err(lost("the control connection", &error)),
            }
        };
        let still = || match inputs.try_recv() {
            Ok(Input::HeadLost(error)) => Err(lost(&format!("{} gave up", self.name(0)), &error)),
            Err(TryRecvError::Disconnected) => Err(Early::Head("no round".into())),
            _ => Ok(()),
        };

        let next = self.listening.next();
        let mut told = String::new();
        let (down_reader, mut down_writer) = loop {
            still()?;
            let tried =
                self.listening
                    .connect_until(self.peers, next, Role::Data, round, Instant::now());
            match tried {
                Ok(link) => break link,
                Err(error) => {
                    let reason = error.to_string();
                    if reason != told {
                        let header = Header {
                            step: u64::from(next),
                            ..Header::new(FrameType::LinkLost, 0)
                        };
                        control.write(header, &[], reason.as_bytes())?;
                        self.say(
                            said,
                            "warn",
                            &format!("{} cannot be reached: {reason}", self.name(next)),
                        );
                        told = reason;
                    }
                    std::thread::sleep(PAUSES.0 * 4);
                }
            }
        };
        links.0.push(down_writer.closer()?);
        let previous: Accepted = loop {
            still()?;
            match self.listening.next_peer(PAUSES.0) {
                // One of an earlier round is dead, or will be.
                Some(peer) if peer.hello.round == round => break peer,
                Some(mut peer) => peer.writer.close(),
                None => {}
            }
        };
        links.0.push(previous.writer.closer()?);

        down_writer.count_on(sent.clone());
        let ended = input.clone();
        let downstream = Downstream::new(down_reader, down_writer, move |error| {
            let _ = ended.send(Input::Lost { stage: next, error });
        })?;
        let (spare, spares) = channel();
        let (frames, before) = (input.clone(), previous.hello.stage);
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
        let formed = Header {
            step: round,
            ..Header::new(FrameType::Formed, 0)
        };
        control.write(formed, &[], &[])?;
        Ok(Parts {
            control,
            previous: previous.writer,
            downstream,
            spare,
        })
    }

    fn name(&self, stage: u32) -> String {
        let at = stage as usize;
        let host = self.hosts.get(at).filter(|host| !host.is_empty());
        match (host, self.peers.get(at)) {
            (Some(host), Some(address)) => format!("stage {stage} on {host} ({address})"),
            (None, Some(address)) => format!("stage {stage} ({address})"),
            _ => format!("stage {stage}"),
        }
    }

    /// Says what has not just been said.
    fn say(&self, said: &mut String, level: &str, message: &str) {
        if said != message {
            message.clone_into(said);
            (self.report)(FromWorker::Log {
                level: level.into(),
                message: message.into(),
            });
        }
    }
}

/// Links that stand.
struct Parts {
    control: crate::net::link::FrameWriter,
    previous: crate::net::link::FrameWriter,
    downstream: Downstream,
    spare: std::sync::mpsc::Sender<Vec<f32>>,
}
