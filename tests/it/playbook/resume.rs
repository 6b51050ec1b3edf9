//! Runs that were interrupted, and go on.

use serde_json::Value;

use super::desk::Desk;

/// Five tasks: each appends a line for each host, the second's result is used by the last.
fn playbook() -> String {
    let mut text = String::new();
    for (index, name) in ["one", "two", "three", "four"].iter().enumerate() {
        text.push_str(&format!(
            "[[tasks]]\nname = \"{name}\"\nregister = \"r{index}\"\ncommand = \"echo {name} {{{{ host.name }}}} >>log; echo out-{{{{ host.name }}}}\"\n"
        ));
    }
    text.push_str(
        "[[tasks]]\nname = \"last\"\ncommand = \"echo last {{ host.name }} {{ results.r1.stdout }} >>log\"\n",
    );
    text
}

/// Every line of the log, sorted.
fn lines(desk: &Desk) -> Vec<String> {
    let mut lines: Vec<String> = desk.read("log").lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn wanted() -> Vec<String> {
    let mut all = Vec::new();
    for host in ["a", "b", "c"] {
        for name in ["one", "two", "three", "four"] {
            all.push(format!("{name} {host}"));
        }
        all.push(format!("last {host} out-{host}"));
    }
    all.sort();
    all
}

fn is(event: &Value, kind: &str, task: &str) -> bool {
    event["event"] == kind && event["scope"]["task"] == task
}

#[test]
fn a_run_interrupted_at_any_task_goes_on_and_applies_nothing_twice() {
    for signal in ["INT", "KILL"] {
        for task in ["one", "two", "three", "four", "last"] {
            for kind in ["task_started", "task_finished"] {
                let desk = Desk::new(&playbook());
                let mut going = desk.start(&["play.toml"]);
                assert!(
                    going.until(|event| is(event, kind, task)),
                    "{signal} {task} {kind}"
                );
                going.signal(signal);
                let id = going.id();
                let (code, summary) = going.end();
                let case = format!("{signal} at {kind} of {task}: {code:?}");
                if signal == "INT" && code == Some(0) {
                    // All was begun already.
                    assert_eq!(lines(&desk), wanted(), "{case}");
                    continue;
                }
                if signal == "INT" {
                    assert_eq!(code, Some(130), "{case}");
                    assert_eq!(
                        summary["resume"],
                        format!("windlass playbook run --resume {id}")
                    );
                }
                if code == Some(0) {
                    assert_eq!(lines(&desk), wanted(), "{case}");
                    continue;
                }
                let ran = desk.json(&["playbook", "run", "--resume", &id]);
                if ran.code == 2 && ran.error().contains("is finished") {
                    // All was done before the signal came.
                    assert_eq!((task, kind), ("last", "task_finished"), "{case}");
                    assert_eq!(lines(&desk), wanted(), "{case}");
                    continue;
                }
                assert_eq!(ran.code, 0, "{case}: {:#}", ran.summary);
                assert_eq!(lines(&desk), wanted(), "{case}");
                assert!(!desk.path("state/windlass/marks").exists(), "{case}");
                // Nothing is left to be resumed.
                desk.json(&["playbook", "run", "--resume", &id]).ended(2);
            }
        }
    }
}

#[test]
fn a_second_interrupt_ends_at_once_and_the_run_can_still_go_on() {
    let desk = Desk::new(
        "[[tasks]]\nname = \"first\"\ncommand = \"echo first >>log\"\nhosts = \"a\"\n\
         [[tasks]]\nname = \"waits\"\nhosts = \"a\"\ncommand = \"echo begun >>begun; while [ ! -e go ]; do sleep 0.05; done; echo waits >>log\"\n",
    );
    let mut going = desk.start(&["play.toml"]);
    assert!(going.until(|event| is(event, "task_started", "waits")));
    going.signal("INT");
    assert!(going.until(|event| {
        event["event"] == "log"
            && event["message"]
                .as_str()
                .is_some_and(|text| text.contains("interrupt again"))
    }));
    going.signal("INT");
    let id = going.id();
    let (code, summary) = going.end();
    assert_eq!(code, Some(130));
    assert!(summary["resume"].as_str().unwrap().ends_with(&id));
    desk.write("go", "");
    desk.json(&["playbook", "run", "--resume", &id]).ended(0);
    assert_eq!(desk.read("log"), "first\nwaits\n");
}

#[test]
fn what_failed_is_tried_again_and_the_other_hosts_are_left_in_peace() {
    let desk = Desk::new(
        "vars = { word = \"x\" }\n\
         [[tasks]]\nname = \"make\"\nregister = \"made\"\ncommand = \"echo {{ vars.word }} {{ host.name }} >>log; echo {{ host.name }}\"\n\
         [[tasks]]\nname = \"try\"\ncommand = \"[ {{ host.name }} != b ] || [ -e fixed ]\"\n\
         [[tasks]]\nname = \"end\"\nserial = 1\ncommand = \"echo end {{ results.made.stdout }} >>log\"\n",
    );
    let ran = desk.run(&["--var", "word=y"]).ended(1);
    let id = ran.summary["run"].as_str().unwrap().to_owned();
    desk.json(&["playbook", "run", "--resume", &id]).ended(1);
    desk.write("fixed", "");
    let ran = desk.json(&["playbook", "run", "--resume", &id]).ended(0);
    assert_eq!(ran.status("make", "b"), "skipped");
    assert_eq!(ran.status("try", "b"), "changed");
    assert_eq!(ran.status("try", "a"), "skipped");
    assert_eq!(
        lines(&desk),
        ["end a", "end b", "end c", "y a", "y b", "y c"]
    );
}

#[test]
fn a_playbook_that_was_changed_since_is_not_gone_on_with() {
    let desk = Desk::new("[[tasks]]\nname = \"fails\"\ncommand = \"false\"\n");
    let ran = desk.run(&[]).ended(1);
    desk.write(
        "play.toml",
        "[[tasks]]\nname = \"fails\"\ncommand = \"true\"\n",
    );
    let id = ran.summary["run"].as_str().unwrap();
    let ran = desk.json(&["playbook", "run", "--resume", id]).ended(2);
    assert!(
        ran.error().contains("was changed since run"),
        "{}",
        ran.error()
    );
}
