//! The kernel's command line: cut into words as the kernel's own `next_arg` (lib/cmdline.c) does, and
//! edited in place. Must not know in which file it stands.
//!
//! Double quotes keep blanks together and nothing escapes them. In names `-` and `_` are the same; a
//! dot parts a module from its parameter and is only itself. A name may stand several times: a
//! parameter that holds one value takes the last, others (`console`, `rd.luks.uuid`) take all, so
//! repeated ones are never merged. What follows `--` is for the first process.

use std::ops::Range;

use super::edit::spliced;
use super::{Parameter, Wish};

/// A word of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Where it stands, quotes included.
    pub range: Range<usize>,
    /// Its name, as it is written.
    pub name: String,
    /// Its value, without quotes around; `None` when there is no `=`.
    pub value: Option<String>,
    /// Whether it stands behind `--`.
    pub for_init: bool,
}

impl Word {
    fn parse(text: &str, range: Range<usize>) -> Self {
        let raw = text.get(range.clone()).unwrap_or_default();
        // A quote before the name is for the whole word.
        let (raw, whole) = match raw.strip_prefix('"') {
            Some(rest) => (rest, true),
            None => (raw, false),
        };
        let closed = |text: &str| text.strip_suffix('"').unwrap_or(text).to_owned();
        let (name, value) = match raw.split_once('=') {
            // A word that begins with `=` has no name apart from it.
            Some((name, value)) if !name.is_empty() => (name, Some(value)),
            _ => (raw, None),
        };
        Self {
            range,
            value: value.map(|value| match value.strip_prefix('"') {
                Some(value) => closed(value),
                None if whole => closed(value),
                None => value.to_owned(),
            }),
            name: match (whole, value) {
                (true, None) => closed(name),
                _ => name.to_owned(),
            },
            for_init: false,
        }
    }

    /// Whether it is this parameter of the kernel.
    pub fn is(&self, name: &str) -> bool {
        !self.for_init && same_name(&self.name, name)
    }
}

/// Whether two names are the same to the kernel.
pub fn same_name(a: &str, b: &str) -> bool {
    let plain = |c: char| if c == '-' { '_' } else { c };
    a.chars().map(plain).eq(b.chars().map(plain))
}

/// The words of a command line, in order.
pub fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let (mut start, mut quoted) = (None, false);
    let mut behind = false;
    let mut take = |range: Range<usize>| {
        let mut word = Word::parse(text, range);
        word.for_init = behind;
        behind |= word.name == "--" && word.value.is_none();
        words.push(word);
    };
    for (at, c) in text.char_indices() {
        if is_blank(c) && !quoted {
            if let Some(start) = start.take() {
                take(start..at);
            }
            continue;
        }
        start.get_or_insert(at);
        quoted ^= c == '"';
    }
    if let Some(start) = start {
        take(start..text.len());
    }
    words
}

/// What the kernel takes for a blank.
pub(super) fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{b}'
}

/// The last word of this name, which is the one that counts.
pub fn last<'w>(words: &'w [Word], name: &str) -> Option<&'w Word> {
    words.iter().rev().find(|word| word.is(name))
}

/// The value that counts of a parameter; an empty one when it stands without a value.
pub fn value(text: &str, name: &str) -> Option<String> {
    let words = words(text);
    last(&words, name).map(|word| word.value.clone().unwrap_or_default())
}

/// What the boot loader's own word says of the kernel: its path, without GRUB's name of a disk, and
/// the release that its file name ends in.
pub fn image(text: &str) -> Option<(String, Option<String>)> {
    let image = value(text, "BOOT_IMAGE")?;
    let path = match image.strip_prefix('(') {
        Some(rest) => rest
            .split_once(')')
            .map_or(image.as_str(), |(_, path)| path),
        None => &image,
    };
    let file = path.rsplit('/').next().unwrap_or(path);
    let release = file
        .strip_prefix("vmlinuz-")
        .filter(|release| release.starts_with(|c: char| c.is_ascii_digit()));
    Some((path.to_owned(), release.map(str::to_owned)))
}

/// The place of one change in a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This word becomes that parameter.
    Replace(Range<usize>),
    /// A new word behind this byte.
    After(usize),
    /// A new word before this byte.
    Before(usize),
}

/// Where a parameter is set; `None` when it has the value already.
pub(super) fn place_of(text: &str, parameter: &Parameter) -> Option<Place> {
    let words = words(text);
    if let Some(word) = last(&words, &parameter.name) {
        return match word.value.as_deref().unwrap_or_default() == parameter.value {
            true => None,
            false => Some(Place::Replace(word.range.clone())),
        };
    }
    let dashes = |word: &&Word| word.name == "--" && word.value.is_none();
    let own = words.iter().take_while(|word| !dashes(word)).last();
    Some(match (own, words.first()) {
        (Some(word), _) => Place::After(word.range.end),
        (None, Some(word)) => Place::Before(word.range.start),
        (None, None) => Place::Before(0),
    })
}

/// A new command line with this parameter set.
fn set(text: &str, parameter: &Parameter) -> String {
    match place_of(text, parameter) {
        None => text.to_owned(),
        Some(Place::Replace(range)) => spliced(text, range, &parameter.to_string()),
        Some(Place::After(at)) => spliced(text, at..at, &format!(" {parameter}")),
        Some(Place::Before(at)) if text.trim().is_empty() => {
            spliced(text, at..at, &parameter.to_string())
        }
        Some(Place::Before(at)) => spliced(text, at..at, &format!("{parameter} ")),
    }
}

/// The ranges to be taken out for this parameter to be gone, blanks that it leaves included; the last
/// one first.
fn gone(text: &str, name: &str) -> Vec<Range<usize>> {
    let words = words(text);
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (number, word) in words.iter().enumerate().filter(|(_, word)| word.is(name)) {
        let before = number.checked_sub(1).and_then(|before| words.get(before));
        ranges.push(match (before, words.get(number + 1)) {
            (Some(before), _) => before.range.end..word.range.end,
            (None, Some(after)) => word.range.start..after.range.start,
            (None, None) => word.range.clone(),
        });
    }
    ranges.reverse();
    ranges
}

/// A command line with a wish fulfilled: all else stays, byte for byte. A value that is there already
/// is not touched.
pub fn edit(text: &str, wish: &Wish) -> String {
    let mut text = text.to_owned();
    for name in &wish.remove {
        // One at a time: what is left moves.
        while let Some(range) = gone(&text, name).into_iter().next() {
            let next = spliced(&text, range, "");
            if next == text {
                break;
            }
            text = next;
        }
    }
    for parameter in &wish.set {
        text = set(&text, parameter);
    }
    text
}
