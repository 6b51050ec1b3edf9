//! What scripts rely on: exit statuses, the last line with `--json`, stdout and stderr apart.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::json_lines;

/// Runs windlass with its folders under `home`.
pub fn windlass(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(arguments).env_clear().env("HOME", home);
    for name in ["CONFIG", "DATA", "CACHE", "STATE"] {
        command.env(format!("XDG_{name}_HOME"), home.join(name.to_lowercase()));
    }
    command
        .env("XDG_RUNTIME_DIR", home.join("run"))
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

fn ran(arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    windlass(home.path(), arguments).output().unwrap()
}

fn summary(output: &Output) -> Value {
    let lines = json_lines(&output.stdout);
    let last = lines.last().expect("no line on stdout").clone();
    crate::schema::check(&last);
    assert_eq!(last["v"], 1);
    assert_eq!(last["event"], "summary");
    assert_eq!(last["exit"], output.status.code().unwrap());
    for field in ["command", "run", "seconds", "hosts", "error"] {
        assert!(last.get(field).is_some(), "no {field} in {last}");
    }
    last
}

#[test]
fn the_last_json_line_is_the_summary_on_success_and_on_every_usage_error() {
    let table: [(&[&str], i32, &str); 15] = [
        (&["paths", "--json"], 0, "paths"),
        (&["--json", "paths"], 0, "paths"),
        (&["--json"], 0, "help"),
        (&["--json", "--version"], 0, "version"),
        (&["demo", "--json", "--workers", "9"], 2, "demo"),
        (&["--json", "demo", "--workers", "x"], 2, "demo"),
        (&["--json", "playbook", "run", "x"], 2, "playbook run"),
        (&["--json", "demo", "--limit", "halo1"], 2, "demo"),
        (&["--json", "--nonsense"], 2, "windlass"),
        (&["help", "--json"], 0, "help"),
        (&["help", "up", "--json"], 0, "help"),
        (&["help", "nonsense", "--json"], 2, "help"),
        (&["paths", "--json", "--fail-on-change"], 2, "paths"),
        (
            &["exec", "a", "--json", "--timeout", "0", "--", "true"],
            2,
            "exec",
        ),
        (&["replay", "/dev/null", "--json"], 2, "replay"),
    ];
    for (arguments, exit, command) in table {
        let output = ran(arguments);
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}");
        let last = summary(&output);
        assert_eq!(last["command"], command, "{arguments:?}");
        if exit == 0 {
            assert!(last["error"].is_null());
        } else {
            assert_eq!(last["error"]["kind"], "usage", "{last}");
            assert!(!last["error"]["message"].as_str().unwrap().is_empty());
            assert!(last["error"].get("host").is_some() && last["error"].get("step").is_some());
        }
    }
}

#[test]
fn what_cannot_be_meant_is_refused_with_what_is_allowed() {
    let home = tempfile::tempdir().unwrap();
    let text =
        "[cluster]\nname = \"c\"\n[groups.g]\nhosts = [\"a\"]\n[hosts.a]\nconnection = \"local\"\n";
    std::fs::write(home.path().join("inventory.toml"), text).unwrap();
    std::fs::write(home.path().join("empty"), "").unwrap();
    let table: [(&[&str], i32, &str); 7] = [
        (
            &["exec", "a", "--timeout", "0", "--", "true"],
            2,
            "from 1 to 604800",
        ),
        (&["exec", "all", "--", "true"], 3, "did you mean \"@all\"?"),
        (&["exec", "g", "--", "true"], 3, "did you mean \"@g\"?"),
        (&["replay", "/dev/null"], 2, "is a device, and no journal"),
        (&["replay", "empty"], 2, "holds no event"),
        (
            &["inventory", "add", "w", "address="],
            2,
            "write it as address=192.168.1.11, or leave it out",
        ),
        (
            &["up", "m", "--fail-on-change"],
            2,
            "goes only with --check",
        ),
    ];
    for (arguments, exit, wanted) in table {
        let mut all = vec!["--json"];
        all.extend(arguments);
        let output = windlass(home.path(), &all)
            .current_dir(home.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}");
        let last = summary(&output);
        let message = last["error"]["message"].as_str().unwrap();
        assert!(message.contains(wanted), "{arguments:?}: {message}");
    }
    let same = std::fs::read_to_string(home.path().join("inventory.toml")).unwrap();
    assert_eq!(same, text);
}

#[test]
fn changes_that_are_pending_are_exit_5_where_that_is_asked() {
    let home = tempfile::tempdir().unwrap();
    let text = "[cluster]\nname = \"c\"\n[hosts.a]\nconnection = \"local\"\n";
    std::fs::write(home.path().join("inventory.toml"), text).unwrap();
    let made = "[[tasks]]\nfile = { path = \"made\", state = \"directory\" }\n";
    std::fs::write(home.path().join("play.toml"), made).unwrap();
    let run = |arguments: &[&str]| {
        let mut all = vec!["--json", "--check"];
        all.extend(arguments);
        let output = windlass(home.path(), &all)
            .current_dir(home.path())
            .output()
            .unwrap();
        summary(&output)
    };
    let fail = "--fail-on-change";
    let table: [(&[&str], i32, &str); 8] = [
        (&["exec", "a", "--", "true"], 0, ""),
        (&["exec", "a", fail, "--", "true"], 5, "on a"),
        (&["inventory", "set", "a", "threads=2"], 0, ""),
        (&["inventory", "set", "a", "threads=2", fail], 5, "pending"),
        (&["inventory", "set", "a", "connection=local", fail], 0, ""),
        (&["model", "pull", "org/name:Q4_0", fail], 5, "pending"),
        (&["playbook", "run", "play.toml", fail], 5, "on a"),
        (&["facts", fail], 0, ""),
    ];
    for (arguments, exit, wanted) in table {
        let last = run(arguments);
        assert_eq!(last["exit"], exit, "{arguments:?}: {last}");
        if exit == 5 {
            assert_eq!(last["error"]["kind"], "drift");
            let message = last["error"]["message"].as_str().unwrap();
            assert!(message.contains(wanted), "{message}");
        }
    }
    std::fs::create_dir(home.path().join("made")).unwrap();
    assert_eq!(run(&["playbook", "run", "play.toml", fail])["exit"], 0);
}

#[test]
fn hosts_are_named_when_the_run_begins_as_far_as_they_are_known() {
    let home = tempfile::tempdir().unwrap();
    let begun = |arguments: &[&str]| {
        let output = windlass(home.path(), arguments)
            .current_dir(home.path())
            .output()
            .unwrap();
        json_lines(&output.stdout)[0]["hosts"].clone()
    };
    assert_eq!(begun(&["facts", "--json"]), serde_json::json!([]));
    let text = "[cluster]\nname = \"c\"\n[hosts.\"h[1-3]\"]\naddress = \"127.0.0.1\"\nssh = { port = 1 }\n";
    std::fs::write(home.path().join("inventory.toml"), text).unwrap();
    let hosts = |names: &[&str]| serde_json::json!(names);
    assert_eq!(begun(&["status", "--json"]), hosts(&["h1", "h2", "h3"]));
    assert_eq!(
        begun(&["facts", "h[2-3]", "--json", "--limit", "!h2"]),
        hosts(&["h3"])
    );
    // A host that is not reached is told once with its reason, and once at the end.
    let output = windlass(home.path(), &["exec", "h1", "--", "true"])
        .current_dir(home.path())
        .output()
        .unwrap();
    let talk = String::from_utf8(output.stderr).unwrap();
    assert_eq!(talk.matches("takes no connection").count(), 2, "{talk}");
}

#[test]
fn a_wrong_flag_of_the_demo_is_named_with_what_is_near() {
    let output = ran(&["demo", "--worker-count", "2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let talk = String::from_utf8(output.stderr).unwrap();
    assert!(talk.contains("--worker"), "{talk}");
}

#[test]
fn commands_that_are_not_there_yet_are_refused_not_feigned() {
    for command in ["tui", "bench"] {
        let output = ran(&[command]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn bare_windlass_prints_help_as_data() {
    let output = ran(&[]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("demo") && text.contains("--json"), "{text}");
    assert!(
        output.stderr.is_empty(),
        "{:?}",
        String::from_utf8(output.stderr)
    );
}

#[test]
fn paths_follow_the_xdg_variables_and_ignore_relative_ones() {
    let home = tempfile::tempdir().unwrap();
    let output = windlass(home.path(), &["paths", "--json"])
        .env("XDG_CACHE_HOME", "relative")
        .output()
        .unwrap();
    let last = summary(&output);
    let path = |name: &str| last["paths"][name].as_str().unwrap().to_owned();
    assert_eq!(
        Path::new(&path("state")),
        home.path().join("state/windlass")
    );
    assert_eq!(
        Path::new(&path("cache")),
        home.path().join(".cache/windlass")
    );
    assert_eq!(
        Path::new(&path("runtime")),
        home.path().join("run/windlass")
    );
}

#[test]
fn a_missing_worker_program_is_a_configuration_error() {
    let output = ran(&["demo", "--json", "--worker", "/nowhere/windlass-worker"]);
    assert_eq!(output.status.code(), Some(2));
    let last = summary(&output);
    assert_eq!(last["error"]["kind"], "config");
    assert_eq!(last["workers"], 2);
    assert_eq!(last["tokens"], 0);
}

#[test]
fn a_command_in_an_inventory_that_only_lay_in_the_folder_does_not_run() {
    let home = tempfile::tempdir().unwrap();
    let ran = home.path().join("ran");
    let text = format!(
        "[cluster]\nname = \"c\"\n[hosts.a]\naddress = \"127.0.0.1\"\nssh = {{ port = 1, password = {{ command = [\"touch\", \"{}\"] }} }}\n",
        ran.display()
    );
    std::fs::write(home.path().join("inventory.toml"), text).unwrap();
    let output = windlass(home.path(), &["exec", "a", "--json", "--", "true"])
        .current_dir(home.path())
        .output()
        .unwrap();
    let last = summary(&output);
    assert_eq!(last["exit"], 2, "{last}");
    assert!(!ran.exists());
}
