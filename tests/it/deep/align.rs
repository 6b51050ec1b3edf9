//! A kernel parameter that one machine has and the other has not.

use serde_json::json;

use super::harness::Vms;
use crate::fleet::controller::Ran;

/// The parameters that differ.
fn parameters(ran: &Ran) -> Vec<String> {
    let rows = ran.summary["drift"].as_array().unwrap();
    rows.iter()
        .filter(|row| row["subject"] == "parameters")
        .map(|row| row["key"].as_str().unwrap_or("").to_owned())
        .collect()
}

#[test]
#[ignore = "boots virtual machines for minutes; cargo xtask deep runs it"]
fn a_kernel_parameter_of_the_reference_is_in_the_other_kernel_after_align_and_a_reboot() {
    let vms = Vms::up(&["h1", "h2"]);
    let files = |host: &str| {
        vms.sh(
            host,
            "cd /etc/default && stat -c '%n %U:%G %a %Y' grub grub.d/* && sha256sum grub grub.d/* && \
             grep -n '^[[:space:]]*linux[[:space:]]' /boot/grub/grub.cfg",
        )
    };
    let before = files("h2");
    vms.run(&["verify"]).ended(0);
    // What its owner set by hand on h1.
    vms.sh(
        "h1",
        "sed -i 's/ quiet$/ quiet audit=0/' /boot/grub/grub.cfg",
    );
    vms.say("rebooting h1");
    let reboot = |host: &str| {
        vms.machines()
            .reboot(&[host])
            .unwrap_or_else(|error| panic!("{error}"));
    };
    reboot("h1");
    assert!(vms.sh("h1", "cat /proc/cmdline").contains(" audit=0"));
    assert_eq!(parameters(&vms.run(&["verify"]).ended(5)), ["audit"]);

    let ran = vms.run(&["align", "--yes"]).ended(5);
    assert_eq!(ran.message(), "a reboot is pending on h2");
    assert_eq!(ran.summary["hosts"]["h2"]["changed"], json!(1));
    let undo = ran.summary["undo"].as_str().unwrap().to_owned();
    assert_ne!(files("h2"), before);
    vms.say("rebooting h2");
    reboot("h2");
    assert!(vms.sh("h2", "cat /proc/cmdline").contains(" audit=0"));
    vms.run(&["verify"]).ended(0);

    vms.run(&["align", "--undo", &undo, "--yes"]).ended(0);
    assert_eq!(files("h2"), before);
}
