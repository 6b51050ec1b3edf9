//! Which host holds what of the deployment that runs.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::parts::{
    bar, column, filtered, first, lines, number, pane, say, table_head, table_line,
};
use crate::figures::size;
use crate::tui::model::data::HostView;
use crate::tui::model::{Model, Source};
use crate::tui::text::{fit, width};
use crate::tui::theme::Tone;

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let data = model.seen();
    let title = match (&data.model, &data.record) {
        (Some(name), Some(record)) => format!(
            "{name} · context {} · {} at once · {} stages",
            record.context,
            record.concurrency,
            record.stages.len()
        ),
        (Some(name), None) => name.clone(),
        _ => "plan".to_owned(),
    };
    let inner = pane(frame, area, &filtered(title, model));
    let mut held: Vec<&HostView> = model
        .shown_hosts()
        .filter(|host| host.stage.is_some())
        .collect();
    held.sort_by_key(|host| host.stage);
    if held.is_empty() {
        let text = match data.source {
            Source::Hosts => {
                "Nothing runs, so nothing is split. `windlass plan MODEL` says which host would hold what; u on the Overview brings a model up."
            }
            _ => "Nothing runs, so nothing is split.",
        };
        say(frame, inner, text, Tone::Careful);
        return;
    }
    let names = held.iter().map(|host| width(&host.name)).max().unwrap_or(0);
    let names = names.clamp(6, 24);
    let rest = usize::from(inner.width).saturating_sub(names + 7 + 9 + 10 + 14);
    let columns = [
        number("STAGE", 5),
        column("HOST", names),
        column("LAYERS", 9),
        number("PIECES", 10),
        column("OF THE WHOLE", rest),
    ];
    let whole: u64 = held.iter().filter_map(|host| host.piece_bytes).sum();
    let body = table_head(frame, inner, &columns);
    let height = usize::from(body.height);
    let from = first(model.ui.row(), held.len(), height);
    let rows = held.iter().enumerate().skip(from).take(height);
    let plain = Style::new();
    lines(
        frame,
        body,
        rows.map(|(at, host)| {
            let bytes = host.piece_bytes.unwrap_or(0);
            let part = if whole > 0 {
                bytes as f64 / whole as f64
            } else {
                0.0
            };
            let share = format!(
                "{} {:.0} %",
                bar(part, rest.saturating_sub(7).min(40)),
                part * 100.0
            );
            let cells = [
                (host.stage.unwrap_or(0).to_string(), plain),
                (host.name.clone(), plain),
                (host.layer_range(), plain),
                (
                    if bytes > 0 {
                        size(bytes)
                    } else {
                        "–".to_owned()
                    },
                    plain,
                ),
                (fit(&share, rest), Tone::Good.style()),
            ];
            table_line(&columns, &cells, at == model.ui.row())
        }),
    );
}
