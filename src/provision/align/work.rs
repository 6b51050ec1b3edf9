//! Changes made on a host over its session, and taken back. Must not know what differs, nor why.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};

use super::STEP;
use super::plan::Change;
use super::script::{self, Record, VERSION};
use crate::event::{Failure, FailureKind};
use crate::facts::{Settings, settings};
use crate::provision::boot::Ground;
use crate::provision::memory;
use crate::ssh::{Caps, Session, Stream};

/// How long a package manager may take.
const LONG: Duration = Duration::from_secs(1800);
/// How long a host may take to say whether its lock is free.
const SOON: Duration = Duration::from_secs(20);

fn caps(time: Duration) -> Caps {
    Caps {
        stdout: 8 << 20,
        stderr: 256 << 10,
        time,
    }
}

fn failed(session: &Session, step: &str, what: impl Into<String>) -> Failure {
    Failure::new(
        FailureKind::Host,
        format!("{}: {}", session.host(), what.into()),
    )
    .on(session.host())
    .at(step)
}

/// A host that is held for this run. Dropping it gives it back.
struct Lock {
    _stream: Stream,
}

/// Holds a host against other runs that change it.
async fn lock(session: &Session, holder: &str) -> Result<Lock, Failure> {
    let mut stream = session
        .open("take the lock", &script::lock(holder), true)
        .await
        .map_err(|error| error.failure(session.host()))?;
    let mut line = String::new();
    let read = async {
        let mut reader = BufReader::new(tokio::io::AsyncReadExt::take(&mut stream.stdout, 4096));
        reader.read_line(&mut line).await
    };
    let read = tokio::time::timeout(SOON, read).await;
    match (read, line.trim_end()) {
        (Ok(Ok(_)), "held") => Ok(Lock { _stream: stream }),
        (Ok(Ok(_)), "absent") => Err(failed(
            session,
            "lock",
            "there is no flock, so another run could change this host at the same time; install util-linux there",
        )),
        (Ok(Ok(_)), said) if said.starts_with("taken ") => {
            let by = said.strip_prefix("taken ").unwrap_or_default();
            let by: String = by.chars().filter(|c| !c.is_control()).collect();
            Err(failed(
                session,
                "lock",
                format!(
                    "{by} is changing this host; nothing was changed. Wait until that run ends, or end it"
                ),
            ))
        }
        _ => Err(failed(
            session,
            "lock",
            "the lock in /var/lib/windlass could not be taken",
        )),
    }
}

/// Where administration's programs are; a login's own path may lack it.
const PATHS: &str =
    "PATH=\"${PATH:-/usr/bin:/bin}:/usr/sbin:/sbin\"; LC_ALL=C; export PATH LC_ALL\n";

/// Runs a script as root that must end well.
async fn must(
    session: &Session,
    step: &str,
    script: &str,
    time: Duration,
) -> Result<String, Failure> {
    let output = session
        .run_as_root(step, &format!("{PATHS}{script}"), caps(time))
        .await
        .map_err(|error| error.failure(session.host()))?;
    if output.ok() {
        return Ok(output.text());
    }
    let words = output.last_words();
    let why = match words.is_empty() {
        true => "it ended without a word".to_owned(),
        false => words
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect(),
    };
    Err(failed(session, step, format!("{step}: {why}")))
}

/// What decides how a host's kernel parameters are set.
///
/// # Errors
/// When it cannot be read.
pub async fn ground(session: &Session) -> Result<Ground, Failure> {
    let seen = match memory::look(session, true).await {
        Ok(seen) => seen,
        // What the login may read is mostly enough.
        Err(_) => memory::look(session, false)
            .await
            .map_err(|error| error.failure(session.host()).at(STEP))?,
    };
    let unread = seen.unreadable.first().or_else(|| seen.not_text.first());
    match unread {
        Some(path) => Err(failed(
            session,
            STEP,
            format!("{path} cannot be read, so no kernel parameter is changed"),
        )),
        None => Ok(seen.ground),
    }
}

/// The record of a run's changes on a host, as it is written before the first.
pub fn recorded(run: &str, changes: &[Change], before: &Settings) -> Record {
    Record {
        v: VERSION,
        run: run.to_owned(),
        changes: changes.to_vec(),
        before: Settings {
            files: std::collections::BTreeMap::new(),
            ..before.clone()
        },
    }
}

/// Makes a run's changes on a host, which is held meanwhile. What takes them back is written down
/// before the first.
///
/// # Errors
/// With the step that failed and its last words; what was changed until then can be taken back.
pub async fn make(
    session: &Session,
    run: &str,
    holder: &str,
    changes: &[Change],
    before: &Settings,
) -> Result<(), Failure> {
    let _lock = lock(session, holder).await?;
    let script = script::begin(&recorded(run, changes, before)).map_err(Failure::internal)?;
    must(session, "keep what takes it back", &script, SOON).await?;
    for change in changes {
        must(session, &change.words(), &script::apply(change), LONG).await?;
    }
    Ok(())
}

/// What a run did on a host; `None` when it did nothing there, or was taken back.
///
/// # Errors
/// When the host cannot be asked, or its record is not understood.
pub async fn record(session: &Session, run: &str) -> Result<Option<Record>, Failure> {
    let text = must(session, "read the run's record", &script::read(run), SOON).await?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    let record = Record::parse(&text).map_err(|error| {
        let folder = script::folder(run);
        failed(session, "undo", format!("{folder}/record.json: {error}"))
    })?;
    Ok(Some(record))
}

/// Runs that can be taken back on a host, the newest first.
///
/// # Errors
/// When the host cannot be asked.
pub async fn runs(session: &Session) -> Result<Vec<String>, Failure> {
    let text = must(session, "list the runs", &script::list(), SOON).await?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Takes a run back on a host, which is held meanwhile: its changes in reverse, packages to the versions that were there before, those
/// too that came along with others. What was taken back stays so when a later step fails, and running
/// it again goes on.
///
/// # Errors
/// With the step that failed.
pub async fn undo(session: &Session, holder: &str, record: &Record) -> Result<(), Failure> {
    let _lock = lock(session, holder).await?;
    for (number, change) in record.changes.iter().enumerate().rev() {
        if let Some(script) = script::undo(&record.run, number, change) {
            must(session, "take the run back", &script, LONG).await?;
        }
    }
    // What is computed from other things is done when those are back.
    let installed = |change: &Change| matches!(change, Change::Packages { .. });
    let mut late = Vec::new();
    if record.changes.iter().any(installed) {
        let now = settings::gather(session)
            .await
            .map_err(|error| error.failure(session.host()))?;
        late.extend(packages_back(&record.before, &now));
    }
    late.extend(script::undo_late(record));
    for script in late {
        must(session, "take the run back", &script, LONG).await?;
    }
    must(
        session,
        "end the run's record",
        &script::ended(&record.run),
        SOON,
    )
    .await?;
    Ok(())
}

/// The transaction that brings packages back; `None` when all are as they were.
fn packages_back(before: &Settings, now: &Settings) -> Option<String> {
    let (before, installer) = (before.packages.as_ref()?, now.installer.as_deref()?);
    let now = now.packages.as_ref()?;
    let install = before
        .iter()
        .filter(|(name, version)| now.get(*name) != Some(version));
    let install = install
        .map(|(name, version)| (name.clone(), version.clone()))
        .collect();
    let remove = now
        .keys()
        .filter(|name| !before.contains_key(*name))
        .cloned()
        .collect();
    if std::collections::BTreeMap::is_empty(&install)
        && std::collections::BTreeSet::is_empty(&remove)
    {
        return None;
    }
    Some(script::packages(installer, &install, &remove))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_that_came_along_go_and_others_get_their_former_version() {
        let settings = |packages: &[(&str, &str)]| Settings {
            installer: Some("apt-get".into()),
            packages: Some(
                packages
                    .iter()
                    .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                    .collect(),
            ),
            ..Settings::default()
        };
        let before = settings(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let now = settings(&[("a", "1"), ("b", "2"), ("d", "1")]);
        let script = packages_back(&before, &now).unwrap();
        assert!(script.ends_with("install b=1 c=1 d-\n"), "{script}");
        assert_eq!(packages_back(&before, &before), None);
    }
}
