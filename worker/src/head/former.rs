//! Makes the head's links, and makes them again whenever one is lost: the part of a deployment that
//! lets its stages find each other after any of them ended, in any order, with no controller.
//!
//! Links are made in rounds, and only the head begins one. Every other stage keeps a control
//! connection to the head and waits. When all are there, the head draws a number and sends it to
//! each (`Form`); each connects to the next stage and names the number, so that links of different
//! rounds never mix; each says when its two links stand (`Formed`). Whatever breaks, at any moment,
//! ends the round: the head closes every connection, and the others come back by themselves.
//!
//! Must not know sequences, requests or engines.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use windlass_wire::assignment::FromWorker;
use windlass_wire::frame::{FrameType, Header};
use windlass_wire::payload::Role;
use windlass_wire::telemetry::StageTelemetry;

use super::board::Board;
use super::links::{LINK_PATIENCE, Links};
use super::scheduler::Message;
use crate::net::NetError;
use crate::net::link::{FrameReader, FrameWriter, Sent};
use crate::net::listener::Accepted;
use crate::stage::setup::{Listening, Report};

/// How long all links of a round may take to stand.
const FORMING: Duration = Duration::from_secs(15);
/// How long the reason of a loss stands before it gives way to who is missing.
const LOSS_STANDS: Duration = Duration::from_secs(2);
/// How often it looks at the clock.
const TICK: Duration = Duration::from_millis(250);

/// What the former hears.
pub enum Event {
    /// A peer connected.
    Accepted(Box<Accepted>),
    /// A stage said something on its control connection, or that ended.
    Control {
        /// The stage.
        stage: u32,
        /// Which of its connections.
        id: u64,
        /// What it said.
        said: Said,
    },
    /// The head's own link to stage 1, or why there is none.
    Downstream {
        /// Round it was made for.
        round: u64,
        /// The link.
        link: Result<Box<(FrameReader, FrameWriter)>, NetError>,
    },
    /// The scheduler gave up the links of this round.
    Parted(u64),
}

/// What a stage says to the head.
pub enum Said {
    /// Its links of this round stand.
    Formed(u64),
    /// It cannot reach a neighbour, or not any more.
    LinkLost {
        /// The neighbour.
        to: u64,
        /// What was seen.
        reason: String,
    },
    /// Counters.
    Telemetry(Box<StageTelemetry>),
    /// A step failed.
    Fault {
        /// Epoch it failed in.
        epoch: u32,
        /// One sentence.
        message: String,
    },
    /// The connection ended.
    Ended(String),
}

/// What the former needs.
pub struct Former {
    /// Where peers connect.
    pub listening: Arc<Listening>,
    /// Addresses of all stages.
    pub peers: Vec<SocketAddr>,
    /// Names of all stages' hosts, as far as known.
    pub hosts: Vec<String>,
    /// The scheduler.
    pub head: Sender<Message>,
    /// The notice board.
    pub board: Arc<Board>,
    /// Reports.
    pub report: Report,
    /// What the head sent to stage 1, over all rounds.
    pub sent: Arc<Sent>,
}

struct Control {
    id: u64,
    host: String,
    writer: FrameWriter,
    formed: bool,
}

#[derive(PartialEq)]
enum Phase {
    /// Waits for all stages to come.
    Collecting,
    /// Links are being made.
    Forming { round: u64, until: Instant },
    /// Links stand and belong to the scheduler.
    Joined(u64),
}

struct State {
    parts: Former,
    events: Sender<Event>,
    /// Connections that wait for links.
    controls: HashMap<u32, Control>,
    /// Which connections the links that stand were made with.
    joined: HashMap<u32, u64>,
    next_id: u64,
    phase: Phase,
    upstream: Option<Accepted>,
    downstream: Option<(FrameReader, FrameWriter)>,
    /// What stages say they cannot reach, in this round.
    complaint: Option<String>,
    /// Until when the reason on the board stays as it is.
    stands: Instant,
    reported: String,
}

impl Former {
    /// Starts its thread; what it returns also tells it of losses.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(self) -> Result<Sender<Event>, NetError> {
        let (events, inbox) = channel();
        let failed = || NetError::io("start a thread");
        let (listening, accepted) = (self.listening.clone(), events.clone());
        std::thread::Builder::new()
            .name("peers".into())
            .spawn(move || {
                loop {
                    if let Some(peer) = listening.next_peer(Duration::from_secs(3600))
                        && accepted.send(Event::Accepted(Box::new(peer))).is_err()
                    {
                        return;
                    }
                }
            })
            .map_err(failed())?;
        let mut state = State {
            parts: self,
            events: events.clone(),
            controls: HashMap::new(),
            joined: HashMap::new(),
            next_id: 0,
            phase: Phase::Collecting,
            upstream: None,
            downstream: None,
            complaint: None,
            stands: Instant::now(),
            reported: String::new(),
        };
        state.tell_missing();
        std::thread::Builder::new()
            .name("former".into())
            .spawn(move || state.run(&inbox))
            .map_err(failed())?;
        Ok(events)
    }
}

impl State {
    fn run(mut self, inbox: &Receiver<Event>) {
        loop {
            match inbox.recv_timeout(TICK) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            match self.phase {
                Phase::Collecting => {
                    if (1..self.stages()).all(|stage| self.controls.contains_key(&stage)) {
                        self.begin();
                    } else {
                        self.tell_missing();
                    }
                }
                Phase::Forming { round, until } => {
                    let formed = self.controls.len() + 1 == self.stages() as usize
                        && self.controls.values().all(|control| control.formed);
                    if formed && self.upstream.is_some() && self.downstream.is_some() {
                        self.join(round);
                    } else if Instant::now() > until {
                        let late: Vec<String> = self
                            .controls
                            .iter()
                            .filter(|(_, control)| !control.formed)
                            .map(|(stage, _)| self.name(*stage))
                            .collect();
                        let why = self.complaint.take().unwrap_or_else(|| {
                            format!(
                                "the links of {} did not stand within {} s",
                                late.join(", "),
                                FORMING.as_secs()
                            )
                        });
                        self.tell(&why, true);
                        self.give_up(None);
                    }
                }
                Phase::Joined(_) => {}
            }
        }
    }

    fn stages(&self) -> u32 {
        u32::try_from(self.parts.peers.len()).unwrap_or(u32::MAX)
    }

    /// `stage 2 on halo3 (10.0.0.3:47600)`.
    fn name(&self, stage: u32) -> String {
        let at = stage as usize;
        let host = self.parts.hosts.get(at).filter(|host| !host.is_empty());
        let host = host.map(|host| format!(" on {host}")).unwrap_or_default();
        let address = self
            .parts
            .peers
            .get(at)
            .map(|address| format!(" ({address})"))
            .unwrap_or_default();
        format!("stage {stage}{host}{address}")
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Accepted(peer) => match peer.hello.role {
                Role::Control => self.control(*peer),
                Role::Data => {
                    if matches!(self.phase, Phase::Forming { round, .. } if round == peer.hello.round)
                    {
                        self.upstream = Some(*peer);
                    } else {
                        let mut peer = peer;
                        peer.writer.close();
                    }
                }
            },
            Event::Control { stage, id, said } => {
                if self.controls.get(&stage).is_some_and(|c| c.id == id) {
                    self.heard(stage, said);
                } else if let Phase::Joined(round) = self.phase
                    && self.joined.get(&stage) == Some(&id)
                {
                    self.pass(round, stage, said);
                }
            }
            Event::Downstream { round, link } => {
                let now = matches!(self.phase, Phase::Forming { round: r, .. } if r == round);
                match link {
                    Ok(link) if now => self.downstream = Some(*link),
                    Ok(mut link) => link.1.close(),
                    Err(error) if now => {
                        let why =
                            format!("{} cannot reach {}: {error}", self.name(0), self.name(1));
                        self.complain(why);
                    }
                    Err(_) => {}
                }
            }
            Event::Parted(round) => {
                if self.phase == Phase::Joined(round) {
                    self.phase = Phase::Collecting;
                    self.stands = Instant::now() + LOSS_STANDS;
                    let reason = self.parts.board.status().reason.unwrap_or_default();
                    self.say("warn", &reason);
                }
            }
        }
    }

    /// A stage's control connection.
    fn control(&mut self, peer: Accepted) {
        let stage = peer.hello.stage;
        self.next_id += 1;
        let id = self.next_id;
        if let Some(host) = self.parts.hosts.get_mut(stage as usize) {
            host.clone_from(&peer.hello.host);
        }
        let events = self.events.clone();
        if read_control(stage, id, peer.reader, events).is_err() {
            return; // it comes again
        }
        let control = Control {
            id,
            host: peer.hello.host,
            writer: peer.writer,
            formed: false,
        };
        match self.phase {
            Phase::Collecting => {
                if let Some(mut old) = self.controls.insert(stage, control) {
                    old.writer.close();
                }
            }
            // It would not come again if its links stood.
            Phase::Forming { .. } => self.give_up(Some((stage, control))),
            Phase::Joined(round) => {
                self.controls.insert(stage, control);
                let _ = self.parts.head.send(Message::StageLost {
                    round,
                    stage,
                    reason: "it was started again".into(),
                    seen: Instant::now(),
                });
            }
        }
    }

    /// Something from a stage whose control connection is held here.
    fn heard(&mut self, stage: u32, said: Said) {
        match said {
            Said::Formed(number) => {
                if matches!(self.phase, Phase::Forming { round, .. } if round == number)
                    && let Some(control) = self.controls.get_mut(&stage)
                {
                    control.formed = true;
                }
            }
            Said::LinkLost { to, reason } => {
                let to = u32::try_from(to).unwrap_or(u32::MAX);
                let why = format!(
                    "{} cannot reach {}: {reason}",
                    self.name(stage),
                    self.name(to)
                );
                self.complain(why);
            }
            Said::Ended(_) => {
                self.controls.remove(&stage);
                if matches!(self.phase, Phase::Forming { .. }) {
                    self.give_up(None);
                }
            }
            Said::Telemetry(_) | Said::Fault { .. } => {}
        }
    }

    /// Something from a stage of links that stand.
    fn pass(&mut self, round: u64, stage: u32, said: Said) {
        let message = match said {
            Said::Telemetry(report) => Message::Telemetry(report),
            Said::Fault { epoch, message } => Message::Fault {
                stage,
                epoch,
                message,
            },
            Said::Ended(reason) => Message::StageLost {
                round,
                stage,
                reason,
                seen: Instant::now(),
            },
            Said::LinkLost { to, reason } => {
                let head = self.parts.head.clone();
                // When the neighbour died, its own closed connection tells so, and better; only a
                // link between two that live waits this long.
                let _ = std::thread::Builder::new().spawn(move || {
                    std::thread::sleep(LINK_PATIENCE);
                    let _ = head.send(Message::LinkLost {
                        round,
                        stage,
                        to,
                        reason,
                    });
                });
                return;
            }
            Said::Formed(_) => return,
        };
        let _ = self.parts.head.send(message);
    }

    /// All are there: a round begins.
    fn begin(&mut self) {
        let mut random = [0; 8];
        if getrandom::fill(&mut random).is_err() {
            return;
        }
        // 0 stands for no round.
        let round = u64::from_le_bytes(random).max(1);
        self.complaint = None;
        self.upstream = None;
        self.downstream = None;
        let mut broken = Vec::new();
        for (stage, control) in &mut self.controls {
            control.formed = false;
            let header = Header {
                step: round,
                ..Header::new(FrameType::Form, 0)
            };
            if control.writer.write(header, &[], &[]).is_err() {
                broken.push(*stage);
            }
        }
        if !broken.is_empty() {
            for stage in broken {
                self.controls.remove(&stage);
            }
            return self.give_up(None);
        }
        let until = Instant::now() + FORMING;
        self.phase = Phase::Forming { round, until };
        let (listening, peers) = (self.parts.listening.clone(), self.parts.peers.clone());
        let events = self.events.clone();
        let spawned = std::thread::Builder::new()
            .name("downstream".into())
            .spawn(move || {
                loop {
                    let link = listening
                        .connect_until(&peers, 1, Role::Data, round, Instant::now())
                        .map(Box::new);
                    let done = link.is_ok() || Instant::now() > until;
                    if events.send(Event::Downstream { round, link }).is_err() || done {
                        return;
                    }
                    std::thread::sleep(TICK);
                }
            });
        if spawned.is_err() {
            self.give_up(None);
        }
    }

    fn join(&mut self, round: u64) {
        let (Some(upstream), Some(mut downstream)) = (self.upstream.take(), self.downstream.take())
        else {
            return;
        };
        downstream.1.count_on(self.parts.sent.clone());
        let mut writers = HashMap::new();
        let mut hosts = Vec::new();
        self.joined.clear();
        for (stage, control) in self.controls.drain() {
            self.joined.insert(stage, control.id);
            hosts.push((stage, control.host));
            writers.insert(stage, control.writer);
        }
        let stages = self.stages();
        let head = &self.parts.head;
        match Links::of_round(round, stages, downstream, upstream, writers, hosts, head) {
            Ok(links) => {
                self.phase = Phase::Joined(round);
                self.reported.clear();
                self.say("info", "all stages are connected");
                let _ = self.parts.head.send(Message::Joined {
                    round,
                    links: Box::new(links),
                });
                (self.parts.report)(FromWorker::Ready);
            }
            Err(error) => {
                self.tell(&error.to_string(), true);
                self.give_up(None);
            }
        }
    }

    /// Ends a round that is being made: every stage but a newcomer is to come again.
    fn give_up(&mut self, newcomer: Option<(u32, Control)>) {
        for (_, mut control) in self.controls.drain() {
            control.writer.close();
        }
        if let Some(mut peer) = self.upstream.take() {
            peer.writer.close();
        }
        if let Some(mut link) = self.downstream.take() {
            link.1.close();
        }
        self.phase = Phase::Collecting;
        self.stands = Instant::now() + LOSS_STANDS;
        self.controls.extend(newcomer);
    }

    fn complain(&mut self, why: String) {
        self.tell(&why, true);
        self.complaint = Some(why);
    }

    /// Puts on the board who has not come, once the reason of a loss has stood for a while.
    fn tell_missing(&mut self) {
        if Instant::now() < self.stands {
            return;
        }
        let missing: Vec<String> = (1..self.stages())
            .filter(|stage| !self.controls.contains_key(stage))
            .map(|stage| self.name(stage))
            .collect();
        let verb = if missing.len() == 1 { "has" } else { "have" };
        let why = format!(
            "{} {verb} not come up yet; the head is waiting",
            missing.join(", ")
        );
        self.tell(&why, false);
    }

    /// Puts a reason on the board, and into the log when it is another.
    fn tell(&mut self, why: &str, stands: bool) {
        if stands {
            self.stands = Instant::now() + LOSS_STANDS;
        }
        let present: Vec<u32> = self.controls.keys().copied().collect();
        let hosts = self.parts.hosts.clone();
        self.parts.board.update(|status| {
            status.reason = Some(why.to_owned());
            for (stage, slot) in (0u32..).zip(&mut status.stages).skip(1) {
                slot.alive = present.contains(&stage);
                if let Some(host) = hosts.get(stage as usize) {
                    slot.host.clone_from(host);
                }
            }
        });
        if self.reported != why {
            why.clone_into(&mut self.reported);
            self.say("warn", why);
        }
    }

    fn say(&self, level: &str, message: &str) {
        (self.parts.report)(FromWorker::Log {
            level: level.into(),
            message: message.into(),
        });
    }
}

fn read_control(
    stage: u32,
    id: u64,
    mut reader: FrameReader,
    events: Sender<Event>,
) -> Result<(), NetError> {
    std::thread::Builder::new()
        .name(format!("control {stage}"))
        .spawn(move || {
            loop {
                let said = match reader.read() {
                    Ok(frame) => match frame.header.kind {
                        FrameType::Formed => Said::Formed(frame.header.step),
                        FrameType::Telemetry => {
                            match serde_json::from_slice::<StageTelemetry>(&frame.message) {
                                // A stage speaks for itself only.
                                Ok(report) if report.stage == stage => {
                                    Said::Telemetry(Box::new(report))
                                }
                                _ => continue,
                            }
                        }
                        FrameType::LinkLost => Said::LinkLost {
                            to: frame.header.step,
                            reason: String::from_utf8_lossy(&frame.message).into_owned(),
                        },
                        FrameType::Fault => Said::Fault {
                            epoch: frame.header.epoch,
                            message: String::from_utf8_lossy(&frame.message).into_owned(),
                        },
                        _ => continue,
                    },
                    Err(error) => Said::Ended(error.to_string()),
                };
                let end = matches!(said, Said::Ended(_));
                if events.send(Event::Control { stage, id, said }).is_err() || end {
                    return;
                }
            }
        })
        .map(drop)
        .map_err(NetError::io("start a thread"))
}
