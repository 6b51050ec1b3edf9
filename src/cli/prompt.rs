//! Asks a person at the terminal: reads question events, types them out, sends the answers back
//! as commands. Must not know what is asked.

use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc::UnboundedSender;

use crate::event::{Command, Event, Mailbox, ask};

/// A person who is asked. Dropped while a question stands, it gives the terminal back as it was: the
/// thread that asks cannot be woken, and ends with the process.
#[derive(Debug)]
pub struct Prompt {
    before: Option<Termios>,
    asking: Arc<AtomicBool>,
}

impl Drop for Prompt {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && self.asking.load(Ordering::SeqCst)
        {
            // A terminal that is gone needs nothing.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
            let _ = writeln!(io::stderr());
        }
    }
}

/// Starts the thread that asks. It ends with the stream of events.
pub fn start(mailbox: Mailbox, commands: UnboundedSender<Command>) -> io::Result<Prompt> {
    let asking = Arc::new(AtomicBool::new(false));
    let prompt = Prompt {
        before: tcgetattr(io::stdin()).ok(),
        asking: Arc::clone(&asking),
    };
    std::thread::Builder::new()
        .name("prompt".into())
        .spawn(move || {
            while let Some(envelope) = mailbox.next() {
                let Event::Question {
                    id,
                    text,
                    choices,
                    secret,
                } = &envelope.event
                else {
                    continue;
                };
                let host = envelope.scope.host.as_deref();
                asking.store(true, Ordering::SeqCst);
                let answer = typed(host, text, choices, *secret);
                asking.store(false, Ordering::SeqCst);
                let command = match answer {
                    Ok(answer) => Command::Answer {
                        id: id.clone(),
                        answer,
                    },
                    // While a secret is typed, the terminal sends no signal for Ctrl-C.
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => Command::Interrupt,
                    // The end of the input is no answer; a later question finds the same.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        Command::NoAnswer { id: id.clone() }
                    }
                    // No answer is given for a terminal that is gone: the command frame ends the run.
                    Err(_) => Command::OutputLost {
                        reason: "the terminal gave no answer".to_owned(),
                    },
                };
                let goes_on = matches!(command, Command::Answer { .. } | Command::NoAnswer { .. });
                // A run that has ended needs no answer.
                if commands.send(command).is_err() || !goes_on {
                    return;
                }
            }
        })?;
    Ok(prompt)
}

fn typed(host: Option<&str>, text: &str, choices: &[String], secret: bool) -> io::Result<String> {
    let mut prompt = host.map(|host| format!("{host}: ")).unwrap_or_default();
    prompt.push_str(text);
    if !choices.is_empty() {
        prompt.push_str(&format!(" [{}]", choices.join("/")));
    }
    prompt.push(' ');
    if secret {
        return rpassword::prompt_password(prompt);
    }
    // Never locked while an answer is waited for: the run may have an end to tell meanwhile.
    let mut stderr = io::stderr();
    loop {
        stderr.write_all(prompt.as_bytes())?;
        stderr.flush()?;
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line)? == 0 {
            // What is said next begins a line of its own.
            let _ = stderr.write_all(b"\n");
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let answer = line.trim();
        if choices.is_empty() {
            return Ok(answer.to_owned());
        }
        if let Some(choice) = ask::chosen(choices, answer) {
            return Ok(choice.to_owned());
        }
    }
}
