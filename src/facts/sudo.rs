//! What this login may do by sudo, by what `sudo -n -l` lists. Nobody is asked for a password.

use serde::{Deserialize, Serialize};

use super::script::says;
use crate::ssh::refusal::{Refusal, refusal};

/// What the login may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sudo {
    /// Whether it is there; of root it was not asked.
    pub present: Option<bool>,
    /// Whether the login may run anything as root; `None` where sudo lists nothing without a
    /// password.
    pub any_command: Option<bool>,
    /// Whether it is asked for a password on the way.
    pub password: Option<bool>,
    /// Whether sudo works only at a terminal.
    pub terminal: Option<bool>,
}

/// Reads the section `sudo`.
pub fn parse(text: &str) -> Sudo {
    if says(text, "missing") {
        return Sudo {
            present: Some(false),
            ..Sudo::default()
        };
    }
    if !says(text, "present") {
        return Sudo::default();
    }
    let listed = list(text);
    let mut sudo = Sudo {
        present: Some(true),
        ..listed.clone().unwrap_or_default()
    };
    if listed.is_none() {
        match refusal(text) {
            Some(Refusal::Password) => {
                sudo.password = Some(true);
                sudo.terminal = Some(false);
            }
            Some(Refusal::Terminal) => sudo.terminal = Some(true),
            Some(Refusal::Forbidden) => sudo.any_command = Some(false),
            Some(Refusal::Missing) => sudo.present = Some(false),
            Some(Refusal::Wrong) | None => {}
        }
    }
    sudo
}

/// The entries of a list, the last that fits counts; `None` when it is no list.
fn list(text: &str) -> Option<Sudo> {
    let (defaults, entries) = text.split_once(" may run the following commands on ")?;
    let words: Vec<&str> = defaults
        .split_once("Defaults entries for ")
        .map(|(_, rest)| {
            rest.split(|c: char| c.is_whitespace() || c == ',')
                .collect()
        })
        .unwrap_or_default();
    let set = |name: &str| {
        words
            .iter()
            .rev()
            .find_map(|word| match word.strip_prefix('!') {
                Some(word) if word == name => Some(false),
                None if *word == name => Some(true),
                _ => None,
            })
    };
    let mut any = None;
    for line in entries.lines().skip(1) {
        let Some((runas, commands)) = line
            .trim()
            .strip_prefix('(')
            .and_then(|line| line.split_once(')'))
        else {
            continue;
        };
        let users = runas.split(':').next().unwrap_or_default();
        if !users
            .split(',')
            .any(|user| matches!(user.trim(), "ALL" | "root" | "#0"))
        {
            continue;
        }
        // A tag holds for all commands behind it.
        let mut free = false;
        for command in commands.split(", ") {
            let mut command = command.trim();
            while let Some((tag, rest)) = command.split_once(':').filter(|(tag, _)| {
                !tag.is_empty() && tag.chars().all(|c| c.is_ascii_uppercase() || c == '_')
            }) {
                match tag {
                    "NOPASSWD" => free = true,
                    "PASSWD" => free = false,
                    _ => {}
                }
                command = rest.trim();
            }
            match command {
                "ALL" => any = Some(free),
                "!ALL" => any = None,
                _ => {}
            }
        }
    }
    Some(Sudo {
        present: Some(true),
        any_command: Some(any.is_some()),
        password: any.map(|free| !free && set("authenticate") != Some(false)),
        terminal: Some(set("requiretty") == Some(true)),
    })
}
