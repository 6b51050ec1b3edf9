//! Which keys hosts are known by: the files that OpenSSH keeps, and a verdict on a key that a host
//! shows. Pure but for [`file`]. Must not know connections, nor whom to ask.
//!
//! A verdict decides only what it names: that an unknown key may be accepted, or that a question is
//! asked, is decided elsewhere. Lines for certificates (`@cert-authority`) are read and never count.
//!
//! - [`line`]: one line, and whom it names.
//! - [`file`]: reading the files, and adding a line to one.

pub mod file;
mod line;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use super::place::Place;
pub use super::public_key::PublicKeyBlob;
use super::public_key::{fingerprint, key_algorithm};
use line::{Line, Marker, Named};

/// What the files say of a key. Only [`Verdict::Match`] is good; only [`Verdict::Unknown`] may be
/// accepted as new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The host is known by this key.
    Match {
        /// Where.
        line: Place,
    },
    /// The host is known by another key of this algorithm.
    Changed {
        /// Where.
        line: Place,
        /// The known key's fingerprint, `SHA256:…`.
        known: String,
    },
    /// The host is known, by keys of other algorithms only.
    NewAlgorithm {
        /// The algorithms it is known by, and where.
        known: Vec<(String, Place)>,
    },
    /// No line names the host.
    Unknown,
    /// The key is marked as not to be accepted for this host.
    Revoked {
        /// Where.
        line: Place,
    },
    /// A file could not be read, or a line that names this host not be understood; whether the key
    /// is known cannot be told.
    Unreadable {
        /// Where.
        line: Place,
        /// Why.
        reason: String,
    },
}

/// The files, read. The order is the user's first, then the machine's.
#[derive(Clone, Debug, Default)]
pub struct KnownHosts {
    lines: Vec<(Place, Line)>,
    /// Files that could not be read.
    unreadable: Vec<(Place, String)>,
}

impl KnownHosts {
    /// One file's bytes. A line that is not understood counts only for the host it names.
    pub fn parse(path: impl Into<PathBuf>, bytes: &[u8]) -> Self {
        let file: Arc<Path> = path.into().into();
        let lines = bytes
            .split(|byte| *byte == b'\n')
            .zip(1..)
            .filter_map(|(bytes, number)| {
                let line = Line::parse(&String::from_utf8_lossy(bytes))?;
                let file = file.clone();
                Some((Place { file, line: number }, line))
            })
            .collect();
        Self {
            lines,
            unreadable: Vec::new(),
        }
    }

    /// A file that is there and could not be read: no host is unknown from then on.
    pub fn unreadable(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        let place = Place {
            file: path.into().into(),
            line: 0,
        };
        Self {
            lines: Vec::new(),
            unreadable: vec![(place, reason.into())],
        }
    }

    /// These files and then those.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.lines.extend(other.lines);
        self.unreadable.extend(other.unreadable);
        self
    }

    /// What the files say of a key that a host shows. A host on another port than 22 is also known
    /// by a line without the port, if that line has this very key (as OpenSSH does).
    pub fn lookup(&self, host: &str, port: u16, key: &PublicKeyBlob<'_>) -> Verdict {
        let algorithm = key_algorithm(key.algorithm);
        let name = name(host, port);
        let bare = host.to_lowercase();
        let by_name: Vec<_> = self.naming(&name).collect();
        let by_bare: Vec<_> = match port {
            22 => Vec::new(),
            _ => self.naming(&bare).collect(),
        };

        let both = || by_name.iter().chain(&by_bare);
        let is_key = |named: &Named| {
            named
                .key
                .as_ref()
                .is_ok_and(|known| known.bytes == key.bytes)
        };
        if let Some((place, _)) =
            both().find(|(_, line)| line.marker == Marker::Revoked && is_key(line))
        {
            return Verdict::Revoked {
                line: (*place).clone(),
            };
        }
        // A revoking line that cannot be read may be about this key.
        if let Some((place, reason)) = both().find_map(|(place, line)| match &line.key {
            Err(reason) if line.marker == Marker::Revoked => Some((place, reason)),
            _ => None,
        }) {
            return Verdict::Unreadable {
                line: (*place).clone(),
                reason: reason.clone(),
            };
        }
        let plain = |(_, line): &&(&Place, &Named)| line.marker == Marker::None;
        if let Some((place, _)) = by_name
            .iter()
            .filter(plain)
            .chain(by_bare.iter().filter(plain))
            .find(|(_, line)| is_key(line))
        {
            return Verdict::Match {
                line: (*place).clone(),
            };
        }
        let known: Vec<_> = by_name
            .iter()
            .filter(plain)
            .filter_map(|(place, line)| Some((*place, line.key.as_ref().ok()?)))
            .collect();
        if let Some((place, known)) = known.iter().find(|(_, known)| known.algorithm == algorithm) {
            return Verdict::Changed {
                line: (*place).clone(),
                known: fingerprint(&known.bytes),
            };
        }
        if let Some((line, reason)) = self.unreadable.first() {
            return Verdict::Unreadable {
                line: line.clone(),
                reason: reason.clone(),
            };
        }
        if let Some((place, reason)) = by_name
            .iter()
            .filter(plain)
            .find_map(|(place, line)| Some((*place, line.key.as_ref().err()?)))
        {
            return Verdict::Unreadable {
                line: place.clone(),
                reason: reason.clone(),
            };
        }
        if known.is_empty() {
            return Verdict::Unknown;
        }
        Verdict::NewAlgorithm {
            known: known
                .into_iter()
                .map(|(place, known)| (known.algorithm.clone(), place.clone()))
                .collect(),
        }
    }

    /// The algorithms of the keys a host is known by, in the files' order, each once: what to ask
    /// the host for first. `ssh-rsa` stands for [`super::public_key::signatures`] of it.
    pub fn algorithms(&self, host: &str, port: u16) -> Vec<String> {
        let mut found = Vec::new();
        for name in [name(host, port), host.to_lowercase()] {
            for (_, line) in self.naming(&name) {
                if let (Marker::None, Ok(key)) = (line.marker, &line.key)
                    && !found.contains(&key.algorithm)
                {
                    found.push(key.algorithm.clone());
                }
            }
            // Lines without the port only matter when there are none with it.
            if !found.is_empty() {
                break;
            }
        }
        found
    }

    /// The lines that bear on a host, by the name it has in the files.
    fn naming<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Place, &'a Named)> {
        self.lines
            .iter()
            .filter_map(move |(place, line)| Some((place, line.naming(name)?)))
    }
}

/// A host's name in the files: `host`, or `[host]:port` on another port than 22; lower case.
pub fn name(host: &str, port: u16) -> String {
    let host = host.to_lowercase();
    match port {
        22 => host,
        port => format!("[{host}]:{port}"),
    }
}

/// The line that makes a host known by a key, with no line end; `hashed` hides the host's name.
///
/// # Errors
/// When the system has no random numbers for the salt, or the name cannot stand in a file.
pub fn append_line(
    host: &str,
    port: u16,
    key: &PublicKeyBlob<'_>,
    hashed: bool,
) -> Result<String, String> {
    let name = name(host, port);
    // A name with one of these would name other hosts, or be a different line.
    let special = |c: char| c.is_whitespace() || c.is_control() || "*?!,|#@".contains(c);
    if host.is_empty() || name.contains(special) {
        return Err(format!("{host:?} cannot stand in a file of known hosts"));
    }
    if !hashed {
        return Ok(format!("{name} {}", key.text()));
    }
    let mut salt = [0; line::SALT];
    getrandom::fill(&mut salt).map_err(|error| format!("no random numbers: {error}"))?;
    Ok(format!("{} {}", line::hashed(&name, &salt), key.text()))
}
