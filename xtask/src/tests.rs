//! All everyday tests in the order in which they fail cheapest first; CI runs exactly this.

use crate::chores::{Done, build, cargo, command, root, run, succeeds};
use crate::lab::install_packages;
use crate::lines;

/// Runs the tests. With `--fast` nothing is installed or fetched.
pub fn test(arguments: &[String]) -> Done {
    let fast = match arguments {
        [] => false,
        [flag] if flag == "--fast" => true,
        _ => return Err("test takes nothing but --fast".into()),
    };
    lines::check()?;
    run(cargo().args(["fmt", "--all", "--check"]))?;
    run(cargo().args([
        "clippy",
        "--release",
        "--locked",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    if fast {
        println!("\nskipped: cargo deny, fixtures (--fast)");
    } else {
        install_packages()?;
        tool("deny", "cargo-deny")?;
        tool("nextest", "cargo-nextest")?;
        // Advisories need a database that not every machine may fetch.
        run(cargo().args(["deny", "--locked", "check", "bans", "licenses", "sources"]))?;
        if !succeeds(cargo().args(["deny", "--locked", "check", "advisories"])) {
            println!(
                "skipped: advisories (the database could not be fetched, or it names a crate: `cargo deny check advisories` tells)"
            );
        }
        fixtures()?;
    }
    build()?;
    run(cargo().args(["test", "--release", "--locked", "--workspace", "--doc"]))?;
    let mut nextest = cargo();
    nextest.args([
        "nextest",
        "run",
        "--release",
        "--locked",
        "--workspace",
        "--no-fail-fast",
    ]);
    if !fast {
        nextest.env("WINDLASS_REQUIRE_FIXTURES", "1");
    }
    run(&mut nextest)
}

/// Installs a cargo tool that is missing.
pub fn tool(verb: &str, package: &str) -> Done {
    if succeeds(cargo().args([verb, "--version"])) {
        return Ok(());
    }
    run(cargo().args(["install", "--locked", package]))
}

/// Fetches models and packages that tests read, and makes what is made from them.
pub fn fixtures() -> Done {
    let script = root().join("oracles/fetch.py");
    if !script.is_file() {
        println!("\nskipped: fixtures (no {})", script.display());
        return Ok(());
    }
    run(command("python3").arg(script))
}
