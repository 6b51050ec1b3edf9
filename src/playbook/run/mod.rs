//! The runner: task by task, over all hosts of a task at once. A host on which a task fails leaves
//! the run; the others go on. Emits events; must not know how they are shown.

mod attempt;
mod report;
mod task;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::choice::{self, Pick};
use super::kinds::Reached;
use super::load::{self, LoadError};
use super::model::Playbook;
use super::progress::{self, Finished, Header, Progress};
use super::results::Results;
use super::undefined;
use crate::deploy::remote::context::Context;
use crate::deploy::remote::hosts;
use crate::event::mask::MASK;
use crate::event::{Failure, FailureKind, Level};
use crate::inventory::{Host, Inventory};
pub use report::resume_command;

use report::Report;

/// How a playbook is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Values that replace the playbook's own, as typed: name, value.
    pub vars: Vec<(String, String)>,
    /// Only tasks with one of these tags; all when empty.
    pub tags: Vec<String>,
    /// No tasks with one of these tags.
    pub skip_tags: Vec<String>,
    /// Name of the first task to run.
    pub start_at: Option<String>,
    /// Whether changes of texts are told in full.
    pub diff: bool,
    /// Programs of the worker to choose from, before the one beside this program.
    pub workers: Vec<PathBuf>,
}

/// A run that is decided and has reached nothing yet.
#[derive(Debug)]
pub struct Prepared {
    playbook: Playbook,
    inventory: Inventory,
    options: Options,
    limit: Option<String>,
    check: bool,
    /// Values of every scope.
    values: Vec<Value>,
    /// Indices of the tasks, with the names of their hosts.
    chosen: Vec<(usize, Vec<String>)>,
    hosts: Vec<Host>,
    /// The run this one goes on from: its id, the first one's id, and what it finished.
    earlier: Option<(String, String, Finished)>,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Fields of the summary: `playbook`, `tasks`, `results`, `failures`, `bench` and `resume`.
    pub fields: Map<String, Value>,
    /// Why it failed.
    pub failure: Option<Failure>,
}

/// Decides which tasks and hosts a run is about. Reads the inventory and connects nowhere.
///
/// # Errors
/// When a value, tag, task or host that was named is none.
pub fn prepare(
    context: &Context,
    playbook: Playbook,
    options: Options,
) -> Result<Prepared, Failure> {
    let inventory = hosts::inventory(context)?;
    let values = choice::values(&playbook, &options.vars)?;
    let pick = Pick {
        tags: &options.tags,
        skip_tags: &options.skip_tags,
        start_at: options.start_at.as_deref(),
    };
    let limit = match &context.limit {
        Some(limit) => Some(selected(&inventory, limit)?),
        None => None,
    };
    let mut chosen = Vec::new();
    for index in choice::choose(&playbook.tasks, &pick)? {
        let Some(task) = playbook.tasks.get(index) else {
            continue;
        };
        let mut names = Map::new();
        names.insert(
            "vars".into(),
            values.get(task.scope).cloned().unwrap_or_default(),
        );
        let at_task = |failure: Failure| failure.at(task.name.as_str());
        let selector = task.hosts.render(&names.into()).map_err(|error| {
            at_task(Failure::new(
                FailureKind::Config,
                format!("{}: hosts: {}", task.name, error.message),
            ))
        })?;
        let selector = selector
            .as_str()
            .map_or_else(|| selector.to_string(), str::to_owned);
        let mut hosts = selected(&inventory, &selector).map_err(|mut failure| {
            if failure.kind == FailureKind::Usage && task.hosts.literal().is_none() {
                failure
                    .message
                    .push_str("; it is made of values: set them with --var NAME=VALUE");
            }
            at_task(failure)
        })?;
        if let Some(limit) = &limit {
            hosts.retain(|host| limit.contains(host));
        }
        chosen.push((index, hosts));
    }
    let faults = undefined::faults(&playbook, &values, &inventory, &chosen);
    if !faults.is_empty() {
        return Err(LoadError::Faults(faults).failure());
    }
    let hosts: Vec<Host> = inventory
        .hosts
        .iter()
        .filter(|host| chosen.iter().any(|(_, names)| names.contains(&host.name)))
        .cloned()
        .collect();
    if hosts.is_empty() {
        return Err(Failure::new(
            FailureKind::Nothing,
            "no task has a host: the inventory, `hosts` of the tasks and --limit leave none",
        )
        .at("playbook"));
    }
    Ok(Prepared {
        playbook,
        inventory,
        options,
        limit: context.limit.clone(),
        check: context.check,
        values,
        chosen,
        hosts,
        earlier: None,
    })
}

fn selected(inventory: &Inventory, selector: &str) -> Result<Vec<String>, Failure> {
    let hosts = inventory
        .select(selector)
        .map_err(|error| error.failure())?;
    Ok(hosts.into_iter().map(|host| host.name.clone()).collect())
}

/// The same for a run that was left unfinished: `id` is its id, or that of one it went on from. What
/// it was about (values, tags, inventory, limit) is taken from it and not from `options`.
///
/// # Errors
/// When nothing is kept of it, it is finished, or its playbook was changed since.
pub fn resume(context: &Context, id: &str, options: Options) -> Result<Prepared, Failure> {
    let usage = |message: String| Failure::new(FailureKind::Usage, message).at("resume");
    if context.check {
        return Err(usage(
            "--check and --resume do not go together: what is unfinished cannot be tried beforehand"
                .into(),
        ));
    }
    let found = progress::find(&context.paths, id)?;
    let header = found.header;
    let playbook = load::load(&header.playbook).map_err(|error| error.failure())?;
    if playbook.digest != header.digest {
        return Err(usage(format!(
            "the playbook {} or a file it includes was changed since run {}: begin a new run with `windlass playbook run {}`",
            header.playbook, header.run, header.playbook
        )));
    }
    if let Some((name, _)) = header.vars.iter().find(|(_, text)| text.contains(MASK)) {
        return Err(usage(format!(
            "the value of --var {name} is a secret and was not kept: begin a new run with `windlass playbook run {} --var {name}=…`",
            header.playbook
        )));
    }
    let context = Context {
        inventory: Some(header.inventory),
        limit: header.limit,
        ..context.clone()
    };
    let options = Options {
        vars: header.vars,
        tags: header.tags,
        skip_tags: header.skip_tags,
        start_at: header.start_at,
        ..options
    };
    let mut prepared = prepare(&context, playbook, options)?;
    prepared.earlier = Some((header.run, header.origin, found.finished));
    Ok(prepared)
}

impl Prepared {
    /// The playbook.
    pub fn playbook(&self) -> &Playbook {
        &self.playbook
    }

    /// Names of the tasks that will run, in their order.
    pub fn tasks(&self) -> Vec<String> {
        self.chosen
            .iter()
            .filter_map(|(index, _)| Some(self.playbook.tasks.get(*index)?.name.clone()))
            .collect()
    }

    /// Names of the hosts the run is about, in the inventory's order.
    pub fn hosts(&self) -> Vec<String> {
        self.hosts.iter().map(|host| host.name.clone()).collect()
    }

    /// Runs it. Dropping the future ends it at once; what was finished by then is kept.
    pub async fn run(self, context: &Context) -> Outcome {
        let mut runner = match Runner::begin(&self, context) {
            Ok(runner) => runner,
            Err(failure) => return failure.into(),
        };
        if let Err(failure) = runner.connect().await {
            return runner.outcome(Some(failure)).await;
        }
        let mut ended = None;
        for (index, names) in &self.chosen {
            if runner.is_stopped() {
                ended = Some(runner.interrupted(*index));
                break;
            }
            if let Err(failure) = runner.task(*index, names).await {
                ended = Some(failure);
                break;
            }
            if runner.reached.is_empty() {
                break;
            }
        }
        // Stopped while the last task ran: nothing was left to be begun.
        runner.outcome(ended).await
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        Self {
            failure: Some(failure),
            ..Self::default()
        }
    }
}

/// A run that is going on.
struct Runner<'a> {
    prepared: &'a Prepared,
    context: &'a Context,
    /// Id of the first of the runs that went on from one another.
    origin: String,
    /// Hosts that take part, in the inventory's order.
    reached: Vec<Reached>,
    /// Why hosts left, in the order in which they did; with the task.
    left: Vec<(String, Option<String>, Failure)>,
    results: Results,
    progress: Option<Progress>,
    finished: Finished,
    report: Report,
}

impl<'a> Runner<'a> {
    fn begin(prepared: &'a Prepared, context: &'a Context) -> Result<Self, Failure> {
        let (earlier, origin, finished) = match &prepared.earlier {
            Some((run, origin, finished)) => (Some(run.as_str()), origin.clone(), finished.clone()),
            None => (None, context.run.clone(), Finished::default()),
        };
        let mut runner = Self {
            prepared,
            context,
            origin,
            reached: Vec::new(),
            left: Vec::new(),
            results: Results::new(),
            progress: None,
            finished,
            report: Report::default(),
        };
        if !prepared.check {
            let header = runner.header();
            let begun = Progress::begin(
                &context.paths,
                &header,
                &runner.finished,
                earlier,
                context.emitter.masks(),
            );
            match begun {
                Ok(progress) => runner.progress = Some(progress),
                Err(error) => context.emitter.log(
                    Level::Warn,
                    format!(
                        "what this run finishes is kept nowhere, so it cannot be resumed: {error}"
                    ),
                ),
            }
        }
        Ok(runner)
    }

    fn header(&self) -> Header {
        let options = &self.prepared.options;
        let inventory = &self.prepared.inventory.path;
        Header {
            v: Header::FORM,
            run: self.context.run.clone(),
            origin: self.origin.clone(),
            playbook: self.prepared.playbook.source.clone(),
            digest: self.prepared.playbook.digest.clone(),
            inventory: std::fs::canonicalize(inventory).unwrap_or_else(|_| inventory.clone()),
            limit: self.prepared.limit.clone(),
            vars: options.vars.clone(),
            tags: options.tags.clone(),
            skip_tags: options.skip_tags.clone(),
            start_at: options.start_at.clone(),
        }
    }

    fn is_stopped(&self) -> bool {
        self.context.stop.asked()
    }

    /// Connects to all hosts, once for the whole run.
    async fn connect(&mut self) -> Result<(), Failure> {
        let prepared = self.prepared;
        let sessions = hosts::connect(self.context, &prepared.inventory, &prepared.hosts).await?;
        for (host, session) in sessions {
            match session {
                Ok(session) => self.reached.push(Reached {
                    host,
                    session,
                    facts: None,
                }),
                Err(failure) => self.left.push((host.name, None, failure)),
            }
        }
        Ok(())
    }

    fn interrupted(&self, next: usize) -> Failure {
        let name = self
            .prepared
            .playbook
            .tasks
            .get(next)
            .map_or("the end", |task| task.name.as_str());
        Failure::new(
            FailureKind::Interrupted,
            format!("stopped before {name}, as asked; what was begun is finished"),
        )
    }

    /// How many tasks are not finished on how many of their hosts, by task.
    fn open(&self) -> BTreeMap<usize, usize> {
        self.prepared
            .chosen
            .iter()
            .filter_map(|(index, names)| {
                let done = self.finished.hosts.get(index);
                let open = names
                    .iter()
                    .filter(|name| !done.is_some_and(|done| done.contains_key(*name)))
                    .count();
                (open > 0).then_some((*index, open))
            })
            .collect()
    }
}
