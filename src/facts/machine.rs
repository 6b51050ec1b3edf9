//! The machine itself: what it is called, and which boot this is.

use serde::{Deserialize, Serialize};

use super::script::value;

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The installation's own number. Two hosts with the same one are copies of each other.
    pub machine_id: Option<String>,
    /// This boot's own number.
    pub boot_id: Option<String>,
    /// Seconds since the boot.
    pub uptime_seconds: Option<f64>,
    /// Who made it.
    pub vendor: Option<String>,
    /// What it is called.
    pub product: Option<String>,
}

/// Reads the section `machine`.
pub fn parse(text: &str) -> Machine {
    let owned = |name: &str| {
        value(text, name)
            // What makers leave when they fill in nothing.
            .filter(|value| {
                ![
                    "To Be Filled By O.E.M.",
                    "Default string",
                    "System Product Name",
                ]
                .contains(value)
            })
            .map(str::to_owned)
    };
    Machine {
        machine_id: owned("machine_id").filter(|id| id != "uninitialized"),
        boot_id: owned("boot_id"),
        uptime_seconds: value(text, "uptime")
            .and_then(|times| times.split(' ').next()?.parse().ok())
            .filter(|seconds: &f64| seconds.is_finite()),
        vendor: owned("vendor"),
        product: owned("product"),
    }
}
