//! What of a host's GPUs, drivers, libraries, containers and engines is compared. Must not know what is
//! asked of it.

use std::collections::BTreeMap;

use super::subjects::{Seen, Subject, Value, bytes, none, of, on, one, shown_as, subject};
use crate::facts::drivers::Driver;
use crate::facts::tools::dkms::Built;
use crate::facts::{ContainerEngine, EngineBuild, Gpu};

/// The subjects.
pub(super) const COMPUTING: &[Subject] = &[
    subject("gpu_architecture", |h| {
        each(h, |gpu| gpu.architecture.clone())
    }),
    subject("gpu_cores", |h| each(h, |gpu| Some(gpu.cores?.to_string()))),
    subject("gpu_split", |h| {
        each(h, |gpu| Some(on(gpu.split?).to_owned()))
    }),
    subject("gpu_memory_module", |h| {
        let memory = &h.facts.gpu_memory;
        let loaded = memory.modules.as_ref()?;
        one(match (&memory.module, loaded.is_empty()) {
            (Some(module), _) => module.clone(),
            (None, true) => "none".to_owned(),
            (None, false) => "unclear which".to_owned(),
        })
    }),
    bytes("gpu_memory_limit", |h| {
        live(h, h.facts.gpu_memory.limit_bytes())
    }),
    bytes("gpu_memory_pool", |h| {
        live(h, h.facts.gpu_memory.pool_bytes())
    }),
    subject("gttsize", |h| {
        let size = h.facts.gpu_memory.gttsize_mib;
        match (size, h.facts.drivers.loaded("amdgpu")) {
            (Some(size), _) => one(format!("{size} MiB")),
            (None, None) => none(h.facts.drivers.loaded.is_some()),
            (None, Some(_)) => None,
        }
    }),
    shown_as(
        "wired_limit",
        |h| one(h.facts.gpu_memory.wired_limit_mib?.to_string()),
        |text| match text {
            "0" => "the system's own".to_owned(),
            mib => format!("{mib} MiB"),
        },
    ),
    subject("loaded_firmware", loaded_firmware),
    subject("gpu_drivers", |h| {
        let loaded = h.facts.drivers.loaded.as_ref()?.iter();
        Some(Value::Many(
            loaded
                .map(|driver| (driver.name.clone(), driver_words(driver)))
                .collect(),
        ))
    }),
    subject("nvidia_driver", |h| {
        let drivers = &h.facts.drivers;
        match &drivers.nvidia {
            Some(nvidia) => one(format!(
                "{} {}",
                nvidia.version,
                if nvidia.open { "open" } else { "closed" }
            )),
            None => none(drivers.loaded.is_some() && drivers.loaded("nvidia").is_none()),
        }
    }),
    subject("built_drivers", |h| {
        let drivers = &h.facts.drivers;
        drivers.loaded.as_ref()?;
        let running = h.facts.kernel.release.as_deref();
        let built = drivers.built.as_deref().unwrap_or_default();
        Some(Value::Shared(built_words(built, running)))
    }),
    subject("rocm", |h| library(h, &h.facts.software.rocm)),
    subject("cuda", |h| library(h, &h.facts.software.cuda)),
    subject("mesa", |h| library(h, &h.facts.software.mesa)),
    subject("vulkan", |h| library(h, &h.facts.software.vulkan)),
    subject("vulkan_drivers", |h| {
        let mut drivers = h.facts.software.vulkan_drivers.clone()?;
        drivers.sort_unstable();
        drivers.dedup();
        one(match drivers.is_empty() {
            true => "none".to_owned(),
            false => drivers.join(" "),
        })
    }),
    subject("containers", |h| {
        let engines = h.facts.containers.as_ref()?.iter();
        Some(Value::Many(
            engines
                .map(|engine| (engine.name.clone(), engine_words(engine)))
                .collect(),
        ))
    }),
    subject("engines", |h| {
        let builds = h.facts.engines.as_ref()?.iter();
        Some(Value::Many(
            builds
                .map(|build| (build.name.clone(), build_words(build)))
                .collect(),
        ))
    }),
    subject("ignored_parameters", |h| {
        let hints = h.facts.kernel_log.as_ref()?.iter();
        let ignored = hints.filter(|hint| hint.kind == crate::facts::HintKind::IgnoredParameter);
        let named = ignored.filter_map(|hint| {
            let (module, _) = hint.text.split_once(": unknown parameter")?;
            let module = module.rsplit(' ').next()?;
            Some((format!("{module}.{}", hint.subject.as_ref()?), hint))
        });
        Some(Value::Many(
            named
                .map(|(name, _)| (name, "ignored".to_owned()))
                .collect(),
        ))
    }),
];

/// What each GPU says, in their order; `none` on a host that has no GPU.
fn each(seen: &Seen<'_>, of: fn(&Gpu) -> Option<String>) -> Option<Value> {
    let gpus = seen.facts.gpus.as_ref()?;
    if gpus.is_empty() {
        return none(true);
    }
    let found: Vec<String> = gpus.iter().filter_map(of).collect();
    (!found.is_empty()).then(|| Value::One(found.join(" + ")))
}

/// A live setting of the module for GPU memory; `none` where there is no such module.
fn live(seen: &Seen<'_>, bytes: Option<u64>) -> Option<Value> {
    match bytes {
        Some(bytes) => one(bytes.to_string()),
        None => none(seen.facts.gpu_memory.modules.as_ref()?.is_empty()),
    }
}

/// A library's version; `none` where the host was asked and has it not.
fn library(seen: &Seen<'_>, version: &Option<String>) -> Option<Value> {
    of(version).or_else(|| none(seen.facts.software.vulkan_drivers.is_some()))
}

/// Versions by the part that they run on, and by GPU where there are several. One source lists more
/// parts than another, so only shared ones are compared.
fn loaded_firmware(seen: &Seen<'_>) -> Option<Value> {
    let amd = |gpu: &Gpu| gpu.vendor() == Some("AMD");
    let Some(loaded) = &seen.facts.firmware.loaded else {
        let gpus = seen.facts.gpus.as_ref()?;
        return (!gpus.iter().any(amd)).then(|| Value::Shared(BTreeMap::new()));
    };
    let several = loaded.len() > 1;
    let parts = loaded.iter().flat_map(|own| {
        own.versions.iter().map(move |(part, version)| {
            let key = match &own.slot {
                Some(slot) if several => format!("{slot} {part}"),
                _ => part.clone(),
            };
            (key, format!("0x{version:x}"))
        })
    });
    Some(Value::Shared(parts.collect()))
}

fn driver_words(driver: &Driver) -> String {
    let version = driver.version.as_deref();
    match (version, driver.out_of_tree) {
        (Some(version), Some(true)) => format!("{version}, not the kernel's own"),
        (None, Some(true)) => "not the kernel's own".to_owned(),
        (Some(version), _) => version.to_owned(),
        (None, _) => "the kernel's own".to_owned(),
    }
}

/// What is built on the machine for the kernel that runs, by name.
fn built_words(built: &[Built], running: Option<&str>) -> BTreeMap<String, String> {
    let mut words: BTreeMap<String, String> = BTreeMap::new();
    for name in built.iter().map(|built| &built.name) {
        let own = || built.iter().filter(|own| own.name == *name);
        let here = own().find(|own| own.kernel.is_some() && own.kernel.as_deref() == running);
        let text = match (here, own().next_back()) {
            (Some(here), _) => {
                let warning = here.warning.as_ref().map(|text| format!(", {text}"));
                format!(
                    "{} {}{}",
                    here.version,
                    here.state,
                    warning.unwrap_or_default()
                )
            }
            (None, Some(last)) => format!("{} not built for the running kernel", last.version),
            (None, None) => continue,
        };
        words.insert(name.clone(), text);
    }
    words
}

fn engine_words(engine: &ContainerEngine) -> String {
    let mut words = vec![
        engine
            .version
            .clone()
            .unwrap_or_else(|| "of unknown version".to_owned()),
    ];
    if let Some(why) = &engine.refused {
        words.push(why.clone());
    }
    match engine.nvidia {
        Some(true) => words.push("gives NVIDIA GPUs".to_owned()),
        Some(false) => words.push("gives no NVIDIA GPUs".to_owned()),
        None => {}
    }
    if let Some(runtime) = &engine.default_runtime {
        words.push(runtime.clone());
    }
    if engine.rootless == Some(true) {
        words.push("rootless".to_owned());
    }
    words.join(", ")
}

fn build_words(build: &EngineBuild) -> String {
    match (&build.version, &build.commit) {
        (Some(version), Some(commit)) => format!("{version} ({commit})"),
        (Some(only), None) | (None, Some(only)) => only.clone(),
        (None, None) => "of unknown build".to_owned(),
    }
}
