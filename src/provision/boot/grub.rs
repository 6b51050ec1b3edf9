//! /etc/default/grub and the files read after it: what the kernel's command line gets from them, and
//! texts of them with parameters changed. Must not know where grub.cfg lies or who makes it.
//!
//! grub-mkconfig gives normal entries `GRUB_CMDLINE_LINUX`, then `GRUB_CMDLINE_LINUX_DEFAULT`; entries
//! for recovery get the first alone. So a new parameter goes into the second where there is one: a
//! value that does not boot leaves the way through recovery.

use std::collections::BTreeMap;
use std::ops::Range;

use super::cmdline::{self, Place};
use super::edit::spliced;
use super::shell::{self, Assignment, Quote, What};
use super::{Parameter, Refusal, Wish, no_carriage_returns};

/// For all entries.
pub const LINUX: &str = "GRUB_CMDLINE_LINUX";
/// For normal entries, behind the other.
pub const DEFAULT: &str = "GRUB_CMDLINE_LINUX_DEFAULT";

/// Stands for what only a shell can tell.
pub const UNKNOWN: char = '\u{fffc}';

/// A file with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl File {
    /// A file.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }
}

/// A refusal with the file that it is about.
pub type Refused = (String, Refusal);

/// What the files say, the first being /etc/default/grub and the others in the order in which they
/// are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Each variable's value at the end; what only a shell can tell stands in it as U+FFFC.
    pub variables: BTreeMap<String, String>,
    /// How often each is assigned.
    pub assignments: BTreeMap<String, usize>,
}

impl Values {
    /// What normal entries get of these files.
    pub fn command_line(&self) -> String {
        let of = |name: &str| self.variables.get(name).map(String::as_str);
        let both: Vec<&str> = [LINUX, DEFAULT]
            .iter()
            .filter_map(|name| of(name))
            .collect();
        both.join(" ").trim().to_owned()
    }

    /// Whether entries of the Boot Loader Specification are used; `None` when the files do not say.
    pub fn entries(&self) -> Option<bool> {
        self.variables
            .get("GRUB_ENABLE_BLSCFG")
            .map(|value| value == "true")
    }
}

/// Reads the files.
///
/// # Errors
/// When one is not understood.
pub fn read(files: &[File]) -> Result<Values, Refused> {
    let read = Read::of(files)?;
    let mut values = Values::default();
    for (name, glyphs) in &read.values {
        values.variables.insert(name.clone(), text(glyphs));
    }
    for (_, assignment) in &read.assignments {
        *values
            .assignments
            .entry(assignment.name.clone())
            .or_default() += 1;
    }
    Ok(values)
}

/// The files' texts with a wish fulfilled, in the same order.
///
/// # Errors
/// When that cannot be done safely: with the file, the line, and the line to type by hand.
pub fn edit(files: &[File], wish: &Wish) -> Result<Vec<File>, Refused> {
    for file in files {
        no_carriage_returns(&file.text).map_err(|refusal| (file.path.clone(), refusal))?;
    }
    let mut files = files.to_vec();
    for name in &wish.remove {
        remove(&mut files, name, wish)?;
    }
    for parameter in &wish.set {
        set(&mut files, parameter, wish)?;
    }
    Ok(files)
}

/// The line that does it whatever stands before it.
pub fn line_by_hand(wish: &Wish) -> String {
    let words = wish.words().replace('\\', "\\\\").replace('"', "\\\"");
    format!("{DEFAULT}=\"${DEFAULT} {words}\"")
}

/// A character of a value with the place it stands at.
#[derive(Clone, Debug)]
struct Glyph {
    c: char,
    /// Number of the assignment, the place in its file, and the stretch of quoting; `None` for what
    /// came from elsewhere.
    home: Option<(usize, Range<usize>, usize)>,
}

fn text(glyphs: &[Glyph]) -> String {
    glyphs.iter().map(|glyph| glyph.c).collect()
}

/// The files as they are understood.
struct Read {
    /// Assignments in the order in which they are done, with the number of their file.
    assignments: Vec<(usize, Assignment)>,
    /// Values at the end.
    values: BTreeMap<String, Vec<Glyph>>,
}

impl Read {
    fn of(files: &[File]) -> Result<Self, Refused> {
        let mut read = Self {
            assignments: Vec::new(),
            values: BTreeMap::new(),
        };
        for (number, file) in files.iter().enumerate() {
            let found =
                shell::assignments(&file.text).map_err(|refusal| (file.path.clone(), refusal))?;
            read.assignments
                .extend(found.into_iter().map(|assignment| (number, assignment)));
        }
        for (number, (_, assignment)) in read.assignments.iter().enumerate() {
            let own = [LINUX, DEFAULT].contains(&assignment.name.as_str());
            let mut value = match assignment.appends {
                true => read
                    .values
                    .get(&assignment.name)
                    .cloned()
                    .unwrap_or_default(),
                false => Vec::new(),
            };
            for unit in &assignment.units {
                match &unit.what {
                    What::Char(c) => value.push(Glyph {
                        c: *c,
                        home: own.then(|| (number, unit.range.clone(), unit.part)),
                    }),
                    // An unset variable is empty.
                    What::Variable(name) => {
                        value.extend(read.values.get(name).cloned().unwrap_or_default());
                    }
                    What::Unknown => value.push(Glyph {
                        c: UNKNOWN,
                        home: None,
                    }),
                }
            }
            if assignment.sometimes {
                value = vec![Glyph {
                    c: UNKNOWN,
                    home: None,
                }];
            }
            read.values.insert(assignment.name.clone(), value);
        }
        Ok(read)
    }

    /// The last assignment of a variable.
    fn last(&self, name: &str) -> Option<(usize, &Assignment)> {
        let mut all = self.assignments.iter().rev();
        all.find(|(_, assignment)| assignment.name == name)
            .map(|(file, assignment)| (*file, assignment))
    }

    /// Refuses values that cannot be known.
    fn known(&self, files: &[File], wish: &Wish) -> Result<(), Refused> {
        for name in [LINUX, DEFAULT] {
            let value = self.values.get(name);
            if !value.is_some_and(|value| value.iter().any(|glyph| glyph.c == UNKNOWN)) {
                continue;
            }
            let odd = |assignment: &Assignment| {
                assignment.name == name
                    && (assignment.sometimes
                        || assignment
                            .units
                            .iter()
                            .any(|unit| unit.what == What::Unknown))
            };
            let place = self.assignments.iter().rev().find(|(_, found)| odd(found));
            let (file, line, why) = match place {
                Some((file, found)) if found.sometimes => {
                    (*file, found.line, "is assigned only under a condition")
                }
                Some((file, found)) => (*file, found.line, "has what only a shell can tell"),
                None => match self.last(name) {
                    Some((file, found)) => (file, found.line, "has what only a shell can tell"),
                    None => continue,
                },
            };
            return Err(refused(files, file, line, &format!("{name} {why}"), wish));
        }
        Ok(())
    }
}

fn refused(files: &[File], file: usize, line: usize, why: &str, wish: &Wish) -> Refused {
    let path = files.get(file).map(|file| file.path.clone());
    let hand = format!("as the last line of that file: {}", line_by_hand(wish));
    (
        path.unwrap_or_default(),
        Refusal::new(line, format!("{why}, so it is not edited")).by_hand(hand),
    )
}

/// A place in a file.
struct Spot {
    file: usize,
    range: Range<usize>,
    quote: Quote,
}

/// Where the characters `range` of a value stand, when they stand together in one stretch.
fn spot(read: &Read, glyphs: &[Glyph], range: Range<usize>) -> Option<Spot> {
    let mut found: Option<(usize, Range<usize>, usize)> = None;
    for glyph in glyphs.get(range)? {
        let (number, place, part) = glyph.home.clone()?;
        found = Some(match found {
            None => (number, place, part),
            Some((n, so_far, p)) if (n, p) == (number, part) => (n, so_far.start..place.end, p),
            Some(_) => return None,
        });
    }
    let (number, range, part) = found?;
    let (file, assignment) = read.assignments.get(number)?;
    Some(Spot {
        file: *file,
        range,
        quote: assignment.parts.get(part)?.quote,
    })
}

/// Characters of a value by the bytes of its text.
fn characters(glyphs: &[Glyph], bytes: &Range<usize>) -> Range<usize> {
    let mut at = 0;
    let (mut start, mut end) = (glyphs.len(), glyphs.len());
    for (number, glyph) in glyphs.iter().enumerate() {
        if at == bytes.start {
            start = start.min(number);
        }
        if at == bytes.end {
            end = end.min(number);
        }
        at += glyph.c.len_utf8();
    }
    start..end.max(start)
}

/// A text as it stands within quotes of this kind; `None` when it cannot.
fn encoded(text: &str, quote: Quote) -> Option<String> {
    match quote {
        Quote::Single => (!text.contains('\'')).then(|| text.to_owned()),
        Quote::Double => {
            let mut out = String::new();
            for c in text.chars() {
                if "$`\"\\".contains(c) {
                    out.push('\\');
                }
                out.push(c);
            }
            Some(out)
        }
        Quote::None => {
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
            text.chars().all(plain).then(|| text.to_owned())
        }
    }
}

fn splice(files: &mut [File], file: usize, range: Range<usize>, new: &str) {
    if let Some(file) = files.get_mut(file) {
        file.text = spliced(&file.text, range, new);
    }
}

/// The value of one of the two variables, as it stands at the end.
fn glyphs<'r>(read: &'r Read, name: &str) -> &'r [Glyph] {
    read.values.get(name).map_or(&[], Vec::as_slice)
}

/// Whether a value goes over to the first process's words.
fn has_dashes(glyphs: &[Glyph]) -> bool {
    let words = cmdline::words(&text(glyphs));
    words.iter().any(|word| word.name == "--")
}

/// The variables whose words are the kernel's, the one that counts first.
fn of_kernel(read: &Read) -> &'static [&'static str] {
    match has_dashes(glyphs(read, LINUX)) {
        true => &[LINUX],
        false => &[DEFAULT, LINUX],
    }
}

fn remove(files: &mut [File], name: &str, wish: &Wish) -> Result<(), Refused> {
    for variable in of_kernel(&Read::of(files)?) {
        // Bounded: each round takes one word out.
        for _ in 0..64 {
            let read = Read::of(files)?;
            let glyphs = glyphs(&read, variable);
            let line = text(glyphs);
            let words = cmdline::words(&line);
            let Some(word) = cmdline::last(&words, name) else {
                break;
            };
            read.known(files, wish)?;
            let whole = characters(glyphs, &word.range);
            let Some(place) = spot(&read, glyphs, whole.clone()) else {
                let at = read.last(variable);
                let (file, line) = at.map_or((0, 1), |(file, found)| (file, found.line));
                let why = format!("{} comes from several places", word.name);
                return Err(refused(files, file, line, &why, wish));
            };
            // Blanks before it go along, else those behind it, as far as they stand in one stretch
            // with it.
            let blank = |number: usize| glyphs.get(number).is_some_and(|g| cmdline::is_blank(g.c));
            let mut wide = whole.clone();
            while wide.start > 0
                && blank(wide.start - 1)
                && spot(&read, glyphs, wide.start - 1..wide.end).is_some()
            {
                wide.start -= 1;
            }
            if wide.start == 0 {
                wide.start = whole.start;
                while blank(wide.end) && spot(&read, glyphs, wide.start..wide.end + 1).is_some() {
                    wide.end += 1;
                }
            }
            let range = spot(&read, glyphs, wide).map_or(place.range, |spot| spot.range);
            splice(files, place.file, range, "");
        }
    }
    Ok(())
}

fn set(files: &mut Vec<File>, parameter: &Parameter, wish: &Wish) -> Result<(), Refused> {
    let read = Read::of(files)?;
    read.known(files, wish)?;
    // The one that counts is the last: that of the second variable, if it has one.
    for variable in of_kernel(&read) {
        let glyphs = glyphs(&read, variable);
        let line = text(glyphs);
        let words = cmdline::words(&line);
        if cmdline::last(&words, &parameter.name).is_none() {
            continue;
        }
        let Some(Place::Replace(range)) = cmdline::place_of(&line, parameter) else {
            return Ok(());
        };
        let new = parameter.to_string();
        let place = spot(&read, glyphs, characters(glyphs, &range));
        let Some((place, new)) = place.and_then(|place| {
            let new = encoded(&new, place.quote)?;
            Some((place, new))
        }) else {
            let at = read.last(variable);
            let (file, line) = at.map_or((0, 1), |(file, found)| (file, found.line));
            let why = format!("{} comes from several places", parameter.name);
            return Err(refused(files, file, line, &why, wish));
        };
        splice(files, place.file, place.range, &new);
        return Ok(());
    }
    let last = of_kernel(&read)
        .iter()
        .find_map(|name| read.last(name).map(|(file, found)| (file, found.clone())));
    match last {
        Some((file, assignment)) => {
            let value = glyphs(&read, &assignment.name);
            let begins = text(value).trim().is_empty();
            let before = files.clone();
            let done = append(
                files,
                file,
                &assignment,
                parameter,
                begins,
                has_dashes(value),
            );
            // What was written must be what is read.
            let counts = read_back(files, &parameter.name)? == Some(parameter.value.clone());
            if done.is_some() && counts {
                return Ok(());
            }
            *files = before;
            let why = "a parameter at its end would not be the kernel's";
            Err(refused(files, file, assignment.line, why, wish))
        }
        None => {
            let Some(first) = files.first_mut() else {
                return Ok(());
            };
            if !first.text.is_empty() && !first.text.ends_with('\n') {
                first.text.push('\n');
            }
            let value = encoded(&parameter.to_string(), Quote::Double).unwrap_or_default();
            first.text.push_str(&format!("{DEFAULT}=\"{value}\"\n"));
            Ok(())
        }
    }
}

/// The value of a parameter that the files lead to.
fn read_back(files: &[File], name: &str) -> Result<Option<String>, Refused> {
    Ok(cmdline::value(&read(files)?.command_line(), name))
}

/// Puts a parameter behind the last word of an assignment. `begins`: whether it becomes the first of
/// the whole value. `behind`: whether words of the first process stand in it. `None` when it would not
/// become a word of the kernel.
fn append(
    files: &mut [File],
    file: usize,
    assignment: &Assignment,
    parameter: &Parameter,
    begins: bool,
    behind: bool,
) -> Option<()> {
    let word = parameter.to_string();
    let blank = |what: &What| matches!(what, What::Char(c) if cmdline::is_blank(*c));
    let own = assignment
        .units
        .iter()
        .rev()
        .find(|unit| !blank(&unit.what));
    // What follows `--` is for the first process.
    let decoded: String = assignment
        .units
        .iter()
        .map(|unit| match &unit.what {
            What::Char(c) => *c,
            _ => UNKNOWN,
        })
        .collect();
    let words = cmdline::words(&decoded);
    let dashes = words.iter().find(|word| word.name == "--");
    if let Some(dashes) = dashes {
        let unit = assignment
            .units
            .get(decoded.get(..dashes.range.start)?.chars().count())?;
        let quote = assignment.parts.get(unit.part)?.quote;
        let new = encoded(&format!("{word} "), quote)?;
        splice(files, file, unit.range.start..unit.range.start, &new);
        return Some(());
    }
    if behind {
        return None;
    }
    let Some(unit) = own else {
        let quoted = assignment
            .parts
            .iter()
            .find(|part| part.quote != Quote::None);
        let lead = if begins { "" } else { " " };
        match quoted {
            Some(part) => {
                let new = encoded(&format!("{lead}{word}"), part.quote)?;
                splice(files, file, part.inner.start..part.inner.start, &new);
            }
            None => {
                let new = encoded(&format!("{lead}{word}"), Quote::Double)?;
                let at = assignment.range.start;
                splice(files, file, at..at, &format!("\"{new}\""));
            }
        }
        return Some(());
    };
    let part = assignment.parts.get(unit.part)?;
    let at = unit.range.end;
    if part.quote != Quote::None {
        let new = encoded(&format!(" {word}"), part.quote)?;
        splice(files, file, at..at, &new);
        return Some(());
    }
    let new = encoded(&format!(" {word}"), Quote::Double)?;
    let source = files.get(file)?.text.get(assignment.range.clone())?;
    let simple = assignment.units.iter().all(|unit| unit.part == 0) && !source.contains('\\');
    if simple {
        splice(files, file, at..at, &format!("{new}\""));
        let start = assignment.range.start;
        splice(files, file, start..start, "\"");
    } else {
        splice(files, file, at..at, &format!("\"{new}\""));
    }
    Some(())
}
