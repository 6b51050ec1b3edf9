//! Values made by llama.cpp. See `oracles/engine_goldens.sh` for how.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use windlass_gguf::{MappedGguf, write_f32};
use windlass_wire::frame::RowEntry;
use windlass_worker::engine::{Engine, FileOptions};

use crate::support::{full, log_softmax, logits, odd, sha256, smollm2, tiny, whole};

fn golden<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden/engine")
        .join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[derive(Deserialize)]
struct GoldenFile {
    sha256: String,
}

#[derive(Deserialize)]
struct TinyGolden {
    files: Vec<GoldenFile>,
    ids: Vec<u32>,
    logprobs: Vec<Vec<f32>>,
}

#[test]
fn a_random_model_of_odd_sizes_agrees_on_every_tokens_probability() {
    let golden: TinyGolden = golden("tiny.json");
    let model = tiny(&odd());
    assert_eq!(
        sha256(&model.path),
        golden.files[0].sha256,
        "another model than the golden one"
    );
    let mut engine = [whole(&model.path)];
    let vocab = engine[0].vocab();
    let mut ours = logits(&mut engine, 0, &golden.ids, 64);
    assert_eq!(golden.ids.len(), 64);
    let (mut worst, mut compared) = (0.0f32, 0);
    for (ours, expected) in ours.chunks_exact_mut(vocab).zip(&golden.logprobs) {
        log_softmax(ours);
        assert_eq!(expected.len(), vocab);
        for (&a, &b) in ours.iter().zip(expected) {
            if b > 1e-6f32.ln() {
                worst = worst.max((a - b).abs());
                compared += 1;
            }
        }
    }
    println!("{compared} log-probabilities, largest difference {worst}");
    assert!(compared > 10_000 && worst <= 1e-3, "{compared} {worst}");
}

#[derive(Deserialize)]
struct Prompt {
    name: String,
    ids: Vec<u32>,
    answer: Vec<u32>,
    best_two: Vec<[f32; 2]>,
}

#[derive(Deserialize)]
struct GreedyGolden {
    files: Vec<GoldenFile>,
    prompts: Vec<Prompt>,
}

/// The model with its weights as F32, in a folder that lives as long as the value.
fn as_f32(model: &Path) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f32.gguf");
    write_f32(&MappedGguf::open(model).unwrap(), &path).unwrap();
    (dir, path)
}

fn threads() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(8) as u32)
}

/// Greedy answers of all prompts, decoded together; the same as one by one (see `exact`).
fn greedy(engine: &mut Engine, prompts: &[Prompt], steps: usize) -> Vec<Vec<u32>> {
    let width = engine.hidden();
    let (mut hidden, mut out) = (Vec::new(), Vec::new());
    let mut last = Vec::new();
    for (seq, prompt) in prompts.iter().enumerate() {
        for (i, part) in prompt.ids.chunks(256).enumerate() {
            engine.embed(part, &mut hidden).unwrap();
            let rows = crate::support::rows(seq as u32, i * 256, part.len());
            engine.forward(&rows, &mut hidden).unwrap();
        }
        last.extend_from_slice(&hidden[hidden.len() - width..]);
    }
    let mut answers = vec![Vec::new(); prompts.len()];
    for step in 0..steps {
        engine.logits(&last, &mut out).unwrap();
        let mut tokens = Vec::new();
        for (answer, row) in answers.iter_mut().zip(out.chunks(engine.vocab())) {
            let best = row
                .iter()
                .enumerate()
                .max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
            let id = best.unwrap().0 as u32;
            answer.push(id);
            tokens.push(id);
        }
        if step + 1 < steps {
            let rows: Vec<RowEntry> = prompts
                .iter()
                .zip(0..)
                .map(|(p, seq)| RowEntry {
                    seq,
                    pos: (p.ids.len() + step) as u32,
                    flags: 0,
                })
                .collect();
            engine.embed(&tokens, &mut last).unwrap();
            engine.forward(&rows, &mut last).unwrap();
        }
    }
    answers
}

#[test]
fn greedy_answers_of_the_f32_model_are_the_same_but_for_near_ties() {
    let Some(model) = smollm2() else { return };
    let golden: GreedyGolden = golden("greedy.json");
    let (_dir, path) = as_f32(&model);
    assert_eq!(
        sha256(&path),
        golden.files[0].sha256,
        "another model than the golden one"
    );
    let mut prompts = golden.prompts;
    let allowed = if full() {
        assert_eq!(prompts.len(), 20);
        2
    } else {
        prompts.truncate(6);
        1
    };
    let blocks: usize = prompts
        .iter()
        .map(|p| (p.ids.len() + 64).div_ceil(32))
        .sum();
    let options = FileOptions {
        context: 2048,
        kv_blocks: blocks as u32,
        threads: threads(),
        ..FileOptions::default()
    };
    let mut engine = Engine::load_file(&path, &options).unwrap();
    let answers = greedy(&mut engine, &prompts, 64);
    let mut diverged = Vec::new();
    for (prompt, ours) in prompts.iter().zip(&answers) {
        assert_eq!((prompt.answer.len(), ours.len()), (64, 64));
        if let Some(at) = ours.iter().zip(&prompt.answer).position(|(a, b)| a != b) {
            let [best, second] = prompt.best_two[at];
            println!(
                "{}: parts at {at}, where the best two differ by {}",
                prompt.name,
                best - second
            );
            assert!(
                best - second < 0.05,
                "{} parts at {at} without a near tie",
                prompt.name
            );
            diverged.push(&prompt.name);
        }
    }
    assert!(diverged.len() <= allowed, "{diverged:?}");
}

#[derive(Deserialize)]
struct Passage {
    name: String,
    ids: Vec<u32>,
    mean_kl: f64,
}

#[derive(Deserialize)]
struct KlGolden {
    files: Vec<GoldenFile>,
    positions: usize,
    passages: Vec<Passage>,
}

#[test]
fn the_quantised_model_loses_no_more_than_llama_cpps_does() {
    let Some(model) = smollm2() else { return };
    let golden: KlGolden = golden("kl.json");
    let (_dir, exact) = as_f32(&model);
    assert_eq!(
        sha256(&exact),
        golden.files[0].sha256,
        "another model than the golden one"
    );
    assert_eq!(
        sha256(&model),
        golden.files[1].sha256,
        "another model than the golden one"
    );
    assert!(golden.positions >= 2000);
    let mut passages = golden.passages;
    if !full() {
        passages.truncate(3);
    }
    let options = FileOptions {
        threads: threads(),
        ..FileOptions::default()
    };
    let mut exact = [Engine::load_file(&exact, &options).unwrap()];
    let mut quantised = [Engine::load_file(&model, &options).unwrap()];
    let vocab = exact[0].vocab();
    let (mut ours, mut theirs, mut positions) = (0.0, 0.0, 0);
    for passage in &passages {
        exact[0].reset();
        quantised[0].reset();
        let p = logits(&mut exact, 0, &passage.ids, 128);
        let q = logits(&mut quantised, 0, &passage.ids, 128);
        let sum: f64 = p
            .chunks(vocab)
            .zip(q.chunks(vocab))
            .map(|(p, q)| kl(p, q))
            .sum();
        let count = passage.ids.len();
        println!(
            "{}: ours {}, llama.cpp's {}",
            passage.name,
            sum / count as f64,
            passage.mean_kl
        );
        ours += sum;
        theirs += passage.mean_kl * count as f64;
        positions += count;
    }
    let (ours, theirs) = (ours / positions as f64, theirs / positions as f64);
    println!("{positions} positions: mean KL ours {ours}, llama.cpp's {theirs}");
    assert!(ours <= 1.1 * theirs, "ours {ours}, llama.cpp's {theirs}");
}

/// KL divergence of two rows of logits, in nats.
fn kl(p: &[f32], q: &[f32]) -> f64 {
    let norm = |row: &[f32]| {
        let best = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
        let sum: f64 = row.iter().map(|&l| f64::from(l - best).exp()).sum();
        f64::from(best) + sum.ln()
    };
    let (np, nq) = (norm(p), norm(q));
    p.iter()
        .zip(q)
        .map(|(&p, &q)| {
            let (p, q) = (f64::from(p) - np, f64::from(q) - nq);
            p.exp() * (p - q)
        })
        .sum()
}
