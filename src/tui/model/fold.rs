//! From events and messages to what is known. Events of all runs are equal: a watched deployment,
//! a run started here, a journal.

use std::sync::Arc;

use super::data::{Data, Line, QUESTIONS, Question, Standing, TurnView};
use super::drift::DriftView;
use super::runs::{RunView, level_tone};
use super::{Message, Play};
use crate::event::{
    Envelope, Event, Level, RequestState, Scope, Status, Telemetry, WorkerEvent, WorkerState,
};
use crate::figures::{seconds, size};
use crate::tui::text::shown;
use crate::tui::theme::Tone;

/// Longest answer kept, in bytes.
const ANSWER: usize = 256 << 10;
/// Why a host is shown that is not in the inventory, when nothing runs on the others.
const LEFT: &str = "it left the inventory while its worker ran, and nobody stopped it there: add it again, then stop with D; x takes this row away";
/// Most choices of a question.
const CHOICES: usize = 9;

impl Data {
    /// Takes a message that is no event.
    pub fn message(&mut self, message: Message) {
        match message {
            Message::Standing(standing) => {
                match &standing {
                    Standing::Absent => self.nothing_runs(),
                    Standing::Trouble(_) => {
                        // What it does now, nobody knows.
                        self.set_uptime(None);
                        self.still();
                    }
                    Standing::Degraded(_) => self.still(),
                    _ => {}
                }
                self.standing = match standing {
                    Standing::Degraded(why) => Standing::Degraded(shown(&why)),
                    Standing::Trouble(why) => Standing::Trouble(shown(&why)),
                    other => other,
                };
            }
            Message::Cluster(name) => self.cluster = shown(&name),
            Message::Record(record) => {
                let is_new = self
                    .record
                    .as_ref()
                    .is_none_or(|old| old.deployment != record.deployment);
                if is_new {
                    self.forget_deployment();
                }
                self.looked();
                self.model = Some(shown(&record.model));
                self.api = Some(shown(&record.api));
                let holds = |name: &str| record.stages.iter().any(|stage| stage.host == name);
                for host in self.hosts.iter_mut().filter(|host| !holds(&host.name)) {
                    host.forget();
                }
                for stage in &record.stages {
                    if let Some(host) = self.host(&stage.host) {
                        if std::mem::take(&mut host.left) {
                            host.reason = None;
                        }
                        host.stage = Some(stage.stage);
                        host.first_layer = Some(stage.first_layer);
                        host.layers = Some(stage.layers);
                        host.piece_bytes = Some(stage.piece_bytes);
                    }
                }
                self.record = Some(record);
            }
            Message::Uptime(seconds) => self.set_uptime(Some(seconds)),
            Message::Inventory(listed) => self.set_inventory(*listed),
            Message::NoInventory { why, invalid } => {
                self.inventory = None;
                self.no_inventory = Some(shown(&why));
                self.invalid_inventory = invalid;
            }
            Message::Source(source) => self.source = source,
            Message::Ended(run, failure) => {
                for own in self.runs.iter_mut().filter(|own| own.id == run) {
                    own.ended(failure.as_ref());
                }
                self.questions.retain(|question| question.run != run);
            }
            Message::Unasked(run) => self.questions.retain(|question| question.run != run),
            Message::Facts(name, facts) => {
                if let Some(host) = self.host(&name) {
                    host.facts = Some(facts);
                }
            }
            Message::Log(host, lines) => {
                for line in lines {
                    self.logs.push(Line {
                        time: String::new(),
                        host: shown(&host),
                        tone: Tone::Plain,
                        text: shown(&line),
                    });
                }
            }
            Message::Talk(model) => {
                self.can_talk = model.is_some();
                if let Some(model) = model {
                    self.model = Some(shown(&model));
                }
            }
            Message::Playbooks(all) => {
                self.playbooks = all
                    .into_iter()
                    .take(1_000)
                    .map(|play| Play {
                        name: shown(&play.name),
                        about: shown(&play.about),
                        ..play
                    })
                    .collect();
            }
            // Of these the person is told, and nothing is kept.
            Message::Event(_) | Message::Preview(_) | Message::Written(_) | Message::Note(_) => {}
        }
    }

    /// Nothing runs on the inventory's hosts.
    fn nothing_runs(&mut self) {
        self.forget_deployment();
        self.looked();
    }

    /// Somebody looked what runs on all hosts that were reached.
    fn looked(&mut self) {
        for host in &mut self.hosts {
            host.looked = host.reached == Some(true);
        }
    }

    fn forget_deployment(&mut self) {
        self.record = None;
        self.telemetry = None;
        self.is_watched = false;
        self.set_uptime(None);
        self.model = None;
        self.api = None;
        let has_inventory = self.inventory.is_some();
        for host in &mut self.hosts {
            // Nobody reached it to stop what runs there.
            let left = has_inventory && host.listed.is_none();
            let left = left && (host.left || host.stage.is_some());
            host.left = left;
            host.forget();
            if left {
                host.reason = Some(LEFT.to_owned());
            }
        }
    }

    /// The time of an event for people.
    fn time(&self, envelope: &Envelope) -> String {
        clock(&envelope.time, self.offset).unwrap_or_default()
    }

    fn happened(&mut self, envelope: &Envelope, tone: Tone, text: &str) {
        let line = Line {
            time: self.time(envelope),
            host: shown(envelope.scope.host.as_deref().unwrap_or_default()),
            tone,
            text: shown(text),
        };
        self.events.push(line);
    }

    /// Takes an event of any run.
    pub fn event(&mut self, envelope: &Arc<Envelope>) {
        let time = self.time(envelope);
        let scope = &envelope.scope;
        if let Event::RunStarted {
            command,
            hosts,
            tasks,
            check,
            ..
        } = &envelope.event
        {
            self.runs
                .push(RunView::new(&envelope.run, command, *check, tasks, time));
            for host in hosts {
                self.host(host);
            }
            self.happened(envelope, Tone::Plain, &format!("{command} began"));
            return;
        }
        if let Some(run) = self
            .runs
            .iter_mut()
            .rev()
            .find(|run| run.id == envelope.run)
        {
            run.event(envelope, &time);
        }
        match &envelope.event {
            Event::RunStarted { .. } => {}
            Event::HostState { state, message } => self.host_state(envelope, state, message),
            Event::TaskStarted { .. } | Event::Transfer { .. } => {}
            Event::Change { what, .. } => {
                self.happened(envelope, Tone::Busy, &format!("changed {what}"));
            }
            Event::TaskFinished {
                status, message, ..
            } => self.task_finished(envelope, *status, message.as_deref()),
            Event::Output { text, .. } => {
                for text in crate::tui::text::lines(text.trim_end_matches('\n')) {
                    self.logs.push(Line {
                        time: time.clone(),
                        host: shown(scope.host.as_deref().unwrap_or_default()),
                        tone: Tone::Plain,
                        text,
                    });
                }
            }
            Event::Worker(worker) => self.worker(envelope, worker),
            Event::Request {
                state,
                message,
                prompt,
            } => self.request(envelope, *state, message.as_deref(), prompt.as_deref()),
            Event::Tokens { text, count, at } => {
                if let Some(turn) = self.turn(envelope) {
                    if turn.text.len() < ANSWER {
                        turn.text.push_str(text);
                    }
                    turn.tokens = *count;
                    turn.last_ms = *at;
                    turn.first_ms.get_or_insert(*at);
                    // A last word may come after an answer was stopped: it stays stopped.
                    if turn.is_open() {
                        turn.state = RequestState::FirstToken;
                    }
                }
            }
            Event::StageLost {
                reason,
                ended_after_us,
                requests,
            } => {
                if let Some(host) = scope.host.as_deref().and_then(|name| self.host(name)) {
                    host.worker = Some(WorkerState::Lost);
                    host.reason = Some(shown(reason));
                    host.busy = 0.0;
                }
                let text = format!(
                    "stage {} LOST: {reason}; {requests} open request{} ended {} later",
                    scope.stage.unwrap_or(0),
                    if *requests == 1 { "" } else { "s" },
                    seconds(*ended_after_us as f64 / 1e6),
                );
                self.happened(envelope, Tone::Bad, &text);
            }
            Event::Telemetry(rates) => {
                let is_of_run = self.runs.iter().any(|run| run.id == envelope.run);
                // A measurement tells what the watch tells too.
                if !(is_of_run && self.is_watched) {
                    self.is_watched = !is_of_run;
                    self.rates(rates);
                }
            }
            Event::Log { level, message } => {
                if *level >= Level::Info {
                    self.happened(envelope, level_tone(*level), message);
                }
                self.logs.push(Line {
                    time,
                    host: shown(scope.host.as_deref().unwrap_or_default()),
                    tone: level_tone(*level),
                    text: shown(message),
                });
            }
            Event::Question {
                id,
                text,
                choices,
                secret,
            } => {
                if self.questions.len() < QUESTIONS {
                    self.questions.push_back(Question {
                        run: envelope.run.clone(),
                        id: id.clone(),
                        host: shown(scope.host.as_deref().unwrap_or_default()),
                        text: text.clone(),
                        choices: choices.iter().take(CHOICES).cloned().collect(),
                        secret: *secret,
                    });
                }
            }
            Event::Summary(summary) => {
                self.questions
                    .retain(|question| question.run != envelope.run);
                if let Some(view) = DriftView::of(&summary.fields, time) {
                    self.drift = Some(Box::new(view));
                }
                let text = match &summary.error {
                    None => format!("{} done in {}", summary.command, seconds(summary.seconds)),
                    Some(error) => format!("{} FAILED: {}", summary.command, error.message),
                };
                let tone = match summary.error {
                    None => Tone::Good,
                    Some(_) => Tone::Bad,
                };
                if let Some(error) = &summary.error
                    && let Some(host) = error.host.as_deref().and_then(|name| self.host(name))
                    && host.worker.is_some()
                {
                    host.reason = Some(shown(&error.message));
                }
                self.happened(envelope, tone, &text);
            }
        }
    }

    fn host_state(&mut self, envelope: &Envelope, state: &str, message: &Option<String>) {
        let Some(host) = envelope.scope.host.as_deref() else {
            return;
        };
        let Some(host) = self.host(host) else {
            return;
        };
        let was = host.reached;
        match state {
            "unreachable" => {
                host.reached = Some(false);
                host.looked = false;
                host.worker = None;
                host.busy = 0.0;
                host.reason = message.as_deref().map(shown);
            }
            "reached" => {
                host.reached = Some(true);
                if was == Some(false) {
                    host.reason = None;
                }
            }
            _ => host.reason = message.as_deref().map(shown),
        }
        if was != host.reached || state == "unreachable" {
            let tone = if state == "unreachable" {
                Tone::Bad
            } else {
                Tone::Plain
            };
            let text = format!("{state} {}", message.as_deref().unwrap_or_default());
            self.happened(envelope, tone, text.trim_end());
        }
    }

    fn task_finished(&mut self, envelope: &Envelope, status: Status, message: Option<&str>) {
        let scope = &envelope.scope;
        let stops = [&scope.step, &scope.task]
            .into_iter()
            .any(|name| matches!(name.as_deref(), Some("stop" | "down")));
        if stops && matches!(status, Status::Ok | Status::Changed) {
            self.stopped(scope.host.as_deref().unwrap_or_default());
        }
        // What was as it should be is in the run; here stands what is news.
        if matches!(status, Status::Ok | Status::Skipped) {
            return;
        }
        let name = envelope
            .scope
            .step
            .as_deref()
            .or(envelope.scope.task.as_deref());
        let text = format!(
            "{} {} {}",
            name.unwrap_or("task"),
            status.word(),
            message.unwrap_or_default()
        );
        self.happened(envelope, super::runs::tone(status), text.trim_end());
    }

    /// What was left running on a host was stopped.
    fn stopped(&mut self, name: &str) {
        if self.left().any(|host| host.name == name) {
            self.forget_host(name);
        }
    }

    fn worker(&mut self, envelope: &Envelope, worker: &WorkerEvent) {
        let Some(name) = envelope.scope.host.clone() else {
            return;
        };
        if worker.state == WorkerState::Stopped {
            self.stopped(&name);
        }
        let stage = envelope.scope.stage;
        let first = stage.and_then(|stage| self.first_layer(stage));
        let mut news = None;
        if let Some(host) = self.host(&name) {
            if host.worker != Some(worker.state) || worker.message.is_some() {
                news = Some(worker.state);
            }
            host.worker = Some(worker.state);
            host.stage = stage.or(host.stage);
            if let Some(layers) = worker.layers {
                host.layers = Some(layers);
            }
            host.piece_bytes = worker.bytes.or(host.piece_bytes);
            if host.first_layer.is_none() && host.layers.is_some() {
                host.first_layer = first;
            }
            if let Some(device) = &worker.device {
                host.device = Some(shown(device));
            }
            match worker.state {
                WorkerState::Ready => host.reason = None,
                WorkerState::Failed | WorkerState::Lost => host.busy = 0.0,
                _ => {}
            }
            if let Some(message) = &worker.message {
                host.reason = Some(shown(message));
            }
        }
        if let (WorkerState::Ready, Some(api), Some(0)) = (worker.state, &worker.address, stage) {
            self.api = Some(shown(api));
        }
        if let Some(state) = news {
            let (tone, word) = match state {
                WorkerState::Starting | WorkerState::Listening => return,
                WorkerState::Loaded => (Tone::Plain, "loaded"),
                WorkerState::Ready => (Tone::Good, "ready"),
                WorkerState::Failed => (Tone::Bad, "FAILED"),
                WorkerState::Lost => (Tone::Bad, "LOST"),
                WorkerState::Stopped => (Tone::Faint, "stopped"),
            };
            let mut parts = Vec::new();
            if let Some(layers) = worker.layers {
                parts.push(format!("{layers} layers"));
            }
            parts.extend(worker.bytes.map(size));
            parts.extend(worker.message.clone());
            let more = if parts.is_empty() {
                String::new()
            } else {
                format!(": {}", parts.join(", "))
            };
            let text = format!("stage {} {word}{more}", stage.unwrap_or(0));
            self.happened(envelope, tone, &text);
        }
    }

    /// First layer of a stage, when the stages before it are known.
    fn first_layer(&self, stage: u32) -> Option<u32> {
        let mut sum = 0_u32;
        for before in 0..stage.min(64) {
            let host = self.hosts.iter().find(|host| host.stage == Some(before))?;
            sum = sum.saturating_add(host.layers?);
        }
        Some(sum)
    }

    fn request(
        &mut self,
        envelope: &Envelope,
        state: RequestState,
        message: Option<&str>,
        prompt: Option<&str>,
    ) {
        if state == RequestState::Sent {
            self.chat.push(TurnView {
                id: request_id(envelope),
                prompt: prompt.unwrap_or_default().to_owned(),
                text: String::new(),
                state,
                first_ms: None,
                last_ms: 0.0,
                tokens: 0,
                reason: None,
            });
            return;
        }
        if let Some(turn) = self.turn(envelope) {
            turn.state = state;
            if state == RequestState::Failed {
                turn.reason = message.map(shown);
            }
        }
        if state == RequestState::Failed {
            let text = format!("request FAILED: {}", message.unwrap_or_default());
            self.happened(envelope, Tone::Bad, &text);
        }
    }

    fn turn(&mut self, envelope: &Envelope) -> Option<&mut TurnView> {
        let id = request_id(envelope);
        self.chat.iter_mut().rev().find(|turn| turn.id == id)
    }

    fn rates(&mut self, rates: &Telemetry) {
        let sound = |value: f64| {
            if value.is_finite() {
                value.max(0.0)
            } else {
                0.0
            }
        };
        self.push_rates(
            sound(rates.tokens_per_second),
            sound(rates.prompt_tokens_per_second),
            rates.over,
        );
        for stage in &rates.stages {
            if let Some(host) = self.host(&stage.host) {
                host.stage = Some(stage.stage);
                host.busy = sound(stage.busy).min(1.0);
                host.rows_per_second = sound(stage.rows_per_second);
                host.kv = (stage.kv_used, stage.kv_total);
                host.anonymous_bytes = stage.anonymous_bytes;
                host.trend.push(host.rows_per_second as f32);
            }
        }
        self.telemetry = Some(Box::new(rates.clone()));
    }
}

fn request_id(envelope: &Envelope) -> (String, String) {
    let Scope { request, .. } = &envelope.scope;
    (envelope.run.clone(), request.clone().unwrap_or_default())
}

/// `03:04:05` of an RFC 3339 time in UTC, moved by an offset in seconds.
fn clock(time: &str, offset: i32) -> Option<String> {
    let part = time.get(11..19)?;
    let mut parts = part.split(':').map(|digits| digits.parse::<i32>().ok());
    let (hours, minutes, secs) = (parts.next()??, parts.next()??, parts.next()??);
    let all = hours.checked_mul(3600)? + minutes.checked_mul(60)? + secs;
    let all = all.checked_add(offset)?.rem_euclid(86_400);
    Some(format!(
        "{:02}:{:02}:{:02}",
        all / 3600,
        all / 60 % 60,
        all % 60
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_stopped_is_not_opened_again_by_a_late_word() {
        let mut data = Data::new(0);
        let request = |state| Event::Request {
            state,
            message: None,
            prompt: None,
        };
        let word = || Event::Tokens {
            text: "word".into(),
            count: 1,
            at: 1.0,
        };
        for event in [
            request(RequestState::Sent),
            word(),
            request(RequestState::Cancelled),
            word(),
        ] {
            data.event(&Arc::new(Envelope {
                v: 1,
                run: "r".into(),
                seq: 0,
                ms: 0,
                time: String::new(),
                scope: Scope::request("chat-1"),
                event,
            }));
        }
        let turn = data.chat.last().unwrap();
        assert_eq!(turn.state, RequestState::Cancelled);
    }

    #[test]
    fn times_are_moved_to_where_the_person_is() {
        assert_eq!(
            clock("2026-01-02T23:30:05.123Z", 3600).as_deref(),
            Some("00:30:05")
        );
        assert_eq!(
            clock("2026-01-02T00:00:05Z", -1).as_deref(),
            Some("00:00:04")
        );
        assert_eq!(clock("", 0), None);
        assert_eq!(clock("xxxxxxxxxxxxxxxxxxxxxxx", 0), None);
    }
}
