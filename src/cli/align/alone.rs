//! One host after the other: changed, rebooted where that is needed, and compared again. When one does
//! not come out as it should, those after it stay as they are.

use super::{Open, changes, make, planned, skipped, task};
use crate::cli::arguments::Reboot;
use crate::cli::verify;
use crate::cli::work::Work;
use crate::deploy::remote::hosts;
use crate::event::{Failure, FailureKind, Status};
use crate::inventory::Inventory;
use crate::provision::align::{Plan, STEP, script, work as doing};
use crate::provision::drift::{self, compare};
use crate::provision::reboot::{self, Return};
use crate::report::plain::harmless;

/// Does all hosts. Gives the first failure, and the plans as they are then: of what was changed, what
/// is left.
///
/// # Errors
/// When the inventory cannot be read.
pub async fn all(
    work: &Work,
    source: &Open,
    plans: Vec<(Open, Plan)>,
    reboot: Reboot,
) -> Result<(Option<Failure>, Vec<(Open, Plan)>), Failure> {
    let inventory = hosts::inventory(work)?;
    let (mut first, mut after): (Option<Failure>, _) = (None, Vec::new());
    for (read, plan) in plans {
        if first.is_some() {
            skipped(work, STEP, std::iter::once(read.host.name.as_str()));
            after.push((read, plan));
            continue;
        }
        let task = task(work, &read.host.name);
        if plan.changes.is_empty() && plan.reboot.is_none() {
            task.finish(Status::Ok, "nothing to change");
            after.push((read, plan));
            continue;
        }
        match one(work, &inventory, source, &read, &plan, reboot).await {
            Ok((now, left)) => {
                let how = match &plan.reboot {
                    Some(_) => format!("{}, and rebooted", changes(plan.changes.len())),
                    None => changes(plan.changes.len()),
                };
                task.finish(Status::Changed, how);
                after.push((now, left));
            }
            Err(failure) => {
                task.finish(Status::Failed, failure.message.clone());
                first = Some(failure);
                after.push((read, plan));
            }
        }
    }
    Ok((first, after))
}

/// One host: what it is then, and what is left to do there.
async fn one(
    work: &Work,
    inventory: &Inventory,
    source: &Open,
    read: &Open,
    plan: &Plan,
    reboot: Reboot,
) -> Result<(Open, Plan), Failure> {
    let name = &read.host.name;
    let connector = hosts::connector(work);
    let back = Return::new(connector, inventory, &read.host, reboot.patience());
    // A host that stands between was rebooted meanwhile, perhaps.
    let anew = match read.session.is_lost() {
        true => Some(back.connect().await.map_err(|error| error.failure(name))?),
        false => None,
    };
    let open = anew.as_ref().unwrap_or(&read.session);
    // Before anything is changed there.
    let before = match &plan.reboot {
        Some(_) => Some(reboot::may(open, STEP).await?),
        None => None,
    };
    make(work, open, plan).await?;
    let session = match before {
        None => open.clone(),
        Some(before) => {
            let record = doing::recorded(&work.run, plan);
            let console = match plan.changes.is_empty() {
                true => "Nothing was changed on it by this run: look at its console".to_owned(),
                false => format!(
                    "On its console, as root, to have it boot as before:\n  {}",
                    script::by_hand(&record)
                ),
            };
            let look = |_| async { Ok(()) };
            let (session, ()) = back
                .reboot(open, &before, STEP, &work.emitter, look)
                .await
                .map_err(|away| away.failure(name, STEP, &console))?;
            session
        }
    };
    let now = Open {
        read: verify::read(work, &read.host, &session).await?,
        session,
    };
    let seen = verify::seen([&source.read, &now.read]);
    let comparison = compare(&source.host.name, &seen, drift::rules());
    let left = planned(work, &comparison, &now, source, None).await;
    if left.changes.is_empty() && left.reboot.is_none() {
        return Ok((now, left));
    }
    let what = match left.changes.first() {
        Some(change) => harmless(&change.words()),
        None => left.reboot.unwrap_or_default(),
    };
    let undo = match plan.changes.is_empty() {
        true => String::new(),
        false => format!("; to take this back: windlass align --undo {}", work.run),
    };
    Err(Failure::new(
        FailureKind::Host,
        format!(
            "{name}: it is not as {} yet: {what}{undo}",
            source.host.name
        ),
    )
    .on(name)
    .at(STEP))
}
