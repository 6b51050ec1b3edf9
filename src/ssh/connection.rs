//! One SSH connection that is logged in, and the library's side of it. Must not know commands.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use russh::client::{DisconnectReason, Handle, Handler, Msg};
use russh::keys::PublicKeyOrCertificate;
use russh::{Channel, ChannelOpenFailure, ChannelStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::error::SshError;
use super::known_hosts::KnownHosts;
use super::trust::{Judgement, Trust};

/// What the library told of a connection.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    version: String,
    key: Vec<u8>,
    judgement: Option<Judgement>,
    lost: Option<String>,
}

impl Seen {
    fn told<T>(&self, with: impl FnOnce(&mut Told) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The server's version line.
    pub fn version(&self) -> String {
        self.told(|told| told.version.clone())
    }

    /// The host key it showed, and what became of it; the latter once.
    pub fn judged(&self) -> (Vec<u8>, Option<Judgement>) {
        self.told(|told| (told.key.clone(), told.judgement.take()))
    }

    /// Why the connection ended, if it did.
    pub fn lost(&self) -> Option<String> {
        self.told(|told| told.lost.clone())
    }
}

/// What the library calls.
pub(super) struct Client {
    pub trust: Trust,
    pub known: KnownHosts,
    /// The key that a person has just confirmed.
    pub confirmed: Option<Vec<u8>>,
    pub seen: Arc<Seen>,
}

impl Handler for Client {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        key: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        let key = key.public_key().to_bytes()?;
        let judgement = self
            .trust
            .judge(&self.known, &key, self.confirmed.as_deref());
        let taken = matches!(judgement, Judgement::Good | Judgement::Written(_));
        self.seen.told(|told| {
            told.key = key;
            told.judgement = Some(judgement);
        });
        Ok(taken)
    }

    async fn kex_done(
        &mut self,
        _secret: Option<&[u8]>,
        _names: &russh::Names,
        session: &mut russh::client::Session,
    ) -> Result<(), Self::Error> {
        let version = String::from_utf8_lossy(session.remote_sshid()).into_owned();
        self.seen.told(|told| told.version = version);
        Ok(())
    }

    async fn disconnected(
        &mut self,
        reason: DisconnectReason<Self::Error>,
    ) -> Result<(), Self::Error> {
        let lost = match &reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                let message: String = info.message.chars().filter(|c| !c.is_control()).collect();
                format!("the SSH server ended it and said {message:?}")
            }
            DisconnectReason::Error(russh::Error::KeepaliveTimeout) => {
                "the host answered none of three signs of life".to_owned()
            }
            DisconnectReason::Error(russh::Error::Disconnect | russh::Error::HUP) => {
                "the host closed it".to_owned()
            }
            DisconnectReason::Error(error) => error.to_string(),
        };
        self.seen.told(|told| told.lost = Some(lost));
        match reason {
            DisconnectReason::ReceivedDisconnect(_) => Ok(()),
            DisconnectReason::Error(error) => Err(error),
        }
    }
}

/// A connection that is logged in. It closes when it is dropped.
pub(super) struct Connection {
    handle: Handle<Client>,
    seen: Arc<Seen>,
    /// The connection it goes through.
    _via: Option<Arc<Connection>>,
}

impl Connection {
    pub fn new(handle: Handle<Client>, seen: Arc<Seen>, via: Option<Arc<Self>>) -> Self {
        Self {
            handle,
            seen,
            _via: via,
        }
    }

    /// A channel for a command.
    pub async fn open(&self) -> Result<Channel<Msg>, russh::Error> {
        self.handle.channel_open_session().await
    }

    /// A TCP connection from the host to an address.
    pub async fn tunnel(&self, host: &str, port: u16) -> Result<ChannelStream<Msg>, russh::Error> {
        let port = u32::from(port);
        let channel = self
            .handle
            .channel_open_direct_tcpip(host, port, "127.0.0.1", 0)
            .await?;
        Ok(channel.into_stream())
    }

    /// Why a command was not begun.
    pub fn not_opened(&self, what: &str, error: &russh::Error) -> SshError {
        let message = match error {
            russh::Error::ChannelOpenFailure(
                ChannelOpenFailure::AdministrativelyProhibited
                | ChannelOpenFailure::ConnectFailed
                | ChannelOpenFailure::ResourceShortage,
            ) => format!(
                "the SSH server opens no session for {what}: too many are open at once (its \
                 MaxSessions), or it allows none"
            ),
            _ if self.is_lost() => {
                format!("the connection was lost before {what}: {}", self.lost())
            }
            other => format!("the SSH server opened no session for {what}: {other}"),
        };
        SshError::Unreachable {
            step: "open",
            message,
        }
    }

    /// Whether the connection is gone.
    pub fn is_lost(&self) -> bool {
        self.handle.is_closed()
    }

    /// Why it is gone.
    pub fn lost(&self) -> String {
        self.seen
            .lost()
            .unwrap_or_else(|| "the host closed it".to_owned())
    }
}

/// A byte stream that ends when its other half, [`Held`], is dropped before [`Held::keep`]: the
/// library reads on in a task of its own, and must let go of a host that stays silent.
pub(super) struct Cut<S> {
    inner: S,
    held: Option<oneshot::Receiver<()>>,
}

/// See [`Cut`].
pub(super) struct Held(oneshot::Sender<()>);

impl Held {
    /// The stream is no longer ended from here.
    pub fn keep(self) {
        let _ = self.0.send(());
    }
}

impl<S> Cut<S> {
    pub fn new(inner: S) -> (Self, Held) {
        let (sender, held) = oneshot::channel();
        let held = Some(held);
        (Self { inner, held }, Held(sender))
    }

    /// Whether it was cut.
    fn is_cut(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(held) = &mut self.held else {
            return false;
        };
        match Pin::new(held).poll(cx) {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => {
                self.held = None;
                false
            }
            Poll::Ready(Err(_)) => true,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Cut<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_cut(cx) {
            self.held = Some(oneshot::channel().1);
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cut<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
