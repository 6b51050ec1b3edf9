//! Two controllers at once, and a host that is not there.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::controller::{give_model, run, run_at};
use crate::lab::{Cut, Kind, Lab, absent};
use crate::support::json_lines;

#[test]
fn the_second_of_two_controllers_names_the_first_and_changes_nothing() {
    if absent() {
        return;
    }
    let lab = Lab::with(&[("h1", Kind::Root), ("h2", Kind::Root)], |wanted| {
        wanted.rate = Some("50mbit".into());
    });
    let other = lab.home().join("other");
    if !give_model(lab.home()) || !give_model(&other) {
        return;
    }
    let mut child = lab
        .windlass(&["push", "smollm2", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut run_id = String::new();
    for line in lines.by_ref() {
        let event: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        event["run"].as_str().unwrap().clone_into(&mut run_id);
        if event["event"] == "transfer" && event["what"] == "pieces" {
            break;
        }
    }
    // Held where it is: it must not be done before the second is refused.
    let first = Pid::from_child(&child);
    kill_process(first, Signal::STOP).unwrap();
    let before = lab.sh(
        "h1",
        "ls -R /var/lib/windlass/deployments 2>/dev/null || true",
    );
    let second = run_at(&lab, &other, &["up", "smollm2"]).ended(1);
    assert_eq!(second.summary["error"]["step"], "lock");
    assert!(
        second.message().contains(&format!("run {run_id}")),
        "{}",
        second.message()
    );
    let after = lab.sh(
        "h1",
        "ls -R /var/lib/windlass/deployments 2>/dev/null || true",
    );
    assert_eq!(before, after);
    kill_process(first, Signal::CONT).unwrap();
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
    // The lock went with the first.
    run_at(&lab, &other, &["push", "smollm2"]).ended(0);
}

#[test]
fn several_hosts_that_fail_are_an_event_each_and_one_sentence() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root), ("h3", Kind::Root)]);
    if !give_model(lab.home()) {
        return;
    }
    for host in ["h1", "h3"] {
        lab.sh(
            host,
            "setsid python3 -c 'import socket, time; s = socket.create_server((\"\", 47600)); time.sleep(3600)' >/dev/null 2>&1 &",
        );
        lab.wait_for(host, "ss -ltn | grep -q :47600");
    }
    let output = lab.windlass(&["up", "smollm2", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let events = json_lines(&output.stdout);
    let mut told: Vec<&str> = events
        .iter()
        .filter(|event| event["event"] == "log" && event["level"] == "error")
        .map(|event| event["scope"]["host"].as_str().unwrap())
        .collect();
    told.sort_unstable();
    assert_eq!(told, ["h1", "h3"]);
    let summary = events.last().unwrap();
    crate::schema::check(summary);
    let message = summary["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("h1: "), "{message}");
    assert!(
        message.ends_with("(and 1 more failure, on h3)") && !message.contains('\n'),
        "{message}"
    );
    // Those that are not reached at all as well.
    for host in ["h1", "h2"] {
        lab.cut(host, Cut::Silent);
    }
    let ran = run(&lab, &["up", "smollm2"]).ended(4);
    assert!(
        ran.message().ends_with("(and 1 more failure, on h2)"),
        "{}",
        ran.message()
    );
    for host in ["h1", "h2"] {
        assert_eq!(ran.summary["hosts"][host]["unreachable"], 1);
    }
}

#[test]
fn a_host_whose_cable_is_cut_is_named_with_its_step_and_the_others_are_told_of() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    if !give_model(lab.home()) {
        return;
    }
    lab.cut("h2", Cut::Silent);
    let ran = run(&lab, &["up", "smollm2"]).ended(4);
    assert_eq!(ran.summary["error"]["host"], "h2");
    assert_eq!(ran.summary["error"]["step"], "connect");
    assert_eq!(ran.summary["hosts"]["h2"]["unreachable"], 1);
    let exec = run(&lab, &["exec", "@all", "--", "hostname"]).ended(4);
    assert_eq!(exec.summary["results"]["h1"]["stdout"], "h1\n");
}
