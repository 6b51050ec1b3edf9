//! What tools of macOS print: the hardware's overview of system_profiler(8), values of sysctl(8).

/// The machine, as `system_profiler SPHardwareDataType` has it, whole or in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// What it is sold as.
    pub model: Option<String>,
    /// Its identifier, e.g. `Mac14,13`.
    pub identifier: Option<String>,
    /// The chip.
    pub chip: Option<String>,
    /// All cores.
    pub cores: Option<u32>,
    /// The fast ones.
    pub performance_cores: Option<u32>,
    /// The frugal ones.
    pub efficiency_cores: Option<u32>,
    /// Memory, bytes. It says GB and means 1073741824.
    pub memory_bytes: Option<u64>,
}

/// Reads the overview.
pub fn hardware(text: &str) -> Hardware {
    let of = |name: &str| super::field(text, name);
    let cores = of("Total Number of Cores").unwrap_or_default();
    let words: Vec<String> = cores
        .split(|c: char| !c.is_alphanumeric())
        .map(str::to_lowercase)
        .collect();
    let kind = |name: &str| {
        let at = words.iter().position(|word| word == name)?.checked_sub(1)?;
        words.get(at)?.parse().ok()
    };
    let memory = of("Memory").and_then(|text| {
        let (number, unit) = text.split_once(' ')?;
        let shift = match unit {
            "GB" => 30,
            "TB" => 40,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(1 << shift)
    });
    Hardware {
        model: of("Model Name").map(str::to_owned),
        identifier: of("Model Identifier").map(str::to_owned),
        chip: of("Chip").map(str::to_owned),
        cores: words.first().and_then(|word| word.parse().ok()),
        performance_cores: kind("performance"),
        efficiency_cores: kind("efficiency"),
        memory_bytes: memory,
    }
}

/// A number that sysctl(8) shows. Where it was set, the new one stands behind an arrow.
pub fn sysctl(text: &str, name: &str) -> Option<u64> {
    let value = super::field(text, name)?;
    let value = value.split_once("-> ").map_or(value, |(_, new)| new);
    value.split_whitespace().next()?.parse().ok()
}
