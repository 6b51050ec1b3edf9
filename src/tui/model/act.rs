//! What an input does. Pure: it changes where the person is, and says what is to be done outside.

mod plays;

use tui_input::{Input as Line, InputRequest};

use super::data::{Question, Source};
use super::form::{About, Form};
use super::ui::{Confirm, Typing};
use super::{Effect, Job, Leave, Model};
use crate::inventory::edit::{Edit, Whom};
use crate::tui::command::{self, Action, Place, Screen};
use crate::tui::input::{Code, Input, Key};

/// Longest line that can be typed, in characters.
const LONGEST_LINE: usize = 16_000;

impl Model {
    /// Takes an input; says what is to be done.
    pub fn input(&mut self, input: Input) -> Vec<Effect> {
        let effects = self.do_input(input);
        self.keep_row();
        effects
    }

    fn do_input(&mut self, input: Input) -> Vec<Effect> {
        match input {
            Input::Key(key) => {
                self.ui.note = None;
                self.key(key)
            }
            Input::Paste(text) => {
                self.paste(&text);
                Vec::new()
            }
            Input::Wheel(up) => self.act(if up { Action::Up } else { Action::Down }),
            Input::Click { column, row } => self.click(column, row),
            Input::Resized => Vec::new(),
        }
    }

    /// Where keys go now.
    pub fn place(&self) -> Place {
        let asked = self.question();
        if self.ui.confirm.is_some() {
            Place::Choice
        } else if let Some(question) = asked {
            if question.choices.is_empty() {
                Place::Typing
            } else {
                Place::Choice
            }
        } else if self.ui.form.is_some() {
            Place::Form
        } else if self.ui.typing.is_some() {
            Place::Typing
        } else {
            Place::Everywhere
        }
    }

    /// The question that is to be answered now.
    pub fn question(&self) -> Option<&Question> {
        self.data.questions.front()
    }

    fn key(&mut self, key: Key) -> Vec<Effect> {
        let place = self.place();
        if place == Place::Choice
            && let Some(effects) = self.choice(key)
        {
            return effects;
        }
        if let Some(action) = command::find(key, place, self.ui.screen) {
            return self.act(action);
        }
        if matches!(place, Place::Typing | Place::Form)
            && let Some(request) = request(key)
        {
            self.edit_line(request);
        }
        Vec::new()
    }

    /// A key where a choice is asked for.
    fn choice(&mut self, key: Key) -> Option<Vec<Effect>> {
        let Code::Char(c) = key.code else { return None };
        if key.ctrl {
            return None;
        }
        if let Some(confirm) = &self.ui.confirm {
            match c {
                'y' | 'Y' => {
                    let effects = confirm.effects.clone();
                    self.ui.confirm = None;
                    if matches!(effects.as_slice(), [Effect::Start(_)]) {
                        self.go(Screen::Runs);
                    }
                    return Some(effects);
                }
                'n' | 'N' => {
                    self.ui.confirm = None;
                    return Some(Vec::new());
                }
                _ => return None,
            }
        }
        let question = self.question()?;
        let lower = c.to_ascii_lowercase();
        let choice = question
            .choices
            .iter()
            .find(|choice| choice.starts_with(lower))
            .or_else(|| {
                let at = usize::try_from(c.to_digit(10)?.checked_sub(1)?).ok()?;
                question.choices.get(at)
            })?
            .clone();
        Some(self.answer(choice))
    }

    fn answer(&mut self, answer: String) -> Vec<Effect> {
        self.ui.typing = None;
        match self.data.questions.pop_front() {
            Some(question) => vec![Effect::Answer {
                run: question.run,
                id: question.id,
                answer,
            }],
            None => Vec::new(),
        }
    }

    /// The line that is typed in now.
    fn line(&mut self) -> Option<&mut Line> {
        if self.ui.confirm.is_some() {
            return None;
        }
        if let Some(question) = self.data.questions.front() {
            if !question.choices.is_empty() {
                return None;
            }
            if !self.ui.is_answering() {
                self.keep_draft();
                self.ui.typing = Some((Typing::Answer, Line::default()));
            }
            return self.ui.typing.as_mut().map(|(_, line)| line);
        }
        if let Some(form) = &mut self.ui.form {
            form.fault = None;
            let at = form.at;
            return form.fields.get_mut(at).map(|field| &mut field.input);
        }
        self.ui.typing.as_mut().map(|(_, line)| line)
    }

    fn edit_line(&mut self, request: InputRequest) {
        let grows = matches!(request, InputRequest::InsertChar(_));
        if let Some(line) = self.line()
            && !(grows && line.value().chars().count() >= LONGEST_LINE)
        {
            line.handle(request);
        }
        match &self.ui.typing {
            Some((Typing::Filter, line)) => {
                let word = line.value().to_owned();
                self.ui.set_filter(&word);
                self.ui.choose(0);
            }
            Some((Typing::Palette, _)) => self.ui.pick = 0,
            _ => {}
        }
    }

    fn paste(&mut self, text: &str) {
        if !matches!(self.place(), Place::Typing | Place::Form) {
            return;
        }
        // What is written to the model may have several lines; any other line is one.
        let of_chat = matches!(self.ui.typing, Some((Typing::Chat, _)));
        let keeps_lines = of_chat && self.question().is_none() && self.ui.form.is_none();
        // Terminals send line ends as the key that makes them does.
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        for c in text.trim_end_matches('\n').chars().take(LONGEST_LINE) {
            let c = match c {
                '\n' if keeps_lines => '\n',
                '\n' | '\t' => ' ',
                // What a terminal would obey is no text.
                c if c.is_control() => continue,
                c => c,
            };
            self.edit_line(InputRequest::InsertChar(c));
        }
    }

    /// Keeps what was typed for the chat while something else is typed.
    fn keep_draft(&mut self) {
        if let Some((Typing::Chat, line)) = self.ui.typing.take() {
            self.ui.draft = line;
        }
    }

    /// Does what a command says.
    pub fn act(&mut self, action: Action) -> Vec<Effect> {
        if action.needs_hosts() && self.data.source != Source::Hosts {
            let of_what = match self.data.source {
                Source::Journal => "this is the journal of a run that is over",
                _ => "the demo runs by itself on this machine, and q ends it",
            };
            self.ui.note = Some(format!(
                "{of_what}; `windlass` alone works with an inventory's hosts"
            ));
            return Vec::new();
        }
        match action {
            Action::Interrupt => return self.interrupt(),
            Action::Back => return self.back(),
            Action::Accept => return self.accept(),
            Action::Up | Action::Down | Action::PageUp | Action::PageDown => self.step(action),
            Action::Top | Action::Bottom => self.far(action == Action::Top),
            Action::NextField | Action::PreviousField => {
                if let Some(form) = &mut self.ui.form {
                    let all = form.fields.len().max(1);
                    let by = if action == Action::NextField {
                        1
                    } else {
                        all - 1
                    };
                    form.at = (form.at + by) % all;
                }
            }
            Action::Quit => return self.quit(),
            Action::Help => {
                self.ui.help = match self.ui.help {
                    Some(_) => None,
                    None => Some(0),
                };
            }
            Action::Palette => {
                self.ui.pick = 0;
                self.ui.typing = Some((Typing::Palette, Line::default()));
            }
            Action::Go(screen) => self.go(screen),
            Action::Next => self.go(self.ui.screen.beside(1)),
            Action::Previous => self.go(self.ui.screen.beside(Screen::ALL.len() - 1)),
            Action::Filter => {
                let word = self.ui.filter().to_owned();
                self.ui.typing = Some((Typing::Filter, Line::from(word)));
            }
            Action::Enlarge => self.enlarge(),
            Action::Freeze => {
                self.frozen = match self.frozen.take() {
                    Some(_) => None,
                    None => Some(Box::new(self.data.clone())),
                };
            }
            Action::Refresh => {
                self.ui.note = Some("looking at inventory and hosts".into());
                return vec![Effect::Refresh];
            }
            Action::Type => self.write(),
            Action::Open => self.open_host(),
            Action::BringUp => match self.no_hosts() {
                Some(why) => self.ui.note = Some(why),
                None => {
                    self.ui.typing = Some((Typing::Model, Line::from("smollm2".to_owned())));
                }
            },
            Action::TakeDown => self.take_down(),
            Action::AddHost => {
                self.go(Screen::Hosts);
                self.ui.form = Some(Form::new());
            }
            Action::ChangeHost | Action::RemoveHost if self.ui.shows_drift() => {
                self.ui.note = Some("esc goes back to the hosts, where one is chosen".into());
            }
            Action::ChangeHost => {
                self.go(Screen::Hosts);
                match self.chosen_host() {
                    Some(host) => self.ui.form = Some(Form::of(&host)),
                    None => self.ui.note = Some("no host of the inventory is chosen".into()),
                }
            }
            Action::RemoveHost => {
                self.go(Screen::Hosts);
                return self.remove_host();
            }
            Action::Drift => {
                let shown = self.ui.shows_drift();
                self.go(Screen::Hosts);
                self.ui.drift = !shown;
                self.make_small();
            }
            Action::Verify => return self.verify(),
            Action::Start | Action::Check => return self.start(action == Action::Check),
            Action::StopRun => self.stop_run(),
            Action::StopAnswer => return vec![Effect::StopAnswer],
            Action::NewChat => {
                self.data.chat.clear();
                self.ui.chat_back = 0;
                return vec![Effect::StopAnswer];
            }
            Action::Follow => self.ui.log_back = 0,
            Action::NextHost => self.next_log_host(),
        }
        Vec::new()
    }

    fn go(&mut self, screen: Screen) {
        self.keep_draft();
        self.ui.help = None;
        self.ui.drift = false;
        self.ui.screen = screen;
        if screen == Screen::Chat && self.data.can_talk {
            self.write();
        }
    }

    fn write(&mut self) {
        self.ui.screen = Screen::Chat;
        let draft = std::mem::take(&mut self.ui.draft);
        self.ui.typing = Some((Typing::Chat, draft));
    }

    fn quit(&mut self) -> Vec<Effect> {
        if let Some(run) = self.data.running().find(|run| asks_to_leave(&run.command)) {
            let text = format!(
                "{} (run {}) is in progress. Interrupt it and leave?",
                run.command, run.id
            );
            self.ui.confirm = Some(Confirm::sentence(
                "leave",
                text,
                vec![Effect::Leave(Leave::Quit)],
            ));
            return Vec::new();
        }
        vec![Effect::Leave(Leave::Quit)]
    }

    fn interrupt(&mut self) -> Vec<Effect> {
        let leaves = |confirm: &Confirm| {
            let mut effects = confirm.effects.iter();
            effects.any(|effect| matches!(effect, Effect::Leave(_)))
        };
        let asked = self.ui.confirm.as_ref().is_some_and(leaves);
        if !asked && self.ui.confirm.take().is_some() {
            self.ui.note = Some("ctrl-c once more leaves".into());
            return Vec::new();
        }
        // A question that waits is a run's own: leaving is its answer.
        if !asked && self.question().is_none() && self.close_what_is_typed() {
            self.ui.note = Some("ctrl-c once more leaves".into());
            return Vec::new();
        }
        let runs = self.data.running().any(|run| asks_to_leave(&run.command));
        // The second time is meant.
        if runs && !asked && !self.ui.leaving {
            let mut effects = self.quit();
            if let Some(confirm) = &mut self.ui.confirm {
                confirm.effects = vec![Effect::Leave(Leave::Interrupt)];
            }
            effects.clear();
            return effects;
        }
        vec![Effect::Leave(Leave::Interrupt)]
    }

    /// Closes the form or the line that is typed; whether there was one.
    fn close_what_is_typed(&mut self) -> bool {
        if self.ui.form.take().is_some() {
            return true;
        }
        match self.ui.typing.take() {
            Some((Typing::Chat, line)) => self.ui.draft = line,
            Some((Typing::Filter, _)) => self.ui.set_filter(""),
            Some(_) => {}
            None => return false,
        }
        true
    }

    fn back(&mut self) -> Vec<Effect> {
        if self.ui.confirm.take().is_some() {
            return Vec::new();
        }
        if let Some(question) = self.data.questions.front() {
            if question.choices.iter().any(|choice| choice == "n") {
                return self.answer("n".into());
            }
            let run = question.run.clone();
            self.data.questions.retain(|other| other.run != run);
            self.ui.typing = None;
            return vec![Effect::Dismiss { run }];
        }
        if self.close_what_is_typed() {
            return Vec::new();
        }
        let shows_run = self.ui.screen == Screen::Runs && self.ui.run.is_some();
        let shows_drift = self.ui.shows_drift();
        match () {
            () if self.ui.help.is_some() => self.ui.help = None,
            () if self.ui.enlarged => self.make_small(),
            () if !self.ui.filter().is_empty() => self.ui.set_filter(""),
            () if shows_run => self.ui.run = None,
            () if shows_drift && self.frozen.is_none() => self.ui.drift = false,
            () => self.frozen = None,
        }
        Vec::new()
    }

    /// One pane over the whole screen, and back; of a run first its output, then its tasks.
    fn enlarge(&mut self) {
        let of_run = self.ui.screen == Screen::Runs && self.ui.run.is_some();
        if !self.ui.enlarged {
            self.ui.enlarged = true;
        } else if of_run && !self.ui.whole_tasks {
            self.ui.whole_tasks = true;
            self.ui.run_back = 0;
        } else {
            self.make_small();
        }
    }

    fn make_small(&mut self) {
        if self.ui.whole_tasks {
            self.ui.run_back = 0;
        }
        self.ui.enlarged = false;
        self.ui.whole_tasks = false;
    }

    fn accept(&mut self) -> Vec<Effect> {
        if self.question().is_some() {
            let answer = self
                .line()
                .map(|line| line.value().to_owned())
                .unwrap_or_default();
            return self.answer(answer);
        }
        if let Some(Form {
            about: About::Play { .. },
            ..
        }) = &self.ui.form
        {
            return self.accept_play();
        }
        if let Some(form) = &mut self.ui.form {
            return match form.edit() {
                Ok(edit) => vec![Effect::Preview(edit)],
                Err(reason) => {
                    form.fault = Some(reason);
                    Vec::new()
                }
            };
        }
        let Some((typing, line)) = self.ui.typing.take() else {
            return Vec::new();
        };
        let text = line.value().trim().to_owned();
        match typing {
            Typing::Chat => {
                let open = self.data.chat.last().is_some_and(|turn| turn.is_open());
                if text.is_empty() || open || !self.data.can_talk {
                    if open {
                        self.ui.note = Some("the answer still comes; esc and s stop it".into());
                    }
                    if !self.data.can_talk {
                        self.ui.note = Some("there is no model to talk to yet".into());
                    }
                    self.ui.typing = Some((Typing::Chat, line));
                    return Vec::new();
                }
                self.ui.chat_back = 0;
                self.ui.typing = Some((Typing::Chat, Line::default()));
                vec![Effect::Ask {
                    prompt: text,
                    before: self.data.said(),
                }]
            }
            Typing::Filter | Typing::Answer => Vec::new(),
            Typing::Palette => {
                let found = command::search(&text, self.data.source);
                match found.get(self.ui.pick.min(found.len().saturating_sub(1))) {
                    Some(entry) => {
                        if let Place::On(screen) = entry.place
                            && screen != self.ui.screen
                        {
                            self.go(screen);
                            self.keep_draft();
                        }
                        self.act(entry.action)
                    }
                    None => {
                        self.ui.note = Some(format!("no command is named \"{text}\""));
                        self.ui.typing = Some((Typing::Palette, line));
                        Vec::new()
                    }
                }
            }
            Typing::Model if text.is_empty() => Vec::new(),
            Typing::Model => self.begin(Job::Up(text)),
        }
    }

    /// What to say to who wants to start a run while one is in progress.
    fn busy(&self) -> Option<String> {
        let run = self.data.running().next()?;
        Some(format!(
            "{} is in progress: wait for its end, or stop it on the screen Runs",
            run.command
        ))
    }

    fn begin(&mut self, job: Job) -> Vec<Effect> {
        if let Some(busy) = self.busy() {
            self.ui.note = Some(busy);
            return Vec::new();
        }
        self.go(Screen::Runs);
        self.ui.run_back = 0;
        vec![Effect::Start(job)]
    }

    /// Compares the hosts, and shows what differs when that is known.
    fn verify(&mut self) -> Vec<Effect> {
        self.go(Screen::Hosts);
        self.ui.drift = true;
        if let Some(why) = self.no_hosts().or_else(|| self.busy()) {
            self.ui.note = Some(why);
            return Vec::new();
        }
        vec![Effect::Start(Job::Verify)]
    }

    fn chosen_host(&self) -> Option<super::ListedHost> {
        let row = self.ui.row();
        self.shown_hosts().nth(row)?.listed.clone()
    }

    fn open_host(&mut self) {
        let name = self
            .shown_hosts()
            .nth(self.ui.row())
            .map(|host| host.name.clone());
        self.go(Screen::Hosts);
        let row = self
            .shown_hosts()
            .position(|host| Some(&host.name) == name.as_ref());
        self.ui.choose(row.unwrap_or(0));
    }

    /// Why there are no hosts to work with, where there is no inventory.
    fn no_hosts(&self) -> Option<String> {
        let why = self.data.no_inventory.as_ref()?;
        Some(if self.data.invalid_inventory {
            format!("the inventory cannot be used: {why}")
        } else {
            "there is no inventory yet: press 2, then a, to add a host".to_owned()
        })
    }

    /// Takes the chosen host out of the inventory: asks first when something runs there, for who is
    /// not in the inventory is not reached to be stopped.
    fn remove_host(&mut self) -> Vec<Effect> {
        let Some(host) = self.shown_hosts().nth(self.ui.row()) else {
            self.ui.note = Some("no host is chosen".into());
            return Vec::new();
        };
        let name = host.name.clone();
        if host.left {
            self.data.forget_host(&name);
            self.ui.note = Some(format!("{name} is not looked at any more"));
            return Vec::new();
        }
        if host.listed.is_none() {
            self.ui.note = Some(format!("{name} is not in the inventory"));
            return Vec::new();
        }
        let remove = Effect::Preview(Edit::Remove(Whom::Host(name.clone())));
        let Some(stage) = host.stage else {
            return vec![remove];
        };
        let text = format!(
            "{name} holds stage {stage} of what runs. Out of the inventory it is not reached any more, and its worker may go on there: stop the deployment first, with D on the Overview. Remove it all the same?"
        );
        self.ui.confirm = Some(Confirm::sentence(
            "remove a host that serves",
            text,
            vec![remove],
        ));
        Vec::new()
    }

    fn take_down(&mut self) {
        if let Some(why) = self.no_hosts() {
            self.ui.note = Some(why);
            return;
        }
        if let Some(busy) = self.busy() {
            self.ui.note = Some(busy);
            return;
        }
        let text = format!(
            "Stop the deployment of {} on all its hosts? Open requests end.",
            self.data.cluster
        );
        self.ui.confirm = Some(Confirm::sentence(
            "stop the deployment",
            text,
            vec![Effect::Start(Job::Down)],
        ));
    }

    fn next_log_host(&mut self) {
        let names: Vec<String> = self.data.hosts.iter().map(|h| h.name.clone()).collect();
        let next = match &self.ui.log_host {
            None => names.first(),
            Some(name) => names
                .iter()
                .position(|other| other == name)
                .and_then(|at| names.get(at + 1)),
        };
        self.ui.log_host = next.cloned();
        self.ui.log_back = 0;
    }

    fn click(&mut self, column: u16, row: u16) -> Vec<Effect> {
        if self.place() != Place::Everywhere {
            return Vec::new();
        }
        match crate::tui::draw::target(self, column, row) {
            Some(crate::tui::draw::Target::Screen(screen)) => self.go(screen),
            Some(crate::tui::draw::Target::Row(row)) => {
                let most = self.rows().saturating_sub(1);
                self.ui.choose(row.min(most));
            }
            None => {}
        }
        Vec::new()
    }
}

/// Whether leaving while this runs is asked about: it would be cut off. The demo ends with its
/// screens, a comparison changes nothing, and a journal that is shown has ended long ago.
fn asks_to_leave(command: &str) -> bool {
    !["demo", "verify"].contains(&command)
}

/// What a key does in a line.
fn request(key: Key) -> Option<InputRequest> {
    Some(match (key.code, key.ctrl) {
        (Code::Char('a'), true) | (Code::Home, _) => InputRequest::GoToStart,
        (Code::Char('e'), true) | (Code::End, _) => InputRequest::GoToEnd,
        (Code::Char('w'), true) => InputRequest::DeletePrevWord,
        (Code::Char('u'), true) => InputRequest::DeleteLine,
        (Code::Char('k'), true) => InputRequest::DeleteTillEnd,
        (Code::Left, true) => InputRequest::GoToPrevWord,
        (Code::Right, true) => InputRequest::GoToNextWord,
        (Code::Left, false) => InputRequest::GoToPrevChar,
        (Code::Right, false) => InputRequest::GoToNextChar,
        (Code::Backspace, _) => InputRequest::DeletePrevChar,
        (Code::Delete, _) => InputRequest::DeleteNextChar,
        (Code::Char(c), false) if !c.is_control() => InputRequest::InsertChar(c),
        _ => return None,
    })
}
