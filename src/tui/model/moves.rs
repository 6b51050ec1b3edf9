//! Moving through rows and pages of what a screen shows. Pure.

use super::Model;
use super::ui::{Typing, passes};
use crate::tui::command::{self, Action, Screen};
use crate::tui::draw;

impl Model {
    /// Moves a row or a page.
    pub(super) fn step(&mut self, action: Action) {
        let page = usize::from(self.ui.size.1.saturating_sub(10).max(1));
        let (up, by) = match action {
            Action::Up => (true, 1),
            Action::Down => (false, 1),
            Action::PageUp => (true, page),
            _ => (false, page),
        };
        let moved = |row: usize| {
            if up {
                row.saturating_sub(by)
            } else {
                row.saturating_add(by)
            }
        };
        // These count from their ends.
        let back = |row: usize, most: usize| {
            if up {
                row.saturating_add(by).min(most)
            } else {
                row.saturating_sub(by)
            }
        };
        if let Some(confirm) = &mut self.ui.confirm {
            confirm.scroll = moved(confirm.scroll).min(confirm.lines.len().saturating_sub(1));
        } else if let Some(row) = self.ui.help {
            self.ui.help = Some(moved(row).min(command::TABLE.len()));
        } else if matches!(self.ui.typing, Some((Typing::Palette, _))) {
            self.ui.pick = moved(self.ui.pick).min(command::TABLE.len());
        } else {
            match self.ui.screen {
                Screen::Chat => {
                    let most = self.data.chat.len() * 200;
                    self.ui.chat_back = back(self.ui.chat_back, most);
                }
                Screen::Logs => {
                    let most = draw::reach(self);
                    self.ui.log_back = back(self.ui.log_back.min(most), most);
                }
                Screen::Runs if self.ui.run.is_some() => {
                    let most = draw::reach(self);
                    self.ui.run_back = back(self.ui.run_back.min(most), most);
                }
                _ => {
                    let most = self.rows().saturating_sub(1);
                    let row = moved(self.ui.row()).min(most);
                    self.ui.choose(row);
                }
            }
        }
    }

    /// To the beginning or the end.
    pub(super) fn far(&mut self, top: bool) {
        let far = |most: usize| if top { most } else { 0 };
        match self.ui.screen {
            Screen::Chat => self.ui.chat_back = far(self.data.chat.len() * 200),
            Screen::Logs => self.ui.log_back = far(draw::reach(self)),
            Screen::Runs if self.ui.run.is_some() => self.ui.run_back = far(draw::reach(self)),
            _ => {
                let last = self.rows().saturating_sub(1);
                self.ui.choose(if top { 0 } else { last });
            }
        }
    }

    /// Rows that can be chosen on the screen.
    pub(super) fn rows(&self) -> usize {
        match self.ui.screen {
            Screen::Hosts if self.ui.drift => self.shown_drift().count(),
            Screen::Overview | Screen::Hosts | Screen::Plan => self.shown_hosts().count(),
            Screen::Runs => self.seen().playbooks.len() + self.seen().runs.len(),
            Screen::Chat | Screen::Logs => 0,
        }
    }

    /// Chooses the last row where the chosen one is there no more.
    pub(super) fn keep_row(&mut self) {
        let row = self.ui.row();
        if row > 0 {
            self.ui.choose(row.min(self.rows().saturating_sub(1)));
        }
    }

    /// Rows of what differs that the filter lets through.
    pub fn shown_drift(&self) -> impl Iterator<Item = &super::drift::DriftRow> {
        let filter = self.ui.filter().to_owned();
        let rows = self.seen().drift.iter().flat_map(|view| &view.rows);
        rows.filter(move |row| {
            let hosts = row.wrong.iter().chain(&row.unknown).map(String::as_str);
            let mut texts: Vec<&str> = hosts.collect();
            texts.push(&row.name);
            if row.bad {
                texts.push("known bad");
            }
            passes(&filter, &texts)
        })
    }

    /// Hosts that the filter lets through.
    pub fn shown_hosts(&self) -> impl Iterator<Item = &super::data::HostView> {
        let filter = self.ui.filter().to_owned();
        self.seen().hosts.iter().filter(move |host| {
            let (_, _, word) = host.state();
            passes(
                &filter,
                &[&host.name, word, host.reason.as_deref().unwrap_or_default()],
            )
        })
    }
}
