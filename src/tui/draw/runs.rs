//! Playbooks to choose from, and runs: progress by task and host, output, how they ended.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::parts::{
    bar, column, filtered, first, inside, lines, pane, paragraph, table_line, widest,
};
use crate::event::Status;
use crate::figures::{seconds, size};
use crate::tui::model::data::Data;
use crate::tui::model::runs::{Cell, End, RunView, TaskState, TaskView, tone};
use crate::tui::model::{Model, Source};
use crate::tui::text::{padded, right, width, wrapped};
use crate::tui::theme::Tone;

/// Fewest columns in which what came of a task begins beside its host.
const LEAST_MESSAGE: usize = 20;

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    match chosen(model) {
        Some(run) => one(frame, area, run, model),
        None => choose(frame, area, model.seen(), model.ui.row()),
    }
}

/// How many rows back the beginning is of what scrolls.
pub fn reach(area: Rect, model: &Model) -> usize {
    let Some(run) = chosen(model) else { return 0 };
    if model.ui.enlarged && model.ui.whole_tasks {
        let all = tasks(run, area.width, true).len();
        return all.saturating_sub(usize::from(inside(area).height));
    }
    let rows = tasks(run, area.width, false).len();
    let (_, bottom) = parts(area, rows, model);
    super::logs::reach_of(inside(bottom), run.output.iter().rev(), model.ui.filter())
}

/// The run that is shown.
fn chosen(model: &Model) -> Option<&RunView> {
    let id = model.ui.run.as_ref()?;
    model.seen().runs.iter().rev().find(|run| run.id == *id)
}

fn choose(frame: &mut Frame<'_>, area: Rect, data: &Data, chosen: usize) {
    let title = match data.source {
        Source::Hosts => "playbooks: enter runs one, c checks it",
        _ => "runs: enter shows one",
    };
    let inner = pane(frame, area, title);
    let mut rows = Vec::new();
    let names = data.playbooks.iter().map(|play| width(&play.name));
    let runs = data.runs.iter().map(|run| width(&run.command) + 2);
    let names = names.chain(runs).max().unwrap_or(0);
    // What a playbook is for has the rest.
    let names = names.clamp(8, (usize::from(inner.width) / 2).max(8));
    let rest = usize::from(inner.width).saturating_sub(names + 6);
    let columns = [column("", names), column("", rest)];
    for (at, play) in data.playbooks.iter().enumerate() {
        let cells = [
            (play.name.clone(), Style::new()),
            (play.about.clone(), Tone::Faint.style()),
        ];
        rows.push(table_line(&columns, &cells, at == chosen));
    }
    for (at, run) in (data.playbooks.len()..).zip(data.runs.iter().rev()) {
        let (mark, style, how) = ended(run);
        let cells = [
            (format!("{mark} {}", run.command), style),
            (format!("{}  run {}  {how}", run.time, run.id), style),
        ];
        rows.push(table_line(&columns, &cells, at == chosen));
    }
    if rows.is_empty() {
        let text = match data.source {
            Source::Hosts => {
                "No playbooks and no runs. u on the Overview brings a model up; `windlass playbook run FILE` runs a file."
            }
            _ => "No runs.",
        };
        rows = paragraph(text, inner.width, Tone::Careful.style());
    }
    let from = first(chosen, rows.len(), usize::from(inner.height));
    lines(frame, inner, rows.into_iter().skip(from));
}

fn ended(run: &RunView) -> (&'static str, Style, String) {
    match &run.end {
        None if run.cut_off => (
            "▲",
            Tone::Careful.style(),
            "cut off before it told how it ended".to_owned(),
        ),
        None => ("▶", Tone::Busy.style(), "in progress".to_owned()),
        Some(end) if end.exit == 0 => (
            "✓",
            Tone::Good.style(),
            format!("done in {}", seconds(run.seconds)),
        ),
        Some(end) => (
            "✗",
            Tone::Bad.style(),
            format!("exit {} after {}", end.exit, seconds(run.seconds)),
        ),
    }
}

fn one(frame: &mut Frame<'_>, area: Rect, run: &RunView, model: &Model) {
    let (mark, _, how) = ended(run);
    let check = if run.check { " · check" } else { "" };
    let title = format!("{mark} {} · run {}{check} · {how}", run.command, run.id);
    if model.ui.enlarged && model.ui.whole_tasks {
        let inner = pane(frame, area, &title);
        let rows = tasks(run, area.width, true);
        let most = rows.len().saturating_sub(usize::from(inner.height));
        let from = most - model.ui.run_back.min(most);
        lines(frame, inner, rows.into_iter().skip(from));
        return;
    }
    let rows = tasks(run, area.width, false);
    let (top, bottom) = parts(area, rows.len(), model);
    if top.height > 0 {
        let inner = pane(frame, top, &title);
        // The task in progress is in sight; of a run that ended, the end.
        let running = run
            .tasks
            .iter()
            .rposition(|task| task.state().is_some())
            .unwrap_or(0);
        let at = if run.is_open() {
            running * rows.len() / run.tasks.len().max(1)
        } else {
            rows.len()
        };
        let from = first(at, rows.len(), usize::from(inner.height));
        lines(frame, inner, rows.into_iter().skip(from));
    }
    if bottom.height > 0 {
        output(frame, bottom, run, model);
    }
}

/// Where a run's tasks are, of which there are this many rows, and where its output.
fn parts(area: Rect, rows: usize, model: &Model) -> (Rect, Rect) {
    let wanted = u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(2);
    let most = area.height.saturating_sub(area.height / 3).max(4);
    let height = if model.ui.enlarged {
        0
    } else {
        wanted.min(most).min(area.height)
    };
    let top = Rect { height, ..area };
    let bottom = Rect {
        y: area.y + height,
        height: area.height - height,
        ..area
    };
    (top, bottom)
}

/// Every task in a row, and in further rows hosts: with `every` all, else those of which there is
/// more to say.
fn tasks(run: &RunView, columns: u16, every: bool) -> Vec<Line<'static>> {
    let names = widest(run.tasks.iter().map(|task| task.name.as_str())).clamp(8, 28);
    let room = usize::from(columns).saturating_sub(4);
    let mut rows = Vec::new();
    for task in &run.tasks {
        rows.push(task_row(task, names, run.is_open()));
        let several = task.hosts.len() > 1;
        for (host, cell) in &task.hosts {
            let failed = matches!(
                cell.status,
                Some(Status::Failed | Status::Unreachable | Status::Unknown)
            );
            if every || cell.status.is_none() || failed || !several {
                rows.extend(host_rows(host, cell, names, room));
            }
        }
    }
    if let Some(end) = &run.end {
        rows.extend(recap(end, columns));
    }
    rows
}

fn task_row(task: &TaskView, names: usize, open: bool) -> Line<'static> {
    let (mark, style) = match task.state() {
        None => ("·", Tone::Faint.style()),
        Some(TaskState::Running) if open => ("▶", Tone::Busy.style()),
        Some(TaskState::Running) => ("▲", Tone::Careful.style()),
        Some(TaskState::Ended(status)) => (
            match tone(status) {
                Tone::Bad => "✗",
                Tone::Careful => "▲",
                _ => "✓",
            },
            tone(status).style(),
        ),
    };
    let mut spans = vec![
        Span::styled(format!("{mark} "), style),
        Span::styled(padded(&task.name, names), style),
        Span::raw("  "),
    ];
    for (status, count) in task.counts() {
        spans.push(Span::styled(
            format!("{count} {}  ", status.word()),
            tone(status).style(),
        ));
    }
    let took = task.cells().map(|cell| cell.seconds).fold(0.0, f64::max);
    if took > 0.0 {
        spans.push(Span::styled(seconds(took), Tone::Faint.style()));
    }
    if task.whole.begun {
        spans.extend(cell_spans(&task.whole));
    }
    Line::from(spans)
}

/// A host of a task: how it stands there, and in as many rows as it takes what came of it.
fn host_rows(host: &str, cell: &Cell, names: usize, room: usize) -> Vec<Line<'static>> {
    let mut spans = vec![Span::raw(format!(
        "  {}{} ",
        " ".repeat(names.min(12)),
        padded(host, 14)
    ))];
    spans.extend(state_spans(cell));
    let mut line = Line::from(spans);
    if width(&line.to_string()) > room {
        // Speed and time left go first.
        line.spans.truncate(4);
    }
    let Some(message) = &cell.message else {
        return vec![line];
    };
    let indent = names.min(12) + 4;
    let mut taken = width(&line.to_string());
    let mut rows = Vec::new();
    if taken + LEAST_MESSAGE.min(width(message)) > room {
        rows.push(std::mem::take(&mut line));
        line.push_span(Span::raw(" ".repeat(indent)));
        taken = indent;
    }
    let whole = wrapped(message, room.saturating_sub(taken).max(LEAST_MESSAGE));
    let mut texts = whole.into_iter();
    line.push_span(Span::raw(texts.next().unwrap_or_default()));
    rows.push(line);
    rows.extend(texts.map(|text| Line::raw(format!("{}{text}", " ".repeat(taken)))));
    rows
}

fn cell_spans(cell: &Cell) -> Vec<Span<'static>> {
    let mut spans = state_spans(cell);
    if let Some(message) = &cell.message {
        spans.push(Span::raw(message.clone()));
    }
    spans
}

/// How it stands, and how far what moves is.
fn state_spans(cell: &Cell) -> Vec<Span<'static>> {
    let mut spans = vec![Span::raw(" ")];
    match cell.status {
        Some(status) => spans.push(Span::styled(
            format!("{} ", status.word()),
            tone(status).style(),
        )),
        None if cell.begun => spans.push(Span::styled("… ", Tone::Busy.style())),
        None => {}
    }
    if let Some((done, total)) = cell.transfer {
        if let Some(total) = total.filter(|total| *total > 0) {
            let part = done as f64 / total as f64;
            spans.push(Span::raw(format!(
                "{} {:>3.0} % ",
                bar(part, 16),
                part * 100.0
            )));
            if cell.speed > 0.0 {
                let left = total.saturating_sub(done) as f64 / cell.speed;
                spans.push(Span::raw(format!(
                    "{}/s  {} left ",
                    right(&size(cell.speed as u64), 9),
                    seconds(left)
                )));
            }
        } else {
            spans.push(Span::raw(format!("{} ", size(done))));
        }
    }
    spans
}

/// How the run ended: by host, then why it failed, then what to do.
fn recap(end: &End, columns: u16) -> Vec<Line<'static>> {
    let mut rows = vec![Line::raw("")];
    let names = widest(end.hosts.keys().map(String::as_str)).clamp(6, 24);
    let room = usize::from(columns).saturating_sub(4);
    for (host, counters) in &end.hosts {
        let mut line = Line::raw(format!("{}  ", padded(host, names)));
        let mut taken = width(&line.to_string());
        let counts = [
            (counters.ok, "ok", Tone::Good),
            (counters.changed, "changed", Tone::Busy),
            (counters.would_change, "would change", Tone::Busy),
            (counters.skipped, "skipped", Tone::Faint),
            (counters.failed, "FAILED", Tone::Bad),
            (counters.unreachable, "UNREACHABLE", Tone::Bad),
            (counters.unknown, "unknown", Tone::Careful),
        ];
        let counts = counts.into_iter().filter(|(count, _, _)| *count > 0);
        let sent = (counters.bytes_sent > 0).then(|| {
            let text = format!("{} sent", size(counters.bytes_sent));
            (text, Tone::Plain)
        });
        let parts = counts.map(|(count, word, tone)| (format!("{count} {word}"), tone));
        for (text, tone) in parts.chain(sent) {
            if taken + width(&text) > room && taken > names + 2 {
                rows.push(std::mem::take(&mut line));
                line.push_span(Span::raw(" ".repeat(names + 2)));
                taken = names + 2;
            }
            taken += width(&text) + 2;
            line.push_span(Span::styled(text, tone.style()));
            line.push_span(Span::raw("  "));
        }
        rows.push(line);
    }
    let style = if end.exit == 0 { Tone::Good } else { Tone::Bad }.style();
    let mut text = format!("exit {}", end.exit);
    if let Some(error) = &end.error {
        text.push_str(&format!(": {error}"));
    }
    rows.extend(paragraph(&text, columns.saturating_sub(4), style));
    if let Some(resume) = &end.resume {
        let text = format!("go on with it: {resume}");
        rows.extend(paragraph(
            &text,
            columns.saturating_sub(4),
            Tone::Careful.style(),
        ));
    }
    for (name, value) in end.fields.iter().filter(|(name, _)| name != "resume") {
        rows.extend(paragraph(
            &format!("{name}: {value}"),
            columns.saturating_sub(4),
            Tone::Faint.style(),
        ));
    }
    rows
}

fn output(frame: &mut Frame<'_>, area: Rect, run: &RunView, model: &Model) {
    let inner = pane(frame, area, &filtered("output", model));
    super::logs::tail(
        frame,
        inner,
        run.output.iter().rev(),
        model.ui.run_back,
        model.ui.filter(),
    );
}
