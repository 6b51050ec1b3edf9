//! The processor, as lscpu(1) describes it, in its text (plain or indented) or its JSON.

use serde_json::Value;

/// The processor. A dash is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lscpu {
    /// What it runs: `x86_64`, `aarch64`.
    pub arch: Option<String>,
    /// What can run at once.
    pub cpus: Option<u32>,
    /// Its maker.
    pub vendor: Option<String>,
    /// Its kinds of cores; most have one, whose name is the processor's.
    pub kinds: Vec<Kind>,
    /// Sockets.
    pub sockets: Option<u32>,
    /// NUMA nodes.
    pub nodes: Option<u32>,
    /// Instruction sets.
    pub flags: Vec<String>,
}

/// A kind of cores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kind {
    /// Its name.
    pub model: String,
    /// Threads for each core.
    pub threads_per_core: Option<u32>,
    /// Cores for each socket.
    pub cores_per_socket: Option<u32>,
    /// Cores for each cluster, where the kernel counts by clusters.
    pub cores_per_cluster: Option<u32>,
    /// Clusters.
    pub clusters: Option<u32>,
    /// The highest clock, MHz.
    pub max_mhz: Option<f64>,
}

impl Lscpu {
    /// The names of its kinds of cores: the processor's name.
    pub fn model(&self) -> Option<String> {
        let names: Vec<&str> = self.kinds.iter().map(|kind| kind.model.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

/// Reads either form.
pub fn parse(text: &str) -> Lscpu {
    let mut found = Lscpu::default();
    match text.trim_start().starts_with('{') {
        true => {
            if let Ok(value) = serde_json::from_str::<Value>(text) {
                objects(value.get("lscpu"), &mut found, 0);
            }
        }
        false => {
            for (name, value) in fields(text) {
                take(&mut found, name, &value);
            }
        }
    }
    found
}

/// Fields by name; a line without a name carries on the value before it.
fn fields(text: &str) -> Vec<(&str, String)> {
    let mut found: Vec<(&str, String)> = Vec::new();
    for line in text.lines() {
        let (name, value) = line.split_once(':').unwrap_or(("", line));
        // What carries on is indented as far as values are, and breaks in the midst of words.
        let carries_on = name.is_empty() || line.starts_with("                    ");
        match found.last_mut() {
            Some((_, last)) if carries_on => last.push_str(line.trim_start()),
            _ => found.push((name.trim(), value.trim_start().to_owned())),
        }
    }
    found
}

fn objects(list: Option<&Value>, found: &mut Lscpu, depth: usize) {
    if depth > 8 {
        return;
    }
    for object in list.and_then(Value::as_array).into_iter().flatten() {
        let text = |name: &str| object.get(name).and_then(Value::as_str);
        if let (Some(name), Some(value)) = (text("field"), text("data")) {
            take(found, name.trim_end_matches(':'), value);
        }
        objects(object.get("children"), found, depth + 1);
    }
}

fn take(found: &mut Lscpu, name: &str, value: &str) {
    let value = value.trim();
    if value.is_empty() || value == "-" {
        return;
    }
    let number = value.parse::<u32>().ok();
    match name {
        "Architecture" => found.arch = Some(value.to_owned()),
        "CPU(s)" => found.cpus = number,
        "Vendor ID" => found.vendor = Some(value.to_owned()),
        "Socket(s)" => found.sockets = number,
        "NUMA node(s)" => found.nodes = number,
        "Flags" => found.flags = value.split_whitespace().map(str::to_owned).collect(),
        "Model name" => found.kinds.push(Kind {
            model: value.to_owned(),
            ..Kind::default()
        }),
        _ => {
            let Some(kind) = found.kinds.last_mut() else {
                return;
            };
            match name {
                "Thread(s) per core" => kind.threads_per_core = number,
                "Core(s) per socket" => kind.cores_per_socket = number,
                "Core(s) per cluster" => kind.cores_per_cluster = number,
                "Cluster(s)" => kind.clusters = number,
                "CPU max MHz" => {
                    kind.max_mhz = value.parse().ok().filter(|mhz: &f64| mhz.is_finite())
                }
                _ => {}
            }
        }
    }
}
