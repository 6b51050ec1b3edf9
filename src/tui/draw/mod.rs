//! From what is known to a picture. Free functions over a frame, an area and the model; pure. One
//! file for each screen.
//!
//! ```text
//! header   cluster ▸ model, state                     one row
//! body     the screen; modals over it                 the rest
//! tabs     the screens and their keys                 one row, from 16 rows on
//! footer   keys that work here, or what is typed      one row
//! ```

mod ask;
pub mod chart;
mod chat;
mod drift;
mod footer;
mod form;
mod help;
mod hosts;
mod logs;
mod overview;
mod palette;
pub mod parts;
mod plan;
mod runs;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::command::Screen;
use super::model::{Model, Standing};
use super::text::{fit, width};
use super::theme::{Theme, Tone, heading};

/// How much room there is, by the terminal's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// Less than 40 columns or 12 rows: one line.
    Line,
    /// Less than 80 columns: a line for each host.
    Narrow,
    /// Less than 120 columns.
    Middle,
    /// All of it.
    Wide,
}

impl Room {
    /// The class of a size.
    pub fn of(columns: u16, rows: u16) -> Self {
        match columns {
            _ if columns < 40 || rows < 12 => Self::Line,
            40..80 => Self::Narrow,
            80..120 => Self::Middle,
            _ => Self::Wide,
        }
    }
}

/// What a click was on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A screen's name.
    Screen(Screen),
    /// A row of the screen's list.
    Row(usize),
}

/// Where the parts of the whole are.
#[derive(Clone, Copy, Debug)]
struct Frames {
    header: Rect,
    body: Rect,
    tabs: Rect,
    footer: Rect,
}

fn frames(area: Rect) -> Frames {
    let tabs = u16::from(area.height >= 16);
    let row = |y: u16, height: u16| Rect {
        x: area.x,
        y: area.y.saturating_add(y),
        width: area.width,
        height,
    };
    let body = area.height.saturating_sub(2 + tabs);
    Frames {
        header: row(0, 1),
        body: row(1, body),
        tabs: row(1 + body, tabs),
        footer: row(1 + body + tabs, 1),
    }
}

/// Draws everything.
pub fn screen(frame: &mut Frame<'_>, model: &Model, theme: Theme) {
    let area = frame.area();
    if area.width == 0 || area.height == 0 {
        return;
    }
    let room = Room::of(area.width, area.height);
    if room == Room::Line {
        line(frame, area, model);
    } else {
        let frames = frames(area);
        header(frame, frames.header, model);
        body(frame, frames.body, model, room);
        footer::tabs(frame, frames.tabs, model);
        footer::footer(frame, frames.footer, model);
    }
    theme.finish(frame.buffer_mut());
}

fn body(frame: &mut Frame<'_>, area: Rect, model: &Model, room: Room) {
    match model.ui.screen {
        Screen::Overview => overview::draw(frame, area, model, room),
        Screen::Hosts if model.ui.drift => drift::draw(frame, area, model, room),
        Screen::Hosts => hosts::draw(frame, area, model, room),
        Screen::Plan => plan::draw(frame, area, model),
        Screen::Runs => runs::draw(frame, area, model),
        Screen::Chat => chat::draw(frame, area, model),
        Screen::Logs => logs::draw(frame, area, model),
    }
    if let Some(first) = model.ui.help {
        help::draw(frame, area, model, first);
    }
    if let Some(form) = &model.ui.form {
        form::draw(frame, area, form);
    }
    palette::draw(frame, area, model);
    ask::draw(frame, area, model);
}

/// One row that says the most: for terminals too small for anything else.
fn line(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let data = model.seen();
    let speed = data.telemetry.as_ref().map_or_else(String::new, |rates| {
        format!("{:.1} tok/s ", rates.tokens_per_second)
    });
    let asks = if model.question().is_some() {
        "asks: enlarge "
    } else {
        ""
    };
    let (_, word) = standing(&data.standing);
    let text = format!("{asks}{speed}{word} (needs 40x12)");
    let text = fit(&text, usize::from(area.width));
    let row = Rect { height: 1, ..area };
    frame.render_widget(Line::from(text), row);
}

/// Tone and word of a standing.
pub fn standing(standing: &Standing) -> (Tone, &'static str) {
    match standing {
        Standing::Unknown => (Tone::Faint, "not watched"),
        Standing::Looking => (Tone::Busy, "looking"),
        Standing::Absent => (Tone::Faint, "nothing runs"),
        Standing::Serving => (Tone::Good, "serving"),
        Standing::Starting => (Tone::Busy, "starting"),
        Standing::Degraded(_) => (Tone::Bad, "degraded"),
        Standing::Trouble(_) => (Tone::Careful, "not reached"),
    }
}

fn header(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let data = model.seen();
    let (mut tone, mut word) = standing(&data.standing);
    if data.invalid_inventory {
        (tone, word) = (Tone::Bad, "inventory invalid");
    } else if data.no_inventory.is_some() {
        (tone, word) = (Tone::Careful, "no inventory");
    } else if data.standing == Standing::Absent && data.left().next().is_some() {
        (tone, word) = (Tone::Careful, "not all stopped");
    }
    let mut parts = vec![Span::styled(" windlass", heading())];
    if !data.cluster.is_empty() {
        parts.push(Span::raw(" ▸ "));
        parts.push(Span::styled(fit(&data.cluster, 20), heading()));
    }
    parts.push(Span::raw("  "));
    let mark = match tone {
        Tone::Good => "● ",
        Tone::Bad => "✗ ",
        Tone::Careful => "▲ ",
        _ => "",
    };
    parts.push(Span::styled(format!("{mark}{word}"), tone.style()));
    if let Some(name) = &data.model {
        parts.push(Span::raw(format!("  {}", fit(name, 30))));
    }
    let mut right = Vec::new();
    if area.width >= 80 {
        if !data.hosts.is_empty() {
            let many = if data.hosts.len() == 1 { "" } else { "s" };
            right.push(format!("{} host{many}", data.hosts.len()));
        }
        if let Some(uptime) = data.uptime() {
            right.push(format!("up {}", parts::span(uptime)));
        }
        if let (Some(api), true) = (&data.api, area.width >= 100) {
            right.push(format!("api {api}"));
        }
    }
    let mut right = right.join("  ");
    if model.frozen.is_some() {
        right = format!("FROZEN  {right}");
    }
    right.push(' ');
    let left: usize = parts.iter().map(|span| width(&span.content)).sum();
    let blanks = usize::from(area.width).saturating_sub(left + width(&right));
    if blanks > 0 {
        parts.push(Span::raw(" ".repeat(blanks)));
        parts.push(Span::styled(
            right,
            if model.frozen.is_some() {
                Style::new().add_modifier(Modifier::REVERSED)
            } else {
                Tone::Faint.style()
            },
        ));
    }
    frame.render_widget(Line::from(parts), area);
}

/// How many rows back the beginning is of what scrolls from its end on the screen.
pub fn reach(model: &Model) -> usize {
    let (columns, rows) = model.ui.size;
    let body = frames(Rect::new(0, 0, columns, rows)).body;
    match model.ui.screen {
        Screen::Runs => runs::reach(body, model),
        Screen::Logs => logs::reach(body, model),
        _ => 0,
    }
}

/// What lies at a cell.
pub fn target(model: &Model, column: u16, row: u16) -> Option<Target> {
    let (columns, rows) = model.ui.size;
    let area = Rect::new(0, 0, columns, rows);
    let room = Room::of(columns, rows);
    if room == Room::Line {
        return None;
    }
    let frames = frames(area);
    if frames.tabs.height > 0 && row == frames.tabs.y {
        return footer::tab_at(column, columns).map(Target::Screen);
    }
    let list = match model.ui.screen {
        Screen::Overview => overview::list(frames.body, model, room),
        Screen::Hosts if model.ui.drift => drift::list(frames.body, model),
        Screen::Hosts => hosts::list(frames.body, room),
        _ => return None,
    };
    if column < list.x || column >= list.right() || row < list.y || row >= list.bottom() {
        return None;
    }
    let total = match model.ui.shows_drift() {
        true => model.shown_drift().count(),
        false => model.shown_hosts().count(),
    };
    let first = parts::first(model.ui.row(), total, usize::from(list.height));
    Some(Target::Row(first + usize::from(row - list.y)))
}
