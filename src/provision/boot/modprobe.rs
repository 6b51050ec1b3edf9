//! modprobe.d: options of modules in the files' lines, and texts of them with parameters changed.
//! Must not know which module is loaded.
//!
//! All lines `options` of a module add up, within a file and across files in the order of their names;
//! of one parameter the last value counts (modprobe.d(5)). In module names `-` and `_` are the same.

use std::ops::Range;

use super::edit::spliced;
use super::{Parameter, Refusal, Wish, line_of, no_carriage_returns};

/// One `name=value` of a line `options`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The module, with `_` for `-`.
    pub module: String,
    /// The parameter within the module.
    pub name: String,
    /// Its value; empty when it stands without one.
    pub value: String,
    /// Its line, counted from 1.
    pub line: usize,
    /// Where it stands.
    range: Range<usize>,
    /// The whole line, with its end.
    whole: Range<usize>,
    /// How many parameters the line has.
    beside: usize,
}

impl Found {
    /// The full name, e.g. `ttm.pages_limit`.
    pub fn full(&self) -> String {
        format!("{}.{}", self.module, self.name)
    }

    fn is(&self, name: &str) -> bool {
        super::cmdline::same_name(&self.full(), name)
    }
}

/// What a text sets, in order.
pub fn read(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for line in whole_lines(text) {
        let words = words(text, &line);
        let word = |at: usize| words.get(at).and_then(|range| text.get(range.clone()));
        if word(0) != Some("options") {
            continue;
        }
        let Some(module) = word(1).map(|module| module.replace('-', "_")) else {
            continue;
        };
        let beside = words.len().saturating_sub(2);
        for range in words.iter().skip(2) {
            let raw = text.get(range.clone()).unwrap_or_default();
            let (name, value) = raw.split_once('=').unwrap_or((raw, ""));
            found.push(Found {
                module: module.clone(),
                name: name.to_owned(),
                value: value.trim_matches('"').to_owned(),
                line: line_of(text, range.start),
                range: range.clone(),
                whole: line.clone(),
                beside,
            });
        }
    }
    found
}

/// Lines with their ends; one that ends in a backslash goes on with the next.
fn whole_lines(text: &str) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let (mut start, mut at) = (0, 0);
    for raw in text.split_inclusive('\n') {
        at += raw.len();
        if !raw.trim_end_matches('\n').ends_with('\\') {
            lines.push(start..at);
            start = at;
        }
    }
    if start < at {
        lines.push(start..at);
    }
    lines
}

/// Words of a line; a backslash before the line's end is a blank, and blanks in quotes do not part.
fn words(text: &str, line: &Range<usize>) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let (mut start, mut quoted) = (None, false);
    let body = text.get(line.clone()).unwrap_or_default();
    for (at, c) in body.char_indices() {
        let joins = c == '\\'
            && body
                .get(at + 1..)
                .is_some_and(|rest| rest.starts_with('\n'));
        if (c.is_ascii_whitespace() || joins) && !quoted {
            if let Some(start) = start.take() {
                words.push(line.start + start..line.start + at);
            }
            continue;
        }
        start.get_or_insert(at);
        quoted ^= c == '"';
    }
    if let Some(start) = start {
        words.push(line.start + start..line.end);
    }
    words
}

/// The value of a parameter in files in their order: the last one, with the number of its file.
pub fn value(texts: &[&str], name: &str) -> Option<(usize, Found)> {
    let files = texts.iter().enumerate().rev();
    files
        .flat_map(|(number, text)| {
            let found = read(text).into_iter().rev();
            found.map(move |found| (number, found))
        })
        .find(|(_, found)| found.is(name))
}

/// A text with a wish fulfilled. A parameter that is not in it gets a line at its end.
///
/// # Errors
/// When its lines end as on Windows, or a parameter to be set is no module's.
pub fn edit(text: &str, wish: &Wish) -> Result<String, Refusal> {
    no_carriage_returns(text)?;
    let mut text = text.to_owned();
    for name in &wish.remove {
        while let Some(found) = read(&text).into_iter().rev().find(|found| found.is(name)) {
            let next = without(&text, &found);
            if next == text {
                break;
            }
            text = next;
        }
    }
    for parameter in &wish.set {
        text = set(&text, parameter)?;
    }
    Ok(text)
}

fn without(text: &str, found: &Found) -> String {
    if found.beside == 1 {
        return spliced(text, found.whole.clone(), "");
    }
    let before = text.get(..found.range.start).unwrap_or_default();
    let start = before.trim_end_matches([' ', '\t']).len();
    spliced(text, start..found.range.end, "")
}

fn set(text: &str, parameter: &Parameter) -> Result<String, Refusal> {
    let Some((module, name)) = parameter.name.split_once('.') else {
        return Err(Refusal::new(
            None,
            format!("{} is the kernel's own and no module's", parameter.name),
        ));
    };
    let found = read(text)
        .into_iter()
        .rev()
        .find(|found| found.is(&parameter.name));
    Ok(match found {
        Some(found) if found.value == parameter.value => text.to_owned(),
        Some(found) => {
            let new = format!("{}={}", found.name, super::quoted(&parameter.value));
            spliced(text, found.range, &new)
        }
        None => {
            let lead = match text.is_empty() || text.ends_with('\n') {
                true => "",
                false => "\n",
            };
            let value = super::quoted(&parameter.value);
            format!("{text}{lead}options {module} {name}={value}\n")
        }
    })
}
