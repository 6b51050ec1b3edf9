//! The frame of every command: run id, event stream, its readers, and the summary at the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use serde_json::{Map, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Common;
use super::prompt::{self, Prompt};
use crate::event::{
    Bus, Command, Emitter, Event, Exit, Failure, FailureKind, HostCounters, Packed, Scope, Summary,
    bus,
};
use crate::paths::Paths;
use crate::report::{self, Show, journal, plain::Style};

/// A command that is running.
pub struct Run {
    command: String,
    json: bool,
    /// Whether pending changes are a failure.
    fail_on_change: bool,
    bus: Bus,
    readers: Vec<JoinHandle<()>>,
    prompt: Option<Prompt>,
    packed: Packed,
    commands: UnboundedSender<Command>,
    inbox: Option<UnboundedReceiver<Command>>,
}

impl Run {
    /// Begins a run without a journal, for commands that change and ask nothing.
    pub fn start(common: &Common, command: &str) -> Self {
        let bus = Bus::new(bus::new_id());
        let (commands, inbox) = unbounded_channel();
        let how = if common.json {
            Show::Json
        } else {
            lines(common)
        };
        let lost = commands.clone();
        let mut readers = Vec::new();
        // The run ends with its receiver; then nobody needs to know.
        match report::show(how, &bus, move |command| {
            let _ = lost.send(command);
        }) {
            Ok(reader) => readers.push(reader),
            Err(error) => {
                // The one thing that cannot be told as an event.
                let _ = writeln!(io::stderr(), "error: no thread to show the run: {error}");
            }
        }
        Self {
            command: command.to_owned(),
            json: common.json,
            fail_on_change: common.check && common.fail_on_change,
            bus,
            readers,
            commands,
            prompt: None,
            packed: Packed::default(),
            inbox: Some(inbox),
        }
    }

    /// Begins a run that no reader of this frame shows: screens do.
    pub fn unseen(command: &str) -> Self {
        let (commands, inbox) = unbounded_channel();
        Self {
            command: command.to_owned(),
            json: false,
            fail_on_change: false,
            bus: Bus::new(bus::new_id()),
            readers: Vec::new(),
            commands,
            prompt: None,
            packed: Packed::default(),
            inbox: Some(inbox),
        }
    }

    /// Its stream of events.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Keeps a journal from here on. A run goes on without one, and says so.
    pub fn keep_journal(&mut self, common: &Common, paths: &Paths) {
        let kept = journal::keep(&self.bus, &paths.journals(), common.journal_text);
        self.readers.extend(kept);
    }

    /// A handle for emitting events.
    pub fn emitter(&self) -> Emitter {
        self.bus.emitter()
    }

    /// Id of the run.
    pub fn id(&self) -> &str {
        self.bus.run()
    }

    /// Asks a person at the terminal what the run asks.
    pub fn prompt(&mut self) -> io::Result<()> {
        self.prompt = Some(prompt::start(self.bus.subscribe(), self.commands())?);
        Ok(())
    }

    /// Where commands to the run are sent.
    pub fn commands(&self) -> UnboundedSender<Command> {
        self.commands.clone()
    }

    /// Commands to the run; `None` when they were taken before.
    pub fn take_inbox(&mut self) -> Option<UnboundedReceiver<Command>> {
        self.inbox.take()
    }

    /// Wide fields of the summary.
    pub fn pack(&mut self, packed: Packed) {
        self.packed = packed;
    }

    /// Ends a run whose result is a text: it is data, and the field of this name with `--json`.
    pub fn text(self, name: &str, text: &str) -> Exit {
        self.data(text, name, text.into())
    }

    /// Ends a run whose result is data: a text for people, a field for scripts.
    pub fn data(self, text: &str, name: &str, value: Value) -> Exit {
        let mut fields = Map::new();
        if self.json {
            fields.insert(name.to_owned(), value);
        } else {
            let mut stdout = io::stdout().lock();
            // A reader that closed the pipe has what it wanted.
            let _ = stdout
                .write_all(text.as_bytes())
                .and_then(|()| stdout.flush());
        }
        self.finish(fields, None)
    }

    /// Like [`Run::finish`], with a text for people on stdout before it.
    pub fn conclude(
        self,
        fields: Map<String, Value>,
        text: &str,
        failure: Option<Failure>,
    ) -> Exit {
        if !self.json && !text.is_empty() {
            let mut stdout = io::stdout().lock();
            // A reader that closed the pipe has what it wanted.
            let _ = stdout
                .write_all(text.as_bytes())
                .and_then(|()| stdout.flush());
        }
        self.finish(fields, failure)
    }

    /// Tells how the run ended, waits until all readers have it, and gives the exit status.
    pub fn finish(mut self, fields: Map<String, Value>, failure: Option<Failure>) -> Exit {
        // The terminal is given back before anything more is said on it.
        drop(self.prompt.take());
        // A panic on any thread is a fault, also when the run went on without it.
        let failure = failure.or_else(panicked);
        let failure = failure.or_else(|| {
            let changes =
                self.bus.would_change() || fields.get("would_change") == Some(&true.into());
            (self.fail_on_change && changes).then(|| pending(&self.bus.hosts()))
        });
        let exit = failure.as_ref().map_or(Exit::Done, |f| f.kind.exit());
        self.emitter().emit(
            Scope::run(),
            Event::Summary(Box::new(Summary {
                command: self.command.clone(),
                exit: exit.code().into(),
                seconds: self.bus.seconds(),
                hosts: self.bus.hosts(),
                error: failure,
                fields,
                packed: std::mem::take(&mut self.packed),
            })),
        );
        self.bus.close();
        for reader in self.readers {
            // A reader that panicked has been told of on stderr by its panic.
            let _ = reader.join();
        }
        exit
    }
}

/// That a check found something to change, and where.
fn pending(hosts: &BTreeMap<String, HostCounters>) -> Failure {
    let would = |counters: &HostCounters| counters.would_change > 0;
    let hosts: Vec<&str> = hosts
        .iter()
        .filter(|(_, counters)| would(counters))
        .map(|(host, _)| host.as_str())
        .collect();
    let place = if hosts.is_empty() {
        String::new()
    } else {
        format!(" on {}", hosts.join(", "))
    };
    Failure::new(
        FailureKind::Drift,
        format!("changes are pending{place}: the same command without --check makes them"),
    )
    .at("check")
}

/// Lines for people, with bars where a terminal can move its cursor.
pub(super) fn lines(common: &Common) -> Show {
    let style = style(common);
    if !common.quiet && io::stderr().is_terminal() && moves_cursor() {
        Show::Bars(style)
    } else {
        Show::Plain(style)
    }
}

/// Whether the terminal says that it is more than a printer.
pub(super) fn moves_cursor() -> bool {
    std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Whether colours are unwanted; <https://no-color.org>: set and not empty.
pub(super) fn no_color(common: &Common) -> bool {
    common.no_color || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// The runtime of a command.
pub(super) fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

fn style(common: &Common) -> Style {
    let (out, talk) = (io::stdout().is_terminal(), io::stderr().is_terminal());
    Style {
        quiet: common.quiet,
        verbose: common.verbose,
        colour: talk && !no_color(common),
        one_place: (out && talk) || one_file(io::stdout(), io::stderr()),
    }
}

/// Whether two descriptors are of the same file: `2>&1`, into a pipe or a log.
fn one_file(a: impl AsFd, b: impl AsFd) -> bool {
    let file = |fd: &dyn AsFd| {
        let copy = File::from(fd.as_fd().try_clone_to_owned().ok()?);
        let meta = copy.metadata().ok()?;
        Some((meta.dev(), meta.ino()))
    };
    file(&a).is_some_and(|a| file(&b) == Some(a))
}

static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Keeps the message of a panic for the summary instead of printing it.
pub fn catch_panics() {
    std::panic::set_hook(Box::new(|info| {
        let what = info
            .payload()
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| info.payload().downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        let place = info
            .location()
            .map(|l| format!(" at {}:{}", l.file(), l.line()))
            .unwrap_or_default();
        let mut kept = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        // The first is the cause.
        kept.get_or_insert_with(|| format!("{what}{place}"));
    }));
}

/// The first panic's message.
fn panic_message() -> Option<String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A panic on any thread as the failure that it is.
pub(super) fn panicked() -> Option<Failure> {
    panic_message().as_deref().map(internal)
}

fn internal(message: &str) -> Failure {
    Failure::internal(format!(
        "internal error: {message}; this is a fault of windlass, please report it"
    ))
}

/// Runs work in which a panic becomes a failure. What the work held is dropped on the way.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let said = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned());
        internal(&panic_message().or(said).unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_takes_both_streams_is_one_file() {
        let (log, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let (end, pipe) = io::pipe().unwrap();
        assert!(one_file(&log, log.try_clone().unwrap()));
        assert!(one_file(&pipe, pipe.try_clone().unwrap()));
        assert!(!one_file(&log, &other));
        assert!(!one_file(&log, &pipe));
        drop(end);
    }

    #[test]
    fn a_panic_becomes_an_internal_failure_with_exit_status_70() {
        let failure = guarded(|| panic!("the sky fell")).unwrap_err();
        assert!(failure.message.contains("the sky fell"), "{failure}");
        assert_eq!(failure.kind.exit().code(), 70);
        assert_eq!(guarded(|| 5), Ok(5));
    }
}
