//! Many clients at once, many one after the other, and those that leave.

use super::harness::{Cluster, Model, Settings};
use super::http::{Chat, text};

const TOKENS: u32 = 60;

#[test]
fn half_of_thirty_two_clients_leave_and_the_others_answers_are_their_own() {
    let model = Model::tiny();
    // Room for about half of them at a time, so that some wait.
    let settings = Settings {
        kv_blocks: 80,
        ..Settings::of(3)
    };
    let cluster = Cluster::start(&model, &settings);
    let prompts: Vec<_> = (0..32)
        .map(|i| format!("Client {i} asks: {}", i * i))
        .collect();
    let solo: Vec<_> = prompts
        .iter()
        .map(|p| text(cluster.api, p, TOKENS))
        .collect();
    let api = cluster.api;
    std::thread::scope(|scope| {
        for (i, (prompt, alone)) in prompts.iter().zip(&solo).enumerate() {
            scope.spawn(move || {
                let leaves = i % 2 == 1;
                // Those who leave had a long way to go.
                let mut chat = Chat::begin(api, prompt, if leaves { 600 } else { TOKENS });
                if leaves {
                    chat.hear(1 + i % 5);
                    chat.leave();
                } else {
                    assert_eq!(chat.end().as_ref(), Ok(alone), "client {i}");
                }
            });
        }
    });
    let status = cluster.at_rest();
    assert!(
        status.stages.iter().all(|s| s.kv_total == 80),
        "{status:#?}"
    );
}

#[test]
fn memory_is_flat_over_a_thousand_requests() {
    /// Growth allowed to each worker from the 200th request to the 1,000th.
    const BOUND: u64 = 8 << 20;
    let model = Model::tiny();
    let cluster = Cluster::start(&model, &Settings::of(2));
    let ask = |from: usize, to: usize| {
        for i in from..to {
            if i % 10 == 9 {
                let mut chat = Chat::begin(cluster.api, &format!("request {i}"), 50);
                chat.hear(1);
                chat.leave();
            } else {
                text(cluster.api, &format!("request {i}"), 4);
            }
        }
        cluster.at_rest();
        let anonymous = cluster.workers.iter().map(|w| w.anonymous());
        anonymous.collect::<Vec<_>>()
    };
    let early = ask(0, 200);
    let late = ask(200, 1000);
    for (stage, (early, late)) in early.iter().zip(&late).enumerate() {
        println!("stage {stage}: {early} bytes after 200 requests, {late} after 1,000");
        assert!(late.saturating_sub(*early) < BOUND);
    }
}
