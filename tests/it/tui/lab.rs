//! A person at the screens before real hosts: attaches, talks, sees a killed worker and why, adds
//! a host, leaves; nothing stops because of it.

use std::process::Command;
use std::time::Instant;

use super::terminal::Terminal;
use crate::fleet::controller::{give_model, run, wait_for_state};
use crate::lab::{Kind, Lab, absent};

/// The screens, in the lab's controller.
fn screens(lab: &Lab) -> Command {
    let mut command = lab.windlass(&[]);
    command.env_remove("NO_COLOR");
    command
}

/// Opens them and waits until they show speeds.
fn open(lab: &Lab, columns: u16, rows: u16) -> Terminal {
    let mut terminal = Terminal::start(screens(lab), columns, rows);
    terminal.until("tokens per second", |c| {
        c.contains("tok/s") && c.contains("● serving")
    });
    terminal
}

fn leave(mut terminal: Terminal) {
    terminal.types("q");
    let (status, contents) = terminal.ended_sane();
    assert_eq!(status.code(), Some(0), "{contents}");
}

#[test]
fn a_running_deployment_is_attached_to_talked_with_and_left_running() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    if !give_model(lab.home()) {
        return;
    }
    let up = run(&lab, &["up", "smollm2"]).ended(0);
    let deployment = up.summary["deployment"].clone();

    let mut times = Vec::new();
    for (columns, rows) in [(80, 24), (120, 40), (40, 12)] {
        let begin = Instant::now();
        let terminal = open(&lab, columns, rows);
        times.push(begin.elapsed());
        leave(terminal);
    }
    times.sort();
    println!(
        "from start to tokens per second, median of three: {:?}",
        times[1]
    );

    let mut terminal = open(&lab, 100, 30);
    terminal.types("5");
    terminal.shows("you:");
    terminal.types("Say yes.\r");
    terminal.until("an answer with its speed", |c| {
        c.contains("you: Say yes.") && c.contains('✓') && c.contains("tok/s")
    });
    terminal.types("Tell me a very long story.\r");
    terminal.shows("answering");
    terminal.types("\u{1b}");
    terminal.shows("enter: write to the model");
    terminal.types("s");
    terminal.shows("stopped");
    terminal.types("6");
    terminal.shows("windlass-worker");
    leave(terminal);

    let status = run(&lab, &["status"]).ended(0);
    assert_eq!(
        status.summary["deployment"], deployment,
        "leaving stopped it"
    );
    assert_eq!(status.summary["running"], 0, "an answer is still computed");
}

#[test]
fn a_killed_worker_is_shown_with_its_reason_and_back_once_it_serves_again() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::SudoPassword)]);
    if !give_model(lab.home()) {
        return;
    }
    run(&lab, &["up", "smollm2"]).ended(0);
    let mut terminal = open(&lab, 120, 30);
    lab.sh("h2", "pkill -9 -f '[w]indlass-worker serve'");
    terminal.until("the reason", |c| {
        c.contains("LOST") && c.contains("signal 9")
    });
    wait_for_state(&lab, lab.home(), "serving");
    terminal.until("both hosts serving", |c| {
        c.lines().filter(|line| line.contains("● serving")).count() == 3
    });
    // The head's end takes the way to it along; it is found again.
    lab.sh("h1", "pkill -9 -f '[w]indlass-worker serve'");
    terminal.until("the head's reason", |c| {
        c.lines()
            .any(|line| line.contains("h1") && line.contains("signal 9"))
    });
    wait_for_state(&lab, lab.home(), "serving");
    terminal.until("both hosts serving again", |c| {
        c.lines().filter(|line| line.contains("● serving")).count() == 3
    });
    leave(terminal);
}

#[test]
fn a_model_is_brought_up_and_stopped_and_a_host_is_added_by_keys_alone() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    if !give_model(lab.home()) {
        return;
    }
    let mut terminal = Terminal::start(screens(&lab), 110, 32);
    terminal.shows("No deployment. Press u");
    terminal.types("u\r");
    terminal.shows("up · run");
    terminal.shows("exit 0");
    terminal.types("1");
    terminal.until("speeds", |c| c.contains("tok/s") && c.contains("● serving"));
    terminal.types("2a");
    terminal.shows("add a host");
    terminal.types("h9\t10.77.0.99\r");
    terminal.shows("[hosts.h9]");
    terminal.types("y");
    terminal.until("the new host", |c| {
        c.contains("h9") && !c.contains("write this")
    });
    let text = std::fs::read_to_string(lab.inventory()).unwrap();
    assert!(text.contains("[hosts.h9]"), "{text}");
    terminal.types("1");
    terminal.until("the new host as it is", |c| {
        c.lines()
            .any(|line| line.contains("h9") && line.contains("unreachable"))
    });
    terminal.types("2Gx");
    terminal.shows("-[hosts.h9]");
    terminal.types("y");
    terminal.until("no such host", |c| !c.contains("h9"));
    terminal.types("1D");
    terminal.shows("Stop the deployment");
    terminal.types("y");
    terminal.shows("down · run");
    terminal.shows("exit 0");
    leave(terminal);
    run(&lab, &["status"]).ended(3);
}
