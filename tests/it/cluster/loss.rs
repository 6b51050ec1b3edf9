//! A stage killed in mid answer: every open request ends with an error that names it, nothing
//! stays taken on the others, and the head says so to whoever comes next.

use windlass_wire::assignment::FromWorker;
use windlass_wire::telemetry::HeadEvent;

use super::harness::{Cluster, Model, Settings};
use super::http::{Chat, ask, chat};

/// Long enough that no answer ends by itself.
const ENDLESS: u32 = 3500;

fn settings(workers: u32) -> Settings {
    Settings {
        context: 4096,
        kv_blocks: 4 * 4096 / 32,
        ..Settings::of(workers)
    }
}

/// Answers under way, each a few tokens old.
fn busy(cluster: &Cluster) -> Vec<Chat> {
    let prompts = ["one", "another", "a third"];
    let mut chats: Vec<_> = prompts
        .iter()
        .map(|prompt| Chat::begin(cluster.api, prompt, ENDLESS))
        .collect();
    for chat in &mut chats {
        chat.hear(3);
    }
    chats
}

#[test]
fn a_killed_stage_ends_every_open_request_and_leaves_nothing_taken() {
    let model = Model::tiny();
    for (workers, victim) in [(3, 1), (3, 2), (4, 1), (4, 2), (4, 3)] {
        let mut cluster = Cluster::start(&model, &settings(workers));
        let mut chats = busy(&cluster);
        let killed = cluster.workers[victim].kill();
        for chat in &mut chats {
            let error = chat.end().unwrap_err();
            let who = format!("stage {victim} on host-{victim}");
            assert!(error.contains(&who), "no {who:?} in {error:?}");
        }
        println!(
            "{workers} workers, stage {victim} killed: all requests ended after {:?}",
            killed.elapsed()
        );
        let (ended_after_us, requests) = cluster.event("the loss", |event| match event {
            HeadEvent::StageLost {
                stage,
                ended_after_us,
                requests,
                ..
            } if stage as usize == victim => Some((ended_after_us, requests)),
            _ => None,
        });
        assert_eq!(requests, 3);
        println!("    of that {ended_after_us} us in the head");

        let status = cluster.until("freed", |s| {
            s.state == "degraded" && s.stages.iter().all(|x| x.kv_used == 0)
        });
        let dead: Vec<_> = status
            .stages
            .iter()
            .filter(|s| !s.alive)
            .map(|s| s.stage)
            .collect();
        assert_eq!(dead, [victim as u32]);
        assert!(status.reason.unwrap().contains(&format!("stage {victim}")));
        for neighbour in [victim - 1, (victim + 1) % workers as usize] {
            if neighbour == 0 {
                continue; // the head tells by its status
            }
            let (stage, kv_used) =
                cluster.workers[neighbour].report("that its neighbour is lost", |r| match r {
                    FromWorker::PeerLost { stage, kv_used, .. } => Some((*stage, *kv_used)),
                    _ => None,
                });
            assert_eq!((stage as usize, kv_used), (victim, 0));
        }
        let body = chat("more", 4).to_string();
        let (status, answer) = ask(cluster.api, "POST", "/v1/chat/completions", &body).unwrap();
        assert_eq!(status, 503, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("stage {victim}")), "{message}");
        let (status, health) = ask(cluster.api, "GET", "/health", "").unwrap();
        assert_eq!(status, 503, "{health}");
        for worker in &mut cluster.workers {
            assert_eq!(worker.is_alive(), worker.stage as usize != victim);
        }
    }
}

#[test]
fn a_killed_head_ends_its_clients_streams_and_the_other_workers() {
    let model = Model::tiny();
    for workers in [2, 4] {
        let mut cluster = Cluster::start(&model, &settings(workers));
        let mut chats = busy(&cluster);
        let killed = cluster.workers[0].kill();
        for chat in &mut chats {
            chat.end().unwrap_err();
        }
        println!(
            "{workers} workers, head killed: streams ended after {:?}",
            killed.elapsed()
        );
        for worker in cluster.workers.iter_mut().skip(1) {
            assert_eq!(worker.wait().code(), Some(1));
            let (kind, message) = worker.failure();
            assert_eq!(kind, "peer");
            assert!(message.contains("head"), "{message}");
        }
        println!("    and all workers after {:?}", killed.elapsed());
    }
}
