//! Hosts that leave a deployment: out of the inventory, out of the placement, out of the limit; and pieces
//! that go when nothing runs.

use std::fs;

use serde_json::json;

use super::controller::{Ran, give_model, nothing_left, run};
use crate::lab::{Kind, Lab, absent};

const UNIT: &str = "systemctl is-enabled windlass-lab.service 2>/dev/null || true";

fn behind(ran: &Ran) -> Vec<(&str, bool)> {
    ran.summary["left_behind"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["host"].as_str().unwrap(),
                one["listed"].as_bool().unwrap(),
            )
        })
        .collect()
}

#[test]
fn a_host_that_leaves_is_stopped_where_it_is_reached_and_told_of_where_not() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root), ("h3", Kind::Root)]);
    if !give_model(lab.home()) {
        return;
    }
    let text = fs::read_to_string(lab.inventory()).unwrap();
    let cluster = run(&lab, &["inventory", "list"]).summary["inventory"]["cluster"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let unit = UNIT.replace("lab", &cluster);
    let edit = |arguments: &[&str]| {
        let output = lab.windlass(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let three = run(&lab, &["up", "smollm2"]).ended(0);
    assert_eq!(behind(&three), []);
    let address = three.summary["stages"][2]["address"].as_str().unwrap();

    // Out of the inventory: it cannot be reached, so it is told of.
    edit(&["inventory", "remove", "h3"]);
    let status = run(&lab, &["status"]).ended(0);
    assert_eq!(behind(&status), [("h3", false)]);
    let shown = lab.windlass(&["status"]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for wanted in [
        "h3",
        address,
        "not in the inventory",
        "windlass down --limit h3",
    ] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    let down = run(&lab, &["down", "--check"]).ended(0);
    assert_eq!(behind(&down), [("h3", false)]);
    let up = run(&lab, &["up", "smollm2"]).ended(0);
    assert_eq!(behind(&up), [("h3", false)]);
    assert_eq!(
        up.summary["replaced"]["changes"],
        json!(["the hosts (h3 has no part any more)"])
    );
    assert_eq!(lab.sh("h3", &unit), "enabled\n");
    assert_eq!(behind(&run(&lab, &["status"]).ended(0)), [("h3", false)]);

    // Back in the inventory, and with too little memory for a stage.
    fs::write(lab.inventory(), &text).unwrap();
    edit(&["inventory", "set", "h3", "memory_limit=1MiB"]);
    assert_eq!(
        run(&lab, &["status"]).ended(0).summary["stray"],
        json!(["h3"])
    );
    let check = run(&lab, &["up", "smollm2", "--check", "--fail-on-change"]).ended(5);
    assert_eq!(check.summary["would_start"], false);
    assert_eq!(check.summary["hosts"]["h3"]["would_change"], 1);
    let up = run(&lab, &["up", "smollm2"]).ended(0);
    assert_eq!(up.summary["plan"]["left_out"], json!(["h3"]));
    assert_eq!(up.summary["hosts"]["h3"]["changed"], 1);
    nothing_left(&lab, "h3");
    assert_eq!(lab.sh("h3", &unit), "");
    run(&lab, &["up", "smollm2", "--check", "--fail-on-change"]).ended(0);

    // Out of the limit: nothing there is touched.
    fs::write(lab.inventory(), &text).unwrap();
    run(&lab, &["down"]).ended(0);
    run(&lab, &["up", "smollm2"]).ended(0);
    let up = run(&lab, &["up", "smollm2", "--limit", "h1,h2"]).ended(0);
    assert_eq!(behind(&up), [("h3", true)]);
    assert_eq!(lab.sh("h3", &unit), "enabled\n");
    let down = run(&lab, &["down", "--limit", "h3"]).ended(0);
    assert_eq!(down.summary["stopped"], json!(["h3"]));
    assert_eq!(lab.sh("h3", &unit), "");

    // Pieces go with what runs, and without it.
    let down = run(&lab, &["down", "--limit", "h1,h2"]).ended(0);
    assert_eq!(down.summary.get("removed_bytes"), None);
    run(&lab, &["down"]).ended(3);
    let check = run(&lab, &["down", "--pieces", "--check"]).ended(0);
    let held: u64 = lab
        .sh(
            "h1",
            "cd /var/lib/windlass/pieces; find . -type f -exec cat {} + | wc -c",
        )
        .trim()
        .parse()
        .unwrap();
    assert_eq!(check.summary["removed_bytes"]["h1"], held);
    run(&lab, &["down", "--pieces", "--check", "--fail-on-change"]).ended(5);
    let down = run(&lab, &["down", "--pieces"]).ended(0);
    assert_eq!(down.summary["stopped"], json!([]));
    assert_eq!(
        down.summary["removed_bytes"],
        check.summary["removed_bytes"]
    );
    for host in ["h1", "h2", "h3"] {
        assert_eq!(down.summary["hosts"][host]["changed"], 1, "{host}");
        lab.sh(host, "! [ -e /var/lib/windlass/pieces ]");
    }
    run(&lab, &["down", "--pieces"]).ended(3);
}
