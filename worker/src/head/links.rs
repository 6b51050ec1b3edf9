//! The head's connections: data to stage 1, tokens from the last, a control line to each.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use windlass_wire::frame::{FrameType, Header};
use windlass_wire::payload::Role;
use windlass_wire::telemetry::StageTelemetry;

use super::scheduler::Message;
use crate::net::NetError;
use crate::net::link::{Frame, FrameReader, FrameWriter};
use crate::net::listener::Accepted;
use crate::net::secure::Closer;
use crate::stage::downstream::{Downstream, give_credit};
use crate::stage::setup::{Listening, read_upstream};

/// How long a stage that others cannot reach has to be seen dead before its link is blamed.
pub const LINK_PATIENCE: Duration = Duration::from_millis(500);

/// Connections to all other stages.
pub struct Links {
    /// Data to stage 1.
    pub downstream: Downstream,
    /// Hosts of the other stages, as they name themselves.
    pub hosts: Vec<(u32, String)>,
    control: HashMap<u32, FrameWriter>,
    stages: u32,
    /// Of all connections, where they are made again.
    closers: Vec<Closer>,
}

impl Links {
    /// Waits for every stage; their messages go to `head`.
    pub fn connect(
        listening: &Listening,
        peers: &[SocketAddr],
        stages: u32,
        head: &Sender<Message>,
    ) -> Result<Self, NetError> {
        let (reader, writer) = listening.connect(peers, 1, Role::Data)?;
        let lost = head.clone();
        let downstream = Downstream::new(reader, writer, move |error| {
            drop(lost.send(gone(0, 1, &error)))
        })?;
        let mut control = HashMap::new();
        let mut hosts = Vec::new();
        for peer in listening.accept(stages as usize)? {
            let stage = peer.hello.stage;
            match peer.hello.role {
                Role::Control => {
                    read_control(stage, peer.reader, head.clone())?;
                    control.insert(stage, peer.writer);
                    hosts.push((stage, peer.hello.host));
                }
                Role::Data => read_tokens(0, stage, peer.reader, peer.writer, head.clone())?,
            }
        }
        Ok(Self {
            downstream,
            hosts,
            control,
            stages,
            closers: Vec::new(),
        })
    }

    /// Of connections that stand, in a round that can end.
    pub fn of_round(
        round: u64,
        stages: u32,
        downstream: (FrameReader, FrameWriter),
        upstream: Accepted,
        control: HashMap<u32, FrameWriter>,
        hosts: Vec<(u32, String)>,
        head: &Sender<Message>,
    ) -> Result<Self, NetError> {
        let mut closers = vec![downstream.1.closer()?, upstream.writer.closer()?];
        for writer in control.values() {
            closers.push(writer.closer()?);
        }
        let lost = head.clone();
        let downstream = Downstream::new(downstream.0, downstream.1, move |error| {
            drop(lost.send(gone(round, 1, &error)))
        })?;
        let stage = upstream.hello.stage;
        read_tokens(round, stage, upstream.reader, upstream.writer, head.clone())?;
        Ok(Self {
            downstream,
            hosts,
            control,
            stages,
            closers,
        })
    }

    /// Ends all connections; whoever reads from them sees it.
    pub fn close(&self) {
        for closer in &self.closers {
            closer.close();
        }
    }

    /// Number of stages, the head's included.
    pub fn stages(&self) -> u32 {
        self.stages
    }

    /// Tells every stage to forget its sequences.
    pub fn reset(&mut self, epoch: u32) {
        for writer in self.control.values_mut() {
            let _ = writer.write(Header::new(FrameType::Reset, epoch), &[], &[]);
        }
    }

    /// Ends every stage.
    pub fn shutdown(&mut self) {
        for writer in self.control.values_mut() {
            let _ = writer.write(Header::new(FrameType::Shutdown, 0), &[], &[]);
        }
    }
}

fn gone(round: u64, stage: u32, error: &NetError) -> Message {
    Message::StageLost {
        round,
        stage,
        reason: error.to_string(),
        seen: Instant::now(),
    }
}

/// Credit is given as soon as a frame is read: the last stage never waits for the head, so a full
/// ring cannot block itself. What is held here is bounded by the number of lanes.
fn read_tokens(
    round: u64,
    stage: u32,
    reader: FrameReader,
    mut writer: FrameWriter,
    head: Sender<Message>,
) -> Result<(), NetError> {
    let (_unused, spares) = channel();
    read_upstream(reader, spares, move |frame: Result<Frame, NetError>| {
        let message = match frame {
            Ok(frame) => {
                let _ = give_credit(&mut writer);
                Message::Tokens(frame)
            }
            Err(error) => gone(round, stage, &error),
        };
        head.send(message).is_ok()
    })
}

fn read_control(
    stage: u32,
    mut reader: FrameReader,
    head: Sender<Message>,
) -> Result<(), NetError> {
    std::thread::Builder::new()
        .name(format!("control {stage}"))
        .spawn(move || {
            loop {
                let message = match reader.read() {
                    Ok(frame) => match frame.header.kind {
                        FrameType::Telemetry => {
                            match serde_json::from_slice::<StageTelemetry>(&frame.message) {
                                // A stage speaks for itself only.
                                Ok(report) if report.stage == stage => {
                                    Message::Telemetry(Box::new(report))
                                }
                                _ => continue,
                            }
                        }
                        FrameType::LinkLost => {
                            let reason = String::from_utf8_lossy(&frame.message).into_owned();
                            let to = frame.header.step;
                            let head = head.clone();
                            // When the neighbour died, its own closed connection tells so, and
                            // better; only a link between two that live waits this long.
                            std::thread::spawn(move || {
                                std::thread::sleep(LINK_PATIENCE);
                                let _ = head.send(Message::LinkLost {
                                    round: 0,
                                    stage,
                                    to,
                                    reason,
                                });
                            });
                            continue;
                        }
                        FrameType::Fault => Message::Fault {
                            stage,
                            epoch: frame.header.epoch,
                            message: String::from_utf8_lossy(&frame.message).into_owned(),
                        },
                        _ => continue,
                    },
                    Err(error) => gone(0, stage, &error.into()),
                };
                let end = matches!(message, Message::StageLost { .. });
                if head.send(message).is_err() || end {
                    return;
                }
            }
        })
        .map(drop)
        .map_err(NetError::io("start a thread"))
}
