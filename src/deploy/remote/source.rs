//! What is known of a model's pieces: sizes at once by the model's header, digests as they become
//! known. The digests are kept in the cache, so a second push reads nothing, wherever the model file
//! lies. Must not know hosts, nor read the file.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};
use windlass_gguf::{
    Gguf, GgufError, Manifest, ModelSize, PieceEntry, PieceName, Slice, hex, load_manifest,
    manifest_file_name, model_size, piece_len,
};
use windlass_wire::host::WantedFile;

use crate::paths::private_folder;

/// A model that pieces are made of while they are sent.
#[derive(Debug)]
pub struct Source {
    header: Gguf,
    sha256: String,
    size: ModelSize,
    /// Folder in the cache for the digests of this file's pieces.
    folder: PathBuf,
    known: Mutex<BTreeMap<Slice, PieceEntry>>,
}

impl Source {
    /// The model with this header in a file of this digest. Digests learned before are read from the
    /// cache; a cache that cannot be read means that there is more to do, nothing else.
    ///
    /// # Errors
    /// When it is no model that can be cut.
    pub fn of(header: Gguf, sha256: &str, cache: &Path) -> Result<Self, GgufError> {
        let size = model_size(&header)?;
        let short: String = sha256.chars().take(16).collect();
        let folder = cache.join("digests").join(short);
        let known = load_manifest(&folder, sha256)
            .ok()
            .flatten()
            .map(|manifest| manifest.pieces.into_iter().map(|p| (p.slice, p)).collect())
            .unwrap_or_default();
        Ok(Self {
            header,
            sha256: sha256.to_owned(),
            size,
            folder,
            known: Mutex::new(known),
        })
    }

    /// Digest of the model file.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Its parts.
    pub fn size(&self) -> &ModelSize {
        &self.size
    }

    /// The model file's header.
    pub fn header(&self) -> &Gguf {
        &self.header
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<Slice, PieceEntry>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slice's piece as a file to want.
    ///
    /// # Errors
    /// When the model has no such slice.
    pub fn wanted(&self, slice: Slice) -> Result<WantedFile, GgufError> {
        if let Some(entry) = self.known().get(&slice) {
            return Ok(WantedFile {
                file: entry.file.clone(),
                bytes: entry.bytes,
                sha256: Some(entry.sha256.clone()),
            });
        }
        Ok(WantedFile {
            file: PieceName::new(&self.sha256, slice)?.file(),
            bytes: piece_len(&self.header, &self.sha256, slice)?,
            sha256: None,
        })
    }

    /// Bytes of the piece files of these slices.
    ///
    /// # Errors
    /// When the model has no such slice.
    pub fn bytes(&self, slices: &[Slice]) -> Result<u64, GgufError> {
        slices
            .iter()
            .map(|slice| self.wanted(*slice).map(|wanted| wanted.bytes))
            .sum()
    }

    /// A manifest of these pieces.
    pub fn manifest(&self, mut pieces: Vec<PieceEntry>) -> Manifest {
        pieces.sort_by_key(|piece| piece.slice);
        Manifest {
            source_sha256: self.sha256.clone(),
            architecture: self.size.architecture.clone(),
            layers: self.size.layers,
            tied_output: self.size.tied_output,
            pieces,
        }
    }

    /// A manifest as a file: name, text, digest.
    ///
    /// # Errors
    /// When the digest of the model is none.
    pub fn manifest_file(
        &self,
        manifest: &Manifest,
    ) -> Result<(String, Vec<u8>, String), GgufError> {
        let name = manifest_file_name(&self.sha256)?;
        // A manifest holds nothing that JSON cannot.
        let mut text = serde_json::to_vec_pretty(manifest).unwrap_or_default();
        text.push(b'\n');
        let digest = hex(&Sha256::digest(&text));
        Ok((name, text, digest))
    }

    /// Keeps a piece's digest for the next time.
    pub fn learn(&self, entry: &PieceEntry) {
        self.known().insert(entry.slice, entry.clone());
    }

    /// Writes what was learned to the cache.
    ///
    /// # Errors
    /// When the cache cannot be written; the digests are then learned again next time.
    pub fn keep(&self) -> io::Result<()> {
        let manifest = self.manifest(self.known().values().cloned().collect());
        let (name, text, _) = self.manifest_file(&manifest).map_err(io::Error::other)?;
        private_folder(&self.folder)?;
        let partial = self
            .folder
            .join(format!("{name}.{}.part", std::process::id()));
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&partial)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&partial, self.folder.join(name))
    }
}
