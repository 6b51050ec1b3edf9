//! The data path between stages, tried before anything is sent: every stage listens where it will
//! listen, and those who will connect to it do.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::BufReader;
use windlass_wire::host::{Connected, Listening};

use super::base::Base;
use super::conditions::{self, Breach, Reached};
use super::locks::next_line;
use crate::ssh::{Session, Stream};

/// How long a listener may take to say that it listens.
const STARTING: Duration = Duration::from_secs(15);
/// How long one connection is tried.
const TRYING: Duration = Duration::from_secs(5);

/// One stage's end of the data path.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The host.
    pub session: Session,
    /// Where things are there.
    pub base: Base,
    /// Digest of the worker's program there.
    pub worker_sha256: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// What may hold the port already: our own worker of this cluster, which will be stopped.
    pub own_worker: bool,
}

/// Who connects to whom among `stages` stages: each to the next, the last and all others to the
/// head. Pairs are (from, to), without repeats. Pure.
pub fn connections(stages: usize) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    if stages < 2 {
        return pairs;
    }
    for stage in 0..stages {
        pairs.push((stage, (stage + 1) % stages));
    }
    for stage in 1..stages {
        pairs.push((stage, 0));
    }
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Where a host's data address leads: an address, or a name resolved here.
///
/// # Errors
/// A sentence, when the name is unknown.
pub fn resolve(data: &str, port: u16) -> Result<SocketAddr, String> {
    let bare = data.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    if let Ok(address) = format!("[{bare}]:{port}").parse::<SocketAddr>() {
        return Ok(address);
    }
    (bare, port)
        .to_socket_addrs()
        .ok()
        .and_then(|mut all| all.next())
        .ok_or_else(|| {
            format!("its data address {data} is neither an address nor a name known here: set `data` for this host in the inventory")
        })
}

/// Tries every connection. Returns what does not hold, with the host's index among the endpoints.
pub async fn check(ends: &[Endpoint], nonce: &str) -> Vec<(usize, Breach)> {
    if ends.len() < 2 {
        return Vec::new();
    }
    let opened = join_all(ends.iter().map(|end| listen(end, nonce))).await;
    let mut breaches = Vec::new();
    let mut listening: Vec<Option<Stream>> = Vec::new();
    for (index, opened) in opened.into_iter().enumerate() {
        match opened {
            Ok(stream) => listening.push(stream),
            Err(breach) => {
                breaches.push((index, breach));
                listening.push(None);
            }
        }
    }
    let tries = connections(ends.len())
        .into_iter()
        .filter(|(_, to)| listening.get(*to).is_some_and(Option::is_some));
    let results = join_all(tries.map(|(from, to)| async move {
        let (a, b) = (ends.get(from)?, ends.get(to)?);
        connect(a, b, nonce).await.map(|breach| (to, breach))
    }))
    .await;
    breaches.extend(results.into_iter().flatten());
    breaches
}

/// `Ok(None)`: our own worker holds the port.
async fn listen(end: &Endpoint, nonce: &str) -> Result<Option<Stream>, Breach> {
    let (ip, port) = (end.address.ip().to_string(), end.address.port());
    let breach = |message: String| Breach {
        step: "port",
        message,
    };
    let address = scoped(&end.address);
    let script = end.base.worker(
        &end.worker_sha256,
        &[
            "probe",
            "listen",
            "--address",
            &address,
            "--port",
            &port.to_string(),
            "--nonce",
            nonce,
        ],
    );
    let mut stream = end
        .session
        .open("listen at the data address", &script, end.base.root)
        .await
        .map_err(|error| breach(error.to_string()))?;
    let said = {
        let mut reader = BufReader::new(&mut stream.stdout);
        next_line::<Listening>(&mut reader, STARTING).await
    };
    match said {
        Ok(Listening::Bound { .. }) => Ok(Some(stream)),
        Ok(Listening::Busy { by }) => {
            let ours = by
                .as_deref()
                .is_none_or(|by| by.contains("windlass-worker"));
            if end.own_worker && ours {
                Ok(None)
            } else {
                Err(conditions::port_taken(&ip, port, by.as_deref()))
            }
        }
        Ok(Listening::NoAddress { has }) => Err(conditions::no_address(&ip, &has)),
        Ok(Listening::Failed { reason }) => Err(breach(format!(
            "it cannot listen at {ip} port {port}: {reason}"
        ))),
        Err(reason) => Err(breach(format!(
            "whether port {port} of {ip} is free could not be found out: {reason}"
        ))),
    }
}

/// The address as text, with the scope of a link-local one.
pub fn scoped(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        other => other.ip().to_string(),
    }
}

async fn connect(from: &Endpoint, to: &Endpoint, nonce: &str) -> Option<Breach> {
    let (ip, port) = (to.address.ip().to_string(), to.address.port());
    let time = TRYING.as_millis().to_string();
    let address = scoped(&to.address);
    let script = from.base.worker(
        &from.worker_sha256,
        &[
            "probe",
            "connect",
            "--address",
            &address,
            "--port",
            &port.to_string(),
            "--nonce",
            nonce,
            "--time-ms",
            &time,
        ],
    );
    let (a, b) = (from.session.host(), to.session.host());
    let said = match from
        .session
        .open("try the data path", &script, from.base.root)
        .await
    {
        Ok(mut stream) => {
            let mut reader = BufReader::new(&mut stream.stdout);
            next_line::<Connected>(&mut reader, TRYING * 3).await
        }
        Err(error) => Err(error.to_string()),
    };
    let fault = |how, local: Option<&str>| Some(conditions::link(a, b, &ip, port, local, how));
    match said {
        Ok(Connected::Reached { .. }) => None,
        Ok(Connected::Refused { local }) => fault(Reached::Refused, local.as_deref()),
        Ok(Connected::Silent { local }) => fault(Reached::Silent, local.as_deref()),
        Ok(Connected::NoRoute { .. }) => fault(Reached::NoRoute, None),
        Ok(Connected::Stranger) => fault(Reached::Stranger, None),
        Err(reason) => Some(Breach {
            step: "link",
            message: format!(
                "whether {a} reaches {b} at {ip} port {port} could not be found out: {reason}"
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_the_stages_will_make_is_tried_once() {
        assert_eq!(connections(1), []);
        assert_eq!(connections(2), [(0, 1), (1, 0)]);
        assert_eq!(
            connections(4),
            [(0, 1), (1, 0), (1, 2), (2, 0), (2, 3), (3, 0)]
        );
    }

    #[test]
    fn addresses_of_both_families_and_scoped_ones_are_taken() {
        assert_eq!(resolve("10.0.0.1", 5).unwrap().to_string(), "10.0.0.1:5");
        assert_eq!(resolve("fd00::2", 5).unwrap().to_string(), "[fd00::2]:5");
        assert_eq!(resolve("[fd00::2]", 5).unwrap().to_string(), "[fd00::2]:5");
        assert!(
            resolve("no such name.invalid", 5)
                .unwrap_err()
                .contains("no such name")
        );
    }
}
