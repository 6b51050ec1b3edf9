//! The same tokens, and the same bits of their probabilities, however the model is cut and
//! whoever else is being answered.
//!
//! Everyday: six prompts of 32 tokens. `WINDLASS_ALL_PROMPTS=1`: twenty of 64, which takes minutes.

use super::harness::{Cluster, Model, Settings};
use super::http::exact;

const FEW: [&str; 5] = [
    "Why is the sky blue?",
    "fn main() {\n    let mut sum = 0u64;\n    for i in 0..10 {\n        sum += i;\n    }\n}\nWhat does this print?",
    "Расскажи короткую историю. 日本の首都はどこですか。 ما هي عاصمة مصر؟",
    "👩🏽‍🚀🛰️ → 🌍? 🤷🏻‍♂️🏳️‍🌈 e\u{301}",
    "",
];

const MORE: [&str; 14] = [
    "Write a haiku about the autumn wind.",
    "List five uses of a paper clip.",
    "What is 17 times 23? Show the steps.",
    "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\nMake this fast.",
    "SELECT name, count(*) FROM ships GROUP BY name HAVING count(*) > 3;",
    "Traduis en français : the harbour is full of ships.",
    "Erkläre kurz, wie ein Flaschenzug funktioniert.",
    "请用一句话介绍长城。",
    "한국의 수도는 어디인가요?",
    "हिमालय के बारे में बताइए।",
    "🍎🍊🍋 Which of these is a citrus fruit?",
    "   leading spaces,\ttabs\r\nand line ends   ",
    "A very long word: pneumonoultramicroscopicsilicovolcanoconiosis. Explain it.",
    "Continue: 1, 1, 2, 3, 5, 8,",
];

/// A prompt of about 1,500 tokens that repeats nothing exactly: many batches of prefill.
fn long() -> String {
    let mut text = String::from("Summarise this log of a voyage.\n");
    for day in 1..=55 {
        text += &format!(
            "Day {day}: wind from {} at {} knots, {} miles made good, all hands well.\n",
            ["the north", "the east", "the south", "the west"][day % 4],
            (day * 7) % 31,
            (day * 37) % 211
        );
    }
    text
}

fn all_of_them() -> (Vec<String>, u32) {
    let mut prompts: Vec<String> = FEW.iter().map(|p| (*p).to_owned()).collect();
    prompts.push(long());
    if std::env::var_os("WINDLASS_ALL_PROMPTS").is_some_and(|v| v == "1") {
        prompts.extend(MORE.iter().map(|p| (*p).to_owned()));
        (prompts, 64)
    } else {
        (prompts, 32)
    }
}

#[test]
fn greedy_tokens_are_the_same_over_one_two_and_three_workers_and_eight_at_once() {
    let Some(model) = Model::real() else { return };
    let (prompts, tokens) = all_of_them();
    let mut first = Vec::new();
    for workers in [1, 2, 3] {
        let cluster = Cluster::start(&model, &Settings::of(workers));
        let solo: Vec<_> = prompts
            .iter()
            .map(|p| exact(cluster.api, p, tokens))
            .collect();
        if first.is_empty() {
            first = solo;
            let (long, _) = first[FEW.len()];
            assert!((1450..1600).contains(&long), "the long prompt has {long}");
        } else {
            for (prompt, (one, many)) in prompts.iter().zip(first.iter().zip(&solo)) {
                assert_eq!(one, many, "{workers} workers, {prompt:?}");
            }
        }
        if workers == 2 {
            // Eight at once, the long prompt's prefill among the others' decoding.
            let api = cluster.api;
            for round in prompts.chunks(8) {
                std::thread::scope(|scope| {
                    let eight = round.iter().cycle().take(8);
                    let asked: Vec<_> = eight
                        .map(|prompt| (prompt, scope.spawn(move || exact(api, prompt, tokens))))
                        .collect();
                    for (prompt, answer) in asked {
                        let at = prompts.iter().position(|p| p == prompt).unwrap();
                        assert_eq!(
                            answer.join().unwrap(),
                            first[at],
                            "eight at once, {prompt:?}"
                        );
                    }
                });
            }
        }
        cluster.at_rest();
    }
}
