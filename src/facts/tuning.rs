//! Settings of the host that speed or memory depend on: large pages, swap, the processor's governor,
//! limits of the login; and whether the kernel is one that its makers would still answer for.

use serde::{Deserialize, Serialize};

use super::script::{Sections, number, value};

/// The settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tuning {
    /// How the processor's clocks are governed; more than one where cores differ.
    pub governors: Vec<String>,
    /// The firmware's profile: `performance`, `balanced`, ….
    pub platform_profile: Option<String>,
    /// Large pages set aside.
    pub hugepages: HugePages,
    /// Large pages as they come: `always`, `madvise` or `never`.
    pub transparent_hugepages: Option<String>,
    /// Where memory is swapped to; `None` when the host does not say.
    pub swaps: Option<Vec<Swap>>,
    /// What the compressed disks in memory (zram) may hold, bytes; 0 where there is none.
    pub zram_bytes: Option<u64>,
    /// Whether pages are compressed before they are swapped (zswap).
    pub zswap: Option<bool>,
    /// How readily the kernel swaps, 0 to 200.
    pub swappiness: Option<u32>,
    /// The kernel's marks of what taints it, as letters; empty for none.
    pub taint: Option<String>,
    /// Version of control groups, 1 or 2.
    pub cgroup: Option<u8>,
    /// What the login may lock in memory.
    pub memlock: Option<Limit>,
    /// How many files it may hold open.
    pub open_files: Option<Limit>,
}

/// Large pages set aside at boot or since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HugePages {
    /// How many.
    pub total: Option<u64>,
    /// How many are free.
    pub free: Option<u64>,
    /// The size of one, bytes.
    pub size_bytes: Option<u64>,
}

/// A place to swap to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Swap {
    /// A device or a file.
    pub name: String,
    /// Whether it is in memory itself (zram).
    pub zram: bool,
    /// Its size, bytes.
    pub size_bytes: Option<u64>,
    /// What is used of it, bytes.
    pub used_bytes: Option<u64>,
    /// Which comes first: the higher.
    pub priority: Option<i32>,
}

/// A limit; `None` inside is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The one in force.
    pub soft: Option<u64>,
    /// Up to where the login may raise it.
    pub hard: Option<u64>,
}

/// A letter for each bit of /proc/sys/kernel/tainted (tainted-kernels.rst).
const TAINTS: &str = "PFSRMBUDAWCIOELKXTNJ";

/// Reads the sections `tuning` and `memory`.
pub fn parse(sections: &Sections<'_>) -> Tuning {
    let text = sections.get("tuning");
    let memory = sections.get("memory");
    let of = |name: &str| {
        let value = memory
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value
            .trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()
    };
    Tuning {
        governors: value(text, "governors")
            .map(|list| list.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
        platform_profile: value(text, "profile").map(str::to_owned),
        hugepages: HugePages {
            total: of("HugePages_Total"),
            free: of("HugePages_Free"),
            size_bytes: of("Hugepagesize").and_then(|kib| kib.checked_mul(1024)),
        },
        // The one in brackets is in force.
        transparent_hugepages: value(text, "transparent_hugepages").and_then(|list| {
            let (_, rest) = list.split_once('[')?;
            Some(rest.split_once(']')?.0.to_owned())
        }),
        swaps: swaps(text),
        zram_bytes: zram(text),
        zswap: match value(text, "zswap") {
            Some("Y" | "1") => Some(true),
            Some("N" | "0") => Some(false),
            _ => None,
        },
        swappiness: number(text, "swappiness"),
        taint: number::<u64>(text, "tainted").map(|bits| {
            (0_u32..)
                .zip(TAINTS.chars())
                .filter(|(bit, _)| bits & (1 << bit) != 0)
                .map(|(_, letter)| letter)
                .collect()
        }),
        cgroup: number(text, "cgroup"),
        memlock: limit(text, "Max locked memory"),
        open_files: limit(text, "Max open files"),
    }
}

/// Lines of /proc/swaps; its heading alone is an answer too.
fn swaps(text: &str) -> Option<Vec<Swap>> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("swap "));
    lines
        .next()
        .filter(|heading| heading.contains("Filename"))?;
    Some(
        lines
            .filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let kib = |at: usize| words.get(at)?.parse::<u64>().ok()?.checked_mul(1024);
                let name = (*words.first()?).to_owned();
                Some(Swap {
                    zram: name.starts_with("/dev/zram"),
                    size_bytes: kib(2),
                    used_bytes: kib(3),
                    priority: words.get(4).and_then(|word| word.parse().ok()),
                    name,
                })
            })
            .collect(),
    )
}

/// Sizes of all disks together; where the section is there, none of them is zero.
fn zram(text: &str) -> Option<u64> {
    if text.trim().is_empty() {
        return None;
    }
    text.lines()
        .filter_map(|line| line.strip_prefix("zram ")?.trim().parse::<u64>().ok())
        .try_fold(0_u64, u64::checked_add)
}

/// `Max locked memory         8388608              unlimited            bytes`.
fn limit(text: &str, name: &str) -> Option<Limit> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace();
    let mut next = || match words.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some(Limit {
        soft: next()?,
        hard: next()?,
    })
}
