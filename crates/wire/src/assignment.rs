//! What the orchestrator tells a worker at its start, and what the worker reports on stdout.
//!
//! The demo writes these as JSON lines to the child's stdin; a unit reads them from its
//! deployment's folder. Each line is one [`ToWorker`]; each line of stdout is one [`FromWorker`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A line to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum ToWorker {
    /// First line: what the worker is.
    Assign(Box<Assignment>),
    /// Where the stages listen, by stage, once all have said so.
    Peers {
        /// Addresses (`ip:port`) by stage.
        addresses: Vec<String>,
    },
    /// End.
    Stop,
}

/// What one worker is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// Deployment's id; certificates name it.
    pub deployment: String,
    /// Name of the host, for messages.
    pub host: String,
    /// This worker's stage, from 0; stage 0 is the head.
    pub stage: u32,
    /// Number of stages.
    pub stages: u32,
    /// First layer held.
    pub first_layer: u32,
    /// Number of layers held.
    pub layers: u32,
    /// Address for the other stages; port 0 takes any.
    pub listen: String,
    /// Folder of the pieces.
    pub pieces: PathBuf,
    /// Manifest of the pieces: a file in that folder.
    pub manifest: String,
    /// Key and certificates; absent with one stage.
    pub identity: Option<Identity>,
    /// The head's API; absent on other stages.
    pub api: Option<ApiAssignment>,
    /// Tokens of context a sequence may have.
    pub context: u32,
    /// KV blocks (of 32 positions) to hold for all sequences together.
    pub kv_blocks: u32,
    /// Threads for the kernels.
    pub threads: u32,
    /// Most rows in a micro-batch.
    pub batch_rows: u32,
    /// Whether the end of stdin ends the worker (it then dies with its controller).
    pub follow_stdin: bool,
}

/// What `serve` finds in its deployment's folder, in the file [`ORDERS_FILE`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Orders {
    /// What the worker is.
    pub assignment: Assignment,
    /// Addresses (`ip:port`) of all stages' data ports, by stage.
    pub peers: Vec<String>,
    /// Names of all stages' hosts, by stage, so that the head can name one it never met.
    #[serde(default)]
    pub hosts: Vec<String>,
}

/// Name of the file with a stage's [`Orders`], mode 0600: it holds the stage's key.
pub const ORDERS_FILE: &str = "assignment.json";

/// A stage's key and what it trusts, PEM.
#[derive(Clone, Serialize, Deserialize)]
pub struct Identity {
    /// The deployment's authority: the only root peers are checked against.
    pub authority: String,
    /// This stage's certificate.
    pub certificate: String,
    /// Its private key (PKCS #8).
    pub key: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity(…)")
    }
}

/// Name in a stage's certificate.
pub fn stage_name(deployment: &str, stage: u32) -> String {
    format!("stage-{stage}.{deployment}.windlass.internal")
}

/// The API that the head answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiAssignment {
    /// Address of the API; port 0 takes any.
    pub listen: String,
    /// Unix socket for the controller, mode 0600.
    pub control: PathBuf,
    /// Name the model is served under.
    pub model: String,
    /// SHA-256 of the API key, hex; required when `listen` is not loopback.
    pub api_key_sha256: Option<String>,
}

/// A line from a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum FromWorker {
    /// The stage listens for its peers.
    Listening {
        /// `ip:port`.
        address: String,
    },
    /// The stage's pieces are checked and mapped.
    Loaded {
        /// Layers held.
        layers: u32,
        /// Bytes of its pieces.
        bytes: u64,
        /// Seconds it took.
        seconds: f64,
        /// Device and instruction tier that compute, e.g. `CPU x86-64/avx2, 1 thread`.
        device: String,
    },
    /// All connections stand.
    Ready,
    /// The head answers requests.
    Serving {
        /// `ip:port` of the API.
        api: String,
    },
    /// A connection was refused; the worker goes on.
    PeerRefused {
        /// `ip:port` of the peer.
        peer: String,
        /// Why.
        reason: String,
    },
    /// A neighbour or the head was lost.
    PeerLost {
        /// Stage that was lost.
        stage: u32,
        /// What was seen.
        reason: String,
        /// KV blocks still taken here, after clean-up.
        kv_used: u32,
    },
    /// Something worth knowing.
    Log {
        /// `info`, `warn` or `error`.
        level: String,
        /// One sentence.
        message: String,
    },
    /// The worker ends because of this.
    Failed {
        /// `usage`, `piece`, `model`, `memory`, `network`, `port` (taken), `peer` or `internal`.
        kind: String,
        /// One sentence that names the file or peer and what to do.
        message: String,
    },
}
