//! The hosts of the inventory, and all that is known of the chosen one.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::Room;
use super::parts::{
    column, filtered, first, inside, lines, pane, paragraph, say, table_head, table_line, widest,
};
use crate::figures::{memory, size};
use crate::tui::model::data::HostView;
use crate::tui::model::{Model, Source};
use crate::tui::text::{left, shown as safe};
use crate::tui::theme::Tone;

fn areas(area: Rect, room: Room, enlarged: bool) -> (Rect, Rect) {
    if enlarged {
        return (Rect { height: 0, ..area }, area);
    }
    if room == Room::Wide {
        let list = area.width * 2 / 5;
        return (
            Rect {
                width: list,
                ..area
            },
            Rect {
                x: area.x + list,
                width: area.width - list,
                ..area
            },
        );
    }
    let list = (area.height / 2).max(4).min(area.height);
    (
        Rect {
            height: list,
            ..area
        },
        Rect {
            y: area.y + list,
            height: area.height - list,
            ..area
        },
    )
}

/// Where the rows of hosts are.
pub fn list(area: Rect, room: Room) -> Rect {
    let inner = inside(areas(area, room, false).0);
    Rect {
        y: inner.y.saturating_add(1),
        height: inner.height.saturating_sub(1),
        ..inner
    }
}

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, room: Room) {
    let (list, facts) = areas(area, room, model.ui.enlarged);
    let data = model.seen();
    let shown: Vec<&HostView> = model.shown_hosts().collect();
    if list.height > 0 {
        let title = match &data.inventory {
            Some(inventory) => format!("hosts of {}", inventory.path),
            None => "hosts".to_owned(),
        };
        let mut title = filtered(title, model);
        if !model.ui.filter().is_empty() {
            title.push_str(&format!(" ({} of {})", shown.len(), data.hosts.len()));
        }
        let inner = pane(frame, list, &title);
        if shown.is_empty() {
            let why = data.no_inventory.as_deref().unwrap_or_default();
            let text = if !model.ui.filter().is_empty() {
                "No host passes the filter. Press esc to show all.".to_owned()
            } else if data.source != Source::Hosts {
                "No hosts.".to_owned()
            } else if data.invalid_inventory {
                format!("{why} Mend it; it is read again then.")
            } else {
                format!("No hosts yet. Press a to add the first one. {why}")
            };
            say(frame, inner, &text, Tone::Careful);
        } else {
            rows(frame, inner, model, &shown);
        }
    }
    match shown.get(model.ui.row()) {
        Some(host) => {
            let inner = pane(frame, facts, &host.name);
            let head = data.inventory.as_ref().map(|i| i.head.as_str());
            let head = head == Some(&host.name);
            let all = about(host, head, data.source, inner.width);
            lines(frame, inner, all);
        }
        None => {
            pane(frame, facts, "facts");
        }
    }
}

fn rows(frame: &mut Frame<'_>, inner: Rect, model: &Model, shown: &[&HostView]) {
    let names = widest(shown.iter().map(|host| host.name.as_str()));
    let names = names.clamp(6, 24);
    let rest = usize::from(inner.width).saturating_sub(names + 13 + 8);
    let columns = [
        column("HOST", names),
        column("STATE", 13),
        column("ADDRESS", rest),
    ];
    let body = table_head(frame, inner, &columns);
    let elsewhere = match model.data.source {
        Source::Hosts => "not in the inventory",
        Source::Demo => "this machine",
        Source::Journal => "–",
    };
    let height = usize::from(body.height);
    let from = first(model.ui.row(), shown.len(), height);
    let rows = shown.iter().enumerate().skip(from).take(height);
    lines(
        frame,
        body,
        rows.map(|(at, host)| {
            let (tone, mark, word) = host.state();
            let address = host.listed.as_ref().map_or(elsewhere, |listed| {
                if listed.local {
                    "this machine"
                } else {
                    &listed.address
                }
            });
            let cells = [
                (host.name.clone(), Style::new()),
                (format!("{mark} {word}"), tone.style()),
                (safe(address), Style::new()),
            ];
            table_line(&columns, &cells, at == model.ui.row())
        }),
    );
}

/// All that is known of a host.
fn about(host: &HostView, head: bool, source: Source, columns: u16) -> Vec<Line<'static>> {
    let mut all = Vec::new();
    let (tone, mark, word) = host.state();
    let mut add = |label: &str, text: String, style: Style| {
        let room = columns.saturating_sub(15);
        for (at, row) in paragraph(&safe(&text), room, style).into_iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            let mut spans = vec![Span::styled(
                format!("{} ", left(label, 14)),
                Tone::Faint.style(),
            )];
            let style = row.style;
            spans.extend(row.spans.into_iter().map(|span| span.style(style)));
            all.push(Line::from(spans));
        }
    };
    let plain = Style::new();
    add("state", format!("{mark} {word}"), tone.style());
    if let Some(reason) = &host.reason {
        add("why", reason.clone(), tone.style());
    }
    if let Some(stage) = host.stage {
        let mut text = format!("stage {stage}, layers {}", host.layer_range());
        if let Some(bytes) = host.piece_bytes {
            text.push_str(&format!(", pieces {}", size(bytes)));
        }
        if host.anonymous_bytes > 0 {
            text.push_str(&format!(", own memory {}", memory(host.anonymous_bytes)));
        }
        add("holds", text, plain);
    }
    if let Some(device) = &host.device {
        add("device", device.clone(), plain);
    }
    if let Some(listed) = &host.listed {
        let mut text = if listed.local {
            "this machine".to_owned()
        } else {
            let user = listed.user.as_ref().map(|user| format!("{user}@"));
            let port = listed.port.map(|port| format!(" port {port}"));
            format!(
                "{}{}{}",
                user.unwrap_or_default(),
                listed.address,
                port.unwrap_or_default()
            )
        };
        if head {
            text.push_str(", the head");
        }
        add("reached at", text, plain);
        if let Some(data) = &listed.data {
            add("data path", data.clone(), plain);
        }
        if !listed.groups.is_empty() {
            add("groups", listed.groups.join(", "), plain);
        }
        if let Some(limit) = listed.memory_limit {
            add("memory limit", memory(limit), plain);
        }
    }
    let Some(facts) = &host.facts else {
        let text = match source {
            Source::Hosts => "not read yet: r looks at the hosts again",
            _ => "not read",
        };
        add("facts", text.to_owned(), Tone::Faint.style());
        return all;
    };
    let known = |parts: &[&Option<String>]| {
        let words: Vec<&str> = parts.iter().filter_map(|part| part.as_deref()).collect();
        words.join(" ")
    };
    let os = &facts.os;
    let system = if os.name.is_some() {
        known(&[&os.name])
    } else {
        known(&[&os.id, &os.version])
    };
    if !system.is_empty() {
        add("system", system, plain);
    }
    let kernel = known(&[&facts.kernel.release, &facts.arch]);
    if !kernel.is_empty() {
        add("kernel", kernel, plain);
    }
    if let Some(libc) = &facts.libc {
        let version = libc.version.as_deref().unwrap_or_default();
        add("C library", format!("{} {version}", libc.name), plain);
    }
    let cores = facts.cpu.cores.map(|cores| format!("{cores} cores"));
    let cpu = known(&[&facts.cpu.model, &cores]);
    if !cpu.is_empty() {
        add("processor", cpu, plain);
    }
    if let Some((used, total)) = host.memory() {
        add(
            "memory",
            format!("{} in use of {}", memory(used), memory(total)),
            plain,
        );
    }
    for name in facts.gpu_names() {
        add("GPU", name, plain);
    }
    all
}
