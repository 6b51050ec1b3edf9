//! JSON as Python writes it, which is what chat templates were written against: a space after
//! commas and colons, and only what must be escaped is.

use std::fmt::Write;

use serde_json::Value;

/// How to write.
#[derive(Clone, Debug, Default)]
pub(super) struct Style {
    /// Spaces per level; none writes one line.
    pub(super) indent: Option<usize>,
    /// Characters beyond ASCII are escaped.
    pub(super) ascii: bool,
    /// Keys in order of their characters.
    pub(super) sorted: bool,
    /// Between items, and after a key.
    pub(super) separators: Option<(String, String)>,
}

/// Widest indent honoured per level, so that a template cannot ask for gigabytes of spaces.
const WIDEST: usize = 16;

/// Writes `value`.
pub(super) fn to_json(value: &Value, style: &Style) -> String {
    let mut out = String::new();
    write(value, style, 0, &mut out);
    out
}

fn write(value: &Value, style: &Style, depth: usize, out: &mut String) {
    match value {
        Value::Array(items) => {
            list(('[', ']'), items.iter(), style, depth, out, |item, out| {
                write(item, style, depth + 1, out);
            });
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            if style.sorted {
                entries.sort_by_key(|(key, _)| *key);
            }
            let colon = style.separators.as_ref().map_or(": ", |s| s.1.as_str());
            list(
                ('{', '}'),
                entries.into_iter(),
                style,
                depth,
                out,
                |(key, item), out| {
                    string(key, style.ascii, out);
                    out.push_str(colon);
                    write(item, style, depth + 1, out);
                },
            );
        }
        Value::String(text) => string(text, style.ascii, out),
        other => out.push_str(&other.to_string()),
    }
}

fn list<T>(
    (open, close): (char, char),
    items: impl ExactSizeIterator<Item = T>,
    style: &Style,
    depth: usize,
    out: &mut String,
    mut each: impl FnMut(T, &mut String),
) {
    out.push(open);
    let some = items.len() > 0;
    let comma = match (&style.separators, style.indent) {
        (Some((comma, _)), _) => comma.as_str(),
        (None, None) => ", ",
        (None, Some(_)) => ",",
    };
    for (n, item) in items.enumerate() {
        if n > 0 {
            out.push_str(comma);
        }
        new_line(style, depth + 1, out);
        each(item, out);
    }
    if some {
        new_line(style, depth, out);
    }
    out.push(close);
}

fn new_line(style: &Style, depth: usize, out: &mut String) {
    if let Some(width) = style.indent {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', width.min(WIDEST) * depth));
    }
}

fn string(text: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (ascii && c >= '\u{7F}') => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_forms_are_pythons() {
        let value = json!({"b": [1, 2.5, null, true], "a": {}, "c": "é\"\n\u{1}😀</>"});
        assert_eq!(
            to_json(&value, &Style::default()),
            r#"{"b": [1, 2.5, null, true], "a": {}, "c": "é\"\n\u0001😀</>"}"#
        );
        let style = Style {
            ascii: true,
            sorted: true,
            separators: Some((",".into(), ":".into())),
            ..Style::default()
        };
        assert_eq!(
            to_json(&value, &style),
            r#"{"a":{},"b":[1,2.5,null,true],"c":"\u00e9\"\n\u0001\ud83d\ude00</>"}"#
        );
        let style = Style {
            indent: Some(2),
            ..Style::default()
        };
        assert_eq!(
            to_json(&json!({"a": [1], "b": []}), &style),
            "{\n  \"a\": [\n    1\n  ],\n  \"b\": []\n}"
        );
    }
}
