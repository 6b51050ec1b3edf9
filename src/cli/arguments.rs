//! The commands and flags, as types. Nothing else: no defaults decided elsewhere, no action.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, value_parser};

use super::bench::BenchArguments;
use super::clone::CloneArguments;
use super::memory::MemoryArguments;
use super::net::NetArguments;
use super::playbook::PlaybookArguments;
use super::serve::{
    ApiArguments, ChatArguments, DownArguments, ExecArguments, LogsArguments, UpArguments,
};
use crate::deploy::demo::MOST_TOKENS;
use crate::plan::DEFAULT_CONCURRENCY;

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
    /// With --check: exit status 5 when something would be changed
    #[arg(long, global = true)]
    pub fail_on_change: bool,
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
    /// Screens draw with ASCII characters only
    #[arg(long, global = true)]
    pub ascii: bool,
    /// Screens leave the mouse to the terminal
    #[arg(long, global = true)]
    pub no_mouse: bool,
    /// Only failures and data
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Take the host keys of unknown hosts, and write them down; never those that changed
    #[arg(long, global = true)]
    pub accept_new_host_keys: bool,
    /// Write prompts and answers to the run's journal too
    #[arg(long, global = true)]
    pub journal_text: bool,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Run a real cluster on this machine alone and ask it one question
    Demo(DemoArguments),
    /// Send each host its pieces of a model and start nothing
    Push(UpArguments),
    /// Bring a model up on the inventory's hosts
    Up(UpArguments),
    /// Stop what runs on the inventory's hosts
    Down(DownArguments),
    /// Say what runs, and how it is
    Status,
    /// Show the workers' logs
    Logs(LogsArguments),
    /// Bring the API of what runs to a port of this machine
    Api(ApiArguments),
    /// Talk with the model that runs
    Chat(ChatArguments),
    /// Run a command on hosts
    Exec(ExecArguments),
    /// Read what is to be known of the hosts
    Facts(FactsArguments),
    /// Say where the hosts differ though they must not, why it matters and what mends it
    Verify(VerifyArguments),
    /// Make the hosts the same where windlass can, and say what is left to do by hand
    Align(AlignArguments),
    /// Copy a host's system onto the disk of another, bootable and with an identity of its own
    Clone(CloneArguments),
    /// Measure the links between hosts and say what is wrong with them
    Net(NetArguments),
    /// How much memory GPUs may use: show, set, give back
    Memory(MemoryArguments),
    /// Say which host would hold what, or by how much the model does not fit
    Plan(PlanArguments),
    /// Models on this machine: fetch, list, show, verify, remove
    Model(ModelArguments),
    /// Playbooks: run, check, list and show them
    Playbook(PlaybookArguments),
    /// Measure what runs
    Bench(BenchArguments),
    /// Show a run again from its journal
    Replay(ReplayArguments),
    /// Look whether this machine has what windlass needs
    Doctor,
    /// Print the completions of a shell
    Completions(CompletionsArguments),
    /// Print the manual page
    Man,
    /// Show the folders windlass uses
    Paths,
    /// The hosts in inventory.toml: list, show, change and check them
    Inventory(InventoryArguments),
}

/// Arguments of `demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArguments {
    /// Stay in plain lines, without screens
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

/// Arguments of `replay`.
#[derive(Args, Clone, Debug)]
pub struct ReplayArguments {
    /// A journal's file, or the id of a run
    #[arg(value_name = "JOURNAL")]
    pub journal: String,
    /// Keep the times between the events, this many times faster [default: as fast as can be]
    #[arg(long, value_name = "FACTOR", value_parser = faster)]
    pub speed: Option<f64>,
    /// Show it on the screens, all at once
    #[arg(long, conflicts_with_all = ["speed", "json"])]
    pub screens: bool,
}

fn faster(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => Err("a number above 0, as 1 or 10".to_owned()),
    }
}

/// Arguments of `completions`.
#[derive(Args, Clone, Debug)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Arguments of `facts`.
#[derive(Args, Clone, Debug)]
pub struct FactsArguments {
    /// Only these hosts [default: all of the inventory]
    #[arg(value_name = "HOST")]
    pub host: Option<String>,
}

/// Arguments of `verify`.
#[derive(Args, Clone, Debug)]
pub struct VerifyArguments {
    /// The host that the others are compared with [default: the head]
    #[arg(long, value_name = "HOST")]
    pub against: Option<String>,
}

/// Arguments of `align`.
#[derive(Args, Clone, Debug)]
pub struct AlignArguments {
    /// The host that the others become like [default: the head]
    #[arg(long, value_name = "HOST", conflicts_with = "undo")]
    pub against: Option<String>,
    /// Take a run of `align` back
    #[arg(long, value_name = "RUN", conflicts_with = "reboot")]
    pub undo: Option<String>,
    /// How it takes effect
    #[command(flatten)]
    pub reboot: Reboot,
}

/// Whether hosts are rebooted.
#[derive(Args, Clone, Copy, Debug)]
pub struct Reboot {
    /// Reboot hosts that need it, one at a time, and look whether it took effect
    #[arg(long)]
    pub reboot: bool,
    /// Seconds a host may take to come back
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub reboot_timeout: u64,
}

impl Reboot {
    /// The longest time a host may stay away.
    pub fn patience(self) -> Duration {
        Duration::from_secs(self.reboot_timeout)
    }
}

/// Arguments of `plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArguments {
    /// Model: a file, org/name[@revision]:quant, or an alias
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Tokens of context a sequence may have [default: 4096, or what the model was made for]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub context: Option<u32>,
    /// Sequences of full context to have room for
    #[arg(long, value_name = "N", default_value_t = DEFAULT_CONCURRENCY, value_parser = value_parser!(u32).range(1..))]
    pub concurrency: u32,
}

/// Arguments of `model`.
#[derive(Args, Clone, Debug)]
pub struct ModelArguments {
    /// What to do
    #[command(subcommand)]
    pub verb: ModelVerb,
}

/// What can be done with models.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelVerb {
    /// Fetch a model, unless it is there already
    Pull {
        /// Model: org/name[@revision]:quant, or an alias
        #[arg(value_name = "REF")]
        model: String,
    },
    /// List the models on this machine
    List,
    /// Show what a model on this machine is
    Show {
        /// Model: a file, org/name[@revision]:quant, or an alias
        #[arg(value_name = "REF")]
        model: String,
    },
    /// Read model files in full and compare their digests
    Verify {
        /// Model: a file, org/name[@revision]:quant, or an alias
        #[arg(
            value_name = "REF",
            required_unless_present = "all",
            conflicts_with = "all"
        )]
        model: Option<String>,
        /// All models on this machine
        #[arg(long)]
        all: bool,
    },
    /// Remove a model from this machine's cache
    Remove {
        /// Model: org/name[@revision]:quant, or an alias
        #[arg(value_name = "REF")]
        model: String,
    },
}

impl ModelVerb {
    /// The command as the summary names it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pull { .. } => "model pull",
            Self::List => "model list",
            Self::Show { .. } => "model show",
            Self::Verify { .. } => "model verify",
            Self::Remove { .. } => "model remove",
        }
    }
}
/// Arguments of `inventory`.
#[derive(Args, Clone, Debug)]
pub struct InventoryArguments {
    /// What to do.
    #[command(subcommand)]
    pub verb: InventoryVerb,
}

/// The commands under `inventory`.
#[derive(Clone, Debug, Subcommand)]
pub enum InventoryVerb {
    /// List the hosts
    List,
    /// Show every value and where it comes from
    Show {
        /// Only these hosts: a selector, as halo1, mac*, @group
        host: Option<String>,
    },
    /// Add a host, a range of hosts as mac[1-5], or a group as @NAME
    Add {
        /// Name of the host, range or group
        name: String,
        /// Its values, as address=10.0.0.7, ssh.port=22, ssh.password=env:NAME
        #[arg(value_name = "KEY=VALUE")]
        values: Vec<String>,
        /// Put the public key on the host, asking for its password once
        #[arg(long)]
        copy_key: bool,
    },
    /// Set values of a host, of a group as @NAME, or of all hosts as @all
    Set {
        /// Host, range, or group
        #[arg(value_name = "HOST|@GROUP")]
        whom: String,
        /// Values, as user=ai; an empty value takes the key out
        #[arg(value_name = "KEY=VALUE", required = true)]
        values: Vec<String>,
    },
    /// Remove a host, also one of a range, or a group as @NAME
    Remove {
        /// Host, range, or group
        #[arg(value_name = "HOST|@GROUP")]
        whom: String,
    },
    /// Say all that is wrong with the inventory, without connecting anywhere
    Check,
    /// Open the inventory in $VISUAL or $EDITOR, and take it when it is valid
    Edit,
    /// Show the key of a host and ask whether to trust it
    Trust {
        /// The host, or a selector
        host: String,
    },
}
