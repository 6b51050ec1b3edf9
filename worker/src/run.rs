//! One worker from its assignment to its end: reads orders on stdin, reports on stdout, puts
//! engine, links and API together. The only place that knows all of them.

use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use windlass_wire::assignment::{ApiAssignment, Assignment, FromWorker, ToWorker};
use windlass_wire::exit;
use windlass_wire::payload::{Hello, Role};
use windlass_wire::telemetry::{HeadStatus, StageTelemetry};

use crate::api::language::ModelLanguage;
use crate::engine::{Engine, EngineOptions};
use crate::head::board::Board;
use crate::head::former::Former;
use crate::head::handle::{HeadHandle, Limits, Pending, SubmitError};
use crate::head::links::Links;
use crate::head::scheduler::{Message, Scheduler};
use crate::stage::executor::{End, Input};
use crate::stage::setup::{Listening, Report, run_stage};
use crate::stage::stats::{Stats, describe};

/// Version and build that peers compare.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");
/// Longest line taken from stdin.
const MAX_LINE: u64 = 4 << 20;
/// How long an orderly end may take before the process ends anyway.
const GRACE: Duration = Duration::from_secs(4);

/// Why a worker ends early: a kind for programs, a sentence for people.
pub(crate) struct Failure {
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(kind: &'static str) -> impl Fn(String) -> Self {
        move |message| Self { kind, message }
    }
}

/// What to do when told to stop.
pub(crate) type OnStop = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Reports as lines on stdout.
pub(crate) fn reporter() -> Report {
    Arc::new(|line: FromWorker| {
        if let Ok(mut text) = serde_json::to_string(&line) {
            text.push('\n');
            // A controller that is gone reads nothing; the end of stdin says so.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
        }
    })
}

/// Reports how it ended. Returns the exit status.
pub(crate) fn conclude(report: &Report, result: Result<(), Failure>) -> i32 {
    let Err(failure) = result else {
        return exit::DONE;
    };
    report(FromWorker::Failed {
        kind: failure.kind.into(),
        message: failure.message,
    });
    match failure.kind {
        "usage" => exit::USAGE,
        "port" => exit::BUSY,
        _ => exit::FAILED,
    }
}

/// Runs a worker that takes its orders from stdin. Returns the exit status.
pub fn serve() -> i32 {
    let report = reporter();
    conclude(&report, run(&report))
}

fn run(report: &Report) -> Result<(), Failure> {
    let usage = Failure::new("usage");
    let (orders, on_stop) = read_orders();
    let assignment = match orders.recv() {
        Ok(Ok(ToWorker::Assign(assignment))) => *assignment,
        Ok(Ok(_)) => {
            return Err(usage(
                "the first line on stdin must be an assignment".into(),
            ));
        }
        Ok(Err(error)) => return Err(usage(error)),
        Err(_) => return Err(usage("no assignment came on stdin".into())),
    };
    check(&assignment).map_err(&usage)?;

    let (engine, language) = load(&assignment, report)?;
    let stats = Arc::new(Stats::default());
    let hello = hello(&assignment, &engine);
    let network = Failure::new("network");
    let mut links = None;
    if assignment.stages > 1 {
        let listening = Listening::new(&assignment, hello, &stats, report.clone())
            .map_err(|e| network(e.to_string()))?;
        report(FromWorker::Listening {
            address: listening.address.to_string(),
        });
        let peers = peers(&orders, assignment.stages)?;
        links = Some((listening, peers));
    }
    match (language, links) {
        (Some(language), links) => {
            let links = links.map_or(HeadLinks::Alone, |(listening, peers)| {
                HeadLinks::Once(Box::new(listening), peers)
            });
            let parts = HeadParts {
                language,
                bound: None,
                links,
                engine,
                stats,
            };
            head(&assignment, parts, report, &on_stop)
        }
        (None, Some((listening, peers))) => {
            let (input, inputs) = channel();
            let stop = input.clone();
            set_stop(&on_stop, move || drop(stop.send(Input::Shutdown)));
            let bytes = engine.piece_bytes();
            let end = run_stage(
                &assignment,
                &listening,
                &peers,
                engine,
                bytes,
                &stats,
                report,
                (input, inputs),
            )
            .map_err(|e| network(e.to_string()))?;
            match end {
                End::Shutdown => Ok(()),
                // Here a lost neighbour does not end it.
                End::Left => Ok(()),
                End::HeadLost(error) => Err(Failure::new("peer")(format!(
                    "the head, stage 0, is gone: {error}"
                ))),
            }
        }
        (None, None) => Err(usage("a single stage needs an API to answer".into())),
    }
}

/// Loads a stage's layers and, on the head, what it takes to read and write text.
pub(crate) fn load(
    assignment: &Assignment,
    report: &Report,
) -> Result<(Engine, Option<ModelLanguage>), Failure> {
    let began = Instant::now();
    let engine = Engine::load(&EngineOptions {
        pieces_dir: assignment.pieces.clone(),
        manifest: assignment.manifest.clone(),
        first_layer: assignment.first_layer,
        layers: assignment.layers,
        first: assignment.stage == 0,
        last: assignment.stage + 1 == assignment.stages,
        context: assignment.context,
        kv_blocks: assignment.kv_blocks,
        threads: assignment.threads,
    })
    .map_err(|e| Failure::new("piece")(e.to_string()))?;
    // Before the links: what the head cannot read must not first bring the others up.
    let language = match &assignment.api {
        Some(_) => Some(crate::service::language(assignment).map_err(Failure::new("piece"))?),
        None => None,
    };
    report(FromWorker::Loaded {
        layers: assignment.layers,
        bytes: engine.piece_bytes(),
        seconds: began.elapsed().as_secs_f64(),
        device: engine.device(),
    });
    Ok((engine, language))
}

/// How a stage greets its peers.
pub(crate) fn hello(assignment: &Assignment, engine: &Engine) -> Hello {
    Hello {
        deployment: assignment.deployment.clone(),
        stage: assignment.stage,
        host: assignment.host.clone(),
        role: Role::Data,
        build: BUILD.into(),
        model_sha256: engine.model_sha256().into(),
        hidden: engine.hidden() as u32,
        tier: engine.tier().into(),
        round: 0,
    }
}

/// Whether an assignment makes sense.
///
/// # Errors
/// A sentence, when it does not.
pub(crate) fn check(assignment: &Assignment) -> Result<(), String> {
    let a = assignment;
    if a.stage >= a.stages || a.stages > 64 {
        return Err(format!("stage {} of {} is not possible", a.stage, a.stages));
    }
    if (a.stage == 0) != a.api.is_some() {
        return Err("stage 0, and only stage 0, answers the API".into());
    }
    if a.layers == 0 || a.threads == 0 || a.context == 0 || a.kv_blocks == 0 || a.batch_rows == 0 {
        return Err("layers, threads, context, kv_blocks and batch_rows must be at least 1".into());
    }
    if a.batch_rows > windlass_wire::frame::MAX_ROWS {
        return Err(format!(
            "batch_rows is at most {}",
            windlass_wire::frame::MAX_ROWS
        ));
    }
    Ok(())
}

fn peers(
    orders: &Receiver<Result<ToWorker, String>>,
    stages: u32,
) -> Result<Vec<SocketAddr>, Failure> {
    let usage = Failure::new("usage");
    match orders.recv() {
        Ok(Ok(ToWorker::Peers { addresses })) if addresses.len() == stages as usize => addresses
            .iter()
            .map(|a| {
                a.parse()
                    .map_err(|_| usage(format!("{a:?} is not an address of the form ip:port")))
            })
            .collect(),
        Ok(Ok(_)) => Err(usage(
            "the second line on stdin must give every stage's address".into(),
        )),
        Ok(Err(error)) => Err(usage(error)),
        Err(_) => Err(usage("stdin ended before the peers' addresses came".into())),
    }
}

/// The head's connections to other stages.
pub(crate) enum HeadLinks {
    /// There are none.
    Alone,
    /// Made once; a lost one stays lost.
    Once(Box<Listening>, Vec<SocketAddr>),
    /// Made again whenever one is lost.
    Again {
        /// Where peers connect.
        listening: Arc<Listening>,
        /// Addresses of all stages.
        peers: Vec<SocketAddr>,
        /// Names of all stages' hosts, as far as known.
        hosts: Vec<String>,
    },
}

/// What a head is put together from.
pub(crate) struct HeadParts {
    pub(crate) language: ModelLanguage,
    /// The API's listener, when it stands already.
    pub(crate) bound: Option<std::net::TcpListener>,
    pub(crate) links: HeadLinks,
    pub(crate) engine: Engine,
    pub(crate) stats: Arc<Stats>,
}

/// Serves until told to stop.
pub(crate) fn head(
    assignment: &Assignment,
    parts: HeadParts,
    report: &Report,
    on_stop: &OnStop,
) -> Result<(), Failure> {
    let HeadParts {
        language,
        bound,
        links,
        engine,
        stats,
    } = parts;
    let api: &ApiAssignment = assignment
        .api
        .as_ref()
        .ok_or_else(|| Failure::new("usage")("the head needs an API to answer".into()))?;
    let network = Failure::new("network");
    let (sender, messages) = channel();
    let who = describe(assignment, engine.piece_bytes(), engine.kv_total());
    let mut stages: Vec<StageTelemetry> = (0..assignment.stages)
        .map(|stage| StageTelemetry {
            stage,
            alive: true,
            ..StageTelemetry::default()
        })
        .collect();
    if let Some(own) = stages.first_mut() {
        *own = who.clone();
    }
    let board = Arc::new(Board::new(HeadStatus {
        deployment: assignment.deployment.clone(),
        model: api.model.clone(),
        state: "starting".into(),
        epoch: 1,
        stages,
        ..HeadStatus::default()
    }));
    let mut former = None;
    let mut sent = None;
    let links = match links {
        HeadLinks::Alone => None,
        HeadLinks::Once(listening, peers) => Some(
            Links::connect(&listening, &peers, assignment.stages, &sender)
                .map_err(|e| network(e.to_string()))?,
        ),
        HeadLinks::Again {
            listening,
            peers,
            hosts,
        } => {
            let counted: Arc<crate::net::link::Sent> = Arc::default();
            sent = Some(counted.clone());
            let parts = Former {
                listening,
                peers,
                hosts,
                head: sender.clone(),
                board: board.clone(),
                report: report.clone(),
                sent: counted,
            };
            former = Some(parts.start().map_err(|e| network(e.to_string()))?);
            None
        }
    };
    for (stage, host) in links.iter().flat_map(|l| &l.hosts) {
        board.update(|status| {
            if let Some(slot) = status.stages.get_mut(*stage as usize) {
                slot.host.clone_from(host);
            }
        });
    }
    board.own_stage(
        stats.clone(),
        sent.or_else(|| links.as_ref().map(|l| l.downstream.sent())),
        who,
    );
    let limits = Limits {
        context: assignment.context,
        vocab: engine.vocab() as u32,
    };
    let (state, watch) = tokio::sync::watch::channel(board.status());
    let (queue, gate) = (sender.clone(), board.clone());
    let accept = move |pending: Pending| {
        gate.admission()?;
        queue
            .send(Message::Submit(Box::new(pending)))
            .map_err(|_| SubmitError::Stopping)
    };
    let handle = HeadHandle::from_parts(limits, watch, Box::new(accept));
    let service = crate::service::Service::open(api, bound, language, handle.clone())
        .map_err(Failure::new("network"))?;
    let stopper = service.stopper();
    let halt = sender.clone();
    set_stop(on_stop, move || {
        let _ = halt.send(Message::Shutdown);
        stopper();
    });
    let events = handle.clone();
    let publish = Box::new(move |event| events.publish(event));
    let alone = former.is_none();
    let mut scheduler = Scheduler::new(
        engine,
        links,
        assignment.kv_blocks,
        assignment.batch_rows,
        board.clone(),
        publish,
        stats,
    );
    if let Some(former) = former {
        scheduler = scheduler.formed_by(former, assignment.stages);
    }
    let thread = std::thread::Builder::new()
        .name("head".into())
        .spawn(move || scheduler.run(&messages))
        .map_err(|e| Failure::new("internal")(format!("start a thread: {e}")))?;
    let address = service.address().to_string();
    board.update(|status| {
        // Otherwise it serves once all stages have come, and says so then.
        if alone {
            status.state = "serving".into();
        }
        status.api.clone_from(&address);
    });
    if alone {
        report(FromWorker::Ready);
    }
    report(FromWorker::Serving { api: address });
    service.run(&board, &state);
    let _ = sender.send(Message::Shutdown);
    if thread.join().is_err() {
        return Err(Failure::new("internal")(
            "the head's loop ended unexpectedly".into(),
        ));
    }
    Ok(())
}

pub(crate) fn set_stop(on_stop: &OnStop, action: impl FnOnce() + Send + 'static) {
    *on_stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(action));
}

/// Reads stdin in a thread of its own. `stop`, or the end of stdin for a worker that follows it,
/// ends the worker whatever it is doing.
fn read_orders() -> (Receiver<Result<ToWorker, String>>, OnStop) {
    let (sender, orders) = channel();
    let on_stop: OnStop = Arc::default();
    let stop = on_stop.clone();
    std::thread::spawn(move || {
        let mut follow = true;
        let mut input = std::io::stdin().lock();
        let mut number = 0;
        loop {
            let mut line = String::new();
            number += 1;
            let read = std::io::Read::take(&mut input, MAX_LINE).read_line(&mut line);
            let order = match read {
                Ok(0) | Err(_) => {
                    if follow {
                        end(&stop);
                    }
                    return;
                }
                // The text of the error only: the line holds a key.
                Ok(_) => serde_json::from_str::<ToWorker>(&line).map_err(|e| {
                    format!(
                        "line {number} on stdin is not an order: {:?} at column {}",
                        e.classify(),
                        e.column()
                    )
                }),
            };
            match &order {
                Ok(ToWorker::Stop) => return end(&stop),
                Ok(ToWorker::Assign(assignment)) => follow = assignment.follow_stdin,
                _ => {}
            }
            if sender.send(order).is_err() {
                return;
            }
        }
    });
    (orders, on_stop)
}

/// Ends the process: by what was set, or at once.
pub(crate) fn end(stop: &OnStop) {
    let action = stop.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(action) = action {
        action();
        std::thread::sleep(GRACE);
    }
    std::process::exit(exit::DONE);
}
