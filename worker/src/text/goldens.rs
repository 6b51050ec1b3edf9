//! Tests against the golden files in `tests/golden/tokenizer`, which other tools wrote
//! (`oracles/make_goldens.py`), and the tiny tokenizers other tests use.
//!
//! Vocabularies and the small model are not part of the repository: `oracles/fetch.py` brings
//! them. Where they are absent a test says so and passes, unless `WINDLASS_REQUIRE_FIXTURES` is 1.

use std::path::{Path, PathBuf};

use serde_json::Value;
use windlass_gguf::{Array, MappedGguf, Metadata, TinySpec, TinyTokenizer, tiny_llama};

use super::*;

/// A golden file.
pub(super) fn read(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden/tokenizer")
        .join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// A tokenizer with little more than bytes: "spm" or a pre-tokenizer's name.
pub(super) fn tiny(kind: &str) -> Tokenizer {
    Tokenizer::from_metadata(&tiny_metadata(kind)).unwrap()
}

fn tiny_metadata(kind: &str) -> Metadata {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let spec = TinySpec {
        layers: 1,
        tokenizer: match kind {
            "spm" => TinyTokenizer::Spm,
            _ => TinyTokenizer::Bpe,
        },
        pre: kind.into(),
        ..TinySpec::default()
    };
    tiny_llama(&spec, &path).unwrap();
    MappedGguf::open(&path).unwrap().header().metadata().clone()
}

/// A fetched file, or none where that is allowed.
fn fixture(name: &str) -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache"));
    let cache = std::env::var_os("WINDLASS_TEST_CACHE")
        .map(PathBuf::from)
        .or_else(|| {
            let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            Some(base.or_else(home)?.join("windlass/test"))
        });
    let path = cache?.join(name);
    if path.exists() {
        return Some(path);
    }
    let hint = format!(
        "{} is absent; run `python3 oracles/fetch.py`",
        path.display()
    );
    if std::env::var_os("WINDLASS_REQUIRE_FIXTURES").is_some_and(|v| v == "1") {
        panic!("{hint}");
    }
    eprintln!("SKIPPED: {hint}");
    None
}

/// Metadata of a model or vocabulary file.
fn metadata(path: &Path) -> Metadata {
    MappedGguf::open(path).unwrap().header().metadata().clone()
}

fn ids(value: &Value) -> Vec<u32> {
    let ids = value.as_array().unwrap().iter();
    ids.map(|v| u32::try_from(v.as_u64().unwrap()).unwrap())
        .collect()
}

/// Token by token, what an answer of these ids reads as.
fn decode(tokenizer: &std::sync::Arc<Tokenizer>, ids: &[u32]) -> String {
    let mut decoder = Detokenizer::new(std::sync::Arc::clone(tokenizer));
    let text: String = ids.iter().map(|id| decoder.push(*id)).collect();
    text + &decoder.finish()
}

/// Compares with a golden file: texts, their ids, and the tokens that end a generation.
fn check(tokenizer: Tokenizer, golden: &Value) -> usize {
    let tokenizer = std::sync::Arc::new(tokenizer);
    let cases = golden["cases"].as_array().unwrap();
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let plain = tokenizer.encode(text, false, false).unwrap();
        assert_eq!(plain, ids(&case["plain"]), "{text:?}");
        let special = tokenizer.encode(text, false, true).unwrap();
        assert_eq!(
            special,
            ids(&case["special"]),
            "{text:?} with special tokens"
        );
        assert_eq!(decode(&tokenizer, &plain), text);
    }
    assert_eq!(tokenizer.eog(), ids(&golden["eog"]));
    assert_eq!(
        tokenizer.vocab_size() as u64,
        golden["vocab_size"].as_u64().unwrap()
    );
    cases.len()
}

#[test]
fn smollm_tokens_are_llama_cpps_on_200_strings() {
    let golden = read("smollm.json");
    let Some(path) = fixture("SmolLM2-135M-Instruct.Q4_1.gguf") else {
        return;
    };
    let tokenizer = Tokenizer::from_metadata(&metadata(&path)).unwrap();
    assert!(check(tokenizer, &golden) >= 200);
}

#[test]
fn each_vocabulary_passes_the_vectors_published_with_it() {
    let golden = read("vectors.json");
    for entry in golden["vocabularies"].as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        let Some(path) = fixture(&format!("vocab/ggml-vocab-{name}.gguf")) else {
            return;
        };
        let tokenizer =
            Tokenizer::from_metadata(&metadata(&path)).unwrap_or_else(|e| panic!("{name}: {e}"));
        for case in entry["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let ours = tokenizer
                .encode(text, false, false)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(ours, ids(&case["ids"]), "{name}: {text:?}");
        }
    }
}

#[test]
fn other_vocabularies_and_rules_are_tokenised_as_by_llama_cpp() {
    let golden = read("rules.json");
    for entry in golden["rules"].as_array().unwrap() {
        let name = entry["vocabulary"].as_str().unwrap();
        let Some(path) = fixture(&format!("vocab/ggml-vocab-{name}.gguf")) else {
            return;
        };
        let mut metadata = metadata(&path);
        if let Some(pre) = entry["pre"].as_str() {
            let pre = windlass_gguf::Value::String(pre.into());
            metadata.insert("tokenizer.ggml.pre", pre);
        }
        let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
        assert_eq!(
            u64::from(tokenizer.adds_bos()),
            u64::from(entry["add_bos"].as_bool().unwrap())
        );
        check(tokenizer, entry);
    }
}

#[test]
fn the_begin_token_is_added_once() {
    let tokenizer = tiny("spm");
    let bos = tokenizer.bos().unwrap();
    let name = String::from_utf8(tokenizer.piece(bos).to_vec()).unwrap();
    let begins = |text: &str| {
        let ids = tokenizer.encode(text, true, true).unwrap();
        ids.iter().filter(|id| **id == bos).count()
    };
    assert_eq!(begins("hi"), 1);
    assert_eq!(begins(&format!("{name}hi")), 1);
    assert_eq!(begins(""), 1);
    assert!(!tokenizer.encode("hi", false, true).unwrap().contains(&bos));
}

#[test]
fn plain_text_never_spells_a_control_token() {
    for kind in ["spm", "smollm"] {
        let tokenizer = tiny(kind);
        for id in 0..u32::try_from(tokenizer.vocab_size()).unwrap() {
            if tokenizer.is_special(id) {
                let name = String::from_utf8(tokenizer.piece(id).to_vec()).unwrap();
                let ids = tokenizer.encode(&name, false, false).unwrap();
                assert!(!ids.contains(&id), "{kind}: {name}");
                assert_eq!(tokenizer.encode(&name, false, true).unwrap(), [id]);
                assert!(tokenizer.token_bytes(id).is_empty());
            }
        }
    }
}

#[test]
fn every_text_comes_back_from_its_tokens() {
    for kind in ["spm", "smollm", "llama-bpe"] {
        let tokenizer = std::sync::Arc::new(tiny(kind));
        for text in [
            "",
            " ",
            "plain",
            "  two",
            "é😀\u{0}\n\t",
            "a\u{2028}b",
            "<0x0A>",
        ] {
            let ids = tokenizer.encode(text, false, false).unwrap();
            assert_eq!(decode(&tokenizer, &ids), text, "{kind}");
        }
    }
}

#[test]
fn long_texts_without_a_space_do_not_take_quadratic_work() {
    for kind in ["spm", "smollm"] {
        let tokenizer = tiny(kind);
        let ids = tokenizer
            .encode(&"ab".repeat(500_000), false, false)
            .unwrap();
        assert!(!ids.is_empty());
    }
}

/// The metadata of a tiny tokenizer, changed; the error that building it gives.
fn refusal(kind: &str, key: &str, value: windlass_gguf::Value) -> String {
    let mut metadata = tiny_metadata(kind);
    metadata.insert(key, value);
    Tokenizer::from_metadata(&metadata).unwrap_err().to_string()
}

#[test]
fn what_cannot_be_a_tokenizer_is_refused_by_name() {
    use windlass_gguf::Value as V;
    let error = refusal("spm", "tokenizer.ggml.model", V::String("t5".into()));
    assert!(
        error.contains("`t5`") && error.contains("gpt2, llama"),
        "{error}"
    );
    let error = refusal("smollm", "tokenizer.ggml.pre", V::String("kimi-k2".into()));
    assert!(
        error.contains("`kimi-k2`") && error.contains("qwen2"),
        "{error}"
    );
    let error = refusal("spm", "tokenizer.ggml.bos_token_id", V::U32(1 << 20));
    assert!(error.contains("bos_token_id"), "{error}");
    let error = refusal(
        "spm",
        "tokenizer.ggml.scores",
        V::Array(Array::F32(vec![0.0])),
    );
    assert!(error.contains("scores"), "{error}");
    let error = refusal(
        "spm",
        "tokenizer.ggml.token_type",
        V::Array(Array::I32(vec![1])),
    );
    assert!(error.contains("token_type"), "{error}");
    let twice = vec!["a".to_string(), "a".to_string()];
    let error = refusal(
        "spm",
        "tokenizer.ggml.tokens",
        V::Array(Array::String(twice)),
    );
    assert!(!error.is_empty());
    let merges = V::Array(Array::String(vec!["no-such token".into()]));
    let error = refusal("smollm", "tokenizer.ggml.merges", merges);
    assert!(error.contains("merge 0"), "{error}");
    let error = refusal("spm", "tokenizer.ggml.model", V::U32(1));
    assert!(error.contains("tokenizer.ggml.model"), "{error}");
}
