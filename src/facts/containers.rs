//! What runs containers: Docker, Podman, and whether GPUs of NVIDIA can be passed to them.

use serde::{Deserialize, Serialize};

use super::disk;
use super::script::{Sections, parts, says, value};
use super::tools::docker::{self, Refused};

/// What runs containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerEngine {
    /// `docker` or `podman`.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
    /// Whether this login can use it now. Podman needs no service and nobody's leave.
    pub reachable: Option<bool>,
    /// Why it cannot.
    pub refused: Option<String>,
    /// Whether GPUs of NVIDIA can be passed to containers: there is a runtime for that, or a
    /// description of them (CDI).
    pub nvidia: Option<bool>,
    /// The way of running containers that is taken when none is asked for.
    pub default_runtime: Option<String>,
    /// Whether it works without root.
    pub rootless: Option<bool>,
    /// Where images are.
    pub store: Option<String>,
    /// What is free there, bytes.
    pub store_free_bytes: Option<u64>,
}

/// Reads the section `containers`; `None` when the host was not asked.
pub fn parse(sections: &Sections<'_>) -> Option<Vec<ContainerEngine>> {
    let text = sections.get("containers");
    let described = value(text, "cdi").is_some();
    says(text, "asked").then(|| {
        parts(text, "engine")
            .into_iter()
            .map(|(name, text)| {
                let free = text.lines().find_map(disk::df).and_then(|df| df.free);
                match name {
                    "docker" => docker_engine(text, described, free),
                    _ => ContainerEngine {
                        name: name.to_owned(),
                        version: text
                            .lines()
                            .find_map(|line| line.trim().rsplit_once(" version "))
                            .map(|(_, version)| version.to_owned()),
                        reachable: Some(true),
                        nvidia: Some(described),
                        rootless: Some(says(text, "rootless")),
                        store: value(text, "store").map(str::to_owned),
                        store_free_bytes: free,
                        ..ContainerEngine::default()
                    },
                }
            })
            .collect()
    })
}

fn docker_engine(text: &str, described: bool, free: Option<u64>) -> ContainerEngine {
    let docker = docker::parse(text);
    let refused = match (says(text, "stopped"), docker.refused) {
        (true, _) | (_, Some(Refused::NotRunning)) => Some("its service does not run"),
        (_, Some(Refused::Permission)) => Some("permission denied on its socket"),
        (false, None) => None,
    };
    // Only the service knows its runtimes.
    let answered = docker.default_runtime.is_some() || !docker.runtimes.is_empty();
    ContainerEngine {
        name: "docker".into(),
        nvidia: match answered {
            true => Some(described || docker.runtimes.iter().any(|own| own == "nvidia")),
            false => None,
        },
        reachable: match refused {
            Some(_) => Some(false),
            None => answered.then_some(true),
        },
        refused: refused.map(str::to_owned),
        version: docker.version,
        default_runtime: docker.default_runtime,
        rootless: docker.rootless,
        store: docker.root,
        store_free_bytes: free,
    }
}
