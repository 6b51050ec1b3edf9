//! From a size to a change on one host; what is in force, and what waits for a reboot. Pure.

use std::collections::BTreeSet;

use super::look::Seen;
use crate::figures;
use crate::provision::boot::change::{self, Change, Written};
use crate::provision::boot::mechanism::{Mechanism, mechanism};
use crate::provision::boot::{
    Ground, Parameter, cmdline, entry, grub, kernel_install, modprobe, size, tools,
};

/// Which kind of GPU the memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// AMD's on Linux: a parameter of ttm or amdttm.
    Amdgpu,
    /// Apple's.
    Macos,
}

impl Way {
    /// The way's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amdgpu => "amdgpu",
            Self::Macos => "macos",
        }
    }
}

/// What is to be done on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bytes that the GPU may use then.
    pub bytes: u64,
    /// The mechanism in a few words.
    pub mechanism: &'static str,
    /// Parameters as they are to be.
    pub set: Vec<Parameter>,
    /// The change.
    pub change: Change,
    /// What is worth saying beside it.
    pub said: Vec<String>,
}

/// The way of a host, by its GPU.
///
/// # Errors
/// When none of its GPUs takes memory that is given so.
pub fn way(seen: &Seen, forced: Option<Way>) -> Result<Way, String> {
    match (forced, seen.ground.darwin) {
        (Some(Way::Macos), false) => {
            return Err("--for macos is given, and it is no Mac".to_owned());
        }
        (Some(Way::Amdgpu), true) => {
            return Err("--for amdgpu is given, and it is a Mac".to_owned());
        }
        (Some(way), _) => return Ok(way),
        (None, _) => {}
    }
    if seen.ground.darwin {
        return match seen.wired {
            Some(_) => Ok(Way::Macos),
            None => Err(format!(
                "its system has no {}, so its GPU's memory is not to be set",
                tools::MACOS
            )),
        };
    }
    let drivers: BTreeSet<&str> = seen
        .cards
        .iter()
        .filter_map(|card| card.driver.as_deref())
        .collect();
    if drivers.contains("amdgpu") {
        return Ok(Way::Amdgpu);
    }
    let found = match drivers.is_empty() {
        true => "no GPU was seen".to_owned(),
        false => format!(
            "GPUs with {} were seen",
            drivers.into_iter().collect::<Vec<_>>().join(", ")
        ),
    };
    Err(format!(
        "{found}, and none whose share of the memory is a kernel parameter; where the driver is only \
         not loaded yet, name it with --for amdgpu"
    ))
}

/// What is to be done for this size, or for the usual one.
///
/// # Errors
/// When it cannot be given, or the host's settings cannot be changed safely.
pub fn plan(seen: &Seen, wanted: Option<u64>, forced: Option<Way>) -> Result<Plan, String> {
    let way = way(seen, forced)?;
    let ram = seen.ram.ok_or("it does not say how much memory it has")?;
    let bytes = match wanted {
        Some(bytes) => {
            size::fits(bytes, ram)?;
            bytes
        }
        None => size::usual(ram)?,
    };
    if let Some(path) = seen.not_text.first() {
        return Err(format!("{path} is no text in UTF-8, so nothing is changed"));
    }
    match way {
        Way::Macos => Ok(macos(seen, bytes)),
        Way::Amdgpu => linux(seen, bytes),
    }
}

fn macos(seen: &Seen, bytes: u64) -> Plan {
    let mib = size::mebibytes(bytes);
    let mut change = Change::default();
    let text = tools::macos_plist(mib);
    if seen.plist.as_deref() != Some(text.as_str()) {
        change.files.push(Written {
            path: tools::MACOS_PLIST.to_owned(),
            before: seen.plist.clone(),
            after: text,
        });
    }
    if seen.wired != Some(mib) {
        change
            .lines
            .push(tools::macos_now(mib, seen.wired.unwrap_or(0)));
    }
    Plan {
        bytes: mib << 20,
        mechanism: Mechanism::Macos.words(),
        set: vec![Parameter::new(tools::MACOS, mib.to_string())],
        change,
        said: Vec::new(),
    }
}

fn linux(seen: &Seen, bytes: u64) -> Result<Plan, String> {
    let ground = &seen.ground;
    let pages = size::pages(bytes, seen.page);
    let mechanism = mechanism(ground)?;
    let other = configured(ground, change::OTHER_SIZE).flatten();
    let next = next_from(ground, &mechanism).zip(other);
    let wish = change::wish(ground, pages, &ours(seen), next)?;
    let change =
        change::change(ground, &mechanism, &wish).map_err(|(path, refusal)| refusal.of(&path))?;
    Ok(Plan {
        bytes: size::of_pages(pages, seen.page).unwrap_or(bytes),
        mechanism: mechanism.words(),
        set: wish.set,
        change,
        said: change::faults(ground),
    })
}

/// Where the next boot takes its command line from, by its own way; `None` where it is not known, and
/// for modprobe.d, of which each file is looked at anyway.
fn next_from<'a>(ground: &'a Ground, mechanism: &Mechanism) -> Option<&'a str> {
    let file = match mechanism {
        Mechanism::Grub { .. } => ground.grub.first(),
        Mechanism::Grubby => ground.entries.first(),
        Mechanism::Entries => ground.entries.iter().find(|file| entry::edited(&file.text)),
        Mechanism::KernelCmdline { .. } => ground.kernel_cmdline.as_ref(),
        Mechanism::Ostree => return Some(mechanism.words()),
        Mechanism::Modprobe { .. } | Mechanism::Macos | Mechanism::NixOs => None,
    };
    file.map(|file| file.path.as_str())
}

/// What earlier runs set here.
fn ours(seen: &Seen) -> Vec<Parameter> {
    seen.records
        .iter()
        .flat_map(|record| record.set.iter())
        .map(|(name, value)| Parameter::new(name.clone(), value.clone()))
        .collect()
}

/// What the next boot will have of a parameter, by the host's mechanism; the outer `None` when that
/// cannot be told.
pub fn configured(ground: &Ground, name: &str) -> Option<Option<String>> {
    let of_line = |line: &str| cmdline::value(line, name);
    Some(match mechanism(ground).ok()? {
        Mechanism::Macos | Mechanism::NixOs => return None,
        Mechanism::Ostree => of_line(ground.kargs.as_deref()?),
        Mechanism::Grubby => of_line(&entry::read(&ground.entries.first()?.text).ok()?.options),
        Mechanism::Entries => {
            let mut entries = ground.entries.iter();
            let entry = entries.find(|file| entry::edited(&file.text))?;
            of_line(&entry::read(&entry.text).ok()?.options)
        }
        Mechanism::Grub { .. } => of_line(&grub::read(&ground.grub).ok()?.command_line()),
        Mechanism::KernelCmdline { .. } => {
            of_line(&kernel_install::read(&ground.kernel_cmdline.as_ref()?.text).ok()?)
        }
        Mechanism::Modprobe { .. } => {
            let texts: Vec<&str> = ground
                .modprobe
                .iter()
                .map(|file| file.text.as_str())
                .collect();
            modprobe::value(&texts, name).map(|(_, found)| found.value)
        }
    })
}

/// What waits for a reboot, a sentence each.
pub fn pending(seen: &Seen) -> Vec<String> {
    let ground = &seen.ground;
    if ground.darwin {
        return Vec::new();
    }
    let modprobe = matches!(mechanism(ground), Ok(Mechanism::Modprobe { .. }));
    let mut found = Vec::new();
    for module in ["ttm", "amdttm"] {
        let name = format!("{module}.pages_limit");
        let Some(next) = configured(ground, &name) else {
            continue;
        };
        // A module takes its options when it is loaded, and then shows them.
        let now = match modprobe {
            false => cmdline::value(&ground.command_line, &name),
            true => match seen.limits.get(module) {
                Some(limit) if next.is_some() => Some(limit.to_string()),
                _ => continue,
            },
        };
        if next == now {
            continue;
        }
        found.push(match (next, now) {
            (Some(next), Some(now)) => format!("{name} is {now} and will be {next} after a reboot"),
            (Some(next), None) => format!("{name} will be {next} after a reboot"),
            (None, _) => format!("{name} will be the driver's own choice after a reboot"),
        });
    }
    found
}

/// The bytes that the GPU may use now, and who says so. sysfs is trusted before the module: the driver
/// caps what the module would allow.
pub fn in_force(seen: &Seen) -> Option<(u64, String)> {
    if seen.ground.darwin {
        return match (seen.wired?, seen.ram) {
            (0, _) => None,
            (mib, _) => Some((mib.checked_mul(1 << 20)?, tools::MACOS.to_owned())),
        };
    }
    let card = seen
        .cards
        .iter()
        .find(|card| card.driver.as_deref() == Some("amdgpu"));
    if let Some((card, gtt)) = card.and_then(|card| Some((card, card.gtt?))) {
        return Some((gtt, format!("{} mem_info_gtt_total", card.name)));
    }
    let (module, pages) = seen.limits.iter().find(|(_, pages)| **pages > 0)?;
    Some((
        size::of_pages(*pages, seen.page)?,
        format!("{module}.pages_limit"),
    ))
}

/// Whether a boot took what was set. `before`: which boot it was set in.
///
/// # Errors
/// The first thing that is not as it should be.
pub fn judge(seen: &Seen, before: Option<&str>, plan: &Plan) -> Result<Vec<String>, String> {
    if seen.boot.as_deref() == before {
        return Err("it is still in the boot that it was set in".to_owned());
    }
    let mut held = Vec::new();
    let line = &seen.ground.command_line;
    if plan.mechanism != (Mechanism::Modprobe { initramfs: None }).words() {
        for own in &plan.set {
            match cmdline::value(line, &own.name) {
                Some(value) if value == own.value => held.push("/proc/cmdline".to_owned()),
                found => {
                    return Err(format!(
                        "/proc/cmdline has {} and not {own}",
                        found.map_or_else(
                            || format!("no {}", own.name),
                            |value| format!("{}={value}", own.name)
                        )
                    ));
                }
            }
        }
    }
    let wanted = size::pages(plan.bytes, seen.page);
    for (module, pages) in &seen.limits {
        let ours = plan
            .set
            .iter()
            .any(|own| own.name == format!("{module}.pages_limit"));
        if ours && *pages != wanted {
            return Err(format!(
                "the module has {module}.pages_limit={pages} and not {wanted}"
            ));
        }
        if ours {
            held.push(format!("/sys/module/{module}"));
        }
    }
    for card in seen
        .cards
        .iter()
        .filter(|card| card.driver.as_deref() == Some("amdgpu"))
    {
        let Some(gtt) = card.gtt else { continue };
        // The driver rounds; a share that is a hundredth less is another setting's.
        if gtt < plan.bytes - plan.bytes / 100 {
            return Err(format!(
                "{} says {} for the GPU and not {}",
                card.name,
                figures::memory(gtt),
                figures::memory(plan.bytes)
            ));
        }
        held.push(format!("{} mem_info_gtt_total", card.name));
    }
    held.dedup();
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provision::boot::grub::File;
    use crate::provision::memory::look::Card;

    const GIB: u64 = 1 << 30;

    fn halo(line: &str, grub: &str) -> Seen {
        Seen {
            ground: Ground {
                tools: vec!["update-grub".into()],
                command_line: line.into(),
                grub: vec![File::new("/etc/default/grub", grub)],
                module: Some("ttm".into()),
                ..Ground::default()
            },
            ram: Some(128 * GIB),
            page: 4096,
            boot: Some("b1".into()),
            cards: vec![Card {
                name: "card1".into(),
                driver: Some("amdgpu".into()),
                gtt: Some(64 * GIB),
            }],
            ..Seen::default()
        }
    }

    #[test]
    fn a_host_without_such_a_gpu_is_refused_unless_the_way_is_named() {
        let mut seen = halo("BOOT_IMAGE=/v", "");
        seen.cards[0].driver = Some("nvidia".into());
        let said = plan(&seen, None, None).unwrap_err();
        assert!(
            said.contains("nvidia") && said.contains("--for amdgpu"),
            "{said}"
        );
        assert!(plan(&seen, None, Some(Way::Amdgpu)).is_ok());
        assert!(
            plan(&seen, None, Some(Way::Macos))
                .unwrap_err()
                .contains("no Mac")
        );
        assert!(
            plan(&seen, Some(127 * GIB), Some(Way::Amdgpu))
                .unwrap_err()
                .contains("126GiB")
        );
    }

    #[test]
    fn the_other_size_is_refused_where_someone_else_set_it_also_for_the_next_boot() {
        let grub = "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet amdgpu.gttsize=98304\"\n";
        let waits = halo("BOOT_IMAGE=/v quiet", grub);
        let said = plan(&waits, Some(96 * GIB), None).unwrap_err();
        let wanted =
            "amdgpu.gttsize=98304 is set in /etc/default/grub, and windlass did not set it";
        assert!(said.starts_with(wanted), "{said}");
        let mut file = halo("BOOT_IMAGE=/v quiet", "GRUB_CMDLINE_LINUX=\"\"\n");
        let path = "/etc/modprobe.d/gpu.conf";
        file.ground.modprobe = vec![File::new(path, "options amdgpu gttsize=98304\n")];
        let said = plan(&file, Some(96 * GIB), None).unwrap_err();
        assert!(said.contains(path), "{said}");
    }

    #[test]
    fn what_is_set_waits_for_a_reboot_and_is_judged_after_it() {
        let mut seen = halo("BOOT_IMAGE=/v", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n");
        let plan = plan(&seen, Some(96 * GIB), None).unwrap();
        assert_eq!(plan.set[0].to_string(), "ttm.pages_limit=25165824");
        seen.ground.grub[0].text = plan.change.files[0].after.clone();
        assert_eq!(
            pending(&seen),
            ["ttm.pages_limit will be 25165824 after a reboot"]
        );
        assert!(judge(&seen, Some("b1"), &plan).is_err());
        seen.boot = Some("b2".into());
        assert!(
            judge(&seen, Some("b1"), &plan)
                .unwrap_err()
                .contains("no ttm.pages_limit")
        );
        seen.ground.command_line = "BOOT_IMAGE=/v ttm.pages_limit=25165824".into();
        seen.limits.insert("ttm".into(), 5);
        assert!(
            judge(&seen, Some("b1"), &plan)
                .unwrap_err()
                .contains("pages_limit=5")
        );
        seen.limits.insert("ttm".into(), 25_165_824);
        assert!(
            judge(&seen, Some("b1"), &plan)
                .unwrap_err()
                .contains("64.0 GiB")
        );
        seen.cards[0].gtt = Some(96 * GIB);
        assert_eq!(judge(&seen, Some("b1"), &plan).unwrap().len(), 3);
        assert!(pending(&seen).is_empty());
        assert_eq!(in_force(&seen).unwrap().0, 96 * GIB);
    }

    #[test]
    fn a_mac_takes_it_at_once_and_again_at_each_start() {
        let mut seen = Seen {
            ram: Some(128 * GIB),
            page: 16_384,
            wired: Some(0),
            ..Seen::default()
        };
        seen.ground.darwin = true;
        let plan = plan(&seen, Some(115 * GIB), None).unwrap();
        assert_eq!(
            plan.change.lines[0].line,
            "/usr/sbin/sysctl iogpu.wired_limit_mb=117760"
        );
        assert_eq!(
            plan.change.lines[0].undo,
            "/usr/sbin/sysctl iogpu.wired_limit_mb=0"
        );
        seen.plist = Some(plan.change.files[0].after.clone());
        seen.wired = Some(117_760);
        assert!(
            super::plan(&seen, Some(115 * GIB), None)
                .unwrap()
                .change
                .is_empty()
        );
        assert!(pending(&seen).is_empty());
    }
}
