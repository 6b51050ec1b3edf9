//! Logging in on a connection whose host key is taken: agent, key files, password. Must not know
//! how the connection was made.

use std::path::PathBuf;

use russh::client::{AuthResult, Handle, KeyboardInteractiveAuthResponse};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey};
use russh::{AgentAuthError, MethodKind, MethodSet, Signer};
use std::sync::Arc;
use tokio::net::UnixStream;
use zeroize::Zeroizing;

use super::budget::Budget;
use super::connection::{Client, Seen};
use super::error::SshError;
use super::keys::{self, Candidate, KeyFile, Opened, ReadError};
use crate::event::{Asker, Masks, Scope};
use crate::secret::Secret;

/// Attempts in all; servers usually end the connection at six.
const ATTEMPTS: usize = 5;

/// How often a person may mistype a password.
const TRIES: usize = 3;

/// Rounds of questions a server may ask in one attempt.
const ROUNDS: usize = 8;

/// Who logs in and with what.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    /// Name of the host, for questions.
    pub label: String,
    /// User.
    pub user: String,
    /// Key files that were named.
    pub identities: Vec<PathBuf>,
    /// Key files to try when none was named.
    pub defaults: Vec<PathBuf>,
    /// Whether keys of the agent that no file names stay unused.
    pub only_named: bool,
    /// The agent's socket.
    pub agent: Option<PathBuf>,
    /// Password.
    pub password: Option<Secret>,
}

/// What a login needs from outside.
pub(super) struct Help<'a> {
    pub asker: &'a Asker,
    pub masks: &'a Masks,
    pub opened: &'a Opened,
}

/// Logs in. Only waits for the host use up the budget.
pub(super) async fn login(
    handle: &mut Handle<Client>,
    seen: &Seen,
    who: &Credentials,
    help: &Help<'_>,
    budget: &mut Budget,
) -> Result<(), SshError> {
    let mut attempt = Attempt {
        handle,
        seen,
        who,
        help,
        budget,
        methods: MethodSet::empty(),
        tried: Vec::new(),
        notes: Vec::new(),
        used: 0,
        rsa: None,
    };
    attempt.all().await
}

struct Attempt<'a> {
    handle: &'a mut Handle<Client>,
    seen: &'a Seen,
    who: &'a Credentials,
    help: &'a Help<'a>,
    budget: &'a mut Budget,
    /// What the server still takes.
    methods: MethodSet,
    tried: Vec<String>,
    /// What could not be tried, and why.
    notes: Vec<String>,
    used: usize,
    /// The hash for RSA signatures, once it is known; `None` in it when only SHA-1 would do.
    rsa: Option<Option<HashAlg>>,
}

/// Whether the login is done.
#[derive(PartialEq)]
enum Step {
    Done,
    Next,
}

impl Attempt<'_> {
    async fn all(&mut self) -> Result<(), SshError> {
        let user = self.who.user.clone();
        // Says which methods there are; no attempt in the server's count.
        let answer = self.budget.spend(self.handle.authenticate_none(user)).await;
        if self.settle(answer)? == Step::Done {
            return Ok(());
        }
        let reserved = usize::from(self.who.password.is_some());
        let (mut agent, candidates) = self.candidates(ATTEMPTS - reserved).await;
        for candidate in candidates {
            if !self.methods.contains(&MethodKind::PublicKey) || self.used >= ATTEMPTS {
                break;
            }
            if self.key(&mut agent, candidate).await? == Step::Done {
                return Ok(());
            }
        }
        if self.password().await? == Step::Done {
            return Ok(());
        }
        Err(self.refused())
    }

    /// The agent and the keys to try.
    async fn candidates(
        &mut self,
        most: usize,
    ) -> (Option<AgentClient<UnixStream>>, Vec<Candidate>) {
        let (mut client, mut held) = (None, Vec::new());
        if let Some(socket) = &self.who.agent {
            match keys::agent(socket).await {
                Ok((found, identities)) => (client, held) = (Some(found), identities),
                Err(error) => self
                    .notes
                    .push(format!("the agent at {}: {error}", socket.display())),
            }
        }
        let named = !self.who.identities.is_empty();
        let paths = if named {
            &self.who.identities
        } else {
            &self.who.defaults
        };
        let mut files = Vec::new();
        for path in paths {
            match keys::read(path) {
                Ok(file) => files.push(file),
                Err(ReadError::Missing) if named => {
                    self.notes.push(format!("there is no {}", path.display()));
                }
                Err(ReadError::Missing) => {}
                Err(ReadError::Unusable(reason)) => self.notes.push(reason),
            }
        }
        (client, keys::order(held, files, self.who.only_named, most))
    }

    async fn key(
        &mut self,
        agent: &mut Option<AgentClient<UnixStream>>,
        candidate: Candidate,
    ) -> Result<Step, SshError> {
        let name = candidate.name();
        match candidate {
            Candidate::Agent(identity) => match agent {
                Some(agent) => self.by_agent(agent, identity, name).await,
                None => Ok(Step::Next),
            },
            Candidate::File(file) => self.by_file(&file, name).await,
        }
    }

    async fn by_agent(
        &mut self,
        agent: &mut AgentClient<UnixStream>,
        identity: AgentIdentity,
        name: String,
    ) -> Result<Step, SshError> {
        let public = identity.public_key().into_owned();
        let Some(hash) = self.hash(&public, &name).await? else {
            return Ok(Step::Next);
        };
        self.count(&name);
        let user = self.who.user.clone();
        let answer = match identity {
            AgentIdentity::PublicKey { key, .. } => {
                let work = self
                    .handle
                    .authenticate_publickey_with(user, key, hash, agent);
                self.budget.spend(work).await
            }
            AgentIdentity::Certificate { certificate, .. } => {
                let work =
                    self.handle
                        .authenticate_certificate_with(user, certificate, hash, agent);
                self.budget.spend(work).await
            }
        };
        match answer {
            // The agent will not sign with it: the next one may do.
            Some(Err(AgentAuthError::Key(error))) => {
                self.notes.push(format!("{name} signs nothing ({error})"));
                Ok(Step::Next)
            }
            other => self.settle(other),
        }
    }

    async fn by_file(&mut self, file: &KeyFile, name: String) -> Result<Step, SshError> {
        if let Some(public) = &file.public {
            let Some(hash) = self.hash(public, &name).await? else {
                return Ok(Step::Next);
            };
            // Nobody is asked for the passphrase of a key that the host would not take.
            if file.private.is_none() && !self.would_take(public.clone(), hash, &name).await? {
                return Ok(Step::Next);
            }
        }
        let key = match &file.private {
            Some(key) => key.clone(),
            None => match self.help.opened.open(file, self.help.asker).await {
                Ok(key) => key,
                Err(reason) => {
                    self.notes.push(reason);
                    return Ok(Step::Next);
                }
            },
        };
        let Some(hash) = self.hash(key.public_key(), &name).await? else {
            return Ok(Step::Next);
        };
        self.sign(key, hash, &name).await
    }

    async fn sign(
        &mut self,
        key: Arc<PrivateKey>,
        hash: Option<HashAlg>,
        name: &str,
    ) -> Result<Step, SshError> {
        self.count(name);
        let user = self.who.user.clone();
        let key = PrivateKeyWithHashAlg::new(key, hash);
        let answer = self
            .budget
            .spend(self.handle.authenticate_publickey(user, key))
            .await;
        self.settle(answer)
    }

    /// Asks the host whether it would take a key, and signs nothing.
    async fn would_take(
        &mut self,
        key: PublicKey,
        hash: Option<HashAlg>,
        name: &str,
    ) -> Result<bool, SshError> {
        let user = self.who.user.clone();
        let mut pen = NoPen;
        let work = self
            .handle
            .authenticate_publickey_with(user, key, hash, &mut pen);
        match self.budget.spend(work).await {
            Some(Err(Unsigned::Wanted)) => Ok(true),
            other => {
                // A key that is not taken counts as an attempt.
                self.count(name);
                let other = other.map(|answer| answer.map_err(|_| russh::Error::SendError));
                self.settle(other).map(|_| false)
            }
        }
    }

    /// The hash for a key's signatures; `None` when the server knows only broken ones.
    async fn hash(
        &mut self,
        key: &PublicKey,
        name: &str,
    ) -> Result<Option<Option<HashAlg>>, SshError> {
        if !keys::is_rsa(key) {
            return Ok(Some(None));
        }
        if self.rsa.is_none() {
            let work = self.handle.best_supported_rsa_hash();
            self.rsa = Some(match self.budget.spend(work).await {
                None => return Err(self.slow()),
                Some(Ok(Some(hash))) => hash,
                // It does not say; all current servers know it.
                Some(_) => Some(HashAlg::Sha512),
            });
        }
        match self.rsa {
            Some(Some(hash)) => Ok(Some(Some(hash))),
            _ => {
                self.notes.push(format!(
                    "{name} is an RSA key, and the host takes RSA only with SHA-1"
                ));
                Ok(None)
            }
        }
    }

    async fn password(&mut self) -> Result<Step, SshError> {
        let secret = match &self.who.password {
            Some(secret) => {
                let password = secret.fetch().await.map_err(|error| SshError::Refused {
                    step: "login",
                    message: format!("the password: {error}"),
                })?;
                self.help.masks.add(password.as_str());
                Some((password, secret.origin()))
            }
            None => None,
        };
        let tries = if secret.is_some() { 1 } else { TRIES };
        for _ in 0..tries {
            if self.used >= ATTEMPTS {
                break;
            }
            let by_password = self.methods.contains(&MethodKind::Password);
            let by_questions = self.methods.contains(&MethodKind::KeyboardInteractive);
            if !by_password && !by_questions {
                break;
            }
            if secret.is_none() && !self.help.asker.interactive() {
                break;
            }
            if by_questions && (secret.is_none() || !by_password) {
                let given = secret.as_ref().map(|(password, _)| password.as_str());
                if self.questions(given).await? == Step::Done {
                    return Ok(Step::Done);
                }
                continue;
            }
            let (password, origin) = match &secret {
                Some((password, origin)) => (password.clone(), format!("password from {origin}")),
                None => match self.ask("password", true).await {
                    Some(password) => (Zeroizing::new(password), "password".to_owned()),
                    None => break,
                },
            };
            self.count(&origin);
            let user = self.who.user.clone();
            let work = self.handle.authenticate_password(user, password.as_str());
            let answer = self.budget.spend(work).await;
            if self.settle(answer)? == Step::Done {
                return Ok(Step::Done);
            }
        }
        Ok(Step::Next)
    }

    /// Answers the server's own questions. A password that was given answers the one question for
    /// it; all others are put to a person.
    async fn questions(&mut self, given: Option<&str>) -> Result<Step, SshError> {
        let user = self.who.user.clone();
        self.count(match given {
            Some(_) => "password (keyboard-interactive)",
            None => "keyboard-interactive",
        });
        let work = self
            .handle
            .authenticate_keyboard_interactive_start(user, None::<String>);
        let mut answer = self.budget.spend(work).await;
        let mut given = given;
        for _ in 0..ROUNDS {
            let prompts = match answer {
                Some(Ok(KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. })) => prompts,
                Some(Ok(KeyboardInteractiveAuthResponse::Success)) => return Ok(Step::Done),
                Some(Ok(KeyboardInteractiveAuthResponse::Failure {
                    remaining_methods,
                    partial_success,
                })) => {
                    return self.settle(Some(Ok::<_, russh::Error>(AuthResult::Failure {
                        remaining_methods,
                        partial_success,
                    })));
                }
                Some(Err(_)) => return Err(self.gone()),
                None => return Err(self.slow()),
            };
            let mut answers = Vec::new();
            for prompt in &prompts {
                let said = match given.take() {
                    Some(password) if prompts.len() == 1 && !prompt.echo => password.to_owned(),
                    _ => match self.ask(&clean(&prompt.prompt), !prompt.echo).await {
                        Some(said) => said,
                        None => {
                            self.notes.push(format!(
                                "the host asks {:?}, and nobody can be asked",
                                clean(&prompt.prompt)
                            ));
                            String::new()
                        }
                    },
                };
                answers.push(said);
            }
            let work = self
                .handle
                .authenticate_keyboard_interactive_respond(answers);
            answer = self.budget.spend(work).await;
        }
        Ok(Step::Next)
    }

    async fn ask(&self, what: &str, secret: bool) -> Option<String> {
        let text = format!("{what} of {} on {}", self.who.user, self.who.label);
        let scope = Scope::host(&self.who.label);
        self.help.asker.ask(scope, text, &[], secret).await
    }

    fn count(&mut self, name: &str) {
        self.used += 1;
        if !self.tried.iter().any(|tried| tried == name) {
            self.tried.push(name.to_owned());
        }
    }

    /// Takes an answer of the server.
    fn settle<E>(&mut self, answer: Option<Result<AuthResult, E>>) -> Result<Step, SshError> {
        match answer {
            None => Err(self.slow()),
            Some(Err(_)) => Err(self.gone()),
            Some(Ok(AuthResult::Success)) => Ok(Step::Done),
            Some(Ok(AuthResult::Failure {
                remaining_methods,
                partial_success,
            })) => {
                // A connection that ended is told as a failure that leaves nothing to try.
                if remaining_methods.is_empty()
                    && (self.handle.is_closed() || self.seen.lost().is_some())
                {
                    return Err(self.gone());
                }
                if partial_success {
                    self.notes.push("the host wants more than one proof".into());
                }
                self.methods = remaining_methods;
                Ok(Step::Next)
            }
        }
    }

    fn slow(&self) -> SshError {
        SshError::Unreachable {
            step: "login",
            message: format!(
                "the login of {} was not answered within {}{}",
                self.who.user,
                self.budget.figure(),
                self.history()
            ),
        }
    }

    /// The server ended the connection.
    fn gone(&self) -> SshError {
        let reason = self.seen.lost().unwrap_or_default();
        if reason.contains("Too many authentication failures") {
            return SshError::Refused {
                step: "login",
                message: format!(
                    "the host ended the login of {} after too many authentication attempts{}: name \
                     the right key with `ssh.identity`, or take keys out of the agent",
                    self.who.user,
                    self.history()
                ),
            };
        }
        SshError::Refused {
            step: "login",
            message: format!(
                "the host ended the connection during the login of {}: {}{}",
                self.who.user,
                if reason.is_empty() {
                    "it did not say why"
                } else {
                    &reason
                },
                self.history()
            ),
        }
    }

    fn refused(&self) -> SshError {
        let methods: Vec<&str> = self.methods.iter().map(<&str>::from).collect();
        let remedy = if self.tried.is_empty() && self.notes.is_empty() {
            "name a key with `ssh.identity`, start an agent, or set `ssh.password`"
        } else {
            "set `user`, `ssh.identity` or `ssh.password`, or copy a key there (`ssh-copy-id`)"
        };
        SshError::Refused {
            step: "login",
            message: format!(
                "the host did not let {} in; it takes {}{}: {remedy}",
                self.who.user,
                if methods.is_empty() {
                    "nothing more".to_owned()
                } else {
                    methods.join(", ")
                },
                self.history(),
            ),
        }
    }

    /// What was tried, as a part of a sentence.
    fn history(&self) -> String {
        let mut parts = Vec::new();
        if self.tried.is_empty() {
            parts.push("nothing could be tried".to_owned());
        } else {
            parts.push(format!("tried: {}", self.tried.join(", ")));
        }
        parts.extend(self.notes.iter().cloned());
        format!(" ({})", parts.join("; "))
    }
}

/// A server's text without what could move a terminal's cursor, and not too long.
fn clean(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(200)
        .collect();
    text.trim().trim_end_matches(':').to_owned()
}

/// A signer that signs nothing: that it is asked is all that is wanted to know.
struct NoPen;

/// Why nothing was signed.
enum Unsigned {
    /// A signature was asked for.
    Wanted,
    /// The connection is gone.
    Gone,
}

impl From<russh::SendError> for Unsigned {
    fn from(_: russh::SendError) -> Self {
        Self::Gone
    }
}

impl Signer for NoPen {
    type Error = Unsigned;

    async fn auth_sign(
        &mut self,
        _key: &AgentIdentity,
        _hash: Option<HashAlg>,
        _text: Vec<u8>,
    ) -> Result<Vec<u8>, Self::Error> {
        Err(Unsigned::Wanted)
    }
}
