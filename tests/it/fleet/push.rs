//! Pieces on their way: broken off, damaged, no room.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::controller::{SHA256, give_model, run};
use crate::lab::{Kind, Lab, absent};

/// Folder of the model's pieces on a root host.
fn pieces() -> String {
    format!("/var/lib/windlass/pieces/{}", &SHA256[..16])
}

#[test]
fn a_push_that_was_killed_goes_on_where_it_stopped() {
    if absent() {
        return;
    }
    // Slow cables: the kill must come in mid push.
    let lab = Lab::with(&[("h1", Kind::Root), ("h2", Kind::Root)], |wanted| {
        wanted.rate = Some("100mbit".into());
    });
    if !give_model(lab.home()) {
        return;
    }
    killed_and_gone_on(&lab, &["push", "smollm2"]);
}

/// Kills a push to h1 and h2 when both have something, and does it again: little is sent twice.
pub fn killed_and_gone_on(lab: &Lab, push: &[&str]) {
    let mut child = lab
        .windlass(push)
        .arg("--json")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut sent = std::collections::BTreeMap::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let event: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        if event["event"] == "transfer" && event["what"] == "pieces" {
            let host = event["scope"]["host"].as_str().unwrap().to_owned();
            sent.insert(host, event["done"].as_u64().unwrap());
            if sent.len() == 2 && sent.values().all(|bytes| *bytes > 12 << 20) {
                break;
            }
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(sent.len(), 2, "the push was over before it could be killed");
    let second = run(lab, push).ended(0);
    for (host, before) in sent {
        let planned = second.summary["pushed"][&host]["planned_bytes"]
            .as_u64()
            .unwrap();
        let resent = (before + second.sent(&host)).saturating_sub(planned);
        let allowed = (planned / 20).max(4 << 20);
        assert!(
            resent <= allowed,
            "{host}: {resent} of {planned} were sent again"
        );
    }
}

#[test]
fn a_flipped_byte_is_repaired_by_up_when_the_time_changed_and_by_verify_when_not() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    if !give_model(lab.home()) {
        return;
    }
    let up = ["up", "smollm2"];
    let first = run(&lab, &up).ended(0);
    let file = lab.sh("h2", &format!("ls {}/*layer*.gguf | tail -1", pieces()));
    let file = file.trim();
    let name = file.rsplit('/').next().unwrap();
    let bytes: u64 = lab
        .sh("h2", &format!("wc -c < {file}"))
        .trim()
        .parse()
        .unwrap();
    let digest = lab.sh("h2", &format!("sha256sum < {file}"));
    let flip =
        format!("printf '\\377\\001' | dd of={file} bs=1 seek=5000 conv=notrunc 2>/dev/null");
    // A push repairs the file and starts nothing: it says who goes on with the old one.
    lab.sh("h2", &flip);
    let push = run(&lab, &["push", "smollm2"]).ended(0);
    assert_eq!((push.sent("h1"), push.sent("h2")), (0, bytes));
    assert_eq!(push.summary["stale"], serde_json::json!({"h2": [name]}));
    let told = lab.windlass(&["push", "smollm2"]).output().unwrap();
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(
        told.contains("h2") && told.contains("`windlass up smollm2` starts it anew"),
        "{told}"
    );
    let status = run(&lab, &["status"]).ended(0);
    assert_eq!(
        status.summary["stages"][1]["stale"],
        serde_json::json!([name])
    );
    let reasons = serde_json::json!(["the worker on h2 still has 1 piece that was replaced since"]);
    let check = run(&lab, &["up", "smollm2", "--check"]).ended(0);
    assert_eq!(check.summary["reasons"], reasons);
    let anew = run(&lab, &up).ended(0);
    assert_eq!((anew.sent("h1"), anew.sent("h2")), (0, 0));
    assert_eq!(anew.summary["replaced"]["changes"], reasons);
    assert_ne!(anew.summary["deployment"], first.summary["deployment"]);
    let push = run(&lab, &["push", "smollm2"]).ended(0);
    assert_eq!(push.summary["stale"], serde_json::json!({}));
    let first = run(&lab, &up).ended(0);
    assert_eq!(first.summary["deployment"], anew.summary["deployment"]);

    let would = |arguments: &[&str]| {
        let check = run(&lab, &[arguments, &["--check"]].concat()).ended(0);
        assert_eq!(check.summary["would_push"]["h1"]["missing_bytes"], 0);
        let told = check.summary["would_push"]["h2"].clone();
        (
            told["missing_bytes"].as_u64().unwrap(),
            told["damaged"].clone(),
        )
    };
    let damaged = (bytes, serde_json::json!([name]));
    let sound = (0, serde_json::json!([]));
    assert_eq!(would(&up), sound);

    lab.sh("h2", &flip);
    assert_eq!(would(&up), damaged);
    let repaired = run(&lab, &up).ended(0);
    assert_eq!((repaired.sent("h1"), repaired.sent("h2")), (0, bytes));
    assert_eq!(lab.sh("h2", &format!("sha256sum < {file}")), digest);
    // What runs has mapped the damaged file: it was started anew, and for that.
    assert_eq!(
        repaired.summary["replaced"]["changes"],
        serde_json::json!(["pieces on h2 were missing or damaged"])
    );
    assert_ne!(repaired.summary["deployment"], first.summary["deployment"]);

    lab.sh(
        "h2",
        &format!("touch -r {file} /tmp/stamp; {flip}; touch -r /tmp/stamp {file}"),
    );
    assert_eq!(would(&up), sound);
    assert_eq!(run(&lab, &up).ended(0).sent("h2"), 0);
    let verify = ["up", "smollm2", "--verify"];
    assert_eq!(would(&verify), damaged);
    let repaired = run(&lab, &verify).ended(0);
    assert_eq!((repaired.sent("h1"), repaired.sent("h2")), (0, bytes));
    assert_eq!(lab.sh("h2", &format!("sha256sum < {file}")), digest);
}

#[test]
fn a_disk_too_small_is_named_and_the_other_hosts_keep_what_they_got() {
    if absent() {
        return;
    }
    let lab = Lab::with(&[("h1", Kind::Root), ("h2", Kind::Root)], |wanted| {
        wanted.disks.push(windlass_lab::Disk {
            host: "h2".into(),
            bytes: 96 << 20,
        });
    });
    if !give_model(lab.home()) {
        return;
    }
    let ran = run(&lab, &["push", "smollm2"]).ended(1);
    assert_eq!(ran.summary["error"]["host"], "h2");
    for wanted in ["h2", "/var/lib/windlass", "free", "needed"] {
        assert!(
            ran.message().contains(wanted),
            "{wanted}: {}",
            ran.message()
        );
    }
    let again = run(&lab, &["push", "smollm2"]).ended(1);
    assert_eq!(again.sent("h1"), 0, "h1 kept nothing");
}
