//! What of the machine a host may not see: everything but the system itself. A fresh host then holds
//! neither a worker nor a model, wherever the machine keeps them, and starts no service of the
//! machine's.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::command::{Context, Result, wrong};
use crate::upper::Upper;

/// Folders of `/` that a host shares with the machine; all others are empty there.
const SYSTEM: &[&str] = &[
    "bin", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "usr", "var",
];

/// Folders of `/` that every host has, with their modes.
const STANDARD: &[(&str, u32)] = &[
    ("/boot", 0o755),
    ("/dev", 0o755),
    ("/home", 0o755),
    ("/media", 0o755),
    ("/mnt", 0o755),
    ("/opt", 0o755),
    ("/proc", 0o555),
    ("/root", 0o700),
    ("/run", 0o755),
    ("/srv", 0o755),
    ("/sys", 0o555),
    ("/tmp", 0o1777),
];

/// Folders of `/var/lib` that belong to the system's packages.
const KEPT_STATE: &[&str] = &["dpkg", "pam", "dbus", "polkit-1", "sudo"];

/// Folders of the system that hold what this one machine does.
const OWN: &[(&str, u32)] = &[
    ("/etc/systemd/system", 0o755),
    ("/etc/systemd/user", 0o755),
    ("/etc/systemd/network", 0o755),
    ("/etc/init.d", 0o755),
    ("/etc/cron.d", 0o755),
    ("/etc/ssh", 0o755),
    ("/etc/sudoers.d", 0o750),
    ("/etc/update-motd.d", 0o755),
    ("/etc/netns", 0o755),
    ("/usr/local/bin", 0o755),
    ("/usr/local/share", 0o755),
    ("/usr/src", 0o755),
    ("/var/cache", 0o755),
    ("/var/log", 0o755),
    ("/var/mail", 0o755),
    ("/var/spool", 0o755),
    ("/var/tmp", 0o1777),
];

/// Variables that name folders in which programs, models or sources may lie.
const FOLDER_VARIABLES: &[&str] = &[
    "HOME",
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "RUSTUP_HOME",
    "HF_HOME",
    "HF_HUB_CACHE",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "TMPDIR",
];

/// Writes the marks that hide the machine's own things. `more` are folders to hide wherever they
/// lie: the project, the build folder.
pub fn hide(upper: &Upper, more: &[PathBuf]) -> Result<()> {
    same_file_system()?;
    for (path, bits) in STANDARD {
        upper.opaque(path, *bits)?;
    }
    let standard = |path: &str| STANDARD.iter().any(|(known, _)| *known == path);
    for (name, kind) in entries(Path::new("/"))? {
        let path = format!("/{name}");
        if SYSTEM.contains(&name.as_str()) || standard(&path) {
            continue;
        }
        if kind.is_dir() {
            upper.opaque(&path, 0o755)?;
        } else {
            upper.absent(&path)?;
        }
    }
    for (path, bits) in OWN {
        if Path::new(path).is_dir() {
            upper.opaque(path, *bits)?;
        }
    }
    for (name, kind) in entries(Path::new("/etc"))? {
        let runlevel = name.starts_with("rc") && name.ends_with(".d");
        if runlevel && kind.is_dir() {
            upper.opaque(&format!("/etc/{name}"), 0o755)?;
        }
    }
    for (name, kind) in entries(Path::new("/var/lib"))? {
        let path = format!("/var/lib/{name}");
        if kind.is_dir() && !KEPT_STATE.contains(&name.as_str()) {
            upper.absent(&path)?;
        }
    }
    let variables = FOLDER_VARIABLES.iter().filter_map(env::var_os);
    for path in variables.map(PathBuf::from).chain(more.iter().cloned()) {
        // What lies outside the system's folders is hidden already; a folder that holds the
        // system cannot be hidden.
        let Ok(path) = path.canonicalize() else {
            continue;
        };
        let inside = path.components().count() > 2
            && SYSTEM
                .iter()
                .any(|name| path.starts_with(Path::new("/").join(name)));
        let holds_system = ["/usr/bin", "/usr/lib", "/usr/sbin", "/etc", "/var/lib/dpkg"]
            .iter()
            .any(|system| Path::new(system).starts_with(&path));
        if inside && !holds_system && path.is_dir() {
            upper.opaque(&path.to_string_lossy(), 0o755)?;
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<(String, fs::FileType)>> {
    Ok(fs::read_dir(folder)
        .during(folder.display())?
        .flatten()
        .filter_map(|entry| {
            Some((
                entry.file_name().into_string().ok()?,
                entry.file_type().ok()?,
            ))
        })
        .collect())
}

/// An overlay shows one file system: the system may not be spread over several.
fn same_file_system() -> Result<()> {
    let root = fs::metadata("/").during("/")?.dev();
    for path in ["/usr", "/etc", "/var", "/var/lib"] {
        if fs::metadata(path).during(path)?.dev() != root {
            return wrong(format!(
                "{path} is a file system of its own; a lab needs it on that of /"
            ));
        }
    }
    Ok(())
}
