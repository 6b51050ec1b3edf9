//! `windlass demo`: from arguments to a run of the core's demo, and its summary.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Map;

use super::arguments::{Common, DemoArguments};
use super::run::{Run, guarded};
use super::signals;
use crate::deploy::demo::{self, ModelFile, Options, Outcome, PROMPT};
use crate::event::{Emitter, Event, Exit, Failure, FailureKind, Level, Scope};
use crate::figures::size;
use crate::model::{self, FetchOptions, ModelRef, Progress};
use crate::paths::Paths;

/// How long work that cannot be interrupted (a download, a piece being cut) may go on at the end.
const LAST_WORK: Duration = Duration::from_millis(200);

/// Runs the demo.
pub fn demo(common: &Common, arguments: &DemoArguments) -> Exit {
    let mut run = Run::start(common, "demo");
    let refused =
        |run: Run, kind, message: String| run.finish(Map::new(), Some(Failure::new(kind, message)));
    if let Some(flag) = does_not_apply(common) {
        let message = format!(
            "{flag} does not apply to the demo, which starts its own workers on this machine and nothing else"
        );
        return refused(run, FailureKind::Usage, message);
    }
    let paths = match Paths::of_user() {
        Ok(paths) => paths,
        Err(error) => return refused(run, FailureKind::Config, error.to_string()),
    };
    run.keep_journal(common, &paths);
    let options = Options {
        workers: arguments.workers,
        tokens: arguments.tokens,
        prompt: PROMPT.to_owned(),
        worker: arguments
            .worker
            .clone()
            .or_else(|| std::env::var_os("WINDLASS_WORKER").map(PathBuf::from)),
        paths,
        deployment: format!("demo-{}", run.id()),
    };
    let emitter = run.emitter();
    emitter.emit(
        Scope::run(),
        Event::RunStarted {
            command: "demo".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            hosts: (0..options.workers).map(demo::host_name).collect(),
        },
    );
    let reference = match arguments.model.parse::<ModelRef>() {
        Ok(reference) => reference,
        Err(error) => return refused(run, FailureKind::Usage, error.to_string()),
    };
    let fetching = FetchOptions::from_env();
    if let Some(token) = &fetching.token {
        emitter.masks().add(token.expose());
    }
    let fetch = fetch(reference, fetching, emitter.clone());
    let Some(mut inbox) = run.take_inbox() else {
        return refused(run, FailureKind::Internal, "the run has no inbox".into());
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return refused(run, FailureKind::Internal, error.to_string()),
    };
    let commands = run.commands();
    let result = guarded(|| {
        runtime.block_on(async {
            if let Err(error) = signals::follow(commands) {
                return Outcome {
                    fields: Map::new(),
                    failure: Some(Failure::internal(format!("signals: {error}"))),
                };
            }
            demo::run(&options, &emitter, &mut inbox, fetch).await
        })
    });
    runtime.shutdown_timeout(LAST_WORK);
    let outcome = result.unwrap_or_else(|failure| Outcome {
        fields: Map::new(),
        failure: Some(failure),
    });
    run.finish(outcome.fields, outcome.failure)
}

/// The first flag given that the demo cannot honour. Ignoring one would be a promise broken.
fn does_not_apply(common: &Common) -> Option<&'static str> {
    [
        (common.inventory.is_some(), "--inventory"),
        (common.limit.is_some(), "--limit"),
        (common.check, "--check"),
        (common.diff, "--diff"),
    ]
    .into_iter()
    .find_map(|(given, name)| given.then_some(name))
}

/// Provides the model a reference means, telling what happens on the way.
async fn fetch(
    reference: ModelRef,
    options: FetchOptions,
    emitter: Emitter,
) -> Result<ModelFile, Failure> {
    let found = model::fetch(&reference, &options, &mut |step| tell(&emitter, step))
        .await
        .map_err(|error| Failure::new(FailureKind::Model, error.to_string()).at("model"))?;
    Ok(ModelFile {
        path: found.path,
        sha256: found.sha256,
        name: found.name,
        source: found.source.name().to_owned(),
        license: found.license,
    })
}

/// One step of a fetch as an event.
fn tell(emitter: &Emitter, step: Progress) {
    let (level, message) = match step {
        Progress::Bytes { done, total } => {
            emitter.emit(
                Scope::run().in_task("model"),
                Event::Transfer {
                    what: "download".into(),
                    done,
                    total: Some(total),
                },
            );
            return;
        }
        Progress::Resolving { what } => (Level::Info, format!("looking up {what}")),
        Progress::Trying { source, what } => (Level::Info, format!("asking the {source}: {what}")),
        Progress::Failed { source, reason } => (
            Level::Warn,
            format!("the {source} did not serve it: {reason}"),
        ),
        Progress::Waiting { lock } => (
            Level::Info,
            format!("another process fetches it; waiting for {}", lock.display()),
        ),
        Progress::Retrying {
            attempt,
            of,
            reason,
        } => (
            Level::Warn,
            format!("try {attempt} of {of} after: {reason}"),
        ),
        Progress::Verifying { bytes } => (
            Level::Debug,
            format!("checking the digest of {}", size(bytes)),
        ),
        Progress::Done { source, path } => (
            Level::Debug,
            format!("from the {source}: {}", path.display()),
        ),
    };
    emitter.emit(Scope::run().in_task("model"), Event::log(level, message));
}
