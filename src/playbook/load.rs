//! Playbooks as files: finding them, those that come with windlass, and the files they include.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use thiserror::Error;
use windlass_gguf::hex;

use super::model::{Playbook, Task, VarScope};
use super::parse::{self, Include, Item, Parsed, free_name};
use crate::event::{Failure, FailureKind};
use crate::inventory::Fault;
use crate::nearest::nearest;

/// Longest file read, in bytes.
const LONGEST: u64 = 1 << 20;
/// How deep files may include one another.
const DEEPEST: usize = 8;
/// Most tasks of a playbook with all that it includes.
const MOST_TASKS: usize = 10_000;
/// How a file's name ends.
const ENDING: &str = ".toml";

/// A playbook that comes with windlass.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

const SHIPPED: [Shipped; 7] = [
    Shipped {
        name: "candle-pipeline",
        text: include_str!("../../playbooks/candle-pipeline.toml"),
    },
    Shipped {
        name: "gpu-memory",
        text: include_str!("../../playbooks/gpu-memory.toml"),
    },
    Shipped {
        name: "network",
        text: include_str!("../../playbooks/network.toml"),
    },
    Shipped {
        name: "benchmark",
        text: include_str!("../../playbooks/benchmark.toml"),
    },
    Shipped {
        name: "verify",
        text: include_str!("../../playbooks/verify.toml"),
    },
    Shipped {
        name: "clone-os",
        text: include_str!("../../playbooks/clone-os.toml"),
    },
    Shipped {
        name: "teardown",
        text: include_str!("../../playbooks/teardown.toml"),
    },
];

/// The playbooks that come with windlass.
pub fn shipped() -> &'static [Shipped] {
    &SHIPPED
}

/// Why there is no playbook.
#[derive(Debug, Error)]
pub enum LoadError {
    /// None of this name.
    #[error("there is no playbook \"{name}\": {}", none(.nearest))]
    None {
        /// What was asked for.
        name: String,
        /// The nearest shipped one.
        nearest: Option<String>,
    },
    /// It cannot be read.
    #[error("the playbook {path} cannot be read: {reason}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// It, or a file it includes, is invalid.
    #[error("{}", lines(.0))]
    Faults(Vec<(String, Fault)>),
}

fn none(nearest: &Option<String>) -> String {
    let offered = nearest
        .as_ref()
        .map(|name| format!(", the nearest is \"{name}\""))
        .unwrap_or_default();
    format!(
        "it is no file, and none that comes with windlass has that name (`windlass playbook list` shows them{offered})"
    )
}

fn lines(faults: &[(String, Fault)]) -> String {
    let all: Vec<String> = faults
        .iter()
        .map(|(file, fault)| format!("{file}:{fault}"))
        .collect();
    all.join("\n")
}

impl LoadError {
    /// As a run's failure; exit status 2.
    pub fn failure(&self) -> Failure {
        let kind = match self {
            Self::None { .. } => FailureKind::Usage,
            Self::Read { .. } | Self::Faults(_) => FailureKind::Config,
        };
        Failure::new(kind, self.to_string()).at("playbook")
    }

    /// The faults, for scripts: file, line, column, message, nearest.
    pub fn fields(&self) -> Value {
        match self {
            Self::Faults(faults) => faults
                .iter()
                .map(|(file, fault)| {
                    json!({
                        "file": file,
                        "line": fault.line,
                        "column": fault.column,
                        "message": fault.message,
                        "nearest": fault.nearest,
                    })
                })
                .collect(),
            _ => json!([]),
        }
    }
}

/// Where a text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    File(PathBuf),
    Shipped(&'static str),
}

impl Place {
    fn label(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Shipped(name) => (*name).to_owned(),
        }
    }

    fn folder(&self) -> Option<PathBuf> {
        match self {
            Self::File(path) => Some(match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
                _ => PathBuf::from("."),
            }),
            Self::Shipped(_) => None,
        }
    }
}

/// Loads a playbook, a file or one that comes with windlass, with all that it includes. A word
/// without a slash and without `.toml` names a shipped one before a file.
///
/// # Errors
/// When there is none, or all that is wrong with it.
pub fn load(what: &str) -> Result<Playbook, LoadError> {
    let (place, text) = find(what, None)?;
    let parsed = parse::parse(&text).map_err(|faults| of_place(&place, faults))?;
    let mut whole = Whole {
        digest: Sha256::new(),
        scopes: Vec::new(),
        tasks: Vec::new(),
        taken: BTreeSet::new(),
    };
    let name = parsed.name.clone().unwrap_or_else(|| plain_name(&place));
    let about = parsed.about.clone();
    let mut registered = BTreeSet::new();
    let mut above = Vec::new();
    whole.add(
        &place,
        &text,
        parsed,
        &Around::default(),
        &mut above,
        &mut registered,
    )?;
    let source = match &place {
        Place::File(path) => std::fs::canonicalize(path)
            .unwrap_or_else(|_| path.clone())
            .display()
            .to_string(),
        Place::Shipped(name) => (*name).to_owned(),
    };
    Ok(Playbook {
        name,
        about,
        source,
        folder: place.folder().unwrap_or_default(),
        scopes: whole.scopes,
        tasks: whole.tasks,
        digest: hex(&whole.digest.finalize()),
        text,
    })
}

fn plain_name(place: &Place) -> String {
    match place {
        Place::File(path) => path.file_stem().map_or_else(
            || "playbook".to_owned(),
            |stem| stem.to_string_lossy().into_owned(),
        ),
        Place::Shipped(name) => (*name).to_owned(),
    }
}

fn of_place(place: &Place, faults: Vec<Fault>) -> LoadError {
    let label = place.label();
    LoadError::Faults(
        faults
            .into_iter()
            .map(|fault| (label.clone(), fault))
            .collect(),
    )
}

/// A text by what it is called; files relative to `folder`.
fn find(what: &str, folder: Option<&Path>) -> Result<(Place, String), LoadError> {
    let is_word = !what.contains('/') && !what.ends_with(ENDING);
    if is_word && let Some(shipped) = SHIPPED.iter().find(|shipped| shipped.name == what) {
        return Ok((Place::Shipped(shipped.name), shipped.text.to_owned()));
    }
    let path = match folder {
        Some(folder) => folder.join(what),
        None => PathBuf::from(what),
    };
    if is_word && !path.is_file() {
        return Err(LoadError::None {
            name: what.to_owned(),
            nearest: nearest(what, SHIPPED.iter().map(|shipped| shipped.name)).map(str::to_owned),
        });
    }
    let text = read(&path)?;
    Ok((Place::File(path), text))
}

fn read(path: &Path) -> Result<String, LoadError> {
    let failed = |reason: String| LoadError::Read {
        path: path.display().to_string(),
        reason,
    };
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > LONGEST {
        return Err(failed("it is longer than 1 MiB".into()));
    }
    String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8: save it as UTF-8".into()))
}

/// What the including task says for the tasks of a file.
#[derive(Clone, Debug, Default)]
struct Around {
    include: Option<Include>,
    outer: Option<usize>,
}

/// The playbook as it is put together.
struct Whole {
    digest: Sha256,
    scopes: Vec<VarScope>,
    tasks: Vec<Task>,
    taken: BTreeSet<String>,
}

impl Whole {
    /// Adds a file's tasks. `above` are the files that led here, `registered` collects results.
    fn add(
        &mut self,
        place: &Place,
        text: &str,
        parsed: Parsed,
        around: &Around,
        above: &mut Vec<Place>,
        registered: &mut BTreeSet<String>,
    ) -> Result<(), LoadError> {
        self.digest.update((text.len() as u64).to_le_bytes());
        self.digest.update(text);
        let scope = self.scopes.len();
        let given = around.include.iter().flat_map(|include| &include.vars);
        self.scopes.push(VarScope {
            outer: around.outer,
            own: parsed.vars.clone(),
            given: given
                .map(|(name, template, _)| (name.clone(), template.clone()))
                .collect(),
        });
        above.push(place.clone());
        let mut included = BTreeSet::new();
        let mut faults = Vec::new();
        for (index, item) in parsed.items.into_iter().enumerate() {
            for pending in parsed.pending.iter().filter(|p| p.before == index) {
                if !included.contains(&pending.result) {
                    faults.push(pending.fault());
                }
            }
            match item {
                Item::Task(task) => {
                    registered.extend(task.register.clone());
                    let task = self.placed(*task, scope, place, around);
                    self.tasks.push(task);
                }
                Item::Include(include) => {
                    let before = registered.clone();
                    self.include(place, *include, scope, above, registered)?;
                    included.extend(registered.difference(&before).cloned());
                }
            }
            if self.tasks.len() > MOST_TASKS {
                return Err(LoadError::Read {
                    path: place.label(),
                    reason: format!("with what it includes it has more than {MOST_TASKS} tasks"),
                });
            }
        }
        above.pop();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(of_place(place, faults))
        }
    }

    /// A task as it stands among all others.
    fn placed(&mut self, mut task: Task, scope: usize, place: &Place, around: &Around) -> Task {
        task.scope = scope;
        task.folder = place.folder();
        let label = place.label();
        for at in task.when_at.iter_mut().chain([&mut task.at]) {
            at.file.clone_from(&label);
        }
        if let Some(include) = &around.include {
            if let Some(name) = &include.name {
                task.name = format!("{name}: {}", task.name);
            }
            let mut when = include.when.clone();
            when.append(&mut task.when);
            task.when = when;
            let mut when_at = include.when_at.clone();
            when_at.append(&mut task.when_at);
            task.when_at = when_at;
            task.tags.extend(include.tags.iter().cloned());
        }
        task.name = free_name(&task.name, &self.taken);
        self.taken.insert(task.name.clone());
        task
    }

    fn include(
        &mut self,
        place: &Place,
        include: Include,
        scope: usize,
        above: &mut Vec<Place>,
        registered: &mut BTreeSet<String>,
    ) -> Result<(), LoadError> {
        let fault = |(line, column): (usize, usize), message: String, nearest: Option<String>| {
            of_place(
                place,
                vec![Fault {
                    line,
                    column,
                    message,
                    nearest,
                }],
            )
        };
        let folder = place.folder();
        let (inner, text) = find(&include.file, folder.as_deref()).map_err(|error| {
            let nearest = match &error {
                LoadError::None { nearest, .. } => nearest.clone(),
                _ => None,
            };
            fault(include.place, error.to_string(), nearest)
        })?;
        if above.contains(&inner) || above.len() >= DEEPEST {
            return Err(fault(
                include.place,
                format!(
                    "{} includes itself, or files include one another more than {DEEPEST} deep",
                    inner.label()
                ),
                None,
            ));
        }
        let parsed = parse::parse(&text).map_err(|faults| of_place(&inner, faults))?;
        for (name, _, at) in &include.vars {
            if !parsed.vars.contains_key(name) {
                let nearest = nearest(name, parsed.vars.keys().map(String::as_str));
                let offered = nearest
                    .map(|near| format!("; the nearest is \"{near}\""))
                    .unwrap_or_default();
                return Err(fault(
                    *at,
                    format!(
                        "{} has no value \"{name}\" in its vars{offered}",
                        inner.label()
                    ),
                    nearest.map(str::to_owned),
                ));
            }
        }
        let mut own = parsed;
        if let Some(hosts) = &include.hosts {
            // Hosts of an include are those of its tasks that name none.
            for item in &mut own.items {
                match item {
                    Item::Task(task) if task.hosts == super::parse::all_hosts() => {
                        task.hosts = hosts.clone();
                    }
                    Item::Include(more) if more.hosts.is_none() => more.hosts = Some(hosts.clone()),
                    _ => {}
                }
            }
        }
        let mut include = include;
        for at in &mut include.when_at {
            at.file = place.label();
        }
        let around = Around {
            include: Some(include),
            outer: Some(scope),
        };
        self.add(&inner, &text, own, &around, above, registered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(files: &[(&str, &str)]) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let first = folder.path().join(files[0].0).display().to_string();
        (folder, first)
    }

    #[test]
    fn every_shipped_playbook_loads_and_is_found_by_its_name() {
        for shipped in shipped() {
            let playbook = load(shipped.name).unwrap_or_else(|error| panic!("{error}"));
            assert!(!playbook.tasks.is_empty() && !playbook.about.is_empty());
            assert_eq!(playbook.source, shipped.name);
        }
    }

    #[test]
    fn included_tasks_stand_in_the_include_s_place_with_its_conditions_tags_and_values() {
        let (_folder, first) = written(&[
            (
                "a.toml",
                "vars = { n = 3 }\n[[tasks]]\nassert = \"true\"\n[[tasks]]\nname = \"more\"\nwhen = \"vars.n > 1\"\ntags = [\"x\"]\nhosts = \"a*\"\ninclude = { file = \"b.toml\", vars = { m = \"{{ vars.n }}\" } }\n[[tasks]]\nassert = \"results.inner.changed\"\n",
            ),
            (
                "b.toml",
                "vars = { m = 1 }\n[[tasks]]\nregister = \"inner\"\ncommand = \"true {{ vars.m }}\"\n",
            ),
        ]);
        let playbook = load(&first).unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<&str> = playbook.tasks.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["assert", "more: command", "assert 2"]);
        let inner = &playbook.tasks[1];
        assert_eq!(inner.when.len(), 1);
        assert_eq!(inner.tags, ["x"]);
        assert_eq!(inner.hosts.literal(), Some("a*".into()));
        assert_eq!(playbook.scopes[inner.scope].outer, Some(0));
        assert_eq!(playbook.scopes[inner.scope].given.len(), 1);
    }

    #[test]
    fn faults_of_included_files_and_of_includes_name_file_and_place() {
        let table: [(&[(&str, &str)], &str); 4] = [
            (
                &[
                    ("a.toml", "[[tasks]]\ninclude = \"b.toml\"\n"),
                    ("b.toml", "[[tasks]]\nupp = {}\n"),
                ],
                "b.toml:2:1: unknown key \"upp\"",
            ),
            (
                &[("a.toml", "[[tasks]]\ninclude = \"a.toml\"\n")],
                "a.toml:2:11: ",
            ),
            (
                &[("a.toml", "[[tasks]]\ninclude = \"teerdown\"\n")],
                "the nearest is \"teardown\"",
            ),
            (
                &[
                    (
                        "a.toml",
                        "[[tasks]]\ninclude = { file = \"b.toml\", vars = { modle = 1 } }\n",
                    ),
                    (
                        "b.toml",
                        "vars = { model = 2 }\n[[tasks]]\nassert = \"true\"\n",
                    ),
                ],
                "a.toml:2:39: ",
            ),
        ];
        for (files, wanted) in table {
            let (_folder, first) = written(files);
            let error = load(&first).unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
            assert_eq!(error.failure().kind.exit().code(), 2);
        }
    }

    #[test]
    fn a_change_of_an_included_file_changes_the_digest() {
        let files = [
            ("a.toml", "[[tasks]]\ninclude = \"b.toml\"\n"),
            ("b.toml", "[[tasks]]\nassert = \"true\"\n"),
        ];
        let (folder, first) = written(&files);
        let before = load(&first).unwrap().digest;
        assert_eq!(load(&first).unwrap().digest, before);
        std::fs::write(
            folder.path().join("b.toml"),
            "[[tasks]]\nassert = \"1 < 2\"\n",
        )
        .unwrap();
        assert_ne!(load(&first).unwrap().digest, before);
    }

    #[test]
    fn a_name_that_is_no_playbook_comes_with_the_nearest() {
        let error = load("candle-pipelin").unwrap_err();
        assert!(error.to_string().contains("\"candle-pipeline\""), "{error}");
    }
}
