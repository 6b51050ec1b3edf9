//! The loop of a stage that is not the head: one thread, one input channel, in order.
//!
//! A lost neighbour ends no process: the stage forgets its sequences, says so, and waits for the
//! head, or for new links where those are made again. A lost head ends the loop.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use windlass_wire::assignment::FromWorker;
use windlass_wire::frame::{FrameType, Header, RowEntry, WireDtype};
use windlass_wire::payload::{Admit, Sampled, encode_sampled};

use super::compute::Compute;
use super::downstream::{Downstream, give_credit};
use super::stats::Stats;
use crate::engine::sample::Sampler;
use crate::net::NetError;
use crate::net::link::{Frame, FrameWriter};

/// What can happen to a stage.
pub enum Input {
    /// A frame from the previous stage.
    Frame(Frame),
    /// A neighbour is gone.
    Lost {
        /// Which stage.
        stage: u32,
        /// What was seen.
        error: NetError,
    },
    /// The head begins a new epoch.
    Reset(u32),
    /// The head begins a round of links.
    Form(u64),
    /// The head is gone.
    HeadLost(NetError),
    /// The head or the controller ends the deployment.
    Shutdown,
}

/// How the loop ended.
#[derive(Debug)]
pub enum End {
    /// As asked.
    Shutdown,
    /// The head vanished.
    HeadLost(NetError),
    /// A neighbour vanished, and links are to be made anew.
    Left,
}

/// What the loop needs.
pub struct Executor<C> {
    /// The layers.
    pub compute: C,
    /// Whether this stage samples.
    pub last: bool,
    /// Whether a lost neighbour ends the loop.
    pub leaves: bool,
    /// To the previous stage: credit.
    pub upstream: FrameWriter,
    /// To the next stage.
    pub downstream: Downstream,
    /// Buffers back to the reading thread.
    pub spare: Sender<Vec<f32>>,
    /// Counters.
    pub stats: Arc<Stats>,
    /// Failures and telemetry to the head.
    pub to_head: Box<dyn FnMut(ToHead) + Send>,
    /// Reports to the orchestrator.
    pub report: Arc<dyn Fn(FromWorker) + Send + Sync>,
}

/// What a stage tells the head besides results.
pub enum ToHead {
    /// A step failed.
    Fault {
        /// The epoch it failed in.
        epoch: u32,
        /// One sentence.
        message: String,
    },
    /// Counters changed for good reason: send them now.
    Telemetry,
    /// The link to a neighbour is gone.
    LinkLost {
        /// The neighbour's stage.
        stage: u32,
        /// What was seen.
        reason: String,
    },
}

impl<C: Compute> Executor<C> {
    /// Runs until the deployment ends.
    pub fn run(&mut self, input: &Receiver<Input>) -> End {
        let mut epoch = 0u32;
        let mut samplers: HashMap<u32, Sampler> = HashMap::new();
        let mut logits = Vec::new();
        loop {
            let waited = Instant::now();
            let Ok(next) = input.recv() else {
                return End::Shutdown;
            };
            self.stats.waited(waited.elapsed());
            match next {
                Input::Shutdown => return End::Shutdown,
                Input::HeadLost(error) => return End::HeadLost(error),
                Input::Reset(new) => {
                    epoch = new;
                    self.forget(&mut samplers);
                    (self.to_head)(ToHead::Telemetry);
                }
                Input::Lost { stage, error } => {
                    self.forget(&mut samplers);
                    // What is still under way belongs to sequences just forgotten.
                    epoch += 1;
                    let reason = error.to_string();
                    (self.to_head)(ToHead::LinkLost {
                        stage,
                        reason: reason.clone(),
                    });
                    (self.report)(FromWorker::PeerLost {
                        stage,
                        reason,
                        kv_used: self.compute.kv_used(),
                    });
                    if self.leaves {
                        return End::Left;
                    }
                }
                // Links stand already; the head would end this connection first.
                Input::Form(_) => {}
                Input::Frame(frame) => {
                    // The link that would carry the credit may be the one just lost; its reader
                    // reports that, so nothing is to be done here.
                    let _ = give_credit(&mut self.upstream);
                    if frame.header.epoch < epoch {
                        continue;
                    }
                    if frame.header.epoch > epoch {
                        epoch = frame.header.epoch;
                        self.forget(&mut samplers);
                    }
                    if let Err(message) = self.frame(frame, &mut samplers, &mut logits) {
                        (self.to_head)(ToHead::Fault { epoch, message });
                    }
                }
            }
            self.stats
                .kv_used
                .store(self.compute.kv_used(), std::sync::atomic::Ordering::Relaxed);
        }
    }

    fn forget(&mut self, samplers: &mut HashMap<u32, Sampler>) {
        samplers.clear();
        self.compute.reset();
        self.stats
            .kv_used
            .store(0, std::sync::atomic::Ordering::Relaxed);
    }

    fn frame(
        &mut self,
        mut frame: Frame,
        samplers: &mut HashMap<u32, Sampler>,
        logits: &mut Vec<f32>,
    ) -> Result<(), String> {
        match frame.header.kind {
            FrameType::Admit if self.last => {
                let admit: Admit = serde_json::from_slice(&frame.message)
                    .map_err(|e| format!("malformed admission: {e}"))?;
                samplers.insert(admit.seq, Sampler::new(&admit));
            }
            FrameType::Free => {
                for row in &frame.rows {
                    self.compute.free(row.seq);
                    samplers.remove(&row.seq);
                }
                if !self.last {
                    self.pass_on(&frame);
                }
            }
            FrameType::Admit => self.pass_on(&frame),
            FrameType::Hidden => {
                let began = Instant::now();
                self.compute.forward(&frame.rows, &mut frame.hidden)?;
                if self.last {
                    let tokens = self.sample(&frame, samplers, logits)?;
                    self.stats.step(frame.rows.len(), began.elapsed());
                    self.send_tokens(&frame, &tokens);
                } else {
                    self.stats.step(frame.rows.len(), began.elapsed());
                    // A lost receiver is reported by the thread that reads its credit.
                    let _ = self
                        .downstream
                        .hidden(frame.header, &frame.rows, &frame.hidden);
                }
                let _ = self.spare.send(frame.hidden);
            }
            other => return Err(format!("a {other:?} frame has no business between stages")),
        }
        Ok(())
    }

    fn pass_on(&mut self, frame: &Frame) {
        let _ = self
            .downstream
            .send(frame.header, &frame.rows, &frame.message);
    }

    fn sample(
        &mut self,
        frame: &Frame,
        samplers: &mut HashMap<u32, Sampler>,
        logits: &mut Vec<f32>,
    ) -> Result<Vec<Sampled>, String> {
        sample_rows(
            &mut self.compute,
            &frame.rows,
            &frame.hidden,
            logits,
            samplers,
        )
    }

    fn send_tokens(&mut self, frame: &Frame, tokens: &[Sampled]) {
        let rows: Vec<_> = frame.rows.iter().copied().filter(|r| r.samples()).collect();
        let mut payload = Vec::new();
        encode_sampled(tokens, &mut payload);
        let header = Header {
            kind: FrameType::Tokens,
            dtype: WireDtype::None,
            ..frame.header
        };
        let _ = self.downstream.send(header, &rows, &payload);
    }
}

/// Samples one token for each row that asks for it, in row order. Shared with a head that is
/// also the last stage.
pub fn sample_rows<C: Compute>(
    compute: &mut C,
    rows: &[RowEntry],
    hidden: &[f32],
    logits: &mut Vec<f32>,
    samplers: &mut HashMap<u32, Sampler>,
) -> Result<Vec<Sampled>, String> {
    let (width, vocab) = (compute.hidden(), compute.vocab());
    let mut picked = Vec::new();
    let mut chosen = Vec::new();
    for (row, states) in rows.iter().zip(hidden.chunks_exact(width)) {
        if row.samples() {
            picked.extend_from_slice(states);
            chosen.push(row);
        }
    }
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    compute.logits(&picked, logits)?;
    chosen
        .iter()
        .zip(logits.chunks_exact_mut(vocab))
        .map(|(row, logits)| {
            let sampler = samplers
                .get_mut(&row.seq)
                .ok_or_else(|| format!("sequence {} was never admitted", row.seq))?;
            Ok(sampler.sample(logits, row.pos))
        })
        .collect()
}
