//! What the readers of kernel parameters make of recorded files: the folders `boot-entries`,
//! `default-grub`, `modprobe` and `proc-cmdline`.

use std::collections::BTreeMap;

use super::SEEN;
use windlass::provision::boot::grub::{DEFAULT, File, LINUX};
use windlass::provision::boot::{cmdline, entry, grub, kernel_install, modprobe, names, tools};

/// Parameters whose absence is a finding.
const MEMORY: [&str; 2] = ["ttm.pages_limit", "amdgpu.gttsize"];

/// Findings by the names that the index gives them; `None` when the file is not ours.
pub fn values(folder: &str, file: &str, text: &str) -> Option<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    match folder {
        "boot-entries" if file.starts_with("kernel-cmdline") => install(file, text, &mut found),
        "boot-entries" => loader_entry(text, &mut found),
        "default-grub" => default_grub(text, &mut found),
        "modprobe" => options(text, &mut found),
        "proc-cmdline" => running(text, &mut found),
        _ => return None,
    }
    Some(found)
}

type Found = BTreeMap<String, String>;

fn put(found: &mut Found, name: &str, value: impl Into<String>) {
    found.insert(name.to_owned(), value.into());
}

/// The words of a command line, the last of each name.
fn words(line: &str, found: &mut Found) {
    for word in cmdline::words(line) {
        put(found, &word.name, word.value.unwrap_or_default());
    }
}

fn install(file: &str, text: &str, found: &mut Found) {
    match kernel_install::read(text) {
        Ok(line) => {
            words(&line, found);
            put(found, "one", "line");
        }
        Err(refusal) => {
            assert!(refusal.reason.contains("loader entry"), "{file}: {refusal}");
            assert!(entry::read(text).unwrap_err().reason.contains("`options`"));
            words(text, found);
            put(found, "trap", SEEN);
        }
    }
}

fn loader_entry(text: &str, found: &mut Found) {
    let entry = entry::read(text).unwrap();
    put(found, "version", entry.version.unwrap_or_default());
    let console = |word: &&cmdline::Word| word.name == "console";
    if cmdline::words(&entry.options)
        .iter()
        .filter(console)
        .count()
        > 1
    {
        put(found, "console", SEEN);
    }
    put(found, "options", entry.options);
    if !text.ends_with('\n') {
        put(found, "no", "newline at the end");
    }
}

fn default_grub(text: &str, found: &mut Found) {
    let values = grub::read(&[File::new("/etc/default/grub", text)]).unwrap();
    for name in [LINUX, DEFAULT] {
        let value = values.variables.get(name).map(String::as_str);
        put(
            found,
            name,
            match value {
                None => "absent",
                Some("") => "empty",
                Some(value) => value,
            },
        );
        let count = values.assignments.get(name).copied().unwrap_or(0);
        put(found, &format!("assignments of {name}"), count.to_string());
    }
    if let Some(entries) = values.entries() {
        put(found, "GRUB_ENABLE_BLSCFG", entries.to_string());
    }
    let line = values.command_line();
    put(found, "effective", line.clone());
    let of = |name: &str| values.variables.get(name).cloned().unwrap_or_default();
    if line == format!("{} {}", of(LINUX), of(DEFAULT)) {
        put(found, "boot order", "LINUX then DEFAULT");
    }
    let repeated = |name: &str| {
        let words = cmdline::words(&line);
        words.iter().filter(|word| word.name == name).count() > 1
    };
    if repeated("rd.lvm.lv") {
        put(found, "rd.lvm.lv", SEEN);
    }
    if repeated("rd.luks.uuid") {
        put(found, "the", SEEN);
    }
    if of("GRUB_CMDLINE_XEN_DEFAULT").matches("dom0_mem=").count() == 2 {
        put(found, "GRUB_CMDLINE_XEN_DEFAULT", SEEN);
    }
    if values.variables.contains_key("GRUB_DISTRIBUTOR") && text.contains("$(sed") {
        put(found, "GRUB_DISTRIBUTOR", SEEN);
    }
    if text.contains("`videoinfo'") {
        put(found, "a", SEEN);
    }
}

fn options(text: &str, found: &mut Found) {
    let mut all: Vec<(String, String, usize)> = modprobe::read(text)
        .into_iter()
        .map(|option| (option.full(), option.value, option.line))
        .collect();
    // A note may have the command line as its first line, or be a NixOS configuration.
    let line = text.lines().next().unwrap_or_default();
    let line = if line.starts_with(['#', 'o', ' ']) {
        ""
    } else {
        line
    };
    let nixos = tools::nixos_parameters(text).join(" ");
    for word in cmdline::words(&nixos) {
        all.push((word.name, word.value.unwrap_or_default(), 0));
    }
    for name in MEMORY {
        put(found, name, "absent");
    }
    for (name, value, _) in &all {
        let value = match name.as_str() {
            _ if names::meant(name).is_some() => "unknown name".to_owned(),
            "amdgpu.gttsize" => format!("{value} MiB"),
            _ => value.clone(),
        };
        put(found, name, value);
    }
    if let (Some(own), Some((_, file, _))) = (
        cmdline::value(line, "amdgpu.gttsize"),
        all.iter().find(|(name, ..)| name == "amdgpu.gttsize"),
    ) {
        put(
            found,
            "cmdline gttsize",
            format!("{own}, modprobe gttsize={file}"),
        );
    }
    if let Some(limit) = cmdline::value(line, "ttm.pages_limit")
        && all
            .iter()
            .any(|(name, value, _)| name == "ttm.pages_limit" && *value == limit)
    {
        put(found, "pages_limit", format!("{limit} in both"));
    }
    let ttm: Vec<usize> = all
        .iter()
        .filter(|(name, ..)| name.starts_with("ttm."))
        .map(|(_, _, line)| *line)
        .collect();
    match ttm.as_slice() {
        [a, b] if a == b => put(found, "both", SEEN),
        [_, _] => put(found, "two", SEEN),
        _ => {}
    }
}

fn running(text: &str, found: &mut Found) {
    for name in MEMORY {
        put(found, name, "absent");
    }
    words(text, found);
    let release = cmdline::image(text).and_then(|(_, release)| release);
    put(
        found,
        "kernel",
        release.unwrap_or_else(|| "unknown".to_owned()),
    );
    let flags = ["ro", "quiet", "splash"];
    let has = |flag: &&str| cmdline::value(text, flag).is_some();
    let flags: Vec<&str> = flags.into_iter().filter(|flag| has(flag)).collect();
    put(found, "flags", flags.join(","));
}
