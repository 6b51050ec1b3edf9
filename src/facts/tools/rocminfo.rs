//! What the ROCm runtime sees, as rocminfo prints it.

/// What rocminfo says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RocmInfo {
    /// Whether the driver is loaded.
    pub loaded: Option<bool>,
    /// Its version; the one that comes with the kernel has none here.
    pub module_version: Option<String>,
    /// The runtime's version.
    pub runtime: Option<String>,
    /// The login may not open the device.
    pub refused: bool,
    /// What computes.
    pub agents: Vec<Agent>,
}

/// Something that computes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// Its name; of a GPU what programs are built for.
    pub name: String,
    /// What it is sold as. Integrated GPUs have a general one; the product is the processor's.
    pub marketing_name: Option<String>,
    /// `CPU`, `GPU` or `DSP` (an NPU).
    pub kind: Option<String>,
    /// Its PCI number; 0 is none.
    pub chip_id: Option<u32>,
    /// Compute units.
    pub compute_units: Option<u32>,
    /// Whether it is part of a processor.
    pub integrated: bool,
    /// Sizes of its pools of global memory, bytes.
    pub pools: Vec<u64>,
}

impl Agent {
    /// Its memory, bytes. Several pools are views of the same memory, so the largest is all there is.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.pools.iter().max().copied()
    }
}

impl RocmInfo {
    /// The agents of this kind.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Agent> {
        let is = move |agent: &&Agent| agent.kind.as_deref() == Some(kind);
        self.agents.iter().filter(is)
    }
}

/// Reads it. Fields of an agent are indented by two blanks, those of what it has by more.
pub fn parse(text: &str) -> RocmInfo {
    let mut found = RocmInfo::default();
    let mut global = false;
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        let line = line.trim();
        if depth == 0 {
            if let Some(rest) = line.strip_prefix("ROCk module") {
                found.loaded = Some(!rest.contains("NOT loaded"));
                found.module_version = rest
                    .trim()
                    .strip_prefix("version")
                    .and_then(|rest| rest.split_whitespace().next())
                    .map(str::to_owned);
            }
            found.refused |= line.contains("/dev/kfd") && line.contains("Permission denied");
            let number = line.strip_prefix("Agent ").map(str::parse::<u32>);
            if number.is_some_and(|number| number.is_ok()) {
                found.agents.push(Agent::default());
            }
        }
        // A value may hold a colon.
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        let some = || (!value.is_empty()).then(|| value.to_owned());
        let number = || value.split('(').next()?.trim().parse().ok();
        if depth == 0 && name == "Runtime Version" {
            found.runtime = some();
        }
        let Some(agent) = found.agents.last_mut() else {
            continue;
        };
        match (depth, name) {
            (2, "Name") => agent.name = value.to_owned(),
            (2, "Marketing Name") => agent.marketing_name = some(),
            (2, "Device Type") => agent.kind = some(),
            (2, "Chip ID") => agent.chip_id = number().filter(|id| *id != 0),
            (2, "Compute Unit") => agent.compute_units = number(),
            (2, "Memory Properties") => {
                agent.integrated = value.split(',').any(|word| word.trim() == "APU");
            }
            (3.., "Segment") => global = value.starts_with("GLOBAL"),
            (3.., "Size") if global => {
                let kibibytes = value.strip_suffix("KB").map(|_| number());
                let kibibytes = kibibytes.flatten().map(u64::from);
                agent.pools.extend(kibibytes.map(|size| size << 10));
            }
            _ => {}
        }
    }
    found
}
