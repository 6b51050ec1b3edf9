//! Which path does what.
//!
//! Two routers with the same routes: [`public`] stands behind the [`Gate`], [`control`] is for a
//! socket that only the deployment's own user can open, and adds `/control/…`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use tokio::sync::{Semaphore, broadcast, watch};
use windlass_wire::api::{Health, ModelCard, ModelList};
use windlass_wire::telemetry::HeadEvent;

use super::ApiState;
use super::error::ApiError;
use super::gate::Gate;
use super::generate::{Phase, Run};
use super::metrics::{self, Metrics};
use super::request::{Context, Plan};
use super::shapes::{Answer, Form, Shape, error_event};

/// Most bytes of a request's body.
pub const MAX_BODY_BYTES: usize = 8 << 20;
/// Longest time for a request's body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a stream may say nothing; then a comment keeps proxies from closing it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Bodies that are read and tokenized at once; each may need some hundred MiB for a moment.
const PARSERS: usize = 4;

/// What the handlers share.
pub struct Shared {
    state: ApiState,
    metrics: Arc<Metrics>,
    phase: watch::Receiver<Phase>,
    parsers: Arc<Semaphore>,
    created: u64,
}

impl Shared {
    /// State of both routers; `phase` tells when the server ends.
    pub fn new(state: ApiState, phase: watch::Receiver<Phase>) -> Arc<Self> {
        Arc::new(Self {
            metrics: Arc::new(Metrics::new(&state.model, state.handle.clone())),
            state,
            phase,
            parsers: Arc::new(Semaphore::new(PARSERS)),
            created: now(),
        })
    }
}

type Api = State<Arc<Shared>>;

/// The routes for users, behind the gate.
pub fn public(shared: Arc<Shared>, gate: Gate) -> Router {
    let gate = Arc::new(gate);
    finish(common(), shared).layer(middleware::from_fn(move |request: Request, next: Next| {
        let gate = gate.clone();
        async move {
            match gate.check(request.uri(), request.headers()) {
                Ok(()) => next.run(request).await,
                Err(error) => error.into_response(),
            }
        }
    }))
}

/// The routes for the controller.
pub fn control(shared: Arc<Shared>) -> Router {
    let routes = common()
        .route("/control/status", get(status))
        .route("/control/events", get(events));
    finish(routes, shared)
}

fn common() -> Router<Arc<Shared>> {
    Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completion))
        .route("/health", get(health))
        .route("/metrics", get(metrics_text))
}

fn finish(routes: Router<Arc<Shared>>, shared: Arc<Shared>) -> Router {
    routes
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(shared)
}

async fn unknown_path(method: Method, uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::new(
        StatusCode::NOT_FOUND,
        "invalid_request_error",
        Some("unknown_url"),
        format!("unknown request URL: {method} {path}"),
    )
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "invalid_request_error",
        Some("method_not_allowed"),
        format!("{path} does not take {method}"),
    )
}

async fn health(State(shared): Api) -> Response {
    let status = shared.state.handle.status();
    let serving = status.state == "serving" && *shared.phase.borrow() == Phase::Serving;
    let (code, health) = if serving {
        let status = "ok".to_owned();
        (
            StatusCode::OK,
            Health {
                status,
                reason: None,
            },
        )
    } else {
        let state = if status.state == "serving" {
            "stopping".to_owned()
        } else {
            status.state
        };
        (
            StatusCode::SERVICE_UNAVAILABLE,
            Health {
                status: state,
                reason: status.reason,
            },
        )
    };
    (code, Json(health)).into_response()
}

async fn metrics_text(State(shared): Api) -> Result<Response, ApiError> {
    let text = shared.metrics.text().map_err(ApiError::internal)?;
    let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn card(shared: &Shared) -> ModelCard {
    let limits = shared.state.handle.limits();
    ModelCard {
        id: shared.state.model.clone(),
        object: "model".to_owned(),
        created: shared.created,
        owned_by: "windlass".to_owned(),
        max_model_len: limits.context,
        vocab_size: limits.vocab,
    }
}

async fn models(State(shared): Api) -> Json<ModelList> {
    Json(ModelList {
        object: "list".to_owned(),
        data: vec![card(&shared)],
    })
}

async fn model(State(shared): Api, Path(id): Path<String>) -> Result<Json<ModelCard>, ApiError> {
    if id == shared.state.model {
        Ok(Json(card(&shared)))
    } else {
        Err(ApiError::unknown_model(&id, &shared.state.model))
    }
}

async fn chat(shared: Api, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    answer(shared.0, Form::Chat, headers, body).await
}

async fn completion(shared: Api, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    answer(shared.0, Form::Completion, headers, body).await
}

/// Answers one request. When the client leaves, this future or the stream it gave is dropped,
/// and with it the [`Run`] and its sequences.
async fn answer(
    shared: Arc<Shared>,
    form: Form,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let arrival = Instant::now();
    let body = read(&headers, body).await?;
    let plan = plan(&shared, form, body).await?;
    let mut id = [0; 12];
    getrandom::fill(&mut id).map_err(ApiError::internal)?;
    let shape = Shape {
        form,
        id: id.iter().fold(
            match form {
                Form::Chat => "chatcmpl-".to_owned(),
                Form::Completion => "cmpl-".to_owned(),
            },
            |text, byte| text + &format!("{byte:02x}"),
        ),
        created: now(),
        model: shared.state.model.clone(),
        logprobs: plan.logprobs,
        include_usage: plan.include_usage,
        language: shared.state.language.clone(),
    };
    let (stream, count) = (plan.stream, plan.sequences.len());
    let mut run = Run::start(
        plan,
        arrival,
        &shared.state.language,
        &shared.state.handle,
        &shared.metrics,
        shared.phase.clone(),
    )?;
    if stream {
        return Ok(stream_answer(shape, run));
    }
    let mut answers = vec![Answer::default(); count];
    while let Some(piece) = run.next().await {
        let piece = piece?;
        if let Some(answer) = answers.get_mut(piece.index as usize) {
            answer.add(piece);
        }
    }
    let json = shape.whole(answers, run.usage(), run.timings())?;
    let kind = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, kind)], json).into_response())
}

fn stream_answer(shape: Shape, run: Run) -> Response {
    let body = stream::unfold(Some((shape, run)), |state| async move {
        let (shape, mut run) = state?;
        let (bytes, goes_on) = match tokio::time::timeout(KEEP_ALIVE, run.next()).await {
            Err(_) => (Ok(b": waiting\n\n".to_vec()), true),
            Ok(Some(Ok(piece))) => {
                let timings = run.is_done().then(|| run.timings());
                (shape.chunks(&piece, timings), true)
            }
            Ok(Some(Err(error))) => (Err(error), false),
            Ok(None) => (shape.end(run.usage()), false),
        };
        match bytes {
            Ok(bytes) => Some((bytes, goes_on.then_some((shape, run)))),
            Err(error) => Some((error_event(&error), None)),
        }
    });
    let body = futures_util::StreamExt::map(body, |bytes| Ok::<_, Infallible>(Bytes::from(bytes)));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(body)).into_response()
}

/// Reads a JSON body of bounded length and time.
async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, ApiError> {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.split(';').next())
        .map(|v| v.trim().to_ascii_lowercase());
    if kind.as_deref() != Some("application/json") {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "invalid_request_error",
            Some("unsupported_media_type"),
            "send the body with `Content-Type: application/json`".to_owned(),
        ));
    }
    let too_large = || {
        ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "invalid_request_error",
            Some("body_too_large"),
            format!("the body may have at most {MAX_BODY_BYTES} bytes"),
        )
    };
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse::<u64>().ok());
    if length.is_some_and(|length| length > MAX_BODY_BYTES as u64) {
        return Err(too_large());
    }
    let limited = http_body_util::Limited::new(body, MAX_BODY_BYTES);
    let read = http_body_util::BodyExt::collect(limited);
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(bytes)) => Ok(bytes.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(ApiError::bad_request(format!(
            "the body could not be read: {error}"
        ))),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "invalid_request_error",
            Some("body_timeout"),
            format!(
                "the body did not arrive within {} seconds",
                BODY_TIMEOUT.as_secs()
            ),
        )),
    }
}

/// Checks and tokenizes away from the threads that move bytes.
async fn plan(shared: &Arc<Shared>, form: Form, body: Bytes) -> Result<Plan, ApiError> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(ApiError::internal)?;
    let parsers = shared.parsers.clone();
    let permit = parsers.acquire_owned().await.map_err(ApiError::internal)?;
    let shared = shared.clone();
    let parse = move || {
        // Held here, as the work goes on when the client has left.
        let _permit = permit;
        let context = Context {
            language: &*shared.state.language,
            limits: shared.state.handle.limits(),
            model: &shared.state.model,
            seed: u64::from_le_bytes(seed),
        };
        match form {
            Form::Chat => context.chat(&body),
            Form::Completion => context.completion(&body),
        }
    };
    tokio::task::spawn_blocking(parse)
        .await
        .map_err(ApiError::internal)?
}

async fn status(State(shared): Api) -> Response {
    Json(shared.state.handle.status()).into_response()
}

/// Recent events, then each as it comes, one JSON object a line.
async fn events(State(shared): Api) -> Result<Response, ApiError> {
    let (recent, receiver) = shared.state.handle.follow();
    let mut first = Vec::new();
    for event in &recent {
        line(&mut first, event)?;
    }
    let state = (first, receiver, shared.phase.clone());
    let body = stream::unfold(state, |(first, mut receiver, mut phase)| async move {
        if !first.is_empty() {
            return Some((Ok::<_, Infallible>(first), (Vec::new(), receiver, phase)));
        }
        loop {
            let event = tokio::select! {
                biased;
                _ = phase.wait_for(|phase| *phase >= Phase::Stopping) => return None,
                event = receiver.recv() => event,
            };
            match event {
                Ok(event) => {
                    let mut bytes = Vec::new();
                    line(&mut bytes, &event).ok()?;
                    return Some((Ok(bytes), (Vec::new(), receiver, phase)));
                }
                // A reader that is too slow misses events; the next status tells it all.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    });
    let kind = HeaderValue::from_static("application/x-ndjson");
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(body)).into_response())
}

fn line(out: &mut Vec<u8>, event: &HeadEvent) -> Result<(), ApiError> {
    serde_json::to_writer(&mut *out, event).map_err(ApiError::internal)?;
    out.push(b'\n');
    Ok(())
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
