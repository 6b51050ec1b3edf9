//! `wait_for`: until a port is listened on, a file is there, or an address answers.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::argument::{Argument, Form};
use super::work::{Acted, Done, Reached, Work};
use super::{Kind, remote};
use crate::event::{Failure, FailureKind, Status};
use crate::facts;
use crate::playbook::expression::Template;
use crate::ssh::quote;

/// How long is waited unless said otherwise.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks.
const EVERY: Duration = Duration::from_millis(500);
/// Status of a good answer.
const GOOD: i64 = 200;

/// The kind.
#[derive(Debug)]
pub struct WaitFor;

impl Kind for WaitFor {
    fn name(&self) -> &'static str {
        "wait_for"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            Argument::may("port", Form::Whole(1, 65_535)),
            Argument::may("file", Form::Text),
            Argument::may("url", Form::Text),
            Argument::may("status", Form::Whole(100, 599)),
            Argument::may("patience", Form::Time),
        ];
        ALL
    }

    fn check(&self, arguments: &[(String, Template)]) -> Option<String> {
        let has = |name: &str| arguments.iter().any(|(given, _)| given == name);
        let count = ["port", "file", "url"]
            .into_iter()
            .filter(|name| has(name))
            .count();
        if count != 1 {
            return Some("give one of port, file, url".to_owned());
        }
        (has("status") && !has("url")).then(|| "status is that of a url".to_owned())
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let host = work.host()?;
            let patience = work.given.time("patience").unwrap_or(PATIENCE);
            let began = Instant::now();
            loop {
                let look = look(work, host).await?;
                match look {
                    Look::There(what) => return Ok(work.one(Done::new(Status::Ok, what))),
                    Look::NotYet(what) if work.context.check => {
                        return Ok(work.one(Done::new(
                            Status::Unknown,
                            format!("{what}; in a check that is not waited for"),
                        )));
                    }
                    Look::NotYet(what) if began.elapsed() >= patience => {
                        return Err(work.failed(
                            host.name(),
                            format!("{what} after {} s", patience.as_secs_f64()),
                        ));
                    }
                    Look::NotYet(_) => {}
                }
                tokio::select! {
                    () = tokio::time::sleep(EVERY) => {}
                    () = work.context.stop.wait() => {
                        return Err(Failure::new(FailureKind::Interrupted, "interrupted while it waited")
                            .on(host.name())
                            .at(work.task));
                    }
                }
            }
        }
        .boxed()
    }
}

/// What was seen, in words.
enum Look {
    There(String),
    NotYet(String),
}

async fn look(work: &Work<'_>, host: &Reached) -> Result<Look, Failure> {
    if let Some(port) = work.given.whole("port") {
        let facts = facts::gather(&host.session)
            .await
            .map_err(|error| work.ssh(host.name(), &error))?;
        let Some(listening) = &facts.listening else {
            return Err(work.failed(host.name(), "the host does not say what listens there"));
        };
        let there = listening.iter().any(|one| i64::from(one.port) == port);
        return Ok(if there {
            Look::There(format!("port {port} is listened on"))
        } else {
            Look::NotYet(format!("nothing listens on port {port}"))
        });
    }
    if let Some(file) = work.given.text("file") {
        let script = format!("[ -e {} ]\n", quote(file));
        let there = remote::run(work, host, false, &script, remote::SHORT)
            .await?
            .ok();
        return Ok(if there {
            Look::There(format!("{file} is there"))
        } else {
            Look::NotYet(format!("{file} is not there"))
        });
    }
    let url = work.given.must("url");
    let wanted = work.given.whole("status").unwrap_or(GOOD);
    let script = format!(
        "u={}\n\
         if command -v curl >/dev/null 2>&1; then curl -s -o /dev/null -m 10 -w '%{{http_code}}' -- \"$u\"\n\
         elif command -v wget >/dev/null 2>&1; then wget -S -O /dev/null -T 10 -t 1 -- \"$u\" 2>&1 | awk '/^ *HTTP\\//{{s=$2}} END{{print s}}'\n\
         else echo none; fi\n",
        quote(url)
    );
    let output = remote::run(work, host, false, &script, remote::SHORT).await?;
    let said = output.text().trim().to_owned();
    if said == "none" {
        return Err(work.failed(host.name(), "it has neither curl nor wget to ask with"));
    }
    Ok(match said.parse::<i64>() {
        Ok(status) if status == wanted => Look::There(format!("{url} answers {status}")),
        Ok(status) if status > 0 => Look::NotYet(format!("{url} answers {status}, not {wanted}")),
        _ => Look::NotYet(format!("{url} does not answer")),
    })
}
