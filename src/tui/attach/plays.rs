//! Playbooks: which can be chosen, and running one.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Map;

use super::jobs::started;
use crate::deploy::remote::context::Context;
use crate::deploy::remote::up::Done;
use crate::playbook;

/// Playbooks that can be chosen: those that come with windlass, then those of the folder
/// `playbooks` here that are others.
pub fn list() -> Vec<(String, String)> {
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
    names
        .into_iter()
        .map(|name| {
            let about = match playbook::load(&name) {
                Ok(loaded) => loaded.about,
                Err(error) => format!("is invalid: {error}"),
            };
            (name, about)
        })
        .collect()
}

/// Runs one.
pub async fn play(name: &str, context: &Context) -> Done {
    let command = format!("playbook run {name}");
    let prepared = playbook::load(name)
        .map_err(|error| error.failure())
        .and_then(|loaded| playbook::prepare(context, loaded, playbook::Options::default()));
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
