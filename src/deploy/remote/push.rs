//! Sends a host the pieces it lacks, straight from the model file. Nothing is kept on this
//! machine's disk but the digests. Must not know where the model file lies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader};
use windlass_gguf::{Manifest, PieceEntry, Slice};
use windlass_wire::host::{FromReceiver, ToReceiver, WantedFile, line};
use windlass_wire::source::SourceFile;

use super::base::Base;
use super::feed::{Feed, Tap};
use super::install::failed;
use super::locks::{last_words, next_line};
use super::source::Source;
use crate::event::{Emitter, Event, Failure, Scope};
use crate::ssh::{Session, Stream};

/// How long a host may take to look at what it has; with `--verify` it reads everything.
const LOOKING: Duration = Duration::from_secs(60);
const READING: Duration = Duration::from_secs(3600);
/// How long a host may take to write out a piece that was sent.
const STORING: Duration = Duration::from_secs(600);

/// What one host is to hold.
#[derive(Clone, Debug)]
pub struct Shard {
    /// The slices, in order.
    pub slices: Vec<Slice>,
}

/// What came of a push to one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Bytes of piece files the plan gives the host.
    pub planned: u64,
    /// Bytes of those that were missing before.
    pub missing: u64,
    /// Raw bytes sent.
    pub sent: u64,
    /// Raw bytes that arrived, as the host counted.
    pub received: u64,
    /// Names of files that were not there before, sent or made there.
    pub files: Vec<String>,
    /// What the host holds now.
    pub pieces: Vec<PieceEntry>,
}

impl Pushed {
    /// A piece that was not there before is stored.
    fn learnt(&mut self, source: &Source, entry: PieceEntry) {
        source.learn(&entry);
        self.files.push(entry.file.clone());
        self.pieces.push(entry);
    }
}

/// What a host has of its shard.
#[derive(Debug)]
pub struct Asked {
    stream: Receiver,
    /// Wanted files, in order.
    files: Vec<(Slice, WantedFile)>,
    have: BTreeMap<String, (u64, Option<String>)>,
    /// Bytes that are missing there.
    pub missing: u64,
    /// Free bytes there.
    pub free: u64,
}

/// A running `receive`.
struct Receiver {
    stdin: std::pin::Pin<Box<dyn tokio::io::AsyncWrite + Send>>,
    stdout: BufReader<std::pin::Pin<Box<dyn tokio::io::AsyncRead + Send>>>,
    ended: tokio::sync::oneshot::Receiver<(crate::ssh::Ending, Vec<u8>)>,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receiver")
    }
}

impl Receiver {
    fn new(stream: Stream) -> Self {
        Self {
            stdin: stream.stdin,
            stdout: BufReader::new(stream.stdout),
            ended: stream.ended,
        }
    }

    /// Why the stream broke: the program's last words say more than a closed pipe.
    async fn last_words(self, fallback: String) -> String {
        drop(self.stdin);
        last_words(self.ended).await.unwrap_or(fallback)
    }
}

/// Pieces that were sent and are not yet known to be stored.
type Pending = BTreeMap<String, PieceEntry>;
/// Most of them: the host writes one out while the next one comes.
const MOST_PENDING: usize = 4;

/// Asks a host what it has of a shard. Nothing is sent yet.
///
/// # Errors
/// When the host has no room for what is missing, or does not answer.
pub async fn ask(
    session: &Session,
    base: &Base,
    worker_sha256: &str,
    source: &Source,
    shard: &Shard,
    verify: bool,
) -> Result<Asked, Failure> {
    let folder = base.pieces(source.sha256());
    let mut arguments = vec!["receive", "--folder", &folder];
    if verify {
        arguments.push("--verify");
    }
    let stream = session
        .open(
            "receive pieces",
            &base.worker(worker_sha256, &arguments),
            base.root,
        )
        .await
        .map_err(|error| error.failure(session.host()))?;
    let mut stream = Receiver::new(stream);
    let mut files = Vec::new();
    for slice in &shard.slices {
        let wanted = source
            .wanted(*slice)
            .map_err(|error| failed(session, "push", error))?;
        files.push((*slice, wanted));
    }
    let want = ToReceiver::Want {
        files: files.iter().map(|(_, file)| file.clone()).collect(),
    };
    let mut have = BTreeMap::new();
    let patience = if verify { READING } else { LOOKING };
    let mut talk = async || -> Result<Result<u64, String>, String> {
        stream
            .stdin
            .write_all(&line(&want))
            .await
            .map_err(|error| error.to_string())?;
        stream
            .stdin
            .flush()
            .await
            .map_err(|error| error.to_string())?;
        loop {
            match next_line(&mut stream.stdout, patience).await? {
                FromReceiver::Have {
                    file,
                    offset,
                    complete,
                    sha256,
                } => {
                    have.insert(file, (offset, sha256.filter(|_| complete)));
                }
                FromReceiver::Room { free } => return Ok(Ok(free)),
                FromReceiver::Refused {
                    reason,
                    needed,
                    free,
                    path,
                } => {
                    return Ok(Err(super::conditions::disk(&path, needed, Some(free))
                        .map_or(reason, |breach| breach.message)));
                }
                other => return Err(format!("it answered {other:?}")),
            }
        }
    };
    let free = match talk().await {
        Ok(Ok(free)) => free,
        Ok(Err(reason)) => return Err(failed(session, "disk", reason)),
        Err(error) => {
            let why = stream.last_words(error).await;
            return Err(failed(
                session,
                "push",
                format!("the pieces in {folder} could not be looked at: {why}"),
            ));
        }
    };
    let mut missing = 0u64;
    for (_, file) in &files {
        missing += match have.get(&file.file) {
            Some((_, Some(_))) => 0,
            Some((offset, None)) => file.bytes.saturating_sub(*offset),
            None => file.bytes,
        };
    }
    Ok(Asked {
        stream,
        files,
        have,
        missing,
        free,
    })
}

impl Asked {
    /// Sends what is missing, then the manifest of all the host holds.
    ///
    /// # Errors
    /// When the connection breaks, the disk is full, or something arrives damaged. What arrived
    /// stays, and the next push goes on there.
    pub async fn send(
        mut self,
        session: &Session,
        source: &Arc<Source>,
        feed: &Feed,
        emitter: &Emitter,
    ) -> Result<Pushed, Failure> {
        let scope = Scope::host(session.host()).in_task("push");
        let mut pushed = Pushed {
            planned: self.files.iter().map(|(_, file)| file.bytes).sum(),
            missing: self.missing,
            ..Pushed::default()
        };
        let result = self.talk(source, feed, emitter, &scope, &mut pushed).await;
        emitter.count_sent(session.host(), pushed.sent);
        match result {
            Ok(()) => Ok(pushed),
            Err(Broken::Told(reason)) => Err(failed(session, "push", reason)),
            Err(Broken::Source(failure)) => Err(failure),
            Err(Broken::Lost(error)) => {
                let sent = pushed.sent;
                let why = self.stream.last_words(error).await;
                Err(Failure::new(
                    crate::event::FailureKind::Host,
                    format!(
                        "{}: the transfer broke off after {}: {why}; run the command again, it goes on where it stopped",
                        session.host(),
                        crate::figures::size(sent),
                    ),
                )
                .on(session.host())
                .at("push"))
            }
        }
    }

    async fn talk(
        &mut self,
        source: &Arc<Source>,
        feed: &Feed,
        emitter: &Emitter,
        scope: &Scope,
        pushed: &mut Pushed,
    ) -> Result<(), Broken> {
        // Opened with the first piece that is missing.
        let mut tap = None;
        let mut pending = Pending::new();
        for (slice, file) in std::mem::take(&mut self.files) {
            let (offset, sha256) = self.have.remove(&file.file).unwrap_or((0, None));
            if let Some(sha256) = sha256 {
                pushed.pieces.push(PieceEntry {
                    slice,
                    file: file.file,
                    bytes: file.bytes,
                    sha256,
                });
                continue;
            }
            if tap.is_none() {
                tap = Tap::open(feed).await.map_err(Broken::Source)?;
            }
            match (&mut tap, feed) {
                (None, Feed::Itself(model)) => {
                    let entry = self.made(slice, &file, model).await?;
                    pushed.learnt(source, entry);
                }
                (None, _) => return Err(Broken::Lost("there is nothing to send from".into())),
                (Some(tap), _) => {
                    let entry = self
                        .file(tap, emitter, scope, pushed, slice, &file, offset)
                        .await?;
                    pending.insert(file.file, entry);
                }
            }
            while pending.len() >= MOST_PENDING {
                self.stored(&mut pending, source, pushed).await?;
            }
        }
        while !pending.is_empty() {
            self.stored(&mut pending, source, pushed).await?;
        }
        // Which pieces are whole is known only now, so the manifest is the last to arrive.
        let manifest = source.manifest(pushed.pieces.clone());
        self.manifest(source, &manifest).await?;
        self.write(&line(&ToReceiver::End)).await?;
        match self.answer(STORING).await? {
            FromReceiver::Done { received } => {
                pushed.received = received;
                Ok(())
            }
            other => Err(Broken::Lost(format!("it answered {other:?}"))),
        }
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one step of `talk`, taken out to be read"
    )]
    async fn file(
        &mut self,
        tap: &mut Tap,
        emitter: &Emitter,
        scope: &Scope,
        pushed: &mut Pushed,
        slice: Slice,
        file: &WantedFile,
        offset: u64,
    ) -> Result<PieceEntry, Broken> {
        let offset = offset.min(file.bytes);
        let mut flow = tap
            .piece(slice, file, offset)
            .await
            .map_err(Broken::Source)?;
        self.write(&line(&ToReceiver::File {
            file: file.file.clone(),
            offset,
            bytes: file.bytes,
        }))
        .await?;
        while let Some(chunk) = flow.next().await.map_err(Broken::Source)? {
            self.write(&chunk).await?;
            pushed.sent += chunk.len() as u64;
            emitter.emit(
                scope.clone(),
                Event::Transfer {
                    what: "pieces".into(),
                    done: pushed.sent,
                    total: Some(pushed.missing),
                },
            );
        }
        let entry = flow.end().await.map_err(Broken::Source)?;
        self.write(&line(&ToReceiver::Digest {
            sha256: entry.sha256.clone(),
        }))
        .await?;
        Ok(entry)
    }

    /// Waits for the word that a piece is stored.
    async fn stored(
        &mut self,
        pending: &mut Pending,
        source: &Source,
        pushed: &mut Pushed,
    ) -> Result<(), Broken> {
        let (file, sha256) = match self.answer(STORING).await? {
            FromReceiver::Stored { file, sha256, .. } => (file, sha256),
            FromReceiver::Bad { reason, .. } => return Err(Broken::Told(reason)),
            other => return Err(Broken::Lost(format!("it answered {other:?}"))),
        };
        match pending.remove(&file) {
            Some(entry) if entry.sha256 == sha256 => {
                pushed.learnt(source, entry);
                Ok(())
            }
            _ => Err(Broken::Lost(format!("it stored {file} as {sha256}"))),
        }
    }

    /// Has the host make a piece of its own model file.
    async fn made(
        &mut self,
        slice: Slice,
        file: &WantedFile,
        model: &SourceFile,
    ) -> Result<PieceEntry, Broken> {
        self.write(&line(&ToReceiver::Make {
            file: file.file.clone(),
            bytes: file.bytes,
            slice: slice.to_string(),
            source: model.clone(),
        }))
        .await?;
        match self.answer(STORING).await? {
            FromReceiver::Stored { sha256, .. } => Ok(PieceEntry {
                slice,
                file: file.file.clone(),
                bytes: file.bytes,
                sha256,
            }),
            FromReceiver::Bad { reason, .. } => Err(Broken::Told(reason)),
            other => Err(Broken::Lost(format!("it answered {other:?}"))),
        }
    }

    async fn manifest(&mut self, source: &Source, manifest: &Manifest) -> Result<(), Broken> {
        let (name, text, sha256) = source
            .manifest_file(manifest)
            .map_err(|error| Broken::Told(error.to_string()))?;
        self.write(&line(&ToReceiver::File {
            file: name,
            offset: 0,
            bytes: text.len() as u64,
        }))
        .await?;
        self.write(&text).await?;
        self.write(&line(&ToReceiver::Digest { sha256 })).await?;
        match self.answer(STORING).await? {
            FromReceiver::Stored { .. } => Ok(()),
            FromReceiver::Bad { reason, .. } => Err(Broken::Told(reason)),
            other => Err(Broken::Lost(format!("it answered {other:?}"))),
        }
    }

    /// Writes, unless the host ends the transfer first.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let write = async {
            self.stream.stdin.write_all(bytes).await?;
            self.stream.stdin.flush().await
        };
        match write.await {
            Ok(()) => Ok(()),
            // A full disk is told before the stream closes, after what was stored before.
            Err(error) => loop {
                match next_line(&mut self.stream.stdout, Duration::from_secs(5)).await {
                    Ok(FromReceiver::Stored { .. }) => {}
                    Ok(FromReceiver::Bad { reason, .. } | FromReceiver::Refused { reason, .. }) => {
                        return Err(Broken::Told(reason));
                    }
                    _ => return Err(Broken::Lost(error.to_string())),
                }
            },
        }
    }

    async fn answer(&mut self, patience: Duration) -> Result<FromReceiver, Broken> {
        next_line(&mut self.stream.stdout, patience)
            .await
            .map_err(Broken::Lost)
    }
}

/// How a transfer broke.
enum Broken {
    /// The host said why.
    Told(String),
    /// The bytes could not be had.
    Source(Failure),
    /// The connection broke.
    Lost(String),
}
