//! Where configuration files are read from: this machine's disk, or a test's table. Must not know
//! what is in them.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::ssh::pattern;

/// The most that is read of a configuration file, bytes.
const MOST: u64 = 4 << 20;
/// The most files that one `Include` may name.
const MOST_FILES: usize = 1_000;

/// Files to read configuration from.
pub trait Source {
    /// A file's text; `None` when there is none.
    ///
    /// # Errors
    /// When it is there and cannot be read, or must not be trusted. `own`: it is the user's own.
    fn read(&self, path: &Path, own: bool) -> io::Result<Option<String>>;

    /// The names in a folder; none when it cannot be read.
    fn names(&self, folder: &Path) -> Vec<String>;
}

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Source for Disk {
    fn read(&self, path: &Path, own: bool) -> io::Result<Option<String>> {
        let file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let found = file.metadata()?;
        let user = rustix::process::geteuid().as_raw();
        // Who writes to it decides where we connect; OpenSSH refuses it too.
        if own && ((found.uid() != 0 && found.uid() != user) || found.mode() & 0o022 != 0) {
            return Err(io::Error::other(format!(
                "others may write to it; `chmod go-w {}` as its owner",
                path.display()
            )));
        }
        let mut bytes = Vec::new();
        file.take(MOST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST {
            return Err(io::Error::other(format!(
                "it is larger than {} MiB",
                MOST >> 20
            )));
        }
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn names(&self, folder: &Path) -> Vec<String> {
        let Ok(entries) = fs::read_dir(folder) else {
            return Vec::new();
        };
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect()
    }
}

/// The paths that a pattern names, sorted; `*` and `?` within a part of the path. A pattern without
/// either names its own path.
pub(super) fn glob(source: &dyn Source, wanted: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in wanted.components() {
        let text = part.as_os_str().to_string_lossy();
        if !text.contains(['*', '?']) {
            for path in &mut found {
                path.push(part);
            }
            continue;
        }
        let mut next = Vec::new();
        for folder in &found {
            let mut names = source.names(folder);
            // A star does not reach hidden files, as in a shell.
            names.retain(|name| {
                pattern::matches(&text, name) && (!name.starts_with('.') || text.starts_with('.'))
            });
            names.sort();
            next.extend(names.into_iter().map(|name| folder.join(name)));
        }
        next.truncate(MOST_FILES);
        found = next;
    }
    found
}
