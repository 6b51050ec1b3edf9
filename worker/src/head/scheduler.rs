//! The head's loop: one thread that owns stage 0, the lanes and the sequences.
//!
//! A lane is a micro-batch under way. With S stages there are S+1 lanes, so that the head always
//! has one to work on while the others are computed; with one stage there is one. Decode rows keep
//! to S of them ([`super::sequence`] says why). Frees and admissions travel in band, so every stage
//! sees them in the same order as the rows.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Instant;

use windlass_wire::frame::{FrameType, Header, RowEntry};
use windlass_wire::payload::{Admit, Sampled, decode_sampled};
use windlass_wire::telemetry::{HeadEvent, StageTelemetry};

use super::board::Board;
use super::former::Event;
use super::handle::{Pending, TokenEvent};
use super::links::Links;
use super::sequence::{Batch, Ended, Sequence, Sequences};
use crate::engine::sample::Sampler;
use crate::net::link::Frame;
use crate::stage::compute::Compute;
use crate::stage::executor::sample_rows;
use crate::stage::stats::Stats;

/// What can happen to the head.
pub enum Message {
    /// A request.
    Submit(Box<Pending>),
    /// From the last stage.
    Tokens(Frame),
    /// Counters of a stage.
    Telemetry(Box<StageTelemetry>),
    /// A stage failed at a step and goes on.
    Fault {
        /// Stage.
        stage: u32,
        /// Epoch it failed in.
        epoch: u32,
        /// What it says.
        message: String,
    },
    /// A stage is gone.
    StageLost {
        /// Round of links in which it was lost; 0 where there is only one.
        round: u64,
        /// Stage.
        stage: u32,
        /// What was seen.
        reason: String,
        /// When.
        seen: Instant,
    },
    /// Two stages that both live cannot reach each other.
    LinkLost {
        /// As above.
        round: u64,
        /// Who says so.
        stage: u32,
        /// Whom it cannot reach.
        to: u64,
        /// What was seen.
        reason: String,
    },
    /// All links stand again.
    Joined {
        /// Their round.
        round: u64,
        /// The links.
        links: Box<Links>,
    },
    /// End.
    Shutdown,
}

/// Where events go.
pub type Publish = Box<dyn Fn(HeadEvent) + Send>;

/// The head's loop and what it owns.
pub struct Scheduler<C> {
    compute: C,
    links: Option<Links>,
    sequences: Sequences,
    /// Lanes under way.
    busy: Vec<bool>,
    /// With one stage, the head samples.
    samplers: HashMap<u32, Sampler>,
    epoch: u32,
    step: u64,
    next_seq: u32,
    degraded: bool,
    /// Round of links that stand.
    round: u64,
    /// Told when links are lost, where they are made again.
    former: Option<Sender<Event>>,
    board: Arc<Board>,
    publish: Publish,
    stats: Arc<Stats>,
    hidden: Vec<f32>,
    logits: Vec<f32>,
}

impl<C: Compute> Scheduler<C> {
    /// `links`: none with one stage.
    pub fn new(
        compute: C,
        links: Option<Links>,
        kv_blocks: u32,
        batch_rows: u32,
        board: Arc<Board>,
        publish: Publish,
        stats: Arc<Stats>,
    ) -> Self {
        let lanes = links.as_ref().map_or(1, |l| l.stages() + 1) as u16;
        Self {
            compute,
            links,
            sequences: Sequences::new(kv_blocks, lanes, batch_rows),
            busy: vec![false; usize::from(lanes)],
            samplers: HashMap::new(),
            epoch: 1,
            step: 0,
            next_seq: 0,
            degraded: false,
            round: 0,
            former: None,
            board,
            publish,
            stats,
            hidden: Vec::new(),
            logits: Vec::new(),
        }
    }

    /// Begins without links among `stages` stages, and has them made, again and again.
    #[must_use]
    pub fn formed_by(mut self, former: Sender<Event>, stages: u32) -> Self {
        let lanes = (stages + 1) as u16;
        self.sequences.set_lanes(lanes);
        self.busy = vec![false; usize::from(lanes)];
        self.former = Some(former);
        self.degraded = true;
        self
    }

    /// Runs until told to stop.
    pub fn run(mut self, messages: &Receiver<Message>) {
        loop {
            // Everything that has come is taken in before more is computed.
            loop {
                match messages.try_recv() {
                    Ok(Message::Shutdown) | Err(TryRecvError::Disconnected) => return self.end(),
                    Ok(message) => self.take(message),
                    Err(TryRecvError::Empty) => break,
                }
            }
            if self.advance() {
                continue;
            }
            let began = Instant::now();
            match messages.recv() {
                Ok(Message::Shutdown) | Err(_) => return self.end(),
                Ok(message) => {
                    self.stats.waited(began.elapsed());
                    self.take(message);
                }
            }
        }
    }

    fn end(mut self) {
        self.board.stop();
        self.fail_all("the server is stopping");
        if let Some(links) = &mut self.links {
            // Where links are made again, the other stages wait for the next head.
            if self.former.is_some() {
                links.close();
            } else {
                links.shutdown();
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Submit(pending) => {
                if self.degraded {
                    let message = self.board.status().reason.unwrap_or_default();
                    let _ = pending.events.send(TokenEvent::Failed { message });
                    return;
                }
                self.next_seq += 1;
                self.sequences.push(self.next_seq, Sequence::new(*pending));
            }
            Message::Tokens(frame) => self.tokens_frame(&frame),
            Message::Telemetry(report) => self.board.update(|status| {
                if let Some(slot) = status.stages.get_mut(report.stage as usize) {
                    // What a stage said before it died is no news after.
                    if slot.alive {
                        *slot = *report;
                    }
                }
            }),
            Message::Fault {
                stage,
                epoch,
                message,
            } => {
                if epoch == self.epoch {
                    self.fail_all(&format!(
                        "stage {stage} could not compute a step: {message}"
                    ));
                    self.new_epoch();
                }
            }
            // What ended with links that are gone is no news.
            Message::StageLost { round, .. } | Message::LinkLost { round, .. }
                if round != self.round => {}
            Message::StageLost {
                stage,
                reason,
                seen,
                ..
            } => self.lost(stage, &reason, seen),
            Message::LinkLost {
                stage, to, reason, ..
            } => self.link_lost(stage, to, &reason),
            Message::Joined { round, links } => self.joined(round, *links),
            Message::Shutdown => {}
        }
        self.count();
    }

    /// Admits what fits and computes one micro-batch. `false`: nothing to do until a message.
    fn advance(&mut self) -> bool {
        if self.degraded {
            return false;
        }
        for (ended, held) in self.sequences.sweep() {
            if held {
                self.free(ended.seq);
            }
            self.record(&ended);
        }
        while let Some((seq, sequence)) = self.sequences.admit(Instant::now()) {
            let sampling = sequence.pending.submission.sampling.clone();
            let penalised = sampling.repetition_penalty != 1.0;
            let admit = Admit {
                seq,
                max_positions: sequence.positions(),
                prompt: if penalised {
                    sequence.pending.submission.prompt.clone()
                } else {
                    Vec::new()
                },
                sampling,
            };
            self.admit(&admit);
        }
        let Some(lane) = self.busy.iter().position(|busy| !busy) else {
            return false;
        };
        // Any idle lane may have work: its own decode rows, or a prompt.
        let lanes = self.busy.len();
        let found = (lane..lanes).find_map(|lane| {
            let idle = self.busy.get(lane) == Some(&false);
            let batch = idle.then(|| self.sequences.batch(lane as u16)).flatten()?;
            Some((lane as u16, batch))
        });
        let Some((lane, batch)) = found else {
            return false;
        };
        if let Err(message) = self.compute_batch(lane, &batch) {
            self.fail_all(&format!("the head could not compute a step: {message}"));
            self.new_epoch();
        }
        self.count();
        true
    }

    fn compute_batch(&mut self, lane: u16, batch: &Batch) -> Result<(), String> {
        let began = Instant::now();
        self.hidden.clear();
        self.compute.embed(&batch.ids, &mut self.hidden)?;
        self.compute.forward(&batch.rows, &mut self.hidden)?;
        self.step += 1;
        self.board
            .update(|status| status.prompt_tokens += u64::from(batch.prompt_rows));
        let Some(links) = &mut self.links else {
            let tokens = sample_rows(
                &mut self.compute,
                &batch.rows,
                &self.hidden,
                &mut self.logits,
                &mut self.samplers,
            )?;
            self.stats.step(batch.rows.len(), began.elapsed());
            let rows: Vec<RowEntry> = batch
                .rows
                .iter()
                .copied()
                .filter(RowEntry::samples)
                .collect();
            self.tokens(&rows, tokens);
            return Ok(());
        };
        self.stats.step(batch.rows.len(), began.elapsed());
        let header = Header {
            lane,
            step: self.step,
            ..Header::new(FrameType::Hidden, self.epoch)
        };
        if let Some(busy) = self.busy.get_mut(usize::from(lane)) {
            *busy = true;
        }
        // A lost link is reported by the threads that read from it.
        let _ = links.downstream.hidden(header, &batch.rows, &self.hidden);
        Ok(())
    }

    fn tokens_frame(&mut self, frame: &Frame) {
        if frame.header.epoch != self.epoch || frame.header.kind != FrameType::Tokens {
            return;
        }
        if let Some(busy) = self.busy.get_mut(usize::from(frame.header.lane)) {
            *busy = false;
        }
        match decode_sampled(&frame.message, frame.rows.len()) {
            Ok(tokens) => self.tokens(&frame.rows, tokens),
            Err(error) => {
                self.fail_all(&format!("the last stage sent malformed tokens: {error}"));
                self.new_epoch();
            }
        }
    }

    fn tokens(&mut self, rows: &[RowEntry], tokens: Vec<Sampled>) {
        let now = Instant::now();
        self.board
            .update(|status| status.generated_tokens += tokens.len() as u64);
        for (row, token) in rows.iter().zip(tokens) {
            if let Some(ended) = self.sequences.token(row.seq, token, now) {
                self.free(ended.seq);
                self.record(&ended);
            }
        }
    }

    fn admit(&mut self, admit: &Admit) {
        match &mut self.links {
            None => drop(self.samplers.insert(admit.seq, Sampler::new(admit))),
            Some(links) => {
                if let Ok(payload) = serde_json::to_vec(admit) {
                    let _ = links.downstream.send(
                        Header::new(FrameType::Admit, self.epoch),
                        &[],
                        &payload,
                    );
                }
            }
        }
    }

    fn free(&mut self, seq: u32) {
        self.compute.free(seq);
        self.samplers.remove(&seq);
        if let Some(links) = &mut self.links {
            let row = RowEntry {
                seq,
                ..RowEntry::default()
            };
            let _ = links
                .downstream
                .send(Header::new(FrameType::Free, self.epoch), &[row], &[]);
        }
    }

    fn lost(&mut self, stage: u32, reason: &str, seen: Instant) {
        let mut host = String::new();
        let mut known = false;
        self.board.update(|status| {
            if let Some(slot) = status.stages.get_mut(stage as usize) {
                known = !slot.alive;
                slot.alive = false;
                slot.kv_used = 0;
                host.clone_from(&slot.host);
            }
        });
        if known {
            return;
        }
        let message = format!("stage {stage} on {host} is gone: {reason}");
        self.degrade(&message);
        let requests = self.fail_all(&message);
        self.new_epoch();
        (self.publish)(HeadEvent::StageLost {
            stage,
            host,
            reason: reason.to_owned(),
            ended_after_us: u64::try_from(seen.elapsed().as_micros()).unwrap_or(u64::MAX),
            requests,
        });
        self.part();
    }

    /// Gives up links of which one is lost.
    fn part(&mut self) {
        let Some(former) = &self.former else {
            return;
        };
        if let Some(links) = self.links.take() {
            links.close();
        }
        let _ = former.send(Event::Parted(self.round));
        self.round = 0;
    }

    fn joined(&mut self, round: u64, links: Links) {
        let hosts = links.hosts.clone();
        self.links = Some(links);
        self.round = round;
        self.degraded = false;
        self.new_epoch();
        self.board.update(|status| {
            status.state = "serving".into();
            status.reason = None;
            for slot in &mut status.stages {
                slot.alive = true;
            }
            for (stage, host) in hosts {
                if let Some(slot) = status.stages.get_mut(stage as usize) {
                    slot.stage = stage;
                    slot.host = host;
                }
            }
        });
    }

    fn degrade(&mut self, message: &str) {
        if !self.degraded {
            self.degraded = true;
            self.board.update(|status| {
                status.state = "degraded".into();
                status.reason = Some(message.to_owned());
            });
        }
    }

    fn link_lost(&mut self, stage: u32, to: u64, reason: &str) {
        if self.degraded {
            return; // told by a stage's own end
        }
        let hosts: Vec<String> = self
            .board
            .status()
            .stages
            .into_iter()
            .map(|s| s.host)
            .collect();
        let host = |stage: u64| {
            usize::try_from(stage)
                .ok()
                .and_then(|at| hosts.get(at).map(String::as_str))
                .unwrap_or("?")
        };
        let message = format!(
            "the link between stage {stage} on {} and stage {to} on {} is cut: {reason}; check the data network between them",
            host(u64::from(stage)),
            host(to)
        );
        self.degrade(&message);
        self.fail_all(&message);
        self.new_epoch();
        self.part();
    }

    fn fail_all(&mut self, message: &str) -> u32 {
        let ended = self.sequences.fail_all(message);
        for one in &ended {
            self.record(one);
        }
        ended.len() as u32
    }

    /// All stages forget all sequences; frames of the old epoch are dropped wherever they are.
    fn new_epoch(&mut self) {
        self.epoch += 1;
        self.compute.reset();
        self.samplers.clear();
        self.busy.fill(false);
        if let Some(links) = &mut self.links {
            links.reset(self.epoch);
        }
        let epoch = self.epoch;
        self.board.update(|status| status.epoch = epoch);
    }

    fn record(&self, ended: &Ended) {
        let t = &ended.timings;
        (self.publish)(HeadEvent::Request {
            id: ended.seq.to_string(),
            outcome: ended.outcome.into(),
            prompt_tokens: t.prompt_tokens,
            tokens: t.tokens,
            ttft_ms: (t.queue + t.prefill).as_secs_f64() * 1e3,
            decode_ms: t.decode.as_secs_f64() * 1e3,
        });
    }

    fn count(&self) {
        self.stats.kv_used.store(self.compute.kv_used(), Relaxed);
        let (running, waiting) = (self.sequences.running(), self.sequences.waiting());
        self.board.update(|status| {
            status.running = running;
            status.waiting = waiting;
        });
    }
}
