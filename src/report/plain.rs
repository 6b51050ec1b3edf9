//! Lines for people: talk on stderr, data (an answer's text, what programs on hosts write) on stdout
//! as it comes. No bars, no
//! cursor movement. What to say is decided by [`Plain::talk`], writing is apart from it.

use std::collections::HashMap;
use std::io::{self, Write};

use super::Reader;
use super::recap::recap;
use crate::event::{
    Envelope, Event, Level, Masks, RequestState, Scope, Telemetry, WorkerEvent, WorkerState,
};
use crate::figures::{seconds, size};

/// How much is said, and where to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Only failures and data.
    pub quiet: bool,
    /// Everything.
    pub verbose: bool,
    /// Colour the words of failure and success. Meaning never hangs on it.
    pub colour: bool,
    /// Stdout and stderr end in one place (a terminal, a pipe, a log): a line of talk must not
    /// tear the answer.
    pub one_place: bool,
}

/// Milliseconds between two lines about the same transfer.
const TRANSFER_EVERY: u64 = 2_000;
/// Milliseconds between two lines of rates.
const RATES_EVERY: u64 = 2_000;
/// Width of the second column.
pub(super) const STEP_WIDTH: usize = 10;
/// Most of it, however long the names of tasks are.
const MOST_STEP_WIDTH: usize = 24;

/// The reader.
#[derive(Debug)]
pub struct Plain<O, E> {
    style: Style,
    masks: Masks,
    out: O,
    talk: E,
    /// Whether the last data written to stdout did not end a line.
    open_line: bool,
    width: usize,
    transfers: HashMap<(Scope, String), u64>,
    last_rates: Option<u64>,
    /// Tasks of the run of which nothing was told yet.
    open: Vec<String>,
}

impl<O: Write, E: Write> Plain<O, E> {
    /// Writes data to `out` and talk to `talk`.
    pub fn new(style: Style, masks: Masks, out: O, talk: E) -> Self {
        Self {
            style,
            masks,
            out,
            talk,
            open_line: false,
            width: STEP_WIDTH,
            transfers: HashMap::new(),
            last_rates: None,
            open: Vec::new(),
        }
    }

    /// What to say about an event; nothing for most of what is only of use to programs.
    fn talk(&mut self, envelope: &Envelope) -> Option<String> {
        let style = self.style;
        if let Event::RunStarted { tasks, .. } = &envelope.event {
            let longest = tasks.iter().map(|task| task.chars().count()).max();
            self.width = longest.unwrap_or(0).clamp(STEP_WIDTH, MOST_STEP_WIDTH);
            self.open.clone_from(tasks);
        }
        let scope = &envelope.scope;
        let host = scope.host.as_deref().unwrap_or("");
        let step = scope.task.as_deref();
        self.open.retain(|task| Some(task.as_str()) != step);
        let row = |step: &str, host: &str, text: &str| match &scope.step {
            Some(part) => row(self.width, step, host, &format!("{part}: {text}")),
            None => row(self.width, step, host, text),
        };
        match &envelope.event {
            Event::Summary(summary) => Some(recap(summary, &envelope.run, &self.open, style)),
            Event::Log { level, message } => {
                let shown = match level {
                    Level::Debug => style.verbose,
                    Level::Info => !style.quiet,
                    Level::Warn | Level::Error => true,
                };
                let word = match level {
                    Level::Debug | Level::Info => "",
                    Level::Warn => "warning: ",
                    Level::Error => "error: ",
                };
                shown.then(|| row(step.unwrap_or("log"), host, &format!("{word}{message}")))
            }
            Event::TaskFinished {
                status,
                seconds: took,
                message,
            } => {
                let failed = status.word().chars().all(|c| c.is_ascii_uppercase());
                (!style.quiet || failed).then(|| {
                    let mut text = paint(style, failed, status.word());
                    if let Some(message) = message {
                        text.push(' ');
                        text.push_str(message);
                    }
                    if *took >= 0.1 {
                        text.push_str(&format!(" in {}", seconds(*took)));
                    }
                    row(step.unwrap_or("task"), host, &text)
                })
            }
            Event::Worker(worker) => self.worker(worker, host, scope),
            Event::StageLost {
                reason,
                ended_after_us,
                requests,
            } => Some(row(
                "worker",
                host,
                &format!(
                    "stage {} {}: {reason}; {requests} open request{} ended {} later",
                    scope.stage.unwrap_or(0),
                    paint(style, true, "LOST"),
                    if *requests == 1 { "" } else { "s" },
                    seconds(*ended_after_us as f64 / 1e6),
                ),
            )),
            // Whoever asks the person shows it.
            Event::Question { .. } => None,
            _ if style.quiet => None,
            Event::RunStarted {
                command,
                hosts,
                check,
                ..
            } => Some(format!(
                "run {} {command}{}{}",
                envelope.run,
                match hosts.len() {
                    // Which they are is not known beforehand, or it is about none.
                    0 => String::new(),
                    1 => ", 1 host".to_owned(),
                    count => format!(", {count} hosts"),
                },
                if *check { ", nothing is changed" } else { "" }
            )),
            // The task that could not reach it says so, and why.
            Event::HostState { state, .. } if state == "unreachable" => None,
            Event::HostState { state, message } => Some(row(
                step.unwrap_or("host"),
                host,
                &format!("{state} {}", message.as_deref().unwrap_or("")),
            )),
            Event::TaskStarted { message } => message
                .as_deref()
                .map(|message| row(step.unwrap_or("task"), host, message)),
            Event::Transfer { what, done, total } => {
                let key = (scope.clone(), what.clone());
                let complete = total.is_some_and(|total| *done >= total);
                let due = match self.transfers.get(&key) {
                    Some(last) => envelope.ms.saturating_sub(*last) >= TRANSFER_EVERY,
                    None => true,
                };
                if !due && !complete {
                    return None;
                }
                self.transfers.insert(key, envelope.ms);
                let text = match total {
                    Some(total) if complete => format!("{what} {}", size(*total)),
                    Some(total) if *total > 0 => format!(
                        "{what} {} of {}, {:.0} %",
                        size(*done),
                        size(*total),
                        *done as f64 * 100.0 / *total as f64
                    ),
                    _ => format!("{what} {}", size(*done)),
                };
                Some(row(step.unwrap_or("transfer"), host, &text))
            }
            Event::Request {
                state,
                message,
                prompt,
            } => {
                if matches!(state, RequestState::Finished) {
                    // The rates that follow are those of the whole answer.
                    self.last_rates = None;
                }
                let text = match state {
                    RequestState::Sent => "asked:",
                    RequestState::FirstToken => "first token",
                    RequestState::Finished => "finished:",
                    RequestState::Failed => "FAILED:",
                    RequestState::Cancelled => "cancelled",
                };
                let message = message.as_deref().or(prompt.as_deref()).unwrap_or("");
                Some(row(
                    step.unwrap_or("request"),
                    "",
                    format!("{text} {message}").trim_end(),
                ))
            }
            Event::Telemetry(rates) => {
                let held = self.open_line && style.one_place;
                let due = self
                    .last_rates
                    .is_none_or(|last| envelope.ms.saturating_sub(last) >= RATES_EVERY);
                (due && (style.verbose || !held)).then(|| {
                    self.last_rates = Some(envelope.ms);
                    row("speed", "", &rates_line(rates))
                })
            }
            Event::Tokens { .. } => None,
            Event::Change { what, diff } => {
                let mut text = row(step.unwrap_or("change"), host, what);
                for line in diff.iter().flat_map(|diff| diff.lines()) {
                    text.push_str("\n    ");
                    text.push_str(line);
                }
                Some(text)
            }
            Event::Output { text, .. } => {
                let lines: Vec<String> = text
                    .lines()
                    .map(|line| row(step.unwrap_or("output"), host, &format!("| {line}")))
                    .collect();
                (!lines.is_empty()).then(|| lines.join("\n"))
            }
        }
    }

    fn worker(&self, worker: &WorkerEvent, host: &str, scope: &Scope) -> Option<String> {
        let style = self.style;
        let failed = matches!(worker.state, WorkerState::Failed | WorkerState::Lost);
        let detail = matches!(worker.state, WorkerState::Listening | WorkerState::Stopped);
        if (style.quiet && !failed) || (detail && !style.verbose) {
            return None;
        }
        let stage = scope
            .stage
            .map_or_else(String::new, |stage| format!("stage {stage} "));
        let word = match worker.state {
            WorkerState::Starting => "starting",
            WorkerState::Listening => "listening",
            WorkerState::Loaded => "loaded",
            WorkerState::Ready => "ready",
            WorkerState::Failed => "FAILED",
            WorkerState::Lost => "LOST",
            WorkerState::Stopped => "stopped",
        };
        let mut text = format!("{stage}{}", paint(style, failed, word));
        let mut first = true;
        let mut add = |part: String| {
            text.push_str(if first { ": " } else { ", " });
            text.push_str(&part);
            first = false;
        };
        if let Some(pid) = worker.pid {
            add(format!("pid {pid}"));
        }
        if let Some(layers) = worker.layers {
            add(format!("{layers} layers"));
        }
        if let Some(bytes) = worker.bytes {
            add(size(bytes));
        }
        if let Some(device) = &worker.device {
            add(device.clone());
        }
        if let Some(took) = worker.seconds {
            add(format!("in {}", seconds(took)));
        }
        if let Some(address) = &worker.address {
            add(address.clone());
        }
        if let Some(message) = &worker.message {
            add(message.clone());
        }
        Some(row(self.width, "worker", host, &text))
    }
}

/// One line: step, host, text, in columns.
fn row(width: usize, step: &str, host: &str, text: &str) -> String {
    if host.is_empty() {
        format!("{step:<width$} {text}")
    } else {
        format!("{step:<width$} {host} {text}")
    }
}

pub(super) fn paint(style: Style, failed: bool, word: &str) -> String {
    if style.colour && failed {
        format!("\x1b[31m{word}\x1b[0m")
    } else {
        word.to_owned()
    }
}

fn rates_line(rates: &Telemetry) -> String {
    let mut text = format!("{:.1} tok/s", rates.tokens_per_second);
    for stage in &rates.stages {
        text.push_str(&format!(
            "   {} {:.0} % busy, {:.1} rows/s",
            stage.host,
            stage.busy * 100.0,
            stage.rows_per_second
        ));
    }
    text
}

/// Wall time of day in the user's zone, `HH:MM:SS`.
fn clock(time: &str) -> String {
    time.parse::<jiff::Timestamp>().map_or_else(
        |_| "--:--:--".to_owned(),
        |at| {
            at.to_zoned(jiff::tz::TimeZone::system())
                .strftime("%H:%M:%S")
                .to_string()
        },
    )
}

/// The text with control characters made visible, so that nothing a worker or peer says can move
/// the cursor or ring the bell. Colours are ours and added later.
pub(crate) fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

impl<O: Write + Send, E: Write + Send> Reader for Plain<O, E> {
    fn take(&mut self, envelope: &Envelope) -> io::Result<()> {
        if let Event::Tokens { text, .. } = &envelope.event {
            self.out.write_all(text.as_bytes())?;
            self.out.flush()?;
            if !text.is_empty() {
                self.open_line = !text.ends_with('\n');
            }
            return Ok(());
        }
        if let Event::Output { text, .. } = &envelope.event {
            let host = envelope.scope.host.as_deref().unwrap_or("");
            let masked = self.masks.text(text);
            for line in masked.lines() {
                // A report of the whole run stands as it is.
                let host = if host.is_empty() {
                    String::new()
                } else {
                    format!("{host}  ")
                };
                writeln!(self.out, "{host}{}", harmless(line))?;
            }
            return self.out.flush();
        }
        let last = matches!(envelope.event, Event::Summary(_));
        let ended = matches!(
            envelope.event,
            Event::Request {
                state: RequestState::Finished | RequestState::Failed | RequestState::Cancelled,
                ..
            }
        );
        if self.open_line && (last || ended) {
            // The answer is a text file when stdout is one.
            self.out.write_all(b"\n")?;
            self.out.flush()?;
            self.open_line = false;
        }
        let Some(said) = self.talk(envelope) else {
            return Ok(());
        };
        if self.open_line && self.style.one_place {
            self.out.write_all(b"\n")?;
            self.out.flush()?;
            self.open_line = false;
        }
        let masked = self.masks.text(&said);
        let mut lines = String::new();
        for line in masked.lines() {
            let line = if self.style.colour {
                // Only our own two colour codes may pass.
                line.split('\x1b')
                    .enumerate()
                    .map(|(i, part)| match (i, part) {
                        (0, part) => harmless(part),
                        (_, part) if part.starts_with("[31m") || part.starts_with("[0m") => {
                            format!("\x1b{}", harmless(part))
                        }
                        (_, part) => harmless(part),
                    })
                    .collect()
            } else {
                harmless(line)
            };
            if last {
                lines.push_str(&line);
            } else {
                lines.push_str(&format!("{} {line}", clock(&envelope.time)));
            }
            lines.push('\n');
        }
        self.talk.write_all(lines.as_bytes())?;
        self.talk.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Bus, Emitter, Failure, FailureKind, Packed, Status, Stream, Summary};

    #[test]
    fn what_a_host_s_program_writes_is_data_behind_its_name_and_moves_no_cursor() {
        let (out, talk) = shown(Style::default(), |emitter, _| {
            emitter.emit(
                Scope::host("h1").in_task("logs"),
                Event::Output {
                    stream: Stream::Stdout,
                    text: "one\nt\u{1b}[2Jwo\n".into(),
                },
            );
        });
        assert_eq!(out, "h1  one\nh1  t\u{fffd}[2Jwo\n");
        assert_eq!(talk, "");
    }

    fn shown(style: Style, emit: impl FnOnce(&Emitter, &Bus)) -> (String, String) {
        let bus = Bus::new("7f3a");
        let mailbox = bus.subscribe();
        emit(&bus.emitter(), &bus);
        let (mut out, mut talk) = (Vec::new(), Vec::new());
        let mut plain = Plain::new(style, bus.masks(), &mut out, &mut talk);
        for envelope in mailbox.drain() {
            plain.take(&envelope).unwrap();
        }
        let talk = String::from_utf8(talk).unwrap();
        // Without the time of day.
        let talk = talk
            .lines()
            .map(|line| {
                let timed = line.as_bytes().get(2) == Some(&b':');
                line.get(9..).filter(|_| timed).unwrap_or(line)
            })
            .collect::<Vec<_>>()
            .join("\n");
        (String::from_utf8(out).unwrap(), talk)
    }

    fn run(emitter: &Emitter, bus: &Bus) {
        emitter.emit(
            Scope::run(),
            Event::RunStarted {
                command: "demo".into(),
                version: "0".into(),
                hosts: vec!["local-1".into(), "local-2".into()],
                tasks: Vec::new(),
                check: false,
            },
        );
        let scope = Scope::host("local-1").in_task("pieces");
        emitter
            .task(scope, None)
            .finish(Status::Changed, "17 pieces, 64.2 MB");
        emitter.emit(
            Scope::worker("local-2", 1),
            Event::Worker(Box::new(WorkerEvent {
                layers: Some(15),
                bytes: Some(63_300_000),
                ..WorkerEvent::new(WorkerState::Loaded)
            })),
        );
        for text in ["Hello", " world"] {
            emitter.emit(
                Scope::request("a"),
                Event::Tokens {
                    text: text.into(),
                    count: 1,
                    at: 0.0,
                },
            );
        }
        emitter.emit(
            Scope::request("a"),
            Event::Request {
                state: RequestState::Finished,
                message: Some("2 tokens".into()),
                prompt: None,
            },
        );
        emitter.emit(
            Scope::run(),
            Event::Summary(Box::new(Summary {
                command: "demo".into(),
                exit: 1,
                seconds: 2.0,
                hosts: bus.hosts(),
                error: Some(
                    Failure::new(FailureKind::Worker, "killed by signal 9")
                        .on("local-2")
                        .at("answer"),
                ),
                packed: Packed::default(),
                fields: serde_json::Map::new(),
            })),
        );
    }

    #[test]
    fn the_answer_alone_goes_to_stdout_and_all_talk_to_stderr() {
        let (out, talk) = shown(Style::default(), run);
        assert_eq!(out, "Hello world\n");
        assert_eq!(
            talk,
            "run 7f3a demo, 2 hosts\n\
             pieces     local-1 changed 17 pieces, 64.2 MB\n\
             worker     local-2 stage 1 loaded: 15 layers, 63.3 MB\n\
             request    finished: 2 tokens\n\
             error: local-2, answer: killed by signal 9\n\
             recap      local-1 1 changed   exit 1   2.0 s   run 7f3a"
        );
    }

    #[test]
    fn why_a_host_was_not_reached_is_told_once_before_the_end() {
        let why = "10.0.0.1 is not known";
        let (_, talk) = shown(Style::default(), |emitter, _| {
            emitter.emit(
                Scope::run(),
                Event::RunStarted {
                    command: "facts".into(),
                    version: "0".into(),
                    hosts: Vec::new(),
                    tasks: Vec::new(),
                    check: false,
                },
            );
            emitter.emit(
                Scope::host("h1"),
                Event::HostState {
                    state: "unreachable".into(),
                    message: Some(why.into()),
                },
            );
            let task = emitter.task(Scope::host("h1").in_task("connect"), None);
            task.finish(Status::Unreachable, why);
        });
        assert_eq!(
            talk,
            format!("run 7f3a facts\nconnect    h1 UNREACHABLE {why}")
        );
    }

    #[test]
    fn quiet_leaves_the_data_and_the_failure() {
        let style = Style {
            quiet: true,
            ..Style::default()
        };
        let (out, talk) = shown(style, run);
        assert_eq!(out, "Hello world\n");
        assert_eq!(talk, "error: local-2, answer: killed by signal 9");
    }

    #[test]
    fn a_worker_cannot_write_control_characters_to_the_terminal() {
        for colour in [false, true] {
            let style = Style {
                colour,
                ..Style::default()
            };
            let (_, talk) = shown(style, |emitter, _| {
                emitter.log(Level::Warn, "a\x1b[2J\x07b\nc");
            });
            assert!(!talk.contains('\x1b') && !talk.contains('\x07'), "{talk:?}");
        }
    }

    #[test]
    fn talk_does_not_tear_a_line_of_the_answer_in_a_terminal() {
        let style = Style {
            one_place: true,
            ..Style::default()
        };
        let (out, talk) = shown(style, |emitter, _| {
            emitter.emit(
                Scope::request("a"),
                Event::Tokens {
                    text: "half".into(),
                    count: 1,
                    at: 0.0,
                },
            );
            emitter.emit(Scope::run(), Event::Telemetry(Box::default()));
            emitter.log(Level::Warn, "look");
        });
        assert_eq!(out, "half\n");
        assert_eq!(talk, "log        warning: look");
    }

    #[test]
    fn a_transfer_is_told_at_its_start_and_end_and_seldom_between() {
        let (_, talk) = shown(Style::default(), |emitter, _| {
            for done in 0..=100u64 {
                emitter.emit(
                    Scope::run().in_task("model"),
                    Event::Transfer {
                        what: "m.gguf".into(),
                        done: done * 1_000_000,
                        total: Some(100_000_000),
                    },
                );
            }
        });
        assert!(
            talk.starts_with("model      m.gguf 0 B of 100.0 MB, 0 %\n"),
            "{talk}"
        );
        assert!(talk.ends_with("model      m.gguf 100.0 MB"), "{talk}");
        assert!(talk.lines().count() < 6, "{talk}");
    }
}
