//! `windlass bench`: from arguments to a measurement, and from it to a table.

use clap::{Args, Subcommand};
use serde_json::{Map, json};

use super::arguments::Common;
use super::work::{Outcome, perform_on};
use crate::bench::{self, Load};
use crate::deploy::remote::hosts;
use crate::event::{Exit, Failure};

/// Arguments of `bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchArguments {
    /// What to measure
    #[command(subcommand)]
    pub verb: BenchVerb,
}

/// The commands under `bench`.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchVerb {
    /// Measure the deployment that runs: first token, between tokens, throughput
    Serve(ServeArguments),
}

/// Arguments of `bench serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArguments {
    /// Requests at once, measured one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 2, 4, 8], value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub concurrency: Vec<u32>,
    /// Tokens of each answer
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub tokens: u32,
    /// Requests of each measurement [default: two for each at once, four at least]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub requests: Option<u32>,
    /// What is asked [default: a fixed question]
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
}

/// Runs a command of `bench`.
pub fn bench(common: &Common, verb: &BenchVerb) -> Exit {
    let BenchVerb::Serve(arguments) = verb.clone();
    perform_on(common, "bench serve", None, async move |work| {
        let mut load = Load {
            concurrency: arguments.concurrency,
            tokens: arguments.tokens,
            requests: arguments.requests,
            ..Load::default()
        };
        if let Some(prompt) = arguments.prompt {
            load.prompt = prompt;
        }
        let measured: Result<_, Failure> = async {
            let inventory = hosts::inventory(&work)?;
            let chosen = hosts::select(&work, &inventory, None)?;
            let (sites, _) = hosts::sites(&work, &inventory, &chosen, false).await?;
            let cluster = &inventory.cluster.name;
            bench::serve(
                &sites,
                cluster,
                &work.paths,
                &work.run,
                &load,
                &work.stop,
                &work.emitter,
            )
            .await
        }
        .await;
        match measured {
            Ok(report) => {
                let mut fields = Map::new();
                fields.insert("bench".into(), json!(report.value()));
                Outcome {
                    fields,
                    text: report.text(),
                    failure: None,
                    ..Outcome::default()
                }
            }
            Err(failure) => failure.into(),
        }
    })
}
