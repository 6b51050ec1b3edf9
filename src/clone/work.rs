//! The steps: look at both hosts, judge, have it confirmed, copy, compare, give the copy its identity,
//! make it bootable, and only then name the disk a system's. Nothing is written before it is confirmed.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::after::{self, After, Made};
use super::boot;
use super::identity::{self, fstab};
use super::judge::sections;
use super::logical;
use super::plan::{Plan, hex};
use super::script;
use super::snapshots;
use super::source::Volume;
use super::stream::{self, Copied, Folder, Pair};
use super::{STEP, Wish};
use crate::deploy::remote::context::Context;
use crate::deploy::remote::locks::Lock;
use crate::deploy::remote::probe::{self, Endpoint};
use crate::deploy::remote::program::{self, Program};
use crate::deploy::remote::site::Site;
use crate::deploy::remote::{hosts, install, locks, order};
use crate::event::{Event, Failure, FailureKind, Level, Scope, Status};
use crate::inventory::{Host, Inventory};
use crate::provision::drift::Judged;
use crate::ssh::{Caps, Session};

/// What a script may take at most: 8 MiB, 64 KiB of complaints.
const fn caps(minutes: u64) -> Caps {
    Caps {
        stdout: 8 << 20,
        stderr: 64 << 10,
        time: Duration::from_secs(60 * minutes),
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    /// For scripts.
    pub fields: Map<String, Value>,
    /// For people.
    pub text: String,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// The copy compared with its source.
    pub judged: Option<Judged>,
    /// To the copy, where it runs.
    pub session: Option<Session>,
    /// Whether the inventory has the copy's host key.
    pub updated: bool,
}

/// The host that a name stands for.
///
/// # Errors
/// When it stands for none, or several.
pub fn one_host(context: &Context, inventory: &Inventory, name: &str) -> Result<Host, Failure> {
    let found = hosts::select(context, inventory, Some(name))?;
    match found.as_slice() {
        [one] => Ok(one.clone()),
        _ => Err(Failure::new(
            FailureKind::Usage,
            format!(
                "{name} means {} hosts, and a clone has one source and one target",
                found.len()
            ),
        )),
    }
}

/// Clones.
///
/// # Errors
/// When a host is not reached; what fails later stands in the report.
pub async fn clone(context: &Context, wish: &Wish) -> Result<Report, Failure> {
    judged(wish)?;
    let inventory = hosts::inventory(context)?;
    let both = [
        one_host(context, &inventory, &wish.from)?,
        one_host(context, &inventory, &wish.to)?,
    ];
    let (sites, _) = hosts::sites(context, &inventory, &both, true).await.map_err(|mut failure| {
        if failure.host.as_deref() == Some(wish.to.as_str()) && failure.message.contains("runs Windows") {
            failure.message.push_str(
                ". To clone onto it, start it from a Linux live medium with an SSH server, as Debian's or Ubuntu's",
            );
        }
        failure
    })?;
    let [from, to] = sites.as_slice() else {
        return Err(Failure::internal("two hosts were wanted"));
    };
    between(context, &inventory, wish, from, to).await
}

/// What is wrong with a wish by itself; the name of the new system.
fn judged(wish: &Wish) -> Result<&str, Failure> {
    if wish.from == wish.to {
        return Err(Failure::new(
            FailureKind::Usage,
            format!(
                "{} cannot be cloned onto itself: name another host",
                wish.from
            ),
        ));
    }
    let name = wish.hostname.as_deref().unwrap_or(&wish.to);
    match identity::is_name(name) {
        true => Ok(name),
        false => Err(Failure::new(
            FailureKind::Usage,
            format!("{name:?} cannot be a host's name: give one with --hostname"),
        )),
    }
}

/// Clones from one host that was reached to another.
///
/// # Errors
/// When nothing was begun; what fails later stands in the report.
pub async fn between(
    context: &Context,
    inventory: &Inventory,
    wish: &Wish,
    from: &Site,
    to: &Site,
) -> Result<Report, Failure> {
    let name = judged(wish)?;
    for site in [from, to] {
        if !site.base().root {
            return Err(site.failed(STEP, "to clone, root is needed there, or sudo"));
        }
    }
    let before = match &wish.reboot {
        Some(_) => Some(after::may(to).await?),
        None => None,
    };
    let mut work = Work {
        context,
        wish,
        name,
        from,
        to,
        ends: None,
        locks: Held::default(),
        report: Report::default(),
        unfinished: None,
        frozen: false,
        made: None,
    };
    let done = work.all().await;
    // Mounts that this run made; those of a run that was cut off are ended by the next.
    for site in [from, to] {
        let script = script::leave(Some(&context.run));
        if let Err(failure) = run(site.session(), "unmounting", &script, 2).await {
            tell(context, site, Level::Warn, &failure.message);
        }
    }
    if let Err(mut failure) = done {
        if let Some(disk) = &work.unfinished {
            failure.message.push_str(&format!(
                "; {disk} of {} is marked as unfinished and starts nothing: clone again",
                to.name()
            ));
        }
        if work.frozen {
            failure.message.push_str(&format!(
                "; snapshots that were made on {} stay for going on from them, until it is cloned again ({}… or {}…)",
                from.name(),
                script::SNAPSHOT,
                logical::SNAPSHOT
            ));
        }
        work.report.failure = Some(failure);
    }
    let unfinished = work.unfinished.is_some();
    work.report
        .fields
        .insert("unfinished".into(), json!(unfinished));
    // They would end with the host anyway.
    drop(work.locks);
    let (made, mut report) = (work.made, work.report);
    if let (None, Some(made), Some(reboot), Some(before)) =
        (&report.failure, &made, wish.reboot, &before)
    {
        let after = After {
            context,
            inventory,
            from,
            to,
            reboot,
            before,
            made,
        };
        report.failure = after.see_through(&mut report).await.err();
    }
    if let Some(key) = made.as_ref().and_then(|made| made.key.as_ref()) {
        report
            .text
            .push_str(&format!("its SSH host key is {key}\n"));
        if !report.updated {
            let line = after::line(to.name(), key);
            report.text.push_str(&match &report.session {
                Some(_) => format!("to be let in from now on: {line}\n"),
                None => format!("once {} runs from {}: {line}\n", to.name(), wish.disk),
            });
        }
    }
    Ok(report)
}

fn tell(context: &Context, site: &Site, level: Level, message: &str) {
    let scope = Scope::host(site.name()).in_task(STEP);
    context.emitter.emit(scope, Event::log(level, message));
}

/// Runs a script as root; what it prints.
pub(super) async fn run(
    session: &Session,
    what: &str,
    script: &str,
    minutes: u64,
) -> Result<String, Failure> {
    let host = session.host();
    let output = session
        .run_bound(true, what, script, caps(minutes))
        .await
        .map_err(|error| error.failure(host))?;
    match output.ok() {
        true => Ok(output.text()),
        false => Err(Failure::new(
            FailureKind::Host,
            format!("{host}: {what} failed: {}", output.last_words()),
        )
        .on(host)
        .at(STEP)),
    }
}

/// Locks, which are of one thread at a time.
pub(super) type Held = Mutex<Vec<Lock>>;

pub(super) struct Work<'a> {
    pub(super) context: &'a Context,
    pub(super) wish: &'a Wish,
    pub(super) name: &'a str,
    pub(super) from: &'a Site,
    pub(super) to: &'a Site,
    pub(super) ends: Option<(Endpoint, Endpoint)>,
    /// Held until it ends.
    pub(super) locks: Held,
    pub(super) report: Report,
    /// The disk that is written and not yet whole.
    pub(super) unfinished: Option<String>,
    /// Whether snapshots were made on the source that are still there.
    pub(super) frozen: bool,
    /// The copy, once it is whole.
    pub(super) made: Option<Made>,
}

impl Work<'_> {
    async fn all(&mut self) -> Result<(), Failure> {
        if !self.context.check {
            self.ready().await?;
        }
        let plan = self.plan().await?;
        if let Some(reboot) = &self.wish.reboot {
            let line = format!(
                "then {} reboots into it, and is waited for, {} s at most\n",
                self.to.name(),
                reboot.patience.as_secs()
            );
            self.report.text.push_str(&line);
        }
        if self.context.check {
            let scope = Scope::host(self.to.name()).in_task(STEP);
            let words = format!(
                "{} would be erased and written; confirmed by --confirm {}",
                plan.disk, plan.token
            );
            self.context
                .emitter
                .task(scope, None)
                .finish(Status::WouldChange, words);
            return Ok(());
        }
        self.confirm(&plan).await?;
        let scope = Scope::host(self.to.name()).in_task(STEP);
        let task = self.context.emitter.task(scope, None);
        let begun = Instant::now();
        match self.write(&plan).await {
            Ok(()) => {
                let seconds = begun.elapsed().as_secs_f64();
                self.report
                    .fields
                    .insert("clone_seconds".into(), json!(seconds));
                task.finish(
                    Status::Changed,
                    format!(
                        "{} is {}'s system as {}",
                        plan.disk,
                        self.from.name(),
                        self.name
                    ),
                );
                Ok(())
            }
            Err(failure) => {
                if let (Some(disk), false) = (&self.unfinished, plan.uefi) {
                    let disarm = script::disarm(disk, &plan.key);
                    let _ = run(self.to.session(), "disarming the disk", &disarm, 2).await;
                }
                task.finish(Status::Failed, failure.message.clone());
                Err(failure)
            }
        }
    }

    /// Puts the worker's program on both hosts, takes their locks, ends what a run before left.
    async fn ready(&mut self) -> Result<(), Failure> {
        let programs = order::programs(&self.wish.workers)?;
        let from = self.end(self.from, &programs).await?;
        let to = self.end(self.to, &programs).await?;
        self.ends = Some((from, to));
        for site in [self.from, self.to] {
            run(site.session(), "unmounting", &script::leave(None), 2).await?;
        }
        Ok(())
    }

    async fn end(&mut self, site: &Site, programs: &[Program]) -> Result<Endpoint, Failure> {
        let arch = site
            .facts
            .arch
            .as_deref()
            .unwrap_or("an unknown architecture");
        let system = site.facts.system.as_deref().unwrap_or("linux");
        let program = program::pick(programs, system, arch, site.libc())
            .map_err(|message| site.failed("arch", message))?;
        let address = probe::resolve(&site.host.data, site.host.data_port)
            .map_err(|message| site.failed("data", message))?;
        install::put(site.session(), site.base(), program, &self.context.emitter).await?;
        let holder = locks::holder(&self.context.run);
        let lock = locks::take(site.session(), site.base(), &program.sha256, &holder).await?;
        self.locks
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .push(lock);
        Ok(Endpoint {
            session: site.session().clone(),
            base: site.base().clone(),
            worker_sha256: program.sha256.clone(),
            address,
            own_worker: true,
        })
    }

    /// Has the disk confirmed by what only it is called.
    async fn confirm(&mut self, plan: &Plan) -> Result<(), Failure> {
        let refuse = |message: String| {
            Err(Failure::new(FailureKind::Usage, message)
                .on(self.to.name())
                .at(STEP))
        };
        let said = match &self.wish.confirm {
            Some(said) => said.clone(),
            None => {
                let text = format!(
                    "{}type {} to erase {} of {}",
                    self.report.text,
                    plan.token,
                    plan.disk,
                    self.to.name()
                );
                let asked = self
                    .context
                    .asker
                    .ask(Scope::host(self.to.name()), text, &[], false)
                    .await;
                match asked {
                    Some(said) => said,
                    None => {
                        return refuse(format!(
                            "{} of {} is erased only when it is confirmed: give --confirm {}",
                            plan.disk,
                            self.to.name(),
                            plan.token
                        ));
                    }
                }
            }
        };
        if said.trim() != plan.token {
            return refuse(format!(
                "{} of {} is {}, and {:?} was confirmed: nothing was written",
                plan.disk,
                self.to.name(),
                plan.token,
                said.trim()
            ));
        }
        Ok(())
    }

    async fn write(&mut self, plan: &Plan) -> Result<(), Failure> {
        let b = self.to.session();
        let id = self.context.run.clone();
        let volumes = &plan.source.volumes;
        self.frozen = volumes.iter().any(Volume::frozen);
        let folders = self.folders(plan).await?;
        let disk = (plan.disk.as_str(), plan.token.as_str());
        let prepare = script::prepare(&id, &plan.key, disk, &plan.news, volumes, !plan.resumed);
        // What fails in here may have written already.
        self.unfinished = Some(plan.disk.clone());
        if let Err(failure) = run(b, "writing the partition table", &prepare, 15).await {
            if failure.message.contains("nothing was written") {
                self.unfinished = None;
            }
            return Err(failure);
        }
        let Some((from, to)) = self.ends.clone() else {
            return Err(Failure::internal("the ends of the stream are missing"));
        };
        let pair = Pair {
            from: &from,
            to: &to,
            emitter: &self.context.emitter,
            run: &id,
        };
        let mut all = Copied::default();
        let mut done = Vec::new();
        for folder in folders {
            let copied = stream::carry(&pair, &folder).await?;
            all.bytes += copied.bytes;
            all.sent += copied.sent;
            all.kept += copied.kept;
            done.push((folder, copied.began));
        }
        // What is compared is read from the disk, not from memory.
        run(b, "writing out", &script::flush(&id, volumes), 60).await?;
        let (mut files, mut moved, mut digests) = (0, Vec::new(), Map::new());
        for (folder, began) in &done {
            let compared = match stream::compare(&pair, folder, *began).await {
                Ok(compared) => compared,
                Err(failure) => {
                    // Without its snapshots nothing of this is gone on with: it may be what is bad.
                    self.frozen = self.forget(plan).await.is_err();
                    return Err(failure);
                }
            };
            files += compared.files;
            moved.extend(
                compared
                    .moved
                    .iter()
                    .map(|path| format!("{}: /{path}", folder.name)),
            );
            digests.insert(folder.name.clone(), json!(compared.sha256));
        }
        if !moved.is_empty() {
            let message = format!(
                "{} changed while they were copied, as {}: what changed there is as it was when it was read, all else is the same",
                crate::figures::counted(moved.len(), "folder", "folders"),
                moved.first().map(String::as_str).unwrap_or_default()
            );
            tell(self.context, self.from, Level::Warn, &message);
        }
        for (name, value) in [
            ("copied_bytes", json!(all.bytes)),
            ("sent_bytes", json!(all.sent)),
            ("kept_files", json!(all.kept)),
            ("files", json!(files)),
            ("changed_meanwhile", json!(moved)),
            ("sha256", Value::Object(digests)),
        ] {
            self.report.fields.insert(name.into(), value);
        }
        // From here on nothing is gone on with: the copy gets files that its source does not have.
        match self.forget(plan).await {
            Ok(()) => self.frozen = false,
            Err(failure) => tell(self.context, self.from, Level::Warn, &failure.message),
        }
        self.identity(plan).await?;
        run(b, "unmounting", &script::unmount(&id), 60).await?;
        let finish = script::finish(&plan.disk, &plan.news);
        run(b, "finishing the partition table", &finish, 5).await?;
        self.unfinished = None;
        if let (true, Some(loader)) = (plan.uefi, &plan.loader) {
            let entry = script::entry(&plan.disk, &plan.news, loader, self.name);
            run(b, "entering the copy in the firmware", &entry, 5)
                .await
                .map_err(|mut failure| {
                    failure.message.push_str(&format!(
                        "; the copy is whole: choose {loader} of {} in the setup of {}",
                        plan.disk,
                        self.to.name()
                    ));
                    failure
                })?;
        }
        Ok(())
    }

    /// Removes the snapshots that were made.
    async fn forget(&self, plan: &Plan) -> Result<(), Failure> {
        let volumes = &plan.source.volumes;
        for (at, volume) in volumes.iter().enumerate() {
            let forget = match &volume.logical {
                Some(taking) => snapshots::melt(&self.context.run, &taking.group),
                None if volume.frozen() => snapshots::forget(&script::view(&self.context.run, at)),
                None => continue,
            };
            run(self.from.session(), "removing snapshots", &forget, 5).await?;
        }
        Ok(())
    }

    /// What is copied, folder by folder, with snapshots made where there can be.
    async fn folders(&self, plan: &Plan) -> Result<Vec<Folder>, Failure> {
        let id = &self.context.run;
        let mut all = Vec::new();
        for (at, volume) in plan.source.volumes.iter().enumerate() {
            if volume.kind == "swap" {
                continue;
            }
            let (view, new) = (script::view(id, at), script::new(id, at));
            let snapshots = volume.kind == "btrfs" && volume.frozen();
            if let Some(taking) = &volume.logical {
                let freeze = snapshots::freeze(id, &plan.key, at, taking);
                run(self.from.session(), "making a snapshot", &freeze, 5).await?;
            }
            let subvolumes = volume.subvolumes();
            for (number, subvolume) in subvolumes.iter().enumerate() {
                let mut from = match volume.logical {
                    Some(_) => snapshots::frozen(id, at),
                    None => format!("{view}{subvolume}"),
                };
                let mut leave = Vec::new();
                if snapshots {
                    let name = format!("{}{}-{at}-{number}", script::SNAPSHOT, plan.key);
                    let make = snapshots::snapshot(&view, subvolume, &name, &plan.key);
                    run(self.from.session(), "making a snapshot", &make, 5).await?;
                    from = format!("{view}/{name}");
                    leave.extend(
                        (0..subvolumes.len())
                            .map(|n| format!("{}{}-{at}-{n}", script::SNAPSHOT, plan.key)),
                    );
                }
                let root = at == plan.root.0 && *subvolume == plan.root.1;
                if root {
                    leave.push("var/lib/windlass".to_owned());
                    leave.extend(
                        plan.swap_files
                            .iter()
                            .map(|(path, _)| path.trim_start_matches('/').to_owned()),
                    );
                }
                all.push(Folder {
                    from,
                    to: format!("{new}{subvolume}"),
                    leave,
                    plain: volume.kind == "vfat",
                    live: !volume.frozen() && !volume.mounted.is_empty(),
                    again: plan.resumed && volume.frozen(),
                    bytes: volume.used,
                    name: match (&volume.place, subvolume.as_str()) {
                        (Some(place), "") => place.clone(),
                        (_, "") => volume.path.clone(),
                        (_, subvolume) => format!("{} {subvolume}", volume.path),
                    },
                });
            }
        }
        Ok(all)
    }

    async fn identity(&mut self, plan: &Plan) -> Result<(), Failure> {
        let (b, id) = (self.to.session(), self.context.run.clone());
        let volumes = &plan.source.volumes;
        let renewed: Vec<fstab::Renewed> = plan
            .news
            .iter()
            .filter_map(|new| {
                let volume = volumes.get(new.part.volume?)?;
                Some(fstab::Renewed {
                    volume: volume.clone(),
                    uuid: new.uuid.clone(),
                    part_uuid: new.part_uuid.clone(),
                })
            })
            .collect();
        let subvolume = plan.root.1.trim_start_matches('/');
        let subvolume = if subvolume.is_empty() { "/" } else { subvolume };
        let assemble =
            script::assemble(&id, &plan.disk, &plan.news, volumes, subvolume, &plan.fstab);
        run(b, "putting the copy together", &assemble, 5).await?;
        let machine_id = hex(16)?;
        let new = script::Identity {
            hostname: self.name,
            machine_id: &machine_id,
            fstab: &fstab::renew(&plan.fstab, &renewed),
            hosts: &identity::hosts(
                plan.hosts.strip_suffix('\n').unwrap_or(&plan.hosts),
                &plan.hostname,
                self.name,
            ),
            pairs: &fstab::pairs(&renewed),
            devices: &fstab::devices(&renewed),
            addresses: &identity::addresses::moved(&plan.addresses),
            swap_files: &plan.swap_files,
            record: &after::look::record(self.from.name(), self.source_id(), &machine_id),
        };
        let said = run(
            b,
            "giving the copy its identity",
            &script::identify(&id, &new),
            15,
        )
        .await?;
        let key = sections(&said)
            .get("key")
            .map(|text| text.trim().to_owned())
            .unwrap_or_default();
        let esp = volumes.iter().find(|volume| volume.esp);
        let place = esp.and_then(|volume| volume.place.as_deref());
        let loader = place.zip(plan.loader.as_deref());
        let grub = plan.grub.as_deref();
        let bootable = boot::bootable(&id, &plan.disk, grub, loader, plan.uefi);
        run(b, "making the copy start", &bootable, 60).await?;
        self.report
            .fields
            .insert("machine_id".into(), json!(machine_id));
        // A key has two words, and a comment that names the medium.
        let key: Vec<&str> = key.split_whitespace().take(2).collect();
        let key = (key.len() == 2).then(|| key.join(" "));
        self.report.fields.insert("host_key".into(), json!(key));
        self.made = Some(self.made_by(plan));
        Ok(())
    }

    fn source_id(&self) -> Option<&str> {
        self.from.facts.machine.machine_id.as_deref()
    }

    /// What is to be told of the copy to who sees it through its first start.
    fn made_by(&self, plan: &Plan) -> Made {
        let of = |name: &str| self.report.fields.get(name);
        let text = |name: &str| of(name).and_then(Value::as_str).map(str::to_owned);
        let fixed = of("fixed").and_then(Value::as_array).into_iter().flatten();
        let root = |new: &&script::New| new.part.volume == Some(plan.root.0);
        Made {
            disk: plan.disk.clone(),
            part: plan
                .news
                .iter()
                .find(root)
                .map(|new| new.part_uuid.clone())
                .unwrap_or_default(),
            machine_id: text("machine_id").unwrap_or_default(),
            key: text("host_key"),
            fixed: fixed.filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }
}
