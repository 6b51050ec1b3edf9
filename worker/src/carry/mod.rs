//! `carry`: a program's output on one host becomes a program's input on another, over mutual TLS with
//! keys of this one stream; and reading a tree of files to the last byte, to compare two of them.
//!
//! - [`give`], [`take`]: the two ends. A connection that breaks is made anew, and the stream goes on
//!   where the taking end is.
//! - [`tree`]: the files of one file system, in an order that is always the same.
//! - [`read`]: digests of them.
//!
//! Must not know what is copied nor why.

pub mod give;
pub mod read;
pub mod take;
pub mod tree;

use std::io::{self, BufRead, Read, Write};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;
use windlass_wire::carry::MAX_FRAME;

use crate::net::secure::SecureWriter;

/// Most lines kept of what a program complains of.
const LINES: usize = 20;
/// Most bytes of such a line.
const LINE: usize = 500;

/// Reads the order on the first line of the input, then watches the input from a thread: its end ends
/// this process, and with it all that hangs on its pipes.
///
/// # Errors
/// When the order cannot be read.
pub fn order<T: DeserializeOwned>(mut input: impl BufRead + Send + 'static) -> io::Result<T> {
    let order = windlass_wire::host::read_line(&mut input)?
        .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    std::thread::Builder::new().spawn(move || {
        let _ = io::copy(&mut input, &mut io::sink());
        std::process::exit(windlass_wire::exit::FAILED);
    })?;
    Ok(order)
}

/// Reads a frame into `payload`; its kind.
fn read_frame(from: &mut impl Read, payload: &mut Vec<u8>) -> io::Result<u8> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let [kind, length @ ..] = head;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > MAX_FRAME {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the other end says what is no frame",
        ));
    }
    payload.resize(length, 0);
    from.read_exact(payload)?;
    Ok(kind)
}

/// Writes a frame.
fn write_frame(to: &mut SecureWriter, kind: u8, parts: &[&[u8]]) -> io::Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length).map_err(io::Error::other)?;
    let mut head = vec![kind];
    head.extend(length.to_le_bytes());
    for part in parts {
        // One write for what is short.
        head.extend_from_slice(part);
    }
    to.write_all_parts(&[&head])
}

/// What a program complained of.
#[derive(Default)]
struct Said {
    /// The last lines.
    lines: Vec<String>,
    /// Whether one of all lines tells more than that a file changed or is gone.
    bad: bool,
}

/// Whether tar says so of a file that changed or vanished while it was read, in the words of `LC_ALL=C`.
fn of_change(line: &str) -> bool {
    line.starts_with("tar: Exiting with failure status")
        || line.starts_with("tar: ./")
            && [
                ": No such file or directory",
                ": file changed as we read it",
                ": File removed before we read it",
                ": socket ignored",
            ]
            .iter()
            .any(|end| line.ends_with(end))
        || line.starts_with("tar: ./") && line.contains(": File shrank by ")
}

/// A program that was started, and what it complains of.
struct Program {
    child: Child,
    said: Arc<Mutex<Said>>,
    listener: Option<std::thread::JoinHandle<()>>,
    name: String,
}

impl Program {
    /// Starts it.
    fn start(words: &[String], stdin: Stdio, stdout: Stdio) -> Result<Self, String> {
        let (name, arguments) = words.split_first().ok_or("no program is named")?;
        let mut child = Command::new(name)
            .args(arguments)
            .env("LC_ALL", "C")
            .stdin(stdin)
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{name} cannot be started: {error}"))?;
        let said: Arc<Mutex<Said>> = Arc::default();
        let listener = child.stderr.take().and_then(|stderr| {
            let said = said.clone();
            std::thread::Builder::new()
                .spawn(move || listen(stderr, &said))
                .ok()
        });
        Ok(Self {
            child,
            said,
            listener,
            name: name.clone(),
        })
    }

    /// Waits for its end; its status, or `None` when a signal ended it, and what it complained of.
    fn end(&mut self) -> (Option<i32>, Vec<String>) {
        let status = self.child.wait().ok().and_then(|status| status.code());
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        (status, said.lines.clone())
    }

    /// Whether all that it complained of is files that changed or vanished.
    fn only_changes(&self) -> bool {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        !said.lines.is_empty() && !said.bad
    }

    /// How it failed, in a sentence.
    fn failed(&self, status: Option<i32>, said: &[String]) -> String {
        let own = format!("{}: ", self.name);
        // The last line is tar's own summing up of what stands before it.
        let telling = said.iter().rev().find(|line| {
            !line.contains("Exiting with failure status") && !line.contains("is not recoverable")
        });
        // What is wrong with a disk is why much else fails after it.
        let why = said
            .iter()
            .find(|line| WHY.iter().any(|why| line.ends_with(why)));
        let telling = why.or(telling);
        match (telling, status) {
            (Some(line), _) => line.strip_prefix(&own).unwrap_or(line).to_owned(),
            (None, Some(status)) => format!("{} ended with status {status}", self.name),
            (None, None) => format!("{} was killed", self.name),
        }
    }

    /// Ends it.
    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a disk's own state makes programs say, in English.
const WHY: [&str; 4] = [
    "No space left on device",
    "Input/output error",
    "Read-only file system",
    "Disk quota exceeded",
];

fn listen(stderr: ChildStderr, said: &Mutex<Said>) {
    let mut reader = io::BufReader::new(stderr);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        match Read::take(&mut reader, 64 << 10).read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&bytes);
        let text: String = line
            .trim_end()
            .chars()
            .filter(|c| !c.is_control())
            .take(LINE)
            .collect();
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.bad |= !of_change(line.trim_end());
        if said.lines.len() >= LINES {
            // The first one is kept: it may be why.
            said.lines.remove(1);
        }
        said.lines.push(text);
    }
}

/// Says a message, or ends this process: nobody hears it any more.
fn tell<T: serde::Serialize>(output: &mut impl Write, message: &T) {
    if crate::host::say(output, message).is_err() {
        std::process::exit(windlass_wire::exit::FAILED);
    }
}

#[cfg(test)]
mod tests;
