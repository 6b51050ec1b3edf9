//! Planned bytes against real ones: pieces as they are cut, workers as they run.

use windlass::plan::{Capacity, Demand, place};
use windlass_gguf::{
    MappedGguf, Slice, TensorType, TinySpec, TinyTokenizer, cut, piece_len, tiny_llama,
};

use crate::cluster::harness::{Cluster, Model, Settings};
use crate::cluster::http;

const DIGEST: &str = "abababababababababababababababababababababababababababababababab";

#[test]
fn every_piece_of_the_real_model_is_as_long_as_was_planned() {
    let Some(model) = Model::real() else { return };
    let manifest = &model.pieces.manifest;
    for entry in &manifest.pieces {
        let planned = piece_len(model.file.header(), &manifest.source_sha256, entry.slice);
        assert_eq!(planned.unwrap(), entry.bytes, "{}", entry.file);
    }
    assert_eq!(manifest.pieces.len(), 33);
}

#[test]
fn every_piece_of_made_models_is_as_long_as_was_planned() {
    let folder = tempfile::tempdir().unwrap();
    let base = TinySpec::default();
    let specs = [
        base.clone(),
        TinySpec {
            tied: true,
            rope_freqs: true,
            layers: 1,
            ..base.clone()
        },
        TinySpec {
            tokenizer: TinyTokenizer::Bpe,
            embd: 64,
            ffn: 128,
            ty: TensorType::Q4_1,
            ..base.clone()
        },
        TinySpec {
            embd: 96,
            ffn: 33,
            heads: 3,
            head_dim: 10,
            ty: TensorType::Q8_0,
            ..base
        },
    ];
    for (number, spec) in specs.iter().enumerate() {
        let path = folder.path().join(format!("{number}.gguf"));
        tiny_llama(spec, &path).unwrap();
        let source = MappedGguf::open(&path).unwrap();
        let out = folder.path().join(format!("pieces-{number}"));
        let all = Slice::all(spec.layers);
        let manifest = cut(&source, DIGEST, &out, &all, &mut |_| {}).unwrap();
        let mut sum = 0;
        for entry in &manifest.pieces {
            let real = std::fs::metadata(out.join(&entry.file)).unwrap().len();
            let planned = piece_len(source.header(), DIGEST, entry.slice).unwrap();
            assert_eq!(planned, real, "{} of {spec:?}", entry.file);
            sum += real;
        }
        // One host holds every piece once.
        let demand = Demand::of("tiny", source.header(), DIGEST, None, 1).unwrap();
        let host = Capacity::of("h", 1 << 40, None, 1);
        let placed = place(&demand, &[host], "h").unwrap();
        assert_eq!(placed.stages[0].need.pieces, sum);
    }
}

#[test]
fn no_worker_takes_more_memory_than_was_planned() {
    let Some(model) = Model::real() else { return };
    let cluster = Cluster::start(&model, &Settings::of(2));
    let prompt = "Tell me about the sea. ".repeat(40);
    let body = http::chat(&prompt, 32).to_string();
    let (status, answer) = http::ask(cluster.api, "POST", "/v1/chat/completions", &body).unwrap();
    assert_eq!(status, 200, "{answer}");
    // Room for this one answer is all that is in use.
    let positions = answer["usage"]["total_tokens"].as_u64().unwrap() as u32;
    let sha256 = &model.pieces.manifest.source_sha256;
    let demand = Demand::of("smollm2", model.file.header(), sha256, Some(positions), 1).unwrap();
    let hosts = [0, 1].map(|i| Capacity::of(format!("h{i}"), 1 << 40, None, 2));
    let placed = place(&demand, &hosts, "h0").unwrap();
    for ((worker, plan), stage) in cluster
        .workers
        .iter()
        .zip(&cluster.plans)
        .zip(&placed.stages)
    {
        assert_eq!(stage.plan, *plan);
        assert_eq!(stage.need.pieces, model.pieces.bytes(&plan.slices));
        let planned = stage.need.kv + stage.need.working;
        let anonymous = worker.anonymous();
        println!(
            "stage {}: {anonymous} bytes of at most {planned} planned",
            plan.stage
        );
        assert!(anonymous <= planned, "{anonymous} of at most {planned}");
        // Not so much more that the plan would be worthless.
        assert!(
            planned < anonymous + (64 << 20),
            "{planned} for {anonymous}"
        );
    }
}
