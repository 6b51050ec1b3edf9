//! The one typed stream of what happens in a run, and the commands that go the other way.
//!
//! Every part of the orchestrator tells what it does by emitting an [`Event`]; every way of
//! showing it (plain lines, JSON lines, journal, screens) is a reader of the same stream. This
//! module must not know hosts, models or terminals.

pub mod ask;
pub mod bus;
pub mod exit;
pub mod mask;
pub mod packed;
pub mod stop;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use ask::{Asker, Refusals};
pub use bus::{Bus, Emitter, Mailbox};
pub use exit::{Exit, Failure, FailureKind};
pub use mask::Masks;
pub use packed::Packed;
pub use stop::Stop;

/// Version of the event format, `v` in every line.
pub const SCHEMA: u32 = 1;

/// One event with who, when and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Version of the format, [`SCHEMA`].
    pub v: u32,
    /// Id of the run.
    pub run: String,
    /// Counts the events of the run from 0, without gaps.
    pub seq: u64,
    /// Milliseconds since the start of the run, by this process's monotonic clock.
    pub ms: u64,
    /// Wall time, RFC 3339 in UTC.
    pub time: String,
    /// What the event is about.
    #[serde(default, skip_serializing_if = "Scope::is_run")]
    pub scope: Scope,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What an event is about; with nothing set, the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scope {
    /// Name of a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Name of a task or step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Step of the task, where a task is made of what is a task elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Stage of a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<u32>,
    /// Id of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

impl Scope {
    /// The whole run.
    pub fn run() -> Self {
        Self::default()
    }

    /// A host.
    pub fn host(name: impl Into<String>) -> Self {
        Self {
            host: Some(name.into()),
            ..Self::default()
        }
    }

    /// The worker of a stage on a host.
    pub fn worker(host: impl Into<String>, stage: u32) -> Self {
        Self {
            host: Some(host.into()),
            stage: Some(stage),
            ..Self::default()
        }
    }

    /// A request.
    pub fn request(id: impl Into<String>) -> Self {
        Self {
            request: Some(id.into()),
            ..Self::default()
        }
    }

    /// The same, within a task.
    #[must_use]
    pub fn in_task(mut self, task: impl Into<String>) -> Self {
        self.task = Some(task.into());
        self
    }

    fn is_run(&self) -> bool {
        *self == Self::default()
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A command began. Always the first event.
    RunStarted {
        /// The command, e.g. `demo`.
        command: String,
        /// Version of windlass.
        version: String,
        /// Hosts the run is about.
        hosts: Vec<String>,
        /// Tasks in the order in which they will run, when that is known beforehand.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tasks: Vec<String>,
        /// Whether changes are only computed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        check: bool,
    },
    /// A host was reached, lost, or is in some other named state.
    HostState {
        /// One word.
        state: String,
        /// More, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// Work named by the scope's task began.
    TaskStarted {
        /// What will be done, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// Work named by the scope's task ended.
    TaskFinished {
        /// How.
        status: Status,
        /// Seconds it took.
        seconds: f64,
        /// What came of it, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// Something on the scope's host was changed, or would be.
    Change {
        /// What, e.g. a file's path.
        what: String,
        /// The change as a unified comparison of two texts, when it is one and is to be shown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        diff: Option<String>,
    },
    /// What a program on the scope's host wrote.
    Output {
        /// Where it wrote it.
        stream: Stream,
        /// The text, whole lines where possible. Control characters are still in it.
        text: String,
    },
    /// Bytes moved. One with `done` equal to `total` is the last of its kind.
    Transfer {
        /// What moves, e.g. a file's name.
        what: String,
        /// Bytes so far.
        done: u64,
        /// Bytes in all, when known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<u64>,
    },
    /// A worker's life. The scope names host and stage.
    Worker(Box<WorkerEvent>),
    /// A request's life. The scope names it.
    Request {
        /// Where it is.
        state: RequestState,
        /// More, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// What was asked, when it is sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<String>,
    },
    /// Text of an answer. The scope names the request.
    Tokens {
        /// The text, exactly as it came.
        text: String,
        /// Chunks of text of this request so far, this one included. The API sends one for each
        /// token whose text is complete; the exact number of tokens comes in the summary.
        count: u64,
        /// Milliseconds since the request was sent.
        at: f64,
    },
    /// The head lost a stage. The scope names the stage and its host.
    StageLost {
        /// What the head saw.
        reason: String,
        /// Microseconds from then until every open request had ended.
        ended_after_us: u64,
        /// Requests that ended with an error.
        requests: u32,
    },
    /// Rates of a running deployment.
    Telemetry(Box<Telemetry>),
    /// Something worth knowing.
    Log {
        /// How much it matters.
        level: Level,
        /// One sentence.
        message: String,
    },
    /// The run waits for an answer, given by [`Command::Answer`].
    Question {
        /// Id the answer names.
        id: String,
        /// The question.
        text: String,
        /// Possible answers; empty for free text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        choices: Vec<String>,
        /// Whether the answer is a secret and must not be shown.
        #[serde(default)]
        secret: bool,
    },
    /// The run ended. Always the last event.
    Summary(Box<Summary>),
}

impl Event {
    /// Whether a later event of the same scope makes this one worthless. All others are state
    /// changes or data, which no reader may miss.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Telemetry(_) => true,
            Self::Transfer { done, total, .. } => total.is_none_or(|total| *done < total),
            _ => false,
        }
    }

    /// A log line.
    pub fn log(level: Level, message: impl Into<String>) -> Self {
        Self::Log {
            level,
            message: message.into(),
        }
    }
}

/// How a piece of work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// All was as it should be.
    Ok,
    /// Something was changed.
    Changed,
    /// Something would be changed, were this no check.
    WouldChange,
    /// Not to be done here.
    Skipped,
    /// Failed.
    Failed,
    /// The host could not be reached.
    Unreachable,
    /// It cannot be told.
    Unknown,
}

impl Status {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Changed => "changed",
            Self::WouldChange => "would change",
            Self::Skipped => "skipped",
            Self::Failed => "FAILED",
            Self::Unreachable => "UNREACHABLE",
            Self::Unknown => "unknown",
        }
    }
}

/// Where a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Of use when something is looked into.
    Debug,
    /// Good to know.
    Info,
    /// Not as it should be; the run goes on.
    Warn,
    /// Something failed.
    Error,
}

/// Where a worker is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// The process was started.
    Starting,
    /// It listens for the other stages.
    Listening,
    /// Its pieces are mapped.
    Loaded,
    /// It is connected with the other stages; the head also answers requests.
    Ready,
    /// It said why it ends.
    Failed,
    /// It ended although nobody asked it to.
    Lost,
    /// It ended as asked.
    Stopped,
}

/// A worker's state with what is known of it by then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerEvent {
    /// Where it is in its life.
    pub state: WorkerState,
    /// Process id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Layers held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<u32>,
    /// Bytes of its pieces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Seconds that loading took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Device and instruction tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Where it listens, or the address of the API on a ready head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Exit status of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Signal that ended the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl WorkerEvent {
    /// Only the state.
    pub fn new(state: WorkerState) -> Self {
        Self {
            state,
            pid: None,
            layers: None,
            bytes: None,
            seconds: None,
            device: None,
            address: None,
            code: None,
            signal: None,
            message: None,
        }
    }
}

/// Where a request is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestState {
    /// Sent to the head.
    Sent,
    /// Its first token came.
    FirstToken,
    /// All tokens came.
    Finished,
    /// It ended with an error.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// Rates over the time since the last such event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    /// Tokens generated per second, all requests together.
    pub tokens_per_second: f64,
    /// Tokens of prompts computed per second, all requests together.
    #[serde(default)]
    pub prompt_tokens_per_second: f64,
    /// Milliseconds to the first token, of the requests that ended lately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<Quantiles>,
    /// Milliseconds between two tokens, of the requests that ended lately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between_tokens_ms: Option<Quantiles>,
    /// Seconds the rates are taken over.
    pub over: f64,
    /// Requests that are computed.
    pub running: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// By stage.
    pub stages: Vec<StageRate>,
}

/// Two quantiles of some measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// What 95 of 100 do not exceed.
    pub p95: f64,
}

/// Rates of one stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageRate {
    /// Stage.
    pub stage: u32,
    /// Its host.
    pub host: String,
    /// Part of the time spent computing, 0 to 1.
    pub busy: f64,
    /// Rows (tokens of prompt or answer) computed per second.
    pub rows_per_second: f64,
    /// Bytes sent to the next stage per second.
    pub sent_per_second: f64,
    /// KV blocks taken.
    pub kv_used: u32,
    /// KV blocks in all.
    pub kv_total: u32,
    /// Resident bytes that no file backs.
    pub anonymous_bytes: u64,
}

/// What a run did to one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCounters {
    /// Tasks that found all as it should be.
    pub ok: u64,
    /// Tasks that changed something.
    pub changed: u64,
    /// Tasks that would have changed something.
    pub would_change: u64,
    /// Tasks not done.
    pub skipped: u64,
    /// Tasks that failed.
    pub failed: u64,
    /// Tasks for which the host could not be reached.
    pub unreachable: u64,
    /// Tasks that could not tell.
    pub unknown: u64,
    /// Bytes sent to the host.
    pub bytes_sent: u64,
}

impl HostCounters {
    /// Counts a task's end.
    pub fn count(&mut self, status: Status) {
        let counter = match status {
            Status::Ok => &mut self.ok,
            Status::Changed => &mut self.changed,
            Status::WouldChange => &mut self.would_change,
            Status::Skipped => &mut self.skipped,
            Status::Failed => &mut self.failed,
            Status::Unreachable => &mut self.unreachable,
            Status::Unknown => &mut self.unknown,
        };
        *counter += 1;
    }
}

/// The last event of a run. The run's id stands in the envelope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The command.
    pub command: String,
    /// Exit status of the process.
    pub exit: i32,
    /// Seconds since the start of the run.
    pub seconds: f64,
    /// What was done to which host.
    pub hosts: BTreeMap<String, HostCounters>,
    /// Why the run failed; `null` when it did not.
    pub error: Option<Failure>,
    /// The command's own fields.
    #[serde(flatten)]
    pub fields: serde_json::Map<String, serde_json::Value>,
    /// Those of them that are wide.
    #[serde(flatten, skip_deserializing)]
    pub packed: Packed,
}

/// What a person or a reader asks of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// End now and clean up; the run's exit status is 130.
    Interrupt,
    /// End now and clean up; the run's exit status is 143.
    Terminate,
    /// Nobody can read the output any more.
    OutputLost {
        /// Which output, and why.
        reason: String,
    },
    /// The answer to a [`Event::Question`].
    Answer {
        /// Id of the question.
        id: String,
        /// The answer.
        answer: String,
    },
    /// That a question gets no answer: whoever was asked gave none.
    NoAnswer {
        /// Id of the question.
        id: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_summary_line_has_the_fields_scripts_rely_on() {
        let mut fields = serde_json::Map::new();
        fields.insert("workers".into(), json!(2));
        let envelope = Envelope {
            v: SCHEMA,
            run: "7f3a".into(),
            seq: 9,
            ms: 1500,
            time: "2026-01-02T03:04:05Z".into(),
            scope: Scope::run(),
            event: Event::Summary(Box::new(Summary {
                command: "demo".into(),
                exit: 1,
                seconds: 1.5,
                hosts: BTreeMap::from([("local-1".to_owned(), HostCounters::default())]),
                error: Some(
                    Failure::new(FailureKind::Worker, "it was killed")
                        .on("local-2")
                        .at("answer"),
                ),
                fields,
                packed: Packed::default(),
            })),
        };
        let value = serde_json::to_value(&envelope).unwrap();
        let wanted = json!({
            "v": 1, "event": "summary", "command": "demo", "run": "7f3a", "exit": 1, "seconds": 1.5,
            "hosts": {"local-1": {"ok": 0, "changed": 0, "would_change": 0, "skipped": 0, "failed": 0,
                "unreachable": 0, "unknown": 0, "bytes_sent": 0}},
            "error": {"kind": "worker", "host": "local-2", "step": "answer", "message": "it was killed"},
            "workers": 2,
            "seq": 9, "ms": 1500, "time": "2026-01-02T03:04:05Z",
        });
        assert_eq!(value, wanted);
        let back: Envelope = serde_json::from_value(value).unwrap();
        assert_eq!(back, envelope);
    }

    #[test]
    fn every_kind_of_event_survives_a_journal() {
        let events = [
            Event::RunStarted {
                command: "demo".into(),
                version: "0".into(),
                hosts: vec!["a".into()],
                tasks: vec!["same OS".into()],
                check: true,
            },
            Event::Change {
                what: "/etc/hosts".into(),
                diff: Some("+a".into()),
            },
            Event::Output {
                stream: Stream::Stderr,
                text: "x\n".into(),
            },
            Event::HostState {
                state: "reached".into(),
                message: None,
            },
            Event::TaskStarted { message: None },
            Event::TaskFinished {
                status: Status::WouldChange,
                seconds: 0.5,
                message: Some("x".into()),
            },
            Event::Transfer {
                what: "model".into(),
                done: 1,
                total: Some(2),
            },
            Event::Worker(Box::new(WorkerEvent {
                signal: Some(9),
                ..WorkerEvent::new(WorkerState::Lost)
            })),
            Event::Request {
                state: RequestState::FirstToken,
                message: None,
                prompt: None,
            },
            Event::Tokens {
                text: " a".into(),
                count: 3,
                at: 12.5,
            },
            Event::StageLost {
                reason: "closed".into(),
                ended_after_us: 5,
                requests: 1,
            },
            Event::Telemetry(Box::new(Telemetry {
                stages: vec![StageRate::default()],
                ..Telemetry::default()
            })),
            Event::log(Level::Warn, "careful"),
            Event::Question {
                id: "q1".into(),
                text: "go on?".into(),
                choices: vec![],
                secret: true,
            },
        ];
        for event in events {
            let envelope = Envelope {
                v: SCHEMA,
                run: "r".into(),
                seq: 0,
                ms: 0,
                time: String::new(),
                scope: Scope::worker("h", 1).in_task("start"),
                event,
            };
            let line = serde_json::to_string(&envelope).unwrap();
            let back: Envelope = serde_json::from_str(&line).unwrap();
            assert_eq!(back, envelope, "{line}");
        }
    }

    #[test]
    fn only_progress_and_telemetry_may_be_skipped_by_a_slow_reader() {
        let transfer = |done, total| Event::Transfer {
            what: "m".into(),
            done,
            total,
        };
        assert!(transfer(1, Some(2)).is_passing());
        assert!(transfer(1, None).is_passing());
        assert!(!transfer(2, Some(2)).is_passing());
        assert!(Event::Telemetry(Box::default()).is_passing());
        assert!(
            !Event::Tokens {
                text: "t".into(),
                count: 1,
                at: 0.0
            }
            .is_passing()
        );
        assert!(!Event::log(Level::Debug, "m").is_passing());
    }
}
