//! GPUs, drivers, firmware, containers, RDMA and macOS: what was read from each file, by the names
//! that the index has.

use std::collections::BTreeMap;

use windlass::facts::kernel_log::{self, Hint};
use windlass::facts::script::Sections;
use windlass::facts::tools::docker::Refused;
use windlass::facts::tools::{
    Silent, amd_smi, amdgpu_firmware, dkms, docker, llama, lsmod, lspci, mac, nvidia_smi, packages,
    pcie, podman, rdma, rocm_smi, rocminfo, vulkaninfo,
};
use windlass::facts::{Facts, HintKind, gpu_memory};

use super::Found;

/// What was read; `None` for a folder of another half.
pub fn values(folder: &str, file: &str, text: &str) -> Option<BTreeMap<String, String>> {
    let mut found = Found::default();
    match folder {
        "amd-smi" => amd(text, &mut found),
        "container" => containers(text, &mut found),
        "dkms" => built(text, &mut found),
        "dmesg" => log(text, &mut found),
        "lsmod" => modules(text, &mut found),
        "lspci" => bus(text, &mut found),
        "macos" => macos(text, &mut found),
        "nvidia-smi" => nvidia(file, text, &mut found),
        "packages" => installed(text, &mut found),
        "rdma" => ports(text, &mut found),
        "rocm-smi" => rocm(text, &mut found),
        "rocminfo" => runtime(text, &mut found),
        "sysfs" => kernel(file, text, &mut found),
        "vulkaninfo" => vulkan(text, &mut found),
        _ => return None,
    }
    Some(found.0)
}

fn hexadecimal(number: Option<u16>, digits: usize) -> Option<String> {
    number.map(|number| format!("0x{number:0digits$x}"))
}

/// What is said of a list that is not there.
fn silent(found: &mut Found, reason: Silent) {
    found.put("gpus", "unknown");
    found.put(
        "state",
        match reason {
            Silent::NoDriver => "driver not loaded",
            Silent::Mismatch => "driver/library mismatch",
            Silent::Unreadable => "unreadable",
        },
    );
}

fn amd(text: &str, found: &mut Found) {
    let gpus = match amd_smi::parse(text) {
        Ok(gpus) => gpus,
        Err(reason) => return silent(found, reason),
    };
    assert_eq!(gpus.len(), 1);
    let gpu = &gpus[0];
    let name = gpu.driver.clone().unwrap();
    let version = gpu.driver_version.clone().unwrap();
    found.put("gpu", gpu.index);
    found.or_none("market_name", gpu.market_name.clone());
    found.or_none("device_id", hexadecimal(gpu.device_id, 4));
    found.or_none("rev", hexadecimal(gpu.revision, 2));
    found.or_none("bdf", gpu.slot.clone());
    found.put("driver", format!("{name} {version}"));
    found.or_none("gfx", gpu.gfx.clone());
    found.or_none("cu", gpu.compute_units);
    found.or_none("vram_mb", gpu.vram_bytes.map(|bytes| bytes >> 20));
    // 0 in the text, which is unknown.
    found.seen("max_power", gpu.max_power_w.is_none());
    found.seen("max_power_w", gpu.max_power_w.is_none());
}

fn rocm(text: &str, found: &mut Found) {
    let gpus = match rocm_smi::parse(text) {
        Ok(gpus) => gpus,
        Err(reason) => return silent(found, reason),
    };
    let gpu = &gpus[0];
    found.put("gpus", gpus.len());
    found.or_none("vram_total_bytes", gpu.vram_total_bytes);
    found.or_none("vram_used_bytes", gpu.vram_used_bytes);
    found.or_none("series", gpu.series.clone());
    found.or_none("gfx", gpu.gfx.clone());
    found.or_none("device_id", hexadecimal(gpu.device_id, 4));
    found.or_none("guid", gpu.guid);
    found.or_none("temp_c", gpu.temperature_c);
    found.or_none("power_w", gpu.power_w);
    found.put("sclk", gpu.clocks[0].as_deref().unwrap_or("N/A"));
    found.put("mclk", gpu.clocks[1].as_deref().unwrap_or("N/A"));
    found.or_none("vram_percent", gpu.vram_percent);
    found.or_none("gpu_percent", gpu.busy_percent);
    found.seen("warning", rocm_smi::low_power(text));
}

fn runtime(text: &str, found: &mut Found) {
    let info = rocminfo::parse(text);
    found.or_none("runtime", info.runtime.clone());
    match (info.loaded, &info.module_version) {
        (Some(true), Some(version)) => found.put("rock_module", version),
        (Some(true), None) => found.put("rock_module", "loaded, version unknown"),
        _ => {}
    }
    let cut = if info.agents.is_empty() {
        " in this cut"
    } else {
        ""
    };
    found.put("agents", format!("{}{cut}", info.agents.len()));
    if let Some(cpu) = info.of_kind("CPU").next() {
        found.or_none("cpu_marketing", cpu.marketing_name.clone());
        found.or_none("device_type", cpu.kind.clone());
        found.or_none("cpu_pool_kb", cpu.memory_bytes().map(|bytes| bytes >> 10));
    }
    if let Some(gpu) = info.of_kind("GPU").next() {
        found.put("gpu_gfx", &gpu.name);
        found.or_none("gpu_marketing", gpu.marketing_name.clone());
        found.or_none("compute_units", gpu.compute_units);
        found.or_none("chip_id", gpu.chip_id.map(|id| format!("0x{id:04x}")));
        found.put("memory_properties", if gpu.integrated { "APU" } else { "" });
        found.or_none("gpu_pool_kb", gpu.memory_bytes().map(|bytes| bytes >> 10));
    }
    if let Some(npu) = info.of_kind("DSP").next() {
        found.put("npu", &npu.name);
    }
}

fn vulkan(text: &str, found: &mut Found) {
    let vulkan = vulkaninfo::parse(text);
    let gpus = vulkan.gpus();
    found.or_none("instance", vulkan.instance.clone());
    found.seen("warnings", vulkan.warnings.len() == 2);
    found.seen(
        "a device was skipped",
        vulkan.refused == ["/dev/dri/renderD128"],
    );
    let one = gpus.len() == 1 && vulkan.devices.len() == 2;
    found.seen("devices", one && gpus[0].driver.as_deref() == Some("radv"));
    if let Some(gpu) = gpus.first() {
        // The driver's name, in brackets, is a remark there.
        let name = gpu
            .name
            .as_deref()
            .and_then(|own| own.split_once(" (RADV "));
        found.or_none("gpu0", name.map(|(name, _)| name));
        found.or_none("mesa", gpu.mesa());
    }
    let drawn = vulkan
        .devices
        .get(1)
        .map(|own| own.kind.as_deref() == Some("CPU"));
    found.seen("gpu1", one && drawn == Some(true));
}

fn nvidia(file: &str, text: &str, found: &mut Found) {
    if let Some(reason) = nvidia_smi::silent(text) {
        silent(found, reason);
        found.or_none("nvml_library", nvidia_smi::library(text));
        found.put("gpus", "unknown, never 0");
        return;
    }
    if file.contains("query") {
        let fields = [
            "index",
            "name",
            "bus",
            "driver",
            "capability",
            "temperature",
            "state",
            "memory",
        ];
        let links = ["index", "bus", "generation", "now", "width", "width now"];
        let gpu = nvidia_smi::query(text, &fields).unwrap().remove(0);
        let link = nvidia_smi::query(text, &links).unwrap().remove(0);
        found.or_none("driver", gpu.get("driver"));
        found.or_none("compute_cap", gpu.get("capability"));
        found.or_none("bus", gpu.get("bus"));
        found.or_none("memory.total", gpu.get("memory"));
        found.put(
            "pcie gen max/current",
            format!("{}/{}", link["generation"], link["now"]),
        );
        found.put(
            "width max/current",
            format!("{}/{}", link["width"], link["width now"]),
        );
        return;
    }
    let table = nvidia_smi::table(text).unwrap();
    found.or_none("driver", table.driver);
    found.or_none("cuda", table.cuda);
    if let Some(gpu) = table.gpus.first() {
        found.put("gpu0", &gpu.name);
        found.put("bus", &gpu.bus);
        found.or_none("mem_total_mib", gpu.memory_total_mib);
        found.seen("mem", gpu.memory_used_mib.is_none());
        found.or_none("temp", gpu.temperature_c);
        found.or_none("power_w", gpu.power_w);
        found.seen("power_cap", gpu.power_cap_w.is_none());
    }
    let parts: Vec<_> = table
        .parts
        .iter()
        .map(|own| (own.gpu, own.instance, own.memory_used_mib))
        .collect();
    let right = parts == [(1, 3, Some(14_366)), (1, 5, Some(9826)), (1, 6, Some(13))];
    let size = table
        .parts
        .iter()
        .all(|own| own.memory_total_mib == Some(19_968));
    found.seen("gpu", right && size);
    let units = table.parts.first().and_then(|own| own.multiprocessors);
    found.put("sm", format!("{} each", units.unwrap_or_default()));
}

fn bus(text: &str, found: &mut Found) {
    let all = lspci::parse(text);
    let gpus: Vec<_> = all.iter().filter(|own| own.is_gpu()).collect();
    let id = |own: &lspci::Device| {
        format!(
            "{:04x}:{:04x}",
            own.vendor_id.unwrap(),
            own.device_id.unwrap()
        )
    };
    found.put("gpus", gpus.len());
    if let Some(gpu) = gpus.first() {
        found.put(
            "class",
            format!("{:04x} {}", gpu.class_id.unwrap(), gpu.class),
        );
        found.put("id", id(gpu));
        found.or_none("driver", gpu.driver.clone());
        let name = format!("[{}] rev {:x}", id(gpu), gpu.revision.unwrap());
        found.put("gpu", format!("Strix Halo {name}"));
        assert!(
            gpu.name.contains("] Strix Halo [") || !text.contains("Strix"),
            "{}",
            gpu.name
        );
        let slots: Vec<&str> = gpus.iter().map(|own| own.slot.as_str()).collect();
        found.put("addresses", slots.join(" and "));
    }
    if let Some(npu) = all
        .iter()
        .find(|own| own.driver.as_deref() == Some("amdxdna"))
    {
        found.put("npu", format!("{} driver amdxdna", id(npu)));
    }
    found.seen(
        "noise",
        text.starts_with("pcilib") && all[0].slot == "c1:00.0",
    );
    let hosts = all
        .iter()
        .filter(|own| own.driver.as_deref() == Some("thunderbolt"));
    found.put("usb4", format!("{} host routers", hosts.count()));
    let mut domains: Vec<_> = all.iter().filter_map(lspci::Device::domain).collect();
    domains.dedup();
    let domains: Vec<String> = domains.iter().map(|own| format!("{own:04x}")).collect();
    found.put("domains", domains.join(" and "));
}

fn modules(text: &str, found: &mut Found) {
    let all = lsmod::parse(text);
    let holders = all
        .iter()
        .map(|own| (own.name.as_str(), own.holders.as_slice()));
    found.or_none("live_module", gpu_memory::live_module(holders));
    let other = all.iter().find(|own| own.name == "ttm").unwrap();
    found.seen("ttm", other.holders == ["drm_ttm_helper"]);
}

fn built(text: &str, found: &mut Found) {
    let all = dkms::parse(text);
    let kernels: Vec<&str> = all.iter().filter_map(|own| own.kernel.as_deref()).collect();
    if let [one] = all.as_slice() {
        found.put("module", &one.name);
        found.put("version", &one.version);
        found.or_none("kernel", one.kernel.clone());
        found.or_none("arch", one.arch.clone());
        found.put("state", &one.state);
        return;
    }
    assert_eq!(all.len(), 5);
    found.put(
        &format!(
            "{} {} on {}",
            all[0].name,
            all[0].version,
            kernels[0].trim_end_matches("-generic")
        ),
        &all[0].state,
    );
    found.put(
        &format!("{} {}", all[1].name, all[1].version),
        &all[1].state,
    );
    let last = &all[2..];
    let warned = last
        .iter()
        .all(|own| own.state == "installed" && own.warning.is_some());
    found.seen(
        "dahdi on 3.2.0-24, -25, -26",
        warned && last.iter().all(|own| own.name == "dahdi"),
    );
}

fn log(text: &str, found: &mut Found) {
    let hints = kernel_log::hints(text);
    let first = |kind| hints.iter().find(|own: &&Hint| own.kind == kind);
    let subject = |kind| first(kind).and_then(|own| own.subject.clone());
    let mib = |kind| {
        first(kind)
            .and_then(|own| own.bytes)
            .map(|bytes| format!("{} MiB", bytes >> 20))
    };
    found.or_none("ignored_parameter", subject(HintKind::IgnoredParameter));
    found.or_none("deprecated", subject(HintKind::DeprecatedParameter));
    found.or_none("amdgpu_driver", subject(HintKind::DriverVersion));
    found.or_none("pci", hints.iter().find_map(|own| own.slot.clone()));
    found.or_none("vram_total", mib(HintKind::VramReady));
    found.or_none("gtt_total", mib(HintKind::GttReady));
    found.or_none("mes_error", subject(HintKind::SchedulerHang));
    found.or_none("gpu_reset_source", subject(HintKind::ResetBegun));
    found.or_none("reset_mode", subject(HintKind::ResetMode));
    found.or_none("reset_count", subject(HintKind::ResetDone));
    found.or_none("outcome", first(HintKind::ResetDone).map(|_| "succeeded"));
    found.or_none("ring", subject(HintKind::RingTimeout));
    let event = first(HintKind::RingTimeout).map(|_| "ring timeout".to_owned());
    found.or_none("event", event.or_else(|| subject(HintKind::NoMemory)));
    if let Some(failed) = first(HintKind::DriverFailed) {
        found.or_none(
            "gpu",
            failed.slot.clone().map(|slot| format!("{slot} dead")),
        );
        let file = subject(HintKind::MissingFirmware);
        assert_eq!(file.as_deref(), Some("amdgpu/arcturus_gpu_info.bin"));
    }
}

fn installed(text: &str, found: &mut Found) {
    for (name, version) in packages::parse(text) {
        found.put(&name, version);
    }
    let firmware = amdgpu_firmware::parse(text);
    for part in ["mes", "mes_kiq"] {
        found.or_none(
            part,
            firmware.get(part).map(|version| format!("0x{version:x}")),
        );
    }
}

fn containers(text: &str, found: &mut Found) {
    if text.contains("graphRoot") {
        let store = podman::parse(text);
        found.or_none("rootless", store.rootless());
        found.or_none("driver", store.driver.clone());
        found.or_none("free_bytes", store.free_bytes());
        found.or_none("images", store.images);
        return;
    }
    let docker = docker::parse(text);
    let has = docker.runtimes.iter().any(|own| own == "nvidia");
    found.put("nvidia_runtime", if has { "present" } else { "absent" });
    found.or_none("default_runtime", docker.default_runtime.clone());
    found.seen("cgroup", docker.cgroup == Some(2));
    found.seen("state", docker.refused == Some(Refused::Permission));
    // It is refused by something that runs.
    found.put(
        "daemon",
        if docker.refused == Some(Refused::NotRunning) {
            "stopped"
        } else {
            "running"
        },
    );
}

fn ports(text: &str, found: &mut Found) {
    let all = rdma::parse(text);
    let link = text.starts_with("link");
    let named = |active: bool, with: bool| {
        let own = all.iter().filter(|own| own.active == active);
        let names: Vec<String> = own
            .map(|own| {
                let interface = own.interface.as_deref().unwrap();
                match (link, with) {
                    (true, true) => format!("{}->{interface}", own.device),
                    (true, false) => own.device.clone(),
                    (false, _) => interface.to_owned(),
                }
            })
            .collect();
        names.join(", ")
    };
    found.put(if link { "active" } else { "up" }, named(true, true));
    found.put("down", named(false, false));
}

fn macos(text: &str, found: &mut Found) {
    let hardware = mac::hardware(text);
    found.or_none("model", hardware.model);
    found.or_none("identifier", hardware.identifier);
    found.or_none("chip", hardware.chip);
    found.or_none("cores", hardware.cores);
    found.or_none("perf", hardware.performance_cores);
    found.or_none("eff", hardware.efficiency_cores);
    found.or_none(
        "memory",
        hardware
            .memory_bytes
            .map(|bytes| format!("{} GB", bytes >> 30)),
    );
    found.or_none("mem_total_bytes", mac::sysctl(text, "hw.memsize"));
    found.or_none(
        "iogpu.wired_limit_mb",
        mac::sysctl(text, "iogpu.wired_limit_mb"),
    );
    if let Some(device) = llama::devices(text).first() {
        found.put(
            "metal_device",
            format!("{} {}", device.name, device.description),
        );
        found.put("device_total_mib", device.total_mib);
        found.put("device_free_mib", device.free_mib);
    }
}

/// A transcript of `cat` on files of sysfs, as the script's answer has them.
fn kernel(file: &str, text: &str, found: &mut Found) {
    if file.contains("pcie") {
        let link = pcie::parse(text);
        let shown = |speed: Option<f64>, lanes: Option<u32>| {
            format!("{} GT/s x{}", speed.unwrap(), lanes.unwrap())
        };
        found.put("current", shown(link.speed_gt, link.lanes));
        found.put("max", shown(link.max_speed_gt, link.max_lanes));
        return;
    }
    let mut answer = "\n#m gpu_memory\nasked\nmodule ttm\npage 4096\n".to_owned();
    if file.contains("pages-limit") {
        answer.push_str(&format!("pages_limit {text}"));
    }
    answer.push_str("\n#m gpus\ndrm\n");
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((card, name)) = line
            .strip_prefix("$ cat /sys/class/drm/")
            .and_then(|rest| rest.split_once("/device/mem_info_"))
        else {
            continue;
        };
        if !answer.contains("\ncard ") {
            answer.push_str(&format!("card {card}\n"));
        }
        let number = lines.next().unwrap();
        answer.push_str(&format!("{} {number}\n", name.split(' ').next().unwrap()));
    }
    answer.push_str("\n#m end\n");
    let facts = Facts::parse(&Sections::parse(&answer, "#m").unwrap());
    let pages = facts.gpu_memory.live().and_then(|own| own.pages_limit);
    found.or_none("pages_limit", pages);
    if let Some(gpu) = facts.gpus.iter().flatten().next() {
        found.put("card", &gpu.card);
        found.or_none("gtt_total_bytes", gpu.gtt_total_bytes);
        found.or_none("vram_total_bytes", gpu.vram_total_bytes);
    }
}
