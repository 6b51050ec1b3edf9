//! A deployment on its hosts: its files, starting, stopping, and waiting until it serves.

use std::time::{Duration, Instant};

use windlass_wire::assignment::{ORDERS_FILE, Orders};
use windlass_wire::telemetry::HeadStatus;

use super::base::{Base, Keeper};
use super::forward::{self, Far, Forward};
use super::install::{failed, run};
use super::record::{self, Record};
use super::unit::{self, Look};
use crate::deploy::client::Client;
use crate::deploy::runtime::RuntimeFolder;
use crate::event::{Failure, FailureKind};
use crate::ssh::{Caps, Session, quote};

/// Socket of the head's control side, in the deployment's folder.
pub const CONTROL: &str = "control.sock";
/// How often the head is asked while it comes up.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// Starts that may fail before the deployment is said to have failed.
const MOST_STARTS: u32 = 3;
/// Caps of commands that start and stop units.
const STARTING: Caps = Caps {
    stdout: 256 << 10,
    stderr: 64 << 10,
    time: Duration::from_secs(60),
};

/// A host that takes part, as a deployment needs it.
#[derive(Clone, Debug)]
pub struct Place {
    /// The host.
    pub session: Session,
    /// Where things are there.
    pub base: Base,
}

/// Reads the record on a host; `None` when there is none. Needs only `sh`.
///
/// # Errors
/// When the host cannot be asked, or the record is not understood.
pub async fn read_record(place: &Place, cluster: &str) -> Result<Option<Record>, Failure> {
    let path = quote(&format!(
        "{}/{}",
        place.base.deployment(cluster),
        record::FILE
    ));
    let script = format!("if [ -f {path} ]; then exec cat {path}; fi\n");
    let output = run(
        &place.session,
        &place.base,
        "read the deployment's record",
        &script,
    )
    .await
    .map_err(|error| error.failure(place.session.host()))?;
    if output.stdout.is_empty() && output.ok() {
        return Ok(None);
    }
    if !output.ok() {
        return Err(failed(
            &place.session,
            "record",
            format!(
                "the deployment's record cannot be read: {}",
                output.last_words()
            ),
        ));
    }
    Record::parse(&output.stdout)
        .map(Some)
        .map_err(|reason| failed(&place.session, "record", reason))
}

/// Writes a stage's orders and the record. The folder is private before the key is in it; each file
/// appears whole.
///
/// # Errors
/// When the host cannot write them.
pub async fn write_files(place: &Place, record: &Record, orders: &Orders) -> Result<(), Failure> {
    let internal = |error: serde_json::Error| Failure::internal(error.to_string());
    let orders = zeroize::Zeroizing::new(serde_json::to_string(orders).map_err(internal)?);
    let text = serde_json::to_string_pretty(record).map_err(internal)?;
    let folder = place.base.deployment(&record.cluster);
    let script = zeroize::Zeroizing::new(format!(
        "set -eu\numask 077\nmkdir -p {folder}\nchmod 700 {folder}\ncd {folder}\n\
         printf %s {orders} > {file}.new\n\
         printf '%s\\n' {text} > {record}.new\n\
         mv -f {file}.new {file}\nmv -f {record}.new {record}\nsync {file} {record} 2>/dev/null || true\n",
        folder = quote(&folder),
        orders = quote(&orders),
        text = quote(&text),
        file = ORDERS_FILE,
        record = record::FILE,
    ));
    done(place, "start", "write the deployment's files", &script).await
}

/// Installs and starts what keeps the worker.
///
/// # Errors
/// With the host's own words.
pub async fn start(place: &Place, record: &Record, program_sha256: &str) -> Result<(), Failure> {
    let script = unit::start(
        &place.base,
        program_sha256,
        &record.model_sha256,
        &record.cluster,
    );
    done(place, "start", "start the worker", &script).await
}

/// Stops the worker; the deployment's files stay.
///
/// # Errors
/// With the host's own words.
pub async fn stop(place: &Place, cluster: &str) -> Result<(), Failure> {
    done(
        place,
        "stop",
        "stop the worker",
        &unit::stop(&place.base, cluster),
    )
    .await
}

/// Stops the worker and removes the deployment's files; its pieces stay.
///
/// # Errors
/// With the host's own words.
pub async fn remove(place: &Place, cluster: &str) -> Result<(), Failure> {
    let script = format!(
        "({}) || exit 1\nrm -rf {}\n",
        unit::stop(&place.base, cluster),
        quote(&place.base.deployment(cluster))
    );
    done(place, "stop", "stop the worker", &script).await
}

fn pieces_of(place: &Place) -> String {
    format!("{}/pieces", place.base.folder)
}

/// Bytes of all pieces on a host, of every model; `None` when there is no file of any.
///
/// # Errors
/// When the host cannot be asked.
pub async fn held_pieces(place: &Place) -> Result<Option<u64>, Failure> {
    let script = format!(
        "cd {} 2>/dev/null || exit 0\nfind . -type f -exec wc -c {{}} +\n",
        quote(&pieces_of(place))
    );
    let output = run(&place.session, &place.base, "look at the pieces", &script)
        .await
        .map_err(|error| error.failure(place.session.host()))?;
    Ok(counted(&output.text()))
}

/// The sum of what `wc -c` says of files, its own sums left out; `None` without a file.
fn counted(text: &str) -> Option<u64> {
    let mut sum = None;
    for line in text.lines() {
        let (bytes, name) = line.trim_start().split_once(' ').unwrap_or_default();
        if name.starts_with("./")
            && let Ok(bytes) = bytes.parse::<u64>()
        {
            sum = Some(bytes.saturating_add(sum.unwrap_or(0)));
        }
    }
    sum
}

/// Removes all pieces from a host.
///
/// # Errors
/// With the host's own words.
pub async fn remove_pieces(place: &Place) -> Result<(), Failure> {
    let script = format!("rm -rf {}\n", quote(&pieces_of(place)));
    done(place, "pieces", "remove the pieces", &script).await
}

/// The folder's name of some worker's program on a host, where there is one.
///
/// # Errors
/// When the host cannot be asked.
pub async fn any_program(place: &Place) -> Result<Option<String>, Failure> {
    let script = format!(
        "cd {}/bin 2>/dev/null || exit 0\n\
         for f in */windlass-worker; do if [ -x \"$f\" ]; then echo \"${{f%/*}}\"; fi; done\n",
        quote(&place.base.folder)
    );
    let output = run(
        &place.session,
        &place.base,
        "look for a worker's program",
        &script,
    )
    .await
    .map_err(|error| error.failure(place.session.host()))?;
    Ok(output.text().lines().next().map(str::to_owned))
}

/// Whether the unit that would be written is there already; `None` where no unit keeps the worker.
///
/// # Errors
/// When the host cannot be asked.
pub async fn has_unit(
    place: &Place,
    cluster: &str,
    program_sha256: &str,
) -> Result<Option<bool>, Failure> {
    if place.base.keeper == Keeper::Process {
        return Ok(None);
    }
    let script = unit::show(&place.base, cluster);
    let output = run(&place.session, &place.base, "look at the unit", &script)
        .await
        .map_err(|error| error.failure(place.session.host()))?;
    let wanted = unit::unit_text(&place.base, program_sha256, cluster);
    Ok(Some(output.text() == wanted))
}

async fn done(place: &Place, step: &str, what: &str, script: &str) -> Result<(), Failure> {
    let (session, base) = (&place.session, &place.base);
    let output = session
        .run_as(base.root, what, script, STARTING)
        .await
        .map_err(|error| error.failure(session.host()))?;
    if output.ok() {
        return Ok(());
    }
    let why = output.last_words();
    Err(failed(
        session,
        step,
        format!(
            "could not {what}: {}",
            if why.is_empty() {
                "no reason was given"
            } else {
                &why
            }
        ),
    ))
}

/// How the worker is, as its keeper says.
///
/// # Errors
/// When the host cannot be asked.
pub async fn look(place: &Place, cluster: &str) -> Result<Look, Failure> {
    looked(place, &unit::look(&place.base, cluster)).await
}

/// The same, and which pieces it has that were replaced since it mapped them.
///
/// # Errors
/// When the host cannot be asked.
pub async fn look_closely(place: &Place, cluster: &str) -> Result<Look, Failure> {
    let mut script = unit::look(&place.base, cluster);
    script.push_str(&unit::stale(&place.base, cluster));
    looked(place, &script).await
}

async fn looked(place: &Place, script: &str) -> Result<Look, Failure> {
    let output = run(&place.session, &place.base, "look at the worker", script)
        .await
        .map_err(|error| error.failure(place.session.host()))?;
    Ok(Look::parse(&output.text()))
}

/// The last lines of the worker's log.
///
/// # Errors
/// When the host cannot be asked.
pub async fn last_log(place: &Place, cluster: &str, lines: u32) -> Result<Vec<String>, Failure> {
    let output = run(
        &place.session,
        &place.base,
        "read the worker's log",
        &unit::logs(&place.base, cluster, lines, false),
    )
    .await
    .map_err(|error| error.failure(place.session.host()))?;
    Ok(output.text().lines().map(str::to_owned).collect())
}

/// The head's control side, reached through its host. The local socket is gone when this is dropped.
pub struct Head {
    /// Talks to it.
    pub client: Client,
    _forward: Forward,
    _folder: RuntimeFolder,
}

/// Opens a way to the head's control socket.
///
/// # Errors
/// When the local socket cannot be made.
pub fn head(
    place: &Place,
    record: &Record,
    runtime: &std::path::Path,
    run: &str,
) -> Result<Head, Failure> {
    let folder = RuntimeFolder::create(runtime, run)?;
    let far = far(place, record);
    let forward = forward::unix(far, &folder.socket).map_err(|error| {
        Failure::new(
            FailureKind::Io,
            format!(
                "the socket {} cannot be made: {error}",
                folder.socket.display()
            ),
        )
    })?;
    Ok(Head {
        client: Client::new(folder.socket.clone()),
        _forward: forward,
        _folder: folder,
    })
}

/// The far end of the control side.
pub fn far(place: &Place, record: &Record) -> Far {
    Far {
        session: place.session.clone(),
        base: place.base.clone(),
        worker_sha256: record.worker_sha256.clone(),
        socket: format!("{}/{CONTROL}", place.base.deployment(&record.cluster)),
    }
}

/// Waits until the head serves. `places` are the stages' hosts in order; `told` gets the head's
/// state whenever it changes.
///
/// # Errors
/// When a worker keeps failing, with its own reason; or `patience` is over.
pub async fn serving(
    places: &[Place],
    record: &Record,
    head: &Head,
    patience: Duration,
    mut told: impl FnMut(&str),
) -> Result<HeadStatus, Failure> {
    let began = Instant::now();
    let mut state = String::new();
    let mut next_look = Instant::now() + Duration::from_secs(1);
    loop {
        let asked = head.client.status().await;
        if let Ok(status) = &asked {
            let now = match &status.reason {
                Some(reason) => format!("{}: {reason}", status.state),
                None => status.state.clone(),
            };
            if now != state {
                told(&now);
                state = now;
            }
            if status.state == "serving" && status.deployment == record.deployment {
                return Ok(status.clone());
            }
        }
        if Instant::now() >= next_look {
            for place in places {
                let look = look(place, &record.cluster).await?;
                let gone = !matches!(look.state.as_str(), "active" | "activating" | "reloading");
                if gone || look.restarts.is_some_and(|times| times >= MOST_STARTS) {
                    if let Some(failure) = reason(place, record).await {
                        return Err(failure);
                    }
                    if gone {
                        return Err(failed(
                            &place.session,
                            "start",
                            format!(
                                "the worker is {} and did not say why; see `windlass logs {}`",
                                look.state,
                                place.session.host()
                            ),
                        ));
                    }
                }
            }
            next_look = Instant::now() + Duration::from_secs(2);
        }
        if began.elapsed() > patience {
            let last = match (&asked, state.is_empty()) {
                (_, false) => state,
                (Err(error), true) => error.to_string(),
                (Ok(_), true) => "nothing".to_owned(),
            };
            let host = record.head();
            return Err(Failure::new(
                FailureKind::Worker,
                format!(
                    "{host}: the head does not serve after {} s (last: {last}); see `windlass logs`",
                    patience.as_secs()
                ),
            )
            .on(host)
            .at("start"));
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// The worker's own reason for its end, from its log.
async fn reason(place: &Place, record: &Record) -> Option<Failure> {
    let lines = last_log(place, &record.cluster, 60).await.ok()?;
    let message = failed_message(&lines)?;
    let host = place.session.host();
    Some(
        Failure::new(FailureKind::Worker, format!("{host}: {message}"))
            .on(host)
            .at("start"),
    )
}

/// The last reason for an end among a log's lines: workers say it as a JSON line. An end because
/// another stage is gone is no reason of its own.
pub(super) fn failed_message(lines: &[String]) -> Option<String> {
    lines.iter().rev().find_map(|line| {
        let json = line.get(line.find('{')?..)?;
        match serde_json::from_str(json).ok()? {
            windlass_wire::assignment::FromWorker::Failed { kind, message } if kind != "peer" => {
                Some(message)
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_files_are_summed_without_the_sums_between_them() {
        for (text, wanted) in [
            ("", None),
            (" 12 ./a/b.gguf\n", Some(12)),
            ("  5 ./a\n  7 ./b c\n 12 total\n  1 ./d\n", Some(13)),
            ("0 ./a\n", Some(0)),
            ("wc: ./a: no\n", None),
        ] {
            assert_eq!(counted(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn a_worker_s_own_reason_is_found_in_its_log_and_a_lost_peer_is_none() {
        let lines: Vec<String> = [
            r#"2026-01-01T00:00:00 h1 windlass-worker[7]: {"event":"failed","kind":"network","message":"port taken"}"#,
            r#"2026-01-01T00:00:00 h1 windlass-worker[7]: {"event":"failed","kind":"peer","message":"stage 1 is gone"}"#,
            "2026-01-01T00:00:01 h1 systemd[1]: windlass-halo.service: Main process exited {",
        ]
        .map(str::to_owned)
        .to_vec();
        assert_eq!(failed_message(&lines).as_deref(), Some("port taken"));
        assert_eq!(failed_message(&lines[1..]), None);
    }
}
