//! Any text as what a host says of its GPUs: the script's whole answer, a section of it, and what each
//! tool prints must end in values, whatever is in it. The readers are taken in by their files: they
//! need nothing of the program around them, which takes long to build.
#![no_main]
#![allow(dead_code, unused_imports)]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/ssh"]
mod ssh {
    mod quote;
    pub use quote::quote;
}

#[path = "../../src/facts"]
mod facts {
    pub mod containers;
    pub mod disk;
    pub mod drivers;
    pub mod engines;
    pub mod firmware;
    pub mod gpu;
    pub mod gpu_memory;
    pub mod kernel_log;
    pub mod rdma;
    pub mod script;
    pub mod software;
    pub mod tools;

    pub use gpu::Gpu;
}

use facts::script::Sections;
use facts::tools::{
    amd_smi, amdgpu_firmware, dkms, docker, ethtool, free, ip, iperf3, llama, lscpu, lsmod, lspci,
    mac, nvidia_smi, packages, pcie, podman, rdma, rocm_smi, rocminfo, vulkaninfo,
};

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    tools(&text);
    if let Ok(sections) = Sections::parse(&text, "#m") {
        answer(&sections);
    }
    for start in ["asked\n", "readable\n", "drm\n"] {
        let whole: String = [
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
            "rooms",
            "mounts",
        ]
        .iter()
        .map(|name| format!("\n#m {name}\n{start}{text}"))
        .collect();
        if let Ok(sections) = Sections::parse(&format!("{whole}\n#m end\n"), "#m") {
            answer(&sections);
        }
    }
});

/// Every part of an answer.
fn answer(sections: &Sections<'_>) {
    let mut gpus = facts::gpu::parse(sections);
    let memory = facts::gpu_memory::parse(sections);
    memory.limit_bytes();
    memory.pool_bytes();
    if let Some(gpus) = &mut gpus {
        facts::gpu::fill_nvidia(gpus, sections);
        for gpu in gpus.iter() {
            let ram = Some(u64::from(u32::MAX) << 5);
            let usable = facts::gpu_memory::usable_gpu_bytes(gpu, &memory, ram);
            // No pools are added up: it is no more than the largest of what there is.
            let most = gpu.vram_total_bytes.max(ram);
            assert!(usable <= most, "{gpu:?}");
            assert!(!gpu.name().contains('\n'));
        }
    }
    facts::firmware::parse(sections, gpus.as_deref());
    facts::drivers::parse(sections);
    facts::software::parse(sections);
    facts::containers::parse(sections);
    facts::engines::parse(sections);
    facts::kernel_log::parse(sections);
    facts::rdma::parse(sections);
    facts::disk::parse(sections);
}

fn tools(text: &str) {
    let _ = amd_smi::parse(text);
    let _ = rocm_smi::parse(text);
    for agent in rocminfo::parse(text).agents {
        assert!(agent.memory_bytes() <= agent.pools.iter().max().copied());
    }
    let vulkan = vulkaninfo::parse(text);
    assert!(vulkan.gpus().len() <= vulkan.devices.len());
    let _ = nvidia_smi::table(text);
    let _ = nvidia_smi::query(text, &["a", "b"]);
    nvidia_smi::slot(text);
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
    rdma::parse(text);
    mac::hardware(text);
    mac::sysctl(text, "a");
    llama::build(text);
    llama::devices(text);
    pcie::parse(text);
    ethtool::parse(text);
    ip::parse(text);
    iperf3::parse(text).bits_per_second();
    lscpu::parse(text).model();
    free::parse(text);
}
