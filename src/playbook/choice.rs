//! Which tasks a run is about, and with which values. Pure.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::kinds::argument::Form;
use super::model::{Playbook, Task};
use crate::event::{Failure, FailureKind};
use crate::inventory::fault::offer;

fn usage(message: String) -> Failure {
    Failure::new(FailureKind::Usage, message).at("playbook")
}

/// What picks tasks.
#[derive(Clone, Debug, Default)]
pub struct Pick<'a> {
    /// Only tasks with one of these tags; all when empty.
    pub tags: &'a [String],
    /// No tasks with one of these.
    pub skip_tags: &'a [String],
    /// Name of the first task.
    pub start_at: Option<&'a str>,
}

/// Indices of the tasks that are picked, in their order.
///
/// # Errors
/// When a tag or name is none, or nothing is left.
pub fn choose(tasks: &[Task], pick: &Pick<'_>) -> Result<Vec<usize>, Failure> {
    let all: BTreeSet<&str> = tasks
        .iter()
        .flat_map(|task| task.tags.iter().map(String::as_str))
        .collect();
    for tag in pick.tags.iter().chain(pick.skip_tags) {
        if !all.contains(tag.as_str()) {
            let (offered, _) = offer(tag, all.iter().copied());
            return Err(usage(format!("no task has the tag \"{tag}\"{offered}")));
        }
    }
    let first = match pick.start_at {
        None => 0,
        Some(name) => tasks
            .iter()
            .position(|task| task.name == name)
            .ok_or_else(|| {
                let (offered, _) = offer(name, tasks.iter().map(|task| task.name.as_str()));
                usage(format!("no task is named \"{name}\"{offered}"))
            })?,
    };
    let has = |task: &Task, tags: &[String]| task.tags.iter().any(|tag| tags.contains(tag));
    let chosen: Vec<usize> = tasks
        .iter()
        .enumerate()
        .skip(first)
        .filter(|(_, task)| pick.tags.is_empty() || has(task, pick.tags))
        .filter(|(_, task)| !has(task, pick.skip_tags))
        .map(|(index, _)| index)
        .collect();
    if chosen.is_empty() {
        return Err(Failure::new(
            FailureKind::Nothing,
            "no task is left by --tags, --skip-tags and --start-at",
        )
        .at("playbook"));
    }
    Ok(chosen)
}

/// The values of every scope, with those replaced that `given` names. A given text takes the type of
/// the value it replaces.
///
/// # Errors
/// When a given name is none, or its text does not fit the type.
pub fn values(playbook: &Playbook, given: &[(String, String)]) -> Result<Vec<Value>, Failure> {
    let mut all: Vec<Value> = Vec::new();
    for (index, scope) in playbook.scopes.iter().enumerate() {
        let mut own = scope.own.clone();
        if index == 0 {
            for (name, text) in given {
                let Some(value) = own.get_mut(name) else {
                    let (offered, _) = offer(name, scope.own.keys().map(String::as_str));
                    return Err(usage(format!(
                        "--var {name}: the playbook has no value of this name{offered}"
                    )));
                };
                *value = typed(text, value).ok_or_else(|| {
                    usage(format!(
                        "--var {name}={text}: it must be {}, as {value} is",
                        kind(value)
                    ))
                })?;
            }
        }
        let outer = scope.outer.and_then(|outer| all.get(outer)).cloned();
        let mut names = Map::new();
        names.insert("vars".into(), outer.unwrap_or_default());
        let names = Value::Object(names);
        for (name, template) in &scope.given {
            let value = template
                .render(&names)
                .map_err(|error| usage(format!("include: {name}: {}", error.message)))?;
            own.insert(name.clone(), value);
        }
        all.push(own.into());
    }
    Ok(all)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a number",
        Value::Number(_) => "a whole number",
        Value::Array(_) => "a list, as [1, 2] or a,b",
        Value::Object(_) => "a table, as {\"a\": 1}",
        _ => "text",
    }
}

/// A text as a value of the type of another.
fn typed(text: &str, like: &Value) -> Option<Value> {
    match like {
        Value::Bool(_) => Form::Flag.fit(&text.into()).ok(),
        Value::Number(number) if number.is_f64() => {
            let value = text.trim().parse::<f64>().ok()?;
            serde_json::Number::from_f64(value).map(Value::Number)
        }
        Value::Number(_) => text.trim().parse::<i64>().ok().map(Value::from),
        Value::Array(items) => match serde_json::from_str::<Value>(text) {
            Ok(list @ Value::Array(_)) => Some(list),
            // One word, or words with commas between them.
            _ if text.trim_start().starts_with('[') => None,
            _ => {
                let like = items.first().cloned().unwrap_or_else(|| "".into());
                text.split(',')
                    .map(|item| typed(item.trim(), &like))
                    .collect::<Option<Vec<_>>>()
                    .map(Value::from)
            }
        },
        Value::Object(_) => serde_json::from_str(text).ok().filter(Value::is_object),
        _ => Some(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::playbook::model::VarScope;
    use serde_json::json;

    fn tasks() -> Vec<Task> {
        let text = "[[tasks]]\nname = \"a\"\ntags = [\"x\"]\nassert = \"true\"\n\
            [[tasks]]\nname = \"b\"\ntags = [\"x\", \"y\"]\nassert = \"true\"\n\
            [[tasks]]\nname = \"c\"\nassert = \"true\"\n";
        let parsed = crate::playbook::parse::parse(text).unwrap();
        parsed
            .items
            .into_iter()
            .filter_map(|item| match item {
                crate::playbook::parse::Item::Task(task) => Some(*task),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn tags_and_the_first_task_pick_what_is_run() {
        let tasks = tasks();
        let words =
            |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        let table: [(&str, &str, Option<&str>, &[usize]); 6] = [
            ("", "", None, &[0, 1, 2]),
            ("x", "", None, &[0, 1]),
            ("x", "y", None, &[0]),
            ("", "y", None, &[0, 2]),
            ("", "", Some("b"), &[1, 2]),
            ("x", "", Some("b"), &[1]),
        ];
        for (tags, skip, start, wanted) in table {
            let (tags, skip_tags) = (words(tags), words(skip));
            let pick = Pick {
                tags: &tags,
                skip_tags: &skip_tags,
                start_at: start,
            };
            assert_eq!(choose(&tasks, &pick).unwrap(), wanted, "{pick:?}");
        }
    }

    #[test]
    fn a_tag_or_task_that_is_none_comes_with_the_nearest_and_exit_status_2() {
        let tasks = tasks();
        let tags = ["yy".to_owned()];
        let pick = Pick {
            tags: &tags,
            ..Pick::default()
        };
        let failure = choose(&tasks, &pick).unwrap_err();
        assert!(failure.message.contains("\"y\""), "{failure}");
        assert_eq!(failure.kind.exit().code(), 2);
        let pick = Pick {
            start_at: Some("bb"),
            ..Pick::default()
        };
        assert!(choose(&tasks, &pick).unwrap_err().message.contains("\"b\""));
        let (tags, skip_tags) = (["y".to_owned()], ["x".to_owned()]);
        let pick = Pick {
            tags: &tags,
            skip_tags: &skip_tags,
            start_at: None,
        };
        assert_eq!(choose(&tasks, &pick).unwrap_err().kind.exit().code(), 3);
    }

    #[test]
    fn given_values_take_the_type_of_those_they_replace() {
        let own = json!({"model": "m", "context": 4096, "on": false, "list": [1, 2], "f": 0.5, "words": ["a"]});
        let playbook = Playbook {
            name: "p".into(),
            about: String::new(),
            source: "p".into(),
            folder: "".into(),
            scopes: vec![VarScope {
                own: own.as_object().unwrap().clone(),
                ..VarScope::default()
            }],
            tasks: Vec::new(),
            digest: String::new(),
            text: String::new(),
        };
        let with = |name: &str, text: &str| {
            values(&playbook, &[(name.to_owned(), text.to_owned())]).map(|all| all[0][name].clone())
        };
        for (name, text, wanted) in [
            ("model", "8", json!("8")),
            ("context", "8", json!(8)),
            ("on", "true", json!(true)),
            ("list", "[4]", json!([4])),
            ("list", "1,8", json!([1, 8])),
            ("words", "b", json!(["b"])),
            ("f", "2", json!(2.0)),
        ] {
            assert_eq!(with(name, text).unwrap(), wanted, "{name}={text}");
        }
        for (name, text, wanted) in [
            ("context", "many", "a whole number"),
            ("modle", "x", "\"model\""),
            ("list", "[1", "a list"),
            ("on", "yes", "true or false"),
        ] {
            let failure = with(name, text).unwrap_err();
            assert!(failure.message.contains(wanted), "{failure}");
            assert_eq!(failure.kind.exit().code(), 2);
        }
    }
}
