//! `windlass memory`: shows how much memory the hosts' GPUs may use, sets it, gives it back. Decides
//! nothing about how a host is changed.

mod back;
mod change;
mod show;

use clap::{Args, Subcommand, ValueEnum};
use futures_util::future::join_all;
use serde_json::{Map, Value};

use super::arguments::{Common, Reboot};
use super::work::{Outcome, Work, perform};
use crate::deploy::remote::hosts;
use crate::event::{Exit, Failure, FailureKind, Scope, Status};
use crate::inventory::{Host, Inventory, key};
use crate::provision::memory::{self, STEP, Seen, Way};
use crate::provision::reboot::Return;
use crate::ssh::{Session, SshError};

/// Arguments of `memory`.
#[derive(Args, Clone, Debug)]
pub struct MemoryArguments {
    /// What to do
    #[command(subcommand)]
    pub verb: MemoryVerb,
}

/// The commands under `memory`.
#[derive(Clone, Debug, Subcommand)]
pub enum MemoryVerb {
    /// Show how much memory each GPU may use, who says so, and what waits for a reboot
    Show,
    /// Let each GPU use this much of its host's memory
    Set {
        /// How much, as 120GiB [default: all but a sixteenth of the host's memory, 4 GiB at least]
        #[arg(value_name = "SIZE")]
        size: Option<String>,
        /// The kind of GPU, where the host does not show one
        #[arg(long = "for", value_name = "KIND")]
        kind: Option<Kind>,
        /// How it takes effect
        #[command(flatten)]
        reboot: Reboot,
    },
    /// Give back what was before `memory set`, byte for byte
    Reset {
        /// How it takes effect
        #[command(flatten)]
        reboot: Reboot,
    },
}

/// Kinds of GPUs.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Kind {
    /// AMD's, on Linux
    Amdgpu,
    /// Apple's
    Macos,
}

impl Kind {
    fn way(self) -> Way {
        match self {
            Self::Amdgpu => Way::Amdgpu,
            Self::Macos => Way::Macos,
        }
    }
}

/// Runs the command.
pub fn memory(common: &Common, arguments: &MemoryArguments) -> Exit {
    let verb = arguments.verb.clone();
    let name = match &verb {
        MemoryVerb::Show => "memory show",
        MemoryVerb::Set { .. } => "memory set",
        MemoryVerb::Reset { .. } => "memory reset",
    };
    perform(common, name, Vec::new(), move |work| async move {
        let done = match &verb {
            MemoryVerb::Show => show::show(&work).await,
            MemoryVerb::Set { size, kind, reboot } => {
                let kind = kind.map(Kind::way);
                change::set(&work, size.as_deref(), kind, *reboot).await
            }
            MemoryVerb::Reset { reboot } => back::reset(&work, *reboot).await,
        };
        done.unwrap_or_else(Outcome::from)
    })
}

/// A size as people write it.
fn bytes(text: &str) -> Result<u64, Failure> {
    key::size("SIZE", text).map_err(|error| Failure::new(FailureKind::Usage, error))
}

/// A host that was looked at.
struct Looked {
    host: Host,
    session: Session,
    seen: Seen,
}

impl Looked {
    /// Its way back from a reboot.
    fn back(&self, work: &Work, inventory: &Inventory, reboot: Reboot) -> Return {
        let connector = hosts::connector(work);
        Return::new(connector, inventory, &self.host, reboot.patience())
    }
}

/// A look as root at a host that is back.
async fn looked_at(session: Session) -> Result<Seen, SshError> {
    memory::look(&session, true).await
}

/// Reaches the hosts and looks at them. With `root`, as root: all that is to be changed can be read
/// then.
async fn look(work: &Work, root: bool) -> Result<(Inventory, Vec<Looked>, Vec<Failure>), Failure> {
    let inventory = hosts::inventory(work)?;
    let selected = hosts::select(work, &inventory, None)?;
    let sessions = hosts::connect(work, &inventory, &selected).await?;
    let found = join_all(sessions.into_iter().map(|(host, session)| async move {
        let session = session?;
        // To look, what the login may read is enough; root's is more.
        let root = root || session.login().await.is_ok_and(|login| login.uid == 0);
        let seen = match root {
            true => memory::look(&session, true).await,
            false => memory::look_as_login(&session).await,
        };
        match seen {
            Ok(seen) => Ok(Looked {
                host,
                session,
                seen,
            }),
            Err(error) => {
                let failure = error.failure(&host.name);
                finish(work, &host.name, status_of(&failure), error.to_string());
                Err(failure)
            }
        }
    }))
    .await;
    let (mut looked, mut failures) = (Vec::new(), Vec::new());
    for one in found {
        match one {
            Ok(one) => looked.push(one),
            Err(failure) => failures.push(failure),
        }
    }
    Ok((inventory, looked, failures))
}

fn status_of(failure: &Failure) -> Status {
    match failure.kind {
        FailureKind::Unreachable | FailureKind::Refused => Status::Unreachable,
        _ => Status::Failed,
    }
}

/// Tells how it ended on a host.
fn finish(work: &Work, host: &str, status: Status, message: impl Into<String>) {
    let scope = Scope::host(host).in_task(STEP);
    work.emitter.task(scope, None).finish(status, message);
}

/// The outcome of a command over hosts: the gravest failure counts.
fn outcome(by_host: Map<String, Value>, text: String, mut failures: Vec<Failure>) -> Outcome {
    failures.sort_by_key(|failure| failure.kind.exit());
    let mut fields = Map::new();
    fields.insert("memory".to_owned(), Value::Object(by_host));
    Outcome {
        fields,
        text,
        failure: failures.into_iter().next(),
        ..Outcome::default()
    }
}

/// What waits for a reboot, as the failure that says so.
fn waits(host: &str, pending: &[String]) -> Option<Failure> {
    let first = pending.first()?;
    Some(
        Failure::new(
            FailureKind::Drift,
            format!("{host}: {first}: reboot it, or say --reboot with `memory set`"),
        )
        .on(host)
        .at(STEP),
    )
}
