//! Where the person is: the screen, the chosen rows, what is being typed.

use tui_input::Input;

use super::form::Form;
use super::{Effect, Preview};
use crate::tui::command::Screen;

/// What a line is typed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typing {
    /// The chat.
    Chat,
    /// A filter.
    Filter,
    /// The palette.
    Palette,
    /// The answer to the first question that waits.
    Answer,
    /// The model to bring up.
    Model,
}

/// Something that is asked before it is done.
#[derive(Clone, Debug)]
pub struct Confirm {
    /// Its title.
    pub title: String,
    /// What is shown.
    pub lines: Vec<String>,
    /// What is done on yes.
    pub effects: Vec<Effect>,
    /// First line shown.
    pub scroll: usize,
}

impl Confirm {
    /// A question of one sentence.
    pub fn sentence(title: &str, text: String, effects: Vec<Effect>) -> Self {
        Self {
            title: title.to_owned(),
            lines: vec![text],
            effects,
            scroll: 0,
        }
    }

    /// Whether an edit of the inventory is to be written.
    pub fn write(preview: Preview) -> Self {
        Self {
            title: format!(
                "write this to {}?",
                crate::tui::text::shown(&preview.path.display().to_string())
            ),
            lines: crate::tui::text::lines(preview.diff.trim_end()),
            effects: vec![Effect::Write(preview)],
            scroll: 0,
        }
    }
}

/// Where the person is.
#[derive(Clone, Debug)]
pub struct Ui {
    /// The screen.
    pub screen: Screen,
    /// The chosen row of each screen, in the order of [`Screen::ALL`], and of what differs.
    rows: [usize; 7],
    /// Words that choose what is shown, in the same order.
    filters: [String; 7],
    /// Whether, of the hosts, it is shown what differs between them.
    pub drift: bool,
    /// How many rows the newest is away from the chat's end.
    pub chat_back: usize,
    /// The same of the logs.
    pub log_back: usize,
    /// The same of a run's output, or of its tasks where they take the whole screen.
    pub run_back: usize,
    /// Whether one pane takes the whole screen.
    pub enlarged: bool,
    /// Whether, of a run, that pane is its tasks and not its output.
    pub whole_tasks: bool,
    /// Whether the help is open, and its first row.
    pub help: Option<usize>,
    /// What is being typed.
    pub typing: Option<(Typing, Input)>,
    /// The chosen row of the palette.
    pub pick: usize,
    /// The chat's line while it is not typed in.
    pub draft: Input,
    /// The form that is open.
    pub form: Option<Form>,
    /// What is asked before it is done.
    pub confirm: Option<Confirm>,
    /// A word at the bottom, until the next key.
    pub note: Option<String>,
    /// The run that is shown; `None` shows the playbooks.
    pub run: Option<String>,
    /// The only host whose logs are shown.
    pub log_host: Option<String>,
    /// Whether the person asked to leave while a run is being interrupted.
    pub leaving: bool,
    /// Columns and rows of the terminal, as last drawn.
    pub size: (u16, u16),
}

impl Default for Ui {
    fn default() -> Self {
        Self {
            screen: Screen::Overview,
            rows: [0; 7],
            filters: Default::default(),
            drift: false,
            chat_back: 0,
            log_back: 0,
            run_back: 0,
            enlarged: false,
            whole_tasks: false,
            help: None,
            typing: None,
            pick: 0,
            draft: Input::default(),
            form: None,
            confirm: None,
            note: None,
            run: None,
            log_host: None,
            leaving: false,
            size: (80, 24),
        }
    }
}

fn place(screen: Screen) -> usize {
    Screen::ALL.iter().position(|s| *s == screen).unwrap_or(0)
}

impl Ui {
    /// Whether what differs between the hosts is on the screen.
    pub fn shows_drift(&self) -> bool {
        self.drift && self.screen == Screen::Hosts
    }

    fn place(&self) -> usize {
        match self.shows_drift() {
            true => Screen::ALL.len(),
            false => place(self.screen),
        }
    }

    /// The chosen row of the screen.
    pub fn row(&self) -> usize {
        self.rows.get(self.place()).copied().unwrap_or(0)
    }

    /// Chooses a row of the screen.
    pub fn choose(&mut self, row: usize) {
        let place = self.place();
        if let Some(own) = self.rows.get_mut(place) {
            *own = row;
        }
    }

    /// Chooses a row of a screen.
    pub fn choose_on(&mut self, screen: Screen, row: usize) {
        if let Some(own) = self.rows.get_mut(place(screen)) {
            *own = row;
        }
    }

    /// The word that chooses what the screen shows; empty for all.
    pub fn filter(&self) -> &str {
        self.filters.get(self.place()).map_or("", String::as_str)
    }

    /// Sets it.
    pub fn set_filter(&mut self, word: &str) {
        let place = self.place();
        if let Some(own) = self.filters.get_mut(place) {
            word.trim().clone_into(own);
        }
    }

    /// Whether an answer to a question is being typed.
    pub fn is_answering(&self) -> bool {
        matches!(self.typing, Some((Typing::Answer, _)))
    }
}

/// Whether any of these texts has the filter's word; with `!` before it, none has.
pub fn passes(filter: &str, texts: &[&str]) -> bool {
    let (word, wanted) = match filter.strip_prefix('!') {
        Some(word) => (word, false),
        None => (filter, true),
    };
    let word = word.to_lowercase();
    word.is_empty() || texts.iter().any(|text| text.to_lowercase().contains(&word)) == wanted
}
