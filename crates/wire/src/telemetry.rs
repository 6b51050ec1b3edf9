//! What a deployment says of itself while it runs: by stage, and as a whole on the head.

use serde::{Deserialize, Serialize};

/// Counters of one stage since its start. Differences of two give rates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTelemetry {
    /// Stage.
    pub stage: u32,
    /// Host's name.
    pub host: String,
    /// First layer held.
    pub first_layer: u32,
    /// Layers held.
    pub layers: u32,
    /// Bytes of pieces held.
    pub piece_bytes: u64,
    /// Whether the stage is connected.
    pub alive: bool,
    /// Micro-batches computed.
    pub steps: u64,
    /// Rows computed, prefill and decode.
    pub rows: u64,
    /// Nanoseconds of computing.
    pub compute_ns: u64,
    /// Nanoseconds spent waiting for input.
    pub wait_ns: u64,
    /// Bytes of frames sent to the next stage, before encryption.
    pub bytes_sent: u64,
    /// Frames sent to the next stage.
    pub frames_sent: u64,
    /// Of those, bytes of frames with hidden states or tokens.
    pub data_bytes_sent: u64,
    /// Frames with hidden states or tokens.
    pub data_frames_sent: u64,
    /// KV blocks taken.
    pub kv_used: u32,
    /// KV blocks in all.
    pub kv_total: u32,
    /// Resident bytes of the process that no file backs.
    pub anonymous_bytes: u64,
    /// Connections refused.
    pub peers_refused: u64,
}

/// State of the deployment as its head sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeadStatus {
    /// Deployment's id.
    pub deployment: String,
    /// Name the model is served under.
    pub model: String,
    /// `serving`, `degraded` (a stage is lost) or `starting`.
    pub state: String,
    /// Why, when degraded.
    pub reason: Option<String>,
    /// Address of the API.
    pub api: String,
    /// Grows when stages are re-planned.
    pub epoch: u32,
    /// Seconds since the head began serving.
    pub uptime_s: f64,
    /// Requests whose tokens are being computed.
    pub running: u32,
    /// Requests that wait for room.
    pub waiting: u32,
    /// Prompt tokens computed since the start.
    pub prompt_tokens: u64,
    /// Tokens generated since the start.
    pub generated_tokens: u64,
    /// By stage.
    pub stages: Vec<StageTelemetry>,
}

/// A line of the head's telemetry stream (`/control/events`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum HeadEvent {
    /// State of everything, a few times a second while something changes.
    Status(Box<HeadStatus>),
    /// A stage was lost.
    StageLost {
        /// Stage.
        stage: u32,
        /// Its host.
        host: String,
        /// What was seen.
        reason: String,
        /// Microseconds from the loss seen by the head to every open request ended.
        ended_after_us: u64,
        /// Requests that ended with an error.
        requests: u32,
    },
    /// A request ended.
    Request {
        /// Its id.
        id: String,
        /// `stop`, `length`, `cancelled` or `error`.
        outcome: String,
        /// Prompt tokens.
        prompt_tokens: u32,
        /// Tokens generated.
        tokens: u32,
        /// Milliseconds until the first token, from arrival.
        ttft_ms: f64,
        /// Milliseconds from the first to the last token.
        decode_ms: f64,
    },
}
