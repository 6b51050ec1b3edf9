//! Who is logged in, and which tools there are.

use serde::{Deserialize, Serialize};

use super::script::{number, value};

/// Who is logged in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Login {
    /// The user's number.
    pub uid: Option<u32>,
    /// The user's name.
    pub user: Option<String>,
    /// The home folder.
    pub home: Option<String>,
    /// The folder for a user's data (`XDG_DATA_HOME`), where the login sets one.
    pub data_home: Option<String>,
    /// Whether sudo is there.
    pub sudo: Option<bool>,
    /// The login shell.
    pub shell: Option<String>,
    /// The user's groups.
    pub groups: Vec<String>,
    /// Of the tools that are of use, those that are there: `sudo`, `sha256sum`, `systemctl`, ….
    pub tools: Vec<String>,
}

impl Login {
    /// Whether this tool is there.
    pub fn has(&self, tool: &str) -> bool {
        self.tools.iter().any(|own| own == tool)
    }

    /// Whether it is root.
    pub fn is_root(&self) -> bool {
        self.uid == Some(0)
    }
}

/// Reads the section `user`.
pub fn parse(text: &str) -> Login {
    let owned = |name: &str| value(text, name).map(str::to_owned);
    let tools: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("tool "))
        .map(|tool| tool.trim().to_owned())
        .collect();
    Login {
        data_home: owned("data_home"),
        sudo: number::<u32>(text, "uid").map(|_| tools.iter().any(|tool| tool == "sudo")),
        uid: number(text, "uid"),
        user: owned("name"),
        home: owned("home"),
        shell: owned("shell"),
        groups: value(text, "groups")
            .map(|list| list.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
        tools,
    }
}
