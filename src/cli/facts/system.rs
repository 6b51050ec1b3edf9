//! How a host's system is set up, as rows of `windlass facts`. What a host does not say is left out
//! of a row that has more; a row of which nothing is known says so.

use crate::facts::boot_firmware::FirmwareKind;
use crate::facts::packaging::SystemKind;
use crate::facts::tuning::Limit;
use crate::facts::{Facts, Interface, Tuning};
use crate::figures::memory;

/// Rows with their labels.
pub(super) fn rows(facts: &Facts) -> Vec<(&'static str, String)> {
    vec![
        ("firmware", firmware(facts)),
        ("kernels", kernels(facts)),
        ("packages", packages(facts)),
        ("sleep", sleep(facts)),
        ("time", time(facts)),
        ("sudo", sudo(facts)),
        ("host keys", host_keys(facts)),
        ("settings", settings(&facts.tuning)),
    ]
}

fn listed(parts: Vec<String>) -> String {
    match parts.is_empty() {
        true => "unknown".into(),
        false => parts.join(", "),
    }
}

fn firmware(facts: &Facts) -> String {
    let kind = facts.boot_firmware.kind.map(|kind| match kind {
        FirmwareKind::Uefi => "UEFI",
        FirmwareKind::Bios => "BIOS",
        FirmwareKind::DeviceTree => "device tree",
    });
    let secure = facts.boot_firmware.secure_boot.map(|on| match on {
        true => "Secure Boot on",
        false => "Secure Boot off",
    });
    listed(kind.into_iter().chain(secure).map(str::to_owned).collect())
}

fn kernels(facts: &Facts) -> String {
    let Some(kernels) = &facts.kernels else {
        return "unknown".into();
    };
    let texts = kernels.iter().map(|kernel| {
        let mut notes = Vec::new();
        if kernel.running {
            notes.push("runs");
        }
        if kernel.image && !kernel.modules {
            notes.push("without modules");
        }
        match notes.is_empty() {
            true => kernel.release.clone(),
            false => format!("{} ({})", kernel.release, notes.join(", ")),
        }
    });
    listed(texts.collect())
}

fn packages(facts: &Facts) -> String {
    let kind = facts.packaging.system_kind.map(|kind| match kind {
        SystemKind::Ordinary => "changed in place",
        SystemKind::Ostree => "the system is an image (ostree)",
        SystemKind::Nixos => "the system is made from its configuration (NixOS)",
        SystemKind::Transactional => "changed in a copy for the next boot",
    });
    let manager = facts.packaging.manager.clone();
    listed(manager.into_iter().chain(kind.map(str::to_owned)).collect())
}

fn sleep(facts: &Facts) -> String {
    let sleep = &facts.sleep;
    let mut parts = Vec::new();
    parts.extend(sleep.possible.map(|possible| match possible {
        true => "possible".to_owned(),
        false => "never".to_owned(),
    }));
    if sleep.possible == Some(true) {
        parts.extend(
            sleep
                .after_minutes
                .map(|minutes| format!("after {minutes} min")),
        );
        if sleep.lid == Some(true) {
            let action = sleep.lid_switch.as_deref().unwrap_or("suspend");
            parts.push(format!("lid: {action}"));
        }
        parts.extend(
            sleep
                .idle_action
                .as_ref()
                .map(|action| format!("idle: {action}")),
        );
    }
    listed(parts)
}

fn time(facts: &Facts) -> String {
    let sync = &facts.sync;
    let mut parts = Vec::new();
    let by = sync.by.as_ref().map(|by| format!(" by {by}"));
    let by = by.unwrap_or_default();
    parts.extend(sync.synchronised.map(|yes| match yes {
        true => format!("synchronised{by}"),
        false => format!("not synchronised{by}"),
    }));
    parts.extend(sync.zone.clone());
    if sync.hardware_is_local == Some(true) {
        parts.push("the hardware's clock holds local time".into());
    }
    listed(parts)
}

fn sudo(facts: &Facts) -> String {
    if facts.login.is_root() {
        return "not needed, the login is root".into();
    }
    let sudo = &facts.sudo;
    if sudo.present == Some(false) {
        return "not there".into();
    }
    let mut parts = Vec::new();
    parts.extend(sudo.any_command.map(|any| match any {
        true => "may run anything".to_owned(),
        false => "may not run anything".to_owned(),
    }));
    parts.extend(sudo.password.map(|asked| match asked {
        true => "with a password".to_owned(),
        false => "without a password".to_owned(),
    }));
    if sudo.terminal == Some(true) {
        parts.push("only at a terminal (requiretty)".into());
    }
    listed(parts)
}

fn host_keys(facts: &Facts) -> String {
    let keys = facts.identity.host_keys.iter().flatten();
    listed(
        keys.map(|key| format!("{} {}", key.algorithm, key.fingerprint))
            .collect(),
    )
}

fn settings(tuning: &Tuning) -> String {
    let mut parts = Vec::new();
    if !tuning.governors.is_empty() {
        parts.push(format!("governor {}", tuning.governors.join(" and ")));
    }
    parts.extend(
        tuning
            .platform_profile
            .as_ref()
            .map(|profile| format!("profile {profile}")),
    );
    parts.extend(
        tuning
            .transparent_hugepages
            .as_ref()
            .map(|when| format!("large pages {when}")),
    );
    let pages = &tuning.hugepages;
    if let (Some(total), Some(size)) = (pages.total.filter(|total| *total > 0), pages.size_bytes) {
        let bytes = total.saturating_mul(size);
        parts.push(format!("{} set aside for large pages", memory(bytes)));
    }
    parts.extend(tuning.swaps.as_ref().map(|swaps| {
        let bytes = swaps
            .iter()
            .filter_map(|swap| swap.size_bytes)
            .fold(0_u64, u64::saturating_add);
        match (bytes, swaps.iter().any(|swap| swap.zram)) {
            (0, _) => "no swap".to_owned(),
            (bytes, true) => format!("{} of swap, some in memory (zram)", memory(bytes)),
            (bytes, false) => format!("{} of swap", memory(bytes)),
        }
    }));
    parts.extend(tuning.memlock.map(|Limit { soft, .. }| match soft {
        Some(bytes) => format!("may lock {} in memory", memory(bytes)),
        None => "may lock any memory".to_owned(),
    }));
    parts.extend(
        tuning
            .taint
            .as_ref()
            .filter(|taint| !taint.is_empty())
            .map(|taint| format!("kernel tainted {taint}")),
    );
    listed(parts)
}

/// An interface: what it is, what its link does and could do, and its addresses.
pub(super) fn interface(interface: &Interface) -> String {
    let mut parts = vec![interface.name.clone()];
    parts.extend(interface.kind.map(|kind| kind.name().to_owned()));
    parts.push(
        match interface.up {
            Some(true) => "up",
            Some(false) => "down",
            None => "state unknown",
        }
        .into(),
    );
    let max = interface.max_mbit;
    parts.extend(interface.speed_mbit.map(|speed| match max {
        Some(max) if max > speed => {
            let partner = interface.partner_mbit.filter(|partner| *partner < max);
            let limit = partner.map(|_| ", limited by the other end");
            format!("{speed} of {max} Mb/s{}", limit.unwrap_or_default())
        }
        _ => format!("{speed} Mb/s"),
    }));
    if interface.full_duplex == Some(false) {
        parts.push("half duplex".into());
    }
    parts.extend(interface.mtu_bytes.map(|mtu| format!("MTU {mtu}")));
    parts.extend(interface.addresses.iter().map(|address| {
        let twin = match interface.repeated.contains(&address.ip) {
            true => " (another interface has it too)",
            false => "",
        };
        match address.prefix {
            Some(prefix) => format!("{}/{prefix}{twin}", address.ip),
            None => format!("{}{twin}", address.ip),
        }
    }));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::script::Sections;

    fn shown(text: &str) -> Vec<String> {
        let sections = Sections::parse(text, "#facts-fixture").unwrap();
        let facts = Facts::parse(&sections);
        let interfaces = facts.interfaces.iter().flatten();
        interfaces
            .map(interface)
            .chain(
                rows(&facts)
                    .into_iter()
                    .map(|(name, text)| format!("{name}: {text}")),
            )
            .collect()
    }

    #[test]
    fn a_system_is_shown_with_how_it_is_set_up() {
        let rows = shown(include_str!(
            "../../../tests/fixtures/facts/spark-system.txt"
        ));
        for row in [
            "enP7s7, Ethernet, up, 1000 of 10000 Mb/s, limited by the other end, MTU 1500",
            "enp1s0f0np0, Ethernet, up, 100000 of 200000 Mb/s, MTU 9000, 10.77.0.7/24 (another interface has it too), fe80::7/64",
            "tailscale0, overlay, state unknown, MTU 1280, 10.77.0.7/32",
            "firmware: UEFI, Secure Boot on",
            "kernels: 6.8.0-1040-nvidia-64k, 6.17.0-1009-nvidia, 6.17.0-1021-nvidia (runs), 6.17.0-1030-nvidia (without modules)",
            "packages: apt, changed in place",
            "sleep: never",
            "time: synchronised by chrony, Europe/Vienna",
            "sudo: may run anything, without a password",
            "host keys: ecdsa-sha2-nistp256 SHA256:f/4IWNAzbJqZQhlQBs3x1ZH9s9ayRcDfCitid8wPyWU, ssh-ed25519 SHA256:aI65l1RAz5/Mx4yyvGMdXc84WlJuTOSv0S4ycfk3iJA",
            "settings: governor performance and schedutil, profile balanced, large pages madvise, 32.0 MiB set aside for large pages, 24.0 GiB of swap, some in memory (zram), may lock 8.0 MiB in memory, kernel tainted POE",
        ] {
            assert!(rows.iter().any(|own| own == row), "{row}\n{rows:#?}");
        }
        let mac = shown(include_str!(
            "../../../tests/fixtures/facts/mac-mini-office.txt"
        ));
        for row in [
            "firmware: unknown",
            "sleep: possible, after 10 min",
            "sudo: with a password",
            "settings: unknown",
        ] {
            assert!(mac.iter().any(|own| own == row), "{row}\n{mac:#?}");
        }
    }
}
