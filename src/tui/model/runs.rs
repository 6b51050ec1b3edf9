//! A run as the screens show it: tasks in their order, hosts within each.

use std::collections::BTreeMap;

use super::data::Line;
use crate::event::{
    Envelope, Event, Failure, HostCounters, Level, RequestState, Scope, Status, Stream, WorkerState,
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
    /// Whether it was cut off before it could tell how it ended.
    pub cut_off: bool,
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

    /// Where it ended on all hosts that began it, what was done for all of them is over too.
    fn end_whole(&mut self) {
        let is_over = !self.hosts.is_empty() && self.hosts.values().all(|own| own.status.is_some());
        if is_over && self.whole.status.is_none() {
            self.whole = Cell::default();
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
            cut_off: false,
        }
    }

    /// Whether it is in progress.
    pub fn is_open(&self) -> bool {
        self.end.is_none() && !self.cut_off
    }

    /// It has ended and tells its summary later, or never.
    pub(super) fn ended(&mut self, failure: Option<&Failure>) {
        self.end.get_or_insert_with(|| End {
            exit: failure.map_or(0, |failure| failure.kind.exit().code().into()),
            error: failure.map(|failure| shown(&failure.message)),
            hosts: BTreeMap::new(),
            resume: None,
            fields: Vec::new(),
        });
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
                if let Some(task) = self.task(scope) {
                    let cell = task.cell(scope);
                    cell.begun = true;
                    if let Some(step) = &scope.step {
                        // What it does now is not this any more.
                        if cell.message.as_deref() == Some(&shown(step)) {
                            cell.message = None;
                            cell.transfer = None;
                        }
                    } else {
                        cell.status = Some(*status);
                        cell.seconds = *seconds;
                        cell.message = message.as_deref().map(shown);
                        cell.transfer = None;
                    }
                    task.end_whole();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(run: &mut RunView, scope: Scope, event: Event) {
        let envelope = Envelope {
            v: 1,
            run: "r".into(),
            seq: 0,
            ms: 0,
            time: String::new(),
            scope,
            event,
        };
        run.event(&envelope, "");
    }

    fn step(host: Option<&str>, step: &str) -> Scope {
        Scope {
            host: host.map(str::to_owned),
            step: Some(step.into()),
            ..Scope::run().in_task("up")
        }
    }

    #[test]
    fn a_task_shows_the_step_that_is_done_now_and_none_after_its_end() {
        let mut run = RunView::new("r", "playbook run x", false, &["up".into()], String::new());
        let started = || Event::TaskStarted { message: None };
        let finished = || Event::TaskFinished {
            status: Status::Ok,
            seconds: 0.1,
            message: None,
        };
        let whole = |run: &RunView| run.tasks[0].whole.message.clone();
        let on = |run: &RunView| run.tasks[0].hosts["h1"].message.clone();
        let host = Scope::host("h1").in_task("up");
        tell(&mut run, host.clone(), started());
        tell(&mut run, step(None, "model"), started());
        assert_eq!(whole(&run).as_deref(), Some("model"));
        tell(&mut run, step(None, "model"), finished());
        assert_eq!(whole(&run), None);
        tell(&mut run, step(Some("h1"), "push"), started());
        assert_eq!(on(&run).as_deref(), Some("push"));
        tell(&mut run, step(Some("h1"), "push"), finished());
        assert_eq!(on(&run), None);
        // One that never tells its end ends with the task.
        tell(&mut run, step(None, "4 at once"), started());
        tell(&mut run, host, finished());
        assert_eq!(whole(&run), None);
        assert_eq!(
            run.tasks[0].state(),
            Some(TaskState::Ended(Status::Ok)),
            "it is still shown as running"
        );
    }

    #[test]
    fn a_run_that_tells_no_summary_is_not_in_progress_for_ever() {
        let mut run = RunView::new("r", "demo", false, &[], String::new());
        assert!(run.is_open());
        let failure = Failure::new(crate::event::FailureKind::Worker, "it was killed");
        run.ended(Some(&failure));
        assert!(!run.is_open());
        let end = run.end.as_ref().unwrap();
        assert_eq!((end.exit, end.error.as_deref()), (1, Some("it was killed")));
        // A summary that came is not replaced.
        run.ended(None);
        assert_eq!(run.end.unwrap().exit, 1);
    }
}
