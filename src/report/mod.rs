//! Readers of the event stream: plain lines, bars, JSON lines, the journal. Must not know who emits.
//!
//! A reader is a value with [`Reader::take`], fed by a thread of its own from a mailbox; which one
//! shows a run is one match in [`show`].

pub mod bars;
pub mod journal;
pub mod json;
pub mod plain;
mod recap;
pub mod replay;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::event::{Bus, Command, Envelope, Mailbox, Masks};

/// Something that shows or keeps events.
pub trait Reader: Send {
    /// Takes the next event.
    ///
    /// # Errors
    /// When it cannot be written. The reader is not asked again.
    fn take(&mut self, envelope: &Envelope) -> io::Result<()>;
}

/// How a run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Lines for people on stderr, data on stdout.
    Plain(plain::Style),
    /// The same with bars on stderr, which is a terminal.
    Bars(plain::Style),
    /// Every event as a line on stdout.
    Json,
}

/// Starts the reader that shows the run.
///
/// `lost` is called when nobody can read what it writes; the events go on being taken.
pub fn show(
    how: Show,
    bus: &Bus,
    lost: impl Fn(Command) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    follow("show", bus.subscribe(), reader(how, &bus.masks()), lost)
}

/// The reader that shows events in this way on this process's own output.
pub fn reader(how: Show, masks: &Masks) -> Box<dyn Reader> {
    let lines = |style| {
        Box::new(plain::Plain::new(
            style,
            masks.clone(),
            io::stdout(),
            io::stderr(),
        ))
    };
    match how {
        Show::Plain(style) => lines(style),
        Show::Bars(style) => Box::new(bars::Bars::new(
            lines(style),
            masks.clone(),
            indicatif::MultiProgress::new(),
        )),
        Show::Json => Box::new(json::JsonLines::new(masks.clone(), io::stdout())),
    }
}

/// Feeds a reader from a mailbox, on a thread of its own, until the stream ends.
pub fn follow(
    name: &str,
    mailbox: Mailbox,
    mut reader: Box<dyn Reader>,
    lost: impl Fn(Command) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let label = name.to_owned();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let mut broken = false;
            while let Some(envelope) = mailbox.next() {
                let envelope: Arc<Envelope> = envelope;
                if !broken && let Err(error) = reader.take(&envelope) {
                    broken = true;
                    lost(Command::OutputLost {
                        reason: format!("{label}: {error}"),
                    });
                }
            }
        })
}
