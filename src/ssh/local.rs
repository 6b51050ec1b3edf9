//! This machine as a host: the same commands, run by its own shell. Must not know SSH.

use super::error::SshError;
use super::process::{Process, on_this_machine};

/// A shell of this machine that reads its script from stdin; killed when dropped.
///
/// # Errors
/// When there is no `sh`, or no more processes can be.
pub(super) fn shell() -> Result<Process, SshError> {
    on_this_machine(&["sh", "-s"]).map_err(|error| SshError::Unreachable {
        step: "run",
        message: format!("sh cannot be started on this machine: {error}"),
    })
}
