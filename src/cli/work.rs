//! The frame of commands that reach hosts: journal, signals, questions, the runtime, and the
//! summary at the end. Must not know what the command does.

use std::future::Future;
use std::io::{self, IsTerminal};
use std::ops::Deref;
use std::time::Duration;

use serde_json::{Map, Value};

use super::arguments::Common;
use super::run::{Run, guarded, runtime};
use super::signals;
use crate::deploy::remote::context::Context;
use crate::deploy::remote::hosts;
use crate::event::{Asker, Command, Event, Exit, Failure, FailureKind, Level, Packed, Scope, Stop};
use crate::paths::Paths;

/// How long work that cannot be interrupted (a file being read) may go on at the end.
const LAST_WORK: Duration = Duration::from_millis(500);

/// What a command works with: the context of its run, and the flags.
pub struct Work {
    /// What the core is given.
    pub context: Context,
    /// The flags of every command.
    pub common: Common,
}

impl Deref for Work {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

/// What came of a command: the summary's own fields, a text for people on stdout (left out with
/// `--json`), and why it failed.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Fields of the summary.
    pub fields: Map<String, Value>,
    /// Those of them that are wide.
    pub packed: Packed,
    /// Text for people.
    pub text: String,
    /// Why it failed.
    pub failure: Option<Failure>,
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        Self {
            failure: Some(failure),
            ..Self::default()
        }
    }
}

/// Runs a command. `hosts` names what it is about, when that is known beforehand. The work is
/// dropped in the middle when the run is interrupted: whatever must be cleaned up does so when it
/// is dropped.
pub fn perform<F, Fut>(common: &Common, command: &str, hosts: Vec<String>, work: F) -> Exit
where
    F: FnOnce(Work) -> Fut,
    Fut: Future<Output = Outcome>,
{
    let about = About {
        hosts,
        ..About::default()
    };
    begin(
        common,
        command,
        false,
        |_| Ok(((), about)),
        |frame, ()| work(frame),
    )
}

/// Like [`perform`], for a command about hosts of the inventory: those that the limit and `further` pick
/// are told as soon as it begins, as far as that can be known.
pub fn perform_on<F, Fut>(common: &Common, command: &str, further: Option<&str>, work: F) -> Exit
where
    F: FnOnce(Work) -> Fut,
    Fut: Future<Output = Outcome>,
{
    let prepare = |context: &Context| {
        let about = About {
            hosts: hosts::names(context, further),
            ..About::default()
        };
        Ok(((), about))
    };
    begin(common, command, false, prepare, |frame, ()| work(frame))
}

/// What a command is about, when that is known before it begins.
#[derive(Debug, Default)]
pub struct About {
    /// Hosts.
    pub hosts: Vec<String>,
    /// Tasks, in their order.
    pub tasks: Vec<String>,
    /// Fields of the summary of a run that is cut off.
    pub cut: Map<String, Value>,
}

/// Like [`perform`], for work that is decided before it begins, and that heeds [`Context::stop`]:
/// the first interrupt only asks it to stop after what it is doing now, the second ends it.
pub fn perform_prepared<P, F, Fut>(
    common: &Common,
    command: &str,
    prepare: impl FnOnce(&Context) -> Result<(P, About), Failure>,
    work: F,
) -> Exit
where
    F: FnOnce(Work, P) -> Fut,
    Fut: Future<Output = Outcome>,
{
    begin(common, command, true, prepare, work)
}

fn begin<P, F, Fut>(
    common: &Common,
    command: &str,
    gently: bool,
    prepare: impl FnOnce(&Context) -> Result<(P, About), Failure>,
    work: F,
) -> Exit
where
    F: FnOnce(Work, P) -> Fut,
    Fut: Future<Output = Outcome>,
{
    let mut run = Run::start(common, command);
    let refuse = |run: Run, failure: Failure| run.finish(Map::new(), Some(failure));
    let paths = match Paths::of_user() {
        Ok(paths) => paths,
        Err(error) => {
            return refuse(run, Failure::new(FailureKind::Config, error.to_string()));
        }
    };
    run.keep_journal(common, &paths);
    let emitter = run.emitter();
    let interactive =
        !common.no_input && !common.json && io::stdin().is_terminal() && io::stderr().is_terminal();
    let asker = Asker::new(emitter.clone(), interactive, common.yes);
    if interactive && let Err(error) = run.prompt() {
        return refuse(run, Failure::internal(format!("no thread to ask: {error}")));
    }
    let stop = Stop::default();
    let context = Context {
        emitter: emitter.clone(),
        asker: asker.clone(),
        paths,
        run: run.id().to_owned(),
        inventory: common.inventory.clone(),
        limit: common.limit.clone(),
        accept_new_host_keys: common.accept_new_host_keys,
        check: common.check,
        stop: stop.clone(),
    };
    let prepared = guarded(|| prepare(&context));
    let (prepared, about) = match prepared.and_then(|prepared| prepared) {
        Ok((prepared, about)) => (Ok(prepared), about),
        Err(failure) => (Err(failure), About::default()),
    };
    emitter.emit(
        Scope::run(),
        Event::RunStarted {
            command: command.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            hosts: about.hosts,
            tasks: about.tasks,
            check: common.check,
        },
    );
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => return refuse(run, failure),
    };
    let Some(mut inbox) = run.take_inbox() else {
        return refuse(run, Failure::internal("the run has no inbox"));
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(run, Failure::internal(error.to_string())),
    };
    let commands = run.commands();
    let context = Work {
        context,
        common: common.clone(),
    };
    let result = guarded(|| {
        runtime.block_on(async {
            if let Err(error) = signals::follow(commands) {
                return Failure::internal(format!("signals: {error}")).into();
            }
            let ordered = async {
                loop {
                    match inbox.recv().await {
                        Some(Command::Answer { id, answer }) => asker.answer(&id, answer),
                        Some(Command::NoAnswer { id }) => asker.unanswered(&id),
                        Some(Command::Interrupt) if gently && stop.ask() => emitter.log(
                            Level::Warn,
                            "the run ends after what it is doing now; interrupt again to end it at once",
                        ),
                        Some(Command::Interrupt) => {
                            return Failure::new(FailureKind::Interrupted, "interrupted");
                        }
                        Some(Command::Terminate) => {
                            return Failure::new(FailureKind::Terminated, "terminated");
                        }
                        Some(Command::OutputLost { reason }) => {
                            asker.nobody();
                            return Failure::new(
                                FailureKind::Io,
                                format!("nobody can read what this run says: {reason}"),
                            );
                        }
                        None => std::future::pending().await,
                    }
                }
            };
            tokio::select! {
                outcome = work(context, prepared) => outcome,
                failure = ordered => Outcome {
                    fields: about.cut,
                    failure: Some(failure),
                    ..Outcome::default()
                },
            }
        })
    });
    runtime.shutdown_timeout(LAST_WORK);
    let outcome = result.unwrap_or_else(Outcome::from);
    run.pack(outcome.packed);
    run.conclude(outcome.fields, &outcome.text, outcome.failure)
}
