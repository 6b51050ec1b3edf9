//! Parameters that the modules for GPU memory know, and what was meant by a name that is none: such a
//! name is ignored in silence at boot. Must not know where it was found.

use crate::nearest::{alike, nearest};

/// Parameters of ttm, and of amdttm, which AMD's own package of the driver loads instead.
const TTM: &[&str] = &["dma32_pages_limit", "page_pool_size", "pages_limit"];

/// Parameters of amdgpu that modules of the last years have (amdgpu_drv.c).
const AMDGPU: &[&str] = &[
    "abmlevel",
    "agp",
    "aspm",
    "async_gfx_ring",
    "audio",
    "backlight",
    "bad_page_threshold",
    "bapm",
    "cg_mask",
    "cik_support",
    "compute_multipipe",
    "cwsr_enable",
    "damageclips",
    "dc",
    "dcdebugmask",
    "dcfeaturemask",
    "debug_evictions",
    "debug_mask",
    "deep_color",
    "disable_cu",
    "discovery",
    "disp_priority",
    "dpm",
    "emu_mode",
    "enforce_isolation",
    "exp_hw_support",
    "force_asic_type",
    "forcelongtraining",
    "freesync_video",
    "fw_load_type",
    "gartsize",
    "gpu_recovery",
    "gttsize",
    "halt_if_hws_hang",
    "hw_i2c",
    "hws_gws_support",
    "hws_max_conc_proc",
    "ip_block_mask",
    "lbpw",
    "lockup_timeout",
    "max_num_of_queues_per_device",
    "mcbp",
    "mes",
    "mes_kiq",
    "mes_log_enable",
    "moverate",
    "msi",
    "mtype_local",
    "no_queue_eviction_on_vm_fault",
    "no_system_mem_limit",
    "noretry",
    "num_kcq",
    "pcie_gen2",
    "pcie_gen_cap",
    "pcie_lane_cap",
    "pcie_p2p",
    "pg_mask",
    "ppfeaturemask",
    "queue_preemption_timeout_ms",
    "ras_enable",
    "ras_mask",
    "rebar",
    "reset_method",
    "runpm",
    "sched_hw_submission",
    "sched_jobs",
    "sched_policy",
    "sdma_phase_quantum",
    "seamless",
    "send_sigterm",
    "sg_display",
    "si_support",
    "smu_memory_pool_size",
    "svm_default_granularity",
    "timeout_fatal_disable",
    "timeout_period",
    "tmz",
    "umsch_mm",
    "uni_mes",
    "use_xgmi_p2p",
    "user_partt_mode",
    "user_queue",
    "vcnfw_log",
    "virtual_display",
    "vis_vramlimit",
    "visualconfirm",
    "vm_block_size",
    "vm_fault_stop",
    "vm_fragment_size",
    "vm_size",
    "vm_update_mode",
    "vramlimit",
    "wbrf",
];

/// The modules whose parameters are known here.
const MODULES: &[(&str, &[&str])] = &[("ttm", TTM), ("amdttm", TTM), ("amdgpu", AMDGPU)];

/// What was meant by a name that its module does not know; `None` when it does, when the module is
/// another, or when nothing is near (a newer module may have it).
pub fn meant(name: &str) -> Option<String> {
    let plain = name.replace('-', "_");
    let Some((module, parameter)) = plain.split_once('.') else {
        // A module's name and the parameter's, joined by the wrong sign.
        return MODULES.iter().find_map(|(module, known)| {
            let rest = plain.strip_prefix(module)?.strip_prefix('_')?;
            known.contains(&rest).then(|| format!("{module}.{rest}"))
        });
    };
    let (_, known) = MODULES.iter().find(|(own, _)| *own == module)?;
    if known.contains(&parameter) {
        return None;
    }
    let near = nearest(parameter, known.iter().copied())?;
    alike(parameter, near).then(|| format!("{module}.{near}"))
}

/// Parameters of the kind that this module is told for memory, which another module has in its place:
/// `ttm.pages_limit` where amdttm is loaded says nothing.
pub fn twin(name: &str) -> Option<String> {
    let (module, parameter) = name.split_once('.')?;
    match module {
        "ttm" => Some(format!("amdttm.{parameter}")),
        "amdttm" => Some(format!("ttm.{parameter}")),
        _ => None,
    }
}
