//! One task of a run: on which hosts, what is finished already, and what comes of it.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use serde_json::Value;

use super::super::kinds::{Acted, Done, Reached};
use super::super::model::Task;
use super::super::progress::Kept;
use super::super::results::{Needs, Results};
use super::super::undefined;
use super::Runner;
use super::attempt::Attempt;
use super::report::of_a_task;
use crate::deploy::remote::site::status_of;
use crate::event::bus::Task as Begun;
use crate::event::{Event, Failure, FailureKind, Level, Scope, Status};
use crate::facts;

/// Hosts on which a task is done at the same time.
const AT_ONCE: usize = 32;

/// How a task ended on a host.
type Verdict = Result<Done, Failure>;

impl Runner<'_> {
    /// Does a task on those of its hosts that still take part.
    ///
    /// # Errors
    /// When the run ends with it.
    pub(super) async fn task(&mut self, index: usize, names: &[String]) -> Result<(), Failure> {
        let Some(task) = self.prepared.playbook.tasks.get(index) else {
            return Ok(());
        };
        self.report.begin(index, &task.name);
        let finished = self.take_finished(index, task, names);
        let hosts: Vec<Reached> = self
            .reached
            .iter()
            .filter(|host| names.iter().any(|name| name == host.name()))
            .filter(|host| !finished.contains(host.name()))
            .cloned()
            .collect();
        if task.kind.together() {
            self.say_who_is_missing(task, names);
            return self.together(index, task, hosts).await;
        }
        let mut failed = 0;
        let batch = task.serial.unwrap_or(hosts.len()).max(1);
        for batch in hosts.chunks(batch) {
            if self.is_stopped() {
                return Err(self.interrupted(index));
            }
            let (failures, ended) = self.each(index, task, batch).await;
            failed += failures;
            if ended < batch.len() {
                return Err(self.interrupted(index));
            }
            if let Some(most) = task.max_fail
                && failed > most
            {
                return Err(self.too_many(task, failed, most));
            }
        }
        Ok(())
    }

    /// What was finished by an earlier run is told as skipped, and its results are known. A kind
    /// that works on all hosts together is finished only on all.
    fn take_finished(&mut self, index: usize, task: &Task, names: &[String]) -> BTreeSet<String> {
        let Some(done) = self.finished.hosts.get(&index) else {
            return BTreeSet::new();
        };
        if task.kind.together() && !names.iter().all(|name| done.contains_key(name)) {
            return BTreeSet::new();
        }
        let earlier = self
            .prepared
            .earlier
            .as_ref()
            .map_or("an earlier run", |(run, ..)| run.as_str());
        let mut finished = BTreeSet::new();
        for (host, kept) in done {
            finished.insert(host.clone());
            if let Some(name) = &task.register
                && kept.status != Status::Skipped
            {
                let registered = self.results.entry(name.clone()).or_default();
                registered.hosts.insert(host.clone(), kept.clone());
            }
            if !self.reached.iter().any(|reached| reached.name() == host) {
                continue;
            }
            let message = format!("finished in run {earlier}");
            self.report.add(index, host, Status::Skipped, 0.0, &message);
            self.context.emitter.emit(
                Scope::host(host).in_task(task.name.as_str()),
                Event::TaskFinished {
                    status: Status::Skipped,
                    seconds: 0.0,
                    message: Some(message),
                },
            );
        }
        if let (Some(name), Some(whole)) = (&task.register, self.finished.whole.get(&index)) {
            let registered = self.results.entry(name.clone()).or_default();
            registered.whole.clone_from(whole);
        }
        finished
    }

    fn say_who_is_missing(&self, task: &Task, names: &[String]) {
        let missing: Vec<&str> = names
            .iter()
            .filter(|name| !self.reached.iter().any(|host| host.name() == *name))
            .map(String::as_str)
            .collect();
        if !missing.is_empty() && !self.reached.is_empty() {
            self.context.emitter.emit(
                Scope::run().in_task(task.name.as_str()),
                Event::log(
                    Level::Warn,
                    format!("goes on without {}, which left the run", missing.join(", ")),
                ),
            );
        }
    }

    fn too_many(&self, task: &Task, failed: usize, most: usize) -> Failure {
        let last = self.left.last().map(|(.., failure)| failure);
        let why = last
            .map(|failure| format!("; the last: {}", failure.message))
            .unwrap_or_default();
        Failure::new(
            last.map_or(FailureKind::Host, |failure| of_a_task(failure.kind)),
            format!(
                "{}: {failed} hosts failed, and max_fail is {most}: nothing further was begun{why}",
                task.name
            ),
        )
        .at(task.name.as_str())
    }

    /// What all expressions of a task need to see, and its values.
    fn known(&self, task: &Task) -> (Needs, Value) {
        let values = self.prepared.values.get(task.scope);
        (needs(task), values.cloned().unwrap_or_default())
    }

    /// Does a task on each of these hosts, all at once. On how many it failed, and on how many it
    /// ended: the run may be stopped meanwhile.
    async fn each(&mut self, index: usize, task: &Task, hosts: &[Reached]) -> (usize, usize) {
        let mark = self.mark(index);
        let attempt = Attempt {
            prepared: self.prepared,
            context: self.context,
            task,
            mark: &mark,
        };
        let (needs, values) = self.known(task);
        let results = std::mem::take(&mut self.results);
        let mut ended = Vec::new();
        {
            let (needs, values, results) = (&needs, &values, &results);
            let mut all = stream::iter(hosts.iter().map(|host| async move {
                if attempt.context.stop.asked() {
                    return None;
                }
                let scope = Scope::host(host.name()).in_task(task.name.as_str());
                let begun = attempt.context.emitter.task(scope, None);
                let verdict = on_host(attempt, host, needs, values, results).await;
                Some((host.name().to_owned(), begun, verdict))
            }))
            .buffer_unordered(AT_ONCE);
            while let Some(one) = all.next().await {
                if let Some((host, begun, verdict)) = one
                    && !is_interrupted(&verdict)
                {
                    self.finish(index, task, &host, begun, &verdict);
                    ended.push((host, verdict));
                }
            }
        }
        self.results = results;
        let count = ended.len();
        (self.take(task, ended), count)
    }

    /// Does a task on these hosts together.
    ///
    /// # Errors
    /// When it was cut off as asked: it is no failure of a host, and not finished on any.
    async fn together(
        &mut self,
        index: usize,
        task: &Task,
        hosts: Vec<Reached>,
    ) -> Result<(), Failure> {
        if hosts.is_empty() {
            return Ok(());
        }
        let mark = self.mark(index);
        let attempt = Attempt {
            prepared: self.prepared,
            context: self.context,
            task,
            mark: &mark,
        };
        let (needs, values) = self.known(task);
        let begun: Vec<(String, Begun)> = hosts
            .iter()
            .map(|host| {
                let scope = Scope::host(host.name()).in_task(task.name.as_str());
                (
                    host.name().to_owned(),
                    self.context.emitter.task(scope, None),
                )
            })
            .collect();
        // Conditions are asked on each host.
        let asked = join_all(hosts.iter().map(|host| {
            let (needs, values, results) = (&needs, &values, &self.results);
            async move {
                let (names, _) = names(attempt, host, needs, values, results).await?;
                when(attempt, &names)
            }
        }))
        .await;
        let mut verdicts: Vec<(String, Verdict)> = Vec::new();
        let mut takes_part = Vec::new();
        for (host, asked) in hosts.into_iter().zip(asked) {
            match asked {
                Ok(None) => takes_part.push(host),
                Ok(Some(done)) => verdicts.push((host.name().to_owned(), Ok(done))),
                Err(failure) => verdicts.push((host.name().to_owned(), Err(failure))),
            }
        }
        let mut acted = if takes_part.is_empty() {
            Acted::default()
        } else {
            let names = needs.names(&values, None, &self.results);
            whole(attempt, &takes_part, names).await
        };
        for (host, session) in std::mem::take(&mut acted.sessions) {
            if let Some(reached) = self.reached.iter_mut().find(|own| own.name() == host) {
                reached.session = session;
                reached.facts = None;
            }
        }
        for host in &takes_part {
            let verdict = acted
                .hosts
                .remove(host.name())
                .unwrap_or_else(|| Ok(Done::new(Status::Unknown, "nothing was said of this host")));
            verdicts.push((host.name().to_owned(), verdict));
        }
        if verdicts.iter().any(|(_, verdict)| is_interrupted(verdict)) {
            return Err(Failure::new(
                FailureKind::Interrupted,
                format!(
                    "stopped in {}, as asked; it begins anew when the run goes on",
                    task.name
                ),
            ));
        }
        if let Some(progress) = &mut self.progress
            && !task.no_log
            && task.register.is_some()
        {
            progress.whole(index, &acted.values);
        }
        for (host, begun) in begun {
            if let Some((_, verdict)) = verdicts.iter().find(|(name, _)| *name == host) {
                self.finish(index, task, &host, begun, verdict);
            }
        }
        if !task.no_log {
            self.report.whole(index, task.kind.name(), &acted);
        }
        if let Some(name) = &task.register {
            self.results.entry(name.clone()).or_default().whole = acted.values;
        }
        self.take(task, verdicts);
        Ok(())
    }

    /// By what hosts know this task of this run and of those it went on from.
    fn mark(&self, index: usize) -> String {
        format!("{}/{index}", self.origin)
    }

    /// Keeps that a task ended on a host, then tells it: what was told is never lost.
    fn finish(&mut self, index: usize, task: &Task, host: &str, begun: Begun, verdict: &Verdict) {
        let seconds = begun.seconds();
        let (status, message) = match verdict {
            Ok(done) => (done.status, done.message.clone()),
            Err(failure) => (status_of(failure), without_host(&failure.message, host)),
        };
        if let Ok(done) = verdict
            && done.status != Status::Unknown
        {
            let kept = Kept {
                status,
                values: if task.register.is_some() && !task.no_log {
                    done.values.clone()
                } else {
                    serde_json::Map::new()
                },
            };
            if let Some(progress) = &mut self.progress {
                progress.host(index, host, &kept);
                if let Some(reason) = progress.take_broken() {
                    self.context.emitter.log(
                        Level::Warn,
                        format!("what this run finished is no longer kept: {reason}"),
                    );
                }
            }
            let finished = self.finished.hosts.entry(index).or_default();
            finished.insert(host.to_owned(), kept);
        }
        self.report.add(index, host, status, seconds, &message);
        begun.finish(status, message);
    }

    /// Takes results and facts of hosts where it went well; the others leave. How many those are.
    fn take(&mut self, task: &Task, ended: Vec<(String, Verdict)>) -> usize {
        let mut failed = 0;
        for (host, verdict) in ended {
            match verdict {
                Ok(mut done) => {
                    if let Some(facts) = done.facts.take()
                        && let Some(reached) = self.reached.iter_mut().find(|r| r.name() == host)
                    {
                        reached.facts = Some(*facts);
                    }
                    if let Some(name) = &task.register
                        && done.status != Status::Skipped
                    {
                        let registered = self.results.entry(name.clone()).or_default();
                        registered.hosts.insert(
                            host,
                            Kept {
                                status: done.status,
                                values: done.values,
                            },
                        );
                    }
                }
                Err(failure) => {
                    failed += 1;
                    self.reached.retain(|reached| reached.name() != host);
                    self.left.push((host, Some(task.name.clone()), failure));
                }
            }
        }
        failed
    }
}

/// Whether a task was cut off as asked: it is no failure, and not finished.
fn is_interrupted(verdict: &Verdict) -> bool {
    verdict
        .as_ref()
        .is_err_and(|failure| failure.kind == FailureKind::Interrupted)
}

/// What all expressions of a task need to see.
fn needs(task: &Task) -> Needs {
    let mut names = BTreeSet::new();
    for condition in &task.when {
        names.extend(condition.names());
    }
    for (name, template) in &task.arguments {
        let form = task
            .kind
            .arguments()
            .iter()
            .find(|argument| argument.name == name)
            .map(|argument| argument.form);
        if form.is_some_and(super::super::kinds::Form::is_condition) {
            let given = super::super::kinds::Given(
                [(name.clone(), template.literal().unwrap_or_default())]
                    .into_iter()
                    .collect(),
            );
            for condition in given.conditions(name) {
                names.extend(condition.names());
            }
        } else {
            names.extend(template.names());
        }
    }
    // A template's file is not known yet; it may name anything.
    if task.kind.name() == "template" {
        names.extend(["facts".to_owned(), "results".to_owned()]);
    }
    Needs::of(&names)
}

/// What expressions see on a host, its facts read when they are needed.
async fn names(
    attempt: Attempt<'_>,
    host: &Reached,
    needs: &Needs,
    values: &Value,
    results: &Results,
) -> Result<(Value, Option<facts::Facts>), Failure> {
    let mut read = None;
    if needs.facts && host.facts.is_none() {
        let facts = facts::gather(&host.session)
            .await
            .map_err(|error| error.failure(host.name()).at(attempt.task.name.as_str()))?;
        read = Some(facts);
    }
    let facts = read.as_ref().or(host.facts.as_ref());
    let names = needs.names(values, Some((&host.host, facts)), results);
    Ok((names, read))
}

/// How a task ends on a host whose conditions do not hold or cannot be told; nothing when they hold.
fn when(attempt: Attempt<'_>, names: &Value) -> Result<Option<Done>, Failure> {
    let at = attempt.task.when_at.iter();
    for (condition, at) in attempt.task.when.iter().zip(at) {
        match condition.holds(names) {
            Ok(true) => {}
            Ok(false) => {
                let why = format!("when `{}` does not hold", condition.0.trim());
                return Ok(Some(Done::new(Status::Skipped, why)));
            }
            Err(error) => {
                let message = format!("{at}: {}", undefined::said("when", &error));
                return open(attempt, &message, error.may_come()).map(Some);
            }
        }
    }
    Ok(None)
}

/// How a task ends whose expressions have no value: in a check, what a task would have come to is missing.
fn open(attempt: Attempt<'_>, message: &str, may_come: bool) -> Result<Done, Failure> {
    if attempt.context.check && may_come {
        return Ok(Done::new(
            Status::Unknown,
            format!("{message}; in a check nothing was done that could tell"),
        ));
    }
    Err(Failure::new(FailureKind::Host, message.to_owned()).at(attempt.task.name.as_str()))
}

async fn on_host(
    attempt: Attempt<'_>,
    host: &Reached,
    needs: &Needs,
    values: &Value,
    results: &Results,
) -> Verdict {
    let of_host = |mut failure: Failure| {
        if failure.host.is_none() {
            failure.message = format!("{}: {}", host.name(), failure.message);
            failure.host = Some(host.name().to_owned());
        }
        failure
    };
    let (names, read) = names(attempt, host, needs, values, results).await?;
    if let Some(done) = when(attempt, &names).map_err(of_host)? {
        return Ok(done);
    }
    let given = match attempt.given(&names) {
        Ok(given) => given,
        Err(error) => return open(attempt, &error.message, error.may_come).map_err(of_host),
    };
    let one = [host.clone()];
    let mut acted = attempt.act(&one, given, names).await.map_err(of_host)?;
    let verdict = acted
        .hosts
        .remove(host.name())
        .unwrap_or_else(|| Err(Failure::internal("a task that ended without a word")));
    verdict.map_err(of_host).map(|mut done| {
        done.facts = done.facts.or(read.map(Box::new));
        done
    })
}

/// Does a task that works on its hosts together; what fails as a whole fails on the host it names, or
/// on all.
async fn whole(attempt: Attempt<'_>, hosts: &[Reached], names: Value) -> Acted {
    let result = match attempt.given(&names) {
        Ok(given) => attempt.act(hosts, given, names).await,
        Err(error) => open(attempt, &error.message, error.may_come).map(|done| Acted {
            hosts: hosts
                .iter()
                .map(|host| (host.name().to_owned(), Ok(done.clone())))
                .collect(),
            ..Acted::default()
        }),
    };
    match result {
        Ok(acted) => acted,
        Err(failure) => Acted {
            hosts: super::super::kinds::work::spread(&failure, hosts),
            ..Acted::default()
        },
    }
}

/// A message whose host is told beside it.
fn without_host(message: &str, host: &str) -> String {
    message
        .strip_prefix(host)
        .and_then(|rest| rest.strip_prefix(": "))
        .unwrap_or(message)
        .to_owned()
}
