//! Runs that are started at the screens: each with its own stream of events, its journal, and an
//! end that is told as by the command line.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::apart::{Apart, apart};
use super::plays::play;
use super::{Commands, Shared, Surroundings, context, lock};
use crate::deploy::remote::context::Context;
use crate::deploy::remote::order::{self, Wish};
use crate::deploy::remote::service;
use crate::deploy::remote::up::{self, Done};
use crate::deploy::remote::{hosts, read};
use crate::event::{
    Asker, Bus, Command, Event, Exit, Failure, FailureKind, Level, Packed, Scope, Summary, bus,
};
use crate::plan::DEFAULT_CONCURRENCY;
use crate::playbook;
use crate::provision::drift::{Seen, judge};
use crate::report::journal;
use crate::tui::model::{Job, Message};

/// How often it is looked whether runs have ended.
const LOOK: Duration = Duration::from_millis(100);

/// A run in progress.
struct Running {
    id: String,
    commands: Commands,
    work: Apart,
}

/// The runs in progress.
#[derive(Default)]
pub struct Jobs(Vec<Running>);

/// Tells that a run began.
pub fn started(command: &str, hosts: Vec<String>, tasks: Vec<String>, context: &Context) {
    context.emitter.emit(
        Scope::run(),
        Event::RunStarted {
            command: command.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            hosts,
            tasks,
            check: context.check,
        },
    );
}

impl Jobs {
    /// Starts one.
    pub fn start(&mut self, shared: &Arc<Shared>, around: &Surroundings, job: Job) {
        self.0.retain(|running| !running.work.is_finished());
        let bus = Bus::new(bus::new_id());
        shared.pass(bus.subscribe());
        // Its thread ends with the stream of events.
        let _ = journal::keep(&bus, &around.paths.journals(), around.journal_text);
        let asker = Asker::new(bus.emitter(), true, false);
        lock(&shared.askers).insert(bus.run().to_owned(), asker.clone());
        let check = matches!(job, Job::Playbook { check: true, .. });
        let context = context(around, &bus, &asker, check);
        let (commands, inbox) = unbounded_channel();
        let id = bus.run().to_owned();
        let shared = Arc::clone(shared);
        let words = Arc::clone(&shared);
        let work = apart("run", move || async move {
            let command = match &job {
                Job::Playbook { .. } => "playbook run",
                Job::Up(_) => "up",
                Job::Down => "down",
                Job::Verify => "verify",
            };
            let done = perform(job, command, &context, inbox).await;
            let note = how_it_ended(command, done.1.as_ref());
            end(&bus, command, done);
            lock(&shared.askers).remove(bus.run());
            // What runs now may be another.
            let _ = shared.sender.send(Message::Note(note)).await;
        });
        match work {
            Ok(work) => self.0.push(Running { id, commands, work }),
            Err(error) => words.note(format!("no thread to run it: {error}")),
        }
    }

    /// Interrupts one.
    pub fn interrupt(&mut self, id: &str) {
        for running in self.0.iter().filter(|running| running.id == id) {
            // One that has ended needs no telling.
            let _ = running.commands.send(Command::Interrupt);
        }
    }

    /// Interrupts all.
    pub fn interrupt_all(&mut self) {
        for running in &self.0 {
            let _ = running.commands.send(Command::Interrupt);
        }
    }

    /// Whether one is in progress.
    pub fn is_working(&self) -> bool {
        self.0.iter().any(|running| !running.work.is_finished())
    }

    /// Waits a moment, in which a run may end.
    pub async fn worked(&mut self) {
        tokio::time::sleep(LOOK).await;
    }

    /// Waits until all have ended.
    pub async fn all_ended(&mut self) {
        for running in &mut self.0 {
            running.work.finished().await;
        }
    }

    /// Ends those that are left where they stand.
    pub async fn end(self) {
        for running in self.0 {
            running.work.end().await;
        }
    }
}

/// Does the work until it ends or is interrupted. A playbook is first asked to begin nothing more;
/// the second interruption cuts it off.
async fn perform(
    job: Job,
    command: &str,
    context: &Context,
    mut inbox: UnboundedReceiver<Command>,
) -> Done {
    let gently = matches!(job, Job::Playbook { .. });
    let ordered = async {
        while let Some(command) = inbox.recv().await {
            if matches!(command, Command::Interrupt | Command::Terminate) {
                if !gently || !context.stop.ask() {
                    return Failure::new(FailureKind::Interrupted, "interrupted");
                }
                context.emitter.log(
                    Level::Warn,
                    "what runs now is finished, then the run ends; once more cuts it off",
                );
            }
        }
        std::future::pending().await
    };
    let work = async {
        match job {
            Job::Playbook { name, vars, .. } => play(&name, vars, context).await,
            Job::Up(model) => {
                started(command, hosts::names(context, None), Vec::new(), context);
                bring_up(model, context).await
            }
            Job::Down => {
                started(command, hosts::names(context, None), Vec::new(), context);
                service::take_down(context, false).await
            }
            Job::Verify => {
                started(command, hosts::names(context, None), Vec::new(), context);
                verify(context).await
            }
        }
    };
    tokio::select! {
        done = work => done,
        failure = ordered => {
            let mut fields = Map::new();
            if gently && !context.check {
                fields.insert("resume".into(), playbook::resume_command(&context.run).into());
            }
            (fields, Some(failure))
        }
    }
}

async fn bring_up(model: String, context: &Context) -> Done {
    let wish = Wish {
        source: None,
        model,
        context: None,
        concurrency: DEFAULT_CONCURRENCY,
        verify: false,
        workers: Vec::new(),
    };
    match order::prepare(context, &wish).await {
        Ok((_, sites, order)) => up::up(&order, &sites, &context.emitter).await,
        Err(failure) => (Map::new(), Some(failure)),
    }
}

/// Compares the hosts with the cluster's head.
async fn verify(context: &Context) -> Done {
    let (reference, read, failures) = match read::read_all(context, None, drop).await {
        Ok(found) => found,
        Err(failure) => return (Map::new(), Some(failure)),
    };
    let seen: Vec<Seen<'_>> = read
        .iter()
        .map(|(read, ())| Seen::of(&read.host, &read.facts, &read.settings))
        .collect();
    let judged = judge(&reference, &seen);
    judged.tell(&seen, &context.emitter);
    let failure = failures.into_iter().next();
    (judged.fields(), failure.or_else(|| judged.failure()))
}

/// How a run ended, in a sentence.
fn how_it_ended(command: &str, failure: Option<&Failure>) -> String {
    match failure {
        None => format!("{command} has ended"),
        Some(failure) if failure.kind == FailureKind::Interrupted => {
            format!("{command} was interrupted")
        }
        Some(failure) if failure.kind == FailureKind::Drift => {
            format!("{command} has ended: {}", failure.message)
        }
        Some(failure) => format!("{command} FAILED: {}", failure.message),
    }
}

/// Tells how a run ended.
fn end(bus: &Bus, command: &str, (fields, failure): Done) {
    let exit = failure
        .as_ref()
        .map_or(Exit::Done, |failure| failure.kind.exit());
    bus.emitter().emit(
        Scope::run(),
        Event::Summary(Box::new(Summary {
            command: command.to_owned(),
            exit: exit.code().into(),
            seconds: bus.seconds(),
            hosts: bus.hosts(),
            error: failure,
            packed: Packed::default(),
            fields,
        })),
    );
    bus.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_run_ended_is_told_with_its_reason() {
        let failure = |kind| Failure::new(kind, "there is no inventory");
        let table = [
            (None, "up has ended"),
            (
                Some(failure(FailureKind::Config)),
                "up FAILED: there is no inventory",
            ),
            (
                Some(failure(FailureKind::Interrupted)),
                "up was interrupted",
            ),
        ];
        for (failure, wanted) in table {
            assert_eq!(how_it_ended("up", failure.as_ref()), wanted);
        }
    }
}
