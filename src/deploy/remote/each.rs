//! One command on many hosts. Must not know inventories.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use super::install::failed;
use super::service::plain;
use super::site::status_of;
use crate::event::{Emitter, Event, Failure, Level, Scope, Status};
use crate::ssh::{Caps, Ending, Session, quote};

/// Runs a command's words on every host at once, as the login user. A command that takes longer than
/// `patience` is ended there, and so it is when this is dropped.
pub async fn exec(
    sessions: &[Session],
    words: &[String],
    patience: Duration,
    emitter: &Emitter,
) -> (Map<String, Value>, String, Option<Failure>) {
    let script = match words {
        // One word is a line for the shell, as with ssh; several are taken as they are.
        [line] => format!("{line}\n"),
        words => {
            let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
            format!("{}\n", quoted.join(" "))
        }
    };
    let caps = Caps {
        stdout: 16 << 20,
        stderr: 1 << 20,
        time: patience,
    };
    let results = join_all(sessions.iter().map(|session| {
        let script = script.clone();
        async move {
            let task = emitter.task(Scope::host(session.host()).in_task("exec"), None);
            let result = session.run_bound(false, "the command", &script, caps).await;
            match &result {
                Ok(output) if output.ok() => task.finish(Status::Changed, ""),
                Ok(output) => task.finish(Status::Failed, ending(&output.ending)),
                Err(error) => {
                    let failure = error.failure(session.host());
                    task.finish(status_of(&failure), error.to_string());
                }
            }
            result
        }
    }))
    .await;
    let width = sessions.iter().map(|s| s.host().len()).max().unwrap_or(0);
    let (mut text, mut fields, mut failure) = (String::new(), Map::new(), None);
    for (session, result) in sessions.iter().zip(results) {
        let host = session.host();
        match result {
            Ok(output) => {
                for line in output.text().lines() {
                    text.push_str(&format!("{host:width$}  {}\n", plain(line)));
                }
                let errors = String::from_utf8_lossy(&output.stderr).into_owned();
                for line in errors.lines() {
                    emitter.emit(
                        Scope::host(host).in_task("exec"),
                        Event::log(Level::Warn, plain(line)),
                    );
                }
                let status = match &output.ending {
                    Ending::Status(status) => Some(*status),
                    _ => None,
                };
                fields.insert(
                    host.to_owned(),
                    json!({"status": status, "stdout": output.text(), "stderr": errors}),
                );
                if !output.ok() {
                    failure.get_or_insert_with(|| {
                        failed(
                            session,
                            "exec",
                            format!("the command {}", ending(&output.ending)),
                        )
                    });
                }
            }
            Err(error) => {
                failure.get_or_insert_with(|| error.failure(host));
            }
        }
    }
    (fields, text, failure)
}

fn ending(ending: &Ending) -> String {
    match ending {
        Ending::Status(status) => format!("ended with status {status}"),
        Ending::Signal(signal) => format!("was ended by SIG{signal}"),
        Ending::Unknown => "ended without saying how".to_owned(),
    }
}
