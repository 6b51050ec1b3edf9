//! Commands by name.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::footer::typed;
use super::parts::{column, first, lines, modal, say, table_line};
use crate::tui::command;
use crate::tui::model::Model;
use crate::tui::model::ui::Typing;
use crate::tui::theme::{Tone, key};

/// Draws the palette when it is open.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let Some((Typing::Palette, line)) = &model.ui.typing else {
        return;
    };
    let found = command::search(line.value(), model.data.source);
    let inner = modal(frame, area, "commands: enter does the chosen one", 84, 18);
    typed(frame, inner, ": ", line, false);
    let list = Rect {
        y: inner.y.saturating_add(1),
        height: inner.height.saturating_sub(1),
        ..inner
    };
    if found.is_empty() {
        let text = "No command has these letters. Backspace takes the last one away.";
        say(frame, list, text, Tone::Careful);
        return;
    }
    let at = model.ui.pick.min(found.len().saturating_sub(1));
    let from = first(at, found.len(), usize::from(list.height));
    let columns = [column("", 16), column("", 9), column("", 50)];
    let rows = found.iter().enumerate().skip(from).map(|(row, entry)| {
        let cells = [
            (entry.name.to_owned(), Style::new()),
            (entry.keys.first().copied().unwrap_or("").to_owned(), key()),
            (entry.help.to_owned(), Style::new()),
        ];
        table_line(&columns, &cells, row == at)
    });
    lines(frame, list, rows);
}
