//! Measures a deployment that serves: one fixed prompt, asked by more and more at once. Tells requests
//! and rates as events; must not know how they are shown.
//!
//! - [`percentile`]: quantiles. Pure.
//! - [`timing`]: what is measured of a request, and of many. Pure.
//! - [`report`]: the figures as text and as fields. Pure.

pub mod percentile;
pub mod report;
pub mod timing;

use std::time::Instant;

use futures_util::stream::{self, StreamExt};

use crate::deploy::client::{ChatEvent, ChatRequest, Client, ClientError};
use crate::deploy::remote::deployment;
use crate::deploy::remote::service;
use crate::deploy::remote::site::Site;
use crate::deploy::speeds::Speeds;
use crate::event::{Emitter, Event, Failure, FailureKind, Level, Scope, Stop};
use crate::paths::Paths;
use report::Report;
use timing::{Measured, Timing};
use windlass_wire::telemetry::HeadEvent;

/// Requests for each at once, unless said otherwise.
const EACH: u32 = 2;
/// Fewest requests of a measurement, unless said otherwise.
const FEWEST: u32 = 4;
/// Seconds between two tellings of rates.
const RATES_EVERY: f64 = 0.5;

/// What is asked of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Requests at once, measured one after the other.
    pub concurrency: Vec<u32>,
    /// Tokens of each answer; end tokens are banned.
    pub tokens: u32,
    /// Requests of each measurement; by how many are at once when `None`.
    pub requests: Option<u32>,
    /// What is asked.
    pub prompt: String,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            concurrency: vec![1, 2, 4, 8],
            tokens: 128,
            requests: None,
            prompt: "Explain in plain words how a ship's windlass lifts an anchor, and why two \
                     people can do with it what twenty could not do by hand."
                .to_owned(),
        }
    }
}

impl Load {
    /// Requests of a measurement with so many at once.
    pub fn requests_at(&self, at_once: u32) -> u32 {
        self.requests
            .unwrap_or_else(|| at_once.saturating_mul(EACH).max(FEWEST))
            .max(1)
    }
}

/// Measures the deployment of this name on these hosts, over its head's forwarded socket. A wish to
/// stop cuts off what is measured: half a measurement is none.
///
/// # Errors
/// When nothing runs there, a request fails, or it is stopped.
pub async fn serve(
    sites: &[Site],
    cluster: &str,
    paths: &Paths,
    run: &str,
    load: &Load,
    stop: &Stop,
    emitter: &Emitter,
) -> Result<Report, Failure> {
    let found = service::find(sites, cluster).await?.ok_or_else(|| {
        Failure::new(
            FailureKind::Nothing,
            format!("nothing runs under the name {cluster}: bring it up with `windlass up MODEL`"),
        )
        .at("bench")
    })?;
    let record = &found.record;
    let head = found.head().ok_or_else(|| {
        Failure::new(
            FailureKind::Unreachable,
            format!("{}: the head's host was not reached", record.head()),
        )
        .on(record.head())
        .at("bench")
    })?;
    let way = deployment::head(&head.place, record, &paths.runtime, run)?;
    let mut report = Report {
        model: record.model.clone(),
        deployment: record.deployment.clone(),
        head: record.head().to_owned(),
        hosts: record
            .stages
            .iter()
            .map(|stage| stage.host.clone())
            .collect(),
        tokens: load.tokens,
        prompt_tokens: None,
        levels: Vec::new(),
    };
    let failed = |error: &ClientError| {
        Failure::new(FailureKind::Request, format!("{}: {error}", record.head()))
            .on(record.head())
            .at("bench")
    };
    let measuring = async {
        // The first answer after a start maps pages and fills caches; it is not measured.
        let task = emitter.task(Scope::run().in_task("warm up"), None);
        let warm = one(&way.client, &record.model, load)
            .await
            .map_err(|error| failed(&error))?;
        task.finish(crate::event::Status::Ok, "");
        report.prompt_tokens = warm.prompt_tokens;
        for at_once in &load.concurrency {
            let task = emitter.task(Scope::run().in_task(format!("{at_once} at once")), None);
            let measured = level(&way.client, &record.model, load, *at_once)
                .await
                .map_err(|error| failed(&error))?;
            task.finish(crate::event::Status::Ok, measured.sentence());
            report.levels.push(measured);
        }
        Ok::<(), Failure>(())
    };
    tokio::select! {
        biased;
        () = stop.wait() => {
            return Err(Failure::new(
                FailureKind::Interrupted,
                "the measurement was stopped, and its requests were ended",
            )
            .at("bench"));
        }
        result = measuring => result?,
        // Rates are told for as long as something is measured.
        () = tell_rates(&way.client, emitter) => {}
    }
    Ok(report)
}

/// One measurement: so many requests at once, until all of them are answered.
async fn level(
    client: &Client,
    model: &str,
    load: &Load,
    at_once: u32,
) -> Result<Measured, ClientError> {
    let requests = load.requests_at(at_once);
    let began = Instant::now();
    let mut all = stream::iter(0..requests)
        .map(|_| one(client, model, load))
        .buffer_unordered(at_once.max(1) as usize);
    let mut timings = Vec::new();
    while let Some(timing) = all.next().await {
        timings.push(timing?);
    }
    let over = began.elapsed().as_secs_f64();
    Ok(Measured::of(at_once, &timings, over))
}

/// One request, with the times at which its text came. Nothing is told of it: whoever reads what is
/// told takes time of what is measured.
async fn one(client: &Client, model: &str, load: &Load) -> Result<Timing, ClientError> {
    let request = ChatRequest {
        model: model.to_owned(),
        before: Vec::new(),
        prompt: load.prompt.clone(),
        max_tokens: Some(load.tokens),
        ignore_eos: true,
    };
    let sent = Instant::now();
    let mut timing = Timing::default();
    let mut chat = client.chat(&request).await?;
    while let Some((arrived, event)) = chat.next().await {
        let at = arrived.duration_since(sent).as_secs_f64();
        match event? {
            ChatEvent::Text(_) => timing.chunks.push(at),
            ChatEvent::Finished(_) => timing.end = at,
            ChatEvent::Usage {
                prompt_tokens,
                completion_tokens,
            } => {
                timing.prompt_tokens = Some(prompt_tokens);
                timing.tokens = completion_tokens;
            }
        }
    }
    Ok(timing)
}

/// Passes the head's telemetry on as rates; without it, only the figures at the end are told.
async fn tell_rates(client: &Client, emitter: &Emitter) {
    let mut speeds = Speeds::new(RATES_EVERY);
    // The stream begins with requests of whoever asked before.
    let mut is_now = false;
    match client.events().await {
        Ok(mut events) => {
            while let Some(event) = events.next().await {
                let now = match event {
                    HeadEvent::Status(now) => now,
                    HeadEvent::Request { .. } if !is_now => continue,
                    HeadEvent::Request {
                        outcome,
                        tokens,
                        ttft_ms,
                        decode_ms,
                        ..
                    } => {
                        speeds.request(&outcome, tokens, ttft_ms, decode_ms);
                        continue;
                    }
                    HeadEvent::StageLost { .. } => continue,
                };
                is_now = true;
                if let Some(rates) = speeds.status(&now) {
                    emitter.emit(Scope::run(), Event::Telemetry(Box::new(rates)));
                }
            }
        }
        Err(error) => emitter.log(Level::Debug, format!("no rates: {error}")),
    }
    std::future::pending::<()>().await;
}
