//! Giving it back.

use futures_util::future::join_all;
use serde_json::{Map, json};

use super::change::leave;
use super::show::plain;
use super::{Looked, Reboot, finish, look, looked_at, outcome, status_of, waits};
use crate::cli::work::{Outcome, Work};
use crate::deploy::remote::locks;
use crate::event::{Event, Failure, Scope, Status};
use crate::inventory::Inventory;
use crate::provision::lock;
use crate::provision::memory::{self, STEP, plan, work as doing};
use crate::provision::reboot as rebooting;

/// `memory reset`.
pub async fn reset(work: &Work, reboot: Reboot) -> Result<Outcome, Failure> {
    let (inventory, looked, mut failures) = look(work, true).await?;
    let (mut by_host, mut text, mut open) = (Map::new(), String::new(), Vec::new());
    for looked in looked {
        let name = looked.host.name.clone();
        let runs: Vec<&str> = looked
            .seen
            .records
            .iter()
            .map(|own| own.run.as_str())
            .collect();
        let files: Vec<&String> = looked
            .seen
            .records
            .iter()
            .flat_map(|own| &own.files)
            .collect();
        by_host.insert(name.clone(), json!({"runs": runs, "files": files}));
        if runs.is_empty() {
            finish(work, &name, Status::Ok, "nothing was set here by windlass");
            failures.extend(waits(&name, &plan::pending(&looked.seen)));
            continue;
        }
        for path in files {
            let event = Event::Change {
                what: path.clone(),
                diff: None,
            };
            work.emitter.emit(Scope::host(&name).in_task(STEP), event);
        }
        text.push_str(&format!("{name}: takes back {}\n", plain(&runs.join(", "))));
        if work.common.check {
            finish(
                work,
                &name,
                Status::WouldChange,
                format!("takes back {}", plain(&runs.join(", "))),
            );
            continue;
        }
        open.push(looked);
    }
    if open.is_empty() {
        return Ok(outcome(by_host, text, failures));
    }
    leave(work, format!("{text}give these back?")).await?;
    if reboot.reboot {
        for one in &open {
            let done = async {
                take(work, one).await?;
                restart(work, &inventory, one, reboot).await
            }
            .await;
            failures.extend(told(work, one, done));
            if !failures.is_empty() {
                break;
            }
        }
    } else {
        let done = join_all(open.iter().map(|one| async {
            let done = async {
                take(work, one).await?;
                let seen = memory::look(&one.session, true)
                    .await
                    .map_err(|error| error.failure(&one.host.name))?;
                Ok(waits(&one.host.name, &plan::pending(&seen)))
            }
            .await;
            told(work, one, done)
        }))
        .await;
        failures.extend(done.into_iter().flatten());
    }
    Ok(outcome(by_host, text, failures))
}

/// Tells how it ended; gives what counts for the run.
fn told(work: &Work, one: &Looked, done: Result<Option<Failure>, Failure>) -> Option<Failure> {
    let name = &one.host.name;
    match done {
        Ok(pending) => {
            finish(work, name, Status::Changed, "as it was before");
            pending
        }
        Err(failure) => {
            finish(work, name, status_of(&failure), failure.message.clone());
            Some(failure)
        }
    }
}

/// Takes all runs of a host back, the newest first.
async fn take(work: &Work, one: &Looked) -> Result<(), Failure> {
    let _lock = lock::hold(&one.session, &locks::holder(&work.run)).await?;
    for record in &one.seen.records {
        doing::take_back(&one.session, record, &work.emitter).await?;
    }
    Ok(())
}

/// Reboots a host that was given back, where that is needed.
async fn restart(
    work: &Work,
    inventory: &Inventory,
    one: &Looked,
    reboot: Reboot,
) -> Result<Option<Failure>, Failure> {
    let name = &one.host.name;
    let look = |error: crate::ssh::SshError| error.failure(name);
    let seen = memory::look(&one.session, true).await.map_err(look)?;
    let pending = plan::pending(&seen);
    if pending.is_empty() || one.session.is_local() {
        return Ok(waits(name, &pending));
    }
    let before = rebooting::may(&one.session, STEP).await?;
    let (_, seen) = one
        .back(work, inventory, reboot)
        .reboot(&one.session, &before, STEP, &work.emitter, looked_at)
        .await
        .map_err(|away| {
            away.failure(
                name,
                STEP,
                "Its files are as they were: look at its console",
            )
        })?;
    Ok(waits(name, &plan::pending(&seen)))
}
