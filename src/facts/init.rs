//! What starts services on a host.

use serde::{Deserialize, Serialize};

use super::script::{says, some, value};

/// What starts services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Init {
    /// The first process, e.g. `systemd`, `init`, `launchd`.
    pub process: Option<String>,
    /// Whether systemd runs the system; `None` when the host does not say.
    pub systemd: Option<bool>,
    /// Version of systemd, when its tools are there.
    pub systemd_version: Option<u32>,
    /// Whether the login has a manager of its own services right now.
    pub user_manager: Option<bool>,
    /// Whether its services may run without a login.
    pub linger: Option<bool>,
    /// Whether the login itself may let them; asked only of one whose services may not yet.
    pub may_linger: Option<bool>,
}

/// Reads the section `init`.
pub fn parse(text: &str) -> Init {
    let said = !text.trim().is_empty();
    Init {
        process: value(text, "process").and_then(some),
        systemd: said.then(|| says(text, "booted systemd")),
        systemd_version: value(text, "systemd")
            .and_then(|version| version.split([' ', '.', '~', '-']).next()?.parse().ok()),
        user_manager: said.then(|| says(text, "user_manager")),
        linger: said.then(|| says(text, "linger")),
        may_linger: said.then(|| says(text, "may_linger")),
    }
}
