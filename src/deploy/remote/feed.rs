//! Where the bytes of pieces come from while a host gets them: a model file on this machine, or one
//! on a host, whose worker makes the pieces. Must not know what becomes of them.

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use windlass_gguf::{
    GgufError, OpenGguf, PieceEntry, PieceName, Slice, write_known_piece, write_piece,
};
use windlass_wire::host::{WantedFile, is_digest, line};
use windlass_wire::source::{CREDIT, FromSource, SourceFile, ToSource};

use super::locks::{last_words, next_line};
use super::program::Program;
use super::site::Site;
use crate::event::{Failure, FailureKind};
use crate::ssh::Ending;

/// Bytes in a chunk.
const CHUNK: usize = 128 << 10;
/// Chunks on their way from a file to the channel.
const WAITING: usize = 16;
/// How long the host of the model may take to say or send something.
const PATIENCE: Duration = Duration::from_secs(120);

/// A model file on a host, and the program there that makes pieces of it.
#[derive(Clone, Debug)]
pub struct Far {
    /// The host.
    pub site: Site,
    /// The worker's program for it.
    pub program: Program,
    /// The file.
    pub file: SourceFile,
}

/// Where the pieces for one host come from.
#[derive(Clone, Debug)]
pub enum Feed {
    /// A model file on this machine.
    Here(Arc<OpenGguf>, String),
    /// One on another host; they pass through this machine and are kept nowhere on it.
    There(Box<Far>),
    /// One on the host itself; they cross no network.
    Itself(SourceFile),
}

/// An open feed.
pub(super) enum Tap {
    Here(Arc<OpenGguf>, String),
    There(Box<Running>),
}

impl Tap {
    /// Opens a feed whose bytes come through this machine; `None` for one whose bytes do not.
    pub async fn open(feed: &Feed) -> Result<Option<Self>, Failure> {
        Ok(match feed {
            Feed::Here(file, sha256) => Some(Self::Here(Arc::clone(file), sha256.clone())),
            Feed::There(far) => Some(Self::There(Box::new(Running::open(far).await?))),
            Feed::Itself(_) => None,
        })
    }

    /// The bytes of a piece's file from an offset on.
    pub async fn piece(
        &mut self,
        slice: Slice,
        file: &WantedFile,
        offset: u64,
    ) -> Result<Flow<'_>, Failure> {
        match self {
            Self::Here(source, sha256) => {
                let (sender, chunks) = mpsc::channel(WAITING);
                let (source, sha256) = (Arc::clone(source), sha256.clone());
                let known = file.sha256.clone();
                let reading = tokio::task::spawn_blocking(move || {
                    let mut out = Chunks {
                        sender,
                        buffer: Vec::with_capacity(CHUNK),
                    };
                    match known {
                        Some(known) => {
                            write_known_piece(&source, &sha256, slice, offset, &known, &mut out)
                        }
                        None => write_piece(&source, &sha256, slice, offset, &mut out),
                    }
                });
                Ok(Flow::Here(chunks, reading))
            }
            Self::There(running) => {
                let left = running.begin(slice, file, offset).await?;
                Ok(Flow::There {
                    running,
                    slice,
                    bytes: file.bytes,
                    left,
                })
            }
        }
    }
}

/// The bytes of one piece.
pub(super) enum Flow<'a> {
    Here(
        mpsc::Receiver<Vec<u8>>,
        JoinHandle<Result<PieceEntry, GgufError>>,
    ),
    There {
        running: &'a mut Running,
        slice: Slice,
        bytes: u64,
        left: u64,
    },
}

impl Flow<'_> {
    /// The next bytes; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        match self {
            Self::Here(chunks, _) => Ok(chunks.recv().await),
            Self::There { left: 0, .. } => Ok(None),
            Self::There { running, left, .. } => {
                let chunk = running.chunk(*left).await?;
                *left -= chunk.len() as u64;
                Ok(Some(chunk))
            }
        }
    }

    /// The piece, whose bytes have all come.
    pub async fn end(self) -> Result<PieceEntry, Failure> {
        match self {
            Self::Here(chunks, reading) => {
                drop(chunks);
                let internal = |error: tokio::task::JoinError| Failure::internal(error.to_string());
                reading
                    .await
                    .map_err(internal)?
                    .map_err(|error| Failure::new(FailureKind::Model, error.to_string()).at("push"))
            }
            Self::There {
                running,
                slice,
                bytes,
                ..
            } => running.end(slice, bytes).await,
        }
    }
}

/// A running `source`.
pub(super) struct Running {
    site: Site,
    file: SourceFile,
    stdin: Pin<Box<dyn AsyncWrite + Send>>,
    stdout: BufReader<Pin<Box<dyn AsyncRead + Send>>>,
    ended: Option<oneshot::Receiver<(Ending, Vec<u8>)>>,
    /// Bytes taken and not yet given back as credit.
    taken: u64,
}

impl Running {
    async fn open(far: &Far) -> Result<Self, Failure> {
        let site = &far.site;
        let script = site.base().worker(&far.program.sha256, &["source"]);
        let stream = site
            .session()
            .open("make pieces", &script, site.base().root)
            .await
            .map_err(|error| error.failure(site.name()))?;
        let mut running = Self {
            site: site.clone(),
            file: far.file.clone(),
            stdin: stream.stdin,
            stdout: BufReader::with_capacity(CHUNK, stream.stdout),
            ended: Some(stream.ended),
            taken: 0,
        };
        let file = far.file.clone();
        running.tell(&ToSource::Open { file }).await?;
        match running.answer().await? {
            FromSource::Opened => Ok(running),
            other => Err(running.unexpected(&other)),
        }
    }

    async fn begin(
        &mut self,
        slice: Slice,
        file: &WantedFile,
        offset: u64,
    ) -> Result<u64, Failure> {
        let message = ToSource::Piece {
            slice: slice.to_string(),
            offset,
        };
        self.tell(&message).await?;
        match self.answer().await? {
            FromSource::Bytes { bytes } if offset.checked_add(bytes) == Some(file.bytes) => {
                Ok(bytes)
            }
            other => Err(self.unexpected(&other)),
        }
    }

    async fn chunk(&mut self, left: u64) -> Result<Vec<u8>, Failure> {
        // What was taken before has been passed on by now.
        if self.taken >= CREDIT / 4 {
            let bytes = std::mem::take(&mut self.taken);
            self.tell(&ToSource::More { bytes }).await?;
        }
        let most = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        let mut chunk = Vec::with_capacity(most);
        let mut from = (&mut self.stdout).take(most as u64);
        let got = timeout(PATIENCE, from.read_buf(&mut chunk)).await;
        match got {
            Ok(Ok(1..)) => {
                self.taken += chunk.len() as u64;
                Ok(chunk)
            }
            Ok(Ok(0)) => Err(self.lost("it ended before the piece did").await),
            Ok(Err(error)) => Err(self.lost(&error.to_string()).await),
            Err(_) => Err(self.lost("nothing came for two minutes").await),
        }
    }

    async fn end(&mut self, slice: Slice, wanted: u64) -> Result<PieceEntry, Failure> {
        match self.answer().await? {
            FromSource::Made { bytes, sha256 } if bytes == wanted && is_digest(&sha256) => {
                let file = PieceName::new(&self.file.sha256, slice)
                    .map_err(|error| self.site.failed("push", error))?
                    .file();
                Ok(PieceEntry {
                    slice,
                    file,
                    bytes,
                    sha256,
                })
            }
            other => Err(self.unexpected(&other)),
        }
    }

    async fn tell(&mut self, message: &ToSource) -> Result<(), Failure> {
        let write = async {
            self.stdin.write_all(&line(message)).await?;
            self.stdin.flush().await
        };
        match write.await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.lost(&error.to_string()).await),
        }
    }

    async fn answer(&mut self) -> Result<FromSource, Failure> {
        match next_line(&mut self.stdout, PATIENCE).await {
            Ok(FromSource::Failed { reason }) => Err(self.site.failed("push", reason)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.lost(&error).await),
        }
    }

    fn unexpected(&self, answer: &FromSource) -> Failure {
        let path = &self.file.path;
        self.site
            .failed("push", format!("{path}: the worker there said {answer:?}"))
    }

    /// Why the stream broke: the program's last words say more than a closed pipe.
    async fn lost(&mut self, what: &str) -> Failure {
        let _ = self.stdin.shutdown().await;
        let Some(ended) = self.ended.take() else {
            return self.site.failed("push", what);
        };
        let words = last_words(ended).await;
        let why = words.as_deref().unwrap_or(what);
        self.site.failed(
            "push",
            format!(
                "pieces of {} are no longer made there: {why}; run the command again, it goes on where it stopped",
                self.file.path
            ),
        )
    }
}

/// Passes chunks from a blocking writer to the channel.
struct Chunks {
    sender: mpsc::Sender<Vec<u8>>,
    buffer: Vec<u8>,
}

impl Chunks {
    fn send(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK));
        self.sender
            .blocking_send(chunk)
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = CHUNK.saturating_sub(self.buffer.len());
        let now = bytes.get(..room).unwrap_or(bytes);
        self.buffer.extend_from_slice(now);
        if self.buffer.len() >= CHUNK {
            self.send()?;
        }
        Ok(now.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}
