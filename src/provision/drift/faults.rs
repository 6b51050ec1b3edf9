//! Settings of a host that contradict themselves, its drivers, or what is in force: wrong on that host
//! whatever the others have. Pure; must not know how they are mended.

use std::collections::BTreeSet;

use super::known_bad::Bad;
use super::subjects::Seen;
use crate::figures::memory;
use crate::provision::boot::change::{self, Setting};
use crate::provision::boot::grub::File;
use crate::provision::boot::{Ground, cmdline, names};

/// Where the first of these was met.
const NAMES: &str = "ROCm/ROCm #5595";
/// Where pools were met that add up to more than there is.
const POOLS: &str = "ROCm/ROCm #6004";
/// Where it is told that the two modules do not share settings.
const MODULES: &str = "ROCm/ROCm #5562";

/// The faults of a host.
pub fn faults(seen: &Seen<'_>) -> Vec<Bad> {
    let ground = ground(seen);
    let settings = change::settings(&ground);
    let mut found = Vec::new();
    for setting in &settings {
        if let Some(right) = names::meant(&setting.name) {
            found.push(bad(
                seen,
                setting,
                "no module knows that name, so it is ignored in silence",
                &format!(
                    "{right} is meant; newer kernels want ttm.pages_limit for the size: windlass memory set SIZE"
                ),
                NAMES,
            ));
        }
    }
    let has = |name: &str| {
        let mut all = settings.iter();
        all.find(|own| cmdline::same_name(&own.name, name))
    };
    if let Some(module) = &ground.module {
        let name = format!("{module}.pages_limit");
        let twin = names::twin(&name).unwrap_or_default();
        if let (None, Some(other)) = (has(&name), has(&twin)) {
            found.push(bad(
                seen,
                other,
                &format!("the module in force is {module}, and it does not read this"),
                &format!("set {name} in its place: windlass memory set SIZE"),
                MODULES,
            ));
        }
    }
    found.extend(sizes_differ(seen, has("amdgpu.gttsize"), &has));
    found.extend(not_in_force(seen, &settings));
    found.extend(more_than_there_is(seen));
    found
}

/// What of the facts decides about boot settings.
fn ground(seen: &Seen<'_>) -> Ground {
    let files = seen.settings.iter().flat_map(|settings| &settings.files);
    Ground {
        command_line: seen.facts.kernel.command_line.clone().unwrap_or_default(),
        modprobe: files
            .filter(|(path, _)| path.starts_with(crate::facts::settings::MODPROBE))
            .map(|(path, text)| File::new(path.clone(), text.clone()))
            .collect(),
        module: seen.facts.gpu_memory.module.clone(),
        ..Ground::default()
    }
}

fn bad(seen: &Seen<'_>, setting: &Setting, what: &str, mend: &str, source: &str) -> Bad {
    Bad {
        host: seen.host.to_owned(),
        subject: setting.name.clone(),
        value: setting.value.clone(),
        what: format!("it stands in {}: {what}", setting.place),
        mend: mend.to_owned(),
        source: source.to_owned(),
    }
}

/// One size said twice by two parameters, and not the same.
fn sizes_differ<'s>(
    seen: &Seen<'_>,
    size: Option<&Setting>,
    has: &dyn Fn(&str) -> Option<&'s Setting>,
) -> Option<Bad> {
    let size = size?;
    let limit = has("ttm.pages_limit").or_else(|| has("amdttm.pages_limit"))?;
    let page = seen.facts.gpu_memory.page_bytes.unwrap_or(4096);
    let by_size = size.value.parse::<u64>().ok()?.checked_mul(1 << 20)?;
    let by_limit = limit.value.parse::<u64>().ok()?.checked_mul(page)?;
    (by_size != by_limit).then(|| {
        bad(
            seen,
            size,
            &format!(
                "it says {}, and {} says {}: which of them counts depends on the kernel",
                memory(by_size),
                limit.name,
                memory(by_limit)
            ),
            "take amdgpu.gttsize out, and set one size: windlass memory set SIZE",
            NAMES,
        )
    })
}

/// A share of main memory for the GPU that is larger than main memory: what is beyond it is missing
/// when it is asked for, and sums of the pools mean nothing.
fn more_than_there_is(seen: &Seen<'_>) -> Option<Bad> {
    let ram = seen.facts.memory.total_bytes?;
    let gpus = seen.facts.gpus.iter().flatten();
    let shared = gpus.filter_map(|gpu| gpu.gtt_total_bytes).max()?;
    (shared > ram).then(|| Bad {
        host: seen.host.to_owned(),
        subject: "gpu_shared_memory".to_owned(),
        value: memory(shared),
        what: format!(
            "the driver lets the GPU have more main memory than the {} that the system has; asking for it fails late, and the two pools do not add up",
            memory(ram)
        ),
        mend: "set a size that is there (windlass memory set SIZE), or let the firmware set less aside for the GPU".to_owned(),
        source: POOLS.to_owned(),
    })
}

/// A limit that was asked for at boot, and another one in force: the driver did not take it.
fn not_in_force(seen: &Seen<'_>, settings: &[Setting]) -> Option<Bad> {
    let in_use = |gpu: &crate::facts::Gpu| gpu.driver.as_deref() == Some("amdgpu");
    if !seen.facts.gpus.iter().flatten().any(in_use) {
        return None;
    }
    let live = seen.facts.gpu_memory.live()?;
    let name = format!("{}.pages_limit", live.name);
    // The command line counts before files, and of it the last.
    let asked: BTreeSet<&str> = settings
        .iter()
        .filter(|own| cmdline::same_name(&own.name, &name) && own.place == "/proc/cmdline")
        .map(|own| own.value.as_str())
        .collect();
    let setting = settings
        .iter()
        .rfind(|own| cmdline::same_name(&own.name, &name) && own.place == "/proc/cmdline")?;
    let (wanted, limit) = (setting.value.parse::<u64>().ok()?, live.pages_limit?);
    let page = seen.facts.gpu_memory.page_bytes?;
    (asked.len() == 1 && wanted != limit).then(|| {
        bad(
            seen,
            setting,
            &format!(
                "it asks for {}, and the module has {}",
                memory(wanted.saturating_mul(page)),
                memory(limit.saturating_mul(page))
            ),
            "look for another setting of it in /etc/modprobe.d and in the initramfs: windlass memory show",
            NAMES,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::gpu_memory::Module;
    use crate::facts::{Facts, Gpu, Settings};

    fn found(line: &str, file: &str, module: &str, live: Option<u64>) -> Vec<String> {
        let mut facts = Facts::default();
        facts.kernel.command_line = Some(line.into());
        facts.gpus = Some(vec![Gpu {
            driver: Some("amdgpu".into()),
            ..Gpu::default()
        }]);
        facts.gpu_memory.module = Some(module.into());
        facts.gpu_memory.page_bytes = Some(4096);
        facts.gpu_memory.modules = Some(vec![Module {
            name: module.into(),
            pages_limit: live,
            ..Module::default()
        }]);
        let mut settings = Settings::default();
        settings
            .files
            .insert("/etc/modprobe.d/gpu.conf".into(), file.into());
        let seen = Seen {
            host: "h",
            facts: &facts,
            settings: Some(&settings),
            data: None,
        };
        faults(&seen).iter().map(Bad::words).collect()
    }

    #[test]
    fn a_name_that_no_module_has_is_told_with_its_place_and_the_right_one() {
        for (line, file, wanted) in [
            ("quiet amdgpu.gtt_size=131072", "", "/proc/cmdline"),
            ("amdgpu.gttsiz=1", "", "amdgpu.gttsize is meant"),
            ("ttm.page_limit=1", "", "ttm.pages_limit is meant"),
            (
                "quiet",
                "options amdgpu gtt_size=131072\n",
                "/etc/modprobe.d/gpu.conf",
            ),
        ] {
            let found = found(line, file, "ttm", None);
            assert_eq!(found.len(), 1, "{line} {file}: {found:?}");
            assert!(
                found[0].contains(wanted) && found[0].contains("is meant"),
                "{found:?}"
            );
        }
        for (line, file) in [
            ("amdgpu.gttsize=131072", ""),
            ("quiet", "options ttm pages_limit=31457280\n"),
            ("rd.luks.uuid=gtt_size", "# options amdgpu gtt_size=1\n"),
        ] {
            assert_eq!(found(line, file, "ttm", None), [""; 0], "{line} {file}");
        }
    }

    #[test]
    fn a_setting_of_the_module_that_is_not_in_force_is_told() {
        let found = found("ttm.pages_limit=31457280", "", "amdttm", Some(8_192_000));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("the module in force is amdttm")
                && found[0].contains("set amdttm.pages_limit in its place"),
            "{found:?}"
        );
    }

    #[test]
    fn two_sizes_that_agree_are_no_fault_and_two_that_do_not_are() {
        // 124 GiB: 126976 MiB, 32505856 pages of 4 KiB.
        let both = |mib: u32| format!("amdgpu.gttsize={mib} ttm.pages_limit=32505856");
        assert_eq!(found(&both(126_976), "", "ttm", Some(32_505_856)), [""; 0]);
        let found = found(&both(131_072), "", "ttm", Some(32_505_856));
        assert!(
            found[0].contains("it says 128.0 GiB, and ttm.pages_limit says 124.0 GiB"),
            "{found:?}"
        );
    }

    #[test]
    fn a_limit_that_was_asked_for_and_is_not_in_force_is_told_with_both_figures() {
        let line = "ttm.pages_limit=31457280";
        assert_eq!(found(line, "", "ttm", Some(31_457_280)), [""; 0]);
        let found = found(line, "", "ttm", Some(16_252_928));
        assert!(
            found[0].contains("it asks for 120.0 GiB, and the module has 62.0 GiB"),
            "{found:?}"
        );
    }
}
