//! The inventory's hosts as sessions, all at once, with what happens told as events. Must not know
//! what is done on them.
//!
//! - [`keys`]: host keys taken, and login keys copied, on a person's word.

pub mod keys;

use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream;

use crate::event::{Emitter, Event, Failure, FailureKind, Scope, Status};
use crate::inventory::{Connection, Host, Inventory};
use crate::ssh::{Connector, Session, Target};

pub use keys::{copy_key, public_key, trust};

/// Hosts that are connected to at the same time.
const AT_ONCE: usize = 16;

/// Reaches hosts, many at once, and does the same on each as soon as it is reached. What came of each is
/// told as events, and counted for those that were not reached. A session that is not part of what comes
/// back ends with its host's work: memory then follows how many are reached
/// at a time, not how many there are. The results are in the order of the hosts.
pub async fn each<T>(
    inventory: &Inventory,
    hosts: &[&Host],
    connector: &Connector,
    emitter: &Emitter,
    work: impl AsyncFn(&Host, Session) -> Result<T, Failure>,
) -> Vec<(Host, Result<T, Failure>)> {
    let work = &work;
    let each = hosts.iter().enumerate().map(|(index, host)| async move {
        let result = match one(inventory, host, connector, emitter).await {
            Ok(session) => work(host, session).await,
            Err(failure) => Err(failure),
        };
        (index, ((*host).clone(), result))
    });
    let mut results: Vec<_> = stream::iter(each).buffer_unordered(AT_ONCE).collect().await;
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Reaches one host, and tells.
///
/// # Errors
/// Why it was not reached.
pub async fn one(
    inventory: &Inventory,
    host: &Host,
    connector: &Connector,
    emitter: &Emitter,
) -> Result<Session, Failure> {
    let begin = Instant::now();
    let state = |state: &str, message: Option<String>| {
        let state = state.to_owned();
        emitter.emit(Scope::host(&host.name), Event::HostState { state, message });
    };
    match connector.connect(&target(inventory, host)).await {
        Ok(session) => {
            let took = begin.elapsed().as_millis();
            let who = match session.login().await {
                Ok(login) => format!("as {} in {took} ms", login.user),
                Err(_) => format!("in {took} ms"),
            };
            state("reached", Some(who));
            Ok(session)
        }
        Err(error) => {
            let failure = error.failure(&host.name);
            let status = match failure.kind {
                FailureKind::Unreachable | FailureKind::Refused => Status::Unreachable,
                _ => Status::Failed,
            };
            state("unreachable", Some(error.to_string()));
            emitter.emit(
                Scope::host(&host.name).in_task("connect"),
                Event::TaskFinished {
                    status,
                    seconds: begin.elapsed().as_secs_f64(),
                    message: Some(error.to_string()),
                },
            );
            Err(failure)
        }
    }
}

/// A host of the inventory as a target; jumps over other hosts of the inventory are followed.
pub fn target(inventory: &Inventory, host: &Host) -> Target {
    let mut target = plain(host);
    let mut jump = host.ssh.jump.as_deref();
    let mut jumps = Vec::new();
    // A chain is as long as the inventory at most: a circle ends.
    for _ in 0..inventory.hosts.len() {
        let Some(name) = jump else { break };
        match inventory.host(name) {
            Some(next) => {
                jumps.push(plain(next));
                jump = next.ssh.jump.as_deref();
            }
            None => {
                jumps.push(parse(name));
                break;
            }
        }
    }
    jumps.reverse();
    target.jumps = jumps;
    target
}

fn plain(host: &Host) -> Target {
    Target {
        host: host.name.clone(),
        address: host.address.clone(),
        local: host.connection == Connection::Local,
        user: host.user.clone(),
        port: host.ssh.port,
        identity: host.ssh.identity.clone(),
        jumps: Vec::new(),
        known_hosts: host.ssh.known_hosts.clone(),
        host_key: host.ssh.host_key.clone(),
        password: host.ssh.password.clone(),
        sudo_password: host.sudo_password.clone(),
    }
}

/// `[user@]name[:port]`; a name with colons stands in brackets when a port follows.
fn parse(text: &str) -> Target {
    let (user, rest) = match text.rsplit_once('@') {
        Some((user, rest)) => (Some(user.to_owned()), rest),
        None => (None, text),
    };
    let (name, port) = if let Some(inner) = rest.strip_prefix('[') {
        match inner.split_once(']') {
            Some((name, port)) => (name, port.strip_prefix(':').and_then(|p| p.parse().ok())),
            None => (rest, None),
        }
    } else if rest.matches(':').count() == 1 {
        match rest.split_once(':') {
            Some((name, port)) => (name, port.parse().ok()),
            None => (rest, None),
        }
    } else {
        (rest, None)
    };
    Target {
        host: text.to_owned(),
        address: name.to_owned(),
        user,
        port,
        ..Target::default()
    }
}
