//! How workers end, and which one is to blame when several do. Decides; touches no process.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crate::event::{Failure, FailureKind};

/// What is known of one worker.
#[derive(Clone, Debug)]
pub struct WorkerInfo {
    /// Its host.
    pub host: String,
    /// Its stage.
    pub stage: u32,
    /// Its process id.
    pub pid: u32,
    /// First layer held.
    pub first_layer: u32,
    /// Layers held.
    pub layers: u32,
    /// Bytes of its pieces, once loaded.
    pub piece_bytes: u64,
    /// Device that computes, once loaded.
    pub device: Option<String>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this status.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It cannot be told.
    Unknown,
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with exit status {code}"),
            Self::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
            Self::Unknown => f.write_str("ended"),
        }
    }
}

/// Names of the signals that end processes in practice. The numbers are the same on Linux and
/// macOS, but for SIGBUS.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 if cfg!(target_os = "linux") => "SIGBUS",
        10 if cfg!(target_os = "macos") => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => return None,
    })
}

/// A worker that ended without being asked.
pub struct Ended<'a> {
    /// Which.
    pub info: &'a WorkerInfo,
    /// How.
    pub end: End,
    /// Kind and message, when it said why.
    pub failed: Option<&'a (String, String)>,
}

/// Which of the workers that ended was the cause: one ended by a signal before one that failed by
/// itself, one that lost a peer last; among equals the first.
pub fn blame(ended: &[Ended<'_>], step: &str) -> Failure {
    let rank = |worker: &Ended<'_>| match (worker.end, worker.failed) {
        (End::Signal(_), _) => 0,
        (_, Some((kind, _))) if kind != "peer" && kind != "network" => 1,
        (_, None) => 2,
        (_, Some(_)) => 3,
    };
    // `min_by_key` takes the first of equals.
    let Some(cause) = ended.iter().min_by_key(|worker| rank(worker)) else {
        return Failure::internal("a worker was lost and none ended").at(step);
    };
    let role = if cause.info.stage == 0 {
        ", the head"
    } else {
        ""
    };
    let why = cause
        .failed
        .map(|(_, message)| format!(": {message}"))
        .unwrap_or_default();
    let kind = match cause.failed {
        Some((kind, _)) if kind == "piece" => FailureKind::Piece,
        Some((kind, _)) if kind == "model" => FailureKind::Model,
        _ => FailureKind::Worker,
    };
    Failure::new(
        kind,
        format!(
            "worker {} (stage {}{role}, pid {}) {}{why}",
            cause.info.host, cause.info.stage, cause.info.pid, cause.end
        ),
    )
    .on(cause.info.host.clone())
    .at(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(host: &str, stage: u32) -> WorkerInfo {
        WorkerInfo {
            host: host.into(),
            stage,
            pid: 100 + stage,
            first_layer: 0,
            layers: 1,
            piece_bytes: 0,
            device: None,
        }
    }

    #[test]
    fn the_killed_worker_is_blamed_not_those_that_lost_it() {
        let infos = [info("local-1", 0), info("local-2", 1), info("local-3", 2)];
        let peer = (
            "peer".to_owned(),
            "stage 1 closed its connection".to_owned(),
        );
        let piece = ("piece".to_owned(), "layer-0003 does not verify".to_owned());
        let ended = |i: usize, end, failed| Ended {
            info: &infos[i],
            end,
            failed,
        };
        let table = [
            (
                vec![
                    ended(0, End::Code(1), Some(&peer)),
                    ended(1, End::Signal(9), None),
                ],
                "local-2",
                "worker local-2 (stage 1, pid 101) was killed by signal 9 (SIGKILL)",
            ),
            (
                vec![
                    ended(1, End::Code(1), Some(&peer)),
                    ended(2, End::Code(1), Some(&peer)),
                    ended(0, End::Signal(9), None),
                ],
                "local-1",
                "worker local-1 (stage 0, the head, pid 100) was killed by signal 9 (SIGKILL)",
            ),
            (
                vec![
                    ended(1, End::Code(1), Some(&peer)),
                    ended(2, End::Code(1), Some(&piece)),
                ],
                "local-3",
                "worker local-3 (stage 2, pid 102) ended with exit status 1: layer-0003 does not verify",
            ),
            (
                vec![ended(2, End::Code(0), None), ended(1, End::Code(0), None)],
                "local-3",
                "worker local-3 (stage 2, pid 102) ended with exit status 0",
            ),
        ];
        for (ended, host, message) in table {
            let failure = blame(&ended, "answer");
            assert_eq!(failure.host.as_deref(), Some(host));
            assert_eq!(failure.message, message);
            assert_eq!(failure.step.as_deref(), Some("answer"));
        }
    }
}
