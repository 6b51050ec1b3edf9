//! What one machine has and the other has not: a kernel parameter, the right time.

use serde_json::{Value, json};

use super::harness::Vms;
use crate::fleet::controller::Ran;

/// What differs: subject, key and hosts.
fn differing(ran: &Ran) -> Vec<(&str, &str, &Value)> {
    let rows = ran.summary["drift"].as_array().unwrap();
    rows.iter()
        .map(|row| {
            (
                row["subject"].as_str().unwrap(),
                row["key"].as_str().unwrap_or(""),
                &row["differs"],
            )
        })
        .collect()
}

#[test]
#[ignore = "boots virtual machines for minutes; cargo xtask deep runs it"]
fn a_kernel_parameter_of_the_reference_is_in_the_other_kernel_after_align_with_a_reboot() {
    let vms = Vms::up(&["h1", "h2"]);
    let files = |host: &str| {
        vms.sh(
            host,
            "cd /etc/default && stat -c '%n %U:%G %a %Y' grub grub.d/* && sha256sum grub grub.d/* && \
             grep -n '^[[:space:]]*linux[[:space:]]' /boot/grub/grub.cfg",
        )
    };
    let line = |host: &str| vms.sh(host, "cat /proc/cmdline");
    let before = files("h2");

    // Nothing but the clock differs.
    vms.sh("h2", "date -s '5 minutes' >/dev/null");
    let ran = vms.run(&["verify"]).ended(5);
    assert_eq!(differing(&ran), [("clock", "", &json!(["h2"]))]);
    vms.sh("h2", "date -s '5 minutes ago' >/dev/null");

    // What its owner set by hand on h1.
    vms.sh(
        "h1",
        "sed -i 's/ quiet$/ quiet audit=0/' /boot/grub/grub.cfg",
    );
    vms.say("rebooting h1");
    vms.machines()
        .reboot(&["h1"])
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(line("h1").contains(" audit=0"));
    let h1 = (vms.boot("h1"), files("h1"), line("h1"));
    let boot = vms.boot("h2");
    let ran = vms.run(&["verify"]).ended(5);
    assert_eq!(differing(&ran), [("parameters", "audit", &json!(["h2"]))]);

    let ran = vms.run(&["align", "--reboot", "--yes"]).ended(0);
    assert_eq!(ran.summary["hosts"]["h2"]["changed"], json!(1));
    let undo = ran.summary["undo"].as_str().unwrap().to_owned();
    assert_ne!(vms.boot("h2"), boot);
    assert_ne!(files("h2"), before);
    let words = line("h2");
    assert!(
        words.split_whitespace().any(|word| word == "audit=0"),
        "{words}"
    );
    vms.run(&["verify"]).ended(0);
    assert_eq!((vms.boot("h1"), files("h1"), line("h1")), h1);

    // What is in force is so until the next start.
    vms.run(&["align", "--undo", &undo, "--yes"]).ended(5);
    assert_eq!(files("h2"), before);
}
