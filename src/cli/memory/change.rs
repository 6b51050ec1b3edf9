//! Setting it: planned for every host, asked once, done, and with `--reboot` judged after the boot.

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use super::show::plain;
use super::{Looked, Reboot, bytes, finish, look, looked_at, outcome, status_of, waits};
use crate::cli::work::{Outcome, Work};
use crate::deploy::remote::locks;
use crate::event::{Event, Failure, FailureKind, Level, Scope, Status};
use crate::figures;
use crate::inventory::{Inventory, diff};
use crate::provision::lock;
use crate::provision::memory::{self, Plan, STEP, Way, plan, script, work as doing};
use crate::provision::reboot as rebooting;

/// Said once where AMD's GPUs are: a choice that is not ours.
const IOMMU: &str = "amd_iommu=off makes an AMD APU 5 to 12 % faster and takes its NPU away; it is not \
                     set. Who wants it adds it to the kernel's command line by hand";

/// A host and what is to be done there.
struct Planned {
    looked: Looked,
    plan: Plan,
}

/// `memory set`.
pub async fn set(
    work: &Work,
    size: Option<&str>,
    kind: Option<Way>,
    reboot: Reboot,
) -> Result<Outcome, Failure> {
    let size = size.map(bytes).transpose()?;
    let (inventory, looked, mut failures) = look(work, true).await?;
    let (mut planned, mut by_host, mut text) = (Vec::new(), Map::new(), String::new());
    for looked in looked {
        let name = looked.host.name.clone();
        match memory::plan(&looked.seen, size, kind) {
            Ok(plan) => {
                by_host.insert(name.clone(), shown(&plan));
                text.push_str(&described(&name, &plan));
                for said in &plan.said {
                    tell(work, &name, Level::Warn, plain(said));
                }
                planned.push(Planned { looked, plan });
            }
            Err(why) => {
                finish(work, &name, Status::Failed, plain(&why));
                failures.push(doing::failed(&name, plain(&why)));
            }
        }
    }
    if planned.iter().any(|own| !own.looked.seen.ground.darwin) {
        work.emitter.log(Level::Info, IOMMU);
    }
    let mut open = Vec::new();
    for own in planned {
        let name = own.looked.host.name.clone();
        changes(work, &name, &own.plan);
        if !own.plan.change.hand.is_empty() {
            let lines = own.plan.change.hand.join("; ");
            finish(work, &name, Status::Skipped, plain(&lines));
            failures.push(
                Failure::new(
                    FailureKind::Drift,
                    format!("{name}: by hand: {}", plain(&lines)),
                )
                .on(&name)
                .at(STEP),
            );
        } else if own.plan.change.is_empty() {
            let pending = plan::pending(&own.looked.seen);
            if pending.is_empty() || !reboot.reboot || work.common.check {
                finish(work, &name, Status::Ok, "it is set so already");
                if !work.common.check {
                    failures.extend(waits(&name, &pending));
                }
            } else {
                open.push(own);
            }
        } else if work.common.check {
            finish(
                work,
                &name,
                Status::WouldChange,
                plain(&in_words(&own.plan)),
            );
        } else {
            open.push(own);
        }
    }
    if work.common.check || open.is_empty() {
        return Ok(outcome(by_host, text, failures));
    }
    let question = match reboot.reboot {
        true => format!("{text}make these changes and reboot, one host after the other?"),
        false => format!("{text}make these changes?"),
    };
    leave(work, question).await?;
    if reboot.reboot {
        let mut open = open.into_iter();
        while let Some(own) = open.next() {
            if let Err(failure) = alone(work, &inventory, &own, reboot).await {
                failures.push(failure);
                for left in open.by_ref() {
                    let name = &left.looked.host.name;
                    finish(
                        work,
                        name,
                        Status::Skipped,
                        "left as it is, since another host failed",
                    );
                }
            }
        }
    } else {
        let made = join_all(open.iter().map(|own| async {
            let made = make(work, own).await;
            told(work, own, &made);
            made.and_then(|()| match pends(own) {
                Some(failure) => Err(failure),
                None => Ok(()),
            })
        }))
        .await;
        failures.extend(made.into_iter().filter_map(Result::err));
    }
    Ok(outcome(by_host, text, failures))
}

/// Asks for leave to change hosts.
pub async fn leave(work: &Work, question: String) -> Result<(), Failure> {
    match work.asker.leave(Scope::run(), question).await {
        Some(true) => Ok(()),
        Some(false) => Err(Failure::new(
            FailureKind::Interrupted,
            "nothing was changed",
        )),
        None => Err(Failure::new(
            FailureKind::Usage,
            "changes wait for a yes: give --yes, or --check to see them only",
        )),
    }
}

/// Says something about a host.
pub fn tell(work: &Work, host: &str, level: Level, message: impl Into<String>) {
    work.emitter
        .emit(Scope::host(host).in_task(STEP), Event::log(level, message));
}

/// Tells which files and lines a change is made of.
fn changes(work: &Work, host: &str, plan: &Plan) {
    for file in &plan.change.files {
        let old = file.before.as_deref().unwrap_or_default();
        let diff = work
            .common
            .diff
            .then(|| diff::unified(&file.path, old, &file.after));
        let what = file.path.clone();
        let event = Event::Change { what, diff };
        work.emitter.emit(Scope::host(host).in_task(STEP), event);
    }
    for line in &plan.change.lines {
        let event = Event::Change {
            what: line.line.clone(),
            diff: None,
        };
        work.emitter.emit(Scope::host(host).in_task(STEP), event);
    }
}

fn in_words(plan: &Plan) -> String {
    let set: Vec<String> = plan.set.iter().map(ToString::to_string).collect();
    format!(
        "{} ({}) by {}",
        figures::memory(plan.bytes),
        set.join(" "),
        plan.mechanism
    )
}

fn described(name: &str, plan: &Plan) -> String {
    let mut text = format!("{name}: {}\n", plain(&in_words(plan)));
    for file in &plan.change.files {
        text.push_str(&format!("  writes {}\n", plain(&file.path)));
    }
    for line in &plan.change.lines {
        text.push_str(&format!("  runs {}\n", plain(&line.line)));
    }
    for line in &plan.change.hand {
        text.push_str(&format!("  by hand: {}\n", plain(line)));
    }
    text
}

fn shown(plan: &Plan) -> Value {
    let parameters: Map<String, Value> = plan
        .set
        .iter()
        .map(|own| (own.name.clone(), json!(own.value)))
        .collect();
    json!({
        "mechanism": plan.mechanism,
        "bytes": plan.bytes,
        "parameters": parameters,
        "files": plan.change.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>(),
        "lines": plan.change.lines.iter().map(|line| line.line.clone()).collect::<Vec<_>>(),
        "by_hand": plan.change.hand,
        "said": plan.said,
    })
}

/// Makes the change on a host, which is held for it.
async fn make(work: &Work, own: &Planned) -> Result<(), Failure> {
    let holder = locks::holder(&work.run);
    let session = &own.looked.session;
    doing::make(session, &work.run, &holder, &own.plan, &work.emitter).await
}

fn told(work: &Work, own: &Planned, made: &Result<(), Failure>) {
    let name = &own.looked.host.name;
    match made {
        Ok(()) if own.plan.change.is_empty() => {
            finish(work, name, Status::Ok, "it is set so already");
        }
        Ok(()) => finish(work, name, Status::Changed, plain(&in_words(&own.plan))),
        Err(failure) => finish(work, name, status_of(failure), failure.message.clone()),
    }
}

/// What was set and waits for a reboot.
fn pends(own: &Planned) -> Option<Failure> {
    if own.looked.seen.ground.darwin {
        return None;
    }
    let first = own.plan.set.first()?;
    waits(
        &own.looked.host.name,
        &[format!("{first} takes effect after a reboot")],
    )
}

/// One host: changed, rebooted, judged; rolled back when it is not as it should be.
async fn alone(
    work: &Work,
    inventory: &Inventory,
    own: &Planned,
    reboot: Reboot,
) -> Result<(), Failure> {
    let name = &own.looked.host.name;
    let session = &own.looked.session;
    let record = doing::record(&work.run, &own.plan);
    let ended = |failure: Failure| {
        finish(work, name, status_of(&failure), failure.message.clone());
        failure
    };
    // A Mac needs no reboot.
    let before = match own.looked.seen.ground.darwin {
        true => None,
        false => Some(rebooting::may(session, STEP).await.map_err(ended)?),
    };
    let made = make(work, own).await;
    let (Ok(()), Some(before)) = (&made, before) else {
        told(work, own, &made);
        return made;
    };
    let back = own.looked.back(work, inventory, reboot);
    let (session, seen) = back
        .reboot(session, &before, STEP, &work.emitter, looked_at)
        .await
        .map_err(|away| {
            let set: Vec<String> = own.plan.set.iter().map(ToString::to_string).collect();
            let console = format!(
                "On its console: start it without `{}` (in GRUB's menu the key e), then as root:\n  {}",
                set.join(" "),
                script::by_hand(&record)
            );
            ended(away.failure(name, STEP, &console))
        })?;
    let judged = plan::judge(&seen, Some(&before), &own.plan);
    match judged {
        Ok(held) => {
            let by = held.join(", ");
            let message = format!("{}; after the boot it is so: {by}", in_words(&own.plan));
            finish(work, name, Status::Changed, plain(&message));
            Ok(())
        }
        Err(why) => {
            let end = if own.plan.change.is_empty() {
                "this run had changed nothing, so nothing was put back".to_owned()
            } else {
                match roll_back(work, &session, &record).await {
                    Ok(()) => "all files were put back as they were; the running system is as it \
                               booted, until its next boot"
                        .to_owned(),
                    Err(failure) => failure.message,
                }
            };
            let failure = doing::failed(name, format!("it rebooted, and {}; {end}", plain(&why)));
            finish(work, name, Status::Failed, failure.message.clone());
            Err(failure)
        }
    }
}

async fn roll_back(
    work: &Work,
    session: &crate::ssh::Session,
    record: &memory::Record,
) -> Result<(), Failure> {
    let _lock = lock::hold(session, &locks::holder(&work.run)).await?;
    doing::take_back(session, record, &work.emitter).await
}
