//! Tells a started shell what to do and takes what it says: a script to its end, or a program with
//! bytes both ways. Must not know how the shell was started.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::{mpsc, oneshot};

use super::error::SshError;
use super::fence::{END, ENDING, Fence, Markers, NOISE};
use super::process::{Input, Output, Process, Said};
use super::session::{Caps, Ending, Output as Spoken, Stream};
use super::windows;

/// Pieces of a program's stdout that wait for the reader.
const WAITING: usize = 64;

/// How long a shell that is gone may be silent until nothing more is waited for.
const QUIET: Duration = Duration::from_secs(2);

/// Most bytes of a program's stderr that are kept.
const STDERR_KEPT: usize = 64 << 10;

/// Whose shell it is and what for, for messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct What<'a> {
    /// The host.
    pub host: &'a str,
    /// What is run.
    pub what: &'a str,
}

impl What<'_> {
    pub fn broken(&self, reason: impl Into<String>) -> SshError {
        SshError::Broken {
            what: self.what.to_owned(),
            reason: reason.into(),
        }
    }

    pub fn lost(&self, reason: &str) -> SshError {
        SshError::Unreachable {
            step: "run",
            message: format!("the connection was lost during {}: {reason}", self.what),
        }
    }

    pub fn markers(&self) -> Result<Markers, SshError> {
        Markers::new().map_err(|error| self.broken(format!("no random numbers: {error}")))
    }

    /// Why no script began.
    pub fn no_shell(&self, out: &str, err: &str, how: &str) -> SshError {
        if windows::by_answer(out, err) {
            return SshError::Unfit {
                message: windows::WAYS_ON.to_owned(),
            };
        }
        let said = [err, out]
            .into_iter()
            .find(|text| !text.is_empty())
            .map_or_else(
                || "it said nothing".to_owned(),
                |text| format!("it said {:?}", shorten(text)),
            );
        SshError::Unfit {
            message: format!(
                "the login shell did not start `sh` for {}: {said} and {how}; windlass needs a \
                 user whose shell runs `sh`",
                self.what
            ),
        }
    }
}

/// The last 200 characters.
fn shorten(text: &str) -> String {
    let count = text.chars().count();
    text.chars().skip(count.saturating_sub(200)).collect()
}

/// How an ending reads in a sentence.
fn how(ending: &Ending) -> String {
    match ending {
        Ending::Status(status) => format!("ended with status {status}"),
        Ending::Signal(signal) => format!("was ended by signal {signal}"),
        Ending::Unknown => "ended without a status".to_owned(),
    }
}

/// Runs a script to its end.
pub(super) async fn run(
    what: What<'_>,
    process: Process,
    script: &str,
    caps: Caps,
) -> Result<Spoken, SshError> {
    let markers = what.markers()?;
    let text = markers.around(script);
    let Process { input, mut output } = process;
    let send = send(input, text.as_bytes());
    tokio::pin!(send);
    let hear = hear(what, &markers, &mut output, caps);
    tokio::pin!(hear);
    // A script that is not read to its end has ended before; what it said tells why.
    let mut sent = false;
    loop {
        tokio::select! {
            heard = &mut hear => return heard,
            _ = &mut send, if !sent => sent = true,
        }
    }
}

/// Runs a script to its end that ends with whoever asked for it. When it takes too long or says too much
/// it is ended, with all that it started; so it is when this is dropped, or the host is lost.
pub(super) async fn run_bound(
    what: What<'_>,
    process: Process,
    script: &str,
    caps: Caps,
) -> Result<Spoken, SshError> {
    let markers = what.markers()?;
    let text = markers.bound(script);
    // The input stays open until the script has ended.
    let Process {
        mut input,
        mut output,
    } = process;
    let heard = {
        let work = async {
            let send = async {
                input.write_all(text.as_bytes()).await?;
                input.flush().await
            };
            tokio::pin!(send);
            let hear = hear(what, &markers, &mut output, caps);
            tokio::pin!(hear);
            let mut sent: Option<io::Result<()>> = None;
            loop {
                tokio::select! {
                    heard = &mut hear => return heard,
                    done = &mut send, if sent.is_none() => sent = Some(done),
                }
            }
        };
        tokio::time::timeout(caps.time, work).await
    };
    let error = match heard {
        Ok(Err(error @ SshError::TooMuch { .. })) => error,
        Ok(heard) => return heard,
        Err(_) => SshError::TooLong {
            what: what.what.to_owned(),
            time: caps.time,
        },
    };
    // Whoever is told that it was ended finds nothing of it. A host that is lost ends it by itself.
    let ended = async {
        input.write_all(END).await.ok()?;
        input.flush().await.ok()?;
        // Its guard holds a stream until the last of them is gone.
        while !matches!(
            output.next().await,
            Said::Ended(_) | Said::Lost(_) | Said::Refused
        ) {}
        Some(())
    };
    let _ = tokio::time::timeout(ENDING, ended).await;
    Err(error)
}

async fn send(mut input: Input, text: &[u8]) -> io::Result<()> {
    input.write_all(text).await?;
    input.shutdown().await
}

async fn hear(
    what: What<'_>,
    markers: &Markers,
    output: &mut Output,
    caps: Caps,
) -> Result<Spoken, SshError> {
    let (mut out, mut err) = (Part::new(markers.both()), Part::new(markers.both()));
    let too_much = |stream, cap| SshError::TooMuch {
        what: what.what.to_owned(),
        stream,
        cap,
    };
    let mut left = None;
    let ending = loop {
        if out.fence.ended() && err.fence.ended() {
            // Whatever the script left behind in the background may hold the streams open.
            break output.ending().await;
        }
        let said = match &left {
            None => output.next().await,
            // So it may when the shell was killed.
            Some(ending) => match tokio::time::timeout(QUIET, output.next()).await {
                Ok(said) => said,
                Err(_) => break Ok(Ending::clone(ending)),
            },
        };
        match said {
            Said::Left(ending) => left = Some(ending),
            Said::Out(bytes) => out.push(&bytes),
            Said::Err(bytes) => err.push(&bytes),
            Said::Ended(ending) => break Ok(ending),
            Said::Refused => {
                return Err(what.no_shell("", "", "the SSH server runs no commands"));
            }
            Said::Lost(reason) => break Err(reason),
        }
        if out.text.len() > caps.stdout {
            return Err(too_much("stdout", caps.stdout));
        }
        if err.text.len() > caps.stderr {
            return Err(too_much("stderr", caps.stderr));
        }
        if out.fence.too_noisy() || err.fence.too_noisy() {
            return Err(noisy(what));
        }
    };
    let ending = ending.map_err(|reason| what.lost(&reason))?;
    if !out.fence.begun() {
        return Err(what.no_shell(&out.fence.noise(), &err.fence.noise(), &how(&ending)));
    }
    // A shell that was killed says no last words.
    if !out.fence.ended() && !matches!(ending, Ending::Signal(_)) {
        return Err(what.broken(format!(
            "its output was cut off; the shell {}",
            how(&ending)
        )));
    }
    Ok(Spoken {
        ending,
        stdout: out.text,
        stderr: err.text,
    })
}

fn noisy(what: What<'_>) -> SshError {
    what.broken(format!(
        "the login said more than {NOISE} bytes before the command began"
    ))
}

/// One stream with its fence.
struct Part {
    fence: Fence,
    text: Vec<u8>,
}

impl Part {
    fn new(fence: Fence) -> Self {
        Self {
            fence,
            text: Vec::new(),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.fence.push(bytes, &mut self.text);
    }
}

/// Starts a program whose stdin and stdout carry bytes. It is sent nothing before the shell has
/// read the whole script: a shell that reads in blocks would keep what follows for itself.
pub(super) async fn open(
    what: What<'_>,
    process: Process,
    script: &str,
) -> Result<Stream, SshError> {
    let markers = what.markers()?;
    let Process {
        mut input,
        mut output,
    } = process;
    let text = markers.before(script);
    let (mut out, mut err) = (Part::new(markers.begin()), Part::new(markers.begin()));
    let mut sent = false;
    {
        let send = async {
            input.write_all(text.as_bytes()).await?;
            input.flush().await
        };
        tokio::pin!(send);
        while !out.fence.begun() {
            let said = tokio::select! {
                // What the shell says of a script that it did not take tells more.
                _ = &mut send, if !sent => {
                    sent = true;
                    continue;
                }
                said = output.next() => said,
            };
            let how = match said {
                Said::Out(bytes) => {
                    out.push(&bytes);
                    None
                }
                Said::Err(bytes) => {
                    err.push(&bytes);
                    None
                }
                Said::Left(_) => None,
                Said::Ended(ending) => Some(how(&ending)),
                Said::Refused => Some("the SSH server runs no commands".to_owned()),
                Said::Lost(reason) => return Err(what.lost(&reason)),
            };
            if let Some(how) = how {
                return Err(what.no_shell(&out.fence.noise(), &err.fence.noise(), &how));
            }
            if out.fence.too_noisy() || err.fence.too_noisy() {
                return Err(noisy(what));
            }
        }
    }
    let (pieces, waiting) = mpsc::channel(WAITING);
    let (ended, ending) = oneshot::channel();
    let (held, let_go) = mpsc::channel::<()>(1);
    let held = Arc::new(held);
    if !out.text.is_empty() {
        let _ = pieces.try_send(Bytes::from(std::mem::take(&mut out.text)));
    }
    tokio::spawn(pump(output, err, pieces, ended, let_go));
    Ok(Stream {
        stdin: Box::pin(Stdin {
            input,
            _held: held.clone(),
        }),
        stdout: Box::pin(Stdout {
            waiting,
            piece: Bytes::new(),
            _held: held,
        }),
        ended: ending,
    })
}

/// Carries a program's output until it ends or nobody holds any end of it.
async fn pump(
    mut output: Output,
    mut err: Part,
    pieces: mpsc::Sender<Bytes>,
    mut ended: oneshot::Sender<(Ending, Vec<u8>)>,
    mut let_go: mpsc::Receiver<()>,
) {
    let (ending, last) = {
        let carry = async {
            loop {
                match output.next().await {
                    // A reader that is gone does not stop the program's other ends.
                    Said::Out(bytes) => {
                        let _ = pieces.send(bytes).await;
                    }
                    Said::Err(bytes) => {
                        err.push(&bytes);
                        let past = err.text.len().saturating_sub(STDERR_KEPT);
                        err.text.drain(..past);
                    }
                    Said::Left(_) => {}
                    Said::Ended(ending) => return (ending, None),
                    Said::Refused => return (Ending::Unknown, None),
                    Said::Lost(reason) => return (Ending::Unknown, Some(reason)),
                }
            }
        };
        let alone = async {
            while let_go.recv().await.is_some() {}
            ended.closed().await;
        };
        tokio::select! {
            ending = carry => ending,
            () = alone => return,
        }
    };
    drop(pieces);
    let mut words = err.text;
    if let Some(reason) = last {
        words.extend_from_slice(format!("\nthe connection was lost: {reason}\n").as_bytes());
    }
    let _ = ended.send((ending, words));
}

/// To a program.
struct Stdin {
    input: Input,
    _held: Arc<mpsc::Sender<()>>,
}

impl AsyncWrite for Stdin {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.input.as_mut().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_shutdown(cx)
    }
}

/// From a program.
struct Stdout {
    waiting: mpsc::Receiver<Bytes>,
    piece: Bytes,
    _held: Arc<mpsc::Sender<()>>,
}

impl AsyncRead for Stdout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.piece.is_empty() {
            match std::task::ready!(self.waiting.poll_recv(cx)) {
                Some(piece) => self.piece = piece,
                None => return Poll::Ready(Ok(())),
            }
        }
        let most = buffer.remaining().min(self.piece.len());
        if let Some(part) = self.piece.get(..most) {
            buffer.put_slice(part);
        }
        self.piece.advance(most);
        Poll::Ready(Ok(()))
    }
}
