//! The whole at a glance: speed, hosts, what happened.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::parts::{
    Cell, Column, bar, column, first, inside, lines, number, pane, paragraph, say, table_head,
    table_line, widest,
};
use super::{Room, chart};
use crate::figures::memory;
use crate::tui::model::data::{Data, HostView, RATES, TREND};
use crate::tui::model::{Model, Source, Standing};
use crate::tui::text::{fit, left, right, shown as safe, width};
use crate::tui::theme::Tone;

/// Columns of the figures beside the chart.
const FIGURES: u16 = 46;

struct Areas {
    speed: Rect,
    hosts: Rect,
    events: Rect,
}

fn areas(area: Rect, model: &Model, room: Room) -> Areas {
    let part = |y: u16, height: u16| Rect {
        y: area.y.saturating_add(y),
        height,
        ..area
    };
    if model.ui.enlarged {
        return Areas {
            speed: part(0, 0),
            hosts: part(0, area.height),
            events: part(0, 0),
        };
    }
    if room == Room::Narrow {
        let speed = 2.min(area.height);
        let events = if area.height >= 14 { 4 } else { 1 };
        let events = events.min(area.height - speed);
        let hosts = area.height - speed - events;
        return Areas {
            speed: part(0, speed),
            hosts: part(speed, hosts),
            events: part(speed + hosts, events),
        };
    }
    let speed = if area.height >= 40 {
        13
    } else if area.height >= 26 {
        10
    } else {
        8
    }
    .min(area.height);
    let left = area.height - speed;
    // Room for a few hosts goes before events; what hosts do not need, events get.
    let wanted = u16::try_from(model.shown_hosts().count())
        .unwrap_or(u16::MAX)
        .saturating_add(3)
        .max(6);
    let hosts = wanted.min(left.saturating_sub(left.min(5)).max(left.min(6)));
    Areas {
        speed: part(0, speed),
        hosts: part(speed, hosts),
        events: part(speed + hosts, left - hosts),
    }
}

/// Where the rows of hosts are.
pub fn list(area: Rect, model: &Model, room: Room) -> Rect {
    let inner = inside(areas(area, model, room).hosts);
    if room == Room::Narrow || inner.height < 2 {
        return areas(area, model, room).hosts;
    }
    Rect {
        y: inner.y + 1,
        height: inner.height - 1,
        ..inner
    }
}

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, room: Room) {
    let areas = areas(area, model, room);
    let data = model.seen();
    if room == Room::Narrow {
        lines(frame, areas.speed, totals(data, areas.speed.width));
    } else if areas.speed.height > 0 {
        speed(frame, areas.speed, data);
    }
    hosts(frame, areas.hosts, model, room);
    if areas.events.height > 0 {
        events(frame, areas.events, model, room);
    }
}

/// What to do when there is no speed to show.
fn next_step(data: &Data) -> Option<String> {
    if data.telemetry.is_some() {
        return None;
    }
    Some(match (&data.standing, &data.no_inventory) {
        (_, Some(why)) if data.invalid_inventory => {
            format!("The inventory cannot be used: {why}. Mend it; it is read again then.")
        }
        (_, Some(why)) if data.hosts.is_empty() => format!(
            "No inventory of hosts yet. Press 2 and then a to add a host; `windlass demo` shows a cluster on this machine alone. ({why})"
        ),
        (Standing::Looking | Standing::Unknown, _) if data.hosts.is_empty() => {
            "Looking at the hosts…".to_owned()
        }
        (Standing::Looking, _) => "Looking at the hosts: what runs there is shown soon.".to_owned(),
        (Standing::Absent, _) if data.left().next().is_some() => {
            let names: Vec<&str> = data.left().take(8).map(|host| host.name.as_str()).collect();
            format!(
                "Nothing runs on the inventory's hosts. What ran on {} was not stopped there: add it to the inventory again, then stop with D.",
                names.join(", ")
            )
        }
        (Standing::Absent, _) => "No deployment. Press u to start one, 2 for the hosts.".to_owned(),
        (Standing::Trouble(why), _) => format!("{why}. It is tried again; r tries now."),
        (Standing::Degraded(why), _) => format!("The deployment does not serve: {why}"),
        (Standing::Starting, _) => "The deployment is starting…".to_owned(),
        (Standing::Serving | Standing::Unknown, _) => {
            "No requests yet. Press 5 to talk with the model.".to_owned()
        }
    })
}

/// Why the deployment does not serve as it should.
fn wrong(data: &Data) -> Option<&str> {
    match &data.standing {
        Standing::Degraded(why) | Standing::Trouble(why) => Some(why),
        _ => None,
    }
}

/// Two lines for narrow terminals.
fn totals(data: &Data, columns: u16) -> Vec<Line<'static>> {
    match (&data.telemetry, next_step(data)) {
        (Some(rates), _) => {
            let columns = usize::from(columns);
            let text = format!(
                "{:>7.1} tok/s  prompt {:>7.1} tok/s",
                rates.tokens_per_second, rates.prompt_tokens_per_second
            );
            let more = match wrong(data) {
                Some(why) => format!("✗ {why}"),
                None => format!("{} running  {} waiting", rates.running, rates.waiting),
            };
            vec![
                Line::raw(fit(&text, columns)),
                Line::raw(fit(&more, columns)),
            ]
        }
        (None, Some(step)) => paragraph(&step, columns, Tone::Careful.style()),
        (None, None) => Vec::new(),
    }
}

fn speed(frame: &mut Frame<'_>, area: Rect, data: &Data) {
    let mut title = "tokens per second, last 5 min".to_owned();
    if let (Some(why), true) = (wrong(data), data.telemetry.is_some()) {
        title = format!("✗ {why}");
    }
    let inner = pane(frame, area, &title);
    if let Some(step) = next_step(data) {
        say(frame, inner, &step, Tone::Careful);
        return;
    }
    let figures = FIGURES.min(inner.width);
    let chart_area = Rect {
        width: inner.width - figures,
        ..inner
    };
    let beside = Rect {
        x: inner.right() - figures,
        width: figures,
        ..inner
    };
    let prompt_rows = if chart_area.height >= 7 {
        chart_area.height / 3
    } else {
        1
    };
    let top = Rect {
        height: chart_area.height.saturating_sub(prompt_rows),
        ..chart_area
    };
    let bottom = Rect {
        y: chart_area.y + top.height,
        height: prompt_rows.min(chart_area.height),
        ..chart_area
    };
    let room = chart::room(chart_area);
    let generated = chart::columns(data.rates.iter().map(|rate| rate.0), RATES, room);
    let prompt = chart::columns(data.rates.iter().map(|rate| rate.1), RATES, room);
    chart::draw(frame, top, &generated, Tone::Good.style());
    chart::draw(frame, bottom, &prompt, Tone::Busy.style());
    chart::label(frame, top, &generated, "generation");
    chart::label(frame, bottom, &prompt, "prompt");
    lines(frame, beside, speed_figures(data));
}

fn speed_figures(data: &Data) -> Vec<Line<'static>> {
    let Some(rates) = &data.telemetry else {
        return Vec::new();
    };
    let row = |label: &str, text: String, tone: Tone| {
        Line::from(vec![
            Span::styled(format!("  {}", left(label, 13)), Tone::Faint.style()),
            Span::styled(text, tone.style()),
        ])
    };
    let speed = |value: f64| format!("{} tok/s", right(&format!("{value:.1}"), 9));
    let pair = |quantiles: Option<crate::event::Quantiles>| match quantiles {
        Some(q) => format!("{:>9.1} ms p50 {:>8.1} p95", q.p50, q.p95),
        None => format!("{} none yet", right("–", 9)),
    };
    let (used, total) = data
        .hosts
        .iter()
        .map(|host| host.kv)
        .max_by_key(|(_, total)| *total)
        .unwrap_or((0, 0));
    vec![
        row("generation", speed(rates.tokens_per_second), Tone::Good),
        row("prompt", speed(rates.prompt_tokens_per_second), Tone::Busy),
        row("first token", pair(rates.first_token_ms), Tone::Plain),
        row("between", pair(rates.between_tokens_ms), Tone::Plain),
        row(
            "requests",
            format!("{:>9} running {:>4} waiting", rates.running, rates.waiting),
            Tone::Plain,
        ),
        row(
            "cache",
            if total > 0 {
                let part = f64::from(used) * 100.0 / f64::from(total);
                format!("{part:>9.0} % of {total} blocks")
            } else {
                right("–", 9)
            },
            Tone::Plain,
        ),
    ]
}

fn columns(area: Rect, names: usize, room: Room) -> Vec<Column> {
    let host = column("HOST", names.clamp(6, 24));
    match room {
        Room::Wide => {
            let rest = usize::from(area.width).saturating_sub(names.clamp(6, 24) + 100);
            vec![
                host,
                column("STATE", 13),
                column("STAGE", 7),
                column("LAYERS", 7),
                column("BUSY", 13),
                number("MEMORY", 22),
                number("TOK/S", 8),
                column("TREND", (rest + 8).min(30)),
            ]
        }
        _ => vec![
            host,
            column("STATE", 13),
            column("LAYERS", 7),
            number("MEMORY", 19),
            number("TOK/S", 7),
            column("TREND", 8),
        ],
    }
}

fn cells(host: &HostView, columns: &[Column]) -> Vec<Cell> {
    let (tone, _, _) = host.state();
    let plain = Style::new();
    columns
        .iter()
        .map(|column| match column.title {
            "HOST" => (host.name.clone(), plain),
            "STATE" => (state(host), tone.style()),
            "STAGE" => (
                host.stage.map_or_else(
                    || "–".to_owned(),
                    |stage| format!("{stage}{}", if stage == 0 { " head" } else { "" }),
                ),
                plain,
            ),
            "LAYERS" => (host.layer_range(), plain),
            "BUSY" if host.stage.is_some() => (
                format!("{} {:>3.0}%", bar(host.busy, 8), host.busy * 100.0),
                plain,
            ),
            "MEMORY" => (memory_cell(host, column.width), plain),
            "TOK/S" if host.stage.is_some() => (format!("{:.1}", host.rows_per_second), plain),
            "TREND" => (
                chart::spark(
                    host.trend.iter().map(|rate| f64::from(*rate)),
                    TREND,
                    column.width,
                ),
                Tone::Good.style(),
            ),
            _ => ("–".to_owned(), Tone::Faint.style()),
        })
        .collect()
}

/// Memory: the host's where it told, else what its worker holds.
fn memory_cell(host: &HostView, columns: usize) -> String {
    match host.memory() {
        Some((used, total)) => {
            let text = format!("{} of {}", memory(used), memory(total));
            if width(&text) <= columns {
                text
            } else {
                memory(used)
            }
        }
        None => match host.piece_bytes {
            Some(bytes) => memory(bytes.saturating_add(host.anonymous_bytes)),
            None => "–".to_owned(),
        },
    }
}

fn hosts(frame: &mut Frame<'_>, area: Rect, model: &Model, room: Room) {
    let data = model.seen();
    let filter = model.ui.filter();
    let shown: Vec<&HostView> = model.shown_hosts().collect();
    if room == Room::Narrow {
        narrow_hosts(frame, area, model, &shown);
        return;
    }
    let title = if filter.is_empty() {
        "hosts".to_owned()
    } else {
        format!(
            "hosts with \"{}\" ({} of {})",
            safe(filter),
            shown.len(),
            data.hosts.len()
        )
    };
    let inner = pane(frame, area, &title);
    if shown.is_empty() {
        let text = if !filter.is_empty() {
            "No host passes the filter. Press esc to show all."
        } else if data.source == Source::Hosts {
            "No hosts. Press 2 and then a to add one."
        } else {
            "No hosts."
        };
        say(frame, inner, text, Tone::Careful);
        return;
    }
    let names = widest(shown.iter().map(|host| host.name.as_str()));
    let columns = columns(inner, names, room);
    let rest = usize::from(inner.width).saturating_sub(names.clamp(6, 24) + 13 + 8);
    let why = [
        column("", names.clamp(6, 24)),
        column("", 13),
        column("", rest),
    ];
    let body = table_head(frame, inner, &columns);
    let height = usize::from(body.height);
    let from = first(model.ui.row(), shown.len(), height);
    let rows = shown.iter().enumerate().skip(from).take(height);
    lines(
        frame,
        body,
        rows.map(|(at, host)| {
            let is_chosen = at == model.ui.row();
            match &host.reason {
                // Why a host is as it is matters more than what it did before.
                Some(reason) if host.state().0 == Tone::Bad => table_line(
                    &why,
                    &[
                        (host.name.clone(), Style::new()),
                        (state(host), Tone::Bad.style()),
                        (reason.clone(), Tone::Bad.style()),
                    ],
                    is_chosen,
                ),
                _ => table_line(&columns, &cells(host, &columns), is_chosen),
            }
        }),
    );
}

/// Mark and word of a host's state.
fn state(host: &HostView) -> String {
    let (_, mark, word) = host.state();
    format!("{mark} {word}")
}

fn narrow_hosts(frame: &mut Frame<'_>, area: Rect, model: &Model, shown: &[&HostView]) {
    let height = usize::from(area.height);
    let from = first(model.ui.row(), shown.len(), height);
    let rest = usize::from(area.width).saturating_sub(2 + 10 + 1 + 13 + 1 + 7);
    let rows = shown.iter().enumerate().skip(from).take(height);
    lines(
        frame,
        area,
        rows.map(|(at, host)| {
            let (tone, mark, word) = host.state();
            let mut spans = vec![
                Span::raw(if at == model.ui.row() { "▸ " } else { "  " }),
                Span::raw(format!("{} ", left(&host.name, 10))),
                Span::styled(left(&format!("{mark} {word}"), 13), tone.style()),
            ];
            match &host.reason {
                Some(reason) if tone == Tone::Bad => {
                    spans.push(Span::styled(
                        format!(" {}", fit(reason, rest + 7)),
                        tone.style(),
                    ));
                }
                _ => spans.push(Span::raw(format!(
                    " {}{}",
                    right(&format!("{:.1}", host.rows_per_second), 7),
                    fit(&format!(" {}", host.layer_range()), rest)
                ))),
            }
            Line::from(spans)
        }),
    );
}

fn events(frame: &mut Frame<'_>, area: Rect, model: &Model, room: Room) {
    let data = model.seen();
    let inner = if room == Room::Narrow {
        area
    } else {
        pane(frame, area, "events, the newest first")
    };
    if data.events.is_empty() && room != Room::Narrow {
        let text = "Nothing happened yet.";
        say(frame, inner, text, Tone::Faint);
        return;
    }
    let names = data
        .hosts
        .iter()
        .take(64)
        .map(|host| width(&host.name))
        .max()
        .unwrap_or(0)
        .clamp(4, 16);
    let rows = data.events.iter().rev().take(usize::from(inner.height));
    lines(
        frame,
        inner,
        rows.map(|event| {
            Line::from(vec![
                Span::styled(format!("{} ", event.time), Tone::Faint.style()),
                Span::raw(format!("{} ", left(&event.host, names))),
                Span::styled(event.text.clone(), event.tone.style()),
            ])
        }),
    );
}
