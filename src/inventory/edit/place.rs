//! Finds where in a text a value or a table goes, and puts it there. Must not know which values are
//! valid.

use toml_edit::Key as TomlKey;

use super::super::range;
use super::super::tree::{Form, Node, Table, Value};
use super::{EditError, Patch, line_end, line_of, line_start, newline, patched};

/// Puts a value at the end of a way; the first `depth` steps lead to a table with a header of its
/// own.
pub(super) fn value(
    text: &str,
    root: &Table,
    way: &[String],
    depth: usize,
    written: &str,
) -> Result<String, EditError> {
    let mut table = root;
    // The nearest table around that is written as one, and the keys from there.
    let mut home = (root, 0_usize, None::<&Node>);
    for (step, name) in way.iter().enumerate() {
        let last = step + 1 == way.len();
        match table.get(name) {
            Some(found) if last => return replaced(text, found, written),
            Some(found) => match &found.value {
                Value::Table(inner) => {
                    if inner.form != Form::Dotted {
                        home = (inner, step + 1, Some(found));
                    }
                    table = inner;
                }
                _ => {
                    return Err(EditError::ByHand(format!(
                        "line {} has no table where one is needed",
                        line_of(text, found.key.start)
                    )));
                }
            },
            None => {
                let (home, at, home_node) = home;
                if home.form == Form::Inline {
                    let pair = pair(way.get(at..).unwrap_or_default(), step - at, written);
                    return Ok(into_inline(text, table, home_node, &pair));
                }
                if step < depth || table.form == Form::Implicit || home.form == Form::Implicit {
                    // A table with a header has to be made first.
                    let header = way.get(..step.max(depth)).unwrap_or_default();
                    let rest = way.get(step.max(depth)..).unwrap_or_default();
                    let line = pair(rest, 0, written);
                    return self::table(text, root, header, Some(&line));
                }
                let pair = pair(way.get(at..).unwrap_or_default(), step - at, written);
                // Beside its like, else at the end of what the table says.
                let after = own_end(table)
                    .or_else(|| own_end(home))
                    .or_else(|| home_node.map(|node| (node.at.start, node.at.end)));
                return Ok(line_after(text, after, &pair));
            }
        }
    }
    Ok(text.to_owned())
}

/// `a.b = { c = value }` for the keys of which the first `dotted` are tables written with dots.
fn pair(keys: &[String], dotted: usize, written: &str) -> String {
    let shown = |name: &String| TomlKey::new(name).display_repr().into_owned();
    let mut names = keys.iter().map(shown);
    let left: Vec<String> = names.by_ref().take(dotted + 1).collect();
    let inner: Vec<String> = names.collect();
    let right = inner.iter().rev().fold(written.to_owned(), |value, name| {
        format!("{{ {name} = {value} }}")
    });
    format!("{} = {right}", left.join("."))
}

/// A value in another's place.
fn replaced(text: &str, found: &Node, written: &str) -> Result<String, EditError> {
    if let Value::Table(table) = &found.value
        && table.form != Form::Inline
    {
        return Err(EditError::ByHand(format!(
            "line {} begins a table where a value is to be put",
            line_of(text, found.key.start)
        )));
    }
    Ok(patched(
        text,
        vec![Patch {
            range: found.at.clone(),
            text: written.to_owned(),
        }],
    ))
}

/// A pair behind the last one of an inline table.
fn into_inline(text: &str, table: &Table, home: Option<&Node>, pair: &str) -> String {
    let at = |range: std::ops::Range<usize>, new: String| {
        patched(text, vec![Patch { range, text: new }])
    };
    if let Some((_, end)) = own_end(table) {
        return at(end..end, format!(", {pair}"));
    }
    match home.map(|node| (node, node.table().and_then(own_end))) {
        Some((_, Some((_, end)))) => at(end..end, format!(", {pair}")),
        Some((node, None)) => at(node.at.clone(), format!("{{ {pair} }}")),
        None => text.to_owned(),
    }
}

/// Where the last pair in a table's own lines begins and ends; tables with headers are not in them.
pub(super) fn own_end(table: &Table) -> Option<(usize, usize)> {
    table
        .entries
        .iter()
        .filter_map(|(_, node)| match &node.value {
            Value::Table(inner) => match inner.form {
                Form::Header | Form::Implicit | Form::Root => None,
                Form::Dotted => own_end(inner),
                Form::Inline => Some((node.key.start, node.at.end)),
            },
            // A list of tables is none of an inventory.
            _ => Some((node.key.start, node.at.end)),
        })
        .max_by_key(|(_, end)| *end)
}

/// Last byte of all that belongs to a node, headers elsewhere in the text included.
fn full_end(node: &Node) -> usize {
    let own = node.at.end;
    match &node.value {
        Value::Table(table) => table
            .entries
            .iter()
            .map(|(_, inner)| full_end(inner))
            .fold(own, usize::max),
        _ => own,
    }
}

/// A line after the pair that begins and ends there, indented like it.
fn line_after(text: &str, after: Option<(usize, usize)>, pair: &str) -> String {
    let end_of_line = newline(text);
    let Some((start, end)) = after else {
        // An empty top of the file.
        return format!("{pair}{end_of_line}{text}");
    };
    let line = text.get(line_start(text, start)..start).unwrap_or_default();
    let indent: String = line
        .chars()
        .take_while(|c| matches!(c, ' ' | '\t'))
        .collect();
    let at = line_end(text, end);
    let new = if text.get(..at).is_some_and(|before| before.ends_with('\n')) {
        format!("{indent}{pair}{end_of_line}")
    } else {
        format!("{end_of_line}{indent}{pair}")
    };
    patched(
        text,
        vec![Patch {
            range: at..at,
            text: new,
        }],
    )
}

/// A new table with a header, with one line in it or none.
pub(super) fn table(
    text: &str,
    root: &Table,
    way: &[String],
    line: Option<&str>,
) -> Result<String, EditError> {
    let kind = way.first().map(String::as_str).unwrap_or_default();
    let name = way.get(1).map(String::as_str).unwrap_or_default();
    let siblings = root.table(kind);
    if let Some(node) = root.get(kind).filter(|_| way.len() == 2)
        && siblings.is_some_and(|table| table.form == Form::Inline)
    {
        let value = match line {
            Some(line) => format!("{{ {line} }}"),
            None => "{}".to_owned(),
        };
        let pair = format!("{} = {value}", TomlKey::new(name).display_repr());
        let inner = siblings.unwrap_or(root);
        return Ok(into_inline(text, inner, Some(node), &pair));
    }
    // Beside the range it is of, else behind its like.
    let beside = siblings.and_then(|table| {
        table.entries.iter().find(|(other, _)| {
            other == name
                || (kind == "hosts"
                    && range::is_range(other)
                    && range::expand(other).is_ok_and(|all| all.iter().any(|one| one == name)))
        })
    });
    let anchor = match (beside, siblings) {
        (Some((_, node)), _) => Some(full_end(node)),
        (None, Some(table)) => table.entries.iter().map(|(_, node)| full_end(node)).max(),
        (None, None) if kind == "defaults" => root.get("cluster").map(full_end),
        (None, None) => None,
    };
    let at = anchor
        .map(|end| with_comments(text, line_end(text, end)))
        .filter(|at| nothing_of_a_table_follows(text, *at))
        .unwrap_or(text.len());
    let end_of_line = newline(text);
    let header: Vec<String> = way
        .iter()
        .map(|name| TomlKey::new(name).display_repr().into_owned())
        .collect();
    let mut new = format!("[{}]", header.join("."));
    if let Some(line) = line {
        new.push_str(end_of_line);
        new.push_str(line);
    }
    let before = text.get(..at).unwrap_or_default();
    let after = text.get(at..).unwrap_or_default();
    let blank = |line: &str| line.trim().is_empty();
    if before.is_empty() {
        new.push_str(end_of_line);
    } else if before.ends_with('\n') {
        if before.lines().next_back().is_some_and(|line| !blank(line)) {
            new.insert_str(0, end_of_line);
        }
        new.push_str(end_of_line);
    } else {
        // The file ends without a line end, and goes on doing so.
        new.insert_str(0, end_of_line);
        new.insert_str(0, end_of_line);
    }
    if after.lines().next().is_some_and(|line| !blank(line)) {
        new.push_str(end_of_line);
    }
    Ok(patched(
        text,
        vec![Patch {
            range: at..at,
            text: new,
        }],
    ))
}

/// A place moved behind comments that belong to what ends there: those directly below it, unless a
/// table begins directly below them.
pub(super) fn with_comments(text: &str, at: usize) -> usize {
    let mut end = at;
    for line in text.get(at..).unwrap_or_default().split_inclusive('\n') {
        let trimmed = line.trim();
        if trimmed.starts_with('#') {
            end += line.len();
        } else if trimmed.is_empty() {
            return end;
        } else {
            return at;
        }
    }
    end
}

/// Whether the lines from a place to the next header say nothing, so that a header can go there.
fn nothing_of_a_table_follows(text: &str, at: usize) -> bool {
    text.get(at..)
        .unwrap_or_default()
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'))
        .is_none_or(|line| line.starts_with('['))
}
