//! What is known, bounded in size whatever happens. Every text in it may be shown as it is.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::runs::RunView;
use super::{Listed, ListedHost};
use crate::deploy::client::Turn;
use crate::deploy::remote::record::Record;
use crate::event::{RequestState, Telemetry, WorkerState};
use crate::facts::Facts;
use crate::tui::ring::Ring;
use crate::tui::theme::Tone;

/// Rates kept: at two a second, five minutes.
pub const RATES: usize = 600;
/// Points of a host's trend.
pub const TREND: usize = 60;
/// Events kept for the overview.
const EVENTS: usize = 300;
/// Lines of logs kept.
const LOGS: usize = 5_000;
/// Runs kept.
const RUNS: usize = 20;
/// Turns of a chat kept.
const TURNS: usize = 200;
/// Most hosts shown.
pub const HOSTS: usize = 10_000;
/// Most questions that wait.
pub const QUESTIONS: usize = 64;

/// How the watched deployment is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has looked yet.
    #[default]
    Unknown,
    /// Somebody looks.
    Looking,
    /// Nothing runs.
    Absent,
    /// It serves.
    Serving,
    /// It comes up.
    Starting,
    /// It does not serve as it should; why.
    Degraded(String),
    /// It cannot be told; why.
    Trouble(String),
}

/// What is known.
#[derive(Clone, Debug)]
pub struct Data {
    /// Seconds that local time is ahead of UTC.
    pub offset: i32,
    /// Name of the cluster.
    pub cluster: String,
    /// The inventory.
    pub inventory: Option<Listed>,
    /// Why there is none.
    pub no_inventory: Option<String>,
    /// How the deployment is.
    pub standing: Standing,
    /// The record of what runs.
    pub record: Option<Box<Record>>,
    /// Name of the model that answers.
    pub model: Option<String>,
    /// Address of the API.
    pub api: Option<String>,
    /// Seconds the head has served.
    pub uptime: Option<f64>,
    /// The hosts, in the inventory's order.
    pub hosts: Vec<HostView>,
    /// Where a host is in the list.
    pub places: HashMap<String, usize>,
    /// Tokens per second over time: generated, prompt.
    pub rates: Ring<(f64, f64)>,
    /// The newest rates.
    pub telemetry: Option<Box<Telemetry>>,
    /// What happened.
    pub events: Ring<Line>,
    /// What workers and runs write.
    pub logs: Ring<Line>,
    /// Runs, the newest last.
    pub runs: Ring<RunView>,
    /// What can be run: name, and what it is for.
    pub playbooks: Vec<(String, String)>,
    /// The conversation.
    pub chat: Ring<TurnView>,
    /// Whether there is a head to talk to.
    pub can_talk: bool,
    /// Questions that wait for an answer.
    pub questions: VecDeque<Question>,
}

/// A host as it is known.
#[derive(Clone, Debug, PartialEq)]
pub struct HostView {
    /// Its name.
    pub name: String,
    /// What the inventory says.
    pub listed: Option<ListedHost>,
    /// Whether it was reached: `None` when nobody tried.
    pub reached: Option<bool>,
    /// State of its worker.
    pub worker: Option<WorkerState>,
    /// Why it is as it is.
    pub reason: Option<String>,
    /// Its stage.
    pub stage: Option<u32>,
    /// First layer it holds, when known.
    pub first_layer: Option<u32>,
    /// Layers it holds.
    pub layers: Option<u32>,
    /// Bytes of its pieces.
    pub piece_bytes: Option<u64>,
    /// Part of the time it computes, 0 to 1.
    pub busy: f64,
    /// Rows computed per second.
    pub rows_per_second: f64,
    /// KV blocks taken, and in all.
    pub kv: (u32, u32),
    /// Resident bytes of the worker that no file backs.
    pub anonymous_bytes: u64,
    /// Device and instruction tier.
    pub device: Option<String>,
    /// Rows per second over time.
    pub trend: Ring<f32>,
    /// What was read from it.
    pub facts: Option<Box<Facts>>,
}

/// A line with its time and host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// `12:04:31`.
    pub time: String,
    /// Its host, or empty.
    pub host: String,
    /// How it is.
    pub tone: Tone,
    /// The text.
    pub text: String,
}

/// A question that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The run that asks.
    pub run: String,
    /// Its id.
    pub id: String,
    /// The host it is about, or empty.
    pub host: String,
    /// The question.
    pub text: String,
    /// Possible answers; empty for free text.
    pub choices: Vec<String>,
    /// Whether the answer is a secret.
    pub secret: bool,
}

/// One question to the model and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnView {
    /// Run and request.
    pub id: (String, String),
    /// The question as it was sent.
    pub prompt: String,
    /// The answer as it came.
    pub text: String,
    /// Where it is.
    pub state: RequestState,
    /// Milliseconds to the first token.
    pub first_ms: Option<f64>,
    /// Milliseconds to the last token that came.
    pub last_ms: f64,
    /// Tokens that came.
    pub tokens: u64,
    /// Why it failed.
    pub reason: Option<String>,
}

impl TurnView {
    /// (tokens − 1) / (time of last − time of first).
    pub fn tokens_per_second(&self) -> Option<f64> {
        let over = (self.last_ms - self.first_ms?) / 1000.0;
        (self.tokens > 1 && over > 0.0).then(|| (self.tokens - 1) as f64 / over)
    }

    /// Whether its answer still comes.
    pub fn is_open(&self) -> bool {
        matches!(self.state, RequestState::Sent | RequestState::FirstToken)
    }
}

impl HostView {
    /// A host of which only the name is known.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            listed: None,
            reached: None,
            worker: None,
            reason: None,
            stage: None,
            first_layer: None,
            layers: None,
            piece_bytes: None,
            busy: 0.0,
            rows_per_second: 0.0,
            kv: (0, 0),
            anonymous_bytes: 0,
            device: None,
            trend: Ring::new(TREND),
            facts: None,
        }
    }

    /// Its state: tone, mark and word.
    pub fn state(&self) -> (Tone, &'static str, &'static str) {
        match (self.worker, self.reached) {
            (Some(WorkerState::Ready), _) => (Tone::Good, "●", "serving"),
            (Some(WorkerState::Failed), _) => (Tone::Bad, "✗", "failed"),
            (Some(WorkerState::Lost), _) => (Tone::Bad, "✗", "lost"),
            (Some(WorkerState::Stopped), _) => (Tone::Faint, "·", "stopped"),
            (Some(_), _) => (Tone::Busy, "○", "starting"),
            (None, Some(false)) => (Tone::Bad, "✗", "unreachable"),
            (None, Some(true)) => (Tone::Plain, "○", "idle"),
            (None, None) => (Tone::Faint, "·", "not seen"),
        }
    }

    /// Its layers as people count them: `0–14`.
    pub fn layer_range(&self) -> String {
        match (self.first_layer, self.layers) {
            (Some(first), Some(count)) if count > 0 => {
                format!("{first}–{}", first.saturating_add(count - 1))
            }
            (None, Some(count)) => format!("{count}"),
            _ => "–".to_owned(),
        }
    }

    /// Memory in use and in all, where the host told.
    pub fn memory(&self) -> Option<(u64, u64)> {
        let memory = &self.facts.as_ref()?.memory;
        let (total, available) = (memory.total_bytes?, memory.available_bytes?);
        Some((total.saturating_sub(available), total))
    }
}

impl Data {
    /// Nothing known yet.
    pub fn new(offset: i32) -> Self {
        Self {
            offset,
            cluster: String::new(),
            inventory: None,
            no_inventory: None,
            standing: Standing::Unknown,
            record: None,
            model: None,
            api: None,
            uptime: None,
            hosts: Vec::new(),
            places: HashMap::new(),
            rates: Ring::new(RATES),
            telemetry: None,
            events: Ring::new(EVENTS),
            logs: Ring::new(LOGS),
            runs: Ring::new(RUNS),
            playbooks: Vec::new(),
            chat: Ring::new(TURNS),
            can_talk: false,
            questions: VecDeque::new(),
        }
    }

    /// The host of this name, made when it is new; `None` when there is no room.
    pub fn host(&mut self, name: &str) -> Option<&mut HostView> {
        let at = match self.places.get(name) {
            Some(at) => *at,
            None if self.hosts.len() < HOSTS => {
                self.hosts
                    .push(HostView::new(&crate::tui::text::shown(name)));
                self.places.insert(name.to_owned(), self.hosts.len() - 1);
                self.hosts.len() - 1
            }
            None => return None,
        };
        self.hosts.get_mut(at)
    }

    /// Whether a run that changes hosts is in progress.
    pub fn running(&self) -> impl Iterator<Item = &RunView> {
        self.runs.iter().filter(|run| run.is_open())
    }

    /// What was said so far, for the next question.
    pub fn said(&self) -> Vec<Turn> {
        self.chat
            .iter()
            .filter(|turn| turn.state == RequestState::Finished)
            .map(|turn| Turn {
                prompt: turn.prompt.clone(),
                answer: turn.text.clone(),
            })
            .collect()
    }

    /// Takes the inventory: its hosts stand first and in its order; hosts that are in neither it
    /// nor the deployment go.
    pub fn set_inventory(&mut self, listed: Listed) {
        let mut old: BTreeMap<String, HostView> = std::mem::take(&mut self.hosts)
            .into_iter()
            .map(|host| (host.name.clone(), host))
            .collect();
        self.places.clear();
        for entry in listed.hosts.iter().take(HOSTS) {
            let mut host = old
                .remove(&entry.name)
                .unwrap_or_else(|| HostView::new(&entry.name));
            host.listed = Some(entry.clone());
            self.places.insert(entry.name.clone(), self.hosts.len());
            self.hosts.push(host);
        }
        for (name, mut host) in old {
            if host.stage.is_some() {
                host.listed = None;
                self.places.insert(name, self.hosts.len());
                self.hosts.push(host);
            }
        }
        self.cluster.clone_from(&listed.cluster);
        self.no_inventory = None;
        self.inventory = Some(listed);
    }
}
