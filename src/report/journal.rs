//! Keeps a run's events as a file, one JSON object a line, without prompt and answer text unless
//! asked, without secrets always.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use serde_json::Value;

use super::{Reader, follow, json};
use crate::event::{Bus, Command, Envelope, Event, Level, Masks};
use crate::paths::private_folder;

/// The reader.
#[derive(Debug)]
pub struct Journal {
    masks: Masks,
    with_text: bool,
    path: PathBuf,
    out: BufWriter<File>,
}

impl Journal {
    /// Begins the file `RUN.ndjson` in `folder`, readable by its owner alone.
    ///
    /// # Errors
    /// When folder or file cannot be made, or the file is there already.
    pub fn create(folder: &Path, run: &str, masks: Masks, with_text: bool) -> io::Result<Self> {
        let named = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        private_folder(folder).map_err(|error| named(folder, error))?;
        let path = folder.join(format!("{run}.ndjson"));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| named(&path, error))?;
        Ok(Self {
            masks,
            with_text,
            path,
            out: BufWriter::new(file),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Keeps a journal of a run from here on, on a thread that ends with the stream of events. A run
/// goes on without one, and says so.
pub fn keep(bus: &Bus, folder: &Path, with_text: bool) -> Option<JoinHandle<()>> {
    // Subscribed first: what is said while the file is opened belongs in it.
    let mailbox = bus.subscribe();
    let emitter = bus.emitter();
    let warn = move |reason: String| {
        let words = format!("this run is kept in no journal: {reason}");
        emitter.log(Level::Warn, words);
    };
    let journal = Journal::create(folder, bus.run(), bus.masks(), with_text);
    let started = journal.and_then(|journal| {
        let warn = warn.clone();
        follow("journal", mailbox, Box::new(journal), move |command| {
            if let Command::OutputLost { reason } = command {
                warn(reason);
            }
        })
    });
    started.map_err(|error| warn(error.to_string())).ok()
}

/// Fields of requests and summaries that hold prompt or answer.
const TEXT_FIELDS: [&str; 2] = ["prompt", "text"];

/// The same of a chat's summary, once for each turn.
const TURNS: &str = "turns";

/// Whether an event has prompt or answer text.
fn has_text(event: &Event) -> bool {
    match event {
        Event::Tokens { .. } | Event::Request { .. } => true,
        Event::Summary(summary) => {
            let mut names = TEXT_FIELDS.iter().chain([&TURNS]);
            names.any(|name| summary.fields.contains_key(*name))
        }
        _ => false,
    }
}

/// Replaces prompt and answer text by its length, so that an event keeps its shape.
fn omit_text(value: &mut Value) {
    let omit = |of: &mut Value| {
        for name in TEXT_FIELDS {
            if let Some(Value::String(text)) = of.get_mut(name) {
                *text = format!("({} bytes)", text.len());
            }
        }
    };
    omit(value);
    if let Some(Value::Array(turns)) = value.get_mut(TURNS) {
        turns.iter_mut().for_each(omit);
    }
}

impl Reader for Journal {
    fn take(&mut self, envelope: &Envelope) -> io::Result<()> {
        if !self.with_text && has_text(&envelope.event) {
            let mut value = serde_json::to_value(envelope)?;
            omit_text(&mut value);
            self.masks.value(&mut value);
            writeln!(self.out, "{value}")?;
        } else {
            let line = json::line(&self.masks, envelope)?;
            self.out.write_all(line.as_bytes())?;
        }
        // Text and progress may wait in the buffer; what matters after a crash may not.
        match envelope.event {
            Event::Tokens { .. } | Event::Transfer { .. } | Event::Telemetry(_) => Ok(()),
            _ => self.out.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Bus, Level, Packed, Scope, Summary};
    use std::os::unix::fs::PermissionsExt;

    fn journal(with_text: bool) -> (String, u32) {
        let folder = tempfile::tempdir().unwrap();
        let bus = Bus::new("0badcafe");
        let mailbox = bus.subscribe();
        let emitter = bus.emitter();
        bus.masks().add("hf_secret");
        emitter.log(Level::Info, "sent hf_secret");
        emitter.emit(
            Scope::request("a"),
            Event::Tokens {
                text: "answer".into(),
                count: 1,
                at: 1.0,
            },
        );
        let mut fields = serde_json::Map::new();
        fields.insert("text".into(), "answer".into());
        fields.insert("prompt".into(), "question".into());
        let turn = serde_json::json!({"prompt": "second question", "text": "second answer"});
        fields.insert("turns".into(), vec![turn].into());
        fields.insert("tokens".into(), 1.into());
        emitter.emit(
            Scope::run(),
            Event::Summary(Box::new(Summary {
                command: "demo".into(),
                exit: 0,
                seconds: 0.0,
                hosts: bus.hosts(),
                error: None,
                packed: Packed::default(),
                fields,
            })),
        );
        let mut journal =
            Journal::create(folder.path(), bus.run(), bus.masks(), with_text).unwrap();
        for envelope in mailbox.drain() {
            journal.take(&envelope).unwrap();
        }
        let path = journal.path().to_owned();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        (std::fs::read_to_string(path).unwrap(), mode & 0o777)
    }

    #[test]
    fn prompt_answer_and_secrets_stay_out_of_the_file() {
        let (text, mode) = journal(false);
        assert_eq!(mode, 0o600);
        assert_eq!(text.lines().count(), 3);
        for hidden in ["hf_secret", "answer", "question"] {
            assert!(!text.contains(hidden), "{hidden} in {text}");
        }
        assert!(text.contains("\"prompt\":\"(8 bytes)\""));
        assert!(text.contains("\"tokens\":1"));
        let second = text.lines().nth(1).unwrap();
        assert!(serde_json::from_str::<Envelope>(second).is_ok());
    }

    #[test]
    fn text_is_kept_when_asked_but_secrets_never() {
        let (text, _) = journal(true);
        assert!(text.contains("answer") && text.contains("question"));
        assert!(!text.contains("hf_secret"));
    }
}
