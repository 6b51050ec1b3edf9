//! Sockets of the API: TCP for users, a Unix socket for the controller; their begin and end.
//!
//! Must not know what a request asks for.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::{Listener, ListenerExt};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::ApiState;
use super::gate::Gate;
use super::generate::Phase;
use super::routes::{self, Shared};

/// Connections over TCP at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// Controllers at once.
const MAX_CONTROLLERS: usize = 64;
/// Longest time for a request's headers to arrive, also between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long cut requests have to say so.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why the API cannot be served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// An address that others can reach, without a key.
    #[error(
        "the API would listen on {0}, which others can reach, without an API key: set one, or listen on 127.0.0.1"
    )]
    KeyNeeded(SocketAddr),
    /// The hash in the assignment is none.
    #[error("the API key's hash is not 64 hex digits: it must be the key's SHA-256")]
    KeyHash,
    /// The listener has no address.
    #[error("cannot read the API listener's address: {0}")]
    Address(io::Error),
    /// The control socket cannot be made.
    #[error("cannot make the control socket {path}: {error}")]
    Control {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// The API, its sockets open, not yet answering.
pub struct Server {
    listener: TcpListener,
    gate: Gate,
    control: Option<ControlSocket>,
    state: ApiState,
}

impl Server {
    /// Checks that `listener` may be served, and makes the controller's socket at `control` (mode
    /// 0600); a socket that nobody answers any more is replaced. From here on connections wait,
    /// and are answered once [`Server::run`] is polled. Needs a tokio runtime.
    ///
    /// # Errors
    /// When others could reach the API without a key, or the socket cannot be made.
    pub fn bind(
        listener: TcpListener,
        control: Option<PathBuf>,
        state: ApiState,
    ) -> Result<Self, ServeError> {
        let address = listener.local_addr().map_err(ServeError::Address)?;
        let gate =
            Gate::new(state.api_key_sha256.as_deref(), address).ok_or(ServeError::KeyHash)?;
        if !gate.keyed() && !address.ip().is_loopback() {
            return Err(ServeError::KeyNeeded(address));
        }
        Ok(Self {
            control: control.map(ControlSocket::bind).transpose()?,
            listener,
            gate,
            state,
        })
    }

    /// Answers requests until `shutdown` completes; then open requests have the state's time of
    /// grace to end. Removes the controller's socket.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        let (phase, watched) = watch::channel(Phase::Serving);
        let grace = self.state.grace;
        let shared = Shared::new(self.state, watched.clone());
        // Without this, a token's few bytes may wait for the client to acknowledge the last ones.
        let listener = self.listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let mut loops = JoinSet::new();
        loops.spawn(accept(
            listener,
            routes::public(shared.clone(), self.gate),
            MAX_CONNECTIONS,
            watched.clone(),
        ));
        let path = self.control.map(|ControlSocket { listener, path }| {
            let router = routes::control(shared);
            loops.spawn(accept(listener, router, MAX_CONTROLLERS, watched));
            path
        });

        shutdown.await;
        phase.send_replace(Phase::Stopping);
        let all = async { while loops.join_next().await.is_some() {} };
        tokio::pin!(all);
        if tokio::time::timeout(grace, &mut all).await.is_err() {
            phase.send_replace(Phase::Cutting);
            // What has not ended then is aborted when the set is dropped.
            let _ = tokio::time::timeout(LAST_WORDS, &mut all).await;
        }
        drop(path);
    }
}

/// [`Server::bind`] and [`Server::run`] in one.
///
/// # Errors
/// Those of [`Server::bind`].
///
/// `shutdown` is first polled when both sockets listen, so it may also announce that.
pub async fn serve(
    listener: TcpListener,
    control: Option<PathBuf>,
    state: ApiState,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    Server::bind(listener, control, state)?.run(shutdown).await;
    Ok(())
}

/// Accepts connections until the server ends, then waits for those that are open.
async fn accept<L: Listener>(
    mut listener: L,
    router: Router,
    most: usize,
    phase: watch::Receiver<Phase>,
) {
    let permits = Arc::new(Semaphore::new(most));
    let mut open = JoinSet::new();
    let mut ending = phase.clone();
    loop {
        let next = async {
            let permit = permits.clone().acquire_owned().await;
            (permit, listener.accept().await.0)
        };
        let (permit, io) = tokio::select! {
            biased;
            _ = ending.wait_for(|phase| *phase >= Phase::Stopping) => break,
            next = next => next,
            Some(_) = open.join_next(), if !open.is_empty() => continue,
        };
        let service = TowerToHyperService::new(router.clone());
        let mut phase = phase.clone();
        open.spawn(async move {
            let _permit = permit;
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(io), service);
            tokio::pin!(connection);
            tokio::select! {
                // A client that breaks its connection concerns nobody else.
                _ = connection.as_mut() => return,
                _ = phase.wait_for(|phase| *phase >= Phase::Stopping) => {}
            }
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        });
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

/// The controller's socket; its file goes when this is dropped.
struct ControlSocket {
    listener: UnixListener,
    path: SocketFile,
}

struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl ControlSocket {
    fn bind(path: PathBuf) -> Result<Self, ServeError> {
        match Self::try_bind(&path) {
            Ok(listener) => Ok(Self {
                listener,
                path: SocketFile(path),
            }),
            Err(error) => Err(ServeError::Control { path, error }),
        }
    }

    fn try_bind(path: &Path) -> io::Result<UnixListener> {
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "something that is no socket is there; remove it or name another path",
                ));
            }
            Ok(_) => {
                if std::os::unix::net::UnixStream::connect(path).is_ok() {
                    return Err(io::Error::new(
                        io::ErrorKind::AddrInUse,
                        "another process answers there; stop it first",
                    ));
                }
            }
        }
        // Made in a folder of its own and moved when its mode is right, so that at no time
        // another user can open it.
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let folder = parent.join(format!(".w{:08x}", u32::from_le_bytes(random)));
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let made = folder.join("s");
        let bound = std::os::unix::net::UnixListener::bind(&made).and_then(|listener| {
            std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o600))?;
            std::fs::rename(&made, path)?;
            listener.set_nonblocking(true)?;
            UnixListener::from_std(listener)
        });
        if bound.is_err() {
            let _ = std::fs::remove_file(&made);
        }
        let _ = std::fs::remove_dir(&folder);
        bound
    }
}
