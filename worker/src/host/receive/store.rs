//! Stores a file that arrived while the next one comes: on disk, under its name, in the record. Must
//! not know how it came.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;

use windlass_gguf::checked::{RECORD_FILE, Record, Seen, write_record};
use windlass_wire::host::FromReceiver;

use super::super::{say, size};
use super::{ReceiveError, Receiver, Result, free, part_of, remove};

/// A file whose bytes have all come and are the right ones.
pub(super) struct Arrived {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) file: File,
    /// Where it lies: the part, or the file itself when it was only to be checked.
    pub(super) source: PathBuf,
    /// Where it belongs.
    pub(super) path: PathBuf,
    pub(super) sha256: String,
    /// Raw bytes that came for it.
    pub(super) received: u64,
}

/// What the thread that stores shares with the one that receives.
pub(super) struct Shared<O> {
    pub(super) output: Mutex<O>,
    pub(super) record: Mutex<Record>,
}

impl<O: Write> Shared<O> {
    pub(super) fn say(&self, message: &FromReceiver) -> io::Result<()> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        say(&mut *output, message)
    }

    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'scope, I: std::io::BufRead, O: Write + Send> Receiver<'scope, '_, I, O> {
    /// Writes a file out and gives it its name while the next one comes; says so, or why not.
    pub(super) fn store(&mut self, arrived: Arrived) -> Result<()> {
        // One at a time: what the disk cannot take is not piled up.
        self.settle()?;
        self.damaged.remove(&arrived.name);
        self.offsets.insert(arrived.name.clone(), arrived.bytes);
        let (folder, shared) = (self.folder, self.shared);
        self.storing = Some(self.scope.spawn(move || {
            let kept = arrived
                .file
                .sync_all()
                .and_then(|()| keep(folder, shared, &arrived));
            let said = match kept {
                Ok(()) => shared.say(&FromReceiver::Stored {
                    file: arrived.name,
                    received: arrived.received,
                    sha256: arrived.sha256,
                }),
                Err(error) => {
                    let part = part_of(&arrived.path);
                    let reason = why_unwritten(folder, &arrived.name, &part, arrived.bytes, &error);
                    let bad = FromReceiver::Bad {
                        file: arrived.name,
                        reason: reason.clone(),
                    };
                    // Whoever cannot be told reads it on stderr.
                    let _ = shared.say(&bad);
                    return Err(reason);
                }
            };
            said.map_err(|error| error.to_string())
        }));
        Ok(())
    }

    /// Waits until what came is stored.
    pub(super) fn settle(&mut self) -> Result<()> {
        match self.storing.take().map(ScopedJoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(reason))) => Err(ReceiveError::Told(reason)),
            Some(Err(_)) => Err(ReceiveError::Told("a thread ended unexpectedly".into())),
        }
    }
}

/// A file that is on disk gets its name and stands in the record.
fn keep<O: Write>(folder: &Path, shared: &Shared<O>, arrived: &Arrived) -> io::Result<()> {
    let path = &arrived.path;
    if arrived.source != *path {
        fs::rename(&arrived.source, path)?;
    }
    remove(&part_of(path))?;
    File::open(folder)?.sync_all()?;
    own(folder, path)?;
    let mut record = shared.record();
    record.insert(arrived.name.clone(), Seen::of(path, &arrived.sha256)?);
    write_record(folder, &record)?;
    own(folder, &folder.join(RECORD_FILE))
}

/// Disk full or broken, in a sentence.
pub(super) fn why_unwritten(
    folder: &Path,
    name: &str,
    part: &Path,
    bytes: u64,
    error: &io::Error,
) -> String {
    let shown = folder.display();
    let there = fs::symlink_metadata(part).map_or(0, |meta| meta.len());
    let full = matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    );
    if full {
        format!(
            "the disk of {shown} is full: {name} needs {} more and {} are free; make room there and run again, it goes on where it stopped",
            size(bytes.saturating_sub(there)),
            size(free(folder).unwrap_or(0)),
        )
    } else {
        format!("{name} cannot be written in {shown}: {error}")
    }
}

/// Gives a file to whom its folder belongs. Pieces may be received by root for a worker that runs
/// as another user; for anyone else nothing changes.
fn own(folder: &Path, path: &Path) -> io::Result<()> {
    let (of, is) = (fs::metadata(folder)?, fs::symlink_metadata(path)?);
    if (of.uid(), of.gid()) == (is.uid(), is.gid()) {
        return Ok(());
    }
    lchown(path, Some(of.uid()), Some(of.gid()))
}
