//! Changes made on a host over its session, and taken back. Must not know why they are made.

use std::time::Duration;

use super::STEP;
use super::plan::Plan;
use super::script::{self, Record, VERSION};
use crate::event::{Emitter, Event, Failure, FailureKind, Scope, Stream};
use crate::provision::lock;
use crate::ssh::{Caps, Output, Session};

/// How long one line of the host's own tools may take: an initramfs for several kernels takes minutes.
const LONG: Duration = Duration::from_secs(1800);
/// How long anything of ours may take there.
const SOON: Duration = Duration::from_secs(60);
/// Most lines of a tool's output in a failure.
const LINES: usize = 12;

fn caps(time: Duration) -> Caps {
    Caps {
        stdout: 4 << 20,
        stderr: 1 << 20,
        time,
    }
}

/// A failure on a host.
pub fn failed(host: &str, what: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Host, format!("{host}: {what}"))
        .on(host)
        .at(STEP)
}

fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}

async fn must(session: &Session, what: &str, script: &str) -> Result<String, Failure> {
    let output = session
        .run_as_root(what, script, caps(SOON))
        .await
        .map_err(|error| error.failure(session.host()))?;
    match output.ok() {
        true => Ok(output.text()),
        false => Err(failed(
            session.host(),
            format!("{what}: {}", plain(&output.last_words())),
        )),
    }
}

/// The last lines of what a tool said, both sides.
fn words(output: &Output) -> String {
    let (out, err) = (output.text(), String::from_utf8_lossy(&output.stderr));
    let lines: Vec<String> = out
        .lines()
        .chain(err.lines())
        .map(plain)
        .filter(|line| !line.trim().is_empty())
        .collect();
    let from = lines.len().saturating_sub(LINES);
    lines.get(from..).unwrap_or_default().join("\n  ")
}

/// Runs a line of the host's own tools; its output goes to the run's readers.
async fn line(session: &Session, line: &str, emitter: &Emitter) -> Result<(), Failure> {
    let host = session.host();
    let script = format!("PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\nexport PATH\n{line}\n");
    let output = session
        .run_as_root(line, &script, caps(LONG))
        .await
        .map_err(|error| error.failure(host))?;
    for (stream, bytes) in [
        (Stream::Stdout, &output.stdout),
        (Stream::Stderr, &output.stderr),
    ] {
        if !bytes.is_empty() {
            let text = String::from_utf8_lossy(bytes).into_owned();
            emitter.emit(
                Scope::host(host).in_task(STEP),
                Event::Output { stream, text },
            );
        }
    }
    match output.ok() {
        true => Ok(()),
        false => Err(failed(
            host,
            format!("`{line}` failed:\n  {}", words(&output)),
        )),
    }
}

/// The record of a plan.
pub fn record(run: &str, plan: &Plan) -> Record {
    let changed = plan.change.files.iter().map(|file| file.path.clone());
    Record {
        v: VERSION,
        run: run.to_owned(),
        set: plan
            .set
            .iter()
            .map(|own| (own.name.clone(), own.value.clone()))
            .collect(),
        files: changed.chain(plan.change.keep.iter().cloned()).collect(),
        lines: plan
            .change
            .lines
            .iter()
            .map(|line| (line.line.clone(), line.undo.clone()))
            .collect(),
    }
}

/// Makes a plan's change on a host, which is held for it; nothing where all is set already.
///
/// # Errors
/// As [`lock`] and [`apply`].
pub async fn make(
    session: &Session,
    run: &str,
    holder: &str,
    plan: &Plan,
    emitter: &Emitter,
) -> Result<(), Failure> {
    if plan.change.is_empty() {
        return Ok(());
    }
    let _lock = lock::hold(session, holder).await?;
    apply(session, plan, &record(run, plan), emitter).await
}

/// Makes a change: keeps what was, writes, runs. When a step fails, all is put back.
///
/// # Errors
/// With the step that failed, and whether all was put back.
pub async fn apply(
    session: &Session,
    plan: &Plan,
    record: &Record,
    emitter: &Emitter,
) -> Result<(), Failure> {
    let texts = plan.change.files.iter().map(|file| file.after.as_str());
    let begin = script::begin(record, texts).map_err(Failure::internal)?;
    must(session, "keeping the files as they are", &begin).await?;
    let mut done = 0;
    let made = async {
        for file in &plan.change.files {
            let what = format!("writing {}", file.path);
            must(session, &what, &script::write(&file.path, &file.after)).await?;
        }
        for own in &plan.change.lines {
            done += 1;
            line(session, &own.line, emitter).await?;
        }
        must(
            session,
            "keeping the files as they are now",
            &script::remember(record),
        )
        .await
    }
    .await;
    let Err(mut failure) = made else {
        return Ok(());
    };
    let mut tried = record.clone();
    tried.lines.truncate(done);
    failure
        .message
        .push_str(match give_back(session, &tried, emitter).await {
            Ok(()) => "\nAll files were put back as they were",
            Err(Unmended::Files(_)) => {
                "\nThe files could not be put back; `windlass memory reset` tries again"
            }
            Err(Unmended::Lines(_)) => {
                "\nAll files were put back as they were; what is made from them was not made anew"
            }
        });
    Err(failure)
}

enum Unmended {
    Files(Failure),
    Lines(Failure),
}

/// Puts a run's files back and runs what takes its lines back. Those lines may write the files in
/// another way than they were, so the files are put back once more after them.
async fn give_back(session: &Session, record: &Record, emitter: &Emitter) -> Result<(), Unmended> {
    must(session, "giving files back", &script::restore(record))
        .await
        .map_err(Unmended::Files)?;
    let mut first = None;
    for (_, undo) in record.lines.iter().rev() {
        if let Err(failure) = line(session, undo, emitter).await {
            first.get_or_insert(failure);
        }
    }
    if !record.lines.is_empty() {
        must(session, "giving files back", &script::restore(record))
            .await
            .map_err(Unmended::Files)?;
    }
    // The files are as they were: there is nothing more to take back.
    must(session, "ending the record", &script::ended(&record.run))
        .await
        .map_err(Unmended::Files)?;
    first.map_or(Ok(()), |failure| Err(Unmended::Lines(failure)))
}

/// Takes a run back.
///
/// # Errors
/// When a file was changed since by someone else, and then nothing is done; or a step failed.
pub async fn take_back(
    session: &Session,
    record: &Record,
    emitter: &Emitter,
) -> Result<(), Failure> {
    let changed = must(session, "comparing files", &script::changed_since(record)).await?;
    if let Some(path) = changed.lines().next() {
        let number = record.files.iter().position(|own| own == path).unwrap_or(0);
        return Err(failed(
            session.host(),
            format!(
                "{} was changed since run {} by someone else, so it is left as it is. As it was before \
                 that run it lies in {}; what that run set: {}",
                plain(path),
                record.run,
                script::kept(&record.run, number),
                record
                    .set
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect::<Vec<_>>()
                    .join(" ")
            ),
        ));
    }
    match give_back(session, record, emitter).await {
        Ok(()) => Ok(()),
        Err(Unmended::Files(failure)) => Err(failure),
        Err(Unmended::Lines(mut failure)) => {
            failure
                .message
                .push_str("\nThe files are as they were; run that line by hand");
            Err(failure)
        }
    }
}
