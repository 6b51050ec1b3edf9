//! What a run tells at its end: fields, text, and the failure that counts. Mostly pure.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use super::super::kinds::Acted;
use super::{Outcome, Runner};
use crate::event::{Event, Failure, FailureKind, Scope, Status, Stream};
use crate::ssh::Caps;

/// What was done, by task.
#[derive(Debug, Default)]
pub(super) struct Report {
    order: Vec<usize>,
    tasks: BTreeMap<usize, Reported>,
    fields: Map<String, Value>,
    text: String,
}

#[derive(Debug, Default)]
struct Reported {
    name: String,
    hosts: Map<String, Value>,
}

impl Report {
    /// A task is begun.
    pub fn begin(&mut self, index: usize, name: &str) {
        self.order.push(index);
        self.tasks.entry(index).or_default().name = name.to_owned();
    }

    /// It ended on a host.
    pub fn add(&mut self, index: usize, host: &str, status: Status, seconds: f64, message: &str) {
        self.tasks.entry(index).or_default().hosts.insert(
            host.to_owned(),
            json!({"status": status, "seconds": seconds, "message": message}),
        );
    }

    /// What it came to as a whole. Measurements stand in the summary by themselves.
    pub fn whole(&mut self, _index: usize, kind: &str, acted: &Acted) {
        self.text.push_str(&acted.text);
        if kind == "bench" && !acted.values.is_empty() {
            self.fields
                .insert("bench".into(), acted.values.clone().into());
        }
    }

    fn tasks(&self) -> Value {
        self.order
            .iter()
            .filter_map(|index| self.tasks.get(index))
            .map(|task| json!({"name": task.name, "hosts": task.hosts}))
            .collect()
    }
}

/// The kind of a failure as that of a task that failed: what is invalid, differs or is missing in a
/// run has failed there.
pub(super) fn of_a_task(kind: FailureKind) -> FailureKind {
    match kind {
        FailureKind::Usage | FailureKind::Config | FailureKind::Drift | FailureKind::Nothing => {
            FailureKind::Host
        }
        other => other,
    }
}

impl Runner<'_> {
    /// The end: what is told, and marks on the hosts taken away when nothing is left to be done.
    pub(super) async fn outcome(mut self, ended: Option<Failure>) -> Outcome {
        let failure = ended.or_else(|| self.worst());
        let complete = failure.is_none() && self.open().is_empty();
        if complete {
            if let Some(progress) = &mut self.progress {
                progress.complete();
            }
            self.forget_marks().await;
        }
        let mut fields = std::mem::take(&mut self.report.fields);
        fields.insert("playbook".into(), json!(self.prepared.playbook.name));
        fields.insert("check".into(), json!(self.prepared.check));
        fields.insert("tasks".into(), self.report.tasks());
        fields.insert("results".into(), self.shown_results());
        let failures: Vec<Value> = self
            .left
            .iter()
            .map(|(host, task, failure)| {
                json!({"host": host, "task": task, "kind": failure.kind, "message": failure.message})
            })
            .collect();
        fields.insert("failures".into(), json!(failures));
        if !complete && self.progress.is_some() {
            fields.insert("resume".into(), json!(resume_command(&self.context.run)));
        }
        let text = std::mem::take(&mut self.report.text);
        if !text.is_empty() {
            // As an event it reaches every reader, the journal too.
            let stream = Stream::Stdout;
            let report = Event::Output { stream, text };
            self.context.emitter.emit(Scope::run(), report);
        }
        Outcome { fields, failure }
    }

    /// The failure that counts most; of equals the first.
    fn worst(&self) -> Option<Failure> {
        let (_, task, failure) = self
            .left
            .iter()
            .min_by_key(|(_, _, failure)| of_a_task(failure.kind).exit())?;
        let mut failure = failure.clone();
        failure.kind = of_a_task(failure.kind);
        if let Some(task) = task {
            failure.step = Some(task.clone());
        }
        Some(failure)
    }

    /// Registered results, without those that are kept from readers.
    fn shown_results(&self) -> Value {
        let hidden = |name: &str| {
            let mut tasks = self.prepared.playbook.tasks.iter();
            tasks.any(|task| task.no_log && task.register.as_deref() == Some(name))
        };
        let shown: Map<String, Value> = self
            .results
            .iter()
            .filter(|(name, _)| !hidden(name))
            .map(|(name, registered)| (name.clone(), registered.value()))
            .collect();
        shown.into()
    }

    /// Takes the marks away by which hosts knew what was done.
    async fn forget_marks(&self) {
        let tasks = || {
            let chosen = self.prepared.chosen.iter();
            chosen.filter_map(|(index, _)| self.prepared.playbook.tasks.get(*index))
        };
        if self.prepared.check || !tasks().any(|task| task.kind.leaves_marks()) {
            return;
        }
        let as_root = tasks().any(|task| {
            let root = task.arguments.iter().find(|(name, _)| name == "root");
            task.kind.leaves_marks()
                && root.is_some_and(|(_, root)| root.literal() != Some(false.into()))
        });
        let script = super::super::kinds::once::forget(&self.origin);
        join_all(self.reached.iter().map(|host| async {
            // What cannot be taken away harms nobody: no other run has this one's id.
            let _ = host
                .session
                .run("take marks away", &script, Caps::default())
                .await;
            if as_root {
                let _ = host
                    .session
                    .run_as_root("take marks away", &script, Caps::default())
                    .await;
            }
        }))
        .await;
    }
}

/// What to type to go on.
pub fn resume_command(run: &str) -> String {
    format!("windlass playbook run --resume {run}")
}
