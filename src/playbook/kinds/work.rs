//! What a task is done with, and what comes of it. Must not know playbooks as texts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use super::argument::Given;
use crate::deploy::remote::context::Context;
use crate::event::{Emitter, Event, Failure, FailureKind, Scope, Status, Stream};
use crate::facts::Facts;
use crate::inventory::{Host, Inventory};
use crate::playbook::expression::{Condition, ExpressionError};
use crate::ssh::{Session, SshError};

/// A host that was reached.
#[derive(Clone, Debug)]
pub struct Reached {
    /// As the inventory has it.
    pub host: Host,
    /// The session; one for the whole run.
    pub session: Session,
    /// What was read from it last.
    pub facts: Option<Facts>,
}

impl Reached {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.host.name
    }
}

/// What a task is done with.
#[derive(Debug)]
pub struct Work<'a> {
    /// The run.
    pub context: &'a Context,
    /// The inventory.
    pub inventory: &'a Inventory,
    /// Name of the task.
    pub task: &'a str,
    /// Its hosts; one, unless its kind works on all together.
    pub hosts: &'a [Reached],
    /// Its arguments.
    pub given: Given,
    /// What its conditions may name.
    pub names: Value,
    /// Whether changes of texts are told in full.
    pub diff: bool,
    /// Whether its output is kept from readers and files.
    pub no_log: bool,
    /// Folder that its files are taken from.
    pub folder: Option<&'a Path>,
    /// Programs of the worker to choose from first.
    pub workers: &'a [PathBuf],
    /// By what the hosts know that this very task of this very run was done.
    pub mark: String,
    /// How often it was tried before in this run.
    pub tries: u32,
    /// Most time that it may take.
    pub timeout: Option<Duration>,
}

/// How a task went on one host.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// How it ended.
    pub status: Status,
    /// What came of it, for people.
    pub message: String,
    /// Values for later tasks.
    pub values: Map<String, Value>,
    /// Facts that were read anew.
    pub facts: Option<Box<Facts>>,
}

impl Done {
    /// Without values.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            values: Map::new(),
            facts: None,
        }
    }

    /// Changed, or what would be changed with `check`.
    pub fn change(check: bool, message: impl Into<String>) -> Self {
        let status = if check {
            Status::WouldChange
        } else {
            Status::Changed
        };
        Self::new(status, message)
    }

    /// With this value.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.values.insert(name.to_owned(), value.into());
        self
    }
}

/// How a task went on its hosts.
#[derive(Debug, Default)]
pub struct Acted {
    /// By host.
    pub hosts: BTreeMap<String, Result<Done, Failure>>,
    /// Values of the task as a whole.
    pub values: Map<String, Value>,
    /// A report for people.
    pub text: String,
    /// Sessions that take the place of those that hosts had, by host: what was read from these hosts is
    /// old.
    pub sessions: BTreeMap<String, Session>,
}

impl Work<'_> {
    /// The one host of a kind that works on each by itself.
    ///
    /// # Errors
    /// When there is none, a fault of windlass.
    pub fn host(&self) -> Result<&Reached, Failure> {
        self.hosts
            .first()
            .ok_or_else(|| Failure::internal(format!("{}: a task without a host", self.task)))
    }

    /// What came of the one host.
    pub fn one(&self, done: Done) -> Acted {
        of_all(self, &done)
    }

    /// A failure of a host.
    pub fn failed(&self, host: &str, message: impl std::fmt::Display) -> Failure {
        Failure::new(FailureKind::Host, format!("{host}: {message}"))
            .on(host)
            .at(self.task)
    }

    /// That it took longer than its timeout.
    pub fn too_long(&self, limit: Duration) -> String {
        format!(
            "it did not end within its timeout of {} s",
            limit.as_secs_f64()
        )
    }

    /// The session's error as such a failure.
    pub fn ssh(&self, host: &str, error: &SshError) -> Failure {
        error.failure(host).at(self.task)
    }

    /// Name of what hosts keep to take this try of this task of this very run back: letters and digits.
    pub fn record(&self) -> String {
        let number = self.mark.rsplit('/').next().unwrap_or_default();
        match self.tries {
            0 => format!("{}t{number}", self.context.run),
            tries => format!("{}t{number}r{tries}", self.context.run),
        }
    }

    /// An emitter that tells the task's parts as its steps.
    pub fn steps(&self) -> Emitter {
        self.context.emitter.within(self.task)
    }

    /// Whether conditions hold, with further names beside those of the task.
    ///
    /// # Errors
    /// When one cannot be told.
    pub fn holds(
        &self,
        condition: &Condition,
        further: &[(&str, Value)],
    ) -> Result<bool, ExpressionError> {
        let mut names = self.names.clone();
        if let Value::Object(names) = &mut names {
            for (name, value) in further {
                names.insert((*name).to_owned(), value.clone());
            }
        }
        condition.holds(&names)
    }

    /// Tells what a program on a host wrote, unless it is kept from readers.
    pub fn output(&self, host: &str, stream: Stream, text: &str) {
        if self.no_log || text.is_empty() {
            return;
        }
        self.context.emitter.emit(
            Scope::host(host).in_task(self.task),
            Event::Output {
                stream,
                text: text.to_owned(),
            },
        );
    }

    /// Tells a change, in full where that is wanted.
    pub fn change(&self, host: &str, what: &str, diff: impl FnOnce() -> String) {
        let diff = (self.diff && !self.no_log)
            .then(diff)
            .filter(|diff| !diff.is_empty());
        self.context.emitter.emit(
            Scope::host(host).in_task(self.task),
            Event::Change {
                what: what.to_owned(),
                diff,
            },
        );
    }
}

/// A failure of a task on several hosts, as that of each: of the hosts it names, or of all. On the
/// others it cannot be told how far it came.
pub fn spread(failure: &Failure, hosts: &[Reached]) -> BTreeMap<String, Result<Done, Failure>> {
    let named: Vec<&Reached> = hosts
        .iter()
        .filter(|host| {
            let prefix = format!("{}: ", host.name());
            failure.host.as_deref() == Some(host.name())
                || failure
                    .message
                    .lines()
                    .any(|line| line.starts_with(&prefix))
        })
        .collect();
    hosts
        .iter()
        .map(|host| {
            let is_named = named.iter().any(|other| other.name() == host.name());
            let verdict = match (is_named, named.first()) {
                (false, Some(first)) => Ok(Done::new(
                    Status::Unknown,
                    format!("not finished: {} failed", first.name()),
                )),
                _ => {
                    let prefix = format!("{}: ", host.name());
                    let own = failure
                        .message
                        .lines()
                        .find(|line| line.starts_with(&prefix));
                    let mut of_host = failure.clone();
                    if let Some(own) = own {
                        of_host.message = own.to_owned();
                    }
                    // What no host is named for is the whole's, and each ends with it.
                    if is_named {
                        of_host.host = Some(host.name().to_owned());
                    }
                    Err(of_host)
                }
            };
            (host.name().to_owned(), verdict)
        })
        .collect()
}

/// The same on every host of a task.
pub fn of_all(work: &Work<'_>, done: &Done) -> Acted {
    Acted {
        hosts: work
            .hosts
            .iter()
            .map(|host| (host.name().to_owned(), Ok(done.clone())))
            .collect(),
        ..Acted::default()
    }
}
