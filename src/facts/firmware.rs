//! Firmware of GPUs: which package is installed, and which version is loaded. What is loaded counts:
//! it may come from an older copy in the initramfs, whatever the package says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Gpu;
use super::script::{Sections, parts};
use super::tools::{amdgpu_firmware, packages};

/// Firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Firmware {
    /// Packages with firmware, with their versions; `None` when the host does not say.
    pub packages: Option<BTreeMap<String, String>>,
    /// What is loaded; `None` when the login may not see it, or there is no such GPU.
    pub loaded: Option<Vec<Loaded>>,
}

/// What is loaded into a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Loaded {
    /// Where the GPU is on the bus.
    pub slot: Option<String>,
    /// Versions by the part that they run on, e.g. `mes`, `sdma0`; people write them in hexadecimal.
    pub versions: BTreeMap<String, u32>,
}

/// Reads the sections `firmware` and `named_packages`.
pub fn parse(sections: &Sections<'_>, gpus: Option<&[Gpu]>) -> Firmware {
    let mut loaded: Vec<Loaded> = Vec::new();
    for (label, text) in parts(sections.get("firmware"), "loaded") {
        // `card1` of sysfs, `amdgpu dev=0000:c6:00.0 unique=…` of debugfs.
        let named = label
            .split_whitespace()
            .find_map(|word| word.strip_prefix("dev="));
        let slot = named.map(str::to_owned).or_else(|| {
            let mut gpus = gpus.unwrap_or_default().iter();
            gpus.find(|gpu| gpu.card == label)?.slot.clone()
        });
        let versions = amdgpu_firmware::parse(text);
        if versions.is_empty() {
            continue;
        }
        match loaded.iter_mut().find(|own| own.slot == slot) {
            Some(own) => own.versions.extend(versions),
            None => loaded.push(Loaded { slot, versions }),
        }
    }
    let packages = sections.find("named_packages").map(|text| {
        packages::parse(text)
            .into_iter()
            .filter(|(name, _)| name.contains("firmware"))
            .collect()
    });
    Firmware {
        packages,
        loaded: (!loaded.is_empty()).then_some(loaded),
    }
}
