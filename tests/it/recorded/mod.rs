//! The parsers on recorded output of real machines. `WINDLASS_RECORDED` names a folder that has
//! `index.csv` (columns `file` and `values`) and the files it lists; without it nothing is compared.
//!
//! `values` is a list of findings behind semicolons: `name=value`, else `name: value`, else a
//! sentence whose first word is its name. Remarks in brackets behind a blank are for people. Each
//! finding whose name a half's map has is compared. What is no text to compare, e.g. that a line is
//! refused, a half looks at by itself and then says [`SEEN`].

mod boot;
mod gpu;
mod host;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// The value of a finding that was looked at and holds.
pub const SEEN: &str = "*";

/// Findings by name.
#[derive(Default)]
pub struct Found(pub BTreeMap<String, String>);

impl Found {
    pub fn put(&mut self, name: &str, value: impl ToString) {
        self.0.insert(name.to_owned(), value.to_string());
    }

    pub fn or_none(&mut self, name: &str, value: Option<impl ToString>) {
        self.put(
            name,
            value.map_or("none".to_owned(), |value| value.to_string()),
        );
    }

    /// A finding that is no text to compare; without the condition it is left out and missed.
    pub fn seen(&mut self, name: &str, holds: bool) {
        self.put(name, if holds { SEEN } else { "not so" });
    }
}

/// A half's answer for a file: findings by name; `None` when the file is not its own.
type Values = fn(&str, &str, &str) -> Option<BTreeMap<String, String>>;

/// The halves.
const HALVES: &[Values] = &[boot::values, host::values, gpu::values];

/// Folders whose half is not there yet.
const OTHERS: &[&str] = &[];

/// Records of a file of comma-separated values, with quoted fields (RFC 4180).
fn records(text: &str) -> Vec<Vec<String>> {
    let (mut records, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let mut quoted = false;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' if quoted && rest.peek() == Some(&'"') => {
                rest.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut field)),
            '\r' if !quoted => {}
            '\n' if !quoted => {
                record.push(std::mem::take(&mut field));
                records.push(std::mem::take(&mut record));
            }
            c => field.push(c),
        }
    }
    if !field.is_empty() || !record.is_empty() {
        record.push(field);
        records.push(record);
    }
    records
}

/// Findings as the index has them, remarks left out.
fn findings(text: &str) -> Vec<(String, String)> {
    let mut parts = vec![String::new()];
    let mut depth = 0_usize;
    let mut last = ' ';
    for c in text.chars() {
        match c {
            '(' if depth > 0 || last.is_whitespace() => depth += 1,
            ')' if depth > 0 => depth -= 1,
            ';' if depth == 0 => parts.push(String::new()),
            c if depth == 0 => parts.last_mut().unwrap().push(c),
            _ => {}
        }
        last = c;
    }
    parts
        .iter()
        .map(|part| part.trim())
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (name, value) = part
                .split_once('=')
                .or_else(|| part.split_once(": "))
                .or_else(|| part.split_once(' '))
                .unwrap_or((part, ""));
            (name.trim().to_owned(), value.trim().to_owned())
        })
        .collect()
}

/// Both sides alike: blanks and case do not count, quotes around neither, and what is absent has one
/// word.
fn plain(value: &str) -> String {
    let words: Vec<String> = value.split_whitespace().map(str::to_lowercase).collect();
    let value = words.join(" ").replace(" ,", ",");
    match value.as_str() {
        "absent" | "unknown" => "none".to_owned(),
        other => other.trim_matches('"').trim().to_owned(),
    }
}

fn same(own: &str, wanted: &str) -> bool {
    let (own, wanted) = (plain(own), plain(wanted));
    own == wanted
        || own
            .parse::<f64>()
            .ok()
            .zip(wanted.parse::<f64>().ok())
            .is_some_and(|(own, wanted)| own == wanted)
}

#[test]
fn what_real_machines_said_is_read_as_people_read_it() {
    let Some(folder) = std::env::var_os("WINDLASS_RECORDED").map(PathBuf::from) else {
        eprintln!("skipped: WINDLASS_RECORDED names no folder of recorded output");
        return;
    };
    let index = fs::read_to_string(folder.join("index.csv")).unwrap();
    let mut records = records(&index).into_iter();
    let heading = records.next().unwrap();
    let column = |name: &str| heading.iter().position(|own| own == name).unwrap();
    let (file_at, values_at) = (column("file"), column("values"));
    let mut wrong = Vec::new();
    let (mut files, mut compared) = (0, 0);
    for record in records {
        let path = &record[file_at];
        let (kind, file) = path.split_once('/').unwrap();
        if OTHERS.contains(&kind) {
            continue;
        }
        files += 1;
        let bytes = fs::read(folder.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        let text = String::from_utf8_lossy(&bytes);
        let Some(own) = HALVES.iter().find_map(|half| half(kind, file, &text)) else {
            wrong.push(format!("{path}: nobody reads it"));
            continue;
        };
        let mut here = 0;
        for (name, wanted) in findings(&record[values_at]) {
            let Some(value) = own.get(&name) else {
                continue;
            };
            here += 1;
            if value != SEEN && !same(value, &wanted) {
                wrong.push(format!(
                    "{path}: {name} is {value:?}, and should be {wanted:?}"
                ));
            }
        }
        if here == 0 {
            let names: Vec<_> = own.keys().collect();
            wrong.push(format!("{path}: nothing was compared; read were {names:?}"));
        }
        compared += here;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    eprintln!("{compared} findings in {files} files are as they should be");
}

#[test]
fn the_index_is_read_with_quotes_remarks_and_sentences() {
    assert_eq!(
        records("a,\"b \"\"c\"\", d\",\r\n\"e\nf\",g\n"),
        [vec!["a", "b \"c\", d", ""], vec!["e\nf", "g"]]
    );
    let shown: Vec<String> = findings(
        "speed=10 (not; what (it) carries); Active(anon)=3; line 2: hashed; Host * last=a=b, (x) c; \
         Include twice; root=(hd0,1)/x",
    )
    .iter()
    .map(|(name, value)| format!("{name}|{value}"))
    .collect();
    assert_eq!(
        shown,
        [
            "speed|10",
            "Active(anon)|3",
            "line 2|hashed",
            "Host * last|a=b,  c",
            "Include|twice",
            "root|(hd0,1)/x",
        ]
    );
    assert!(same("9.3", "9.30") && same("Absent", "none") && same("\"a  b\"", "A b"));
    assert!(!same("1", "10") && !same("", "none"));
}
