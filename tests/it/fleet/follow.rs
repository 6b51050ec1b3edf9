//! Logs as they come; and a check that leaves no trace.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::controller::{give_model, run};
use crate::lab::{Kind, Lab, absent};

fn interrupt(pid: u32) {
    let sent = Command::new("kill")
        .args(["-INT", &pid.to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// Reads until every host has said something that has this in it.
fn heard(lines: &mut impl Iterator<Item = String>, wanted: &str) {
    let mut waiting = vec!["h1", "h2"];
    for line in lines {
        waiting.retain(|host| !(line.starts_with(&format!("{host}  ")) && line.contains(wanted)));
        if waiting.is_empty() {
            return;
        }
    }
    panic!("nothing with {wanted:?} from {waiting:?}");
}

#[test]
fn logs_are_followed_on_all_hosts_until_interrupted() {
    if absent() {
        return;
    }
    // One kept by systemd, one by us.
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::NoSystemdUser)]);
    if !give_model(lab.home()) {
        return;
    }
    run(&lab, &["up", "smollm2"]).ended(0);
    let mut child = lab
        .windlass(&["logs", "--follow", "-n", "3"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    heard(&mut lines, "");
    // What is new comes without being asked for: the workers lose each other and start again.
    lab.sh("h1", "pkill -9 -f '[w]indlass-worker serve'");
    heard(&mut lines, "ready");
    interrupt(child.id());
    lines.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    for host in ["h1", "h2"] {
        lab.wait_for(host, "! pgrep -f '[j]ournalctl|[t]ail -n'");
    }

    let mut child = lab
        .windlass(&["logs", "h2", "--follow", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    let mut last = serde_json::Value::Null;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        last = serde_json::from_str(&line.unwrap()).unwrap();
        if last["event"] == "output" && last["scope"]["host"] == "h2" {
            interrupt(pid);
        }
    }
    crate::schema::check(&last);
    assert_eq!(last["error"]["kind"], "interrupted");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// Every path a host has written since it was made, with size and time of change. What logging in
/// itself leaves is not counted.
fn written(lab: &Lab, host: &str) -> BTreeMap<String, (u64, i64, i64)> {
    fn walk(folder: &Path, top: &Path, all: &mut BTreeMap<String, (u64, i64, i64)>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            if ["var/log", "var/lib/systemd", "var/cache"].contains(&name.as_str()) {
                continue;
            }
            let Ok(meta) = path.symlink_metadata() else {
                continue;
            };
            if meta.is_dir() {
                walk(&path, top, all);
                all.insert(name, (0, 0, 0));
            } else {
                all.insert(name, (meta.len(), meta.mtime(), meta.mtime_nsec()));
            }
        }
    }
    let top = lab.hosts().place().host(host).join("upper");
    let mut all = BTreeMap::new();
    walk(&top, &top, &mut all);
    assert!(all.len() > 20, "{all:?}");
    // Memory file systems are no part of the disk.
    let memory = lab.sh(
        host,
        "find /tmp /run/user /dev/shm /run/systemd/system -type f 2>/dev/null || true",
    );
    for line in memory.lines() {
        all.insert(line.to_owned(), (0, 0, 0));
    }
    all
}

#[test]
fn up_with_check_on_fresh_hosts_says_what_it_would_do_and_leaves_no_trace() {
    if absent() {
        return;
    }
    let hosts = ["h1", "h2", "h3"];
    let lab = Lab::up(&[
        ("h1", Kind::Root),
        ("h2", Kind::SudoPassword),
        ("h3", Kind::NoSudo),
    ]);
    if !give_model(lab.home()) {
        return;
    }
    // The first login of a user makes what every login makes.
    run(&lab, &["exec", "@all", "--", "true"]).ended(0);
    let before = hosts.map(|host| written(&lab, host));
    // The program and the pieces; and orders, unit, start.
    for (command, would) in [
        (&["up", "smollm2", "--check"][..], 5),
        (&["push", "smollm2", "--check"], 2),
    ] {
        let ran = run(&lab, command).ended(0);
        for host in hosts {
            assert_eq!(
                ran.summary["hosts"][host]["would_change"], would,
                "{}",
                ran.summary
            );
            assert_eq!(ran.summary["hosts"][host]["changed"], 0);
            assert_eq!(ran.summary["hosts"][host]["bytes_sent"], 0);
            let would = &ran.summary["would_push"][host];
            assert_eq!(would["planned_bytes"], would["missing_bytes"]);
        }
    }
    run(&lab, &["up", "smollm2", "--check", "--fail-on-change"]).ended(5);
    run(&lab, &["facts"]).ended(0);
    run(&lab, &["plan", "smollm2"]).ended(0);
    run(&lab, &["down", "--check"]).ended(3);
    for (host, before) in hosts.iter().zip(before) {
        let after = written(&lab, host);
        let changed: Vec<_> = after
            .keys()
            .chain(before.keys())
            .filter(|path| after.get(*path) != before.get(*path))
            .collect();
        assert!(changed.is_empty(), "{host}: {changed:?}");
    }
    run(&lab, &["up", "smollm2"]).ended(0);
    let check = run(&lab, &["up", "smollm2", "--check", "--fail-on-change"]).ended(0);
    assert_eq!(check.summary["would_start"], false);
    let down = run(&lab, &["down", "--check"]).ended(0);
    assert_eq!(down.summary["hosts"]["h1"]["would_change"], 1);
    run(&lab, &["status"]).ended(0);
}
