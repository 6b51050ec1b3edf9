//! A host as reached. See [`Session`].

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, OnceCell};
use zeroize::Zeroizing;

use super::error::SshError;
use super::lines::Lines;
use super::local;
use super::process::{self, Process};
use super::root::{self, NoRoot};
use super::shell::{self, What};
use crate::event::{Asker, Masks, Scope};
use crate::secret::Secret;

/// The one line that is ever given to a login shell.
const LINE: &str = "exec sh -s";

/// How long a host may take to open a channel, and sudo to answer, unless said otherwise.
const LIMIT: Duration = Duration::from_secs(10);

/// How often a person may mistype a password.
const TRIES: usize = 3;

/// What a command may take at most.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Bytes on stdout.
    pub stdout: usize,
    /// Bytes on stderr.
    pub stderr: usize,
    /// Time.
    pub time: Duration,
}

impl Default for Caps {
    /// 1 MiB, 64 KiB, 60 s.
    fn default() -> Self {
        Self {
            stdout: 1 << 20,
            stderr: 64 << 10,
            time: Duration::from_secs(60),
        }
    }
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this status.
    Status(u32),
    /// By this signal, named without `SIG`.
    Signal(String),
    /// The channel closed without saying.
    Unknown,
}

/// What a command said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub ending: Ending,
    /// What it wrote to stdout, banners and login noise left out.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr, likewise.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Whether it ended with status 0.
    pub fn ok(&self) -> bool {
        self.ending == Ending::Status(0)
    }

    /// Its stdout as text; what is not UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The last line of stderr that is not empty, for messages.
    pub fn last_words(&self) -> String {
        String::from_utf8_lossy(&self.stderr)
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default()
            .trim()
            .to_owned()
    }
}

/// A program that runs on the host: bytes both ways. Dropping it ends the program (its stdin ends
/// and the channel is closed).
///
/// All that a host sends comes over one connection: a stream whose stdout is not read for long
/// (some MiB) holds up every other stream and command of the same session.
pub struct Stream {
    /// To its stdin; `shutdown` ends it.
    pub stdin: Pin<Box<dyn AsyncWrite + Send>>,
    /// Its stdout, from the first byte the program itself wrote.
    pub stdout: Pin<Box<dyn AsyncRead + Send>>,
    /// How it ended and the last of its stderr (at most 64 KiB), once stdout has ended.
    pub ended: tokio::sync::oneshot::Receiver<(Ending, Vec<u8>)>,
}

/// Who is logged in on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Its name.
    pub user: String,
    /// Its number; 0 is root.
    pub uid: u32,
    /// Its home folder.
    pub home: String,
    /// Its login shell, as it says.
    pub shell: String,
}

/// Where root's password comes from.
#[derive(Debug, Default)]
pub(super) struct Sudo {
    /// As the inventory has it.
    pub password: Option<Secret>,
    /// Asks for it, when the inventory has none.
    pub asker: Option<Asker>,
    /// Where it is hidden.
    pub masks: Masks,
    /// How it worked before.
    found: Mutex<Option<Found>>,
}

/// How sudo makes root.
#[derive(Clone)]
enum Found {
    /// Without a password.
    Free,
    /// With this one.
    Password(Zeroizing<String>),
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Found(…)")
    }
}

impl Sudo {
    pub fn new(password: Option<Secret>, asker: Asker, masks: Masks) -> Self {
        Self {
            password,
            asker: Some(asker),
            masks,
            found: Mutex::default(),
        }
    }
}

/// A host as reached. Cheap to clone; the connection closes with the last clone.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    host: String,
    way: Way,
    limit: Duration,
    sudo: Sudo,
    login: OnceCell<Login>,
}

enum Way {
    Local,
    Ssh(Box<Lines>),
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({})", self.host())
    }
}

impl Session {
    /// This machine, with nobody to ask for a password.
    pub fn local(host: impl Into<String>) -> Self {
        Self::new(host.into(), Way::Local, LIMIT, Sudo::default())
    }

    /// This machine.
    pub(super) fn here(host: String, limit: Duration, sudo: Sudo) -> Self {
        Self::new(host, Way::Local, limit, sudo)
    }

    /// A host by SSH.
    pub(super) fn by_ssh(host: String, lines: Lines, limit: Duration, sudo: Sudo) -> Self {
        Self::new(host, Way::Ssh(Box::new(lines)), limit, sudo)
    }

    fn new(host: String, way: Way, limit: Duration, sudo: Sudo) -> Self {
        Self {
            inner: Arc::new(Inner {
                host,
                way,
                limit,
                sudo,
                login: OnceCell::new(),
            }),
        }
    }

    /// Name of the host.
    pub fn host(&self) -> &str {
        &self.inner.host
    }

    /// Whether it is this machine, reached without SSH.
    pub fn is_local(&self) -> bool {
        matches!(self.inner.way, Way::Local)
    }

    /// Whether the connection is gone; what is begun then fails.
    pub fn is_lost(&self) -> bool {
        match &self.inner.way {
            Way::Local => false,
            Way::Ssh(lines) => lines.is_lost(),
        }
    }

    /// Who is logged in. Asked of the host once.
    ///
    /// # Errors
    /// When the host does not say.
    pub async fn login(&self) -> Result<Login, SshError> {
        self.inner
            .login
            .get_or_try_init(|| self.ask_login(self.inner.limit))
            .await
            .cloned()
    }

    /// The same, within this time.
    pub(super) async fn login_within(&self, time: Duration) -> Result<Login, SshError> {
        self.inner
            .login
            .get_or_try_init(|| self.ask_login(time))
            .await
            .cloned()
    }

    async fn ask_login(&self, time: Duration) -> Result<Login, SshError> {
        let caps = Caps {
            stdout: 64 << 10,
            stderr: 64 << 10,
            time,
        };
        let script = "id -u; id -un; printf '%s\\n' \"$HOME\" \"$SHELL\"";
        let what = "the first command";
        let output = self.run(what, script, caps).await?;
        let text = output.text();
        let mut lines = text.lines();
        let mut line = || lines.next().unwrap_or_default().to_owned();
        let uid = line().parse().map_err(|_| SshError::Broken {
            what: what.to_owned(),
            reason: format!("`id -u` said {:?}", output.last_words()),
        })?;
        Ok(Login {
            uid,
            user: line(),
            home: line(),
            shell: line(),
        })
    }

    /// Runs a POSIX shell script as the login user. `what` names it in errors. The script has no
    /// input, and an environment as the login shell left it.
    ///
    /// # Errors
    /// When it could not be run to its end within the caps. A script that fails is no error.
    pub async fn run(&self, what: &str, script: &str, caps: Caps) -> Result<Output, SshError> {
        let work = async {
            let process = self.start(what).await?;
            shell::run(self.what(what), process, script, caps).await
        };
        within(what, caps, work).await
    }

    /// The same as root, by sudo when the login user is not root. The time that a person needs to
    /// type a password does not count.
    ///
    /// # Errors
    /// Also when there is no way to become root.
    pub async fn run_as_root(
        &self,
        what: &str,
        script: &str,
        caps: Caps,
    ) -> Result<Output, SshError> {
        let process = self.start_as_root(what).await?;
        let work = shell::run(self.what(what), process, script, caps);
        within(what, caps, work).await
    }

    /// The same as the login user or as root.
    ///
    /// # Errors
    /// As those two.
    pub async fn run_as(
        &self,
        root: bool,
        what: &str,
        script: &str,
        caps: Caps,
    ) -> Result<Output, SshError> {
        if root {
            self.run_as_root(what, script, caps).await
        } else {
            self.run(what, script, caps).await
        }
    }

    /// The same for what must not outlive this call: when it takes too long or says too much, when the
    /// call is dropped and when the connection is lost, the script is ended with all that it started
    /// and that is in its process group. What runs as another user (by sudo in the script) cannot be.
    ///
    /// # Errors
    /// As [`Session::run_as`]; what is told of as too long has ended.
    pub async fn run_bound(
        &self,
        root: bool,
        what: &str,
        script: &str,
        caps: Caps,
    ) -> Result<Output, SshError> {
        let process = if root {
            self.start_as_root(what).await?
        } else {
            self.start(what).await?
        };
        shell::run_bound(self.what(what), process, script, caps).await
    }

    /// Starts a program whose stdin and stdout carry bytes, as the login user or as root. `script`
    /// ends in `exec PROGRAM …`. Bytes are sent to it only after it began.
    ///
    /// # Errors
    /// When it did not begin within the connect limit.
    pub async fn open(&self, what: &str, script: &str, root: bool) -> Result<Stream, SshError> {
        let process = if root {
            self.start_as_root(what).await?
        } else {
            self.start(what).await?
        };
        let limit = self.inner.limit;
        tokio::time::timeout(limit, shell::open(self.what(what), process, script))
            .await
            .map_err(|_| self.slow("the login shell", limit))?
    }

    fn what<'a>(&'a self, what: &'a str) -> What<'a> {
        What {
            host: self.host(),
            what,
        }
    }

    fn slow(&self, who: &str, limit: Duration) -> SshError {
        SshError::Unreachable {
            step: "open",
            message: format!("{who} gave no answer within {} s", limit.as_secs_f64()),
        }
    }

    /// A shell of the login user.
    async fn start(&self, what: &str) -> Result<Process, SshError> {
        match &self.inner.way {
            Way::Local => local::shell(),
            Way::Ssh(lines) => {
                let limit = self.inner.limit;
                let open = async {
                    let (channel, connection) = lines.open(what).await?;
                    process::on_channel(channel, LINE, connection.clone())
                        .await
                        .map_err(|error| connection.not_opened(what, &error))
                };
                tokio::time::timeout(limit, open)
                    .await
                    .unwrap_or_else(|_| Err(self.slow("the SSH server", limit)))
            }
        }
    }

    /// A shell of root.
    async fn start_as_root(&self, what: &str) -> Result<Process, SshError> {
        if self.login().await?.uid == 0 {
            return self.start(what).await;
        }
        // Held while a way is looked for: nobody is asked twice.
        let mut found = self.inner.sudo.found.lock().await;
        if let Some(known) = found.clone() {
            drop(found);
            return match self.sudo(what, &known).await {
                Ok(process) => Ok(process),
                Err(NoRoot::Other(error)) => Err(error),
                Err(NoRoot::Password) => Err(self.no_password()),
                Err(NoRoot::Wrong) => Err(self.wrong_password("is no longer the right one")),
            };
        }
        let (way, process) = self.find_root(what).await?;
        *found = Some(way);
        Ok(process)
    }

    async fn find_root(&self, what: &str) -> Result<(Found, Process), SshError> {
        let sudo = &self.inner.sudo;
        if let Some(secret) = &sudo.password {
            let password = secret.fetch().await.map_err(|error| SshError::Sudo {
                message: format!("the password for sudo: {error}"),
            })?;
            sudo.masks.add(password.as_str());
            let way = Found::Password(password);
            return match self.sudo(what, &way).await {
                Ok(process) => Ok((way, process)),
                Err(NoRoot::Other(error)) => Err(error),
                Err(NoRoot::Password | NoRoot::Wrong) => Err(self.wrong_password(&format!(
                    "from {} is wrong: correct `sudo.password`",
                    secret.origin()
                ))),
            };
        }
        match self.sudo(what, &Found::Free).await {
            Ok(process) => return Ok((Found::Free, process)),
            Err(NoRoot::Other(error)) => return Err(error),
            Err(NoRoot::Password | NoRoot::Wrong) => {}
        }
        let Some(asker) = sudo.asker.as_ref().filter(|asker| asker.interactive()) else {
            return Err(self.no_password());
        };
        let user = self.login().await?.user;
        for _ in 0..TRIES {
            let scope = Scope::host(self.host());
            let text = format!("password of {user} for sudo on {}", self.host());
            let Some(password) = asker.ask(scope, text, &[], true).await else {
                return Err(self.no_password());
            };
            let way = Found::Password(Zeroizing::new(password));
            match self.sudo(what, &way).await {
                Ok(process) => return Ok((way, process)),
                Err(NoRoot::Other(error)) => return Err(error),
                Err(NoRoot::Password | NoRoot::Wrong) => {}
            }
        }
        Err(self.wrong_password(&format!("was wrong {TRIES} times")))
    }

    async fn sudo(&self, what: &str, way: &Found) -> Result<Process, NoRoot> {
        let password = match way {
            Found::Free => None,
            Found::Password(password) => Some(password.as_str()),
        };
        let process = self.start(what).await.map_err(NoRoot::Other)?;
        let limit = self.inner.limit;
        let work = root::become_root(self.what(what), process, password);
        tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
            Err(NoRoot::Other(SshError::Sudo {
                message: format!(
                    "sudo on {} gave no answer within {} s: it may wait for something other than \
                     a password (try `sudo -S true` there), or for a name server",
                    self.host(),
                    limit.as_secs_f64()
                ),
            }))
        })
    }

    fn no_password(&self) -> SshError {
        SshError::Sudo {
            message: format!(
                "sudo on {} wants a password: set `sudo.password` (from a file, a variable or a \
                 command), or allow the user sudo without one",
                self.host()
            ),
        }
    }

    fn wrong_password(&self, what: &str) -> SshError {
        SshError::Sudo {
            message: format!("the password for sudo on {} {what}", self.host()),
        }
    }
}

async fn within<T>(
    what: &str,
    caps: Caps,
    work: impl Future<Output = Result<T, SshError>>,
) -> Result<T, SshError> {
    tokio::time::timeout(caps.time, work)
        .await
        .map_err(|_| SshError::TooLong {
            what: what.to_owned(),
            time: caps.time,
        })?
}
