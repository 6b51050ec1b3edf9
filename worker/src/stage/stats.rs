//! Counters of a stage, written by its executor, read by whoever reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use windlass_wire::assignment::Assignment;
use windlass_wire::telemetry::StageTelemetry;

use crate::net::link::Sent;

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Stats {
    /// Micro-batches.
    pub steps: AtomicU64,
    /// Rows.
    pub rows: AtomicU64,
    /// Nanoseconds computing.
    pub compute_ns: AtomicU64,
    /// Nanoseconds waiting for input.
    pub wait_ns: AtomicU64,
    /// KV blocks taken.
    pub kv_used: AtomicU32,
    /// Connections refused.
    pub refused: Arc<AtomicU64>,
}

impl Stats {
    /// Counts one micro-batch.
    pub fn step(&self, rows: usize, compute: Duration) {
        self.steps.fetch_add(1, Relaxed);
        self.rows.fetch_add(rows as u64, Relaxed);
        self.compute_ns.fetch_add(nanos(compute), Relaxed);
    }

    /// Counts a wait.
    pub fn waited(&self, wait: Duration) {
        self.wait_ns.fetch_add(nanos(wait), Relaxed);
    }

    /// The counters as a report. `sent`: what went to the next stage.
    pub fn telemetry(&self, who: &StageTelemetry, sent: Option<&Sent>) -> StageTelemetry {
        let mut out = who.clone();
        out.alive = true;
        out.steps = self.steps.load(Relaxed);
        out.rows = self.rows.load(Relaxed);
        out.compute_ns = self.compute_ns.load(Relaxed);
        out.wait_ns = self.wait_ns.load(Relaxed);
        out.kv_used = self.kv_used.load(Relaxed);
        out.peers_refused = self.refused.load(Relaxed);
        out.anonymous_bytes = anonymous_bytes();
        if let Some(sent) = sent {
            out.bytes_sent = sent.bytes.load(Relaxed);
            out.frames_sent = sent.frames.load(Relaxed);
            out.data_bytes_sent = sent.data_bytes.load(Relaxed);
            out.data_frames_sent = sent.data_frames.load(Relaxed);
        }
        out
    }
}

/// The fixed part of a stage's reports.
pub fn describe(assignment: &Assignment, piece_bytes: u64, kv_total: u32) -> StageTelemetry {
    StageTelemetry {
        stage: assignment.stage,
        host: assignment.host.clone(),
        first_layer: assignment.first_layer,
        layers: assignment.layers,
        piece_bytes,
        kv_total,
        alive: true,
        ..StageTelemetry::default()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Resident bytes of this process that no file backs (Linux; 0 elsewhere).
pub fn anonymous_bytes() -> u64 {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}
