//! A shell that was started on a host: bytes to its stdin, and what comes from it. Must not know
//! what it is told to do.

use std::io;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

use super::connection::Connection;
use super::session::Ending;

/// Bytes read from a local process at once.
const PIECE: usize = 64 << 10;

/// Where a process gets its input.
pub(super) type Input = Pin<Box<dyn AsyncWrite + Send>>;

/// A running shell.
pub(super) struct Process {
    /// Its stdin; `shutdown` ends it.
    pub input: Input,
    /// What comes from it.
    pub output: Output,
}

/// What came from a process.
#[derive(Debug)]
pub(super) enum Said {
    /// On stdout.
    Out(Bytes),
    /// On stderr.
    Err(Bytes),
    /// It ended, and what it left behind may hold its streams open. Said at most once.
    Left(Ending),
    /// It ended; nothing more comes.
    Ended(Ending),
    /// The host will not start it; nothing more comes.
    Refused,
    /// The way to it was lost, for this reason; nothing more comes.
    Lost(String),
}

/// What comes from a process. Dropping it gives the process up.
pub(super) enum Output {
    /// By SSH.
    Channel(Box<FromChannel>),
    /// On this machine.
    Child(Box<FromChild>),
}

impl Output {
    /// Waits for more. Nothing is lost when the wait is given up.
    pub async fn next(&mut self) -> Said {
        match self {
            Self::Channel(channel) => channel.next().await,
            Self::Child(child) => child.next().await,
        }
    }

    /// How it ended, once that is known; what it says is dropped. An error is why it cannot be
    /// known.
    pub async fn ending(&mut self) -> Result<Ending, String> {
        match self {
            Self::Channel(channel) => loop {
                if let Some(ending) = channel.ending.clone() {
                    return Ok(ending);
                }
                match channel.next().await {
                    Said::Ended(ending) => return Ok(ending),
                    Said::Lost(reason) => return Err(reason),
                    _ => {}
                }
            },
            Self::Child(child) => match child.child.wait().await {
                Ok(status) => Ok(ending(status)),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

/// Starts the line on a channel.
pub(super) async fn on_channel(
    channel: Channel<Msg>,
    line: &str,
    connection: Arc<Connection>,
) -> Result<Process, russh::Error> {
    let (read, write) = channel.split();
    write.exec(true, line).await?;
    let (closed, watched) = watch::channel(false);
    let input = ToChannel {
        inner: Box::pin(write.make_writer()),
        closed: Box::pin(async move {
            let mut watched = watched;
            // A sender that is gone is a channel that is gone.
            let _ = watched.wait_for(|closed| *closed).await;
        }),
    };
    let output = FromChannel {
        read,
        write: Some(write),
        closed,
        ending: None,
        over: false,
        connection,
    };
    Ok(Process {
        input: Box::pin(input),
        output: Output::Channel(Box::new(output)),
    })
}

/// Stdin of a process at the other end of a channel. The channel's window is all that it waits
/// for, and a channel that was closed never opens its window again: writing ends then.
struct ToChannel {
    inner: Pin<Box<dyn AsyncWrite + Send>>,
    closed: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl ToChannel {
    fn unless_closed<T>(
        &mut self,
        cx: &mut Context<'_>,
        answer: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if answer.is_ready() || self.closed.as_mut().poll(cx).is_pending() {
            return answer;
        }
        // Polled once more it would panic; it stays ready instead.
        self.closed = Box::pin(std::future::ready(()));
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }
}

impl AsyncWrite for ToChannel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let answer = self.inner.as_mut().poll_write(cx, bytes);
        self.unless_closed(cx, answer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let answer = self.inner.as_mut().poll_shutdown(cx);
        self.unless_closed(cx, answer)
    }
}

/// What comes through a channel.
pub(super) struct FromChannel {
    read: ChannelReadHalf,
    write: Option<ChannelWriteHalf<Msg>>,
    closed: watch::Sender<bool>,
    /// It comes before the channel closes, and after or before the last bytes.
    ending: Option<Ending>,
    over: bool,
    /// The channel lives as long as the connection.
    connection: Arc<Connection>,
}

impl FromChannel {
    async fn next(&mut self) -> Said {
        loop {
            if self.over {
                return Said::Ended(self.ending.clone().unwrap_or(Ending::Unknown));
            }
            match self.read.wait().await {
                Some(ChannelMsg::Data { data }) => return Said::Out(data),
                // 1 is the only kind of extended data there is.
                Some(ChannelMsg::ExtendedData { data, ext: 1 }) => return Said::Err(data),
                Some(ChannelMsg::ExitStatus { exit_status }) => {
                    return self.left(Ending::Status(exit_status));
                }
                Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                    return self.left(Ending::Signal(signal(&signal_name)));
                }
                Some(ChannelMsg::Failure) => {
                    self.end();
                    return Said::Refused;
                }
                Some(ChannelMsg::Close) => {
                    // The other side closed it, and the library answered.
                    self.write = None;
                    self.end();
                }
                // The end of its output is not its end: the status may come later.
                Some(_) => {}
                None => {
                    self.write = None;
                    self.end();
                    return Said::Lost(self.connection.lost());
                }
            }
        }
    }

    fn left(&mut self, ending: Ending) -> Said {
        self.ending = Some(ending.clone());
        Said::Left(ending)
    }

    fn end(&mut self) {
        self.over = true;
        let _ = self.closed.send(true);
    }
}

impl Drop for FromChannel {
    fn drop(&mut self) {
        let _ = self.closed.send(true);
        if let (Some(write), Ok(runtime)) =
            (self.write.take(), tokio::runtime::Handle::try_current())
        {
            let connection = self.connection.clone();
            runtime.spawn(async move {
                let _ = write.close().await;
                drop(connection);
            });
        }
    }
}

/// A signal's name without `SIG`.
fn signal(name: &russh::Sig) -> String {
    match name {
        russh::Sig::Custom(name) => name.clone(),
        known => format!("{known:?}"),
    }
}

/// Starts the words on this machine.
pub(super) fn on_this_machine(words: &[&str]) -> io::Result<Process> {
    let mut words = words.iter();
    let program = words.next().copied().unwrap_or("sh");
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let gone = || io::Error::other("a new process without pipes");
    let stdin: ChildStdin = child.stdin.take().ok_or_else(gone)?;
    let output = FromChild {
        left: false,
        stdout: Some(child.stdout.take().ok_or_else(gone)?),
        stderr: Some(child.stderr.take().ok_or_else(gone)?),
        child,
    };
    Ok(Process {
        input: Box::pin(ToChild(Some(stdin))),
        output: Output::Child(Box::new(output)),
    })
}

/// Stdin of a process on this machine. A pipe ends only when it is closed.
struct ToChild(Option<ChildStdin>);

impl ToChild {
    fn open(&mut self) -> io::Result<Pin<&mut ChildStdin>> {
        let stdin = self.0.as_mut().map(Pin::new);
        stdin.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl AsyncWrite for ToChild {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.open() {
            Ok(stdin) => stdin.poll_write(cx, bytes),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.open() {
            Ok(stdin) => stdin.poll_flush(cx),
            Err(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0 = None;
        Poll::Ready(Ok(()))
    }
}

/// What comes from a process on this machine.
pub(super) struct FromChild {
    child: Child,
    /// Whether it was said that it ended.
    left: bool,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

impl FromChild {
    async fn next(&mut self) -> Said {
        loop {
            if self.stdout.is_none() && self.stderr.is_none() {
                return match self.child.wait().await {
                    Ok(status) => Said::Ended(ending(status)),
                    Err(error) => Said::Lost(error.to_string()),
                };
            }
            let (out, bytes) = tokio::select! {
                // What was written before the end comes before it.
                biased;
                bytes = piece(&mut self.stdout) => (true, bytes),
                bytes = piece(&mut self.stderr) => (false, bytes),
                status = self.child.wait(), if !self.left => {
                    self.left = true;
                    return match status {
                        Ok(status) => Said::Left(ending(status)),
                        Err(error) => Said::Lost(error.to_string()),
                    };
                }
            };
            match bytes {
                Some(bytes) if out => return Said::Out(bytes),
                Some(bytes) => return Said::Err(bytes),
                None if out => self.stdout = None,
                None => self.stderr = None,
            }
        }
    }
}

/// The next bytes; `None` at the end. Never ends when there is nothing to read from.
async fn piece<R: AsyncRead + Unpin>(from: &mut Option<R>) -> Option<Bytes> {
    let Some(reader) = from else {
        return std::future::pending().await;
    };
    let mut bytes = BytesMut::with_capacity(PIECE);
    match reader.read_buf(&mut bytes).await {
        Ok(1..) => Some(bytes.freeze()),
        _ => None,
    }
}

fn ending(status: ExitStatus) -> Ending {
    use std::os::unix::process::ExitStatusExt;
    if let Some(code) = status.code().and_then(|code| u32::try_from(code).ok()) {
        return Ending::Status(code);
    }
    match status.signal() {
        Some(number) => Ending::Signal(signal_name(number)),
        None => Ending::Unknown,
    }
}

/// A signal's name without `SIG`; the names that SSH has (RFC 4254, 6.10), else the number.
fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "HUP",
        2 => "INT",
        3 => "QUIT",
        4 => "ILL",
        6 => "ABRT",
        8 => "FPE",
        9 => "KILL",
        11 => "SEGV",
        13 => "PIPE",
        14 => "ALRM",
        15 => "TERM",
        other => return other.to_string(),
    };
    name.to_owned()
}
