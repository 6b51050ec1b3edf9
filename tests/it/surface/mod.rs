//! The command line as others see it: help, manual page, completions, replay, doctor. Changes to it
//! are changes to a contract; they show in the snapshots.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

fn run(home: &std::path::Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .current_dir(home)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn last(output: &Output) -> Value {
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    serde_json::from_str(stdout.lines().last().unwrap()).unwrap()
}

#[test]
fn the_help_of_every_command_is_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    let help = text(&run(home.path(), &["--help"]));
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() > 10, "{commands:?}");
    let mut all = help.clone();
    for command in commands {
        let help = text(&run(home.path(), &[command, "--help"]));
        // The flags of every command stand once, in the first.
        let own = help.split("\nCommon options:").next().unwrap();
        all.push_str(&format!("\n───── {command}\n{own}"));
    }
    insta::assert_snapshot!("help", all);
}

#[test]
fn the_manual_page_is_as_it_was_and_a_reader_of_manuals_takes_it() {
    let home = tempfile::tempdir().unwrap();
    let page = text(&run(home.path(), &["man"]));
    insta::assert_snapshot!("man", page);
    for wanted in [".TH windlass", "WINDLASS UP", "WINDLASS INVENTORY ADD"] {
        assert!(page.contains(wanted), "no {wanted}");
    }
}

#[test]
fn completions_are_as_they_were_and_the_shell_takes_them() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&run(home.path(), &["completions", shell]));
        insta::assert_snapshot!(format!("completions-{shell}"), script);
        let file = home.path().join(shell);
        fs::write(&file, &script).unwrap();
        match Command::new(shell).arg("-n").arg(&file).output() {
            Ok(checked) => assert!(checked.status.success(), "{checked:?}"),
            Err(error) => eprintln!("skipped: no {shell} here ({error})"),
        }
    }
}

#[test]
fn a_run_is_shown_again_from_its_journal_as_it_was_shown_at_first() {
    let home = tempfile::tempdir().unwrap();
    fs::write(
        home.path().join("inventory.toml"),
        "[cluster]\nname = \"home\"\n[hosts.here]\nconnection = \"local\"\n",
    )
    .unwrap();
    let first = run(home.path(), &["exec", "here", "--", "true"]);
    assert!(first.status.success(), "{first:?}");
    let journals = home.path().join(".local/state/windlass/runs");
    let journal = fs::read_dir(journals).unwrap().next().unwrap().unwrap();
    let id = journal.path().file_stem().unwrap().to_owned();
    let again = run(home.path(), &["replay", id.to_str().unwrap()]);
    assert!(again.status.success(), "{again:?}");
    assert_eq!(
        String::from_utf8(again.stderr).unwrap(),
        String::from_utf8(first.stderr).unwrap()
    );
    let json = run(
        home.path(),
        &["replay", journal.path().to_str().unwrap(), "--json"],
    );
    assert_eq!(
        String::from_utf8(json.stdout).unwrap(),
        fs::read_to_string(journal.path()).unwrap()
    );
    // Cut off by a kill: what is whole is shown, and that something is missing.
    let whole = fs::read(journal.path()).unwrap();
    let cut = home.path().join("cut.ndjson");
    fs::write(&cut, &whole[..whole.len() - 20]).unwrap();
    let output = run(home.path(), &["replay", "cut.ndjson", "--json"]);
    assert!(output.status.success());
    assert_eq!(last(&output)["command"], "replay");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("the run was cut off"), "{said}");
    let none = run(home.path(), &["replay", "nothing", "--json"]);
    assert_eq!(none.status.code(), Some(2));
    assert_eq!(last(&none)["error"]["kind"], "usage");
}

#[test]
fn the_doctor_names_what_is_missing_and_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let fit = run(home.path(), &["doctor", "--json"]);
    let summary = last(&fit);
    assert!(fit.status.success(), "{summary}");
    let checks = summary["checks"].as_array().unwrap();
    assert!(checks.len() >= 6, "{summary}");
    fs::write(home.path().join("inventory.toml"), "[hosts.x\n").unwrap();
    let broken = run(home.path(), &["doctor", "--json"]);
    assert_eq!(broken.status.code(), Some(1));
    let summary = last(&broken);
    let found = summary["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["check"] == "inventory")
        .unwrap();
    assert_eq!(found["verdict"], "failed");
    assert!(
        found["message"]
            .as_str()
            .unwrap()
            .contains("inventory.toml")
    );
}
