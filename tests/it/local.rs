//! Local workers against stand-ins written in sh: starting, telling, hearing, noticing the end.

use std::path::Path;
use std::sync::Arc;

use windlass::deploy::local::LocalWorkers;
use windlass::event::{Bus, Envelope, Event, FailureKind, Mailbox, WorkerState};
use windlass_wire::assignment::Assignment;

use crate::support::{is_alive, program};

/// Reads the assignment, says where it listens, waits for the others' addresses.
const START: &str = r#"#!/bin/sh
read -r assign
case "$assign" in *'"stage":0,'*) stage=0 ;; *) stage=1 ;; esac
echo '{"event":"listening","address":"127.0.0.1:100'$stage'"}'
read -r peers
"#;
/// Says that it is ready; the head also that it serves.
const READY: &str = r#"
case "$peers" in *'"127.0.0.1:1000","127.0.0.1:1001"'*) ;; *) exit 9 ;; esac
echo '{"event":"loaded","layers":1,"bytes":1000,"seconds":0.5,"device":"CPU"}'
echo '{"event":"ready"}'
[ $stage = 0 ] && echo '{"event":"serving","api":"127.0.0.1:8080"}'
"#;
/// Ends when told to, or when stdin ends.
const FOLLOW: &str = r#"
while read -r line; do
  case "$line" in *stop*) exit 0 ;; esac
done
exit 0
"#;

fn assignments(count: u32) -> Vec<Assignment> {
    (0..count)
        .map(|stage| Assignment {
            deployment: "demo-1".into(),
            host: format!("local-{}", stage + 1),
            stage,
            stages: count,
            first_layer: stage,
            layers: 1,
            listen: "127.0.0.1:0".into(),
            pieces: "/nowhere".into(),
            manifest: "m".into(),
            identity: None,
            api: None,
            context: 64,
            kv_blocks: 4,
            threads: 1,
            batch_rows: 8,
            follow_stdin: true,
        })
        .collect()
}

struct Lab {
    _folder: tempfile::TempDir,
    workers: LocalWorkers,
    mailbox: Mailbox,
}

fn lab(script: &[&str]) -> Lab {
    let folder = tempfile::tempdir().unwrap();
    let path = program(folder.path(), "worker", &script.concat());
    let bus = Bus::new("r");
    let mailbox = bus.subscribe();
    let workers = start(&path, &bus);
    Lab {
        _folder: folder,
        workers,
        mailbox,
    }
}

/// A file just written cannot be run while another test's child still has it open for writing
/// from before its own program began; that passes.
fn start(path: &Path, bus: &Bus) -> LocalWorkers {
    loop {
        match LocalWorkers::spawn(path, assignments(2), bus.emitter()) {
            Err(failure) if failure.message.contains("Text file busy") => {}
            other => return other.unwrap(),
        }
    }
}

fn states(events: &[Arc<Envelope>], host: &str) -> Vec<WorkerState> {
    events
        .iter()
        .filter(|e| e.scope.host.as_deref() == Some(host))
        .filter_map(|e| match &e.event {
            Event::Worker(worker) => Some(worker.state),
            _ => None,
        })
        .collect()
}

fn logs(events: &[Arc<Envelope>]) -> Vec<String> {
    events
        .iter()
        .filter_map(|e| match &e.event {
            Event::Log { message, .. } => Some(message.clone()),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn workers_learn_each_others_addresses_get_ready_and_stop_when_told() {
    let mut lab = lab(&[START, READY, FOLLOW]);
    lab.workers.ready().await.unwrap();
    assert_eq!(lab.workers.api(), Some("127.0.0.1:8080"));
    let info = lab.workers.info();
    assert!(
        info.iter()
            .all(|w| w.piece_bytes == 1000 && is_alive(w.pid))
    );
    lab.workers.stop().await;
    assert!(info.iter().all(|w| !is_alive(w.pid)));
    let events = lab.mailbox.drain();
    use WorkerState::*;
    assert_eq!(
        states(&events, "local-2"),
        [Starting, Listening, Loaded, Ready, Stopped]
    );
}

#[tokio::test]
async fn a_worker_killed_in_mid_run_is_named_with_pid_and_signal() {
    let mut lab = lab(&[START, READY, FOLLOW]);
    lab.workers.ready().await.unwrap();
    let pid = lab.workers.info()[1].pid;
    kill(pid);
    let failure = lab.workers.lost("answer").await;
    assert_eq!(failure.kind, FailureKind::Worker);
    assert_eq!(failure.host.as_deref(), Some("local-2"));
    assert_eq!(failure.step.as_deref(), Some("answer"));
    assert_eq!(
        failure.message,
        format!("worker local-2 (stage 1, pid {pid}) was killed by signal 9 (SIGKILL)")
    );
    lab.workers.stop().await;
    let events = lab.mailbox.drain();
    assert_eq!(states(&events, "local-2").last(), Some(&WorkerState::Lost));
    assert_eq!(
        states(&events, "local-1").last(),
        Some(&WorkerState::Stopped)
    );
}

fn kill(pid: u32) {
    let status = std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn a_worker_that_fails_at_its_start_is_told_with_its_own_words() {
    let fails = r#"
[ $stage = 1 ] && echo '{"event":"failed","kind":"piece","message":"layer-0001 does not verify"}' && exit 1
"#;
    let mut lab = lab(&[START, fails, READY, FOLLOW]);
    let failure = lab.workers.ready().await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Piece);
    assert_eq!(failure.host.as_deref(), Some("local-2"));
    assert!(
        failure
            .message
            .ends_with("ended with exit status 1: layer-0001 does not verify"),
        "{failure}"
    );
    lab.workers.stop().await;
    assert!(lab.workers.info().iter().all(|w| !is_alive(w.pid)));
}

#[tokio::test]
async fn what_a_worker_says_beside_its_reports_becomes_log_events() {
    let talk = "echo 'thread main panicked' >&2\necho 'no report at all'\n";
    let mut lab = lab(&[START, talk, READY, FOLLOW]);
    lab.workers.ready().await.unwrap();
    lab.workers.stop().await;
    let logs = logs(&lab.mailbox.drain());
    assert!(logs.iter().any(|l| l == "thread main panicked"), "{logs:?}");
    assert!(
        logs.iter().any(|l| l.ends_with("no report at all")),
        "{logs:?}"
    );
}

#[tokio::test]
async fn a_worker_that_does_not_stop_is_killed() {
    let deaf = "trap '' TERM INT HUP\nwhile :; do read -r line || sleep 1; done\n";
    let mut lab = lab(&[START, READY, deaf]);
    lab.workers.ready().await.unwrap();
    let info = lab.workers.info();
    lab.workers.kill_all().await;
    assert!(info.iter().all(|w| !is_alive(w.pid)));
}

#[tokio::test]
async fn dropping_the_workers_kills_them() {
    let deaf = "while :; do read -r line || sleep 1; done\n";
    let mut lab = lab(&[START, READY, deaf]);
    lab.workers.ready().await.unwrap();
    let info = lab.workers.info();
    drop(lab.workers);
    // The runtime reaps them; a moment may pass, no longer.
    while info.iter().any(|w| is_alive(w.pid)) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_run_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("worker");
    std::fs::write(&path, "no program").unwrap();
    let bus = Bus::new("r");
    let failure = LocalWorkers::spawn(&path, assignments(2), bus.emitter()).unwrap_err();
    assert_eq!(failure.host.as_deref(), Some("local-1"));
    assert!(failure.message.contains("cannot be started"), "{failure}");
}
