//! The bottom rows: the screens, and the keys that work here or the line that is typed.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};

use crate::tui::command::{self, Place, Screen, TABLE};
use crate::tui::model::form::About;
use crate::tui::model::ui::Typing;
use crate::tui::model::{Model, Source};
use crate::tui::text::{fit, in_one_line, shown, width};
use crate::tui::theme::{Tone, chosen, key};

/// Where each screen's name stands: first column, one past the last, and the screen.
fn places(columns: u16) -> Vec<(u16, u16, Screen, String)> {
    let mut at = 1_u16;
    let mut all = Vec::new();
    for (number, screen) in (1..).zip(Screen::ALL) {
        let name = if columns >= 60 {
            screen.name()
        } else {
            fit_name(screen)
        };
        let text = format!("{number} {name}");
        let end = at.saturating_add(u16::try_from(width(&text)).unwrap_or(u16::MAX));
        all.push((at, end, screen, text));
        at = end.saturating_add(if columns >= 60 { 2 } else { 1 });
    }
    all
}

fn fit_name(screen: Screen) -> &'static str {
    match screen {
        Screen::Overview => "Over",
        Screen::Hosts => "Host",
        Screen::Plan => "Plan",
        Screen::Runs => "Runs",
        Screen::Chat => "Chat",
        Screen::Logs => "Logs",
    }
}

/// The screen whose name stands at a column.
pub fn tab_at(column: u16, columns: u16) -> Option<Screen> {
    places(columns)
        .into_iter()
        .find(|(from, to, _, _)| (*from..*to).contains(&column))
        .map(|(_, _, screen, _)| screen)
}

/// The row of screens.
pub fn tabs(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    if area.height == 0 {
        return;
    }
    let mut spans = vec![Span::raw(" ")];
    let mut at = 1;
    for (from, to, screen, text) in places(area.width) {
        spans.push(Span::raw(" ".repeat(usize::from(from.saturating_sub(at)))));
        at = to;
        spans.push(if screen == model.ui.screen {
            Span::styled(text, chosen())
        } else {
            Span::raw(text)
        });
    }
    frame.render_widget(Line::from(spans), area);
}

/// Below so many columns the keys of all screens come first.
const NARROW: u16 = 60;

/// The last row.
pub fn footer(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    if let Some((typing, line)) = &model.ui.typing
        && matches!(typing, Typing::Filter | Typing::Model)
    {
        let label = if *typing == Typing::Filter {
            " filter: "
        } else {
            " model to bring up (a name, a file or org/name:quant): "
        };
        let label = fit(label, usize::from(area.width) / 2);
        typed(frame, area, &label, line, false);
        return;
    }
    if let Some(note) = &model.ui.note {
        let text = fit(&format!(" {note}"), usize::from(area.width));
        frame.render_widget(Line::styled(text, Tone::Careful.style()), area);
        return;
    }
    let mut spans = vec![Span::raw(" ")];
    let mut taken = 1;
    let filter = model.ui.filter();
    if !filter.is_empty() && model.place() == Place::Everywhere {
        let text = fit(&format!("/{}", shown(filter)), usize::from(area.width) / 3);
        taken += width(&text) + 3;
        spans.push(Span::styled(text, Tone::Careful.style()));
        spans.push(Span::raw("   "));
    }
    let mut keys = keys(model);
    let room = usize::from(area.width).saturating_sub(taken);
    if model.ui.size.0 >= NARROW {
        fitted(&mut keys, room);
    }
    for (name, word) in keys {
        let more = columns((name, word));
        if taken + more > usize::from(area.width) {
            break;
        }
        taken += more;
        spans.push(Span::styled(name, key()));
        spans.push(Span::raw(format!(" {word}   ")));
    }
    frame.render_widget(Line::from(spans), area);
}

/// Columns that a key takes with its word and the blanks after it.
fn columns((name, word): (&str, &str)) -> usize {
    width(name) + width(word) + 4
}

/// Leaves out what does not fit, and not the last two: how to learn of all others, and how to leave.
fn fitted(keys: &mut Vec<(&'static str, &'static str)>, room: usize) {
    while keys.len() > 2 && keys.iter().copied().map(columns).sum::<usize>() > room {
        keys.remove(keys.len() - 3);
    }
}

/// The keys that work now, with their short words; those of the screen first.
fn keys(model: &Model) -> Vec<(&'static str, &'static str)> {
    let place = model.place();
    let named = |entry: &&command::Entry| !entry.footer.is_empty();
    let pair = |entry: &command::Entry| (entry.keys.first().copied().unwrap_or(""), entry.footer);
    match place {
        Place::Everywhere | Place::On(_) => {
            let mut all: Vec<_> = Vec::new();
            if model.ui.size.0 < NARROW {
                all.extend([("1-6", "screens"), ("?", "help"), ("q", "leave")]);
            }
            if model.ui.screen == Screen::Runs && model.ui.run.is_some() {
                return [("esc", "playbooks"), ("s", "stop"), ("z", "enlarge")]
                    .into_iter()
                    .filter(|(name, _)| *name != "s" || model.data.source == Source::Hosts)
                    .chain(command::everywhere().filter(named).map(pair))
                    .collect();
            }
            if model.ui.shows_drift() {
                return [("esc", "hosts"), ("v", "verify"), ("z", "enlarge")]
                    .into_iter()
                    .filter(|(name, _)| *name != "v" || model.data.source == Source::Hosts)
                    .chain(command::everywhere().filter(named).map(pair))
                    .collect();
            }
            if model.ui.help.is_some() || model.ui.enlarged || model.frozen.is_some() {
                all.push(("esc", "back"));
            }
            if !model.ui.filter().is_empty() {
                all.push(("esc", "all"));
            }
            let here = command::on(model.ui.screen, model.data.source);
            all.extend(here.filter(named).map(pair));
            all
        }
        Place::Form if is_of_play(model) => {
            vec![("enter", "run"), ("tab", "next value"), ("esc", "cancel")]
        }
        Place::Choice if model.ui.confirm.is_some() => {
            vec![("y", "yes"), ("n", "no"), ("esc", "no")]
        }
        other => TABLE
            .iter()
            .filter(|entry| entry.place == other)
            .filter(named)
            .map(pair)
            .collect(),
    }
}

fn is_of_play(model: &Model) -> bool {
    let form = model.ui.form.as_ref();
    form.is_some_and(|form| matches!(form.about, About::Play { .. }))
}

/// Draws a label and the line that is typed after it, with the cursor in it.
pub fn typed(
    frame: &mut Frame<'_>,
    area: Rect,
    label: &str,
    line: &tui_input::Input,
    secret: bool,
) {
    if area.height == 0 {
        return;
    }
    let taken = u16::try_from(width(label)).unwrap_or(u16::MAX);
    let room = usize::from(area.width.saturating_sub(taken).saturating_sub(1)).max(1);
    let value = if secret {
        "•".repeat(line.value().chars().count())
    } else {
        in_one_line(line.value())
    };
    let cursor = if secret {
        line.cursor()
    } else {
        let before: String = line.value().chars().take(line.cursor()).collect();
        width(&in_one_line(&before))
    };
    // What is left of the cursor is dropped until the cursor fits.
    let mut skipped = 0;
    let mut text = value.as_str();
    while cursor.saturating_sub(skipped) > room {
        let Some(c) = text.chars().next() else { break };
        let rest = text.get(c.len_utf8()..).unwrap_or_default();
        skipped += width(text).saturating_sub(width(rest));
        text = rest;
    }
    let row = Rect { height: 1, ..area };
    let spans = vec![
        Span::styled(label.to_owned(), key()),
        Span::raw(fit(text, room)),
    ];
    frame.render_widget(Line::from(spans), row);
    let x = u16::try_from(cursor.saturating_sub(skipped)).unwrap_or(u16::MAX);
    frame.set_cursor_position(Position {
        x: area
            .x
            .saturating_add(taken)
            .saturating_add(x)
            .min(area.right().saturating_sub(1)),
        y: area.y,
    });
}
