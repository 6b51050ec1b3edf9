//! What is wrong with a playbook, through the program.

use serde_json::json;

use super::desk::{Desk, Ran};

#[test]
fn a_bad_file_is_exit_2_with_line_column_what_and_the_nearest_name() {
    let desk = Desk::new("[[tasks]]\ncomand = \"true\"\n[[tasks]]\nup = { contxt = 5 }\n");
    // Without an inventory: nothing is reached.
    std::fs::remove_file(desk.path("inventory.toml")).unwrap();
    let ran = desk.json(&["playbook", "check", "play.toml"]).ended(2);
    let faults = ran.summary["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 3);
    assert_eq!(
        (
            &faults[0]["line"],
            &faults[0]["column"],
            &faults[0]["nearest"]
        ),
        (&json!(2), &json!(1), &json!("command"))
    );
    let plain = desk
        .command(&["playbook", "check", "play.toml"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&plain.stdout);
    assert!(
        text.contains("play.toml:2:1: unknown key \"comand\" of a task; did you mean \"command\"?"),
        "{text}"
    );
    let ran = desk.json(&["playbook", "run", "play.toml"]).ended(2);
    assert!(ran.error().contains("play.toml:2:1: "), "{}", ran.error());
}

#[test]
fn what_comes_with_windlass_is_listed_shown_and_valid() {
    let desk = Desk::new("");
    let ran = desk.json(&["playbook", "list"]).ended(0);
    let names: Vec<&str> = ran.summary["playbooks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    for name in ["candle-pipeline", "benchmark", "verify", "teardown"] {
        assert!(names.contains(&name), "{names:?}");
        desk.json(&["playbook", "check", name]).ended(0);
        let shown = desk.json(&["playbook", "show", name]).ended(0);
        assert_eq!(shown.summary["playbook"]["name"], name);
    }
    let ran = desk.json(&["playbook", "run", "candle-pipelin"]).ended(2);
    assert!(ran.error().contains("candle-pipeline"), "{}", ran.error());
}

#[test]
fn what_is_named_on_the_command_line_and_is_none_is_exit_2_and_nothing_runs() {
    let desk = Desk::new(
        "vars = { n = 1 }\n[[tasks]]\nname = \"touch\"\ntags = [\"x\"]\ncommand = \"touch made\"\n",
    );
    let table: [(&[&str], i32, &str); 6] = [
        (&["--var", "m=1"], 2, "\"n\""),
        (&["--var", "n=many"], 2, "whole number"),
        (&["--tags", "y"], 2, "\"x\""),
        (&["--start-at", "toch"], 2, "\"touch\""),
        (&["--limit", "d"], 3, "no host \"d\""),
        (&["--skip-tags", "x"], 3, "no task is left"),
    ];
    for (arguments, exit, wanted) in table {
        let ran: Ran = desk.run(arguments).ended(exit);
        assert!(
            ran.error().contains(wanted),
            "{arguments:?}: {}",
            ran.error()
        );
    }
    assert!(!desk.path("made").exists());
    desk.json(&["playbook", "run", "--resume", "0badcafe"])
        .ended(2);
}

#[test]
fn a_check_of_a_command_runs_nothing() {
    let desk = Desk::new("");
    let ran = desk
        .json(&["exec", "a", "--check", "--", "touch", "made"])
        .ended(0);
    assert_eq!(ran.summary["hosts"]["a"]["would_change"], 1);
    assert!(!desk.path("made").exists());
}
