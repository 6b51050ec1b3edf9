//! What windlass asks of a model hub: resolve once, fetch by commit, read a range.
//!
//! The trait and its plain types; the implementation is in `hf`. A hub verifies nothing and
//! knows no cache: its callers do that, so no implementation can forget it.

use std::future::Future;
use std::ops::Range;
use std::path::Path;

use super::error::ModelError;
use super::reference::RepoId;

/// A revision of a repository, pinned to one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// Which repository.
    pub repo: RepoId,
    /// The commit: 40 hexadecimal digits.
    pub commit: String,
    /// Its files, with paths that are safe below a folder.
    pub files: Vec<RemoteFile>,
    /// The licence as its card says it.
    pub license: Option<String>,
    /// How access is granted, if the licence must be accepted first: `auto` or `manual`.
    pub gated: Option<String>,
}

/// A file of one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    /// Which repository.
    pub repo: RepoId,
    /// The commit: 40 hexadecimal digits.
    pub commit: String,
    /// The path in the repository.
    pub path: String,
    /// Size in bytes, if the hub tells.
    pub bytes: Option<u64>,
    /// sha256 in 64 lower-case hexadecimal digits; only large files have one.
    pub sha256: Option<String>,
}

/// What happens during a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Bytes on disk so far, those of an earlier try included, and the size of the file.
    Bytes {
        /// On disk.
        done: u64,
        /// In all.
        total: u64,
    },
    /// The transfer broke and goes on from where it was.
    Retrying {
        /// The try that begins now, from 1.
        attempt: u32,
        /// After how many tries without progress it is given up.
        of: u32,
        /// What broke.
        reason: String,
    },
}

/// A model hub.
pub trait Hub: Send + Sync {
    /// Pins a branch, tag or commit to a commit and lists its files, in one answer.
    fn resolve(
        &self,
        repo: &RepoId,
        revision: &str,
    ) -> impl Future<Output = Result<Repository, ModelError>> + Send;

    /// Brings `dest` to the size of the file, going on from the bytes that are already there.
    /// Does not verify. What came stays in `dest` after an error.
    fn fetch(
        &self,
        file: &RemoteFile,
        dest: &Path,
        progress: &mut (dyn FnMut(Step) + Send),
    ) -> impl Future<Output = Result<(), ModelError>> + Send;

    /// Reads bytes `range` of a file into memory, for the header of a model that is not here;
    /// shorter only where the file ends.
    fn read_range(
        &self,
        file: &RemoteFile,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, ModelError>> + Send;
}
