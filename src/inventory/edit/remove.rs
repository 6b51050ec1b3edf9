//! Takes values, tables, and single hosts of ranges out of a text. Must not know which values are
//! valid.

use std::ops::Range;

use serde_json::Value as Json;
use toml_edit::Key as TomlKey;

use super::super::fault::offer;
use super::super::range;
use super::super::tree::{Form, Node, Table, Value};
use super::place::{own_end, with_comments};
use super::value::basic;
use super::{
    EditError, Patch, Whom, at, host_names, line_end, line_start, no_host, patched, plain, prove,
    tree_of, with, without,
};

/// Takes out the value or table at the end of a way, and the tables around it, down to `depth`,
/// when they would be left empty.
pub(super) fn entry(text: &str, way: &[String], depth: usize) -> Result<String, EditError> {
    let root = tree_of(text)?;
    let mut way = way;
    while way.len() > depth + 1 {
        let Some((_, around)) = way.split_last() else {
            break;
        };
        let lone = find(&root, around)
            .and_then(|(node, _)| node.table())
            .is_some_and(|table| table.entries.len() == 1 && table.form == Form::Inline);
        if !lone {
            break;
        }
        way = around;
    }
    let Some((node, around)) = find(&root, way) else {
        return Ok(text.to_owned());
    };
    if let Some(patch) = last_of_dotted(text, &root, way, depth, node) {
        return Ok(patched(text, vec![patch]));
    }
    let mut patches = Vec::new();
    match around.iter().rev().find(|table| table.form != Form::Dotted) {
        Some(table) if table.form == Form::Inline => {
            patches.extend(out_of_row(text, &pairs(table), node));
        }
        _ => lines_of(text, node, &mut patches),
    }
    Ok(patched(text, patches))
}

/// The last value of a host or group that is only there by dots, as in `hosts.a.user = "x"`: the
/// table stays, as `hosts.a = {}`.
fn last_of_dotted(
    text: &str,
    root: &Table,
    way: &[String],
    depth: usize,
    node: &Node,
) -> Option<Patch> {
    if way.len() <= depth || depth < 2 {
        return None;
    }
    let (whom, around) = find(root, way.get(..depth)?)?;
    let lone = |table: &Table| table.form == Form::Dotted && pairs(table).len() == 1;
    if !whom.table().is_some_and(lone) || own_end(whom.table()?)?.1 != node.at.end {
        return None;
    }
    let home = around
        .iter()
        .rposition(|table| table.form != Form::Dotted)?;
    let start = if around.get(home)?.form == Form::Inline {
        find(root, way.get(..=home)?)?.0.key.start
    } else {
        let line = line_start(text, node.key.start);
        let indent = text.get(line..)?.find(|c| c != ' ' && c != '\t')?;
        line + indent
    };
    let keys: Vec<String> = way
        .get(home..depth)?
        .iter()
        .map(|name| TomlKey::new(name).display_repr().into_owned())
        .collect();
    Some(Patch {
        range: start..node.at.end,
        text: format!("{} = {{}}", keys.join(".")),
    })
}

/// A node and the tables around it, the outermost first.
fn find<'t>(root: &'t Table, way: &[String]) -> Option<(&'t Node, Vec<&'t Table>)> {
    let mut around = vec![root];
    let (last, before) = way.split_last()?;
    for name in before {
        around.push(around.last()?.table(name)?);
    }
    let node = around.last()?.get(last)?;
    Some((node, around))
}

/// Bytes of the pairs in an inline table, dotted ones as they are written, in the order of the
/// text.
fn pairs(table: &Table) -> Vec<Range<usize>> {
    let mut all = Vec::new();
    for (_, node) in &table.entries {
        match &node.value {
            Value::Table(inner) if inner.form == Form::Dotted => {
                // All dotted pairs begin with the same key; the first one's place is known, the
                // others' begin is found when there is only one.
                let inner = pairs(inner);
                for (place, pair) in inner.iter().enumerate() {
                    let start = if place == 0 {
                        node.key.start
                    } else {
                        pair.start
                    };
                    all.push(start..pair.end);
                }
            }
            _ => all.push(node.key.start..node.at.end),
        }
    }
    all.sort_by_key(|pair| pair.start);
    all
}

/// What has to go so that one element of a row with commas goes.
fn out_of_row(text: &str, row: &[Range<usize>], gone: &Node) -> Option<Patch> {
    let place = row.iter().position(|range| range.end == gone.at.end)?;
    let own = row.get(place)?.clone();
    let range = match (
        place.checked_sub(1).and_then(|before| row.get(before)),
        row.get(place + 1),
    ) {
        (Some(before), _) => before.end..own.end,
        (None, Some(after)) => own.start..next_start(text, own.end, after.start),
        (None, None) => own,
    };
    Some(Patch {
        range,
        text: String::new(),
    })
}

/// Where the element after a first one begins: behind the comma. `known` is where its own key
/// begins, which for a key with dots lies behind the names before the last dot.
fn next_start(text: &str, end: usize, known: usize) -> usize {
    let begin = || {
        let between = text.get(end..known)?;
        let behind = between.get(between.find(',')? + 1..)?;
        let rest = behind.trim_start();
        (!rest.is_empty() && !rest.starts_with('#')).then(|| known - rest.len())
    };
    begin().unwrap_or(known)
}

/// The lines of a node: of a value, its own; of a table, its header's, all in it, and comments
/// directly below, with one of the blank lines around.
fn lines_of(text: &str, node: &Node, patches: &mut Vec<Patch>) {
    let gone = |range: Range<usize>| Patch {
        range,
        text: String::new(),
    };
    let Value::Table(table) = &node.value else {
        let range = line_start(text, node.key.start)..line_end(text, node.at.end);
        patches.push(gone(range));
        return;
    };
    match table.form {
        Form::Inline | Form::Root => {
            let range = line_start(text, node.key.start)..line_end(text, node.at.end);
            patches.push(gone(range));
        }
        Form::Dotted | Form::Implicit => {}
        Form::Header => {
            let mut start = line_start(text, node.at.start);
            let end = own_end(table).map_or(node.at.end, |(_, end)| end);
            let mut end = with_comments(text, line_end(text, end));
            let blank_before = text
                .get(..start)
                .is_none_or(|before| before.lines().next_back().is_none_or(is_blank));
            let after = text.get(end..).unwrap_or_default();
            if blank_before && after.lines().next().is_some_and(is_blank) {
                end = line_end(text, end);
            } else if blank_before && after.is_empty() {
                // The last table: the blank line above it parts it from nothing any more.
                start = line_start(text, start.saturating_sub(1));
            }
            patches.push(gone(start..end));
        }
    }
    for (_, inner) in &table.entries {
        let apart = match &inner.value {
            Value::Table(child) => matches!(child.form, Form::Header | Form::Implicit),
            _ => false,
        };
        if apart || matches!(table.form, Form::Dotted) {
            lines_of(text, inner, patches);
        }
    }
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty()
}

/// Takes out a group and every host's mention of it.
pub(super) fn group(text: &str, name: &str) -> Result<String, EditError> {
    let whom = Whom::Group(name.to_owned());
    let root = tree_of(text)?;
    let groups = root.table("groups");
    if groups.and_then(|groups| groups.get(name)).is_none() {
        let names = groups.into_iter().flat_map(|groups| &groups.entries);
        let (offered, _) = offer(name, names.map(|(name, _)| name.as_str()));
        return Err(EditError::Unknown(format!(
            "there is no group \"{name}\"{offered}"
        )));
    }
    let mut new = entry(text, &whom.way(), 1)?;
    prove(&new, &without(&plain(&root), &whom.way()), &whom)?;
    let mut mentions = vec![vec!["defaults".to_owned(), "groups".to_owned()]];
    if let Some(hosts) = root.table("hosts") {
        mentions.extend(
            hosts
                .entries
                .iter()
                .map(|(host, _)| vec!["hosts".into(), host.clone(), "groups".into()]),
        );
    }
    for way in mentions {
        new = out_of_list(&new, &way, &whom, |text| (text == name).then_some(None))?;
    }
    Ok(new)
}

/// Changes the texts in a list: `None` leaves one, `Some(None)` takes it out, `Some(Some(new))`
/// replaces it.
fn out_of_list(
    text: &str,
    way: &[String],
    whom: &Whom,
    change: impl Fn(&str) -> Option<Option<String>>,
) -> Result<String, EditError> {
    let mut new = text.to_owned();
    loop {
        let root = tree_of(&new)?;
        let Some((
            Node {
                value: Value::List(list),
                ..
            },
            _,
        )) = find(&root, way)
        else {
            return Ok(new);
        };
        let hit = list
            .iter()
            .enumerate()
            .find_map(|(place, node)| match &node.value {
                Value::Text(text) => change(text).map(|to| (place, node, text, to)),
                _ => None,
            });
        let Some((place, node, old, to)) = hit else {
            return Ok(new);
        };
        let before = plain(&root);
        let mut wanted = at(&before, way)
            .and_then(Json::as_array)
            .cloned()
            .unwrap_or_default();
        let patch = match to {
            Some(to) => {
                if let Some(element) = wanted.get_mut(place) {
                    *element = Json::String(to.clone());
                }
                Some(rewritten(&new, &node.at, old, &to))
            }
            None => {
                wanted.remove(place);
                let row: Vec<Range<usize>> = list.iter().map(|node| node.at.clone()).collect();
                out_of_row(&new, &row, node)
            }
        };
        let after = patched(&new, patch.into_iter().collect());
        prove(&after, &with(&before, way, wanted.into()), whom)?;
        if after == new {
            return Ok(new);
        }
        new = after;
    }
}

/// A string in the text with another content, its quotes kept where they can be.
fn rewritten(text: &str, range: &Range<usize>, old: &str, new: &str) -> Patch {
    let raw = text.get(range.clone()).unwrap_or_default();
    let kept = ['"', '\'']
        .into_iter()
        .find(|quote| raw == format!("{quote}{old}{quote}"));
    Patch {
        range: range.clone(),
        text: match kept {
            Some(quote) => format!("{quote}{new}{quote}"),
            None => basic(new),
        },
    }
}

/// Takes out a host: its own table, its place in ranges, its name in groups.
pub(super) fn host(text: &str, name: &str) -> Result<String, EditError> {
    let whom = Whom::Host(name.to_owned());
    let root = tree_of(text)?;
    let known = host_names(&root);
    let has_table = |root: &Table| root.table("hosts").is_some_and(|h| h.get(name).is_some());
    let names = range::expand(name).map_err(|error| EditError::Usage(error.to_string()))?;
    if !has_table(&root) {
        if let Some(missing) = names.iter().find(|one| !known.contains(one)) {
            return Err(no_host(missing, &known));
        }
        if names.len() > 1 {
            return names
                .iter()
                .try_fold(text.to_owned(), |text, one| host(&text, one));
        }
    }
    let mut new = text.to_owned();
    if has_table(&root) {
        new = entry(&new, &whom.way(), 1)?;
        prove(&new, &without(&plain(&root), &whom.way()), &whom)?;
    }
    if !range::is_range(name) {
        new = out_of_ranges(&new, name, &whom)?;
    }
    // Hosts that another table still speaks of stay in their groups.
    let left = host_names(&tree_of(&new)?);
    let gone: Vec<&String> = names.iter().filter(|one| !left.contains(one)).collect();
    let groups: Vec<String> = tree_of(&new)?
        .table("groups")
        .into_iter()
        .flat_map(|groups| &groups.entries)
        .map(|(group, _)| group.clone())
        .collect();
    for group in groups {
        let way = ["groups".into(), group, "hosts".into()];
        for one in &gone {
            new = out_of_list(&new, &way, &whom, |text| {
                if text == one.as_str() {
                    return Some(None);
                }
                if !range::is_range(text) {
                    return None;
                }
                let all = range::expand(text).ok()?;
                let place = all.iter().position(|other| other == *one)?;
                if all.len() == 1 {
                    return Some(None);
                }
                range::without(text, place).map(Some)
            })?;
        }
    }
    Ok(new)
}

/// Takes one host out of every range that has it, addresses paired with it too.
fn out_of_ranges(text: &str, name: &str, whom: &Whom) -> Result<String, EditError> {
    let mut new = text.to_owned();
    loop {
        let root = tree_of(&new)?;
        let hit = root.table("hosts").and_then(|hosts| {
            hosts.entries.iter().find_map(|(written, node)| {
                let all = range::expand(written).ok()?;
                (range::is_range(written))
                    .then(|| all.iter().position(|one| one == name))
                    .flatten()
                    .map(|place| (written, node, place, all.len()))
            })
        });
        let Some((written, node, place, count)) = hit else {
            return Ok(new);
        };
        let way = ["hosts".to_owned(), written.clone()];
        let before = plain(&root);
        let table = at(&before, &way).cloned().unwrap_or_default();
        let mut wanted = without(&before, &way);
        if count == 1 {
            new = entry(&new, &way, 1)?;
            prove(&new, &wanted, whom)?;
            continue;
        }
        let shorter = |text: &str| {
            range::without(text, place).ok_or_else(|| {
                EditError::ByHand(format!(
                    "\"{text}\" cannot be written as one range without {name}"
                ))
            })
        };
        let left = shorter(written)?;
        let mut patches = Vec::new();
        let mut table = table;
        for key in ["address", "data"] {
            let Some(Node {
                at,
                value: Value::Text(value),
                ..
            }) = node.table().and_then(|table| table.get(key))
            else {
                continue;
            };
            // A literal in brackets is no range.
            if range::expand(value).is_ok_and(|all| all.len() == count) && range::is_range(value) {
                let new_value = shorter(value)?;
                patches.push(rewritten(&new, at, value, &new_value));
                if let Some(field) = table.get_mut(key) {
                    *field = Json::String(new_value);
                }
            }
        }
        wanted = with(&wanted, &["hosts".into(), left.clone()], table);
        for range in key_places(&new, node, written) {
            let raw = new.get(range.clone()).unwrap_or_default();
            let quoted = ['"', '\'']
                .into_iter()
                .find(|quote| raw == format!("{quote}{written}{quote}"));
            patches.push(Patch {
                range,
                text: match quoted {
                    Some(quote) => format!("{quote}{left}{quote}"),
                    None => TomlKey::new(&left).display_repr().into_owned(),
                },
            });
        }
        let after = patched(&new, patches);
        prove(&after, &wanted, whom)?;
        new = after;
    }
}

/// Where a host's name stands as a key: in its header and in those of tables within.
fn key_places(text: &str, node: &Node, name: &str) -> Vec<Range<usize>> {
    let mut places = vec![node.key.clone()];
    let mut headers = Vec::new();
    headers_in(node, &mut headers);
    for header in headers {
        let inside = header.start + 1..header.end.saturating_sub(1);
        for place in key_ranges(text, inside) {
            let is_name = text
                .get(place.clone())
                .and_then(|raw| raw.parse::<TomlKey>().ok())
                .is_some_and(|key| key.get() == name);
            if is_name && !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places
}

fn headers_in(node: &Node, headers: &mut Vec<Range<usize>>) {
    if let Value::Table(table) = &node.value {
        if table.form == Form::Header {
            headers.push(node.at.clone());
        }
        for (_, inner) in &table.entries {
            headers_in(inner, headers);
        }
    }
}

/// The keys between the dots of a header.
fn key_ranges(text: &str, inside: Range<usize>) -> Vec<Range<usize>> {
    let mut all = Vec::new();
    let mut quote = None;
    let mut escaped = false;
    let mut start = None;
    for (offset, c) in text.get(inside.clone()).unwrap_or_default().char_indices() {
        let at = inside.start + offset;
        match quote {
            Some(open) => {
                if escaped {
                    escaped = false;
                } else if c == '\\' && open == '"' {
                    escaped = true;
                } else if c == open {
                    quote = None;
                }
            }
            None if c == '.' || c.is_whitespace() => {
                if let Some(start) = start.take() {
                    all.push(start..at);
                }
            }
            None => {
                start.get_or_insert(at);
                if matches!(c, '"' | '\'') {
                    quote = Some(c);
                }
            }
        }
    }
    if let Some(start) = start {
        all.push(start..inside.end);
    }
    all
}
