//! The runner: order, conditions, results, failures, checks.

use serde_json::json;

use super::desk::Desk;

#[test]
fn tasks_run_in_order_on_all_their_hosts_and_each_ends_once_on_each() {
    let desk = Desk::new(
        "[[tasks]]\nname = \"one\"\ncommand = \"echo one {{ host.name }} >>log\"\nserial = 1\n\
         [[tasks]]\nname = \"two\"\nhosts = \"!b\"\nserial = 1\ncommand = \"echo two {{ host.vars.own }} >>log\"\n\
         [[tasks]]\nname = \"facts\"\nfacts = true\n",
    );
    let ran = desk.run(&[]).ended(0);
    assert_eq!(desk.read("log"), "one a\none b\none c\ntwo a!\ntwo c!\n");
    let ends = ran.of_kind("task_finished");
    assert_eq!(ends.len(), 8);
    assert!(ends.iter().all(|end| end["scope"].get("step").is_none()));
    for (host, changed) in [("a", 2), ("b", 1), ("c", 2)] {
        let counters = &ran.summary["hosts"][host];
        assert_eq!(counters["changed"], changed, "{host}");
        assert_eq!(counters["ok"], 1, "{host}");
    }
    let begun = &ran.events[0];
    assert_eq!(begun["event"], "run_started");
    assert_eq!(begun["tasks"], json!(["one", "two", "facts"]));
    assert_eq!(begun["hosts"], json!(["a", "b", "c"]));
    assert!(ran.summary.get("resume").is_none());
    // Nothing is left of how it was known what was done.
    assert!(!desk.path("state/windlass/marks").exists());
}

#[test]
fn conditions_results_and_types_go_from_task_to_task() {
    let desk = Desk::new(
        "vars = { limit = 2, words = [\"x\", \"y z\"] }\n\
         [[tasks]]\nname = \"count\"\nregister = \"count\"\n\
         command = { run = \"printf '%s' {{ {'a': 1, 'b': 2, 'c': 3}[host.name] }}\", changed_when = \"result.stdout | int > 2\" }\n\
         [[tasks]]\nname = \"big\"\nwhen = \"results.count.stdout | int >= vars.limit\"\ncommand = { run = [\"touch\", \"big-{{ host.name }}\"] }\n\
         [[tasks]]\nname = \"changed\"\nwhen = \"results.count.changed\"\nassert = \"host.name == 'c'\"\n\
         [[tasks]]\nname = \"all\"\nassert = \"results.count.hosts.b.stdout == '2'\"\n\
         [[tasks]]\nname = \"typed\"\nregister = \"typed\"\ncommand = { run = \"{{ ['printf', '%s-'] + vars.words }}\", changed_when = \"false\" }\n\
         [[tasks]]\nname = \"said\"\nassert = \"results.typed.stdout == 'x-y z-'\"\n\
         [[tasks]]\nname = \"facts are read when they are named\"\nassert = \"facts.system == 'linux' or facts.system == 'darwin'\"\n",
    );
    let ran = desk.run(&[]).ended(0);
    let statuses = |task: &str| {
        ["a", "b", "c"]
            .map(|host| ran.status(task, host).to_owned())
            .join(" ")
    };
    assert_eq!(statuses("count"), "ok ok changed");
    assert_eq!(statuses("big"), "skipped changed changed");
    assert_eq!(statuses("changed"), "skipped skipped ok");
    assert_eq!(statuses("all"), "ok ok ok");
    assert_eq!(statuses("typed"), "ok ok ok");
    assert!(desk.path("big-b").exists() && !desk.path("big-a").exists());
    assert_eq!(ran.summary["results"]["count"]["hosts"]["b"]["stdout"], "2");
    assert_eq!(ran.summary["results"]["count"]["changed"], true);
    let ran = desk.run(&["--var", "limit=9"]).ended(0);
    assert_eq!(ran.status("big", "c"), "skipped");
}

#[test]
fn a_host_that_fails_leaves_and_the_others_go_on_to_exit_1() {
    let desk = Desk::new(
        "[[tasks]]\nname = \"try\"\ncommand = \"if [ {{ host.name }} = b ]; then echo because >&2; exit 3; fi\"\n\
         [[tasks]]\nname = \"after\"\ncommand = \"echo {{ host.name }} >>log\"\nserial = 1\n",
    );
    let ran = desk.run(&[]).ended(1);
    assert_eq!(desk.read("log"), "a\nc\n");
    assert_eq!(ran.status("try", "b"), "failed");
    assert_eq!(ran.status("after", "b"), "none");
    assert_eq!(ran.summary["error"]["host"], "b");
    assert_eq!(ran.summary["error"]["step"], "try");
    assert!(ran.error().contains("status 3: because"), "{}", ran.error());
    assert_eq!(ran.summary["failures"].as_array().unwrap().len(), 1);
    let id = ran.summary["run"].as_str().unwrap();
    assert_eq!(
        ran.summary["resume"],
        format!("windlass playbook run --resume {id}")
    );
    // What the summary counts is what the tasks say.
    for host in ["a", "b", "c"] {
        let ends = ran.of_kind("task_finished");
        let count = |status: &str| {
            ends.iter()
                .filter(|end| end["scope"]["host"] == host && end["status"] == status)
                .count()
        };
        for status in ["ok", "changed", "failed", "skipped"] {
            assert_eq!(
                ran.summary["hosts"][host][status],
                count(status),
                "{host} {status}"
            );
        }
    }
    let plain = desk
        .command(&["playbook", "run", "play.toml"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&plain.stderr);
    assert!(text.contains("windlass playbook run --resume "), "{text}");
    assert_eq!(plain.status.code(), Some(1));
}

#[test]
fn more_failures_than_allowed_end_the_run() {
    let desk = Desk::new(
        "[[tasks]]\nname = \"try\"\nserial = 1\nmax_fail = 1\ncommand = \"echo {{ host.name }} >>log; exit 1\"\n\
         [[tasks]]\nname = \"after\"\ncommand = \"echo after >>log\"\n",
    );
    let ran = desk.run(&[]).ended(1);
    assert_eq!(desk.read("log"), "a\nb\n");
    assert!(ran.error().contains("max_fail is 1"), "{}", ran.error());
}

#[test]
fn a_task_is_tried_again_and_ends_at_its_timeout() {
    let desk = Desk::new(
        "[[tasks]]\nname = \"third\"\nhosts = \"a\"\nretries = 2\ndelay = 0\n\
         command = \"echo x >>tries; [ $(wc -l <tries) -ge 3 ]\"\n\
         [[tasks]]\nname = \"slow\"\nhosts = \"b\"\ntimeout = \"200ms\"\ncommand = \"exec sleep 600\"\n",
    );
    let ran = desk.run(&[]).ended(1);
    assert_eq!(desk.read("tries"), "x\nx\nx\n");
    assert_eq!(ran.status("third", "a"), "changed");
    assert!(
        ran.message("slow", "b").contains("timeout of 0.2 s"),
        "{}",
        ran.message("slow", "b")
    );
}

#[test]
fn a_check_tells_what_would_change_and_changes_nothing() {
    let desk = Desk::new(
        "[[tasks]]\nname = \"file\"\nfile = { path = \"{{ host.name }}.txt\", content = \"x\\n\" }\n\
         [[tasks]]\nname = \"made\"\nregister = \"made\"\ncommand = { run = \"touch made-{{ host.name }}\" }\n\
         [[tasks]]\nname = \"there\"\ncommand = { run = \"exit 1\", creates = \"inventory.toml\" }\n\
         [[tasks]]\nname = \"later\"\nwhen = \"results.made.stdout == ''\"\nassert = \"true\"\n",
    );
    let ran = desk.run(&["--check", "--diff"]).ended(0);
    for (task, status) in [
        ("file", "would_change"),
        ("made", "would_change"),
        ("there", "ok"),
        ("later", "unknown"),
    ] {
        assert_eq!(
            ran.status(task, "a"),
            status,
            "{task}: {}",
            ran.message(task, "a")
        );
    }
    let changes = ran.of_kind("change");
    assert!(changes.iter().any(|change| {
        change["what"] == "a.txt"
            && change["diff"]
                .as_str()
                .is_some_and(|diff| diff.contains("+x"))
    }));
    for name in ["a.txt", "made-a", "state/windlass/marks"] {
        assert!(!desk.path(name).exists(), "{name}");
    }
    assert!(ran.summary.get("resume").is_none());
    desk.json(&[
        "playbook",
        "run",
        "--resume",
        ran.summary["run"].as_str().unwrap(),
    ])
    .ended(2);
}

#[test]
fn what_is_not_to_be_logged_stands_in_no_event_and_no_file() {
    let desk = Desk::new(
        "[[tasks]]\nname = \"secret\"\nregister = \"secret\"\nno_log = true\nhosts = \"a\"\ncommand = \"echo 4'7'11secret; echo 4'7'11secret >&2\"\n\
         [[tasks]]\nname = \"use\"\nhosts = \"a\"\nassert = \"results.secret.stdout == '4' ~ '711secret'\"\n\
         [[tasks]]\nname = \"fails\"\nhosts = \"a\"\nno_log = true\ncommand = \"echo 4'7'11secret >&2; exit 1\"\n",
    );
    let output = desk
        .command(&["--json", "playbook", "run", "play.toml"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let mut all = vec![String::from_utf8_lossy(&output.stdout).into_owned()];
    let state = desk.path("state");
    let mut folders = vec![state];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                all.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    assert!(all.len() >= 3, "no journal, no progress");
    for text in all {
        assert!(!text.contains("4711secret"), "{text}");
    }
}
