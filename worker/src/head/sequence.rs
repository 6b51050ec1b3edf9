//! Sequences and the decisions about them: who is admitted, what goes into a micro-batch.
//! Pure: no links, no engine.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use windlass_wire::frame::RowEntry;
use windlass_wire::payload::Sampled;

use super::handle::{FinishReason, Pending, SequenceTimings, TokenEvent};

/// Positions in a KV block.
pub const BLOCK: u32 = 32;

/// One request on its way.
pub struct Sequence {
    /// What was asked, and by whom.
    pub pending: Pending,
    first: Option<Instant>,
    last: Option<Instant>,
    /// Prompt positions already sent through the stages.
    fed: usize,
    generated: u32,
    /// Token to feed next, once its predecessor came back.
    ready: Option<u32>,
    lane: u16,
}

/// A micro-batch to compute.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    /// One entry for each row.
    pub rows: Vec<RowEntry>,
    /// The rows' tokens.
    pub ids: Vec<u32>,
    /// Of these, rows of prompts.
    pub prompt_rows: u32,
}

/// How a request ended, for the record.
#[derive(Debug, PartialEq)]
pub struct Ended {
    /// Its sequence.
    pub seq: u32,
    /// `stop`, `length`, `cancelled` or `error`.
    pub outcome: &'static str,
    /// Its timings.
    pub timings: SequenceTimings,
}

/// All sequences of an epoch.
pub struct Sequences {
    waiting: VecDeque<(u32, Sequence)>,
    active: BTreeMap<u32, Sequence>,
    blocks_free: u32,
    lanes: u16,
    max_rows: usize,
}

impl Sequence {
    /// A request as it arrives.
    pub fn new(pending: Pending) -> Self {
        Self {
            pending,
            first: None,
            last: None,
            fed: 0,
            generated: 0,
            ready: None,
            lane: 0,
        }
    }

    /// Positions it may come to hold: the last token is never fed.
    pub fn positions(&self) -> u32 {
        self.pending.submission.prompt.len() as u32 + self.pending.submission.max_tokens - 1
    }

    fn blocks(&self) -> u32 {
        self.positions().div_ceil(BLOCK)
    }

    fn timings(&self) -> SequenceTimings {
        let between = |a: Option<Instant>, b: Option<Instant>| match (a, b) {
            (Some(a), Some(b)) => b.saturating_duration_since(a),
            _ => std::time::Duration::ZERO,
        };
        let admitted = self.pending.admitted.get().copied();
        SequenceTimings {
            queue: between(Some(self.pending.submitted), admitted),
            prefill: between(admitted, self.first),
            decode: between(self.first, self.last),
            prompt_tokens: self.pending.submission.prompt.len() as u32,
            tokens: self.generated,
            cached_tokens: 0,
        }
    }
}

impl Sequences {
    /// `blocks`: KV blocks of the smallest stage; `max_rows`: rows of a micro-batch.
    pub fn new(blocks: u32, lanes: u16, max_rows: u32) -> Self {
        Self {
            waiting: VecDeque::new(),
            active: BTreeMap::new(),
            blocks_free: blocks,
            lanes,
            max_rows: max_rows.max(1) as usize,
        }
    }

    /// Sets the number of lanes, before anything is queued.
    pub fn set_lanes(&mut self, lanes: u16) {
        self.lanes = lanes;
    }

    /// Queues a request.
    pub fn push(&mut self, seq: u32, sequence: Sequence) {
        self.waiting.push_back((seq, sequence));
    }

    /// Requests that wait.
    pub fn waiting(&self) -> u32 {
        self.waiting.len() as u32
    }

    /// Requests that run.
    pub fn running(&self) -> u32 {
        self.active.len() as u32
    }

    /// Admits the oldest waiting request if its blocks are free. First come, first served: a
    /// large request is not overtaken for ever by small ones.
    pub fn admit(&mut self, now: Instant) -> Option<(u32, &Sequence)> {
        let need = self.waiting.front()?.1.blocks();
        self.blocks_free = self.blocks_free.checked_sub(need)?;
        let (seq, sequence) = self.waiting.pop_front()?;
        let _ = sequence.pending.admitted.set(now);
        Some((seq, self.active.entry(seq).or_insert(sequence)))
    }

    /// The next micro-batch for `lane`: its decode rows, then prompt rows of the oldest
    /// sequences. `None` when there is nothing to do.
    pub fn batch(&mut self, lane: u16) -> Option<Batch> {
        let mut batch = Batch {
            rows: Vec::new(),
            ids: Vec::new(),
            prompt_rows: 0,
        };
        for (&seq, sequence) in &mut self.active {
            if sequence.lane != lane || batch.rows.len() >= self.max_rows {
                continue;
            }
            if let Some(id) = sequence.ready.take() {
                let pos = sequence.pending.submission.prompt.len() as u32 + sequence.generated - 1;
                batch.rows.push(RowEntry {
                    seq,
                    pos,
                    flags: RowEntry::SAMPLE,
                });
                batch.ids.push(id);
            }
        }
        for (&seq, sequence) in &mut self.active {
            let prompt = &sequence.pending.submission.prompt;
            let room = self.max_rows - batch.rows.len();
            let chunk = prompt.iter().enumerate().skip(sequence.fed).take(room);
            for (pos, &id) in chunk {
                let last = pos + 1 == prompt.len();
                batch.rows.push(RowEntry {
                    seq,
                    pos: pos as u32,
                    flags: if last { RowEntry::SAMPLE } else { 0 },
                });
                batch.ids.push(id);
                batch.prompt_rows += 1;
                sequence.fed = pos + 1;
            }
        }
        (!batch.rows.is_empty()).then_some(batch)
    }

    /// Takes a sampled token. Returns the end, if this was it; the caller frees the sequence.
    pub fn token(&mut self, seq: u32, token: Sampled, now: Instant) -> Option<Ended> {
        let lane = self.lightest_lane();
        let sequence = self.active.get_mut(&seq)?;
        let id = token.id;
        let eog = sequence.pending.submission.eog.contains(&id);
        sequence.last = Some(now);
        if sequence.first.is_none() {
            sequence.first = Some(now);
            sequence.lane = lane;
        }
        // An end token was computed like any other, so it counts; it is only not given out.
        sequence.generated += 1;
        if !eog {
            let _ = sequence
                .pending
                .events
                .send(TokenEvent::Token { token, at: now });
        }
        let reason = if eog {
            FinishReason::Eog(id)
        } else if sequence.generated >= sequence.pending.submission.max_tokens {
            FinishReason::Length
        } else {
            sequence.ready = Some(id);
            return None;
        };
        let sequence = self.remove(seq)?;
        let timings = sequence.timings();
        let _ = sequence
            .pending
            .events
            .send(TokenEvent::Finished { reason, timings });
        let outcome = if eog { "stop" } else { "length" };
        Some(Ended {
            seq,
            outcome,
            timings,
        })
    }

    /// Ends the sequences that nobody waits for any more. `true` in a pair: it held blocks on the
    /// stages.
    pub fn sweep(&mut self) -> Vec<(Ended, bool)> {
        let cancelled = |seq, sequence: &Sequence| Ended {
            seq,
            outcome: "cancelled",
            timings: sequence.timings(),
        };
        let mut out = Vec::new();
        self.waiting.retain(|(seq, sequence)| {
            let left = sequence.pending.events.is_closed();
            if left {
                out.push((cancelled(*seq, sequence), false));
            }
            !left
        });
        let left: Vec<u32> = self
            .active
            .iter()
            .filter(|(_, s)| s.pending.events.is_closed())
            .map(|(seq, _)| *seq)
            .collect();
        for seq in left {
            if let Some(sequence) = self.remove(seq) {
                out.push((cancelled(seq, &sequence), true));
            }
        }
        out
    }

    /// Ends everything with an error, and gives all blocks back.
    pub fn fail_all(&mut self, message: &str) -> Vec<Ended> {
        let active: Vec<u32> = self.active.keys().copied().collect();
        let mut all: Vec<(u32, Sequence)> = active
            .into_iter()
            .filter_map(|seq| Some((seq, self.remove(seq)?)))
            .collect();
        all.extend(self.waiting.drain(..));
        all.into_iter()
            .map(|(seq, sequence)| {
                let _ = sequence.pending.events.send(TokenEvent::Failed {
                    message: message.to_owned(),
                });
                Ended {
                    seq,
                    outcome: "error",
                    timings: sequence.timings(),
                }
            })
            .collect()
    }

    fn remove(&mut self, seq: u32) -> Option<Sequence> {
        let sequence = self.active.remove(&seq)?;
        self.blocks_free += sequence.blocks();
        Some(sequence)
    }

    /// With few rows a step costs what reading the weights costs, so decode rows are spread over
    /// one lane for each stage and no more; the lane on top is for prompts.
    fn lightest_lane(&self) -> u16 {
        let stages = self.lanes.saturating_sub(1).max(1);
        let load = |lane: u16| {
            self.active
                .values()
                .filter(|s| s.first.is_some() && s.lane == lane)
                .count()
        };
        (0..stages).min_by_key(|&lane| load(lane)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::handle::Submission;
    use super::*;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use windlass_wire::payload::Sampling;

    fn request(prompt: usize, max_tokens: u32) -> (Sequence, UnboundedReceiver<TokenEvent>) {
        let (sender, receiver) = unbounded_channel();
        let submission = Submission {
            prompt: (0..prompt as u32).collect(),
            sampling: Sampling::default(),
            max_tokens,
            eog: vec![99],
        };
        let pending = Pending {
            submission,
            events: sender,
            admitted: std::sync::Arc::default(),
            submitted: Instant::now(),
        };
        (Sequence::new(pending), receiver)
    }

    fn token(id: u32) -> Sampled {
        Sampled {
            id,
            ..Sampled::default()
        }
    }

    #[test]
    fn a_prompt_is_cut_into_chunks_that_lanes_take_in_turn_without_waiting() {
        let mut all = Sequences::new(100, 3, 4);
        let (sequence, _events) = request(10, 5);
        all.push(1, sequence);
        all.admit(Instant::now());
        let chunks: Vec<_> = (0..3).map(|lane| all.batch(lane).unwrap()).collect();
        assert_eq!(
            chunks.iter().map(|c| c.rows.len()).collect::<Vec<_>>(),
            [4, 4, 2]
        );
        let samples: Vec<_> = chunks
            .iter()
            .flat_map(|c| &c.rows)
            .filter(|r| r.samples())
            .collect();
        assert_eq!(
            samples,
            [&RowEntry {
                seq: 1,
                pos: 9,
                flags: 1
            }]
        );
        assert_eq!(all.batch(0), None);
    }

    #[test]
    fn decode_rows_come_before_prompt_rows_and_carry_the_next_position() {
        let mut all = Sequences::new(100, 1, 4);
        all.push(1, request(2, 5).0);
        all.admit(Instant::now());
        all.batch(0);
        assert!(all.token(1, token(7), Instant::now()).is_none());
        all.push(2, request(9, 5).0);
        all.admit(Instant::now());
        let batch = all.batch(0).unwrap();
        assert_eq!(
            batch.rows[0],
            RowEntry {
                seq: 1,
                pos: 2,
                flags: 1
            }
        );
        assert_eq!(batch.ids, [7, 0, 1, 2]);
        assert_eq!(batch.prompt_rows, 3);
    }

    #[test]
    fn a_request_waits_until_its_blocks_are_free_and_nobody_overtakes_it() {
        let mut all = Sequences::new(3, 1, 64);
        let (first, events) = request(33, 32); // 64 positions: 2 blocks
        let (second, _two) = request(33, 32);
        let (third, _three) = request(1, 1);
        all.push(1, first);
        all.push(2, second);
        all.push(3, third);
        assert_eq!(all.admit(Instant::now()).map(|a| a.0), Some(1));
        assert!(all.admit(Instant::now()).is_none());
        drop(events);
        assert!(all.sweep()[0].1);
        assert_eq!(all.admit(Instant::now()).map(|a| a.0), Some(2));
        assert_eq!(all.admit(Instant::now()).map(|a| a.0), Some(3));
    }

    #[test]
    fn an_end_token_ends_without_being_given_out() {
        let mut all = Sequences::new(10, 1, 64);
        let (sequence, mut events) = request(3, 9);
        all.push(1, sequence);
        all.admit(Instant::now());
        all.batch(0);
        let ended = all.token(1, token(99), Instant::now()).unwrap();
        assert_eq!((ended.outcome, ended.timings.tokens), ("stop", 1));
        assert!(matches!(
            events.try_recv(),
            Ok(TokenEvent::Finished {
                reason: FinishReason::Eog(99),
                ..
            })
        ));
        assert_eq!(all.blocks_free, 10);
    }

    #[test]
    fn a_token_for_a_cancelled_sequence_is_ignored() {
        let mut all = Sequences::new(10, 1, 64);
        let (sequence, events) = request(3, 9);
        all.push(1, sequence);
        all.admit(Instant::now());
        all.batch(0);
        drop(events);
        all.sweep();
        assert!(all.token(1, token(5), Instant::now()).is_none());
        assert_eq!((all.running(), all.blocks_free), (0, 10));
    }

    #[test]
    fn sequences_spread_over_as_many_lanes_as_there_are_stages() {
        let mut all = Sequences::new(100, 3, 64);
        for seq in 1..=6 {
            all.push(seq, request(1, 9).0);
            all.admit(Instant::now());
        }
        all.batch(0);
        for seq in 1..=6 {
            all.token(seq, token(5), Instant::now());
        }
        assert_eq!(
            [0, 1].map(|lane| all.batch(lane).unwrap().rows.len()),
            [3, 3]
        );
        assert_eq!(all.batch(2), None);
    }

    #[test]
    fn failing_all_tells_waiting_and_running_requests() {
        let mut all = Sequences::new(1, 1, 64);
        let (first, mut a) = request(3, 9);
        let (second, mut b) = request(3, 9);
        all.push(1, first);
        all.push(2, second);
        all.admit(Instant::now());
        assert_eq!(all.fail_all("stage 1 died").len(), 2);
        for events in [&mut a, &mut b] {
            assert!(matches!(events.try_recv(), Ok(TokenEvent::Failed { .. })));
        }
        assert_eq!(all.blocks_free, 1);
    }
}
