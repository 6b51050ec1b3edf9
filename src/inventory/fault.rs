//! What is wrong in an inventory's text, and where. Must not know what an inventory means.

use std::fmt;

use serde::Serialize;

use crate::nearest::{alike, nearest};

/// One thing that is wrong, or with a warning: that is probably not meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Fault {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong and what would be right.
    pub message: String,
    /// The nearest valid name, where a name is wrong.
    pub nearest: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

/// Line and column, both from 1, of a byte of a text; columns count characters.
pub(crate) fn position(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = text.get(..at).unwrap_or_default();
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    let column = before
        .get(start..)
        .unwrap_or_default()
        .trim_start_matches('\u{feff}')
        .chars()
        .count()
        + 1;
    (line, column)
}

/// Collects what is wrong in one text.
#[derive(Debug)]
pub(crate) struct Faults<'t> {
    text: &'t str,
    list: Vec<Fault>,
}

impl<'t> Faults<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self {
            text,
            list: Vec::new(),
        }
    }

    /// Adds one at a byte of the text.
    pub(crate) fn add(&mut self, at: usize, message: impl Into<String>) {
        self.add_named(at, message, None);
    }

    /// Adds one about a name, with the nearest valid one.
    pub(crate) fn add_named(
        &mut self,
        at: usize,
        message: impl Into<String>,
        nearest: Option<String>,
    ) {
        let (line, column) = position(self.text, at);
        self.list.push(Fault {
            line,
            column,
            message: message.into(),
            nearest,
        });
    }

    /// Line of a byte of the text.
    pub(crate) fn line(&self, at: usize) -> usize {
        position(self.text, at).0
    }

    /// How many there are so far.
    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All, in the order of the text, each once.
    pub(crate) fn sorted(mut self) -> Vec<Fault> {
        self.list.sort();
        self.list.dedup();
        self.list
    }
}

/// The nearest valid name and the words that offer it: `did you mean "x"?` for one that is alike,
/// `the nearest is "x"` for another; nothing where there is none.
pub(crate) fn offer<'a>(
    wrong: &str,
    valid: impl IntoIterator<Item = &'a str>,
) -> (String, Option<String>) {
    match nearest(wrong, valid) {
        Some(name) if alike(wrong, name) => {
            (format!("; did you mean \"{name}\"?"), Some(name.to_owned()))
        }
        Some(name) => (
            format!("; the nearest is \"{name}\""),
            Some(name.to_owned()),
        ),
        None => (String::new(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_end_either_way() {
        let text = "ab\r\nüü = 1\n";
        assert_eq!(position(text, 0), (1, 1));
        assert_eq!(position(text, 4), (2, 1));
        assert_eq!(position(text, text.find('=').unwrap()), (2, 4));
        assert_eq!(position(text, 999), (3, 1));
        // Within a character: where that character begins.
        assert_eq!(position(text, 5), (2, 1));
        assert_eq!(position("\u{feff}ab", 3), (1, 1));
    }
}
