//! Workers as child processes on this machine: start them, tell them what they are, hear what
//! they say, notice when one ends, end them all. Must not know models or requests.
//!
//! A worker gets its assignment and its key as the first line of its stdin and ends when that
//! stdin ends, so none outlives this process however it dies.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use windlass_wire::assignment::{Assignment, FromWorker, ToWorker};

pub use super::end::WorkerInfo;
use super::end::{End, Ended, blame};
use super::lines::each_line;
use crate::event::{Emitter, Event, Failure, FailureKind, Level, Scope, WorkerEvent, WorkerState};

/// Name of the worker's program.
pub const PROGRAM: &str = "windlass-worker";
/// Its arguments for reading an assignment from stdin.
pub const ARGUMENTS: [&str; 1] = ["stage"];
/// How long a worker that was told to stop may take before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// How long a start may go on without any worker saying anything.
const SILENCE: Duration = Duration::from_secs(300);
/// How long after the first worker's end others are waited for, to tell the cause from the
/// consequence: a killed worker takes its neighbours with it within moments.
const SETTLE: Duration = Duration::from_millis(400);

/// The worker's program: as given, else beside this program.
///
/// # Errors
/// When there is none, with how to make one.
pub fn find_worker(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let (path, why) = match given {
        Some(path) => (path.to_owned(), "was named as the worker"),
        None => {
            let own = std::env::current_exe().map_err(|error| {
                Failure::new(
                    FailureKind::Config,
                    format!("this program cannot find its own folder ({error}): name the worker with --worker FILE"),
                )
            })?;
            (
                own.with_file_name(PROGRAM),
                "is expected beside this program",
            )
        }
    };
    if path.is_file() {
        Ok(path)
    } else {
        Err(Failure::new(
            FailureKind::Config,
            format!(
                "{} {why} and is not there: build it with `cargo build --release -p {PROGRAM}`, or name it with --worker FILE",
                path.display()
            ),
        ))
    }
}

#[derive(Debug)]
enum Said {
    Report(FromWorker),
    Nonsense(String),
    Talk(String),
    Ended(End),
}

#[derive(Debug)]
struct Worker {
    info: WorkerInfo,
    lines: Option<UnboundedSender<String>>,
    kill: Option<tokio::sync::oneshot::Sender<()>>,
    supervisor: JoinHandle<()>,
    listening: Option<String>,
    ready: bool,
    failed: Option<(String, String)>,
    end: Option<End>,
}

/// All workers of a deployment on this machine. Dropping it kills them.
#[derive(Debug)]
pub struct LocalWorkers {
    workers: Vec<Worker>,
    said: UnboundedReceiver<(usize, Said)>,
    emitter: Emitter,
    api: Option<String>,
    peers_sent: bool,
    /// Workers in the order in which they ended without being asked.
    ended: Vec<usize>,
    stopping: bool,
}

impl LocalWorkers {
    /// Starts one worker for each assignment, in order of stages.
    ///
    /// # Errors
    /// When one cannot be started; those already started are killed.
    pub fn spawn(
        program: &Path,
        assignments: Vec<Assignment>,
        emitter: Emitter,
    ) -> Result<Self, Failure> {
        let (tell, said) = mpsc::unbounded_channel();
        let mut all = Self {
            workers: Vec::new(),
            said,
            emitter,
            api: None,
            peers_sent: false,
            ended: Vec::new(),
            stopping: false,
        };
        for (index, assignment) in assignments.into_iter().enumerate() {
            let failed = |message: String| {
                Failure::new(FailureKind::Worker, message)
                    .on(assignment.host.clone())
                    .at("start")
            };
            let mut child = Command::new(program)
                .args(ARGUMENTS)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                // Ctrl-C in the terminal is for the controller, which ends the workers in order.
                .process_group(0)
                .kill_on_drop(true)
                .spawn()
                .map_err(|error| {
                    failed(format!("{} cannot be started: {error}", program.display()))
                })?;
            let info = WorkerInfo {
                host: assignment.host.clone(),
                stage: assignment.stage,
                pid: child.id().unwrap_or(0),
                first_layer: assignment.first_layer,
                layers: assignment.layers,
                piece_bytes: 0,
                device: None,
            };
            let first = serde_json::to_string(&ToWorker::Assign(Box::new(assignment)))
                .map_err(|error| Failure::internal(format!("an assignment is no JSON: {error}")))?;
            let (lines, to_send) = mpsc::unbounded_channel();
            // The receiver lives as long as the supervisor, which begins below.
            let _ = lines.send(first);
            if let Some(stdin) = child.stdin.take() {
                tokio::spawn(write_lines(stdin, to_send));
            }
            let (kill, killed) = tokio::sync::oneshot::channel();
            let supervisor = tokio::spawn(supervise(index, child, killed, tell.clone()));
            all.emitter.emit(
                Scope::worker(info.host.clone(), info.stage),
                Event::Worker(Box::new(WorkerEvent {
                    pid: Some(info.pid),
                    ..WorkerEvent::new(WorkerState::Starting)
                })),
            );
            all.workers.push(Worker {
                info,
                lines: Some(lines),
                kill: Some(kill),
                supervisor,
                listening: None,
                ready: false,
                failed: None,
                end: None,
            });
        }
        Ok(all)
    }

    /// What is known of the workers, by stage.
    pub fn info(&self) -> Vec<WorkerInfo> {
        self.workers.iter().map(|w| w.info.clone()).collect()
    }

    /// Address of the head's API, once it serves.
    pub fn api(&self) -> Option<&str> {
        self.api.as_deref()
    }

    /// Waits until all stages are connected and the head answers requests.
    ///
    /// # Errors
    /// When a worker fails or ends, or none says anything for long.
    pub async fn ready(&mut self) -> Result<(), Failure> {
        loop {
            self.send_peers_when_known()?;
            let connected = self.workers.len() == 1 || self.workers.iter().all(|w| w.ready);
            if self.api.is_some() && connected {
                return Ok(());
            }
            match timeout(SILENCE, self.said.recv()).await {
                Ok(Some((index, said))) => self.hear(index, said),
                // The senders live as long as the supervisors do.
                Ok(None) => return Err(Failure::internal("all workers are gone").at("start")),
                Err(_) => {
                    let late: Vec<_> = self
                        .workers
                        .iter()
                        .filter(|w| !w.ready)
                        .map(|w| w.info.host.as_str())
                        .collect();
                    return Err(Failure::new(
                        FailureKind::Worker,
                        format!(
                            "{} not ready, and nothing was heard for {} s",
                            late.join(", "),
                            SILENCE.as_secs()
                        ),
                    )
                    .at("start"));
                }
            }
            if !self.ended.is_empty() {
                return Err(self.first_loss("start").await);
            }
        }
    }

    /// Waits until a worker ends without being asked; says which and how.
    pub async fn lost(&mut self, step: &str) -> Failure {
        loop {
            if !self.ended.is_empty() {
                return self.first_loss(step).await;
            }
            match self.said.recv().await {
                Some((index, said)) => self.hear(index, said),
                None => return Failure::internal("all workers are gone").at(step),
            }
        }
    }

    /// Ends all workers: asks first, kills those that take long. Returns when none is left.
    pub async fn stop(&mut self) {
        self.stopping = true;
        let stop = serde_json::to_string(&ToWorker::Stop).unwrap_or_default();
        for worker in &mut self.workers {
            if let Some(lines) = worker.lines.take() {
                // A worker that is gone needs no telling.
                let _ = lines.send(stop.clone());
            }
        }
        let deadline = Instant::now() + GRACE;
        while self.workers.iter().any(|w| w.end.is_none()) {
            match timeout_at(deadline, self.said.recv()).await {
                Ok(Some((index, said))) => self.hear(index, said),
                Ok(None) => break,
                Err(_) => {
                    for worker in &mut self.workers {
                        if worker.end.is_none() {
                            self.emitter.emit(
                                Scope::worker(worker.info.host.clone(), worker.info.stage),
                                Event::log(
                                    Level::Warn,
                                    format!(
                                        "pid {} did not stop within {} s and is killed",
                                        worker.info.pid,
                                        GRACE.as_secs()
                                    ),
                                ),
                            );
                        }
                    }
                    break;
                }
            }
        }
        self.kill_all().await;
    }

    /// Kills all workers at once. Returns when none is left.
    pub async fn kill_all(&mut self) {
        self.stopping = true;
        for worker in &mut self.workers {
            if let Some(kill) = worker.kill.take() {
                // The supervisor is gone when the process is.
                let _ = kill.send(());
            }
        }
        for worker in &mut self.workers {
            // A panic of the supervisor dropped the child, which kills it.
            let _ = (&mut worker.supervisor).await;
        }
        while let Ok((index, said)) = self.said.try_recv() {
            self.hear(index, said);
        }
    }

    /// Once all listen, tells each where the others do.
    fn send_peers_when_known(&mut self) -> Result<(), Failure> {
        if self.peers_sent {
            return Ok(());
        }
        let Some(addresses) = self
            .workers
            .iter()
            .map(|w| w.listening.clone())
            .collect::<Option<Vec<_>>>()
        else {
            return Ok(());
        };
        let line = serde_json::to_string(&ToWorker::Peers { addresses })
            .map_err(|error| Failure::internal(format!("addresses are no JSON: {error}")))?;
        for lines in self.workers.iter().filter_map(|w| w.lines.as_ref()) {
            // A worker that is gone is noticed by its end.
            let _ = lines.send(line.clone());
        }
        self.peers_sent = true;
        Ok(())
    }

    /// Notes what a worker said and tells the readers.
    fn hear(&mut self, index: usize, said: Said) {
        let stopping = self.stopping;
        let Some(worker) = self.workers.get_mut(index) else {
            return;
        };
        let scope = Scope::worker(worker.info.host.clone(), worker.info.stage);
        let pid = Some(worker.info.pid);
        let state = |state| WorkerEvent {
            pid,
            ..WorkerEvent::new(state)
        };
        let event = match said {
            Said::Report(FromWorker::Listening { address }) => {
                worker.listening = Some(address.clone());
                Event::Worker(Box::new(WorkerEvent {
                    address: Some(address),
                    ..state(WorkerState::Listening)
                }))
            }
            Said::Report(FromWorker::Loaded {
                layers,
                bytes,
                seconds,
                device,
            }) => {
                worker.info.piece_bytes = bytes;
                worker.info.device = Some(device.clone());
                Event::Worker(Box::new(WorkerEvent {
                    layers: Some(layers),
                    bytes: Some(bytes),
                    seconds: Some(seconds),
                    device: Some(device),
                    ..state(WorkerState::Loaded)
                }))
            }
            Said::Report(FromWorker::Ready) => {
                worker.ready = true;
                if worker.info.stage == 0 {
                    // The head is ready for others when it serves, which it says next.
                    return;
                }
                Event::Worker(Box::new(state(WorkerState::Ready)))
            }
            Said::Report(FromWorker::Serving { api }) => {
                worker.ready = true;
                self.api = Some(api.clone());
                Event::Worker(Box::new(WorkerEvent {
                    address: Some(api),
                    ..state(WorkerState::Ready)
                }))
            }
            Said::Report(FromWorker::PeerRefused { peer, reason }) => Event::log(
                Level::Warn,
                format!("refused a connection from {peer}: {reason}"),
            ),
            Said::Report(FromWorker::PeerLost {
                stage,
                reason,
                kv_used,
            }) => Event::log(
                if stopping { Level::Debug } else { Level::Warn },
                format!("lost stage {stage}: {reason}; {kv_used} KV blocks still taken here"),
            ),
            Said::Report(FromWorker::Log { level, message }) => Event::log(
                match level.as_str() {
                    "error" => Level::Error,
                    "warn" => Level::Warn,
                    "debug" => Level::Debug,
                    _ => Level::Info,
                },
                message,
            ),
            Said::Report(FromWorker::Failed { kind, message }) => {
                worker.failed = Some((kind, message.clone()));
                Event::Worker(Box::new(WorkerEvent {
                    message: Some(message),
                    ..state(WorkerState::Failed)
                }))
            }
            Said::Nonsense(line) => Event::log(
                Level::Warn,
                format!("the worker said something that is no report: {line}"),
            ),
            Said::Talk(line) => Event::log(Level::Warn, line),
            Said::Ended(end) => {
                worker.end = Some(end);
                worker.lines = None;
                if !stopping {
                    self.ended.push(index);
                }
                let (code, signal) = match end {
                    End::Code(code) => (Some(code), None),
                    End::Signal(signal) => (None, Some(signal)),
                    End::Unknown => (None, None),
                };
                Event::Worker(Box::new(WorkerEvent {
                    code,
                    signal,
                    message: Some(end.to_string()),
                    ..state(if stopping {
                        WorkerState::Stopped
                    } else {
                        WorkerState::Lost
                    })
                }))
            }
        };
        self.emitter.emit(scope, event);
    }

    /// Waits a moment for others that end, then tells which one was the cause.
    async fn first_loss(&mut self, step: &str) -> Failure {
        let deadline = Instant::now() + SETTLE;
        while self.workers.iter().any(|w| w.end.is_none())
            && let Ok(Some((index, said))) = timeout_at(deadline, self.said.recv()).await
        {
            self.hear(index, said);
        }
        let ended: Vec<Ended<'_>> = self
            .ended
            .iter()
            .filter_map(|index| self.workers.get(*index))
            .map(|worker| Ended {
                info: &worker.info,
                end: worker.end.unwrap_or(End::Unknown),
                failed: worker.failed.as_ref(),
            })
            .collect();
        blame(&ended, step)
    }
}

/// Writes lines to a worker's stdin until there are no more, then closes it.
async fn write_lines(mut stdin: ChildStdin, mut lines: UnboundedReceiver<String>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        // A worker that reads no more has ended, which its supervisor tells.
        if stdin.write_all(line.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

/// Follows a worker's process: passes on what it says, then how it ended, in this order.
async fn supervise(
    index: usize,
    mut child: Child,
    killed: tokio::sync::oneshot::Receiver<()>,
    tell: UnboundedSender<(usize, Said)>,
) {
    let report = |line: &[u8]| {
        let said = serde_json::from_slice(line).map_or_else(
            |_| Said::Nonsense(String::from_utf8_lossy(line).into_owned()),
            Said::Report,
        );
        // Nobody listens any more when the deployment was dropped.
        let _ = tell.send((index, said));
    };
    let talk = |line: &[u8]| {
        let line = String::from_utf8_lossy(line).into_owned();
        let _ = tell.send((index, Said::Talk(line)));
    };
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let reading = async {
        tokio::join!(
            async {
                if let Some(stdout) = stdout {
                    each_line(stdout, report).await;
                }
            },
            async {
                if let Some(stderr) = stderr {
                    each_line(stderr, talk).await;
                }
            }
        );
    };
    tokio::pin!(reading);
    let mut read = false;
    let mut asked = false;
    tokio::pin!(killed);
    let end = loop {
        tokio::select! {
            () = &mut reading, if !read => read = true,
            // Ordered, or the deployment was dropped.
            _ = &mut killed, if !asked => {
                asked = true;
                // It fails only when the process is gone already.
                let _ = child.start_kill();
            }
            status = child.wait() => break status.map_or(End::Unknown, End::from),
        }
    };
    if !read {
        // What it said last is in the pipes. A process it left behind could hold them open.
        let _ = timeout(Duration::from_secs(1), reading).await;
    }
    let _ = tell.send((index, Said::Ended(end)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_worker_program_says_how_to_build_it() {
        let failure = find_worker(Some(Path::new("/nowhere/w"))).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Config);
        assert!(failure.message.contains("cargo build"), "{failure}");
    }
}
