//! What the engine refuses, by which words, and that a refused batch changes nothing.

use std::fs::File;
use std::path::Path;

use windlass_gguf::{GgufWriter, MappedGguf, TensorSpec, Value};
use windlass_wire::frame::RowEntry;
use windlass_worker::engine::{Engine, EngineError, FileOptions};

use crate::support::{Tiny, odd, rows, tiny, whole};

/// Copies a model with one metadata value replaced and tensors renamed or left out.
fn altered(
    model: &Tiny,
    key: &str,
    value: Value,
    rename: impl Fn(&str) -> Option<String>,
) -> std::path::PathBuf {
    let out = model.dir.path().join("altered.gguf");
    let source = MappedGguf::open(&model.path).unwrap();
    let mut metadata = source.header().metadata().clone();
    metadata.insert(key, value);
    let kept: Vec<_> = source
        .header()
        .tensors()
        .iter()
        .filter_map(|t| Some((t, rename(&t.name)?)))
        .collect();
    let specs: Vec<TensorSpec> = kept
        .iter()
        .map(|(t, name)| TensorSpec {
            name: name.clone(),
            dims: t.dims.clone(),
            ty: t.ty,
        })
        .collect();
    let file = File::create(&out).unwrap();
    let mut writer = GgufWriter::begin(file, &out, &metadata, &specs).unwrap();
    for (tensor, _) in &kept {
        writer
            .data(source.tensor_bytes(&tensor.name).unwrap())
            .unwrap();
    }
    writer.finish().unwrap();
    out
}

fn same(name: &str) -> Option<String> {
    Some(name.to_owned())
}

fn refusal(path: &Path) -> String {
    Engine::load_file(path, &FileOptions::default())
        .unwrap_err()
        .to_string()
}

#[test]
fn shapes_that_contradict_the_metadata_name_tensor_expected_and_found() {
    let model = tiny(&odd());
    let path = altered(&model, "llama.feed_forward_length", Value::U32(120), same);
    let error = refusal(&path);
    assert!(
        error.contains("blk.0.ffn_gate.weight")
            && error.contains("[70, 120]")
            && error.contains("[70, 118]"),
        "{error}"
    );
}

#[test]
fn experts_and_foreign_architectures_are_refused_by_name() {
    let model = tiny(&odd());
    let error = refusal(&altered(&model, "llama.expert_count", Value::U32(4), same));
    assert!(error.contains("4 experts"), "{error}");
    let error = refusal(&altered(
        &model,
        "general.architecture",
        Value::String("mamba".into()),
        same,
    ));
    assert!(
        error.contains("mamba") && error.contains("llama"),
        "{error}"
    );
}

#[test]
fn missing_and_unknown_tensors_are_refused_by_name() {
    let model = tiny(&odd());
    let harmless = || Value::String("x".into());
    let path = altered(&model, "general.name", harmless(), |n| {
        (n != "blk.1.attn_v.weight").then(|| n.to_owned())
    });
    let error = refusal(&path);
    assert!(error.contains("blk.1.attn_v.weight"), "{error}");
    let path = altered(&model, "general.name", harmless(), |n| {
        Some(n.replace("blk.2.attn_q.weight", "blk.2.attn_q.bias"))
    });
    let error = refusal(&path);
    assert!(error.contains("blk.2.attn_q.bias"), "{error}");
}

#[test]
fn layers_and_context_beyond_the_model_are_refused() {
    let model = tiny(&odd());
    let load = |first_layer, layers, context| {
        Engine::load_file(
            &model.path,
            &FileOptions {
                first_layer,
                layers,
                context,
                ..FileOptions::default()
            },
        )
        .map(|_| ())
    };
    assert!(matches!(
        load(1, Some(3), 32),
        Err(EngineError::Layers { available: 3, .. })
    ));
    assert!(matches!(load(3, None, 32), Err(EngineError::Layers { .. })));
    assert!(matches!(
        load(0, Some(u32::MAX), 32),
        Err(EngineError::Layers { .. })
    ));
    assert!(matches!(
        load(0, None, 513),
        Err(EngineError::Context { available: 512, .. })
    ));
}

#[test]
fn a_refused_batch_changes_nothing() {
    let model = tiny(&odd());
    let options = FileOptions {
        context: 60,
        kv_blocks: 2,
        ..FileOptions::default()
    };
    let mut engine = Engine::load_file(&model.path, &options).unwrap();
    let width = engine.hidden();
    let mut hidden = vec![0.25; 40 * width];
    engine
        .forward(&rows(1, 0, 20), &mut hidden[..20 * width])
        .unwrap();
    let before = (engine.kv_used(), engine.positions(1));
    let mut refused = |rows: &[RowEntry]| {
        let error = engine
            .forward(rows, &mut hidden[..rows.len() * width])
            .unwrap_err();
        assert_eq!(
            (engine.kv_used(), engine.positions(1), engine.positions(2)),
            (before.0, before.1, 0)
        );
        error
    };
    // A gap, a repetition, and a sequence that starts in the middle.
    for bad in [rows(1, 21, 2), rows(1, 19, 2), rows(2, 3, 1)] {
        assert!(matches!(refused(&bad), EngineError::Position { .. }));
    }
    let mut both = rows(2, 0, 10);
    both.extend(rows(2, 11, 1));
    assert!(matches!(
        refused(&both),
        EngineError::Position {
            seq: 2,
            found: 11,
            expected: 10
        }
    ));
    assert!(
        matches!(refused(&rows(2, 0, 33)), EngineError::KvFull(full) if full.needed == 2 && full.free == 1)
    );
    assert!(matches!(
        refused(&rows(2, u32::MAX as usize, 1)),
        EngineError::Position { .. }
    ));
    let mut long = vec![0.0; 41 * width];
    let error = engine.forward(&rows(1, 20, 41), &mut long).unwrap_err();
    assert!(matches!(error, EngineError::BeyondContext { pos: 60, .. }));
    let error = engine
        .forward(&rows(1, 20, 2), &mut long[..width])
        .unwrap_err();
    assert!(matches!(error, EngineError::Length { .. }));
    assert_eq!((engine.kv_used(), engine.positions(1)), before);
}

#[test]
fn tokens_beyond_the_vocabulary_and_parts_not_held_are_refused() {
    let model = tiny(&odd());
    let mut engine = whole(&model.path);
    let vocab = engine.vocab();
    let mut out = Vec::new();
    let error = engine.embed(&[0, vocab as u32], &mut out).unwrap_err();
    assert!(matches!(error, EngineError::Token { .. }));
    assert!(engine.logits(&[0.0; 71], &mut out).is_err());
    let middle = FileOptions {
        first_layer: 1,
        layers: Some(1),
        ..FileOptions::default()
    };
    let mut engine = Engine::load_file(&model.path, &middle).unwrap();
    assert!(matches!(
        engine.embed(&[1], &mut out),
        Err(EngineError::NotHeld { what: "embedding" })
    ));
    assert!(matches!(
        engine.logits(&[0.0; 70], &mut out),
        Err(EngineError::NotHeld { what: "output" })
    ));
}
