//! After the copy is whole: its machine rebooted into it, let in only by the host key that the copy was
//! given, looked at, and compared with the source. Must not know how a copy is made.
//!
//! - [`key`]: whose host key a machine shows. Pure.
//! - [`look`]: whether what runs there is the copy. Pure.

pub mod key;
pub mod look;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::STEP;
use super::work::{Report, run};
use crate::deploy::remote::context::Context;
use crate::deploy::remote::hosts;
use crate::deploy::remote::read::read;
use crate::deploy::remote::site::Site;
use crate::event::{Event, Failure, FailureKind, Level, Scope, Status};
use crate::facts::HostKey;
use crate::inventory::edit::{Edit, Whom, edited};
use crate::inventory::{Inventory, diff, file};
use crate::provision::drift::{Judged, Seen, judge};
use crate::provision::reboot::{self as rebooting, NotBack, Return, STILL, Tried};
use crate::reach;
use crate::ssh::{Connector, Session, SshError, Target};

use key::{Whose, not_the_copy, whose};
use look::Running;

/// Name of the part in which the host reboots.
const PART: &str = "reboot";
/// How long a system that starts may refuse a login: `pam_nologin` does until it has started.
const NOT_YET: Duration = Duration::from_secs(60);

/// That the target is rebooted into its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reboot {
    /// How long it may stay away.
    pub patience: Duration,
    /// Whether the inventory gets the new host key, and with it the file of known hosts that knew the
    /// target.
    pub update_inventory: bool,
    /// Whether the copy is compared with the source then.
    pub compare: bool,
}

/// A copy that is whole.
#[derive(Clone, Debug, Default)]
pub(super) struct Made {
    /// Its disk.
    pub(super) disk: String,
    /// The identifier of the partition with its root.
    pub(super) part: String,
    /// Its machine id.
    pub(super) machine_id: String,
    /// Its public SSH host key.
    pub(super) key: Option<String>,
    /// Files of it that name the source's machine.
    pub(super) fixed: Vec<String>,
}

/// What is needed to see a target through its reboot.
pub(super) struct After<'a> {
    pub(super) context: &'a Context,
    pub(super) inventory: &'a Inventory,
    pub(super) from: &'a Site,
    pub(super) to: &'a Site,
    pub(super) reboot: Reboot,
    /// The boot that the target was in.
    pub(super) before: &'a str,
    pub(super) made: &'a Made,
}

impl After<'_> {
    /// Reboots, waits, looks, writes the key down, compares. What is found goes into the report.
    ///
    /// # Errors
    /// When the target does not come back as its copy; what differs stands in the report.
    pub(super) async fn see_through(&self, report: &mut Report) -> Result<(), Failure> {
        let name = self.to.name();
        let scope = Scope::host(name).in_task(PART);
        let task = self.context.emitter.task(scope, None);
        let began = Instant::now();
        let found = self.back().await;
        let (session, running) = match found {
            Ok(found) => found,
            Err(failure) => {
                task.finish(Status::Failed, without(name, &failure.message));
                return Err(failure);
            }
        };
        let seconds = began.elapsed().as_secs_f64();
        report.fields.insert(
            "reboot".into(),
            json!({"seconds": seconds, "root": running.from}),
        );
        let words = format!("it runs from {}, after {seconds:.0} s", running.from);
        task.finish(Status::Changed, words);
        report.session = Some(session.clone());
        let written = match self.reboot.update_inventory {
            true => self.write_down(&running, report),
            false => Ok(()),
        };
        let compared = match self.reboot.compare {
            true => self.compare(session, report).await,
            false => Ok(()),
        };
        written.and(compared)
    }

    /// Reboots it and waits; the session to the copy, and what it says of itself.
    async fn back(&self) -> Result<(Session, Running), Failure> {
        let (name, made) = (self.to.name(), self.made);
        let key = made.key.as_deref().ok_or_else(|| {
            self.to.failed(
                PART,
                "the copy has no SSH host key of Ed25519, so nobody could tell that it is the copy that \
                 answers: reboot it yourself",
            )
        })?;
        let connector = hosts::connector(self.context);
        let old = reach::target(self.inventory, &self.to.host);
        let new = Target {
            host_key: Some(key.to_owned()),
            ..old.clone()
        };
        let known = self.to.facts.identity.host_keys.as_deref();
        let way = Way {
            connector: &connector,
            new: &new,
            old: &old,
            key,
            known: known.unwrap_or_default(),
            before: self.before,
            disk: &made.disk,
            source: self.from.name(),
            refused: OnceLock::new(),
        };
        let back = Return::new(
            connector.clone(),
            self.inventory,
            &self.to.host,
            self.reboot.patience,
        );
        let way = &way;
        let tried = || async move { way.tried().await };
        let (old_session, emitter) = (self.to.session(), &self.context.emitter);
        let session = back
            .reboot_until(old_session, self.before, PART, emitter, tried)
            .await
            .map_err(|away| self.not_back(away))?;
        let said = run(
            &session,
            "looking at the copy",
            &look::script(&made.disk),
            2,
        )
        .await?;
        let running = Running::parse(&said);
        match running.differs(&made.machine_id, &made.part, &made.disk) {
            None => Ok((session, running)),
            Some(why) => Err(Failure::new(FailureKind::Host, format!("{name}: {why}"))
                .on(name)
                .at(PART)),
        }
    }

    /// That it did not come back, with what is to be looked at on its console.
    fn not_back(&self, away: NotBack) -> Failure {
        let (name, made) = (self.to.name(), self.made);
        let mut console = format!(
            "Look at its console: it must start from {} (choose it in its setup, and remove the medium), and \
             have the address {} (ip address)",
            made.disk, self.to.host.address
        );
        if !made.fixed.is_empty() {
            console.push_str(&format!("; it keeps {}", made.fixed.join(", ")));
        }
        if let Some(key) = &made.key {
            console.push_str(&format!(". Once it is there: {}", line(name, key)));
        }
        away.failure(name, PART, &console)
    }

    /// Writes the new key to the inventory, and to the known hosts that the target was known by.
    fn write_down(&self, running: &Running, report: &mut Report) -> Result<(), Failure> {
        let Some(key) = &self.made.key else {
            return Ok(());
        };
        let name = self.to.name();
        let (path, changed) = into_inventory(self.context, name, key)?;
        report.updated = true;
        let shown = path.display().to_string();
        report
            .fields
            .insert("inventory_updated".into(), json!(shown));
        if changed {
            self.say(Level::Info, format!("{shown} has its new host key"));
        }
        let target = reach::target(self.inventory, &self.to.host);
        let mut keys = vec![key.clone()];
        keys.extend(running.keys.iter().filter(|one| *one != key).cloned());
        let file = hosts::connector(self.context)
            .learn(&target, &keys)
            .map_err(|error| error.failure(name).at(PART))?;
        if let Some(file) = file {
            let shown = file.display().to_string();
            let message = format!(
                "its new host keys are in {shown}; the lines with those from before are as they were"
            );
            self.say(Level::Info, message);
            report
                .fields
                .insert("known_hosts_updated".into(), json!(shown));
        }
        Ok(())
    }

    fn say(&self, level: Level, message: String) {
        let scope = Scope::host(self.to.name()).in_task(PART);
        self.context.emitter.emit(scope, Event::log(level, message));
    }

    /// Compares the copy with its source, as `verify` does.
    async fn compare(&self, session: Session, report: &mut Report) -> Result<(), Failure> {
        let (from, to) = tokio::join!(
            read(self.context, &self.from.host, self.from.session()),
            read(self.context, &self.to.host, &session)
        );
        let both = [from?, to?];
        let seen: Vec<Seen<'_>> = both
            .iter()
            .map(|one| Seen::of(&one.host, &one.facts, &one.settings))
            .collect();
        let judged = judge(self.from.name(), &seen);
        judged.tell(&seen, &self.context.emitter);
        let fields: Map<String, Value> = judged.fields();
        report.fields.insert("verify".into(), Value::Object(fields));
        let failure = differs(&judged);
        report.judged = Some(judged);
        failure.map_or(Ok(()), Err)
    }
}

/// Why the run ends with the status for drift: something differs that must not. What is known to be bad on
/// both is the source's, and only told.
fn differs(judged: &Judged) -> Option<Failure> {
    match judged.comparison.drifted().is_empty() {
        true => None,
        false => judged.failure(),
    }
}

/// The line to type for a host's new key.
pub(super) fn line(host: &str, key: &str) -> String {
    format!("windlass inventory set {host} ssh.host_key='{key}'")
}

fn without(host: &str, message: &str) -> String {
    let own = format!("{host}: ");
    message.strip_prefix(&own).unwrap_or(message).to_owned()
}

/// Has the inventory's file name a host's key; the file, and whether it was changed.
fn into_inventory(
    context: &Context,
    host: &str,
    key: &str,
) -> Result<(std::path::PathBuf, bool), Failure> {
    let by_hand = |mut failure: Failure| {
        failure
            .message
            .push_str(&format!("; type it yourself: {}", line(host, key)));
        failure.on(host).at(PART)
    };
    let (path, _) = file::find(context.inventory.as_deref(), &context.paths)
        .map_err(|error| by_hand(error.failure()))?;
    let old = file::read(&path).map_err(|error| by_hand(error.failure()))?;
    let values = vec![format!("ssh.host_key={key}")];
    let new = edited(&path, &old, &Edit::Set(Whom::Host(host.to_owned()), values))
        .map_err(|error| by_hand(error.failure()))?;
    let changed = !diff::unified("", &old, &new).is_empty();
    if changed {
        file::replace(&path, Some(&old), &new).map_err(|error| by_hand(error.failure()))?;
    }
    Ok((path, changed))
}

/// How a target is tried while it reboots.
struct Way<'a> {
    connector: &'a Connector,
    /// It, by the copy's key alone.
    new: &'a Target,
    /// It, as it was reached before.
    old: &'a Target,
    key: &'a str,
    /// The keys that it had before.
    known: &'a [HostKey],
    before: &'a str,
    disk: &'a str,
    source: &'a str,
    /// Since when the copy refuses the login.
    refused: OnceLock<Instant>,
}

impl Way<'_> {
    async fn tried(&self) -> Tried<Session> {
        match self.connector.connect(self.new).await {
            Ok(session) => match rebooting::boot_id(&session).await {
                Ok(Some(id)) if id != self.before => Tried::Back(session),
                Ok(_) => Tried::NotYet(STILL.to_owned()),
                Err(error) => Tried::NotYet(error.to_string()),
            },
            Err(
                error @ SshError::Refused {
                    step: "host key", ..
                },
            ) => self.other(&error).await,
            Err(error @ SshError::Refused { .. }) => self.not_let_in(&error),
            Err(error) => Tried::NotYet(error.to_string()),
        }
    }

    /// Another key than the copy's: of the system from before, on its way down or started again, or
    /// of nobody's.
    async fn other(&self, refusal: &SshError) -> Tried<Session> {
        let shown = match self.connector.shown_key(self.old).await {
            Ok(shown) => shown,
            Err(error) => return Tried::NotYet(error.to_string()),
        };
        let host = &self.old.host;
        let whose = whose(&shown, self.key, self.known);
        if whose == Whose::Copy {
            return Tried::NotYet("it has just changed its host key".into());
        }
        match self.connector.connect(self.old).await {
            Ok(session) => match rebooting::boot_id(&session).await {
                Ok(Some(id)) if id != self.before => Tried::Other(
                    Failure::new(FailureKind::Host, not_the_copy(host, whose, self.disk))
                        .on(host)
                        .at(PART),
                ),
                Ok(_) => Tried::NotYet(STILL.to_owned()),
                Err(error) => Tried::NotYet(error.to_string()),
            },
            // Known neither as the copy nor as before.
            Err(SshError::Refused {
                step: "host key", ..
            }) if whose == Whose::Other => {
                let mut failure = refusal.failure(host);
                failure.message.push_str(&format!(
                    ". That is neither the copy's key nor one from before: a live medium that makes new keys \
                     at each start shows such ones, if it started again; then remove it or choose {} in its setup",
                    self.disk
                ));
                Tried::Other(failure)
            }
            Err(error) => Tried::NotYet(error.to_string()),
        }
    }

    /// The copy runs and does not let the login in.
    fn not_let_in(&self, error: &SshError) -> Tried<Session> {
        let host = &self.old.host;
        let message = format!(
            "the copy runs, and does not let the login in that the inventory has for {host}: its users and \
             their keys are those of {}: {error}",
            self.source
        );
        let since = *self.refused.get_or_init(Instant::now);
        if since.elapsed() < NOT_YET {
            return Tried::NotYet(message);
        }
        let failure = Failure::new(FailureKind::Refused, format!("{host}: {message}"));
        Tried::Other(failure.on(host).at(PART))
    }
}

/// What a host says of the system that it runs from; `disk`: the one that is asked about.
///
/// # Errors
/// When it cannot be asked as root.
pub async fn running(session: &Session, disk: &str) -> Result<Running, Failure> {
    let said = run(session, "looking at the system", &look::script(disk), 2).await?;
    Ok(Running::parse(&said))
}

/// Refuses a target that cannot be rebooted from here; the boot that it is in.
pub(super) async fn may(to: &Site) -> Result<String, Failure> {
    rebooting::may(to.session(), STEP).await
}
