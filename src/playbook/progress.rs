//! What a run has finished, kept in a file beside its journal from which it is resumed. One line per
//! task and host, added the moment it is finished: a run that is killed at any time has lost
//! nothing that it told. Must not know how tasks are run.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::event::{Failure, FailureKind, Masks, Status};
use crate::paths::{Paths, private_folder};

/// Version of the file's form.
const FORM: u32 = 1;
/// Longest file read, in bytes.
const LONGEST: u64 = 256 << 20;
/// Most runs that one went on from another.
const MOST_LINKS: usize = 1_000;

/// What a run is about; the file's first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the form.
    pub v: u32,
    /// Id of the run.
    pub run: String,
    /// Id of the first run of those that went on from one another; hosts know its marks.
    pub origin: String,
    /// The playbook, as it is loaded.
    pub playbook: String,
    /// Digest of the playbook's texts.
    pub digest: String,
    /// The inventory's file.
    pub inventory: PathBuf,
    /// `--limit`.
    pub limit: Option<String>,
    /// `--var`, as typed.
    pub vars: Vec<(String, String)>,
    /// `--tags`.
    pub tags: Vec<String>,
    /// `--skip-tags`.
    pub skip_tags: Vec<String>,
    /// `--start-at`.
    pub start_at: Option<String>,
}

/// A further line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// A task is finished on a host.
    Host {
        task: usize,
        host: String,
        kept: Kept,
    },
    /// Values of a task as a whole.
    Whole {
        task: usize,
        values: Map<String, Value>,
    },
    /// Another run goes on from here.
    ContinuedAs(String),
    /// All is finished.
    Complete,
}

/// What is kept of a task on a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// How it ended; never failed or unreachable.
    pub status: Status,
    /// Values for later tasks.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Value>,
}

/// What was finished, by task and host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finished {
    /// By index of the task, then host.
    pub hosts: BTreeMap<usize, BTreeMap<String, Kept>>,
    /// Values of tasks as a whole.
    pub whole: BTreeMap<usize, Map<String, Value>>,
}

/// The file of a run that is going on.
#[derive(Debug)]
pub struct Progress {
    file: File,
    masks: Masks,
    broken: Option<String>,
}

/// A file as it was read.
#[derive(Clone, Debug)]
pub struct Found {
    /// What the run was about.
    pub header: Header,
    /// What it finished.
    pub finished: Finished,
}

fn path(folder: &Path, run: &str) -> PathBuf {
    folder.join(format!("{run}.progress"))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A run's id as it may stand in a file's name.
fn is_id(run: &str) -> bool {
    !run.is_empty() && run.len() <= 64 && run.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

impl Header {
    /// The form that is written now.
    pub const FORM: u32 = FORM;
}

impl Progress {
    /// Begins the file of a run, with what an earlier one finished; then tells that one's file who
    /// goes on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(
        paths: &Paths,
        header: &Header,
        finished: &Finished,
        earlier: Option<&str>,
        masks: Masks,
    ) -> io::Result<Self> {
        let folder = paths.journals();
        private_folder(&folder).map_err(|error| named(&folder, &error))?;
        let at = path(&folder, &header.run);
        let partial = folder.join(format!("{}.progress.new", header.run));
        let mut text = line(header, &masks)?;
        for (task, hosts) in &finished.hosts {
            for (host, kept) in hosts {
                let (host, kept) = (host.clone(), kept.clone());
                text.push_str(&line(
                    &Line::Host {
                        task: *task,
                        host,
                        kept,
                    },
                    &masks,
                )?);
            }
        }
        for (task, values) in &finished.whole {
            let values = values.clone();
            text.push_str(&line(
                &Line::Whole {
                    task: *task,
                    values,
                },
                &masks,
            )?);
        }
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&partial)
            .map_err(|error| named(&partial, &error))?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_data())
            .and_then(|()| fs::rename(&partial, &at))
            .map_err(|error| named(&at, &error))?;
        // Renaming keeps the handle: what is added goes behind what was written.
        if let Some(earlier) = earlier.filter(|earlier| *earlier != header.run) {
            let at = path(&folder, earlier);
            let mut old = OpenOptions::new()
                .append(true)
                .open(&at)
                .map_err(|error| named(&at, &error))?;
            // The last line may have been cut off.
            let text = format!(
                "\n{}",
                line(&Line::ContinuedAs(header.run.clone()), &masks)?
            );
            old.write_all(text.as_bytes())
                .map_err(|error| named(&at, &error))?;
        }
        Ok(Self {
            file,
            masks,
            broken: None,
        })
    }

    /// Keeps that a task is finished on a host.
    pub fn host(&mut self, task: usize, host: &str, kept: &Kept) {
        self.add(&Line::Host {
            task,
            host: host.to_owned(),
            kept: kept.clone(),
        });
    }

    /// Keeps the values of a task as a whole.
    pub fn whole(&mut self, task: usize, values: &Map<String, Value>) {
        if !values.is_empty() {
            self.add(&Line::Whole {
                task,
                values: values.clone(),
            });
        }
    }

    /// Keeps that nothing is left.
    pub fn complete(&mut self) {
        self.add(&Line::Complete);
    }

    /// Why it could not be written, the first time; told once.
    pub fn take_broken(&mut self) -> Option<String> {
        self.broken.take()
    }

    fn add(&mut self, added: &Line) {
        let written =
            line(added, &self.masks).and_then(|text| self.file.write_all(text.as_bytes()));
        if let Err(error) = written {
            self.broken.get_or_insert_with(|| error.to_string());
        }
    }
}

/// A line, secrets masked.
fn line(value: &impl Serialize, masks: &Masks) -> io::Result<String> {
    let mut value = serde_json::to_value(value)?;
    masks.value(&mut value);
    Ok(format!("{value}\n"))
}

/// Reads what is kept of a run, or of the one that went on from it.
///
/// # Errors
/// When nothing is kept, it is finished, or what is kept is not understood.
pub fn find(paths: &Paths, run: &str) -> Result<Found, Failure> {
    let usage = |message: String| Failure::new(FailureKind::Usage, message).at("resume");
    let folder = paths.journals();
    let mut run = run.to_owned();
    for _ in 0..MOST_LINKS {
        if !is_id(&run) {
            return Err(usage(format!("\"{run}\" is no id of a run")));
        }
        let at = path(&folder, &run);
        let text = read(&at).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => usage(format!(
                "nothing to resume is kept of a run {run} in {}: it was no playbook's, only a check, or not of this user",
                folder.display()
            )),
            _ => Failure::new(FailureKind::Io, format!("{}: {error}", at.display())).at("resume"),
        })?;
        let broken = |reason: String| {
            Failure::new(
                FailureKind::Config,
                format!(
                    "what is kept of run {run} in {} is not understood: {reason}",
                    at.display()
                ),
            )
            .at("resume")
        };
        let mut lines = text.lines();
        let header: Header = serde_json::from_str(lines.next().unwrap_or_default())
            .map_err(|error| broken(error.to_string()))?;
        if header.v != FORM {
            return Err(broken(format!(
                "it has form {}, this windlass knows {FORM}",
                header.v
            )));
        }
        let mut finished = Finished::default();
        let mut next = None;
        let mut complete = false;
        let mut bad = None;
        let last = lines.clone().count();
        for (index, text) in lines.enumerate() {
            if text.is_empty() {
                continue;
            }
            match serde_json::from_str(text) {
                Ok(Line::Host { task, host, kept }) => {
                    finished.hosts.entry(task).or_default().insert(host, kept);
                }
                Ok(Line::Whole { task, values }) => {
                    finished.whole.insert(task, values);
                }
                Ok(Line::ContinuedAs(run)) => next = Some(run),
                Ok(Line::Complete) => complete = true,
                // The last line of a run that was killed while it wrote.
                Err(_) if index + 1 == last => {}
                Err(error) => bad = bad.or_else(|| Some(format!("line {}: {error}", index + 2))),
            }
        }
        match (next, bad) {
            (Some(next), _) => run = next,
            (None, Some(reason)) => return Err(broken(reason)),
            (None, None) if complete => {
                return Err(usage(format!(
                    "run {run} is finished: nothing is left to resume"
                )));
            }
            (None, None) => return Ok(Found { header, finished }),
        }
    }
    Err(usage(format!("run {run} went on too often to be followed")))
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    fn paths(folder: &Path) -> Paths {
        Paths {
            config: folder.join("config"),
            data: folder.join("data"),
            cache: folder.join("cache"),
            state: folder.join("state"),
            runtime: folder.join("run"),
        }
    }

    fn header(run: &str) -> Header {
        Header {
            v: FORM,
            run: run.into(),
            origin: "a1".into(),
            playbook: "/p.toml".into(),
            digest: "0f".into(),
            inventory: "/i.toml".into(),
            limit: None,
            vars: vec![("token".into(), "hf_secret".into())],
            tags: vec![],
            skip_tags: vec![],
            start_at: None,
        }
    }

    fn kept(text: &str) -> Kept {
        Kept {
            status: Status::Changed,
            values: json!({"stdout": text}).as_object().unwrap().clone(),
        }
    }

    #[test]
    fn what_was_finished_is_found_again_without_secrets_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let paths = paths(folder.path());
        let masks = Masks::default();
        masks.add("hf_secret");
        let mut progress =
            Progress::begin(&paths, &header("a1"), &Finished::default(), None, masks).unwrap();
        progress.host(0, "h1", &kept("x hf_secret"));
        progress.whole(0, &json!({"n": 1}).as_object().unwrap().clone());
        progress.host(1, "h1", &kept("y"));
        let file = paths.journals().join("a1.progress");
        let text = fs::read_to_string(&file).unwrap();
        assert!(!text.contains("hf_secret"), "{text}");
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        // Cut off in the middle of a line, as by a kill.
        fs::write(&file, &text[..text.len() - 5]).unwrap();
        let found = find(&paths, "a1").unwrap();
        assert_eq!(found.finished.hosts.len(), 1);
        assert_eq!(found.finished.hosts[&0]["h1"], kept("x ••••"));
        assert_eq!(found.finished.whole[&0]["n"], 1);
    }

    #[test]
    fn a_run_that_went_on_is_followed_and_a_finished_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let paths = paths(folder.path());
        let begin = |run: &str, finished: &Finished, earlier: Option<&str>| {
            Progress::begin(&paths, &header(run), finished, earlier, Masks::default()).unwrap()
        };
        let mut first = begin("a1", &Finished::default(), None);
        first.host(0, "h1", &kept("x"));
        drop(first);
        let found = find(&paths, "a1").unwrap();
        let mut second = begin("b2", &found.finished, Some("a1"));
        second.host(1, "h1", &kept("y"));
        for id in ["a1", "b2"] {
            let found = find(&paths, id).unwrap();
            assert_eq!(found.header.run, "b2");
            assert_eq!(found.finished.hosts.len(), 2, "{id}");
        }
        second.complete();
        let failure = find(&paths, "a1").unwrap_err();
        assert!(failure.message.contains("finished"), "{failure}");
        assert_eq!(failure.kind.exit().code(), 2);
        for id in ["c3", "../a1", ""] {
            assert_eq!(find(&paths, id).unwrap_err().kind.exit().code(), 2, "{id}");
        }
    }
}
