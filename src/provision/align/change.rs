//! What is changed on a host, and how it is said. Must not know why it is to be changed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A change on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "change")]
pub enum Change {
    /// Packages to these versions, in one transaction.
    Packages {
        /// What installs them.
        installer: String,
        /// Name and version.
        install: BTreeMap<String, String>,
        /// What the reference does not have.
        remove: BTreeSet<String>,
    },
    /// A file as the reference has it; `None` removes it.
    File {
        /// Its path, below /etc.
        path: String,
        /// Its text when it was looked at, where it was; it is changed only while that stands there.
        #[serde(skip)]
        was: Option<String>,
        /// Its text.
        text: Option<String>,
    },
    /// A unit's state at boot.
    Unit {
        /// The unit.
        unit: String,
        /// `enabled`, `disabled`, `masked`, or [`STATIC`].
        from: String,
        /// The same.
        to: String,
    },
    /// A line of the host's own tools, run after files are written. When the run is taken back, `undo` is
    /// run after the files are back.
    Line {
        /// To do it.
        line: String,
        /// To take it back.
        undo: String,
    },
    /// A file that such a line writes; it is kept before, and given back after the line was taken back.
    Kept {
        /// Its path.
        path: String,
    },
    /// The login's membership in a group.
    Group {
        /// The user.
        user: String,
        /// The group.
        group: String,
        /// Whether the user is to be in it.
        member: bool,
    },
}

impl Change {
    /// The change in a few words.
    pub fn words(&self) -> String {
        match self {
            Self::Packages {
                install, remove, ..
            } => {
                let install = install
                    .iter()
                    .map(|(name, version)| format!("{name} {version}"));
                let remove = remove.iter().map(|name| format!("without {name}"));
                let all: Vec<String> = install.chain(remove).collect();
                let shown: Vec<&str> = all.iter().take(6).map(String::as_str).collect();
                let more = match all.len().saturating_sub(6) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!("packages {}{more}", shown.join(", "))
            }
            Self::File {
                path,
                text: Some(_),
                ..
            } => format!("{path} as on the reference"),
            Self::File {
                path, text: None, ..
            } => format!("{path} removed"),
            Self::Line { line, .. } => format!("runs {line}"),
            Self::Kept { path } => format!("{path} by the line after it"),
            Self::Unit { unit, from, to } => format!("{unit} {to} (was {from})"),
            Self::Group {
                user,
                group,
                member: true,
            } => format!("{user} into the group {group}"),
            Self::Group {
                user,
                group,
                member: false,
            } => format!("{user} out of the group {group}"),
        }
    }
}

/// The state of a unit that nothing starts at boot and others may start.
pub const STATIC: &str = "static";
