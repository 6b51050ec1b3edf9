//! The lock a run that changes hosts holds on each of them. It names its holder and dies with the
//! connection.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::sync::oneshot;
use tokio::time::timeout;
use windlass_wire::host::{Locked, MAX_LINE};

use super::base::Base;
use super::install::failed;
use crate::event::Failure;
use crate::ssh::{Ending, Session, Stream};

/// How long a host may take to say whether the lock is free.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the last words of a program that ended may take.
const SOON: Duration = Duration::from_secs(5);

/// A lock that is held. Dropping it gives it back.
pub struct Lock {
    _stream: Stream,
}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum NotTaken {
    /// Someone else holds it.
    Held(Failure),
    /// It could not be tried.
    Failed(Failure),
}

impl From<NotTaken> for Failure {
    fn from(why: NotTaken) -> Self {
        match why {
            NotTaken::Held(failure) | NotTaken::Failed(failure) => failure,
        }
    }
}

/// Reads one line of a worker's subcommand as a message, with caps on bytes and time.
pub async fn next_line<T: serde::de::DeserializeOwned>(
    from: &mut (impl tokio::io::AsyncBufRead + Unpin),
    patience: Duration,
) -> Result<T, String> {
    let mut line = Vec::new();
    let mut from = from.take(MAX_LINE as u64);
    match timeout(patience, from.read_until(b'\n', &mut line)).await {
        Err(_) => Err(format!("it said nothing for {} s", patience.as_secs())),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(0)) => Err("it ended without a word".to_owned()),
        Ok(Ok(_)) => serde_json::from_slice(&line)
            .map_err(|error| format!("it said what is not understood: {error}")),
    }
}

/// The last words of a worker's subcommand that ended: why a stream to it broke. `None` when it says
/// nothing, or does not end soon.
pub(super) async fn last_words(ended: oneshot::Receiver<(Ending, Vec<u8>)>) -> Option<String> {
    let (_, stderr) = timeout(SOON, ended).await.ok()?.ok()?;
    let text = String::from_utf8_lossy(&stderr);
    let words = text.trim();
    let words = words.strip_prefix("windlass-worker: ").unwrap_or(words);
    Some(words.to_owned()).filter(|words| !words.is_empty())
}

/// Takes the lock on a host.
///
/// # Errors
/// When someone holds it, named; or it cannot be taken.
pub async fn take(
    session: &Session,
    base: &Base,
    worker_sha256: &str,
    holder: &str,
) -> Result<Lock, NotTaken> {
    let script = base.worker(
        worker_sha256,
        &["lock", "--folder", &base.folder, "--holder", holder],
    );
    let mut stream = session
        .open("take the lock", &script, base.root)
        .await
        .map_err(|error| NotTaken::Failed(error.failure(session.host())))?;
    let said = {
        let mut reader = BufReader::new(&mut stream.stdout);
        next_line::<Locked>(&mut reader, PATIENCE).await
    };
    match said {
        Ok(Locked::Held) => Ok(Lock { _stream: stream }),
        Ok(Locked::Taken { by }) => Err(NotTaken::Held(failed(
            session,
            "lock",
            format!(
                "{by} is changing this host; nothing was changed. Wait until that run ends, or end it"
            ),
        ))),
        Ok(Locked::Failed { reason }) => Err(NotTaken::Failed(failed(session, "lock", reason))),
        Err(reason) => Err(NotTaken::Failed(failed(
            session,
            "lock",
            format!("the lock in {} could not be taken: {reason}", base.folder),
        ))),
    }
}

/// Who this run is, for others who find its lock.
pub fn holder(run: &str) -> String {
    let user = std::env::var("USER")
        .or_else(|_| std::env::var("LOGNAME"))
        .unwrap_or_else(|_| format!("user {}", rustix::process::getuid().as_raw()));
    let machine = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    format!("{user}@{machine} (run {run}, pid {})", std::process::id())
}
