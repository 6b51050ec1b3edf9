//! Hostile bodies, without sockets.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::fake;
use crate::api::request::{Context, MAX_CHOICES};
use crate::head::handle::Limits;

fn check(body: &[u8]) {
    let context = Context {
        language: &fake::Bytes,
        limits: Limits {
            context: 64,
            vocab: fake::VOCAB,
        },
        model: "tiny",
        seed: 0,
    };
    for plan in [context.chat(body), context.completion(body)] {
        let Ok(plan) = plan else { continue };
        assert!((1..=MAX_CHOICES).contains(&plan.sequences.len()));
        for sequence in &plan.sequences {
            assert!(!sequence.prompt.is_empty() && sequence.max_tokens > 0);
            assert!(sequence.prompt.len() + sequence.max_tokens as usize <= 64);
            assert!(sequence.prompt.iter().all(|id| *id < fake::VOCAB));
            let sampling = &sequence.sampling;
            assert!(sampling.temperature >= 0.0 && sampling.top_p > 0.0);
            assert!(sampling.repetition_penalty > 0.0);
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3i64..300).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z\u{e9}\u{0}]{0,6}".prop_map(Value::from),
        Just(json!({"role": "user", "content": "x"})),
        Just(json!({"type": "text", "text": "x"})),
    ];
    leaf.prop_recursive(3, 20, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map("[a-z0-9_]{1,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn field() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "messages",
        "prompt",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "n",
        "stop",
        "seed",
        "logit_bias",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "stream",
        "stream_options",
        "ignore_eos",
        "logprobs",
        "top_logprobs",
        "tools",
        "response_format",
        "best_of",
        "echo",
        "suffix",
    ])
}

proptest! {
    #[test]
    fn any_bytes_are_answered_without_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&body);
    }

    #[test]
    fn any_values_in_known_fields_give_a_sound_plan_or_an_error(
        fields in prop::collection::vec((field(), value()), 0..4),
    ) {
        let mut body = json!({
            "model": "tiny", "prompt": "x", "messages": [{"role": "user", "content": "x"}]
        });
        for (name, value) in fields {
            body[name] = value;
        }
        check(body.to_string().as_bytes());
    }
}
