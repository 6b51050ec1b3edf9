//! Rates over time as columns of blocks.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::tui::text::right;

const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The smallest of 1, 1.5, 2, 3, 5, 7 times a power of ten that is not below a value.
pub fn ceiling(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|top| *top >= value)
        .unwrap_or(value)
}

/// The newest values in so many columns: the highest where several fall in one. The newest is on
/// the right; columns without values are 0. `most` values make the full width.
pub fn columns(
    values: impl DoubleEndedIterator<Item = f64>,
    most: usize,
    width: usize,
) -> Vec<f64> {
    let mut all = vec![0.0; width];
    let each = most.div_ceil(width.max(1)).max(1);
    for (age, value) in values.rev().enumerate() {
        let Some(at) = width.checked_sub(1 + age / each) else {
            break;
        };
        if let Some(column) = all.get_mut(at) {
            *column = value.max(*column);
        }
    }
    all
}

/// Draws values as columns, with an axis of figures on the left.
pub fn draw(frame: &mut Frame<'_>, area: Rect, values: &[f64], style: Style) {
    const AXIS: u16 = 6;
    if area.height == 0 || area.width <= AXIS {
        return;
    }
    let top = ceiling(values.iter().copied().fold(0.0, f64::max));
    let rows = u32::from(area.height);
    for row in 0..area.height {
        let below = rows - 1 - u32::from(row);
        let figure = top * f64::from(below) / f64::from(rows);
        let label = if figure < 10.0 && top < 10.0 {
            format!("{figure:.1}")
        } else {
            format!("{figure:.0}")
        };
        let mut text = String::new();
        for value in values {
            let eighths = (value / top * f64::from(rows) * 8.0).round() as i64;
            let own = (eighths - i64::from(below) * 8).clamp(0, 8);
            text.push(BLOCKS.get(own as usize).copied().unwrap_or(' '));
        }
        let line = Line::from(vec![
            Span::raw(format!("{}┤", right(&label, usize::from(AXIS - 1)))),
            Span::styled(text, style),
        ]);
        let at = Rect {
            y: area.y + row,
            height: 1,
            ..area
        };
        frame.render_widget(line, at);
    }
}

/// Writes a chart's name in its first row, where no column stands in the way.
pub fn label(frame: &mut Frame<'_>, area: Rect, values: &[f64], name: &str) {
    let columns = crate::tui::text::width(name) + 1;
    let free = values.iter().take(columns).all(|value| *value <= 0.0);
    if free && values.len() > columns && area.height > 0 {
        let row = Rect {
            x: area.x + 7,
            width: area.width.saturating_sub(7),
            height: 1,
            ..area
        };
        let line = Line::styled(name.to_owned(), crate::tui::theme::Tone::Faint.style());
        frame.render_widget(line, row);
    }
}

/// Columns that [`draw`] has for values in an area.
pub fn room(area: Rect) -> usize {
    usize::from(area.width.saturating_sub(6))
}

/// The newest values in one row.
pub fn spark(values: impl DoubleEndedIterator<Item = f64>, most: usize, width: usize) -> String {
    let all = columns(values, most, width);
    let top = all.iter().copied().fold(0.0, f64::max);
    all.iter()
        .map(|value| {
            let eighths = if top > 0.0 {
                (value / top * 8.0).ceil() as usize
            } else {
                0
            };
            BLOCKS.get(eighths.min(8)).copied().unwrap_or(' ')
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_on_the_right_and_peaks_are_kept() {
        let all = columns([1.0, 9.0, 2.0, 3.0].into_iter(), 4, 2);
        assert_eq!(all, [9.0, 3.0]);
        assert_eq!(columns([5.0].into_iter(), 4, 4), [0.0, 0.0, 0.0, 5.0]);
        assert!(columns([1.0].into_iter(), 4, 0).is_empty());
        assert_eq!(spark([1.0, 8.0].into_iter(), 2, 2), "▁█");
    }

    #[test]
    fn the_axis_ends_at_a_round_figure() {
        let table = [
            (0.0, 1.0),
            (0.9, 1.0),
            (128.4, 150.0),
            (71.0, 100.0),
            (7.0, 7.0),
        ];
        for (value, top) in table {
            assert_eq!(ceiling(value), top);
        }
        assert_eq!(ceiling(f64::NAN), 1.0);
    }
}
