//! Why a host was not reached, or a command on it did not work.

use std::time::Duration;

use thiserror::Error;

use crate::event::{Failure, FailureKind};

/// What went wrong, with the host it is about known to the caller.
#[derive(Debug, Error)]
pub enum SshError {
    /// No connection, no login in time, connection lost. `step` is one of `resolve`, `connect`,
    /// `handshake`, `login`, `open`, `run`.
    #[error("{message}")]
    Unreachable {
        /// In which step.
        step: &'static str,
        /// A sentence: what, with address and figure, and what to do.
        message: String,
    },
    /// The host's key or our login was refused. `step` is `host key` or `login`.
    #[error("{message}")]
    Refused {
        /// In which step.
        step: &'static str,
        /// A sentence.
        message: String,
    },
    /// The ssh configuration or a setting cannot be honoured. Exit 2 is not right here: it is
    /// about one host, and others may do.
    #[error("{message}")]
    Config {
        /// A sentence naming file and line.
        message: String,
    },
    /// sudo refused, is missing, or wants a terminal.
    #[error("{message}")]
    Sudo {
        /// A sentence.
        message: String,
    },
    /// The host was reached and is of no use: it runs Windows, its login shell runs no `sh`.
    #[error("{message}")]
    Unfit {
        /// A sentence.
        message: String,
    },
    /// The command said more than its cap.
    #[error("{what} said more than {cap} bytes on {stream}; the rest was not read")]
    TooMuch {
        /// What was run.
        what: String,
        /// `stdout` or `stderr`.
        stream: &'static str,
        /// The cap, bytes.
        cap: usize,
    },
    /// The command took longer than its cap.
    #[error("{what} did not end within {} s", .time.as_secs_f64())]
    TooLong {
        /// What was run.
        what: String,
        /// The cap.
        time: Duration,
    },
    /// The command's output is not fenced as it must be.
    #[error("{what}: {reason}")]
    Broken {
        /// What was run.
        what: String,
        /// What is wrong.
        reason: String,
    },
}

impl SshError {
    /// As the failure of a run.
    pub fn failure(&self, host: &str) -> Failure {
        let (kind, step) = match self {
            Self::Unreachable { step, .. } => (FailureKind::Unreachable, *step),
            Self::Refused { step, .. } => (FailureKind::Refused, *step),
            Self::Config { .. } => (FailureKind::Refused, "ssh configuration"),
            Self::Sudo { .. } => (FailureKind::Refused, "sudo"),
            Self::Unfit { .. } => (FailureKind::Host, "open"),
            Self::TooMuch { .. } | Self::TooLong { .. } | Self::Broken { .. } => {
                (FailureKind::Host, "run")
            }
        };
        Failure::new(kind, format!("{host}: {self}"))
            .on(host)
            .at(step)
    }
}
