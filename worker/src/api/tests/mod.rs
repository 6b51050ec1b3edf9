//! The API over real sockets, before a head that the test plays.
//!
//! Shapes are those of OpenAI's API reference.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod bodies;
mod chat;
mod completions;
mod ends;
mod fake;
mod http;

/// What `fake` needs.
mod prelude {
    pub use crate::api::ApiState;
    pub use crate::api::language::{ChatMessage, Decoder, Language};
    pub use crate::head::handle::{HeadHandle, Limits, Pending, SubmitError};
    pub use tokio::sync::{mpsc, watch};
    pub use windlass_wire::telemetry::HeadStatus;
}

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use windlass_wire::payload::Sampled;

use super::serve::{ServeError, serve};
use crate::head::handle::{FinishReason, HeadHandle, Pending, SequenceTimings, TokenEvent};
use fake::FakeHead;

/// Longer than any test.
const GRACE: Duration = Duration::from_secs(600);

/// A server and the head behind it.
struct Server {
    address: SocketAddr,
    control: PathBuf,
    head: FakeHead,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Server {
    async fn start(key_sha256: Option<&str>) -> Self {
        Self::start_with(key_sha256, GRACE).await
    }

    async fn start_with(key_sha256: Option<&str>, grace: Duration) -> Self {
        let head = fake::head(64);
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("control.sock");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let state = fake::state(&head.handle, key_sha256, grace);
        let path = control.clone();
        let server = super::Server::bind(listener, Some(path), state).unwrap();
        let task = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self {
            address,
            control,
            head,
            stop: Some(stop),
            task,
            _folder: folder,
        }
    }

    fn handle(&self) -> HeadHandle {
        self.head.handle.clone()
    }

    async fn next(&mut self) -> Pending {
        self.head.pending.recv().await.unwrap()
    }

    fn ask(&self, path: &str, body: Value) -> JoinHandle<Reply> {
        tokio::spawn(post(self.address, path.to_owned(), body.to_string()))
    }

    async fn get(&self, path: &str) -> Reply {
        send(self.address, &get(self.address, path)).await
    }

    /// Asks, and says `text` token by token as the answer to every sequence.
    async fn answered(&mut self, path: &str, body: Value, text: &str) -> Reply {
        let mut reply = self.ask(path, body);
        loop {
            tokio::select! {
                pending = self.head.pending.recv() => {
                    let pending = pending.unwrap();
                    say(&pending, text);
                    end(&pending, FinishReason::Eog(fake::END), text.len() as u32 + 1);
                }
                reply = &mut reply => return reply.unwrap(),
            }
        }
    }
}

/// A response that was read to its end.
#[derive(Debug)]
struct Reply {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Reply {
    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The data lines of a stream; the last may be no JSON.
    fn data(&self) -> Vec<String> {
        let text = self.text();
        assert!(text.ends_with("\n\n"), "{text}");
        text.trim_end()
            .split("\n\n")
            .map(|line| line.strip_prefix("data: ").unwrap().to_owned())
            .collect()
    }

    fn chunks(&self) -> Vec<Value> {
        let mut data = self.data();
        assert_eq!(data.pop().as_deref(), Some("[DONE]"));
        data.iter()
            .map(|d| serde_json::from_str(d).unwrap())
            .collect()
    }

    /// Asserts an error in the OpenAI form; gives its message, param and code.
    fn error(&self, status: u16) -> (String, Value, Value) {
        assert_eq!(self.status, status, "{}", self.text());
        let body = self.json();
        assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
        let error = body["error"].as_object().unwrap();
        let keys: Vec<_> = error.keys().map(String::as_str).collect();
        assert_eq!(keys, ["message", "type", "param", "code"]);
        assert!(error["type"].is_string());
        (
            error["message"].as_str().unwrap().to_owned(),
            error["param"].clone(),
            error["code"].clone(),
        )
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
}

fn post_text(address: SocketAddr, path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

async fn post(address: SocketAddr, path: String, body: String) -> Reply {
    send(address, &post_text(address, &path, &body)).await
}

async fn send(address: SocketAddr, request: &str) -> Reply {
    let stream = TcpStream::connect(address).await.unwrap();
    exchange(stream, request).await
}

async fn send_control(server: &Server, request: &str) -> Reply {
    let stream = UnixStream::connect(&server.control).await.unwrap();
    exchange(stream, request).await
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> Reply {
    // A server that refuses a body early may close before all of it is written.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    reply(&bytes)
}

fn reply(bytes: &[u8]) -> Reply {
    let split = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let headers = String::from_utf8(bytes[..split].to_vec())
        .unwrap()
        .to_lowercase();
    let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
    let mut rest = &bytes[split + 4..];
    let mut body = Vec::new();
    if headers.contains("transfer-encoding: chunked") {
        while let Some(line) = rest.windows(2).position(|w| w == b"\r\n") {
            let size = std::str::from_utf8(&rest[..line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            rest = &rest[line + 2..];
            body.extend_from_slice(&rest[..size]);
            rest = &rest[size + 2..];
        }
    } else {
        body.extend_from_slice(rest);
    }
    Reply {
        status,
        headers,
        body,
    }
}

fn sampled(id: u32) -> Sampled {
    Sampled {
        id,
        logprob: f32::NAN,
        top: Vec::new(),
    }
}

fn token(pending: &Pending, token: Sampled) {
    let at = Instant::now();
    let _ = pending.events.send(TokenEvent::Token { token, at });
}

fn say(pending: &Pending, text: &str) {
    for byte in text.bytes() {
        token(pending, sampled(u32::from(byte)));
    }
}

fn end(pending: &Pending, reason: FinishReason, tokens: u32) {
    let timings = SequenceTimings {
        queue: Duration::from_millis(5),
        prefill: Duration::from_millis(20),
        decode: Duration::from_millis(40),
        prompt_tokens: pending.submission.prompt.len() as u32,
        tokens,
        cached_tokens: 0,
    };
    let _ = pending
        .events
        .send(TokenEvent::Finished { reason, timings });
}

/// Takes what a test cannot foresee out of a response, after checking it.
fn known(mut response: Value, id: &str) -> Value {
    let fields = response.as_object_mut().unwrap();
    let given = fields["id"].take();
    assert!(given.as_str().unwrap().starts_with(id), "{given}");
    let created = fields["created"].take();
    assert!(created.as_u64().unwrap() > 1_700_000_000, "{created}");
    fields.remove("timings");
    response
}
