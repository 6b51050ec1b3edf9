//! Chores of the repository: the demo, all tests, checks, test hosts.
//!
//! `cargo xtask` without arguments lists them. The tools that the tests need and that are missing
//! are installed with cargo; what is there is left alone.

mod chores;
#[cfg_attr(not(target_os = "linux"), path = "lab/elsewhere.rs")]
mod lab;
mod lines;
mod tests;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask demo [ARGUMENTS]   build everything and run `windlass demo ARGUMENTS`
cargo xtask test               all everyday tests, as CI runs them
cargo xtask test --fast        the same without installing or fetching anything: tests whose
                               fixtures are not there skip themselves and say so
cargo xtask deep [NAME…]       the tests in virtual machines (about half an hour); with names,
                               those whose name contains one
cargo xtask fixtures           fetch and make the test fixtures
cargo xtask tiny FILE.gguf     write a small random model
cargo xtask lines              refuse files that hold two things (over 700 lines)
cargo xtask lab                test hosts in namespaces of this machine; lists what it can do
cargo xtask vm                 the same as virtual machines; lists what it can do
cargo xtask fuzz [SECONDS]     run each fuzz target for so long (600)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rest = arguments.get(1..).unwrap_or(&[]);
    let done = match arguments.first().map(String::as_str) {
        Some("demo") => chores::demo(rest),
        Some("test") => tests::test(rest),
        Some("deep") => lab::deep(rest),
        Some("fixtures") => tests::fixtures(),
        Some("tiny") => chores::tiny(rest),
        Some("lines") => lines::check(),
        Some("lab") => lab::lab(rest),
        Some("vm") => lab::vm(rest),
        Some("fuzz") => chores::fuzz(rest),
        None | Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            Ok(())
        }
        Some(other) => Err(format!("there is no chore {other}\n\n{HELP}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
