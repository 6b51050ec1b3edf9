//! What the API knows of the head: a handle to submit sequences and to read its state.
//!
//! Plain types and a queue; must not know HTTP, stages or tensors.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::{broadcast, mpsc, watch};
use windlass_wire::payload::{Sampled, Sampling};
use windlass_wire::telemetry::{HeadEvent, HeadStatus};

/// Recent events that are kept for those who come later.
const RING: usize = 256;

/// What the head takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tokens a sequence may have, prompt and answer together.
    pub context: u32,
    /// Size of the vocabulary.
    pub vocab: u32,
}

/// A sequence to compute.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// Token ids, at least one.
    pub prompt: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens to generate, at least one; prompt and these fit the context.
    pub max_tokens: u32,
    /// Tokens that end the sequence when sampled; they are not sent as [`TokenEvent::Token`].
    pub eog: Vec<u32>,
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// This end token was sampled.
    Eog(u32),
    /// `max_tokens` were generated.
    Length,
}

/// How long a sequence took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceTimings {
    /// From submission until its prefill began.
    pub queue: Duration,
    /// From then until the first token.
    pub prefill: Duration,
    /// From the first to the last token.
    pub decode: Duration,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens generated, the end token included.
    pub tokens: u32,
    /// Prompt tokens that needed no computing.
    pub cached_tokens: u32,
}

/// What happens to a sequence. After `Finished` or `Failed` nothing comes.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenEvent {
    /// A token was sampled.
    Token {
        /// The token.
        token: Sampled,
        /// When the head received it.
        at: Instant,
    },
    /// The sequence is complete.
    Finished {
        /// Why.
        reason: FinishReason,
        /// How long it took.
        timings: SequenceTimings,
    },
    /// The sequence cannot be completed.
    Failed {
        /// One sentence for the client.
        message: String,
    },
}

/// Why a sequence is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// Prompt and answer do not fit.
    #[error("the prompt and the answer need {tokens} tokens; a sequence may have {max}")]
    TooLong {
        /// Tokens asked for.
        tokens: u32,
        /// Most tokens.
        max: u32,
    },
    /// A stage is lost.
    #[error("the deployment is degraded: {0}")]
    Degraded(String),
    /// Too many sequences wait.
    #[error("too many requests wait for room; try again later")]
    Overloaded,
    /// The head ends.
    #[error("the server is stopping")]
    Stopping,
}

/// A sequence that is being computed. Dropping it cancels the sequence.
#[derive(Debug)]
pub struct Generation {
    /// Its tokens, then its end.
    pub events: mpsc::UnboundedReceiver<TokenEvent>,
    admitted: Arc<OnceLock<Instant>>,
}

impl Generation {
    /// When prefill began; `None` while the sequence waits.
    pub fn admitted(&self) -> Option<Instant> {
        self.admitted.get().copied()
    }
}

/// The scheduler's end of a [`Generation`].
#[derive(Debug)]
pub struct Pending {
    /// What to compute.
    pub submission: Submission,
    /// Where its events go; `closed()` resolves when the [`Generation`] was dropped.
    pub events: mpsc::UnboundedSender<TokenEvent>,
    /// To be set when prefill begins.
    pub admitted: Arc<OnceLock<Instant>>,
    /// When it was submitted.
    pub submitted: Instant,
}

/// Takes a sequence into the scheduler's queue, or says why not. Must not block.
pub type Accept = dyn Fn(Pending) -> Result<(), SubmitError> + Send + Sync;

struct Inner {
    limits: Limits,
    accept: Box<Accept>,
    status: watch::Receiver<HeadStatus>,
    ring: Mutex<VecDeque<HeadEvent>>,
    events: broadcast::Sender<HeadEvent>,
}

/// Access to the head; cheap to clone.
#[derive(Clone)]
pub struct HeadHandle {
    inner: Arc<Inner>,
}

impl HeadHandle {
    /// A handle whose sequences go to `accept` and whose state is what `status` holds.
    pub fn from_parts(
        limits: Limits,
        status: watch::Receiver<HeadStatus>,
        accept: Box<Accept>,
    ) -> Self {
        let (events, _) = broadcast::channel(RING);
        Self {
            inner: Arc::new(Inner {
                limits,
                accept,
                status,
                ring: Mutex::new(VecDeque::with_capacity(RING)),
                events,
            }),
        }
    }

    /// Starts a sequence.
    pub fn submit(&self, submission: Submission) -> Result<Generation, SubmitError> {
        let tokens = u32::try_from(submission.prompt.len())
            .unwrap_or(u32::MAX)
            .saturating_add(submission.max_tokens);
        if tokens > self.inner.limits.context {
            return Err(SubmitError::TooLong {
                tokens,
                max: self.inner.limits.context,
            });
        }
        let (sender, events) = mpsc::unbounded_channel();
        let admitted = Arc::new(OnceLock::new());
        (self.inner.accept)(Pending {
            submission,
            events: sender,
            admitted: admitted.clone(),
            submitted: Instant::now(),
        })?;
        Ok(Generation { events, admitted })
    }

    /// The state now.
    pub fn status(&self) -> HeadStatus {
        self.inner.status.borrow().clone()
    }

    /// What the head takes.
    pub fn limits(&self) -> Limits {
        self.inner.limits
    }

    /// Events from now on.
    pub fn events(&self) -> broadcast::Receiver<HeadEvent> {
        self.inner.events.subscribe()
    }

    /// Recent events, oldest first.
    pub fn recent(&self) -> Vec<HeadEvent> {
        self.ring().iter().cloned().collect()
    }

    /// Recent events and all later ones, none twice and none missing.
    pub fn follow(&self) -> (Vec<HeadEvent>, broadcast::Receiver<HeadEvent>) {
        let ring = self.ring();
        (ring.iter().cloned().collect(), self.events())
    }

    /// Tells an event to all who listen, and keeps it.
    pub fn publish(&self, event: HeadEvent) {
        let mut ring = self.ring();
        // A state is outdated by the next one; what happened stays.
        if !matches!(event, HeadEvent::Status(_)) {
            if ring.len() == RING {
                ring.pop_front();
            }
            ring.push_back(event.clone());
        }
        // Nobody listening is no failure.
        let _ = self.inner.events.send(event);
    }

    fn ring(&self) -> MutexGuard<'_, VecDeque<HeadEvent>> {
        self.inner
            .ring
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
