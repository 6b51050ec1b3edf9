//! Clocks: hosts in namespaces share one with this machine, so a wrong one needs a kernel of its own.

use std::collections::BTreeSet;

use windlass_lab::{Firmware, Hardware};

use super::harness::Vms;
use crate::support::tiny_model;

#[test]
#[ignore = "boots a virtual machine; cargo xtask deep runs it"]
fn a_clock_that_is_off_is_named_and_refused_before_anything_is_sent() {
    let interfaces = || {
        let names = std::fs::read_dir("/sys/class/net").unwrap().flatten();
        names
            .map(|entry| entry.file_name())
            .collect::<BTreeSet<_>>()
    };
    let before = interfaces();
    // What later tests build upon is seen to hold here: the other firmware, another disk.
    let hardware = Hardware {
        firmware: Firmware::Uefi,
        blank: Some(4 << 30),
    };
    let vms = Vms::of(&["h1"], hardware);
    let seen = vms.sh(
        "h1",
        "test -d /sys/firmware/efi && lsblk -bdno SIZE /dev/vdb && cmp -n 1048576 /dev/vdb /dev/zero",
    );
    assert_eq!(seen.trim(), "4294967296");
    assert_eq!(
        interfaces(),
        before,
        "this machine's own network was changed"
    );
    let model = vms.home().join("tiny.gguf");
    tiny_model(&model, 4);
    let model = model.display().to_string();
    let folders = "find / -xdev -newer /etc/lab-identity -path '*windlass*' 2>/dev/null | head";
    vms.run(&["up", &model, "--check"]).ended(0);

    for (by, word) in [("5 minutes", "ahead of"), ("10 minutes ago", "behind")] {
        vms.sh("h1", &format!("date -s '{by}' >/dev/null"));
        let facts = vms.run(&["facts"]).ended(0);
        let skew = &facts.summary["facts"]["h1"]["clock"]["skew"]["ahead_ns"];
        let ahead = skew.as_i64().unwrap() as f64 / 1e9;
        let minutes = if word == "behind" { -5.0 } else { 5.0 };
        assert!((ahead / 60.0 - minutes).abs() < 0.5, "{ahead} s");
        let ran = vms.run(&["up", &model]).ended(1);
        let said = ran.message();
        assert_eq!(ran.summary["error"]["host"], "h1");
        assert!(
            said.contains("clock") && said.contains(word) && said.contains("timedatectl"),
            "{said}"
        );
        assert_eq!(vms.sh("h1", folders), "");
    }
    vms.sh("h1", "date -s '5 minutes' >/dev/null");
    vms.run(&["up", &model, "--check"]).ended(0);

    let place = vms.machines().place().clone();
    drop(vms);
    assert!(!place.folder().exists());
    assert!(!place.netns_path("sw").exists());
    assert!(!place.cgroup().unwrap().exists());
}
