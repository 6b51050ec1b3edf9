//! The demo: a whole deployment on this machine, one question, one answer, and everything ended
//! again. Must not know how it is shown, nor where the model comes from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use windlass_gguf::{MappedGguf, Slice, model_size};
use windlass_wire::assignment::{ApiAssignment, Assignment};
use windlass_wire::telemetry::{HeadEvent, HeadStatus};

use super::answer::{Answer, chat};
use super::client::{ChatRequest, Client, ClientError};
use super::local::{self, LocalWorkers, WorkerInfo};
use super::pieces::{self, Pieces, PiecesError};
use super::runtime::RuntimeFolder;
use super::speeds::Speeds;
use super::{keys, rates::rates};
use crate::event::{
    Command, Emitter, Event, Failure, FailureKind, Level, Quantiles, Scope, Status, Telemetry,
};
use crate::figures::size;
use crate::paths::Paths;
use crate::plan::{self, Parts, StagePlan};

/// The question the demo asks unless told otherwise.
pub const PROMPT: &str =
    "Explain in a few sentences how a windlass lets one person lift a heavy anchor.";
/// Tokens of context a sequence may have; less when the model was made for less.
pub const CONTEXT: u32 = 2048;
/// Sequences of full context for which KV blocks are provided. A block takes memory only when
/// it is used.
const SEQUENCES: u32 = 16;
/// Positions in a KV block.
const BLOCK: u32 = 32;
/// Most rows in a micro-batch.
const BATCH_ROWS: u32 = 256;
/// Tokens of the prompt and the template around it, generously.
const PROMPT_ROOM: u32 = 128;
/// Seconds between two telemetry events.
const TELEMETRY_EVERY: f64 = 0.5;
/// A head that says nothing for this long computes nothing.
const QUIET: Duration = Duration::from_millis(1_500);
/// How long a failed answer waits for the worker that caused it, and a lost worker for the answer
/// to fail: both are seen by connections that close, within moments.
const AFTERMATH: Duration = Duration::from_secs(2);
/// Most tokens the demo generates.
pub const MOST_TOKENS: u32 = CONTEXT - PROMPT_ROOM;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Workers to start.
    pub workers: u32,
    /// Tokens to generate.
    pub tokens: u32,
    /// The question.
    pub prompt: String,
    /// The worker's program, when it is not beside this one.
    pub worker: Option<PathBuf>,
    /// Where things are kept.
    pub paths: Paths,
    /// A name for the deployment, unique on this machine: letters, digits and dashes.
    pub deployment: String,
    /// Where a client goes once the deployment serves, with the model's name. Given one, the
    /// deployment stays after the answer until the run is ended.
    pub stay: Option<UnboundedSender<(Client, String)>>,
}

/// A model file on this machine.
#[derive(Clone, Debug)]
pub struct ModelFile {
    /// The file.
    pub path: PathBuf,
    /// Its digest, 64 hexadecimal digits, checked.
    pub sha256: String,
    /// Name to serve it under.
    pub name: String,
    /// Where it came from, for people.
    pub source: String,
    /// Its licence, when known.
    pub license: Option<String>,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// The command's fields of the summary; what was not reached is `null`.
    pub fields: Map<String, Value>,
    /// Why it failed.
    pub failure: Option<Failure>,
}

/// Name of a worker's host, from its stage.
pub fn host_name(stage: u32) -> String {
    format!("local-{}", stage + 1)
}

/// What must be cleaned up, whatever happens.
#[derive(Debug, Default)]
struct Held {
    workers: Option<LocalWorkers>,
    runtime: Option<RuntimeFolder>,
    telemetry: Option<JoinHandle<()>>,
    /// The end of a deployment that was to stay; it counts before what the person does then.
    lost: Option<Failure>,
    fields: Map<String, Value>,
}

/// Runs the demo. `fetch` provides the model; it is dropped when the run is ended early.
pub async fn run(
    options: &Options,
    emitter: &Emitter,
    commands: &mut UnboundedReceiver<Command>,
    fetch: impl Future<Output = Result<ModelFile, Failure>>,
) -> Outcome {
    let mut held = Held::default();
    for (name, value) in [
        ("workers", json!(options.workers)),
        ("tokens", json!(0)),
        ("tokens_per_second", Value::Null),
        ("prompt", json!(options.prompt)),
        ("text", json!("")),
    ] {
        held.fields.insert(name.to_owned(), value);
    }
    let result = tokio::select! {
        biased;
        stop = asked_to_stop(commands) => Err(stop),
        result = steps(options, emitter, fetch, &mut held) => result,
    };
    // What is ended here was asked for, so it must not look like a second failure.
    if let Some(task) = held.telemetry.take() {
        task.abort();
    }
    if let Some(workers) = &mut held.workers {
        let hurry = tokio::select! {
            biased;
            _ = asked_to_stop(commands) => true,
            () = workers.stop() => false,
        };
        if hurry {
            workers.kill_all().await;
        }
    }
    drop(held.runtime.take());
    Outcome {
        fields: held.fields,
        failure: held.lost.or(result.err()),
    }
}

/// Waits for a command that ends the run.
async fn asked_to_stop(commands: &mut UnboundedReceiver<Command>) -> Failure {
    loop {
        match commands.recv().await {
            Some(Command::Interrupt) => {
                return Failure::new(FailureKind::Interrupted, "interrupted");
            }
            Some(Command::Terminate) => {
                return Failure::new(FailureKind::Terminated, "terminated by a signal");
            }
            Some(Command::OutputLost { reason }) => {
                return Failure::new(
                    FailureKind::Io,
                    format!("the output cannot be written any more ({reason})"),
                );
            }
            Some(Command::Answer { .. }) => {}
            // Nobody is left who could ask.
            None => std::future::pending().await,
        }
    }
}

async fn steps(
    options: &Options,
    emitter: &Emitter,
    fetch: impl Future<Output = Result<ModelFile, Failure>>,
    held: &mut Held,
) -> Result<(), Failure> {
    let program = local::find_worker(options.worker.as_deref())?;

    let task = emitter.task(Scope::run().in_task("model"), None);
    let model = match fetch.await {
        Ok(model) => model,
        Err(failure) => {
            task.finish(Status::Failed, "");
            return Err(at(failure, "model"));
        }
    };
    let license = model.license.as_deref().unwrap_or("not stated");
    task.finish(
        Status::Ok,
        format!("{} from {}, licence {license}", model.name, model.source),
    );
    held.fields.insert("model".into(), json!(model.name));
    held.fields.insert("source".into(), json!(model.source));
    held.fields.insert("license".into(), json!(model.license));
    held.fields.insert("sha256".into(), json!(model.sha256));

    let (stages, context, pieces) = cut_for(options, emitter, &model).await?;
    let runtime = RuntimeFolder::create(&options.paths.runtime, &options.deployment)?;
    let socket = runtime.socket.clone();
    held.runtime = Some(runtime);

    let assignments = assignments(options, &stages, context, &pieces, &model.name, &socket)?;
    let starts: Vec<_> = assignments
        .iter()
        .map(|a| {
            emitter.task(
                Scope::worker(a.host.clone(), a.stage).in_task("start"),
                None,
            )
        })
        .collect();
    let workers = held
        .workers
        .insert(LocalWorkers::spawn(&program, assignments, emitter.clone())?);
    let ready = workers.ready().await;
    for task in starts {
        match &ready {
            Ok(()) => task.finish(Status::Changed, "ready"),
            Err(failure) if failure.host == task.scope().host => task.finish(Status::Failed, ""),
            // It did nothing wrong, but was not brought to its end either.
            Err(_) => task.finish(Status::Unknown, "not ready when another worker failed"),
        }
    }
    ready?;
    held.fields.insert("api".into(), json!(workers.api()));

    let client = Client::new(socket);
    let before = client
        .status()
        .await
        .map_err(|error| request_failure(&error))?;
    let telemetry = held.telemetry.insert(tokio::spawn(follow_telemetry(
        client.clone(),
        emitter.clone(),
    )));
    if let Some(stay) = &options.stay {
        // Whoever wanted to talk may have left.
        let _ = stay.send((client.clone(), model.name.clone()));
    }
    let mut answer = Answer::default();
    let task = emitter.task(Scope::host(host_name(0)).in_task("answer"), None);
    let result = ask(options, emitter, workers, &client, &model.name, &mut answer).await;
    held.fields.insert("tokens".into(), json!(answer.tokens()));
    held.fields.insert(
        "tokens_per_second".into(),
        json!(answer.tokens_per_second()),
    );
    held.fields
        .insert("prompt_tokens".into(), json!(answer.prompt_tokens));
    held.fields.insert("text".into(), json!(answer.text));
    let after = match &result {
        Ok(()) => client.status().await.ok(),
        Err(_) => None,
    };
    let speeds = after.as_ref().and_then(|after| rates(&before, after));
    held.fields.insert(
        "stages".into(),
        stage_fields(&workers.info(), after.as_ref(), speeds.as_ref()),
    );
    if let Err(failure) = result {
        task.finish(Status::Failed, "");
        // The head tells how the request ended, when it is not the head that is gone.
        let _ = timeout(AFTERMATH / 4, telemetry).await;
        return Err(failure);
    }
    task.finish(
        Status::Ok,
        format!(
            "{} tokens, {} tok/s",
            answer.tokens(),
            answer
                .tokens_per_second()
                .map_or_else(|| "–".to_owned(), |speed| format!("{speed:.1}"))
        ),
    );
    // Where the deployment stays, rates are told for as long as it does.
    if let Some(speeds) = speeds.filter(|_| options.stay.is_none()) {
        let speeds = with_times(speeds, &answer);
        emitter.emit(Scope::run(), Event::Telemetry(Box::new(speeds)));
    }
    if options.stay.is_some() {
        let failure = workers.lost("serve").await;
        held.lost = Some(failure.clone());
        // The head tells how it lost the stage.
        if let Some(telemetry) = &mut held.telemetry {
            let _ = timeout(AFTERMATH / 4, telemetry).await;
        }
        return Err(failure);
    }
    Ok(())
}

/// Plans the split and provides every stage's pieces.
async fn cut_for(
    options: &Options,
    emitter: &Emitter,
    model: &ModelFile,
) -> Result<(Vec<StagePlan>, u32, Pieces), Failure> {
    let of_model = |error: windlass_gguf::GgufError| {
        Failure::new(FailureKind::Model, error.to_string()).at("plan")
    };
    let path = model.path.clone();
    let source = blocking("plan", move || MappedGguf::open(path))
        .await?
        .map_err(of_model)?;
    let sizes = model_size(source.header()).map_err(of_model)?;
    // A model that does not say how long its context may be is taken at its word by the worker.
    let context = source
        .header()
        .metadata()
        .arch_u64("context_length")
        .ok()
        .and_then(|most| u32::try_from(most).ok())
        .map_or(CONTEXT, |most| most.min(CONTEXT));
    if options.tokens.saturating_add(PROMPT_ROOM) > context {
        return Err(Failure::new(
            FailureKind::Plan,
            format!(
                "{} tokens do not fit: the context has {context}, and {PROMPT_ROOM} are kept for the prompt",
                options.tokens
            ),
        )
        .at("plan"));
    }
    let stages = plan::split(&Parts::of(&sizes), options.workers as usize)
        .map_err(|error| Failure::new(FailureKind::Plan, error.to_string()).at("plan"))?;

    let mut wanted: Vec<Slice> = stages.iter().flat_map(|s| s.slices.clone()).collect();
    wanted.sort();
    wanted.dedup();
    let total = wanted.iter().map(|slice| sizes.bytes(*slice)).sum();
    let tasks: Vec<_> = stages
        .iter()
        .map(|stage| emitter.task(Scope::host(host_name(stage.stage)).in_task("pieces"), None))
        .collect();
    let (cache, sha256) = (options.paths.cache.clone(), model.sha256.clone());
    let progress = emitter.clone();
    let result = blocking("pieces", move || {
        pieces::provide(&source, &sha256, &cache, &wanted, &mut |done| {
            progress.emit(
                Scope::run().in_task("pieces"),
                Event::Transfer {
                    what: "cut".into(),
                    done,
                    total: Some(total),
                },
            );
        })
    })
    .await?;
    let pieces = match result {
        Ok(pieces) => pieces,
        Err(error) => {
            for task in tasks {
                task.finish(Status::Failed, "");
            }
            let kind = match &error {
                PiecesError::Folder { .. } => FailureKind::Io,
                PiecesError::Gguf(_) | PiecesError::Missing { .. } => FailureKind::Piece,
            };
            return Err(Failure::new(kind, error.to_string()).at("pieces"));
        }
    };
    for file in &pieces.refused {
        emitter.emit(
            Scope::run().in_task("pieces"),
            Event::log(
                Level::Warn,
                format!("{file} was changed since it was cut and is not trusted; its digest was checked and it was cut again where it differed"),
            ),
        );
    }
    for (task, stage) in tasks.into_iter().zip(&stages) {
        let cut = stage.slices.iter().any(|s| pieces.cut.contains(s));
        task.finish(
            if cut { Status::Changed } else { Status::Ok },
            format!(
                "layers {}–{}, {} pieces, {}{}",
                stage.first_layer,
                stage.first_layer + stage.layers.saturating_sub(1),
                stage.slices.len(),
                size(pieces.bytes(&stage.slices)),
                if cut { "" } else { " (from cache)" }
            ),
        );
    }
    Ok((stages, context, pieces))
}

fn assignments(
    options: &Options,
    stages: &[StagePlan],
    context: u32,
    pieces: &Pieces,
    model: &str,
    control: &Path,
) -> Result<Vec<Assignment>, Failure> {
    let count = options.workers;
    let mut identities = if count > 1 {
        keys::mint(&options.deployment, count)
            .map_err(|error| Failure::internal(error.to_string()).at("keys"))?
            .into_iter()
    } else {
        Vec::new().into_iter()
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = u32::try_from(cores).unwrap_or(u32::MAX) / count.max(1);
    Ok(stages
        .iter()
        .map(|stage| Assignment {
            deployment: options.deployment.clone(),
            host: host_name(stage.stage),
            stage: stage.stage,
            stages: count,
            first_layer: stage.first_layer,
            layers: stage.layers,
            listen: "127.0.0.1:0".into(),
            pieces: pieces.folder.clone(),
            manifest: pieces.manifest_file.clone(),
            identity: identities.next(),
            api: (stage.stage == 0).then(|| ApiAssignment {
                listen: "127.0.0.1:0".into(),
                control: control.to_owned(),
                model: model.to_owned(),
                api_key_sha256: None,
            }),
            context,
            kv_blocks: SEQUENCES * context.div_ceil(BLOCK),
            threads: threads.max(1),
            batch_rows: BATCH_ROWS,
            follow_stdin: true,
        })
        .collect())
}

/// Asks the question while watching the workers.
async fn ask(
    options: &Options,
    emitter: &Emitter,
    workers: &mut LocalWorkers,
    client: &Client,
    model: &str,
    answer: &mut Answer,
) -> Result<(), Failure> {
    let request = ChatRequest {
        model: model.to_owned(),
        prompt: options.prompt.clone(),
        before: Vec::new(),
        max_tokens: Some(options.tokens),
        ignore_eos: true,
    };
    let mut chatting = Box::pin(chat(&request, &options.deployment, emitter, client, answer));
    tokio::select! {
        result = &mut chatting => match result {
            Ok(()) => Ok(()),
            // The request's error is often the first sign of a worker's end.
            Err(error) => match timeout(AFTERMATH, workers.lost("answer")).await {
                Ok(failure) => Err(failure),
                Err(_) => Err(request_failure(&error)),
            },
        },
        failure = workers.lost("answer") => {
            // The head ends the request with an error of its own; it is shown, and then over.
            let _ = timeout(AFTERMATH, chatting).await;
            Err(failure)
        }
    }
}

fn request_failure(error: &ClientError) -> Failure {
    Failure::new(FailureKind::Request, error.to_string())
        .on(host_name(0))
        .at("answer")
}

/// Passes the head's telemetry on as rates, until the head ends or loses a stage.
async fn follow_telemetry(client: Client, emitter: Emitter) {
    let Ok(mut events) = client.events().await else {
        return;
    };
    let mut speeds = Speeds::new(TELEMETRY_EVERY);
    // That nothing is computed is told once: a journal may be kept of a long night.
    let mut is_still = false;
    loop {
        let event = match timeout(QUIET, events.next()).await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(_) => {
                if let Some(rates) = speeds.nothing_new(QUIET.as_secs_f64())
                    && !std::mem::replace(&mut is_still, is_nothing(&rates))
                {
                    emitter.emit(Scope::run(), Event::Telemetry(Box::new(rates)));
                }
                continue;
            }
        };
        is_still = false;
        match event {
            HeadEvent::Status(now) => {
                if let Some(rates) = speeds.status(&now) {
                    emitter.emit(Scope::run(), Event::Telemetry(Box::new(rates)));
                }
            }
            HeadEvent::StageLost {
                stage,
                host,
                reason,
                ended_after_us,
                requests,
            } => {
                emitter.emit(
                    Scope::worker(host, stage),
                    Event::StageLost {
                        reason,
                        ended_after_us,
                        requests,
                    },
                );
                return;
            }
            HeadEvent::Request {
                outcome,
                tokens,
                ttft_ms,
                decode_ms,
                ..
            } => speeds.request(&outcome, tokens, ttft_ms, decode_ms),
        }
    }
}

/// Whether these rates say that nothing is computed.
fn is_nothing(rates: &Telemetry) -> bool {
    rates.tokens_per_second == 0.0 && rates.prompt_tokens_per_second == 0.0 && rates.running == 0
}

/// Rates with the times of an answer, as those of all requests.
fn with_times(rates: Telemetry, answer: &Answer) -> Telemetry {
    let all = |ms: f64| Quantiles { p50: ms, p95: ms };
    Telemetry {
        first_token_ms: answer.first_token_ms().map(all),
        between_tokens_ms: answer.tokens_per_second().map(|speed| all(1000.0 / speed)),
        ..rates
    }
}

/// The stages as the summary tells them.
fn stage_fields(
    workers: &[WorkerInfo],
    status: Option<&HeadStatus>,
    speeds: Option<&Telemetry>,
) -> Value {
    workers
        .iter()
        .map(|worker| {
            let counters = status.and_then(|s| s.stages.iter().find(|c| c.stage == worker.stage));
            let rate = speeds.and_then(|s| s.stages.iter().find(|r| r.stage == worker.stage));
            json!({
                "stage": worker.stage,
                "host": worker.host,
                "pid": worker.pid,
                "first_layer": worker.first_layer,
                "layers": worker.layers,
                "piece_bytes": worker.piece_bytes,
                "device": worker.device,
                "anonymous_bytes": counters.map(|c| c.anonymous_bytes).filter(|bytes| *bytes > 0)
                    .or_else(|| anonymous_bytes(worker.pid)),
                "kv_used": counters.map(|c| c.kv_used),
                "busy": rate.map(|r| r.busy),
                "rows_per_second": rate.map(|r| r.rows_per_second),
            })
        })
        .collect()
}

/// Resident bytes of a process that no file backs, where the system tells.
fn anonymous_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

fn at(failure: Failure, step: &str) -> Failure {
    match failure.step {
        Some(_) => failure,
        None => failure.at(step),
    }
}

/// Runs blocking work on a thread of its own.
async fn blocking<T: Send + 'static>(
    step: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Failure::internal(error.to_string()).at(step))
}
