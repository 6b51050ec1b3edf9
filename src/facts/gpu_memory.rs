//! How much of main memory GPUs may use: the live settings of the kernel's memory manager for GPUs,
//! and of macOS; and what programs can really get on a GPU. Must not know what was asked for at boot.

use serde::{Deserialize, Serialize};

use super::Gpu;
use super::script::{Sections, number, parts, says, value};

/// Live settings. What is not there, or not told, is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuMemory {
    /// The module that amdgpu takes its memory from, of those in `modules`: settings of another one
    /// do nothing.
    pub module: Option<String>,
    /// Modules that manage memory of GPUs and are loaded: `ttm` of the kernel, `amdttm` of AMD's
    /// package. Both may be there at once.
    pub modules: Option<Vec<Module>>,
    /// Size of a page here, bytes.
    pub page_bytes: Option<u64>,
    /// amdgpu's own setting of the same, MiB; -1 leaves it to the module.
    pub gttsize_mib: Option<i64>,
    /// macOS: memory that the GPU may hold, MiB, as it was set; 0 leaves it to the system.
    pub wired_limit_mib: Option<u64>,
}

/// A module that manages memory of GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Pages that GPUs may use of main memory. Its own choice is half of them.
    pub pages_limit: Option<u64>,
    /// Pages that it keeps for GPUs once they were used.
    pub page_pool_size: Option<u64>,
    /// Modules that use it.
    pub holders: Vec<String>,
}

impl GpuMemory {
    /// The module that counts.
    pub fn live(&self) -> Option<&Module> {
        let name = self.module.as_deref()?;
        self.modules.iter().flatten().find(|own| own.name == name)
    }

    /// Main memory that GPUs may use by the module that counts, bytes.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.live()?.pages_limit?.checked_mul(self.page_bytes?)
    }

    /// Memory that the module keeps for GPUs and the system does not get back by itself, bytes.
    pub fn pool_bytes(&self) -> Option<u64> {
        self.live()?.page_pool_size?.checked_mul(self.page_bytes?)
    }
}

/// Reads the section `gpu_memory`.
pub fn parse(sections: &Sections<'_>) -> GpuMemory {
    let text = sections.get("gpu_memory");
    let modules: Option<Vec<Module>> = says(text, "asked").then(|| {
        parts(text, "module")
            .into_iter()
            .map(|(name, text)| Module {
                name: name.to_owned(),
                pages_limit: number(text, "pages_limit"),
                page_pool_size: number(text, "page_pool_size"),
                holders: text
                    .lines()
                    .filter_map(|line| line.strip_prefix("holder "))
                    .map(|name| name.trim().to_owned())
                    .collect(),
            })
            .collect()
    });
    let live = modules.as_ref().and_then(|modules| {
        let all = modules
            .iter()
            .map(|own| (own.name.as_str(), own.holders.as_slice()));
        live_module(all).map(str::to_owned)
    });
    GpuMemory {
        module: live,
        modules,
        page_bytes: number(text, "page"),
        gttsize_mib: value(text, "gttsize").and_then(|value| value.parse().ok()),
        wired_limit_mib: None,
    }
}

/// Of loaded modules with those that use each: the one that amdgpu takes its memory from. `None` when
/// that cannot be told.
pub fn live_module<'a>(
    modules: impl Iterator<Item = (&'a str, &'a [String])> + Clone,
) -> Option<&'a str> {
    let mut managers = modules.filter(|(name, _)| ["ttm", "amdttm"].contains(name));
    let held = managers
        .clone()
        .find(|(_, holders)| holders.iter().any(|own| own == "amdgpu"));
    // One that is built into the kernel names nobody.
    match held {
        Some((name, _)) => Some(name),
        None => {
            let (name, _) = managers.next()?;
            managers.next().is_none().then_some(name)
        }
    }
}

/// Memory that programs can get on a GPU when nothing else uses it, bytes; `None` when that cannot be
/// told.
///
/// The pools are never added up. On an integrated GPU both are parts of the same memory: what the
/// firmware set aside (VRAM) is gone from main memory, the rest (GTT) is main memory itself, and a
/// runtime allocates from one of the two only, so the larger one is what there is. The kernel lets the
/// second be set higher than main memory, so main memory caps it, and so does the limit of the module
/// in force. One machine of 128 GiB showed 128.5 GiB as the sum, 120 GiB as free, and had 62.5 GiB to
/// give. A card of its own has its own memory; main memory behind a bus is no substitute for it.
pub fn usable_gpu_bytes(gpu: &Gpu, memory: &GpuMemory, ram_bytes: Option<u64>) -> Option<u64> {
    match (gpu.vendor(), gpu.integrated) {
        (Some("AMD"), Some(true)) => {
            let least = |one: Option<u64>, other: Option<u64>| match (one, other) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            // Without its size nothing is known of the pool, whatever the caps.
            let shared = gpu.gtt_total_bytes.and_then(|gtt| {
                let ram = ram_bytes?;
                least(Some(gtt.min(ram)), memory.limit_bytes())
            })?;
            Some(shared.max(gpu.vram_total_bytes?))
        }
        // The limit was set, or is the system's own, which it does not tell.
        (Some("Apple"), _) => {
            let limit = memory.wired_limit_mib.filter(|limit| *limit > 0)?;
            Some(limit.checked_mul(1 << 20)?.min(ram_bytes?))
        }
        // All of main memory is the GPU's too.
        (Some("NVIDIA"), Some(true)) => ram_bytes,
        (Some("AMD" | "NVIDIA"), Some(false)) => gpu.vram_total_bytes,
        _ => None,
    }
}
