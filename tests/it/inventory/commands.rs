//! The commands around an inventory, through the built program; and whose commands may run.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use windlass::event::{Asker, Bus, Event};
use windlass::inventory::file::replace;
use windlass::inventory::{Found, Inventory};
use windlass::paths::Paths;

use super::SIXTY;
use crate::command_line::windlass;
use crate::support::{json_lines, program};

/// Runs `windlass inventory …` in a folder that is the home folder too.
fn ran(home: &Path, arguments: &[&str]) -> Output {
    let mut all = vec!["inventory"];
    all.extend(arguments);
    windlass(home, &all).current_dir(home).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn talk(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn summary(home: &Path, arguments: &[&str]) -> Value {
    let mut all = arguments.to_vec();
    all.push("--json");
    let output = ran(home, &all);
    let last = json_lines(&output.stdout).pop().unwrap();
    crate::schema::check(&last);
    assert_eq!(last["exit"], output.status.code().unwrap());
    last
}

/// A home folder in which the sixty lines are `./inventory.toml`.
fn with_sixty() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("inventory.toml"), SIXTY).unwrap();
    home
}

#[test]
fn list_is_a_table_for_people_and_fields_for_scripts() {
    let home = with_sixty();
    let output = ran(home.path(), &["list", "--limit", "@halos,here,gate"]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    assert_eq!(
        out(&output),
        "host   address                     data              groups\n\
         halo1  ai@192.168.1.11:22          10.10.0.1         halos   head\n\
         halo2  ai@192.168.1.12:22          10.10.0.2         halos\n\
         gate   root@gate.example.org:2222  gate.example.org\n\
         here   this machine                10.10.0.9\n"
    );
    let last = summary(home.path(), &["list"]);
    assert_eq!(last["command"], "inventory list");
    assert_eq!(last["hosts"], json!({}));
    let inventory = &last["inventory"];
    assert_eq!(inventory["path"], "inventory.toml");
    assert_eq!(inventory["cluster"]["head"], "halo1");
    assert_eq!(inventory["cluster"]["api"]["listen"], "0.0.0.0:8080");
    assert_eq!(inventory["hosts"].as_array().unwrap().len(), 11);
    assert_eq!(inventory["hosts"][2]["name"], "mac1");
    assert_eq!(inventory["hosts"][2]["address"], "10.0.0.21");
    assert_eq!(inventory["groups"][0]["hosts"], json!(["halo1", "halo2"]));
}

#[test]
fn show_names_each_values_origin_and_no_secrets_arguments() {
    let home = with_sixty();
    let output = ran(home.path(), &["show", "gate"]);
    assert_eq!(
        out(&output),
        "gate\n\
        \x20 address        gate.example.org  inventory.toml:46  [hosts.gate]\n\
        \x20 data           gate.example.org  built-in           its address\n\
        \x20 data_port      47600             built-in\n\
        \x20 user           root              inventory.toml:47  [hosts.gate]\n\
        \x20 connection     ssh               built-in\n\
        \x20 ssh.port       2222              inventory.toml:48  [hosts.gate]\n\
        \x20 ssh.identity   keys/gate         inventory.toml:49  [hosts.gate]\n\
        \x20 sudo.password  the command pass  inventory.toml:50  [hosts.gate]\n\
        \x20 threads        16                inventory.toml:12  [defaults]\n"
    );
    let last = summary(home.path(), &["show", "gate"]);
    let host = &last["inventory"]["hosts"][0];
    assert_eq!(host["sudo_password"], "the command pass");
    assert_eq!(
        host["origins"]["threads"],
        json!({"from": "defaults", "line": 12, "place": "[defaults]"})
    );
    assert_eq!(host["origins"]["data"]["from"], "built_in");
    let all = out(&ran(home.path(), &["show"]));
    assert!(
        all.starts_with("cluster  cellar\nhead     halo1\n"),
        "{all}"
    );
    assert_eq!(all.matches("\n\n").count(), 11, "{all}");
}

#[test]
fn an_unknown_host_is_exit_3_with_the_nearest_name() {
    let home = with_sixty();
    for arguments in [["show", "hallo1"], ["remove", "hallo1"]] {
        let output = ran(home.path(), &arguments);
        assert_eq!(output.status.code(), Some(3));
        assert!(
            talk(&output).contains("did you mean \"halo1\"?"),
            "{}",
            talk(&output)
        );
        assert_eq!(summary(home.path(), &arguments)["error"]["kind"], "nothing");
    }
    let output = ran(home.path(), &["list", "--limit", "x*"]);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn the_named_file_goes_before_the_folders_and_that_before_the_configuration() {
    let home = tempfile::tempdir().unwrap();
    let text = |name: &str| format!("[cluster]\nname = \"{name}\"\n[hosts.a]\n");
    let found = |arguments: &[&str]| {
        let last = summary(home.path(), arguments);
        (
            last["inventory"]["cluster"]["name"].clone(),
            last["inventory"]["found"].clone(),
        )
    };
    let output = ran(home.path(), &["list"]);
    assert_eq!(output.status.code(), Some(2));
    let said = talk(&output);
    assert!(
        said.contains("there is no inventory") && said.contains("config/windlass/inventory.toml"),
        "{said}"
    );
    let configuration = home.path().join("config/windlass");
    fs::create_dir_all(&configuration).unwrap();
    fs::write(configuration.join("inventory.toml"), text("own")).unwrap();
    assert_eq!(found(&["list"]), (json!("own"), json!("configuration")));
    fs::write(home.path().join("inventory.toml"), text("here")).unwrap();
    assert_eq!(found(&["list"]), (json!("here"), json!("here")));
    fs::write(home.path().join("other.toml"), text("named")).unwrap();
    assert_eq!(
        found(&["list", "-i", "other.toml"]),
        (json!("named"), json!("named"))
    );
    assert_eq!(
        ran(home.path(), &["list", "-i", "none.toml"]).status.code(),
        Some(2)
    );
}

#[test]
fn check_says_what_is_valid_and_warns_of_what_is_not_meant() {
    let home = with_sixty();
    let output = ran(home.path(), &["check"]);
    assert_eq!(
        out(&output),
        "inventory.toml is valid: 11 hosts, 2 groups\n"
    );
    let path = home.path().join("inventory.toml");
    fs::write(&path, "[cluster]\nname = \"c\"\n[groups.g]\n[hosts.a]\n").unwrap();
    let output = ran(home.path(), &["check"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(talk(&output).contains("inventory.toml:3:9: the group g has no host"));
    let last = summary(home.path(), &["check"]);
    assert_eq!(last["faults"], json!([]));
    assert_eq!(last["warnings"][0]["line"], 3);
}

#[test]
fn a_check_shows_the_difference_and_writes_nothing() {
    let home = with_sixty();
    let path = home.path().join("inventory.toml");
    let before = fs::metadata(&path).unwrap();
    let output = ran(home.path(), &["set", "halo2", "user=bob", "--check"]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    let shown = out(&output);
    assert!(
        shown.starts_with("--- inventory.toml\n+++ inventory.toml\n@@ -"),
        "{shown}"
    );
    assert!(shown.contains("\n+user = \"bob\"\n"), "{shown}");
    let last = summary(home.path(), &["set", "halo2", "user=bob", "--check"]);
    assert_eq!(last["diff"], shown);
    assert_eq!(
        (&last["changed"], &last["would_change"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), SIXTY);
    // A refused edit, and one that changes nothing, leave the very file.
    for arguments in [
        ["set", "halo1", "address=10.0.0.256"],
        ["set", "halo1", "address=192.168.1.11"],
    ] {
        let last = summary(home.path(), &arguments);
        assert_eq!(
            (&last["changed"], &last["diff"]),
            (&json!(false), &json!(""))
        );
    }
    let after = fs::metadata(&path).unwrap();
    assert_eq!((before.ino(), before.mtime()), (after.ino(), after.mtime()));
}

#[test]
fn the_shown_difference_is_what_patch_would_make() {
    let home = with_sixty();
    let output = ran(home.path(), &["remove", "mac3", "--diff"]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    let now = fs::read_to_string(home.path().join("inventory.toml")).unwrap();
    fs::write(home.path().join("old.toml"), SIXTY).unwrap();
    fs::write(home.path().join("a.diff"), out(&output)).unwrap();
    let Ok(status) = std::process::Command::new("patch")
        .args(["-s", "old.toml", "a.diff"])
        .current_dir(home.path())
        .status()
    else {
        eprintln!("skipped: there is no patch program");
        return;
    };
    assert!(status.success());
    let patched = fs::read_to_string(home.path().join("old.toml")).unwrap();
    assert_eq!(patched, now);
}

#[test]
fn an_edit_keeps_the_link_the_mode_and_leaves_no_other_file() {
    let home = tempfile::tempdir().unwrap();
    let real = home.path().join("real");
    fs::create_dir(&real).unwrap();
    fs::write(real.join("hosts.toml"), SIXTY).unwrap();
    fs::set_permissions(real.join("hosts.toml"), fs::Permissions::from_mode(0o640)).unwrap();
    let link = home.path().join("inventory.toml");
    std::os::unix::fs::symlink("real/hosts.toml", &link).unwrap();
    let last = summary(home.path(), &["set", "halo2", "user=bob"]);
    assert_eq!(last["changed"], true, "{last}");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let now = fs::read_to_string(real.join("hosts.toml")).unwrap();
    assert!(now.contains("user = \"bob\""));
    let mode = fs::metadata(real.join("hosts.toml")).unwrap().mode() & 0o777;
    assert_eq!(mode, 0o640);
    assert_eq!(fs::read_dir(&real).unwrap().count(), 1);
}

#[test]
fn the_first_added_host_makes_the_file_and_later_ones_go_into_it() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("inventory.toml");
    let output = ran(
        home.path(),
        &["add", "halo1", "address=10.0.0.1", "--check"],
    );
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    assert!(out(&output).contains("+[hosts.halo1]\n"));
    assert!(!path.exists());
    assert_eq!(
        ran(home.path(), &["add", "halo1", "address=10.0.0.1"])
            .status
            .code(),
        Some(0)
    );
    assert_eq!(
        ran(home.path(), &["add", "mac[1-2]", "address=10.0.1.[1-2]"])
            .status
            .code(),
        Some(0)
    );
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "[cluster]\nname = \"home\"\n\n[hosts.halo1]\naddress = \"10.0.0.1\"\n\n\
         [hosts.\"mac[1-2]\"]\naddress = \"10.0.1.[1-2]\"\n"
    );
    // Changing what is not there makes no file.
    let other = tempfile::tempdir().unwrap();
    assert_eq!(
        ran(other.path(), &["set", "a", "user=x"]).status.code(),
        Some(2)
    );
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
}

#[test]
fn a_text_that_another_changed_meanwhile_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("inventory.toml");
    fs::write(&path, "theirs").unwrap();
    let error = replace(&path, Some("mine"), "new").unwrap_err();
    assert!(error.to_string().contains("try again"), "{error}");
    assert!(replace(&path, None, "new").is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Runs `inventory edit` with a script as the editor.
fn edited(home: &Path, script: &str, arguments: &[&str]) -> Output {
    let editor = program(home, "editor", &format!("#!/bin/sh\n{script}\n"));
    let mut all = vec!["inventory", "edit"];
    all.extend(arguments);
    windlass(home, &all)
        .current_dir(home)
        .env("EDITOR", format!("{} --wait", editor.display()))
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn an_edited_text_is_taken_when_it_is_valid_and_kept_when_not() {
    let home = with_sixty();
    let path = home.path().join("inventory.toml");
    let output = edited(home.path(), "sed -i s/cellar/attic/ \"$2\"", &["--diff"]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    assert!(out(&output).contains("+name = \"attic\"\n"));
    let now = SIXTY.replace("cellar", "attic");
    assert_eq!(fs::read_to_string(&path).unwrap(), now);

    let output = edited(home.path(), "sed -i s/address/adress/ \"$2\"", &[]);
    assert_eq!(output.status.code(), Some(2));
    let said = talk(&output);
    assert!(said.contains("did you mean \"address\"?"), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), now);
    let kept = said
        .split("your text is kept in ")
        .nth(1)
        .and_then(|rest| rest.split(":\n").next())
        .unwrap();
    assert!(fs::read_to_string(kept).unwrap().contains("adress"));
    assert_eq!(fs::metadata(kept).unwrap().mode() & 0o077, 0);

    let output = edited(home.path(), "exit 3", &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let output = edited(home.path(), "echo noise", &["--json"]);
    let last = json_lines(&output.stdout).pop().unwrap();
    assert_eq!(
        (&last["exit"], &last["changed"]),
        (&json!(0), &json!(false))
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), now);
}

#[test]
fn without_an_editor_or_a_person_nothing_is_opened() {
    let home = with_sixty();
    let mut command = windlass(home.path(), &["inventory", "edit"]);
    let output = command
        .current_dir(home.path())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        edited(home.path(), "exit 0", &["--no-input"]).status.code(),
        Some(2)
    );
}

#[test]
fn limit_is_refused_where_the_host_is_named_in_the_command() {
    let home = with_sixty();
    for arguments in [["set", "halo1", "user=x"], ["remove", "spare", "--yes"]] {
        let mut all = arguments.to_vec();
        all.extend(["--limit", "halo1"]);
        assert_eq!(ran(home.path(), &all).status.code(), Some(2));
    }
    assert_eq!(
        fs::read_to_string(home.path().join("inventory.toml")).unwrap(),
        SIXTY
    );
}

fn folders(base: &Path) -> Paths {
    Paths {
        config: base.join("config"),
        data: base.join("data"),
        cache: base.join("cache"),
        state: base.join("state"),
        runtime: base.join("run"),
    }
}

#[tokio::test]
async fn commands_run_from_a_found_inventory_only_when_they_were_allowed_once() {
    let base = tempfile::tempdir().unwrap();
    let paths = folders(base.path());
    let path = base.path().join("inventory.toml");
    let write = |word: &str, more: &str| {
        let text = format!(
            "[cluster]\nname = \"c\"\n{more}[hosts.a]\nsudo.password = {{ command = [\"{word}\", \"x\"] }}\n"
        );
        fs::write(&path, &text).unwrap();
        Inventory::parse(&path, &text).unwrap()
    };
    // An asker whose question is answered, and one that nobody answers.
    let answering = |answer: &'static str| {
        let bus = Bus::new("r");
        let mailbox = bus.subscribe();
        let asker = Asker::new(bus.emitter(), true, true);
        let other = asker.clone();
        std::thread::spawn(move || {
            while let Some(envelope) = mailbox.next() {
                if let Event::Question { id, text, .. } = &envelope.event {
                    assert!(text.contains("pass"), "{text}");
                    other.answer(id, answer.into());
                }
            }
        });
        (bus, asker)
    };
    let silent = Bus::new("r");
    // Leave given beforehand is none for this.
    let nobody = Asker::new(silent.emitter(), false, true);

    let inventory = write("pass", "");
    assert!(!inventory.commands_allowed(&paths));
    let failure = inventory.allow_commands(&nobody, &paths).await.unwrap_err();
    assert_eq!(failure.kind.exit().code(), 2);
    assert!(failure.message.contains("--inventory"), "{failure}");
    for found in [Found::Named, Found::Configuration] {
        let mut inventory = inventory.clone();
        inventory.found = found;
        assert!(inventory.commands_allowed(&paths));
    }
    let (_bus, no) = answering("n");
    assert!(inventory.allow_commands(&no, &paths).await.is_err());
    assert!(!inventory.commands_allowed(&paths));
    let (_bus, yes) = answering("y");
    inventory.allow_commands(&yes, &paths).await.unwrap();
    // Remembered: also when another line changes, not when a command does or the file moves.
    inventory.allow_commands(&nobody, &paths).await.unwrap();
    let other_line = write("pass", "# a comment\n");
    assert!(other_line.commands_allowed(&paths));
    assert!(!write("passage", "").commands_allowed(&paths));
    let inventory = write("pass", "");
    let elsewhere = base.path().join("copy.toml");
    fs::copy(&path, &elsewhere).unwrap();
    let moved = Inventory {
        path: elsewhere,
        ..inventory.clone()
    };
    assert!(!moved.commands_allowed(&paths));
    let list = fs::metadata(paths.state.join("trusted-inventories")).unwrap();
    assert_eq!(list.mode() & 0o777, 0o600);
    // Without commands there is nothing to allow.
    let text = "[cluster]\nname = \"c\"\n[hosts.a]\nsudo.password = { env = \"X\" }\n";
    assert!(
        Inventory::parse(&path, text)
            .unwrap()
            .commands_allowed(&paths)
    );
}
