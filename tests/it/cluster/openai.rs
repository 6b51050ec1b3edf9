//! The official client of the OpenAI API against real clusters.

use std::path::Path;
use std::process::Command;

use super::harness::{Cluster, Model, Settings, fixtures, fixtures_required};

/// Runs the script; its output and whether all passed. `None`, aloud, where the client cannot be
/// had and need not be.
fn client(cluster: &Cluster, vocab: u64) -> Option<(String, bool)> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/openai_client.py");
    let venv = fixtures().join("openai-client");
    let output = Command::new("python3")
        .arg(script)
        .arg(format!("http://{}/v1", cluster.api))
        .args(["--vocab", &vocab.to_string()])
        .arg("--venv")
        .arg(&venv)
        .output();
    let told = match output {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if text.contains("checks passed") {
                return Some((text, output.status.success()));
            }
            text + &String::from_utf8_lossy(&output.stderr)
        }
        Err(error) => format!("python3: {error}"),
    };
    assert!(!fixtures_required(), "the client could not be run: {told}");
    eprintln!("SKIPPED: the openai client could not be run: {told}");
    None
}

#[test]
fn the_official_client_is_content_with_two_workers_and_the_real_model() {
    let Some(model) = Model::real() else { return };
    let cluster = Cluster::start(&model, &Settings::of(2));
    let vocab = cluster_vocab(&cluster);
    if let Some((told, passed)) = client(&cluster, vocab) {
        println!("{told}");
        assert!(passed, "{told}");
        cluster.at_rest();
    }
}

#[test]
fn the_official_client_finds_that_all_probabilities_sum_to_one() {
    let model = Model::tiny();
    let cluster = Cluster::start(&model, &Settings::of(2));
    let vocab = cluster_vocab(&cluster);
    if let Some((told, _)) = client(&cluster, vocab) {
        // A random model's text has no borders that the checks of stop strings could use.
        let line = "ok      the log probabilities of all tokens sum to one\n";
        assert!(told.contains(line), "{told}");
    }
}

fn cluster_vocab(cluster: &Cluster) -> u64 {
    let (status, list) = super::http::ask(cluster.api, "GET", "/v1/models", "").unwrap();
    assert_eq!(status, 200, "{list}");
    list["data"][0]["vocab_size"].as_u64().unwrap()
}
