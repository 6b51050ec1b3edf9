//! Control groups as a handle on all processes of a host: whatever it started, and however it
//! detached, can be ended at once and found gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::{Context, LabError, Result, until, wrong};

/// Where the version 2 hierarchy is mounted.
pub fn root() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").during("/proc/self/mounts")?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .find(|(_, kind)| *kind == "cgroup2")
        .map(|(path, _)| PathBuf::from(path))
        .ok_or_else(|| LabError("a lab needs control groups version 2 (a cgroup2 mount)".into()))
}

/// Makes a group; one that is there stays.
pub fn make(group: &Path) -> Result<()> {
    fs::create_dir_all(group).during(group.display())
}

/// Whether any process is in the group or below it.
pub fn populated(group: &Path) -> bool {
    fs::read_to_string(group.join("cgroup.events"))
        .is_ok_and(|text| text.lines().any(|line| line == "populated 1"))
}

/// Ends every process in the group and below it, and waits until they are gone.
pub fn kill(group: &Path) -> Result<()> {
    if !group.exists() {
        return Ok(());
    }
    let gone = until(Duration::from_secs(10), || {
        // Again each time: a process moved in meanwhile ends too.
        let _ = fs::write(group.join("cgroup.kill"), "1");
        (!populated(group)).then_some(())
    });
    match gone {
        Some(()) => Ok(()),
        None => wrong(format!(
            "{}: processes outlive being killed",
            group.display()
        )),
    }
}

/// Removes a group and all below it; they must hold no process.
pub fn remove(group: &Path) -> Result<()> {
    if !group.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(group).during(group.display())?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path())?;
        }
    }
    // The last process may still be on its way out.
    let removed = until(Duration::from_secs(5), || {
        (fs::remove_dir(group).is_ok() || !group.exists()).then_some(())
    });
    match removed {
        Some(()) => Ok(()),
        None => wrong(format!("{}: cannot be removed", group.display())),
    }
}
