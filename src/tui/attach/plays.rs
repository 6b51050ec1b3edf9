//! Playbooks: which can be chosen, and running one.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

use super::jobs::started;
use crate::deploy::remote::context::Context;
use crate::deploy::remote::up::Done;
use crate::playbook::{self, Playbook};
use crate::tui::model::Play;

/// Playbooks that can be chosen: those that come with windlass, then those of the folder
/// `playbooks` here that are others.
pub fn list() -> Vec<Play> {
    let mut names: Vec<String> = playbook::shipped()
        .iter()
        .map(|shipped| shipped.name.to_owned())
        .collect();
    let own: BTreeSet<String> = std::fs::read_dir(Path::new("playbooks"))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            name.strip_suffix(".toml")
                .is_some_and(|stem| !names.iter().any(|known| known == stem))
        })
        .take(200)
        .collect();
    names.extend(own.into_iter().map(|name| format!("playbooks/{name}")));
    names.into_iter().map(listed).collect()
}

fn listed(name: String) -> Play {
    match playbook::load(&name) {
        Ok(loaded) => Play {
            name,
            vars: vars(&loaded),
            stops: loaded.tasks.iter().any(|task| task.kind.name() == "down"),
            about: loaded.about,
        },
        Err(error) => Play {
            name,
            about: format!("is invalid: {error}"),
            ..Play::default()
        },
    }
}

/// A playbook's own values as they are typed.
fn vars(playbook: &Playbook) -> Vec<(String, String)> {
    let own = playbook.scopes.first().map(|scope| &scope.own);
    own.into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), typed(value)))
        .collect()
}

/// A value as the text that stands for it on the command line.
fn typed(value: &Value) -> String {
    let plain = |value: &Value| match value {
        Value::String(text) if text.contains([',', '[']) || text.trim() != text => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    };
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if !items.is_empty() => {
            let all: Option<Vec<String>> = items.iter().map(plain).collect();
            all.map_or_else(|| value.to_string(), |all| all.join(","))
        }
        _ => value.to_string(),
    }
}

/// Runs one, with these values in place of its own.
pub async fn play(name: &str, vars: Vec<(String, String)>, context: &Context) -> Done {
    let command = format!("playbook run {name}");
    let prepared = playbook::load(name)
        .map_err(|error| error.failure())
        .and_then(|loaded| {
            let options = playbook::Options {
                vars,
                ..playbook::Options::default()
            };
            playbook::prepare(context, loaded, options)
        });
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => {
            started(&command, Vec::new(), Vec::new(), context);
            return (Map::new(), Some(failure));
        }
    };
    started(&command, prepared.hosts(), prepared.tasks(), context);
    let outcome = prepared.run(context).await;
    (outcome.fields, outcome.failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_typed_as_the_command_line_takes_it() {
        let table = [
            (json!("smollm2"), "smollm2"),
            (json!(4096), "4096"),
            (json!(false), "false"),
            (json!([1, 2, 4]), "1,2,4"),
            (json!(["a", "b"]), "a,b"),
            (json!(["a,b"]), "[\"a,b\"]"),
            (json!([]), "[]"),
            (json!({"a": 1}), "{\"a\":1}"),
        ];
        for (value, wanted) in table {
            assert_eq!(typed(&value), wanted);
            // What is shown as the value that is there gives this value.
            let playbook = Playbook {
                scopes: vec![playbook::model::VarScope {
                    own: [("v".to_owned(), value.clone())].into_iter().collect(),
                    ..playbook::model::VarScope::default()
                }],
                ..playbook::load("benchmark").unwrap()
            };
            let given = [("v".to_owned(), typed(&value))];
            let values = playbook::choice::values(&playbook, &given).unwrap();
            assert_eq!(values[0]["v"], value);
        }
    }

    #[test]
    fn of_the_shipped_playbooks_teardown_stops_what_runs() {
        for name in ["candle-pipeline", "benchmark", "teardown"] {
            let play = listed(name.to_owned());
            assert_eq!(play.stops, name == "teardown");
            assert!(!play.vars.is_empty());
        }
    }
}
