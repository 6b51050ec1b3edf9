//! The processor, from /proc/cpuinfo.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::script::{Sections, some};

/// The processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Its name. Processors of ARM have none; then it is made of the kinds of their cores.
    pub model: Option<String>,
    /// Cores; no more than this login may use.
    pub cores: Option<u32>,
    /// The fast ones of them, where a system tells them apart.
    pub performance_cores: Option<u32>,
    /// The frugal ones.
    pub efficiency_cores: Option<u32>,
    /// What can run at once: more than cores where each runs two.
    pub threads: Option<u32>,
    /// What this login may use of them.
    pub usable_threads: Option<u32>,
    /// Instruction sets that matter for inference, of those in [`FLAGS`]; `None` when the host does
    /// not say.
    pub flags: Option<Vec<String>>,
}

/// The instruction sets that are told of, as the kernel names them.
pub const FLAGS: &[&str] = &[
    "sse4_2",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "amx_int8",
    "amx_bf16",
    "neon",
    "asimd",
    "fphp",
    "asimdhp",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
    "sve2",
    "sme",
    "v",
];

/// Reads the sections `cpuinfo`, `cores`, `processors`.
pub fn parse(sections: &Sections<'_>) -> Cpu {
    let text = sections.get("cpuinfo");
    let cores = sections.get("cores");
    let threads = keys(cores, "processor").count();
    let usable: Option<u32> = sections.get("processors").trim().parse().ok();
    let flags = ["flags", "Features", "isa"]
        .iter()
        .find_map(|name| keys(text, name).next())
        .map(known);
    Cpu {
        model: ["model name", "cpu model", "Model Name"]
            .iter()
            .find_map(|name| keys(text, name).find_map(some))
            .filter(|name| !name.starts_with("ARMv"))
            .or_else(|| arm(cores))
            .or_else(|| keys(text, "Hardware").find_map(some)),
        cores: physical(cores)
            .or(u32::try_from(threads).ok())
            .filter(|n| *n > 0)
            .map(|cores| usable.map_or(cores, |usable| cores.min(usable)))
            .or(usable),
        threads: u32::try_from(threads).ok().filter(|n| *n > 0),
        usable_threads: usable,
        flags,
        ..Cpu::default()
    }
}

/// The values of lines `name : value`.
fn keys<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

/// Those of the flags that are told of, in the order of [`FLAGS`].
fn known(text: &str) -> Vec<String> {
    let have: BTreeSet<&str> = text.split_whitespace().collect();
    FLAGS
        .iter()
        .filter(|flag| have.contains(**flag))
        .map(|flag| (*flag).to_owned())
        .collect()
}

/// Cores by socket and number; `None` where the kernel does not say.
fn physical(text: &str) -> Option<u32> {
    let mut cores = BTreeSet::new();
    let mut socket = "";
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        match key.trim() {
            "physical id" => socket = value.trim(),
            "core id" => {
                cores.insert((socket, value.trim()));
            }
            _ => {}
        }
    }
    u32::try_from(cores.len()).ok().filter(|count| *count > 0)
}

/// The cores of an ARM processor by kind, e.g. `10x Cortex-X925, 10x Cortex-A725`.
fn arm(text: &str) -> Option<String> {
    let mut kinds: Vec<(String, u32)> = Vec::new();
    let mut maker = "";
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        match key.trim() {
            "CPU implementer" => maker = value.trim(),
            "CPU part" => {
                let name = core(maker, value.trim());
                match kinds.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, count)) => *count += 1,
                    None => kinds.push((name, 1)),
                }
            }
            _ => {}
        }
    }
    let texts: Vec<String> = kinds
        .iter()
        .map(|(name, count)| format!("{count}x {name}"))
        .collect();
    some(&texts.join(", "))
}

/// A core's name by its maker and part, as the makers' manuals number them.
fn core(maker: &str, part: &str) -> String {
    let name = match (maker, part) {
        ("0x41", "0xd03") => "Cortex-A53",
        ("0x41", "0xd05") => "Cortex-A55",
        ("0x41", "0xd07") => "Cortex-A57",
        ("0x41", "0xd08") => "Cortex-A72",
        ("0x41", "0xd0b") => "Cortex-A76",
        ("0x41", "0xd0c") => "Neoverse-N1",
        ("0x41", "0xd40") => "Neoverse-V1",
        ("0x41", "0xd42") => "Cortex-A78AE",
        ("0x41", "0xd49") => "Neoverse-N2",
        ("0x41", "0xd4f") => "Neoverse-V2",
        ("0x41", "0xd85") => "Cortex-X925",
        ("0x41", "0xd87") => "Cortex-A725",
        ("0x41", "0xc07") => "Cortex-A7",
        ("0x61", _) => "Apple",
        _ => return format!("core {maker}:{part}"),
    };
    name.to_owned()
}
