//! `windlass model …` and `windlass plan` from outside: the built program against a hub on the
//! loopback, with caches of its own.

mod plan;
mod sizes;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use windlass_gguf::{TinySpec, tiny_llama};

use crate::command_line::windlass;
use crate::hub::loopback::{Loopback, sha256};
use crate::support::json_lines;

const REPO: &str = "org/Tiny-GGUF";
const REF: &str = "org/Tiny-GGUF:F32";
const COMMIT: &str = "1111111111111111111111111111111111111111";
const LATER: &str = "2222222222222222222222222222222222222222";
const FILE: &str = "Tiny-F32.gguf";

/// A hub with one real small model, and an empty home.
struct Bench {
    hub: Loopback,
    home: tempfile::TempDir,
    content: Vec<u8>,
}

impl Bench {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("source.gguf");
        let spec = TinySpec {
            context: 4096,
            ..TinySpec::default()
        };
        tiny_llama(&spec, &path).unwrap();
        let content = fs::read(&path).unwrap();
        fs::remove_file(path).unwrap();
        let hub = Loopback::start().await;
        hub.publish(REPO, "main", COMMIT, FILE, &content);
        hub.with(|s| s.license = Some("apache-2.0".to_owned()));
        Self { hub, home, content }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = windlass(self.home.path(), arguments);
        command
            .env("HF_ENDPOINT", &self.hub.endpoint)
            .env("HF_HUB_CACHE", self.cache())
            .stdin(Stdio::null());
        command
    }

    fn cache(&self) -> PathBuf {
        self.home.path().join("hub")
    }

    /// Runs it off this thread, which serves the hub.
    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap()
    }

    /// Runs it with `--json`, checks the summary's form, and gives exit status and summary.
    async fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let mut all = arguments.to_vec();
        all.push("--json");
        let output = self.run(&all).await;
        let summary = summary(&output);
        (output.status.code().unwrap(), summary)
    }

    fn blob(&self) -> PathBuf {
        self.repository().join("blobs").join(sha256(&self.content))
    }

    fn repository(&self) -> PathBuf {
        self.cache().join("models--org--Tiny-GGUF")
    }

    fn link(&self) -> PathBuf {
        self.repository().join("snapshots").join(COMMIT).join(FILE)
    }
}

/// The last line, after checking what every summary has.
fn summary(output: &Output) -> Value {
    let lines = json_lines(&output.stdout);
    let last = lines.last().unwrap().clone();
    crate::schema::check(&last);
    assert_eq!((&last["v"], &last["event"]), (&1.into(), &"summary".into()));
    assert_eq!(last["exit"], output.status.code().unwrap());
    assert!(last["command"].is_string() && last["run"].is_string());
    assert!(last["seconds"].is_f64() && last["hosts"].is_object());
    match output.status.code() {
        Some(0) => assert!(last["error"].is_null(), "{last}"),
        _ => {
            for field in ["kind", "host", "step", "message"] {
                assert!(last["error"].get(field).is_some(), "no {field} in {last}");
            }
        }
    }
    last
}

/// What every model in a summary has.
fn assert_is_model(model: &Value) {
    for field in ["name", "path", "source"] {
        assert!(model[field].is_string(), "no {field} in {model}");
    }
    assert!(model["bytes"].is_u64(), "{model}");
    for field in ["sha256", "license", "revision"] {
        let value = model.get(field).unwrap();
        assert!(value.is_string() || value.is_null(), "{field} in {model}");
    }
}

fn message(summary: &Value) -> &str {
    summary["error"]["message"].as_str().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_second_pull_finds_the_model_there() {
    let bench = Bench::new().await;
    let (exit, first) = bench.json(&["model", "pull", REF]).await;
    assert_eq!(exit, 0, "{first}");
    let model = &first["model"];
    assert_is_model(model);
    assert_eq!(first["command"], "model pull");
    assert_eq!(model["source"], "hub");
    assert_eq!(model["license"], "apache-2.0");
    assert_eq!(model["revision"], COMMIT);
    assert_eq!(model["sha256"], sha256(&bench.content));
    assert_eq!(Path::new(model["path"].as_str().unwrap()), bench.link());
    let gets = || {
        bench
            .hub
            .count(|a| a.method == "GET" && a.path.contains("/resolve/"))
    };
    let before = gets();
    let (exit, second) = bench.json(&["model", "pull", REF]).await;
    assert_eq!((exit, &second["model"]["source"]), (0, &"cache".into()));
    assert_eq!(gets(), before, "sent again");
    let output = bench.run(&["model", "pull", REF]).await;
    assert!(text(&output.stderr).contains("is there already"));
    assert_eq!(text(&output.stdout).trim(), bench.link().to_str().unwrap());
}

#[tokio::test]
async fn a_check_of_pull_fetches_nothing() {
    let bench = Bench::new().await;
    let output = bench.run(&["model", "pull", REF, "--check"]).await;
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("would be fetched"));
    assert!(!bench.link().exists());
}

#[tokio::test]
async fn the_list_names_what_is_here_and_what_is_not_complete() {
    let bench = Bench::new().await;
    let (exit, empty) = bench.json(&["model", "list"]).await;
    assert_eq!((exit, &empty["models"]), (0, &serde_json::json!([])));
    bench.run(&["model", "pull", REF]).await;
    let other = bench.repository().join("blobs").join("ab".repeat(32));
    fs::write(other.with_extension("incomplete"), "half").unwrap();
    let (exit, list) = bench.json(&["model", "list"]).await;
    assert_eq!(exit, 0, "{list}");
    let models = list["models"].as_array().unwrap();
    models.iter().for_each(assert_is_model);
    assert_eq!(models.len(), 2, "{list}");
    let whole = &models[0];
    assert_eq!(whole["reference"], REF);
    assert_eq!(
        (&whole["quant"], &whole["complete"]),
        (&"F32".into(), &true.into())
    );
    assert_eq!(whole["bytes"], bench.content.len());
    assert_eq!(
        (&models[1]["complete"], &models[1]["bytes"]),
        (&false.into(), &4.into())
    );
    let shown = text(&bench.run(&["model", "list"]).await.stdout);
    assert!(
        shown.contains(REF) && shown.contains("not complete"),
        "{shown}"
    );
}

#[tokio::test]
async fn show_tells_what_the_file_is_and_whether_the_worker_runs_it() {
    let bench = Bench::new().await;
    bench.run(&["model", "pull", REF]).await;
    let (exit, shown) = bench.json(&["model", "show", REF]).await;
    assert_eq!(exit, 0, "{shown}");
    let model = &shown["model"];
    assert_is_model(model);
    assert_eq!(model["architecture"], "llama");
    assert_eq!(
        (&model["layers"], &model["context"]),
        (&3.into(), &4096.into())
    );
    assert_eq!(model["supported"], true);
    assert_eq!(model["layer_bytes"].as_array().unwrap().len(), 3);
    let quants = model["quant_bytes"].as_object().unwrap();
    let tensors: u64 = quants.values().map(|bytes| bytes.as_u64().unwrap()).sum();
    let parts: u64 = model["layer_bytes"]
        .as_array()
        .unwrap()
        .iter()
        .chain([&model["embedding_bytes"], &model["output_bytes"]])
        .map(|bytes| bytes.as_u64().unwrap())
        .sum();
    assert_eq!(tensors, parts);
    assert_eq!(model["sha256"], sha256(&bench.content));
    let shown = text(&bench.run(&["model", "show", REF]).await.stdout);
    for part in ["llama", "F32", COMMIT, "runs it", "3, "] {
        assert!(shown.contains(part), "no {part} in {shown}");
    }
    let (exit, missing) = bench.json(&["model", "show", "org/other:Q4_0"]).await;
    assert_eq!(exit, 1);
    assert!(message(&missing).contains("windlass model pull org/other:Q4_0"));
}

#[tokio::test]
async fn a_flipped_byte_is_found_by_verify_and_named_with_what_to_do() {
    let bench = Bench::new().await;
    bench.run(&["model", "pull", REF]).await;
    let (exit, sound) = bench.json(&["model", "verify", REF]).await;
    assert_eq!((exit, &sound["models"][0]["status"]), (0, &"ok".into()));
    // The time stays, as when a disk decays.
    let time = fs::metadata(bench.blob()).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(bench.blob()).unwrap();
    let at = bench.content.len() / 2;
    file.write_all_at(&[bench.content[at] ^ 1], at as u64)
        .unwrap();
    file.set_modified(time).unwrap();
    for arguments in [
        vec!["model", "verify", REF],
        vec!["model", "verify", "--all"],
    ] {
        let (exit, damaged) = bench.json(&arguments).await;
        assert_eq!(exit, 1, "{damaged}");
        let model = &damaged["models"][0];
        assert_is_model(model);
        assert_eq!(model["status"], "damaged");
        assert_eq!(model["expected"], sha256(&bench.content));
        let said = message(&damaged);
        assert!(said.contains(FILE), "{said}");
        assert!(
            said.contains(&format!("windlass model remove {REF}")),
            "{said}"
        );
    }
    // What it says helps.
    assert_eq!(bench.json(&["model", "remove", REF, "--yes"]).await.0, 0);
    assert_eq!(
        bench.json(&["model", "pull", REF]).await.1["model"]["source"],
        "hub"
    );
    assert_eq!(bench.json(&["model", "verify", REF]).await.0, 0);
}

#[tokio::test]
async fn nothing_to_verify_is_no_success() {
    let bench = Bench::new().await;
    let (exit, summary) = bench.json(&["model", "verify", "--all"]).await;
    assert_eq!((exit, &summary["error"]["kind"]), (3, &"nothing".into()));
}

#[tokio::test]
async fn remove_needs_leave_and_takes_one_file_only() {
    let bench = Bench::new().await;
    bench
        .hub
        .publish(REPO, "later", LATER, "Tiny-Q8_0.gguf", b"other");
    for reference in [REF, "org/Tiny-GGUF@later:Q8_0"] {
        assert_eq!(bench.json(&["model", "pull", reference]).await.0, 0);
    }
    let (exit, refused) = bench.json(&["model", "remove", REF]).await;
    assert_eq!((exit, &refused["error"]["kind"]), (2, &"usage".into()));
    assert!(message(&refused).contains("--yes"), "{refused}");
    let output = bench.run(&["model", "remove", REF, "--check"]).await;
    let talk = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{talk}");
    assert!(
        talk.contains("would be removed") && talk.contains(bench.blob().to_str().unwrap()),
        "{talk}"
    );
    assert!(bench.blob().exists() && bench.link().exists());

    let (exit, gone) = bench.json(&["model", "remove", REF, "--yes"]).await;
    assert_eq!(exit, 0, "{gone}");
    assert_is_model(&gone["model"]);
    assert_eq!(gone["model"]["freed_bytes"], bench.content.len());
    assert_eq!(gone["model"]["removed"].as_array().unwrap().len(), 2);
    assert!(!bench.blob().exists() && fs::symlink_metadata(bench.link()).is_err());
    let (_, list) = bench.json(&["model", "list"]).await;
    assert_eq!(list["models"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!(bench.json(&["model", "remove", REF, "--yes"]).await.0, 1);
}

#[tokio::test]
async fn a_file_outside_the_cache_is_not_removed() {
    let bench = Bench::new().await;
    let path = bench.home.path().join("mine.gguf");
    fs::write(&path, &bench.content).unwrap();
    let (exit, refused) = bench
        .json(&["model", "remove", path.to_str().unwrap(), "--yes"])
        .await;
    assert_eq!(exit, 2, "{refused}");
    assert!(path.exists() && message(&refused).contains("mine.gguf"));
}

#[tokio::test]
async fn references_and_flags_that_cannot_be_are_exit_2() {
    let bench = Bench::new().await;
    let table: [(&[&str], &str); 7] = [
        (&["model", "pull", "smolm2"], "smollm2"),
        (&["model", "show", "a/b/c"], "a/b/c"),
        (&["model", "verify", "smollm2:Q8_0"], "smollm2"),
        (&["model", "remove", "./none.gguf"], "none.gguf"),
        (&["model", "verify"], "REF"),
        (&["model", "list", "--limit", "halo1"], "--limit"),
        (&["model", "burn", "x"], "burn"),
    ];
    for (arguments, part) in table {
        let (exit, summary) = bench.json(arguments).await;
        assert_eq!(
            (exit, &summary["error"]["kind"]),
            (2, &"usage".into()),
            "{arguments:?}"
        );
        assert!(message(&summary).contains(part), "{summary}");
    }
    assert_eq!(bench.hub.count(|_| true), 0);
}

#[tokio::test]
async fn a_gated_model_names_the_licence_page_and_the_token() {
    let bench = Bench::new().await;
    bench.hub.with(|s| {
        s.gated = Some("manual".to_owned());
        s.refuse_files = Some((403, "Access to model is restricted".to_owned()));
    });
    let secret = "hf_do_not_show_me";
    let mut command = bench.command(&["model", "pull", REF, "--json"]);
    command.env("HF_TOKEN", secret);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    let summary = summary(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(summary["error"]["kind"], "model");
    let said = message(&summary);
    let page = format!("{}/{REPO}", bench.hub.endpoint);
    assert!(said.contains(&page) && said.contains("HF_TOKEN"), "{said}");
    assert!(!text(&output.stdout).contains(secret) && !text(&output.stderr).contains(secret));
}
