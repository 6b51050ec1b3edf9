//! `/v1/completions`.

use serde_json::{Value, json};

use super::*;

const PATH: &str = "/v1/completions";

fn prompt(prompt: Value, more: Value) -> Value {
    let mut body = json!({"model": "tiny", "prompt": prompt});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_whole_completion_has_the_references_shape() {
    let mut server = Server::start(None).await;
    let asked = prompt(json!("Say"), json!({}));
    let reply = server.answered(PATH, asked, " this").await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        known(reply.json(), "cmpl-"),
        json!({
            "id": null,
            "object": "text_completion",
            "created": null,
            "model": "tiny",
            "choices": [
                {"text": " this", "index": 0, "logprobs": null, "finish_reason": "stop"}
            ],
            // The begin token and three bytes.
            "usage": {
                "prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 0}
            }
        })
    );
}

#[tokio::test]
async fn every_form_of_prompt_becomes_its_sequences() {
    let mut server = Server::start(None).await;
    for (given, wanted) in [
        (json!("ab"), vec![vec![fake::BEGIN, 97, 98]]),
        (
            json!(["a", "b"]),
            vec![vec![fake::BEGIN, 97], vec![fake::BEGIN, 98]],
        ),
        (json!([5, 6]), vec![vec![5, 6]]),
        (json!([[5], [6, 7]]), vec![vec![5], vec![6, 7]]),
    ] {
        let reply = server.ask(PATH, prompt(given, json!({})));
        for (index, wanted) in wanted.iter().enumerate() {
            let pending = server.next().await;
            assert_eq!(&pending.submission.prompt, wanted);
            say(&pending, &index.to_string());
            end(&pending, FinishReason::Eog(fake::END), 2);
        }
        let body = reply.await.unwrap().json();
        let texts: Vec<_> = body["choices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| {
                (
                    c["index"].as_u64().unwrap(),
                    c["text"].as_str().unwrap().to_owned(),
                )
            })
            .collect();
        let wanted: Vec<_> = (0..wanted.len() as u64)
            .map(|i| (i, i.to_string()))
            .collect();
        assert_eq!(texts, wanted);
    }
}

#[tokio::test]
async fn log_probabilities_are_four_lists_of_one_length() {
    let mut server = Server::start(None).await;
    let reply = server.ask(PATH, prompt(json!("a"), json!({"logprobs": 1})));
    let pending = server.next().await;
    assert_eq!(pending.submission.sampling.top_logprobs, Some(1));
    for (id, top) in [(b'x', b'y'), (0xc3, b'y'), (0xa9, 0xa9), (b'!', b'!')] {
        token(
            &pending,
            Sampled {
                id: u32::from(id),
                logprob: -1.0,
                top: vec![(u32::from(top), -0.5)],
            },
        );
    }
    end(&pending, FinishReason::Length, 4);
    assert_eq!(
        reply.await.unwrap().json()["choices"][0],
        json!({
            "text": "xé!", "index": 0,
            "logprobs": {
                "tokens": ["x", "bytes:\\xc3", "bytes:\\xa9", "!"],
                "token_logprobs": [-1.0, -1.0, -1.0, -1.0],
                "top_logprobs": [
                    {"x": -1.0, "y": -0.5}, {"bytes:\\xc3": -1.0, "y": -0.5},
                    {"bytes:\\xa9": -0.5}, {"!": -0.5}
                ],
                "text_offset": [0, 1, 1, 2]
            },
            "finish_reason": "length"
        })
    );
}

#[tokio::test]
async fn a_streamed_completion_ends_with_its_reason_usage_and_done() {
    let mut server = Server::start(None).await;
    let more = json!({"stream": true, "stream_options": {"include_usage": true}});
    let reply = server.answered(PATH, prompt(json!([1]), more), "ab").await;
    let chunks: Vec<_> = reply
        .chunks()
        .into_iter()
        .map(|c| known(c, "cmpl-"))
        .collect();
    let chunk = |choices: Value, usage: Value| {
        json!({
            "id": null, "object": "text_completion", "created": null, "model": "tiny",
            "choices": choices, "usage": usage
        })
    };
    let choice = |text: &str, finish: Value| json!([{"text": text, "index": 0, "logprobs": null, "finish_reason": finish}]);
    let usage = json!({
        "prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 0}
    });
    assert_eq!(
        chunks,
        [
            chunk(choice("a", Value::Null), Value::Null),
            chunk(choice("b", Value::Null), Value::Null),
            chunk(choice("", json!("stop")), Value::Null),
            chunk(json!([]), usage),
        ]
    );
}

#[tokio::test]
async fn fields_out_of_range_or_unsupported_are_named() {
    let server = Server::start(None).await;
    for (given, more, param, says) in [
        (json!(null), json!({}), "prompt", "missing"),
        (json!([]), json!({}), "prompt", "no token"),
        (json!([[]]), json!({}), "prompt", "no token"),
        (
            json!([258]),
            json!({}),
            "prompt",
            "below the vocabulary's 258",
        ),
        (json!([-1]), json!({}), "prompt", "list of token ids"),
        (json!({"a": 1}), json!({}), "prompt", "a string"),
        (json!(vec!["a"; 129]), json!({}), "n", "129"),
        (json!(vec!["a"; 65]), json!({"n": 2}), "n", "130"),
        (json!("a"), json!({"echo": true}), "echo", "not supported"),
        (
            json!("a"),
            json!({"suffix": "x"}),
            "suffix",
            "not supported",
        ),
        (
            json!("a"),
            json!({"best_of": 2}),
            "best_of",
            "not supported",
        ),
        (
            json!("a"),
            json!({"logprobs": -1}),
            "logprobs",
            "from 0 to 258",
        ),
        (json!("a"), json!({"logprobs": true}), "logprobs", "true"),
        (
            json!("x".repeat(64)),
            json!({}),
            "prompt",
            "65 in the prompt",
        ),
    ] {
        let reply = server.ask(PATH, prompt(given, more)).await.unwrap();
        let (message, given, _) = reply.error(400);
        assert_eq!(given, param, "{message}");
        assert!(message.contains(says), "{message}");
    }
}
