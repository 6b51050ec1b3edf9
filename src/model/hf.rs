//! The Hugging Face hub, over the hf-hub crate.
//!
//! hf-hub moves the bytes (plain HTTP and xet, ranges, redirects, tokens). Two things it does
//! not give are done here: the listing with sizes and sha256 (one GET; hf-hub's own listing
//! leaves the digest out), and going on after a cut. Nothing here knows the cache folders or
//! verifies digests.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use hf_hub::repository::ModelInfo;
use hf_hub::{HFClient, HFError, HFRepository, RepoTypeModel};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use tokio::io::{AsyncWriteExt, BufWriter};

use super::error::{ModelError, readable};
use super::hub::{Hub, RemoteFile, Repository, Step};
use super::listing::{encode_segment, repository};
use super::options::{FetchOptions, Token};
use super::reference::RepoId;

/// The largest listing that is read, in bytes.
const MAX_LISTING: usize = 16 << 20;
/// The largest error text that is read, in bytes.
const MAX_ERROR: usize = 16 << 10;
/// The most bytes that one range read may ask for.
const MAX_RANGE: u64 = 256 << 20;
/// The longest silence in the middle of an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Tries in a row that bring less than [`GETS_ON`] before a download is given up.
const ATTEMPTS: u32 = 5;
/// Bytes that count as getting on.
const GETS_ON: u64 = 1 << 20;
/// Bytes between two reports of progress.
const REPORT_EVERY: u64 = 256 << 10;

/// How long to insist before a hub is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Another source stands ready: one try for each request, and a download is given up as
    /// soon as a try brings nothing.
    Short,
    /// There is no other source.
    Long,
}

impl Patience {
    /// How often a single request is repeated after a failure that may pass.
    fn retries(self) -> usize {
        match self {
            Self::Short => 0,
            Self::Long => 2,
        }
    }
}

/// The hub behind an endpoint.
pub struct HfHub {
    client: HFClient,
    /// For the listing. The same settings as the one inside `client`.
    http: reqwest::Client,
    endpoint: String,
    token: Option<Token>,
    patience: Patience,
    retry_delay: Duration,
}

impl fmt::Debug for HfHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HfHub")
            .field("endpoint", &self.endpoint)
            .field("token", &self.token)
            .finish()
    }
}

impl HfHub {
    /// A client for the endpoint of `options`.
    ///
    /// # Errors
    /// [`ModelError::Unreachable`] if the endpoint is no URL or no client can be made.
    pub fn new(options: &FetchOptions, patience: Patience) -> Result<Self, ModelError> {
        let endpoint = options.endpoint.clone();
        let failed = |reason: String| ModelError::Unreachable {
            doing: "prepare the hub client".to_owned(),
            endpoint: endpoint.clone(),
            reason,
        };
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(options.connect_timeout)
            .read_timeout(READ_TIMEOUT);
        if is_loopback(&endpoint) {
            // A proxy cannot reach this machine's own loopback.
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|e| failed(e.to_string()))?;
        let mut client = HFClient::builder()
            .endpoint(endpoint.clone())
            .client(http.clone())
            .cache_enabled(false)
            .retry_max_attempts(patience.retries())
            .retry_base_delay(options.retry_delay);
        if let Some(token) = &options.token {
            client = client.token(token.expose());
        }
        Ok(Self {
            client: client.build().map_err(|e| failed(e.to_string()))?,
            http,
            endpoint,
            token: options.token.clone(),
            patience,
            retry_delay: options.retry_delay,
        })
    }

    /// The page where a licence is read and accepted.
    pub fn page(&self, repo: &RepoId) -> String {
        format!("{}/{repo}", self.endpoint)
    }

    fn handle(&self, repo: &RepoId) -> HFRepository<RepoTypeModel> {
        self.client.model(repo.owner(), repo.name())
    }

    fn readable(&self, text: &str) -> String {
        readable(text, self.token.as_ref())
    }

    /// The error for an answer that is no success.
    fn refused(&self, repo: &RepoId, doing: &str, status: u16, text: &str) -> ModelError {
        let message = self.readable(text);
        let (repo_name, page) = (repo.to_string(), self.page(repo));
        let token_sent = self.token.is_some();
        match status {
            401 => ModelError::Unauthorized {
                repo: repo_name,
                page,
                token_sent,
                message,
            },
            403 => ModelError::Forbidden {
                repo: repo_name,
                page,
                token_sent,
                message,
            },
            _ => ModelError::Http {
                doing: doing.to_owned(),
                status,
                message,
            },
        }
    }

    fn unreachable(&self, doing: &str, error: reqwest::Error) -> ModelError {
        ModelError::Unreachable {
            doing: doing.to_owned(),
            endpoint: self.endpoint.clone(),
            reason: self.readable(&chain(&error.without_url())),
        }
    }

    /// hf-hub's errors in our words.
    fn convert(&self, repo: &RepoId, doing: &str, error: HFError) -> ModelError {
        match error {
            HFError::AuthRequired { context } | HFError::Forbidden { context } => {
                let text = context.server_message.clone().unwrap_or_default();
                self.refused(repo, doing, context.status.as_u16(), &text)
            }
            HFError::Http { context }
            | HFError::Conflict { context }
            | HFError::RateLimited { context, .. } => {
                let text = context.server_message.clone().unwrap_or_default();
                self.refused(repo, doing, context.status.as_u16(), &text)
            }
            HFError::RepoNotFound { context, .. }
            | HFError::RevisionNotFound { context, .. }
            | HFError::EntryNotFound { context, .. } => {
                let text = context
                    .and_then(|c| c.server_message.clone())
                    .unwrap_or_default();
                self.refused(repo, doing, 404, &text)
            }
            HFError::Request { source, .. } => self.unreachable(doing, source),
            other => ModelError::Malformed {
                doing: doing.to_owned(),
                why: self.readable(&chain(&other)),
            },
        }
    }

    /// One try of a download: appends what comes to `dest`, which holds `have` bytes.
    async fn pull(
        &self,
        file: &RemoteFile,
        dest: &Path,
        have: u64,
        total: u64,
        progress: &mut (dyn FnMut(Step) + Send),
    ) -> Result<(), Pull> {
        let doing = format!("download {} of {}", file.path, file.repo);
        let fatal = |error| Pull::Fatal(error);
        let (_, mut stream) = self
            .handle(&file.repo)
            .download_file_stream()
            .filename(file.path.clone())
            .revision(file.commit.clone())
            .maybe_range((have > 0).then_some(have..total))
            .send()
            .await
            .map_err(|error| {
                let error = self.convert(&file.repo, &doing, error);
                match error {
                    ModelError::Unreachable { .. } => Pull::Broken(error),
                    ModelError::Http { status, .. } if status >= 500 || status == 429 => {
                        Pull::Broken(error)
                    }
                    other => Pull::Fatal(other),
                }
            })?;
        let out = tokio::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(dest)
            .await
            .map_err(ModelError::io("open", dest))
            .map_err(fatal)?;
        let mut out = BufWriter::with_capacity(1 << 20, out);
        let (mut done, mut reported) = (have, have);
        let mut broken = None;
        loop {
            let chunk = match tokio::time::timeout(READ_TIMEOUT, stream.next()).await {
                Ok(Some(Ok(chunk))) => chunk,
                Ok(Some(Err(error))) => {
                    broken = Some(self.convert(&file.repo, &doing, error));
                    break;
                }
                Ok(None) => break,
                Err(_) => {
                    broken = Some(ModelError::Unreachable {
                        doing: doing.clone(),
                        endpoint: self.endpoint.clone(),
                        reason: format!("nothing came for {} seconds", READ_TIMEOUT.as_secs()),
                    });
                    break;
                }
            };
            if chunk.len() as u64 > total - done {
                // More than was asked for: the server may have ignored the range and begun
                // anew, so what is on disk is worth nothing.
                return Err(Pull::Overrun);
            }
            out.write_all(&chunk)
                .await
                .map_err(ModelError::io("write", dest))
                .map_err(fatal)?;
            done += chunk.len() as u64;
            if done - reported >= REPORT_EVERY || done == total {
                reported = done;
                progress(Step::Bytes { done, total });
            }
        }
        out.flush()
            .await
            .map_err(ModelError::io("write", dest))
            .map_err(fatal)?;
        out.get_ref()
            .sync_data()
            .await
            .map_err(ModelError::io("write", dest))
            .map_err(fatal)?;
        match broken {
            _ if done == total => Ok(()),
            Some(error) => Err(Pull::Broken(error)),
            None => Err(Pull::Broken(ModelError::Unreachable {
                doing,
                endpoint: self.endpoint.clone(),
                reason: "the connection closed before the end".to_owned(),
            })),
        }
    }
}

/// How one try of a download failed.
enum Pull {
    /// It may work when tried again.
    Broken(ModelError),
    /// The bytes on disk cannot be trusted; begin at zero.
    Overrun,
    /// Trying again is useless.
    Fatal(ModelError),
}

impl Hub for HfHub {
    async fn resolve(&self, repo: &RepoId, revision: &str) -> Result<Repository, ModelError> {
        let doing = format!("resolve {repo}@{revision}");
        let url = format!(
            "{}/api/models/{repo}/revision/{}?blobs=true",
            self.endpoint,
            encode_segment(revision)
        );
        let response = self
            .get(&url)
            .await
            .map_err(|e| self.unreachable(&doing, e))?;
        let status = response.status();
        if !status.is_success() {
            let header = response.headers().get("x-error-message");
            let said = header.and_then(|v| v.to_str().ok()).map(str::to_owned);
            let text = match said {
                Some(text) => text,
                None => self.body(response, MAX_ERROR, &doing).await.map_or_else(
                    |_| String::new(),
                    |bytes| json_error(&bytes).unwrap_or_default(),
                ),
            };
            return Err(match status.as_u16() {
                404 => ModelError::NoSuchRevision {
                    endpoint: self.endpoint.clone(),
                    repo: repo.to_string(),
                    revision: revision.to_owned(),
                    message: self.readable(&text),
                },
                code => self.refused(repo, &doing, code, &text),
            });
        }
        let body = self.body(response, MAX_LISTING, &doing).await?;
        let malformed = |why: String| ModelError::Malformed {
            doing: doing.clone(),
            why,
        };
        let info: ModelInfo =
            serde_json::from_slice(&body).map_err(|e| malformed(self.readable(&e.to_string())))?;
        repository(repo, info).map_err(malformed)
    }

    async fn fetch(
        &self,
        file: &RemoteFile,
        dest: &Path,
        progress: &mut (dyn FnMut(Step) + Send),
    ) -> Result<(), ModelError> {
        let Some(total) = file.bytes else {
            return Err(ModelError::NoDigest {
                repo: file.repo.to_string(),
                file: file.path.clone(),
            });
        };
        let mut fruitless = 0;
        let mut overran = false;
        loop {
            let mut have = length(dest).await?;
            if have > total {
                remove(dest).await?;
                have = 0;
            }
            progress(Step::Bytes { done: have, total });
            if have == total && total > 0 {
                return Ok(());
            }
            let error = match self.pull(file, dest, have, total, progress).await {
                Ok(()) => return Ok(()),
                Err(Pull::Fatal(error)) => return Err(error),
                Err(Pull::Overrun) => {
                    remove(dest).await?;
                    let error = ModelError::Malformed {
                        doing: format!("download {} of {}", file.path, file.repo),
                        why: "more bytes came than the file has".to_owned(),
                    };
                    if overran || have == 0 {
                        return Err(error);
                    }
                    overran = true;
                    error
                }
                Err(Pull::Broken(error)) => error,
            };
            let got = length(dest).await?;
            fruitless = if got >= have.saturating_add(GETS_ON) {
                1
            } else {
                fruitless + 1
            };
            let nothing_came = got <= have && !overran;
            if fruitless >= ATTEMPTS || (nothing_came && self.patience == Patience::Short) {
                if got == 0 {
                    // Nothing ever came: there is no part to speak of.
                    return Err(error);
                }
                return Err(ModelError::Cut {
                    file: file.path.clone(),
                    attempts: fruitless,
                    got,
                    expected: total,
                    reason: error.to_string(),
                });
            }
            progress(Step::Retrying {
                attempt: fruitless + 1,
                of: ATTEMPTS,
                reason: error.to_string(),
            });
            tokio::time::sleep(self.retry_delay.saturating_mul(1 << fruitless.min(6))).await;
        }
    }

    async fn read_range(
        &self,
        file: &RemoteFile,
        range: Range<u64>,
    ) -> Result<Vec<u8>, ModelError> {
        let doing = format!("read bytes {}..{} of {}", range.start, range.end, file.path);
        let end = file.bytes.map_or(range.end, |size| range.end.min(size));
        if range.start >= end {
            return Ok(Vec::new());
        }
        let len = end - range.start;
        if len > MAX_RANGE {
            let why = format!("a range may have at most {MAX_RANGE} bytes");
            return Err(ModelError::Malformed { doing, why });
        }
        let (_, mut stream) = self
            .handle(&file.repo)
            .download_file_stream()
            .filename(file.path.clone())
            .revision(file.commit.clone())
            .range(range.start..end)
            .send()
            .await
            .map_err(|e| self.convert(&file.repo, &doing, e))?;
        let mut out: Vec<u8> = Vec::new();
        loop {
            match tokio::time::timeout(READ_TIMEOUT, stream.next()).await {
                Ok(Some(Ok(chunk))) if (out.len() + chunk.len()) as u64 <= len => {
                    out.extend_from_slice(&chunk);
                }
                Ok(Some(Ok(_))) => {
                    let why = "more bytes came than were asked for; the server may not know ranges";
                    return Err(ModelError::Malformed {
                        doing,
                        why: why.to_owned(),
                    });
                }
                Ok(Some(Err(error))) => return Err(self.convert(&file.repo, &doing, error)),
                Ok(None) => return Ok(out),
                Err(_) => {
                    return Err(ModelError::Unreachable {
                        doing,
                        endpoint: self.endpoint.clone(),
                        reason: format!("nothing came for {} seconds", READ_TIMEOUT.as_secs()),
                    });
                }
            }
        }
    }
}

impl HfHub {
    /// A GET with the token, repeated as patience allows while the failure may pass.
    async fn get(&self, url: &str) -> Result<reqwest::Response, reqwest::Error> {
        let mut left = self.patience.retries();
        loop {
            let mut request = self.http.get(url);
            if let Some(token) = &self.token
                && let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
            {
                value.set_sensitive(true);
                request = request.header(AUTHORIZATION, value);
            }
            let answer = request.send().await;
            let may_pass = match &answer {
                Ok(response) => {
                    response.status().is_server_error() || response.status().as_u16() == 429
                }
                Err(error) => error.is_connect() || error.is_timeout() || error.is_request(),
            };
            if !may_pass || left == 0 {
                return answer;
            }
            left -= 1;
            tokio::time::sleep(self.retry_delay).await;
        }
    }

    /// The body of an answer, refused beyond `cap` bytes.
    async fn body(
        &self,
        mut response: reqwest::Response,
        cap: usize,
        doing: &str,
    ) -> Result<Vec<u8>, ModelError> {
        let mut out = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|e| self.unreachable(doing, e))?
        {
            if out.len() + chunk.len() > cap {
                let why = format!("it is longer than {cap} bytes");
                return Err(ModelError::Malformed {
                    doing: doing.to_owned(),
                    why,
                });
            }
            out.extend_from_slice(&chunk);
        }
        Ok(out)
    }
}

/// An error and what caused it, in one line; causes that only repeat are left out.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

fn json_error(body: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    value.get("error")?.as_str().map(str::to_owned)
}

fn is_loopback(endpoint: &str) -> bool {
    reqwest::Url::parse(endpoint)
        .ok()
        .and_then(|url| url.host_str().map(str::to_owned))
        .is_some_and(|host| {
            let host = host.trim_matches(['[', ']']);
            host == "localhost"
                || host
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        })
}

async fn length(path: &Path) -> Result<u64, ModelError> {
    match tokio::fs::metadata(path).await {
        Ok(meta) => Ok(meta.len()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(e) => Err(ModelError::io("look at", path)(e)),
    }
}

async fn remove(path: &Path) -> Result<(), ModelError> {
    match tokio::fs::remove_file(path).await {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(ModelError::io("remove", path)(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn only_this_machine_is_loopback() {
        for (endpoint, own) in [
            ("http://127.0.0.1:80", true),
            ("http://[::1]:9", true),
            ("http://localhost", true),
            ("https://huggingface.co", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(is_loopback(endpoint), own, "{endpoint}");
        }
    }
}
