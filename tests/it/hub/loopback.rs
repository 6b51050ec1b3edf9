//! A hub on the loopback that misbehaves on order: the endpoints the client asks, each answer
//! written by hand so that it can also break off.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What one request asked.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub query: String,
    pub range: Option<String>,
    pub authorization: Option<String>,
}

/// What the hub holds and how it misbehaves.
#[derive(Default)]
pub struct State {
    /// (repository, branch) → commit.
    pub refs: HashMap<(String, String), String>,
    /// (commit, path) → content.
    pub files: HashMap<(String, String), Vec<u8>>,
    /// sha256 in listings in place of the true one.
    pub listed_sha256: Option<String>,
    /// (status, header `X-Error-Message`) for every answer.
    pub refuse: Option<(u16, String)>,
    /// The same for files only, as a gated repository does.
    pub refuse_files: Option<(u16, String)>,
    /// After how many bytes of body the next file answers break off.
    pub cuts: VecDeque<usize>,
    /// Answer the whole file to a range.
    pub no_ranges: bool,
    /// Where the branch moves once it was resolved: (key, new commit).
    pub move_after_resolve: Option<((String, String), String)>,
    /// Send file requests there, with a signature in the query.
    pub redirect: Option<String>,
    pub license: Option<String>,
    pub gated: Option<String>,
    pub asked: Vec<Asked>,
    /// Bytes of file bodies written.
    pub sent: usize,
}

/// The running hub; gone with the test's runtime.
pub struct Loopback {
    pub endpoint: String,
    pub state: Arc<Mutex<State>>,
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |mut out, byte| {
            write!(out, "{byte:02x}").unwrap();
            out
        })
}

impl Loopback {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Self { endpoint, state }
    }

    /// Puts a file on a branch.
    pub fn publish(&self, repo: &str, branch: &str, commit: &str, path: &str, content: &[u8]) {
        self.with(|s| {
            s.refs
                .insert((repo.to_owned(), branch.to_owned()), commit.to_owned());
            s.refs
                .insert((repo.to_owned(), commit.to_owned()), commit.to_owned());
            s.files
                .insert((commit.to_owned(), path.to_owned()), content.to_vec());
        });
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap())
    }

    /// The requests so far for which `which` holds.
    pub fn count(&self, which: impl Fn(&Asked) -> bool) -> usize {
        self.with(|s| s.asked.iter().filter(|a| which(a)).count())
    }
}

struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
    /// Announced length, where it differs from the body's.
    length: Option<usize>,
    is_file: bool,
}

impl Answer {
    fn new(status: u16, headers: String, body: Vec<u8>) -> Self {
        Self {
            status,
            headers,
            body,
            length: None,
            is_file: false,
        }
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut head = Vec::new();
    let mut reader = BufReader::new(&mut stream).take(64 << 10);
    loop {
        let before = head.len();
        match reader.read_until(b'\n', &mut head).await {
            Ok(0) | Err(_) => return,
            Ok(_) if head.len() - before <= 2 => break,
            Ok(_) => {}
        }
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let mut request = lines.next().unwrap().split(' ');
    let method = request.next().unwrap().to_owned();
    let target = request.next().unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |name: &str| {
        head.lines()
            .filter_map(|line| line.split_once(": "))
            .find_map(|(key, value)| {
                key.eq_ignore_ascii_case(name)
                    .then(|| value.trim().to_owned())
            })
    };
    let asked = Asked {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        range: header("range"),
        authorization: header("authorization"),
    };
    let answer = {
        let mut state = state.lock().unwrap();
        state.asked.push(asked.clone());
        answer(&mut state, &asked)
    };
    let length = answer.length.unwrap_or(answer.body.len());
    let head = format!(
        "HTTP/1.1 {} X\r\nContent-Length: {length}\r\nConnection: close\r\n{}\r\n",
        answer.status, answer.headers
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    if asked.method != "HEAD" {
        if answer.is_file {
            state.lock().unwrap().sent += answer.body.len();
        }
        let _ = stream.write_all(&answer.body).await;
    }
    let _ = stream.shutdown().await;
}

fn answer(state: &mut State, asked: &Asked) -> Answer {
    let refusal = |(status, message): &(u16, String)| {
        Answer::new(
            *status,
            format!("X-Error-Message: {message}\r\n"),
            Vec::new(),
        )
    };
    if let Some(refuse) = &state.refuse {
        return refusal(refuse);
    }
    let parts: Vec<&str> = asked.path.trim_start_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api", "models", owner, name, "revision", revision] => {
            let key = (format!("{owner}/{name}"), revision.replace("%2F", "/"));
            let Some(commit) = state.refs.get(&key).cloned() else {
                return refusal(&(404, "Repository or revision not found".to_owned()));
            };
            let body = listing(state, &key.0, &commit);
            if let Some((key, commit)) = state.move_after_resolve.take() {
                state.refs.insert(key, commit);
            }
            Answer::new(200, "Content-Type: application/json\r\n".to_owned(), body)
        }
        [_, _, "resolve", commit, path @ ..] => {
            if let Some(refuse) = &state.refuse_files {
                return refusal(refuse);
            }
            if let Some(to) = &state.redirect {
                let location = format!("Location: {to}{}?Signature=s1gnature\r\n", asked.path);
                return Answer::new(302, location, Vec::new());
            }
            file(state, asked, commit, &path.join("/"))
        }
        _ => Answer::new(404, String::new(), Vec::new()),
    }
}

fn listing(state: &State, repo: &str, commit: &str) -> Vec<u8> {
    let mut files: Vec<_> = state
        .files
        .iter()
        .filter(|((at, _), _)| at == commit)
        .collect();
    files.sort();
    let siblings: Vec<_> = files
        .into_iter()
        .map(|((_, path), content)| {
            let sha = state
                .listed_sha256
                .clone()
                .unwrap_or_else(|| sha256(content));
            let lfs = serde_json::json!({"size": content.len(), "sha256": sha, "pointerSize": 130});
            serde_json::json!({"rfilename": path, "size": content.len(), "blobId": "x", "lfs": lfs})
        })
        .collect();
    serde_json::to_vec(&serde_json::json!({
        "id": repo, "_id": "0", "sha": commit, "private": false, "siblings": siblings,
        "gated": state.gated.clone().map_or(serde_json::json!(false), serde_json::Value::String),
        "cardData": {"license": state.license},
    }))
    .unwrap()
}

fn file(state: &mut State, asked: &Asked, commit: &str, path: &str) -> Answer {
    let Some(content) = state
        .files
        .get(&(commit.to_owned(), path.to_owned()))
        .cloned()
    else {
        return Answer::new(
            404,
            "X-Error-Code: EntryNotFound\r\n".to_owned(),
            Vec::new(),
        );
    };
    let mut headers = format!(
        "ETag: \"{0}\"\r\nX-Linked-Etag: \"{0}\"\r\nX-Linked-Size: {1}\r\n\
         X-Repo-Commit: {commit}\r\nAccept-Ranges: bytes\r\n",
        sha256(&content),
        content.len()
    );
    let range = asked
        .range
        .as_deref()
        .filter(|_| !state.no_ranges)
        .map(|text| {
            let (from, to) = text
                .strip_prefix("bytes=")
                .unwrap()
                .split_once('-')
                .unwrap();
            let from: usize = from.parse().unwrap();
            let to: usize = to.parse().unwrap();
            from..content.len().min(to + 1)
        });
    let (status, body) = match range {
        Some(range) => {
            let (from, to) = (range.start, range.end - 1);
            write!(
                headers,
                "Content-Range: bytes {from}-{to}/{}\r\n",
                content.len()
            )
            .unwrap();
            (206, content[range].to_vec())
        }
        None => (200, content),
    };
    let length = body.len();
    let mut answer = Answer::new(status, headers, body);
    answer.length = Some(length);
    answer.is_file = true;
    if asked.method == "GET"
        && let Some(cut) = state.cuts.pop_front()
    {
        answer.body.truncate(cut);
    }
    answer
}
