//! From a target to a session: resolve, connect, host key, login, first command; each within its
//! time. See [`Connector`].

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use russh::client::{Config, Handle};
use russh::keys::{Algorithm, EcdsaCurve, HashAlg};
use russh::{AlgorithmKind, Preferred, cipher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;

use super::budget::Budget;
use super::config::{self, Local, Notice, NoticeKind};
use super::connection::{Client, Connection, Cut, Seen};
use super::dial;
use super::error::SshError;
use super::hop::{self, Hop};
use super::keys::Opened;
use super::known_hosts::PublicKeyBlob;
use super::lines::Lines;
use super::login::{self, Help};
use super::session::{Session, Sudo};
use super::target::Target;
use super::trust::{Judgement, shown};
use super::windows;
use crate::event::{Asker, Emitter, Event, Level, Scope};

/// Our receive window for each channel, bytes: what a host may send before it must wait, enough for
/// 1 Gb/s over 60 ms.
const WINDOW: u32 = 8 << 20;

/// Packets of a channel that wait for their reader.
const PACKETS: usize = 256;

/// Between signs of life, and how many may stay without an answer.
const ALIVE: Duration = Duration::from_secs(15);
const ALIVE_MOST: usize = 3;

/// Settings of a [`Connector`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Home folder: `.ssh` in it has the user's keys, known hosts and configuration.
    pub home: PathBuf,
    /// Name of the local user, who also logs in when nothing else is said.
    pub user: String,
    /// Known-hosts file instead of the user's and the system's.
    pub known_hosts: Option<PathBuf>,
    /// ssh configuration instead of the user's and the system's.
    pub ssh_config: Option<PathBuf>,
    /// Socket of the agent.
    pub agent: Option<PathBuf>,
    /// Takes the keys of unknown hosts and writes them down.
    pub accept_new: bool,
    /// How long each host may take until its first command is answered.
    pub limit: Duration,
}

impl Options {
    /// The most that a host may take to be reached, unless said otherwise.
    pub const LIMIT: Duration = Duration::from_secs(10);

    /// Those of the local user.
    pub fn of_user(accept_new: bool) -> Self {
        let local = Local::of_process();
        let socket = std::env::var_os("SSH_AUTH_SOCK").filter(|socket| !socket.is_empty());
        Self {
            home: local.home,
            user: local.user,
            known_hosts: None,
            ssh_config: None,
            agent: socket.map(PathBuf::from),
            accept_new,
            limit: Self::LIMIT,
        }
    }
}

/// What came of asking whether a host's key is to be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trusted {
    /// It was known.
    Known,
    /// It was written to this file.
    Written(PathBuf),
    /// It is not known: this key would be asked about.
    Would(String),
}

/// Makes sessions. Cheap to clone; clones share connections to jump hosts, opened keys, and the
/// answers of the person.
#[derive(Clone)]
pub struct Connector {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    asker: Asker,
    emitter: Emitter,
    opened: Opened,
    jumps: Mutex<HashMap<String, Arc<Mutex<Weak<Connection>>>>>,
    /// One question about a host key at a time: its answer may settle the next.
    question: Mutex<()>,
    /// Sentences about the ssh configuration that were told.
    told: std::sync::Mutex<HashSet<String>>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connector({:?})", self.shared.options)
    }
}

impl Connector {
    /// With these settings; questions go to `asker`, notices to `emitter`.
    pub fn new(options: Options, asker: Asker, emitter: Emitter) -> Self {
        Self {
            shared: Arc::new(Shared {
                options,
                asker,
                emitter,
                opened: Opened::default(),
                jumps: Mutex::default(),
                question: Mutex::default(),
                told: std::sync::Mutex::default(),
            }),
        }
    }

    /// Its settings.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Reaches a host and has its shell answer once.
    ///
    /// # Errors
    /// When it is not reached within the limit, or refused. The time that a person takes to answer
    /// does not count.
    pub async fn connect(&self, target: &Target) -> Result<Session, SshError> {
        let shared = &self.shared;
        let limit = shared.options.limit;
        let masks = shared.emitter.masks();
        let sudo = Sudo::new(target.sudo_password.clone(), shared.asker.clone(), masks);
        if target.local {
            let session = Session::here(target.host.clone(), limit, sudo);
            session.login().await?;
            return Ok(session);
        }
        let (last, via) = self.way(target).await?;
        let (connection, budget) = self.reach(&last, via).await?;
        let lines = Lines::new(connection, self.clone(), target.clone());
        let session = Session::by_ssh(target.host.clone(), lines, limit, sudo);
        match session.login_within(budget.left()).await {
            Ok(_) => Ok(session),
            Err(SshError::TooLong { .. }) => Err(SshError::Unreachable {
                step: "open",
                message: format!(
                    "{} was let in, and the login shell answered nothing within {}: something in \
                     the user's shell profile, or a home folder on a network that is gone, holds \
                     it up",
                    last.credentials.user,
                    budget.figure()
                ),
            }),
            Err(error) => Err(error),
        }
    }

    /// Another connection to a host that was reached.
    ///
    /// # Errors
    /// As for the first.
    pub(super) async fn another(&self, target: &Target) -> Result<Arc<Connection>, SshError> {
        let (last, via) = self.way(target).await?;
        let (connection, _) = self.reach(&last, via).await?;
        Ok(connection)
    }

    /// Asks a host for its key and whether to take it, and writes it down. Nobody logs in. The key of an
    /// unknown host is taken without asking where the settings say so; the ssh configuration does not.
    /// With `check`, nobody is asked and nothing is written.
    ///
    /// # Errors
    /// Also when the person says no, or the host is known by another key.
    pub async fn trust(&self, target: &Target, check: bool) -> Result<Trusted, SshError> {
        let (mut hop, via) = self.way(target).await?;
        // Here a person decides, whatever becomes of unknown hosts elsewhere.
        hop.trust.asked = true;
        let mut budget = Budget::new(hop.limit);
        let key = match self.shake(&hop, via, None, &mut budget).await? {
            Shaken::Taken(..) => return Ok(Trusted::Known),
            Shaken::Ask(key) => key,
        };
        if check {
            let shown = PublicKeyBlob::new(&key).map(|key| shown(&key));
            return Ok(Trusted::Would(shown.unwrap_or_default()));
        }
        if self.shared.options.accept_new
            && let Some(file) = hop.trust.write_unknown(&key)?
        {
            self.note_written(&hop, &key, &file);
            return Ok(Trusted::Written(file));
        }
        let written = self.question(&hop, &key).await?;
        Ok(written.map_or(Trusted::Known, Trusted::Written))
    }

    /// The target's own hop, and the connection to the last jump host before it.
    pub(super) async fn way(
        &self,
        target: &Target,
    ) -> Result<(Hop, Option<Arc<Connection>>), SshError> {
        let (mut hops, notices) = hop::hops(target, &self.shared.options)?;
        self.tell(&notices);
        let last = hops.pop().ok_or_else(|| SshError::Config {
            message: "there is no host to connect to".into(),
        })?;
        let mut via: Option<Arc<Connection>> = None;
        let mut way = String::new();
        for jump in &hops {
            way = format!("{way} {}", jump.name());
            let reached = self.shared_jump(&way, jump, via).await;
            via = Some(reached.map_err(|error| through(jump, error))?);
        }
        Ok((last, via))
    }

    /// Tells what there is to tell about the ssh configuration, each sentence once.
    fn tell(&self, notices: &[Notice]) {
        for (kind, sentence) in config::sentences(notices) {
            let mut told = self
                .shared
                .told
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if told.insert(sentence.clone()) {
                let level = match kind {
                    NoticeKind::AcceptNew => Level::Warn,
                    NoticeKind::NotFollowed | NoticeKind::Unknown => Level::Info,
                    NoticeKind::Cosmetic => Level::Debug,
                };
                self.shared.emitter.log(level, sentence);
            }
        }
    }

    /// A connection to a jump host, shared by all that go through it.
    async fn shared_jump(
        &self,
        way: &str,
        hop: &Hop,
        via: Option<Arc<Connection>>,
    ) -> Result<Arc<Connection>, SshError> {
        let slot = {
            let mut jumps = self.shared.jumps.lock().await;
            jumps.entry(way.to_owned()).or_default().clone()
        };
        let mut slot = slot.lock().await;
        if let Some(known) = slot.upgrade().filter(|known| !known.is_lost()) {
            return Ok(known);
        }
        let (connection, _) = self.reach(hop, via).await?;
        *slot = Arc::downgrade(&connection);
        Ok(connection)
    }

    /// Connects and logs in.
    async fn reach(
        &self,
        hop: &Hop,
        via: Option<Arc<Connection>>,
    ) -> Result<(Arc<Connection>, Budget), SshError> {
        let mut confirmed = None;
        loop {
            let mut budget = Budget::new(hop.limit);
            match self.shake(hop, via.clone(), confirmed, &mut budget).await? {
                Shaken::Ask(key) => {
                    self.question(hop, &key).await?;
                    confirmed = Some(key);
                }
                Shaken::Taken(mut handle, seen) => {
                    if windows::by_version(&seen.version()) {
                        return Err(SshError::Unfit {
                            message: windows::WAYS_ON.to_owned(),
                        });
                    }
                    let masks = self.shared.emitter.masks();
                    let help = Help {
                        asker: &self.shared.asker,
                        masks: &masks,
                        opened: &self.shared.opened,
                    };
                    login::login(&mut handle, &seen, &hop.credentials, &help, &mut budget).await?;
                    return Ok((Arc::new(Connection::new(handle, seen, via)), budget));
                }
            }
        }
    }

    /// Connects as far as the host's key.
    pub(super) async fn shake(
        &self,
        hop: &Hop,
        via: Option<Arc<Connection>>,
        confirmed: Option<Vec<u8>>,
        budget: &mut Budget,
    ) -> Result<Shaken, SshError> {
        match via {
            None => {
                let stream = dialled(hop, budget).await?;
                self.shake_on(hop, stream, confirmed, budget).await
            }
            Some(via) => {
                let tunnel = budget.spend(via.tunnel(&hop.address, hop.port)).await;
                let step = "connect";
                let stream = match tunnel {
                    Some(Ok(stream)) => stream,
                    Some(Err(error)) => {
                        return Err(SshError::Unreachable {
                            step,
                            message: format!(
                                "the jump host makes no connection to {}: {}",
                                hop.name(),
                                tunnel_words(&error)
                            ),
                        });
                    }
                    None => {
                        return Err(SshError::Unreachable {
                            step,
                            message: format!(
                                "the jump host made no connection to {} within {}",
                                hop.name(),
                                budget.figure()
                            ),
                        });
                    }
                };
                self.shake_on(hop, stream, confirmed, budget).await
            }
        }
    }

    async fn shake_on<S>(
        &self,
        hop: &Hop,
        stream: S,
        confirmed: Option<Vec<u8>>,
        budget: &mut Budget,
    ) -> Result<Shaken, SshError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let known = hop.trust.known();
        let algorithms = known.algorithms(&hop.trust.host, hop.trust.port);
        let config = Arc::new(library(&preferred_keys(
            hop.trust.pin.as_deref(),
            &algorithms,
        )));
        let seen = Arc::new(Seen::default());
        let client = Client {
            trust: hop.trust.clone(),
            known,
            confirmed,
            seen: seen.clone(),
        };
        let (stream, held) = Cut::new(stream);
        let shaken = budget
            .spend(russh::client::connect_stream(config, stream, client))
            .await;
        let (key, judgement) = seen.judged();
        match (shaken, judgement) {
            (_, Some(Judgement::Bad(error))) => Err(error),
            (_, Some(Judgement::Ask)) => Ok(Shaken::Ask(key)),
            (Some(Ok(handle)), judgement) => {
                if let Some(Judgement::Written(file)) = judgement {
                    self.note_written(hop, &key, &file);
                }
                held.keep();
                Ok(Shaken::Taken(handle, seen))
            }
            (Some(Err(error)), _) => Err(not_shaken(hop, &seen, &error)),
            (None, _) => Err(SshError::Unreachable {
                step: "handshake",
                message: format!(
                    "{} took the connection and said nothing that SSH understands within {}: is \
                     it an SSH server, and is it overloaded?",
                    hop.name(),
                    budget.figure()
                ),
            }),
        }
    }

    /// Asks a person about an unknown key, and writes it down.
    async fn question(&self, hop: &Hop, key: &[u8]) -> Result<Option<PathBuf>, SshError> {
        let _turn = self.shared.question.lock().await;
        let trust = &hop.trust;
        let blob = PublicKeyBlob::new(key).ok_or_else(|| SshError::Refused {
            step: "host key",
            message: "it shows a host key that is none".into(),
        })?;
        // Another host may have been the same one.
        let known = trust.known();
        match trust.judge(&known, key, None) {
            Judgement::Good => return Ok(None),
            Judgement::Bad(error) => return Err(error),
            Judgement::Written(file) => return Ok(Some(file)),
            Judgement::Ask => {}
        }
        let text = format!(
            "{} ({}) is not known; its host key is {}. Is it the right one?",
            trust.label,
            trust.name(),
            shown(&blob)
        );
        let scope = Scope::host(&trust.label);
        let answer = self.shared.asker.ask(scope, text, &["y", "n"], false).await;
        match answer.as_deref().map(str::trim) {
            Some("y" | "Y" | "yes") => trust.write(&blob).map(Some),
            Some(_) => Err(SshError::Refused {
                step: "host key",
                message: format!(
                    "the host key of {} ({}) was not taken",
                    trust.name(),
                    shown(&blob)
                ),
            }),
            None => Err(trust.untaken(&known, &blob)),
        }
    }

    fn note_written(&self, hop: &Hop, key: &[u8], file: &std::path::Path) {
        let key = PublicKeyBlob::new(key).map_or_else(String::new, |key| shown(&key));
        self.shared.emitter.emit(
            Scope::host(&hop.trust.label),
            Event::log(
                Level::Info,
                format!(
                    "the host key of {} ({key}) was taken as new and written to {}",
                    hop.trust.name(),
                    file.display()
                ),
            ),
        );
    }
}

/// How far a connection came.
pub(super) enum Shaken {
    /// The key is taken.
    Taken(Handle<Client>, Arc<Seen>),
    /// A person has to say.
    Ask(Vec<u8>),
}

async fn dialled(hop: &Hop, budget: &mut Budget) -> Result<tokio::net::TcpStream, SshError> {
    let (address, name) = (&hop.address, hop.name());
    let unreachable = |step, message| Err(SshError::Unreachable { step, message });
    let addresses = match budget
        .spend(dial::resolve(address, hop.port, hop.family))
        .await
    {
        Some(Ok(addresses)) => addresses,
        Some(Err(error)) => {
            return unreachable(
                "resolve",
                format!(
                    "the name {address} has no address ({error}): set `address` for the host, or \
                     add it to /etc/hosts"
                ),
            );
        }
        None => {
            return unreachable(
                "resolve",
                format!(
                    "no name server told the address of {address} within {}",
                    budget.figure()
                ),
            );
        }
    };
    match budget.spend(dial::connect(&addresses)).await {
        Some(Ok(stream)) => Ok(stream),
        Some(Err(said)) => unreachable(
            "connect",
            format!("{name} takes no connection ({said}): is the host up, and is sshd running?"),
        ),
        None => unreachable(
            "connect",
            format!(
                "{name} did not answer within {}: is the host up, and does a firewall let port {} \
                 through?",
                budget.figure(),
                hop.port
            ),
        ),
    }
}

/// Why there was no handshake.
fn not_shaken(hop: &Hop, seen: &Seen, error: &russh::Error) -> SshError {
    let name = hop.name();
    let message = match error {
        russh::Error::NoCommonAlgo { kind, theirs, .. } => format!(
            "{name} and windlass have no {} in common; the host offers {}: update its SSH server",
            match kind {
                AlgorithmKind::Kex => "key exchange",
                AlgorithmKind::Key => "kind of host key",
                AlgorithmKind::Cipher => "cipher",
                AlgorithmKind::Compression => "compression",
                AlgorithmKind::Mac => "message code",
            },
            theirs.join(", ")
        ),
        russh::Error::Version => format!("what listens at {name} is no SSH 2 server"),
        russh::Error::HUP | russh::Error::Disconnect | russh::Error::IO(_) => {
            let reason = match (seen.lost(), error) {
                (Some(lost), _) => lost,
                (None, russh::Error::IO(error)) => error.to_string(),
                (None, _) => "it did not say why".to_owned(),
            };
            format!(
                "{name} closed the connection during the handshake ({reason}): its SSH server may \
                 be too busy (MaxStartups) or refuse this machine's address"
            )
        }
        other => format!("the SSH handshake with {name} failed: {other}"),
    };
    SshError::Unreachable {
        step: "handshake",
        message,
    }
}

fn tunnel_words(error: &russh::Error) -> String {
    use russh::ChannelOpenFailure as Failure;
    match error {
        russh::Error::ChannelOpenFailure(Failure::ConnectFailed) => {
            "it cannot connect there".to_owned()
        }
        russh::Error::ChannelOpenFailure(Failure::AdministrativelyProhibited) => {
            "its SSH server does not allow forwarding (AllowTcpForwarding)".to_owned()
        }
        other => other.to_string(),
    }
}

/// An error of a jump host on the way to another.
fn through(jump: &Hop, error: SshError) -> SshError {
    let at = |message: String| format!("jump host {}: {message}", jump.name());
    match error {
        SshError::Unreachable { step, message } => SshError::Unreachable {
            step,
            message: at(message),
        },
        SshError::Refused { step, message } => SshError::Refused {
            step,
            message: at(message),
        },
        SshError::Config { message } => SshError::Config {
            message: at(message),
        },
        SshError::Unfit { message } => SshError::Unfit {
            message: at(message),
        },
        other => other,
    }
}

/// The library's settings.
fn library(keys: &[Algorithm]) -> Config {
    Config {
        window_size: WINDOW,
        maximum_packet_size: 65535,
        channel_buffer_size: PACKETS,
        keepalive_interval: Some(ALIVE),
        keepalive_max: ALIVE_MOST,
        nodelay: true,
        preferred: Preferred {
            key: Cow::Owned(keys.to_vec()),
            // AES first: all processors of these hosts have instructions for it.
            cipher: Cow::Borrowed(&[
                cipher::AES_128_GCM,
                cipher::AES_256_GCM,
                cipher::CHACHA20_POLY1305,
                cipher::AES_256_CTR,
                cipher::AES_192_CTR,
                cipher::AES_128_CTR,
            ]),
            ..Preferred::default()
        },
        ..Config::default()
    }
}

/// Kinds of host keys to ask for, best first: those the host is known by before all others, so that
/// a known host shows the key by which it is known. SHA-1 is left out.
fn preferred_keys(pin: Option<&str>, known: &[String]) -> Vec<Algorithm> {
    let ecdsa = |curve| Algorithm::Ecdsa { curve };
    let rsa = |hash| Algorithm::Rsa { hash: Some(hash) };
    let all = [
        Algorithm::Ed25519,
        ecdsa(EcdsaCurve::NistP256),
        ecdsa(EcdsaCurve::NistP384),
        ecdsa(EcdsaCurve::NistP521),
        rsa(HashAlg::Sha512),
        rsa(HashAlg::Sha256),
    ];
    let is = |algorithm: &Algorithm, name: &str| match algorithm {
        Algorithm::Rsa { .. } => name == "ssh-rsa",
        other => other.as_str() == name,
    };
    let pinned = pin.and_then(|pin| pin.split_whitespace().next());
    let wanted: Vec<&str> = match pinned {
        Some(name) => vec![name],
        None => known.iter().map(String::as_str).collect(),
    };
    let mut order: Vec<Algorithm> = Vec::new();
    for name in wanted {
        order.extend(all.iter().filter(|one| is(one, name)).cloned());
    }
    let rest: Vec<_> = all.into_iter().filter(|one| !order.contains(one)).collect();
    order.extend(rest);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_keys_by_which_a_host_is_known_are_asked_for_first() {
        let order = |pin: Option<&str>, known: &[&str]| {
            let known: Vec<String> = known.iter().map(|one| (*one).to_owned()).collect();
            preferred_keys(pin, &known)
                .iter()
                .map(|one| one.as_str().to_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let rest = "ecdsa-sha2-nistp256 ecdsa-sha2-nistp384 ecdsa-sha2-nistp521";
        assert_eq!(
            order(None, &[]),
            format!("ssh-ed25519 {rest} rsa-sha2-512 rsa-sha2-256")
        );
        assert_eq!(
            order(None, &["ssh-rsa"]),
            format!("rsa-sha2-512 rsa-sha2-256 ssh-ed25519 {rest}")
        );
        assert!(
            order(Some("ecdsa-sha2-nistp384 AAAA"), &["ssh-rsa"])
                .starts_with("ecdsa-sha2-nistp384")
        );
        assert!(order(Some("SHA256:abc"), &[]).starts_with("ssh-ed25519"));
    }
}
