//! `windlass-worker`: see [`windlass_worker::run`].

use clap::{Parser, Subcommand};

/// One stage of a model. Started by windlass; never needed by hand.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Take an assignment from stdin and serve it
    Serve,
}

fn main() {
    let Arguments { command: Command::Serve } = Arguments::parse();
    std::process::exit(windlass_worker::run::serve());
}
