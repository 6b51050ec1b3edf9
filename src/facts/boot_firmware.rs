//! What starts the host before its kernel: which kind of firmware, and whether it starts only what
//! is signed.

use serde::{Deserialize, Serialize};

use super::script::value;

/// The firmware as the host was started by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootFirmware {
    /// Which kind.
    pub kind: Option<FirmwareKind>,
    /// Whether Secure Boot is on: then the kernel takes only signed modules. Where it cannot be, it
    /// is off.
    pub secure_boot: Option<bool>,
}

/// Kinds of firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirmwareKind {
    /// UEFI.
    Uefi,
    /// The older one of PCs.
    Bios,
    /// A board described by a device tree alone.
    DeviceTree,
}

/// Reads the section `boot_firmware`.
pub fn parse(text: &str) -> BootFirmware {
    let kind = match value(text, "kind") {
        Some("uefi") => Some(FirmwareKind::Uefi),
        Some("bios") => Some(FirmwareKind::Bios),
        Some("device_tree") => Some(FirmwareKind::DeviceTree),
        _ => None,
    };
    let secure_boot = match kind {
        // Bytes in decimal: four of attributes, then 1 for on (UEFI 2.10, 3.3).
        Some(FirmwareKind::Uefi) => {
            value(text, "secure_boot").and_then(|bytes| match bytes.split_whitespace().nth(4)? {
                "1" => Some(true),
                "0" => Some(false),
                _ => None,
            })
        }
        Some(_) => Some(false),
        None => None,
    };
    BootFirmware { kind, secure_boot }
}
