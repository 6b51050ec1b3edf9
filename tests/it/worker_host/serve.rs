//! Stages that find each other again with no controller, whatever is killed, in any order.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::Command;

use windlass_wire::assignment::FromWorker;

use super::super::cluster::harness::{Model, Settings};
use super::super::cluster::http::{Chat, PATIENCE, ask, chat, exact};
use super::unit::{Deployment, message};

/// Long enough that no answer ends by itself.
const ENDLESS: u32 = 3500;

fn settings() -> Settings {
    Settings {
        context: 4096,
        kv_blocks: 4 * 4096 / 32,
        ..Settings::of(3)
    }
}

#[test]
fn stages_started_in_any_order_and_killed_in_turn_find_each_other_again() {
    let model = Model::tiny();
    let mut all = Deployment::new(&model, &settings());
    all.start(2);
    all.start(0);
    all.head_is_up();
    // While stages are missing the head answers, and names them.
    let status = all.until("waiting for stage 1 alone", |status| {
        let reason = status.reason.clone().unwrap_or_default();
        reason.contains("stage 1 on host-1") && !reason.contains("stage 2")
    });
    assert_eq!(status.state, "starting");
    assert!(!status.stages[1].alive && status.stages[2].alive);
    let body = chat("hello", 4).to_string();
    let (code, answer) = ask(all.api, "POST", "/v1/chat/completions", &body).unwrap();
    assert_eq!(code, 503, "{answer}");
    assert!(message(&answer).contains("stage 1 on host-1"), "{answer}");
    let (code, health) = ask(all.api, "GET", "/health", "").unwrap();
    assert_eq!((code, &health["status"]), (503, &"starting".into()));

    all.start(1);
    all.serves();
    let wanted = exact(all.api, "a prompt", 12);
    let mut epoch = 0;
    for victim in [1, 2, 0, 2, 1] {
        let mut open = Chat::begin(all.api, "one", ENDLESS);
        open.hear(3);
        all.kill(victim);
        let error = open.end().unwrap_err();
        if victim == 0 {
            all.start(0);
            all.head_is_up();
        } else {
            let who = format!("stage {victim} on host-{victim}");
            assert!(error.contains(&who), "no {who} in {error}");
            let status = all.until("the loss", |status| {
                status.state == "degraded" && status.stages.iter().all(|s| s.kv_used == 0)
            });
            assert!(status.reason.unwrap().contains(&format!("stage {victim}")));
            let (code, answer) = ask(all.api, "POST", "/v1/chat/completions", &body).unwrap();
            assert_eq!(code, 503, "{answer}");
            assert!(message(&answer).contains(&who), "{answer}");
            assert!(status.epoch > epoch);
            epoch = status.epoch;
            all.start(victim);
        }
        let status = all.serves();
        assert_eq!(status.reason, None);
        assert!(status.stages.iter().all(|stage| stage.alive), "{status:?}");
        assert_eq!(exact(all.api, "a prompt", 12), wanted, "after {victim}");
        if victim == 0 {
            epoch = 0;
        }
    }
    // All at once, as after a power cut, and back in another order.
    for stage in 0..3 {
        all.kill(stage);
    }
    for stage in [1, 2, 0] {
        all.start(stage);
    }
    all.head_is_up();
    all.serves();
    assert_eq!(exact(all.api, "a prompt", 12), wanted);
    for stage in 0..3 {
        let nonsense: Vec<_> = all
            .process(stage)
            .said()
            .into_iter()
            .filter(|r| matches!(r, FromWorker::Log { level, .. } if level == "nonsense"))
            .collect();
        assert!(nonsense.is_empty(), "{nonsense:?}");
    }
}

#[test]
fn every_stage_ends_cleanly_when_asked_and_the_others_wait_for_it() {
    let model = Model::tiny();
    let mut all = Deployment::new(&model, &settings());
    for stage in 0..3 {
        all.start(stage);
    }
    all.head_is_up();
    all.serves();
    let mut open = Chat::begin(all.api, "one", ENDLESS);
    open.hear(3);
    all.process(1).signal("TERM");
    assert_eq!(all.process(1).wait().code(), Some(0));
    open.end().unwrap_err();
    all.until("the loss", |status| status.state == "degraded");
    all.start(1);
    all.serves();
    let mut open = Chat::begin(all.api, "one", ENDLESS);
    open.hear(3);
    all.process(0).signal("TERM");
    assert_eq!(all.process(0).wait().code(), Some(0));
    open.end().unwrap_err();
    assert!(!all.socket().exists(), "it takes its socket with it");
    // The others outlive the head, which is what a reboot of its host asks of them.
    all.start(0);
    all.head_is_up();
    all.serves();
    for stage in [2, 1, 0] {
        all.process(stage).signal("TERM");
        assert_eq!(all.process(stage).wait().code(), Some(0));
    }
}

#[test]
fn a_single_stage_serves_from_its_folder_and_replaces_a_stale_socket() {
    let model = Model::tiny();
    let mut all = Deployment::new(&model, &Settings::of(1));
    all.start(0);
    all.head_is_up();
    all.serves();
    all.kill(0);
    assert!(all.socket().exists());
    all.start(0);
    all.head_is_up();
    all.serves();
    exact(all.api, "a prompt", 4);
}

#[test]
fn a_taken_api_port_is_a_failure_of_its_own_that_names_the_holder() {
    let model = Model::tiny();
    let mut all = Deployment::new(&model, &settings());
    let _taken = TcpListener::bind(all.api).unwrap();
    all.start(0);
    let (kind, message) = all.process(0).report("why it failed", |r| match r {
        FromWorker::Failed { kind, message } => Some((kind.clone(), message.clone())),
        _ => None,
    });
    assert_eq!(kind, "port");
    let pid = format!("(pid {})", std::process::id());
    assert!(
        message.contains(&all.api.to_string()) && message.contains(&pid),
        "{message}"
    );
    assert_eq!(all.process(0).wait().code(), Some(3));
}

#[test]
fn orders_that_cannot_be_read_are_named_without_a_word_of_them() {
    let model = Model::tiny();
    let mut all = Deployment::new(&model, &settings());
    let path = all.folders[1].join("assignment.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("{", "{\"secret\":1,", 1)).unwrap();
    all.start(1);
    let message = all.process(1).report("why it failed", |r| match r {
        FromWorker::Failed { message, .. } => Some(message.clone()),
        _ => None,
    });
    assert!(
        message.contains("assignment.json") && !message.contains("secret"),
        "{message}"
    );
    assert_eq!(all.process(1).wait().code(), Some(2));
}

/// A network of our own, in which the links can be cut silently.
struct Namespace(String);

impl Namespace {
    /// `None`, aloud, where this user may not make one.
    fn new(purpose: &str) -> Option<Self> {
        let name = format!("wl-{purpose}-{}", std::process::id());
        let ip = |arguments: &[&str]| {
            Command::new("ip")
                .args(arguments)
                .output()
                .is_ok_and(|done| done.status.success())
        };
        if ip(&["netns", "add", &name]) {
            let made = Self(name);
            assert!(made.lo("up"));
            return Some(made);
        }
        eprintln!("SKIPPED: a silent link needs `ip` and the right to make a network namespace");
        None
    }

    /// Runs a program within.
    fn run(&self, words: &[&str]) -> bool {
        Command::new("ip")
            .args(["netns", "exec", &self.0])
            .args(words)
            .output()
            .is_ok_and(|done| done.status.success())
    }

    fn lo(&self, state: &str) -> bool {
        Command::new("ip")
            .args(["-n", &self.0, "link", "set", "lo", state])
            .status()
            .is_ok_and(|done| done.success())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[test]
fn a_link_that_is_silently_dead_is_noticed_and_found_again() {
    let Some(network) = Namespace::new("idle") else {
        return;
    };
    let model = Model::tiny();
    let mut all = Deployment::within(&model, &settings(), &["ip", "netns", "exec", &network.0]);
    for stage in 0..3 {
        all.start(stage);
    }
    all.head_is_up();
    all.serves();
    let before = talk(&all);
    // A moment costs nothing.
    let epoch = all.status().epoch;
    assert!(network.lo("down") && network.lo("up"));
    assert_eq!(talk(&all), before);
    assert_eq!(all.status().epoch, epoch);
    // Idle: nothing is under way that would fail by itself.
    assert!(network.lo("down"));
    let status = all.until("noticed", |status| status.state == "degraded");
    assert!(status.reason.is_some());
    assert!(network.lo("up"));
    all.serves();
    assert_eq!(talk(&all), before);
}

#[test]
fn a_link_cut_between_two_living_stages_is_named_by_both_ends_until_it_is_back() {
    let Some(network) = Namespace::new("cut") else {
        return;
    };
    let model = Model::tiny();
    let mut all = Deployment::within(&model, &settings(), &["ip", "netns", "exec", &network.0]);
    for stage in 0..3 {
        all.start(stage);
    }
    all.head_is_up();
    all.serves();
    let before = talk(&all);
    let address = all.process(2).report("where it listens", |r| match r {
        FromWorker::Listening { address } => Some(address.clone()),
        _ => None,
    });
    let port = address.rsplit(':').next().unwrap();
    // Whatever comes to stage 2 vanishes; its own link to the head stands.
    let rules = format!(
        "table inet cut {{ chain input {{ type filter hook input priority 0; tcp dport {port} drop; }}; }}"
    );
    if !network.run(&["nft", &rules]) {
        eprintln!("SKIPPED: a link cut on one side needs `nft`");
        return;
    }
    let status = all.until("named", |status| {
        let reason = status.reason.clone().unwrap_or_default();
        reason.contains("stage 1 on host-1") && reason.contains("cannot reach stage 2 on host-2")
    });
    assert_eq!(status.state, "degraded");
    assert!(network.run(&["nft", "delete", "table", "inet", "cut"]));
    all.serves();
    assert_eq!(talk(&all), before);
}

/// A short answer through the head's own socket, which no network carries.
fn talk(all: &Deployment) -> String {
    let body = chat("hello", 6).to_string();
    let mut stream = UnixStream::connect(all.socket()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.0 200"), "{text}");
    let json = text.split("\r\n\r\n").nth(1).unwrap();
    let answer: serde_json::Value = serde_json::from_str(json).unwrap();
    answer["choices"][0]["message"]["content"].to_string()
}
