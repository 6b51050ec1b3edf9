//! Readers of the event stream: plain lines, JSON lines, the journal. Must not know who emits.
//!
//! A reader is a value with [`Reader::take`], fed by a thread of its own from a mailbox; which one
//! shows a run is one match in [`show`].

pub mod journal;
pub mod json;
pub mod plain;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::event::{Bus, Command, Envelope, Mailbox};

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
    let reader: Box<dyn Reader> = match how {
        Show::Plain(style) => Box::new(plain::Plain::new(
            style,
            bus.masks(),
            io::stdout(),
            io::stderr(),
        )),
        Show::Json => Box::new(json::JsonLines::new(bus.masks(), io::stdout())),
    };
    follow("show", bus.subscribe(), reader, lost)
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

/// A size for people, e.g. `48.1 MB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = UNITS[0];
    for next in UNITS.into_iter().skip(1) {
        // 999.95 would be shown as 1000.0.
        if value < 999.95 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// Seconds for people, e.g. `0.4 s`, `2m05s`.
pub fn seconds(seconds: f64) -> String {
    if seconds < 0.0005 {
        "0 ms".to_owned()
    } else if seconds < 0.9995 {
        format!("{:.0} ms", seconds * 1000.0)
    } else if seconds < 59.95 {
        format!("{seconds:.1} s")
    } else {
        let whole = seconds.round() as u64;
        format!("{}m{:02}s", whole / 60, whole % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_keep_one_shape_at_the_borders() {
        let sizes = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (98_362_432, "98.4 MB"),
            (205_000_000_000, "205.0 GB"),
        ];
        for (bytes, wanted) in sizes {
            assert_eq!(size(bytes), wanted);
        }
        let times = [
            (0.0, "0 ms"),
            (0.0123, "12 ms"),
            (0.9996, "1.0 s"),
            (59.94, "59.9 s"),
            (59.96, "1m00s"),
            (125.0, "2m05s"),
        ];
        for (value, wanted) in times {
            assert_eq!(seconds(value), wanted);
        }
    }
}
