//! What workers and runs write: all hosts or one, filtered, followed.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::parts::{filtered, inside, lines, pane, say};
use crate::tui::model::Model;
use crate::tui::model::data;
use crate::tui::model::ui::passes;
use crate::tui::text::{padded, width, wrapped};
use crate::tui::theme::Tone;

/// Columns that hosts get; longer names push their text on.
const NAMES: usize = 16;
/// Fewest columns in which a text is broken into rows.
const NARROWEST: usize = 8;

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let data = model.seen();
    let only = model.ui.log_host.as_deref();
    let title = match only {
        Some(host) => format!("logs of {host}"),
        None => "logs of all hosts".to_owned(),
    };
    let mut title = filtered(title, model);
    title.push_str(if model.ui.log_back == 0 {
        ", following"
    } else {
        ", held: F follows"
    });
    let inner = pane(frame, area, &title);
    if data.logs.is_empty() {
        let text = "No lines yet. The logs of workers come once a deployment is found; what runs started here write comes too.";
        say(frame, inner, text, Tone::Careful);
        return;
    }
    tail(
        frame,
        inner,
        newest(model),
        model.ui.log_back,
        model.ui.filter(),
    );
}

/// How many rows back the oldest line is.
pub fn reach(area: Rect, model: &Model) -> usize {
    reach_of(inside(area), newest(model), model.ui.filter())
}

/// The lines of the hosts that are shown, the newest first.
fn newest(model: &Model) -> impl Iterator<Item = &data::Line> + Clone {
    let only = model.ui.log_host.as_deref();
    let all = model.seen().logs.iter().rev();
    all.filter(move |line| only.is_none_or(|host| line.host == host))
}

/// Draws lines given from the newest on, so that the newest but `back` rows is last. Long lines take
/// several rows: nothing of what a host said is out of sight.
pub fn tail<'a>(
    frame: &mut Frame<'_>,
    area: Rect,
    newest: impl Iterator<Item = &'a data::Line> + Clone,
    back: usize,
    filter: &str,
) {
    let height = usize::from(area.height);
    let most = back.saturating_add(height);
    let mut shown = rows(area, newest, filter, most);
    // Scrolled past the oldest, the oldest stay in sight.
    shown.drain(..back.min(shown.len().saturating_sub(height)));
    shown.truncate(height);
    lines(frame, area, shown.into_iter().rev());
}

/// How many rows back the oldest of these lines is.
pub fn reach_of<'a>(
    area: Rect,
    newest: impl Iterator<Item = &'a data::Line> + Clone,
    filter: &str,
) -> usize {
    let all = rows(area, newest, filter, usize::MAX).len();
    all.saturating_sub(usize::from(area.height))
}

/// The rows that lines take, from the last row of the newest on, until there are this many.
fn rows<'a>(
    area: Rect,
    newest: impl Iterator<Item = &'a data::Line> + Clone,
    filter: &str,
    most: usize,
) -> Vec<Line<'static>> {
    let newest = newest.filter(|line| passes(filter, &[&line.host, &line.text]));
    let names = newest.clone().map(|line| width(&line.host)).max();
    let names = names.unwrap_or(0).min(NAMES);
    let mut all = Vec::new();
    for line in newest {
        if all.len() >= most {
            break;
        }
        let time = if line.time.is_empty() || area.width < 60 {
            String::new()
        } else {
            format!("{} ", line.time)
        };
        let host = if names > 0 {
            format!("{} ", padded(&line.host, names))
        } else {
            String::new()
        };
        let before = width(&time) + width(&host);
        let rest = usize::from(area.width).saturating_sub(before);
        let mut texts = wrapped(&line.text, rest.max(NARROWEST)).into_iter();
        let first = Line::from(vec![
            Span::styled(time, Tone::Faint.style()),
            Span::styled(host, Tone::Busy.style()),
            Span::styled(texts.next().unwrap_or_default(), line.tone.style()),
        ]);
        let further: Vec<Line> = texts
            .map(|text| {
                Line::from(vec![
                    Span::raw(" ".repeat(before)),
                    Span::styled(text, line.tone.style()),
                ])
            })
            .collect();
        all.extend(further.into_iter().rev());
        all.push(first);
    }
    all
}
