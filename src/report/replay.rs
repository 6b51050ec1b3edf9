//! Reads a run's journal back as the events it was. Must not know how they are shown.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::event::{Envelope, SCHEMA};

/// Longest line that is read. Events are far shorter; a summary may hold a long answer.
const LONGEST_LINE: u64 = 64 << 20;

/// Why a journal cannot be read.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is no event.
    #[error("{path}, line {line}: no event of a run: {reason}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Which, from 1.
        line: u64,
        /// Why.
        reason: String,
    },
    /// Written by a later version.
    #[error(
        "{path}, line {line}: events of version {found}, this program reads {SCHEMA}: use the windlass that wrote them"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Which, from 1.
        line: u64,
        /// Version of the event.
        found: u32,
    },
}

/// The events of a journal, in order. A last line that was cut off in the middle of writing ends
/// them without an error.
#[derive(Debug)]
pub struct JournalEvents {
    path: PathBuf,
    lines: BufReader<File>,
    at: u64,
    ended: bool,
}

impl JournalEvents {
    /// Opens a journal.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, ReplayError> {
        let file = File::open(path).map_err(|source| ReplayError::File {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            lines: BufReader::new(file),
            at: 0,
            ended: false,
        })
    }

    fn next_line(&mut self) -> Result<Option<Envelope>, ReplayError> {
        loop {
            let mut line = Vec::new();
            let mut limited = io::Read::take(&mut self.lines, LONGEST_LINE);
            limited
                .read_until(b'\n', &mut line)
                .map_err(|source| ReplayError::File {
                    path: self.path.clone(),
                    source,
                })?;
            if line.is_empty() {
                return Ok(None);
            }
            self.at += 1;
            let whole = line.ends_with(b"\n");
            if line.trim_ascii().is_empty() {
                continue;
            }
            let reason = match serde_json::from_slice::<Envelope>(&line) {
                Ok(envelope) if envelope.v == SCHEMA => return Ok(Some(envelope)),
                Ok(envelope) => {
                    return Err(ReplayError::Version {
                        path: self.path.clone(),
                        line: self.at,
                        found: envelope.v,
                    });
                }
                // The process was killed while it wrote.
                Err(_) if !whole && (line.len() as u64) < LONGEST_LINE => return Ok(None),
                Err(error) => error.to_string(),
            };
            return Err(ReplayError::Line {
                path: self.path.clone(),
                line: self.at,
                reason,
            });
        }
    }
}

impl Iterator for JournalEvents {
    type Item = Result<Envelope, ReplayError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_line().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Bus, Level};
    use std::io::Write;

    fn journal(text: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        file
    }

    fn line(message: &str) -> String {
        let bus = Bus::new("7f3a");
        let mailbox = bus.subscribe();
        bus.emitter().log(Level::Info, message);
        format!(
            "{}\n",
            serde_json::to_string(mailbox.drain()[0].as_ref()).unwrap()
        )
    }

    #[test]
    fn a_journal_cut_off_in_the_middle_of_a_line_gives_what_is_whole() {
        let text = format!("{}{}", line("one"), line("two"));
        let file = journal(&text.as_bytes()[..text.len() - 9]);
        let events: Vec<_> = JournalEvents::open(file.path()).unwrap().collect();
        assert_eq!(events.len(), 1);
        assert!(events[0].is_ok());
    }

    #[test]
    fn a_line_that_is_no_event_and_a_later_version_are_named_with_file_and_line() {
        let other = line("two").replacen("\"v\":1", "\"v\":2", 1);
        for (second, wanted) in [("{}\n", "line 2: no event"), (other.as_str(), "version 2")] {
            let file = journal(format!("{}{second}", line("one")).as_bytes());
            let events: Vec<_> = JournalEvents::open(file.path()).unwrap().collect();
            let error = events.last().unwrap().as_ref().unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
            assert!(error.contains(&file.path().display().to_string()));
            assert_eq!(events.len(), 2);
        }
    }
}
