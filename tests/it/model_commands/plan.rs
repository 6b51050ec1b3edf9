//! `windlass plan`.

use std::process::Stdio;

use serde_json::Value;

use super::summary;
use crate::command_line::windlass;
use crate::support::tiny_model;

fn planned(arguments: &[&str]) -> (i32, Value, String) {
    let home = tempfile::tempdir().unwrap();
    let model = home.path().join("tiny.gguf");
    tiny_model(&model, 4);
    let mut all = vec!["plan", model.to_str().unwrap()];
    all.extend_from_slice(arguments);
    let run = |extra: Option<&str>| {
        let arguments: Vec<&str> = all.iter().copied().chain(extra).collect();
        let mut command = windlass(home.path(), &arguments);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let output = run(Some("--json"));
    let text = String::from_utf8(run(None).stdout).unwrap();
    (output.status.code().unwrap(), summary(&output), text)
}

#[test]
fn a_model_that_fits_is_placed_in_full_with_its_figures() {
    let (exit, summary, text) = planned(&["--context", "100", "--concurrency", "3"]);
    assert_eq!(exit, 0, "{summary}");
    assert_eq!(summary["fits"], true);
    assert_eq!(summary["short_bytes"], 0);
    let plan = &summary["plan"];
    // Three sequences of four blocks.
    assert_eq!(plan["kv_blocks"], 12);
    assert_eq!(
        (&plan["context"], &plan["concurrency"]),
        (&100.into(), &3.into())
    );
    let stages = plan["stages"].as_array().unwrap();
    assert_eq!(stages.len(), 1);
    assert_eq!(stages[0]["layers"], 4);
    // 1 key head of 22 + 22 floats, 32 positions, 4 bytes, 4 layers, 12 blocks.
    assert_eq!(stages[0]["need"]["kv"], 44 * 32 * 4 * 4 * 12);
    assert!(stages[0]["usable_bytes"].as_u64() > stages[0]["need"]["working"].as_u64());
    for part in ["HOST", "0–3", "context 100, concurrency 3"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn a_model_that_does_not_fit_is_exit_1_with_the_lack_and_what_would_fit() {
    let (exit, summary, text) = planned(&["--context", "4096", "--concurrency", "4000000"]);
    assert_eq!(exit, 1, "{summary}");
    assert_eq!(
        (&summary["fits"], &summary["plan"]),
        (&false.into(), &Value::Null)
    );
    assert_eq!(summary["error"]["kind"], "plan");
    assert!(summary["short_bytes"].as_u64() > Some(1 << 30), "{summary}");
    let said = summary["error"]["message"].as_str().unwrap();
    for part in ["tiny needs", "concurrency 4000000", "short", "--context"] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    assert!(
        text.contains("AT LEAST") && text.contains("SHORT"),
        "{text}"
    );
}

#[test]
fn more_context_than_the_model_was_made_for_is_refused_with_the_most() {
    let (exit, summary, _) = planned(&["--context", "4097"]);
    assert_eq!((exit, &summary["error"]["kind"]), (1, &"plan".into()));
    let said = summary["error"]["message"].as_str().unwrap();
    assert!(said.contains("4096"), "{said}");
    let (exit, _, _) = planned(&["--context", "0"]);
    assert_eq!(exit, 2);
}
