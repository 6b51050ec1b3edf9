//! Deployments that another windlass made: an older one is shown, replaced and stopped; a newer one
//! is left alone and can be stopped.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::controller::{give_model, nothing_left, run};
use crate::cluster::harness::worker_program;
use crate::lab::{Kind, Lab, absent};

/// A worker's program that does the same and is another: bytes behind an executable are not loaded.
fn older_worker(lab: &Lab) -> String {
    let path = lab.home().join("older-worker");
    let mut bytes = fs::read(worker_program()).unwrap();
    bytes.extend_from_slice(b"an older build");
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Changes the records on both hosts.
fn records(lab: &Lab, edit: &str) {
    for host in ["h1", "h2"] {
        lab.sh(
            host,
            &format!("sed -i '{edit}' /var/lib/windlass/deployments/*/record.json"),
        );
    }
}

#[test]
fn a_newer_controller_shows_replaces_and_stops_an_older_deployment() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    if !give_model(lab.home()) {
        return;
    }
    let older = older_worker(&lab);
    let up_older = ["up", "smollm2", "--worker", &older];
    let age = "s/\"version\": \"[^\"]*\"/\"version\": \"0.0.9\"/";
    run(&lab, &up_older).ended(0);
    records(&lab, age);
    let status = run(&lab, &["status"]).ended(0);
    assert_eq!(status.summary["version"], "0.0.9");
    run(&lab, &["down"]).ended(0);
    nothing_left(&lab, "h1");

    run(&lab, &up_older).ended(0);
    records(&lab, age);
    let up = run(&lab, &["up", "smollm2"]).ended(0);
    assert_eq!(up.summary["changed"], true);
    assert_eq!(up.summary["replaced"]["version"], "0.0.9");
    assert_eq!(
        up.summary["replaced"]["changes"],
        json!(["the worker's program"])
    );
    for host in ["h1", "h2"] {
        // The program is new, the pieces are not.
        assert_eq!(up.summary["pushed"][host]["sent_bytes"], 0);
        let runs = lab.sh(
            host,
            "readlink /proc/$(pgrep -f '[w]indlass-worker serve')/exe",
        );
        assert!(!runs.contains("deleted"), "{runs}");
    }
    let said = lab.windlass(&["status"]).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    let status = run(&lab, &["status"]).ended(0);
    assert_eq!(status.summary["version"], env!("CARGO_PKG_VERSION"));
    let chat = run(&lab, &["chat", "Say yes.", "--max-tokens", "4"]).ended(0);
    assert!(chat.summary["turns"][0]["text"].is_string());
    run(&lab, &["down"]).ended(0);
    nothing_left(&lab, "h2");
}

#[test]
fn a_record_of_a_newer_form_is_refused_in_one_sentence_and_can_be_stopped() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    if !give_model(lab.home()) {
        return;
    }
    run(&lab, &["up", "smollm2"]).ended(0);
    records(
        &lab,
        "s/\"v\": 1/\"v\": 99/; s/\"version\": \"[^\"]*\"/\"version\": \"7.0.0\"/",
    );
    for command in [
        &["status"][..],
        &["up", "smollm2"],
        &["chat", "x"],
        &["plan", "smollm2"],
    ] {
        let ran = run(&lab, command).ended(1);
        let message = ran.message();
        for wanted in ["7.0.0", "form 99", "windlass down"] {
            assert!(message.contains(wanted), "{command:?}: {wanted}: {message}");
        }
        assert!(!message.contains('\n'), "{message}");
    }
    // It went on serving.
    let serving = lab.sh("h1", "pgrep -fc '[w]indlass-worker serve'");
    assert_eq!(serving.trim(), "1");
    run(&lab, &["down"]).ended(0);
    for host in ["h1", "h2"] {
        nothing_left(&lab, host);
    }
    run(&lab, &["status"]).ended(3);
}
