//! Carries local connections to a socket on a host, each through a channel of its own. Must not
//! know what is said over them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;

use super::base::Base;
use crate::ssh::{Session, SshError};

/// The far end: a Unix socket on a host.
#[derive(Clone, Debug)]
pub struct Far {
    /// The host.
    pub session: Session,
    /// Where things are there.
    pub base: Base,
    /// Digest of the worker's program there, which does the copying.
    pub worker_sha256: String,
    /// The socket.
    pub socket: String,
}

impl Far {
    /// Connects: bytes both ways.
    ///
    /// # Errors
    /// When no channel can be opened.
    pub async fn connect(
        &self,
    ) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>, SshError> {
        let script = self
            .base
            .worker(&self.worker_sha256, &["relay", &self.socket]);
        let stream = self
            .session
            .open("relay to the head", &script, self.base.root)
            .await?;
        Ok(tokio::io::join(stream.stdout, stream.stdin))
    }
}

/// A local end, closed when dropped.
#[derive(Debug)]
pub struct Forward {
    task: JoinHandle<()>,
    socket: Option<PathBuf>,
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(socket) = &self.socket {
            // It may be gone with its folder.
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// Opens a Unix socket of this machine that leads to the far one. Its folder must be private.
///
/// # Errors
/// When it cannot be made.
pub fn unix(far: Far, socket: &Path) -> std::io::Result<Forward> {
    let listener = UnixListener::bind(socket)?;
    let task = tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            carry(far.clone(), near);
        }
    });
    Ok(Forward {
        task,
        socket: Some(socket.to_owned()),
    })
}

/// Opens a port of this machine that leads to the far socket. Returns its address.
///
/// # Errors
/// When it cannot be opened.
pub async fn tcp(far: Far, listen: SocketAddr) -> std::io::Result<(Forward, SocketAddr)> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let task = tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            // A stream of tokens is many small writes.
            let _ = near.set_nodelay(true);
            carry(far.clone(), near);
        }
    });
    Ok((Forward { task, socket: None }, address))
}

fn carry(far: Far, mut near: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
    tokio::spawn(async move {
        // A far end that cannot be reached closes the near one, which its user sees.
        if let Ok(mut far) = far.connect().await {
            let _ = copy_bidirectional(&mut near, &mut far).await;
        }
    });
}
