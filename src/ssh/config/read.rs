//! Reads configuration files for one host, line by line; of each keyword the first value counts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::keywords::{self, Class};
use super::source::glob;
use super::words::{self, Words};
use super::{
    Agent, Asked, Family, File, Jump, Local, Notice, NoticeKind, Place, Refusal, Resolved, Source,
    Strict, tokens,
};
use crate::ssh::pattern;

/// How deep files may include each other.
const DEPTH: usize = 16;
/// The most files read for one host.
const MOST_FILES: usize = 1_000;

/// Whether a line is for this host.
#[derive(Clone, Debug)]
enum Active {
    Yes,
    No,
    /// It stands below this `Match`, which may be for this host.
    Perhaps(Place),
}

/// A value and where it stands.
type Found<T> = Option<(T, Place)>;

/// The values found so far.
#[derive(Default)]
struct Values {
    host_name: Found<String>,
    user: Found<String>,
    port: Found<u16>,
    identity_files: Vec<(String, Place)>,
    identities_only: Found<bool>,
    agent: Found<String>,
    jumps: Found<String>,
    user_known_hosts: Found<Vec<String>>,
    global_known_hosts: Found<Vec<String>>,
    strict: Found<Strict>,
    hash_known_hosts: Found<bool>,
    connect_timeout: Found<Option<Duration>>,
    family: Found<Family>,
    ignore_unknown: Found<String>,
    /// Keywords that are not supported, whose first value was a harmless one.
    harmless: Vec<String>,
}

pub(super) struct Reader<'a> {
    source: &'a dyn Source,
    local: &'a Local,
    asked: Asked<'a>,
    values: Values,
    notices: Vec<Notice>,
    /// The files being read, the outermost first.
    within: Vec<PathBuf>,
    read: usize,
}

fn refuse<T>(place: &Place, reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        place: place.clone(),
        reason: reason.into(),
    })
}

impl<'a> Reader<'a> {
    pub fn new(source: &'a dyn Source, local: &'a Local, asked: Asked<'a>) -> Self {
        Self {
            source,
            local,
            asked,
            values: Values::default(),
            notices: Vec::new(),
            within: Vec::new(),
            read: 0,
        }
    }

    /// Reads a file and those it includes.
    pub fn file(&mut self, file: &File) -> Result<(), Refusal> {
        self.lines(&file.path, file.own, &Active::Yes)
    }

    fn lines(&mut self, path: &Path, own: bool, outside: &Active) -> Result<(), Refusal> {
        let file: Arc<Path> = path.into();
        let whole = Place {
            file: file.clone(),
            line: 0,
        };
        self.read += 1;
        if self.read > MOST_FILES {
            return refuse(&whole, format!("more than {MOST_FILES} files are included"));
        }
        let text = match self.source.read(path, own) {
            Ok(Some(text)) => text,
            Ok(None) => return Ok(()),
            Err(error) => return refuse(&whole, format!("it cannot be read: {error}")),
        };
        self.within.push(path.to_owned());
        let mut active = outside.clone();
        for (line, number) in text.lines().zip(1..) {
            let Some(words) = words::split(line) else {
                continue;
            };
            let place = Place {
                file: file.clone(),
                line: number,
            };
            match words.keyword.as_str() {
                "host" => {
                    active = match (outside, self.is_host(&words, &place)?) {
                        (_, false) | (Active::No, _) => Active::No,
                        (outside, true) => outside.clone(),
                    };
                }
                "match" => {
                    active = match (outside, self.may_match(&words, &place)?) {
                        (_, false) | (Active::No, _) => Active::No,
                        (Active::Perhaps(first), true) => Active::Perhaps(first.clone()),
                        (Active::Yes, true) => Active::Perhaps(place),
                    };
                }
                "include" => self.include(&words, &place, own, &active)?,
                _ => match &active {
                    Active::No => {}
                    Active::Yes => self.option(&words, &place, None)?,
                    Active::Perhaps(block) => {
                        self.option(&words, &place, Some(&block.clone()))?;
                    }
                },
            }
        }
        self.within.pop();
        Ok(())
    }

    /// Whether a `Host` line is for this host.
    fn is_host(&self, words: &Words, place: &Place) -> Result<bool, Refusal> {
        let patterns = arguments(words, place)?;
        if patterns.is_empty() {
            return refuse(place, "Host names no host");
        }
        Ok(pattern::any(
            patterns.iter().map(String::as_str),
            self.asked.host,
        ))
    }

    /// Whether a `Match` line may be for this host: not, when one of its conditions that can be told
    /// beforehand does not hold.
    fn may_match(&self, words: &Words, place: &Place) -> Result<bool, Refusal> {
        let mut rest = arguments(words, place)?.iter();
        while let Some(word) = rest.next() {
            let (not, word) = match word.strip_prefix('!') {
                Some(word) => (true, word),
                None => (false, word.as_str()),
            };
            let (name, given) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            let name = name.to_ascii_lowercase();
            if matches!(name.as_str(), "all" | "final" | "canonical") {
                if name == "all" && not {
                    return Ok(false);
                }
                continue;
            }
            let Some(patterns) = given.or_else(|| rest.next().map(String::as_str)) else {
                return refuse(place, format!("Match {name} has no value"));
            };
            let text = match name.as_str() {
                "originalhost" => self.asked.host,
                "localuser" => &self.local.user,
                // What is set further down may be another name, so only a set one decides.
                "host" => match &self.values.host_name {
                    Some((text, _)) if !text.contains('%') => text,
                    _ => self.asked.host,
                },
                "user" => match (self.asked.user, &self.values.user) {
                    (Some(user), _) => user,
                    (None, Some((user, _))) => user,
                    (None, None) => &self.local.user,
                },
                _ => continue,
            };
            if pattern::any(patterns.split(','), text) == not {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn include(
        &mut self,
        words: &Words,
        place: &Place,
        own: bool,
        active: &Active,
    ) -> Result<(), Refusal> {
        // What is included below another host's name says nothing of this one.
        if matches!(active, Active::No) {
            return Ok(());
        }
        for wanted in arguments(words, place)? {
            let expanded = tokens::variables(wanted, self.local)
                .and_then(|wanted| tokens::home(&wanted, self.local));
            let wanted = match expanded {
                Ok(wanted) if wanted.is_absolute() => wanted,
                Ok(wanted) if own => self.local.home.join(".ssh").join(wanted),
                Ok(wanted) => Path::new("/etc/ssh").join(wanted),
                Err(reason) => return refuse(place, format!("Include: {reason}")),
            };
            for path in glob(self.source, &wanted) {
                if self.within.contains(&path) {
                    return refuse(
                        place,
                        format!("{} includes itself; remove one Include", path.display()),
                    );
                }
                if self.within.len() > DEPTH {
                    return refuse(
                        place,
                        format!("files include each other more than {DEPTH} deep"),
                    );
                }
                self.lines(&path, own, active)?;
            }
        }
        Ok(())
    }

    fn notice(&mut self, kind: NoticeKind, words: &Words, place: &Place) {
        let told = self.notices.iter().any(|notice| {
            notice.kind == kind && notice.keyword.eq_ignore_ascii_case(&words.written)
        });
        if !told {
            self.notices.push(Notice {
                kind,
                keyword: words.written.clone(),
                place: place.clone(),
            });
        }
    }

    /// One keyword for this host, or below a `Match` that may be for it.
    fn option(
        &mut self,
        words: &Words,
        place: &Place,
        block: Option<&Place>,
    ) -> Result<(), Refusal> {
        match keywords::class(&words.keyword) {
            Class::Used => self.used(words, place, block),
            Class::Refused(harmless, instead) => {
                self.unsupported(words, place, block, harmless, instead)
            }
            Class::NotFollowed => {
                self.notice(NoticeKind::NotFollowed, words, place);
                Ok(())
            }
            Class::Cosmetic => {
                self.notice(NoticeKind::Cosmetic, words, place);
                Ok(())
            }
            Class::Unknown => {
                let ignored = self
                    .values
                    .ignore_unknown
                    .as_ref()
                    .is_some_and(|(list, _)| {
                        pattern::any(list.to_lowercase().split(','), &words.keyword)
                    });
                if !ignored {
                    self.notice(NoticeKind::Unknown, words, place);
                }
                Ok(())
            }
        }
    }

    fn unsupported(
        &mut self,
        words: &Words,
        place: &Place,
        block: Option<&Place>,
        harmless: &[&str],
        instead: &str,
    ) -> Result<(), Refusal> {
        // A later value has no effect; nor has a proxy command behind a jump.
        let is_proxy = words.keyword == "proxycommand";
        if self.values.harmless.contains(&words.keyword)
            || (is_proxy && self.values.jumps.is_some())
        {
            return Ok(());
        }
        let first = arguments(words, place)?.first();
        let harmless = first.is_some_and(|value| harmless.contains(&value.to_lowercase().as_str()));
        if !harmless {
            return refuse(
                place,
                format!("{} is not supported; {instead}", words.written),
            );
        }
        // Below a Match it may have no effect, and then a later one has.
        if block.is_none() {
            self.values.harmless.push(words.keyword.clone());
        }
        Ok(())
    }

    fn used(&mut self, words: &Words, place: &Place, block: Option<&Place>) -> Result<(), Refusal> {
        let values = &self.values;
        let set = match words.keyword.as_str() {
            "addressfamily" => values.family.is_some(),
            "connecttimeout" => values.connect_timeout.is_some(),
            "globalknownhostsfile" => values.global_known_hosts.is_some(),
            "hashknownhosts" => values.hash_known_hosts.is_some(),
            "hostname" => values.host_name.is_some(),
            "identitiesonly" => values.identities_only.is_some(),
            "identityagent" => values.agent.is_some(),
            "ignoreunknown" => values.ignore_unknown.is_some(),
            "port" => self.asked.port.is_some() || values.port.is_some(),
            // A proxy command that comes first, `none` too, wins over jumps.
            "proxyjump" => {
                values.jumps.is_some() || values.harmless.iter().any(|word| word == "proxycommand")
            }
            "stricthostkeychecking" => values.strict.is_some(),
            "user" => self.asked.user.is_some() || values.user.is_some(),
            "userknownhostsfile" => values.user_known_hosts.is_some(),
            _ => false,
        };
        if set {
            return Ok(());
        }
        if let Some(block) = block {
            return refuse(
                block,
                format!(
                    "Match is not supported, and {} below it ({place}) may be for this host; write \
                     it below a Host line",
                    words.written
                ),
            );
        }
        let written = &words.written;
        let list = arguments(words, place)?;
        let Some(value) = list.first().filter(|value| !value.is_empty()) else {
            return refuse(place, format!("{written} has no value"));
        };
        let several = matches!(
            words.keyword.as_str(),
            "userknownhostsfile" | "globalknownhostsfile"
        );
        if list.len() > 1 && !several {
            return refuse(place, format!("{written} has more than one value"));
        }
        let is = |value: &str| value.to_ascii_lowercase();
        let place = place.clone();
        let yes = |value: &str| match is(value).as_str() {
            "yes" | "true" => Ok(true),
            "no" | "false" => Ok(false),
            _ => refuse(
                &place,
                format!("{written} is {value:?}; it may be yes or no"),
            ),
        };
        match words.keyword.as_str() {
            "hostname" => self.values.host_name = Some((value.clone(), place)),
            "user" => self.values.user = Some((value.clone(), place)),
            "port" => match value.parse::<u16>() {
                Ok(port) if port > 0 => self.values.port = Some((port, place)),
                _ => {
                    return refuse(
                        &place,
                        format!("Port is {value:?}; it may be a number from 1 to 65535"),
                    );
                }
            },
            "identityfile" => self.values.identity_files.push((value.clone(), place)),
            "identitiesonly" => self.values.identities_only = Some((yes(value)?, place)),
            "hashknownhosts" => self.values.hash_known_hosts = Some((yes(value)?, place)),
            "identityagent" => self.values.agent = Some((value.clone(), place)),
            "ignoreunknown" => self.values.ignore_unknown = Some((value.clone(), place)),
            "proxyjump" => {
                jumps(value).or_else(|reason| refuse(&place, reason))?;
                self.values.jumps = Some((value.clone(), place));
            }
            "userknownhostsfile" => self.values.user_known_hosts = Some((list.clone(), place)),
            "globalknownhostsfile" => self.values.global_known_hosts = Some((list.clone(), place)),
            "connecttimeout" => {
                let time = match (is(value).as_str(), words::seconds(value)) {
                    ("none", _) => None,
                    (_, Some(seconds)) => Some(Duration::from_secs(seconds)),
                    (_, None) => {
                        return refuse(
                            &place,
                            format!(
                                "ConnectTimeout is {value:?}; it may be a time such as 10 or 1m"
                            ),
                        );
                    }
                };
                self.values.connect_timeout = Some((time, place));
            }
            "addressfamily" => {
                let family = match is(value).as_str() {
                    "any" => Family::Any,
                    "inet" => Family::V4,
                    "inet6" => Family::V6,
                    _ => {
                        return refuse(
                            &place,
                            format!("AddressFamily is {value:?}; it may be any, inet or inet6"),
                        );
                    }
                };
                self.values.family = Some((family, place));
            }
            "stricthostkeychecking" => {
                let strict = match is(value).as_str() {
                    "yes" | "true" => Strict::Yes,
                    "ask" => Strict::Ask,
                    "accept-new" => Strict::AcceptNew,
                    "no" | "false" | "off" => {
                        self.notice(NoticeKind::AcceptNew, words, &place);
                        Strict::AcceptNew
                    }
                    _ => {
                        return refuse(
                            &place,
                            format!(
                                "StrictHostKeyChecking is {value:?}; it may be yes, ask, \
                                 accept-new or no"
                            ),
                        );
                    }
                };
                self.values.strict = Some((strict, place));
            }
            _ => {}
        }
        Ok(())
    }

    /// What was found, with tokens replaced and gaps filled.
    pub fn resolved(self) -> Result<Resolved, Refusal> {
        let Self {
            local,
            asked,
            values,
            notices,
            ..
        } = self;
        let host = asked.host;
        let host_name = match &values.host_name {
            Some((text, place)) => tokens::percent(text, &[('h', host)])
                .or_else(|reason| refuse(place, format!("HostName: {reason}")))?,
            None => host.to_owned(),
        };
        let user = match (asked.user, values.user) {
            (Some(user), _) => user.to_owned(),
            (None, Some((user, _))) => user,
            (None, None) => local.user.clone(),
        };
        let port = asked
            .port
            .or(values.port.map(|(port, _)| port))
            .unwrap_or(22);

        let (number, uid) = (port.to_string(), local.uid.to_string());
        let home = local.home.to_string_lossy().into_owned();
        let table = [
            ('h', host_name.as_str()),
            ('n', host),
            ('k', host),
            ('p', number.as_str()),
            ('r', user.as_str()),
            ('u', local.user.as_str()),
            ('i', uid.as_str()),
            ('d', home.as_str()),
        ];
        let path = |what: &str, text: &str, place: &Place| {
            tokens::percent(text, &table)
                .and_then(|text| tokens::variables(&text, local))
                .and_then(|text| tokens::home(&text, local))
                .or_else(|reason| refuse(place, format!("{what}: {reason}")))
        };
        let paths = |what: &str, found: &Found<Vec<String>>, usual: [PathBuf; 2]| match found {
            None => Ok(usual.to_vec()),
            Some((list, _)) if list.iter().all(|text| text.eq_ignore_ascii_case("none")) => {
                Ok(Vec::new())
            }
            Some((list, place)) => list.iter().map(|text| path(what, text, place)).collect(),
        };

        let ssh = local.home.join(".ssh");
        let identities_given = !values.identity_files.is_empty();
        let mut identity_files = Vec::new();
        for (text, place) in &values.identity_files {
            if !text.eq_ignore_ascii_case("none") {
                let file = path("IdentityFile", text, place)?;
                if !identity_files.contains(&file) {
                    identity_files.push(file);
                }
            }
        }
        if !identities_given {
            identity_files = ["id_rsa", "id_ecdsa", "id_ed25519"]
                .iter()
                .map(|name| ssh.join(name))
                .collect();
        }
        let agent = match &values.agent {
            None => Agent::Environment,
            Some((text, place)) => match text.as_str() {
                text if text.eq_ignore_ascii_case("none") => Agent::None,
                "SSH_AUTH_SOCK" => Agent::Environment,
                text => match text.strip_prefix('$').filter(|name| !name.starts_with('{')) {
                    Some(name) => match (local.variable)(name) {
                        Some(socket) => Agent::Socket(socket.into()),
                        None => Agent::None,
                    },
                    None => Agent::Socket(path("IdentityAgent", text, place)?),
                },
            },
        };
        let jumps = match &values.jumps {
            None => Vec::new(),
            Some((text, place)) => tokens::percent(text, &table)
                .and_then(|text| jumps(&text))
                .or_else(|reason| refuse(place, format!("ProxyJump: {reason}")))?,
        };
        let user_known_hosts = paths(
            "UserKnownHostsFile",
            &values.user_known_hosts,
            [ssh.join("known_hosts"), ssh.join("known_hosts2")],
        )?;
        let global_known_hosts = paths(
            "GlobalKnownHostsFile",
            &values.global_known_hosts,
            [
                "/etc/ssh/ssh_known_hosts".into(),
                "/etc/ssh/ssh_known_hosts2".into(),
            ],
        )?;
        Ok(Resolved {
            host: host.to_owned(),
            user,
            port,
            identity_files,
            identities_given,
            identities_only: values.identities_only.is_some_and(|(only, _)| only),
            agent,
            jumps,
            user_known_hosts,
            global_known_hosts,
            strict: values.strict.map(|(strict, _)| strict).unwrap_or_default(),
            hash_known_hosts: values.hash_known_hosts.is_some_and(|(hash, _)| hash),
            connect_timeout: values.connect_timeout.and_then(|(time, _)| time),
            family: values.family.map(|(family, _)| family).unwrap_or_default(),
            notices,
            host_name,
        })
    }
}

/// The words of a line, or where it cannot be read.
fn arguments<'w>(words: &'w Words, place: &Place) -> Result<&'w Vec<String>, Refusal> {
    words
        .arguments
        .as_ref()
        .or_else(|reason| refuse(place, format!("{}: {reason}", words.written)))
}

/// `none`, or `[user@]host[:port]` and `ssh://…`, with commas between.
fn jumps(text: &str) -> Result<Vec<Jump>, String> {
    if text.eq_ignore_ascii_case("none") {
        return Ok(Vec::new());
    }
    text.split(',')
        .map(|hop| {
            Jump::parse(hop).ok_or_else(|| {
                format!("{hop:?} is not [user@]host[:port] or ssh://[user@]host[:port]")
            })
        })
        .collect()
}

impl Jump {
    /// `[user@]host[:port]` or `ssh://[user@]host[:port]`; an address with colons stands in
    /// brackets when a port follows.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = match text.strip_prefix("ssh://") {
            Some(rest) => rest.strip_suffix('/').unwrap_or(rest),
            None => text,
        };
        let (user, rest) = match text.rsplit_once('@') {
            Some(("", _)) => return None,
            Some((user, rest)) => (Some(user.to_owned()), rest),
            None => (None, text),
        };
        let (host, port) = match rest.strip_prefix('[') {
            Some(inner) => match inner.split_once(']')? {
                (host, "") => (host, None),
                (host, port) => (host, Some(port.strip_prefix(':')?)),
            },
            None => match rest.split_once(':') {
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                _ => (rest, None),
            },
        };
        let port = match port {
            None => None,
            Some(text) => Some(text.parse().ok().filter(|port: &u16| *port > 0)?),
        };
        let bad = |c: char| c.is_whitespace() || c.is_control() || "/'\"`$\\;&|<>()".contains(c);
        if host.is_empty() || host.starts_with('-') || host.contains(bad) {
            return None;
        }
        Some(Self {
            host: host.to_owned(),
            user,
            port,
        })
    }
}
