//! `windlass doctor`: whether this machine has what windlass needs, without connecting anywhere and
//! without changing anything.

use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::arguments::Common;
use super::run::Run;
use super::table::table;
use crate::deploy::local::find_worker;
use crate::deploy::remote::program::Program;
use crate::event::{Exit, Failure, FailureKind};
use crate::figures::size;
use crate::inventory::{self, Inventory};
use crate::model::FetchOptions;
use crate::paths::Paths;
use crate::ssh::Options;

/// How a thing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// As it should be.
    Ok,
    /// Some commands will lack something.
    Note,
    /// Commands will fail.
    Failed,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Failed => "FAILED",
        }
    }
}

/// One thing that was looked at.
struct Finding {
    what: &'static str,
    verdict: Verdict,
    message: String,
}

/// Looks, and says what was found and what to do.
pub fn doctor(common: &Common) -> Exit {
    let run = Run::start(common, "doctor");
    let findings = look(common);
    let failed: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Failed)
        .map(|finding| finding.what)
        .collect();
    let failure = (!failed.is_empty()).then(|| {
        Failure::new(
            FailureKind::Host,
            format!("this machine is not fit: {}", failed.join(", ")),
        )
        .at("doctor")
    });
    let rows: Vec<Vec<String>> = findings
        .iter()
        .map(|finding| {
            vec![
                finding.what.to_owned(),
                finding.verdict.word().to_owned(),
                finding.message.clone(),
            ]
        })
        .collect();
    let checks: Vec<Value> = findings
        .iter()
        .map(|finding| {
            json!({
                "check": finding.what,
                "verdict": finding.verdict.word().to_lowercase(),
                "message": finding.message,
            })
        })
        .collect();
    let mut fields = Map::new();
    fields.insert("checks".into(), checks.into());
    run.conclude(fields, &table(&["CHECK", "FOUND", ""], &rows, &[]), failure)
}

fn look(common: &Common) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |what, verdict, message: String| {
        findings.push(Finding {
            what,
            verdict,
            message,
        });
    };
    match find_worker(
        std::env::var_os("WINDLASS_WORKER")
            .as_deref()
            .map(Path::new),
    ) {
        Err(failure) => add("worker", Verdict::Failed, failure.message),
        Ok(path) => match Program::read(&path) {
            Ok(program) => add(
                "worker",
                Verdict::Ok,
                format!("{}, {}", path.display(), size(program.bytes)),
            ),
            Err(error) => add("worker", Verdict::Failed, error.to_string()),
        },
    }
    match Paths::of_user() {
        Err(error) => add("folders", Verdict::Failed, error.to_string()),
        Ok(paths) => {
            let refused: Vec<String> = paths
                .all()
                .into_iter()
                .filter_map(|(_, path)| unfit(path))
                .collect();
            if refused.is_empty() {
                let free = free_bytes(&paths.cache).map_or_else(String::new, |bytes| {
                    format!("; {} free in {}", size(bytes), paths.cache.display())
                });
                add("folders", Verdict::Ok, format!("can be written{free}"));
            } else {
                add("folders", Verdict::Failed, refused.join("; "));
            }
            let (verdict, message) = inventory_of(common, &paths);
            add("inventory", verdict, message);
        }
    }
    let ssh = Options::of_user(false);
    let (verdict, message) = keys(&ssh);
    add("ssh keys", verdict, message);
    let (verdict, message) = known_hosts(&ssh.home.join(".ssh/known_hosts"));
    add("known hosts", verdict, message);
    add("models", Verdict::Ok, models());
    let (verdict, message) = terminal();
    add("terminal", verdict, message);
    findings
}

/// Why a folder that is there cannot be used; one that is not there is made when needed.
fn unfit(path: &Path) -> Option<String> {
    let nearest = path.ancestors().find(|above| above.exists())?;
    if !nearest.is_dir() {
        return Some(format!("{} is no folder: move it away", nearest.display()));
    }
    // Access by this process, which the bits of the mode alone do not tell.
    let access = rustix::fs::access(
        nearest,
        rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
    );
    access.err().map(|error| {
        format!(
            "{} cannot be written ({error}): make it yours, or set XDG_*_HOME to a folder that is",
            nearest.display()
        )
    })
}

fn free_bytes(path: &Path) -> Option<u64> {
    let nearest = path.ancestors().find(|above| above.exists())?;
    let found = rustix::fs::statvfs(nearest).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

fn inventory_of(common: &Common, paths: &Paths) -> (Verdict, String) {
    match inventory::file::find(common.inventory.as_deref(), paths) {
        Err(error) => {
            // Without one only the demo and commands on this machine work; one that was named must be.
            let verdict = if common.inventory.is_some() {
                Verdict::Failed
            } else {
                Verdict::Note
            };
            (verdict, error.failure().message)
        }
        Ok((path, _)) => match Inventory::load(Some(&path), paths) {
            Ok(inventory) => (
                Verdict::Ok,
                format!("{}, {} hosts", path.display(), inventory.hosts.len()),
            ),
            Err(error) => (Verdict::Failed, error.failure().message),
        },
    }
}

fn keys(ssh: &Options) -> (Verdict, String) {
    let agent =
        ssh.agent.as_deref().map(
            |socket| match std::os::unix::net::UnixStream::connect(socket) {
                Ok(_) => "an agent answers".to_owned(),
                Err(error) => format!(
                    "the agent at {} does not answer ({error})",
                    socket.display()
                ),
            },
        );
    let files: Vec<&str> = ["id_ed25519", "id_ecdsa", "id_rsa"]
        .into_iter()
        .filter(|name| ssh.home.join(".ssh").join(name).is_file())
        .collect();
    let open: Vec<&str> = files
        .iter()
        .copied()
        .filter(|name| {
            fs::metadata(ssh.home.join(".ssh").join(name))
                .is_ok_and(|meta| meta.mode() & 0o077 != 0)
        })
        .collect();
    let mut parts: Vec<String> = agent.iter().cloned().collect();
    if !files.is_empty() {
        parts.push(format!(
            "{} in {}/.ssh",
            files.join(", "),
            ssh.home.display()
        ));
    }
    if let [first, ..] = open.as_slice() {
        return (
            Verdict::Note,
            format!(
                "others may read {first}: chmod 600 {}/.ssh/{first}",
                ssh.home.display()
            ),
        );
    }
    if parts.is_empty() {
        return (
            Verdict::Note,
            "no agent and no key: make one with `ssh-keygen -t ed25519`, or give `ssh.password` in the inventory".to_owned(),
        );
    }
    (Verdict::Ok, parts.join("; "))
}

fn known_hosts(path: &Path) -> (Verdict, String) {
    match fs::read(path) {
        Ok(text) => {
            let lines = text
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.trim_ascii().is_empty() && !line.starts_with(b"#"))
                .count();
            (Verdict::Ok, format!("{}, {lines} lines", path.display()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => (
            Verdict::Note,
            format!(
                "{} is not there: every host is unknown at first (windlass inventory trust HOST)",
                path.display()
            ),
        ),
        Err(error) => (
            Verdict::Failed,
            format!(
                "{} cannot be read ({error}): no host can be verified",
                path.display()
            ),
        ),
    }
}

fn models() -> String {
    let folders = FetchOptions::from_env().folders;
    format!("kept in {}", folders.hub.display())
}

fn terminal() -> (Verdict, String) {
    if !io::stdout().is_terminal() {
        return (Verdict::Ok, "stdout is no terminal: lines only".to_owned());
    }
    let term = std::env::var("TERM").unwrap_or_default();
    if term.is_empty() || term == "dumb" {
        return (
            Verdict::Note,
            format!("TERM is {term:?}: lines only; a terminal that can move its cursor shows more"),
        );
    }
    let utf8 = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|value| !value.is_empty())
        .is_some_and(|value| {
            let value = value.to_lowercase();
            value.contains("utf-8") || value.contains("utf8")
        });
    if utf8 {
        (Verdict::Ok, term)
    } else {
        (
            Verdict::Note,
            format!(
                "{term}, and the locale does not say UTF-8: set LANG=C.UTF-8 if characters look wrong"
            ),
        )
    }
}
