//! Firmware that amdgpu has loaded into a GPU, as the kernel tells it: in `amdgpu_firmware_info` of
//! debugfs, and in the folder `fw_version` of sysfs.

use std::collections::BTreeMap;

/// Versions by the part that they run on, e.g. `mes`, `mes_kiq`, `sdma0`. 0 is none loaded, and is
/// left out.
pub fn parse(text: &str) -> BTreeMap<String, u32> {
    let lines = text.lines();
    let pairs = lines.filter_map(|line| {
        let line = line.trim();
        let (name, version) = match line.split_once(" feature version:") {
            Some((name, rest)) => (name, rest.split_once("firmware version:")?.1),
            None => line.split_once("_fw_version ")?,
        };
        let digits = version.split_whitespace().next()?.strip_prefix("0x")?;
        let version = u32::from_str_radix(digits, 16).ok()?;
        let name = name.trim().to_lowercase().replace(' ', "_");
        (version != 0 && !name.is_empty()).then_some((name, version))
    });
    pairs.collect()
}
