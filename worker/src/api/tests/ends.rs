//! Answers that do not come to their end: clients that leave, stages that die, servers that stop.

use serde_json::json;

use super::*;

const PATH: &str = "/v1/completions";

#[tokio::test]
async fn a_client_that_leaves_cancels_its_sequences_in_every_state() {
    let mut server = Server::start(None).await;
    for stream in [false, true] {
        for tokens in ["", "some"] {
            let body = json!({"model": "tiny", "prompt": "x", "n": 2, "stream": stream});
            let request = post_text(server.address, PATH, &body.to_string());
            let mut client = TcpStream::connect(server.address).await.unwrap();
            client.write_all(request.as_bytes()).await.unwrap();
            let pending = [server.next().await, server.next().await];
            pending.iter().for_each(|p| say(p, tokens));
            if stream && !tokens.is_empty() {
                let mut seen = Vec::new();
                while !String::from_utf8_lossy(&seen).contains("data: ") {
                    assert!(client.read_buf(&mut seen).await.unwrap() > 0);
                }
            }
            drop(client);
            for pending in &pending {
                pending.events.closed().await;
            }
        }
    }
    let metrics = server.get("/metrics").await.text();
    let wanted = "request_success_total{finished_reason=\"abort\",model_name=\"tiny\"} 8\n";
    assert!(metrics.contains(wanted), "{metrics}");
}

#[tokio::test]
async fn a_failure_in_a_whole_answer_is_a_server_error_and_cancels_the_other_choices() {
    let mut server = Server::start(None).await;
    for (state, status) in [("serving", 502), ("degraded", 503)] {
        server
            .head
            .status
            .send_modify(|s| s.state = "serving".to_owned());
        let reply = server.ask(PATH, json!({"model": "tiny", "prompt": "x", "n": 2}));
        let pending = [server.next().await, server.next().await];
        server
            .head
            .status
            .send_modify(|s| s.state = state.to_owned());
        say(&pending[0], "abc");
        let message = "stage 1 on b was lost".to_owned();
        let _ = pending[1].events.send(TokenEvent::Failed { message });
        let (message, ..) = reply.await.unwrap().error(status);
        assert!(message.contains("stage 1 on b was lost"));
        pending[0].events.closed().await;
    }
}

#[tokio::test]
async fn a_failure_in_a_stream_is_its_last_line() {
    let mut server = Server::start(None).await;
    for vanish in [false, true] {
        let asked = json!({"model": "tiny", "prompt": "x", "stream": true});
        let reply = server.ask(PATH, asked);
        let pending = server.next().await;
        say(&pending, "ab");
        if !vanish {
            let message = "stage 1 on b was lost".to_owned();
            let _ = pending.events.send(TokenEvent::Failed { message });
        }
        drop(pending);
        let reply = reply.await.unwrap();
        assert_eq!(reply.status, 200);
        let data = reply.data();
        assert_eq!(data.len(), 3, "{data:?}");
        let last: serde_json::Value = serde_json::from_str(&data[2]).unwrap();
        let error = last["error"].as_object().unwrap();
        let keys: Vec<_> = error.keys().map(String::as_str).collect();
        assert_eq!(keys, ["message", "type", "param", "code"]);
        assert_eq!(error["type"], "server_error");
        let wanted = if vanish {
            "before it was complete"
        } else {
            "stage 1 on b"
        };
        assert!(error["message"].as_str().unwrap().contains(wanted));
    }
}

#[tokio::test]
async fn a_stopping_server_lets_open_requests_end_and_takes_no_new_ones() {
    let mut server = Server::start(None).await;
    let reply = server.ask(
        PATH,
        json!({"model": "tiny", "prompt": "x", "stream": true}),
    );
    let pending = server.next().await;
    server.stop.take().unwrap().send(()).unwrap();
    // The listener closes before connections are waited for.
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    say(&pending, "ab");
    end(&pending, FinishReason::Eog(fake::END), 3);
    assert_eq!(reply.await.unwrap().chunks().len(), 3);
    server.task.await.unwrap();
}

#[tokio::test]
async fn requests_that_outlast_the_grace_time_are_cut_with_an_error() {
    let mut server = Server::start_with(None, Duration::ZERO).await;
    let reply = server.ask(
        PATH,
        json!({"model": "tiny", "prompt": "x", "stream": true}),
    );
    let whole = server.ask(PATH, json!({"model": "tiny", "prompt": "x"}));
    let pending = [server.next().await, server.next().await];
    server.stop.take().unwrap().send(()).unwrap();
    for pending in &pending {
        pending.events.closed().await;
    }
    let data = reply.await.unwrap().data();
    assert!(
        data.last().unwrap().contains("the server is stopping"),
        "{data:?}"
    );
    whole.await.unwrap().error(503);
    server.task.await.unwrap();
}
