//! Docker, by what `docker --version` and `docker info` say.

/// What docker says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Docker {
    /// The service's version, or the program's where the service does not answer.
    pub version: Option<String>,
    /// Ways of running containers.
    pub runtimes: Vec<String>,
    /// The one that is taken when none is asked for.
    pub default_runtime: Option<String>,
    /// Where images are.
    pub root: Option<String>,
    /// The version of the kernel's control groups.
    pub cgroup: Option<u8>,
    /// Whether it runs without root.
    pub rootless: Option<bool>,
    /// Why the service did not answer.
    pub refused: Option<Refused>,
}

/// Why a service did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The login may not open its socket; it runs.
    Permission,
    /// Nobody listens.
    NotRunning,
}

/// Reads it, with what it complains of.
pub fn parse(text: &str) -> Docker {
    let of = |name: &str| super::field(text, name).map(str::to_owned);
    let program = || {
        let rest = text
            .lines()
            .find_map(|line| line.strip_prefix("Docker version "))?;
        rest.split([',', ' ']).next().map(str::to_owned)
    };
    let runtimes = of("Runtimes").unwrap_or_default();
    let lower = text.to_lowercase();
    let refused = match () {
        () if lower.contains("permission denied") && lower.contains("docker") => {
            Some(Refused::Permission)
        }
        () if lower.contains("is the docker daemon running")
            || lower.contains("failed to connect to the docker api") =>
        {
            Some(Refused::NotRunning)
        }
        () => None,
    };
    Docker {
        version: of("Server Version").or_else(program),
        default_runtime: of("Default Runtime"),
        root: of("Docker Root Dir"),
        cgroup: of("Cgroup Version").and_then(|number| number.parse().ok()),
        rootless: of("Server Version").map(|_| {
            text.lines()
                .any(|line| line.trim() == "rootless" || line.trim() == "name=rootless")
        }),
        runtimes: runtimes.split_whitespace().map(str::to_owned).collect(),
        refused,
    }
}
