//! `windlass demo`: from arguments to a run of the core's demo, and its summary.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Map;

use super::arguments::{Common, DemoArguments};
use super::run::{Run, guarded, runtime};
use super::signals;
use crate::deploy::demo::{self, ModelFile, Options, Outcome, PROMPT};
use crate::deploy::fetch;
use crate::event::{Emitter, Event, Exit, Failure, FailureKind, Scope};
use crate::model::{FetchOptions, ModelRef};
use crate::paths::Paths;

/// How long work that cannot be interrupted (a download, a piece being cut) may go on at the end.
pub(super) const LAST_WORK: Duration = Duration::from_millis(200);

/// Runs the demo.
pub fn demo(common: &Common, arguments: &DemoArguments) -> Exit {
    let screens = super::screens::wanted(common) && !arguments.headless;
    let mut run = if screens {
        Run::unseen("demo")
    } else {
        Run::start(common, "demo")
    };
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
        stay: None,
    };
    if screens {
        return super::screens::demo(common, run, options, &arguments.model);
    }
    let emitter = run.emitter();
    emitter.emit(
        Scope::run(),
        Event::RunStarted {
            command: "demo".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            hosts: (0..options.workers).map(demo::host_name).collect(),
            tasks: Vec::new(),
            check: false,
        },
    );
    let reference = match fetch::reference(&arguments.model) {
        Ok(reference) => reference,
        Err(failure) => return refused(run, failure.kind, failure.message),
    };
    let fetching = fetch::options(&emitter);
    let fetch = provide(reference, fetching, emitter.clone());
    let Some(mut inbox) = run.take_inbox() else {
        return refused(run, FailureKind::Internal, "the run has no inbox".into());
    };
    let runtime = match runtime() {
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
pub(super) async fn provide(
    reference: ModelRef,
    options: FetchOptions,
    emitter: Emitter,
) -> Result<ModelFile, Failure> {
    let found = fetch::fetch(&reference, &options, &emitter).await?;
    Ok(ModelFile {
        path: found.path,
        sha256: found.sha256,
        name: found.name,
        source: found.source.name().to_owned(),
        license: found.license,
    })
}
