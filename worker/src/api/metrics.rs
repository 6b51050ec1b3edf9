//! `/metrics`: counters and histograms of requests, gauges of the head and its stages.
//!
//! Suffixes, units and bucket edges follow vLLM's metrics, with the prefix `windlass`, so that a
//! dashboard made for those works after renaming. Written in the OpenMetrics text format.

use std::fmt;
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use windlass_wire::telemetry::StageTelemetry;

use crate::head::handle::HeadHandle;

/// `Content-Type` of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const FIRST_TOKEN: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const BETWEEN_TOKENS: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const REQUEST: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];

type Labels = Vec<(&'static str, String)>;

/// All metrics of the API.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    model: String,
    outcomes: Family<Labels, Counter>,
    first_token: Histogram,
    between_tokens: Histogram,
    request: Histogram,
    queue: Histogram,
    prefill: Histogram,
    decode: Histogram,
}

/// Times of a request that was answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Until prefill began.
    pub queue: Duration,
    /// From then to the first token.
    pub prefill: Duration,
    /// From the first to the last token.
    pub decode: Duration,
}

impl Metrics {
    /// Metrics of the model served under this name; gauges come from `handle`.
    pub fn new(model: &str, handle: HeadHandle) -> Self {
        let mut registry = Registry::with_prefix("windlass");
        let outcomes = Family::default();
        registry.register(
            "request_success",
            "Sequences that ended, by reason; one request may ask for several",
            outcomes.clone(),
        );
        let labels = vec![("model_name".into(), model.to_owned().into())];
        let of_model = registry.sub_registry_with_labels(labels.into_iter());
        let mut histogram = |name: &str, help: &str, edges: &[f64]| {
            let histogram = Histogram::new(edges.iter().copied());
            of_model.register(name, help, histogram.clone());
            histogram
        };
        let first_token = histogram(
            "time_to_first_token_seconds",
            "From a request's arrival to its first token",
            &FIRST_TOKEN,
        );
        let between_tokens = histogram(
            "inter_token_latency_seconds",
            "From one token of a sequence to the next",
            &BETWEEN_TOKENS,
        );
        let request = histogram(
            "e2e_request_latency_seconds",
            "From a request's arrival to its end",
            &REQUEST,
        );
        let queue = histogram(
            "request_queue_time_seconds",
            "From a request's arrival to its prefill",
            &REQUEST,
        );
        let prefill = histogram(
            "request_prefill_time_seconds",
            "From the begin of prefill to the first token",
            &REQUEST,
        );
        let decode = histogram(
            "request_decode_time_seconds",
            "From the first to the last token",
            &REQUEST,
        );
        registry.register_collector(Box::new(HeadCollector {
            model: model.to_owned(),
            handle,
        }));
        Self {
            registry,
            model: model.to_owned(),
            outcomes,
            first_token,
            between_tokens,
            request,
            queue,
            prefill,
            decode,
        }
    }

    /// The text of `/metrics`.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn ended(&self, reason: &str) {
        self.outcomes
            .get_or_create(&vec![
                ("finished_reason", reason.to_owned()),
                ("model_name", self.model.clone()),
            ])
            .inc();
    }
}

/// Follows one sequence. Dropped without an end, it counts as aborted.
#[derive(Debug)]
pub struct Tracker {
    metrics: std::sync::Arc<Metrics>,
    arrival: Instant,
    last: Option<Instant>,
    ended: bool,
}

impl Tracker {
    /// Follows a sequence whose request came at `arrival`.
    pub fn new(metrics: std::sync::Arc<Metrics>, arrival: Instant) -> Self {
        Self {
            metrics,
            arrival,
            last: None,
            ended: false,
        }
    }

    /// When the request came.
    pub fn arrival(&self) -> Instant {
        self.arrival
    }

    /// A token came.
    pub fn token(&mut self, at: Instant) {
        let (histogram, since) = match self.last {
            None => (&self.metrics.first_token, self.arrival),
            Some(last) => (&self.metrics.between_tokens, last),
        };
        histogram.observe(at.saturating_duration_since(since).as_secs_f64());
        self.last = Some(at);
    }

    /// The sequence is complete: `stop` or `length`.
    pub fn finished(&mut self, reason: &str, times: Times) {
        self.ended = true;
        let metrics = &self.metrics;
        metrics.ended(reason);
        metrics
            .request
            .observe(self.arrival.elapsed().as_secs_f64());
        metrics.queue.observe(times.queue.as_secs_f64());
        metrics.prefill.observe(times.prefill.as_secs_f64());
        metrics.decode.observe(times.decode.as_secs_f64());
    }

    /// The sequence failed.
    pub fn failed(&mut self) {
        self.ended = true;
        self.metrics.ended("error");
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        if !self.ended {
            self.metrics.ended("abort");
        }
    }
}

/// Reads the head's state when it is asked.
struct HeadCollector {
    model: String,
    handle: HeadHandle,
}

impl fmt::Debug for HeadCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeadCollector")
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl Collector for HeadCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let status = self.handle.status();
        let model: Labels = vec![("model_name", self.model.clone())];
        let usage = status
            .stages
            .iter()
            .filter(|stage| stage.kv_total > 0)
            .map(|stage| f64::from(stage.kv_used) / f64::from(stage.kv_total))
            .fold(0.0, f64::max);
        for (name, help, value) in [
            (
                "num_requests_running",
                "Sequences whose tokens are being computed",
                f64::from(status.running),
            ),
            (
                "num_requests_waiting",
                "Sequences that wait for room",
                f64::from(status.waiting),
            ),
            (
                "kv_cache_usage_perc",
                "Part of the KV blocks in use on the fullest stage; 1 is all",
                usage,
            ),
            (
                "serving",
                "1 while requests are answered, 0 while the deployment starts or is degraded",
                f64::from(u8::from(status.state == "serving")),
            ),
        ] {
            family(&mut encoder, name, help, [(&model, ConstGauge::new(value))])?;
        }
        for (name, help, value) in [
            (
                "prompt_tokens",
                "Prompt tokens computed",
                status.prompt_tokens,
            ),
            (
                "generation_tokens",
                "Tokens generated",
                status.generated_tokens,
            ),
        ] {
            family(
                &mut encoder,
                name,
                help,
                [(&model, ConstCounter::new(value))],
            )?;
        }
        let stages: Vec<(Labels, &StageTelemetry)> = status
            .stages
            .iter()
            .map(|stage| {
                let labels = vec![
                    ("host", stage.host.clone()),
                    ("stage", stage.stage.to_string()),
                ];
                (labels, stage)
            })
            .collect();
        for (name, help, read) in STAGE_GAUGES {
            let values = stages.iter().map(|(l, s)| (l, ConstGauge::new(read(s))));
            family(&mut encoder, name, help, values)?;
        }
        for (name, help, read) in STAGE_COUNTERS {
            let values = stages.iter().map(|(l, s)| (l, ConstCounter::new(read(s))));
            family(&mut encoder, name, help, values)?;
        }
        Ok(())
    }
}

type Read = fn(&StageTelemetry) -> f64;

const STAGE_GAUGES: [(&str, &str, Read); 6] = [
    ("stage_up", "1 while the stage is connected", |s| {
        f64::from(u8::from(s.alive))
    }),
    ("stage_layers", "Layers held", |s| f64::from(s.layers)),
    ("stage_piece_bytes", "Bytes of pieces held", |s| {
        s.piece_bytes as f64
    }),
    ("stage_kv_blocks_used", "KV blocks taken", |s| {
        f64::from(s.kv_used)
    }),
    ("stage_kv_blocks", "KV blocks in all", |s| {
        f64::from(s.kv_total)
    }),
    (
        "stage_anonymous_bytes",
        "Resident bytes that no file backs",
        |s| s.anonymous_bytes as f64,
    ),
];

const STAGE_COUNTERS: [(&str, &str, Read); 9] = [
    ("stage_steps", "Micro-batches computed", |s| s.steps as f64),
    ("stage_rows", "Rows computed", |s| s.rows as f64),
    ("stage_compute_seconds", "Time spent computing", |s| {
        s.compute_ns as f64 / 1e9
    }),
    ("stage_wait_seconds", "Time spent waiting for input", |s| {
        s.wait_ns as f64 / 1e9
    }),
    (
        "stage_sent_bytes",
        "Bytes of frames sent to the next stage, before encryption",
        |s| s.bytes_sent as f64,
    ),
    ("stage_sent_frames", "Frames sent to the next stage", |s| {
        s.frames_sent as f64
    }),
    (
        "stage_sent_data_bytes",
        "Bytes of frames with hidden states or tokens",
        |s| s.data_bytes_sent as f64,
    ),
    (
        "stage_sent_data_frames",
        "Frames with hidden states or tokens",
        |s| s.data_frames_sent as f64,
    ),
    ("stage_peers_refused", "Connections refused", |s| {
        s.peers_refused as f64
    }),
];

fn family<'a, M: EncodeMetric + TypeOf>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (&'a Labels, M)>,
) -> Result<(), fmt::Error> {
    // `Registry::with_prefix` does not reach collectors.
    let name = format!("windlass_{name}");
    let mut metric = encoder.encode_descriptor(&name, help, None, M::TYPE)?;
    for (labels, value) in values {
        value.encode(metric.encode_family(labels)?)?;
    }
    Ok(())
}

/// The type of a metric before there is one.
trait TypeOf {
    const TYPE: MetricType;
}

impl TypeOf for ConstGauge<f64> {
    const TYPE: MetricType = MetricType::Gauge;
}

impl TypeOf for ConstCounter<f64> {
    const TYPE: MetricType = MetricType::Counter;
}

impl TypeOf for ConstCounter<u64> {
    const TYPE: MetricType = MetricType::Counter;
}
