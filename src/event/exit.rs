//! Exit statuses and failures: one place, relied on by scripts. Must not know commands.

use serde::{Deserialize, Serialize};

/// How the process ends, in the order in which the first that applies is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Interrupted from the terminal.
    Interrupted,
    /// Asked to end by a signal.
    Terminated,
    /// A fault of windlass itself.
    Internal,
    /// Command line, inventory, playbook or configuration invalid.
    Usage,
    /// A task or request failed.
    Failed,
    /// Only unreachable hosts or refused keys and logins.
    Unreachable,
    /// Drift or pending changes.
    Drift,
    /// Nothing matched, or nothing runs where something must.
    Nothing,
    /// Done.
    Done,
}

impl Exit {
    /// The process's exit status.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Nothing => 3,
            Self::Unreachable => 4,
            Self::Drift => 5,
            Self::Internal => 70,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }

    /// The status of a run in which all these applied: the first in the order of the type.
    pub fn first(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().min().unwrap_or(Self::Done)
    }
}

/// What kind of failure it was, one word for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The command line is invalid.
    Usage,
    /// A setting or the environment is invalid.
    Config,
    /// The model was not found, refused, or is not supported.
    Model,
    /// The model does not fit, or cannot be split as asked.
    Plan,
    /// Pieces could not be cut or do not verify.
    Piece,
    /// A worker could not be started, failed, or was lost.
    Worker,
    /// A request failed while all workers lived.
    Request,
    /// A file or folder could not be read or written.
    Io,
    /// A host was reached, and something on it did not work or is not fit.
    Host,
    /// A host could not be reached.
    Unreachable,
    /// A host's key or a login was refused.
    Refused,
    /// Hosts differ, or changes are pending.
    Drift,
    /// Nothing matched or runs.
    Nothing,
    /// Interrupted from the terminal.
    Interrupted,
    /// Asked to end by a signal.
    Terminated,
    /// A fault of windlass itself.
    Internal,
}

impl FailureKind {
    /// The exit status of a run that failed so.
    pub fn exit(self) -> Exit {
        match self {
            Self::Usage | Self::Config => Exit::Usage,
            Self::Model
            | Self::Plan
            | Self::Piece
            | Self::Worker
            | Self::Request
            | Self::Io
            | Self::Host => Exit::Failed,
            Self::Unreachable | Self::Refused => Exit::Unreachable,
            Self::Drift => Exit::Drift,
            Self::Nothing => Exit::Nothing,
            Self::Interrupted => Exit::Interrupted,
            Self::Terminated => Exit::Terminated,
            Self::Internal => Exit::Internal,
        }
    }
}

/// Why a run failed, as the summary tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind.
    pub kind: FailureKind,
    /// On which host, when on one.
    pub host: Option<String>,
    /// In which step.
    pub step: Option<String>,
    /// One or two sentences: what, with which figure, and what to do.
    pub message: String,
}

impl Failure {
    /// A failure of no host and no step.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            host: None,
            step: None,
            message: message.into(),
        }
    }

    /// On this host.
    #[must_use]
    pub fn on(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// In this step.
    #[must_use]
    pub fn at(mut self, step: impl Into<String>) -> Self {
        self.step = Some(step.into());
        self
    }

    /// A fault of windlass itself.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Internal, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_are_those_of_the_contract() {
        let table = [
            (Exit::Done, 0),
            (Exit::Failed, 1),
            (Exit::Usage, 2),
            (Exit::Nothing, 3),
            (Exit::Unreachable, 4),
            (Exit::Drift, 5),
            (Exit::Internal, 70),
            (Exit::Interrupted, 130),
            (Exit::Terminated, 143),
        ];
        for (exit, code) in table {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }

    #[test]
    fn the_first_that_applies_wins() {
        use Exit::*;
        let table: [(&[Exit], Exit); 8] = [
            (&[], Done),
            (&[Done, Nothing], Nothing),
            (&[Nothing, Drift], Drift),
            (&[Unreachable, Drift], Unreachable),
            (&[Unreachable, Failed, Drift], Failed),
            (&[Failed, Usage], Usage),
            (&[Usage, Internal], Internal),
            (&[Internal, Terminated, Interrupted], Interrupted),
        ];
        for (all, wanted) in table {
            assert_eq!(Exit::first(all.iter().copied()), wanted, "{all:?}");
        }
    }

    #[test]
    fn kinds_map_to_the_contract() {
        let table = [
            (FailureKind::Usage, 2),
            (FailureKind::Config, 2),
            (FailureKind::Model, 1),
            (FailureKind::Plan, 1),
            (FailureKind::Piece, 1),
            (FailureKind::Worker, 1),
            (FailureKind::Request, 1),
            (FailureKind::Io, 1),
            (FailureKind::Host, 1),
            (FailureKind::Unreachable, 4),
            (FailureKind::Refused, 4),
            (FailureKind::Drift, 5),
            (FailureKind::Nothing, 3),
            (FailureKind::Interrupted, 130),
            (FailureKind::Terminated, 143),
            (FailureKind::Internal, 70),
        ];
        for (kind, code) in table {
            assert_eq!(kind.exit().code(), code, "{kind:?}");
        }
    }
}
