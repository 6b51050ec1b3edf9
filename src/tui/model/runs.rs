//! A run as the screens show it: tasks in their order, hosts within each.

use std::collections::BTreeMap;

use super::data::Line;
use crate::event::{
    Envelope, Event, HostCounters, Level, RequestState, Scope, Status, Stream, WorkerState,
};
use crate::tui::ring::Ring;
use crate::tui::text::shown;
use crate::tui::theme::Tone;

/// Lines of output kept of a run.
const OUTPUT: usize = 2_000;
/// Most tasks of a run that are shown.
const TASKS: usize = 1_000;
/// Most hosts of a task that are shown.
const CELLS: usize = 2_000;

/// A run.
#[derive(Clone, Debug)]
pub struct RunView {
    /// Its id.
    pub id: String,
    /// The command.
    pub command: String,
    /// Whether changes are only computed.
    pub check: bool,
    /// When it began, `12:00:01`.
    pub time: String,
    /// Seconds since it began, as of the last event.
    pub seconds: f64,
    /// Its tasks.
    pub tasks: Vec<TaskView>,
    /// What it said.
    pub output: Ring<Line>,
    /// How it ended.
    pub end: Option<End>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct End {
    /// Exit status.
    pub exit: i32,
    /// Why it failed.
    pub error: Option<String>,
    /// By host.
    pub hosts: BTreeMap<String, HostCounters>,
    /// The command that goes on with it, when it can be.
    pub resume: Option<String>,
    /// What it reports beside: name and value, on one line each.
    pub fields: Vec<(String, String)>,
}

/// A task of a run.
#[derive(Clone, Debug)]
pub struct TaskView {
    /// Its name.
    pub name: String,
    /// What it does or did, for the whole run.
    pub whole: Cell,
    /// By host.
    pub hosts: BTreeMap<String, Cell>,
}

/// A task on one host.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Whether it was begun.
    pub begun: bool,
    /// How it ended.
    pub status: Option<Status>,
    /// Seconds it took.
    pub seconds: f64,
    /// What came of it, or what it does now.
    pub message: Option<String>,
    /// Bytes moved and in all.
    pub transfer: Option<(u64, Option<u64>)>,
    /// Milliseconds and bytes of the first word about this transfer, for its speed.
    since: Option<(u64, u64)>,
    /// Bytes per second.
    pub speed: f64,
}

impl TaskView {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            whole: Cell::default(),
            hosts: BTreeMap::new(),
        }
    }

    /// The cell of a scope.
    fn cell(&mut self, scope: &Scope) -> &mut Cell {
        match &scope.host {
            Some(host) if self.hosts.contains_key(host) || self.hosts.len() < CELLS => {
                self.hosts.entry(host.clone()).or_default()
            }
            _ => &mut self.whole,
        }
    }

    /// All its cells.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.hosts.values().chain([&self.whole])
    }

    /// The task as a whole: the worst of what is known of its hosts. `None` when it was not begun.
    pub fn state(&self) -> Option<TaskState> {
        let mut state = None;
        for cell in self.cells().filter(|cell| cell.begun) {
            let own = match cell.status {
                None => TaskState::Running,
                Some(status) => TaskState::Ended(status),
            };
            state = Some(match (state, own) {
                (Some(TaskState::Running), _) | (_, TaskState::Running) => TaskState::Running,
                (Some(TaskState::Ended(a)), TaskState::Ended(b)) => {
                    TaskState::Ended(if rank(a) >= rank(b) { a } else { b })
                }
                (None, own) => own,
            });
        }
        state
    }

    /// How many hosts ended how, the worst first.
    pub fn counts(&self) -> Vec<(Status, usize)> {
        let mut counts: Vec<(Status, usize)> = Vec::new();
        for status in self.hosts.values().filter_map(|cell| cell.status) {
            match counts.iter_mut().find(|(known, _)| *known == status) {
                Some((_, count)) => *count += 1,
                None => counts.push((status, 1)),
            }
        }
        counts.sort_by_key(|(status, _)| std::cmp::Reverse(rank(*status)));
        counts
    }
}

/// How a task is as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// On some host it is being done.
    Running,
    /// It ended on all hosts that began it; the worst.
    Ended(Status),
}

fn rank(status: Status) -> u8 {
    match status {
        Status::Failed => 6,
        Status::Unreachable => 5,
        Status::Unknown => 4,
        Status::Changed => 3,
        Status::WouldChange => 2,
        Status::Ok => 1,
        Status::Skipped => 0,
    }
}

/// The tone of a status.
pub fn tone(status: Status) -> Tone {
    match status {
        Status::Ok => Tone::Good,
        Status::Changed | Status::WouldChange => Tone::Busy,
        Status::Skipped => Tone::Faint,
        Status::Unknown => Tone::Careful,
        Status::Failed | Status::Unreachable => Tone::Bad,
    }
}

impl RunView {
    /// A run that began.
    pub fn new(id: &str, command: &str, check: bool, tasks: &[String], time: String) -> Self {
        Self {
            id: shown(id),
            command: shown(command),
            check,
            time,
            seconds: 0.0,
            tasks: tasks
                .iter()
                .take(TASKS)
                .map(|name| TaskView::new(&shown(name)))
                .collect(),
            output: Ring::new(OUTPUT),
            end: None,
        }
    }

    /// Whether it is in progress.
    pub fn is_open(&self) -> bool {
        self.end.is_none()
    }

    fn task(&mut self, scope: &Scope) -> Option<&mut TaskView> {
        let name = shown(scope.task.as_deref()?);
        let at = match self.tasks.iter().position(|task| task.name == name) {
            Some(at) => at,
            None if self.tasks.len() < TASKS => {
                self.tasks.push(TaskView::new(&name));
                self.tasks.len() - 1
            }
            None => return None,
        };
        self.tasks.get_mut(at)
    }

    fn say(&mut self, envelope: &Envelope, time: &str, tone: Tone, text: &str) {
        for line in crate::tui::text::lines(text.trim_end_matches('\n')) {
            self.output.push(Line {
                time: time.to_owned(),
                host: shown(envelope.scope.host.as_deref().unwrap_or_default()),
                tone,
                text: line,
            });
        }
    }

    /// Takes an event of the run.
    pub fn event(&mut self, envelope: &Envelope, time: &str) {
        self.seconds = envelope.ms as f64 / 1000.0;
        let scope = &envelope.scope;
        match &envelope.event {
            Event::TaskStarted { message } => {
                let step = scope.step.clone();
                if let Some(task) = self.task(scope) {
                    let cell = task.cell(scope);
                    cell.begun = true;
                    // A step of the task is one of its parts, not the task again.
                    if let Some(text) = step.as_deref().or(message.as_deref()) {
                        cell.message = Some(shown(text));
                    }
                }
            }
            Event::TaskFinished {
                status,
                seconds,
                message,
            } => {
                let name = scope.step.as_deref().or(scope.task.as_deref());
                let text = format!(
                    "{} {} {}",
                    name.unwrap_or("task"),
                    status.word(),
                    message.as_deref().unwrap_or_default()
                );
                self.say(envelope, time, tone(*status), text.trim_end());
                let is_step = scope.step.is_some();
                if let Some(task) = self.task(scope) {
                    let cell = task.cell(scope);
                    cell.begun = true;
                    if !is_step {
                        cell.status = Some(*status);
                        cell.seconds = *seconds;
                        cell.message = message.as_deref().map(shown);
                        cell.transfer = None;
                    }
                }
            }
            Event::Transfer { what, done, total } => {
                let ms = envelope.ms;
                if let Some(task) = self.task(scope) {
                    let cell = task.cell(scope);
                    cell.begun = true;
                    cell.message = Some(shown(what));
                    let (began, from) = match cell.since {
                        Some((began, from)) if from <= *done => (began, from),
                        _ => (ms, *done),
                    };
                    cell.since = Some((began, from));
                    let over = ms.saturating_sub(began) as f64 / 1000.0;
                    cell.speed = if over > 0.0 {
                        (*done - from) as f64 / over
                    } else {
                        0.0
                    };
                    cell.transfer = Some((*done, *total));
                }
            }
            Event::Change { what, diff } => {
                self.say(envelope, time, Tone::Busy, &format!("changes {what}"));
                if let Some(diff) = diff {
                    self.say(envelope, time, Tone::Plain, diff);
                }
            }
            Event::Output { stream, text } => {
                let tone = match stream {
                    Stream::Stdout => Tone::Plain,
                    Stream::Stderr => Tone::Careful,
                };
                self.say(envelope, time, tone, text);
            }
            Event::Log { level, message } => {
                self.say(envelope, time, level_tone(*level), message);
            }
            Event::HostState { state, message } => {
                let text = format!("{state} {}", message.as_deref().unwrap_or_default());
                self.say(envelope, time, Tone::Plain, text.trim_end());
            }
            Event::Worker(worker) => {
                if let (WorkerState::Failed | WorkerState::Lost, Some(message)) =
                    (worker.state, &worker.message)
                {
                    let text = format!("stage {}: {message}", scope.stage.unwrap_or(0));
                    self.say(envelope, time, Tone::Bad, &text);
                }
            }
            Event::StageLost { reason, .. } => {
                let text = format!("stage {} LOST: {reason}", scope.stage.unwrap_or(0));
                self.say(envelope, time, Tone::Bad, &text);
            }
            Event::Request {
                state: RequestState::Failed,
                message: Some(message),
                ..
            } => {
                let text = format!("request FAILED: {message}");
                self.say(envelope, time, Tone::Bad, &text);
            }
            Event::Summary(summary) => {
                self.seconds = summary.seconds;
                let fields = summary
                    .fields
                    .iter()
                    // Lists and tables are for programs; a run's report stands in its output.
                    .filter(|(_, value)| {
                        value.is_string() || value.is_number() || value.is_boolean()
                    })
                    .take(60)
                    .map(|(name, value)| {
                        let text = value
                            .as_str()
                            .map_or_else(|| value.to_string(), str::to_owned);
                        (shown(name), shown(&text))
                    })
                    .collect();
                self.end = Some(End {
                    exit: summary.exit,
                    error: summary.error.as_ref().map(|error| shown(&error.message)),
                    hosts: summary
                        .hosts
                        .iter()
                        .take(CELLS)
                        .map(|(host, counters)| (shown(host), counters.clone()))
                        .collect(),
                    resume: summary
                        .fields
                        .get("resume")
                        .and_then(|value| value.as_str())
                        .map(shown),
                    fields,
                });
            }
            _ => {}
        }
    }
}

/// The tone of a log's line.
pub fn level_tone(level: Level) -> Tone {
    match level {
        Level::Debug => Tone::Faint,
        Level::Info => Tone::Plain,
        Level::Warn => Tone::Careful,
        Level::Error => Tone::Bad,
    }
}
