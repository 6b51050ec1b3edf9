//! The record of files in a folder of pieces whose digest was checked. Must not know who checked
//! them, or why.
//!
//! Reading every piece at each start would take minutes. So when a piece's digest is known, its
//! size, time of change and inode are written down, and a file that still has them is taken as
//! unchanged. Whoever writes pieces into such a folder writes this record, in this form.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Name of the record in its folder.
pub const RECORD_FILE: &str = "checked.json";
/// Name of the file that whoever changes the folder holds locked.
pub const LOCK_FILE: &str = "lock";
/// Largest record read, in bytes.
const MAX_RECORD: u64 = 16 << 20;

/// What a file looked like when its digest was known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Digest of all its bytes, 64 hexadecimal digits.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    /// Time of change in seconds and nanoseconds.
    pub changed: (i64, i64),
    /// Its number in the file system.
    pub inode: u64,
}

impl Seen {
    /// What a file with this digest looks like now. A link is looked at itself.
    ///
    /// # Errors
    /// When it is not there or cannot be looked at.
    pub fn of(path: &Path, sha256: &str) -> io::Result<Self> {
        let meta = fs::symlink_metadata(path)?;
        Ok(Self {
            sha256: sha256.to_owned(),
            bytes: meta.len(),
            changed: (meta.mtime(), meta.mtime_nsec()),
            inode: meta.ino(),
        })
    }
}

/// By file name.
pub type Record = BTreeMap<String, Seen>;

/// The record of a folder, empty when there is none that can be used: then everything is read.
pub fn read_record(folder: &Path) -> Record {
    let read = || -> io::Result<Record> {
        let file = File::open(folder.join(RECORD_FILE))?;
        let mut text = Vec::new();
        file.take(MAX_RECORD).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    };
    read().unwrap_or_default()
}

/// Replaces the record of a folder, whole or not at all.
///
/// # Errors
/// When the folder cannot be written.
pub fn write_record(folder: &Path, record: &Record) -> io::Result<()> {
    let partial = folder.join(format!("{RECORD_FILE}.partial"));
    match fs::remove_file(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A new file: one that others left there, or a link of theirs, is not written through.
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&partial)?;
    file.write_all(serde_json::to_string_pretty(record)?.as_bytes())?;
    file.sync_all()?;
    fs::rename(&partial, folder.join(RECORD_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_a_damaged_one_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, "x").unwrap();
        let record = Record::from([("a".to_owned(), Seen::of(&file, "00").unwrap())]);
        write_record(folder.path(), &record).unwrap();
        assert_eq!(read_record(folder.path()), record);
        fs::write(folder.path().join(RECORD_FILE), "{").unwrap();
        assert_eq!(read_record(folder.path()), Record::new());
    }

    #[test]
    fn a_link_left_in_the_way_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        let partial = folder.path().join(format!("{RECORD_FILE}.partial"));
        std::os::unix::fs::symlink(&victim, &partial).unwrap();
        write_record(folder.path(), &Record::new()).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    }
}
