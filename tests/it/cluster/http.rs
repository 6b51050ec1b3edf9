//! A client of the API that keeps nothing from a test: every byte of an answer as it came, and
//! an end of the stream told from an end of the answer.
//!
//! It speaks HTTP/1.0, so that an answer ends with its connection and needs no chunks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// Longer than anything here takes: a test that hangs ends with a message.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What is sent: one request, then nothing.
fn send(stream: &mut impl Write, method: &str, path: &str, body: &str) {
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
}

/// Status line and headers.
fn head(reader: &mut impl BufRead) -> Result<u16, String> {
    let mut status = None;
    loop {
        let mut line = String::new();
        match reader.read_line(&mut line) {
            Ok(0) => return Err("the connection ended before the answer's head".into()),
            Ok(_) => {}
            Err(error) => return Err(format!("the answer's head was cut: {error}")),
        }
        if status.is_none() {
            status = line.split(' ').nth(1).and_then(|s| s.parse().ok());
        }
        if line.trim().is_empty() {
            return status.ok_or_else(|| "no status in the answer".into());
        }
    }
}

/// Asks once over TCP; the whole answer.
pub fn ask(api: SocketAddr, method: &str, path: &str, body: &str) -> Result<(u16, Value), String> {
    let mut stream = TcpStream::connect(api).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    send(&mut stream, method, path, body);
    let mut reader = BufReader::new(stream);
    let status = head(&mut reader)?;
    let mut text = String::new();
    reader
        .read_to_string(&mut text)
        .map_err(|e| e.to_string())?;
    Ok((
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    ))
}

/// A reader of the head's control socket.
pub fn control(socket: &Path, path: &str) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    send(&mut stream, "GET", path, "");
    let mut reader = BufReader::new(stream);
    assert_eq!(head(&mut reader), Ok(200), "{path}");
    reader
}

/// One user's chat, greedy, of exactly this many tokens.
pub fn chat(prompt: &str, tokens: u32) -> Value {
    json!({
        "model": super::harness::NAME,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": tokens,
        "ignore_eos": true,
    })
}

/// Tokens of a chat's prompt, and its answer with the log-probability of each token: equal answers
/// are equal in every token and in the bits of its probability.
pub fn exact(api: SocketAddr, prompt: &str, tokens: u32) -> (u64, Value) {
    let mut body = chat(prompt, tokens);
    body["logprobs"] = json!(true);
    body["top_logprobs"] = json!(2);
    let (status, answer) = ask(api, "POST", "/v1/chat/completions", &body.to_string()).unwrap();
    assert_eq!(status, 200, "{answer}");
    let choice = answer["choices"][0].clone();
    let entries = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(entries.len(), tokens as usize, "{choice}");
    (answer["usage"]["prompt_tokens"].as_u64().unwrap(), choice)
}

/// The text of an answer.
pub fn text(api: SocketAddr, prompt: &str, tokens: u32) -> String {
    let body = chat(prompt, tokens).to_string();
    let (status, answer) = ask(api, "POST", "/v1/chat/completions", &body).unwrap();
    assert_eq!(status, 200, "{answer}");
    let content = &answer["choices"][0]["message"]["content"];
    content.as_str().unwrap().to_owned()
}

/// A chat that is being streamed. Dropping it leaves.
pub struct Chat {
    reader: BufReader<TcpStream>,
    text: String,
    finish: Option<String>,
}

impl Chat {
    /// Begins one.
    pub fn begin(api: SocketAddr, prompt: &str, tokens: u32) -> Self {
        let mut body = chat(prompt, tokens);
        body["stream"] = json!(true);
        let mut stream = TcpStream::connect(api).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        send(
            &mut stream,
            "POST",
            "/v1/chat/completions",
            &body.to_string(),
        );
        let mut reader = BufReader::new(stream);
        assert_eq!(head(&mut reader), Ok(200));
        Self {
            reader,
            text: String::new(),
            finish: None,
        }
    }

    /// Reads until `pieces` pieces of text came.
    pub fn hear(&mut self, pieces: usize) {
        let mut heard = 0;
        while heard < pieces {
            let before = self.text.len();
            assert_eq!(self.event(), Ok(true), "it ended after {:?}", self.text);
            heard += usize::from(self.text.len() > before);
        }
    }

    /// Reads to the end. The whole text, or why there is none: an error within the stream, or a
    /// stream that ended before the answer did.
    pub fn end(&mut self) -> Result<String, String> {
        while self.event()? {}
        match self.finish.take() {
            Some(_) => Ok(self.text.clone()),
            None => Err("done without a reason".into()),
        }
    }

    /// Leaves at once.
    pub fn leave(self) {
        // The other side may be gone already.
        let _ = self.reader.get_ref().shutdown(Shutdown::Both);
    }

    /// One line of the stream; `false` after its proper end.
    fn event(&mut self) -> Result<bool, String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => return Err("the stream ended before the answer did".into()),
            Ok(_) => {}
            Err(error) => return Err(format!("the stream broke: {error}")),
        }
        let Some(data) = line.strip_prefix("data:").map(str::trim) else {
            return Ok(true);
        };
        if data == "[DONE]" {
            return Ok(false);
        }
        let value: Value = serde_json::from_str(data).map_err(|e| format!("{data}: {e}"))?;
        if let Some(message) = value.pointer("/error/message").and_then(Value::as_str) {
            return Err(message.to_owned());
        }
        let choice = &value["choices"][0];
        self.text += choice["delta"]["content"].as_str().unwrap_or("");
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish = Some(reason.to_owned());
        }
        Ok(true)
    }
}
