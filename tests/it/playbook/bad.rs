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
fn arguments_of_tasks_that_change_hosts_are_a_closed_list_and_looked_at_before_anything_is_done() {
    let table = [
        ("package = { nam = \"curl\" }", "did you mean \"name\"?"),
        ("package = { state = \"present\" }", "name"),
        (
            "package = { name = \"curl\", state = \"latest\" }",
            "present",
        ),
        ("package = [\"curl\", \"-y\"]", "no name of a package"),
        ("reboot = { timeout = \"soon\" }", "a time"),
        ("reboot = { serial = 1 }", "unknown"),
        ("gpu_memory = { size = \"much\" }", "size"),
        ("gpu_memory = { state = \"shwo\" }", "\"show\""),
        (
            "gpu_memory = { state = \"reset\", size = \"8GiB\" }",
            "state = \"set\" only",
        ),
        (
            "clone = { from = \"a\", to = \"b\", dsk = \"/dev/sdb\" }",
            "did you mean \"disk\"?",
        ),
        ("clone = { from = \"a\", to = \"b\" }", "needs \"disk\""),
        (
            "clone = { from = \"a\", to = \"a\", disk = \"/dev/sdb\" }",
            "onto itself",
        ),
        (
            "clone = { from = \"a\", to = \"b\", disk = \"sdb\", update_inventory = true }",
            "with reboot only",
        ),
        (
            "clone = { from = \"a\", to = \"b\", disk = \"sdb\", reboot = true, reboot_timeout = \"soon\" }",
            "a time",
        ),
        ("align = { agianst = \"a\" }", "did you mean \"against\"?"),
    ];
    let desk = Desk::new("");
    for (task, wanted) in table {
        desk.write("play.toml", &format!("[[tasks]]\nname = \"x\"\n{task}\n"));
        let ran = desk.json(&["playbook", "check", "play.toml"]).ended(2);
        let faults = &ran.summary["faults"];
        let text = format!("{} {faults}", ran.error()).replace("\\\"", "\"");
        assert!(text.contains(wanted), "{task}: {text}");
        assert_eq!(faults[0]["line"], 3, "{task}: {faults}");
    }
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
    for name in [
        "candle-pipeline",
        "gpu-memory",
        "network",
        "benchmark",
        "verify",
        "clone-os",
        "teardown",
    ] {
        assert!(names.contains(&name), "{names:?}");
        desk.json(&["playbook", "check", name]).ended(0);
        let shown = desk.json(&["playbook", "show", name]).ended(0);
        assert_eq!(shown.summary["playbook"]["name"], name);
    }
    // Which hosts it is about is for its values to say.
    let ran = desk.json(&["playbook", "run", "clone-os"]).ended(2);
    assert!(ran.error().contains("--var"), "{}", ran.error());
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

#[test]
fn a_host_variable_that_is_not_there_is_said_the_same_way_by_check_run_and_dry_run() {
    let desk = Desk::new(
        "[[tasks]]\nname = \"first\"\ncommand = \"touch made\"\n\
         [[tasks]]\nname = \"uses\"\nhosts = \"!c\"\nwhen = [\"host.name != ''\", \"host.vars.onw == 'x'\"]\ncommand = \"true\"\n\
         [[tasks]]\nhosts = \"a\"\nwhen = \"host.vars.onw is defined\"\ncommand = \"echo {{ host.vars.onw }}\"\n\
         [[tasks]]\nhosts = \"b\"\ncommand = \"echo {{ host.vars.onw }}\"\n",
    );
    let said = "there is no host.vars.onw; did you mean \"own\"?";
    let check = desk.json(&["playbook", "check", "play.toml"]).ended(2);
    let faults = check.summary["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 2, "{faults:?}");
    let first = faults[0]["message"].as_str().unwrap();
    assert_eq!(
        (&faults[0]["line"], &faults[0]["column"]),
        (&json!(7), &json!(28))
    );
    assert!(
        first.contains(said) && first.ends_with("(on a, b)"),
        "{first}"
    );
    assert_eq!(faults[1]["line"], 13);
    for more in [&[][..], &["--check"]] {
        let ran = desk.run(more).ended(2);
        assert!(
            ran.error().contains("play.toml:7:28: when "),
            "{}",
            ran.error()
        );
        assert!(ran.error().contains(said), "{}", ran.error());
    }
    assert!(!desk.path("made").exists(), "something was done");
    // Only the hosts and the tasks of the run count.
    desk.run(&["--limit", "c"]).ended(0);
    // Without an inventory it cannot be known.
    std::fs::rename(desk.path("inventory.toml"), desk.path("away")).unwrap();
    desk.json(&["playbook", "check", "play.toml"]).ended(0);
    std::fs::rename(desk.path("away"), desk.path("inventory.toml")).unwrap();

    // Behind what only a run can tell, the task says it, in a check too.
    desk.write(
        "play.toml",
        "[[tasks]]\nname = \"first\"\nregister = \"first\"\ncommand = \"true\"\n\
         [[tasks]]\nname = \"uses\"\nwhen = \"results.first.changed and host.vars.onw == 'x'\"\ncommand = \"true\"\n",
    );
    desk.json(&["playbook", "check", "play.toml"]).ended(0);
    for more in [&[][..], &["--check"]] {
        let ran = desk.run(more).ended(1);
        assert_eq!(ran.status("uses", "a"), "failed");
        let message = ran.message("uses", "a");
        assert!(
            message.contains(said) && message.contains("play.toml:7:8: when "),
            "{message}"
        );
    }
}
