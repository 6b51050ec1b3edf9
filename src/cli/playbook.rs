//! `windlass playbook`: run, check, list, show. From arguments to the core's functions.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::arguments::Common;
use super::run::Run;
use super::table::table;
use super::work::{About, Outcome, perform_prepared};
use crate::deploy::remote::context::Context;
use crate::event::{Exit, Failure, FailureKind};
use crate::inventory::Inventory;
use crate::playbook::run::resume_command;
use crate::playbook::{self, LoadError, Options, Playbook, Prepared};

/// Arguments of `playbook`.
#[derive(Args, Clone, Debug)]
pub struct PlaybookArguments {
    /// What to do
    #[command(subcommand)]
    pub verb: PlaybookVerb,
}

/// The commands under `playbook`.
#[derive(Clone, Debug, Subcommand)]
pub enum PlaybookVerb {
    /// Run the tasks of a playbook
    Run(RunArguments),
    /// Say all that is wrong with a playbook, without connecting anywhere
    Check {
        /// File, or name of a playbook that comes with windlass
        #[arg(value_name = "FILE|NAME")]
        playbook: String,
    },
    /// List the playbooks that come with windlass
    List,
    /// Show a playbook
    Show {
        /// File, or name of a playbook that comes with windlass
        #[arg(value_name = "FILE|NAME")]
        playbook: String,
    },
}

/// Arguments of `playbook run`.
#[derive(Args, Clone, Debug)]
pub struct RunArguments {
    /// File, or name of a playbook that comes with windlass
    #[arg(value_name = "FILE|NAME", required_unless_present = "resume")]
    pub playbook: Option<String>,
    /// A value in place of the playbook's own; may be repeated
    #[arg(long = "var", value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub vars: Vec<(String, String)>,
    /// Only tasks with one of these tags
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    pub tags: Vec<String>,
    /// No tasks with one of these tags
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    pub skip_tags: Vec<String>,
    /// Begin with the task of this name
    #[arg(long, value_name = "TASK")]
    pub start_at: Option<String>,
    /// Go on with a run that was left unfinished; what it was about is known from it
    #[arg(long, value_name = "RUN", conflicts_with_all = ["playbook", "vars", "tags", "skip_tags", "start_at"])]
    pub resume: Option<String>,
    /// A worker's program for hosts that the one beside windlass does not fit; may be repeated
    #[arg(long, value_name = "FILE")]
    pub worker: Vec<std::path::PathBuf>,
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| "it must be KEY=VALUE".to_owned())
}

/// Runs a command of `playbook`.
pub fn playbook(common: &Common, verb: &PlaybookVerb) -> Exit {
    match verb {
        PlaybookVerb::Run(arguments) => run(common, arguments),
        PlaybookVerb::Check { playbook } => check(common, playbook),
        PlaybookVerb::List => list(common),
        PlaybookVerb::Show { playbook } => show(common, playbook),
    }
}

fn run(common: &Common, arguments: &RunArguments) -> Exit {
    let prepare = |context: &Context| {
        let prepared = prepared(context, arguments, common.diff)?;
        let mut cut = Map::new();
        if !context.check {
            cut.insert("resume".into(), json!(resume_command(&context.run)));
        }
        let about = About {
            hosts: prepared.hosts(),
            tasks: prepared.tasks(),
            cut,
        };
        Ok((prepared, about))
    };
    perform_prepared(
        common,
        "playbook run",
        prepare,
        async |work, prepared: Prepared| {
            let outcome = prepared.run(&work).await;
            Outcome {
                fields: outcome.fields,
                failure: outcome.failure,
                ..Outcome::default()
            }
        },
    )
}

fn prepared(context: &Context, arguments: &RunArguments, diff: bool) -> Result<Prepared, Failure> {
    let options = Options {
        vars: arguments.vars.clone(),
        tags: arguments.tags.clone(),
        skip_tags: arguments.skip_tags.clone(),
        start_at: arguments.start_at.clone(),
        diff,
        workers: arguments.worker.clone(),
    };
    if let Some(id) = &arguments.resume {
        return playbook::resume(context, id, options);
    }
    let what = arguments.playbook.as_deref().unwrap_or_default();
    let loaded = playbook::load(what).map_err(|error| error.failure())?;
    playbook::prepare(context, loaded, options)
}

/// What is wrong with a playbook as fields, text and failure.
fn not_loaded(run: Run, what: &str, error: &LoadError) -> Exit {
    let mut fields = Map::new();
    fields.insert("faults".into(), error.fields());
    match error {
        LoadError::Faults(faults) => {
            let count = faults.len();
            let message = format!(
                "{what} has {count} fault{}",
                if count == 1 { "" } else { "s" }
            );
            let failure = Failure::new(FailureKind::Config, message).at("playbook");
            run.conclude(fields, &format!("{error}\n"), Some(failure))
        }
        _ => run.conclude(fields, "", Some(error.failure())),
    }
}

fn check(common: &Common, what: &str) -> Exit {
    let run = Run::start(common, "playbook check");
    let loaded = match playbook::load(what) {
        Ok(loaded) => loaded,
        Err(error) => return not_loaded(run, what, &error),
    };
    // What hosts have is known where there is an inventory; one that was named must be one.
    let inventory = crate::paths::Paths::of_user()
        .map_err(|error| Failure::new(FailureKind::Config, error.to_string()))
        .and_then(|paths| {
            Inventory::load(common.inventory.as_deref(), &paths).map_err(|error| error.failure())
        });
    match inventory {
        Ok(inventory) => {
            let faults = playbook::undefined::of_playbook(&loaded, &inventory);
            if !faults.is_empty() {
                return not_loaded(run, what, &LoadError::Faults(faults));
            }
        }
        Err(failure) if common.inventory.is_some() => {
            return run.conclude(Map::new(), "", Some(failure));
        }
        Err(_) => {}
    }
    let mut fields = Map::new();
    fields.insert("faults".into(), json!([]));
    fields.insert("playbook".into(), summary(&loaded));
    let count = loaded.tasks.len();
    let text = format!(
        "{what} is valid: {count} task{}\n",
        if count == 1 { "" } else { "s" }
    );
    run.conclude(fields, &text, None)
}

fn summary(playbook: &Playbook) -> Value {
    let tasks: Vec<Value> = playbook
        .tasks
        .iter()
        .map(|task| {
            json!({
                "name": task.name,
                "kind": task.kind.name(),
                "hosts": task.hosts.literal(),
                "tags": task.tags,
                "register": task.register,
            })
        })
        .collect();
    json!({
        "name": playbook.name,
        "about": playbook.about,
        "vars": playbook.scopes.first().map(|scope| scope.own.clone()),
        "tasks": tasks,
    })
}

fn list(common: &Common) -> Exit {
    let run = Run::start(common, "playbook list");
    let mut rows = Vec::new();
    let mut all = Vec::new();
    for shipped in playbook::shipped() {
        match playbook::load(shipped.name) {
            Ok(playbook) => {
                rows.push(vec![shipped.name.to_owned(), playbook.about.clone()]);
                all.push(summary(&playbook));
            }
            Err(error) => return not_loaded(run, shipped.name, &error),
        }
    }
    let text = table(&["NAME", "WHAT IT DOES"], &rows, &[]);
    run.data(&text, "playbooks", all.into())
}

fn show(common: &Common, what: &str) -> Exit {
    let run = Run::start(common, "playbook show");
    match playbook::load(what) {
        Ok(playbook) => {
            let mut value = summary(&playbook);
            if let Value::Object(fields) = &mut value {
                fields.insert("text".into(), playbook.text.clone().into());
            }
            run.data(&playbook.text, "playbook", value)
        }
        Err(error) => not_loaded(run, what, &error),
    }
}
