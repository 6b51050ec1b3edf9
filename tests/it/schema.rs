//! The last line of every command with `--json` is as `docs/schema` describes it. Reads the part of
//! JSON Schema that those files use; a keyword it does not know is an error, never ignored. Beyond
//! the standard it refuses fields that are described nowhere, so that the files stay whole.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Asserts that a summary is what its command's schema says.
pub fn check(summary: &Value) {
    let command = summary["command"].as_str().unwrap_or_default();
    let mut name = format!("{}.json", command.replace(' ', "-"));
    if !folder().join(&name).exists() {
        // What could not be read as a command at all has a name and nothing of its own.
        assert_eq!(
            summary["exit"], 2,
            "docs/schema/{name} is missing: {summary}"
        );
        name = "summary.json".to_owned();
    }
    let schema = Schema::open(&name);
    if let Err(error) = schema.whole(&schema.root.clone(), summary, "") {
        panic!("{name}: {error}\n{summary:#}");
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema")
}

struct Schema {
    root: Value,
}

/// Names of an object's fields that a schema describes.
type Described = BTreeSet<String>;

impl Schema {
    fn open(name: &str) -> Self {
        let path = folder().join(name);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self {
            root: serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display())),
        }
    }

    /// Checks a value that no other schema describes too.
    fn whole(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let described = self.part(schema, value, at)?;
        for name in value.as_object().into_iter().flat_map(|o| o.keys()) {
            if !described.contains(name) {
                return Err(format!("{at}/{name} is described nowhere"));
            }
        }
        Ok(())
    }

    /// Checks a value against one schema of perhaps several.
    fn part(&self, schema: &Value, value: &Value, at: &str) -> Result<Described, String> {
        let mut described = Described::new();
        let Some(keywords) = schema.as_object() else {
            // `true` takes anything, and describes all of it.
            assert_eq!(schema, &json!(true));
            described.extend(
                value
                    .as_object()
                    .into_iter()
                    .flat_map(|o| o.keys().cloned()),
            );
            return Ok(described);
        };
        let fields = value.as_object();
        for (keyword, argument) in keywords {
            let list = || argument.as_array().unwrap().iter();
            match keyword.as_str() {
                "$schema" | "title" | "description" | "$defs" | "then" | "else" => {}
                "$ref" => described.extend(self.referred(argument.as_str().unwrap(), value, at)?),
                "allOf" => {
                    for one in list() {
                        described.extend(self.part(one, value, at)?);
                    }
                }
                "anyOf" => {
                    let tried: Vec<_> = list().map(|one| self.part(one, value, at)).collect();
                    match tried.iter().find_map(|one| one.as_ref().ok()) {
                        Some(one) => described.extend(one.clone()),
                        None => return Err(format!("{at}: {tried:?}")),
                    }
                }
                "if" => {
                    let branch = if self.part(argument, value, at).is_ok() {
                        "then"
                    } else {
                        "else"
                    };
                    if let Some(then) = keywords.get(branch) {
                        described.extend(self.part(then, value, at)?);
                    }
                }
                "type" => {
                    let kinds: Vec<&str> = match argument {
                        Value::String(kind) => vec![kind],
                        _ => list().map(|kind| kind.as_str().unwrap()).collect(),
                    };
                    if !kinds.iter().any(|kind| is(value, kind)) {
                        return Err(format!("{at} is no {argument}: {value}"));
                    }
                }
                "const" if value != argument => {
                    return Err(format!("{at} is not {argument}: {value}"));
                }
                "enum" if !list().any(|one| one == value) => {
                    return Err(format!("{at} is none of {argument}: {value}"));
                }
                "minimum"
                    if value
                        .as_f64()
                        .is_some_and(|n| n < argument.as_f64().unwrap()) =>
                {
                    return Err(format!("{at} is below {argument}: {value}"));
                }
                "minLength" if value.as_str() == Some("") => {
                    return Err(format!("{at} is empty"));
                }
                "const" | "enum" | "minimum" | "minLength" => {}
                "required" => {
                    for name in list().map(|name| name.as_str().unwrap()) {
                        if fields.is_some_and(|fields| !fields.contains_key(name)) {
                            return Err(format!("{at}/{name} is missing"));
                        }
                    }
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.whole(argument, item, &format!("{at}/{index}"))?;
                    }
                }
                "properties" => {
                    for (name, schema) in argument.as_object().unwrap() {
                        if let Some(value) = value.get(name) {
                            self.property(schema, value, &format!("{at}/{name}"))?;
                            described.insert(name.clone());
                        }
                    }
                }
                "additionalProperties" => {
                    let named = keywords.get("properties").and_then(Value::as_object);
                    for (name, value) in fields.into_iter().flatten() {
                        if named.is_none_or(|named| !named.contains_key(name)) {
                            self.whole(argument, value, &format!("{at}/{name}"))?;
                            described.insert(name.clone());
                        }
                    }
                }
                other => panic!("the keyword {other} is not known here"),
            }
        }
        Ok(described)
    }

    /// A field may be described a second time, in a branch, by what it is there alone.
    fn property(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let only = |name: &str| {
            schema
                .as_object()
                .is_some_and(|o| o.len() == 1 && o.contains_key(name))
        };
        if only("const") || only("type") {
            return self.part(schema, value, at).map(drop);
        }
        self.whole(schema, value, at)
    }

    fn referred(&self, target: &str, value: &Value, at: &str) -> Result<Described, String> {
        let (file, pointer) = target.split_once('#').unwrap_or((target, ""));
        let other = match file {
            "" => None,
            file => Some(Schema::open(file)),
        };
        let home = other.as_ref().unwrap_or(self);
        let schema = home
            .root
            .pointer(pointer)
            .unwrap_or_else(|| panic!("{target} leads nowhere"));
        home.part(schema, value, at)
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the type {other} is not known"),
    }
}

/// A summary that is as it must be.
fn sound() -> Value {
    json!({
        "v": 1, "event": "summary", "command": "down", "run": "7f", "seq": 3, "ms": 5, "time": "",
        "exit": 0, "seconds": 0.5, "error": null, "cluster": "halo", "stopped": ["h1"],
        "hosts": {"h1": {"ok": 0, "changed": 1, "would_change": 0, "skipped": 0, "failed": 0,
            "unreachable": 0, "unknown": 0, "bytes_sent": 0}},
    })
}

#[test]
fn a_summary_with_a_field_missing_misshapen_or_not_described_is_found() {
    let schema = Schema::open("down.json");
    type Damage<'a> = &'a dyn Fn(&mut Value);
    let wrong = |edit: Damage| {
        let mut summary = sound();
        edit(&mut summary);
        schema.whole(&schema.root, &summary, "").unwrap_err()
    };
    check(&sound());
    let table: [(Damage, &str); 9] = [
        (&|s| s["v"] = json!(2), "/v is not 1"),
        (&|s| s["extra"] = json!(2), "/extra is described nowhere"),
        (
            &|s| s["hosts"]["h1"]["ok"] = json!(-1),
            "/hosts/h1/ok is below 0",
        ),
        (
            &|s| s["hosts"]["h1"]["new"] = json!(1),
            "/hosts/h1/new is described nowhere",
        ),
        (&|s| s["stopped"] = json!("h1"), "/stopped is no"),
        (&|s| s["stopped"] = json!([1]), "/stopped/0 is no"),
        (
            &|s| drop(s.as_object_mut().unwrap().remove("cluster")),
            "/cluster is missing",
        ),
        (&|s| s["exit"] = json!(6), "/exit is none of"),
        // A failure says why.
        (&|s| s["exit"] = json!(1), "/error is no"),
    ];
    for (edit, wanted) in table {
        let error = wrong(edit);
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
}

#[test]
fn every_command_has_a_schema_and_every_schema_a_command() {
    use clap::CommandFactory;
    fn leaves(command: &clap::Command, path: &str, all: &mut BTreeSet<String>) {
        let name = format!("{path}{}", command.get_name());
        if !command.has_subcommands() {
            all.insert(name);
            return;
        }
        for sub in command.get_subcommands() {
            leaves(sub, &format!("{name}-"), all);
        }
    }
    let mut commands: BTreeSet<String> = ["help", "version", "summary", "types"]
        .map(str::to_owned)
        .into();
    for sub in windlass::cli::Arguments::command().get_subcommands() {
        leaves(sub, "", &mut commands);
    }
    let files: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".json").map(str::to_owned)
        })
        .collect();
    assert_eq!(commands, files);
}
