//! Keys that a person puts in place: a host's key that is taken, a login key that is copied.

use std::fs;

use serde_json::json;

use super::controller::{at_a_terminal, run_by};
use crate::lab::{Kind, Lab, absent};
use crate::ssh::server::keygen;

/// Runs a command with `--json` and an inventory of the controller's own.
fn run(lab: &Lab, arguments: &[&str]) -> super::controller::Ran {
    let mut command = lab.controller(env!("CARGO_BIN_EXE_windlass"));
    command.arg("--json").args(arguments);
    run_by(command)
}

#[test]
fn trust_shows_the_key_takes_it_on_a_yes_and_refuses_where_nobody_is_asked() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::BehindJump)]);
    let (h1, h2) = (
        lab.hosts().host("h1").unwrap().address(),
        lab.hosts().host("h2").unwrap().address(),
    );
    let id = lab.hosts().place().identity().display().to_string();
    fs::write(
        lab.home().join("inventory.toml"),
        format!(
            "[cluster]\nname = \"lab\"\n[defaults]\nuser = \"root\"\nssh = {{ identity = \"{id}\" }}\n\
             [hosts.h1]\naddress = \"{h1}\"\n[hosts.h2]\naddress = \"{h2}\"\nssh = {{ jump = \"h1\" }}\n"
        ),
    )
    .unwrap();
    let keys = fs::read_to_string(lab.known_hosts()).unwrap();
    let file = lab.home().join(".ssh/known_hosts");
    // Names may be hashed there, as the machine's ssh configuration has it; keys are not.
    let key_of = |address: &str| {
        keys.lines()
            .find_map(|line| line.strip_prefix(&format!("{address} ")))
            .unwrap()
            .to_owned()
    };

    for arguments in [
        &["inventory", "trust", "h1"][..],
        &["inventory", "trust", "h1", "--yes"],
    ] {
        let ran = run(&lab, arguments).ended(4);
        assert_eq!(ran.summary["error"]["step"], "host key");
        assert!(ran.message().contains("SHA256:"), "{}", ran.message());
        // Not the very same command again.
        assert!(ran.message().contains("at a terminal"), "{}", ran.message());
        assert_eq!(ran.summary["hosts"]["h1"]["unreachable"], 1);
    }
    let check = run(&lab, &["inventory", "trust", "h1", "--check"]).ended(0);
    assert_eq!(check.summary["hosts"]["h1"]["would_change"], 1);
    // The end of the input is no answer.
    let (code, shown) = at_a_terminal(
        &lab,
        &["inventory", "trust", "h1"],
        &[("right one?", "\u{4}")],
    );
    assert_eq!(code, 4, "{shown}");
    assert!(!file.exists());
    // By the flag: an unknown host's key, and never one that changed.
    let accepting = ["inventory", "trust", "h1", "--accept-new-host-keys"];
    let ran = run(&lab, &accepting).ended(0);
    assert!(ran.summary["trusted"]["h1"].is_string(), "{}", ran.summary);
    let taken = fs::read_to_string(&file).unwrap();
    assert!(taken.contains(&key_of(&h1)), "{taken}");
    keygen(&lab.home().join("other"), "ed25519", "");
    let other = fs::read_to_string(lab.home().join("other.pub")).unwrap();
    fs::write(&file, format!("{h1} {other}")).unwrap();
    let ran = run(&lab, &accepting).ended(4);
    assert!(ran.message().contains("CHANGED"), "{}", ran.message());
    fs::remove_file(&file).unwrap();

    let (code, shown) = at_a_terminal(&lab, &["inventory", "trust", "h1"], &[("right one?", "n")]);
    assert_eq!(code, 4, "{shown}");
    assert!(!file.exists(), "a key was taken without a yes");

    let (code, shown) = at_a_terminal(
        &lab,
        &["inventory", "trust", "h1"],
        &[("right one?", "yes")],
    );
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("SHA256:"), "{shown}");
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 1);
    assert!(text.contains(&key_of(&h1)), "{text}");
    run(&lab, &["exec", "h1", "--", "true"]).ended(0);
    let again = run(&lab, &["inventory", "trust", "h1"]).ended(0);
    assert_eq!(again.summary["trusted"], json!({"h1": null}));

    // Over the jump host, both in one command.
    let (code, shown) = at_a_terminal(
        &lab,
        &["inventory", "trust", "@all"],
        &[("right one?", "y")],
    );
    assert_eq!(code, 0, "{shown}");
    assert!(fs::read_to_string(&file).unwrap().contains(&key_of(&h2)));
    run(&lab, &["exec", "@all", "--", "true"]).ended(0);
}

#[test]
fn a_copied_key_lets_the_next_run_in_without_the_password() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Password), ("h2", Kind::Keyboard)]);
    for host in ["h1", "h2"] {
        lab.sh(
            host,
            "sed -i 's/^PubkeyAuthentication no/PubkeyAuthentication yes/' /etc/ssh/sshd_config && systemctl reload ssh",
        );
    }
    let address = |host: &str| format!("address={}", lab.hosts().host(host).unwrap().address());
    let password = format!(
        "ssh.password=file:{}",
        lab.hosts().place().password().display()
    );
    let known = format!("ssh.known_hosts={}", lab.known_hosts().display());
    fs::create_dir_all(lab.home().join(".ssh")).unwrap();
    let add = |host: &str, more: &[&str]| {
        let address = address(host);
        let mut all = vec!["inventory", "add", host, "--copy-key"];
        if !more.is_empty() {
            all.extend([address.as_str(), "user=root", &known]);
            all.extend(more);
        }
        run(&lab, &all)
    };

    // Without a key there is nothing to copy; with one, the same command does the rest.
    let ran = add("h1", &[&password]).ended(4);
    for wanted in [
        "id_ed25519.pub",
        "ssh-keygen",
        "inventory add h1 --copy-key",
    ] {
        assert!(
            ran.message().contains(wanted),
            "{wanted}: {}",
            ran.message()
        );
    }
    assert_eq!(ran.summary["changed"], true);
    keygen(&lab.home().join(".ssh/id_ed25519"), "ed25519", "");
    let ran = add("h1", &[]).ended(0);
    assert_eq!(ran.summary["copied"], json!({"h1": true}));
    assert_eq!(ran.summary["changed"], false);
    let ran = add("h1", &[]).ended(0);
    assert_eq!(ran.summary["copied"], json!({"h1": false}));

    // The password is typed once, at the terminal.
    let text = fs::read_to_string(lab.hosts().place().password()).unwrap();
    let address = address("h2");
    let (code, shown) = at_a_terminal(
        &lab,
        &[
            "inventory",
            "add",
            "h2",
            "--copy-key",
            &address,
            "user=root",
            &known,
        ],
        &[("assword", text.trim())],
    );
    assert_eq!(code, 0, "{shown}");

    run(&lab, &["inventory", "set", "h1", "ssh.password="]).ended(0);
    let exec = run(&lab, &["exec", "@all", "--", "hostname"]).ended(0);
    for host in ["h1", "h2"] {
        assert_eq!(exec.summary["results"][host]["stdout"], format!("{host}\n"));
        let keys = lab.sh(host, "grep -c ssh-ed25519 /root/.ssh/authorized_keys; stat -c %a /root/.ssh /root/.ssh/authorized_keys");
        assert_eq!(keys, "1\n700\n600\n");
    }
    let written = fs::read_to_string(lab.home().join("inventory.toml")).unwrap();
    assert!(!written.contains(text.trim()), "{written}");
}
