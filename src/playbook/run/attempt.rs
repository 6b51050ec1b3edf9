//! One task on one host, or on all of its hosts together: arguments, tries, time. Must not know what
//! was finished before.

use std::time::Duration;

use serde_json::{Map, Value};

use super::super::kinds::{Acted, Given, Reached, Work};
use super::super::model::Task;
use super::super::undefined;
use super::Prepared;
use crate::deploy::remote::context::Context;
use crate::event::{Event, Failure, FailureKind, Level, Scope, Stop};

/// How long a task that is over its time may take to end what it started.
const ENDING: Duration = Duration::from_secs(20);

/// A task with all it is done with, but for its hosts.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub prepared: &'a Prepared,
    pub context: &'a Context,
    pub task: &'a Task,
    /// By what hosts know this task of this run.
    pub mark: &'a str,
}

/// Why arguments cannot be had.
#[derive(Debug)]
pub(super) struct NoArguments {
    pub message: String,
    /// Whether they may be had once tasks before are done.
    pub may_come: bool,
}

impl Attempt<'_> {
    /// The task's arguments, rendered and fit.
    pub fn given(&self, names: &Value) -> Result<Given, NoArguments> {
        let mut given = Map::new();
        for (name, template) in &self.task.arguments {
            let Some(argument) = self
                .task
                .kind
                .arguments()
                .iter()
                .find(|argument| argument.name == name)
            else {
                continue;
            };
            if argument.form.is_condition() {
                given.insert(name.clone(), template.literal().unwrap_or_default());
                continue;
            }
            let value = template.render(names).map_err(|error| NoArguments {
                message: undefined::said(name, &error),
                may_come: error.may_come(),
            })?;
            let value = argument.form.fit(&value).map_err(|unfit| {
                let shown: String = value.to_string().chars().take(60).collect();
                NoArguments {
                    message: format!("{name} is {shown}: it must be {}", unfit.wanted),
                    may_come: false,
                }
            })?;
            given.insert(name.clone(), value);
        }
        Ok(Given(given))
    }

    /// Does it, as often as it may be tried.
    pub async fn act(
        &self,
        hosts: &[Reached],
        given: Given,
        names: Value,
    ) -> Result<Acted, Failure> {
        let scope = match hosts {
            [one] => Scope::host(one.name()),
            _ => Scope::run(),
        }
        .in_task(self.task.name.as_str());
        let mut tries = 0;
        loop {
            let work = Work {
                context: self.context,
                inventory: &self.prepared.inventory,
                task: &self.task.name,
                hosts,
                given: given.clone(),
                names: names.clone(),
                diff: self.prepared.options.diff,
                no_log: self.task.no_log,
                folder: self.task.folder.as_deref(),
                workers: &self.prepared.options.workers,
                mark: self.mark.to_owned(),
                tries,
                timeout: self.task.timeout,
            };
            let result = self.within_time(&work).await;
            let reason = match &result {
                Err(failure) => Some(failure.message.clone()),
                Ok(acted) => acted
                    .hosts
                    .values()
                    .find_map(|host| host.as_ref().err().map(|failure| failure.message.clone())),
            };
            let Some(reason) = reason else {
                return result;
            };
            if tries >= self.task.retries || self.context.stop.asked() {
                return result;
            }
            tries += 1;
            self.context.emitter.emit(
                scope.clone(),
                Event::log(
                    Level::Warn,
                    format!(
                        "try {tries} of {} failed: {reason}",
                        self.task.retries.saturating_add(1)
                    ),
                ),
            );
            if pause(self.task.delay, &self.context.stop).await {
                return result;
            }
        }
    }

    async fn within_time(&self, work: &Work<'_>) -> Result<Acted, Failure> {
        let Some(limit) = self.task.timeout else {
            return self.task.kind.act(work).await;
        };
        // One that ends what it started needs a moment for that.
        let patience = if self.task.kind.keeps_time() {
            limit.saturating_add(ENDING)
        } else {
            limit
        };
        tokio::time::timeout(patience, self.task.kind.act(work))
            .await
            .unwrap_or_else(|_| {
                let message = work.too_long(limit);
                Err(match work.hosts {
                    [one] => work.failed(one.name(), message),
                    _ => Failure::new(FailureKind::Host, message).at(work.task),
                })
            })
    }
}

/// Waits; true when the run was stopped meanwhile.
async fn pause(time: Duration, stop: &Stop) -> bool {
    tokio::select! {
        () = tokio::time::sleep(time) => stop.asked(),
        () = stop.wait() => true,
    }
}
