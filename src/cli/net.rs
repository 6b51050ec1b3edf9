//! `windlass net`: the links between hosts to a table, and the summary. Decides nothing about what is
//! wrong with them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, value_parser};
use serde_json::json;

use super::arguments::Common;
use super::table::table;
use super::work::{Outcome, perform};
use crate::deploy::remote::links::{self, Link, Wish, verdict};
use crate::event::Exit;
use crate::figures::{rate, speed};
use crate::report::plain::harmless;

/// Arguments of `net`.
#[derive(Args, Clone, Debug)]
pub struct NetArguments {
    /// Hosts: one means its links to all others, several those among them [default: all]
    #[arg(value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Seconds that each direction of a link is measured for
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u64).range(1..=60))]
    pub seconds: u64,
    /// Measure links without a common host at the same time
    #[arg(long)]
    pub at_once: bool,
    /// Compare with no earlier run; this one is what later ones are compared with
    #[arg(long)]
    pub forget: bool,
    /// A worker's program for hosts that the one beside windlass does not fit; may be repeated
    #[arg(long, value_name = "FILE")]
    pub worker: Vec<PathBuf>,
}

/// Runs the command.
pub fn net(common: &Common, arguments: &NetArguments) -> Exit {
    let wish = Wish {
        selector: arguments.selector.clone(),
        time: Duration::from_secs(arguments.seconds),
        at_once: arguments.at_once,
        forget: arguments.forget,
        workers: arguments.worker.clone(),
    };
    perform(common, "net", Vec::new(), async move |work| {
        let report = match links::measure(&work, &wish).await {
            Ok(report) => report,
            Err(failure) => return failure.into(),
        };
        let mut outcome = Outcome {
            failure: report.failure,
            ..Outcome::default()
        };
        if !report.links.is_empty() {
            outcome.text = text(&report.links);
        }
        let links: Vec<_> = report.links.iter().map(Link::json).collect();
        outcome.fields.insert("links".into(), json!(links));
        let time = json!(wish.time.as_secs());
        outcome.fields.insert("measured_seconds".into(), time);
        outcome
    })
}

fn text(links: &[Link]) -> String {
    let rows: Vec<Vec<String>> = links.iter().map(row).collect();
    table(
        &[
            "FROM",
            "TO",
            "INTERFACE",
            "NOMINAL",
            "THERE",
            "BACK",
            "ROUND TRIP",
            "MTU",
            "NOTE",
        ],
        &rows,
        &[3, 4, 5, 6, 7],
    )
}

fn row(link: &Link) -> Vec<String> {
    let dash = || "–".to_owned();
    let both = |a: Option<String>, b: Option<String>| match (a, b) {
        (Some(a), Some(b)) if a == b => a,
        (None, None) => dash(),
        (a, b) => format!("{}/{}", a.unwrap_or_else(dash), b.unwrap_or_else(dash)),
    };
    let interface = |at| link.interface(at).map(harmless);
    let measured = link.measured.as_ref();
    let mut notes: Vec<&str> = link.findings.iter().map(|f| f.kind.words()).collect();
    notes.dedup();
    let note = match &link.error {
        Some(_) => "FAILED".to_owned(),
        None => notes.join(", "),
    };
    vec![
        link.from.host.clone(),
        link.to.host.clone(),
        both(interface(0), interface(1)),
        verdict::nominal(&link.from, &link.to).map_or_else(dash, speed),
        measured.map_or_else(dash, |m| rate(m.there_mbit)),
        measured.map_or_else(dash, |m| rate(m.back_mbit)),
        measured.map_or_else(dash, |m| format!("{:.0} µs", m.trips.median)),
        both(
            link.from.mtu_bytes.map(|mtu| mtu.to_string()),
            link.to.mtu_bytes.map(|mtu| mtu.to_string()),
        ),
        note,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdict::{End, Finding, Kind, Measured};

    #[test]
    fn a_link_is_a_row_and_a_host_s_words_cannot_steer_the_terminal() {
        let end = |host: &str, interface: &str| End {
            host: host.to_owned(),
            interface: Some(interface.to_owned()),
            speed_mbit: Some(10_000),
            mtu_bytes: Some(1500),
            ..End::default()
        };
        let link = Link {
            from: end("halo1", "eth0"),
            to: end("halo2", "e\u{1b}[2J"),
            address: "10.0.0.2:47600".into(),
            measured: Some(Measured {
                there_mbit: 941.0,
                back_mbit: 9_400.0,
                ..Measured::default()
            }),
            before: None,
            findings: vec![Finding {
                kind: Kind::NarrowPort,
                host: "halo1".into(),
                message: "x".into(),
            }],
            error: None,
        };
        let text = text(&[link]);
        assert!(!text.contains('\u{1b}'), "{text}");
        let last = text.lines().last().unwrap();
        for word in [
            "halo1",
            "halo2",
            "10 Gb/s",
            "941 Mb/s",
            "9.4 Gb/s",
            "1500",
            "narrow port",
        ] {
            assert!(last.contains(word), "{word}: {text}");
        }
    }
}
