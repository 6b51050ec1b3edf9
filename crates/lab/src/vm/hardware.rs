//! What a machine has that not all have: its firmware, a second disk. It is what lies in the machine's
//! folder, so a machine that is found again has it still. Must not know what machines are for.

use std::fs::{self, File};
use std::path::Path;

use crate::command::{Context, Result};

/// What Debian's package `ovmf` has: the firmware, and its variables as they are at first.
const CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
const VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";
/// A machine's own variables.
const OWN: &str = "variables.fd";
/// The second disk, raw.
const SECOND: &str = "second.raw";

/// What a machine starts by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Firmware {
    /// SeaBIOS.
    #[default]
    Bios,
    /// OVMF, without Secure Boot.
    Uefi,
}

/// What a machine has that not all have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// What it starts by.
    pub firmware: Firmware,
    /// Size of a second, empty disk, bytes; the machine sees it as `/dev/vdb`.
    pub blank: Option<u64>,
}

impl Hardware {
    /// Puts it into a machine's folder.
    pub(super) fn write(self, folder: &Path) -> Result<()> {
        if self.firmware == Firmware::Uefi {
            let own = folder.join(OWN);
            fs::copy(VARIABLES, &own).during(VARIABLES)?;
        }
        if let Some(bytes) = self.blank {
            let second = folder.join(SECOND);
            File::create(&second)
                .and_then(|file| file.set_len(bytes))
                .during(second.display())?;
        }
        Ok(())
    }
}

/// QEMU's arguments for the hardware in a machine's folder, in which QEMU is started; `first` is the file
/// of the disk that it starts from, when it has one still.
pub(super) fn arguments(folder: &Path, first: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    if folder.join(first).exists() {
        arguments.extend(
            [
                "-drive",
                &format!("if=none,id=disk,file={first},format=qcow2,cache=unsafe,discard=unmap"),
                "-device",
                "virtio-blk-pci,drive=disk,bootindex=1",
            ]
            .map(str::to_owned),
        );
    }
    if folder.join(OWN).exists() {
        for (unit, rest) in [format!("readonly=on,file={CODE}"), format!("file={OWN}")]
            .iter()
            .enumerate()
        {
            arguments.push("-drive".to_owned());
            arguments.push(format!("if=pflash,unit={unit},format=raw,{rest}"));
        }
    }
    if folder.join(SECOND).exists() {
        arguments.extend(
            [
                "-drive",
                &format!("if=none,id=second,file={SECOND},format=raw,cache=unsafe,discard=unmap"),
                "-device",
                "virtio-blk-pci,drive=second,bootindex=2",
            ]
            .map(str::to_owned),
        );
    }
    arguments
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_no_more_than_lies_in_its_folder() {
        let folder = std::env::temp_dir().join(format!("windlass-hardware-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Hardware::default().write(&folder).unwrap();
        assert_eq!(arguments(&folder, "first"), Vec::<String>::new());
        let more = Hardware {
            blank: Some(5 << 30),
            ..Hardware::default()
        };
        more.write(&folder).unwrap();
        assert_eq!(fs::metadata(folder.join(SECOND)).unwrap().len(), 5 << 30);
        assert_eq!(
            arguments(&folder, "first").last().unwrap(),
            "virtio-blk-pci,drive=second,bootindex=2"
        );
        fs::write(folder.join("first"), "").unwrap();
        assert_eq!(arguments(&folder, "first").len(), 8);
        fs::remove_dir_all(&folder).unwrap();
    }
}
