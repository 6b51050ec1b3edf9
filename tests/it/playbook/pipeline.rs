//! The shipped pipeline on hosts of the lab: from nothing to a report.

use serde_json::{Value, json};

use super::desk::{Going, Ran};
use crate::fleet::controller::give_model;
use crate::lab::{Kind, Lab, absent};
use crate::readers::left_out;

const HOSTS: [&str; 3] = ["h1", "h2", "h3"];
const TASKS: [&str; 6] = ["facts", "same OS", "model", "push", "up", "bench"];

fn lab() -> Option<Lab> {
    if absent() {
        return None;
    }
    let lab = Lab::up(&HOSTS.map(|host| (host, Kind::Root)));
    give_model(lab.home()).then_some(lab)
}

fn run(lab: &Lab, arguments: &[&str]) -> Ran {
    let mut all = vec!["--json", "playbook", "run"];
    all.extend(arguments);
    Ran::of(&lab.windlass(&all).output().unwrap())
}

/// All files of a host with mode, size and time of the last change, but for what every login changes.
fn listing(lab: &Lab, host: &str) -> String {
    lab.sh(
        host,
        "find / -xdev \\( -path /run -o -path /tmp -o -path /var/log -o -path /proc -o -path /sys -o -path /dev \\) -prune \
         -o -type f -printf '%p %m %s %T@\\n' -o -type l -printf '%p -> %l\\n' -o -printf '%p %m\\n' | sort",
    )
}

#[test]
fn three_fresh_hosts_come_to_a_report_and_a_second_run_changes_nothing() {
    let Some(lab) = lab() else { return };
    let small = ["candle-pipeline", "--yes", "--var", "tokens=8"];

    let before = HOSTS.map(|host| listing(&lab, host));
    let mut check = small.to_vec();
    check.push("--check");
    let checked = run(&lab, &check).ended(0);
    assert_eq!(checked.status("push", "h2"), "would_change");
    for (host, before) in HOSTS.iter().zip(&before) {
        assert!(
            listing(&lab, host) == *before,
            "{host} was changed by a check"
        );
    }

    let first = run(&lab, &small).ended(0);
    assert_eq!(first.events[0]["tasks"], json!(TASKS));
    let bench = &first.summary["bench"];
    let levels: Vec<&Value> = bench["levels"].as_array().unwrap().iter().collect();
    let at_once: Vec<u64> = levels
        .iter()
        .map(|level| level["concurrency"].as_u64().unwrap())
        .collect();
    assert_eq!(at_once, [1, 2, 4, 8]);
    for level in levels {
        let requests = level["requests"].as_u64().unwrap();
        assert_eq!(level["tokens"], json!(requests * 8), "{level}");
        assert!(
            level["tokens_per_second"].as_f64().unwrap() > 0.0,
            "{level}"
        );
        for name in ["ttft_ms", "itl_ms", "tpot_ms"] {
            let of = |quantile: &str| level[name][quantile].as_f64().unwrap();
            assert!(
                0.0 < of("p50") && of("p50") <= of("p95") && of("p95") <= of("p99"),
                "{level}"
            );
        }
    }
    assert!(!first.of_kind("telemetry").is_empty(), "no rates were told");
    for host in HOSTS {
        for task in TASKS {
            let own = first.of_kind("task_finished");
            let count = own
                .iter()
                .filter(|end| end["scope"]["host"] == host && end["scope"]["task"] == task)
                .filter(|end| end["scope"].get("step").is_none())
                .count();
            assert_eq!(count, 1, "{task} on {host}");
        }
        assert_eq!(first.status("push", host), "changed");
        assert!(first.summary["hosts"][host]["bytes_sent"].as_u64().unwrap() > 1 << 20);
    }

    // Every reader has all of a real run's journal.
    let id = first.events[0]["run"].as_str().unwrap();
    let journals = lab.home().join("state/windlass/runs");
    let path = journals.join(format!("{id}.ndjson"));
    let left_out = left_out(&path, |arguments| lab.windlass(arguments));
    assert!(left_out.is_empty(), "{}", left_out.join("\n"));

    let second = run(&lab, &small).ended(0);
    for host in HOSTS {
        let counters = &second.summary["hosts"][host];
        assert_eq!(
            counters["changed"], 0,
            "{host}: {:#}",
            second.summary["tasks"]
        );
        assert_eq!(counters["bytes_sent"], 0, "{host}");
        assert_eq!(counters["ok"], TASKS.len(), "{host}");
    }

    let plain = lab
        .windlass(&["bench", "serve", "--concurrency", "1", "--tokens", "4"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&plain.stdout);
    assert!(text.contains("TTFT: ") && text.contains("TPOT: "), "{text}");

    let down = run(&lab, &["teardown"]).ended(0);
    assert_eq!(down.status("down", "h3"), "changed");
    let down = run(&lab, &["teardown"]).ended(0);
    assert_eq!(down.status("down", "h3"), "ok");
}

/// Starts a run and waits until a task begins on a host.
fn at_task(lab: &Lab, arguments: &[&str], task: &str) -> Going {
    let mut all = vec!["--json", "playbook", "run"];
    all.extend(arguments);
    let mut going = Going::start(lab.windlass(&all));
    let begins = |event: &Value| {
        event["event"] == "task_started"
            && event["scope"]["task"] == *task
            && event["scope"].get("step").is_none()
    };
    assert!(going.until(begins), "{task}: {:#?}", going.events.last());
    going
}

#[test]
fn a_pipeline_interrupted_at_every_task_goes_on_to_its_report() {
    let Some(lab) = lab() else { return };
    let small = [
        "candle-pipeline",
        "--var",
        "tokens=4",
        "--var",
        "concurrency=1,2",
    ];
    // One run, killed at each of its tasks in turn, each time gone on with.
    let mut id = String::new();
    for task in TASKS {
        let going = if id.is_empty() {
            at_task(&lab, &small, task)
        } else {
            at_task(&lab, &["--resume", &id], task)
        };
        id = going.id();
        going.signal("KILL");
        going.end();
    }
    let last = run(&lab, &["--resume", &id]).ended(0);
    assert!(last.summary["bench"]["levels"].is_array());
    for task in &TASKS[..5] {
        assert_eq!(last.status(task, "h1"), "skipped", "{task}");
    }
    // Interrupted at each, what runs is finished first, and maybe the next begins meanwhile.
    for task in TASKS {
        let mut from = small.to_vec();
        from.extend(["--start-at", task]);
        let going = at_task(&lab, &from, task);
        going.signal("INT");
        let id = going.id();
        let (code, summary) = going.end();
        if code == Some(0) {
            // All was begun already.
            assert_eq!(task, "bench", "{summary:#}");
            continue;
        }
        assert_eq!(code, Some(130), "{task}: {summary:#}");
        if task == "bench" {
            // A measurement is not run to its end first.
            let message = summary["error"]["message"].as_str().unwrap();
            assert!(message.contains("stopped in bench"), "{message}");
        }
        let last = run(&lab, &["--resume", &id]).ended(0);
        assert!(last.summary["bench"]["levels"].is_array());
        assert_eq!(last.status(task, "h1"), "skipped", "{task}");
        assert_eq!(last.summary["hosts"]["h1"]["bytes_sent"], 0, "{task}");
    }
}

#[test]
fn a_host_without_power_is_told_and_the_others_keep_their_results() {
    if absent() {
        return;
    }
    let mut lab = Lab::up(&HOSTS.map(|host| (host, Kind::Root)));
    let path = lab.home().join("play.toml");
    std::fs::write(
        &path,
        "[[tasks]]\nname = \"line\"\ncommand = \"echo x >>/root/line\"\n\
         [[tasks]]\nname = \"odd\"\ncommand = \"[ {{ host.name }} != h2 ]\"\n\
         [[tasks]]\nname = \"more\"\ncommand = \"echo y >>/root/line\"\n",
    )
    .unwrap();
    let file = path.display().to_string();
    let ran = run(&lab, &[&file]).ended(1);
    assert_eq!(ran.status("more", "h1"), "changed");
    assert_eq!(ran.status("odd", "h2"), "failed");
    assert_eq!(lab.sh("h1", "cat /root/line"), "x\ny\n");
    assert_eq!(lab.sh("h2", "cat /root/line"), "x\n");
    lab.kill("h2");
    let ran = run(&lab, &[&file]).ended(4);
    assert_eq!(ran.status("more", "h3"), "changed");
    assert_eq!(ran.summary["hosts"]["h2"]["unreachable"], 1);
    assert_eq!(ran.summary["error"]["host"], "h2");
}
