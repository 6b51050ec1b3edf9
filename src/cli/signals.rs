//! Signals become commands to the run. Must not know what is running.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedSender;

use crate::event::Command;

/// Sends a command for every signal that asks the program to end. Must be called within the
/// runtime; from then on these signals do nothing else.
///
/// # Errors
/// When the system refuses a handler.
pub fn follow(commands: UnboundedSender<Command>) -> io::Result<()> {
    let table = [
        (SignalKind::interrupt(), Command::Interrupt),
        (SignalKind::terminate(), Command::Terminate),
        // The terminal is gone.
        (SignalKind::hangup(), Command::Terminate),
    ];
    for (kind, command) in table {
        let mut signals = signal(kind)?;
        let commands = commands.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if commands.send(command.clone()).is_err() {
                    return;
                }
            }
        });
    }
    Ok(())
}
