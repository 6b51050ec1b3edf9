//! Every event as one JSON object a line. For scripts; the last line is the summary.

use std::io::{self, Write};

use super::Reader;
use crate::event::{Envelope, Masks};

/// The reader.
#[derive(Debug)]
pub struct JsonLines<W> {
    masks: Masks,
    out: W,
}

impl<W: Write> JsonLines<W> {
    /// Writes to `out`.
    pub fn new(masks: Masks, out: W) -> Self {
        Self { masks, out }
    }
}

/// The event as one line, secrets masked.
///
/// # Errors
/// When a number cannot be written as JSON.
pub fn line(masks: &Masks, envelope: &Envelope) -> io::Result<String> {
    let mut line = serde_json::to_string(envelope)?;
    // As values, the facts of hundreds of hosts take ten times the memory of their text.
    if masks.may_be_in(&line) {
        let mut value = serde_json::from_str(&line)?;
        masks.value(&mut value);
        line = value.to_string();
    }
    line.push('\n');
    Ok(line)
}

impl<W: Write + Send> Reader for JsonLines<W> {
    fn take(&mut self, envelope: &Envelope) -> io::Result<()> {
        self.out
            .write_all(line(&self.masks, envelope)?.as_bytes())?;
        self.out.flush()
    }
}
