//! Loader entries (Boot Loader Specification, type 1): what they boot with, and texts of them with
//! parameters changed. Must not know where they lie.

use std::ops::Range;

use super::edit::spliced;
use super::{Parameter, Refusal, Wish, cmdline, line_of};

/// A loader entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its title.
    pub title: Option<String>,
    /// Release of its kernel.
    pub version: Option<String>,
    /// Its command line: the lines `options`, one behind the other.
    pub options: String,
}

/// Keys that say what is booted; an entry has one of them.
const BOOTS: &[&str] = &["linux", "efi", "uki", "uki-url"];

/// A line `key value`; where the value stands.
struct Line<'a> {
    key: &'a str,
    value: Range<usize>,
    start: usize,
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut found = Vec::new();
    let mut start = 0;
    for raw in text.split_inclusive('\n') {
        let line = raw.trim_end();
        let body = line.trim_start();
        let at = start + (line.len() - body.len());
        if !body.is_empty() && !body.starts_with('#') {
            let end = body.find(char::is_whitespace).unwrap_or(body.len());
            let (key, value) = body.split_at_checked(end).unwrap_or((body, ""));
            let lead = value.len() - value.trim_start().len();
            found.push(Line {
                key,
                value: at + end + lead..start + line.len(),
                start: at,
            });
        }
        start += raw.len();
    }
    found
}

/// Reads an entry.
///
/// # Errors
/// When it is none.
pub fn read(text: &str) -> Result<Entry, Refusal> {
    let mut entry = Entry::default();
    let lines = lines(text);
    if let Some(line) = lines.iter().find(|line| line.key == "option") {
        return Err(Refusal::new(
            line_of(text, line.start),
            "the key is `option`, which no boot loader knows; it is called `options`",
        ));
    }
    if !lines.iter().any(|line| BOOTS.contains(&line.key)) {
        return Err(Refusal::new(
            None,
            "it is no loader entry: it boots nothing",
        ));
    }
    let mut options: Vec<&str> = Vec::new();
    for line in &lines {
        let value = text.get(line.value.clone()).unwrap_or_default();
        match line.key {
            "title" => entry.title = Some(value.to_owned()),
            "version" => entry.version = Some(value.to_owned()),
            "options" => options.push(value),
            _ => {}
        }
    }
    entry.options = options.join(" ");
    Ok(entry)
}

/// Whether the command line comes from GRUB's environment instead.
pub fn from_environment(entry: &Entry) -> bool {
    entry
        .options
        .split_whitespace()
        .any(|word| word == "$kernelopts")
}

/// Whether an entry is one to edit: it boots Linux with options of its own. Options that are passed to an
/// image that holds its command line take that one's place. What is not understood is, so that it is
/// refused.
pub fn edited(text: &str) -> bool {
    if read(text).is_err() {
        return true;
    }
    let lines = lines(text);
    let has = |key: &str| lines.iter().any(|line| line.key == key);
    let mut named = lines
        .iter()
        .filter(|line| line.key == "title" || BOOTS.contains(&line.key))
        .filter_map(|line| text.get(line.value.clone()));
    let others: &[&str] = match has("linux") {
        true => &["memtest"],
        false => &["memtest", "windows", "bootmgfw"],
    };
    let other = |value: &str| {
        let value = value.to_ascii_lowercase();
        others.iter().any(|name| value.contains(name))
    };
    (has("linux") || has("options")) && !named.any(other)
}

/// An entry's text with a wish fulfilled; all else stays.
///
/// # Errors
/// When it is no entry, or its command line stands elsewhere.
pub fn edit(text: &str, wish: &Wish) -> Result<String, Refusal> {
    let entry = read(text)?;
    if from_environment(&entry) {
        let line = lines(text).into_iter().find(|line| line.key == "options");
        return Err(Refusal::new(
            line.map(|line| line_of(text, line.start)),
            "its command line is $kernelopts, which stands in grubenv",
        )
        .by_hand(format!(
            "grubby --update-kernel=ALL --args=\"{}\"",
            wish.words()
        )));
    }
    let mut text = text.to_owned();
    for name in &wish.remove {
        let gone = Wish {
            remove: vec![name.clone()],
            ..Wish::default()
        };
        // From the last line on, so that the places before stay.
        for range in options(&text).into_iter().rev() {
            let line = text.get(range.clone()).unwrap_or_default();
            let new = cmdline::edit(line, &gone);
            text = spliced(&text, range, &new);
        }
    }
    for parameter in &wish.set {
        text = set(&text, parameter);
    }
    Ok(text)
}

fn options(text: &str) -> Vec<Range<usize>> {
    lines(text)
        .into_iter()
        .filter(|line| line.key == "options")
        .map(|line| line.value)
        .collect()
}

fn set(text: &str, parameter: &Parameter) -> String {
    let lines = options(text);
    let has = |range: &&Range<usize>| {
        let line = text.get((*range).clone()).unwrap_or_default();
        cmdline::value(line, &parameter.name).is_some()
    };
    let wish = Wish {
        set: vec![parameter.clone()],
        ..Wish::default()
    };
    // The last one counts; a new one goes behind all others.
    match lines.iter().rev().find(has).or(lines.last()) {
        Some(range) => {
            let line = text.get(range.clone()).unwrap_or_default();
            let new = cmdline::edit(line, &wish);
            // `options` with nothing behind it has no blank either.
            let stands = text.get(..range.start).unwrap_or_default();
            let lead = match line.is_empty() && !stands.ends_with([' ', '\t']) {
                true => " ",
                false => "",
            };
            spliced(text, range.clone(), &format!("{lead}{new}"))
        }
        None => {
            let lead = match text.is_empty() || text.ends_with('\n') {
                true => "",
                false => "\n",
            };
            format!("{text}{lead}options {parameter}\n")
        }
    }
}
