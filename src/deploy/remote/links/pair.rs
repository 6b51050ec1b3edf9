//! One link between two hosts: the worker's program listens on one and measures on the other.

use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader};
use windlass_wire::host::{Connected, Listening};
use windlass_wire::link::{Carried, Counted, Measuring, Packets};

use super::super::conditions::{self, Breach, Reached};
use super::super::locks::next_line;
use super::super::probe::{Endpoint, scoped};
use super::verdict::Measured;
use crate::event::Failure;
use crate::ssh::Stream;

/// How long a program on a host may take to begin, and to say its last word.
const STARTING: Duration = Duration::from_secs(15);
/// How long a measurement may say nothing: it gives up by itself much sooner.
const SILENCE: Duration = Duration::from_secs(20);

/// How a link is measured.
pub(super) struct Asked<'a> {
    /// What both ends know.
    pub nonce: &'a str,
    /// How long each direction counts.
    pub time: Duration,
    /// Connections at once.
    pub streams: u32,
}

/// Why a link was not measured.
pub(super) enum Broken {
    /// It does not hold.
    Breach(Breach),
    /// It broke in the middle, in these words; what is known of its packets by then.
    Stalled(String, Packets),
    /// A host is lost.
    Session(Failure),
}

/// What two ends know and nobody else: 32 hexadecimal digits.
pub(super) fn nonce() -> Result<String, String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn breach(message: String) -> Broken {
    Broken::Breach(Breach {
        step: "link",
        message,
    })
}

/// Measures. `tell` hears how many bytes of a part have moved. Also gives where the other end
/// listened.
pub(super) async fn measure(
    from: &Endpoint,
    to: &Endpoint,
    asked: &Asked<'_>,
    tell: impl Fn(&str, u64),
) -> Result<(String, Measured), Broken> {
    let (a, b) = (from.session.host(), to.session.host());
    let mut listener = listen(to, asked.nonce).await?;
    let ip = to.address.ip().to_string();
    let address = scoped(&to.address);
    let (port, millis) = (
        listener.port.to_string(),
        asked.time.as_millis().to_string(),
    );
    let streams = asked.streams.to_string();
    let mut stream = start(
        from,
        &[
            "measure",
            "--address",
            &address,
            "--port",
            &port,
            "--nonce",
            asked.nonce,
            "--time-ms",
            &millis,
            "--streams",
            &streams,
        ],
    )
    .await?;
    let lost = |reason: String| breach(format!("the link to {b} could not be measured: {reason}"));
    let mut reader = BufReader::new(&mut stream.stdout);
    let fault = |how, local: Option<&str>| {
        Broken::Breach(conditions::link(a, b, &ip, listener.port, local, how))
    };
    match next_line::<Connected>(&mut reader, STARTING).await {
        Ok(Connected::Reached { .. }) => {}
        Ok(Connected::Refused { local }) => return Err(fault(Reached::Refused, local.as_deref())),
        Ok(Connected::Silent { local }) => return Err(fault(Reached::Silent, local.as_deref())),
        Ok(Connected::NoRoute { .. }) => return Err(fault(Reached::NoRoute, None)),
        Ok(Connected::Stranger) => return Err(fault(Reached::Stranger, None)),
        Err(reason) => return Err(lost(reason)),
    }
    let mut measured = loop {
        match next_line::<Measuring>(&mut reader, SILENCE).await {
            Ok(Measuring::Moved { part, bytes }) => {
                if bytes > 0 {
                    tell(part.words(), bytes);
                }
            }
            Ok(Measuring::Broke {
                part,
                reason,
                packets,
            }) => {
                let words = format!("the link to {b} broke while {}: {reason}", part.words());
                return Err(Broken::Stalled(words, packets));
            }
            Ok(Measuring::Done {
                trips,
                packets,
                there,
                back,
                carriers,
                ..
            }) => {
                break Measured {
                    trips,
                    packets,
                    there_mbit: there.mbit(),
                    back_mbit: back.mbit(),
                    bytes: sum(there, back),
                    carriers: [carriers, Vec::new()],
                };
            }
            Err(reason) => return Err(lost(reason)),
        }
    };
    // The other end's counters only add to what is known.
    let [_, theirs] = &mut measured.carriers;
    if let Ok(carried) = listener.end().await {
        *theirs = carried.carriers;
    }
    Ok((listener.address, measured))
}

fn sum(there: Counted, back: Counted) -> u64 {
    there.bytes.saturating_add(back.bytes)
}

async fn start(end: &Endpoint, arguments: &[&str]) -> Result<Stream, Broken> {
    let arguments = [&["link"], arguments].concat();
    let script = end.base.worker(&end.worker_sha256, &arguments);
    end.session
        .open("measure the link", &script, end.base.root)
        .await
        .map_err(|error| Broken::Session(error.failure(end.session.host())))
}

/// An end that listens.
struct Listener {
    stream: Stream,
    address: String,
    port: u16,
}

/// Listens at the host's data port, or, where its worker holds that, at any.
async fn listen(end: &Endpoint, nonce: &str) -> Result<Listener, Broken> {
    let host = end.session.host();
    let ip = end.address.ip().to_string();
    for port in [end.address.port(), 0] {
        let address = scoped(&end.address);
        let text = port.to_string();
        let mut stream = start(
            end,
            &[
                "serve",
                "--address",
                &address,
                "--port",
                &text,
                "--nonce",
                nonce,
            ],
        )
        .await?;
        let said = {
            let mut reader = BufReader::new(&mut stream.stdout);
            next_line::<Listening>(&mut reader, STARTING).await
        };
        let reason = match said {
            Ok(Listening::Bound { address }) => {
                let port = address
                    .rsplit_once(':')
                    .and_then(|(_, port)| port.parse().ok());
                match port {
                    Some(port) => {
                        return Ok(Listener {
                            stream,
                            address,
                            port,
                        });
                    }
                    None => format!("it says that it listens at {address}"),
                }
            }
            Ok(Listening::Busy { .. }) if port != 0 => continue,
            Ok(Listening::Busy { by }) => {
                return Err(Broken::Breach(conditions::port_taken(
                    &ip,
                    port,
                    by.as_deref(),
                )));
            }
            Ok(Listening::NoAddress { has }) => {
                let mut breach = conditions::no_address(&ip, &has);
                breach.message = format!("{host}: {}", breach.message);
                return Err(Broken::Breach(breach));
            }
            Ok(Listening::Failed { reason }) | Err(reason) => reason,
        };
        return Err(breach(format!("{host} does not listen at {ip}: {reason}")));
    }
    Err(breach(format!("{host} has no free port at {ip}")))
}

impl Listener {
    /// Ends it; it says which interfaces carried anything.
    async fn end(&mut self) -> Result<Carried, String> {
        self.stream
            .stdin
            .shutdown()
            .await
            .map_err(|error| error.to_string())?;
        let mut reader = BufReader::new(&mut self.stream.stdout);
        next_line(&mut reader, STARTING).await
    }
}
