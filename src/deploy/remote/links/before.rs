//! What was measured of a cluster's links before: one file for each cluster in the state folder,
//! replaced whole.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::verdict::Before;
use crate::paths::private_folder;

/// Version of the file's form.
const FORM: u32 = 1;
/// Longest file read, bytes.
const LONGEST: u64 = 16 << 20;

/// Earlier figures, by pair.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    v: u32,
    pairs: BTreeMap<String, Before>,
}

/// A pair's key: both names, in the order of measuring.
fn key(from: &str, to: &str) -> String {
    format!("{from} {to}")
}

impl History {
    /// The figures of a pair, as seen from `from`.
    pub fn of(&self, from: &str, to: &str) -> Option<Before> {
        let turned = |before: &Before| Before {
            there_mbit: before.back_mbit,
            back_mbit: before.there_mbit,
            ..before.clone()
        };
        self.pairs
            .get(&key(from, to))
            .cloned()
            .or_else(|| self.pairs.get(&key(to, from)).map(turned))
    }

    /// Takes a pair's figures in place of earlier ones.
    pub fn learn(&mut self, from: &str, to: &str, figures: Before) {
        self.pairs.remove(&key(to, from));
        self.pairs.insert(key(from, to), figures);
    }
}

/// The file of a cluster.
pub fn path(state: &Path, cluster: &str) -> PathBuf {
    // A name of a cluster is a word; whatever else it may be must not leave the folder.
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = cluster
        .chars()
        .map(|c| if safe(c) { c } else { '_' })
        .take(100)
        .collect();
    state.join("links").join(format!("{name}.json"))
}

/// Reads earlier figures; none where there is no file.
///
/// # Errors
/// When it cannot be read, or is none of ours.
pub fn read(path: &Path) -> io::Result<History> {
    let mut text = String::new();
    match File::open(path) {
        Ok(file) => file.take(LONGEST).read_to_string(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(History::default()),
        Err(error) => return Err(error),
    };
    let history: History = serde_json::from_str(&text)?;
    if history.v != FORM {
        return Err(io::Error::other("it is of another version of windlass"));
    }
    Ok(history)
}

/// Writes figures: the file is either the old one or the new one, whatever happens.
///
/// # Errors
/// When the folder or the file cannot be written.
pub fn write(path: &Path, history: &History) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    private_folder(folder)?;
    let partial = path.with_extension(format!("{}.part", std::process::id()));
    let history = History {
        v: FORM,
        ..history.clone()
    };
    let written = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&partial)
        .and_then(|mut file| {
            file.write_all(&serde_json::to_vec_pretty(&history)?)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(there: f64, back: f64) -> Before {
        Before {
            time: "2026-11-01T10:00:00Z".into(),
            there_mbit: there,
            back_mbit: back,
            round_trip_us: 70.0,
        }
    }

    #[test]
    fn figures_come_back_from_either_end_and_a_bad_file_is_an_error() {
        let state = tempfile::tempdir().unwrap();
        let at = path(state.path(), "../halo");
        assert!(at.starts_with(state.path().join("links")), "{at:?}");
        assert_eq!(read(&at).unwrap(), History::default());
        let mut history = History::default();
        history.learn("a", "b", figures(1.0, 2.0));
        write(&at, &history).unwrap();
        let mut read_again = read(&at).unwrap();
        assert_eq!(read_again.of("a", "b"), Some(figures(1.0, 2.0)));
        assert_eq!(read_again.of("b", "a"), Some(figures(2.0, 1.0)));
        assert_eq!(read_again.of("a", "c"), None);
        read_again.learn("b", "a", figures(5.0, 6.0));
        assert_eq!(read_again.of("a", "b"), Some(figures(6.0, 5.0)));
        for text in ["", "{}", "{\"v\":2,\"pairs\":{}}", "[1"] {
            fs::write(&at, text).unwrap();
            assert!(read(&at).is_err(), "{text}");
        }
        let left: Vec<_> = fs::read_dir(at.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1);
    }
}
