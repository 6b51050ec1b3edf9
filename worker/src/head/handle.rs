//! What the API holds of the head: submit, watch, cancel by dropping.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::{broadcast, mpsc};
use windlass_wire::payload::{Sampled, Sampling};
use windlass_wire::telemetry::{HeadEvent, HeadStatus};

use super::board::Board;
use super::scheduler::Message;

/// A request in token ids.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Prompt, at least one token.
    pub prompt: Vec<u32>,
    /// How to sample.
    pub sampling: Sampling,
    /// Most tokens to generate, at least one.
    pub max_tokens: u32,
    /// Tokens that end the sequence when sampled.
    pub eog: Vec<u32>,
}

/// Why a request was not taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SubmitError {
    /// Prompt and answer do not fit the context.
    #[error("prompt and answer need {tokens} tokens; this deployment holds {max} a sequence")]
    TooLong {
        /// Tokens asked for.
        tokens: u64,
        /// Tokens a sequence may have.
        max: u32,
    },
    /// The prompt has no tokens, or one outside the vocabulary.
    #[error("{0}")]
    Invalid(String),
    /// A stage is lost.
    #[error("{0}")]
    Degraded(String),
    /// Too many wait already.
    #[error("too many requests wait already")]
    Overloaded,
    /// The head is stopping.
    #[error("the server is stopping")]
    Stopping,
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// This end-of-generation token was sampled; it is not among the tokens given out.
    Eog(u32),
    /// `max_tokens` were generated.
    Length,
}

/// Where a sequence's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SequenceTimings {
    /// From arrival to admission.
    pub queue: Duration,
    /// From admission to the first token.
    pub prefill: Duration,
    /// From the first to the last token.
    pub decode: Duration,
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Tokens generated.
    pub tokens: u32,
    /// Prompt tokens that needed no computing.
    pub cached_tokens: u32,
}

/// What a sequence gives out.
#[derive(Clone, Debug)]
pub enum TokenEvent {
    /// A token.
    Token {
        /// The token.
        token: Sampled,
        /// When the head had it.
        at: Instant,
    },
    /// The end; nothing follows.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Its timings.
        timings: SequenceTimings,
    },
    /// The sequence was lost; nothing follows.
    Failed {
        /// One sentence.
        message: String,
    },
}

/// A running sequence. Dropping it cancels and frees its blocks on all stages.
#[derive(Debug)]
pub struct Generation {
    /// Its tokens.
    pub events: mpsc::UnboundedReceiver<TokenEvent>,
    _cancel: Cancel,
}

#[derive(Debug)]
struct Cancel {
    seq: u32,
    head: Sender<Message>,
}

impl Drop for Cancel {
    fn drop(&mut self) {
        // After its end this is a message about an unknown sequence, which is ignored.
        let _ = self.head.send(Message::Cancel(self.seq));
    }
}

/// Fixed bounds of the deployment.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Tokens a sequence may have.
    pub context: u32,
    /// Tokens in the vocabulary.
    pub vocab: u32,
}

/// A cheap handle on the head.
#[derive(Clone)]
pub struct HeadHandle {
    head: Sender<Message>,
    next: Arc<AtomicU32>,
    board: Arc<Board>,
    limits: Limits,
}

impl HeadHandle {
    /// Over a scheduler's channel and board. Tests put a made-up scheduler there.
    pub fn new(head: Sender<Message>, board: Arc<Board>, limits: Limits) -> Self {
        Self { head, next: Arc::new(AtomicU32::new(1)), board, limits }
    }

    /// Queues a request.
    pub fn submit(&self, submission: Submission) -> Result<Generation, SubmitError> {
        if submission.prompt.is_empty() || submission.max_tokens == 0 {
            return Err(SubmitError::Invalid("the prompt is empty".into()));
        }
        if let Some(id) = submission.prompt.iter().find(|id| **id >= self.limits.vocab) {
            return Err(SubmitError::Invalid(format!("token {id} is outside the vocabulary of {}", self.limits.vocab)));
        }
        let tokens = submission.prompt.len() as u64 + u64::from(submission.max_tokens);
        if tokens > u64::from(self.limits.context) {
            return Err(SubmitError::TooLong { tokens, max: self.limits.context });
        }
        self.board.admission()?;
        let seq = self.next.fetch_add(1, Relaxed);
        let (sender, events) = mpsc::unbounded_channel();
        self.head
            .send(Message::Submit { seq, submission: Box::new(submission), events: sender, arrived: Instant::now() })
            .map_err(|_| SubmitError::Stopping)?;
        Ok(Generation { events, _cancel: Cancel { seq, head: self.head.clone() } })
    }

    /// The deployment's state now.
    pub fn status(&self) -> HeadStatus {
        self.board.status()
    }

    /// Events from now on.
    pub fn events(&self) -> broadcast::Receiver<HeadEvent> {
        self.board.subscribe()
    }

    /// The latest events, oldest first; bounded.
    pub fn recent(&self) -> Vec<HeadEvent> {
        self.board.recent()
    }

    /// Fixed bounds.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Ends the scheduler.
    pub fn stop(&self) {
        let _ = self.head.send(Message::Shutdown);
    }
}
