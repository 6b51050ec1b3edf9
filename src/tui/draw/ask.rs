//! Questions over the screen: a run's, and what is asked before something is done.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::footer::typed;
use super::parts::{lines, modal, paragraph};
use crate::tui::model::Model;
use crate::tui::model::data::Question;
use crate::tui::model::ui::{Confirm, Typing};
use crate::tui::text::shown;
use crate::tui::theme::{Tone, key};

/// Draws the question that is to be answered now, if there is one.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    if let Some(confirm) = &model.ui.confirm {
        confirm_box(frame, area, confirm);
    } else if let Some(question) = model.question() {
        question_box(frame, area, model, question);
    }
}

fn confirm_box(frame: &mut Frame<'_>, area: Rect, confirm: &Confirm) {
    let columns = area.width.saturating_sub(4).min(100);
    let text: Vec<Line<'static>> = confirm
        .lines
        .iter()
        .flat_map(|line| paragraph(line, columns.saturating_sub(4), diff_style(line)))
        .collect();
    let height = u16::try_from(text.len())
        .unwrap_or(u16::MAX)
        .saturating_add(4);
    let inner = modal(frame, area, &confirm.title, columns, height);
    let body = Rect {
        height: inner.height.saturating_sub(2),
        ..inner
    };
    lines(frame, body, text.into_iter().skip(confirm.scroll));
    let last = Rect {
        y: inner.bottom().saturating_sub(1),
        height: inner.height.min(1),
        ..inner
    };
    lines(frame, last, [answers(&[("y", "yes"), ("n", "no")])]);
}

fn diff_style(line: &str) -> Style {
    match line.chars().next() {
        Some('+') => Tone::Good.style(),
        Some('-') => Tone::Bad.style(),
        _ => Style::new(),
    }
}

fn answers(all: &[(&str, &str)]) -> Line<'static> {
    let mut spans = Vec::new();
    for (name, word) in all {
        spans.push(Span::styled((*name).to_owned(), key()));
        spans.push(Span::raw(format!(" {word}    ")));
    }
    Line::from(spans)
}

fn question_box(frame: &mut Frame<'_>, area: Rect, model: &Model, question: &Question) {
    let columns = area.width.saturating_sub(4).min(90);
    let text: Vec<Line<'static>> = crate::tui::text::lines(&question.text)
        .iter()
        .flat_map(|line| paragraph(line, columns.saturating_sub(4), Style::new()))
        .collect();
    let height = u16::try_from(text.len())
        .unwrap_or(u16::MAX)
        .saturating_add(4);
    let title = if question.host.is_empty() {
        "windlass asks".to_owned()
    } else {
        format!("{} asks", question.host)
    };
    let inner = modal(frame, area, &title, columns, height);
    let body = Rect {
        height: inner.height.saturating_sub(2),
        ..inner
    };
    lines(frame, body, text);
    let last = Rect {
        y: inner.bottom().saturating_sub(1),
        height: inner.height.min(1),
        ..inner
    };
    if question.choices.is_empty() {
        let empty = tui_input::Input::default();
        let line = match &model.ui.typing {
            Some((Typing::Answer, line)) => line,
            _ => &empty,
        };
        typed(frame, last, "> ", line, question.secret);
        return;
    }
    let words: Vec<(String, String)> = question
        .choices
        .iter()
        .map(|choice| match choice.as_str() {
            "y" => ("y".into(), "yes".into()),
            "n" => ("n".into(), "no".into()),
            other => (shown(other).chars().take(1).collect(), shown(other)),
        })
        .collect();
    let words: Vec<(&str, &str)> = words
        .iter()
        .map(|(name, word)| (name.as_str(), word.as_str()))
        .collect();
    lines(frame, last, [answers(&words)]);
}
