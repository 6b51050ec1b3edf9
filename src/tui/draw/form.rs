//! The form for a host, or for a playbook's values.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::footer::typed;
use super::parts::{first, modal, paragraph, widest};
use crate::tui::model::form::{About, Form};
use crate::tui::text::{fit, left, shown};
use crate::tui::theme::Tone;

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, area: Rect, form: &Form) {
    let title = match &form.about {
        About::Host(Some(name)) => format!("change {} in the inventory", shown(name)),
        About::Host(None) => "add a host to the inventory".to_owned(),
        About::Play { play, check } => {
            let what = if *check { "check" } else { "run" };
            format!("{what} {} with these values", shown(&play.name))
        }
    };
    let labels = widest(form.fields.iter().map(|field| field.label.as_str())).clamp(13, 24);
    let rows = u16::try_from(form.fields.len()).unwrap_or(u16::MAX);
    let inner = modal(frame, area, &title, 84, rows.saturating_add(5));
    let below = 3.min(inner.height);
    let list = Rect {
        height: inner.height - below,
        ..inner
    };
    let from = first(form.at, form.fields.len(), usize::from(list.height));
    for ((at, field), y) in form
        .fields
        .iter()
        .enumerate()
        .skip(from)
        .zip(list.y..list.bottom())
    {
        let row = Rect {
            y,
            height: 1,
            ..list
        };
        let mark = if at == form.at { "▸" } else { " " };
        let label = format!("{mark} {} ", left(&shown(&field.label), labels));
        if at == form.at {
            typed(frame, row, &label, &field.input, false);
        } else {
            let value = fit(
                &shown(field.input.value()),
                usize::from(row.width).saturating_sub(labels + 3),
            );
            let spans = vec![Span::styled(label, Tone::Faint.style()), Span::raw(value)];
            frame.render_widget(Line::from(spans), row);
        }
    }
    let text = match (&form.fault, form.fields.get(form.at)) {
        (Some(fault), _) => paragraph(fault, inner.width, Tone::Bad.style()),
        (None, Some(field)) => paragraph(&shown(&field.hint), inner.width, Tone::Faint.style()),
        (None, None) => Vec::new(),
    };
    let last = Rect {
        y: inner.bottom().saturating_sub(below.saturating_sub(1)),
        height: below.saturating_sub(1),
        ..inner
    };
    super::parts::lines(frame, last, text);
}
