//! A TOML text as a tree of values that know where they stand. Must not know what any key means.
//!
//! `toml_edit` parses; the tree keeps what reading and editing need: every byte range.

use std::ops::Range;

use toml_edit::{Document, Item, TableLike};

use super::fault::Faults;

/// Most syntax faults reported of one text.
const MOST_FAULTS: usize = 64;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Bytes of its key, or of the value itself in an array.
    pub key: Range<usize>,
    /// Bytes of the value; of a table with a header, the header.
    pub at: Range<usize>,
    /// The value.
    pub value: Value,
}

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Whole(i64),
    Float(f64),
    Flag(bool),
    /// A date or time, as written.
    Date(String),
    List(Vec<Node>),
    Table(Table),
    /// An array of tables, `[[x]]`. Nothing in an inventory is one.
    Tables(Vec<Node>),
}

/// A table's entries in the order of the text.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// How it is written.
    pub form: Form,
    /// Keys and values.
    pub entries: Vec<(String, Node)>,
}

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The whole text.
    Root,
    /// `[a.b]`.
    Header,
    /// Only by headers of tables in it.
    Implicit,
    /// `a.b = …`.
    Dotted,
    /// `{ … }`.
    Inline,
}

impl Table {
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entries
            .iter()
            .find_map(|(name, node)| (name == key).then_some(node))
    }

    /// The table of this key in it.
    pub(crate) fn table(&self, key: &str) -> Option<&Table> {
        self.get(key).and_then(Node::table)
    }
}

impl Node {
    pub(crate) fn table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// What it is, for people.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Text(_) => "text",
            Value::Whole(_) => "a number",
            Value::Float(_) => "a number with a fraction",
            Value::Flag(_) => "true or false",
            Value::Date(_) => "a date",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Tables(_) => "a list of tables",
        }
    }
}

/// The tree of a text. With faults, what stands in the faulty lines is left out of it, so that
/// the rest can be looked at too.
pub(crate) fn parse(text: &str, faults: &mut Faults<'_>) -> Table {
    let mut working = text.to_owned();
    // The fault found last, and the lines that were made blank for it.
    let mut last: Option<(usize, String, Range<usize>)> = None;
    let mut root = None;
    for _ in 0..MOST_FAULTS {
        let error = match Document::parse(working.as_str()) {
            Ok(document) => {
                root = Some(table(document.as_table(), Form::Root));
                break;
            }
            Err(error) => error,
        };
        let span = error.span().unwrap_or(0..0);
        let line = faults.line(span.start);
        let what = working.get(span.clone()).unwrap_or_default();
        let message = match error.message() {
            "duplicate key" => {
                format!("duplicate key \"{what}\": the same table has it twice; keep one")
            }
            other => format!("this is not TOML: {other}"),
        };
        let Some((blank, count)) = blanked(&working, span.start) else {
            if last.is_none() {
                faults.add(span.start, message);
            }
            break;
        };
        working = blank;
        let lines = line..line + count;
        last = Some(match last {
            // A line that only goes on with a faulty one is no second fault.
            Some((at, told, blank)) if blank.end == line && error.message() != "duplicate key" => {
                (at, told, blank.start..lines.end)
            }
            // What is open is noticed at its end, and lies where it begins.
            Some((_, told, blank)) if lines.end == blank.start && told == message => {
                (span.start, told, lines.start..blank.end)
            }
            before => {
                if let Some((at, told, _)) = before {
                    faults.add(at, told);
                }
                (span.start, message, lines)
            }
        });
    }
    if let Some((at, told, _)) = last {
        faults.add(at, told);
    }
    root.unwrap_or(Table {
        form: Form::Root,
        entries: Vec::new(),
    })
}

/// The text with the line of this byte made blank, and a broken header's whole table; how many
/// lines that were. `None` when they were blank before: then nothing is gained.
fn blanked(text: &str, at: usize) -> Option<(String, usize)> {
    let at = at.min(text.len());
    let start = text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
    let rest = text.get(start..)?;
    let is_header = |line: &str| line.trim_start().starts_with('[');
    let mut length = 0;
    let mut lines = 0;
    for line in rest.split_inclusive('\n') {
        let first = lines == 0;
        if !first && (!is_header(rest) || is_header(line)) {
            break;
        }
        length += line.len();
        lines += 1;
    }
    let gone = rest.get(..length)?;
    if gone.trim().is_empty() {
        return None;
    }
    let blank: String = gone
        .bytes()
        .map(|byte| match byte {
            b'\n' => '\n',
            _ => ' ',
        })
        .collect();
    let mut new = text.get(..start)?.to_owned();
    new.push_str(&blank);
    new.push_str(rest.get(length..)?);
    Some((new, lines))
}

fn table(source: &dyn TableLike, form: Form) -> Table {
    let mut entries = Vec::new();
    for (name, item) in source.iter() {
        let at = item.span().unwrap_or(0..0);
        let key = source
            .key(name)
            .and_then(toml_edit::Key::span)
            .unwrap_or_else(|| at.clone());
        let value = match item {
            Item::None => continue,
            Item::Value(inner) => value(inner),
            Item::ArrayOfTables(array) => Value::Tables(
                array
                    .iter()
                    .map(|inner| {
                        let at = inner.span().unwrap_or_else(|| at.clone());
                        Node {
                            key: at.clone(),
                            at,
                            value: Value::Table(table(inner, Form::Header)),
                        }
                    })
                    .collect(),
            ),
            Item::Table(inner) => Value::Table(table(
                inner,
                if inner.is_dotted() {
                    Form::Dotted
                } else if inner.is_implicit() {
                    Form::Implicit
                } else {
                    Form::Header
                },
            )),
        };
        entries.push((name.to_owned(), Node { key, at, value }));
    }
    entries.sort_by_key(|(_, node)| node.key.start);
    Table { form, entries }
}

fn value(source: &toml_edit::Value) -> Value {
    use toml_edit::Value as Toml;
    match source {
        Toml::String(text) => Value::Text(text.value().clone()),
        Toml::Integer(number) => Value::Whole(*number.value()),
        Toml::Float(number) => Value::Float(*number.value()),
        Toml::Boolean(flag) => Value::Flag(*flag.value()),
        Toml::Datetime(date) => Value::Date(date.value().to_string()),
        Toml::Array(array) => Value::List(
            array
                .iter()
                .map(|element| {
                    let at = element.span().unwrap_or(0..0);
                    Node {
                        key: at.clone(),
                        at,
                        value: value(element),
                    }
                })
                .collect(),
        ),
        Toml::InlineTable(inner) => Value::Table(table(
            inner,
            if inner.is_dotted() {
                Form::Dotted
            } else {
                Form::Inline
            },
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let mut faults = Faults::new(text);
        parse(text, &mut faults);
        faults.sorted().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_value_knows_its_bytes() {
        let text = "\u{feff}a.b = 1 # x\n[t]\nc = { d = \"é\", e = [1, 2] }\n[t.u]\n";
        let mut none = Faults::new(text);
        let root = parse(text, &mut none);
        assert!(none.is_empty());
        let slice = |node: &Node| (&text[node.key.clone()], &text[node.at.clone()]);
        let b = root.table("a").unwrap().get("b").unwrap();
        assert_eq!(slice(b), ("b", "1"));
        assert_eq!(root.table("a").unwrap().form, Form::Dotted);
        let t = root.get("t").unwrap();
        assert_eq!(slice(t), ("t", "[t]"));
        let c = t.table().unwrap().table("c").unwrap();
        assert_eq!(slice(c.get("d").unwrap()), ("d", "\"é\""));
        let Value::List(list) = &c.get("e").unwrap().value else {
            panic!("no list");
        };
        assert_eq!(slice(&list[1]), ("2", "2"));
        assert_eq!(slice(t.table().unwrap().get("u").unwrap()), ("u", "[t.u]"));
    }

    #[test]
    fn one_broken_line_hides_no_other_and_its_continuations_are_no_faults() {
        let text = "a = \nb = 1\nb = 2\n[broken\nx = 1\nx = 2\n[t]\ny = nope\n";
        let seen = faults(text);
        assert_eq!(seen.len(), 4, "{seen:#?}");
        assert!(seen[0].starts_with("1:"), "{seen:#?}");
        assert!(seen[1].starts_with("3:1: duplicate key \"b\""), "{seen:#?}");
        assert!(seen[2].starts_with("4:"), "{seen:#?}");
        assert!(seen[3].starts_with("8:"), "{seen:#?}");
        let seen = faults("a = [\n 1,\n 2,\n");
        assert_eq!(seen.len(), 1, "{seen:#?}");
        assert!(seen[0].starts_with("1:"), "{seen:#?}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(
            text in "(\\[{1,2}|\\]{1,2}|\\.|=|\\{|\\}|,|\"|'|\\\\|a|b| |\n|\r\n|#|1|-|\u{e9}|\u{0}){0,40}",
        ) {
            let _ = faults(&text);
        }
    }
}
