//! Libraries that engines compute with: ROCm, CUDA, Mesa, Vulkan.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::script::{Sections, says, value};
use super::tools::packages;

/// Libraries with their versions, as the host has them. What is not found is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Software {
    /// ROCm.
    pub rocm: Option<String>,
    /// CUDA's libraries for programs that are built here.
    pub cuda: Option<String>,
    /// Mesa.
    pub mesa: Option<String>,
    /// Vulkan's loader.
    pub vulkan: Option<String>,
    /// Vulkan's drivers, by the names of their files; `None` when the host does not say.
    pub vulkan_drivers: Option<Vec<String>>,
    /// Packages of these and of drivers; `None` when the host does not say.
    pub packages: Option<BTreeMap<String, String>>,
}

/// Reads the sections `software` and `named_packages`.
pub fn parse(sections: &Sections<'_>) -> Software {
    let text = sections.get("software");
    let packages = sections.find("named_packages").map(|text| {
        let mut found = packages::parse(text);
        found.retain(|name, _| !name.contains("firmware"));
        found
    });
    let first = |names: &[&str]| {
        let packages = packages.as_ref()?;
        names.iter().find_map(|name| packages.get(*name).cloned())
    };
    let by_start = |start: &str| {
        let mut packages = packages.iter().flatten();
        let (_, version) = packages.find(|(name, _)| name.starts_with(start))?;
        Some(version.clone())
    };
    let of = |name: &str| value(text, name).map(str::to_owned);
    // The loader's file is named after its version.
    let loader = value(text, "vulkan_loader")
        .and_then(|link| link.rsplit_once("libvulkan.so."))
        .map(|(_, version)| version.to_owned());
    Software {
        rocm: of("rocm")
            .or_else(|| first(&["rocm-core"]))
            .or_else(|| by_start("amdrocm-core"))
            .or_else(|| first(&["rocm-runtime", "hsa-rocr"])),
        cuda: cuda(text),
        mesa: first(&[
            "mesa-vulkan-drivers",
            "libvulkan_radeon",
            "vulkan-radeon",
            "mesa",
            "Mesa",
            "mesa-dri-drivers",
            "libgl1-mesa-dri",
        ]),
        vulkan: first(&["libvulkan1", "vulkan-loader", "vulkan-icd-loader"]).or(loader),
        vulkan_drivers: says(text, "asked").then(|| {
            let lines = text.lines();
            let files = lines.filter_map(|line| line.strip_prefix("vulkan_driver "));
            files
                .map(|file| file.trim().trim_end_matches(".json").to_owned())
                .collect()
        }),
        packages,
    }
}

/// The version in CUDA's `version.json`, whose lines are marked, or in its older `version.txt`.
fn cuda(text: &str) -> Option<String> {
    let json: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("cuda "))
        .collect();
    let version = serde_json::from_str::<serde_json::Value>(&json.join("\n"))
        .ok()
        .and_then(|value| {
            let version = value.get("cuda")?.get("version")?.as_str()?;
            Some(version.to_owned())
        });
    version.or_else(|| {
        let old = value(text, "cuda_text")?.strip_prefix("CUDA Version ")?;
        Some(old.trim().to_owned())
    })
}
