//! What each worker has in memory, seen from outside.

use std::collections::BTreeSet;
use std::path::Path;

use windlass_gguf::Slice;

use super::harness::{Cluster, Model, Settings, Worker, assignments};
use super::http;

/// Bytes a worker may have besides a quarter of its pieces and its KV: program, threads' stacks,
/// buffers of a prefill, vocabulary and merges.
const CONSTANT: u64 = 24 << 20;

/// Model files in a process's address space.
fn mapped(pid: u32) -> BTreeSet<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let files = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]));
    files
        .filter(|file| file.contains(".gguf"))
        .map(str::to_owned)
        .collect()
}

fn files(model: &Model, slices: &[Slice]) -> BTreeSet<String> {
    let file = |slice: &Slice| {
        let entry = model.pieces.manifest.piece(*slice).unwrap();
        model
            .pieces
            .folder
            .join(&entry.file)
            .to_str()
            .unwrap()
            .to_owned()
    };
    slices.iter().map(file).collect()
}

#[test]
fn each_worker_maps_its_own_pieces_and_holds_little_else() {
    let Some(model) = Model::real() else { return };
    let per_position = model.number("attention.head_count_kv")
        * (model.number("embedding_length") / model.number("attention.head_count"))
        * 2
        * 4;
    for workers in [2, 3] {
        let cluster = Cluster::start(&model, &Settings::of(workers));
        let prompt = "Tell me about the sea. ".repeat(40);
        let body = http::chat(&prompt, 32).to_string();
        let (status, answer) =
            http::ask(cluster.api, "POST", "/v1/chat/completions", &body).unwrap();
        assert_eq!(status, 200, "{answer}");
        let positions = answer["usage"]["total_tokens"].as_u64().unwrap();
        let blocks = positions.div_ceil(32) * 32;

        let mut held = Vec::new();
        for (worker, plan) in cluster.workers.iter().zip(&cluster.plans) {
            let own = mapped(worker.pid);
            // Every stage reads the shape of the model; only the head keeps more of the metadata.
            let with_metadata: Vec<_> = plan
                .slices
                .iter()
                .copied()
                .chain([Slice::Metadata])
                .collect();
            // A piece that is one small vector is read and needs to be mapped no longer.
            let large = |s: &Slice| *s != Slice::Metadata && model.pieces.bytes(&[*s]) > 64 << 10;
            let tensors: Vec<_> = plan.slices.iter().copied().filter(large).collect();
            assert!(own.is_subset(&files(&model, &with_metadata)), "{own:#?}");
            assert!(own.is_superset(&files(&model, &tensors)), "{own:#?}");
            held.extend(plan.slices.iter().filter_map(|slice| match slice {
                Slice::Layer(layer) => Some(*layer),
                _ => None,
            }));

            let pieces = model.pieces.bytes(&plan.slices);
            let kv = blocks * u64::from(plan.layers) * per_position;
            let anonymous = worker.anonymous();
            let bound = pieces / 4 + kv + CONSTANT;
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            println!(
                "stage {} of {workers}: pieces {:.1} MiB, KV {:.1} MiB, anonymous {:.1} MiB of at most {:.1}: {:.3} of the pieces beyond KV",
                worker.stage,
                mib(pieces),
                mib(kv),
                mib(anonymous),
                mib(bound),
                anonymous.saturating_sub(kv) as f64 / pieces as f64
            );
            assert!(anonymous < bound, "{anonymous} of at most {bound}");
        }
        assert_eq!(
            held,
            (0..model.layers()).collect::<Vec<_>>(),
            "disjoint and complete"
        );
    }
}

/// The model's pieces in a folder of their own, one with a byte changed in its middle.
fn spoiled(model: &Model, folder: &Path, file: &str) {
    for entry in std::fs::read_dir(&model.pieces.folder).unwrap().flatten() {
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let path = folder.join(file);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn one_byte_changed_in_any_piece_is_refused_by_each_worker_that_holds_it() {
    let model = Model::tiny();
    let settings = Settings::of(3);
    let plans = model.split(3);
    let mut refused = 0;
    for piece in &model.pieces.manifest.pieces {
        let folder = tempfile::tempdir().unwrap();
        spoiled(&model, folder.path(), &piece.file);
        let all = assignments(&model, &settings, &folder.path().join("s"));
        for (mut assignment, plan) in all.into_iter().zip(&plans) {
            if !files(&model, &plan.slices)
                .iter()
                .any(|file| file.ends_with(&piece.file))
            {
                continue;
            }
            assignment.pieces = folder.path().to_owned();
            let mut worker = Worker::start(&assignment);
            let (kind, message) = worker.failure();
            assert_eq!(kind, "piece", "{message}");
            assert!(
                message.contains(&piece.file),
                "no {} in {message}",
                piece.file
            );
            assert_eq!(worker.wait().code(), Some(1));
            refused += 1;
        }
    }
    assert!(
        refused >= model.pieces.manifest.pieces.len() - 1,
        "only {refused}"
    );
}
