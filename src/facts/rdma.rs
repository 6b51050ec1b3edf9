//! Ports for RDMA, as the kernel shows them.

use serde::{Deserialize, Serialize};

use super::script::{Sections, parts, says, value};

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RdmaPort {
    /// The device.
    pub device: String,
    /// The port's number on it.
    pub port: Option<u32>,
    /// `active`, `down`, `init`, `armed`.
    pub state: Option<String>,
    /// The link below: `linkup`, `disabled`, `polling`, ….
    pub physical_state: Option<String>,
    /// Its speed, Gbit/s. Of a port that is down it means nothing.
    pub gigabits: Option<f64>,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: Option<String>,
    /// Its network interface.
    pub interface: Option<String>,
    /// The device's firmware.
    pub firmware_version: Option<String>,
}

impl RdmaPort {
    /// Whether it carries.
    pub fn active(&self) -> Option<bool> {
        self.state.as_ref().map(|state| state == "active")
    }
}

/// Reads the section `rdma`; `None` when the host does not say.
pub fn parse(sections: &Sections<'_>) -> Option<Vec<RdmaPort>> {
    let text = sections.get("rdma");
    says(text, "asked").then(|| {
        parts(text, "port")
            .into_iter()
            .map(|(label, text)| {
                let (device, port) = label.split_once(' ').unwrap_or((label, ""));
                // `4: ACTIVE`, `5: LinkUp`.
                let state = |name: &str| {
                    let (_, state) = value(text, name)?.split_once(": ")?;
                    Some(state.trim().to_lowercase())
                };
                let nets: Vec<&str> = text
                    .lines()
                    .filter_map(|line| line.strip_prefix("net "))
                    .collect();
                // Where a device has several interfaces, they are not the port's.
                let only = match nets.as_slice() {
                    [only] => Some(only.trim()),
                    _ => None,
                };
                RdmaPort {
                    device: device.to_owned(),
                    port: port.trim().parse().ok(),
                    state: state("state"),
                    physical_state: state("phys_state"),
                    gigabits: value(text, "rate")
                        .and_then(|rate| rate.split_once(" Gb/sec"))
                        .and_then(|(rate, _)| rate.parse().ok())
                        .filter(|rate: &f64| rate.is_finite()),
                    link_layer: value(text, "link_layer").map(str::to_owned),
                    interface: value(text, "netdev").or(only).map(str::to_owned),
                    firmware_version: value(text, "firmware").map(str::to_owned),
                }
            })
            .collect()
    })
}
