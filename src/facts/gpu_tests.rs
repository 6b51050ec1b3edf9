//! GPUs, their drivers, firmware and memory, and what is there to use them, from answers of hosts.

use super::kernel_log::hints;
use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../tests/fixtures/facts/", $name, ".txt"))
    };
}

fn sections(text: &str) -> Sections<'_> {
    Sections::parse(text, "#facts-fixture").unwrap()
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
}

/// This machine's facts, with programs that are found before its own.
fn with_programs(programs: &[(&str, &str)]) -> (Facts, Duration) {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in programs {
        let file = folder.path().join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mark = script::mark().unwrap();
    let path = std::env::var("PATH").unwrap();
    let began = Instant::now();
    let ran = std::process::Command::new("sh")
        .args(["-c", &script::script(&mark, None)])
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .output()
        .unwrap();
    let time = began.elapsed();
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let facts = Facts::parse(&Sections::parse(&text, &mark).unwrap());
    (facts, time)
}

#[test]
fn programs_that_hang_or_flood_leave_the_other_facts_be() {
    let (facts, time) = with_programs(&[
        (
            "llama-server",
            "[ -z \"$CUDA_VISIBLE_DEVICES\" ] && echo 'version: 6789 (0a1b2c3d)' >&2",
        ),
        ("rpc-server", "sleep 60"),
        ("ollama", "echo ollama version is 0.12.3"),
        (
            "podman",
            "[ \"$*\" = --version ] && echo podman version 5.4.2",
        ),
        ("docker", "echo podman version 5.4.2"),
        (
            "dmesg",
            "echo '[    0.1] Linux version'; echo \"[    3.5] amdgpu: unknown parameter 'gtt_size' ignored\"\n\
             i=0; while [ $i -lt 3000 ]; do echo \"[  9.0] amdgpu: GPU reset($i) succeeded!\"; i=$((i+1)); done",
        ),
    ]);
    // The one that hangs is given up after three seconds.
    assert!(time < Duration::from_secs(20), "{time:?}");
    let engines = facts.engines.unwrap();
    let of = |name: &str| engines.iter().find(|own| own.name == name).unwrap();
    assert_eq!(of("llama-server").commit, text("0a1b2c3d"));
    assert_eq!(
        (
            of("rpc-server").version.clone(),
            of("ollama").version.clone()
        ),
        (None, text("0.12.3"))
    );
    // What is docker in name alone is told once.
    let containers = facts.containers.unwrap();
    let names: Vec<&str> = containers.iter().map(|own| own.name.as_str()).collect();
    assert_eq!(names, ["podman"]);
    assert!(containers[0].store_free_bytes.is_some(), "{containers:?}");
    let log = facts.kernel_log.unwrap();
    assert_eq!((log.len(), log[0].subject.clone()), (121, text("gtt_size")));
    assert_eq!(log[120].subject, text("2999"));
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
    fn damaged_answers_about_gpus_make_no_parser_panic(at in 0_usize..17000, byte in 0_u8..=255) {
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
    super::gpu_tool_tests::every_parser(text);
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
