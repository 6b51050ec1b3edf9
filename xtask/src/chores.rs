//! Small chores, and what all chores share: where the repository is, how a command is run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a chore returns: nothing, or what to print.
pub type Done = Result<(), String>;

/// The repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Cargo, the one that runs this.
pub fn cargo() -> Command {
    let mut cargo = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // `cargo run` tells a program of its own package. Dependencies whose build scripts look at the same
    // names (ring's does) would be built again each time this or a person's own cargo comes after the other.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// A command in the repository's root.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Runs a command that must succeed, saying first what it is.
pub fn run(command: &mut Command) -> Done {
    let line = describe(command);
    println!("\n$ {line}");
    let status = command
        .status()
        .map_err(|error| format!("{line}: cannot be started: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{line}: {status}"))
    }
}

/// Whether a command runs at all and succeeds; shows nothing.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn describe(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            line.push_str(&format!("{}={} ", name.display(), value.display()));
        }
    }
    // As one would type it: not the toolchain's folder.
    let program = Path::new(command.get_program());
    let name = match program.file_name() {
        Some(name) if program.is_absolute() => name,
        _ => program.as_os_str(),
    };
    line.push_str(&name.to_string_lossy());
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

/// Builds both programs and runs the demo.
pub fn demo(arguments: &[String]) -> Done {
    build()?;
    let program = target_folder().join("release").join("windlass");
    let status = Command::new(&program)
        .arg("demo")
        .args(arguments)
        .status()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    // The demo has said what went wrong; its exit status is what a script wants.
    match status.code() {
        Some(0) => Ok(()),
        code => std::process::exit(code.unwrap_or(1)),
    }
}

/// Builds the programs that are shipped.
pub fn build() -> Done {
    // With --json the demo's stdout is for a program; cargo speaks on stderr, and so does this.
    let mut build = cargo();
    build.args([
        "build",
        "--release",
        "--locked",
        "-p",
        "windlass",
        "-p",
        "windlass-worker",
    ]);
    let status = build
        .status()
        .map_err(|error| format!("cargo build: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("cargo build: {status}"))
    }
}

/// Where cargo builds.
pub fn target_folder() -> PathBuf {
    // This program lies in target/PROFILE/xtask.
    std::env::current_exe()
        .ok()
        .and_then(|path| Some(path.parent()?.parent()?.to_owned()))
        .unwrap_or_else(|| root().join("target"))
}

/// Writes a small random model.
pub fn tiny(arguments: &[String]) -> Done {
    if arguments.is_empty() {
        return Err("tiny needs the file to write".into());
    }
    run(cargo()
        .args([
            "run",
            "--release",
            "--locked",
            "-p",
            "windlass-gguf",
            "--example",
            "tiny",
            "--",
        ])
        .args(arguments))
}

/// Runs each fuzz target for a while.
pub fn fuzz(arguments: &[String]) -> Done {
    let seconds: u32 = match arguments.first() {
        Some(text) => text
            .parse()
            .map_err(|_| format!("{text} is no number of seconds"))?,
        None => 600,
    };
    if !succeeds(cargo().args(["fuzz", "--version"])) {
        run(cargo().args(["install", "--locked", "cargo-fuzz"]))?;
    }
    run(&mut command("fuzz/seed.sh"))?;
    let folder = root().join("fuzz/fuzz_targets");
    let mut targets: Vec<String> = std::fs::read_dir(&folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some(name.strip_suffix(".rs")?.to_owned())
        })
        .collect();
    targets.sort();
    for target in targets {
        // The fuzzer's instrumentation asks for options that only a nightly compiler takes
        // without this.
        run(cargo()
            .env("RUSTC_BOOTSTRAP", "1")
            .args(["fuzz", "run", "--sanitizer", "none", &target, "--"])
            .arg(format!("-max_total_time={seconds}"))
            .arg("-rss_limit_mb=2048"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = command("/toolchain/bin/cargo");
        command.env("STRICT", "1").args(["test", "--release"]);
        assert_eq!(describe(&command), "STRICT=1 cargo test --release");
        assert_eq!(describe(&super::command("fuzz/seed.sh")), "fuzz/seed.sh");
    }
}
