//! `windlass replay`: a journal through the reader that would have shown the run.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Map;

use super::arguments::{Common, ReplayArguments};
use super::run::{self, Run};
use super::screens;
use crate::event::{Event, Exit, Failure, FailureKind, Level, Masks};
use crate::paths::Paths;
use crate::report::replay::{JournalEvents, ReplayError};
use crate::report::{self, Show};

/// Longest pause between two events: a run may have waited a night for an answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What came of reading.
enum End {
    /// The journal's own summary was shown last.
    Told,
    /// The run was cut off before it could tell how it ended.
    CutOff,
    /// There was no event.
    Empty,
    /// Nobody reads on.
    Unread,
}

/// Shows the journal. The exit status tells whether it could be read, not how that run ended.
pub fn replay(common: &Common, arguments: &ReplayArguments) -> Exit {
    let refuse = |failure: Failure| Run::start(common, "replay").finish(Map::new(), Some(failure));
    let path = match find(&arguments.journal) {
        Ok(path) => path,
        Err(failure) => return refuse(failure),
    };
    let events = match JournalEvents::open(&path) {
        Ok(events) => events,
        Err(error) => return refuse(failure(&error)),
    };
    if arguments.screens {
        return match events.collect::<Result<Vec<_>, _>>() {
            Ok(events) => screens::replay(common, events),
            Err(error) => refuse(failure(&error)),
        };
    }
    let how = if common.json {
        Show::Json
    } else {
        run::lines(common)
    };
    match show(how, events, arguments.speed) {
        Ok(End::Told | End::Unread) => Exit::Done,
        Ok(End::CutOff) => {
            let run = Run::start(common, "replay");
            run.emitter().log(
                Level::Warn,
                format!(
                    "{}: the run was cut off; it did not tell how it ended",
                    path.display()
                ),
            );
            run.finish(Map::new(), None)
        }
        Ok(End::Empty) => refuse(
            Failure::new(
                FailureKind::Usage,
                format!(
                    "{} holds no event of a run: it is no journal",
                    path.display()
                ),
            )
            .at("replay"),
        ),
        Err(error) => refuse(failure(&error)),
    }
}

fn show(how: Show, events: JournalEvents, speed: Option<f64>) -> Result<End, ReplayError> {
    // What was secret is masked in the journal already.
    let mut reader = report::reader(how, &Masks::default());
    let mut end = End::Empty;
    let mut before = None;
    for envelope in events {
        let envelope = envelope?;
        if matches!(end, End::Empty) {
            end = End::CutOff;
        }
        if let Some(speed) = speed {
            let past = envelope.ms.saturating_sub(before.unwrap_or(envelope.ms));
            before = Some(envelope.ms);
            let pause = Duration::from_millis(past).div_f64(speed);
            std::thread::sleep(pause.min(LONGEST_PAUSE));
        }
        if reader.take(&envelope).is_err() {
            return Ok(End::Unread);
        }
        if matches!(envelope.event, Event::Summary(_)) {
            end = End::Told;
        }
    }
    Ok(end)
}

/// The journal's file: one that is there by that name, else that of a run of this user.
fn find(named: &str) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(named);
    if path.is_file() {
        return Ok(path);
    }
    let folder = Paths::of_user()
        .map_err(|error| Failure::new(FailureKind::Config, error.to_string()))?
        .journals();
    let of_run = Path::new(named)
        .components()
        .count()
        .eq(&1)
        .then(|| folder.join(format!("{named}.ndjson")))
        .filter(|path| path.is_file());
    of_run.ok_or_else(|| {
        let what = match std::fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => "is a folder, and no journal",
            Ok(_) => "is a device, and no journal",
            Err(_) => "is neither a file nor a run",
        };
        Failure::new(
            FailureKind::Usage,
            format!(
                "{named} {what}: give a journal's file, or the id of a run whose journal is in {}",
                folder.display()
            ),
        )
        .at("replay")
    })
}

fn failure(error: &ReplayError) -> Failure {
    let kind = match error {
        ReplayError::File { source, .. } if source.kind() != io::ErrorKind::NotFound => {
            FailureKind::Io
        }
        _ => FailureKind::Usage,
    };
    Failure::new(kind, error.to_string()).at("replay")
}
