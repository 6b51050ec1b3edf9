//! GPUs as the kernel's graphics devices show them (DRM, sysfs), and what NVIDIA's tool adds.

use serde::{Deserialize, Serialize};

use super::script::{Sections, number, parts, says, value};
use super::tools::nvidia_smi;

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// The kernel's name for it, e.g. `card1`.
    pub card: String,
    /// Its maker's PCI number, e.g. 0x1002.
    pub vendor_id: Option<u16>,
    /// Its own.
    pub device_id: Option<u16>,
    /// What it is sold as, where a driver knows.
    pub product: Option<String>,
    /// The driver.
    pub driver: Option<String>,
    /// Where it is on the bus, e.g. `0000:c6:00.0`.
    pub slot: Option<String>,
    /// What programs are built for, e.g. `gfx1151`, or `12.1` of NVIDIA's.
    pub architecture: Option<String>,
    /// Whether it is part of a processor and uses main memory.
    pub integrated: Option<bool>,
    /// Cores, or what its maker calls so.
    pub cores: Option<u32>,
    /// Whether it is cut into parts (MIG): then its memory is not there for one program.
    pub split: Option<bool>,
    /// Memory of its own, or set aside for it by the firmware, bytes.
    pub vram_total_bytes: Option<u64>,
    /// What is used of it, bytes.
    pub vram_used_bytes: Option<u64>,
    /// Main memory it may use, bytes.
    pub gtt_total_bytes: Option<u64>,
    /// What it uses of that, bytes.
    pub gtt_used_bytes: Option<u64>,
    /// What programs can get on it when nothing else uses it, bytes; never the sum of the others.
    pub usable_bytes: Option<u64>,
}

impl Gpu {
    /// Its maker.
    pub fn vendor(&self) -> Option<&'static str> {
        match self.vendor_id? {
            0x1002 => Some("AMD"),
            0x106b => Some("Apple"),
            0x10de => Some("NVIDIA"),
            0x8086 => Some("Intel"),
            0x1a03 => Some("ASPEED"),
            0x1af4 => Some("virtio"),
            _ => None,
        }
    }
}

impl Gpu {
    /// For people, e.g. `AMD 1586 (amdgpu)`. The same on all hosts that have it, so not by what a
    /// tool says that may be missing.
    pub fn name(&self) -> String {
        if let (None, Some(product)) = (self.device_id, &self.product) {
            return product.clone();
        }
        let mut name = match (self.vendor(), self.vendor_id) {
            (Some(vendor), _) => vendor.to_owned(),
            (None, Some(id)) => format!("vendor {id:04x}"),
            (None, None) => self.card.clone(),
        };
        if let Some(id) = self.device_id {
            name.push_str(&format!(" {id:04x}"));
        }
        if let Some(driver) = &self.driver {
            name.push_str(&format!(" ({driver})"));
        }
        name
    }
}

/// Reads the section `gpus`; `None` when the host did not say.
pub fn parse(sections: &Sections<'_>) -> Option<Vec<Gpu>> {
    let text = sections.find("gpus")?;
    if says(text, "none") {
        return Some(Vec::new());
    }
    says(text, "drm").then(|| {
        parts(text, "card")
            .into_iter()
            .map(|(card, text)| Gpu {
                card: card.to_owned(),
                vendor_id: hexadecimal(text, "vendor"),
                device_id: hexadecimal(text, "device"),
                driver: value(text, "driver").map(str::to_owned),
                architecture: graphics_core(text).map(|(name, _)| name),
                integrated: integrated(text),
                slot: value(text, "slot").map(str::to_owned),
                vram_total_bytes: number(text, "vram_total"),
                vram_used_bytes: number(text, "vram_used"),
                gtt_total_bytes: number(text, "gtt_total"),
                gtt_used_bytes: number(text, "gtt_used"),
                ..Gpu::default()
            })
            .collect()
    })
}

/// What the script asks nvidia-smi for.
const FIELDS: [&str; 7] = [
    "index",
    "name",
    "pci.bus_id",
    "driver_version",
    "compute_cap",
    "memory.total",
    "mig.mode.current",
];

/// Fills in what the section `nvidia_smi` says of GPUs that are there.
pub fn fill_nvidia(gpus: &mut [Gpu], sections: &Sections<'_>) {
    let rows = nvidia_smi::query(sections.get("nvidia_smi"), &FIELDS).unwrap_or_default();
    for row in rows {
        let slot = row.get("pci.bus_id").and_then(|bus| nvidia_smi::slot(bus));
        let Some(gpu) = gpus
            .iter_mut()
            .find(|gpu| slot.is_some() && gpu.slot == slot)
        else {
            continue;
        };
        gpu.product = row.get("name").cloned();
        gpu.architecture = row.get("compute_cap").cloned();
        let memory = row.get("memory.total");
        gpu.vram_total_bytes = memory.and_then(|mib| mib.parse::<u64>().ok()?.checked_mul(1 << 20));
        // One that has no memory to tell of uses that of the processor. What is no number is a fault.
        gpu.integrated = match (memory, gpu.vram_total_bytes) {
            (None, _) => Some(true),
            (Some(_), Some(_)) => Some(false),
            (Some(_), None) => None,
        };
        gpu.split = row
            .get("mig.mode.current")
            .map(|mode| mode == "Enabled")
            .or(Some(false));
    }
}

/// What programs are built for, by the version of the graphics core, with its three numbers.
fn graphics_core(text: &str) -> Option<(String, [u32; 3])> {
    let [major, minor, revision] =
        ["gc_major", "gc_minor", "gc_revision"].map(|name| number::<u32>(text, name));
    let (major, minor, revision) = (major?, minor?, revision?);
    let name = format!("gfx{major}{minor:x}{revision:x}");
    Some((name, [major, minor, revision]))
}

/// Whether a GPU of AMD's is part of a processor: by its graphics core, as the kernel's driver tells
/// them apart, else by its number.
fn integrated(text: &str) -> Option<bool> {
    if hexadecimal(text, "vendor") != Some(0x1002) {
        return None;
    }
    if let Some((_, core)) = graphics_core(text) {
        return Some(matches!(
            core,
            [9, 1, 0]
                | [9, 2, 2]
                | [9, 3, 0]
                | [10, 1, 3 | 4]
                | [10, 3, 1 | 3 | 6 | 7]
                | [11, 0, 1 | 4]
                | [11, 5, _]
        ));
    }
    // Strix Halo, Strix Point, Krackan Point, Phoenix and Hawk Point, Rembrandt.
    let known = [
        0x1586, 0x150e, 0x1114, 0x15bf, 0x15c8, 0x1900, 0x1901, 0x1681,
    ];
    let number = hexadecimal(text, "device")?;
    known.contains(&number).then_some(true)
}

fn hexadecimal(text: &str, name: &str) -> Option<u16> {
    u16::from_str_radix(value(text, name)?.strip_prefix("0x")?, 16).ok()
}
