//! The lock of runs that change a host, held over its session. Must not know what a run changes.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::event::{Failure, FailureKind};
use crate::ssh::{Session, Stream, quote};

/// The file that is locked; the worker's `lock` takes the same.
const FILE: &str = "/var/lib/windlass/lock";
/// How long a host may take to say whether it is free.
const SOON: Duration = Duration::from_secs(60);
/// Most bytes of what it says.
const MAX: u64 = 4096;

/// A host that is held for this run. Dropping it gives it back.
pub struct Lock {
    _stream: Stream,
    /// Whether other runs are kept off: not by a host without `flock`.
    pub keeps_off: bool,
}

/// Takes the lock, says so, and holds it until the input ends. One that is held is tried for a moment
/// more: a run that was just ended, or killed, gives its lock back only when its host has noticed.
fn script(holder: &str) -> String {
    format!(
        "umask 077\nmkdir -p /var/lib/windlass && exec 9<>{FILE} || {{ echo failed; exit 1; }}\n\
         command -v flock >/dev/null || {{ echo absent; exec cat >/dev/null; }}\n\
         if flock -n 9 || {{ sleep 1; flock -n 9; }} || {{ sleep 1; flock -n 9; }}; then\n\
         \x20 printf '%s\\n' {holder} >{FILE}; echo held; cat >/dev/null; : >{FILE}\n\
         else printf 'taken '; head -n 1 {FILE}; fi\n",
        holder = quote(holder),
    )
}

/// Holds a host against other runs that change it.
///
/// # Errors
/// When another run holds it, named; or it cannot be held.
pub async fn hold(session: &Session, holder: &str) -> Result<Lock, Failure> {
    let host = session.host();
    let failed = |what: String| {
        let failure = Failure::new(FailureKind::Host, format!("{host}: {what}"));
        Err(failure.on(host).at("lock"))
    };
    let mut stream = session
        .open("take the lock", &script(holder), true)
        .await
        .map_err(|error| error.failure(host))?;
    let mut line = String::new();
    let mut reader = BufReader::new((&mut stream.stdout).take(MAX));
    let read = tokio::time::timeout(SOON, reader.read_line(&mut line)).await;
    match (read, line.trim_end()) {
        (Ok(Ok(_)), word @ ("held" | "absent")) => Ok(Lock {
            _stream: stream,
            keeps_off: word == "held",
        }),
        (Ok(Ok(_)), said) if said.starts_with("taken ") => {
            let by = said.strip_prefix("taken ").unwrap_or_default();
            let by: String = by.chars().filter(|c| !c.is_control()).collect();
            failed(format!(
                "{by} is changing this host; nothing was changed. Wait until that run ends, or end it"
            ))
        }
        _ => failed(format!("the lock {FILE} could not be taken")),
    }
}
