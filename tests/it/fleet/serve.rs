//! The whole way: three hosts, one more, reboots, another controller.

use serde_json::json;

use super::controller::{Api, give_model, nothing_left, run, run_at, wait_for_state};
use crate::lab::{Kind, Lab, absent};
use crate::support::json_lines;

/// The demo's answer with two workers on this machine, and its prompt.
fn demo() -> (String, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["demo", "--workers", "2", "--json"])
        .output()
        .unwrap();
    let events = json_lines(&output.stdout);
    let summary = events.last().unwrap();
    let text = |name: &str| summary[name].as_str().unwrap().to_owned();
    (text("prompt"), text("text"))
}

#[test]
fn three_hosts_give_the_demo_s_answer_and_a_fourth_gets_only_what_moves() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[
        ("h1", Kind::Root),
        ("h2", Kind::Root),
        ("h3", Kind::Root),
        ("h4", Kind::Root),
    ]);
    if !give_model(lab.home()) {
        return;
    }
    let three = ["up", "smollm2", "--limit", "h1,h2,h3"];
    let plan = run(&lab, &["plan", "smollm2", "--limit", "h1,h2,h3"]).ended(0);
    let first = run(&lab, &three).ended(0);
    assert_eq!(first.summary["changed"], json!(true));
    for stage in 0..3 {
        let of = |ran: &super::controller::Ran| {
            let stage = &ran.summary["plan"]["stages"][stage];
            (stage["host"].clone(), stage["slices"].clone())
        };
        assert_eq!(of(&plan), of(&first), "what was planned is what was done");
    }
    for host in ["h1", "h2", "h3"] {
        let pushed = &first.summary["pushed"][host];
        let planned = pushed["planned_bytes"].as_u64().unwrap();
        let received = pushed["received_bytes"].as_u64().unwrap();
        assert!(
            received.abs_diff(planned) <= planned / 100,
            "{host}: planned {planned}, received {received}"
        );
    }

    let (prompt, wanted) = demo();
    let api = Api::open(&lab, 18080);
    let answer = api.post(
        &lab,
        "/v1/chat/completions",
        &json!({
            "model": "smollm2",
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0, "max_tokens": 128, "ignore_eos": true,
        }),
    );
    drop(api);
    assert_eq!(answer["choices"][0]["message"]["content"], json!(wanted));

    let status = run(&lab, &["status"]).ended(0);
    assert_eq!(status.summary["state"], "serving");
    assert_eq!(status.summary["stages"].as_array().unwrap().len(), 3);
    let logs = run(&lab, &["logs", "h2"]).ended(0);
    assert!(!logs.summary["logs"]["h2"].as_array().unwrap().is_empty());
    let chat = run(&lab, &["chat", "Say yes.", "--max-tokens", "4"]).ended(0);
    assert!(chat.summary["turns"][0]["text"].is_string());

    let again = run(&lab, &three).ended(0);
    assert_eq!(again.summary["changed"], json!(false));
    for host in ["h1", "h2", "h3"] {
        assert_eq!(again.sent(host), 0, "{host}");
    }

    let four = run(&lab, &["up", "smollm2"]).ended(0);
    let slices = |ran: &super::controller::Ran, host: &str| -> Vec<String> {
        ran.summary["plan"]["stages"]
            .as_array()
            .unwrap()
            .iter()
            .find(|stage| stage["host"] == host)
            .map(|stage| {
                stage["slices"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(ToString::to_string)
                    .collect()
            })
            .unwrap_or_default()
    };
    for host in ["h1", "h2", "h3", "h4"] {
        let had = slices(&first, host);
        let new: Vec<_> = slices(&four, host)
            .into_iter()
            .filter(|s| !had.contains(s))
            .collect();
        let files = four.summary["pushed"][host]["files"].as_u64().unwrap();
        assert_eq!(files, new.len() as u64, "{host}: {new:?}");
        assert_eq!(four.sent(host) == 0, new.is_empty(), "{host}");
    }
    let status = run(&lab, &["status"]).ended(0);
    assert_eq!(status.summary["stages"].as_array().unwrap().len(), 4);

    run(&lab, &["down"]).ended(0);
    run(&lab, &["status"]).ended(3);
    run(&lab, &["down"]).ended(3);
    nothing_left(&lab, "h1");
}

#[test]
fn a_deployment_outlives_its_controller_and_its_hosts_reboots() {
    if absent() {
        return;
    }
    let mut lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root), ("h3", Kind::Root)]);
    if !give_model(lab.home()) {
        return;
    }
    let fresh = lab.home().join("another");
    std::fs::create_dir_all(&fresh).unwrap();
    run(&lab, &["up", "smollm2"]).ended(0);
    for host in ["h2", "h1"] {
        lab.reboot(host);
        wait_for_state(&lab, &fresh, "serving");
        let chat = run_at(&lab, &fresh, &["chat", "Say yes.", "--max-tokens", "4"]).ended(0);
        assert!(chat.summary["turns"][0]["text"].is_string());
    }
    lab.kill("h3");
    lab.start("h3");
    wait_for_state(&lab, &fresh, "serving");
}

#[test]
fn memory_that_comes_and_goes_moves_no_layers_of_what_is_up() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    if !give_model(lab.home()) {
        return;
    }
    let layers = |ran: &super::controller::Ran| -> Vec<u64> {
        let stages = ran.summary["plan"]["stages"].as_array().unwrap();
        let count = |stage: &serde_json::Value| stage["layers"].as_u64().unwrap();
        stages.iter().map(count).collect()
    };
    let limit = |text: &str| {
        let value = format!("memory_limit={text}");
        let set = ["inventory", "set", "h1", &value];
        assert!(lab.windlass(&set).output().unwrap().status.success());
    };
    let equal = run(&lab, &["plan", "smollm2"]).ended(0);
    let need = &equal.summary["plan"]["stages"][0]["need"];
    let part = |name: &str| need[name].as_u64().unwrap();
    let total = part("pieces") + part("kv") + part("working");
    limit(&format!("{}MiB", (total * 8 / 10) >> 20));
    let tight = run(&lab, &["up", "smollm2"]).ended(0);
    assert_ne!(
        layers(&tight),
        layers(&equal),
        "the limit was not tight enough"
    );

    limit("");
    let roomy = run(&lab, &["plan", "smollm2"]).ended(0);
    assert_eq!(layers(&roomy), layers(&tight));
    let again = run(&lab, &["up", "smollm2"]).ended(0);
    assert_eq!(layers(&again), layers(&tight));
    assert_eq!((again.sent("h1"), again.sent("h2")), (0, 0));
    assert_eq!(again.summary["changed"], json!(false));

    // Where nothing is up, nothing keeps the layers in place.
    run(&lab, &["down"]).ended(0);
    assert_eq!(
        layers(&run(&lab, &["plan", "smollm2"]).ended(0)),
        layers(&equal)
    );
}
