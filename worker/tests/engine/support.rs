//! Models and ways to run them, for the tests beside.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use windlass_gguf::{TensorType, TinySpec, tiny_llama};
use windlass_wire::frame::RowEntry;
use windlass_worker::engine::{Engine, FileOptions};

/// The shape of the golden model: odd sizes, untied, llama-3 rope scaling.
pub fn odd() -> TinySpec {
    TinySpec {
        rope_freqs: true,
        heads: 5,
        layers: 3,
        seed: 3,
        ..TinySpec::default()
    }
}

/// A shape whose matrices are whole blocks of 32, tied.
pub fn blocks(ty: TensorType) -> TinySpec {
    TinySpec {
        layers: 3,
        embd: 96,
        ffn: 160,
        heads: 6,
        kv_heads: 2,
        head_dim: 16,
        tied: true,
        ty,
        seed: 11,
        ..TinySpec::default()
    }
}

/// A written model; the folder lives as long as the value.
pub struct Tiny {
    pub dir: tempfile::TempDir,
    pub path: PathBuf,
}

pub fn tiny(spec: &TinySpec) -> Tiny {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.gguf");
    tiny_llama(spec, &path).unwrap();
    Tiny { dir, path }
}

pub fn sha256(path: &Path) -> String {
    Sha256::digest(std::fs::read(path).unwrap())
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

pub fn whole(path: &Path) -> Engine {
    Engine::load_file(path, &FileOptions::default()).unwrap()
}

/// Row entries of a sequence from a position on.
pub fn rows(seq: u32, from: usize, count: usize) -> Vec<RowEntry> {
    (from..from + count)
        .map(|pos| RowEntry {
            seq,
            pos: pos as u32,
            flags: 0,
        })
        .collect()
}

/// Token ids without meaning, below 300.
pub fn ids(seed: u32, count: usize) -> Vec<u32> {
    let mut x = seed;
    (0..count)
        .map(|_| {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            3 + (x >> 8) % 297
        })
        .collect()
}

/// Logits after each of the ids, run through the engines in order, `chunk` tokens at a time.
pub fn logits(engines: &mut [Engine], seq: u32, ids: &[u32], chunk: usize) -> Vec<f32> {
    let (mut all, mut hidden, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for (i, part) in ids.chunks(chunk).enumerate() {
        engines[0].embed(part, &mut hidden).unwrap();
        let rows = rows(seq, i * chunk, part.len());
        for engine in engines.iter_mut() {
            engine.forward(&rows, &mut hidden).unwrap();
        }
        engines
            .last_mut()
            .unwrap()
            .logits(&hidden, &mut out)
            .unwrap();
        all.extend_from_slice(&out);
    }
    all
}

pub fn log_softmax(row: &mut [f32]) {
    let best = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    let sum: f64 = row.iter().map(|&l| f64::from(l - best).exp()).sum();
    let norm = f64::from(best) + sum.ln();
    row.iter_mut()
        .for_each(|l| *l = (f64::from(*l) - norm) as f32);
}

/// Bit patterns, so that a comparison is of bits.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// The real model, or `None` (said aloud) when the fixture is absent and not required.
pub fn smollm2() -> Option<PathBuf> {
    const NAME: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
    let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache"));
    let cache = std::env::var_os("WINDLASS_TEST_CACHE")
        .map(PathBuf::from)
        .or_else(|| {
            let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            Some(base.or_else(home)?.join("windlass/test"))
        });
    let path = match std::env::var_os("WINDLASS_TEST_MODEL") {
        Some(path) => PathBuf::from(path),
        None => cache?.join(NAME),
    };
    if path.exists() {
        return Some(path);
    }
    let required = std::env::var_os("WINDLASS_REQUIRE_FIXTURES").is_some_and(|v| v == "1");
    assert!(!required, "the fixture {} is absent", path.display());
    eprintln!(
        "SKIPPED: {} is absent; set WINDLASS_TEST_MODEL to {NAME}",
        path.display()
    );
    None
}

/// Whether all goldens are to be run.
pub fn full() -> bool {
    std::env::var_os("WINDLASS_ENGINE_FULL").is_some_and(|v| v == "1")
}
