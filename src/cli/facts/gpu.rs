//! GPUs, and what is there to use them, as rows of `windlass facts`. What is unknown says so.

use crate::facts::{ContainerEngine, Drivers, Facts, Firmware, Gpu, HintKind, RdmaPort, Software};
use crate::figures::memory;

/// Rows with their labels, in the order in which things depend on each other.
pub(super) fn rows(facts: &Facts) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    match &facts.gpus {
        None => rows.push(("GPU", unknown())),
        Some(gpus) if gpus.is_empty() => rows.push(("GPU", "none".into())),
        Some(gpus) => rows.extend(gpus.iter().map(|own| ("GPU", gpu(own)))),
    }
    rows.push(("GPU memory", limits(facts)));
    rows.push(("drivers", drivers(&facts.drivers)));
    rows.extend(firmware(&facts.firmware).map(|text| ("drivers", text)));
    rows.push(("software", software(&facts.software)));
    rows.extend(each("containers", facts.containers.as_deref(), container));
    rows.extend(each("engines", facts.engines.as_deref(), |engine| {
        let version = engine.version.iter().map(|version| format!(" {version}"));
        let commit = engine.commit.iter().map(|commit| format!(" ({commit})"));
        let path = engine.path.iter().map(|path| format!(", {path}"));
        let rest: String = version.chain(commit).chain(path).collect();
        format!("{}{rest}", engine.name)
    }));
    rows.extend(each("RDMA", facts.rdma.as_deref(), port));
    rows.push(("kernel log", log(facts)));
    rows
}

fn unknown() -> String {
    "unknown".into()
}

fn listed(parts: Vec<String>, none: &str) -> String {
    match parts.is_empty() {
        true => none.to_owned(),
        false => parts.join(", "),
    }
}

/// A row for each; one when there are none, or when that is unknown.
fn each<T>(
    label: &'static str,
    all: Option<&[T]>,
    text: impl Fn(&T) -> String,
) -> Vec<(&'static str, String)> {
    match all {
        None => vec![(label, unknown())],
        Some([]) => vec![(label, "none".into())],
        Some(all) => all.iter().map(|one| (label, text(one))).collect(),
    }
}

fn gpu(gpu: &Gpu) -> String {
    let mut parts = vec![gpu.name()];
    parts.extend(gpu.product.clone().filter(|product| *product != gpu.name()));
    parts.extend(gpu.architecture.clone());
    parts.extend(gpu.cores.map(|count| format!("{count} cores")));
    parts.extend(
        gpu.vram_total_bytes
            .map(|bytes| format!("{} of its own", memory(bytes))),
    );
    parts.extend(
        gpu.gtt_total_bytes
            .map(|bytes| format!("may use {} of main memory", memory(bytes))),
    );
    parts.extend(
        gpu.usable_bytes
            .map(|bytes| format!("{} for programs", memory(bytes))),
    );
    if gpu.split == Some(true) {
        parts.push("cut into parts (MIG)".into());
    }
    parts.join(", ")
}

fn limits(facts: &Facts) -> String {
    let settings = &facts.gpu_memory;
    if let Some(limit) = settings.wired_limit_mib {
        return match limit {
            0 => "as the system chooses (iogpu.wired_limit_mb is 0)".into(),
            limit => format!("up to {}", memory(limit.saturating_mul(1 << 20))),
        };
    }
    let Some(modules) = &settings.modules else {
        return unknown();
    };
    let mut parts = Vec::new();
    match settings.live() {
        Some(module) => {
            parts.push(format!(
                "{} allows {}",
                module.name,
                settings.limit_bytes().map_or_else(unknown, memory)
            ));
            parts.extend(
                settings
                    .pool_bytes()
                    .map(|bytes| format!("keeps up to {}", memory(bytes))),
            );
            let others = modules.iter().filter(|own| own.name != module.name);
            parts.extend(others.map(|own| format!("{} is not the one in use", own.name)));
        }
        None if modules.is_empty() => parts.push("no module of the kernel manages any".into()),
        None => parts.push("which module is in use is unknown".into()),
    }
    parts.extend(
        settings
            .gttsize_mib
            .filter(|size| *size >= 0)
            .map(|size| format!("amdgpu.gttsize is {size} MiB")),
    );
    parts.join(", ")
}

fn drivers(drivers: &Drivers) -> String {
    let Some(loaded) = &drivers.loaded else {
        return unknown();
    };
    let texts = loaded.iter().map(|driver| {
        let version = driver.version.as_ref().map(|version| format!(" {version}"));
        let from = match driver.out_of_tree {
            Some(true) => " (not the kernel's own)",
            Some(false) => " (the kernel's own)",
            None => "",
        };
        format!("{}{}{from}", driver.name, version.unwrap_or_default())
    });
    listed(texts.collect(), "none for a GPU")
}

/// Packages, and what is loaded; the latter counts.
fn firmware(firmware: &Firmware) -> impl Iterator<Item = String> {
    let packages = firmware.packages.as_ref().map(|packages| {
        let texts = packages
            .iter()
            .map(|(name, version)| format!("{name} {version}"));
        format!("packages: {}", listed(texts.collect(), "no firmware"))
    });
    let loaded = firmware.loaded.iter().flatten().map(|gpu| {
        // Those whose faults people meet; all of them are in the JSON.
        let shown = ["mes", "mes_kiq", "smc"];
        let texts: Vec<String> = shown
            .iter()
            .filter_map(|part| Some(format!("{part} 0x{:x}", gpu.versions.get(*part)?)))
            .collect();
        let rest = gpu.versions.len().saturating_sub(texts.len());
        let slot = gpu.slot.as_deref().unwrap_or("a GPU");
        format!(
            "loaded into {slot}: {}",
            match texts.is_empty() {
                true => format!("{rest} parts"),
                false => format!("{} and {rest} more", texts.join(", ")),
            }
        )
    });
    let rows: Vec<String> = packages.into_iter().chain(loaded).collect();
    rows.into_iter()
}

fn software(software: &Software) -> String {
    let mut parts: Vec<String> = [
        ("ROCm", &software.rocm),
        ("CUDA", &software.cuda),
        ("Mesa", &software.mesa),
        ("Vulkan", &software.vulkan),
    ]
    .iter()
    .filter_map(|(name, version)| Some(format!("{name} {}", version.as_ref()?)))
    .collect();
    let drivers = software.vulkan_drivers.as_ref();
    parts.extend(
        drivers
            .filter(|drivers| !drivers.is_empty())
            .map(|drivers| format!("Vulkan drivers {}", drivers.join(" "))),
    );
    let none = match drivers.is_some() {
        true => "none found",
        false => "unknown",
    };
    listed(parts, none)
}

fn container(engine: &ContainerEngine) -> String {
    let mut parts = vec![match &engine.version {
        Some(version) => format!("{} {version}", engine.name),
        None => engine.name.clone(),
    }];
    parts.extend(engine.refused.clone());
    if engine.rootless == Some(true) {
        parts.push("without root".into());
    }
    parts.extend(engine.nvidia.map(|can| match can {
        true => "can pass NVIDIA GPUs".to_owned(),
        false => "cannot pass NVIDIA GPUs".to_owned(),
    }));
    if let (Some(free), Some(store)) = (engine.store_free_bytes, &engine.store) {
        parts.push(format!("{} free for {store}", memory(free)));
    }
    parts.join(", ")
}

fn port(port: &RdmaPort) -> String {
    let mut parts = vec![match port.port {
        Some(number) => format!("{} port {number}", port.device),
        None => port.device.clone(),
    }];
    parts.push(port.state.clone().unwrap_or_else(|| "state unknown".into()));
    if port.active() == Some(true) {
        parts.extend(port.gigabits.map(|rate| format!("{rate} Gb/s")));
    }
    parts.extend(port.link_layer.clone());
    parts.extend(port.interface.clone());
    parts.join(", ")
}

/// What is worth a look, each kind once with its last subject, and how often.
fn log(facts: &Facts) -> String {
    let Some(hints) = &facts.kernel_log else {
        return "not readable by this login".into();
    };
    let mut found: Vec<(&str, Option<&str>, usize)> = Vec::new();
    for hint in hints {
        let Some(name) = words(hint.kind) else {
            continue;
        };
        match found.iter_mut().find(|(own, ..)| *own == name) {
            Some((_, subject, count)) => {
                *subject = hint.subject.as_deref();
                *count += 1;
            }
            None => found.push((name, hint.subject.as_deref(), 1)),
        }
    }
    let texts = found.into_iter().map(|(name, subject, count)| {
        let subject = subject.map(|subject| format!(" {subject}"));
        let count = (count > 1).then(|| format!(" ({count} times)"));
        format!(
            "{name}{}{}",
            subject.unwrap_or_default(),
            count.unwrap_or_default()
        )
    });
    listed(texts.collect(), "nothing of note about GPUs")
}

/// What a hint is to people; `None` for what is as it should be.
fn words(kind: HintKind) -> Option<&'static str> {
    Some(match kind {
        HintKind::IgnoredParameter => "unknown parameter ignored:",
        HintKind::DeprecatedParameter => "parameter to be replaced:",
        HintKind::MissingFirmware => "firmware missing:",
        HintKind::DriverFailed => "a driver gave a GPU up",
        HintKind::RingTimeout => "work did not end on ring",
        HintKind::SchedulerHang => "the GPU's scheduler did not answer",
        HintKind::ResetBegun => "GPU reset",
        HintKind::ResetFailed => "GPU reset failed",
        HintKind::NoMemory => "the driver found no memory:",
        HintKind::Xid => "NVIDIA Xid",
        HintKind::DriverVersion
        | HintKind::VramReady
        | HintKind::GttReady
        | HintKind::ResetMode
        | HintKind::ResetDone => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::script::Sections;

    fn shown(text: &str) -> Vec<String> {
        let sections = Sections::parse(text, "#facts-fixture").unwrap();
        let rows = rows(&Facts::parse(&sections)).into_iter();
        rows.map(|(name, text)| format!("{name}: {text}")).collect()
    }

    #[test]
    fn gpus_are_shown_with_what_is_there_to_use_them() {
        let halo = shown(include_str!("../../../tests/fixtures/facts/halo-gpu.txt"));
        assert_eq!(
            halo,
            [
                "GPU: AMD 1586 (amdgpu), gfx1151, 512.0 MiB of its own, may use 120.0 GiB of main memory, 110.0 GiB for programs",
                "GPU memory: amdttm allows 110.0 GiB, keeps up to 4.0 GiB, ttm is not the one in use",
                "drivers: amdgpu 6.16.6 (not the kernel's own), amdxdna (the kernel's own)",
                "drivers: packages: amdgpu-dkms-firmware 30.20.0.0.30200000-2111111.24.04, linux-firmware 20240318.git3b128b60-0ubuntu2.21",
                "drivers: loaded into 0000:c3:00.0: mes 0x80, mes_kiq 0x6f, smc 0x641e00 and 1 more",
                "software: ROCm 7.1.1-38, CUDA 12.1.0, Mesa 25.2.8-0ubuntu0.24.04.2, Vulkan 1.3.275.0-1build1, Vulkan drivers radeon_icd lvp_icd",
                "containers: docker 28.9.9, permission denied on its socket",
                "containers: podman 5.4.2, without root, cannot pass NVIDIA GPUs, 238.4 GiB free for /home/ai/.local/share/containers/storage",
                "engines: llama-server 6789 (0a1b2c3d), /opt/llama/llama-server",
                "engines: rpc-server, /opt/llama/rpc-server",
                "engines: ollama 0.12.3, /usr/local/bin/ollama",
                "RDMA: none",
                "kernel log: unknown parameter ignored: gtt_size",
            ]
        );
        let spark = shown(include_str!("../../../tests/fixtures/facts/spark-gpu.txt"));
        for row in [
            "GPU: NVIDIA 2e12 (nvidia), NVIDIA GB10, 12.1, 119.2 GiB for programs",
            "GPU: NVIDIA 2684 (nvidia), NVIDIA Made Up 4090, 8.9, 24.0 GiB of its own, 24.0 GiB for programs, cut into parts (MIG)",
            "GPU memory: no module of the kernel manages any",
            "containers: docker 28.5.0, can pass NVIDIA GPUs, 572.2 GiB free for /var/lib/docker",
            "engines: none",
            "RDMA: rocep1s0f0 port 1, down, Ethernet, enp1s0f0np0",
            "RDMA: rocep1s0f1 port 1, active, 200 Gb/s, Ethernet, enp1s0f1np1",
            "kernel log: not readable by this login",
        ] {
            assert!(spark.iter().any(|own| own == row), "{row}\n{spark:#?}");
        }
        let bare = shown("\n#facts-fixture end\n");
        for row in [
            "GPU memory: unknown",
            "drivers: unknown",
            "software: unknown",
            "RDMA: unknown",
        ] {
            assert!(bare.iter().any(|own| own == row), "{row}\n{bare:#?}");
        }
    }
}
