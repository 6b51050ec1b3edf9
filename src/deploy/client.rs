//! Talks HTTP to the head over its control socket: status, telemetry, chat. Must not know who
//! started the head, nor what is done with the answers.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use windlass_wire::telemetry::{HeadEvent, HeadStatus};

use super::lines::Lines;

/// Most bytes of an answer that is read whole.
const MAX_WHOLE: usize = 16 << 20;
/// How long the head may take to accept a connection or answer a status request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the head gave no answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No connection.
    #[error("the head's control socket {path} does not answer: {reason}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The connection broke.
    #[error("the connection to the head broke while {during}: {reason}")]
    Broken {
        /// What was being done.
        during: &'static str,
        /// Why.
        reason: String,
    },
    /// The head refused the request.
    #[error("the head answered {status}: {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Its message.
        message: String,
    },
    /// The head ended a request that it had begun to answer.
    #[error("the head ended the request: {0}")]
    Ended(String),
    /// The answer is not what it must be.
    #[error("the head's answer to {what} is not understood: {reason}")]
    Malformed {
        /// What was asked.
        what: &'static str,
        /// Why.
        reason: String,
    },
}

/// A client of one head.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

/// What to ask of a chat.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// Name of the model.
    pub model: String,
    /// What was said so far, oldest first.
    pub before: Vec<Turn>,
    /// What the user says.
    pub prompt: String,
    /// Tokens to generate at most; as many as fit when `None`.
    pub max_tokens: Option<u32>,
    /// Whether end tokens are banned.
    pub ignore_eos: bool,
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// What the user said.
    pub prompt: String,
    /// What the model answered.
    pub answer: String,
}

/// What comes of a chat.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatEvent {
    /// Text that goes on the answer.
    Text(String),
    /// The answer is complete, with the reason.
    Finished(String),
    /// How many tokens it took.
    Usage {
        /// Tokens of the prompt.
        prompt_tokens: u64,
        /// Tokens generated.
        completion_tokens: u64,
    },
}

/// A chat that is being answered. Dropping it closes the connection, which cancels the request.
#[derive(Debug)]
pub struct Chat {
    stream: ByteStream,
    lines: Lines,
    waiting: std::collections::VecDeque<Result<ChatEvent, ClientError>>,
    /// The head's id of the request, once known.
    id: Option<String>,
    done: bool,
}

/// Telemetry as it comes. Dropping it ends it.
#[derive(Debug)]
pub struct Events {
    stream: ByteStream,
    lines: Lines,
    waiting: std::collections::VecDeque<HeadEvent>,
}

/// A body together with the task that drives its connection.
#[derive(Debug)]
struct ByteStream {
    body: Incoming,
    driver: JoinHandle<()>,
}

impl Drop for ByteStream {
    fn drop(&mut self) {
        // Dropping the connection closes the socket at once, also in mid answer.
        self.driver.abort();
    }
}

impl ByteStream {
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            match self.body.frame().await? {
                Ok(frame) => match frame.into_data() {
                    Ok(bytes) => return Some(Ok(bytes)),
                    // Trailers.
                    Err(_) => continue,
                },
                Err(error) => return Some(Err(reason(&error))),
            }
        }
    }
}

/// An error with its causes.
fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

impl Client {
    /// A client of the head with this control socket.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
        }
    }

    /// The control socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// State of the deployment.
    ///
    /// # Errors
    /// When the head does not answer, or not in time.
    pub async fn status(&self) -> Result<HeadStatus, ClientError> {
        const WHAT: &str = "a status request";
        let read = async {
            let stream = self.send(Method::GET, "/control/status", None).await?;
            whole(stream, WHAT).await
        };
        let bytes = timeout(PATIENCE, read)
            .await
            .map_err(|_| ClientError::Broken {
                during: "its status was read",
                reason: format!("nothing came for {} s", PATIENCE.as_secs()),
            })??;
        serde_json::from_slice(&bytes).map_err(|error| ClientError::Malformed {
            what: WHAT,
            reason: error.to_string(),
        })
    }

    /// The head's telemetry, recent events first.
    ///
    /// # Errors
    /// When the head does not answer.
    pub async fn events(&self) -> Result<Events, ClientError> {
        Ok(Events {
            stream: self.send(Method::GET, "/control/events", None).await?,
            lines: Lines::default(),
            waiting: std::collections::VecDeque::new(),
        })
    }

    /// Begins a chat: greedy, streamed, with usage.
    ///
    /// # Errors
    /// When the head does not answer or refuses the request.
    pub async fn chat(&self, request: &ChatRequest) -> Result<Chat, ClientError> {
        let mut messages = Vec::new();
        for turn in &request.before {
            messages.push(json!({"role": "user", "content": turn.prompt}));
            messages.push(json!({"role": "assistant", "content": turn.answer}));
        }
        messages.push(json!({"role": "user", "content": request.prompt}));
        let body = json!({
            "model": request.model,
            "messages": messages,
            "temperature": 0,
            "max_tokens": request.max_tokens,
            "ignore_eos": request.ignore_eos,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        Ok(Chat {
            stream: self
                .send(Method::POST, "/v1/chat/completions", Some(body))
                .await?,
            lines: Lines::default(),
            waiting: std::collections::VecDeque::new(),
            id: None,
            done: false,
        })
    }

    /// Sends a request on a connection of its own; gives the body of a good answer.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<ByteStream, ClientError> {
        let connect_error = |reason: String| ClientError::Connect {
            path: self.socket.clone(),
            reason,
        };
        let connecting = async {
            let stream = UnixStream::connect(&self.socket)
                .await
                .map_err(|error| connect_error(error.to_string()))?;
            http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| connect_error(reason(&error)))
        };
        let (mut sender, connection) = timeout(PATIENCE, connecting).await.map_err(|_| {
            connect_error(format!("no connection within {} s", PATIENCE.as_secs()))
        })??;
        let driver = tokio::spawn(async move {
            // How the connection ended is told by the body.
            let _ = connection.await;
        });
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost");
        let bytes = match body {
            Some(value) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Bytes::from(value.to_string())
            }
            None => Bytes::new(),
        };
        let broken = |reason: String| ClientError::Broken {
            during: "a request was sent",
            reason,
        };
        let request = request
            .body(Full::new(bytes))
            .map_err(|error| broken(error.to_string()))?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| broken(reason(&error)));
        let (parts, body) = match response {
            Ok(response) => response.into_parts(),
            Err(error) => {
                driver.abort();
                return Err(error);
            }
        };
        let stream = ByteStream { body, driver };
        if parts.status == StatusCode::OK {
            return Ok(stream);
        }
        let text = whole(stream, "a request").await.unwrap_or_default();
        Err(ClientError::Refused {
            status: parts.status.as_u16(),
            message: error_message(&text),
        })
    }
}

/// Reads a body to its end, within the cap.
async fn whole(mut stream: ByteStream, what: &'static str) -> Result<Vec<u8>, ClientError> {
    let collected = Limited::new(&mut stream.body, MAX_WHOLE)
        .collect()
        .await
        .map_err(|error| ClientError::Malformed {
            what,
            reason: error.to_string(),
        })?;
    Ok(collected.to_bytes().to_vec())
}

/// The message of an error body in the OpenAI form, else the body's beginning.
fn error_message(body: &[u8]) -> String {
    serde_json::from_slice::<Value>(body)
        .ok()
        .as_ref()
        .and_then(|value| value.pointer("/error/message"))
        .and_then(Value::as_str)
        .map_or_else(
            || String::from_utf8_lossy(body).chars().take(400).collect(),
            str::to_owned,
        )
}

impl Events {
    /// The next event; `None` when the head ended the stream or the connection broke.
    pub async fn next(&mut self) -> Option<HeadEvent> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            let bytes = self.stream.next().await?.ok()?;
            for line in self.lines.push(&bytes) {
                // A newer head may send events this client does not know.
                if let Ok(event) = serde_json::from_slice(&line) {
                    self.waiting.push_back(event);
                }
            }
        }
    }
}

impl Chat {
    /// The head's id of the request, once the first chunk came.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The next event and when it arrived; `None` after the proper end of the stream.
    ///
    /// # Errors
    /// When the request failed in the head, or the stream broke or ended early. Then it is over.
    pub async fn next(&mut self) -> Option<(Instant, Result<ChatEvent, ClientError>)> {
        let mut arrived = Instant::now();
        loop {
            if let Some(event) = self.waiting.pop_front() {
                if event.is_err() {
                    self.done = true;
                    self.waiting.clear();
                }
                return Some((arrived, event));
            }
            if self.done {
                return None;
            }
            let next = self.stream.next().await;
            arrived = Instant::now();
            let broken = |reason: String| {
                Some(Err(ClientError::Broken {
                    during: "an answer was read",
                    reason,
                }))
            };
            let failed = match next {
                Some(Ok(bytes)) => {
                    for line in self.lines.push(&bytes) {
                        if self.done {
                            break;
                        }
                        self.line(&line);
                    }
                    None
                }
                Some(Err(reason)) => broken(reason),
                None => broken("the stream ended before the answer did".to_owned()),
            };
            self.waiting.extend(failed);
        }
    }

    /// One line of the event stream. The head writes each event's data on one line.
    fn line(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data:") else {
            // Blank lines between events, comments, fields that do not matter here.
            return;
        };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        let value: Value = match serde_json::from_slice(data) {
            Ok(value) => value,
            Err(error) => {
                self.waiting.push_back(Err(ClientError::Malformed {
                    what: "a chat",
                    reason: error.to_string(),
                }));
                return;
            }
        };
        if value.get("error").is_some_and(|error| !error.is_null()) {
            self.waiting
                .push_back(Err(ClientError::Ended(error_message(data))));
            return;
        }
        if self.id.is_none() {
            self.id = value.get("id").and_then(Value::as_str).map(str::to_owned);
        }
        let text = value
            .pointer("/choices/0/delta/content")
            .and_then(Value::as_str);
        if let Some(text) = text
            && !text.is_empty()
        {
            self.waiting.push_back(Ok(ChatEvent::Text(text.to_owned())));
        }
        if let Some(reason) = value
            .pointer("/choices/0/finish_reason")
            .and_then(Value::as_str)
        {
            self.waiting
                .push_back(Ok(ChatEvent::Finished(reason.to_owned())));
        }
        let count = |name: &str| {
            value
                .get("usage")
                .and_then(|usage| usage.get(name))
                .and_then(Value::as_u64)
        };
        if let (Some(prompt_tokens), Some(completion_tokens)) =
            (count("prompt_tokens"), count("completion_tokens"))
        {
            self.waiting.push_back(Ok(ChatEvent::Usage {
                prompt_tokens,
                completion_tokens,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    /// A head that answers one request with these bytes, in chunks of `size`, and closes.
    async fn answering(
        answer: String,
        size: usize,
    ) -> (tempfile::TempDir, Client, JoinHandle<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let count = stream.read(&mut request).await.unwrap();
            for chunk in answer.as_bytes().chunks(size) {
                stream.write_all(chunk).await.unwrap();
                stream.flush().await.unwrap();
            }
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        (folder, Client::new(path), server)
    }

    fn head(kind: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n")
    }

    fn request() -> ChatRequest {
        ChatRequest {
            model: "m".into(),
            prompt: "p".into(),
            before: Vec::new(),
            max_tokens: Some(3),
            ignore_eos: true,
        }
    }

    async fn events(chat: &mut Chat) -> (Vec<ChatEvent>, Option<ClientError>) {
        let mut seen = Vec::new();
        while let Some((_, event)) = chat.next().await {
            match event {
                Ok(event) => seen.push(event),
                Err(error) => return (seen, Some(error)),
            }
        }
        (seen, None)
    }

    const STREAM: &str = concat!(
        ": hello\n\n",
        "data: {\"id\":\"chat-1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
        "data: {\"id\":\"chat-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hé\"},\"finish_reason\":null}]}\r\n\r\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" you\"},\"finish_reason\":null}],\"usage\":null}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\n",
    );

    #[tokio::test]
    async fn a_chat_comes_whole_however_the_bytes_are_cut() {
        for size in [1, 7, 10_000] {
            let text = format!("{}{STREAM}data: [DONE]\n\n", head("text/event-stream"));
            let (_folder, client, server) = answering(text, size).await;
            let mut chat = client.chat(&request()).await.unwrap();
            let (seen, error) = events(&mut chat).await;
            assert!(error.is_none(), "{error:?}");
            assert_eq!(
                seen,
                [
                    ChatEvent::Text("Hé".into()),
                    ChatEvent::Text(" you".into()),
                    ChatEvent::Finished("length".into()),
                    ChatEvent::Usage {
                        prompt_tokens: 7,
                        completion_tokens: 3
                    },
                ]
            );
            assert_eq!(chat.id(), Some("chat-1"));
            let sent = server.await.unwrap();
            assert!(
                sent.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"),
                "{sent}"
            );
            assert!(sent.contains("\"ignore_eos\":true"), "{sent}");
        }
    }

    #[tokio::test]
    async fn a_stream_that_ends_early_is_an_error_not_an_answer() {
        let (_folder, client, _server) =
            answering(format!("{}{STREAM}", head("text/event-stream")), 9999).await;
        let mut chat = client.chat(&request()).await.unwrap();
        let (seen, error) = events(&mut chat).await;
        assert_eq!(seen.len(), 4);
        assert!(error.unwrap().to_string().contains("before the answer did"));
    }

    #[tokio::test]
    async fn an_error_within_the_stream_ends_it_with_its_message() {
        let text = format!(
            "{}data: {{\"error\":{{\"message\":\"stage 1 is lost\"}}}}\n\ndata: [DONE]\n\n",
            head("text/event-stream")
        );
        let (_folder, client, _server) = answering(text, 9999).await;
        let mut chat = client.chat(&request()).await.unwrap();
        let (seen, error) = events(&mut chat).await;
        assert!(seen.is_empty());
        assert!(error.unwrap().to_string().contains("stage 1 is lost"));
        assert!(chat.next().await.is_none());
    }

    #[tokio::test]
    async fn a_refusal_gives_its_message() {
        let body = "{\"error\":{\"message\":\"too long\",\"type\":\"invalid_request_error\"}}";
        let text = format!(
            "HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let (_folder, client, _server) = answering(text, 9999).await;
        let error = client.chat(&request()).await.unwrap_err();
        assert_eq!(error.to_string(), "the head answered 400: too long");
    }

    #[tokio::test]
    async fn telemetry_skips_what_it_does_not_know() {
        let text = format!(
            "{}{{\"event\":\"new_thing\"}}\n{{\"event\":\"request\",\"id\":\"a\",\"outcome\":\"stop\",\"prompt_tokens\":1,\"tokens\":2,\"ttft_ms\":1.0,\"decode_ms\":2.0}}\n",
            head("application/x-ndjson")
        );
        let (_folder, client, _server) = answering(text, 3).await;
        let mut events = client.events().await.unwrap();
        assert!(matches!(
            events.next().await,
            Some(HeadEvent::Request { tokens: 2, .. })
        ));
        assert!(events.next().await.is_none());
    }

    #[tokio::test]
    async fn a_missing_socket_is_named() {
        let error = Client::new("/nowhere/s").status().await.unwrap_err();
        assert!(error.to_string().contains("/nowhere/s"), "{error}");
    }
}
