//! `windlass clone`: what is to be erased and written to a text, and the summary. Decides nothing about
//! what is done.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::arguments::Common;
use super::verify::text::text as verify;
use super::work::{Outcome, perform};
use crate::clone::{self, Reboot, Wish};
use crate::event::Exit;
use crate::report::plain::harmless;

/// Arguments of `clone`.
#[derive(Args, Clone, Debug)]
pub struct CloneArguments {
    /// Host whose system is copied; it may go on running
    #[arg(value_name = "FROM")]
    pub from: String,
    /// Host whose disk is erased and written; it runs from another medium or disk
    #[arg(value_name = "TO")]
    pub to: String,
    /// That disk, as TO names it
    #[arg(long, value_name = "DEV")]
    pub disk: String,
    /// What the disk is confirmed by, as --check shows it: its serial, or what stands for it
    #[arg(long, value_name = "SERIAL")]
    pub confirm: Option<String>,
    /// The disk of FROM that holds the system [default: the one it runs from]
    #[arg(long, value_name = "DEV")]
    pub source: Option<String>,
    /// Name of the new system [default: TO]
    #[arg(long, value_name = "NAME")]
    pub hostname: Option<String>,
    /// Then reboot TO into the copy, see that it is the copy that runs, and compare it with FROM; asked for
    /// no further, as --confirm stands for it
    #[arg(long)]
    pub reboot: bool,
    /// Seconds TO may take to come back
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub reboot_timeout: u64,
    /// Once the copy runs, write its host key to the inventory, and to the known hosts that knew TO
    #[arg(long, requires = "reboot")]
    pub update_inventory: bool,
    /// A worker's program for hosts that the one beside windlass does not fit; may be repeated
    #[arg(long, value_name = "FILE")]
    pub worker: Vec<PathBuf>,
}

/// Runs the command.
pub fn clone(common: &Common, arguments: &CloneArguments) -> Exit {
    let wish = Wish {
        from: arguments.from.clone(),
        to: arguments.to.clone(),
        disk: arguments.disk.clone(),
        source: arguments.source.clone(),
        confirm: arguments.confirm.clone(),
        hostname: arguments.hostname.clone(),
        reboot: arguments.reboot.then(|| Reboot {
            patience: Duration::from_secs(arguments.reboot_timeout),
            update_inventory: arguments.update_inventory,
            compare: true,
        }),
        workers: arguments.worker.clone(),
    };
    let hosts = vec![wish.from.clone(), wish.to.clone()];
    perform(
        common,
        "clone",
        hosts,
        async move |work| match clone::clone(&work, &wish).await {
            Ok(report) => {
                let lines = report.text.lines();
                let mut text: String = lines.map(|line| harmless(line) + "\n").collect();
                if let Some(judged) = &report.judged {
                    text.push_str(&format!("\n{}", verify(&judged.comparison, &judged.bad)));
                }
                Outcome {
                    fields: report.fields,
                    text,
                    failure: report.failure,
                    ..Outcome::default()
                }
            }
            Err(failure) => failure.into(),
        },
    )
}
