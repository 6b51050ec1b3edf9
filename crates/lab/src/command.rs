//! Runs the machine's own tools and says what went wrong.

use std::fmt;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What went wrong, in one sentence or with the output of the tool that failed.
#[derive(Clone, Debug)]
pub struct LabError(pub String);

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LabError {}

/// A result of the lab.
pub type Result<T> = std::result::Result<T, LabError>;

/// An error made from a text.
pub fn wrong<T>(text: impl Into<String>) -> Result<T> {
    Err(LabError(text.into()))
}

/// Names what was being done when the operating system said no.
pub trait Context<T> {
    /// The value, or an error that begins with `what`.
    fn during(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn during(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| LabError(format!("{what}: {error}")))
    }
}

/// Runs a tool that must succeed and returns what it printed.
pub fn run(program: &str, arguments: &[&str]) -> Result<String> {
    feed(program, arguments, "")
}

/// The same with text on its stdin.
pub fn feed(program: &str, arguments: &[&str], input: &str) -> Result<String> {
    let line = format!("{program} {}", arguments.join(" "));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .during(&line)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that ends early tells why by itself.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().during(&line)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let input = if input.is_empty() {
        String::new()
    } else {
        format!("\ngiven:\n{input}")
    };
    wrong(format!(
        "{line}: {}: {}{input}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

/// Looks again and again until `ready` returns a value; `None` after `limit`.
pub fn until<T>(limit: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = ready() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}
