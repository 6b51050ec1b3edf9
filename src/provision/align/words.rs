//! The kernel's parameters within a line: found, set, taken out, all else left as it is. Must not know
//! where the line stands.

/// How a line writes a double quote of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quotes {
    /// As `"`.
    Plain,
    /// As `\"`, within double quotes of a shell.
    Escaped,
}

/// Where the words of a line stand: from and to, in bytes. Blanks within double quotes do not part
/// words (kernel-parameters, section "kernel parameters").
fn words(line: &str, quotes: Quotes) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut start = None;
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in line.char_indices() {
        let is_quote = c == '"' && (quotes == Quotes::Plain || escaped);
        escaped = quotes == Quotes::Escaped && c == '\\' && !escaped;
        if is_quote {
            quoted = !quoted;
        }
        if c.is_whitespace() && !quoted {
            found.extend(start.take().map(|start| (start, at)));
        } else if start.is_none() {
            start = Some(at);
        }
    }
    found.extend(start.map(|start| (start, line.len())));
    found
}

/// A word's name and value; `None` for one that begins what is for the first process.
fn split(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    }
}

/// Whether two names are one parameter: `-` and `_` are the same.
fn same(a: &str, b: &str) -> bool {
    let bare = |c: char| if c == '-' { '_' } else { c };
    a.chars().map(bare).eq(b.chars().map(bare))
}

/// Where a parameter stands in a line.
fn places(line: &str, name: &str, quotes: Quotes) -> Vec<(usize, usize)> {
    words(line, quotes)
        .into_iter()
        .map_while(|(from, to)| {
            let word = line.get(from..to)?;
            (word != "--").then_some((from, to, word))
        })
        .filter(|(_, _, word)| same(split(word).0, name))
        .map(|(from, to, _)| (from, to))
        .collect()
}

/// The value that counts, the last; `Some(None)` for a parameter without one.
pub fn value<'a>(line: &'a str, name: &str, quotes: Quotes) -> Option<Option<&'a str>> {
    let (from, to) = places(line, name, quotes).pop()?;
    Some(split(line.get(from..to)?).1)
}

/// The line with a parameter set: the place that counts is rewritten, or a word added at the end
/// (before `--`).
pub fn set(line: &str, name: &str, value: Option<&str>, quotes: Quotes) -> String {
    let written = |name: &str| match value {
        Some(value) => format!("{name}={value}"),
        None => name.to_owned(),
    };
    if let Some((from, to)) = places(line, name, quotes).pop() {
        let (before, rest) = line.split_at_checked(from).unwrap_or((line, ""));
        let (word, after) = rest.split_at_checked(to - from).unwrap_or((rest, ""));
        // The name as it stands there.
        return format!("{before}{}{after}", written(split(word).0));
    }
    let end = words(line, quotes)
        .into_iter()
        .find(|(from, to)| line.get(*from..*to) == Some("--"));
    if let Some((at, _)) = end {
        let (before, after) = line.split_at_checked(at).unwrap_or((line, ""));
        return format!("{before}{} {after}", written(name));
    }
    let body = line.trim_end();
    let gap = if body.is_empty() { "" } else { " " };
    let tail = line.get(body.len()..).unwrap_or_default();
    format!("{body}{gap}{}{tail}", written(name))
}

/// The line without a parameter, wherever it stands, with one blank before each that goes.
pub fn unset(line: &str, name: &str, quotes: Quotes) -> String {
    let mut out = line.to_owned();
    while let Some((from, to)) = places(&out, name, quotes).pop() {
        let before = out.get(..from).unwrap_or_default();
        let after = out.get(to..).unwrap_or_default();
        let blank = before.chars().next_back().filter(|c| c.is_whitespace());
        out = match (blank, after.chars().next()) {
            (Some(blank), _) => {
                let kept = before.len() - blank.len_utf8();
                format!("{}{after}", before.get(..kept).unwrap_or_default())
            }
            (None, Some(next)) if next.is_whitespace() => {
                format!(
                    "{before}{}",
                    after.get(next.len_utf8()..).unwrap_or_default()
                )
            }
            _ => format!("{before}{after}"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use Quotes::{Escaped, Plain};

    #[test]
    fn a_parameter_is_set_where_it_counts_and_nothing_else_changes() {
        let table = [
            (
                "quiet splash",
                "a.b",
                Some("1"),
                Plain,
                "quiet splash a.b=1",
            ),
            ("", "a", Some("1"), Plain, "a=1"),
            ("quiet ", "a", Some("1"), Plain, "quiet a=1 "),
            ("a=1 b  a=2 c", "a", Some("3"), Plain, "a=1 b  a=3 c"),
            (
                "amd-iommu=on",
                "amd_iommu",
                Some("off"),
                Plain,
                "amd-iommu=off",
            ),
            ("quiet", "quiet", None, Plain, "quiet"),
            ("x=1 -- y=2", "y", Some("3"), Plain, "x=1 y=3 -- y=2"),
            (
                r#"d="module a +p" q"#,
                "a",
                Some("1"),
                Plain,
                r#"d="module a +p" q a=1"#,
            ),
            (
                r#"d=\"x a=5 +p\" q"#,
                "a",
                Some("1"),
                Escaped,
                r#"d=\"x a=5 +p\" q a=1"#,
            ),
            ("a", "a", Some("1"), Plain, "a=1"),
            ("ab=1", "a", Some("1"), Plain, "ab=1 a=1"),
        ];
        for (line, name, value, quotes, wanted) in table {
            let once = set(line, name, value, quotes);
            assert_eq!(once, wanted, "{line:?}");
            assert_eq!(set(&once, name, value, quotes), wanted, "{line:?} twice");
            assert_eq!(super::value(&once, name, quotes), Some(value), "{line:?}");
        }
    }

    #[test]
    fn a_parameter_goes_from_everywhere_and_others_stay() {
        let table = [
            ("quiet a=1 splash", "a", "quiet splash"),
            ("a=1", "a", ""),
            ("a=1 quiet", "a", "quiet"),
            ("quiet a=1", "a", "quiet"),
            ("a=1 b a=2", "a", "b"),
            ("quiet  splash", "a", "quiet  splash"),
            ("x -- a=1", "a", "x -- a=1"),
            (r#"d="p a=1 q" a=2"#, "a", r#"d="p a=1 q""#),
        ];
        for (line, name, wanted) in table {
            assert_eq!(unset(line, name, Plain), wanted, "{line:?}");
        }
    }
}
