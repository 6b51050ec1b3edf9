//! Files of shell assignments, as /etc/default/grub: read as `sh` would read them, each character of a
//! value with the place it stands at. Only what assigns is understood; the rest is passed over. Must
//! not know what the variables mean.

use std::ops::Range;

use super::{Refusal, line_of};

/// How a stretch of a value is quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quote {
    /// Not at all.
    None,
    /// `'…'`.
    Single,
    /// `"…"`.
    Double,
}

/// What a stretch of source stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A character.
    Char(char),
    /// The value of a variable.
    Variable(String),
    /// What only a shell can tell, e.g. what a command says.
    Unknown,
}

/// A stretch of source within a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Where it stands.
    pub range: Range<usize>,
    /// What it stands for.
    pub what: What,
    /// Number of the stretch of equal quoting that it is in.
    pub part: usize,
}

/// A stretch of equal quoting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// How it is quoted.
    pub quote: Quote,
    /// Where it stands, without its quotes.
    pub inner: Range<usize>,
}

/// `NAME=value` or `NAME+=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The variable.
    pub name: String,
    /// Whether it is `+=`.
    pub appends: bool,
    /// Whether it is done only sometimes: within `if`, a function, behind `&&`, and the like.
    pub sometimes: bool,
    /// Its line, counted from 1.
    pub line: usize,
    /// Where the value stands, quotes included.
    pub range: Range<usize>,
    /// What the value is made of.
    pub units: Vec<Unit>,
    /// Its stretches of quoting, in order.
    pub parts: Vec<Part>,
}

/// Reads the assignments of a file.
///
/// # Errors
/// When a quote is not closed, or what stands there is not understood (a here-document).
pub fn assignments(text: &str) -> Result<Vec<Assignment>, Refusal> {
    let mut reader = Reader {
        text,
        at: 0,
        depth: 0,
        brackets: 0,
        found: Vec::new(),
    };
    reader.commands()?;
    Ok(reader.found)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Of `if`, loops, `case`, `{`.
    depth: usize,
    /// Of `(`.
    brackets: usize,
    found: Vec<Assignment>,
}

/// A word of a command.
struct Word {
    range: Range<usize>,
    units: Vec<Unit>,
    parts: Vec<Part>,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at..)?.chars().next()
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn commands(&mut self) -> Result<(), Refusal> {
        let mut words: Vec<Word> = Vec::new();
        let mut conditional = false;
        while let Some(c) = self.peek() {
            match c {
                '#' => {
                    let line = self.rest().find('\n').unwrap_or(self.rest().len());
                    self.at += line;
                }
                '\\' if self.rest().starts_with("\\\n") => self.at += 2,
                ' ' | '\t' => self.at += 1,
                '\n' | ';' => {
                    self.command(&words, conditional);
                    words.clear();
                    conditional = false;
                    self.at += 1;
                }
                '&' | '|' => {
                    self.command(&words, conditional);
                    words.clear();
                    // What stands behind any of `&&`, `||`, `|` is done sometimes, or elsewhere.
                    conditional = true;
                    self.at += 1;
                }
                '(' | ')' => {
                    self.command(&words, conditional);
                    words.clear();
                    match c {
                        '(' => self.brackets += 1,
                        _ => self.brackets = self.brackets.saturating_sub(1),
                    }
                    self.at += 1;
                }
                '<' if self.rest().starts_with("<<") => {
                    return Err(Refusal::new(
                        line_of(self.text, self.at),
                        "a here-document (`<<`) stands here, and what follows it is not understood",
                    ));
                }
                '<' | '>' => self.at += 1,
                _ => {
                    let word = self.word()?;
                    words.push(word);
                }
            }
        }
        self.command(&words, conditional);
        Ok(())
    }

    /// Takes in a command that is complete.
    fn command(&mut self, words: &[Word], conditional: bool) {
        let raw = |word: &Word| self.text.get(word.range.clone()).unwrap_or_default();
        let mut words = words;
        let mut sometimes = conditional;
        while let Some((first, rest)) = words.split_first() {
            match raw(first) {
                "if" | "while" | "until" | "for" | "case" | "select" | "{" => self.depth += 1,
                "fi" | "done" | "esac" | "}" => self.depth = self.depth.saturating_sub(1),
                "then" | "else" | "elif" | "do" | "!" => {}
                "export" | "readonly" | "declare" | "typeset" | "local" => {
                    words = rest;
                    break;
                }
                _ => break,
            }
            sometimes = true;
            words = rest;
        }
        sometimes |= self.depth > 0 || self.brackets > 0;
        let all: Vec<Option<Assignment>> = words
            .iter()
            .map(|word| self.assignment(word, sometimes))
            .collect();
        // `A=1 program` assigns for the program alone.
        if all.iter().all(Option::is_some) {
            self.found.extend(all.into_iter().flatten());
        }
    }

    fn assignment(&self, word: &Word, sometimes: bool) -> Option<Assignment> {
        let raw = self.text.get(word.range.clone())?;
        let (name, _) = raw.split_once('=')?;
        let (name, appends) = match name.strip_suffix('+') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let first = name.chars().next()?;
        let valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if first.is_ascii_digit() || !name.chars().all(valid) {
            return None;
        }
        let start = word.range.start + name.len() + 1 + usize::from(appends);
        let mut parts = word.parts.clone();
        // The name is in the first part, which is not quoted.
        if let Some(part) = parts.first_mut() {
            part.inner.start = start.min(part.inner.end);
        }
        Some(Assignment {
            name: name.to_owned(),
            appends,
            sometimes,
            line: line_of(self.text, word.range.start),
            range: start..word.range.end,
            units: word
                .units
                .iter()
                .filter(|unit| unit.range.start >= start)
                .cloned()
                .collect(),
            parts,
        })
    }

    fn word(&mut self) -> Result<Word, Refusal> {
        let start = self.at;
        let (mut units, mut parts) = (Vec::new(), Vec::new());
        while let Some(c) = self.peek() {
            let quote = match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => break,
                '\'' => Quote::Single,
                '"' => Quote::Double,
                _ => Quote::None,
            };
            let open = self.at;
            if quote != Quote::None {
                self.at += 1;
            }
            let inner = self.at;
            self.stretch(quote, parts.len(), &mut units, open)?;
            parts.push(Part {
                quote,
                inner: inner..self.at,
            });
            if quote != Quote::None {
                self.at += 1;
            }
            // `A=` and then a blank: nothing was read, and nothing follows.
            if quote == Quote::None && self.at == inner {
                break;
            }
        }
        Ok(Word {
            range: start..self.at,
            units,
            parts,
        })
    }

    /// Reads to the end of a stretch of equal quoting; its closing quote stays.
    fn stretch(
        &mut self,
        quote: Quote,
        part: usize,
        units: &mut Vec<Unit>,
        open: usize,
    ) -> Result<(), Refusal> {
        loop {
            let Some(c) = self.peek() else {
                return match quote {
                    Quote::None => Ok(()),
                    _ => Err(Refusal::new(
                        line_of(self.text, open),
                        "the quote that begins here is not closed",
                    )),
                };
            };
            let start = self.at;
            let what = match (quote, c) {
                (Quote::Single, '\'') | (Quote::Double, '"') => return Ok(()),
                (Quote::None, ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>') => {
                    return Ok(());
                }
                (Quote::None, '\'' | '"') => return Ok(()),
                (Quote::None | Quote::Double, '\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some('\n') => {
                            self.at += 1;
                            continue;
                        }
                        Some(next) if quote == Quote::None || "$`\"\\".contains(next) => {
                            self.at += next.len_utf8();
                            What::Char(next)
                        }
                        _ => What::Char('\\'),
                    }
                }
                (Quote::None | Quote::Double, '$') => self.dollar(),
                (Quote::None | Quote::Double, '`') => {
                    self.at += 1;
                    let end = self.rest().find('`').map_or(self.rest().len(), |at| at + 1);
                    self.at += end;
                    What::Unknown
                }
                (_, c) => {
                    self.at += c.len_utf8();
                    What::Char(c)
                }
            };
            units.push(Unit {
                range: start..self.at,
                what,
                part,
            });
        }
    }

    /// Reads what begins with `$`.
    fn dollar(&mut self) -> What {
        self.at += 1;
        let rest = self.rest();
        let name: String = rest
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        if !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) {
            self.at += name.len();
            return What::Variable(name);
        }
        if let Some(inside) = rest.strip_prefix('{') {
            let end = inside.find('}').unwrap_or(inside.len());
            let name = inside.get(..end).unwrap_or_default().to_owned();
            self.at += (end + 2).min(rest.len());
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            return match !name.is_empty() && name.chars().all(plain) {
                true => What::Variable(name),
                false => What::Unknown,
            };
        }
        if rest.starts_with('(') {
            self.substitution();
            return What::Unknown;
        }
        match rest.chars().next() {
            Some(c) if "'\"?#@*!$-0123456789".contains(c) => {
                // In double quotes a closing quote may stand behind a plain `$`.
                if c != '"' && c != '\'' {
                    self.at += c.len_utf8();
                }
                What::Unknown
            }
            _ => What::Char('$'),
        }
    }

    /// Passes over `(…)` behind a `$`, with what is quoted in it.
    fn substitution(&mut self) {
        let mut depth = 0_usize;
        let mut quote = None;
        while let Some(c) = self.peek() {
            self.at += c.len_utf8();
            match (quote, c) {
                (Some('\''), '\'') | (Some('"'), '"') => quote = None,
                (Some('\''), _) => {}
                (_, '\\') => self.at += self.peek().map_or(0, char::len_utf8),
                (Some(_), _) => {}
                (None, '\'' | '"') => quote = Some(c),
                (None, '(') => depth += 1,
                (None, ')') => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return;
                    }
                }
                (None, _) => {}
            }
        }
    }
}
