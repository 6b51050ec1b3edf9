//! The head's notice board: the state that the scheduler writes and the API reads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use windlass_wire::telemetry::{HeadStatus, StageTelemetry};

use super::handle::SubmitError;
use crate::net::link::Sent;
use crate::stage::stats::Stats;

/// Requests that may wait.
pub const MAX_WAITING: u32 = 1024;

/// State of the deployment.
pub struct Board {
    inner: Mutex<Inner>,
}

struct Inner {
    status: HeadStatus,
    began: Instant,
    own: Option<(Arc<Stats>, Option<Arc<Sent>>, StageTelemetry)>,
    stopping: bool,
}

impl Board {
    /// With the fixed parts of the status; `stages` one entry each.
    pub fn new(status: HeadStatus) -> Self {
        Self { inner: Mutex::new(Inner { status, began: Instant::now(), own: None, stopping: false }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the counters of the head's own stage are read.
    pub fn own_stage(&self, stats: Arc<Stats>, sent: Option<Arc<Sent>>, who: StageTelemetry) {
        self.lock().own = Some((stats, sent, who));
    }

    /// Whether a request may be queued now.
    pub fn admission(&self) -> Result<(), SubmitError> {
        let inner = self.lock();
        if inner.stopping {
            return Err(SubmitError::Stopping);
        }
        if let Some(reason) = &inner.status.reason {
            return Err(SubmitError::Degraded(reason.clone()));
        }
        if inner.status.waiting >= MAX_WAITING { Err(SubmitError::Overloaded) } else { Ok(()) }
    }

    /// The state now.
    pub fn status(&self) -> HeadStatus {
        let mut inner = self.lock();
        let uptime = inner.began.elapsed().as_secs_f64();
        let own = inner.own.as_ref().map(|(stats, sent, who)| stats.telemetry(who, sent.as_deref()));
        if let (Some(own), Some(slot)) = (own, inner.status.stages.first_mut()) {
            *slot = own;
        }
        inner.status.uptime_s = uptime;
        inner.status.clone()
    }

    /// Changes the state.
    pub fn update(&self, change: impl FnOnce(&mut HeadStatus)) {
        change(&mut self.lock().status);
    }

    /// Takes no more requests.
    pub fn stop(&self) {
        self.lock().stopping = true;
    }
}
