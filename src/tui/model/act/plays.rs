//! What keys do about playbooks and runs: begin them, with their values, and stop them. Must not know how
//! they are run.

use super::super::form::Form;
use super::super::ui::Confirm;
use super::super::{Effect, Job, Model, Play};

impl Model {
    pub(super) fn start(&mut self, check: bool) -> Vec<Effect> {
        if self.ui.run.is_some() {
            return Vec::new();
        }
        let row = self.ui.row();
        if let Some(play) = self.data.playbooks.get(row).cloned() {
            if let Some(busy) = self.busy() {
                self.ui.note = Some(busy);
                return Vec::new();
            }
            let form = Form::of_play(play, check);
            if !form.fields.is_empty() {
                self.ui.form = Some(form);
                return Vec::new();
            }
            return match form.job() {
                Some((play, job)) => self.begin_play(play, job),
                None => Vec::new(),
            };
        }
        let at = row.saturating_sub(self.data.playbooks.len());
        // The newest run stands first.
        self.ui.run = self
            .data
            .runs
            .iter()
            .rev()
            .nth(at)
            .map(|run| run.id.clone());
        self.ui.run_back = 0;
        Vec::new()
    }

    /// Begins the run that the form for a playbook asks for.
    pub(super) fn accept_play(&mut self) -> Vec<Effect> {
        let busy = self.busy();
        let Some(form) = &mut self.ui.form else {
            return Vec::new();
        };
        if busy.is_some() {
            form.fault = busy;
            return Vec::new();
        }
        let Some((play, job)) = form.job().map(|(play, job)| (play.clone(), job)) else {
            return Vec::new();
        };
        self.ui.form = None;
        self.begin_play(&play, job)
    }

    /// Begins a playbook; asks first when it stops what runs.
    pub(super) fn begin_play(&mut self, play: &Play, job: Job) -> Vec<Effect> {
        if !play.stops || matches!(job, Job::Playbook { check: true, .. }) {
            return self.begin(job);
        }
        let text = format!(
            "{} stops the deployment of {} on its hosts. Open requests end. Run it?",
            play.name, self.data.cluster
        );
        self.ui.confirm = Some(Confirm::sentence(
            "run a playbook that stops the deployment",
            text,
            vec![Effect::Start(job)],
        ));
        Vec::new()
    }

    pub(super) fn stop_run(&mut self) {
        let Some(run) = self.data.running().last() else {
            self.ui.note = Some("nothing is in progress".into());
            return;
        };
        self.ui.confirm = Some(Confirm::sentence(
            "stop the run",
            format!("Interrupt {} (run {})?", run.command, run.id),
            vec![Effect::Stop(run.id.clone())],
        ));
    }
}
