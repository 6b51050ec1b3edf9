//! A model that lies on a host: its pieces are those of a model here, and it stays there.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::controller::{FILE, SHA256, give_model, run, run_at};
use crate::cluster::harness::{fixtures, worker_program};
use crate::lab::{Kind, Lab, absent};

/// Where the model lies on its host.
const PATH: &str = "/srv/models/model.gguf";
/// The folder of its pieces on a root host.
const PIECES: &str = "/var/lib/windlass/pieces/b179c9523d0e6a0f";

/// Puts a file of this machine on a host.
fn put(lab: &Lab, host: &str, from: &Path, to: &str) {
    let script = format!("mkdir -p \"$(dirname {to})\" && cat > {to}");
    let status = lab
        .hosts()
        .inside(host)
        .unwrap()
        .args(["/bin/sh", "-c", &script])
        .stdin(File::open(from).unwrap())
        .status()
        .unwrap();
    assert!(status.success());
}

/// Puts the model on a host alone; `false` when the fixture is absent.
fn give(lab: &Lab, host: &str) -> bool {
    let elsewhere = lab.home().join("unused");
    if !give_model(&elsewhere) {
        return false;
    }
    fs::remove_dir_all(elsewhere).unwrap();
    put(lab, host, &fixtures().join(FILE), PATH);
    true
}

/// The digests of a host's pieces, as `sha256sum` has them.
fn digests(lab: &Lab, host: &str) -> String {
    lab.sh(host, &format!("cd {PIECES} && sha256sum *.gguf"))
}

/// The largest file under a folder, bytes.
fn largest(folder: &Path) -> u64 {
    let mut folders = vec![folder.to_owned()];
    let mut largest = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let meta = entry.metadata().unwrap();
            if meta.is_dir() {
                folders.push(entry.path());
            } else {
                largest = largest.max(meta.len());
            }
        }
    }
    largest
}

fn another(lab: &Lab, name: &str) -> PathBuf {
    let home = lab.home().join(name);
    fs::create_dir_all(&home).unwrap();
    home
}

#[test]
fn a_model_on_a_host_gives_the_pieces_of_one_here_and_none_of_it_is_kept_here() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root), ("h3", Kind::Root)]);
    if !give(&lab, "h3") {
        return;
    }
    let far = |command| [command, PATH, "--source", "h3", "--limit", "h1,h2"];
    let check = run(&lab, &[&far("push")[..], &["--check"]].concat()).ended(0);
    let would = &check.summary["would_push"]["h1"];
    assert_eq!(would["missing_bytes"], would["planned_bytes"]);
    let nothing = "test ! -e /var/lib/windlass";
    for host in ["h1", "h2", "h3"] {
        lab.sh(host, nothing);
    }
    let pushed = run(&lab, &far("push")).ended(0);
    for host in ["h1", "h2"] {
        let told = &pushed.summary["pushed"][host];
        // The manifest counts too.
        let received = told["received_bytes"].as_u64().unwrap();
        let more = received - told["planned_bytes"].as_u64().unwrap();
        assert!(more < 64 << 10, "{host}: {told}");
        assert_eq!(pushed.sent(host), would_of(&check.summary, host), "{host}");
    }
    assert!(largest(lab.home()) < 8 << 20, "the model came here");
    lab.sh("h3", "test ! -e /var/lib/windlass/pieces");
    let from_far = [digests(&lab, "h1"), digests(&lab, "h2")];

    // A controller that has the model and never saw the host that has it.
    let other = another(&lab, "other");
    assert!(give_model(&other));
    let near = ["push", "smollm2", "--limit", "h1,h2"];
    let again = run_at(&lab, &other, &near).ended(0);
    assert_eq!((again.sent("h1"), again.sent("h2")), (0, 0));
    lab.sh("h2", &format!("rm -r {PIECES}"));
    let anew = run_at(&lab, &other, &near).ended(0);
    assert!(anew.sent("h2") > 0 && anew.sent("h1") == 0);
    assert_eq!([digests(&lab, "h1"), digests(&lab, "h2")], from_far);

    // And the other way round, up to a deployment.
    let up = run_at(&lab, &another(&lab, "third"), &far("up")).ended(0);
    assert_eq!((up.sent("h1"), up.sent("h2")), (0, 0));
    assert_eq!(up.summary["model"], "model");
    let chat = run(&lab, &["chat", "Say yes.", "--max-tokens", "4"]).ended(0);
    assert!(chat.summary["turns"][0]["text"].is_string());
}

fn would_of(summary: &serde_json::Value, host: &str) -> u64 {
    summary["would_push"][host]["missing_bytes"]
        .as_u64()
        .unwrap()
}

#[test]
fn a_host_that_holds_the_model_and_serves_makes_its_pieces_itself() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::SudoPassword)]);
    if !give(&lab, "h2") {
        return;
    }
    // In the cache of the login user, as the hub's tools leave it.
    let commit = "0123456789abcdef0123456789abcdef01234567";
    lab.sh(
        "h2",
        &format!(
            "repo=/home/ai/.cache/huggingface/hub/models--some--model\n\
             mkdir -p $repo/blobs $repo/refs $repo/snapshots/{commit}\n\
             mv {PATH} $repo/blobs/{SHA256}\n\
             printf {commit} > $repo/refs/main\n\
             ln -s ../../blobs/{SHA256} $repo/snapshots/{commit}/Model-Q4_1.gguf\n\
             chown -R ai: /home/ai"
        ),
    );
    let from = ["push", "some/model:Q4_1", "--source", "h2"];
    let pushed = run(&lab, &from).ended(0);
    let told = &pushed.summary["pushed"]["h2"];
    assert_eq!(pushed.sent("h2"), 0);
    // Only the manifest.
    assert!(
        told["received_bytes"].as_u64().unwrap() < 64 << 10,
        "{told}"
    );
    assert!(told["files"].as_u64().unwrap() > 2, "{told}");
    // The worker's program is all that came from here.
    let program = fs::metadata(worker_program()).unwrap().len();
    assert_eq!(pushed.summary["hosts"]["h2"]["bytes_sent"], program);
    assert!(pushed.sent("h1") > 0);
    let made = digests(&lab, "h2");
    let owner = lab.sh("h2", &format!("stat -c %a {PIECES}"));
    assert_eq!(owner, "700\n");

    let other = another(&lab, "other");
    assert!(give_model(&other));
    lab.sh("h2", &format!("rm -r {PIECES}"));
    let near = run_at(&lab, &other, &["push", "smollm2"]).ended(0);
    assert!(near.sent("h2") > 0);
    assert_eq!(digests(&lab, "h2"), made);
    let again = run(&lab, &from).ended(0);
    assert_eq!(again.summary["pushed"]["h2"]["files"], 0);
}

#[test]
fn a_push_from_a_host_that_was_killed_goes_on_where_it_stopped() {
    if absent() {
        return;
    }
    let lab = Lab::with(
        &[("h1", Kind::Root), ("h2", Kind::Root), ("h3", Kind::Root)],
        |wanted| wanted.rate = Some("100mbit".into()),
    );
    if !give(&lab, "h3") {
        return;
    }
    super::push::killed_and_gone_on(&lab, &["push", PATH, "--source", "h3", "--limit", "h1,h2"]);
}

#[test]
fn what_is_wrong_with_a_model_on_a_host_is_told_with_host_and_path() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::NoSudo)]);
    if !give(&lab, "h2") {
        return;
    }
    lab.sh(
        "h2",
        &format!(
            "cd /srv/models\n\
             printf 'no model at all, only text' > foreign.gguf\n\
             head -c 5000 model.gguf > short.gguf\n\
             cp model.gguf closed.gguf; chmod 600 closed.gguf\n\
             mkdir folder.gguf\n\
             repo=/home/ai/.cache/huggingface/hub/models--some--model\n\
             mkdir -p $repo/refs $repo/blobs $repo/snapshots/00; printf 00 > $repo/refs/main\n\
             for n in 1 2; do cp foreign.gguf $repo/snapshots/00/M-Q8_0-0000$n-of-00002.gguf; done\n\
             cp model.gguf $repo/blobs/{wrong}\n\
             ln -s ../../blobs/{wrong} $repo/snapshots/00/M-Q4_0.gguf\n\
             chown -R ai: /home/ai\n",
            wrong = "ab".repeat(32),
        ),
    );
    for (model, wanted) in [
        ("/srv/models/absent.gguf", "no file /srv/models/absent.gguf"),
        ("/srv/models/folder.gguf", "is no file"),
        ("/srv/models/closed.gguf", "cannot be read as ai"),
        ("/srv/models/foreign.gguf", "foreign.gguf: not a GGUF"),
        ("/srv/models/short.gguf", "short.gguf"),
        ("some/model:Q8_0", "split"),
        ("some/model:Q4_0", "should have the digest abab"),
        ("some/model:Q2_K", "Q2_K"),
        ("some/other", "is not in /home/ai/.cache/huggingface/hub"),
        (
            "smollm2",
            "is not in /home/ai/.cache/windlass/models or /home/ai/.cache/huggingface/hub",
        ),
    ] {
        let ran = run(&lab, &["push", model, "--source", "h2"]).ended(1);
        let message = ran.message();
        assert!(message.contains(wanted), "{model}: {message}");
        assert!(message.starts_with("h2: "), "{model}: {message}");
        assert_eq!(ran.summary["error"]["host"], "h2", "{model}");
    }
    for (model, host) in [("smolm2", "h2"), (PATH, "h3"), (PATH, "@all")] {
        run(&lab, &["push", model, "--source", host]).ended(if host == "h3" { 3 } else { 2 });
    }
    lab.sh("h1", "test ! -e /var/lib/windlass");
}

#[test]
fn a_model_that_is_cut_short_while_it_is_sent_is_told_and_what_came_stays() {
    if absent() {
        return;
    }
    let lab = Lab::with(&[("h1", Kind::Root), ("h2", Kind::Root)], |wanted| {
        wanted.rate = Some("100mbit".into());
    });
    if !give(&lab, "h2") {
        return;
    }
    let arguments = ["push", PATH, "--source", "h2", "--limit", "h1"];
    let mut child = lab
        .windlass(&arguments)
        .arg("--json")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut last = serde_json::Value::Null;
    let mut cut = false;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        last = serde_json::from_str(&line.unwrap()).unwrap();
        let sent = last["done"].as_u64().filter(|_| last["what"] == "pieces");
        if !cut && sent.is_some_and(|bytes| bytes > 8 << 20) {
            lab.sh(
                "h2",
                &format!("cp {PATH} /srv/whole && truncate -s 40000000 {PATH}"),
            );
            cut = true;
        }
    }
    assert!(cut, "the push was over before the file could be cut short");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let message = last["error"]["message"].as_str().unwrap();
    assert_eq!(last["error"]["host"], "h2", "{message}");
    for wanted in ["changed while", PATH] {
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
    let there = lab.sh(
        "h1",
        &format!("cat {PIECES}/*.gguf {PIECES}/*.part | wc -c"),
    );
    let there: u64 = there.trim().parse().unwrap();
    assert!(there > 4 << 20, "only {there} bytes stayed");
    lab.sh("h2", &format!("mv /srv/whole {PATH}"));
    let second = run(&lab, &arguments).ended(0);
    let planned = second.summary["pushed"]["h1"]["planned_bytes"].as_u64();
    assert_eq!(Some(second.sent("h1") + there), planned);
}
