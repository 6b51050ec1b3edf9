//! Where model files live on this disk, and which of them are known to be sound.
//!
//! Files of the hub lie in the Hugging Face cache, in its own layout, so other tools share
//! them; files of a package lie in windlass's cache under their digest. A file whose digest was
//! checked gets a record of its size, time and inode, and is trusted as long as these stay.
//! Knows no network.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::ModelError;
use super::listing::is_hex;
use super::options::Folders;
use super::reference::{RepoId, unsafe_path};

/// The most files of a snapshot that are looked at.
const MAX_FILES: usize = 10_000;
/// How deep a snapshot is searched.
const MAX_DEPTH: usize = 8;
/// The largest record or ref that is read, in bytes.
const MAX_SMALL: u64 = 64 << 10;
/// How often a held lock is tried again.
const LOCK_POLL: Duration = Duration::from_millis(200);

/// The folders with what is known about their files.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    folders: Folders,
}

/// A digest that was computed or trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verified {
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// Size of the file.
    pub bytes: u64,
}

/// What was true of a file when its digest was computed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    path: PathBuf,
    bytes: u64,
    mtime_s: i64,
    mtime_ns: i64,
    device: u64,
    inode: u64,
    sha256: String,
}

/// A lock held until dropped, or until the process ends.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "closing the file gives the lock back")] File);

impl Store {
    pub(crate) fn new(folders: &Folders) -> Self {
        Self {
            folders: folders.clone(),
        }
    }

    pub(crate) fn hub_folder(&self) -> &Path {
        &self.folders.hub
    }

    /// The blob with this digest in the Hugging Face cache.
    pub(crate) fn blob(&self, repo: &RepoId, sha256: &str) -> PathBuf {
        self.folders
            .hub
            .join(repo.folder())
            .join("blobs")
            .join(sha256)
    }

    /// The part of that blob that has come so far.
    pub(crate) fn partial(&self, repo: &RepoId, sha256: &str) -> PathBuf {
        self.blob(repo, &format!("{sha256}.incomplete"))
    }

    /// The lock that also the Hugging Face tools take for that blob.
    pub(crate) fn blob_lock(&self, repo: &RepoId, sha256: &str) -> PathBuf {
        self.folders
            .hub
            .join(".locks")
            .join(repo.folder())
            .join(format!("{sha256}.lock"))
    }

    /// The folder for a file that comes from elsewhere than the hub.
    pub(crate) fn own(&self, sha256: &str) -> PathBuf {
        self.folders.own.join("models").join(sha256)
    }

    /// The commit that a branch or tag last pointed to, as far as this cache knows.
    pub(crate) fn commit_of(&self, repo: &RepoId, revision: &str) -> Option<String> {
        if is_hex(revision, 40) {
            return Some(revision.to_owned());
        }
        if unsafe_path(revision).is_some() {
            return None;
        }
        let text = read_small(
            &self
                .folders
                .hub
                .join(repo.folder())
                .join("refs")
                .join(revision),
        )?;
        let commit = text.trim();
        is_hex(commit, 40).then(|| commit.to_owned())
    }

    /// Notes what a branch or tag points to.
    pub(crate) fn set_commit(
        &self,
        repo: &RepoId,
        revision: &str,
        commit: &str,
    ) -> Result<(), ModelError> {
        if is_hex(revision, 40) || unsafe_path(revision).is_some() {
            return Ok(());
        }
        let path = self
            .folders
            .hub
            .join(repo.folder())
            .join("refs")
            .join(revision);
        replace(&path, commit.as_bytes())
    }

    /// The path of a file in the snapshot of a commit.
    pub(crate) fn snapshot(&self, repo: &RepoId, commit: &str, file: &str) -> PathBuf {
        self.folders
            .hub
            .join(repo.folder())
            .join("snapshots")
            .join(commit)
            .join(file)
    }

    /// Makes the snapshot's file a relative link to its blob, as the cache layout has it.
    pub(crate) fn link(
        &self,
        repo: &RepoId,
        commit: &str,
        file: &str,
        sha256: &str,
    ) -> Result<PathBuf, ModelError> {
        let link = self.snapshot(repo, commit, file);
        make_parent(&link)?;
        // From the file's folder: up over its own subfolders, the commit and `snapshots`.
        let up = "../".repeat(file.split('/').count() + 1);
        let target = PathBuf::from(format!("{up}blobs/{sha256}"));
        if fs::read_link(&link).is_ok_and(|existing| existing == target) {
            return Ok(link);
        }
        // A link appears whole: made under another name, then renamed over what was there.
        let fresh = beside(&link, "new");
        let _ = fs::remove_file(&fresh);
        std::os::unix::fs::symlink(&target, &fresh).map_err(ModelError::io("link", &fresh))?;
        fs::rename(&fresh, &link).map_err(ModelError::io("link", &link))?;
        Ok(link)
    }

    /// The files of a snapshot that are really there, as paths in the repository, sorted.
    pub(crate) fn snapshot_files(&self, repo: &RepoId, commit: &str) -> Vec<String> {
        let entries = self.snapshot_entries(repo, commit).into_iter();
        entries
            .filter_map(|(name, bytes)| bytes.map(|_| name))
            .collect()
    }

    /// The names in a snapshot as paths in the repository, sorted, with the size of what is there;
    /// `None` for a link to a blob that is gone or not complete.
    pub(crate) fn snapshot_entries(
        &self,
        repo: &RepoId,
        commit: &str,
    ) -> Vec<(String, Option<u64>)> {
        let root = self.snapshot(repo, commit, "");
        let mut found = Vec::new();
        let mut folders = vec![(root.clone(), 0)];
        while let Some((folder, depth)) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                // Follows links.
                let meta = fs::metadata(&path);
                if meta.as_ref().is_ok_and(fs::Metadata::is_dir) {
                    if depth < MAX_DEPTH {
                        folders.push((path, depth + 1));
                    }
                } else if found.len() < MAX_FILES
                    && meta.as_ref().map_or(true, fs::Metadata::is_file)
                    && let Some(name) = path.strip_prefix(&root).ok().and_then(Path::to_str)
                {
                    found.push((name.to_owned(), meta.ok().map(|meta| meta.len())));
                }
            }
        }
        found.sort();
        found
    }

    /// The commits of which something is here, sorted.
    pub(crate) fn commits(&self, repo: &RepoId) -> Vec<String> {
        names_in(&self.folders.hub.join(repo.folder()).join("snapshots"))
            .into_iter()
            .filter(|name| is_hex(name, 40))
            .collect()
    }

    /// The repositories of which something is here, sorted.
    pub(crate) fn repositories(&self) -> Vec<RepoId> {
        names_in(&self.folders.hub)
            .iter()
            .filter_map(|name| {
                let (owner, name) = name.strip_prefix("models--")?.split_once("--")?;
                RepoId::parse(&format!("{owner}/{name}")).ok()
            })
            .collect()
    }

    /// Downloads of a repository that broke off: digest and bytes so far, sorted.
    pub(crate) fn partials(&self, repo: &RepoId) -> Vec<(String, u64)> {
        let folder = self.folders.hub.join(repo.folder()).join("blobs");
        names_in(&folder)
            .into_iter()
            .filter_map(|name| {
                let digest = name.strip_suffix(".incomplete")?;
                let meta = fs::metadata(folder.join(&name)).ok()?;
                is_hex(digest, 64).then(|| (digest.to_owned(), meta.len()))
            })
            .collect()
    }

    /// The digest of a file: from its record while size, time and inode are as recorded, else
    /// computed, with `hashing` told the size first.
    pub(crate) async fn digest(
        &self,
        path: &Path,
        hashing: impl FnOnce(u64),
    ) -> Result<Verified, ModelError> {
        let real = fs::canonicalize(path).map_err(ModelError::io("find", path))?;
        let meta = fs::metadata(&real).map_err(ModelError::io("look at", &real))?;
        if !meta.is_file() {
            let source = io::Error::other("it is not a file");
            return Err(ModelError::Io {
                doing: "read",
                path: real,
                source,
            });
        }
        if let Some(sha256) = self.trusted(&meta) {
            return Ok(Verified {
                sha256,
                bytes: meta.len(),
            });
        }
        self.hash(&real, &meta, hashing).await
    }

    /// The digest of a file, read in full whatever its record says; the record is renewed.
    pub(crate) async fn read_digest(
        &self,
        path: &Path,
        hashing: impl FnOnce(u64),
    ) -> Result<Verified, ModelError> {
        let real = fs::canonicalize(path).map_err(ModelError::io("find", path))?;
        let meta = fs::metadata(&real).map_err(ModelError::io("look at", &real))?;
        self.hash(&real, &meta, hashing).await
    }

    async fn hash(
        &self,
        real: &Path,
        meta: &fs::Metadata,
        hashing: impl FnOnce(u64),
    ) -> Result<Verified, ModelError> {
        hashing(meta.len());
        let to_hash = real.to_owned();
        let hashed = tokio::task::spawn_blocking(move || sha256_of(&to_hash)).await;
        let (sha256, bytes) = hashed
            .map_err(io::Error::other)
            .flatten()
            .map_err(ModelError::io("read", real))?;
        self.record(real, meta, &sha256);
        Ok(Verified { sha256, bytes })
    }

    /// Forgets what was noted of a file that is about to go.
    pub(crate) fn forget(&self, path: &Path) {
        if let Ok(meta) = fs::metadata(path) {
            let _ = fs::remove_file(self.record_path(&meta));
        }
    }

    /// Notes that the file now at `path` has this digest, which was just computed.
    pub(crate) fn note(&self, path: &Path, sha256: &str) {
        if let Ok(real) = fs::canonicalize(path)
            && let Ok(meta) = fs::metadata(&real)
        {
            self.record(&real, &meta, sha256);
        }
    }

    fn record_path(&self, meta: &fs::Metadata) -> PathBuf {
        self.folders
            .own
            .join("verified")
            .join(format!("{:x}-{:x}.json", meta.dev(), meta.ino()))
    }

    fn trusted(&self, meta: &fs::Metadata) -> Option<String> {
        let record: Record = serde_json::from_str(&read_small(&self.record_path(meta))?).ok()?;
        let same = record.bytes == meta.len()
            && record.mtime_s == meta.mtime()
            && record.mtime_ns == meta.mtime_nsec()
            && record.device == meta.dev()
            && record.inode == meta.ino();
        (same && is_hex(&record.sha256, 64)).then_some(record.sha256)
    }

    /// A record that cannot be written only costs hashing again.
    fn record(&self, real: &Path, meta: &fs::Metadata, sha256: &str) {
        let record = Record {
            path: real.to_owned(),
            bytes: meta.len(),
            mtime_s: meta.mtime(),
            mtime_ns: meta.mtime_nsec(),
            device: meta.dev(),
            inode: meta.ino(),
            sha256: sha256.to_owned(),
        };
        if let Ok(text) = serde_json::to_vec(&record) {
            let _ = replace(&self.record_path(meta), &text);
        }
    }
}

/// Takes the lock; `waiting` is called once if another process holds it.
pub(crate) async fn lock(path: &Path, waiting: impl FnOnce()) -> Result<Lock, ModelError> {
    make_parent(path)?;
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(ModelError::io("open the lock", path))?;
    let mut waiting = Some(waiting);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock(file)),
            Err(TryLockError::WouldBlock) => {
                if let Some(tell) = waiting.take() {
                    tell();
                }
                tokio::time::sleep(LOCK_POLL).await;
            }
            Err(TryLockError::Error(error)) => return Err(ModelError::io("lock", path)(error)),
        }
    }
}

/// Makes the folder of a file.
pub(crate) fn make_parent(path: &Path) -> Result<(), ModelError> {
    match path.parent() {
        Some(parent) => {
            fs::create_dir_all(parent).map_err(ModelError::io("make the folder", parent))
        }
        None => Ok(()),
    }
}

/// A name beside `path` that no other process uses.
fn beside(path: &Path, what: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{what}-{}", std::process::id()))
}

/// Writes a small file so that a reader sees the old or the new one, never half of it.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    make_parent(path)?;
    let fresh = beside(path, "new");
    fs::write(&fresh, bytes).map_err(ModelError::io("write", &fresh))?;
    fs::rename(&fresh, path).map_err(ModelError::io("rename", path))
}

/// Names in a folder, sorted; none when it cannot be read.
pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .take(MAX_FILES)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn read_small(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path)
        .ok()?
        .take(MAX_SMALL)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

/// sha256 in hexadecimal and the size of what was read.
fn sha256_of(path: &Path) -> io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer)?;
        let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else {
            break;
        };
        hash.update(chunk);
        bytes += read as u64;
    }
    Ok((
        hash.finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
        bytes,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// sha256 of "abc", from the standard's own example.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn store() -> (tempfile::TempDir, Store) {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(&Folders::below(root.path()));
        (root, store)
    }

    #[tokio::test]
    async fn a_verified_file_is_hashed_again_only_after_it_changed() {
        let (root, store) = store();
        let path = root.path().join("m.gguf");
        fs::write(&path, "abc").unwrap();
        let mut hashed = 0;
        for _ in 0..3 {
            let found = store.digest(&path, |_| hashed += 1).await.unwrap();
            assert_eq!(
                found,
                Verified {
                    sha256: ABC.to_owned(),
                    bytes: 3
                }
            );
        }
        assert_eq!(hashed, 1);
        // Same size, new content, and a time that says so.
        fs::write(&path, "abd").unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
        let found = store.digest(&path, |_| hashed += 1).await.unwrap();
        assert_ne!(found.sha256, ABC);
        assert_eq!(hashed, 2);
    }

    #[tokio::test]
    async fn a_damaged_record_is_not_trusted() {
        let (root, store) = store();
        let path = root.path().join("m.gguf");
        fs::write(&path, "abc").unwrap();
        store.note(&path, "../../not-a-digest");
        assert_eq!(store.digest(&path, |_| ()).await.unwrap().sha256, ABC);
        let record = store.record_path(&fs::metadata(&path).unwrap());
        fs::write(record, "{").unwrap();
        assert_eq!(store.digest(&path, |_| ()).await.unwrap().sha256, ABC);
    }

    #[test]
    fn snapshot_links_lead_to_the_blob_from_any_depth() {
        let (_root, store) = store();
        let repo = RepoId::parse("org/name").unwrap();
        let commit = "c".repeat(40);
        let blob = store.blob(&repo, ABC);
        make_parent(&blob).unwrap();
        fs::write(&blob, "abc").unwrap();
        for file in ["m.gguf", "a/b/m.gguf"] {
            let link = store.link(&repo, &commit, file, ABC).unwrap();
            assert!(fs::read_link(&link).unwrap().is_relative());
            assert_eq!(fs::read_to_string(&link).unwrap(), "abc");
            store.link(&repo, &commit, file, ABC).unwrap();
        }
        fs::remove_file(&blob).unwrap();
        assert!(store.snapshot_files(&repo, &commit).is_empty());
        fs::write(&blob, "abc").unwrap();
        assert_eq!(
            store.snapshot_files(&repo, &commit),
            ["a/b/m.gguf", "m.gguf"]
        );
    }

    #[test]
    fn a_ref_outside_the_cache_is_neither_read_nor_written() {
        let (root, store) = store();
        let repo = RepoId::parse("org/name").unwrap();
        let commit = "c".repeat(40);
        store.set_commit(&repo, "refs/pr/1", &commit).unwrap();
        assert_eq!(store.commit_of(&repo, "refs/pr/1"), Some(commit.clone()));
        store.set_commit(&repo, "../../../up", &commit).unwrap();
        assert!(!root.path().join("up").exists());
        assert_eq!(store.commit_of(&repo, "../../../up"), None);
        assert_eq!(store.commit_of(&repo, "main"), None);
    }

    #[tokio::test]
    async fn a_second_taker_of_a_lock_waits_for_the_first() {
        let (root, _store) = store();
        let path = root.path().join("locks/x.lock");
        let first = lock(&path, || panic!("nobody holds it")).await.unwrap();
        let (told, hears) = tokio::sync::oneshot::channel();
        let again = path.clone();
        let second =
            tokio::spawn(async move { lock(&again, move || told.send(()).unwrap()).await });
        hears.await.unwrap();
        assert!(!second.is_finished());
        drop(first);
        second.await.unwrap().unwrap();
    }
}
