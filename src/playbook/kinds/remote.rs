//! What several kinds do on a host: short scripts, bytes into a file. Must not know kinds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::work::{Reached, Work};
use crate::event::{Failure, FailureKind};
use crate::ssh::{Caps, Ending, Output, SshError, quote};

/// What a short look or change may take.
pub const SHORT: Caps = Caps {
    stdout: 256 << 10,
    stderr: 64 << 10,
    time: Duration::from_secs(60),
};
/// What a command of the user's may take; a task's `timeout` says less.
pub const LONG: Caps = Caps {
    stdout: 4 << 20,
    stderr: 1 << 20,
    time: Duration::from_secs(24 * 3_600),
};
/// Longest file of this machine that is sent, in bytes.
pub const LONGEST: u64 = 64 << 20;

/// Runs a script as the login user or as root.
///
/// # Errors
/// When it could not be run to its end. A script that fails is no error.
pub async fn run(
    work: &Work<'_>,
    host: &Reached,
    root: bool,
    script: &str,
    caps: Caps,
) -> Result<Output, Failure> {
    host.session
        .run_as(root, work.task, script, caps)
        .await
        .map_err(|error| work.ssh(host.name(), &error))
}

/// Runs the user's own script, which ends with the task: also when that is cut off, and at its timeout.
///
/// # Errors
/// When it could not be run to its end. A script that fails is no error.
pub async fn run_bound(
    work: &Work<'_>,
    host: &Reached,
    root: bool,
    script: &str,
) -> Result<Output, Failure> {
    let time = work.timeout.map_or(LONG.time, |limit| limit.min(LONG.time));
    let caps = Caps { time, ..LONG };
    let run = host.session.run_bound(root, work.task, script, caps);
    run.await.map_err(|error| match (&error, work.timeout) {
        (SshError::TooLong { .. }, Some(limit)) => {
            let said = work.too_long(limit);
            work.failed(host.name(), format!("{said} and was ended"))
        }
        _ => work.ssh(host.name(), &error),
    })
}

/// Runs a short script that must end well; what it said.
///
/// # Errors
/// Also when it fails, with its last words.
pub async fn must(
    work: &Work<'_>,
    host: &Reached,
    root: bool,
    script: &str,
    what: &str,
) -> Result<String, Failure> {
    let output = run(work, host, root, script, SHORT).await?;
    if output.ok() {
        return Ok(output.text());
    }
    Err(work.failed(host.name(), format!("{what} {}", ended(&output))))
}

/// How a program ended badly, with its last words.
pub fn ended(output: &Output) -> String {
    let how = match &output.ending {
        Ending::Status(status) => format!("ended with status {status}"),
        Ending::Signal(signal) => format!("was ended by SIG{signal}"),
        Ending::Unknown => "ended without saying how".to_owned(),
    };
    let words = output.last_words();
    if words.is_empty() {
        how
    } else {
        format!("{how}: {words}")
    }
}

/// Sends bytes to the program that a script ends in (`exec cat > …`); what it says on stdout.
///
/// # Errors
/// When they were not taken.
pub async fn send(
    work: &Work<'_>,
    host: &Reached,
    root: bool,
    script: &str,
    bytes: &[u8],
) -> Result<String, Failure> {
    let mut stream = host
        .session
        .open(work.task, script, root)
        .await
        .map_err(|error| work.ssh(host.name(), &error))?;
    let written = async {
        stream.stdin.write_all(bytes).await?;
        stream.stdin.shutdown().await
    }
    .await;
    let mut said = Vec::new();
    let _ = (&mut stream.stdout)
        .take(64 << 10)
        .read_to_end(&mut said)
        .await;
    let (ending, stderr) = stream.ended.await.unwrap_or((Ending::Unknown, Vec::new()));
    let words = String::from_utf8_lossy(&stderr).trim().to_owned();
    match (&ending, written) {
        (Ending::Status(0), Ok(())) => Ok(String::from_utf8_lossy(&said).into_owned()),
        (_, written) => {
            let why = if words.is_empty() {
                written
                    .err()
                    .map_or_else(|| format!("{ending:?}"), |error| error.to_string())
            } else {
                words
            };
            Err(work.failed(host.name(), format!("could not be written there: {why}")))
        }
    }
}

/// Puts bytes into a new file of the host that only its owner can read and run; the file.
///
/// # Errors
/// When it cannot be made.
pub async fn temporary(
    work: &Work<'_>,
    host: &Reached,
    root: bool,
    bytes: &[u8],
) -> Result<String, Failure> {
    let path = must(
        work,
        host,
        root,
        "umask 077\nmktemp \"${TMPDIR:-/tmp}/windlass.XXXXXX\"\n",
        "mktemp",
    )
    .await?
    .trim()
    .to_owned();
    let script = format!("exec cat >{}", quote(&path));
    if let Err(failure) = send(work, host, root, &script, bytes).await {
        remove(work, host, root, &path).await;
        return Err(failure);
    }
    Ok(path)
}

/// Removes a file of ours; that it could not be is no failure of the task.
pub async fn remove(work: &Work<'_>, host: &Reached, root: bool, path: &str) {
    let _ = run(work, host, root, &format!("rm -f {}\n", quote(path)), SHORT).await;
}

/// A file of this machine that a task names, relative to its playbook's folder.
///
/// # Errors
/// When it cannot be read or is too long.
pub async fn local(work: &Work<'_>, name: &str) -> Result<Vec<u8>, Failure> {
    let path = match work.folder {
        Some(folder) => folder.join(name),
        None => PathBuf::from(name),
    };
    read(&path).await.map_err(|reason| {
        Failure::new(
            FailureKind::Io,
            format!("the file {} cannot be read: {reason}", path.display()),
        )
        .at(work.task)
    })
}

async fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = tokio::fs::File::open(path)
        .await
        .map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .await
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LONGEST {
        return Err(format!(
            "it is longer than {}",
            crate::figures::size(LONGEST)
        ));
    }
    Ok(bytes)
}
