//! What windlass does not change on a host: the lines that a person types there for it. Pure.

use serde::Serialize;

use super::plan::{Subject, is_kernel, single, value};
use crate::provision::drift::{ABSENT, Row};
use crate::ssh::quote;

/// What windlass does not change, and what a person types for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ByHand {
    /// The subject.
    pub subject: String,
    /// The key within it.
    pub key: Option<String>,
    /// What to type, or to do.
    pub line: String,
}

/// The line for one row of a comparison.
pub(super) fn by_hand(row: &Row, host: Subject<'_>, reference: &str) -> ByHand {
    let wanted = value(row, reference).unwrap_or_default();
    let key = row.key.as_deref().unwrap_or_default();
    let own = value(row, host.host).unwrap_or(ABSENT);
    let line = match (row.subject.as_str(), host.settings.installer.as_deref()) {
        ("hostname", _) => "sudo hostnamectl set-hostname NAME".to_owned(),
        ("machine_id", _) => {
            "on the copy: sudo rm /etc/machine-id && sudo systemd-machine-id-setup, then reboot"
                .to_owned()
        }
        ("data_mtu", _) => set_mtu(host, wanted),
        ("packages", Some("pacman")) => format!("sudo pacman -Syu {} on all hosts", quote(key)),
        ("packages", Some("rpm-ostree")) => {
            "sudo rpm-ostree deploy VERSION with the reference's version, then reboot".to_owned()
        }
        ("packages", Some("apt-get")) if wanted == ABSENT && is_kernel(key) => {
            format!(
                "sudo apt-get remove {}, once another kernel runs",
                quote(key)
            )
        }
        ("packages", _) if !(single(wanted) && single(own)) => versions(key, own, wanted),
        ("parameters", _) => match wanted {
            ABSENT => format!("take {key} out of the kernel's parameters, and reboot"),
            "set" => format!("add {key} to the kernel's parameters, and reboot"),
            value => format!("set {key}={value} among the kernel's parameters, and reboot"),
        },
        _ => {
            let mend = row.mend.as_str();
            mend.strip_prefix("windlass align; or ")
                .unwrap_or(mend)
                .to_owned()
        }
    };
    ByHand {
        subject: row.subject.clone(),
        key: row.key.clone(),
        line,
    }
}

/// Several versions of one package at once, on the host or on the reference: kernels, of which one runs.
fn versions(key: &str, own: &str, wanted: &str) -> String {
    match (own, wanted) {
        (own, ABSENT) => format!("remove {key} ({own}), once another kernel runs"),
        (ABSENT, wanted) => format!("install {key} in the versions {wanted}"),
        (own, wanted) => {
            format!("have {wanted} of {key} in place of {own}, and keep the one that runs")
        }
    }
}

/// What closes on the reference what is closed on a host: to open it there would be no mend.
pub(super) fn closed_there(reference: &str, ways: &[&str]) -> String {
    let units: Vec<String> = ways.iter().map(|way| format!("{way}.target")).collect();
    format!("on {reference}: sudo systemctl mask {}", units.join(" "))
}

/// Sets an interface's largest packet, now and by what configures the network at the next start.
fn set_mtu(host: Subject<'_>, wanted: &str) -> String {
    let (name, mtu) = (quote(host.interface.unwrap_or("INTERFACE")), quote(wanted));
    let on = |unit: &str| {
        let units = host.settings.units.as_ref();
        units.is_some_and(|units| units.get(unit).is_some_and(|state| state == "enabled"))
    };
    let packages = host.settings.packages.as_ref();
    let netplan = packages.is_some_and(|packages| packages.contains_key("netplan.io"));
    let stays = if on("NetworkManager.service") {
        format!(
            "sudo nmcli connection modify \"$(nmcli -g GENERAL.CONNECTION device show {name})\" 802-3-ethernet.mtu {mtu}"
        )
    } else if netplan {
        format!("sudo netplan set ethernets.{name}.mtu={mtu}")
    } else if on("systemd-networkd.service") {
        format!(
            "MTUBytes={mtu} under [Link] in the .network file that `networkctl status {name}` names"
        )
    } else if on("networking.service") {
        format!("mtu {mtu} under {name} in /etc/network/interfaces")
    } else {
        format!("{mtu} for {name} in the network's configuration")
    };
    format!("sudo ip link set dev {name} mtu {mtu}; and so that it stays: {stays}")
}
