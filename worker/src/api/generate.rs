//! A request while it is answered: tokens of its sequences become pieces of text.
//!
//! Holds the sequences: dropping a [`Run`] cancels them on all stages. Must not know how an
//! answer is written.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use windlass_wire::api::{PromptTokensDetails, Timings, Usage};
use windlass_wire::payload::Sampled;

use super::error::ApiError;
use super::language::{Decoder, Language};
use super::metrics::{Metrics, Times, Tracker};
use super::request::Plan;
use crate::head::handle::{FinishReason, Generation, HeadHandle, TokenEvent};
use crate::text::{StopMatcher, Stopping};

/// How far the server is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Requests are answered.
    Serving,
    /// Open requests are finished.
    Stopping,
    /// Open requests are cut.
    Cutting,
}

/// A token of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenEntry {
    /// The token.
    pub sampled: Sampled,
    /// Characters of the answer before it.
    pub offset: u64,
}

/// What is new in one of the answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Which answer.
    pub index: u32,
    /// Whether it is the answer's first piece.
    pub first: bool,
    /// Text to append.
    pub text: String,
    /// Tokens this text comes from; empty unless log-probabilities are wanted.
    pub tokens: Vec<TokenEntry>,
    /// `stop` or `length` in the answer's last piece.
    pub finish: Option<&'static str>,
}

/// Counts and times of an answer, for the sums.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    tokens: u32,
    cached: u32,
    times: Times,
    span: Option<(Instant, Instant)>,
}

struct Choice {
    index: u32,
    generation: Option<Generation>,
    decoder: Box<dyn Decoder>,
    stops: StopMatcher,
    keep_tokens: bool,
    started: bool,
    /// Tokens whose text is not sent yet, with the byte of the decoded text they begin at.
    unsent: Vec<(usize, TokenEntry)>,
    decoded_bytes: usize,
    decoded_chars: u64,
    sent_bytes: usize,
    tokens: u32,
    first: Option<Instant>,
    last: Option<Instant>,
    ended: Ended,
    tracker: Tracker,
}

/// A request that is being answered.
pub struct Run {
    choices: Vec<Choice>,
    turn: usize,
    arrival: Instant,
    prompt_tokens: u64,
    handle: HeadHandle,
    phase: watch::Receiver<Phase>,
}

impl Run {
    /// Submits all sequences of a plan, or none.
    pub fn start(
        plan: Plan,
        arrival: Instant,
        language: &Arc<dyn Language>,
        handle: &HeadHandle,
        metrics: &Arc<Metrics>,
        phase: watch::Receiver<Phase>,
    ) -> Result<Self, ApiError> {
        let mut choices = Vec::new();
        for (index, submission) in (0..).zip(plan.sequences) {
            // An error drops those before it, which cancels them.
            let generation = handle.submit(submission)?;
            choices.push(Choice {
                index,
                generation: Some(generation),
                decoder: language.decoder(plan.continues),
                stops: StopMatcher::new(plan.stops.clone()),
                keep_tokens: plan.logprobs,
                started: false,
                unsent: Vec::new(),
                decoded_bytes: 0,
                decoded_chars: 0,
                sent_bytes: 0,
                tokens: 0,
                first: None,
                last: None,
                ended: Ended::default(),
                tracker: Tracker::new(metrics.clone(), arrival),
            });
        }
        Ok(Self {
            choices,
            turn: 0,
            arrival,
            prompt_tokens: plan.prompt_tokens,
            handle: handle.clone(),
            phase,
        })
    }

    /// The next piece of any answer; `None` when all are complete. After an error all sequences
    /// are cancelled. May be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Option<Result<Piece, ApiError>> {
        loop {
            if self.is_done() {
                return None;
            }
            let next = {
                let Self {
                    choices,
                    turn,
                    phase,
                    ..
                } = self;
                let event = std::future::poll_fn(|context| {
                    let count = choices.len();
                    // Taking turns, so that one fast sequence does not hold up the others' text.
                    for at in (0..count).map(|i| (*turn + i) % count) {
                        let Some(generation) =
                            choices.get_mut(at).and_then(|c| c.generation.as_mut())
                        else {
                            continue;
                        };
                        if let Poll::Ready(event) = generation.events.poll_recv(context) {
                            *turn = (at + 1) % count;
                            return Poll::Ready((at, event));
                        }
                    }
                    Poll::Pending
                });
                // A vanished sender means that the server is gone, too.
                let cut = async { drop(phase.wait_for(|p| *p == Phase::Cutting).await) };
                tokio::select! {
                    biased;
                    () = cut => None,
                    event = event => Some(event),
                }
            };
            let Some((at, event)) = next else {
                return Some(Err(self.cancel(ApiError::stopping())));
            };
            let event = event.unwrap_or_else(|| TokenEvent::Failed {
                message: "the answer ended before it was complete".to_owned(),
            });
            if let TokenEvent::Failed { message } = event {
                for choice in &mut self.choices {
                    if choice.generation.is_some() {
                        choice.tracker.failed();
                    }
                }
                let serving = self.handle.status().state == "serving";
                return Some(Err(self.cancel(ApiError::failed(message, serving))));
            }
            if let Some(piece) = self.choices.get_mut(at).and_then(|c| c.take(event)) {
                return Some(Ok(piece));
            }
        }
    }

    /// Whether all answers are complete.
    pub fn is_done(&self) -> bool {
        self.choices.iter().all(|c| c.generation.is_none())
    }

    fn cancel(&mut self, error: ApiError) -> ApiError {
        self.choices.clear();
        error
    }

    /// Counts, once all answers are complete.
    pub fn usage(&self) -> Usage {
        let completion_tokens = self.sum(|ended| ended.tokens);
        Usage {
            prompt_tokens: self.prompt_tokens,
            completion_tokens,
            total_tokens: self.prompt_tokens + completion_tokens,
            prompt_tokens_details: Some(PromptTokensDetails {
                cached_tokens: self.sum(|ended| ended.cached),
            }),
        }
    }

    /// Times, once all answers are complete.
    pub fn timings(&self) -> Timings {
        let ends = || self.choices.iter().map(|choice| &choice.ended);
        let longest = |read: fn(&Ended) -> Duration| {
            ends().map(read).max().unwrap_or_default().as_secs_f64() * 1e3
        };
        let first = ends().filter_map(|e| e.span).map(|(first, _)| first).min();
        let last = ends().filter_map(|e| e.span).map(|(_, last)| last).max();
        let (span, ttft) = match (first, last) {
            (Some(first), Some(last)) => (
                last.saturating_duration_since(first),
                first.saturating_duration_since(self.arrival),
            ),
            _ => (Duration::ZERO, Duration::ZERO),
        };
        let predicted_n = self.sum(|ended| ended.tokens);
        let after_first = predicted_n.saturating_sub(self.choices.len() as u64);
        Timings {
            prompt_n: self.prompt_tokens,
            prompt_ms: longest(|ended| ended.times.prefill),
            predicted_n,
            predicted_ms: span.as_secs_f64() * 1e3,
            queue_ms: longest(|ended| ended.times.queue),
            ttft_ms: ttft.as_secs_f64() * 1e3,
            tokens_per_second: (!span.is_zero()).then(|| after_first as f64 / span.as_secs_f64()),
        }
    }

    fn sum(&self, read: fn(&Ended) -> u32) -> u64 {
        self.choices.iter().map(|c| u64::from(read(&c.ended))).sum()
    }
}

impl Choice {
    /// Takes an event that is no failure; gives a piece when there is something to send.
    fn take(&mut self, event: TokenEvent) -> Option<Piece> {
        match event {
            TokenEvent::Token { token, at } => {
                self.tokens += 1;
                self.first.get_or_insert(at);
                self.last = Some(at);
                self.tracker.token(at);
                let text = self.decoder.push(token.id);
                if self.keep_tokens {
                    let entry = TokenEntry {
                        sampled: token,
                        offset: self.decoded_chars,
                    };
                    self.unsent.push((self.decoded_bytes, entry));
                }
                match self.watch(&text) {
                    Stopping::Stopped { before, .. } => Some(self.end_at_stop(before)),
                    // A token without text of its own waits for the next that has some.
                    Stopping::Emit(text) => (!text.is_empty()).then(|| self.piece(text, None)),
                }
            }
            TokenEvent::Finished { reason, timings } => {
                let rest = self.decoder.finish();
                let (text, finish) = match self.watch(&rest) {
                    Stopping::Stopped { before, .. } => {
                        self.drop_unsent_beyond(before.len());
                        (before, "stop")
                    }
                    Stopping::Emit(text) => {
                        let finish = match reason {
                            FinishReason::Eog(_) => "stop",
                            FinishReason::Length => "length",
                        };
                        (text + &self.stops.finish(), finish)
                    }
                };
                let times = Times {
                    queue: timings.queue,
                    prefill: timings.prefill,
                    decode: timings.decode,
                };
                let span = self
                    .first
                    .map(|first| (first, first.checked_add(timings.decode).unwrap_or(first)));
                Some(self.end(
                    text,
                    finish,
                    timings.tokens,
                    timings.cached_tokens,
                    times,
                    span,
                ))
            }
            TokenEvent::Failed { .. } => None,
        }
    }

    fn watch(&mut self, text: &str) -> Stopping {
        self.decoded_bytes += text.len();
        self.decoded_chars += text.chars().count() as u64;
        self.stops.push(text)
    }

    fn end_at_stop(&mut self, text: String) -> Piece {
        self.drop_unsent_beyond(text.len());
        let admitted = self.generation.as_ref().and_then(Generation::admitted);
        let submitted = self.tracker.arrival();
        let begun = admitted.unwrap_or(submitted);
        let span = self.first.zip(self.last);
        let (first, last) = span.unwrap_or((begun, begun));
        let times = Times {
            queue: begun.saturating_duration_since(submitted),
            prefill: first.saturating_duration_since(begun),
            decode: last.saturating_duration_since(first),
        };
        self.end(text, "stop", self.tokens, 0, times, span)
    }

    /// Forgets tokens that begin after the text that is sent: they are the stop string's.
    fn drop_unsent_beyond(&mut self, more: usize) {
        let end = self.sent_bytes + more;
        self.unsent.retain(|(at, _)| *at < end);
    }

    fn end(
        &mut self,
        text: String,
        finish: &'static str,
        tokens: u32,
        cached: u32,
        times: Times,
        span: Option<(Instant, Instant)>,
    ) -> Piece {
        self.generation = None;
        self.ended = Ended {
            tokens,
            cached,
            times,
            span,
        };
        self.tracker.finished(finish, times);
        self.piece(text, Some(finish))
    }

    fn piece(&mut self, text: String, finish: Option<&'static str>) -> Piece {
        self.sent_bytes += text.len();
        // Of tokens held back with their text, those that begin before its end go out.
        let ready = match finish {
            Some(_) => self.unsent.len(),
            None => self
                .unsent
                .iter()
                .take_while(|(at, _)| *at < self.sent_bytes)
                .count(),
        };
        Piece {
            index: self.index,
            first: !std::mem::replace(&mut self.started, true),
            text,
            tokens: self.unsent.drain(..ready).map(|(_, entry)| entry).collect(),
            finish,
        }
    }
}
