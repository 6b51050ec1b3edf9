//! The list of commands that work on this screen.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::parts::{lines, modal};
use crate::tui::command::{self, Place, TABLE};
use crate::tui::model::Model;
use crate::tui::text::{left, width};
use crate::tui::theme::{heading, key};

/// Draws it from this row on.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, first: usize) {
    let mut rows = vec![Line::styled(
        format!("on the screen {}", model.ui.screen.name()),
        heading(),
    )];
    rows.extend(command::on(model.ui.screen, model.data.source).map(row));
    rows.push(Line::raw(""));
    rows.push(Line::styled("while a line is typed", heading()));
    rows.extend(TABLE.iter().filter(|e| e.place == Place::Typing).map(row));
    let height = u16::try_from(rows.len())
        .unwrap_or(u16::MAX)
        .saturating_add(2);
    let inner = modal(
        frame,
        area,
        "help: up and down scroll, esc closes",
        84,
        height,
    );
    let most = rows.len().saturating_sub(usize::from(inner.height));
    lines(frame, inner, rows.into_iter().skip(first.min(most)));
}

fn row(entry: &command::Entry) -> Line<'static> {
    let keys = entry.keys.join(" ");
    Line::from(vec![
        Span::styled(left(&keys, width(&keys).max(12)), key()),
        Span::raw(format!("{} {}", left(entry.name, 15), entry.help)),
    ])
}
