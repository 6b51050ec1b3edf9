//! A playbook as it is run. Must not know TOML, nor hosts.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::expression::{Condition, Template};
use super::kinds::Kind;

/// A playbook, its included files among it.
#[derive(Clone, Debug)]
pub struct Playbook {
    /// Its name.
    pub name: String,
    /// What it is for, in a sentence.
    pub about: String,
    /// The file, or the name of a shipped one.
    pub source: String,
    /// Folder that relative files are taken from.
    pub folder: PathBuf,
    /// Where values come from: the playbook's own first, then those of included files.
    pub scopes: Vec<VarScope>,
    /// Tasks in the order in which they run.
    pub tasks: Vec<Task>,
    /// SHA-256 of the text and of all included ones, in hexadecimal.
    pub digest: String,
    /// The text.
    pub text: String,
}

/// The `vars` that some tasks see.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VarScope {
    /// Scope of the file that included this one.
    pub outer: Option<usize>,
    /// Values as the file has them.
    pub own: Map<String, Value>,
    /// Values that the including task gives, over those; texts in them may use the outer scope's.
    pub given: Vec<(String, Template)>,
}

/// A place in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, or the name of a playbook that comes with windlass.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// One task.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name, unique in the playbook.
    pub name: String,
    /// Selector of its hosts; it may use `vars`.
    pub hosts: Template,
    /// What it does.
    pub kind: &'static dyn Kind,
    /// With what.
    pub arguments: Vec<(String, Template)>,
    /// Conditions, all of which must hold on a host.
    pub when: Vec<Condition>,
    /// Where each of them stands.
    pub when_at: Vec<Place>,
    /// Name under which its results are known to later tasks.
    pub register: Option<String>,
    /// Words by which it is chosen.
    pub tags: Vec<String>,
    /// How often it is tried again when it failed.
    pub retries: u32,
    /// Time between two tries.
    pub delay: Duration,
    /// Most time of one try.
    pub timeout: Option<Duration>,
    /// Whether its output, differences and results are kept from every reader and file.
    pub no_log: bool,
    /// Hosts at a time; all when `None`.
    pub serial: Option<usize>,
    /// Hosts that may fail before the run ends.
    pub max_fail: Option<usize>,
    /// Index of the values it sees.
    pub scope: usize,
    /// Folder that its relative files are taken from; `None` for those of a shipped playbook.
    pub folder: Option<PathBuf>,
    /// Where it begins.
    pub at: Place,
}
