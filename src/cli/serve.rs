//! The commands around a deployment: `push`, `up`, `status`, `logs`, `down`, `api`, `chat`,
//! `exec`. From arguments to the core's functions, and from what these return to the summary.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, json};

use super::arguments::Common;
use super::work::{Outcome, perform_on};
use crate::deploy::remote::order::{self, Wish};
use crate::deploy::remote::service::{self, Found};
use crate::deploy::remote::site::Site;
use crate::deploy::remote::talk::{self, Manner, Talk};
use crate::deploy::remote::up;
use crate::deploy::remote::{deployment, each, forward, hosts, logs};
use crate::event::{Event, Exit, Failure, FailureKind, Level, Scope, Status};
use crate::inventory::Inventory;
use crate::plan::DEFAULT_CONCURRENCY;
use crate::ssh::Caps;

/// How often a host that is forwarded to is asked whether it still answers.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

/// Arguments of `up` and `push`.
#[derive(Args, Clone, Debug)]
pub struct UpArguments {
    /// Model: a file, org/name[@revision]:quant, or an alias
    pub model: String,
    /// Host that holds the model: MODEL is then a file there (an absolute path, or one from the
    /// login user's home), or a name found in the caches there; it stays there, and pieces are made
    /// there. It need not be among those that get pieces
    #[arg(long, value_name = "HOST")]
    pub source: Option<String>,
    /// Tokens of context a sequence may have [default: 4096, or what the model was made for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub context: Option<u32>,
    /// Sequences of full context at once
    #[arg(long, value_name = "N", default_value_t = DEFAULT_CONCURRENCY, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub concurrency: u32,
    /// Read every piece on the hosts and compare its digest
    #[arg(long)]
    pub verify: bool,
    /// A worker's program for hosts that the one beside windlass does not fit; may be repeated
    #[arg(long, value_name = "FILE")]
    pub worker: Vec<PathBuf>,
}

impl UpArguments {
    fn wish(&self) -> Wish {
        Wish {
            model: self.model.clone(),
            context: self.context,
            concurrency: self.concurrency,
            verify: self.verify,
            source: self.source.clone(),
            workers: self.worker.clone(),
        }
    }
}

/// Arguments of `down`.
#[derive(Args, Clone, Debug)]
pub struct DownArguments {
    /// Remove the pieces from the hosts too
    #[arg(long)]
    pub pieces: bool,
}

/// Arguments of `logs`.
#[derive(Args, Clone, Debug)]
pub struct LogsArguments {
    /// Hosts, by selector [default: all]
    pub host: Option<String>,
    /// Lines of each host
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    pub lines: u32,
    /// Go on with every line as it comes, until Ctrl-C
    #[arg(short, long)]
    pub follow: bool,
}

/// Arguments of `api`.
#[derive(Args, Clone, Debug)]
pub struct ApiArguments {
    /// Port on this machine; any free one when 0
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
}

/// Arguments of `chat`.
#[derive(Args, Clone, Debug)]
pub struct ChatArguments {
    /// One question; without it, lines are read from the terminal or stdin
    pub prompt: Option<String>,
    /// Most tokens of an answer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// Go on past the model's end of an answer
    #[arg(long)]
    pub ignore_eos: bool,
}

/// Arguments of `exec`.
#[derive(Args, Clone, Debug)]
pub struct ExecArguments {
    /// Hosts, by selector
    pub selector: String,
    /// Seconds the command may take; then it is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = seconds)]
    pub timeout: u64,
    /// The command; one word is a line for the shell
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

/// Longest time that a command may be given, in seconds.
const LONGEST: u64 = 7 * 24 * 3_600;

fn seconds(text: &str) -> Result<u64, String> {
    text.parse::<u64>()
        .ok()
        .filter(|seconds| (1..=LONGEST).contains(seconds))
        .ok_or_else(|| format!("whole seconds from 1 to {LONGEST} (a week)"))
}

/// Unwraps or ends the command with the failure.
macro_rules! or_end {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(failure) => return Outcome::from(failure),
        }
    };
}

/// `up`.
pub fn up(common: &Common, arguments: &UpArguments) -> Exit {
    let arguments = arguments.clone();
    perform_on(common, "up", None, async move |work| {
        let (inventory, sites, order) = or_end!(order::prepare(&work, &arguments.wish()).await);
        let (fields, failure) = up::up(&order, &sites, &work.emitter).await;
        let text = match &failure {
            None if !work.common.check => ready_text(&inventory, &fields),
            _ => String::new(),
        };
        Outcome {
            fields,
            text,
            failure,
            ..Outcome::default()
        }
    })
}

/// `push`.
pub fn push(common: &Common, arguments: &UpArguments) -> Exit {
    let arguments = arguments.clone();
    perform_on(common, "push", None, async move |work| {
        let (_, sites, order) = or_end!(order::prepare(&work, &arguments.wish()).await);
        let (fields, failure) = up::push(&order, &sites, &work.emitter).await;
        Outcome {
            fields,
            failure,
            ..Outcome::default()
        }
    })
}

/// What to do next, for people.
fn ready_text(inventory: &Inventory, fields: &Map<String, serde_json::Value>) -> String {
    let field = |name: &str| fields.get(name).and_then(|v| v.as_str()).unwrap_or("?");
    format!(
        "{} serves on {} (API {} there). Reach it from here:\n  windlass -i {} api\n  windlass -i {} chat\n",
        field("model"),
        field("head"),
        field("api"),
        inventory.path.display(),
        inventory.path.display(),
    )
}

/// `status`.
pub fn status(common: &Common) -> Exit {
    perform_on(common, "status", None, async move |work| {
        let inventory = or_end!(hosts::inventory(&work));
        let chosen = or_end!(hosts::select(&work, &inventory, None));
        let (sites, unreached) = or_end!(hosts::sites(&work, &inventory, &chosen, false).await);
        let (fields, text, failure) =
            service::status(&sites, &inventory, &work.paths, &work.run).await;
        // What is asked is how the deployment is; a host that plays no part in it does not count.
        let failure = match failure {
            Some(failure) if failure.kind == FailureKind::Nothing && !unreached.is_empty() => {
                unreached.into_iter().next()
            }
            other => other,
        };
        Outcome {
            fields,
            text,
            failure,
            ..Outcome::default()
        }
    })
}

/// `logs`.
pub fn logs(common: &Common, arguments: &LogsArguments) -> Exit {
    let arguments = arguments.clone();
    let selector = arguments.host.clone();
    perform_on(common, "logs", selector.as_deref(), async move |work| {
        let inventory = or_end!(hosts::inventory(&work));
        let chosen = or_end!(hosts::select(&work, &inventory, arguments.host.as_deref()));
        let (sites, unreached) = or_end!(hosts::sites(&work, &inventory, &chosen, false).await);
        let cluster = &inventory.cluster.name;
        if arguments.follow {
            return logs::follow(&sites, cluster, arguments.lines, &work.emitter)
                .await
                .into();
        }
        let (text, lines, failure) =
            logs::last(&sites, cluster, arguments.lines, &work.emitter).await;
        let mut fields = Map::new();
        fields.insert("logs".into(), lines.into());
        Outcome {
            fields,
            text,
            failure: failure.or_else(|| unreached.into_iter().next()),
            ..Outcome::default()
        }
    })
}

/// `down`.
pub fn down(common: &Common, arguments: &DownArguments) -> Exit {
    let arguments = arguments.clone();
    perform_on(common, "down", None, async move |work| {
        let (fields, failure) = service::take_down(&work, arguments.pieces).await;
        Outcome {
            fields,
            failure,
            ..Outcome::default()
        }
    })
}

/// The deployment and the way to its head, for commands that talk to it.
async fn running<'a>(
    inventory: &Inventory,
    sites: &'a [Site],
) -> Result<(Found<'a>, &'a Site), Failure> {
    let cluster = &inventory.cluster.name;
    let found = service::find(sites, cluster).await?.ok_or_else(|| {
        Failure::new(
            FailureKind::Nothing,
            format!("nothing runs under the name {cluster}: bring it up with `windlass up MODEL`"),
        )
    })?;
    let head = found.head().ok_or_else(|| {
        let head = found.record.head();
        Failure::new(
            FailureKind::Unreachable,
            format!("{head}: the head's host was not reached"),
        )
        .on(head)
    })?;
    Ok((found, head))
}

/// `api`: forwards until interrupted.
pub fn api(common: &Common, arguments: &ApiArguments) -> Exit {
    let arguments = arguments.clone();
    perform_on(common, "api", None, async move |work| {
        let inventory = or_end!(hosts::inventory(&work));
        let chosen = or_end!(hosts::select(&work, &inventory, None));
        let (sites, _) = or_end!(hosts::sites(&work, &inventory, &chosen, false).await);
        let (found, head) = or_end!(running(&inventory, &sites).await);
        let far = deployment::far(&head.place, &found.record);
        let listen = SocketAddr::from(([127, 0, 0, 1], arguments.port));
        let (_forward, address) = match forward::tcp(far, listen).await {
            Ok(opened) => opened,
            Err(error) => {
                return Failure::new(
                    FailureKind::Io,
                    format!("{listen} cannot be opened on this machine: {error}; choose another with --port"),
                )
                .at("api")
                .into();
            }
        };
        work.emitter.emit(
            Scope::host(head.name()).in_task("api"),
            Event::log(
                Level::Info,
                format!(
                    "http://{address}/v1 leads to {} on {}; Ctrl-C ends it",
                    found.record.model,
                    head.name()
                ),
            ),
        );
        // Ended by a signal, or by the host that is lost.
        let lost = lost(head).await;
        Failure::new(
            FailureKind::Unreachable,
            format!("{}: the connection was lost: {lost}", head.name()),
        )
        .on(head.name())
        .at("api")
        .into()
    })
}

/// Waits until the host no longer answers; says why.
async fn lost(site: &Site) -> String {
    loop {
        tokio::time::sleep(ALIVE_EVERY).await;
        if let Err(error) = site
            .session()
            .run("sign of life", ":\n", Caps::default())
            .await
        {
            return error.to_string();
        }
    }
}

/// `chat`.
pub fn chat(common: &Common, arguments: &ChatArguments) -> Exit {
    let arguments = arguments.clone();
    perform_on(common, "chat", None, async move |work| {
        let inventory = or_end!(hosts::inventory(&work));
        let chosen = or_end!(hosts::select(&work, &inventory, None));
        let (sites, _) = or_end!(hosts::sites(&work, &inventory, &chosen, false).await);
        let (found, head) = or_end!(running(&inventory, &sites).await);
        let way = or_end!(deployment::head(
            &head.place,
            &found.record,
            &work.paths.runtime,
            &work.run
        ));
        let manner = Manner {
            model: found.record.model.clone(),
            max_tokens: arguments.max_tokens,
            ignore_eos: arguments.ignore_eos,
        };
        let (sender, mut lines) = tokio::sync::mpsc::channel(1);
        match arguments.prompt.clone() {
            Some(prompt) => {
                // The channel has room for one.
                let _ = sender.try_send(prompt);
                drop(sender);
            }
            None => {
                if io::stdin().is_terminal() && !work.common.json {
                    work.emitter.log(
                        Level::Info,
                        format!(
                            "talk to {}; an empty line does nothing, Ctrl-D ends",
                            manner.model
                        ),
                    );
                }
                std::thread::spawn(move || {
                    for line in io::stdin().lines() {
                        let Ok(line) = line else { return };
                        if sender.blocking_send(line).is_err() {
                            return;
                        }
                    }
                });
            }
        }
        let mut talk = Talk::default();
        let result = talk::converse(&way, &manner, &mut lines, &work.emitter, &mut talk).await;
        let mut fields = Map::new();
        fields.insert("model".into(), json!(manner.model));
        fields.insert("tokens".into(), json!(talk.tokens));
        fields.insert("tokens_per_second".into(), json!(talk.tokens_per_second));
        let turns: Vec<_> = talk
            .turns
            .iter()
            .map(|turn| json!({"prompt": turn.prompt, "text": turn.answer}))
            .collect();
        fields.insert("turns".into(), json!(turns));
        Outcome {
            fields,
            failure: result.err(),
            ..Outcome::default()
        }
    })
}

/// `exec`.
pub fn exec(common: &Common, arguments: &ExecArguments) -> Exit {
    let arguments = arguments.clone();
    let selector = arguments.selector.clone();
    perform_on(common, "exec", Some(&selector), async move |work| {
        let inventory = or_end!(hosts::inventory(&work));
        let chosen = or_end!(hosts::select(&work, &inventory, Some(&arguments.selector)));
        let sessions = or_end!(hosts::connect(&work, &inventory, &chosen).await);
        let mut reached = Vec::new();
        let mut unreached = None;
        for (_, session) in sessions {
            match session {
                Ok(session) => reached.push(session),
                // Told by the task that failed.
                Err(failure) => unreached = unreached.or(Some(failure)),
            }
        }
        if work.check {
            for session in &reached {
                let scope = Scope::host(session.host()).in_task("exec");
                let task = work.emitter.task(scope, None);
                task.finish(Status::WouldChange, "would be run");
            }
            let mut fields = Map::new();
            fields.insert("results".into(), json!({}));
            return Outcome {
                fields,
                failure: unreached,
                ..Outcome::default()
            };
        }
        let patience = Duration::from_secs(arguments.timeout);
        let (hosts, text, failure) =
            each::exec(&reached, &arguments.command, patience, &work.emitter).await;
        let mut fields = Map::new();
        fields.insert("results".into(), hosts.into());
        Outcome {
            fields,
            text,
            failure: failure.or(unreached),
            ..Outcome::default()
        }
    })
}
