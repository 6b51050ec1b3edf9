//! What the user's ssh configuration says of a host, as ssh_config(5) defines it. Pure over a
//! [`Source`] of files. Must not know inventories or connections.
//!
//! What is not supported and would lead somewhere else is refused for that host, with file and
//! line; what only shapes a connection is a notice.
//!
//! - [`source`]: where files are read from.
//! - `words`: a line as keyword and words.
//! - `keywords`: which keywords there are, and what they are to us.
//! - `read`: the files, from which the first value of each keyword is taken.
//! - `tokens`: `%h`, `~`, `${NAME}` in values.

mod keywords;
mod read;
pub mod source;
#[cfg(test)]
mod tests;
mod tokens;
mod words;

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use super::place::Place;
pub use source::{Disk, Source};

/// The most hosts on the way to one.
const MOST_HOPS: usize = 8;

/// The machine and user that read the configuration.
#[derive(Clone, Debug)]
pub struct Local {
    /// The user's name.
    pub user: String,
    /// The user's number.
    pub uid: u32,
    /// The home folder.
    pub home: PathBuf,
    /// Looks up an environment variable.
    pub variable: fn(&str) -> Option<String>,
}

impl Local {
    /// This process's user. A user without a name anywhere has the number for a name.
    pub fn of_process() -> Self {
        fn variable(name: &str) -> Option<String> {
            std::env::var(name).ok().filter(|value| !value.is_empty())
        }
        let uid = rustix::process::getuid().as_raw();
        // The user's own name and folder as the machine has them, whatever the environment says.
        let entry = std::fs::read_to_string("/etc/passwd")
            .unwrap_or_default()
            .lines()
            .map(|line| line.split(':').map(str::to_owned).collect::<Vec<_>>())
            .find(|fields| fields.get(2) == Some(&uid.to_string()));
        let field = |index: usize| entry.as_ref().and_then(|fields| fields.get(index)).cloned();
        Self {
            user: field(0)
                .or_else(|| variable("USER"))
                .or_else(|| variable("LOGNAME"))
                .unwrap_or_else(|| uid.to_string()),
            uid,
            home: variable("HOME")
                .or_else(|| field(5))
                .unwrap_or_else(|| "/".into())
                .into(),
            variable,
        }
    }
}

/// The host asked for, and what stands above any configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// Name or address.
    pub host: &'a str,
    /// User, when it is given.
    pub user: Option<&'a str>,
    /// Port, when it is given.
    pub port: Option<u16>,
}

/// A configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where it is.
    pub path: PathBuf,
    /// Whether it is the user's own: what it includes is looked up in `~/.ssh` rather than in
    /// `/etc/ssh`, and nobody else may be able to write to it.
    pub own: bool,
}

/// The user's file and then the machine's, as OpenSSH reads them.
pub fn files(local: &Local) -> Vec<File> {
    vec![
        File {
            path: local.home.join(".ssh/config"),
            own: true,
        },
        File {
            path: "/etc/ssh/ssh_config".into(),
            own: false,
        },
    ]
}

/// What to do about a host that no file knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Strict {
    /// Refuse it.
    Yes,
    /// Ask.
    #[default]
    Ask,
    /// Accept and remember it.
    AcceptNew,
}

/// Which agent holds keys.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Agent {
    /// The one that `SSH_AUTH_SOCK` names, if any.
    #[default]
    Environment,
    /// None.
    None,
    /// The one at this socket.
    Socket(PathBuf),
}

/// Which addresses to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Family {
    /// Any.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// A host to jump over; it has its own place in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Jump {
    /// Name or address.
    pub host: String,
    /// User.
    pub user: Option<String>,
    /// Port.
    pub port: Option<u16>,
}

/// Something to tell the user, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What.
    pub kind: NoticeKind,
    /// The keyword as it is written.
    pub keyword: String,
    /// Where it stands.
    pub place: Place,
}

/// What a notice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// A keyword without meaning here: forwarding, terminals, logs.
    Cosmetic,
    /// A keyword about ciphers or logins that is not followed.
    NotFollowed,
    /// A keyword that OpenSSH, as of this writing, does not have.
    Unknown,
    /// `StrictHostKeyChecking no` acts as `accept-new`.
    AcceptNew,
}

/// What the configuration says of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The host as it was asked for.
    pub host: String,
    /// Name or address to connect to. Known hosts are looked up by it.
    pub host_name: String,
    /// User to log in as.
    pub user: String,
    /// Port.
    pub port: u16,
    /// Key files in order; some may not exist.
    pub identity_files: Vec<PathBuf>,
    /// Whether the configuration names key files; else they are OpenSSH's usual ones.
    pub identities_given: bool,
    /// Whether only the key files may be used, with the agent's help or without.
    pub identities_only: bool,
    /// The agent.
    pub agent: Agent,
    /// Hosts to jump over, first to last; each to be resolved by itself (see [`route`]).
    pub jumps: Vec<Jump>,
    /// The user's files of known hosts; new keys go into the first.
    pub user_known_hosts: Vec<PathBuf>,
    /// The machine's.
    pub global_known_hosts: Vec<PathBuf>,
    /// What to do about an unknown host.
    pub strict: Strict,
    /// Whether names of new known hosts are hashed.
    pub hash_known_hosts: bool,
    /// Time for a connection.
    pub connect_timeout: Option<Duration>,
    /// Which addresses to use.
    pub family: Family,
    /// What to tell the user.
    pub notices: Vec<Notice>,
}

/// Why a host is refused for what the configuration says.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {reason}")]
pub struct Refusal {
    /// Where it says so.
    pub place: Place,
    /// What, and what to do.
    pub reason: String,
}

/// What the files say of a host. Of each keyword the first value counts, key files add up.
///
/// # Errors
/// When something for this host is not supported or wrong.
pub fn resolve(
    source: &dyn Source,
    files: &[File],
    local: &Local,
    asked: Asked<'_>,
) -> Result<Resolved, Refusal> {
    let mut reader = read::Reader::new(source, local, asked);
    for file in files {
        reader.file(file)?;
    }
    reader.resolved()
}

/// A host and those to jump over on the way, first to last, the host itself at the end.
///
/// As OpenSSH does: the first jump is reached the way its own configuration says, those behind it
/// through the one before.
///
/// # Errors
/// As [`resolve`] for each of them; a way that leads back to itself, or over more than eight hosts.
pub fn route(
    source: &dyn Source,
    files: &[File],
    local: &Local,
    asked: Asked<'_>,
) -> Result<Vec<Resolved>, Refusal> {
    // From the host backwards.
    let mut back = vec![resolve(source, files, local, asked)?];
    let mut jumps = back
        .last()
        .map(|host| host.jumps.clone())
        .unwrap_or_default();
    while !jumps.is_empty() {
        let mut first = Vec::new();
        for (index, jump) in jumps.iter().enumerate().rev() {
            let asked = Asked {
                host: &jump.host,
                user: jump.user.as_deref(),
                port: jump.port,
            };
            let hop = resolve(source, files, local, asked)?;
            let again = back
                .iter()
                .any(|one| (&one.host_name, one.port) == (&hop.host_name, hop.port));
            if again || back.len() > MOST_HOPS {
                let reason = match again {
                    true => format!(
                        "the way to {} leads over {} twice",
                        asked_of(&back),
                        hop.host
                    ),
                    false => format!(
                        "the way to {} is longer than {MOST_HOPS} hosts",
                        asked_of(&back)
                    ),
                };
                return Err(Refusal {
                    place: Place {
                        file: files
                            .first()
                            .map(|file| file.path.as_path())
                            .unwrap_or("ssh_config".as_ref())
                            .into(),
                        line: 0,
                    },
                    reason: format!("{reason} (ProxyJump); give the jump host a `ProxyJump none`"),
                });
            }
            if index == 0 {
                first = hop.jumps.clone();
            }
            back.push(hop);
        }
        jumps = first;
    }
    back.reverse();
    Ok(back)
}

fn asked_of(back: &[Resolved]) -> &str {
    back.first().map_or("the host", |host| &host.host)
}

/// What to tell the user of these notices: one sentence for each kind, each keyword once.
pub fn sentences<'a>(notices: impl IntoIterator<Item = &'a Notice>) -> Vec<(NoticeKind, String)> {
    let mut found: Vec<(NoticeKind, Vec<String>)> = Vec::new();
    for notice in notices {
        let text = format!("{} ({})", notice.keyword, notice.place);
        match found.iter_mut().find(|(kind, _)| *kind == notice.kind) {
            Some((_, texts)) if !texts.contains(&text) => texts.push(text),
            Some(_) => {}
            None => found.push((notice.kind, vec![text])),
        }
    }
    found
        .into_iter()
        .map(|(kind, texts)| {
            let texts = texts.join(", ");
            let sentence = match kind {
                NoticeKind::Cosmetic => format!("ssh configuration without effect here: {texts}"),
                NoticeKind::NotFollowed => format!("ssh configuration not followed here: {texts}"),
                NoticeKind::Unknown => format!("ssh configuration not known here: {texts}"),
                NoticeKind::AcceptNew => format!(
                    "{texts} acts as accept-new: host keys are always verified, and only those of \
                     unknown hosts are accepted"
                ),
            };
            (kind, sentence)
        })
        .collect()
}
