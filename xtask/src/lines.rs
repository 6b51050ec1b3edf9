//! A file over 700 lines holds two things; this says which ones do.

use std::path::Path;

use crate::chores::{Done, root};

const MOST: usize = 700;

/// Checks every Rust file of the repository.
pub fn check() -> Done {
    let mut long = Vec::new();
    for folder in ["src", "worker", "crates", "tests", "xtask", "fuzz"] {
        walk(&root().join(folder), &mut long)?;
    }
    if long.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "these files are over {MOST} lines; split them:\n  {}",
            long.join("\n  ")
        ))
    }
}

fn walk(folder: &Path, long: &mut Vec<String>) -> Done {
    let Ok(entries) = std::fs::read_dir(folder) else {
        // Not every folder of the list need exist.
        return Ok(());
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if name != "target" {
                walk(&path, long)?;
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            let lines = text.lines().count();
            if lines > MOST {
                long.push(format!("{} ({lines})", path.display()));
            }
        }
    }
    Ok(())
}
