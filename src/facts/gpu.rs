//! GPUs as the kernel's graphics devices show them (DRM, sysfs).

use serde::{Deserialize, Serialize};

use super::script::{Sections, parts, says, value};

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
    /// The driver.
    pub driver: Option<String>,
    /// Where it is on the bus, e.g. `0000:c6:00.0`.
    pub slot: Option<String>,
    /// Memory of its own, or set aside for it by the firmware, bytes.
    pub vram_total_bytes: Option<u64>,
    /// What is used of it, bytes.
    pub vram_used_bytes: Option<u64>,
    /// Main memory it may use, bytes.
    pub gtt_total_bytes: Option<u64>,
    /// What it uses of that, bytes.
    pub gtt_used_bytes: Option<u64>,
}

impl Gpu {
    /// Its maker.
    pub fn vendor(&self) -> Option<&'static str> {
        match self.vendor_id? {
            0x1002 => Some("AMD"),
            0x10de => Some("NVIDIA"),
            0x8086 => Some("Intel"),
            0x1a03 => Some("ASPEED"),
            0x1af4 => Some("virtio"),
            _ => None,
        }
    }
}

impl Gpu {
    /// For people, e.g. `AMD 1586 (amdgpu)`.
    pub fn name(&self) -> String {
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
                slot: value(text, "slot").map(str::to_owned),
                vram_total_bytes: bytes(text, "vram_total"),
                vram_used_bytes: bytes(text, "vram_used"),
                gtt_total_bytes: bytes(text, "gtt_total"),
                gtt_used_bytes: bytes(text, "gtt_used"),
            })
            .collect()
    })
}

fn bytes(text: &str, name: &str) -> Option<u64> {
    super::script::number(text, name)
}

fn hexadecimal(text: &str, name: &str) -> Option<u16> {
    u16::from_str_radix(value(text, name)?.strip_prefix("0x")?, 16).ok()
}
