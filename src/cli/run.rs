//! The frame of every command: run id, event stream, its readers, and the summary at the end.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, IsTerminal, Write};
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use serde_json::{Map, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Common;
use crate::event::{Bus, Command, Emitter, Event, Exit, Failure, Level, Scope, Summary};
use crate::paths::Paths;
use crate::report::{self, Show, journal::Journal, plain::Style};

/// A command that is running.
pub struct Run {
    command: String,
    json: bool,
    bus: Bus,
    readers: Vec<JoinHandle<()>>,
    commands: UnboundedSender<Command>,
    inbox: Option<UnboundedReceiver<Command>>,
}

impl Run {
    /// Begins a run without a journal, for commands that change and ask nothing.
    pub fn start(common: &Common, command: &str) -> Self {
        let bus = Bus::new(new_id());
        let (commands, inbox) = unbounded_channel();
        let how = if common.json {
            Show::Json
        } else {
            Show::Plain(style(common))
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
            bus,
            readers,
            commands,
            inbox: Some(inbox),
        }
    }

    /// Keeps a journal from here on. A run goes on without one, and says so.
    pub fn keep_journal(&mut self, common: &Common, paths: &Paths) {
        // Subscribed first: what is said while the file is opened belongs in it.
        let mailbox = self.bus.subscribe();
        let journal = Journal::create(
            &paths.journals(),
            self.bus.run(),
            self.bus.masks(),
            common.journal_text,
        );
        let emitter = self.emitter();
        let warn = move |reason: String| {
            emitter.log(
                Level::Warn,
                format!("this run is kept in no journal: {reason}"),
            );
        };
        let started = journal.and_then(|journal| {
            let warn = warn.clone();
            report::follow("journal", mailbox, Box::new(journal), move |command| {
                if let Command::OutputLost { reason } = command {
                    warn(reason);
                }
            })
        });
        match started {
            Ok(reader) => self.readers.push(reader),
            Err(error) => warn(error.to_string()),
        }
    }

    /// A handle for emitting events.
    pub fn emitter(&self) -> Emitter {
        self.bus.emitter()
    }

    /// Id of the run.
    pub fn id(&self) -> &str {
        self.bus.run()
    }

    /// Where commands to the run are sent.
    pub fn commands(&self) -> UnboundedSender<Command> {
        self.commands.clone()
    }

    /// Commands to the run; `None` when they were taken before.
    pub fn take_inbox(&mut self) -> Option<UnboundedReceiver<Command>> {
        self.inbox.take()
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

    /// Tells how the run ended, waits until all readers have it, and gives the exit status.
    pub fn finish(self, fields: Map<String, Value>, failure: Option<Failure>) -> Exit {
        // A panic on any thread is a fault, also when the run went on without it.
        let failure = failure.or_else(|| panic_message().as_deref().map(internal));
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

fn style(common: &Common) -> Style {
    let (out, talk) = (io::stdout().is_terminal(), io::stderr().is_terminal());
    // https://no-color.org: set and not empty.
    let no_color = common.no_color || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    Style {
        quiet: common.quiet,
        verbose: common.verbose,
        colour: talk && !no_color,
        one_terminal: out && talk,
    }
}

/// Eight random hexadecimal digits. No secret: it only has to differ from other runs of this user.
fn new_id() -> String {
    let random = RandomState::new().hash_one(std::process::id());
    format!("{:08x}", random >> 32)
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
    fn a_panic_becomes_an_internal_failure_with_exit_status_70() {
        let failure = guarded(|| panic!("the sky fell")).unwrap_err();
        assert!(failure.message.contains("the sky fell"), "{failure}");
        assert_eq!(failure.kind.exit().code(), 70);
        assert_eq!(guarded(|| 5), Ok(5));
    }

    #[test]
    fn run_ids_differ_and_are_short() {
        let ids: std::collections::HashSet<_> = (0..100).map(|_| new_id()).collect();
        assert_eq!(ids.len(), 100);
        assert!(ids.iter().all(|id| id.len() == 8));
    }
}
