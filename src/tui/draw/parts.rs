//! What several screens are made of: panes, tables, bars.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear};

use crate::tui::model::Model;
use crate::tui::text::{CUT, fit, left, right, shown, width, wrapped};
use crate::tui::theme::{Tone, chosen, heading};

/// Columns from which on panes have borders.
const BORDERS_FROM: u16 = 44;

/// Draws a pane with a title; gives the room in it.
pub fn pane(frame: &mut Frame<'_>, area: Rect, title: &str) -> Rect {
    let inner = inside(area);
    if area.width == 0 || area.height == 0 {
        return inner;
    }
    if has_border(area) {
        let title = format!(
            " {} ",
            fit(title, usize::from(area.width.saturating_sub(6)))
        );
        let block = Block::bordered()
            .border_type(BorderType::Rounded)
            .title(Span::styled(title, heading()));
        frame.render_widget(block, area);
    } else {
        let title = fit(title, usize::from(area.width));
        let row = Rect { height: 1, ..area };
        frame.render_widget(Line::styled(title, heading()), row);
    }
    inner
}

fn has_border(area: Rect) -> bool {
    area.width >= BORDERS_FROM && area.height >= 4
}

/// The room in a pane of this area.
pub fn inside(area: Rect) -> Rect {
    if has_border(area) {
        Rect {
            x: area.x.saturating_add(2),
            y: area.y.saturating_add(1),
            width: area.width.saturating_sub(4),
            height: area.height.saturating_sub(2),
        }
    } else {
        Rect {
            y: area.y.saturating_add(1.min(area.height)),
            height: area.height.saturating_sub(1),
            ..area
        }
    }
}

/// A pane over others, in the middle of an area; gives the room in it.
pub fn modal(frame: &mut Frame<'_>, area: Rect, title: &str, width: u16, height: u16) -> Rect {
    let width = width.min(area.width);
    let height = height.min(area.height);
    let over = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, over);
    let title = format!(" {} ", fit(title, usize::from(width.saturating_sub(6))));
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .title(Span::styled(title, heading()));
    let inner = Rect {
        x: over.x.saturating_add(2).min(over.right()),
        width: over.width.saturating_sub(4),
        ..block.inner(over)
    };
    frame.render_widget(block, over);
    inner
}

/// The first row shown so that the chosen one is in sight, near the middle.
pub fn first(chosen: usize, total: usize, height: usize) -> usize {
    let most = total.saturating_sub(height);
    chosen.saturating_sub(height / 2).min(most)
}

/// A pane's title, with the filter that chooses what is shown in it.
pub fn filtered(title: impl Into<String>, model: &Model) -> String {
    let title = title.into();
    match model.ui.filter() {
        "" => title,
        filter => format!("{title} with \"{}\"", shown(filter)),
    }
}

/// One sentence in a pane, for want of anything else to show.
pub fn say(frame: &mut Frame<'_>, inner: Rect, text: &str, tone: Tone) {
    lines(frame, inner, paragraph(text, inner.width, tone.style()));
}

/// Columns that the widest of these takes.
pub fn widest<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(width).max().unwrap_or(0)
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its title.
    pub title: &'static str,
    /// Its width.
    pub width: usize,
    /// Whether it ends on the right.
    pub right: bool,
}

/// A column that begins on the left.
pub const fn column(title: &'static str, width: usize) -> Column {
    Column {
        title,
        width,
        right: false,
    }
}

/// A column of numbers.
pub const fn number(title: &'static str, width: usize) -> Column {
    Column {
        title,
        width,
        right: true,
    }
}

/// A cell of a table.
pub type Cell = (String, Style);

/// Draws a table's head in the first row of an area; gives the rest.
pub fn table_head(frame: &mut Frame<'_>, area: Rect, columns: &[Column]) -> Rect {
    if area.height < 2 {
        return area;
    }
    let cells: Vec<Cell> = columns
        .iter()
        .map(|column| (column.title.to_owned(), heading()))
        .collect();
    let row = Rect { height: 1, ..area };
    frame.render_widget(table_line(columns, &cells, false), row);
    Rect {
        y: area.y + 1,
        height: area.height - 1,
        ..area
    }
}

/// A row of a table. The chosen one has a mark before it and is turned around.
pub fn table_line(columns: &[Column], cells: &[Cell], is_chosen: bool) -> Line<'static> {
    let mut spans = vec![Span::raw(if is_chosen { "▸ " } else { "  " })];
    for (column, (text, style)) in columns.iter().zip(cells) {
        let cell = if column.right {
            right(text, column.width)
        } else {
            left(text, column.width)
        };
        spans.push(Span::styled(cell, *style));
        spans.push(Span::raw("  "));
    }
    let line = Line::from(spans);
    if is_chosen {
        line.style(chosen())
    } else {
        line
    }
}

/// A line in at most so many columns, with a mark where it was cut.
fn cut(line: Line<'static>, columns: usize) -> Line<'static> {
    if line.width() <= columns {
        return line;
    }
    // Blanks at the end are no text.
    let text: String = line
        .spans
        .iter()
        .map(|span| span.content.as_ref())
        .collect();
    if width(text.trim_end()) <= columns {
        return line;
    }
    let mut taken = 0;
    let mut spans = Vec::new();
    for span in line.spans {
        let own = width(&span.content);
        if taken + own < columns {
            taken += own;
            spans.push(span);
            continue;
        }
        // At least the mark has room, as more text follows or this one is too long.
        let mut part = fit(&span.content, columns - taken);
        if !part.ends_with(CUT) {
            part = fit(&format!("{part} "), columns - taken);
        }
        spans.push(Span::styled(part, span.style));
        break;
    }
    Line { spans, ..line }
}

/// Draws lines from the top of an area; where one is longer than a row, a mark says so.
pub fn lines(frame: &mut Frame<'_>, area: Rect, lines: impl IntoIterator<Item = Line<'static>>) {
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        let row = Rect {
            y,
            height: 1,
            ..area
        };
        frame.render_widget(cut(line, usize::from(area.width)), row);
    }
}

/// A text in rows that fit, each in a style.
pub fn paragraph(text: &str, columns: u16, style: Style) -> Vec<Line<'static>> {
    wrapped(text, usize::from(columns))
        .into_iter()
        .map(|row| Line::styled(row, style))
        .collect()
}

/// A bar of eighths: so much of 1 in so many columns.
pub fn bar(part: f64, columns: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let part = if part.is_finite() {
        part.clamp(0.0, 1.0)
    } else {
        0.0
    };
    let eighths = (part * columns as f64 * 8.0).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    text.push_str(EIGHTHS.get(eighths % 8).copied().unwrap_or_default());
    left(&text, columns)
}

/// A time span in one shape: `45s`, `12m`, `3h12m`, `2d05h`.
pub fn span(seconds: f64) -> String {
    let whole = if seconds.is_finite() {
        seconds.max(0.0) as u64
    } else {
        0
    };
    match whole {
        0..60 => format!("{whole}s"),
        60..3600 => format!("{}m", whole / 60),
        3600..86_400 => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_ends_in_a_mark_and_one_that_fits_is_as_it_was() {
        let of = |parts: &[&str], columns| {
            let spans: Vec<Span> = parts
                .iter()
                .map(|part| Span::raw((*part).to_owned()))
                .collect();
            cut(Line::from(spans), columns).to_string()
        };
        assert_eq!(of(&["one ", "two"], 7), "one two");
        assert_eq!(of(&["one ", "two   "], 7), "one two   ");
        assert_eq!(of(&["one ", "two"], 6), "one t…");
        assert_eq!(of(&["one ", "two"], 5), "one …");
        assert_eq!(of(&["one ", "two"], 4), "one…");
        assert_eq!(of(&["one ", "two"], 3), "on…");
        assert_eq!(of(&["漢字", "漢字"], 4), "漢…");
        assert_eq!(of(&["漢字", "漢字"], 5), "漢字…");
        assert_eq!(of(&["one"], 0), "");
    }
}
