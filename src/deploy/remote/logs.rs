//! The workers' logs: their last lines, or every line as it comes.

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use super::deployment;
use super::follow;
use super::install::failed;
use super::service::plain;
use super::site::Site;
use crate::event::{Emitter, Event, Failure, FailureKind, Level, Scope, Stream};

/// The last lines of each host's log: data lines, one host after the other, each line behind its
/// host's name; the same as fields.
pub async fn last(
    sites: &[Site],
    cluster: &str,
    lines: u32,
    emitter: &Emitter,
) -> (String, Map<String, Value>, Option<Failure>) {
    let all = join_all(
        sites
            .iter()
            .map(|site| deployment::last_log(&site.place, cluster, lines)),
    )
    .await;
    let width = sites.iter().map(|s| s.name().len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut fields = Map::new();
    let mut failure = None;
    for (site, log) in sites.iter().zip(all) {
        match log {
            Ok(log) => {
                for line in &log {
                    text.push_str(&format!("{:width$}  {}\n", site.name(), plain(line)));
                }
                fields.insert(site.name().to_owned(), json!(log));
            }
            Err(error) => {
                emitter.emit(
                    Scope::host(site.name()),
                    Event::log(Level::Error, error.message.clone()),
                );
                failure = failure.or(Some(error));
            }
        }
    }
    if text.is_empty() && failure.is_none() {
        failure = Some(Failure::new(
            FailureKind::Nothing,
            format!("no log of a worker of {cluster} is on these hosts"),
        ));
    }
    (text, fields, failure)
}

/// Tells every line of all hosts' logs as it comes, beginning with the last ones. Ends only when no
/// host can be followed any more; a host that is lost is told of, and the others go on.
pub async fn follow(sites: &[Site], cluster: &str, lines: u32, emitter: &Emitter) -> Failure {
    let ended = join_all(sites.iter().map(|site| async {
        let failure = follow_one(site, cluster, lines, emitter).await;
        emitter.emit(
            Scope::host(site.name()).in_task("logs"),
            Event::log(Level::Error, failure.message.clone()),
        );
        failure
    }))
    .await;
    let first = ended.into_iter().min_by_key(|failure| failure.kind.exit());
    first.unwrap_or_else(|| Failure::internal("there was no host to follow"))
}

/// Follows one host until that ends; says why it did.
async fn follow_one(site: &Site, cluster: &str, lines: u32, emitter: &Emitter) -> Failure {
    let scope = Scope::host(site.name()).in_task("logs");
    let followed = follow::follow(site, cluster, lines, |text| {
        let stream = Stream::Stdout;
        emitter.emit(scope.clone(), Event::Output { stream, text });
    })
    .await;
    let said = match followed {
        Ok(said) => said,
        Err(error) => return error.failure(site.name()),
    };
    let why = if said.is_empty() {
        "it ended without a word"
    } else {
        &said
    };
    let session = site.session();
    if session.is_lost() {
        return Failure::new(
            FailureKind::Unreachable,
            format!("{}: the log is no longer followed: {why}", site.name()),
        )
        .on(site.name())
        .at("logs");
    }
    failed(
        session,
        "logs",
        format!("the log is no longer followed: {why}"),
    )
}
