//! Cuts a model into pieces in the cache, or finds them there. Must not know workers.
//!
//! Reading every piece at each start would take as long as cutting it. So when a piece's digest is
//! known, size, time of change and inode are recorded, and a piece that still has them is taken
//! as unchanged. One that differs is refused: read, and cut again unless its digest holds.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use windlass_gguf::checked::{LOCK_FILE, Record, Seen, read_record, write_record};
use windlass_gguf::{
    GgufError, Manifest, MappedGguf, Slice, cut, load_manifest, manifest_file_name,
};

use crate::paths::private_folder;

/// The pieces of a model, complete and checked.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// Their folder.
    pub folder: PathBuf,
    /// Name of the manifest file in it.
    pub manifest_file: String,
    /// The manifest.
    pub manifest: Manifest,
    /// Slices that were there already.
    pub reused: Vec<Slice>,
    /// Slices that were cut now.
    pub cut: Vec<Slice>,
    /// Files that were there, had been changed since they were checked, and were replaced.
    pub refused: Vec<String>,
}

impl Pieces {
    /// Bytes of these slices' files.
    pub fn bytes(&self, slices: &[Slice]) -> u64 {
        slices
            .iter()
            .filter_map(|slice| self.manifest.piece(*slice))
            .map(|piece| piece.bytes)
            .sum()
    }
}

/// Why there are no pieces.
#[derive(Debug, Error)]
pub enum PiecesError {
    /// The folder.
    #[error("the folder for pieces {path} cannot be used: {source}")]
    Folder {
        /// Folder or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Model or pieces.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A piece vanished or changed while it was being recorded.
    #[error(
        "piece {file} is missing from the manifest although it was just cut: {folder} is being changed by someone else"
    )]
    Missing {
        /// The slice.
        file: String,
        /// The folder.
        folder: PathBuf,
    },
}

/// The folder in the cache for pieces of a file with this digest.
pub fn folder(cache: &Path, sha256: &str) -> PathBuf {
    let short: String = sha256.chars().take(16).collect();
    cache.join("pieces").join(short)
}

/// Provides the wanted slices of a model in the cache folder, cutting those that are not there.
/// Blocks, also for another process that works on the same pieces. `progress` gets tensor bytes
/// written so far.
///
/// # Errors
/// When the model cannot be read or is not supported, or the cache cannot be written.
pub fn provide(
    source: &MappedGguf,
    sha256: &str,
    cache: &Path,
    wanted: &[Slice],
    progress: &mut dyn FnMut(u64),
) -> Result<Pieces, PiecesError> {
    let folder = folder(cache, sha256);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| PiecesError::Folder { path, source }
    };
    private_folder(&folder).map_err(failed(&folder))?;
    let lock_path = folder.join(LOCK_FILE);
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&lock_path)
        .map_err(failed(&lock_path))?;
    // Held until this returns; another run that wants the same pieces waits and finds them.
    lock.lock().map_err(failed(&lock_path))?;

    // An unreadable manifest means that there is more to cut, nothing else.
    let before = load_manifest(&folder, sha256).ok().flatten();
    let record = read_record(&folder);
    let mut reused = Vec::new();
    let mut refused = Vec::new();
    for slice in wanted {
        let Some(entry) = before.as_ref().and_then(|m| m.piece(*slice)) else {
            continue;
        };
        match Seen::of(&folder.join(&entry.file), &entry.sha256) {
            Ok(seen) if seen.bytes == entry.bytes && record.get(&entry.file) == Some(&seen) => {
                reused.push(*slice);
            }
            Ok(_) if record.contains_key(&entry.file) => refused.push(entry.file.clone()),
            _ => {}
        }
    }
    let manifest_file = manifest_file_name(sha256)?;
    if let Some(manifest) = before
        && reused.len() == wanted.len()
    {
        return Ok(Pieces {
            folder,
            manifest_file,
            manifest,
            reused,
            cut: Vec::new(),
            refused,
        });
    }

    // Reads what the folder has and keeps what verifies.
    let manifest = cut(source, sha256, &folder, wanted, progress)?;
    let mut record = Record::new();
    for entry in &manifest.pieces {
        let path = folder.join(&entry.file);
        let seen = Seen::of(&path, &entry.sha256).map_err(failed(&path))?;
        record.insert(entry.file.clone(), seen);
    }
    if let Some(slice) = wanted
        .iter()
        .find(|slice| manifest.piece(**slice).is_none())
    {
        return Err(PiecesError::Missing {
            file: slice.to_string(),
            folder,
        });
    }
    write_record(&folder, &record).map_err(failed(&folder))?;
    let cut = wanted
        .iter()
        .copied()
        .filter(|slice| !reused.contains(slice))
        .collect();
    Ok(Pieces {
        folder,
        manifest_file,
        manifest,
        reused,
        cut,
        refused,
    })
}
