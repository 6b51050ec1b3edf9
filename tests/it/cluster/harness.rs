//! Clusters for tests: the worker's program started for each stage with assignments of our own,
//! so that a test sees every report and decides what each stage is told.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use sha2::{Digest, Sha256};
use windlass::deploy::keys;
use windlass::deploy::pieces::{Pieces, provide};
use windlass::plan::{Parts, StagePlan, split};
use windlass_gguf::{MappedGguf, Slice, model_size};
use windlass_wire::assignment::{ApiAssignment, Assignment, FromWorker, ToWorker};
use windlass_wire::telemetry::{HeadEvent, HeadStatus};

use super::http::{PATIENCE, control};
use crate::support::tiny_model;

/// Name that models are served under here.
pub const NAME: &str = "model";
/// Positions in a KV block.
pub const BLOCK: u32 = 32;
/// The real model's file in the cache of test fixtures.
const REAL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// A model and its pieces.
pub struct Model {
    pub path: PathBuf,
    pub file: MappedGguf,
    pub pieces: Pieces,
    parts: Parts,
    _folder: tempfile::TempDir,
}

impl Model {
    /// A random one of six layers.
    pub fn tiny() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        tiny_model(&path, 6);
        Self::cut(path, folder)
    }

    /// SmolLM2-135M-Instruct; `None`, aloud, where it was not fetched and need not be there.
    pub fn real() -> Option<Self> {
        let path = fixtures().join(REAL);
        if path.is_file() {
            return Some(Self::cut(path, tempfile::tempdir().unwrap()));
        }
        let how = format!(
            "{} is missing: python3 oracles/fetch.py model",
            path.display()
        );
        assert!(!fixtures_required(), "{how}");
        eprintln!("SKIPPED: {how}");
        None
    }

    fn cut(path: PathBuf, folder: tempfile::TempDir) -> Self {
        let digest = Sha256::digest(std::fs::read(&path).unwrap());
        let sha256: String = digest.iter().map(|b| format!("{b:02x}")).collect();
        let file = MappedGguf::open(&path).unwrap();
        let size = model_size(file.header()).unwrap();
        let all = Slice::all(size.layers);
        let pieces = provide(&file, &sha256, folder.path(), &all, &mut |_| {}).unwrap();
        Self {
            parts: Parts::of(&size),
            path,
            file,
            pieces,
            _folder: folder,
        }
    }

    /// Layers in all.
    pub fn layers(&self) -> u32 {
        self.parts.layers.len() as u32
    }

    /// A number of the architecture, e.g. `embedding_length`.
    pub fn number(&self, key: &str) -> u64 {
        self.file.header().metadata().arch_u64(key).unwrap()
    }

    /// How the layers go to this many workers.
    pub fn split(&self, workers: u32) -> Vec<StagePlan> {
        split(&self.parts, workers as usize).unwrap()
    }
}

/// Where test fixtures are kept.
pub fn fixtures() -> PathBuf {
    if let Some(own) = std::env::var_os("WINDLASS_TEST_CACHE") {
        return PathBuf::from(own);
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"),
        PathBuf::from,
    );
    cache.join("windlass/test")
}

/// Whether a missing fixture fails a test.
pub fn fixtures_required() -> bool {
    std::env::var_os("WINDLASS_REQUIRE_FIXTURES").is_some_and(|v| v == "1")
}

/// The worker's program, beside that of windlass.
pub fn worker_program() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_windlass")).with_file_name("windlass-worker");
    assert!(
        path.is_file(),
        "{} is missing: cargo build --release -p windlass-worker",
        path.display()
    );
    path
}

/// What a cluster is like.
#[derive(Clone)]
pub struct Settings {
    pub workers: u32,
    pub context: u32,
    pub kv_blocks: u32,
    pub threads: u32,
}

impl Settings {
    pub fn of(workers: u32) -> Self {
        Self {
            workers,
            context: 2048,
            kv_blocks: 16 * 2048 / BLOCK,
            threads: 1,
        }
    }
}

/// What a worker has said.
#[derive(Default)]
pub struct Said {
    pub reports: Vec<FromWorker>,
    pub ended: bool,
}

pub type Heard = Arc<(Mutex<Said>, Condvar)>;

/// Also after a test has failed while it held it: the thread that hears goes on.
pub fn lock(heard: &Heard) -> std::sync::MutexGuard<'_, Said> {
    heard
        .0
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Hears a worker's reports until it ends.
pub fn hear(output: std::process::ChildStdout) -> Heard {
    let said: Heard = Arc::default();
    let heard = said.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let report = serde_json::from_str(&line).unwrap_or(FromWorker::Log {
                level: "nonsense".into(),
                message: line,
            });
            lock(&heard).reports.push(report);
            heard.1.notify_all();
        }
        lock(&heard).ended = true;
        heard.1.notify_all();
    });
    said
}

/// One worker's process.
pub struct Worker {
    pub stage: u32,
    pub pid: u32,
    child: Child,
    stdin: Option<ChildStdin>,
    said: Heard,
}

impl Worker {
    /// Starts one and gives it its assignment.
    pub fn start(assignment: &Assignment) -> Self {
        let mut child = Command::new(worker_program())
            .arg("stage")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = hear(child.stdout.take().unwrap());
        let mut worker = Self {
            stage: assignment.stage,
            pid: child.id(),
            stdin: child.stdin.take(),
            child,
            said,
        };
        worker.tell(&ToWorker::Assign(Box::new(assignment.clone())));
        worker
    }

    fn tell(&mut self, line: &ToWorker) {
        let mut text = serde_json::to_string(line).unwrap();
        text.push('\n');
        // One that refused its assignment may be gone.
        let _ = self.stdin.as_mut().unwrap().write_all(text.as_bytes());
    }

    /// Waits for the first report that `pick` takes, among all there were and will be.
    pub fn report<T>(&self, what: &str, pick: impl Fn(&FromWorker) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut said = lock(&self.said);
        loop {
            if let Some(found) = said.reports.iter().find_map(&pick) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !said.ended && !left.is_zero(),
                "stage {} did not say {what}: {:?}",
                self.stage,
                said.reports
            );
            said = self.said.1.wait_timeout(said, left).unwrap().0;
        }
    }

    /// Why it failed: kind and message.
    pub fn failure(&self) -> (String, String) {
        self.report("why it failed", |r| match r {
            FromWorker::Failed { kind, message } => Some((kind.clone(), message.clone())),
            _ => None,
        })
    }

    /// SIGKILL, and when it was sent.
    pub fn kill(&mut self) -> Instant {
        let now = Instant::now();
        self.child.kill().unwrap();
        now
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        // Its stdin stays open: an end that comes is its own.
        let deadline = Instant::now() + PATIENCE;
        let mut said = lock(&self.said);
        while !said.ended {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "stage {} goes on", self.stage);
            said = self.said.1.wait_timeout(said, left).unwrap().0;
        }
        self.child
            .try_wait()
            .unwrap()
            .unwrap_or_else(|| self.child.wait().unwrap())
    }

    /// Whether the process is there.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Resident bytes that no file backs.
    pub fn anonymous(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("RssAnon:"))
            .unwrap();
        line.trim()
            .strip_suffix("kB")
            .unwrap()
            .trim()
            .parse::<u64>()
            .unwrap()
            * 1024
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended; nothing is left in either case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What each stage of a cluster is.
pub fn assignments(model: &Model, settings: &Settings, control: &Path) -> Vec<Assignment> {
    let deployment = "test";
    let mut identities = keys::mint(deployment, settings.workers)
        .unwrap()
        .into_iter();
    let stages = model.split(settings.workers).into_iter();
    stages
        .map(|plan| Assignment {
            deployment: deployment.into(),
            host: format!("host-{}", plan.stage),
            stage: plan.stage,
            stages: settings.workers,
            first_layer: plan.first_layer,
            layers: plan.layers,
            listen: "127.0.0.1:0".into(),
            pieces: model.pieces.folder.clone(),
            manifest: model.pieces.manifest_file.clone(),
            identity: identities.next().filter(|_| settings.workers > 1),
            api: (plan.stage == 0).then(|| ApiAssignment {
                listen: "127.0.0.1:0".into(),
                control: control.to_owned(),
                model: NAME.into(),
                api_key_sha256: None,
            }),
            context: settings.context,
            kv_blocks: settings.kv_blocks,
            threads: settings.threads,
            batch_rows: 256,
            follow_stdin: true,
        })
        .collect()
}

/// A cluster that serves. Dropping it kills it.
pub struct Cluster {
    pub workers: Vec<Worker>,
    pub plans: Vec<StagePlan>,
    pub api: SocketAddr,
    /// Where each stage listens for the others; empty with one.
    pub data: Vec<SocketAddr>,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Cluster {
    pub fn start(model: &Model, settings: &Settings) -> Self {
        Self::start_with(model, settings, |_, _| {})
    }

    /// `bend` may change the addresses that a stage is told.
    pub fn start_with(
        model: &Model,
        settings: &Settings,
        bend: impl Fn(u32, &mut Vec<SocketAddr>),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let assignments = assignments(model, settings, &socket);
        let mut workers: Vec<_> = assignments.iter().map(Worker::start).collect();
        let mut data = Vec::new();
        if settings.workers > 1 {
            for worker in &workers {
                data.push(worker.report("where it listens", |r| match r {
                    FromWorker::Listening { address } => Some(address.parse().unwrap()),
                    _ => None,
                }));
            }
            for worker in &mut workers {
                let mut told = data.clone();
                bend(worker.stage, &mut told);
                worker.tell(&ToWorker::Peers {
                    addresses: told.iter().map(SocketAddr::to_string).collect(),
                });
            }
        }
        for worker in &workers {
            worker.report("that it is ready", |r| {
                matches!(r, FromWorker::Ready).then_some(())
            });
        }
        let api = workers[0].report("that it serves", |r| match r {
            FromWorker::Serving { api } => Some(api.parse().unwrap()),
            _ => None,
        });
        let cluster = Self {
            workers,
            plans: model.split(settings.workers),
            api,
            data,
            socket,
            _folder: folder,
        };
        // The head learns the hosts' names with each stage's first counters.
        cluster.until("known", |s| s.stages.iter().all(|x| !x.host.is_empty()));
        cluster
    }

    /// The head's state now.
    pub fn status(&self) -> HeadStatus {
        serde_json::from_reader(control(&self.socket, "/control/status")).unwrap()
    }

    /// Waits for a state, looking again whenever the head has news.
    pub fn until(&self, what: &str, wanted: impl Fn(&HeadStatus) -> bool) -> HeadStatus {
        let mut events = control(&self.socket, "/control/events");
        loop {
            let now = self.status();
            if wanted(&now) {
                return now;
            }
            let mut line = String::new();
            let read = events.read_line(&mut line);
            assert!(matches!(read, Ok(1..)), "{what} was never so: {now:#?}");
        }
    }

    /// Waits until nothing is being done and every stage has told of all it did; asserts that no
    /// block of KV stayed taken anywhere.
    pub fn at_rest(&self) -> HeadStatus {
        // The state is published on a clock: one that was published after this was asked.
        let old = self.status().uptime_s;
        while self.status().uptime_s == old {
            std::thread::yield_now();
        }
        let same = |s: &HeadStatus| s.stages.iter().all(|x| x.rows == s.stages[0].rows);
        let status = self.until("rest", |s| {
            s.running == 0 && s.waiting == 0 && same(s) && s.stages.iter().all(|x| x.kv_used == 0)
        });
        assert_eq!(status.state, "serving");
        status
    }

    /// Waits for an event of the head, among the recent ones and those to come.
    pub fn event<T>(&self, what: &str, pick: impl Fn(HeadEvent) -> Option<T>) -> T {
        let events = control(&self.socket, "/control/events");
        events
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| serde_json::from_str(&line).ok())
            .find_map(pick)
            .unwrap_or_else(|| panic!("the head never told of {what}"))
    }
}
