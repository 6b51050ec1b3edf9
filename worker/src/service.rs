//! The head's HTTP side: the API on TCP, the controller's socket, and the clock that publishes
//! the state while it changes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use windlass_gguf::{MappedGguf, Slice};
use windlass_wire::assignment::{ApiAssignment, Assignment};
use windlass_wire::telemetry::{HeadEvent, HeadStatus};

use crate::api::language::ModelLanguage;
use crate::api::{ApiState, Server};
use crate::head::board::Board;
use crate::head::handle::HeadHandle;

/// How long open requests may go on once the worker is told to stop; shorter than the worker itself
/// may take.
const API_GRACE: Duration = Duration::from_secs(2);
/// How often a changed state is published.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// An API whose sockets are open: who connects waits until [`Service::run`].
pub struct Service {
    runtime: tokio::runtime::Runtime,
    server: Server,
    address: SocketAddr,
    handle: HeadHandle,
    stop: Arc<watch::Sender<bool>>,
}

impl Service {
    /// Listens, with `bound` when that stands already.
    pub fn open(
        api: &ApiAssignment,
        bound: Option<std::net::TcpListener>,
        language: ModelLanguage,
        handle: HeadHandle,
    ) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|e| format!("start the API's threads: {e}"))?;
        let listen = async {
            match bound {
                Some(bound) => {
                    bound.set_nonblocking(true)?;
                    TcpListener::from_std(bound)
                }
                None => TcpListener::bind(&api.listen).await,
            }
        };
        let listener = runtime
            .block_on(listen)
            .map_err(|e| format!("listen at {} for the API: {e}", api.listen))?;
        let address = listener
            .local_addr()
            .map_err(|e| format!("read the API's address: {e}"))?;
        let state = ApiState {
            handle: handle.clone(),
            language: Arc::new(language),
            model: api.model.clone(),
            api_key_sha256: api.api_key_sha256.clone(),
            grace: API_GRACE,
        };
        let server = {
            let _inside = runtime.enter();
            Server::bind(listener, Some(api.control.clone()), state).map_err(|e| e.to_string())?
        };
        Ok(Self {
            runtime,
            server,
            address,
            handle,
            stop: Arc::new(watch::channel(false).0),
        })
    }

    /// Where the API listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends [`Service::run`] when called.
    pub fn stopper(&self) -> impl FnOnce() + Send + 'static {
        let stop = self.stop.clone();
        move || {
            stop.send_replace(true);
        }
    }

    /// Answers until stopped.
    pub fn run(self, board: &Arc<Board>, published: &watch::Sender<HeadStatus>) {
        let mut stopped = self.stop.subscribe();
        let handle = self.handle;
        let served = self.server.run(async move {
            drop(stopped.wait_for(|stop| *stop).await);
        });
        let clock = async {
            let mut ticks = tokio::time::interval(PUBLISH_EVERY);
            loop {
                ticks.tick().await;
                let now = board.status();
                let changed = published.send_if_modified(|last| {
                    let changed = !same(last, &now);
                    last.clone_from(&now);
                    changed
                });
                if changed {
                    handle.publish(HeadEvent::Status(Box::new(now)));
                }
            }
        };
        self.runtime.block_on(async {
            tokio::select! {
                () = served => {}
                () = clock => {}
            }
        });
    }
}

/// Whether two states differ in nothing but clocks.
fn same(a: &HeadStatus, b: &HeadStatus) -> bool {
    let still = |status: &HeadStatus| {
        let mut status = status.clone();
        status.uptime_s = 0.0;
        for stage in &mut status.stages {
            stage.wait_ns = 0;
            stage.anonymous_bytes = 0;
        }
        status
    };
    still(a) == still(b)
}

/// The served model's own tokenizer and template, from the metadata piece.
pub fn language(assignment: &Assignment) -> Result<ModelLanguage, String> {
    let path = assignment.pieces.join(&assignment.manifest);
    let bad = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let text = std::fs::read(&path).map_err(|e| bad(&e))?;
    let manifest: windlass_gguf::Manifest = serde_json::from_slice(&text).map_err(|e| bad(&e))?;
    let piece = manifest.piece(Slice::Metadata).ok_or_else(|| {
        bad(&"it lists no metadata piece, which the head needs for the tokenizer")
    })?;
    windlass_gguf::verify_piece(&assignment.pieces, piece).map_err(|e| e.to_string())?;
    let file = MappedGguf::open(assignment.pieces.join(&piece.file)).map_err(|e| e.to_string())?;
    ModelLanguage::from_metadata(file.header().metadata()).map_err(|e| e.to_string())
}
