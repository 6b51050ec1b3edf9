//! `gpu_memory`: how much of its host's memory each GPU may use, through kernel parameters: shown, set,
//! given back. What is set takes effect with a reboot, which is a task of its own.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::Kind;
use super::argument::{Argument, Form};
use super::work::{Acted, Done, Reached, Work};
use crate::deploy::remote::locks;
use crate::event::{Failure, Status};
use crate::figures;
use crate::inventory::{diff, key};
use crate::playbook::expression::Template;
use crate::provision::boot::change::faults;
use crate::provision::lock;
use crate::provision::memory::{self, Plan, Seen, Way, plan, work as doing};

/// The kind.
#[derive(Debug)]
pub struct GpuMemory;

impl Kind for GpuMemory {
    fn name(&self) -> &'static str {
        "gpu_memory"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            // An empty one stands for the usual size.
            Argument::may("size", Form::Content),
            Argument::may("state", Form::Word(&["set", "show", "reset"])),
            Argument::may("for", Form::Word(&["amdgpu", "macos"])),
        ];
        ALL
    }

    fn main(&self) -> Option<&'static str> {
        Some("size")
    }

    fn check(&self, arguments: &[(String, Template)]) -> Option<String> {
        let of = |name: &str| {
            let mut all = arguments.iter();
            all.find(|(given, _)| given == name)
                .map(|(_, template)| template.literal())
        };
        let state = of("state").flatten();
        let sets = state.is_none_or(|state| state == "set");
        if !sets && (of("size").is_some() || of("for").is_some()) {
            return Some("size and for go with state = \"set\" only".to_owned());
        }
        let size = of("size").flatten();
        size.and_then(|size| bytes(size.as_str()?).err())
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let host = work.host()?;
            let done = match work.given.text("state") {
                Some("show") => show(work, host).await?,
                Some("reset") => reset(work, host).await?,
                _ => set(work, host).await?,
            };
            Ok(work.one(done))
        }
        .boxed()
    }
}

/// A size as people write it; `None` for the usual one.
fn bytes(text: &str) -> Result<Option<u64>, String> {
    match text.trim() {
        "" => Ok(None),
        text => key::size("size", text).map(Some),
    }
}

/// Looks at a host as root: all that is to be changed can be read then.
async fn look(work: &Work<'_>, host: &Reached) -> Result<Seen, Failure> {
    memory::look(&host.session, true)
        .await
        .map_err(|error| work.ssh(host.name(), &error))
}

/// With what a host's memory is for later tasks.
fn with(done: Done, seen: &Seen, reboot: bool) -> Done {
    let done = done.with("reboot", reboot);
    match plan::in_force(seen) {
        Some((bytes, by)) => done.with("in_force_bytes", bytes).with("in_force_by", by),
        None => done,
    }
}

async fn show(work: &Work<'_>, host: &Reached) -> Result<Done, Failure> {
    let seen = memory::look_as_login(&host.session)
        .await
        .map_err(|error| work.ssh(host.name(), &error))?;
    // A setting that is ignored is worse than none: it looks as if all were well.
    if let Some(fault) = faults(&seen.ground).first() {
        return Err(work.failed(host.name(), fault));
    }
    let pending = plan::pending(&seen);
    let mut words = match plan::in_force(&seen) {
        Some((bytes, by)) => format!("{} by {by}", figures::memory(bytes)),
        None => "the driver's own choice".to_owned(),
    };
    for one in &pending {
        words.push_str(&format!("; {one}"));
    }
    let done = Done::new(Status::Ok, words);
    Ok(with(done, &seen, !pending.is_empty()))
}

async fn set(work: &Work<'_>, host: &Reached) -> Result<Done, Failure> {
    let name = host.name();
    let failed = |why: String| work.failed(name, why);
    let size = bytes(work.given.text("size").unwrap_or_default()).map_err(failed)?;
    let way = work.given.text("for").map(|way| match way {
        "macos" => Way::Macos,
        _ => Way::Amdgpu,
    });
    let seen = look(work, host).await?;
    let plan = memory::plan(&seen, size, way).map_err(failed)?;
    if !plan.change.hand.is_empty() {
        return Err(work.failed(name, format!("by hand: {}", plan.change.hand.join("; "))));
    }
    if plan.change.is_empty() {
        let pending = plan::pending(&seen);
        let words = match pending.first() {
            Some(first) => format!("it is set so already; {first}"),
            None => "it is set so already".to_owned(),
        };
        let done = Done::new(Status::Ok, words).with("bytes", plan.bytes);
        return Ok(with(done, &seen, !pending.is_empty()));
    }
    tell(work, name, &plan);
    let reboot = !seen.ground.darwin;
    if !work.context.check {
        let holder = locks::holder(&work.context.run);
        let (id, steps) = (work.record(), work.steps());
        doing::make(&host.session, &id, &holder, &plan, &steps)
            .await
            .map_err(|failure| failure.at(work.task))?;
    }
    let set: Vec<String> = plan.set.iter().map(ToString::to_string).collect();
    let mut words = format!(
        "{} ({}) by {}",
        figures::memory(plan.bytes),
        set.join(" "),
        plan.mechanism
    );
    if reboot {
        words.push_str("; takes effect with the next reboot");
    }
    for said in &plan.said {
        words.push_str(&format!("; {said}"));
    }
    let done = Done::change(work.context.check, words).with("bytes", plan.bytes);
    Ok(with(done, &seen, reboot))
}

/// Tells the parts of a change.
fn tell(work: &Work<'_>, name: &str, plan: &Plan) {
    for file in &plan.change.files {
        let old = file.before.as_deref().unwrap_or_default();
        work.change(name, &file.path, || {
            diff::unified(&file.path, old, &file.after)
        });
    }
    for line in &plan.change.lines {
        work.change(name, &line.line, String::new);
    }
}

async fn reset(work: &Work<'_>, host: &Reached) -> Result<Done, Failure> {
    let name = host.name();
    let seen = look(work, host).await?;
    if seen.records.is_empty() {
        let pending = plan::pending(&seen);
        let done = Done::new(Status::Ok, "nothing was set here by windlass");
        return Ok(with(done, &seen, !pending.is_empty()));
    }
    for path in seen.records.iter().flat_map(|record| &record.files) {
        work.change(name, path, String::new);
    }
    if work.context.check {
        return Ok(with(Done::change(true, "it is given back"), &seen, true));
    }
    let at = |failure: Failure| failure.at(work.task);
    {
        let holder = locks::holder(&work.context.run);
        let _lock = lock::hold(&host.session, &holder).await.map_err(at)?;
        for record in &seen.records {
            doing::take_back(&host.session, record, &work.steps())
                .await
                .map_err(at)?;
        }
    }
    let seen = look(work, host).await?;
    let pending = plan::pending(&seen);
    let done = Done::new(Status::Changed, "as it was before");
    Ok(with(done, &seen, !pending.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_as_people_write_it_and_none_is_the_usual_one() {
        assert_eq!(bytes(""), Ok(None));
        assert_eq!(bytes("8GiB"), Ok(Some(8 << 30)));
        assert!(bytes("much").unwrap_err().contains("size"));
    }
}
