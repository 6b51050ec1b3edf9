//! Bits do not depend on chunks, neighbours, threads, stages or the history of blocks.

use sha2::{Digest, Sha256};
use windlass_gguf::{MappedGguf, Slice, TensorType, cut, manifest_file_name};
use windlass_worker::engine::{Engine, EngineOptions, FileOptions};

use crate::support::{bits, blocks, ids, logits, odd, rows, tiny, whole};

fn shapes() -> Vec<windlass_gguf::TinySpec> {
    vec![
        odd(),
        blocks(TensorType::F16),
        blocks(TensorType::Q8_0),
        blocks(TensorType::Q4_0),
        blocks(TensorType::Q4_1),
    ]
}

#[test]
fn prompts_in_chunks_equal_prompts_token_by_token() {
    for spec in shapes() {
        let model = tiny(&spec);
        let ids = ids(1, 75);
        let single = logits(&mut [whole(&model.path)], 1, &ids, 1);
        for chunk in [2, 7, 32, 75] {
            let chunked = logits(&mut [whole(&model.path)], 1, &ids, chunk);
            assert_eq!(
                bits(&chunked),
                bits(&single),
                "chunk {chunk}, {:?}",
                spec.ty
            );
        }
    }
}

#[test]
fn sequences_side_by_side_equal_sequences_alone() {
    for spec in shapes() {
        let model = tiny(&spec);
        let options = FileOptions {
            kv_blocks: 64,
            ..FileOptions::default()
        };
        let mut engine = Engine::load_file(&model.path, &options).unwrap();
        let prompts: Vec<Vec<u32>> = (0..4).map(|i| ids(i + 5, 20 + 17 * i as usize)).collect();
        let alone: Vec<Vec<f32>> = prompts
            .iter()
            .map(|p| logits(&mut [whole(&model.path)], 9, p, 64))
            .collect();
        // Round after round, each sequence advances by another number of tokens, and the batch
        // interleaves them: first rows of all, then second rows, …
        let mut at = [0usize; 4];
        let mut collected = vec![Vec::new(); 4];
        let vocab = engine.vocab();
        for round in 0.. {
            let mut batch = Vec::new();
            for step in 0..6 {
                for s in 0..4 {
                    if step < 1 + (round + 2 * s) % 6 && at[s] + step < prompts[s].len() {
                        batch.push((s, at[s] + step));
                    }
                }
            }
            if batch.is_empty() {
                break;
            }
            let tokens: Vec<u32> = batch.iter().map(|&(s, p)| prompts[s][p]).collect();
            let entries: Vec<_> = batch
                .iter()
                .flat_map(|&(s, p)| rows(s as u32, p, 1))
                .collect();
            let (mut hidden, mut out) = (Vec::new(), Vec::new());
            engine.embed(&tokens, &mut hidden).unwrap();
            engine.forward(&entries, &mut hidden).unwrap();
            engine.logits(&hidden, &mut out).unwrap();
            for (&(s, _), row) in batch.iter().zip(out.chunks(vocab)) {
                collected[s].extend_from_slice(row);
                at[s] += 1;
            }
        }
        for (together, alone) in collected.iter().zip(&alone) {
            assert_eq!(bits(together), bits(alone), "{:?}", spec.ty);
        }
    }
}

#[test]
fn stages_and_threads_equal_one_process_with_one_thread() {
    for spec in shapes() {
        let model = tiny(&spec);
        let ids = ids(2, 70);
        let one = logits(&mut [whole(&model.path)], 1, &ids, 16);
        for cuts in [vec![1, 2], vec![2, 1], vec![1, 1, 1]] {
            let mut first_layer = 0;
            let mut engines: Vec<Engine> = cuts
                .iter()
                .enumerate()
                .map(|(i, &layers)| {
                    let options = FileOptions {
                        first_layer,
                        layers: Some(layers),
                        threads: 1 + i as u32,
                        ..FileOptions::default()
                    };
                    first_layer += layers;
                    Engine::load_file(&model.path, &options).unwrap()
                })
                .collect();
            let split = logits(&mut engines, 1, &ids, 16);
            assert_eq!(bits(&split), bits(&one), "{cuts:?} {:?}", spec.ty);
        }
    }
}

#[test]
fn pieces_equal_the_whole_file_and_a_stage_maps_only_its_own() {
    for spec in [odd(), blocks(TensorType::Q4_1)] {
        let model = tiny(&spec);
        let source: String = Sha256::digest(std::fs::read(&model.path).unwrap())
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let dir = model.dir.path().join("pieces");
        std::fs::create_dir(&dir).unwrap();
        let mapped = MappedGguf::open(&model.path).unwrap();
        let manifest = cut(&mapped, &source, &dir, &Slice::all(3), &mut |_| {}).unwrap();
        let stage = |first_layer, layers, first, last| EngineOptions {
            pieces_dir: dir.clone(),
            manifest: manifest_file_name(&source).unwrap(),
            first_layer,
            layers,
            first,
            last,
            context: 128,
            kv_blocks: 4,
            threads: 1,
        };
        let bytes = |slices: &[Slice]| -> u64 {
            slices
                .iter()
                .map(|&s| manifest.piece(s).unwrap().bytes)
                .sum()
        };
        let mut engines = [
            Engine::load(&stage(0, 1, true, false)).unwrap(),
            Engine::load(&stage(1, 1, false, false)).unwrap(),
            Engine::load(&stage(2, 1, false, true)).unwrap(),
        ];
        assert_eq!(
            engines[0].piece_bytes(),
            bytes(&[Slice::Embedding, Slice::Layer(0)])
        );
        assert_eq!(engines[1].piece_bytes(), bytes(&[Slice::Layer(1)]));
        let mut last = vec![Slice::Layer(2), Slice::Output];
        if spec.tied {
            last.push(Slice::Embedding);
        }
        assert_eq!(engines[2].piece_bytes(), bytes(&last));
        assert_eq!(engines[0].model_sha256(), source);
        let ids = ids(4, 40);
        let split = logits(&mut engines, 1, &ids, 40);
        let one = logits(&mut [whole(&model.path)], 1, &ids, 40);
        assert_eq!(bits(&split), bits(&one));

        // One changed byte anywhere in a piece refuses it by name; another stage's does not matter.
        let file = dir.join(&manifest.piece(Slice::Layer(1)).unwrap().file);
        let mut content = std::fs::read(&file).unwrap();
        let middle = content.len() - 100;
        content[middle] ^= 1;
        std::fs::write(&file, &content).unwrap();
        let error = Engine::load(&stage(1, 1, false, false))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("layer-0001.gguf") && error.contains("SHA-256"),
            "{error}"
        );
        assert!(Engine::load(&stage(0, 1, true, false)).is_ok());
        std::fs::remove_file(&file).unwrap();
        let error = Engine::load(&stage(0, 2, true, false))
            .unwrap_err()
            .to_string();
        assert!(error.contains("layer-0001.gguf"), "{error}");
    }
}

#[test]
fn blocks_of_earlier_sequences_leave_no_trace() {
    let model = tiny(&blocks(TensorType::Q4_1));
    let options = FileOptions {
        kv_blocks: 3,
        ..FileOptions::default()
    };
    let mut engine = Engine::load_file(&model.path, &options).unwrap();
    let (a, b) = (ids(1, 90), ids(2, 70));
    let fresh = logits(&mut [whole(&model.path)], 1, &b, 70);
    let mut engines = [engine];
    logits(&mut engines, 5, &a, 90);
    [engine] = engines;
    assert_eq!((engine.kv_used(), engine.kv_total()), (3, 3));
    engine.free(5);
    engine.free(5);
    assert_eq!((engine.kv_used(), engine.positions(5)), (0, 0));
    let mut engines = [engine];
    assert_eq!(bits(&logits(&mut engines, 6, &b, 70)), bits(&fresh));
    engines[0].reset();
    assert_eq!(engines[0].kv_used(), 0);
    assert_eq!(bits(&logits(&mut engines, 6, &b, 7)), bits(&fresh));
}
