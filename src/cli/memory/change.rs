//! Setting it: planned for every host, asked once, done, and with `--reboot` judged after the boot.

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use super::back::{self, Gone};
use super::show::plain;
use super::{Looked, Reboot, bytes, finish, look, outcome, status_of, waits};
use crate::cli::work::{Outcome, Work};
use crate::deploy::remote::locks;
use crate::event::{Event, Failure, FailureKind, Level, Scope, Status};
use crate::figures;
use crate::inventory::{Inventory, diff};
use crate::provision::memory::{self, Plan, STEP, Way, plan, script, work as doing};

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
    if own.plan.change.is_empty() {
        return Ok(());
    }
    let session = &own.looked.session;
    let _lock = doing::lock(session, &locks::holder(&work.run)).await?;
    let record = doing::record(&work.run, &own.plan);
    doing::apply(session, &own.plan, &record, &work.emitter).await
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
    let (host, name) = (&own.looked.host, &own.looked.host.name);
    let session = &own.looked.session;
    let record = doing::record(&work.run, &own.plan);
    if session.is_local() && !own.looked.seen.ground.darwin {
        let failure = doing::failed(
            name,
            "it is this machine, which is not rebooted under you: leave --reboot out and reboot it yourself",
        );
        finish(work, name, Status::Failed, failure.message.clone());
        return Err(failure);
    }
    let made = make(work, own).await;
    if made.is_err() || own.looked.seen.ground.darwin {
        told(work, own, &made);
        return made;
    }
    let before = own.looked.seen.boot.clone();
    if let Err(failure) = doing::reboot(session, &work.emitter).await {
        finish(work, name, status_of(&failure), failure.message.clone());
        return Err(failure);
    }
    let judged = match back::wait(work, inventory, host, before.as_deref(), reboot.patience()).await
    {
        Err(Gone { why }) => {
            let lines = script::by_hand(&record);
            let set: Vec<String> = own.plan.set.iter().map(ToString::to_string).collect();
            let failure = doing::failed(
                name,
                format!(
                    "it did not come back within {} s ({}). On its console: start it without `{}` (in \
                     GRUB's menu the key e), then as root:\n  {lines}",
                    reboot.reboot_timeout,
                    plain(&why),
                    set.join(" ")
                ),
            );
            finish(work, name, Status::Failed, failure.message.clone());
            return Err(failure);
        }
        Ok((session, seen)) => match plan::judge(&seen, before.as_deref(), &own.plan) {
            Ok(held) => Ok(held),
            Err(why) => Err((session, why)),
        },
    };
    match judged {
        Ok(held) => {
            let by = held.join(", ");
            let message = format!("{}; after the boot it is so: {by}", in_words(&own.plan));
            finish(work, name, Status::Changed, plain(&message));
            Ok(())
        }
        Err((session, why)) => {
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
    let _lock = doing::lock(session, &locks::holder(&work.run)).await?;
    doing::take_back(session, record, &work.emitter).await
}
