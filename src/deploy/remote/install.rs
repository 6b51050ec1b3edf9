//! Puts the worker's program on a host, under its own digest, and proves that it runs there. Needs
//! only `sh`, `cat` and `sha256sum` or `shasum` on the host.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::base::Base;
use super::program::Program;
use crate::event::{Emitter, Failure, FailureKind, Scope, Status};
use crate::figures::size;
use crate::ssh::{Caps, Output, Session, SshError, quote};

/// Bytes read from the program and sent at a time.
const CHUNK: usize = 256 << 10;
/// How long a short command may take.
pub(super) const SHORT: Caps = Caps {
    stdout: 64 << 10,
    stderr: 64 << 10,
    time: Duration::from_secs(30),
};

/// Whether a host has the program already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Have {
    /// It lies there with the right digest.
    Yes,
    /// It does not, or is damaged.
    No,
}

/// Runs a script as the base's user.
pub(super) async fn run(
    session: &Session,
    base: &Base,
    what: &str,
    script: &str,
) -> Result<Output, SshError> {
    session.run_as(base.root, what, script, SHORT).await
}

/// A failure on a host in a step.
pub(super) fn failed(session: &Session, step: &str, message: impl std::fmt::Display) -> Failure {
    let host = session.host();
    Failure::new(FailureKind::Host, format!("{host}: {message}"))
        .on(host)
        .at(step)
}

/// Prints a file's digest in hexadecimal, or nothing.
fn digest_script(path: &str) -> String {
    let path = quote(path);
    format!(
        "if [ -f {path} ]; then\n\
         \x20 if command -v sha256sum >/dev/null 2>&1; then sha256sum < {path}\n\
         \x20 else shasum -a 256 < {path}; fi\n\
         fi\n"
    )
}

fn digest_of(output: &Output) -> String {
    output
        .text()
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Looks whether the program is there. Writes nothing.
///
/// # Errors
/// When the host cannot be asked.
pub async fn look(session: &Session, base: &Base, program: &Program) -> Result<Have, Failure> {
    let script = digest_script(&base.program(&program.sha256));
    let output = run(session, base, "look for the worker's program", &script)
        .await
        .map_err(|error| error.failure(session.host()))?;
    Ok(if output.ok() && digest_of(&output) == program.sha256 {
        Have::Yes
    } else {
        Have::No
    })
}

/// Puts the program there unless it is, and has it say its version.
///
/// # Errors
/// When it cannot be sent, arrives damaged, or does not run.
pub async fn put(
    session: &Session,
    base: &Base,
    program: &Program,
    emitter: &Emitter,
) -> Result<(), Failure> {
    let host = session.host().to_owned();
    let task = emitter.task(Scope::host(&host).in_task("worker"), None);
    let result = match look(session, base, program).await {
        Ok(Have::Yes) => Ok(Status::Ok),
        Ok(Have::No) => send(session, base, program, emitter)
            .await
            .map(|()| Status::Changed),
        Err(failure) => Err(failure),
    };
    let result = match result {
        Ok(status) => runs(session, base, program).await.map(|()| status),
        Err(failure) => Err(failure),
    };
    match result {
        Ok(status) => {
            let done = match status {
                Status::Changed => format!("{} sent", size(program.bytes)),
                _ => "there already".to_owned(),
            };
            task.finish(status, done);
            Ok(())
        }
        Err(failure) => {
            task.finish(Status::Failed, "");
            Err(failure)
        }
    }
}

async fn send(
    session: &Session,
    base: &Base,
    program: &Program,
    emitter: &Emitter,
) -> Result<(), Failure> {
    let ssh = |error: SshError| error.failure(session.host());
    let path = base.program(&program.sha256);
    let folder = base.program_folder(&program.sha256);
    // Each sender writes a file of its own: two at once must not mix.
    let partial = format!("{path}.{}.part", std::process::id());
    let script = format!(
        "set -e\numask 077\nmkdir -p {top}\nchmod 700 {base}\nmkdir -p {folder}\nexec cat > {partial}",
        top = quote(&format!("{}/bin", base.folder)),
        base = quote(&base.folder),
        folder = quote(&folder),
        partial = quote(&partial),
    );
    let mut stream = session
        .open("send the worker's program", &script, base.root)
        .await
        .map_err(ssh)?;
    let mut file = open(&program.path).await?;
    let scope = Scope::host(session.host()).in_task("worker");
    let mut buffer = vec![0; CHUNK];
    let mut done = 0u64;
    let mut broken = None;
    loop {
        let got = file
            .read(&mut buffer)
            .await
            .map_err(|error| unreadable(&program.path, &error))?;
        let Some(bytes) = buffer.get(..got).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        if let Err(error) = stream.stdin.write_all(bytes).await {
            // The host's own words say more than a broken pipe.
            broken = Some(error.to_string());
            break;
        }
        done += got as u64;
        emitter.emit(
            scope.clone(),
            crate::event::Event::Transfer {
                what: "worker".into(),
                done,
                total: Some(program.bytes),
            },
        );
    }
    emitter.count_sent(session.host(), done);
    let _ = stream.stdin.shutdown().await;
    // Nothing comes on stdout; its end is the end of cat.
    let mut rest = Vec::new();
    let _ = (&mut stream.stdout)
        .take(1 << 10)
        .read_to_end(&mut rest)
        .await;
    let said = stream
        .ended
        .await
        .map(|(_, stderr)| String::from_utf8_lossy(&stderr).trim().to_owned())
        .unwrap_or_default();
    if let Some(error) = broken {
        let why = if said.is_empty() { error } else { said };
        return Err(failed(
            session,
            "worker",
            format!(
                "the worker's program ({}) could not be written to {folder}: {why}",
                size(program.bytes)
            ),
        ));
    }
    let script = format!(
        "{digest}\nif [ \"$(wc -c < {partial})\" -eq {bytes} ]; then chmod 755 {partial} && mv -f {partial} {path}; else rm -f {partial}; exit 7; fi\n",
        digest = digest_script(&partial),
        partial = quote(&partial),
        path = quote(&path),
        bytes = program.bytes,
    );
    let output = run(session, base, "check the worker's program", &script)
        .await
        .map_err(ssh)?;
    if !output.ok() || digest_of(&output) != program.sha256 {
        let why = if said.is_empty() {
            output.last_words()
        } else {
            said
        };
        return Err(failed(
            session,
            "worker",
            format!(
                "the worker's program did not arrive whole in {folder} ({}): {}; it needs {}; run the command again",
                if output.ok() {
                    "its digest differs"
                } else {
                    "its size differs"
                },
                if why.is_empty() {
                    "no reason was given"
                } else {
                    &why
                },
                size(program.bytes),
            ),
        ));
    }
    Ok(())
}

async fn open(path: &Path) -> Result<tokio::fs::File, Failure> {
    tokio::fs::File::open(path)
        .await
        .map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        FailureKind::Io,
        format!(
            "the worker's program {} cannot be read: {error}",
            path.display()
        ),
    )
    .at("worker")
}

/// Has the program say its version: only then is anything else sent.
async fn runs(session: &Session, base: &Base, program: &Program) -> Result<(), Failure> {
    let path = quote(&base.program(&program.sha256));
    let output = run(
        session,
        base,
        "start the worker's program",
        &format!("{path} --version\n"),
    )
    .await
    .map_err(|error| error.failure(session.host()))?;
    if output.ok() && output.text().starts_with("windlass-worker ") {
        return Ok(());
    }
    let why = output.last_words();
    Err(failed(
        session,
        "worker",
        format!(
            "the worker's program does not run there: {}. Build one on that host with `cargo build --release -p windlass-worker` and name it with --worker FILE",
            if why.is_empty() {
                "it said nothing"
            } else {
                &why
            },
        ),
    ))
}
