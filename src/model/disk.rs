//! What is on this disk: listing, finding without asking anyone, checking, removing. Only files of
//! the caches are ever removed. Knows no network.

use std::fs;
use std::path::{Path, PathBuf};

use super::choose::{Choice, choose, quant_label};
use super::error::ModelError;
use super::listing::is_hex;
use super::options::Folders;
use super::reference::{Alias, ModelRef, RepoId, is_gguf};
use super::resolve::{DEFAULT_REVISION, Source, Wanted, stem};
use super::smollm2::{Pinned, SMOLLM2};
use super::store::{self, Store};

/// The models on this disk.
#[derive(Debug, Clone)]
pub struct Disk {
    store: Store,
    folders: Folders,
}

/// A model file on this disk, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The name it is served under.
    pub name: String,
    /// A reference that names it; only the repository where the file's name is not known.
    pub reference: String,
    /// Where it came from.
    pub source: Source,
    /// The repository and the commit in it, if it is from the hub.
    pub from: Option<(RepoId, String)>,
    /// The file in its repository, if known.
    pub file: Option<String>,
    /// The quantisation that the file's name claims.
    pub quant: Option<String>,
    /// Where it lies.
    pub path: PathBuf,
    /// Bytes that are here.
    pub bytes: u64,
    /// Whether all of it is here.
    pub complete: bool,
    /// The sha256 it must have, where something says so.
    pub promised: Option<String>,
    /// Its licence, where it is known without reading the file.
    pub license: Option<String>,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// The digest is as promised.
    Sound,
    /// It is not: this is the digest.
    Damaged(String),
    /// Nothing promises a digest: this is what it is.
    Unpromised(String),
}

/// What removing a model takes away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removal {
    /// Files and links, all in a cache.
    pub paths: Vec<PathBuf>,
    /// Bytes that become free.
    pub bytes: u64,
    /// A blob that stays because another revision has the same file.
    pub kept: Option<PathBuf>,
    /// Locks that others take who would write these files.
    locks: Vec<PathBuf>,
}

impl Disk {
    /// The models in these folders.
    pub fn new(folders: &Folders) -> Self {
        Self {
            store: Store::new(folders),
            folders: folders.clone(),
        }
    }

    /// Every GGUF file in the caches, also those of which only a part is here.
    pub fn list(&self) -> Vec<Held> {
        let mut all = Vec::new();
        for repo in self.store.repositories() {
            let main = self.store.commit_of(&repo, DEFAULT_REVISION);
            let mut partials = self.store.partials(&repo);
            for commit in self.store.commits(&repo) {
                let entries = self.store.snapshot_entries(&repo, &commit);
                let paths: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
                let at = if main.as_deref() == Some(&commit) {
                    String::new()
                } else {
                    format!("@{commit}")
                };
                for (file, bytes) in entries.iter().filter(|(name, _)| is_gguf(name)) {
                    let mut held = self.of_hub(&repo, &commit, file, bytes.unwrap_or(0));
                    held.reference = format!("{repo}{at}:{}", selector(&paths, file));
                    held.complete = bytes.is_some();
                    if !held.complete
                        && let Some(at) = link_name(&held.path)
                            .and_then(|digest| partials.iter().position(|(d, _)| *d == digest))
                    {
                        held.bytes = partials.remove(at).1;
                    }
                    all.push(held);
                }
            }
            for (digest, bytes) in partials {
                all.push(self.of_partial(&repo, &digest, bytes));
            }
        }
        all.extend(self.of_package(&SMOLLM2));
        all
    }

    /// Where a model lies, complete; the first is the one that would be used. Reads no model file.
    ///
    /// # Errors
    /// [`ModelError::NotHere`], or when the reference names several files.
    pub fn find(&self, reference: &ModelRef) -> Result<Vec<Held>, ModelError> {
        let not_here = || ModelError::NotHere {
            what: reference.to_string(),
            looked_in: self.folders.hub.clone(),
        };
        let found = match reference {
            ModelRef::Path(path) => {
                let meta = fs::metadata(path).map_err(ModelError::io("look at", path))?;
                vec![Held {
                    name: stem(&path.to_string_lossy()),
                    reference: reference.to_string(),
                    source: Source::Path,
                    from: None,
                    file: None,
                    quant: quant_label(&path.to_string_lossy()),
                    path: path.clone(),
                    bytes: meta.len(),
                    complete: true,
                    promised: blob_digest(path),
                    license: None,
                }]
            }
            ModelRef::Alias(Alias::SmolLm2) => self.of_pinned(&SMOLLM2)?,
            ModelRef::Hub {
                repo,
                revision,
                selector,
            } => {
                let wanted = Wanted {
                    repo,
                    revision: revision.as_deref().unwrap_or(DEFAULT_REVISION),
                    selector: selector.as_deref(),
                };
                let commit = self.store.commit_of(repo, wanted.revision);
                let commit = commit.ok_or_else(not_here)?;
                let files = self.store.snapshot_files(repo, &commit);
                let paths: Vec<&str> = files.iter().map(String::as_str).collect();
                let index = match wanted.pick(&paths) {
                    // The repository may well have it: only this disk does not.
                    Err(ModelError::NoSuchFile { .. } | ModelError::NoGguf { .. }) => {
                        return Err(not_here());
                    }
                    other => other?,
                };
                let file = paths.get(index).copied().ok_or_else(not_here)?;
                let path = self.store.snapshot(repo, &commit, file);
                let meta = fs::metadata(&path).map_err(ModelError::io("look at", &path))?;
                let mut held = self.of_hub(repo, &commit, file, meta.len());
                held.reference = reference.to_string();
                vec![held]
            }
        };
        if found.is_empty() {
            return Err(not_here());
        }
        Ok(found)
    }

    fn of_hub(&self, repo: &RepoId, commit: &str, file: &str, bytes: u64) -> Held {
        let path = self.store.snapshot(repo, commit, file);
        let promised = blob_digest(&path).or_else(|| link_name(&path));
        let pinned = promised.as_deref() == Some(SMOLLM2.sha256);
        Held {
            name: if pinned {
                SMOLLM2.name.to_owned()
            } else {
                stem(file)
            },
            reference: format!("{repo}@{commit}:{file}"),
            source: Source::Hub,
            from: Some((repo.clone(), commit.to_owned())),
            file: Some(file.to_owned()),
            quant: quant_label(file),
            bytes,
            complete: true,
            promised,
            license: pinned.then(|| SMOLLM2.license.to_owned()),
            path,
        }
    }

    /// A download that broke off, whose file's name nothing tells but a digest known beforehand.
    fn of_partial(&self, repo: &RepoId, digest: &str, bytes: u64) -> Held {
        let pinned = (digest == SMOLLM2.sha256).then_some(&SMOLLM2);
        Held {
            name: pinned.map_or_else(|| repo.name().to_owned(), |p| p.name.to_owned()),
            reference: pinned.map_or_else(|| repo.to_string(), |p| p.name.to_owned()),
            source: Source::Hub,
            from: None,
            file: pinned.map(|p| p.file.to_owned()),
            quant: pinned.and_then(|p| quant_label(p.file)),
            path: self.store.partial(repo, digest),
            bytes,
            complete: false,
            promised: Some(digest.to_owned()),
            license: None,
        }
    }

    /// The copy of a pinned model that came out of its package.
    fn of_package(&self, pinned: &Pinned) -> Option<Held> {
        let path = self.store.own(pinned.sha256).join(pinned.file);
        let meta = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        Some(Held {
            name: pinned.name.to_owned(),
            reference: pinned.name.to_owned(),
            source: Source::Package,
            from: None,
            file: Some(pinned.file.to_owned()),
            quant: quant_label(pinned.file),
            path,
            bytes: meta.len(),
            complete: true,
            promised: Some(pinned.sha256.to_owned()),
            license: Some(pinned.license.to_owned()),
        })
    }

    fn of_pinned(&self, pinned: &Pinned) -> Result<Vec<Held>, ModelError> {
        let mut all: Vec<Held> = self.of_package(pinned).into_iter().collect();
        let repo = RepoId::parse(pinned.repo)?;
        let link = self.store.snapshot(&repo, pinned.commit, pinned.file);
        let blob = self.store.blob(&repo, pinned.sha256);
        // The blob serves also where no link leads to it.
        for path in [link, blob] {
            let meta = fs::metadata(&path).ok().filter(fs::Metadata::is_file);
            if let Some(meta) = meta {
                let mut held = self.of_hub(&repo, pinned.commit, pinned.file, meta.len());
                held.reference = pinned.name.to_owned();
                held.path = path;
                held.promised = Some(pinned.sha256.to_owned());
                all.push(held);
                break;
            }
        }
        Ok(all)
    }

    /// The digest, from its record where the file did not change since.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn digest(
        &self,
        held: &Held,
        hashing: impl FnOnce(u64),
    ) -> Result<String, ModelError> {
        let found = self.store.digest(&held.path, hashing).await?;
        Ok(found.sha256)
    }

    /// Reads the whole file and compares its digest with the promised one.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn check(&self, held: &Held, hashing: impl FnOnce(u64)) -> Result<Check, ModelError> {
        let found = self.store.read_digest(&held.path, hashing).await?;
        Ok(match &held.promised {
            Some(promised) if *promised == found.sha256 => Check::Sound,
            Some(_) => Check::Damaged(found.sha256),
            None => Check::Unpromised(found.sha256),
        })
    }

    /// What removing a file would take away. Nothing outside of the caches, wherever links lead.
    ///
    /// # Errors
    /// [`ModelError::OutsideCache`] for the user's own files, or when the cache cannot be read.
    pub fn removal(&self, held: &Held) -> Result<Removal, ModelError> {
        let outside = || ModelError::OutsideCache {
            path: held.path.clone(),
        };
        let mut removal = Removal::default();
        let Some((repo, _)) = &held.from else {
            if held.source != Source::Package {
                return Err(outside());
            }
            let folder = held.path.parent().ok_or_else(outside)?;
            let models = self.folders.own.join("models");
            if !inside(folder, &models) || is_link(&held.path) {
                return Err(outside());
            }
            removal.locks.push(folder.join("lock"));
            removal.bytes = held.bytes;
            removal.paths.push(held.path.clone());
            return Ok(removal);
        };
        let root = self.folders.hub.join(repo.folder());
        if !held
            .path
            .parent()
            .is_some_and(|folder| inside(folder, &root))
        {
            return Err(outside());
        }
        removal.paths.push(held.path.clone());
        if !is_link(&held.path) {
            // A cache on a file system without links, or a blob that no link leads to.
            removal.bytes = held.bytes;
            return Ok(removal);
        }
        let blob = fs::canonicalize(&held.path).map_err(ModelError::io("find", &held.path))?;
        let blobs = root.join("blobs");
        let own = blob
            .parent()
            .is_some_and(|folder| fs::canonicalize(&blobs).is_ok_and(|blobs| blobs == folder));
        if !own {
            // The link is the cache's, what it leads to is somebody's.
            return Ok(removal);
        }
        if self.links_to(repo, &blob, &held.path) {
            removal.kept = Some(blob);
            return Ok(removal);
        }
        if let Some(digest) = blob.file_name().and_then(|name| name.to_str()) {
            removal.locks.push(self.store.blob_lock(repo, digest));
        }
        removal.bytes = held.bytes;
        removal.paths.push(blob);
        Ok(removal)
    }

    /// Whether another name than `but` in the repository leads to this blob.
    fn links_to(&self, repo: &RepoId, blob: &Path, but: &Path) -> bool {
        self.store.commits(repo).iter().any(|commit| {
            let files = self.store.snapshot_files(repo, commit).into_iter();
            files
                .map(|file| self.store.snapshot(repo, commit, &file))
                .any(|path| path != but && fs::canonicalize(&path).is_ok_and(|real| real == blob))
        })
    }

    /// Removes what [`Disk::removal`] named, waiting for whoever writes it just now.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub async fn remove(&self, removal: &Removal) -> Result<(), ModelError> {
        let mut locks = Vec::new();
        for path in &removal.locks {
            locks.push(store::lock(path, || ()).await?);
        }
        for path in &removal.paths {
            if !is_link(path) {
                self.store.forget(path);
            }
            match fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(ModelError::io("remove", path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The shortest selector that names one file of a snapshot.
fn selector(paths: &[&str], file: &str) -> String {
    let Some(quant) = quant_label(file) else {
        return file.to_owned();
    };
    let index = paths.iter().position(|path| *path == file);
    match choose(paths, Some(&quant)) {
        Choice::One(one) if Some(one) == index => quant,
        _ => file.to_owned(),
    }
}

/// The digest that a blob's name promises, for a path that leads to a blob.
fn blob_digest(path: &Path) -> Option<String> {
    let real = fs::canonicalize(path).ok()?;
    let in_blobs = real.parent()?.file_name()? == "blobs";
    let name = real.file_name()?.to_str()?;
    (in_blobs && is_hex(name, 64)).then(|| name.to_ascii_lowercase())
}

/// The digest in the name that a link leads to, whether that is there or not.
fn link_name(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    let name = target.file_name()?.to_str()?;
    is_hex(name, 64).then(|| name.to_ascii_lowercase())
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}

/// Whether a folder really lies in another, links followed.
fn inside(folder: &Path, root: &Path) -> bool {
    match (fs::canonicalize(folder), fs::canonicalize(root)) {
        (Ok(folder), Ok(root)) => folder.starts_with(root),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const FIRST: &str = "1111111111111111111111111111111111111111";
    const SECOND: &str = "2222222222222222222222222222222222222222";

    struct Cache {
        root: tempfile::TempDir,
        disk: Disk,
        repo: RepoId,
    }

    impl Cache {
        /// One blob with the content `abc`, linked as a file of the first commit.
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let disk = Disk::new(&Folders::below(root.path()));
            let repo = RepoId::parse("org/name").unwrap();
            let cache = Self { root, disk, repo };
            let blob = cache.blob();
            store::make_parent(&blob).unwrap();
            fs::write(&blob, "abc").unwrap();
            cache.link(FIRST, "m-Q4_0.gguf");
            cache
                .disk
                .store
                .set_commit(&cache.repo, "main", FIRST)
                .unwrap();
            cache
        }

        fn blob(&self) -> PathBuf {
            self.disk.store.blob(&self.repo, ABC)
        }

        fn link(&self, commit: &str, file: &str) -> PathBuf {
            self.disk.store.link(&self.repo, commit, file, ABC).unwrap()
        }

        fn find(&self, reference: &str) -> Result<Held, ModelError> {
            let reference = reference.parse().unwrap();
            self.disk.find(&reference).map(|mut all| all.remove(0))
        }
    }

    #[test]
    fn every_name_in_the_list_finds_its_file_again() {
        let cache = Cache::new();
        cache.link(FIRST, "sub/n-Q4_0.gguf");
        cache.link(FIRST, "README.md");
        cache.link(SECOND, "m-Q4_0.gguf");
        let list = cache.disk.list();
        let names: Vec<&str> = list.iter().map(|held| held.reference.as_str()).collect();
        let second = format!("org/name@{SECOND}:Q4_0");
        assert_eq!(
            names,
            ["org/name:m-Q4_0.gguf", "org/name:sub/n-Q4_0.gguf", &second]
        );
        for held in &list {
            assert!(held.complete);
            assert_eq!((held.bytes, held.promised.as_deref()), (3, Some(ABC)));
            assert_eq!(cache.find(&held.reference).unwrap(), *held);
        }
    }

    #[test]
    fn downloads_that_broke_off_are_listed_as_such_and_not_found() {
        let cache = Cache::new();
        let partial = cache.disk.store.partial(&cache.repo, &"d".repeat(64));
        fs::write(&partial, "ab").unwrap();
        fs::rename(cache.blob(), cache.disk.store.partial(&cache.repo, ABC)).unwrap();
        let list = cache.disk.list();
        let seen: Vec<_> = list
            .iter()
            .map(|held| (held.reference.as_str(), held.bytes, held.complete))
            .collect();
        assert_eq!(seen, [("org/name:Q4_0", 3, false), ("org/name", 2, false)]);
        let error = cache.find("org/name:Q4_0").unwrap_err().to_string();
        assert!(
            error.contains("windlass model pull org/name:Q4_0"),
            "{error}"
        );
        assert!(cache.find("other/name:Q4_0").is_err());
    }

    #[tokio::test]
    async fn a_check_reads_the_file_even_where_a_record_vouches_for_it() {
        let cache = Cache::new();
        let held = cache.find("org/name:Q4_0").unwrap();
        assert_eq!(cache.disk.check(&held, |_| ()).await.unwrap(), Check::Sound);
        // The same size and time, as when a disk decays.
        let time = fs::metadata(cache.blob()).unwrap().modified().unwrap();
        fs::write(cache.blob(), "abd").unwrap();
        let file = fs::File::options().write(true).open(cache.blob()).unwrap();
        file.set_modified(time).unwrap();
        assert_eq!(cache.disk.digest(&held, |_| ()).await.unwrap(), ABC);
        let Check::Damaged(got) = cache.disk.check(&held, |_| ()).await.unwrap() else {
            panic!("not seen");
        };
        // From now on nobody trusts it.
        assert_eq!(cache.disk.digest(&held, |_| ()).await.unwrap(), got);
    }

    #[tokio::test]
    async fn removing_takes_link_and_blob_of_that_file_only() {
        let cache = Cache::new();
        let other = cache.disk.store.blob(&cache.repo, &"e".repeat(64));
        fs::write(&other, "other").unwrap();
        let held = cache.find("org/name:Q4_0").unwrap();
        let removal = cache.disk.removal(&held).unwrap();
        assert_eq!(removal.bytes, 3);
        cache.disk.remove(&removal).await.unwrap();
        assert!(!cache.blob().exists() && !is_link(&held.path));
        assert!(other.exists());
        assert!(cache.find("org/name:Q4_0").is_err());
    }

    #[tokio::test]
    async fn a_blob_that_another_revision_has_too_stays() {
        let cache = Cache::new();
        let second = cache.link(SECOND, "m-Q4_0.gguf");
        let held = cache.find("org/name:Q4_0").unwrap();
        let removal = cache.disk.removal(&held).unwrap();
        assert_eq!(removal.bytes, 0);
        assert!(removal.kept.is_some());
        cache.disk.remove(&removal).await.unwrap();
        assert!(second.exists() && !is_link(&held.path));
    }

    #[tokio::test]
    async fn what_a_link_leads_to_outside_the_cache_is_never_removed() {
        let cache = Cache::new();
        let mine = cache.root.path().join("mine.gguf");
        fs::write(&mine, "abc").unwrap();
        // A snapshot's name that leads out.
        let held = cache.find("org/name:Q4_0").unwrap();
        fs::remove_file(&held.path).unwrap();
        std::os::unix::fs::symlink(&mine, &held.path).unwrap();
        let held = cache.find("org/name:Q4_0").unwrap();
        let removal = cache.disk.removal(&held).unwrap();
        assert_eq!(removal.paths, std::slice::from_ref(&held.path));
        cache.disk.remove(&removal).await.unwrap();
        assert!(mine.exists());
        // A snapshot that is itself a link out.
        let elsewhere = cache.root.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("m-Q4_0.gguf"), "abc").unwrap();
        let snapshot = held.path.parent().unwrap();
        fs::remove_dir(snapshot).unwrap();
        std::os::unix::fs::symlink(&elsewhere, snapshot).unwrap();
        let held = cache.find("org/name:Q4_0").unwrap();
        assert!(matches!(
            cache.disk.removal(&held),
            Err(ModelError::OutsideCache { .. })
        ));
        // A file the user named.
        let held = cache.find(mine.to_str().unwrap()).unwrap();
        assert!(cache.disk.removal(&held).is_err());
    }
}
