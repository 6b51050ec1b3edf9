//! Carries events from whoever emits them to every reader. Must not know what readers do.
//!
//! Emitting never waits. Each reader has a mailbox of its own; when a reader is slow, events that
//! a later one makes worthless ([`Event::is_passing`]) are replaced by the later one, all others
//! are kept, so no reader misses a state change or a piece of text.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{Envelope, Event, HostCounters, Level, Masks, SCHEMA, Scope, Status};

/// Waiting events from which passing ones are replaced instead of added.
const CROWDED: usize = 256;

/// The stream of one run.
#[derive(Debug)]
pub struct Bus {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    run: String,
    start: Instant,
    masks: Masks,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seq: u64,
    closed: bool,
    hosts: BTreeMap<String, HostCounters>,
    /// Whether a task said that it would change something.
    would_change: bool,
    mailboxes: Vec<Arc<Slot>>,
}

#[derive(Debug, Default)]
struct Slot {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Arc<Envelope>>,
    closed: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A reader that panicked must not take the run's events with it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bus {
    /// A stream for the run of this id; its clock starts now.
    pub fn new(run: impl Into<String>) -> Self {
        Self {
            shared: Arc::new(Shared {
                run: run.into(),
                start: Instant::now(),
                masks: Masks::default(),
                state: Mutex::default(),
            }),
        }
    }

    /// Id of the run.
    pub fn run(&self) -> &str {
        &self.shared.run
    }

    /// A reader's mailbox; it gets all events emitted from now on.
    pub fn subscribe(&self) -> Mailbox {
        let slot = Arc::new(Slot::default());
        let mut state = lock(&self.shared.state);
        lock(&slot.queue).closed = state.closed;
        state.mailboxes.push(Arc::clone(&slot));
        Mailbox { slot }
    }

    /// A handle for emitting.
    pub fn emitter(&self) -> Emitter {
        Emitter {
            within: None,
            shared: Arc::clone(&self.shared),
        }
    }

    /// The run's secrets.
    pub fn masks(&self) -> Masks {
        self.shared.masks.clone()
    }

    /// Seconds since the start of the run.
    pub fn seconds(&self) -> f64 {
        self.shared.start.elapsed().as_secs_f64()
    }

    /// What was done to which host so far.
    pub fn hosts(&self) -> BTreeMap<String, HostCounters> {
        lock(&self.shared.state).hosts.clone()
    }

    /// Whether anything so far, on a host or on this machine, said that it would change something.
    pub fn would_change(&self) -> bool {
        lock(&self.shared.state).would_change
    }

    /// Ends the stream: readers get what waits, then the end. Later events are dropped.
    pub fn close(&self) {
        let mut state = lock(&self.shared.state);
        state.closed = true;
        for slot in &state.mailboxes {
            lock(&slot.queue).closed = true;
            slot.arrived.notify_all();
        }
    }
}

/// Emits events. Cheap to clone, never waits.
#[derive(Clone, Debug)]
pub struct Emitter {
    shared: Arc<Shared>,
    within: Option<Arc<Within>>,
}

/// A task whose parts are told as its steps.
#[derive(Debug)]
struct Within {
    task: String,
    hosts: Mutex<BTreeMap<String, HostCounters>>,
}

impl Emitter {
    /// An emitter for the parts of a task: what is told through it as a task is told as a step of
    /// this one, and counts for [`Emitter::counted`] instead of for the run's hosts.
    #[must_use]
    pub fn within(&self, task: impl Into<String>) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            within: Some(Arc::new(Within {
                task: task.into(),
                hosts: Mutex::default(),
            })),
        }
    }

    /// How the steps told through an emitter of [`Emitter::within`] ended, by host, and the bytes
    /// sent; nothing for others.
    pub fn counted(&self) -> BTreeMap<String, HostCounters> {
        self.within
            .as_ref()
            .map(|within| lock(&within.hosts).clone())
            .unwrap_or_default()
    }

    /// Tells all readers.
    pub fn emit(&self, mut scope: Scope, event: Event) {
        if let Some(within) = &self.within {
            if let (Some(host), Event::TaskFinished { status, .. }) = (&scope.host, &event) {
                let mut hosts = lock(&within.hosts);
                hosts.entry(host.clone()).or_default().count(*status);
            }
            scope.step = scope.task.replace(within.task.clone());
        }
        let mut state = lock(&self.shared.state);
        if state.closed {
            return;
        }
        let would_change = matches!(
            &event,
            Event::TaskFinished {
                status: Status::WouldChange,
                ..
            }
        );
        state.would_change |= would_change;
        if let Some(host) = &scope.host
            && scope.step.is_none()
        {
            match &event {
                Event::TaskFinished { status, .. } => {
                    state.hosts.entry(host.clone()).or_default().count(*status);
                }
                Event::HostState { .. } => {
                    state.hosts.entry(host.clone()).or_default();
                }
                _ => {}
            }
        }
        if let Event::RunStarted { hosts, .. } = &event {
            for host in hosts {
                state.hosts.entry(host.clone()).or_default();
            }
        }
        let elapsed = self.shared.start.elapsed();
        let envelope = Arc::new(Envelope {
            v: SCHEMA,
            run: self.shared.run.clone(),
            seq: state.seq,
            ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            time: format!("{:.3}", jiff::Timestamp::now()),
            scope,
            event,
        });
        state.seq += 1;
        for slot in &state.mailboxes {
            let mut queue = lock(&slot.queue);
            if envelope.event.is_passing() && queue.waiting.len() >= CROWDED {
                queue.waiting.retain(|old| !replaces(&envelope, old));
            }
            queue.waiting.push_back(Arc::clone(&envelope));
            drop(queue);
            slot.arrived.notify_one();
        }
    }

    /// Counts bytes sent to a host.
    pub fn count_sent(&self, host: &str, bytes: u64) {
        if let Some(within) = &self.within {
            let mut hosts = lock(&within.hosts);
            hosts.entry(host.to_owned()).or_default().bytes_sent += bytes;
        }
        let mut state = lock(&self.shared.state);
        state.hosts.entry(host.to_owned()).or_default().bytes_sent += bytes;
    }

    /// A log line about the whole run.
    pub fn log(&self, level: Level, message: impl Into<String>) {
        self.emit(Scope::run(), Event::log(level, message));
    }

    /// The run's secrets.
    pub fn masks(&self) -> Masks {
        self.shared.masks.clone()
    }

    /// Begins a task; the handle reports its end.
    pub fn task(&self, scope: Scope, message: Option<String>) -> Task {
        self.emit(scope.clone(), Event::TaskStarted { message });
        Task {
            emitter: self.clone(),
            scope,
            start: Instant::now(),
        }
    }
}

/// Eight random hexadecimal digits, for a run's id. No secret: it only has to differ from other runs
/// of this user.
pub fn new_id() -> String {
    let random = RandomState::new().hash_one(std::process::id());
    format!("{:08x}", random >> 32)
}

/// Whether `new` makes `old` worthless.
fn replaces(new: &Envelope, old: &Envelope) -> bool {
    old.event.is_passing()
        && old.scope == new.scope
        && match (&old.event, &new.event) {
            (Event::Telemetry(_), Event::Telemetry(_)) => true,
            (Event::Transfer { what: a, .. }, Event::Transfer { what: b, .. }) => a == b,
            _ => false,
        }
}

/// A task that was begun. Without [`Task::finish`] its end is never told, which readers show as
/// work that was cut off.
#[derive(Debug)]
pub struct Task {
    emitter: Emitter,
    scope: Scope,
    start: Instant,
}

impl Task {
    /// Its scope.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Seconds since it began.
    pub fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Tells how it ended.
    pub fn finish(self, status: Status, message: impl Into<String>) {
        let message = message.into();
        self.emitter.emit(
            self.scope,
            Event::TaskFinished {
                status,
                seconds: self.start.elapsed().as_secs_f64(),
                message: (!message.is_empty()).then_some(message),
            },
        );
    }
}

/// Where a reader gets its events.
#[derive(Debug)]
pub struct Mailbox {
    slot: Arc<Slot>,
}

impl Mailbox {
    /// Waits for the next event; `None` after the last one. For readers on threads of their own.
    pub fn next(&self) -> Option<Arc<Envelope>> {
        let mut queue = lock(&self.slot.queue);
        loop {
            if let Some(envelope) = queue.waiting.pop_front() {
                return Some(envelope);
            }
            if queue.closed {
                return None;
            }
            queue = self
                .slot
                .arrived
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes all that waits, without waiting. For readers that draw in their own time.
    pub fn drain(&self) -> Vec<Arc<Envelope>> {
        lock(&self.slot.queue).waiting.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(done: u64) -> Event {
        Event::Transfer {
            what: "model".into(),
            done,
            total: Some(1_000_000),
        }
    }

    #[test]
    fn every_reader_sees_the_same_numbered_events_in_order() {
        let bus = Bus::new("r");
        let readers = [bus.subscribe(), bus.subscribe()];
        let emitter = bus.emitter();
        for n in 0..5 {
            emitter.log(Level::Info, format!("{n}"));
        }
        bus.close();
        for reader in readers {
            let mut seen = Vec::new();
            while let Some(envelope) = reader.next() {
                assert_eq!(envelope.run, "r");
                seen.push(envelope.seq);
            }
            assert_eq!(seen, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn a_slow_reader_keeps_state_changes_and_text_and_skips_progress() {
        let bus = Bus::new("r");
        let reader = bus.subscribe();
        let emitter = bus.emitter();
        for n in 0..10_000u64 {
            emitter.emit(Scope::run(), transfer(n));
            if n % 100 == 0 {
                emitter.emit(
                    Scope::request("a"),
                    Event::Tokens {
                        text: "x".into(),
                        count: n,
                        at: 0.0,
                    },
                );
            }
        }
        let waiting = reader.drain();
        let texts = waiting
            .iter()
            .filter(|e| matches!(e.event, Event::Tokens { .. }))
            .count();
        assert_eq!(texts, 100);
        assert!(waiting.len() < CROWDED + 200, "{}", waiting.len());
        let last = waiting
            .iter()
            .rev()
            .find(|e| matches!(e.event, Event::Transfer { .. }));
        assert_eq!(last.unwrap().event, transfer(9_999));
        assert!(waiting.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    }

    #[test]
    fn one_transfer_does_not_replace_another() {
        let bus = Bus::new("r");
        let reader = bus.subscribe();
        let emitter = bus.emitter();
        for n in 0..1_000 {
            for host in ["a", "b"] {
                emitter.emit(Scope::host(host), transfer(n));
            }
        }
        let waiting = reader.drain();
        for host in ["a", "b"] {
            let last = waiting
                .iter()
                .rev()
                .find(|e| e.scope == Scope::host(host))
                .unwrap();
            assert_eq!(last.event, transfer(999));
        }
    }

    #[test]
    fn hosts_are_counted_by_how_their_tasks_ended() {
        let bus = Bus::new("r");
        let emitter = bus.emitter();
        let scope = || Scope::host("a").in_task("start");
        emitter.task(scope(), None).finish(Status::Changed, "");
        emitter.task(scope(), None).finish(Status::Ok, "cached");
        emitter.count_sent("a", 7);
        let hosts = bus.hosts();
        let a = hosts.get("a").unwrap();
        assert_eq!((a.changed, a.ok, a.failed, a.bytes_sent), (1, 1, 0, 7));
    }

    #[test]
    fn nothing_is_told_after_the_end() {
        let bus = Bus::new("r");
        let reader = bus.subscribe();
        bus.close();
        bus.emitter().log(Level::Info, "late");
        assert!(reader.next().is_none());
        assert!(bus.subscribe().next().is_none());
    }

    #[test]
    fn run_ids_differ_and_are_short() {
        let ids: std::collections::HashSet<_> = (0..100).map(|_| new_id()).collect();
        assert_eq!(ids.len(), 100);
        assert!(ids.iter().all(|id| id.len() == 8));
    }
}
