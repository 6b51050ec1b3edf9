//! What a command started on a host ends with it: at its timeout, when it is cut off, when whoever asked
//! for it is gone; by sudo too.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::controller::run;
use crate::lab::{Kind, Lab, absent};

const HOSTS: [&str; 2] = ["h1", "h2"];

fn sleeps(lab: &Lab, seconds: u32) {
    for host in HOSTS {
        lab.wait_for(host, &format!("pgrep -f '^sleep {seconds}'"));
    }
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args([name, &pid]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn no_command_outlives_its_timeout_its_interruption_or_its_controller() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::SudoPassword)]);
    let gone = |seconds: u32| {
        for host in HOSTS {
            lab.sh(host, &format!("! pgrep -f '^sleep {seconds}'"));
        }
    };
    let play = |seconds: u32, more: &str| {
        let file = lab.home().join("play.toml");
        let text = format!(
            "[[tasks]]\nname = \"sleep\"\n{more}\ncommand = {{ run = \"sleep {seconds} & sleep {seconds}; wait\", root = true }}\n"
        );
        fs::write(&file, text).unwrap();
        file.display().to_string()
    };

    // Whoever is told of the timeout finds nothing left.
    let ran = run(
        &lab,
        &[
            "exec",
            "@all",
            "--timeout",
            "1",
            "--",
            "sleep 6001 & sleep 6001",
        ],
    )
    .ended(1);
    assert!(
        ran.message().contains("did not end within 1 s"),
        "{}",
        ran.message()
    );
    gone(6001);
    let file = play(6002, "timeout = \"1s\"");
    let ran = run(&lab, &["playbook", "run", &file]).ended(1);
    assert!(
        ran.message().contains("timeout of 1 s and was ended"),
        "{}",
        ran.message()
    );
    gone(6002);

    // The second interrupt.
    let file = play(6003, "");
    let mut child = lab
        .windlass(&["playbook", "run", &file, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    sleeps(&lab, 6003);
    signal(&child, "-INT");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("interrupt again")));
    signal(&child, "-INT");
    lines.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    for host in HOSTS {
        lab.wait_for(host, "! pgrep -f '^sleep 6003'");
    }

    // The controller is gone without a word.
    let file = play(6004, "");
    for arguments in [
        &["playbook", "run", &file][..],
        &["exec", "@all", "--", "sleep 6004"],
    ] {
        let mut child = lab
            .windlass(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        sleeps(&lab, 6004);
        signal(&child, "-KILL");
        child.wait().unwrap();
        for host in HOSTS {
            lab.wait_for(host, "! pgrep -f '^sleep 6004'");
        }
    }
}
