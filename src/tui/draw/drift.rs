//! What differs between the hosts: hosts as columns, only what is not as it should be, and of the
//! chosen row why it matters and what mends it.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::Room;
use super::parts::{filtered, first, inside, lines, pane, paragraph, say, widest};
use crate::figures::counted;
use crate::tui::model::drift::{DriftRow, DriftView};
use crate::tui::model::{Model, Source};
use crate::tui::text::{left, width};
use crate::tui::theme::{Tone, chosen, heading};

/// Least columns of a host.
const LEAST: usize = 14;
/// Most of them; values that are longer stand whole below the table.
const MOST: usize = 36;

fn areas(area: Rect, enlarged: bool) -> (Rect, Rect) {
    let below = match enlarged {
        true => 0,
        false => (area.height / 2).min(10),
    };
    let table = area.height - below;
    (
        Rect {
            height: table,
            ..area
        },
        Rect {
            y: area.y + table,
            height: below,
            ..area
        },
    )
}

/// Where the rows are.
pub fn list(area: Rect, model: &Model) -> Rect {
    let inner = inside(areas(area, model.ui.enlarged).0);
    Rect {
        y: inner.y.saturating_add(1),
        height: inner.height.saturating_sub(1),
        ..inner
    }
}

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, room: Room) {
    let data = model.seen();
    let verifying = data.running().any(|run| run.command == "verify");
    let Some(view) = &data.drift else {
        let inner = pane(frame, area, "drift");
        let (tone, text) = match data.source {
            _ if verifying => (Tone::Busy, "Reading and comparing the hosts."),
            Source::Hosts => (
                Tone::Careful,
                "Not verified yet. Press v to compare the hosts with each other and with what is known bad.",
            ),
            Source::Demo => (
                Tone::Plain,
                "The demo is on one machine; there is nothing to compare.",
            ),
            Source::Journal => (Tone::Plain, "No run of this journal compared hosts."),
        };
        say(frame, inner, text, tone);
        return;
    };
    let mut title = format!("drift against {}", view.reference);
    match verifying {
        true => title.push_str(", comparing anew"),
        false if !view.time.is_empty() => title.push_str(&format!(", {}", view.time)),
        false => {}
    }
    let title = filtered(title, model);
    let equal = counted(
        usize::try_from(view.equal).unwrap_or(usize::MAX),
        "subject",
        "subjects",
    );
    if view.rows.is_empty() {
        let inner = pane(frame, area, &title);
        let text = format!("✓ Nothing differs: {equal} as the rules ask. Press v to compare anew.");
        say(frame, inner, &text, Tone::Good);
        return;
    }
    let shown: Vec<&DriftRow> = model.shown_drift().collect();
    let (table, below) = areas(area, model.ui.enlarged);
    let inner = pane(frame, table, &title);
    if shown.is_empty() {
        let text = "No row passes the filter. Press esc to show all.";
        say(frame, inner, text, Tone::Careful);
        return;
    }
    rows(frame, inner, model, view, &shown, room);
    if below.height == 0 {
        return;
    }
    if let Some(row) = shown.get(model.ui.row()) {
        let inner = pane(frame, below, &row.name);
        lines(frame, inner, about(row, view, inner.width, &equal));
    }
}

/// The hosts that have a column, and how wide the name's and theirs are.
fn columns<'v>(
    view: &'v DriftView,
    shown: &[&DriftRow],
    room: Room,
    all: usize,
) -> (usize, usize, &'v [String]) {
    let names = widest(shown.iter().map(|row| row.name.as_str()));
    if room == Room::Narrow {
        return (names.clamp(8, all.saturating_sub(LEAST + 4)), 0, &[]);
    }
    let names = names.clamp(8, all / 3);
    let rest = all.saturating_sub(names + 4);
    let count = (rest / (LEAST + 2)).clamp(1, view.hosts.len().max(1));
    let own = (rest / count).saturating_sub(2).min(MOST);
    (names, own, view.hosts.get(..count).unwrap_or(&view.hosts))
}

fn rows(
    frame: &mut Frame<'_>,
    inner: Rect,
    model: &Model,
    view: &DriftView,
    shown: &[&DriftRow],
    room: Room,
) {
    let all = usize::from(inner.width);
    let (names, own, hosts) = columns(view, shown, room, all);
    let mut head = vec![Span::styled(
        format!("  {}  ", left("SUBJECT", names)),
        heading(),
    )];
    for host in hosts {
        let word = match *host == view.reference {
            true if width(host) + 12 <= own => format!("{host} (reference)"),
            _ => host.clone(),
        };
        head.push(Span::styled(format!("{}  ", left(&word, own)), heading()));
    }
    match view.hosts.len() - hosts.len() {
        _ if hosts.is_empty() => head.push(Span::styled("DIFFERS ON", heading())),
        0 => {}
        more => head.push(Span::styled(format!("+{more}"), heading())),
    }
    let height = usize::from(inner.height.saturating_sub(1));
    let from = first(model.ui.row(), shown.len(), height);
    let body = shown.iter().enumerate().skip(from).take(height);
    let body = body.map(|(at, row)| {
        let is_chosen = at == model.ui.row();
        let mut spans = vec![
            Span::raw(if is_chosen { "▸ " } else { "  " }),
            Span::raw(format!("{}  ", left(&row.name, names))),
        ];
        for host in hosts {
            let (tone, words) = row.cell(host, &view.reference);
            spans.push(Span::styled(
                format!("{}  ", left(&words, own)),
                tone.style(),
            ));
        }
        if hosts.is_empty() {
            let wrong: Vec<&str> = row.wrong.iter().map(String::as_str).collect();
            spans.push(match wrong.is_empty() {
                true => Span::styled("? unknown", Tone::Careful.style()),
                false => Span::styled(format!("✗ {}", wrong.join(" ")), Tone::Bad.style()),
            });
        }
        let line = Line::from(spans);
        match is_chosen {
            true => line.style(chosen()),
            false => line,
        }
    });
    lines(frame, inner, std::iter::once(Line::from(head)).chain(body));
}

/// The chosen row: every host's value, hosts with the same one together, then why it matters and what
/// mends it.
fn about(row: &DriftRow, view: &DriftView, columns: u16, equal: &str) -> Vec<Line<'static>> {
    let mut groups: Vec<(Tone, String, Vec<&str>)> = Vec::new();
    for host in &view.hosts {
        let (tone, words) = row.cell(host, &view.reference);
        if !row.values.contains_key(host) {
            continue;
        }
        match groups.iter_mut().find(|(_, own, _)| *own == words) {
            Some((_, _, hosts)) => hosts.push(host),
            None => groups.push((tone, words, vec![host])),
        }
    }
    let mut all = Vec::new();
    let mut add = |label: &str, text: &str, style: Style| {
        let room = columns.saturating_sub(6);
        for (at, line) in paragraph(text, room, style).into_iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            let mut spans = vec![Span::styled(
                format!("{} ", left(label, 5)),
                Tone::Faint.style(),
            )];
            let style = line.style;
            spans.extend(line.spans.into_iter().map(|span| span.style(style)));
            all.push(Line::from(spans));
        }
    };
    for (tone, words, hosts) in groups {
        add(
            "has",
            &format!("{words}: {}", hosts.join(" ")),
            tone.style(),
        );
    }
    let why = match row.bad {
        true => format!("known bad: {}", row.why),
        false => row.why.clone(),
    };
    add("why", &why, Style::new());
    add("mend", &row.mend, Style::new());
    let also = format!("{equal} as the rules ask");
    add("", &also, Tone::Faint.style());
    all
}
