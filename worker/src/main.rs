//! `windlass-worker`: see [`windlass_worker::run`] and [`windlass_worker::host`].

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use windlass_wire::exit;
use windlass_worker::{carry, host};

/// One stage of a model, and what a host needs around it. Started by windlass; never needed by hand.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Take an assignment from stdin and run that stage
    Stage,
    /// Print what this program is
    Describe,
    /// Take pieces from stdin into a folder
    Receive {
        /// The folder
        #[arg(long)]
        folder: PathBuf,
        /// Read every file that is there, even when it looks unchanged
        #[arg(long)]
        verify: bool,
    },
    /// Make pieces of a model file on this host and send them to stdout
    Source,
    /// Hold a host's lock until stdin ends
    Lock {
        /// Folder of the lock
        #[arg(long)]
        folder: PathBuf,
        /// Who holds it, for others
        #[arg(long)]
        holder: String,
    },
    /// Carry stdin and stdout to and from a Unix socket
    Relay {
        /// The socket
        socket: PathBuf,
    },
    /// Answer each line on stdin with the nanoseconds since 1970
    Clock,
    /// Try a path between two hosts
    Probe {
        #[command(subcommand)]
        end: Probe,
    },
    /// Measure the link between two hosts
    Link {
        #[command(subcommand)]
        end: Link,
    },
    /// Carry files to another host, or read them
    Carry {
        #[command(subcommand)]
        what: Carry,
    },
    /// Run the stage of a deployment's folder until told to stop
    Serve {
        /// The folder
        folder: PathBuf,
        /// End when the process that started this one ends
        #[arg(long, hide = true)]
        with_parent: bool,
    },
    /// Keep `serve` running in the background, where there is no systemd
    Supervise {
        /// The folder
        folder: PathBuf,
        #[arg(long, hide = true)]
        detached: bool,
    },
}

#[derive(Subcommand)]
enum Probe {
    /// Listen until stdin ends
    Listen {
        /// Own address
        #[arg(long)]
        address: String,
        /// Port; 0 takes any
        #[arg(long)]
        port: u16,
        /// What to answer
        #[arg(long)]
        nonce: String,
    },
    /// Try to reach one that listens
    Connect {
        /// Its address
        #[arg(long)]
        address: String,
        /// Its port
        #[arg(long)]
        port: u16,
        /// What it must answer
        #[arg(long)]
        nonce: String,
        /// Milliseconds to try
        #[arg(long)]
        time_ms: u64,
    },
}

/// Each takes an order on the first line of stdin, and ends when stdin does.
#[derive(Subcommand)]
enum Carry {
    /// Give a program's output to the host that takes it
    Give,
    /// Take it as a program's input
    Take,
    /// Read a tree of files and tell digests
    Read,
}

#[derive(Subcommand)]
enum Link {
    /// Listen until stdin ends, then say what was carried
    Serve {
        /// Own address
        #[arg(long)]
        address: String,
        /// Port; 0 takes any
        #[arg(long)]
        port: u16,
        /// What both ends know
        #[arg(long)]
        nonce: String,
    },
    /// Measure the way to one that listens
    Measure {
        /// Its address
        #[arg(long)]
        address: String,
        /// Its port
        #[arg(long)]
        port: u16,
        /// What both ends know
        #[arg(long)]
        nonce: String,
        /// Milliseconds that count of each direction
        #[arg(long)]
        time_ms: u64,
        /// Connections that carry a direction together
        #[arg(long, default_value_t = 1)]
        streams: u32,
    },
}

fn main() {
    std::process::exit(match Arguments::parse().command {
        Command::Stage => windlass_worker::run::serve(),
        Command::Serve {
            folder,
            with_parent,
        } => windlass_worker::unit::serve(&folder, with_parent),
        other => match run(other) {
            Ok(true) => exit::DONE,
            Ok(false) => exit::FAILED,
            Err(error) => {
                eprintln!("windlass-worker: {error}");
                exit::FAILED
            }
        },
    });
}

/// Runs a subcommand; `false` when it has said itself why it failed.
fn run(command: Command) -> Result<bool, Box<dyn std::error::Error>> {
    if let Command::Carry { what } = &command {
        return run_carry(what);
    }
    let mut input = io::stdin().lock();
    let mut output = host::stdout()?;
    match command {
        Command::Stage | Command::Serve { .. } | Command::Carry { .. } => {}
        Command::Describe => {
            let tier = windlass_worker::engine::ops::tier_name();
            host::say(&mut output, &host::describe::describe(tier))?;
        }
        Command::Receive { folder, verify } => {
            host::intake::widen(&input);
            host::receive::run(&folder, verify, input, output)?;
        }
        Command::Source => {
            host::intake::widen(&output);
            return Ok(host::source::run(input, output)?);
        }
        Command::Lock { folder, holder } => {
            return Ok(host::lock::run(&folder, &holder, &mut input, &mut output)?);
        }
        Command::Relay { socket } => {
            let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
            host::relay::run(&socket, input, output)?;
        }
        Command::Clock => host::clock(&mut input, &mut output)?,
        Command::Probe {
            end:
                Probe::Listen {
                    address,
                    port,
                    nonce,
                },
        } => {
            return Ok(host::probe::listen(
                &address,
                port,
                &nonce,
                &mut input,
                &mut output,
            )?);
        }
        Command::Probe {
            end:
                Probe::Connect {
                    address,
                    port,
                    nonce,
                    time_ms,
                },
        } => {
            let time = Duration::from_millis(time_ms);
            let came = host::probe::connect(&address, port, &nonce, time);
            host::say(&mut output, &came)?;
        }
        Command::Link {
            end:
                Link::Serve {
                    address,
                    port,
                    nonce,
                },
        } => {
            // Stdin is read on a thread of its own.
            let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
            return Ok(host::link::listen(
                &address,
                port,
                &nonce,
                input,
                &mut output,
            )?);
        }
        Command::Link {
            end:
                Link::Measure {
                    address,
                    port,
                    nonce,
                    time_ms,
                    streams,
                },
        } => {
            let wanted = host::link::Wanted {
                address,
                port,
                nonce,
                time: Duration::from_millis(time_ms),
                streams,
            };
            return Ok(host::link::measure(&wanted, &mut output)?);
        }
        Command::Supervise { folder, detached } => {
            if !detached {
                host::supervise::start(&folder)?;
            } else if let Err(reason) = host::supervise::run(&folder) {
                // The one that waits for this process reads its stdout.
                writeln!(output, "{reason}")?;
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Runs a subcommand of `carry`. Stdin is read on a thread of its own.
fn run_carry(what: &Carry) -> Result<bool, Box<dyn std::error::Error>> {
    let input = BufReader::new(File::from(io::stdin().as_fd().try_clone_to_owned()?));
    let mut output = host::stdout()?;
    Ok(match what {
        Carry::Give => carry::give::run(&carry::order(input)?, &mut output),
        Carry::Take => carry::take::run(&carry::order(input)?, &mut output),
        Carry::Read => carry::read::run(&carry::order(input)?, &mut output),
    })
}
