//! The commands and flags, as types. Nothing else: no defaults decided elsewhere, no action.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, value_parser};

use crate::deploy::demo::MOST_TOKENS;

/// Makes several machines serve one language model that none of them can hold.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "windlass",
    version,
    propagate_version = true,
    disable_help_subcommand = false
)]
pub struct Arguments {
    /// Flags of every command.
    #[command(flatten)]
    pub common: Common,
    /// The command.
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

/// Flags that every command takes, before or after its name.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Common options")]
pub struct Common {
    /// Inventory of hosts [default: ./inventory.toml, then the configuration folder]
    #[arg(short, long, global = true, value_name = "FILE")]
    pub inventory: Option<PathBuf>,
    /// Only these hosts
    #[arg(long, global = true, value_name = "SELECTOR")]
    pub limit: Option<String>,
    /// Write events as JSON, one object a line; the last is the summary
    #[arg(long, global = true)]
    pub json: bool,
    /// Say what would be changed, and change nothing
    #[arg(long, global = true)]
    pub check: bool,
    /// Show changes in full
    #[arg(long, global = true)]
    pub diff: bool,
    /// Answer yes to questions that ask for leave
    #[arg(long, global = true)]
    pub yes: bool,
    /// Never ask; a missing answer ends the run
    #[arg(long, global = true)]
    pub no_input: bool,
    /// No colours
    #[arg(long, global = true)]
    pub no_color: bool,
    /// Only failures and data
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Write prompts and answers to the run's journal too
    #[arg(long, global = true)]
    pub journal_text: bool,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Run a real cluster on this machine alone and ask it one question
    Demo(DemoArguments),
    /// Show the folders windlass uses
    Paths,
}

/// Arguments of `demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArguments {
    /// Stay in plain lines, without screens (the only way so far)
    #[arg(long)]
    pub headless: bool,
    /// Workers to start; each holds only its part of the model
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(1..=8))]
    pub workers: u32,
    /// Tokens to generate
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = value_parser!(u32).range(1..=i64::from(MOST_TOKENS)))]
    pub tokens: u32,
    /// Model: a file, org/name[@revision]:quant, or an alias
    #[arg(long, value_name = "REF", default_value = "smollm2")]
    pub model: String,
    /// The worker's program [default: WINDLASS_WORKER, else windlass-worker beside this program]
    #[arg(long, value_name = "FILE")]
    pub worker: Option<PathBuf>,
}
