//! What is known, bounded in size whatever happens. Every text in it may be shown as it is.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::drift::DriftView;
use super::runs::RunView;
use super::{Listed, ListedHost, Play};
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

/// Seconds between two of the rates kept.
pub const RATES_EVERY: f64 = 0.5;
/// Rates that are older than this many seconds are those of nothing.
const STALE: f64 = 2.0;
/// Least seconds by which a new word about the uptime must differ from what is shown.
const UPTIME_SLACK: f64 = 3.0;

/// Where what is shown comes from, and so what can be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The hosts of an inventory.
    #[default]
    Hosts,
    /// A deployment on this machine alone, which ends with the screens.
    Demo,
    /// The journal of a run that is over.
    Journal,
}

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
    /// Where it comes from.
    pub source: Source,
    /// What the clock says, in seconds.
    clock: f64,
    /// Seconds that local time is ahead of UTC.
    pub offset: i32,
    /// Name of the cluster.
    pub cluster: String,
    /// The inventory.
    pub inventory: Option<Listed>,
    /// Why there is none.
    pub no_inventory: Option<String>,
    /// Whether that is because there is one which is invalid.
    pub invalid_inventory: bool,
    /// How the deployment is.
    pub standing: Standing,
    /// The record of what runs.
    pub record: Option<Box<Record>>,
    /// Name of the model that answers.
    pub model: Option<String>,
    /// Address of the API.
    pub api: Option<String>,
    /// Seconds the head has served, and what the clock said then.
    uptime: Option<(f64, f64)>,
    /// The hosts, in the inventory's order.
    pub hosts: Vec<HostView>,
    /// Where a host is in the list.
    pub places: HashMap<String, usize>,
    /// Tokens per second over time: generated, prompt.
    pub rates: Ring<(f64, f64)>,
    /// What the clock says at the end of the newest of them.
    rates_until: f64,
    /// Whether they come from who watches: then those of a run here are the same again.
    pub(super) is_watched: bool,
    /// The newest rates.
    pub telemetry: Option<Box<Telemetry>>,
    /// What happened.
    pub events: Ring<Line>,
    /// What workers and runs write.
    pub logs: Ring<Line>,
    /// Runs, the newest last.
    pub runs: Ring<RunView>,
    /// What the last comparison of the hosts found.
    pub drift: Option<Box<DriftView>>,
    /// What can be run.
    pub playbooks: Vec<Play>,
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
    /// Whether somebody looked what runs there.
    pub looked: bool,
    /// Whether its worker was left running when the rest of its deployment was stopped.
    pub left: bool,
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
            looked: false,
            left: false,
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

    /// Forgets all that it had of a deployment.
    pub(super) fn forget(&mut self) {
        let reason = self.reason.take();
        *self = Self {
            listed: self.listed.take(),
            reached: self.reached,
            looked: self.looked,
            left: self.left,
            facts: self.facts.take(),
            reason: reason.filter(|_| self.reached == Some(false) || self.left),
            ..Self::new(&self.name)
        };
    }

    /// Its state: tone, mark and word.
    pub fn state(&self) -> (Tone, &'static str, &'static str) {
        if self.left {
            return (Tone::Careful, "▲", "not stopped");
        }
        match (self.worker, self.reached) {
            (Some(WorkerState::Ready), _) => (Tone::Good, "●", "serving"),
            (Some(WorkerState::Failed), _) => (Tone::Bad, "✗", "failed"),
            (Some(WorkerState::Lost), _) => (Tone::Bad, "✗", "lost"),
            (Some(WorkerState::Stopped), _) => (Tone::Faint, "·", "stopped"),
            (Some(_), _) => (Tone::Busy, "○", "starting"),
            (None, Some(false)) => (Tone::Bad, "✗", "unreachable"),
            (None, Some(true)) if self.stage.is_some() => (Tone::Faint, "·", "not known"),
            (None, Some(true)) if self.looked => (Tone::Plain, "○", "idle"),
            (None, Some(true)) => (Tone::Plain, "○", "reached"),
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
            source: Source::Hosts,
            clock: 0.0,
            offset,
            cluster: String::new(),
            inventory: None,
            no_inventory: None,
            invalid_inventory: false,
            standing: Standing::Unknown,
            record: None,
            model: None,
            api: None,
            uptime: None,
            hosts: Vec::new(),
            places: HashMap::new(),
            rates: Ring::new(RATES),
            rates_until: 0.0,
            is_watched: false,
            telemetry: None,
            events: Ring::new(EVENTS),
            logs: Ring::new(LOGS),
            runs: Ring::new(RUNS),
            drift: None,
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
            // What still runs there is in sight until it is stopped.
            if host.stage.is_some() || host.left {
                host.listed = None;
                self.places.insert(name, self.hosts.len());
                self.hosts.push(host);
            }
        }
        self.cluster.clone_from(&listed.cluster);
        self.no_inventory = None;
        self.invalid_inventory = false;
        self.inventory = Some(listed);
    }

    /// Hosts that left the inventory while a worker ran there, and on which it was not stopped since.
    pub fn left(&self) -> impl Iterator<Item = &HostView> {
        self.hosts.iter().filter(|host| host.left)
    }

    /// All of a journal was taken: nobody can answer any more, and what told no end was cut off.
    pub fn close_journal(&mut self) {
        self.source = Source::Journal;
        self.questions.clear();
        for run in self.runs.iter_mut().filter(|run| run.is_open()) {
            run.cut_off = true;
        }
    }

    /// Takes a host's row away.
    pub fn forget_host(&mut self, name: &str) {
        self.hosts.retain(|host| host.name != name);
        let names = self.hosts.iter().map(|host| host.name.clone());
        self.places = names.zip(0..).collect();
    }

    /// Seconds the head has served by now.
    pub fn uptime(&self) -> Option<f64> {
        let (seconds, at) = self.uptime?;
        Some(seconds + (self.clock - at).max(0.0))
    }

    /// Takes the seconds that the head says it has served; nothing when it is not known any more.
    pub(super) fn set_uptime(&mut self, seconds: Option<f64>) {
        let is_news = match (self.uptime(), seconds) {
            (Some(shown), Some(said)) => (shown - said).abs() > UPTIME_SLACK,
            _ => true,
        };
        if is_news {
            self.uptime = seconds.map(|seconds| (seconds, self.clock));
        }
    }

    /// Takes rates of so many seconds.
    pub(super) fn push_rates(&mut self, generated: f64, prompt: f64, over: f64) {
        for _ in 0..points(over) {
            self.rates.push((generated, prompt));
        }
        self.rates_until = self.clock;
    }

    /// Nothing is computed any more, as far as anybody knows: the speeds of now are none.
    pub(super) fn still(&mut self) {
        if let Some(rates) = &mut self.telemetry {
            rates.tokens_per_second = 0.0;
            rates.prompt_tokens_per_second = 0.0;
            rates.running = 0;
            rates.waiting = 0;
        }
        for host in &mut self.hosts {
            host.busy = 0.0;
            host.rows_per_second = 0.0;
        }
    }

    /// The clock went on: uptime counts, and where no rates came they fall to zero. Whether what is
    /// shown is another then.
    pub(super) fn tick(&mut self, clock: f64) -> bool {
        let shown = self.uptime().map(|seconds| seconds as u64);
        self.clock = clock;
        let counts = self.uptime().map(|seconds| seconds as u64) != shown;
        let since = clock - self.rates_until;
        if self.telemetry.is_none() || since < STALE {
            return counts;
        }
        self.still();
        for _ in 0..points(since) {
            self.rates.push((0.0, 0.0));
            for host in self.hosts.iter_mut().filter(|host| host.stage.is_some()) {
                host.trend.push(0.0);
            }
        }
        self.rates_until = clock;
        true
    }
}

/// How many of the rates kept so many seconds are.
fn points(over: f64) -> usize {
    // Of what is no number, one.
    (over / RATES_EVERY).round().clamp(1.0, RATES as f64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_counts_on_and_does_not_go_back_by_a_later_word() {
        let mut data = Data::new(0);
        data.tick(100.0);
        data.set_uptime(Some(7.0));
        assert!(data.tick(105.0));
        assert_eq!(data.uptime(), Some(12.0));
        assert!(!data.tick(105.2), "what is shown is the same");
        // The word took its time.
        data.set_uptime(Some(11.5));
        assert!(
            data.uptime()
                .is_some_and(|seconds| (seconds - 12.2).abs() < 1e-9)
        );
        // The head began anew.
        data.set_uptime(Some(0.5));
        assert_eq!(data.uptime(), Some(0.5));
        data.set_uptime(None);
        assert_eq!(data.uptime(), None);
    }

    #[test]
    fn rates_that_nobody_tells_any_more_fall_to_zero() {
        let mut data = Data::new(0);
        data.tick(10.0);
        let host = data.host("halo1").unwrap();
        (host.stage, host.busy, host.rows_per_second) = (Some(0), 0.9, 40.0);
        data.telemetry = Some(Box::new(Telemetry {
            tokens_per_second: 40.0,
            running: 3,
            ..Telemetry::default()
        }));
        data.push_rates(40.0, 0.0, 0.5);
        data.tick(11.5);
        assert_eq!(data.rates.len(), 1);
        assert!(data.tick(13.0));
        assert_eq!(data.rates.len(), 1 + 6, "a point for each half second");
        assert_eq!(data.rates.last(), Some(&(0.0, 0.0)));
        let rates = data.telemetry.as_ref().unwrap();
        assert_eq!((rates.tokens_per_second, rates.running), (0.0, 0));
        let host = &data.hosts[0];
        assert_eq!((host.busy, host.rows_per_second), (0.0, 0.0));
        assert_eq!(host.trend.len(), 6);
    }

    #[test]
    fn a_count_of_points_is_bounded_whatever_the_time_is() {
        let of = [0.5, 1.5, 0.0, -3.0, 1e300, f64::INFINITY].map(points);
        assert_eq!(of, [1, 3, 1, 1, RATES, RATES]);
        assert!(points(f64::NAN) <= RATES);
    }

    #[test]
    fn what_is_not_known_of_a_host_is_not_called_idle() {
        let mut host = HostView::new("halo1");
        let word = |host: &HostView| host.state().2;
        assert_eq!(word(&host), "not seen");
        host.reached = Some(true);
        assert_eq!(word(&host), "reached");
        host.looked = true;
        assert_eq!(word(&host), "idle");
        host.stage = Some(0);
        assert_eq!(word(&host), "not known");
    }
}
