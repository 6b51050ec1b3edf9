//! In a real terminal: every way out gives it back, it follows the terminal's size, and the demo
//! can be talked with.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use super::terminal::{Terminal, signal};
use crate::cluster::harness::worker_program;
use crate::command_line::windlass;
use crate::support::tiny_model;

fn screens(home: &Path, arguments: &[&str]) -> Command {
    let mut command = windlass(home, arguments);
    command.current_dir(home);
    command
}

fn open(home: &Path) -> Terminal {
    let mut terminal = Terminal::start(screens(home, &[]), 80, 24);
    terminal.shows("No inventory of hosts yet");
    terminal
}

#[test]
fn q_leaves_with_status_0_and_the_terminal_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = open(home.path());
    terminal.types("q");
    let (status, contents) = terminal.ended_sane();
    assert_eq!(status.code(), Some(0), "{contents}");
}

#[test]
fn ctrl_c_leaves_with_status_130_and_the_terminal_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = open(home.path());
    terminal.types("\u{3}");
    let (status, contents) = terminal.ended_sane();
    assert_eq!(status.code(), Some(130), "{contents}");
}

#[test]
fn sigterm_leaves_with_status_143_and_the_terminal_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    let terminal = open(home.path());
    signal(terminal.pid(), Signal::TERM);
    let (status, contents) = terminal.ended_sane();
    assert_eq!(status.code(), Some(143), "{contents}");
}

#[test]
fn a_hang_up_leaves_with_status_143_and_the_terminal_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    let terminal = open(home.path());
    signal(terminal.pid(), Signal::HUP);
    let (status, contents) = terminal.ended_sane();
    assert_eq!(status.code(), Some(143), "{contents}");
}

#[test]
fn a_journal_is_shown_on_the_screens_and_left_like_them() {
    let home = tempfile::tempdir().unwrap();
    let inventory = "[cluster]\nname = \"home\"\n[hosts.here]\nconnection = \"local\"\n";
    std::fs::write(home.path().join("inventory.toml"), inventory).unwrap();
    let done = screens(home.path(), &["exec", "here", "--", "false"]).output();
    assert_eq!(done.unwrap().status.code(), Some(1));
    let journals = std::fs::read_dir(home.path().join("state/windlass/runs")).unwrap();
    let journal = journals.map(|entry| entry.unwrap().path()).next().unwrap();
    let arguments = ["replay", "--screens", journal.to_str().unwrap()];
    let mut terminal = Terminal::start(screens(home.path(), &arguments), 120, 40);
    terminal.shows("here");
    terminal.types("4");
    terminal.shows("exec");
    terminal.types("q");
    let (status, contents) = terminal.ended_sane();
    assert_eq!(status.code(), Some(0), "{contents}");
    let nowhere = screens(home.path(), &arguments).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(2), "{nowhere:?}");
}

/// Run in a terminal by the test below.
#[test]
#[ignore = "part of another test"]
fn opens_the_screens_and_panics() {
    let runtime = tokio_runtime();
    runtime.block_on(async {
        let _term = windlass::tui::term::Term::enter(true).unwrap();
        panic!("the sky fell");
    });
}

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn a_panic_gives_the_terminal_back_before_it_is_told() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "tui::pty::opens_the_screens_and_panics",
        "--ignored",
        "--nocapture",
    ]);
    command.env("RUST_BACKTRACE", "0");
    let terminal = Terminal::start(command, 80, 24);
    let (status, contents) = terminal.ended_sane();
    assert!(!status.success());
    assert!(contents.contains("the sky fell"), "{contents}");
}

#[test]
fn the_picture_follows_the_terminal_s_size_down_to_one_line() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = open(home.path());
    terminal.resize(40, 12);
    terminal.until("narrow picture", |c| {
        c.contains("No inventory") && !c.contains('╭')
    });
    terminal.resize(20, 3);
    terminal.until("one line", |c| c.trim().lines().count() == 1);
    terminal.resize(120, 40);
    terminal.shows("1 Overview");
    terminal.types("q");
    let (status, contents) = terminal.ended_sane();
    assert_eq!(status.code(), Some(0), "{contents}");
}

#[test]
fn a_host_is_added_at_the_screens_and_stands_in_the_file() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = open(home.path());
    terminal.types("2a");
    terminal.shows("add a host");
    terminal.types("halo1\t127.0.0.1\r");
    terminal.shows("write this to");
    assert!(!home.path().join("inventory.toml").exists());
    terminal.types("y");
    terminal.shows("hosts of inventory.toml");
    let text = std::fs::read_to_string(home.path().join("inventory.toml")).unwrap();
    assert!(
        text.contains("[hosts.halo1]") && text.contains("127.0.0.1"),
        "{text}"
    );
    terminal.types("q");
    assert_eq!(terminal.ended_sane().0.code(), Some(0));
}

#[test]
fn without_a_terminal_it_shows_its_help() {
    let home = tempfile::tempdir().unwrap();
    let output = screens(home.path(), &[]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("Usage: windlass"));
    assert_eq!(output.status.code(), Some(0));
}

/// The ids of a process's children.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect()
}

#[test]
fn the_demo_answers_at_the_screens_and_a_killed_worker_is_shown_with_its_reason() {
    let home = tempfile::tempdir().unwrap();
    let model = home.path().join("tiny.gguf");
    tiny_model(&model, 5);
    let mut command = screens(home.path(), &["demo", "--tokens", "64", "--model"]);
    command.arg(&model).env("WINDLASS_WORKER", worker_program());
    // High enough for both answers: nobody knows how many lines a model of random weights writes.
    let mut terminal = Terminal::start(command, 100, 200);
    terminal.shows("● serving");
    terminal.types("5");
    terminal.shows("tok/s");
    // The first prompt's answer is there before another is asked for.
    terminal.until("end of the first answer", |c| c.contains('✓'));
    // Whoever came here before there was a model to talk to is not writing yet.
    if terminal.contents().contains("enter: write to the model") {
        terminal.types("\r");
    }
    terminal.shows("enter ok");
    terminal.types("hello there\r");
    terminal.shows("you: hello there");
    terminal.until("an answer coming or done", |c| {
        c.rsplit("you: hello there")
            .next()
            .is_some_and(|rest| rest.contains("tokens"))
    });
    terminal.types("\u{1b}");
    terminal.shows("enter: write to the model");
    let workers = children(terminal.pid());
    assert_eq!(workers.len(), 2, "{workers:?}");
    signal(workers[1], Signal::KILL);
    terminal.types("1");
    terminal.until("the lost worker", |c| {
        c.contains("✗ lost") && c.contains("signal 9") && c.contains("it has ended")
    });
    terminal.types("q");
    let (status, contents) = terminal.ended_sane();
    assert_eq!(status.code(), Some(1), "{contents}");
    assert!(contents.contains("local-"), "{contents}");
}

#[test]
fn leaving_the_demo_at_the_screens_ends_its_workers() {
    let home = tempfile::tempdir().unwrap();
    let model = home.path().join("tiny.gguf");
    tiny_model(&model, 5);
    let mut command = screens(home.path(), &["demo", "--tokens", "16", "--model"]);
    command.arg(&model).env("WINDLASS_WORKER", worker_program());
    let mut terminal = Terminal::start(command, 80, 24);
    terminal.shows("● serving");
    let workers = children(terminal.pid());
    terminal.types("q");
    let (status, contents) = terminal.ended_sane();
    assert_eq!(status.code(), Some(0), "{contents}");
    for worker in workers {
        assert!(!crate::support::is_alive(worker), "{worker} is left");
    }
}
