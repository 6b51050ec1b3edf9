//! Clocks: hosts in namespaces share one with this machine, so a wrong one needs a kernel of its own.

use std::collections::BTreeSet;

use super::harness::Vms;
use crate::support::tiny_model;

#[test]
#[ignore = "boots a virtual machine; cargo xtask deep runs it"]
fn a_clock_that_is_ten_seconds_off_is_refused_by_name_before_anything_is_sent() {
    let interfaces = || {
        let names = std::fs::read_dir("/sys/class/net").unwrap().flatten();
        names
            .map(|entry| entry.file_name())
            .collect::<BTreeSet<_>>()
    };
    let before = interfaces();
    let vms = Vms::up(&["h1"]);
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

    for (by, word) in [("10 seconds", "ahead of"), ("20 seconds ago", "behind")] {
        vms.sh("h1", &format!("date -s '{by}' >/dev/null"));
        let ran = vms.run(&["up", &model]).ended(1);
        let said = ran.message();
        assert_eq!(ran.summary["error"]["host"], "h1");
        assert!(
            said.contains("clock") && said.contains(word) && said.contains("timedatectl"),
            "{said}"
        );
        assert_eq!(vms.sh("h1", folders), "");
    }
    vms.sh("h1", "date -s '10 seconds' >/dev/null");
    vms.run(&["up", &model, "--check"]).ended(0);

    let place = vms.machines().place().clone();
    drop(vms);
    assert!(!place.folder().exists());
    assert!(!place.netns_path("sw").exists());
    assert!(!place.cgroup().unwrap().exists());
}
