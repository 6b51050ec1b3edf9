//! The demo with real workers: what its last line has, and who is named when one is killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::harness::{Model, worker_program};
use crate::command_line::windlass;
use crate::support::{is_alive, json_lines};

fn demo(home: &Path, model: &Path, workers: u32, tokens: u32) -> Command {
    let mut command = windlass(home, &["demo", "--headless", "--json", "--model"]);
    command
        .arg(model)
        .args(["--workers", &workers.to_string()])
        .args(["--tokens", &tokens.to_string()])
        .env("WINDLASS_WORKER", worker_program())
        .stdin(Stdio::null());
    command
}

fn check_types(last: &Value, workers: u32, tokens: u32) {
    crate::schema::check(last);
    assert_eq!((&last["v"], &last["event"]), (&1.into(), &"summary".into()));
    assert_eq!(last["command"], "demo");
    assert!(last["run"].as_str().is_some_and(|run| !run.is_empty()));
    assert_eq!(last["exit"], 0);
    assert!(last["seconds"].as_f64().is_some_and(|s| s > 0.0));
    assert!(last["error"].is_null());
    let hosts = last["hosts"].as_object().unwrap();
    assert_eq!(hosts.len(), workers as usize);
    for host in hosts.values() {
        for counter in [
            "ok",
            "changed",
            "would_change",
            "skipped",
            "failed",
            "unreachable",
            "unknown",
            "bytes_sent",
        ] {
            assert!(host[counter].is_u64(), "{counter} in {host}");
        }
        assert_eq!(
            (host["failed"].as_u64(), host["unreachable"].as_u64()),
            (Some(0), Some(0))
        );
    }
    assert_eq!(last["workers"].as_u64(), Some(workers.into()));
    assert_eq!(last["tokens"].as_u64(), Some(tokens.into()));
    assert!(last["tokens_per_second"].as_f64().is_some_and(|t| t > 0.0));
    assert!(last["text"].as_str().is_some_and(|t| !t.is_empty()));
    assert_eq!(last["prompt"], windlass::deploy::demo::PROMPT);
}

#[test]
fn the_demo_says_the_same_bit_for_bit_over_any_number_of_workers() {
    let Some(model) = Model::real() else { return };
    let home = tempfile::tempdir().unwrap();
    let mut texts = Vec::new();
    for workers in [1, 2, 3, 5] {
        let output = demo(home.path(), &model.path, workers, 48)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let last = json_lines(&output.stdout).pop().unwrap();
        check_types(&last, workers, 48);
        println!("{workers} workers: {} tokens/s", last["tokens_per_second"]);
        texts.push(last["text"].as_str().unwrap().to_owned());
    }
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:#?}");
}

#[test]
fn the_demo_names_the_worker_that_was_killed_the_head_too() {
    let model = Model::tiny();
    for (workers, victim) in [(3, 0), (3, 1), (3, 2)] {
        let home = tempfile::tempdir().unwrap();
        let mut child = demo(home.path(), &model.path, workers, 1900)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut pids = Vec::new();
        let mut pieces = 0;
        let mut last = Value::Null;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if event["event"] == "worker" && event["state"] == "starting" {
                pids.push(event["pid"].as_u64().unwrap() as u32);
            }
            if event["event"] == "tokens" {
                pieces += 1;
                if pieces == 3 {
                    let pid = pids[victim].to_string();
                    assert!(
                        Command::new("kill")
                            .args(["-KILL", &pid])
                            .status()
                            .unwrap()
                            .success()
                    );
                }
            }
            last = event;
        }
        assert_eq!(child.wait().unwrap().code(), Some(1), "{last}");
        assert_eq!(
            (&last["event"], &last["exit"]),
            (&"summary".into(), &1.into())
        );
        let error = &last["error"];
        assert_eq!(error["kind"], "worker", "{last}");
        assert_eq!(error["host"], format!("local-{}", victim + 1), "{last}");
        let message = error["message"].as_str().unwrap();
        for part in [
            format!("stage {victim}"),
            pids[victim].to_string(),
            "SIGKILL".into(),
        ] {
            assert!(message.contains(&part), "no {part} in {message}");
        }
        assert!(
            pids.iter().all(|pid| !is_alive(*pid)),
            "workers are left behind"
        );
    }
}
