//! Every kind of host works, or is refused in a sentence that says what to do.

use serde_json::{Value, json};

use super::controller::{Api, give_model, nothing_left, run};
use crate::lab::{Kind, Lab, absent};

/// Brings the model up on hosts of these kinds, the first a plain one unless it is said, asks it a
/// question through the API, looks, stops. Each kind comes with what keeps its worker.
fn serve_on(kinds: &[(Kind, &str)]) {
    if absent() {
        return;
    }
    let names: Vec<String> = (1..=kinds.len())
        .map(|number| format!("h{number}"))
        .collect();
    let wanted: Vec<(&str, Kind)> = names
        .iter()
        .zip(kinds)
        .map(|(name, (kind, _))| (name.as_str(), *kind))
        .collect();
    let lab = Lab::up(&wanted);
    if !give_model(lab.home()) {
        return;
    }
    let up = run(&lab, &["up", "smollm2"]).ended(0);
    assert_eq!(up.summary["replaced"], Value::Null);
    let api = Api::open(&lab, 18080);
    let answer = api.post(
        &lab,
        "/v1/chat/completions",
        &json!({
            "model": "smollm2",
            "messages": [{"role": "user", "content": "Say yes."}],
            "max_tokens": 4,
        }),
    );
    drop(api);
    let text = &answer["choices"][0]["message"]["content"];
    assert!(
        text.as_str().is_some_and(|text| !text.is_empty()),
        "{answer}"
    );

    let status = run(&lab, &["status"]).ended(0);
    let stages = status.summary["stages"].as_array().unwrap();
    assert_eq!(stages.len(), kinds.len());
    for ((name, (kind, keeper)), stage) in names.iter().zip(kinds).zip(stages) {
        assert_eq!(stage["host"], json!(name));
        assert_eq!(stage["worker"], "active", "{kind:?}: {stage}");
        let kept = stage["keeper"].as_str().unwrap();
        assert!(kept.contains(keeper), "{kind:?}: {stage}");
        assert_eq!(
            stage["survives_reboot"],
            json!(!keeper.contains("does not survive")),
            "{kind:?}"
        );
    }
    let logs = run(&lab, &["logs"]).ended(0);
    for name in &names {
        let lines = logs.summary["logs"][name].as_array().unwrap();
        assert!(!lines.is_empty(), "{name} has no log");
    }
    run(&lab, &["down"]).ended(0);
    for name in &names {
        nothing_left(&lab, name);
    }
    run(&lab, &["status"]).ended(3);
}

const SYSTEM: &str = "system unit";
const USER: &str = "user unit with linger";
const PROCESS: &str = "does not survive a reboot";

#[test]
fn each_login_is_used_as_far_as_it_goes_with_a_unit_or_a_process_that_fits_it() {
    serve_on(&[
        (Kind::Root, SYSTEM),
        (Kind::SudoPassword, SYSTEM),
        (Kind::SudoFree, SYSTEM),
        (Kind::NoSudo, USER),
        (Kind::NotSudoer, USER),
        (Kind::NoLinger, PROCESS),
        (Kind::NoSystemd, PROCESS),
        (Kind::NoSystemdUser, PROCESS),
    ]);
}

#[test]
fn noisy_logins_other_shells_passwords_and_no_sftp_change_nothing() {
    serve_on(&[
        (Kind::Banner, SYSTEM),
        (Kind::Fish, SYSTEM),
        (Kind::Csh, SYSTEM),
        (Kind::NoSftp, SYSTEM),
        (Kind::Password, SYSTEM),
        (Kind::Keyboard, SYSTEM),
    ]);
}

#[test]
fn hosts_behind_a_jump_host_take_part_also_as_the_head() {
    serve_on(&[
        (Kind::BehindJump, SYSTEM),
        (Kind::Root, SYSTEM),
        (Kind::BehindJump, SYSTEM),
    ]);
}

#[test]
fn a_sudo_that_wants_a_terminal_is_refused_with_the_line_that_lets_it_do_without() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::RequireTty)]);
    if !give_model(lab.home()) {
        return;
    }
    for command in [&["up", "smollm2"][..], &["push", "smollm2"]] {
        let ran = run(&lab, command).ended(4);
        assert_eq!(ran.summary["error"]["host"], "h2");
        assert_eq!(ran.summary["error"]["step"], "sudo");
        assert_eq!(ran.summary["hosts"]["h2"]["unreachable"], 1);
        for wanted in ["h2", "requiretty", "!requiretty", "/etc/sudoers.d"] {
            assert!(
                ran.message().contains(wanted),
                "{wanted}: {}",
                ran.message()
            );
        }
    }
    for host in ["h1", "h2"] {
        assert_eq!(
            lab.sh(host, "ls -A /var/lib/windlass 2>/dev/null || true"),
            ""
        );
    }
    // What needs no root works.
    run(&lab, &["exec", "h2", "--", "hostname"]).ended(0);
    run(&lab, &["facts", "h2"]).ended(0);
}

#[test]
fn a_host_with_only_ipv6_takes_part() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Ipv6Only), ("h2", Kind::Ipv6Only)]);
    if !give_model(lab.home()) {
        return;
    }
    run(&lab, &["up", "smollm2"]).ended(0);
    run(&lab, &["down"]).ended(0);
}
