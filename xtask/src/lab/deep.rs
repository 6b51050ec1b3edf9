//! `cargo xtask deep`: the tests in virtual machines, which take longer than CI's everyday ones may.

use std::time::Instant;

use windlass_lab::{Vms, vm_refusal};

use super::{text, vm};
use crate::chores::{Done, cargo, run, target_folder};
use crate::tests::tool;

/// Runs them; `arguments` are names, or parts of names, of the tests to run.
pub fn deep(arguments: &[String]) -> Done {
    let started = Instant::now();
    vm::install()?;
    if let Some(reason) = vm_refusal() {
        return Err(reason);
    }
    tool("nextest", "cargo-nextest")?;
    vm::make_image()?;
    let wanted = match arguments {
        [] => "test(/^deep::/)".to_owned(),
        names => {
            let names: Vec<String> = names.iter().map(|name| format!("test({name})")).collect();
            format!("test(/^deep::/) & ({})", names.join(" + "))
        }
    };
    // What a run left that was killed.
    clear()?;
    let ran = run(cargo()
        .args(["nextest", "run", "--release", "--locked", "--workspace"])
        .args(["--run-ignored", "only", "--no-fail-fast"])
        .args(["-E", &wanted])
        // What a test prints is shown when it ends; what it is at is told here meanwhile, since minutes of
        // silence would look like a test that hangs.
        .env(
            "WINDLASS_DEEP_SAYS",
            format!("/proc/{}/fd/2", std::process::id()),
        ));
    // A test that was ended could not clean up.
    let cleared = clear();
    println!("\n{:.0} s in all", started.elapsed().as_secs_f64());
    ran.and(cleared)
}

/// Takes away every virtual machine of a test.
fn clear() -> Done {
    let folder = target_folder().join("tmp/vm");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        // No test was run here yet.
        return Ok(());
    };
    for entry in entries.flatten() {
        Vms::clear(&entry.path()).map_err(text)?;
    }
    Ok(())
}
