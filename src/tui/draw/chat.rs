//! The conversation with the model, with the speed beside each answer.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use super::footer::typed;
use super::parts::{lines, pane, paragraph, say};
use crate::event::RequestState;
use crate::tui::model::data::TurnView;
use crate::tui::model::ui::Typing;
use crate::tui::model::{Model, Source};
use crate::tui::theme::{Tone, heading};

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let data = model.seen();
    let title = match &data.model {
        Some(name) => format!("chat with {name}"),
        None => "chat".to_owned(),
    };
    let input = 1.min(area.height);
    let above = Rect {
        height: area.height - input,
        ..area
    };
    let inner = pane(frame, above, &title);
    if data.chat.is_empty() {
        let text = if data.can_talk {
            "Nothing was said yet. Press enter, write, and press enter again."
        } else if data.source == Source::Hosts {
            "There is no model to talk to. Press 1 to see why; u there starts one."
        } else {
            "There is no model to talk to. Press 1 to see why."
        };
        say(frame, inner, text, Tone::Careful);
    } else {
        let rows = rows(
            data.chat.iter().rev(),
            inner.width,
            inner.height,
            model.ui.chat_back,
        );
        lines(frame, inner, rows);
    }
    let row = Rect {
        y: above.bottom(),
        height: input,
        ..area
    };
    match &model.ui.typing {
        Some((Typing::Chat, line)) => typed(frame, row, " you: ", line, false),
        _ => {
            let draft = model.ui.draft.value();
            let text = if draft.is_empty() {
                " enter: write to the model".to_owned()
            } else {
                format!(
                    " enter: go on with \"{}\"",
                    crate::tui::text::in_one_line(draft)
                )
            };
            lines(frame, row, [Line::styled(text, Tone::Faint.style())]);
        }
    }
}

/// The last rows of the conversation, `back` rows before its end. Only as many turns are laid out
/// as are needed.
fn rows<'a>(
    newest: impl Iterator<Item = &'a TurnView>,
    columns: u16,
    height: u16,
    back: usize,
) -> Vec<Line<'static>> {
    let height = usize::from(height);
    let wanted = back.saturating_add(height);
    let mut rows: Vec<Line<'static>> = Vec::new();
    for turn in newest {
        let mut own = turn_rows(turn, columns);
        own.append(&mut rows);
        rows = own;
        if rows.len() >= wanted {
            break;
        }
    }
    let end = rows.len().saturating_sub(back).max(height.min(rows.len()));
    rows.truncate(end);
    rows.drain(..end.saturating_sub(height));
    rows
}

fn turn_rows(turn: &TurnView, columns: u16) -> Vec<Line<'static>> {
    let mut rows = Vec::new();
    for (at, line) in crate::tui::text::lines(&turn.prompt)
        .into_iter()
        .enumerate()
    {
        let text = if at == 0 {
            format!("you: {line}")
        } else {
            line
        };
        rows.extend(paragraph(&text, columns, heading()));
    }
    for line in crate::tui::text::lines(&turn.text) {
        rows.extend(paragraph(&line, columns, Style::new()));
    }
    let speed = turn.tokens_per_second();
    let mut parts = vec![match turn.state {
        RequestState::Sent => "… waiting for the first token".to_owned(),
        RequestState::FirstToken => "… answering".to_owned(),
        RequestState::Finished => "✓".to_owned(),
        RequestState::Cancelled => "stopped".to_owned(),
        RequestState::Failed => "✗ FAILED".to_owned(),
    }];
    if let Some(reason) = &turn.reason {
        parts.push(reason.clone());
    }
    if turn.tokens > 0 {
        parts.push(format!("{} tokens", turn.tokens));
    }
    if let Some(speed) = speed {
        parts.push(format!("{speed:.1} tok/s"));
    }
    if let Some(first) = turn.first_ms {
        parts.push(format!("first after {first:.0} ms"));
    }
    let tone = if turn.state == RequestState::Failed {
        Tone::Bad
    } else {
        Tone::Faint
    };
    rows.extend(paragraph(&parts.join("  "), columns, tone.style()));
    rows.push(Line::raw(""));
    rows
}
