//! `/v1/chat/completions`.

use serde_json::{Value, json};

use super::*;

const PATH: &str = "/v1/chat/completions";

fn hello(more: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_whole_answer_has_the_references_shape() {
    let mut server = Server::start(None).await;
    let reply = server.answered(PATH, hello(json!({})), "Hello!").await;
    assert_eq!(reply.status, 200);
    let timings = reply.json()["timings"].clone();
    assert_eq!(
        known(reply.json(), "chatcmpl-"),
        json!({
            "id": null,
            "object": "chat.completion",
            "created": null,
            "model": "tiny",
            "choices": [{
                "index": 0,
                "message": {"role": "assistant", "content": "Hello!", "refusal": null},
                "logprobs": null,
                "finish_reason": "stop"
            }],
            // "user:Hi\nassistant:" is 18 bytes.
            "usage": {
                "prompt_tokens": 18, "completion_tokens": 7, "total_tokens": 25,
                "prompt_tokens_details": {"cached_tokens": 0}
            }
        })
    );
    assert_eq!(timings["prompt_n"], 18);
    assert_eq!(timings["predicted_n"], 7);
    assert_eq!(timings["queue_ms"], 5.0);
    assert_eq!(timings["prompt_ms"], 20.0);
    assert_eq!(timings["predicted_ms"], 40.0);
    // Six tokens after the first in 40 ms.
    assert_eq!(timings["tokens_per_second"], 150.0);
}

#[tokio::test]
async fn what_is_asked_reaches_the_head_and_the_rest_is_the_references_default() {
    let mut server = Server::start(None).await;
    let plain = server.ask(PATH, hello(json!({})));
    let pending = server.next().await;
    assert_eq!(pending.submission.prompt.len(), 18);
    assert_eq!(pending.submission.max_tokens, 64 - 18);
    assert_eq!(pending.submission.eog, [fake::END]);
    let sampling = &pending.submission.sampling;
    assert_eq!((sampling.temperature, sampling.top_p), (1.0, 1.0));
    assert_eq!(sampling.top_logprobs, None);
    drop(pending);
    assert_eq!(plain.await.unwrap().status, 502);

    let _asked = server.ask(
        PATH,
        hello(json!({
            "max_completion_tokens": 9, "temperature": 0, "top_p": 0.5, "top_k": 40, "min_p": 0.25,
            "seed": 7, "presence_penalty": -2, "frequency_penalty": 1.5, "repetition_penalty": 1.25,
            "logit_bias": {"65": -100, "66": 2.5}, "ignore_eos": true, "logprobs": true,
            "user": "me", "store": false, "metadata": {}, "something_new": [1]
        })),
    );
    let pending = server.next().await;
    assert_eq!(pending.submission.max_tokens, 9);
    assert_eq!(pending.submission.eog, [0u32; 0]);
    let sampling = &pending.submission.sampling;
    assert_eq!(sampling.temperature, 0.0);
    assert_eq!(sampling.top_p, 0.5);
    assert_eq!(sampling.top_k, 40);
    assert_eq!(sampling.min_p, 0.25);
    assert_eq!(sampling.seed, 7);
    assert_eq!(sampling.presence_penalty, -2.0);
    assert_eq!(sampling.frequency_penalty, 1.5);
    assert_eq!(sampling.repetition_penalty, 1.25);
    assert_eq!(sampling.logit_bias, [(65, -100.0), (66, 2.5)]);
    assert_eq!(sampling.banned, [fake::END]);
    assert_eq!(sampling.top_logprobs, Some(0));
}

#[tokio::test]
async fn parts_of_text_are_joined_and_developers_speak_as_the_system() {
    let mut server = Server::start(None).await;
    let _asked = server.ask(
        PATH,
        json!({"model": "tiny", "messages": [
            {"role": "developer", "content": "D"},
            {"role": "user", "name": "n", "content": [
                {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
        ]}),
    );
    let prompt = server.next().await.submission.prompt;
    let bytes: Vec<u8> = prompt.iter().map(|&id| id as u8).collect();
    assert_eq!(bytes, b"system:D\nuser:ab\nassistant:");
}

#[tokio::test]
async fn a_stream_has_role_deltas_finish_usage_and_done() {
    let mut server = Server::start(None).await;
    let asked = hello(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let reply = server.answered(PATH, asked, "Hé").await;
    assert!(reply.headers.contains("content-type: text/event-stream"));
    let timings = reply.chunks()[3]["timings"].clone();
    assert_eq!(timings["predicted_n"], 4);
    let chunks: Vec<_> = reply
        .chunks()
        .into_iter()
        .map(|c| known(c, "chatcmpl-"))
        .collect();
    let ids: std::collections::HashSet<_> =
        reply.chunks().iter().map(|c| c["id"].to_string()).collect();
    assert_eq!(ids.len(), 1);
    let chunk = |choices: Value, usage: Value| {
        json!({
            "id": null, "object": "chat.completion.chunk", "created": null, "model": "tiny",
            "choices": choices, "usage": usage
        })
    };
    let choice = |delta: Value, finish: Value| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
    let usage = json!({
        "prompt_tokens": 18, "completion_tokens": 4, "total_tokens": 22,
        "prompt_tokens_details": {"cached_tokens": 0}
    });
    assert_eq!(
        chunks,
        [
            chunk(
                choice(json!({"role": "assistant", "content": ""}), Value::Null),
                Value::Null
            ),
            chunk(choice(json!({"content": "H"}), Value::Null), Value::Null),
            // Two tokens, one character: nothing goes out before it is whole.
            chunk(choice(json!({"content": "é"}), Value::Null), Value::Null),
            chunk(choice(json!({}), json!("stop")), Value::Null),
            chunk(json!([]), usage),
        ]
    );
}

#[tokio::test]
async fn without_include_usage_no_chunk_speaks_of_usage() {
    let mut server = Server::start(None).await;
    let reply = server
        .answered(PATH, hello(json!({"stream": true})), "a")
        .await;
    for chunk in reply.chunks() {
        assert!(chunk.get("usage").is_none());
        assert_eq!(chunk["choices"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn each_token_goes_out_before_the_next_is_made() {
    let mut server = Server::start(None).await;
    let body = hello(json!({"stream": true})).to_string();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = post_text(server.address, PATH, &body);
    stream.write_all(request.as_bytes()).await.unwrap();
    let pending = server.next().await;
    let mut seen = String::new();
    for letter in ["x", "y", "z"] {
        say(&pending, letter);
        let wanted = format!("\"content\":\"{letter}\"");
        while !seen.contains(&wanted) {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).await.unwrap();
            assert!(count > 0, "the stream ended: {seen}");
            seen.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
    }
}

#[tokio::test]
async fn a_stop_string_over_token_borders_ends_the_answer_and_cancels_the_sequence() {
    let mut server = Server::start(None).await;
    for stream in [false, true] {
        let asked = hello(json!({"stop": ["END", "never"], "stream": stream, "logprobs": true}));
        let reply = server.ask(PATH, asked);
        let pending = server.next().await;
        for byte in "a EN END b".bytes() {
            let token = sampled(u32::from(byte));
            super::token(
                &pending,
                Sampled {
                    logprob: -1.0,
                    ..token
                },
            );
        }
        // Only the dropped receiver ends this: the head itself goes on.
        pending.events.closed().await;
        let reply = reply.await.unwrap();
        let (text, tokens, finish) = if stream {
            let mut text = String::new();
            let mut tokens = 0;
            let mut finish = Value::Null;
            for chunk in reply.chunks() {
                let choice = chunk["choices"][0].clone();
                text += choice["delta"]["content"].as_str().unwrap_or("");
                let content = &choice["logprobs"]["content"];
                tokens += content.as_array().map_or(0, Vec::len);
                finish = choice["finish_reason"].clone();
            }
            (text, tokens, finish)
        } else {
            let choice = reply.json()["choices"][0].clone();
            let content = &choice["logprobs"]["content"];
            (
                choice["message"]["content"].as_str().unwrap().to_owned(),
                content.as_array().unwrap().len(),
                choice["finish_reason"].clone(),
            )
        };
        assert_eq!((text.as_str(), tokens), ("a EN ", 5));
        assert_eq!(finish, "stop");
        if !stream {
            // "a EN END": what was read until the stop string was complete.
            assert_eq!(reply.json()["usage"]["completion_tokens"], 8);
        }
    }
}

#[tokio::test]
async fn text_held_for_a_stop_string_comes_when_the_answer_ends_without_it() {
    let mut server = Server::start(None).await;
    let reply = server
        .answered(PATH, hello(json!({"stop": "END"})), "THE EN")
        .await;
    assert_eq!(reply.json()["choices"][0]["message"]["content"], "THE EN");
}

#[tokio::test]
async fn reaching_max_tokens_is_said_and_half_a_character_is_replaced() {
    let mut server = Server::start(None).await;
    let reply = server.ask(PATH, hello(json!({"max_tokens": 2})));
    let pending = server.next().await;
    token(&pending, sampled(u32::from(b'a')));
    token(&pending, sampled(0xc3));
    end(&pending, FinishReason::Length, 2);
    let choice = reply.await.unwrap().json()["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["message"]["content"], "a\u{fffd}");
}

#[tokio::test]
async fn log_probabilities_have_the_references_shape() {
    let mut server = Server::start(None).await;
    let reply = server.ask(PATH, hello(json!({"logprobs": true, "top_logprobs": 2})));
    let pending = server.next().await;
    assert_eq!(pending.submission.sampling.top_logprobs, Some(2));
    token(
        &pending,
        Sampled {
            id: u32::from(b'a'),
            logprob: -0.5,
            top: vec![(u32::from(b'a'), -0.5), (0xc3, f32::NEG_INFINITY)],
        },
    );
    end(&pending, FinishReason::Length, 1);
    assert_eq!(
        reply.await.unwrap().json()["choices"][0]["logprobs"],
        json!({
            "content": [{
                "token": "a", "logprob": -0.5, "bytes": [97],
                "top_logprobs": [
                    {"token": "a", "logprob": -0.5, "bytes": [97]},
                    {"token": "\\xc3", "logprob": -9999.0, "bytes": [195]}
                ]
            }],
            "refusal": null
        })
    );
}

#[tokio::test]
async fn several_choices_have_seeds_of_their_own_and_interleave() {
    let mut server = Server::start(None).await;
    let asked = hello(json!({"n": 2, "seed": 41, "stream": true}));
    let reply = server.ask(PATH, asked);
    let (first, second) = (server.next().await, server.next().await);
    assert_eq!(first.submission.sampling.seed, 41);
    assert_eq!(second.submission.sampling.seed, 42);
    say(&first, "ab");
    say(&second, "xy");
    end(&second, FinishReason::Length, 2);
    end(&first, FinishReason::Eog(fake::END), 3);
    let reply = reply.await.unwrap();
    let mut texts = [String::new(), String::new()];
    let mut finish = [Value::Null, Value::Null];
    let mut order = Vec::new();
    for chunk in reply.chunks() {
        let choice = &chunk["choices"][0];
        let index = choice["index"].as_u64().unwrap() as usize;
        if let Some(text) = choice["delta"]["content"]
            .as_str()
            .filter(|t| !t.is_empty())
        {
            texts[index] += text;
            order.push(index);
        }
        if !choice["finish_reason"].is_null() {
            finish[index] = choice["finish_reason"].clone();
        }
    }
    assert_eq!(texts, ["ab", "xy"]);
    assert_eq!(finish, ["stop", "length"]);
    assert_ne!(
        order,
        [0, 0, 1, 1],
        "one answer must not wait for the other"
    );
}

#[tokio::test]
async fn usage_of_several_choices_counts_the_prompt_once() {
    let mut server = Server::start(None).await;
    let reply = server.answered(PATH, hello(json!({"n": 3})), "abc").await;
    let body = reply.json();
    assert_eq!(body["choices"].as_array().unwrap().len(), 3);
    assert_eq!(body["usage"]["prompt_tokens"], 18);
    assert_eq!(body["usage"]["completion_tokens"], 12);
    assert_eq!(body["usage"]["total_tokens"], 30);
}

#[tokio::test]
async fn requests_without_a_seed_differ_and_with_one_repeat() {
    let mut server = Server::start(None).await;
    let mut seeds = Vec::new();
    for more in [
        json!({}),
        json!({}),
        json!({"seed": -1}),
        json!({"seed": -1}),
    ] {
        let _asked = server.ask(PATH, hello(more));
        seeds.push(server.next().await.submission.sampling.seed);
    }
    assert_ne!(seeds[0], seeds[1]);
    assert_eq!(seeds[2], seeds[3]);
}

#[tokio::test]
async fn fields_out_of_range_or_unsupported_are_named() {
    let server = Server::start(None).await;
    for (more, param, says) in [
        (json!({"temperature": 2.5}), "temperature", "2.5"),
        (json!({"temperature": -0.1}), "temperature", "from 0 to 2"),
        (json!({"temperature": "hot"}), "temperature", "hot"),
        (json!({"top_p": 0}), "top_p", "over 0 to 1"),
        (json!({"top_p": 1.01}), "top_p", "1.01"),
        (json!({"min_p": 2}), "min_p", "from 0 to 1"),
        (json!({"top_k": -2}), "top_k", "-2"),
        (json!({"n": 0}), "n", "from 1 to 128"),
        (json!({"n": 129}), "n", "129"),
        (json!({"max_tokens": 0}), "max_tokens", "from 1"),
        (json!({"max_tokens": -1}), "max_tokens", "-1"),
        (json!({"max_tokens": 1.5}), "max_tokens", "1.5"),
        (
            json!({"max_tokens": 1, "max_completion_tokens": 2}),
            "max_tokens",
            "differ",
        ),
        (json!({"presence_penalty": 2.1}), "presence_penalty", "2.1"),
        (json!({"frequency_penalty": -3}), "frequency_penalty", "-3"),
        (
            json!({"repetition_penalty": 0}),
            "repetition_penalty",
            "over 0",
        ),
        (json!({"logit_bias": {"258": 1}}), "logit_bias", "below 258"),
        (json!({"logit_bias": {"x": 1}}), "logit_bias", "`x`"),
        (json!({"logit_bias": {"5": 101}}), "logit_bias.5", "101"),
        (json!({"stop": vec!["a"; 17]}), "stop", "at most 16"),
        (json!({"stop": 5}), "stop", "a string or a list"),
        (json!({"stop": "x".repeat(1025)}), "stop", "at most 1024"),
        (
            json!({"top_logprobs": 2}),
            "top_logprobs",
            "needs `logprobs`",
        ),
        (
            json!({"logprobs": true, "top_logprobs": 259}),
            "top_logprobs",
            "from 0 to 258",
        ),
        (json!({"logprobs": 3}), "logprobs", "3"),
        (
            json!({"stream_options": {"include_usage": true}}),
            "stream_options",
            "needs `stream`",
        ),
        (
            json!({"tools": [{"type": "function"}]}),
            "tools",
            "not supported",
        ),
        (
            json!({"tool_choice": "required"}),
            "tool_choice",
            "not supported",
        ),
        (json!({"functions": [{}]}), "functions", "not supported"),
        (
            json!({"response_format": {"type": "json_object"}}),
            "response_format",
            "not supported",
        ),
        (json!({"audio": {"voice": "x"}}), "audio", "not supported"),
        (
            json!({"modalities": ["text", "audio"]}),
            "modalities",
            "not supported",
        ),
        (json!({"best_of": 2}), "best_of", "not supported"),
        (json!({"model": null}), "model", "`tiny`"),
        (json!({"model": 5}), "model", "5"),
        (json!({"messages": null}), "messages", "missing"),
        (json!({"messages": []}), "messages", "empty"),
        (json!({"messages": "x"}), "messages", "invalid type"),
        (json!({"messages": [{"content": "x"}]}), "messages", "role"),
        (
            json!({"messages": [{"role": "user", "content": 5}]}),
            "messages",
            "list of parts",
        ),
        (
            json!({"messages": [{"role": "user"}]}),
            "messages[0].content",
            "missing",
        ),
        (
            json!({"messages": [{"role": "tool", "content": "x"}]}),
            "messages[0].role",
            "`tool`",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "messages[0].content[0].type",
            "image_url",
        ),
        (
            json!({"messages": [{"role": "user", "content": "refuse me"}]}),
            "messages",
            "as it was told to",
        ),
    ] {
        let shown = more.to_string();
        let reply = server.ask(PATH, hello(more)).await.unwrap();
        let (message, given, _) = reply.error(400);
        assert_eq!(given, param, "{shown}: {message}");
        assert!(message.contains(says), "{shown}: {message}");
    }
}

#[tokio::test]
async fn fields_that_ask_for_nothing_are_no_reason_to_refuse() {
    let mut server = Server::start(None).await;
    let asked = hello(json!({
        "tools": [], "tool_choice": "auto", "response_format": {"type": "text"},
        "modalities": ["text"], "best_of": 1, "audio": null, "stop": null, "n": null
    }));
    assert_eq!(server.answered(PATH, asked, "a").await.status, 200);
}

#[tokio::test]
async fn what_does_not_fit_the_context_is_refused_with_the_figures() {
    let server = Server::start(None).await;
    let long = json!({"messages": [{"role": "user", "content": "x".repeat(100)}]});
    for (more, figures) in [
        (
            json!({"max_tokens": 47}),
            ["64 tokens", "18 in the prompt", "47 for the answer"],
        ),
        (long, ["64 tokens", "116 in the prompt", "1 for the answer"]),
    ] {
        let reply = server.ask(PATH, hello(more)).await.unwrap();
        let (message, param, code) = reply.error(400);
        assert_eq!(param, "messages");
        assert_eq!(code, "context_length_exceeded");
        for figure in figures {
            assert!(message.contains(figure), "{message}");
        }
    }
}
