//! What tools say of GPUs, packages, containers and ports. The fixture has a section for each answer.

use std::collections::BTreeMap;

use super::gpu_memory;
use super::script::Sections;
use super::tools::docker::Refused;
use super::tools::{
    Silent, amd_smi, amdgpu_firmware, dkms, docker, llama, lsmod, lspci, mac, nvidia_smi, packages,
    pcie, podman, rdma, rocm_smi, rocminfo, vulkaninfo,
};

fn tools() -> Sections<'static> {
    let text = include_str!("../../tests/fixtures/facts/gpu-tools.txt");
    Sections::parse(text, "#facts-fixture").unwrap()
}

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

#[test]
fn amd_smi_is_read_in_all_its_forms() {
    let read = |name: &str| amd_smi::parse(tools().get(name));
    let one = read("amd_smi_text").unwrap().remove(0);
    assert_eq!(
        (one.market_name, one.device_id, one.revision, one.slot),
        (
            text("Madeup3"),
            Some(0x15bf),
            Some(0xd5),
            text("0000:64:00.0")
        )
    );
    // 0 W is "not known".
    assert_eq!(
        (one.max_power_w, one.driver_version),
        (None, text("6.18.2-4-made"))
    );
    let bare = read("amd_smi_bare").unwrap().remove(0);
    assert_eq!(
        (
            bare.gfx,
            bare.compute_units,
            bare.vram_bytes,
            bare.max_power_w
        ),
        (text("gfx1151"), Some(36), Some(16 << 30), None)
    );
    assert_eq!(bare.slot, text("0000:c3:00.0"));
    let two = read("amd_smi_wrapped").unwrap();
    assert_eq!(
        (two[0].market_name.clone(), two[1].max_power_w),
        (text("Card A"), Some(280.0))
    );
    assert_eq!(read("amd_smi_no_driver"), Err(Silent::NoDriver));
    assert_eq!(
        amd_smi::parse("bash: amd-smi: command not found"),
        Err(Silent::Unreadable)
    );
    assert_eq!(amd_smi::parse("{\"gpu_data\": 3}"), Err(Silent::Unreadable));
}

#[test]
fn rocm_smi_without_a_driver_is_not_a_host_without_gpus() {
    let read = |name: &str| rocm_smi::parse(tools().get(name));
    let cards = read("rocm_smi_json").unwrap();
    assert_eq!(cards.len(), 2);
    assert_eq!(
        (cards[0].series.clone(), cards[0].device_id),
        (None, Some(0x1586))
    );
    assert_eq!(
        (
            cards[1].vram_total_bytes,
            cards[1].vram_used_bytes,
            cards[1].busy_percent
        ),
        (Some(17_163_091_968), Some(30_000_000), Some(7))
    );
    assert_eq!(
        (cards[1].gfx.clone(), cards[1].guid),
        (text("gfx1101"), Some(1234))
    );
    assert_eq!(read("rocm_smi_no_driver"), Err(Silent::NoDriver));
    assert_eq!(rocm_smi::parse(""), Err(Silent::Unreadable));
    let table = read("rocm_smi_table").unwrap();
    assert!(rocm_smi::low_power(tools().get("rocm_smi_table")));
    assert_eq!(
        (
            table[0].device_id,
            table[0].guid,
            table[0].temperature_c,
            table[0].power_w
        ),
        (Some(0x1586), Some(4711), Some(41.5), Some(11.25))
    );
    assert_eq!(
        (table[0].vram_percent, table[0].clocks.clone()),
        (Some(22), [None, None])
    );
    // The cap is in watts too, and stands behind what is drawn.
    assert_eq!(
        (
            table[1].power_w,
            table[1].clocks.clone(),
            table[1].busy_percent
        ),
        (Some(90.0), [text("2300Mhz"), text("1249Mhz")], Some(99))
    );
    let old = read("rocm_smi_old_table").unwrap();
    assert_eq!(
        (
            old[0].temperature_c,
            old[0].power_w,
            old[0].vram_percent,
            old[0].device_id
        ),
        (Some(35.0), Some(15.0), Some(5), None)
    );
}

#[test]
fn rocminfo_has_one_memory_for_several_pools() {
    let read = |name: &str| rocminfo::parse(tools().get(name));
    let halo = read("rocminfo_halo");
    assert_eq!(
        (
            halo.loaded,
            halo.module_version.clone(),
            halo.runtime.clone()
        ),
        (Some(true), text("6.14.9"), text("1.16"))
    );
    assert_eq!(halo.agents.len(), 3);
    let gpu = halo.of_kind("GPU").next().unwrap();
    assert_eq!(
        (gpu.name.as_str(), gpu.chip_id, gpu.compute_units),
        ("gfx1151", Some(0x1586), Some(32))
    );
    assert_eq!(
        (gpu.integrated, gpu.pools.len(), gpu.memory_bytes()),
        (true, 2, Some(60 << 30))
    );
    let cpu = halo.of_kind("CPU").next().unwrap();
    assert_eq!(
        (cpu.integrated, cpu.memory_bytes()),
        (false, Some(65_000_000 << 10))
    );
    assert_eq!(halo.of_kind("DSP").next().unwrap().name, "aie2");
    let sample = read("rocminfo_sample").agents.remove(0);
    assert_eq!(
        sample.marketing_name,
        text("AMD Eng Sample: 100-000000000-00_Z")
    );
    assert_eq!((sample.chip_id, sample.memory_bytes()), (None, None));
    let tree = read("rocminfo_in_tree");
    assert_eq!(
        (tree.loaded, tree.module_version, tree.refused),
        (Some(true), None, true)
    );
    assert_eq!(read("rocminfo_not_loaded").loaded, Some(false));
    assert_eq!(rocminfo::parse("").loaded, None);
}

#[test]
fn vulkan_has_each_gpu_once_and_the_processor_is_none() {
    let read = |name: &str| vulkaninfo::parse(tools().get(name));
    let twice = read("vulkan_two_drivers");
    assert_eq!((twice.devices.len(), twice.gpus().len()), (2, 1));
    let gpu = twice.gpus()[0];
    assert_eq!(
        (gpu.driver.as_deref(), gpu.mesa(), gpu.device_id),
        (Some("radv"), Some("24.0.1"), Some(0x15bf))
    );
    let drawn = read("vulkan_processor");
    let names: Vec<_> = drawn.gpus().iter().map(|own| own.name.clone()).collect();
    assert_eq!(names, [text("Card One (RADV NAVI33)")]);
    let refused = read("vulkan_refused");
    assert_eq!(refused.instance, text("1.4.321"));
    assert_eq!(
        (refused.warnings.len(), refused.refused.clone()),
        (2, vec!["/dev/dri/renderD129".to_owned()])
    );
}

#[test]
fn nvidia_smi_is_read_in_all_its_forms() {
    let read = |name: &str| nvidia_smi::table(tools().get(name));
    let table = read("nvidia_table").unwrap();
    assert_eq!(
        (table.driver, table.cuda),
        (text("580.99.01"), text("13.0"))
    );
    assert_eq!(table.gpus.len(), 2);
    let (small, large) = (&table.gpus[0], &table.gpus[1]);
    assert_eq!(
        (small.name.as_str(), small.bus.as_str()),
        ("NVIDIA GB10", "0000000F:01:00.0")
    );
    assert_eq!(
        (
            small.memory_total_mib,
            small.temperature_c,
            small.power_w,
            small.power_cap_w
        ),
        (None, Some(41.0), Some(4.0), None)
    );
    assert_eq!(
        (
            large.memory_used_mib,
            large.memory_total_mib,
            large.power_w,
            large.power_cap_w
        ),
        (Some(1024), Some(49_140), Some(120.0), Some(300.0))
    );
    assert!(table.parts.is_empty());
    let parts = read("nvidia_parts").unwrap().parts;
    let shown: Vec<_> = parts
        .iter()
        .map(|own| {
            (
                own.gpu,
                own.instance,
                own.memory_used_mib,
                own.memory_total_mib,
                own.multiprocessors,
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            (0, 7, Some(1000), Some(9856), Some(14)),
            (2, 9, Some(11), Some(9856), Some(14))
        ]
    );
    assert_eq!(read("nvidia_mismatch"), Err(Silent::Mismatch));
    assert_eq!(
        nvidia_smi::library(tools().get("nvidia_mismatch")),
        Some("575.64")
    );
    assert_eq!(read("nvidia_failed"), Err(Silent::NoDriver));
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
    let rows = nvidia_smi::query(tools().get("nvidia_query"), &fields).unwrap();
    assert_eq!(
        (rows[0].get("memory"), rows[1].get("memory")),
        (None, Some(&"49140".to_owned()))
    );
    assert_eq!(
        rows[1].get("temperature"),
        Some(&"[Unknown Error]".to_owned())
    );
    assert_eq!(
        nvidia_smi::query("No devices were found\n", &fields),
        Ok(Vec::new())
    );
    let unknown = nvidia_smi::query("Field \"x\" is not a valid field to query.\n", &fields);
    assert_eq!(unknown, Err(Silent::Unreadable));
    assert_eq!(nvidia_smi::slot("0000000F:01:00.0"), text("000f:01:00.0"));
    assert_eq!(nvidia_smi::slot("what"), None);
}

#[test]
fn devices_on_the_bus_and_their_modules_are_read() {
    let read = |name: &str| lspci::parse(tools().get(name));
    let halo = read("lspci_drivers");
    assert_eq!(halo.len(), 3);
    let gpu = halo.iter().find(|own| own.is_gpu()).unwrap();
    assert_eq!(
        (gpu.class.as_str(), gpu.class_id, gpu.slot.as_str()),
        ("Display controller", Some(0x0380), "c6:00.0")
    );
    assert_eq!(
        (gpu.vendor_id, gpu.device_id, gpu.revision),
        (Some(0x1002), Some(0x1586), Some(0xc1))
    );
    assert_eq!(
        gpu.name,
        "Advanced Micro Devices, Inc. [AMD/ATI] Made Up Halo [A / B]"
    );
    assert_eq!(
        (halo[0].driver.clone(), halo[2].driver.clone()),
        (text("r8169"), text("amdxdna"))
    );
    assert_eq!(
        read("lspci_cards")
            .iter()
            .filter(|own| own.is_gpu())
            .count(),
        2
    );
    let plain = read("lspci_plain");
    let domains: Vec<_> = plain.iter().map(lspci::Device::domain).collect();
    assert_eq!(domains, [Some(0), Some(2), Some(15)]);
    assert!(plain[2].is_gpu() && plain[2].revision == Some(0xa1));
    assert_eq!(
        (plain[0].device_id, plain[0].name.as_str()),
        (None, "Made Up Technologies MT2910 Family [Connect-0]")
    );

    let modules = lsmod::parse(tools().get("lsmod"));
    assert_eq!(modules.len(), 5);
    assert_eq!(modules[1].holders, ["amdgpu", "amddrm_ttm_helper"]);
    let all = modules
        .iter()
        .map(|own| (own.name.as_str(), own.holders.as_slice()));
    assert_eq!(gpu_memory::live_module(all), Some("amdttm"));
    assert!(modules[4].holders.is_empty());

    let link = pcie::parse(tools().get("pcie"));
    assert_eq!((link.speed_gt, link.lanes), (Some(16.0), Some(8)));
    assert_eq!((link.max_speed_gt, link.max_lanes), (Some(32.0), Some(16)));
}

#[test]
fn dkms_is_read_in_its_new_form_and_in_its_old() {
    let new = dkms::parse(tools().get("dkms_new"));
    assert_eq!(new.len(), 3);
    assert_eq!(
        (new[0].version.as_str(), new[0].kernel.clone()),
        ("6.14.9-2111111.24.04", text("6.17.0-1012-oem"))
    );
    assert_eq!(
        (new[0].warning.clone(), new[1].arch.clone()),
        (None, text("aarch64"))
    );
    assert_eq!(
        new[1].warning,
        text("Diff between built and installed module!")
    );
    assert_eq!(
        (
            new[2].name.as_str(),
            new[2].state.as_str(),
            new[2].kernel.clone()
        ),
        ("made-up", "added", None)
    );
    let old = dkms::parse(tools().get("dkms_old"));
    let shown: Vec<_> = old
        .iter()
        .map(|own| (own.name.as_str(), own.version.as_str(), own.state.as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            ("firefly", "0.70-2", "built"),
            ("snapshot", "0.9", "added"),
            ("card", "2.4+dfsg-1", "installed")
        ]
    );
    assert_eq!(
        old[2].warning,
        text("Diff between built and installed module!")
    );
    assert!(dkms::parse("Error! made/1.0: Missing the module source\n").is_empty());
}

#[test]
fn packages_are_read_from_every_manager_and_from_whole_transcripts() {
    let read = |name: &str| packages::parse(tools().get(name));
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    };
    assert_eq!(
        read("packages_debian"),
        map(&[
            ("amdgpu-dkms", "1:6.14.9.30200000-2111111.24.04"),
            ("amdrocm-core10.1", "10.1.0-2"),
            ("libdrm-amdgpu1", "2.4.120-2made1"),
        ])
    );
    assert_eq!(
        read("packages_fedora"),
        map(&[
            ("linux-firmware", "20260219-1.fc43"),
            ("amd-gpu-firmware", "20260219-1.fc43"),
            ("perl-Made-Up", "0.1-2.fc43"),
        ])
    );
    assert_eq!(
        read("packages_arch"),
        map(&[
            ("linux-firmware-amdgpu", "20260219-1"),
            ("mesa", "1:26.0.1-2")
        ])
    );
    let firmware = amdgpu_firmware::parse(tools().get("amdgpu_firmware"));
    assert_eq!(
        (firmware.get("mes"), firmware.get("mes_kiq")),
        (Some(&0x83), Some(&0x6c))
    );
    assert_eq!(
        (firmware.get("ta_xgmi"), firmware.get("smc")),
        (Some(&0x2000_0016), Some(&0x64_1e00))
    );
    assert_eq!((firmware.len(), firmware.get("vce")), (5, None));
}

#[test]
fn docker_and_podman_are_read_with_their_refusals() {
    let read = |name: &str| docker::parse(tools().get(name));
    let info = read("docker_info");
    // The service's version, not the program's.
    assert_eq!(
        (info.version, info.default_runtime),
        (text("28.5.1"), text("nvidia"))
    );
    assert_eq!(
        (info.cgroup, info.rootless, info.refused),
        (Some(2), Some(true), None)
    );
    assert_eq!(info.runtimes, ["io.containerd.runc.v2", "nvidia", "runc"]);
    assert_eq!(
        read("docker_old_refusal").refused,
        Some(Refused::Permission)
    );
    assert_eq!(read("docker_stopped").refused, Some(Refused::NotRunning));
    let store = podman::parse(tools().get("podman_info"));
    assert_eq!(
        (store.free_bytes(), store.images, store.rootless()),
        (Some(380_000_000_000), Some(9), Some(true))
    );
    assert_eq!(store.driver, text("overlay"));
    assert_eq!(podman::parse("").free_bytes(), None);
    let devices = llama::devices(tools().get("llama_devices"));
    assert_eq!(
        (devices[0].name.as_str(), devices[0].free_mib),
        ("MTL0", 40_959)
    );
    assert_eq!(
        (devices[1].description.as_str(), devices[1].total_mib),
        ("AMD Radeon (Graphics)", 62_000)
    );
}

#[test]
fn ports_are_read_from_either_tool() {
    let links = rdma::parse(tools().get("rdma_link"));
    let shown: Vec<_> = links
        .iter()
        .map(|own| {
            (
                own.device.as_str(),
                own.port,
                own.active,
                own.interface.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("mlx5_0", 1, false, Some("enp1s0f0np0")),
            ("mlx5_1", 2, true, Some("enp1s0f1np1")),
            ("irdma0", 1, false, None),
        ]
    );
    let netdev = rdma::parse(tools().get("ibdev2netdev"));
    assert_eq!((netdev[0].active, netdev[1].active), (true, false));
    assert_eq!(netdev[1].interface, text("enp9s0f0"));
}

#[test]
fn a_mac_is_read_whole_or_in_parts_and_a_setting_by_its_new_value() {
    let small = mac::hardware(tools().get("mac_small"));
    assert_eq!(
        (
            small.model,
            small.identifier,
            small.cores,
            small.memory_bytes
        ),
        (text("Mac mini"), text("Mac16,11"), None, Some(48 << 30))
    );
    let large = mac::hardware(tools().get("mac_cores"));
    assert_eq!(
        (
            large.cores,
            large.performance_cores,
            large.efficiency_cores,
            large.memory_bytes
        ),
        (Some(28), Some(20), Some(8), Some(1 << 40))
    );
    let limit = |name| mac::sysctl(tools().get(name), "iogpu.wired_limit_mb");
    assert_eq!(
        (limit("sysctl_set"), limit("sysctl_default")),
        (Some(40_960), Some(0))
    );
}

#[test]
fn a_build_is_told_behind_what_it_says_of_devices() {
    assert_eq!(
        llama::build(tools().get("llama_version")).version,
        text("6789")
    );
    assert_eq!(
        llama::build(tools().get("ollama_version")).version,
        text("0.12.3")
    );
}

/// Every one of them; what they find is looked at elsewhere.
pub(super) fn every_parser(text: &str) {
    let _ = amd_smi::parse(text);
    let _ = rocm_smi::parse(text);
    rocm_smi::low_power(text);
    for agent in rocminfo::parse(text).agents {
        agent.memory_bytes();
    }
    for gpu in vulkaninfo::parse(text).gpus() {
        gpu.mesa();
    }
    let _ = nvidia_smi::table(text);
    let _ = nvidia_smi::query(text, &["a", "b"]);
    nvidia_smi::slot(text);
    nvidia_smi::library(text);
    for device in lspci::parse(text) {
        device.is_gpu();
        device.domain();
    }
    lsmod::parse(text);
    dkms::parse(text);
    packages::parse(text);
    amdgpu_firmware::parse(text);
    docker::parse(text);
    podman::parse(text).free_bytes();
    podman::parse(text).rootless();
    rdma::parse(text);
    mac::hardware(text);
    mac::sysctl(text, "a");
    llama::build(text);
    llama::devices(text);
    pcie::parse(text);
}
