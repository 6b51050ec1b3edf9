//! The hosts of a run as they were found: session, what is known, base. The first step of every
//! command that works on hosts.

use futures_util::future::join_all;

use super::base::{Base, Known};
use super::deployment::Place;
use super::install::failed;
use super::program::Libc;
use super::record::Record;
use crate::event::{Emitter, Event, Failure, Level, Scope, Status};
use crate::facts::{self, Facts};
use crate::inventory::Host;
use crate::plan::{Capacity, devices};
use crate::ssh::{Session, SshError};

/// A host as it was found.
#[derive(Clone, Debug)]
pub struct Site {
    /// The host, as the inventory has it.
    pub host: Host,
    /// Session and base.
    pub place: Place,
    /// What was read from it.
    pub facts: Facts,
}

impl Site {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.host.name
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.place.session
    }

    /// The base.
    pub fn base(&self) -> &Base {
        &self.place.base
    }

    /// A failure on this host in a step.
    pub fn failed(&self, step: &str, message: impl std::fmt::Display) -> Failure {
        failed(self.session(), step, message)
    }

    /// Threads to compute with: what the inventory says, else all cores.
    pub fn threads(&self) -> u32 {
        self.host
            .threads
            .or(self.facts.cpu.cores)
            .unwrap_or(1)
            .max(1)
    }

    /// What can be planned with. `record` is of the deployment that would be replaced: what it holds
    /// there is given back before the new one starts. (Mapped pieces are page cache and count as
    /// available already.)
    ///
    /// # Errors
    /// When the host does not say how much memory is available.
    pub fn capacity(&self, record: Option<&Record>) -> Result<Capacity, Failure> {
        let available = self.facts.memory.available_bytes.ok_or_else(|| {
            self.failed(
                "memory",
                "the host does not say how much memory is available",
            )
        })?;
        let freed = record
            .filter(|record| record.stage_on(self.name()).is_some())
            .and(self.facts.memory.own_bytes)
            .unwrap_or(0);
        Ok(Capacity::of(
            self.name(),
            available.saturating_add(freed),
            self.host.memory_limit,
            self.threads(),
        ))
    }

    /// What computes there and what is left unused, in words.
    ///
    /// # Errors
    /// When the inventory asks for a device that cannot be used.
    pub fn device(&self) -> Result<String, Failure> {
        devices::describe(
            self.host.device.as_deref(),
            &self.facts.gpu_names(),
            "candle",
        )
        .map_err(|message| self.failed("device", message))
    }

    /// Its C library, where known.
    pub fn libc(&self) -> Option<Libc> {
        libc_of(self.facts.libc.as_ref()?)
    }
}

/// The C library as a program's needs are compared with it.
fn libc_of(libc: &facts::Libc) -> Option<Libc> {
    match libc.name.as_str() {
        "glibc" => {
            let mut parts = libc.version.as_deref()?.split('.').map(str::parse::<u32>);
            Some(Libc::Gnu(parts.next()?.ok()?, parts.next()?.ok()?))
        }
        "musl" => Some(Libc::Musl),
        _ => Some(Libc::Other),
    }
}

/// Looks at every host that was reached, in parallel. What a host refuses is its failure.
pub async fn look(
    sessions: Vec<(Host, Result<Session, Failure>)>,
    emitter: &Emitter,
) -> Vec<(Host, Result<Site, Failure>)> {
    join_all(sessions.into_iter().map(|(host, session)| async {
        let site = match session {
            Ok(session) => one(&host, session, emitter).await,
            Err(failure) => Err(failure),
        };
        (host, site)
    }))
    .await
}

async fn one(host: &Host, session: Session, emitter: &Emitter) -> Result<Site, Failure> {
    let task = emitter.task(Scope::host(&host.name).in_task("facts"), None);
    let result = found(host, session, emitter).await;
    match &result {
        Ok(site) => task.finish(Status::Ok, site.facts.headline()),
        Err(failure) => {
            let own = format!("{}: ", host.name);
            let said = failure.message.strip_prefix(&own);
            task.finish(status_of(failure), said.unwrap_or(&failure.message));
        }
    }
    result
}

/// How a task ends with this failure.
pub fn status_of(failure: &Failure) -> Status {
    use crate::event::FailureKind;
    match failure.kind {
        FailureKind::Unreachable | FailureKind::Refused => Status::Unreachable,
        _ => Status::Failed,
    }
}

async fn found(host: &Host, session: Session, emitter: &Emitter) -> Result<Site, Failure> {
    let of_ssh = |error: SshError| error.failure(&host.name);
    let facts = facts::gather(&session).await.map_err(of_ssh)?;
    let root = root(host, &session, &facts, emitter).await?;
    let base = Base::choose(&Known {
        uid: facts.login.uid.unwrap_or(u32::MAX),
        home: facts.login.home.clone().unwrap_or_else(|| "/".to_owned()),
        data_home: facts.login.data_home.clone(),
        root,
        systemd: facts.init.systemd.unwrap_or(false),
        user_systemd: facts.init.user_manager == Some(true)
            && (facts.init.linger == Some(true) || facts.init.may_linger == Some(true)),
    });
    Ok(Site {
        host: host.clone(),
        place: Place { session, base },
        facts,
    })
}

/// Whether commands can be run as root: by login, or by sudo. A host whose sudo was not set up for
/// this user is used without it, and that is said; a wrong password is a failure.
async fn root(
    host: &Host,
    session: &Session,
    facts: &Facts,
    emitter: &Emitter,
) -> Result<bool, Failure> {
    if facts.login.uid == Some(0) {
        return Ok(true);
    }
    if facts.login.sudo == Some(false) && host.sudo_password.is_none() {
        return Ok(false);
    }
    match session
        .run_as_root("try sudo", "id -u\n", super::install::SHORT)
        .await
    {
        Ok(output) => Ok(output.text().trim() == "0"),
        Err(SshError::Sudo { message }) if host.sudo_password.is_none() => {
            emitter.emit(
                Scope::host(&host.name),
                Event::log(
                    Level::Info,
                    format!("goes on without root, in the login user's folders: {message}"),
                ),
            );
            Ok(false)
        }
        Err(error) => Err(error.failure(&host.name)),
    }
}
