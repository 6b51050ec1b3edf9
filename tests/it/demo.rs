//! The demo from outside, with stand-ins for the workers: its summary, its text, and what it does
//! when a worker is killed or it is interrupted itself. Real workers are tested apart.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::command_line::windlass;
use crate::support::{is_alive, json_lines, tiny_model};

struct Lab {
    home: tempfile::TempDir,
    model: PathBuf,
}

impl Lab {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let model = home.path().join("tiny.gguf");
        tiny_model(&model, 5);
        Self { home, model }
    }

    fn demo(&self, arguments: &[&str], pace: &str) -> Command {
        let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fake_worker.py");
        let mut all = vec![
            "demo",
            "--headless",
            "--model",
            self.model.to_str().unwrap(),
        ];
        all.extend_from_slice(arguments);
        let mut command = windlass(self.home.path(), &all);
        command
            .env("WINDLASS_WORKER", worker)
            .env("FAKE_PACE", pace)
            .stdin(Stdio::null());
        command
    }

    /// Nothing of the run is left but its cache and journal.
    fn assert_clean(&self) {
        let runtime = self.home.path().join("run/windlass");
        let left: Vec<_> = std::fs::read_dir(&runtime)
            .map(|entries| entries.flatten().map(|e| e.path()).collect())
            .unwrap_or_default();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// A demo whose events are read as they come.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    seen: Vec<Value>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            lines,
            seen: Vec::new(),
        }
    }

    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        for line in self.lines.by_ref() {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            self.seen.push(event.clone());
            if wanted(&event) {
                return event;
            }
        }
        panic!("the demo ended before that: {:?}", self.seen.last());
    }

    /// Process ids by stage.
    fn pids(&self) -> Vec<u32> {
        let started = self
            .seen
            .iter()
            .filter(|e| e["event"] == "worker" && e["state"] == "starting");
        started.map(|e| e["pid"].as_u64().unwrap() as u32).collect()
    }

    fn end(mut self) -> (i32, Value) {
        let summary = self.until(|e| e["event"] == "summary");
        crate::schema::check(&summary);
        let status = self.child.wait().unwrap();
        for pid in self.pids() {
            assert!(!is_alive(pid), "worker {pid} is left behind");
        }
        (status.code().expect("killed by a signal"), summary)
    }
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

fn answering(event: &Value) -> bool {
    event["event"] == "tokens" && event["count"].as_u64() >= Some(3)
}

#[test]
fn the_summary_has_the_answer_and_its_speed_for_any_number_of_workers() {
    let lab = Lab::new();
    for workers in ["1", "2", "5"] {
        let output = lab
            .demo(&["--json", "--workers", workers, "--tokens", "20"], "0.001")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let lines = json_lines(&output.stdout);
        let seqs: Vec<_> = lines.iter().map(|l| l["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, (0..lines.len() as u64).collect::<Vec<_>>());
        assert_eq!(lines[0]["event"], "run_started");
        let last = lines.last().unwrap();
        crate::schema::check(last);
        assert_eq!(last["workers"].to_string(), workers);
        assert_eq!(last["tokens"], 20);
        assert!(last["tokens_per_second"].as_f64().unwrap() > 0.0);
        let text = last["text"].as_str().unwrap();
        assert!(
            text.starts_with("0 1 2 ") && text.ends_with("18 19 "),
            "{text}"
        );
        let streamed: String = lines
            .iter()
            .filter(|l| l["event"] == "tokens")
            .map(|l| l["text"].as_str().unwrap())
            .collect();
        assert_eq!(streamed, text);
        let rates = lines.iter().rfind(|l| l["event"] == "telemetry").unwrap();
        for name in ["first_token_ms", "between_tokens_ms"] {
            let of = |quantile: &str| rates[name][quantile].as_f64().unwrap();
            assert!(0.0 < of("p50") && of("p50") <= of("p95"), "{rates}");
        }
        assert!(last["error"].is_null());
        assert_eq!(
            last["stages"].as_array().unwrap().len().to_string(),
            workers
        );
        assert_eq!(last["hosts"]["local-1"]["failed"], 0);
        lab.assert_clean();
    }
}

#[test]
fn the_answer_alone_is_on_stdout_and_the_journal_has_no_text() {
    let lab = Lab::new();
    let output = lab.demo(&["--tokens", "5"], "0.001").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0 1 2 3 4 \n");
    let talk = String::from_utf8(output.stderr).unwrap();
    assert!(talk.contains("recap") && talk.contains("exit 0"), "{talk}");
    let runs = lab.home.path().join("state/windlass/runs");
    let journals: Vec<_> = std::fs::read_dir(runs).unwrap().flatten().collect();
    assert_eq!(journals.len(), 1);
    let journal = std::fs::read_to_string(journals[0].path()).unwrap();
    assert!(journal.lines().last().unwrap().contains("\"summary\""));
    assert!(
        !journal.contains("windlass lets one person") && !journal.contains("0 1 2"),
        "{journal}"
    );
    assert!(!journal.contains("PRIVATE KEY"));
}

#[test]
fn a_worker_killed_in_mid_answer_is_named_and_nothing_is_left() {
    for (stage, host) in [(1, "local-2"), (0, "local-1")] {
        let lab = Lab::new();
        let mut demo = Running::start(lab.demo(&["--json", "--tokens", "1000"], "0.05"));
        demo.until(answering);
        let pid = demo.pids()[stage];
        signal(pid, "KILL");
        let (exit, summary) = demo.end();
        assert_eq!(exit, 1);
        assert_eq!(summary["exit"], 1);
        let error = &summary["error"];
        assert_eq!(error["kind"], "worker");
        assert_eq!(error["host"], host);
        assert_eq!(error["step"], "answer");
        let message = error["message"].as_str().unwrap();
        for part in [host, &format!("stage {stage}"), &pid.to_string(), "SIGKILL"] {
            assert!(message.contains(part), "no {part} in {message}");
        }
        assert!(summary["text"].as_str().unwrap().starts_with("0 1 2"));
        lab.assert_clean();
    }
}

#[test]
fn an_interrupt_or_a_signal_to_end_stops_the_workers_and_is_told_by_the_exit_status() {
    for (name, code, kind) in [("INT", 130, "interrupted"), ("TERM", 143, "terminated")] {
        let lab = Lab::new();
        let mut demo = Running::start(lab.demo(&["--json", "--tokens", "1000"], "0.05"));
        demo.until(answering);
        signal(demo.child.id(), name);
        let (exit, summary) = demo.end();
        assert_eq!((exit, summary["exit"].as_i64()), (code, Some(code.into())));
        assert_eq!(summary["error"]["kind"], kind);
        lab.assert_clean();
    }
}

#[test]
fn a_demo_that_is_killed_takes_its_workers_with_it() {
    let lab = Lab::new();
    let mut demo = Running::start(lab.demo(&["--json", "--tokens", "1000"], "0.05"));
    demo.until(answering);
    let pids = demo.pids();
    assert_eq!(pids.len(), 2);
    signal(demo.child.id(), "KILL");
    demo.child.wait().unwrap();
    // Their stdin has ended; they follow within moments.
    while pids.iter().any(|pid| is_alive(*pid)) {
        std::thread::yield_now();
    }
}

#[test]
fn an_output_that_nobody_reads_ends_the_run() {
    let lab = Lab::new();
    let mut demo = Running::start(lab.demo(&["--json", "--tokens", "1000"], "0.01"));
    demo.until(answering);
    let pids = demo.pids();
    drop(demo.lines);
    assert_eq!(demo.child.wait().unwrap().code(), Some(1));
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    lab.assert_clean();
}

#[test]
fn more_workers_than_layers_is_refused_before_anything_is_started() {
    let lab = Lab::new();
    let output = lab
        .demo(&["--json", "--workers", "6"], "0")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let lines = json_lines(&output.stdout);
    let last = lines.last().unwrap();
    assert_eq!(last["error"]["kind"], "plan");
    assert!(
        last["error"]["message"]
            .as_str()
            .unwrap()
            .contains("at most 5")
    );
    assert!(!lines.iter().any(|l| l["event"] == "worker"));
}

#[test]
fn a_file_that_is_no_model_is_refused_with_its_name() {
    let lab = Lab::new();
    std::fs::write(&lab.model, "nothing of the kind").unwrap();
    let output = lab.demo(&["--json"], "0").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let last = json_lines(&output.stdout).pop().unwrap();
    assert_eq!(last["error"]["kind"], "model");
    assert!(
        last["error"]["message"]
            .as_str()
            .unwrap()
            .contains("tiny.gguf"),
        "{last}"
    );
}
