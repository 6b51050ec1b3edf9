//! A folder with an inventory of hosts that are all this machine, and a playbook.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::command_line::windlass;
use crate::support::json_lines;

/// The folder.
pub struct Desk {
    folder: tempfile::TempDir,
}

/// What a run came to.
pub struct Ran {
    /// Exit status.
    pub code: i32,
    /// All events.
    pub events: Vec<Value>,
    /// The summary.
    pub summary: Value,
}

impl Ran {
    pub fn of(output: &Output) -> Self {
        let events = json_lines(&output.stdout);
        let summary = events.last().cloned().unwrap_or(Value::Null);
        assert_eq!(
            summary["event"],
            "summary",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        crate::schema::check(&summary);
        let code = output.status.code().unwrap_or(-1);
        assert_eq!(summary["exit"], json!(code), "{summary}");
        Self {
            code,
            events,
            summary,
        }
    }

    /// Asserts that it ended with this status.
    pub fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{:#}", self.summary);
        self
    }

    /// How a task ended on a host.
    pub fn status(&self, task: &str, host: &str) -> &str {
        let tasks = self.summary["tasks"].as_array().unwrap();
        let found = tasks.iter().find(|one| one["name"] == task);
        found
            .and_then(|one| one["hosts"][host]["status"].as_str())
            .unwrap_or("none")
    }

    /// What it came to there.
    pub fn message(&self, task: &str, host: &str) -> &str {
        let tasks = self.summary["tasks"].as_array().unwrap();
        let found = tasks.iter().find(|one| one["name"] == task);
        found
            .and_then(|one| one["hosts"][host]["message"].as_str())
            .unwrap_or("")
    }

    pub fn error(&self) -> &str {
        self.summary["error"]["message"].as_str().unwrap_or("")
    }

    /// Events of this kind.
    pub fn of_kind(&self, kind: &str) -> Vec<&Value> {
        self.events
            .iter()
            .filter(|event| event["event"] == kind)
            .collect()
    }
}

impl Desk {
    /// With this playbook, `play.toml`, and hosts a, b, c.
    pub fn new(playbook: &str) -> Self {
        let desk = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let hosts = hosts(&["a", "b", "c"]);
        desk.write(
            "inventory.toml",
            &format!("[cluster]\nname = \"desk\"\n{hosts}"),
        );
        desk.write("play.toml", playbook);
        desk
    }

    /// Writes a file of the folder.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// A file of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Its text; empty when it is not there.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn home(&self) -> &Path {
        self.folder.path()
    }

    /// The program, at work in the folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = windlass(self.home(), arguments);
        command.current_dir(self.home());
        command
    }

    /// Runs it with `--json`.
    pub fn json(&self, arguments: &[&str]) -> Ran {
        let mut all = vec!["--json"];
        all.extend(arguments);
        Ran::of(&self.command(&all).output().unwrap())
    }

    /// Runs the playbook.
    pub fn run(&self, more: &[&str]) -> Ran {
        let mut all = vec!["playbook", "run", "play.toml"];
        all.extend(more);
        self.json(&all)
    }

    /// Starts the playbook, or resumes a run of it.
    pub fn start(&self, more: &[&str]) -> Going {
        let mut all = vec!["--json", "playbook", "run"];
        all.extend(more);
        Going::start(self.command(&all))
    }
}

/// Tables of hosts that are this machine.
fn hosts(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| {
            format!("[hosts.{name}]\nconnection = \"local\"\nvars = {{ own = \"{name}!\" }}\n")
        })
        .collect()
}

/// A run that is going on.
pub struct Going {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    /// Events so far.
    pub events: Vec<Value>,
}

impl Going {
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            lines,
            events: Vec::new(),
        }
    }

    /// Waits for an event; false when there is none any more.
    pub fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> bool {
        for line in self.lines.by_ref() {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let found = wanted(&event);
            self.events.push(event);
            if found {
                return true;
            }
        }
        false
    }

    /// Id of the run.
    pub fn id(&self) -> String {
        self.events[0]["run"].as_str().unwrap().to_owned()
    }

    /// Sends a signal, by its name.
    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .args([format!("-{signal}"), self.child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    /// Waits for its end; the exit status and the last event.
    pub fn end(mut self) -> (Option<i32>, Value) {
        self.until(|_| false);
        let status = self.child.wait().unwrap();
        (status.code(), self.events.pop().unwrap_or(Value::Null))
    }
}
