//! Random inventories and random edits: the edit says what was wanted, and nothing else changed.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use windlass::inventory::edit::{Edit, Whom, edited};
use windlass::inventory::{Inventory, diff};

/// One pair as TOML, an odd spelling of it, and what it means.
#[derive(Clone, Debug)]
struct Pair {
    key: &'static str,
    value: String,
    comment: bool,
    wide: bool,
}

fn value_of(key: &'static str) -> BoxedStrategy<String> {
    match key {
        "user" | "device" => "[a-z][a-z0-9]{0,6}".boxed(),
        "address" | "data" => (1u8..250).prop_map(|n| format!("10.0.{n}.7")).boxed(),
        "data_port" | "ssh.port" | "threads" => (1u32..4000).prop_map(|n| n.to_string()).boxed(),
        "memory_limit" => (1u32..500).prop_map(|n| format!("{n}GiB")).boxed(),
        "ssh.identity" => "[a-zé\"' \\\\]{1,8}".boxed(),
        _ => "[a-zé\"'# ]{1,8}".boxed(),
    }
}

const KEYS: [&str; 9] = [
    "user",
    "device",
    "address",
    "data",
    "data_port",
    "threads",
    "memory_limit",
    "ssh.port",
    "ssh.identity",
];

fn pair() -> impl Strategy<Value = Pair> {
    prop::sample::select(&KEYS[..]).prop_flat_map(|key| {
        (value_of(key), any::<bool>(), any::<bool>()).prop_map(move |(value, comment, wide)| Pair {
            key,
            value,
            comment,
            wide,
        })
    })
}

fn toml(pair: &Pair) -> String {
    if matches!(pair.key, "data_port" | "threads" | "ssh.port") {
        pair.value.clone()
    } else {
        // JSON's escapes are valid in TOML.
        json!(pair.value).to_string()
    }
}

/// How a table is written.
fn table(header: &str, name: &str, pairs: &[Pair], form: u8) -> String {
    // Each key once; the last one counts.
    let pairs: BTreeMap<&str, &Pair> = pairs.iter().map(|pair| (pair.key, pair)).collect();
    let quoted = if name.contains('[') {
        format!("\"{name}\"")
    } else {
        name.to_owned()
    };
    let mut text = String::new();
    if form == 1 {
        let inner: Vec<String> = pairs
            .values()
            .map(|pair| format!("{} = {}", pair.key, toml(pair)))
            .collect();
        return format!(
            "{header}.{quoted} = {{ {} }}   # in one line\n",
            inner.join(", ")
        );
    }
    let prefix = if form == 2 {
        format!("{header}.{quoted}.")
    } else {
        text.push_str(&format!("\n# about {name}\n[{header}.{quoted}]\n"));
        String::new()
    };
    let mut sub = String::new();
    for (key, pair) in &pairs {
        if form == 3
            && let Some(key) = key.strip_prefix("ssh.")
        {
            if sub.is_empty() {
                sub.push_str(&format!("[{header}.{quoted}.ssh]\n"));
            }
            sub.push_str(&format!("{key} = {}\n", toml(pair)));
            continue;
        }
        let equals = if pair.wide { "   =  " } else { " = " };
        let comment = if pair.comment { "  # why" } else { "" };
        text.push_str(&format!("{prefix}{key}{equals}{}{comment}\n", toml(pair)));
    }
    if form == 2 && pairs.is_empty() {
        text.push_str(&format!("{header}.{quoted} = {{}}\n"));
    }
    text.push_str(&sub);
    text
}

#[derive(Clone, Debug)]
struct Text {
    text: String,
    hosts: Vec<String>,
}

/// A valid inventory. Tables without headers stand at the top, as TOML demands.
fn inventory() -> impl Strategy<Value = Text> {
    let host = (prop::collection::vec(pair(), 0..6), 0u8..4);
    (
        prop::collection::vec(host, 1..5),
        prop::collection::vec(pair(), 0..4),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(tables, defaults, range, windows, open)| {
            let mut hosts = Vec::new();
            let mut top = String::from("# all by chance\n");
            let mut below = String::new();
            for (index, (pairs, form)) in tables.iter().enumerate() {
                let name = format!("h{index}");
                let text = table("hosts", &name, pairs, *form);
                if matches!(form, 1 | 2) {
                    top.push_str(&text);
                } else {
                    below.push_str(&text);
                }
                hosts.push(name);
            }
            if range {
                below.push_str("\n[hosts.\"m[1-4]\"]\naddress = \"10.9.0.[1-4]\" # paired\n");
                hosts.extend((1..=4).map(|n| format!("m{n}")));
            }
            let mut text = format!("{top}\n[cluster]\nname = \"c\" # short\n");
            text.push_str(&table("x", "y", &defaults, 0).replace("[x.y]", "[defaults]"));
            text.push_str(&below);
            text.push_str("\n[groups.g]\nhosts = [\"h*\"]\n");
            if open {
                text = text.trim_end().to_owned();
            }
            if windows {
                text = text.replace('\n', "\r\n");
            }
            Text { text, hosts }
        })
}

fn parsed(text: &str) -> Inventory {
    Inventory::parse(Path::new("inventory.toml"), text).unwrap_or_else(|f| panic!("{f:?}\n{text}"))
}

/// What a host is, as one value.
fn meaning(inventory: &Inventory, host: &str) -> Value {
    serde_json::to_value(inventory.host(host)).unwrap()
}

/// The value of a key in a host's meaning.
fn of(meaning: &Value, key: &str) -> Value {
    key.split('.')
        .fold(meaning.clone(), |json, name| json[name].clone())
}

/// What a text says, by another road than the one that is tested: tables and values, their order
/// left out.
fn said(item: &toml_edit::Item) -> Value {
    match item {
        toml_edit::Item::Value(toml_edit::Value::InlineTable(table)) => table
            .iter()
            .map(|(key, value)| (key.to_owned(), said(&toml_edit::Item::Value(value.clone()))))
            .collect::<BTreeMap<_, _>>()
            .into_iter()
            .collect(),
        toml_edit::Item::Table(table) => table
            .iter()
            .map(|(key, item)| (key.to_owned(), said(item)))
            .collect::<BTreeMap<_, _>>()
            .into_iter()
            .collect(),
        toml_edit::Item::Value(value) => {
            let mut value = value.clone();
            value.decor_mut().clear();
            match value.as_str() {
                Some(text) => json!(text),
                None => json!(value.to_string()),
            }
        }
        _ => Value::Null,
    }
}

fn document(text: &str) -> Value {
    let document: toml_edit::DocumentMut = text.parse().unwrap();
    said(document.as_item())
}

/// The same with a value at the end of a way taken out, and tables that are empty then.
fn lacking(json: &Value, way: &[&str]) -> Value {
    let Value::Object(map) = json else {
        return json.clone();
    };
    map.iter()
        .filter(|(name, _)| way != [name.as_str()])
        .map(|(name, inner)| {
            let rest = match way.split_first() {
                Some((first, rest)) if first == name => rest,
                _ => &[],
            };
            (name.clone(), lacking(inner, rest))
        })
        .filter(|(_, inner)| inner.as_object().is_none_or(|map| !map.is_empty()))
        .collect()
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_set_value_is_read_back_and_all_else_is_as_before(
        start in inventory(), pick in any::<prop::sample::Index>(), pair in pair(),
    ) {
        let before = parsed(&start.text);
        let host = start.hosts[pick.index(start.hosts.len())].clone();
        prop_assume!(pair.value.trim() == pair.value);
        let edit = Edit::Set(Whom::Host(host.clone()), vec![format!("{}={}", pair.key, pair.value)]);
        let new = edited(Path::new("inventory.toml"), &start.text, &edit)
            .unwrap_or_else(|e| panic!("{e}\n{}", start.text));
        let after = parsed(&new);
        // The value is as wanted.
        let got = of(&meaning(&after, &host), pair.key);
        let wanted = match pair.key {
            "memory_limit" => json!(pair.value.trim_end_matches("GiB").parse::<u64>().unwrap() << 30),
            "data_port" | "threads" | "ssh.port" => json!(pair.value.parse::<u64>().unwrap()),
            _ => json!(pair.value),
        };
        prop_assert_eq!(got, wanted, "{}", new);
        // Every other host, and every other value of this one, is as before.
        for other in &start.hosts {
            let (mut old, mut new) = (meaning(&before, other), meaning(&after, other));
            if *other == host {
                for meaning in [&mut old, &mut new] {
                    match pair.key.split_once('.') {
                        Some((table, key)) => meaning[table][key] = Value::Null,
                        None => meaning[pair.key] = Value::Null,
                    }
                    // The data address follows the address unless it is given.
                    if pair.key == "address" {
                        meaning["data"] = Value::Null;
                    }
                }
            }
            prop_assert_eq!(old, new);
        }
        // Every other byte: without the changed line, or the added ones, the text is the old one.
        let (old_lines, new_lines) = (lines(&start.text), lines(&new));
        let head = old_lines.iter().zip(&new_lines).take_while(|(a, b)| a == b).count();
        let tail = old_lines[head..].iter().rev().zip(new_lines[head..].iter().rev())
            .take_while(|(a, b)| a == b).count();
        let gone = &old_lines[head..old_lines.len() - tail];
        let come = &new_lines[head..new_lines.len() - tail];
        match gone {
            [] => {}
            // A line changed; or the last one, that ended without a line end, got one.
            [line] => {
                let bare = line.trim_end_matches(['\r', '\n']);
                let grown = come[0].trim_end_matches(['\r', '\n']);
                let key = pair.key.split('.').next_back().unwrap();
                prop_assert!(grown == bare || (come.len() == 1 && grown.contains(key)),
                    "{}", diff::unified("x", &start.text, &new));
            }
            more => prop_assert!(false, "{more:?}"),
        }
        prop_assert!(come.len() <= 4, "{}", diff::unified("x", &start.text, &new));
        // Line ends stay of one kind, and an open end stays open.
        prop_assert_eq!(start.text.ends_with('\n'), new.ends_with('\n'));
        if start.text.contains("\r\n") {
            prop_assert_eq!(new.matches('\n').count(), new.matches("\r\n").count());
        } else {
            prop_assert!(!new.contains('\r'));
        }
        // Again, it changes nothing.
        prop_assert_eq!(edited(Path::new("inventory.toml"), &new, &edit).unwrap(), new);
    }

    #[test]
    fn a_table_of_any_kind_says_the_value_and_the_file_all_else_as_before(
        start in inventory(), kind in 0..3, pick in any::<prop::sample::Index>(), pair in pair(),
        take_out: bool,
    ) {
        prop_assume!(pair.value.trim() == pair.value);
        let host = start.hosts[pick.index(start.hosts.len())].clone();
        let (whom, mut way) = match kind {
            0 => (Whom::Host(host.clone()), vec!["hosts", host.as_str()]),
            1 => (Whom::Group("g".into()), vec!["groups", "g"]),
            _ => (Whom::All, vec!["defaults"]),
        };
        way.extend(pair.key.split('.'));
        let value = if take_out { "" } else { pair.value.as_str() };
        let edit = Edit::Set(whom, vec![format!("{}={value}", pair.key)]);
        let new = edited(Path::new("inventory.toml"), &start.text, &edit)
            .unwrap_or_else(|e| panic!("{e}\n{}", start.text));
        let after = document(&new);
        let got = way.iter().try_fold(&after, |json, name| json.get(*name));
        prop_assert_eq!(
            got.map(|got| got.as_str().unwrap()),
            (!take_out).then_some(value),
            "{}", new
        );
        prop_assert_eq!(lacking(&document(&start.text), &way), lacking(&after, &way), "{}", new);
    }

    #[test]
    fn a_host_that_is_added_and_removed_leaves_no_trace(
        start in inventory(), pairs in prop::collection::vec(pair(), 0..4),
    ) {
        let values: BTreeMap<&str, String> = pairs.iter()
            .filter(|pair| pair.value.trim() == pair.value)
            .map(|pair| (pair.key, format!("{}={}", pair.key, pair.value)))
            .collect();
        let whom = Whom::Host("extra".into());
        let add = Edit::Add(whom.clone(), values.values().cloned().collect());
        let path = Path::new("inventory.toml");
        let added = edited(path, &start.text, &add).unwrap_or_else(|e| panic!("{e}\n{}", start.text));
        let (before, after) = (parsed(&start.text), parsed(&added));
        prop_assert_eq!(after.hosts.len(), before.hosts.len() + 1);
        for host in &start.hosts {
            prop_assert_eq!(meaning(&before, host), meaning(&after, host));
        }
        let removed = edited(path, &added, &Edit::Remove(whom)).unwrap();
        prop_assert_eq!(removed.trim_end(), start.text.trim_end());
    }

    #[test]
    fn a_removed_host_is_gone_and_all_others_stay(
        start in inventory(), pick in any::<prop::sample::Index>(),
    ) {
        prop_assume!(start.hosts.len() > 1);
        let host = start.hosts[pick.index(start.hosts.len())].clone();
        let edit = Edit::Remove(Whom::Host(host.clone()));
        let new = edited(Path::new("inventory.toml"), &start.text, &edit)
            .unwrap_or_else(|e| panic!("{e}\n{}", start.text));
        let (before, after) = (parsed(&start.text), parsed(&new));
        prop_assert!(after.host(&host).is_none());
        for other in start.hosts.iter().filter(|other| **other != host) {
            prop_assert_eq!(meaning(&before, other), meaning(&after, other));
        }
        // What is left was there before, in the same order, but for a range that got shorter.
        let old = lines(&start.text);
        let mut rest = old.iter();
        for line in lines(&new) {
            let bare = |line: &str| line.trim_end_matches(['\r', '\n']).to_owned();
            prop_assert!(
                line.contains("m[") || line.contains("10.9.0.[")
                    || rest.any(|old| bare(old) == bare(line)),
                "{}", diff::unified("x", &start.text, &new)
            );
        }
    }

    #[test]
    fn no_text_makes_reading_or_editing_panic(
        text in "(\\[hosts|\\[groups|\\[cluster|\\.a|\\.\"b\\[1-2\\]\"|\\]|\n| = |\\{|\\}|,|\"|ssh|port|1|user|hosts|\\[|\r\n|#|é| ){0,30}",
        value in "[a-z0-9.=é\"\\[\\]{}]{0,10}",
    ) {
        let path = Path::new("inventory.toml");
        let _ = Inventory::parse(path, &text);
        for edit in [
            Edit::Set(Whom::Host("a".into()), vec![format!("user={value}")]),
            Edit::Set(Whom::Host("b1".into()), vec![format!("ssh.port={value}"), value.clone()]),
            Edit::Set(Whom::All, vec![format!("vars.x={value}")]),
            Edit::Add(Whom::Group("g".into()), vec![format!("hosts={value}")]),
            Edit::Add(Whom::Host(value.clone()), vec![]),
            Edit::Remove(Whom::Host("b1".into())),
        ] {
            let _ = edited(path, &text, &edit);
        }
    }
}
