//! `windlass facts`: from the hosts' facts to a table for each host, and the summary. Decides
//! nothing about what is fit for what.

mod gpu;
mod system;

use super::arguments::{Common, FactsArguments};
use super::work::{Outcome, Work, perform_on};
use crate::deploy::remote::{hosts, read};
use crate::event::{Exit, Failure};
use crate::facts::{Facts, FileSystem, Room};
use crate::figures::memory;
use crate::report::plain::harmless;

/// Runs the command.
pub fn facts(common: &Common, arguments: &FactsArguments) -> Exit {
    let host = arguments.host.clone();
    let selector = host.clone();
    perform_on(
        common,
        "facts",
        selector.as_deref(),
        move |work| async move {
            match read(&work, host.as_deref()).await {
                Ok(outcome) => outcome,
                Err(failure) => failure.into(),
            }
        },
    )
}

async fn read(work: &Work, selector: Option<&str>) -> Result<Outcome, Failure> {
    let inventory = hosts::inventory(work)?;
    let selected = hosts::select(work, &inventory, selector)?;
    let found = hosts::each(work, &inventory, &selected, async |host, session| {
        read::facts(work, host, &session).await
    })
    .await?;

    let mut outcome = Outcome::default();
    outcome.packed.field("facts");
    let mut failures = Vec::new();
    for (host, facts) in found {
        match facts {
            Ok(facts) => {
                if !outcome.text.is_empty() {
                    outcome.text.push('\n');
                }
                outcome.text.push_str(&text(&host.name, &facts));
                outcome
                    .packed
                    .push(&host.name, &facts)
                    .map_err(|error| Failure::internal(format!("facts as JSON: {error}")))?;
            }
            Err(failure) => failures.push(failure),
        }
    }
    // The gravest counts for the run.
    failures.sort_by_key(|failure| failure.kind.exit());
    outcome.failure = failures.into_iter().next();
    Ok(outcome)
}

/// A host's facts as lines under its name; what is unknown says so.
fn text(host: &str, facts: &Facts) -> String {
    let mut rows: Vec<(&str, String)> = vec![
        ("system", system(facts)),
        (
            "machine",
            joined([&facts.machine.vendor, &facts.machine.product]),
        ),
        ("processor", processor(facts)),
        ("memory", memory_text(facts)),
    ];
    rows.extend(
        facts
            .rooms
            .iter()
            .filter(|room| wanted(facts, room))
            .map(|room| ("disk", disk(room))),
    );
    rows.extend(gpu::rows(facts));
    match &facts.interfaces {
        None => rows.push(("network", unknown())),
        Some(interfaces) => rows.extend(
            interfaces
                .iter()
                .filter(|interface| interface.name != "lo" && interface.name != "lo0")
                .filter(|interface| interface.device || !interface.addresses.is_empty())
                .map(|interface| ("network", system::interface(interface))),
        ),
    }
    rows.push(("listening", listening(facts)));
    rows.push(("services", services(facts)));
    rows.push(("login", login(facts)));
    rows.push((
        "clock",
        facts.clock.skew.map_or_else(unknown, |skew| skew.text()),
    ));
    rows.extend(system::rows(facts));
    rows.push((
        "parameters",
        facts.kernel.command_line.clone().unwrap_or_else(unknown),
    ));

    let mut out = format!("{host}\n");
    let mut last = "";
    for (name, value) in rows {
        let label = if name == last { "" } else { name };
        last = name;
        out.push_str(&format!("  {label:<10}  {}\n", harmless(&value)));
    }
    out
}

fn unknown() -> String {
    "unknown".into()
}

fn joined<'a>(parts: impl IntoIterator<Item = &'a Option<String>>) -> String {
    let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
    match parts.is_empty() {
        true => unknown(),
        false => parts.join(" "),
    }
}

fn system(facts: &Facts) -> String {
    let name = facts.os.name.as_ref().or(facts.system.as_ref());
    let mut parts: Vec<String> = vec![name.cloned().unwrap_or_else(unknown)];
    parts.extend(
        facts
            .os
            .build
            .as_ref()
            .map(|build| format!("build {build}")),
    );
    parts.extend(
        facts
            .kernel
            .release
            .as_ref()
            .map(|release| format!("kernel {release}")),
    );
    parts.push(
        facts
            .arch
            .clone()
            .unwrap_or_else(|| "architecture unknown".into()),
    );
    parts.push(match &facts.libc {
        Some(libc) => joined([&Some(libc.name.clone()), &libc.version]),
        None => "C library unknown".into(),
    });
    parts.join(", ")
}

fn processor(facts: &Facts) -> String {
    let cpu = &facts.cpu;
    let mut parts = vec![cpu.model.clone().unwrap_or_else(unknown)];
    parts.extend(cpu.cores.map(|count| format!("{count} cores")));
    parts.extend(cpu.threads.map(|count| format!("{count} threads")));
    let mut text = parts.join(", ");
    if let Some(flags) = cpu.flags.as_ref().filter(|flags| !flags.is_empty()) {
        text.push_str(&format!(" ({})", flags.join(" ")));
    }
    text
}

fn memory_text(facts: &Facts) -> String {
    let size = |bytes: Option<u64>| bytes.map_or_else(unknown, memory);
    let mut text = format!(
        "{} available of {}",
        size(facts.memory.available_bytes),
        size(facts.memory.total_bytes)
    );
    if let Some(own) = facts.memory.own_bytes.filter(|own| *own > 0) {
        text.push_str(&format!(", {} held by workers", memory(own)));
    }
    text
}

/// Of several folders on one file system, the first is enough.
fn wanted(facts: &Facts, room: &FileSystem) -> bool {
    let first = facts.rooms.iter().find(|other| other.mount == room.mount);
    room.mount.is_none() || first.is_some_and(|first| first.room == room.room)
}

fn disk(room: &FileSystem) -> String {
    let size = |bytes: Option<u64>| bytes.map_or_else(unknown, memory);
    let mut text = format!(
        "{} free of {} on {}",
        size(room.free_bytes),
        size(room.total_bytes),
        room.mount.as_deref().unwrap_or(&room.folder)
    );
    let mut notes: Vec<String> = room.kind.iter().cloned().collect();
    if room.read_only == Some(true) {
        notes.push("read only".into());
    }
    if room.no_exec == Some(true) && room.room != Room::Tmp {
        notes.push("programs may not run from it".into());
    }
    if !notes.is_empty() {
        text.push_str(&format!(" ({})", notes.join(", ")));
    }
    text
}

fn listening(facts: &Facts) -> String {
    let Some(listening) = &facts.listening else {
        return unknown();
    };
    let mut ports: Vec<u16> = listening.iter().map(|one| one.port).collect();
    ports.sort_unstable();
    ports.dedup();
    if ports.is_empty() {
        return "none".into();
    }
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    ports.join(" ")
}

fn services(facts: &Facts) -> String {
    let init = &facts.init;
    let Some(systemd) = init.systemd else {
        return unknown();
    };
    if !systemd {
        let process = init.process.as_deref().unwrap_or("an unknown process");
        return format!("no systemd; started by {process}");
    }
    let mut text = "systemd".to_owned();
    if let Some(version) = init.systemd_version {
        text.push_str(&format!(" {version}"));
    }
    let says = |yes: Option<bool>, what: &str, not: &str| match yes {
        Some(true) => format!(", {what}"),
        Some(false) => format!(", {not}"),
        None => String::new(),
    };
    text.push_str(&says(
        init.user_manager,
        "user services run",
        "no user services",
    ));
    text.push_str(&says(
        init.linger,
        "also without a login",
        "not without a login",
    ));
    text
}

fn login(facts: &Facts) -> String {
    let login = &facts.login;
    let user = login.user.clone().unwrap_or_else(unknown);
    let sudo = match (login.is_root(), login.sudo) {
        (true, _) => "",
        (false, Some(true)) => ", sudo is there",
        (false, Some(false)) => ", no sudo",
        (false, None) => ", sudo unknown",
    };
    let shell = login.shell.as_ref().map(|shell| format!(", {shell}"));
    format!("{user}{}{sudo}", shell.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let sections = crate::facts::script::Sections::parse(text, "#facts-fixture").unwrap();
        super::text("h", &Facts::parse(&sections))
    }

    #[test]
    fn a_host_is_shown_with_its_figures() {
        let text = shown(include_str!(
            "../../tests/fixtures/facts/strix-halo-fedora.txt"
        ));
        for line in [
            "h\n",
            "  system      Fedora Linux 43 (Server Edition), kernel 6.17.4-200.fc43.x86_64, x86_64, glibc 2.42\n",
            "  memory      112.0 GiB available of 118.0 GiB, 99.6 MiB held by workers\n",
            "  disk        538.3 GiB free of 931.5 GiB on / (xfs)\n",
            "              732.4 MiB free of 976.6 MiB on /mnt/big disk (cifs, read only)\n",
            "  GPU         AMD 1586 (amdgpu), 512.0 MiB of its own, may use 112.0 GiB of main memory, 112.0 GiB for programs\n",
            "  network     enp191s0, Ethernet, up, 2500 Mb/s, MTU 1500, 192.168.1.11/24, fe80::11:22ff:fe33:4401/64\n",
            "  listening   22 8080 47616\n",
            "  services    systemd 258, user services run, also without a login\n",
            "  login       ai, /usr/bin/fish, sudo is there\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn what_is_unknown_says_so_and_no_control_reaches_the_terminal() {
        let text = shown(include_str!("../../tests/fixtures/facts/bare.txt"));
        for line in [
            "processor   unknown\n",
            "GPU         unknown\n",
            "clock       unknown\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let facts = Facts {
            system: Some("\u{1b}[2Jlinux".into()),
            ..Facts::default()
        };
        assert!(!super::text("h", &facts).contains('\u{1b}'));
    }
}
