//! `command`: a line for `sh`, or words taken as they are.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::argument::{Argument, Form};
use super::work::{Acted, Done, Reached, Work};
use super::{Kind, once, remote};
use crate::event::{Failure, Status, Stream};
use crate::ssh::{Ending, Output, quote};

/// The kind.
#[derive(Debug)]
pub struct Command;

impl Kind for Command {
    fn name(&self) -> &'static str {
        "command"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            Argument::must("run", Form::Texts),
            Argument::may("chdir", Form::Text),
            Argument::may("creates", Form::Text),
            Argument::may("changed_when", Form::Conditions),
            Argument::may("root", Form::Flag),
        ];
        ALL
    }

    fn main(&self) -> Option<&'static str> {
        Some("run")
    }

    fn leaves_marks(&self) -> bool {
        true
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let host = work.host()?;
            let words = work.given.texts("run");
            let (line, shown) = match words.as_slice() {
                // One word is a line for the shell, several are taken as they are.
                [line] => (line.clone(), line.clone()),
                words => {
                    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
                    (quoted.join(" "), quoted.join(" "))
                }
            };
            let shown = if work.no_log { "the command" } else { &shown };
            Ok(work.one(apply(work, host, &line, shown).await?))
        }
        .boxed()
    }
}

/// Runs a body as the task's arguments say; also a script's.
pub(super) async fn apply(
    work: &Work<'_>,
    host: &Reached,
    body: &str,
    shown: &str,
) -> Result<Done, Failure> {
    if let Some(done) = beforehand(work, host).await? {
        return Ok(done);
    }
    let mut script = String::new();
    if let Some(folder) = work.given.text("chdir") {
        script.push_str(&format!("cd -- {} || exit 1\n", quote(folder)));
    }
    script.push_str(body);
    let mark = format!("{}@{}", work.mark, host.name());
    let script = once::script(&mark, &script, work.no_log);
    let root = work.given.flag("root");
    let output = remote::run_bound(work, host, root, &script).await?;
    finished(work, host, &output, shown)
}

/// What can be told before anything is run: that it is done already, or what a check says.
async fn beforehand(work: &Work<'_>, host: &Reached) -> Result<Option<Done>, Failure> {
    let root = work.given.flag("root");
    if let Some(path) = work.given.text("creates") {
        // As seen from the folder it is run in.
        let cd = work
            .given
            .text("chdir")
            .map(|folder| format!("cd -- {} 2>/dev/null\n", quote(folder)))
            .unwrap_or_default();
        let look = format!("{cd}[ -e {} ]\n", quote(path));
        if remote::run(work, host, root, &look, remote::SHORT)
            .await?
            .ok()
        {
            return Ok(Some(Done::new(Status::Ok, format!("{path} is there"))));
        }
    }
    if !work.context.check {
        return Ok(None);
    }
    let told =
        work.given.conditions("changed_when").is_empty() || work.given.text("creates").is_some();
    Ok(Some(if told {
        Done::new(Status::WouldChange, "would be run")
    } else {
        Done::new(
            Status::Unknown,
            "would be run; whether it changes anything shows only then",
        )
    }))
}

fn finished(
    work: &Work<'_>,
    host: &Reached,
    output: &Output,
    shown: &str,
) -> Result<Done, Failure> {
    let stdout = output.text();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    work.output(host.name(), Stream::Stdout, &stdout);
    work.output(host.name(), Stream::Stderr, &stderr);
    if !output.ok() {
        let how = if work.no_log {
            // Its words may be what is to be kept.
            match &output.ending {
                Ending::Status(status) => format!("ended with status {status}"),
                _ => "did not end well".to_owned(),
            }
        } else {
            remote::ended(output)
        };
        return Err(work.failed(host.name(), format!("`{shown}` {how}")));
    }
    let values = [
        ("stdout", Value::from(stdout.trim_end_matches(['\r', '\n']))),
        ("stderr", Value::from(stderr.trim_end_matches(['\r', '\n']))),
        ("rc", json!(0)),
    ];
    let mut result = serde_json::Map::new();
    for (name, value) in &values {
        result.insert((*name).to_owned(), value.clone());
    }
    let mut status = Status::Changed;
    for condition in work.given.conditions("changed_when") {
        let holds = work
            .holds(&condition, &[("result", result.clone().into())])
            .map_err(|error| work.failed(host.name(), format!("changed_when {error}")))?;
        if !holds {
            status = Status::Ok;
        }
    }
    Ok(Done {
        values: result,
        ..Done::new(status, "")
    })
}
