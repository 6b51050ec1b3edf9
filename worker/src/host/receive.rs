//! `receive`: takes pieces into a folder. What it says and hears is described in
//! [`windlass_wire::host`].
//!
//! The folder may belong to a less trusted user than this program runs as, so no link in it is
//! followed. Must not know what pieces hold.

mod make;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use thiserror::Error;
use windlass_gguf::checked::{LOCK_FILE, Seen, read_record, write_record};
use windlass_wire::host::{
    DISK_RESERVE, FromReceiver, MAX_EXTRA, MAX_FILE, MAX_FILES, ToReceiver, WantedFile, is_digest,
    is_file_name, read_line,
};

use self::store::{Arrived, Shared, why_unwritten};
use super::intake::{End, hash_file, hex, pour};
use super::{lock, private_folder, say, size};

/// How long a transfer that is about to end may keep the folder from the next one.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Why a transfer ended early. What the controller could be told, it was told.
#[derive(Debug, Error)]
pub enum ReceiveError {
    /// The channel broke.
    #[error("the transfer broke off: {0}; what arrived stays")]
    Channel(#[from] io::Error),
    /// It broke within a file.
    #[error(
        "the transfer broke off inside {file}, {have} of {bytes} bytes are there: {source}; they stay"
    )]
    Inside {
        /// Name.
        file: String,
        /// Bytes there.
        have: u64,
        /// Its size.
        bytes: u64,
        /// What was seen.
        source: io::Error,
    },
    /// The controller says what makes no sense.
    #[error("the controller broke the protocol: {0}")]
    Protocol(String),
    /// The controller was told why.
    #[error("{0}")]
    Told(String),
}

type Result<T> = std::result::Result<T, ReceiveError>;

/// What is known of a wanted file.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Whole and checked.
    Complete(String),
    /// Of the right size; what its digest should be, only the controller can tell.
    Unknown,
    /// This many bytes of a part.
    Part(u64),
}

struct Receiver<'scope, 'env, I, O> {
    scope: &'scope Scope<'scope, 'env>,
    folder: &'env Path,
    verify: bool,
    input: I,
    shared: &'env Shared<O>,
    /// The file that is being written out while the next one comes.
    storing: Option<ScopedJoinHandle<'scope, std::result::Result<(), String>>>,
    wanted: BTreeMap<String, WantedFile>,
    offsets: BTreeMap<String, u64>,
    /// Files that are there and are not what they should be.
    damaged: BTreeSet<String>,
    /// Files of the right size whose digest nobody here knows.
    unknown: BTreeSet<String>,
    /// The model file that pieces are made of here.
    opened: Option<make::Opened>,
    received: u64,
}

/// Talks a transfer through, from `Want` to `Done`.
///
/// # Errors
/// When it ends before `Done`.
pub fn run(
    folder: &Path,
    verify: bool,
    mut input: impl BufRead,
    mut output: impl Write + Send,
) -> Result<()> {
    let Some(first) = read_line(&mut input)? else {
        return Ok(());
    };
    let ToReceiver::Want { files } = first else {
        return protocol("the first line must say what is wanted");
    };
    check_list(&files)?;
    let locked = private_folder(folder)
        .map_err(|error| format!("the folder {} cannot be made: {error}", folder.display()))
        .and_then(|()| lock_folder(folder));
    let lock = match locked {
        Ok(lock) => lock,
        Err(reason) => {
            let refused = FromReceiver::Refused {
                reason: reason.clone(),
                needed: 0,
                free: 0,
                path: folder.display().to_string(),
            };
            say(&mut output, &refused)?;
            return Err(ReceiveError::Told(reason));
        }
    };
    let shared = Shared {
        output: Mutex::new(output),
        record: Mutex::new(read_record(folder)),
    };
    let result = std::thread::scope(|scope| {
        let mut receiver = Receiver {
            scope,
            folder,
            verify,
            input,
            shared: &shared,
            storing: None,
            wanted: BTreeMap::new(),
            offsets: BTreeMap::new(),
            damaged: BTreeSet::new(),
            unknown: BTreeSet::new(),
            opened: None,
            received: 0,
        };
        receiver.talk(files)
    });
    let _ = lock.set_len(0);
    result
}

fn protocol<T>(what: impl Into<String>) -> Result<T> {
    Err(ReceiveError::Protocol(what.into()))
}

fn check_list(files: &[WantedFile]) -> Result<()> {
    if files.len() > MAX_FILES {
        return protocol(format!("more than {MAX_FILES} files are wanted"));
    }
    let mut names = BTreeSet::new();
    for file in files {
        if !is_file_name(&file.file) {
            return protocol(format!("{:?} is no file name", file.file));
        }
        if !names.insert(&file.file) {
            return protocol(format!("{} is wanted twice", file.file));
        }
        if file.bytes > MAX_FILE {
            return protocol(format!("{} would have {} bytes", file.file, file.bytes));
        }
        if file.sha256.as_deref().is_some_and(|sha| !is_digest(sha)) {
            return protocol(format!("the digest of {} is none", file.file));
        }
    }
    Ok(())
}

/// Locks the folder against other transfers; the sentence says who holds it.
fn lock_folder(folder: &Path) -> std::result::Result<File, String> {
    let path = folder.join(LOCK_FILE);
    let failed = |error: io::Error| format!("{} cannot be locked: {error}", path.display());
    let file = lock::open(&path).map_err(failed)?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(format!(
                    "another transfer is writing to {}: {}; wait until it ends, or end it",
                    folder.display(),
                    lock::holder(&path)
                ));
            }
        }
    }
    lock::sign(
        &file,
        &format!("windlass-worker receive, pid {}", std::process::id()),
    )
    .map_err(failed)?;
    Ok(file)
}

impl<I: BufRead, O: Write + Send> Receiver<'_, '_, I, O> {
    fn talk(&mut self, files: Vec<WantedFile>) -> Result<()> {
        let mut missing = 0u64;
        let mut replaced = 0u64;
        let mut learnt = false;
        for file in files {
            let state = match self.look(&file, &mut learnt) {
                Ok(state) => state,
                Err(error) => {
                    let reason = format!(
                        "{} cannot be read: {error}",
                        self.folder.join(&file.file).display()
                    );
                    return self.refuse(reason, 0, 0);
                }
            };
            let (offset, sha256) = match state {
                State::Complete(sha256) => (file.bytes, Some(sha256)),
                State::Unknown => {
                    self.unknown.insert(file.file.clone());
                    (file.bytes, None)
                }
                State::Part(offset) => (offset, None),
            };
            missing = missing.saturating_add(file.bytes - offset);
            if self.damaged.contains(&file.file) {
                replaced = replaced.saturating_add(file.bytes);
            }
            let have = FromReceiver::Have {
                file: file.file.clone(),
                offset,
                complete: sha256.is_some(),
                sha256,
            };
            self.shared.say(&have)?;
            self.offsets.insert(file.file.clone(), offset);
            self.wanted.insert(file.file.clone(), file);
        }
        if learnt && let Err(error) = write_record(self.folder, &self.shared.record()) {
            let reason = format!("{} cannot be written: {error}", self.folder.display());
            return self.refuse(reason, 0, 0);
        }
        // What is damaged goes before its replacement comes.
        let needed = missing.saturating_sub(replaced);
        let free = free(self.folder)?;
        if missing > 0 && free < needed.saturating_add(DISK_RESERVE) {
            let reason = format!(
                "the disk of {} has {} free; {} are missing there, and {} must stay free",
                self.folder.display(),
                size(free),
                size(needed),
                size(DISK_RESERVE)
            );
            return self.refuse(reason, needed, free);
        }
        self.shared.say(&FromReceiver::Room { free })?;
        loop {
            match read_line(&mut self.input)? {
                Some(ToReceiver::File {
                    file,
                    offset,
                    bytes,
                }) => self.file(&file, offset, bytes)?,
                Some(ToReceiver::Make {
                    file,
                    bytes,
                    slice,
                    source,
                }) => self.make(&file, bytes, &slice, source)?,
                Some(ToReceiver::End) => {
                    self.settle()?;
                    let received = self.received;
                    return Ok(self.shared.say(&FromReceiver::Done { received })?);
                }
                Some(_) => return protocol("a file or the end was due"),
                // It only wanted to know, or broke off between two files.
                None => return self.settle(),
            }
        }
    }

    fn refuse(&mut self, reason: String, needed: u64, free: u64) -> Result<()> {
        let refused = FromReceiver::Refused {
            reason: reason.clone(),
            needed,
            free,
            path: self.folder.display().to_string(),
        };
        self.shared.say(&refused)?;
        Err(ReceiveError::Told(reason))
    }

    /// What there is of a wanted file; reads it where its stamp does not vouch for it.
    fn look(&mut self, wanted: &WantedFile, learnt: &mut bool) -> io::Result<State> {
        let path = self.folder.join(&wanted.file);
        let part = || match fs::symlink_metadata(part_of(&path)) {
            Ok(meta) if meta.is_file() && meta.len() <= wanted.bytes => State::Part(meta.len()),
            _ => State::Part(0),
        };
        let there = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file());
        if !there {
            return Ok(part());
        }
        let mut record = self.shared.record();
        let seen = record.get(&wanted.file);
        let right = wanted
            .sha256
            .clone()
            .or_else(|| seen.map(|seen| seen.sha256.clone()));
        let now = Seen::of(&path, right.as_deref().unwrap_or_default())?;
        if now.bytes != wanted.bytes {
            self.damaged.insert(wanted.file.clone());
            return Ok(part());
        }
        let Some(right) = right else {
            return Ok(State::Unknown);
        };
        if !self.verify && seen == Some(&now) {
            return Ok(State::Complete(right));
        }
        let mut hasher = Sha256::new();
        hash_file(&mut open_plain(&path)?, &mut hasher)?;
        if hex(hasher) != right {
            self.damaged.insert(wanted.file.clone());
            return Ok(part());
        }
        if seen != Some(&now) {
            record.insert(wanted.file.clone(), now);
            *learnt = true;
        }
        Ok(State::Complete(right))
    }

    /// Takes one file.
    fn file(&mut self, name: &str, offset: u64, bytes: u64) -> Result<()> {
        match (self.wanted.get(name), self.offsets.get(name)) {
            (Some(wanted), Some(&known))
                if bytes != wanted.bytes || (offset != 0 && offset != known) =>
            {
                return protocol(format!(
                    "{name} was wanted with {} bytes, of which {known} are there; {offset} of {bytes} does not go on from there",
                    wanted.bytes
                ));
            }
            (Some(_), Some(_)) => {}
            _ if !is_file_name(name) => return protocol(format!("{name:?} is no file name")),
            _ if bytes > MAX_EXTRA || offset != 0 => {
                return protocol(format!("{name} was not wanted and has {bytes} bytes"));
            }
            _ => {}
        }
        let path = self.folder.join(name);
        let part = part_of(&path);
        // The file itself is to be checked.
        let in_place = offset > 0 && self.unknown.contains(name);
        let source = if in_place { &path } else { &part };
        let opened = if offset == 0 {
            self.begin(name, &path, &part)
        } else {
            resume(source, offset)
        };
        let (mut file, hasher) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.broken(name, &part, bytes, &error),
        };
        let poured = pour(&mut self.input, bytes - offset, &mut file, hasher);
        self.received = self.received.saturating_add(poured.received);
        match poured.end {
            End::Whole => {}
            End::Unwritten(error) => return self.broken(name, &part, bytes, &error),
            End::Broken(source) => {
                let _ = file.sync_data();
                return Err(ReceiveError::Inside {
                    file: name.to_owned(),
                    have: offset + poured.received,
                    bytes,
                    source,
                });
            }
        }
        let due = match read_line(&mut self.input)? {
            Some(ToReceiver::Digest { sha256 }) if is_digest(&sha256) => sha256,
            Some(_) => return protocol(format!("the digest of {name} was due")),
            None => {
                let _ = file.sync_data();
                return Err(ReceiveError::Inside {
                    file: name.to_owned(),
                    have: bytes,
                    bytes,
                    source: io::ErrorKind::UnexpectedEof.into(),
                });
            }
        };
        let sha256 = hex(poured.hasher);
        if sha256 != due {
            self.settle()?;
            self.forget(name, source);
            let reason = format!(
                "{name} has the digest {sha256} and should have {due}: it was damaged on its way or at its source, and was removed; run again"
            );
            let file = name.to_owned();
            return Ok(self.shared.say(&FromReceiver::Bad { file, reason })?);
        }
        self.store(Arrived {
            name: name.to_owned(),
            bytes,
            file,
            source: source.clone(),
            path,
            sha256,
            received: poured.received,
        })
    }

    /// A new part. A damaged file goes first: if this breaks off, it must not pass for the file.
    fn begin(&mut self, name: &str, path: &Path, part: &Path) -> io::Result<(File, Sha256)> {
        remove(part)?;
        if self.damaged.remove(name) {
            remove(path)?;
            let mut record = self.shared.record();
            if record.remove(name).is_some() {
                write_record(self.folder, &record)?;
            }
        }
        let file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(part)?;
        Ok((file, Sha256::new()))
    }

    fn forget(&mut self, name: &str, source: &Path) {
        // What cannot be removed is found out again by its digest.
        let _ = remove(source);
        self.unknown.remove(name);
        self.offsets.insert(name.to_owned(), 0);
    }

    /// Disk full or broken: said, and the end.
    fn broken(&mut self, name: &str, part: &Path, bytes: u64, error: &io::Error) -> Result<()> {
        self.settle()?;
        let reason = why_unwritten(self.folder, name, part, bytes, error);
        let bad = FromReceiver::Bad {
            file: name.to_owned(),
            reason: reason.clone(),
        };
        self.shared.say(&bad)?;
        Err(ReceiveError::Told(reason))
    }
}

/// Where a file grows.
fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Opens for reading, no link followed.
fn open_plain(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// A file that has this many bytes, read and hashed, to be written on.
fn resume(path: &Path, offset: u64) -> io::Result<(File, Sha256)> {
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    let mut hasher = Sha256::new();
    let there = hash_file(&mut file, &mut hasher)?;
    if there != offset {
        return Err(io::Error::other(format!(
            "it had {offset} bytes a moment ago and has {there} now: something else writes to it"
        )));
    }
    Ok((file, hasher))
}

/// Bytes that this user may still write on a folder's file system.
fn free(folder: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
#[path = "receive_tests.rs"]
mod tests;
