//! Text from hosts, models and files, made fit to be shown: what a terminal would obey is written
//! out instead. Everything foreign that reaches a screen goes through [`shown`].

use std::fmt::Write;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Longest text kept of one line, in bytes; the rest is cut off and that is shown.
pub const LONGEST: usize = 4_000;
/// What stands where a text was cut.
pub const CUT: char = '…';
/// What stands where a line ends within a text that is shown in one.
const BREAK: &str = "↵";

/// Whether a character is written out: those that a terminal obeys, those that turn the direction
/// of what follows, and those that cannot be seen and hide things.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// One line as it may be shown. Tabs and line ends become blanks; of other characters that a
/// terminal would obey, a name in plain letters is left.
pub fn shown(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(LONGEST));
    for c in text.trim_end_matches(['\n', '\r']).chars() {
        if line.len() >= LONGEST {
            line.push(CUT);
            break;
        }
        match c {
            '\t' | '\n' => line.push(' '),
            c if is_obeyed(c) => {
                // Writing to a String cannot fail.
                let _ = match u32::from(c) {
                    low @ 0..=0x1f => write!(line, "^{}", char::from((low as u8) | 0x40)),
                    0x7f => write!(line, "^?"),
                    high @ 0x80..=0x9f => write!(line, "\\x{high:02x}"),
                    other => write!(line, "<U+{other:04X}>"),
                };
            }
            c => line.push(c),
        }
    }
    line
}

/// A text of several lines in one, with a mark where each ends.
pub fn in_one_line(text: &str) -> String {
    let parts: Vec<String> = text.split('\n').map(shown).collect();
    parts.join(BREAK)
}

/// A text as lines that may be shown.
pub fn lines(text: &str) -> Vec<String> {
    text.split('\n').map(shown).collect()
}

/// Columns a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// The beginning of a text that fits in this many columns, with a mark where it was cut.
pub fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    if columns == 0 {
        return String::new();
    }
    let mut part = head(text, columns - 1).to_owned();
    part.push(CUT);
    part
}

/// The longest beginning of at most this many columns.
fn head(text: &str, columns: usize) -> &str {
    let mut taken = 0;
    for (at, c) in text.char_indices() {
        taken += c.width().unwrap_or(0);
        if taken > columns {
            return text.get(..at).unwrap_or_default();
        }
    }
    text
}

/// A text in exactly this many columns: cut, or with blanks after it.
pub fn left(text: &str, columns: usize) -> String {
    let mut cell = fit(text, columns);
    let taken = width(&cell);
    cell.extend(std::iter::repeat_n(' ', columns.saturating_sub(taken)));
    cell
}

/// A text with blanks after it up to this many columns; a longer one is not cut.
pub fn padded(text: &str, columns: usize) -> String {
    let blanks = columns.saturating_sub(width(text));
    format!("{text}{}", " ".repeat(blanks))
}

/// A text in exactly this many columns, with the blanks before it.
pub fn right(text: &str, columns: usize) -> String {
    let cell = fit(text, columns);
    let blanks = columns.saturating_sub(width(&cell));
    format!("{}{cell}", " ".repeat(blanks))
}

/// A line broken into rows of at most this many columns, at blanks where there are some.
pub fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut rows = Vec::new();
    let mut rest = line;
    while width(rest) > columns {
        let fits = head(rest, columns);
        // A character wider than the row stands alone.
        let fits = if fits.is_empty() {
            rest.get(..rest.chars().next().map_or(0, char::len_utf8))
                .unwrap_or_default()
        } else {
            fits
        };
        let whole = rest
            .get(fits.len()..)
            .is_some_and(|after| after.starts_with(' '));
        let at = match fits.rfind(' ') {
            _ if whole => fits.len(),
            Some(blank) if blank > 0 => blank,
            _ => fits.len(),
        };
        let (row, after) = rest.split_at(at);
        rows.push(row.to_owned());
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    rows.push(rest.to_owned());
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(shown("a\u{1b}[2Jb\r"), "a^[[2Jb");
        assert_eq!(shown("a\rb"), "a^Mb");
        assert_eq!(shown("\u{9b}31m\u{7f}"), "\\x9b31m^?");
        assert_eq!(shown("abc\u{202e}txt"), "abc<U+202E>txt");
        assert_eq!(shown("a\tb\n"), "a b");
        assert_eq!(in_one_line("a\tb\n\u{1b}c\n"), "a b↵^[c↵");
        assert_eq!(shown("e\u{301} 漢字 🙂"), "e\u{301} 漢字 🙂");
    }

    #[test]
    fn wide_characters_are_never_cut_in_half() {
        assert_eq!(fit("漢字漢字", 5), "漢字…");
        assert_eq!(fit("漢字漢字", 4), "漢…");
        assert_eq!(left("漢", 4), "漢  ");
        assert_eq!(right("漢", 4), "  漢");
        assert_eq!(
            (padded("漢", 4), padded("漢字", 3)),
            ("漢  ".into(), "漢字".into())
        );
        assert_eq!(fit("abc", 0), "");
        assert_eq!(wrapped("漢字漢字", 3), ["漢", "字", "漢", "字"]);
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
    }

    proptest! {
        #[test]
        fn no_text_keeps_anything_a_terminal_obeys(text in "\\PC*|[\\x00-\\x9f]*|.*") {
            let line = shown(&text);
            let obeyed = line.chars().any(is_obeyed);
            prop_assert!(!obeyed, "{}", line.escape_debug());
            prop_assert!(line.len() <= LONGEST + 16);
        }

        #[test]
        fn cells_have_the_width_they_were_given(text in "\\PC*", columns in 0_usize..60) {
            let text = shown(&text);
            prop_assert_eq!(width(&left(&text, columns)), columns);
            prop_assert_eq!(width(&right(&text, columns)), columns);
        }

        #[test]
        fn wrapping_loses_nothing_but_blanks(text in "[a-z 漢é]*", columns in 1_usize..30) {
            let rows = wrapped(&text, columns);
            let bare = |text: &str| text.replace(' ', "");
            prop_assert_eq!(bare(&rows.concat()), bare(&text));
            prop_assert!(rows.iter().all(|row| width(row) <= columns.max(2)));
        }
    }
}
