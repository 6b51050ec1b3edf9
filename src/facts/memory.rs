//! Main memory, from /proc/meminfo.

use serde::{Deserialize, Serialize};

use super::script::Sections;

/// Main memory, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// What the system has. Firmware and GPUs may hold more of it back.
    pub total_bytes: Option<u64>,
    /// What nothing uses, not even as a cache.
    pub free_bytes: Option<u64>,
    /// What programs can still get without swapping: what to size with.
    pub available_bytes: Option<u64>,
    /// What running workers of windlass hold of it that is not files: what ends with them.
    pub own_bytes: Option<u64>,
    /// Swap space.
    pub swap_total_bytes: Option<u64>,
    /// What is free of it.
    pub swap_free_bytes: Option<u64>,
}

/// Reads the sections `memory` and `workers`.
pub fn parse(sections: &Sections<'_>) -> Memory {
    let text = sections.get("memory");
    let of = |name: &str| {
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        kibibytes(value)
    };
    let own = sections.find("workers").and_then(|text| {
        text.lines()
            .filter_map(|line| kibibytes(line.split_once(':')?.1))
            .try_fold(0_u64, u64::checked_add)
    });
    Memory {
        total_bytes: of("MemTotal"),
        free_bytes: of("MemFree"),
        available_bytes: of("MemAvailable"),
        own_bytes: own,
        swap_total_bytes: of("SwapTotal"),
        swap_free_bytes: of("SwapFree"),
    }
}

/// `123 kB`, in bytes. The unit is always kB and means 1024 bytes (proc(5)).
fn kibibytes(value: &str) -> Option<u64> {
    let number: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}
