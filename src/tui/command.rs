//! The one table of what can be done at the screens. Keys, footer, help and palette are read from
//! it; nothing else binds a key.

use super::input::Key;
use super::model::Source;

/// A screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Screen {
    /// The whole at a glance.
    Overview,
    /// The hosts, their facts, and the inventory.
    Hosts,
    /// Which host holds what.
    Plan,
    /// Playbooks and what is running.
    Runs,
    /// Talk with the model.
    Chat,
    /// What workers and runs write.
    Logs,
}

impl Screen {
    /// All, in the order of their keys.
    pub const ALL: [Self; 6] = [
        Self::Overview,
        Self::Hosts,
        Self::Plan,
        Self::Runs,
        Self::Chat,
        Self::Logs,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Hosts => "Hosts",
            Self::Plan => "Plan",
            Self::Runs => "Runs",
            Self::Chat => "Chat",
            Self::Logs => "Logs",
        }
    }

    /// The screen so many places further, around the end.
    pub fn beside(self, places: usize) -> Self {
        let at = Self::ALL.iter().position(|s| *s == self).unwrap_or(0);
        let all = Self::ALL.len();
        Self::ALL
            .get((at + places) % all)
            .copied()
            .unwrap_or(Self::Overview)
    }
}

/// Where a command is to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On every screen, when nothing is being typed.
    Everywhere,
    /// On one screen, when nothing is being typed.
    On(Screen),
    /// While a line is typed: a chat's, a filter, the palette, a question's answer.
    Typing,
    /// In the form for a host.
    Form,
    /// When a choice is asked for.
    Choice,
}

/// Something that can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Leave.
    Quit,
    /// Leave, asked for by Ctrl-C.
    Interrupt,
    /// Show or hide the help.
    Help,
    /// Open the palette.
    Palette,
    /// One step back.
    Back,
    /// Go to a screen.
    Go(Screen),
    /// The next screen.
    Next,
    /// The screen before.
    Previous,
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the beginning.
    Top,
    /// To the end.
    Bottom,
    /// Choose what is shown by a word.
    Filter,
    /// One pane over the whole screen.
    Enlarge,
    /// Hold the picture still.
    Freeze,
    /// Look at the chosen thing.
    Open,
    /// Bring a model up.
    BringUp,
    /// Stop the deployment.
    TakeDown,
    /// A form for a new host.
    AddHost,
    /// A form for the chosen host.
    ChangeHost,
    /// Take the chosen host out of the inventory.
    RemoveHost,
    /// Read the inventory and the hosts anew.
    Refresh,
    /// Show what differs between the hosts, or the hosts again.
    Drift,
    /// Compare the hosts.
    Verify,
    /// Start the chosen playbook.
    Start,
    /// Start the chosen playbook as a check.
    Check,
    /// Interrupt what runs.
    StopRun,
    /// Begin to type.
    Type,
    /// Stop the answer that comes.
    StopAnswer,
    /// Begin a new conversation.
    NewChat,
    /// Follow the newest lines.
    Follow,
    /// Logs of the next host only, then of all.
    NextHost,
    /// Take what was typed.
    Accept,
    /// To the next field.
    NextField,
    /// To the field before.
    PreviousField,
}

impl Action {
    /// Whether it is done with an inventory and its hosts.
    pub fn needs_hosts(self) -> bool {
        matches!(
            self,
            Self::BringUp
                | Self::TakeDown
                | Self::AddHost
                | Self::ChangeHost
                | Self::RemoveHost
                | Self::Refresh
                | Self::Verify
                | Self::Check
                | Self::StopRun
        )
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What it does.
    pub action: Action,
    /// Its name in the palette.
    pub name: &'static str,
    /// Its keys; the first is the one that is shown.
    pub keys: &'static [&'static str],
    /// Where it is to be had.
    pub place: Place,
    /// What it does, for people.
    pub help: &'static str,
    /// Its short word in the footer; empty for none.
    pub footer: &'static str,
}

const fn row(
    action: Action,
    name: &'static str,
    keys: &'static [&'static str],
    place: Place,
    help: &'static str,
    footer: &'static str,
) -> Entry {
    Entry {
        action,
        name,
        keys,
        place,
        help,
        footer,
    }
}

use Action as A;
use Place::{Choice, Everywhere, Form, On, Typing};

/// The table. A key of a screen goes before the same key everywhere.
#[rustfmt::skip]
pub const TABLE: &[Entry] = &[
    row(A::BringUp, "up", &["u"], On(Screen::Overview), "bring a model up on the inventory's hosts", "start a model"),
    row(A::TakeDown, "down", &["D"], On(Screen::Overview), "stop the deployment on all its hosts (asks first)", ""),
    row(A::Open, "details", &["enter"], On(Screen::Overview), "go to the chosen host", "host"),
    row(A::AddHost, "add host", &["a"], On(Screen::Hosts), "add a host to the inventory", "add"),
    row(A::ChangeHost, "change host", &["e", "enter"], On(Screen::Hosts), "change the chosen host in the inventory", "change"),
    row(A::RemoveHost, "remove host", &["x"], On(Screen::Hosts), "remove the chosen host from the inventory", "remove"),
    row(A::Drift, "drift", &["d"], On(Screen::Hosts), "what differs between the hosts, and the hosts again", "drift"),
    row(A::Verify, "verify", &["v"], On(Screen::Hosts), "compare the hosts with each other and with what is known bad", "verify"),
    row(A::Start, "run playbook", &["enter"], On(Screen::Runs), "run the chosen playbook, or show the chosen run", "run"),
    row(A::Check, "check playbook", &["c"], On(Screen::Runs), "run the chosen playbook as a check that changes nothing", "check"),
    row(A::Enlarge, "panes of a run", &["z"], On(Screen::Runs), "a run's output over the whole screen, then its tasks host by host, and back", ""),
    row(A::StopRun, "stop run", &["s"], On(Screen::Runs), "interrupt the run that is in progress (asks first)", "stop"),
    row(A::Type, "write", &["enter", "i"], On(Screen::Chat), "write to the model", "write"),
    row(A::StopAnswer, "stop answer", &["s"], On(Screen::Chat), "stop the answer that is coming", "stop"),
    row(A::NewChat, "new chat", &["n"], On(Screen::Chat), "begin a new conversation", "new"),
    row(A::Follow, "follow", &["F"], On(Screen::Logs), "follow the newest lines", "follow"),
    row(A::NextHost, "logs of host", &["h"], On(Screen::Logs), "show one host's lines, then the next one's, then all", "host"),
    row(A::Go(Screen::Overview), "overview", &["1"], Everywhere, "the whole at a glance", ""),
    row(A::Go(Screen::Hosts), "hosts", &["2"], Everywhere, "the hosts, their facts, the inventory", ""),
    row(A::Go(Screen::Plan), "plan", &["3"], Everywhere, "which host holds what", ""),
    row(A::Go(Screen::Runs), "runs", &["4"], Everywhere, "playbooks and runs", ""),
    row(A::Go(Screen::Chat), "chat", &["5"], Everywhere, "talk with the model", ""),
    row(A::Go(Screen::Logs), "logs", &["6"], Everywhere, "what workers and runs write", ""),
    row(A::Filter, "filter", &["/"], Everywhere, "show only what has a word; !word for what has it not", "filter"),
    row(A::Palette, "commands", &[":"], Everywhere, "find a command by its name", "commands"),
    row(A::Help, "help", &["?"], Everywhere, "this list", "help"),
    row(A::Quit, "quit", &["q"], Everywhere, "leave; what runs on hosts goes on", "leave"),
    row(A::Enlarge, "enlarge", &["z"], Everywhere, "one pane over the whole screen, and back", ""),
    row(A::Freeze, "freeze", &["f"], Everywhere, "hold the picture still, and let it go", ""),
    row(A::Refresh, "refresh", &["r"], Everywhere, "read the inventory and look at the hosts again", ""),
    row(A::Back, "back", &["esc"], Everywhere, "one step back; never leaves", ""),
    row(A::Next, "next screen", &["tab"], Everywhere, "the next screen", ""),
    row(A::Previous, "previous screen", &["shift-tab"], Everywhere, "the screen before", ""),
    row(A::Up, "up a row", &["up", "k"], Everywhere, "one row up", ""),
    row(A::Down, "down a row", &["down", "j"], Everywhere, "one row down", ""),
    row(A::PageUp, "page up", &["pgup", "ctrl-u"], Everywhere, "a page up", ""),
    row(A::PageDown, "page down", &["pgdn", "ctrl-d"], Everywhere, "a page down", ""),
    row(A::Top, "top", &["home", "g"], Everywhere, "to the beginning", ""),
    row(A::Bottom, "bottom", &["end", "G"], Everywhere, "to the end", ""),
    row(A::Interrupt, "interrupt", &["ctrl-c"], Everywhere, "leave at once, with exit status 130", ""),
    row(A::Accept, "send", &["enter"], Typing, "take what was typed", "ok"),
    row(A::Back, "leave the line", &["esc"], Typing, "back to the keys", "back"),
    row(A::Interrupt, "interrupt", &["ctrl-c"], Typing, "back to the keys; once more leaves", ""),
    row(A::Up, "up a row", &["up"], Typing, "one row up", ""),
    row(A::Down, "down a row", &["down"], Typing, "one row down", ""),
    row(A::PageUp, "page up", &["pgup"], Typing, "a page up", ""),
    row(A::PageDown, "page down", &["pgdn"], Typing, "a page down", ""),
    row(A::Accept, "review", &["enter"], Form, "show the difference, then write it; of a playbook, run it", "show the difference"),
    row(A::NextField, "next field", &["tab", "down"], Form, "the next field", "next field"),
    row(A::PreviousField, "previous field", &["shift-tab", "up"], Form, "the field before", ""),
    row(A::Back, "leave the form", &["esc"], Form, "leave the form, write nothing", "cancel"),
    row(A::Interrupt, "interrupt", &["ctrl-c"], Form, "leave the form; once more leaves windlass", ""),
    row(A::Back, "no", &["esc"], Choice, "answer no", "no"),
    row(A::Up, "up a row", &["up"], Choice, "one row up", ""),
    row(A::Down, "down a row", &["down"], Choice, "one row down", ""),
    row(A::PageUp, "page up", &["pgup"], Choice, "a page up", ""),
    row(A::PageDown, "page down", &["pgdn"], Choice, "a page down", ""),
    row(A::Interrupt, "interrupt", &["ctrl-c"], Choice, "leave at once", ""),
];

/// What a key does in a place; `screen` is the one that is shown.
pub fn find(key: Key, place: Place, screen: Screen) -> Option<Action> {
    let in_place = |wanted: Place| {
        TABLE.iter().find(|entry| {
            entry.place == wanted && entry.keys.iter().any(|name| Key::parse(name) == Some(key))
        })
    };
    let entry = match place {
        Everywhere | On(_) => in_place(On(screen)).or_else(|| in_place(Everywhere)),
        other => in_place(other),
    };
    entry.map(|entry| entry.action)
}

/// What is to be had on a screen when nothing is typed: its own commands first. What needs hosts is
/// left out where there are none to work with.
pub fn on(screen: Screen, source: Source) -> impl Iterator<Item = &'static Entry> {
    let own = TABLE.iter().filter(move |entry| entry.place == On(screen));
    own.chain(everywhere())
        .filter(move |entry| is_to_be_had(entry, source))
}

/// What is to be had on every screen.
pub fn everywhere() -> impl Iterator<Item = &'static Entry> {
    TABLE.iter().filter(|entry| entry.place == Everywhere)
}

fn is_to_be_had(entry: &Entry, source: Source) -> bool {
    source == Source::Hosts || !entry.action.needs_hosts()
}

/// Commands whose name or help has these letters in this order, the closest first.
pub fn search(letters: &str, source: Source) -> Vec<&'static Entry> {
    let mut found: Vec<(usize, &Entry)> = TABLE
        .iter()
        .filter(|entry| matches!(entry.place, Everywhere | On(_)))
        .filter(|entry| is_to_be_had(entry, source))
        .filter_map(|entry| Some((distance(letters, entry)?, entry)))
        .collect();
    found.sort_by_key(|(distance, _)| *distance);
    found.into_iter().map(|(_, entry)| entry).collect()
}

/// How far a command is from what was typed; smaller is closer.
fn distance(letters: &str, entry: &Entry) -> Option<usize> {
    let letters = letters.trim().to_lowercase();
    if let Some(at) = entry.name.find(&letters) {
        return Some(at + entry.name.len() - letters.len());
    }
    let mut rest = entry.name.chars();
    if letters.chars().all(|c| rest.any(|other| other == c)) {
        return Some(100);
    }
    entry.help.contains(&letters).then_some(200)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::input::Code;

    #[test]
    fn every_key_in_the_table_is_one_and_no_place_binds_it_twice() {
        let mut seen = std::collections::HashSet::new();
        for entry in TABLE {
            for name in entry.keys {
                let key = Key::parse(name).unwrap_or_else(|| panic!("{name} is no key"));
                assert!(
                    seen.insert((format!("{:?}", entry.place), key)),
                    "{name} is bound twice in {:?}",
                    entry.place
                );
            }
        }
    }

    #[test]
    fn a_screens_own_key_goes_before_the_same_one_everywhere() {
        let enter = Key::plain(Code::Enter);
        assert_eq!(find(enter, Everywhere, Screen::Runs), Some(Action::Start));
        assert_eq!(find(enter, Typing, Screen::Runs), Some(Action::Accept));
        let q = Key::plain(Code::Char('q'));
        assert_eq!(find(q, Everywhere, Screen::Chat), Some(Action::Quit));
        assert_eq!(find(q, Typing, Screen::Chat), None);
    }

    #[test]
    fn commands_are_found_by_parts_of_their_names() {
        let first = |letters: &str| {
            let found = search(letters, Source::Hosts);
            found.first().map(|entry| entry.name)
        };
        assert_eq!(first("add"), Some("add host"));
        assert_eq!(first("chat"), Some("chat"));
        assert_eq!(first("rnplbk"), Some("run playbook"));
        assert_eq!(first("zzzz"), None);
    }

    #[test]
    fn what_needs_hosts_is_not_offered_where_there_are_none() {
        for source in [Source::Demo, Source::Journal] {
            let names: Vec<&str> = search("", source).iter().map(|entry| entry.name).collect();
            assert!(
                !names.contains(&"up") && !names.contains(&"add host"),
                "{names:?}"
            );
            assert!(names.contains(&"chat"), "{names:?}");
            let on = on(Screen::Overview, source);
            assert!(!on.map(|entry| entry.name).any(|name| name == "down"));
        }
    }
}
