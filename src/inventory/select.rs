//! Selectors: text that picks hosts. `halo1`, `mac*`, `mac[1-3]`, `@group`, `@all`, `!host`;
//! `,` joins, `&` keeps what is in both. Must not know where hosts come from.

use std::collections::BTreeSet;

use thiserror::Error;

use super::fault::offer;
use super::host::{Host, Inventory};
use super::range::{self, RangeError};
use crate::event::{Failure, FailureKind};

/// Why a selector picks nothing.
#[derive(Debug, Error)]
pub enum SelectError {
    /// A name that is none.
    #[error("\"{selector}\" names no {what}: there is no {what} \"{name}\"{offered}")]
    Unknown {
        /// The selector.
        selector: String,
        /// `host` or `group`.
        what: &'static str,
        /// The name.
        name: String,
        /// The nearest valid one, as the end of the sentence.
        offered: String,
    },
    /// All is well with it, but it leaves no host.
    #[error("\"{0}\" matches no host: `windlass inventory list` shows all")]
    Empty(String),
    /// It is no selector.
    #[error("\"{selector}\" is no selector: {reason}")]
    Malformed {
        /// The selector.
        selector: String,
        /// Why.
        reason: String,
    },
}

impl SelectError {
    /// As a run's failure: exit status 3, or 2 for what is no selector.
    pub fn failure(&self) -> Failure {
        let kind = match self {
            Self::Malformed { .. } => FailureKind::Usage,
            Self::Unknown { .. } | Self::Empty(_) => FailureKind::Nothing,
        };
        Failure::new(kind, self.to_string())
    }
}

impl Inventory {
    /// The hosts that a selector picks, in the order of the file, each once. Terms that begin with
    /// `!` take away from all the others; with nothing but such terms, from all hosts.
    ///
    /// # Errors
    /// When it is malformed, names what is not there, or leaves no host.
    pub fn select(&self, selector: &str) -> Result<Vec<&Host>, SelectError> {
        let malformed = |reason: String| SelectError::Malformed {
            selector: selector.to_owned(),
            reason,
        };
        if selector.trim().is_empty() {
            return Err(malformed("it is empty".into()));
        }
        let mut picked = BTreeSet::new();
        let mut taken = BTreeSet::new();
        let mut only_taken = true;
        for term in split(selector, ',') {
            let factors = split(term, '&');
            if let ([_], Some(name)) = (factors.as_slice(), term.trim().strip_prefix('!')) {
                taken.extend(self.factor(selector, name)?);
                continue;
            }
            only_taken = false;
            let mut both: BTreeSet<usize> = (0..self.hosts.len()).collect();
            for factor in factors {
                let factor = factor.trim();
                match factor.strip_prefix('!') {
                    Some(name) => {
                        let away = self.factor(selector, name)?;
                        both.retain(|index| !away.contains(index));
                    }
                    None => {
                        let keep = self.factor(selector, factor)?;
                        both.retain(|index| keep.contains(index));
                    }
                }
            }
            picked.extend(both);
        }
        if only_taken {
            picked = (0..self.hosts.len()).collect();
        }
        let hosts: Vec<&Host> = self
            .hosts
            .iter()
            .enumerate()
            .filter(|(index, _)| picked.contains(index) && !taken.contains(index))
            .map(|(_, host)| host)
            .collect();
        if hosts.is_empty() {
            return Err(SelectError::Empty(selector.to_owned()));
        }
        Ok(hosts)
    }

    /// The hosts, by index, of one name, range, glob or group.
    fn factor(&self, selector: &str, text: &str) -> Result<BTreeSet<usize>, SelectError> {
        let text = text.trim();
        let malformed = |reason: String| SelectError::Malformed {
            selector: selector.to_owned(),
            reason,
        };
        let (text, of_groups) = match text.strip_prefix('@') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        if text.is_empty() {
            return Err(malformed("a name is missing".into()));
        }
        if let Some(wrong) = text
            .chars()
            .find(|c| !c.is_ascii_alphanumeric() && !"-_.*?[],:".contains(*c))
        {
            return Err(malformed(format!(
                "{wrong:?} stands in no name; names are joined with \",\" and \"&\""
            )));
        }
        let names =
            range::expand(text).map_err(|error: RangeError| malformed(error.to_string()))?;
        let mut found = BTreeSet::new();
        for name in names {
            let is_glob = name.contains(['*', '?']);
            let fits = |other: &str| {
                if is_glob {
                    glob(&name, other)
                } else {
                    name == other
                }
            };
            let hit;
            if of_groups {
                hit = fits("all") || self.groups.iter().any(|group| fits(&group.name));
                if fits("all") {
                    found.extend(0..self.hosts.len());
                }
                for group in self.groups.iter().filter(|group| fits(&group.name)) {
                    found.extend(self.hosts.iter().enumerate().filter_map(|(index, host)| {
                        group.hosts.contains(&host.name).then_some(index)
                    }));
                }
            } else {
                found.extend(
                    self.hosts
                        .iter()
                        .enumerate()
                        .filter_map(|(index, host)| fits(&host.name).then_some(index)),
                );
                hit = self.hosts.iter().any(|host| fits(&host.name));
            }
            if !hit && !is_glob {
                // Whoever forgot the @, or wrote one too many, is offered what was meant.
                let groups = self.groups.iter().map(|group| format!("@{}", group.name));
                let groups: Vec<String> = groups.chain(["@all".to_owned()]).collect();
                let hosts = self.hosts.iter().map(|host| host.name.as_str());
                let valid = hosts.chain(groups.iter().map(String::as_str));
                let (what, written) = match of_groups {
                    true => ("group", format!("@{name}")),
                    false => ("host", name.clone()),
                };
                let other = match of_groups {
                    true => name.clone(),
                    false => format!("@{name}"),
                };
                let exact = valid.clone().find(|valid| *valid == other);
                let (offered, _) = match exact {
                    Some(exact) => offer(exact, [exact]),
                    None => offer(&written, valid),
                };
                return Err(SelectError::Unknown {
                    selector: selector.to_owned(),
                    what,
                    name,
                    offered,
                });
            }
        }
        Ok(found)
    }
}

/// Splits outside of brackets.
fn split(text: &str, at: char) -> Vec<&str> {
    let mut depth = 0_usize;
    text.split(|c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == at && depth == 0
    })
    .collect()
}

/// Whether a name fits a pattern: `*` is any run of characters, `?` any one.
pub(super) fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where the last star stands, and how far it has eaten.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(b'?') => {
                p += 1;
                n += 1;
            }
            Some(byte) if name.get(n) == Some(byte) => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, eaten)) => {
                    star = Some((at, eaten + 1));
                    p = at + 1;
                    n = eaten + 1;
                }
                None => return false,
            },
        }
    }
    pattern
        .get(p..)
        .unwrap_or_default()
        .iter()
        .all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn inventory() -> Inventory {
        Inventory::parse(
            Path::new("inventory.toml"),
            "[cluster]\nname = \"c\"\n[groups.halos]\nhosts = [\"halo*\"]\n\
             [groups.big]\nhosts = [\"halo2\", \"mac[1-2]\"]\n[groups.none]\n\
             [hosts.\"halo[1-3]\"]\n[hosts.\"mac[1-5]\"]\n[hosts.here]\nconnection = \"local\"\n",
        )
        .unwrap()
    }

    #[test]
    fn selectors_pick_what_sets_by_hand_give() {
        let inventory = inventory();
        let table = [
            ("halo1", "halo1"),
            ("mac*", "mac1 mac2 mac3 mac4 mac5"),
            ("mac?,halo1", "halo1 mac1 mac2 mac3 mac4 mac5"),
            ("mac[1,3]", "mac1 mac3"),
            ("@halos", "halo1 halo2 halo3"),
            ("@all", "halo1 halo2 halo3 mac1 mac2 mac3 mac4 mac5 here"),
            ("!here", "halo1 halo2 halo3 mac1 mac2 mac3 mac4 mac5"),
            ("@all,!mac*", "halo1 halo2 halo3 here"),
            ("!mac*,@all", "halo1 halo2 halo3 here"),
            ("@halos&@big", "halo2"),
            ("@halos&!@big", "halo1 halo3"),
            ("@halos&@big,here", "halo2 here"),
            ("@halos, !halo[2-3]", "halo1"),
            ("@b*", "halo2 mac1 mac2"),
            ("halo1,halo1", "halo1"),
        ];
        for (selector, wanted) in table {
            let names: Vec<&str> = inventory
                .select(selector)
                .unwrap_or_else(|e| panic!("{selector}: {e}"))
                .iter()
                .map(|host| host.name.as_str())
                .collect();
            assert_eq!(names.join(" "), wanted, "{selector}");
        }
    }

    #[test]
    fn what_picks_nothing_says_why_with_its_exit_status() {
        let inventory = inventory();
        let table = [
            ("hallo1", 3, "did you mean \"halo1\"?"),
            ("halo[1-4]", 3, "no host \"halo4\""),
            ("@halo", 3, "did you mean \"@halos\"?"),
            ("all", 3, "did you mean \"@all\"?"),
            ("halos", 3, "did you mean \"@halos\"?"),
            ("@halo1", 3, "did you mean \"halo1\"?"),
            ("al", 3, "did you mean \"@all\"?"),
            ("!hallo1", 3, "did you mean \"halo1\"?"),
            ("x*", 3, "matches no host"),
            ("@none", 3, "matches no host"),
            ("halo1,!halo1", 3, "matches no host"),
            ("halo1&mac1", 3, "matches no host"),
            ("", 2, "empty"),
            ("halo1,", 2, "missing"),
            ("@", 2, "missing"),
            ("!", 2, "missing"),
            ("halo[1-", 2, "bracket"),
            ("halo1 halo2", 2, "stands in no name"),
            ("a/b", 2, "stands in no name"),
        ];
        for (selector, exit, wanted) in table {
            let failure = inventory.select(selector).unwrap_err().failure();
            assert_eq!(failure.kind.exit().code(), exit, "{selector}: {failure}");
            assert!(failure.message.contains(wanted), "{selector}: {failure}");
        }
    }

    #[test]
    fn globs_match_as_in_a_shell() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("a**", "a", true),
            ("?", "", false),
            ("a?c", "abc", true),
            ("*a", "ba", true),
            ("*aab", "aaaab", true),
            ("abc", "abcd", false),
        ] {
            assert_eq!(glob(pattern, name), fits, "{pattern} {name}");
        }
    }
}
