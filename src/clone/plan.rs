//! What is to be done: both hosts are looked at and judged, the disk is fitted, and all of it is told.
//! Must not write anything on the target.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::STEP;
use super::disks::Block;
use super::identity::{self, fstab};
use super::judge::{self, Machine, sections};
use super::layout;
use super::logical;
use super::script::{self, New};
use super::source::{self, Volume, Volumes};
use super::work::{Work, run};
use crate::deploy::remote::site::Site;
use crate::event::{Failure, FailureKind};
use crate::figures::size;

/// What is to be done.
pub(super) struct Plan {
    pub(super) source: Volumes,
    /// The volume with the root, and the subvolume of it.
    pub(super) root: (usize, String),
    pub(super) news: Vec<New>,
    pub(super) disk: String,
    pub(super) token: String,
    /// Names the transfer.
    pub(super) key: String,
    pub(super) resumed: bool,
    pub(super) uefi: bool,
    pub(super) loader: Option<String>,
    pub(super) grub: Option<String>,
    pub(super) fstab: String,
    pub(super) hosts: String,
    pub(super) hostname: String,
    pub(super) swap_files: Vec<(String, u64)>,
    /// Addresses of the source and what stands for each at the target.
    pub(super) addresses: Vec<(IpAddr, IpAddr)>,
}

impl Work<'_> {
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

    pub(super) async fn plan(&mut self) -> Result<Plan, Failure> {
        let (from, to) = tokio::try_join!(
            self.look(self.from, self.wish.source.as_deref()),
            self.look(self.to, Some(&self.wish.disk))
        )?;
        self.refused(judge::machines(&from, &to, &self.wish.disk))?;
        let wanted = match (&self.wish.source, &from.disk) {
            (Some(_), Some(disk)) => Some(disk.as_str()),
            (asked, _) => asked.as_deref(),
        };
        let mut found = source::find(&from.blocks, &from.mounts, &from.logical, wanted)
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
            if let Some(list) = seen.get(&format!("subvolumes {at}")) {
                found.left.extend(source::subvolumes(volume, list));
            }
            let default = seen.get(&format!("default {at}")).map(|text| text.trim());
            volume.default = default
                .filter(|path| !path.is_empty())
                .map(|path| format!("/{path}"));
        }
        let said = logical::take(&mut found.volumes, &from.logical);
        found.left.extend(said);
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
        // Where it is mounted with all that belongs to it, its secrets are seen that lie elsewhere.
        let mounted = found.volumes.get(at).and_then(|volume| {
            let is = |root: &str| root.trim_end_matches('/') == subvolume;
            volume.mounted.iter().find(|(_, root)| is(root))
        });
        let lived = mounted.map_or(folder, |(at, _)| at);
        let text = run(
            self.from.session(),
            "looking at the system",
            &script::system(lived),
            5,
        )
        .await?;
        let system = sections(&text);
        let of = |name: &str| system.get(name).cloned().unwrap_or_default();
        source::place(&mut found.volumes, at, &of("fstab"), &from.mounts);
        if let Some((place, number)) = fstab::by_number(&of("fstab"), &found.volumes) {
            return Err(self.from.failed(
                STEP,
                format!(
                    "/etc/fstab mounts {place} by subvolid={number} alone, and the copy's subvolumes have other numbers: name it with subvol= there"
                ),
            ));
        }
        if let Some(file) = of("numbered").lines().find(|line| !line.is_empty()) {
            return Err(self.from.failed(
                STEP,
                format!(
                    "{file} starts the system by rootflags=subvolid=, and the copy's subvolumes have other numbers: name it with subvol= there"
                ),
            ));
        }
        if let Some(path) = frozen_swap(&from, &found.volumes) {
            return Err(self.from.failed(
                STEP,
                format!(
                    "{path} is in use as swap, and a btrfs makes no snapshot of what holds that: sudo swapoff {path} while it is cloned"
                ),
            ));
        }
        let apart = fstab::apart(&of("fstab"), &found.volumes);
        found.left.extend(apart.iter().map(|line| {
            format!(
                "{} ({}) is not on the disk that is copied: its line in /etc/fstab becomes a comment",
                line.place, line.spec
            )
        }));
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
        let esp = match &self.wish.source {
            Some(_) => found.volumes.iter().find(|volume| volume.esp),
            None => None,
        };
        let loader = from.loader(esp.and_then(|volume| volume.part_uuid.as_deref()));
        if to.uefi && loader.is_none() {
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
            loader,
            grub,
            fstab: of("fstab")
                .strip_suffix('\n')
                .map(str::to_owned)
                .unwrap_or_default(),
            hosts: of("hosts"),
            hostname: of("hostname").trim().to_owned(),
            swap_files: swap_files(&from, &found.volumes, at),
            addresses: addresses(self.from, self.to),
            root: (at, subvolume),
            source: found,
        };
        for part in parts {
            let kind = part
                .volume
                .and_then(|at| plan.source.volumes.get(at))
                .map(|one| one.kind.as_str());
            let own = match kind {
                None => String::new(),
                Some("vfat") => fat_id()?,
                Some(_) => uuid()?,
            };
            plan.news.push(New {
                part,
                uuid: own,
                part_uuid: uuid()?,
            });
        }
        let snapshots: Vec<&str> = seen
            .iter()
            .filter(|(name, _)| name.starts_with("snapshots "))
            .flat_map(|(_, text)| text.lines())
            .chain(logical::held(&from.logical))
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
        target: &Block,
        system: &BTreeMap<String, String>,
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
        if !of("fixed").is_empty() {
            for (old, new) in &plan.addresses {
                text.push_str(&format!("where {old} is set there, {new} is on the copy\n"));
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
}

/// The addresses of the source, and the target's in their place.
fn addresses(from: &Site, to: &Site) -> Vec<(IpAddr, IpAddr)> {
    let (a, b) = (&from.host, &to.host);
    identity::addresses::pairs(
        &[(&a.address, &b.address), (&a.data, &b.data)],
        from.facts.interfaces.as_deref().unwrap_or_default(),
        to.facts.interfaces.as_deref().unwrap_or_default(),
    )
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

/// A file in use as swap on a btrfs that snapshots are made of.
fn frozen_swap<'a>(from: &'a Machine, volumes: &[Volume]) -> Option<&'a str> {
    let mut files = from.swap_files.iter().map(|(path, _)| path.as_str());
    files.find(|path| {
        let mounted = volumes.iter().flat_map(|volume| {
            let places = volume.mounted.iter();
            places.map(move |(at, _)| (at.trim_end_matches('/'), volume))
        });
        mounted
            .filter(|(at, _)| {
                let below = path.strip_prefix(at);
                below.is_some_and(|rest| rest.starts_with('/'))
            })
            .max_by_key(|(at, _)| at.len())
            .is_some_and(|(_, volume)| volume.kind == "btrfs")
    })
}

/// Goes on where an earlier run ended: the disk has the very partitions, and the source the snapshots.
fn resume(plan: &mut Plan, target: &Block, snapshots: &[&str]) {
    let key = target
        .children
        .first()
        .and_then(|one| one.probed.part_name.as_deref());
    let Some(key) = key.and_then(|name| name.strip_prefix(script::UNFINISHED)) else {
        return;
    };
    let begins = [script::SNAPSHOT, logical::SNAPSHOT].map(|kind| format!("{kind}{key}-"));
    let wanted: usize = plan
        .source
        .volumes
        .iter()
        .filter(|one| one.frozen())
        .map(|one| one.subvolumes().len())
        .sum();
    let there = snapshots
        .iter()
        .filter(|name| begins.iter().any(|begin| name.starts_with(begin)))
        .count();
    if wanted == 0 || there != wanted || target.children.len() != plan.news.len() {
        return;
    }
    let mut news = plan.news.clone();
    for (new, block) in news.iter_mut().zip(&target.children) {
        let probed = &block.probed;
        let name = format!("{}{key}", script::UNFINISHED);
        let volume = new.part.volume.and_then(|at| plan.source.volumes.get(at));
        let Some(part_uuid) = &probed.part_uuid else {
            return;
        };
        if block.size != new.part.size || probed.part_name.as_deref() != Some(&name) {
            return;
        }
        new.part_uuid.clone_from(part_uuid);
        if let Some(volume) = volume.filter(|one| one.frozen()) {
            match (&probed.uuid, probed.kind.as_deref()) {
                (Some(uuid), Some(kind)) if kind == volume.kind => new.uuid.clone_from(uuid),
                _ => return,
            }
        }
    }
    plan.news = news;
    key.clone_into(&mut plan.key);
    plan.resumed = true;
}

pub(super) fn hex(bytes: usize) -> Result<String, Failure> {
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
