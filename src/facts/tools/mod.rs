//! What tools print, read on its own: text in, figures out. Must not know how or why it was asked
//! for, nor anything of a host.
//!
//! - [`ip`]: addresses, in the four forms that ip(8) has for them.
//! - [`ethtool`]: a card's link and driver.
//! - [`lscpu`], [`free`]: processor and memory, where only these were asked.
//! - [`iperf3`]: what a link carried.
//! - [`amd_smi`], [`rocm_smi`], [`rocminfo`], [`nvidia_smi`], [`vulkaninfo`]: GPUs, each with what it
//!   leaves out.
//! - [`lspci`], [`pcie`], [`lsmod`], [`dkms`], [`amdgpu_firmware`]: devices and their drivers.
//! - [`packages`]: versions of what is installed.
//! - [`docker`], [`podman`], [`llama`]: what runs engines, and engines.
//! - [`rdma`]: ports for RDMA.
//! - [`mac`]: what macOS prints.

use std::collections::BTreeMap;

pub mod amd_smi;
pub mod amdgpu_firmware;
pub mod dkms;
pub mod docker;
pub mod ethtool;
pub mod free;
pub mod ip;
pub mod iperf3;
pub mod llama;
pub mod lscpu;
pub mod lsmod;
pub mod lspci;
pub mod mac;
pub mod nvidia_smi;
pub mod packages;
pub mod pcie;
pub mod podman;
pub mod rdma;
pub mod rocm_smi;
pub mod rocminfo;
pub mod vulkaninfo;

/// Devices that a tool lists, or why it lists none. An empty list is "there are none".
pub type Devices<T> = Result<Vec<T>, Silent>;

/// Why a tool says nothing of devices that may well be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silent {
    /// The driver is not loaded.
    NoDriver,
    /// The driver and its library are of different versions, as after an update without a restart.
    Mismatch,
    /// It said something else.
    Unreadable,
}

/// What stands behind `name:` on the first line that begins so, without blanks around.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix(name)?
                .trim_start()
                .strip_prefix(':')
        })
        .map(str::trim)
        .filter(|value| !value.is_empty())
}

/// Whether a tool of AMD's says that the driver is not loaded; its words differ between releases.
fn no_driver(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.to_lowercase();
        line.starts_with("error")
            && line.contains("driver")
            && line.contains("not found in modules")
    })
}

/// `0x1586`.
fn hexadecimal(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Lines `name: value` that are nested by indentation, by their path in small letters, parted by
/// dots. What is nested deeper than eight is left out.
fn indented(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut path: Vec<(usize, String)> = Vec::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let depth = line.len() - line.trim_start().len();
        while path.last().is_some_and(|(above, _)| *above >= depth) {
            path.pop();
        }
        if path.len() >= 8 {
            continue;
        }
        path.push((depth, name.trim().to_lowercase()));
        if !value.trim().is_empty() {
            let names: Vec<&str> = path.iter().map(|(_, name)| name.as_str()).collect();
            found.insert(names.join("."), value.trim().to_owned());
        }
    }
    found
}
