//! Rebooting a host: asked for, waited for with a deadline, judged by the boot's id. Must not know why
//! a host is rebooted, nor in which order hosts are.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::event::{Emitter, Event, Failure, FailureKind, Level, Scope};
use crate::inventory::{Host, Inventory};
use crate::reach;
use crate::ssh::{Caps, Connector, Session, SshError, Target};

/// How long lies between two tries to reach a host that reboots.
const EVERY: Duration = Duration::from_secs(1);
/// How long one try may take.
const TRY: Duration = Duration::from_secs(30);
/// What a word with the host may take.
const CAPS: Caps = Caps {
    stdout: 4 << 10,
    stderr: 16 << 10,
    time: Duration::from_secs(30),
};

/// Why a host that answers is not there yet.
pub const STILL: &str = "it is still in the boot from before";

/// Prints the boot's id: another one after each start.
const ID: &str = "PATH=$PATH:/usr/sbin:/sbin\n\
     cat /proc/sys/kernel/random/boot_id 2>/dev/null || sysctl -n kern.bootsessionuuid\n";

/// Starts a reboot a moment later, so that the script itself can end.
const REBOOT: &str = "PATH=$PATH:/usr/sbin:/sbin\n\
     nohup sh -c 'sleep 1; systemctl reboot || shutdown -r now || reboot' >/dev/null 2>&1 </dev/null &\n";

/// A host's way back: how it is reached again, and how long that may take.
#[derive(Clone)]
pub struct Return {
    connector: Connector,
    target: Target,
    patience: Duration,
}

impl std::fmt::Debug for Return {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Return({})", self.target.host)
    }
}

/// Why a host is not there in another boot.
#[derive(Clone, Debug)]
pub enum NotBack {
    /// It could not be asked to reboot: nothing happened.
    NotAsked(Failure),
    /// It was asked, and did not come back in time.
    Away {
        /// Why the last try failed.
        why: String,
        /// How long was waited.
        patience: Duration,
    },
    /// It is there, and not as it must be: there is nothing to wait for.
    Other(Failure),
}

/// What one try to find a host in its new boot came to.
#[derive(Debug)]
pub enum Tried<T> {
    /// It is there.
    Back(T),
    /// Not yet, and why.
    NotYet(String),
    /// It is there, and not as it must be.
    Other(Failure),
}

impl NotBack {
    /// As a failure of a step. `console`: what a person types on the host's console, or looks for there.
    pub fn failure(self, host: &str, step: &str, console: &str) -> Failure {
        match self {
            Self::NotAsked(failure) | Self::Other(failure) => failure,
            Self::Away { why, patience } => failed(
                host,
                step,
                format!(
                    "it did not come back within {} s ({}). {console}",
                    patience.as_secs(),
                    plain(&why)
                ),
            ),
        }
    }
}

fn failed(host: &str, step: &str, what: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Host, format!("{host}: {what}"))
        .on(host)
        .at(step)
}

fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}

/// Which boot a host is in; `None` when it does not say.
///
/// # Errors
/// When it cannot be asked.
pub async fn boot_id(session: &Session) -> Result<Option<String>, SshError> {
    let output = session.run("asking for the boot's id", ID, CAPS).await?;
    Ok(id(&output.text()))
}

fn id(said: &str) -> Option<String> {
    let said = said.trim();
    let fits = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    ((8..=64).contains(&said.len()) && said.bytes().all(fits)).then(|| said.to_owned())
}

/// Refuses hosts that are not rebooted from here, before anything is changed on them. Gives the id of
/// the boot that the host is in.
///
/// # Errors
/// When it is this machine, or does not say which boot it is in.
pub async fn may(session: &Session, step: &str) -> Result<String, Failure> {
    let host = session.host();
    if session.is_local() {
        return Err(failed(
            host,
            step,
            "it is this machine, which is not rebooted under you: leave it out, and reboot it yourself",
        ));
    }
    match boot_id(session).await {
        Ok(Some(id)) => Ok(id),
        Ok(None) => Err(failed(
            host,
            step,
            "it does not say which boot it is in, so nobody could tell that it rebooted: reboot it \
             yourself",
        )),
        Err(error) => Err(error.failure(host).at(step)),
    }
}

impl Return {
    /// Of a host of the inventory, which may stay away for as long as `patience`.
    pub fn new(
        connector: Connector,
        inventory: &Inventory,
        host: &Host,
        patience: Duration,
    ) -> Self {
        Self {
            connector,
            target: reach::target(inventory, host),
            patience,
        }
    }

    /// A session to it, where the one before is lost.
    ///
    /// # Errors
    /// When it is not reached.
    pub async fn connect(&self) -> Result<Session, SshError> {
        self.connector.connect(&self.target).await
    }

    /// Reboots the host and waits until it is there in another boot than `before`, and `look` at it
    /// worked.
    ///
    /// # Errors
    /// When it could not be asked, or was not there in time.
    pub async fn reboot<T, Look, Looked>(
        &self,
        session: &Session,
        before: &str,
        step: &str,
        emitter: &Emitter,
        look: Look,
    ) -> Result<(Session, T), NotBack>
    where
        Look: Fn(Session) -> Looked,
        Looked: Future<Output = Result<T, SshError>>,
    {
        let look = &look;
        let tried = || async move {
            let tried = async {
                let session = self.connect().await?;
                let id = boot_id(&session).await?;
                if id.is_none_or(|id| id == before) {
                    return Ok(Tried::NotYet(STILL.to_owned()));
                }
                let seen = look(session.clone()).await?;
                Ok::<_, SshError>(Tried::Back((session, seen)))
            };
            let tried = tried.await;
            tried.unwrap_or_else(|error| Tried::NotYet(error.to_string()))
        };
        self.reboot_until(session, before, step, emitter, tried)
            .await
    }

    /// Reboots the host and waits until a try finds it, or something else in its place.
    ///
    /// # Errors
    /// When it could not be asked, was not there in time, or is not as it must be.
    pub async fn reboot_until<T, Try, Trying>(
        &self,
        session: &Session,
        before: &str,
        step: &str,
        emitter: &Emitter,
        tried: Try,
    ) -> Result<T, NotBack>
    where
        Try: Fn() -> Trying,
        Trying: Future<Output = Tried<T>>,
    {
        let host = session.host();
        let say = |words: &str| {
            let scope = Scope::host(host).in_task(step);
            emitter.emit(scope, Event::log(Level::Info, words));
        };
        say("it reboots");
        self.ask(session, before, step).await?;
        let found = self.wait(tried).await?;
        say("it is back, in another boot");
        Ok(found)
    }

    /// Asks for the reboot. Where the session is lost meanwhile, nobody knows whether the host heard it:
    /// one that is still there is asked again, and any other is waited for.
    async fn ask(&self, session: &Session, before: &str, step: &str) -> Result<(), NotBack> {
        let host = session.host();
        let ask =
            |session: Session| async move { session.run_as_root("rebooting", REBOOT, CAPS).await };
        let mut asked = ask(session.clone()).await;
        if asked.is_err() && session.is_lost() {
            let Ok(anew) = self.connect().await else {
                return Ok(());
            };
            match boot_id(&anew).await {
                Ok(Some(id)) if id == before => asked = ask(anew).await,
                _ => return Ok(()),
            }
        }
        match asked {
            Ok(asked) if asked.ok() => Ok(()),
            Ok(asked) => {
                let words = format!("rebooting: {}", plain(&asked.last_words()));
                Err(NotBack::NotAsked(failed(host, step, words)))
            }
            Err(error) => Err(NotBack::NotAsked(error.failure(host).at(step))),
        }
    }

    /// Waits for it.
    async fn wait<T, Try, Trying>(&self, tried: Try) -> Result<T, NotBack>
    where
        Try: Fn() -> Trying,
        Trying: Future<Output = Tried<T>>,
    {
        let end = Instant::now() + self.patience;
        let mut why = "it was not tried".to_owned();
        while Instant::now() < end {
            tokio::time::sleep(EVERY).await;
            match tokio::time::timeout(TRY, tried()).await {
                Ok(Tried::Back(found)) => return Ok(found),
                Ok(Tried::NotYet(reason)) => why = reason,
                Ok(Tried::Other(failure)) => return Err(NotBack::Other(failure)),
                Err(_) => why = format!("no answer within {} s", TRY.as_secs()),
            }
        }
        Err(NotBack::Away {
            why,
            patience: self.patience,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_looks_like_a_boot_s_id_is_one() {
        let id_of_linux = "6f9619ff-8b86-d011-b42d-00cf4fc964ff";
        assert_eq!(
            id(&format!("{id_of_linux}\n")).as_deref(),
            Some(id_of_linux)
        );
        for said in ["", "\n", "sysctl: unknown oid", "abc", "welcome to host"] {
            assert_eq!(id(said), None, "{said}");
        }
    }

    #[test]
    fn a_host_that_stays_away_is_told_of_with_what_to_type_there() {
        let away = NotBack::Away {
            why: "no\u{1b}[2J route".into(),
            patience: Duration::from_secs(8),
        };
        let failure = away.failure("h1", "align", "On its console: x");
        assert_eq!(
            failure.message,
            "h1: it did not come back within 8 s (no [2J route). On its console: x"
        );
        assert_eq!(failure.host.as_deref(), Some("h1"));
    }
}
