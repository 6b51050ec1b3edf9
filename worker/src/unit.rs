//! A worker that its host keeps running: orders from a deployment's folder instead of stdin, links
//! made again whenever they break, an end only by a signal. Beside [`crate::run`] the only place that
//! knows all parts.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use windlass_wire::assignment::{Assignment, FromWorker, ORDERS_FILE, Orders};

use crate::host::{address, busy};
use crate::net::NetError;
use crate::net::listener::Refused;
use crate::run::{
    Failure, HeadLinks, HeadParts, OnStop, check, conclude, end, head, hello, load, reporter,
};
use crate::stage::rejoin::Rejoin;
use crate::stage::setup::{Listening, Report};
use crate::stage::stats::Stats;

/// Name of the controllers' socket in a deployment's folder, on the head.
pub const CONTROL_SOCKET: &str = "control.sock";
/// Largest orders read, in bytes.
const MAX_ORDERS: u64 = 1 << 20;
/// How often an address that the host does not have yet is tried again.
const ADDRESS_AGAIN: Duration = Duration::from_millis(500);
/// Peers of whom the last refusal is remembered, so that it is told once.
const REFUSALS: usize = 256;

/// Runs the stage of a deployment's folder. Returns the exit status.
pub fn serve(folder: &Path, with_parent: bool) -> i32 {
    let report = reporter();
    #[cfg(target_os = "linux")]
    if with_parent {
        let end = Some(rustix::process::Signal::TERM);
        // Without it the worker lives on, and its ports tell so.
        let _ = rustix::process::set_parent_process_death_signal(end);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = with_parent;
    conclude(&report, run(folder, &report))
}

fn run(folder: &Path, report: &Report) -> Result<(), Failure> {
    let on_stop: OnStop = Arc::default();
    follow_signals(&on_stop).map_err(|e| Failure::new("internal")(format!("signals: {e}")))?;
    let (assignment, peers, hosts) = orders(folder).map_err(Failure::new("usage"))?;
    // Listeners first: what is taken is found before minutes of loading.
    let data = match assignment.stages {
        1 => None,
        _ => Some(bind(&assignment.listen, "the data address", report)?),
    };
    let api = match &assignment.api {
        Some(api) => Some(bind(&api.listen, "the API's address", report)?),
        None => None,
    };
    let (engine, language) = load(&assignment, report)?;
    let stats = Arc::new(Stats::default());
    let listening = match data {
        Some(listener) => {
            let listening = Listening::on(
                listener,
                &assignment,
                hello(&assignment, &engine),
                &stats,
                refused(report),
                true,
            )
            .map_err(|e| Failure::new("network")(e.to_string()))?;
            report(FromWorker::Listening {
                address: listening.address.to_string(),
            });
            Some(Arc::new(listening))
        }
        None => None,
    };
    match (language, listening) {
        (Some(language), listening) => {
            let links = listening.map_or(HeadLinks::Alone, |listening| HeadLinks::Again {
                listening,
                peers,
                hosts,
            });
            let parts = HeadParts {
                language,
                bound: api,
                links,
                engine,
                stats,
            };
            head(&assignment, parts, report, &on_stop)
        }
        (None, Some(listening)) => {
            let piece_bytes = engine.piece_bytes();
            Rejoin {
                assignment: &assignment,
                listening: &listening,
                peers: &peers,
                hosts: &hosts,
                piece_bytes,
                stats: &stats,
                report,
            }
            .run(engine)
        }
        (None, None) => Err(Failure::new("usage")(
            "a single stage needs an API to answer".into(),
        )),
    }
}

/// Reads and checks a folder's orders. No word of the file is repeated: it holds a key.
fn orders(folder: &Path) -> Result<(Assignment, Vec<SocketAddr>, Vec<String>), String> {
    let path = folder.join(ORDERS_FILE);
    let named = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let mut text = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(MAX_ORDERS).read_to_end(&mut text))
        .map_err(|e| named(&e))?;
    let orders: Orders = serde_json::from_slice(&text).map_err(|e| {
        named(&format!(
            "not the orders of a worker of version {}: {:?} in line {}, column {}",
            crate::run::BUILD,
            e.classify(),
            e.line(),
            e.column()
        ))
    })?;
    let mut assignment = orders.assignment;
    check(&assignment).map_err(|e| named(&e))?;
    if assignment.stages > 1 && orders.peers.len() != assignment.stages as usize {
        return Err(named(&format!(
            "{} addresses for {} stages",
            orders.peers.len(),
            assignment.stages
        )));
    }
    let peers: Result<Vec<_>, _> = orders
        .peers
        .iter()
        .map(|peer| address::parse_with_port(peer))
        .collect();
    if let Some(api) = &mut assignment.api {
        api.control = folder.join(CONTROL_SOCKET);
    }
    Ok((assignment, peers.map_err(|e| named(&e))?, orders.hosts))
}

/// Listens at an address, waiting for it while the host does not have it: after a start its network
/// may come later than this.
fn bind(text: &str, what: &str, report: &Report) -> Result<TcpListener, Failure> {
    let address = address::parse_with_port(text)
        .map_err(|e| Failure::new("usage")(format!("{what}: {e}")))?;
    let mut told = false;
    loop {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let by = busy::holder(address).map_or_else(String::new, |by| format!(" by {by}"));
                return Err(Failure::new("port")(format!(
                    "{what} {address} is taken{by}: stop that, or choose another port"
                )));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                if !told {
                    told = true;
                    report(FromWorker::Log {
                        level: "warn".into(),
                        message: format!(
                            "this host does not have {what} {address} (yet); it has {}",
                            address::own().join(", ")
                        ),
                    });
                }
                std::thread::sleep(ADDRESS_AGAIN);
            }
            Err(error) => {
                return Err(Failure::new("network")(format!(
                    "listen at {what} {address}: {error}"
                )));
            }
        }
    }
}

/// Reports a peer's refusal once, until it is refused for another reason.
fn refused(report: &Report) -> Refused {
    let last: Mutex<HashMap<IpAddr, String>> = Mutex::default();
    let report = report.clone();
    Arc::new(move |peer: SocketAddr, error: &NetError| {
        let reason = error.to_string();
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.get(&peer.ip()) == Some(&reason) {
            return;
        }
        if last.len() >= REFUSALS {
            last.clear();
        }
        last.insert(peer.ip(), reason.clone());
        drop(last);
        report(FromWorker::PeerRefused {
            peer: peer.to_string(),
            reason,
        });
    })
}

/// SIGTERM and SIGINT end the worker whatever it is doing.
fn follow_signals(on_stop: &OnStop) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Here, not in the thread: from now on none is missed.
    let (mut term, mut int) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        )
    };
    let on_stop = on_stop.clone();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = term.recv() => {}
                    _ = int.recv() => {}
                }
            });
            end(&on_stop);
        })?;
    Ok(())
}
