//! GPUs, their drivers, firmware and memory, and what is there to use them: from answers of hosts, and
//! from what tools say. The fixtures have a section for each answer.

use std::collections::BTreeMap;

use super::kernel_log::hints;
use super::tools::docker::Refused;
use super::tools::{
    Silent, amd_smi, amdgpu_firmware, dkms, docker, llama, lsmod, lspci, mac, nvidia_smi, packages,
    pcie, podman, rdma as rdma_tools, rocm_smi, rocminfo, vulkaninfo,
};
use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../tests/fixtures/facts/", $name, ".txt"))
    };
}

fn sections(text: &str) -> Sections<'_> {
    Sections::parse(text, "#facts-fixture").unwrap()
}

fn tools() -> Sections<'static> {
    sections(fixture!("gpu-tools"))
}

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

fn halo() -> Facts {
    Facts::parse(&sections(fixture!("halo-gpu")))
}

fn spark() -> Facts {
    Facts::parse(&sections(fixture!("spark-gpu")))
}

#[test]
fn of_two_memory_modules_the_one_that_amdgpu_uses_counts() {
    let memory = halo().gpu_memory;
    assert_eq!(memory.module, text("amdttm"));
    // 28835840 and 1048576 pages of 4096.
    assert_eq!(memory.limit_bytes(), Some(118_111_600_640));
    assert_eq!(memory.pool_bytes(), Some(4_294_967_296));
    assert_eq!(memory.gttsize_mib, Some(-1));
    assert_eq!(memory.modules.as_ref().unwrap().len(), 2);

    let live = |modules: &[(&str, &[&str])]| {
        let owned: Vec<(&str, Vec<String>)> = modules
            .iter()
            .map(|(name, holders)| (*name, holders.iter().map(|own| (*own).to_owned()).collect()))
            .collect();
        let all = owned.iter().map(|(name, own)| (*name, own.as_slice()));
        gpu_memory::live_module(all).map(str::to_owned)
    };
    assert_eq!(live(&[("ttm", &["drm_ttm_helper"])]), text("ttm"));
    assert_eq!(live(&[("ttm", &["amdgpu"]), ("amdttm", &[])]), text("ttm"));
    // Neither says who uses it: unknown, not a guess.
    assert_eq!(live(&[("ttm", &[]), ("amdttm", &["amdkcl"])]), None);
    assert_eq!(live(&[("amdgpu", &[]), ("drm", &["amdgpu"])]), None);

    let none = spark().gpu_memory;
    assert_eq!(
        (none.modules.clone(), none.limit_bytes()),
        (Some(Vec::new()), None)
    );
    assert_eq!(Facts::default().gpu_memory.modules, None);
}

#[test]
fn the_pools_of_a_gpu_are_never_added_up_and_main_memory_caps_them() {
    const GIB: u64 = 1 << 30;
    let ram = Some(120 * GIB);
    let gpu = |vendor, integrated, vram: Option<u64>, gtt: Option<u64>| Gpu {
        vendor_id: Some(vendor),
        integrated,
        vram_total_bytes: vram.map(|gib| gib * GIB),
        gtt_total_bytes: gtt.map(|gib| gib * GIB),
        ..Gpu::default()
    };
    let limited = |gib: u64| GpuMemory {
        module: text("ttm"),
        modules: Some(vec![gpu_memory::Module {
            name: "ttm".into(),
            pages_limit: Some(gib * GIB / 4096),
            ..gpu_memory::Module::default()
        }]),
        page_bytes: Some(4096),
        ..GpuMemory::default()
    };
    let free = GpuMemory::default();
    let (amd, nvidia, intel) = (0x1002, 0x10de, 0x8086);
    for (gpu, memory, ram, wanted) in [
        (
            gpu(amd, Some(true), Some(1), Some(96)),
            &free,
            ram,
            Some(96),
        ),
        // What the firmware set aside, or the rest: whichever is more.
        (
            gpu(amd, Some(true), Some(96), Some(15)),
            &free,
            Some(31 * GIB),
            Some(96),
        ),
        (
            gpu(amd, Some(true), Some(64), Some(64)),
            &free,
            Some(62 * GIB),
            Some(64),
        ),
        // The kernel was told more than there is.
        (
            gpu(amd, Some(true), Some(1), Some(200)),
            &free,
            ram,
            Some(120),
        ),
        (
            gpu(amd, Some(true), Some(1), Some(110)),
            &limited(60),
            ram,
            Some(60),
        ),
        (
            gpu(amd, Some(true), Some(1), Some(60)),
            &limited(110),
            ram,
            Some(60),
        ),
        (gpu(amd, Some(true), None, Some(60)), &free, ram, None),
        (gpu(amd, Some(true), Some(1), None), &limited(60), ram, None),
        (gpu(amd, Some(true), Some(1), Some(60)), &free, None, None),
        // A card's own memory; main memory behind the bus does not count.
        (
            gpu(amd, Some(false), Some(24), Some(60)),
            &free,
            ram,
            Some(24),
        ),
        (gpu(amd, None, Some(24), Some(60)), &free, ram, None),
        (
            gpu(nvidia, Some(false), Some(48), None),
            &free,
            ram,
            Some(48),
        ),
        (gpu(nvidia, Some(true), None, None), &free, ram, Some(120)),
        (gpu(nvidia, None, None, None), &free, ram, None),
        (gpu(intel, Some(true), Some(1), Some(2)), &free, ram, None),
    ] {
        let usable = gpu_memory::usable_gpu_bytes(&gpu, memory, ram);
        assert_eq!(usable, wanted.map(|gib| gib * GIB), "{gpu:?}");
    }
    // 128849018880 bytes were asked for, amdttm allows 118111600640 of 128000000000.
    assert_eq!(halo().gpus.unwrap()[0].usable_bytes, Some(118_111_600_640));
}

#[test]
fn a_gpu_is_told_by_its_graphics_core_without_a_tool() {
    let gpu = halo().gpus.unwrap().remove(0);
    assert_eq!(
        (gpu.architecture, gpu.integrated),
        (text("gfx1151"), Some(true))
    );
    for (lines, architecture, integrated) in [
        (
            "vendor 0x1002\ngc_major 9\ngc_minor 0\ngc_revision 10\n",
            text("gfx90a"),
            Some(false),
        ),
        (
            "vendor 0x1002\ngc_major 11\ngc_minor 0\ngc_revision 0\n",
            text("gfx1100"),
            Some(false),
        ),
        (
            "vendor 0x1002\ngc_major 11\ngc_minor 0\ngc_revision 1\n",
            text("gfx1101"),
            Some(true),
        ),
        ("vendor 0x1002\ndevice 0x1586\n", None, Some(true)),
        ("vendor 0x1002\ndevice 0x744c\n", None, None),
        ("vendor 0x8086\ndevice 0x1586\n", None, None),
    ] {
        let answer =
            format!("\n#facts-fixture gpus\ndrm\ncard card0\n{lines}\n#facts-fixture end\n");
        let gpu = Facts::parse(&sections(&answer)).gpus.unwrap().remove(0);
        assert_eq!(
            (gpu.architecture, gpu.integrated),
            (architecture, integrated),
            "{lines}"
        );
    }
}

#[test]
fn nvidias_tool_adds_what_the_kernel_does_not_show() {
    let gpus = spark().gpus.unwrap();
    let of = |gpu: &Gpu| {
        (
            gpu.product.clone().unwrap(),
            gpu.architecture.clone().unwrap(),
            gpu.integrated,
            gpu.split,
            gpu.usable_bytes,
        )
    };
    // No memory of its own: main memory, 125000000 kB of it.
    assert_eq!(
        of(&gpus[0]),
        (
            "NVIDIA GB10".into(),
            "12.1".into(),
            Some(true),
            Some(false),
            Some(128_000_000_000)
        )
    );
    assert_eq!(
        of(&gpus[1]),
        (
            "NVIDIA Made Up 4090".into(),
            "8.9".into(),
            Some(false),
            Some(true),
            Some(25_757_220_864)
        )
    );
    // A fault is not "no memory of its own".
    assert_eq!((gpus[2].integrated, gpus[2].usable_bytes), (None, None));
    // Names are the kernel's, so that a tool that is missing on one host makes no difference.
    assert_eq!(gpus[0].name(), "NVIDIA 2e12 (nvidia)");
}

#[test]
fn drivers_tell_whether_they_came_with_the_kernel() {
    let drivers = halo().drivers;
    let amdgpu = drivers.loaded("amdgpu").unwrap();
    assert_eq!(
        (amdgpu.version.clone(), amdgpu.out_of_tree),
        (text("6.16.6"), Some(true))
    );
    let npu = drivers.loaded("amdxdna").unwrap();
    assert_eq!((npu.version.clone(), npu.out_of_tree), (None, Some(false)));
    let built = &drivers.built.as_ref().unwrap()[0];
    assert_eq!(
        (built.name.as_str(), built.state.as_str()),
        ("amdgpu", "installed")
    );
    assert_eq!(drivers.nvidia, None);

    let spark = spark().drivers;
    let nvidia = spark.nvidia.unwrap();
    assert_eq!((nvidia.version.as_str(), nvidia.open), ("580.99.01", true));
    assert_eq!(spark.built, None);
    let old = "\n#facts-fixture drivers\nasked\nnvidia NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1.2  Sat\n\n#facts-fixture end\n";
    let old = Facts::parse(&sections(old)).drivers;
    assert!(!old.nvidia.unwrap().open && old.loaded == Some(Vec::new()));
    assert_eq!(Facts::default().drivers.loaded, None);
}

#[test]
fn firmware_that_is_loaded_is_told_apart_from_what_is_installed() {
    let firmware = halo().firmware;
    let packages = firmware.packages.unwrap();
    let names: Vec<&str> = packages.keys().map(String::as_str).collect();
    assert_eq!(names, ["amdgpu-dkms-firmware", "linux-firmware"]);
    // Of one GPU, however many folders it has.
    let loaded = firmware.loaded.unwrap();
    assert_eq!(
        (loaded.len(), loaded[0].slot.clone()),
        (1, text("0000:c3:00.0"))
    );
    let versions = &loaded[0].versions;
    assert_eq!(versions.get("mes"), Some(&0x80));
    assert_eq!(
        (versions.get("mes_kiq"), versions.get("smc")),
        (Some(&0x6f), Some(&0x64_1e00))
    );
    // 0 is none.
    assert!(!versions.contains_key("uvd"));
    let unknown = spark().firmware;
    assert_eq!((unknown.packages, unknown.loaded), (None, None));
}

#[test]
fn software_is_read_from_files_first_and_packages_then() {
    let software = halo().software;
    assert_eq!(
        (software.rocm, software.cuda),
        (text("7.1.1-38"), text("12.1.0"))
    );
    assert_eq!(software.mesa, text("25.2.8-0ubuntu0.24.04.2"));
    assert_eq!(software.vulkan, text("1.3.275.0-1build1"));
    assert_eq!(software.vulkan_drivers.unwrap(), ["radeon_icd", "lvp_icd"]);
    assert!(!software.packages.unwrap().contains_key("linux-firmware"));

    let software = spark().software;
    assert_eq!((software.rocm, software.cuda), (None, text("13.0.2")));
    assert_eq!((software.mesa, software.packages), (None, None));

    let of = |lines: &str| {
        let answer = format!("\n#facts-fixture {lines}\n#facts-fixture end\n");
        Facts::parse(&sections(&answer)).software
    };
    assert_eq!(
        of("named_packages\ninstalled amdrocm-core10.1 10.1.0-2\n").rocm,
        text("10.1.0-2")
    );
    assert_eq!(
        of("named_packages\ninstalled hsa-rocr 6.4\ninstalled rocm-core 6.4.1\n").rocm,
        text("6.4.1")
    );
    assert_eq!(
        of("software\nasked\nvulkan_loader libvulkan.so.1.4.304\n").vulkan,
        text("1.4.304")
    );
    assert_eq!(of("software\nasked\ncuda {\ncuda broken\n").cuda, None);
}

#[test]
fn container_engines_tell_what_they_can_do_and_why_not() {
    let halo = halo().containers.unwrap();
    let [docker, podman] = halo.as_slice() else {
        panic!("{halo:?}")
    };
    assert_eq!(
        (docker.version.clone(), docker.reachable),
        (text("28.9.9"), Some(false))
    );
    assert_eq!(docker.refused, text("permission denied on its socket"));
    // What only the service knows is unknown.
    assert_eq!(
        (docker.nvidia, docker.rootless, docker.store.clone()),
        (None, None, None)
    );
    assert_eq!(
        (podman.version.clone(), podman.reachable),
        (text("5.4.2"), Some(true))
    );
    assert_eq!((podman.rootless, podman.nvidia), (Some(true), Some(false)));
    // 250000000 times 1024.
    assert_eq!(podman.store_free_bytes, Some(256_000_000_000));

    let spark = spark().containers.unwrap();
    assert_eq!(spark.len(), 1);
    assert_eq!(
        (
            spark[0].version.clone(),
            spark[0].reachable,
            spark[0].nvidia
        ),
        (text("28.5.0"), Some(true), Some(true))
    );
    assert_eq!(spark[0].default_runtime, text("runc"));
    assert_eq!(
        (spark[0].store.clone(), spark[0].store_free_bytes),
        (text("/var/lib/docker"), Some(614_400_000_000))
    );
    let stopped = "\n#facts-fixture containers\nasked\nengine docker\nDocker version 20.1.0, build x\nstopped\n\n#facts-fixture end\n";
    let stopped = Facts::parse(&sections(stopped)).containers.unwrap();
    assert_eq!(stopped[0].refused, text("its service does not run"));
    assert_eq!(Facts::default().containers, None);
}

#[test]
fn builds_of_engines_have_their_commit_where_they_tell_it() {
    let engines = halo().engines.unwrap();
    let shown: Vec<_> = engines
        .iter()
        .map(|own| {
            (
                own.name.as_str(),
                own.version.as_deref(),
                own.commit.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("llama-server", Some("6789"), Some("0a1b2c3d")),
            ("rpc-server", None, None),
            ("ollama", Some("0.12.3"), None),
        ]
    );
    assert_eq!(engines[1].path, text("/opt/llama/rpc-server"));
    assert_eq!(spark().engines, Some(Vec::new()));
    assert_eq!(
        llama::build(tools().get("llama_version")).version,
        text("6789")
    );
    assert_eq!(
        llama::build(tools().get("ollama_version")).version,
        text("0.12.3")
    );
}

#[test]
fn ports_for_rdma_have_state_and_interface() {
    let ports = spark().rdma.unwrap();
    let of = |port: &RdmaPort| (port.active(), port.gigabits, port.interface.clone());
    assert_eq!(
        of(&ports[0]),
        (Some(false), Some(40.0), text("enp1s0f0np0"))
    );
    assert_eq!(
        of(&ports[1]),
        (Some(true), Some(200.0), text("enp1s0f1np1"))
    );
    assert_eq!(
        (
            ports[1].physical_state.clone(),
            ports[1].port,
            ports[1].firmware_version.clone()
        ),
        (text("linkup"), Some(1), text("28.45.4028"))
    );
    // Two interfaces on one device: which is the port's is unknown.
    assert_eq!(of(&ports[2]), (Some(true), None, None));
    assert_eq!(
        (halo().rdma, Facts::default().rdma),
        (Some(Vec::new()), None)
    );

    let links = rdma_tools::parse(tools().get("rdma_link"));
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
    let netdev = rdma_tools::parse(tools().get("ibdev2netdev"));
    assert_eq!((netdev[0].active, netdev[1].active), (true, false));
    assert_eq!(netdev[1].interface, text("enp9s0f0"));
}

#[test]
fn lines_of_the_kernels_log_are_told_by_kind() {
    use HintKind as Kind;
    let log = sections(fixture!("gpu-log"));
    let shown = |name: &str| -> Vec<(Kind, Option<String>)> {
        hints(log.get(name))
            .into_iter()
            .map(|own| (own.kind, own.subject))
            .collect()
    };
    assert_eq!(
        shown("dmesg"),
        [
            (Kind::IgnoredParameter, text("gtt_size")),
            (Kind::DriverVersion, text("6.14.9")),
            (Kind::DeprecatedParameter, text("gttsize")),
            (Kind::VramReady, None),
            (Kind::GttReady, None),
            (Kind::SchedulerHang, text("ADD_QUEUE")),
            (Kind::ResetBegun, text("1")),
            (Kind::ResetMode, text("MODE2")),
            (Kind::ResetDone, text("2")),
            (Kind::ResetFailed, text("3")),
            (Kind::Xid, text("79")),
        ]
    );
    let dmesg = hints(log.get("dmesg"));
    assert_eq!(
        (dmesg[2].slot.clone(), dmesg[2].seconds),
        (text("0000:c3:00.0"), Some(3.7))
    );
    // 65536 and 63000 MiB.
    assert_eq!(
        (dmesg[3].bytes, dmesg[4].bytes),
        (Some(68_719_476_736), Some(66_060_288_000))
    );
    assert_eq!(
        shown("journal"),
        [(Kind::RingTimeout, text("sdma0")), (Kind::ResetBegun, None)]
    );
    let journal = hints(log.get("journal"));
    assert_eq!(
        (journal[1].slot.clone(), journal[1].seconds),
        (text("0000:2d:00.0"), None)
    );
    assert_eq!(journal[1].text, "amdgpu 0000:2d:00.0: GPU reset begin!");
    assert_eq!(
        shown("bare"),
        [
            (Kind::MissingFirmware, text("amdgpu/made_up_info.bin")),
            (Kind::MissingFirmware, text("amdgpu/made_up_info.bin")),
            (Kind::DriverFailed, None),
            (Kind::NoMemory, text("NV_ERR_NO_MEMORY")),
        ]
    );
    assert_eq!(
        shown("monotonic"),
        [
            (Kind::GttReady, None),
            (Kind::RingTimeout, text("gfx_0.0.0"))
        ]
    );
    assert_eq!(halo().kernel_log.unwrap().len(), 1);
    // The login may not see it, which is not "nothing was said".
    assert_eq!(spark().kernel_log, None);
}

#[test]
fn a_mac_has_its_gpu_in_its_chip_and_its_limit_only_when_set() {
    let answer = |limit: &str| {
        let answer = format!(
            "\n#facts-fixture uname\nDarwin\n25.2.0\narm64\n\n#facts-fixture sysctl\nhw.memsize: 68719476736\n\
             hw.physicalcpu: 14\nhw.ncpu: 14\nhw.perflevel0.physicalcpu: 10\nhw.perflevel1.physicalcpu: 4\n\
             machdep.cpu.brand_string: Apple M9 Max\niogpu.wired_limit_mb: {limit}\n\n#facts-fixture ioreg\n\
             \x20 \"gpu-core-count\" = 32\n\n#facts-fixture end\n"
        );
        Facts::parse(&sections(&answer))
    };
    let facts = answer("0");
    assert_eq!(
        (
            facts.cpu.cores,
            facts.cpu.performance_cores,
            facts.cpu.efficiency_cores
        ),
        (Some(14), Some(10), Some(4))
    );
    assert_eq!(facts.gpu_memory.wired_limit_mib, Some(0));
    let gpu = &facts.gpus.as_ref().unwrap()[0];
    assert_eq!(
        (gpu.cores, gpu.integrated, gpu.name()),
        (Some(32), Some(true), "Apple M9 Max".into())
    );
    // 0 leaves it to the system, which is not zero memory.
    assert_eq!(gpu.usable_bytes, None);
    let usable = |limit| answer(limit).gpus.unwrap()[0].usable_bytes;
    assert_eq!(usable("49152"), Some(48 << 30));
    assert_eq!((usable("999999"), usable("x")), (Some(64 << 30), None));

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

proptest::proptest! {
    #[test]
    fn no_text_makes_a_parser_of_gpus_panic(text in "(?s).{0,400}") {
        every_parser(&text);
    }

    #[test]
    fn no_lines_of_known_words_make_a_parser_of_gpus_panic(
        lines in proptest::collection::vec(
            "(GPU: 0|GPU0:|GPU:|\\||\\| +[0-9]|\\[|\\{|\\}|\"gpu_data\":|\"card0\":|Agent 1|  Name:|      Size:|      Segment: GLOBAL|ROCk module|VRAM%|GPU%|0x|WARNING: |Permission denied|'/dev/|deviceName|=|MiB|/|c6:00\\.0|\\(rev |\\]|\\)|, x86_64: installed|\\(WARNING! |ii|feature version:|firmware version:|store:|graphRootUsed:|link a/1|==>|Total Number of Cores:|->|card card1|gc_major|module ttm|holder|pages_limit|port|engine docker|engine podman|loaded card1|dev=|kernel: |amdgpu|ring| timeout|GPU reset\\(|\\[ 1\\.0\\]|M of GTT memory ready| |\\t|-|é|[0-9a-zA-Z./=,%°]{1,9}){0,12}",
            0..16,
        )
    ) {
        every_parser(&lines.join("\n"));
    }

    #[test]
    fn damaged_answers_about_gpus_make_no_parser_panic(at in 0_usize..13000, byte in 0_u8..=255) {
        for text in [fixture!("gpu-tools"), fixture!("gpu-log"), fixture!("halo-gpu"), fixture!("spark-gpu")] {
            let mut bytes = text.as_bytes().to_vec();
            if let Some(slot) = bytes.get_mut(at) {
                *slot = byte;
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            every_parser(&text);
            if let Ok(sections) = Sections::parse(&text, "#facts-fixture") {
                Facts::parse(&sections);
            }
        }
    }
}

fn every_parser(text: &str) {
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
    rdma_tools::parse(text);
    mac::hardware(text);
    mac::sysctl(text, "a");
    llama::build(text);
    llama::devices(text);
    pcie::parse(text);
    hints(text);
    let names = [
        "gpus",
        "gpu_memory",
        "drivers",
        "dkms",
        "firmware",
        "named_packages",
        "software",
        "containers",
        "engines",
        "kernel_log",
        "rdma",
        "nvidia_smi",
        "sysctl",
        "ioreg",
        "memory",
    ];
    for system in ["Linux", "Darwin"] {
        for start in ["", "asked\n", "readable\n", "drm\n"] {
            let mut answer = format!("\n#m uname\n{system}\n1\n");
            for name in names {
                answer.push_str(&format!("\n#m {name}\n{start}{text}"));
            }
            if let Ok(sections) = Sections::parse(&format!("{answer}\n#m end\n"), "#m") {
                Facts::parse(&sections);
            }
        }
    }
}
