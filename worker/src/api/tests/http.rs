//! Paths, bodies, keys, the control socket: what is not about answers.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use windlass_wire::telemetry::{HeadEvent, HeadStatus, StageTelemetry};

use super::*;

#[tokio::test]
async fn models_are_listed_and_found_by_name() {
    let server = Server::start(None).await;
    let mut list = server.get("/v1/models").await.json();
    assert!(list["data"][0]["created"].take().is_u64());
    let card = json!({
        "id": "tiny", "object": "model", "created": null, "owned_by": "windlass",
        "max_model_len": 64, "vocab_size": fake::VOCAB
    });
    assert_eq!(list, json!({"object": "list", "data": [card]}));
    assert_eq!(server.get("/v1/models/tiny").await.json()["id"], "tiny");
    let (message, param, code) = server.get("/v1/models/org/other").await.error(404);
    assert!(
        message.contains("`org/other`") && message.contains("`tiny`"),
        "{message}"
    );
    assert_eq!((param, code), (json!("model"), json!("model_not_found")));
}

#[tokio::test]
async fn another_model_is_not_found() {
    let server = Server::start(None).await;
    let asked = json!({"model": "gpt", "messages": [{"role": "user", "content": "x"}]});
    let reply = server.ask("/v1/chat/completions", asked).await.unwrap();
    assert_eq!(reply.error(404).2, "model_not_found");
}

#[tokio::test]
async fn unknown_paths_and_wrong_methods_have_the_error_form() {
    let server = Server::start(None).await;
    let (message, _, code) = server.get("/v1/nothing").await.error(404);
    assert!(message.contains("GET /v1/nothing"), "{message}");
    assert_eq!(code, "unknown_url");
    server.get("/v1/chat/completions").await.error(405);
    assert_eq!(server.get("/control/status").await.status, 404);
}

#[tokio::test]
async fn bad_bodies_have_the_error_form() {
    let server = Server::start(None).await;
    let path = "/v1/chat/completions";
    let post = |body: &str| post(server.address, path.to_owned(), body.to_owned());
    let (message, _, _) = post("{\"model\": \"tiny\",,}").await.error(400);
    assert!(message.contains("line 1 column 18"), "{message}");
    assert!(post("[1]").await.error(400).0.contains("object"));
    assert!(post("").await.error(400).0.contains("EOF"));
    let deep = "[".repeat(100_000);
    assert!(post(&deep).await.error(400).0.contains("recursion"));

    let plain = post_text(server.address, path, "{}").replace("application/json", "text/plain");
    send(server.address, &plain).await.error(415);
    let large = 8 * 1024 * 1024 + 1;
    let claimed = post_text(server.address, path, "")
        .replace("Content-Length: 0", &format!("Content-Length: {large}"));
    send(server.address, &claimed).await.error(413);
    // Without a length, the bytes are counted as they come.
    let chunk = format!("{large:x}\r\n{}\r\n0\r\n\r\n", " ".repeat(large));
    let chunked = post_text(server.address, path, "")
        .replace("Content-Length: 0", "Transfer-Encoding: chunked");
    send(server.address, &(chunked + &chunk)).await.error(413);
}

#[tokio::test]
async fn a_key_is_asked_for_everywhere_but_health_and_never_told() {
    // `printf %s sesame | sha256sum`
    let hash = "d0c04f4b1951e4aeaaec8223ed2039e542f3aae805a6fa7f6d794e5afff5d272";
    let server = Server::start(Some(hash)).await;
    let with = |key: &str| {
        get(server.address, "/v1/models").replace(
            "\r\n\r\n",
            &format!("\r\nAuthorization: Bearer {key}\r\n\r\n"),
        )
    };
    let (_, _, code) = server.get("/v1/models").await.error(401);
    assert_eq!(code, "invalid_api_key");
    let (message, ..) = send(server.address, &with("sesamee")).await.error(401);
    assert!(!message.contains("sesame"), "{message}");
    server.get("/v1/nothing").await.error(401);
    server.get("/metrics").await.error(401);
    assert_eq!(send(server.address, &with("sesame")).await.status, 200);
    assert_eq!(server.get("/health").await.status, 200);
    let local = get(server.address, "/v1/models");
    assert_eq!(send_control(&server, &local).await.status, 200);
}

#[tokio::test]
async fn a_foreign_host_or_origin_is_refused_without_a_key_but_not_on_the_control_socket() {
    let server = Server::start(None).await;
    let good = get(server.address, "/v1/models");
    let rebound = good.replace(&server.address.to_string(), "evil.example");
    send(server.address, &rebound).await.error(403);
    let page = good.replace("\r\n\r\n", "\r\nOrigin: http://evil.example\r\n\r\n");
    send(server.address, &page).await.error(403);
    assert_eq!(send_control(&server, &rebound).await.status, 200);
}

#[tokio::test]
async fn others_cannot_be_served_without_a_key_nor_with_a_broken_one() {
    let head = fake::head(8);
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let state = fake::state(&head.handle, None, GRACE);
    let error = serve(listener, None, state, async {}).await.unwrap_err();
    assert!(matches!(error, ServeError::KeyNeeded(_)), "{error}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let state = fake::state(&head.handle, Some("sesame"), GRACE);
    let error = serve(listener, None, state, async {}).await.unwrap_err();
    assert!(matches!(error, ServeError::KeyHash), "{error}");
    assert!(!error.to_string().contains("sesame"));
}

#[tokio::test]
async fn health_tells_why_it_is_not_well() {
    let server = Server::start(None).await;
    let reply = server.get("/health").await;
    assert_eq!((reply.status, reply.json()), (200, json!({"status": "ok"})));
    server.head.status.send_modify(|status| {
        status.state = "degraded".to_owned();
        status.reason = Some("stage 1 on b is lost".to_owned());
    });
    let reply = server.get("/health").await;
    assert_eq!(reply.status, 503);
    let wanted = json!({"status": "degraded", "reason": "stage 1 on b is lost"});
    assert_eq!(reply.json(), wanted);
    let asked = json!({"model": "tiny", "prompt": "x"});
    let reply = server.ask("/v1/completions", asked.clone()).await.unwrap();
    assert!(reply.error(503).0.contains("stage 1 on b is lost"));
    server
        .head
        .status
        .send_modify(|s| s.state = "full".to_owned());
    let reply = server.ask("/v1/completions", asked).await.unwrap();
    assert_eq!(reply.error(503).2, "overloaded");
    assert!(reply.headers.contains("retry-after: "), "{}", reply.headers);
}

#[tokio::test]
async fn the_control_socket_is_private_replaces_a_dead_one_and_goes_at_the_end() {
    let mut server = Server::start(None).await;
    let status = send_control(&server, &get(server.address, "/control/status")).await;
    let status: HeadStatus = serde_json::from_slice(&status.body).unwrap();
    assert_eq!(status.model, "tiny");
    let path = server.control.clone();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let left = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "the folder it was made in is gone");

    // A second head cannot take the place of one that lives.
    let second = |path: PathBuf| async {
        let head = fake::head(8);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        serve(
            listener,
            Some(path),
            fake::state(&head.handle, None, GRACE),
            async {},
        )
        .await
    };
    let error = second(path.clone()).await.unwrap_err().to_string();
    assert!(error.contains("another process answers"), "{error}");

    server.stop.take().unwrap().send(()).unwrap();
    (&mut server.task).await.unwrap();
    assert!(!path.exists());

    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a socket whose process died stays as a file");
    second(path.clone()).await.unwrap();

    std::fs::write(&path, "precious").unwrap();
    let error = second(path.clone()).await.unwrap_err().to_string();
    assert!(error.contains("no socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn control_events_begin_with_the_recent_ones_and_go_on() {
    let mut server = Server::start(None).await;
    let lost = |stage| HeadEvent::StageLost {
        stage,
        host: "b".to_owned(),
        reason: "closed".to_owned(),
        ended_after_us: 10,
        requests: 0,
    };
    server.handle().publish(lost(1));
    let mut stream = UnixStream::connect(&server.control).await.unwrap();
    let request = get(server.address, "/control/events");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    for stage in [1, 2] {
        let wanted = format!("{}\n", serde_json::to_string(&lost(stage)).unwrap());
        while !String::from_utf8_lossy(&seen).contains(&wanted) {
            assert!(stream.read_buf(&mut seen).await.unwrap() > 0);
        }
        server.handle().publish(lost(stage + 1));
    }
    server.stop.take().unwrap().send(()).unwrap();
    stream.read_to_end(&mut seen).await.unwrap();
    let text = String::from_utf8(reply(&seen).body).unwrap();
    assert_eq!(text.matches("\"stage\":1").count(), 1, "{text}");
    (&mut server.task).await.unwrap();
}

#[tokio::test]
async fn metrics_have_vllms_suffixes_and_count_what_happened() {
    let mut server = Server::start(None).await;
    server.head.status.send_modify(|status| {
        status.running = 3;
        status.waiting = 2;
        status.prompt_tokens = 11;
        status.generated_tokens = 22;
        status.stages = vec![
            StageTelemetry {
                host: "a".to_owned(),
                kv_used: 1,
                kv_total: 4,
                alive: true,
                ..StageTelemetry::default()
            },
            StageTelemetry {
                stage: 1,
                host: "b\"\n".to_owned(),
                kv_used: 2,
                kv_total: 4,
                compute_ns: 1_500_000_000,
                ..StageTelemetry::default()
            },
        ];
    });
    let asked = json!({"model": "tiny", "prompt": "x"});
    server
        .answered("/v1/completions", asked.clone(), "abc")
        .await;
    let failing = server.ask("/v1/completions", asked);
    drop(server.next().await);
    failing.await.unwrap().error(502);

    let reply = server.get("/metrics").await;
    assert!(
        reply
            .headers
            .contains("content-type: application/openmetrics-text")
    );
    let text = reply.text();
    assert!(text.ends_with("# EOF\n"));
    for line in [
        "windlass_num_requests_running{model_name=\"tiny\"} 3.0",
        "windlass_num_requests_waiting{model_name=\"tiny\"} 2.0",
        "windlass_kv_cache_usage_perc{model_name=\"tiny\"} 0.5",
        "windlass_prompt_tokens_total{model_name=\"tiny\"} 11",
        "windlass_generation_tokens_total{model_name=\"tiny\"} 22",
        "windlass_request_success_total{finished_reason=\"stop\",model_name=\"tiny\"} 1",
        "windlass_request_success_total{finished_reason=\"error\",model_name=\"tiny\"} 1",
        "windlass_time_to_first_token_seconds_count{model_name=\"tiny\"} 1",
        "windlass_inter_token_latency_seconds_count{model_name=\"tiny\"} 2",
        "windlass_e2e_request_latency_seconds_count{model_name=\"tiny\"} 1",
        "windlass_request_queue_time_seconds_sum{model_name=\"tiny\"} 0.005",
        "windlass_request_prefill_time_seconds_sum{model_name=\"tiny\"} 0.02",
        "windlass_request_decode_time_seconds_sum{model_name=\"tiny\"} 0.04",
        "windlass_stage_up{host=\"a\",stage=\"0\"} 1.0",
        "windlass_stage_up{host=\"b\\\"\\n\",stage=\"1\"} 0.0",
        "windlass_stage_kv_blocks_used{host=\"a\",stage=\"0\"} 1.0",
        "windlass_stage_compute_seconds_total{host=\"b\\\"\\n\",stage=\"1\"} 1.5",
    ] {
        assert!(
            text.contains(&format!("{line}\n")),
            "{line} is not in\n{text}"
        );
    }
    let mut names = std::collections::HashSet::new();
    for line in text.lines().filter(|line| line.starts_with("# TYPE")) {
        assert!(names.insert(line), "{line} twice");
        assert!(line.starts_with("# TYPE windlass_"), "{line}");
    }
}
