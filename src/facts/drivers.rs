//! Drivers of GPUs: which are loaded, of which version, from where.

use serde::{Deserialize, Serialize};

use super::script::{Sections, parts, says, value};
use super::tools::dkms::{self, Built};

/// Drivers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Drivers {
    /// Drivers that are loaded; `None` when the host does not say.
    pub loaded: Option<Vec<Driver>>,
    /// NVIDIA's kernel module, whose version its libraries must have too.
    pub nvidia: Option<Nvidia>,
    /// What is built on the machine; `None` when it has no dkms, or that does not say.
    pub built: Option<Vec<Built>>,
}

/// A driver that is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Driver {
    /// Its name.
    pub name: String,
    /// Its version. What comes with the kernel mostly has none of its own.
    pub version: Option<String>,
    /// Whether it did not come with the kernel.
    pub out_of_tree: Option<bool>,
}

/// NVIDIA's kernel module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nvidia {
    /// Its version.
    pub version: String,
    /// Whether it is the open one, the only one for new chips.
    pub open: bool,
}

impl Drivers {
    /// The driver of this name, when it is loaded.
    pub fn loaded(&self, name: &str) -> Option<&Driver> {
        self.loaded.iter().flatten().find(|own| own.name == name)
    }
}

/// Reads the sections `drivers` and `dkms`.
pub fn parse(sections: &Sections<'_>) -> Drivers {
    let text = sections.get("drivers");
    let loaded = says(text, "asked").then(|| {
        parts(text, "module")
            .into_iter()
            .map(|(name, text)| Driver {
                name: name.to_owned(),
                version: value(text, "version").map(str::to_owned),
                // The kernel marks what is not of its own source with the letter O.
                out_of_tree: says(text, "judged")
                    .then(|| value(text, "taint").is_some_and(|taint| taint.contains('O'))),
            })
            .collect()
    });
    Drivers {
        loaded,
        nvidia: value(text, "nvidia").and_then(nvidia),
        built: sections.find("dkms").map(dkms::parse),
    }
}

/// `NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.126.09  Release Build …`.
fn nvidia(line: &str) -> Option<Nvidia> {
    let version = line.split_whitespace().find(|word| {
        let mut parts = word.split('.');
        let number = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
        word.contains('.') && parts.all(number)
    })?;
    Some(Nvidia {
        version: version.to_owned(),
        open: line.contains("Open Kernel Module"),
    })
}
