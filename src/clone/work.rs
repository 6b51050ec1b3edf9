//! The steps: look at both hosts, judge, have it confirmed, copy, compare, give the copy its identity,
//! make it bootable, and only then name the disk a system's. Nothing is written before it is confirmed.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::identity::{self, fstab};
use super::judge::{self, Machine, sections};
use super::layout;
use super::script::{self, New};
use super::source::{self, Volume, Volumes};
use super::stream::{self, Copied, Folder, Pair};
use super::{STEP, Wish};
use crate::deploy::remote::context::Context;
use crate::deploy::remote::locks::Lock;
use crate::deploy::remote::probe::{self, Endpoint};
use crate::deploy::remote::program::{self, Program};
use crate::deploy::remote::site::Site;
use crate::deploy::remote::{hosts, install, locks, order};
use crate::event::{Event, Failure, FailureKind, Level, Scope, Status};
use crate::figures::size;
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
}

/// Clones.
///
/// # Errors
/// When a host is not reached; what fails later stands in the report.
pub async fn clone(context: &Context, wish: &Wish) -> Result<Report, Failure> {
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
    if !identity::is_name(name) {
        return Err(Failure::new(
            FailureKind::Usage,
            format!("{name:?} cannot be a host's name: give one with --hostname"),
        ));
    }
    let inventory = hosts::inventory(context)?;
    let one = |name: &str| -> Result<_, Failure> {
        let found = hosts::select(context, &inventory, Some(name))?;
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
    };
    let both = [one(&wish.from)?, one(&wish.to)?];
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
    for site in [from, to] {
        if !site.base().root {
            return Err(site.failed(STEP, "to clone, root is needed there, or sudo"));
        }
    }
    let mut work = Work {
        context,
        wish,
        name,
        from,
        to,
        ends: None,
        locks: Vec::new(),
        report: Report::default(),
        unfinished: None,
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
        work.report.failure = Some(failure);
    }
    let unfinished = work.unfinished.is_some();
    work.report
        .fields
        .insert("unfinished".into(), json!(unfinished));
    Ok(work.report)
}

fn tell(context: &Context, site: &Site, level: Level, message: &str) {
    let scope = Scope::host(site.name()).in_task(STEP);
    context.emitter.emit(scope, Event::log(level, message));
}

/// Runs a script as root; what it prints.
async fn run(session: &Session, what: &str, script: &str, minutes: u64) -> Result<String, Failure> {
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

struct Work<'a> {
    context: &'a Context,
    wish: &'a Wish,
    name: &'a str,
    from: &'a Site,
    to: &'a Site,
    ends: Option<(Endpoint, Endpoint)>,
    locks: Vec<Lock>,
    report: Report,
    /// The disk that is written and not yet whole.
    unfinished: Option<String>,
}

/// What is to be done.
struct Plan {
    source: Volumes,
    /// The volume with the root, and the subvolume of it.
    root: (usize, String),
    news: Vec<New>,
    disk: String,
    token: String,
    /// Names the transfer.
    key: String,
    resumed: bool,
    uefi: bool,
    loader: Option<String>,
    grub: Option<String>,
    fstab: String,
    hosts: String,
    hostname: String,
    swap_files: Vec<(String, u64)>,
}

impl Work<'_> {
    async fn all(&mut self) -> Result<(), Failure> {
        if !self.context.check {
            self.ready().await?;
        }
        let plan = self.plan().await?;
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
        self.locks.push(lock);
        Ok(Endpoint {
            session: site.session().clone(),
            base: site.base().clone(),
            worker_sha256: program.sha256.clone(),
            address,
            own_worker: true,
        })
    }

    fn refused(&self, reasons: Vec<String>) -> Result<(), Failure> {
        match reasons.is_empty() {
            true => Ok(()),
            false => Err(Failure::new(FailureKind::Host, reasons.join("; "))
                .on(self.to.name())
                .at(STEP)),
        }
    }

    async fn look(&self, site: &Site, disk: Option<&str>) -> Result<Machine, Failure> {
        let text = run(site.session(), "looking at disks", &script::look(disk), 2).await?;
        Machine::parse(site.name(), &text).map_err(|message| site.failed(STEP, message))
    }

    async fn plan(&mut self) -> Result<Plan, Failure> {
        let (from, to) = tokio::try_join!(
            self.look(self.from, self.wish.source.as_deref()),
            self.look(self.to, Some(&self.wish.disk))
        )?;
        self.refused(judge::machines(&from, &to, &self.wish.disk))?;
        let wanted = match (&self.wish.source, &from.disk) {
            (Some(_), Some(disk)) => Some(disk.as_str()),
            (asked, _) => asked.as_deref(),
        };
        let mut found = source::find(&from.blocks, &from.mounts, wanted)
            .map_err(|message| self.from.failed(STEP, message))?;
        self.refused(judge::volumes(&from, &to, &found.disk, &found.volumes))?;
        let views = script::views(&self.context.run, &found.volumes);
        let text = run(self.from.session(), "looking at file systems", &views, 5).await?;
        let seen = sections(&text);
        for (at, volume) in found.volumes.iter_mut().enumerate() {
            let used = seen
                .get(&format!("used {at}"))
                .and_then(|text| text.trim().parse().ok());
            volume.used = used.unwrap_or(0);
        }
        let mut root = seen
            .get("root")
            .map(String::as_str)
            .unwrap_or_default()
            .lines();
        let at = root.next().and_then(|at| at.parse::<usize>().ok());
        let (Some(at), Some(folder)) = (at, root.next()) else {
            return Err(self.from.failed(
                STEP,
                format!(
                    "no Linux system (with /etc/fstab) is on {}",
                    found.disk.words()
                ),
            ));
        };
        let view = script::view(&self.context.run, at);
        let subvolume = folder.strip_prefix(&view).unwrap_or_default().to_owned();
        let text = run(
            self.from.session(),
            "looking at the system",
            &script::system(folder),
            5,
        )
        .await?;
        let system = sections(&text);
        let of = |name: &str| system.get(name).cloned().unwrap_or_default();
        source::place(&mut found.volumes, at, &of("fstab"));
        let Some(target) = to.target() else {
            return Err(Failure::internal("the target disk is missing"));
        };
        let token = to.token().ok_or_else(|| {
            self.to.failed(
                STEP,
                format!(
                    "nothing can be read from {}, so it cannot be confirmed",
                    target.words()
                ),
            )
        })?;
        let parts = layout::fit(&found.volumes, target.size, to.uefi)
            .map_err(|message| self.to.failed(STEP, message))?;
        let grub = of("loaders").lines().next().map(str::to_owned);
        if !to.uefi && grub.is_none() {
            return Err(self.from.failed(
                STEP,
                "its system has no grub-install, and without it nothing would start the copy by a BIOS",
            ));
        }
        if to.uefi && from.loader.is_none() {
            return Err(self.from.failed(
                STEP,
                "which loader its firmware starts cannot be read (efibootmgr -v)",
            ));
        }
        let mut plan = Plan {
            news: Vec::new(),
            disk: target.path.clone(),
            token,
            key: hex(8)?,
            resumed: false,
            uefi: to.uefi,
            loader: from.loader.clone(),
            grub,
            fstab: of("fstab")
                .strip_suffix('\n')
                .map(str::to_owned)
                .unwrap_or_default(),
            hosts: of("hosts"),
            hostname: of("hostname").trim().to_owned(),
            swap_files: swap_files(&from, &found.volumes, at),
            root: (at, subvolume),
            source: found,
        };
        for part in parts {
            let kind = part
                .volume
                .and_then(|at| plan.source.volumes.get(at))
                .map(|one| one.kind.as_str());
            let uuid = match kind {
                None => String::new(),
                Some("vfat") => fat_id()?,
                Some(_) => uuid()?,
            };
            plan.news.push(New {
                part,
                uuid,
                part_uuid: uuid()?,
            });
        }
        let snapshots: Vec<&str> = seen
            .iter()
            .filter(|(name, _)| name.starts_with("snapshots "))
            .flat_map(|(_, text)| text.lines())
            .collect();
        resume(&mut plan, target, &snapshots);
        self.describe(&plan, &from, target, &system);
        Ok(plan)
    }

    /// What will be done, for people and scripts.
    fn describe(
        &mut self,
        plan: &Plan,
        from: &Machine,
        target: &super::disks::Block,
        system: &std::collections::BTreeMap<String, String>,
    ) {
        let of = |name: &str| -> Vec<String> {
            let text = system.get(name).map(String::as_str).unwrap_or_default();
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            lines.map(str::to_owned).collect()
        };
        let mut text = format!(
            "{} ({}) of {} becomes {} on {} of {}\n",
            plan.source.disk.words(),
            of("release").first().map_or("Linux", String::as_str),
            from.host,
            self.name,
            target.words(),
            self.to.name()
        );
        text.push_str("erased is what is there now:\n");
        let mut erased: Vec<Value> = Vec::new();
        for one in target.all().into_iter().skip(1) {
            let kind = one.probed.kind.as_deref().unwrap_or("nothing known");
            let name = one
                .probed
                .label
                .as_deref()
                .or(one.probed.part_name.as_deref())
                .unwrap_or("");
            text.push_str(&format!(
                "  {} {} {kind} {name}\n",
                one.path,
                size(one.size)
            ));
            erased.push(json!({"path": one.path, "bytes": one.size, "kind": one.probed.kind, "label": one.probed.label}));
        }
        if erased.is_empty() {
            text.push_str("  no partitions\n");
        }
        text.push_str("written is:\n");
        let mut parts: Vec<Value> = Vec::new();
        for (index, new) in plan.news.iter().enumerate() {
            let volume = new.part.volume.and_then(|at| plan.source.volumes.get(at));
            let kind = volume.map_or("boot loader", |one| one.kind.as_str());
            let place = volume.and_then(|one| one.place.clone());
            text.push_str(&format!(
                "  {} {} {kind} {}\n",
                script::node(&plan.disk, index + 1),
                size(new.part.size),
                place.clone().unwrap_or_default()
            ));
            parts.push(json!({"number": index + 1, "bytes": new.part.size, "kind": kind, "place": place, "used_bytes": volume.map(|one| one.used)}));
        }
        for (title, name) in [
            ("secrets that travel with it:", "secrets"),
            ("to be looked at on the copy, it is kept:", "fixed"),
        ] {
            let lines = of(name);
            if !lines.is_empty() {
                text.push_str(&format!("{title}\n  {}\n", lines.join("\n  ")));
            }
        }
        for line in &plan.source.left {
            text.push_str(&format!("{line}\n"));
        }
        if plan.resumed {
            text.push_str("what was copied before from the same snapshot is kept\n");
        }
        self.report.text = text;
        let fields = [
            ("from", json!(from.host)),
            ("to", json!(self.to.name())),
            ("hostname", json!(self.name)),
            ("source_disk", json!(plan.source.disk.path)),
            ("disk", json!(plan.disk)),
            ("confirm", json!(plan.token)),
            ("erased", json!(erased)),
            ("parts", json!(parts)),
            ("secrets", json!(of("secrets"))),
            ("fixed", json!(of("fixed"))),
            ("left", json!(plan.source.left)),
            ("resumed", json!(plan.resumed)),
        ];
        for (name, value) in fields {
            self.report.fields.insert(name.into(), value);
        }
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
        let (a, b) = (self.from.session(), self.to.session());
        let id = self.context.run.clone();
        let volumes = &plan.source.volumes;
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
        run(b, "writing out", "sync", 60).await?;
        let (mut files, mut moved, mut digests) = (0, Vec::new(), Map::new());
        for (folder, began) in &done {
            let compared = stream::compare(&pair, folder, *began).await?;
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
                "{} changed while they were copied, as {}: each file there is as it was when it was read",
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
        self.identity(plan).await?;
        run(b, "unmounting", &script::leave(Some(&id)), 10).await?;
        let uefi = match plan.uefi {
            true => plan.loader.as_deref().map(|loader| (loader, self.name)),
            false => None,
        };
        run(
            b,
            "finishing the partition table",
            &script::finish(&plan.disk, &plan.news, uefi),
            5,
        )
        .await?;
        self.unfinished = None;
        for (at, volume) in volumes.iter().enumerate() {
            if volume.kind == "btrfs" && !volume.mounted.is_empty() {
                run(
                    a,
                    "removing snapshots",
                    &script::forget(&script::view(&id, at)),
                    5,
                )
                .await?;
            }
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
            let snapshots = volume.kind == "btrfs" && !volume.mounted.is_empty();
            let subvolumes = volume.subvolumes();
            for (number, subvolume) in subvolumes.iter().enumerate() {
                let mut from = format!("{view}{subvolume}");
                let mut leave = Vec::new();
                if snapshots {
                    let name = format!("{}{}-{at}-{number}", script::SNAPSHOT, plan.key);
                    let make = script::snapshot(&view, subvolume, &name, &plan.key);
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
                    live: !snapshots && !volume.mounted.is_empty(),
                    again: plan.resumed && volume.kind == "btrfs",
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
        let assemble = script::assemble(&id, &plan.disk, &plan.news, volumes, subvolume);
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
            swap_files: &plan.swap_files,
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
        let bootable = script::bootable(&id, &plan.disk, plan.grub.as_deref(), plan.uefi);
        run(b, "making the copy start", &bootable, 60).await?;
        self.report
            .fields
            .insert("machine_id".into(), json!(machine_id));
        // A key has two words, and a comment that names the medium.
        let key: Vec<&str> = key.split_whitespace().take(2).collect();
        let key = (key.len() == 2).then(|| key.join(" "));
        if let Some(key) = &key {
            self.report.text.push_str(&format!(
                "its SSH host key is {key}\nonce {to} runs from {}: windlass inventory set {to} ssh.host_key='{key}'\n",
                plan.disk,
                to = self.to.name(),
            ));
        }
        self.report.fields.insert("host_key".into(), json!(key));
        Ok(())
    }
}

/// Swap files that lie in the root's volume, by their path in it: they are made anew, not copied.
fn swap_files(from: &Machine, volumes: &[Volume], root: usize) -> Vec<(String, u64)> {
    let mounted = volumes.get(root).and_then(|volume| volume.mounted.first());
    let Some((base, _)) = mounted else {
        return Vec::new();
    };
    let base = base.trim_end_matches('/');
    let files = from.swap_files.iter();
    files
        .filter_map(|(path, bytes)| {
            let below = path.strip_prefix(base)?;
            below.starts_with('/').then(|| (below.to_owned(), *bytes))
        })
        .collect()
}

/// Goes on where an earlier run ended: the disk has the very partitions, and the source the snapshots.
fn resume(plan: &mut Plan, target: &super::disks::Block, snapshots: &[&str]) {
    let key = target
        .children
        .first()
        .and_then(|one| one.probed.part_name.as_deref());
    let Some(key) = key.and_then(|name| name.strip_prefix(script::UNFINISHED)) else {
        return;
    };
    let begin = format!("{}{key}-", script::SNAPSHOT);
    let wanted: usize = plan
        .source
        .volumes
        .iter()
        .filter(|one| one.kind == "btrfs" && !one.mounted.is_empty())
        .map(|one| one.subvolumes().len())
        .sum();
    let there = snapshots
        .iter()
        .filter(|name| name.starts_with(&begin))
        .count();
    if wanted == 0 || there != wanted || target.children.len() != plan.news.len() {
        return;
    }
    let mut news = plan.news.clone();
    for (new, block) in news.iter_mut().zip(&target.children) {
        let probed = &block.probed;
        let name = format!("{}{key}", script::UNFINISHED);
        let kind = new
            .part
            .volume
            .and_then(|at| plan.source.volumes.get(at))
            .map(|one| one.kind.as_str());
        let Some(part_uuid) = &probed.part_uuid else {
            return;
        };
        if block.size != new.part.size || probed.part_name.as_deref() != Some(&name) {
            return;
        }
        new.part_uuid.clone_from(part_uuid);
        if kind == Some("btrfs") {
            match (&probed.uuid, probed.kind.as_deref()) {
                (Some(uuid), Some("btrfs")) => new.uuid.clone_from(uuid),
                _ => return,
            }
        }
    }
    plan.news = news;
    key.clone_into(&mut plan.key);
    plan.resumed = true;
}

fn hex(bytes: usize) -> Result<String, Failure> {
    let mut random = vec![0u8; bytes];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::internal(format!("no random numbers: {error}")))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A random identifier as file systems have it.
fn uuid() -> Result<String, Failure> {
    let text = hex(16)?;
    let mut out = String::new();
    for (at, c) in text.chars().enumerate() {
        if matches!(at, 8 | 12 | 16 | 20) {
            out.push('-');
        }
        out.push(match at {
            // Version 4, variant 1 (RFC 9562).
            12 => '4',
            16 => '8',
            _ => c,
        });
    }
    Ok(out)
}

fn fat_id() -> Result<String, Failure> {
    let text = hex(4)?.to_uppercase();
    let (a, b) = text.split_at(4);
    Ok(format!("{a}-{b}"))
}
