//! Builds of llama.cpp and of ollama, and the devices that the first can use.

/// A build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// Its version.
    pub version: Option<String>,
    /// The commit it was made of.
    pub commit: Option<String>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its name for options, e.g. `MTL0`.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Its memory, MiB.
    pub total_mib: u64,
    /// What is free of it, MiB.
    pub free_mib: u64,
}

/// Reads `--version`: `version: 6432 (a1b2c3d)`, or `ollama version is 0.9.0`, or, when its service
/// does not run, `Warning: client version is 0.9.0`.
pub fn build(text: &str) -> Build {
    let of = |start: &str| {
        text.lines()
            .find_map(|line| line.trim().strip_prefix(start))
    };
    if let Some(rest) = of("version: ") {
        let (version, commit) = rest.split_once(' ').unwrap_or((rest, ""));
        let commit = commit
            .trim()
            .strip_prefix('(')
            .and_then(|commit| commit.strip_suffix(')'));
        return Build {
            version: Some(version.to_owned()),
            commit: commit.map(str::to_owned),
        };
    }
    let version = of("ollama version is ").or_else(|| of("Warning: client version is "));
    Build {
        version: version.map(|version| version.trim().to_owned()),
        commit: None,
    }
}

/// Reads `--list-devices`: `  MTL0: Apple M1 Max (26000 MiB, 25999 MiB free)`.
pub fn devices(text: &str) -> Vec<Device> {
    text.lines()
        .filter_map(|line| {
            let (front, memory) = line.trim().strip_suffix(" MiB free)")?.rsplit_once(" (")?;
            let (name, description) = front.split_once(": ")?;
            let (total, free) = memory.split_once(" MiB, ")?;
            Some(Device {
                name: name.to_owned(),
                description: description.to_owned(),
                total_mib: total.parse().ok()?,
                free_mib: free.parse().ok()?,
            })
        })
        .collect()
}
