//! A model file that lies on a host: which file is meant, what it is, its header and digest. Needs
//! only `sh` and a few common tools there, and writes nothing there. Must not know plans or pieces.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use windlass_gguf::header::MAX_HEADER;
use windlass_gguf::{Gguf, GgufError};
use windlass_wire::host::{MAX_FILE, is_digest};
use windlass_wire::source::SourceFile;

use super::install::{SHORT, run};
use super::site::Site;
use crate::event::{Emitter, Event, Failure, FailureKind, Level, Scope, Status};
use crate::figures::size;
use crate::model::{self, Alias, DEFAULT_REVISION, ModelRef, RepoId, SMOLLM2};
use crate::paths::private_folder;
use crate::ssh::{Caps, quote};

/// Bytes of a model file read at first for its header.
const HEADER: u64 = 4 << 20;
/// Bytes a second that a host surely reads a file with.
const SLOWEST_DISK: u64 = 20 << 20;
/// Longest wait for the next bytes of a header.
const PATIENCE: Duration = Duration::from_secs(60);
/// File of the digests of model files on hosts, in the cache.
const DIGESTS: &str = "hosts.json";
/// Largest such file that is read.
const MOST_DIGESTS: u64 = 4 << 20;

/// A model file on a host.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// The host.
    pub site: Site,
    /// The file.
    pub file: SourceFile,
    /// Its header.
    pub header: Gguf,
    /// Name to serve it under.
    pub name: String,
}

/// Finds the model that a text names on a host: a path there (absolute, or from the login user's
/// home), or what that user's caches of the hub and of windlass hold.
///
/// # Errors
/// When the text names nothing, or the file is not there, cannot be read, or is no model.
pub async fn find(
    site: &Site,
    text: &str,
    cache: &Path,
    emitter: &Emitter,
) -> Result<Elsewhere, Failure> {
    let task = emitter.task(Scope::host(site.name()).in_task("model"), None);
    let found = found(site, text, cache, emitter).await;
    match &found {
        Ok(model) => task.finish(
            Status::Ok,
            format!("{} is there, {}", model.file.path, size(model.file.bytes)),
        ),
        Err(_) => task.finish(Status::Failed, ""),
    }
    found
}

async fn found(
    site: &Site,
    text: &str,
    cache: &Path,
    emitter: &Emitter,
) -> Result<Elsewhere, Failure> {
    let (path, name) = path_of(site, &reference(text)?).await?;
    let (mut file, promised) = look(site, &path).await?;
    let header = header(site, &file).await?;
    let key = format!("{}:{path}", site.host.address);
    let digests = cache.join("digests");
    file.sha256 = match known(&digests, &key, &file) {
        Some(sha256) => sha256,
        None => {
            emitter.emit(
                Scope::host(site.name()).in_task("model"),
                Event::log(
                    Level::Info,
                    format!("reading {} there for its digest", size(file.bytes)),
                ),
            );
            file.sha256 = digest(site, &file).await?;
            if let Err(error) = remember(&digests, &key, &file) {
                let message = format!("the digest of {path} could not be kept: {error}");
                emitter.log(Level::Warn, message);
            }
            file.sha256
        }
    };
    if let Some(promised) = promised.filter(|promised| *promised != file.sha256) {
        return Err(site.failed(
            "model",
            format!(
                "{path} should have the digest {promised} by its name and has {}: it is damaged, fetch it again there",
                file.sha256
            ),
        ));
    }
    Ok(Elsewhere {
        site: site.clone(),
        file,
        header,
        name,
    })
}

/// The model a text names, when files are those of another machine.
fn reference(text: &str) -> Result<ModelRef, Failure> {
    let text = text.trim();
    if text.starts_with("~/") {
        return Ok(ModelRef::Path(text.into()));
    }
    // Whether a path is there is found out there.
    let path = |path: &Path| !path.to_string_lossy().contains(':');
    ModelRef::parse_with(text, path)
        .map_err(|error| Failure::new(FailureKind::Usage, error.to_string()).at("model"))
}

/// The path of the file that is meant, and the name to serve it under.
async fn path_of(site: &Site, reference: &ModelRef) -> Result<(String, String), Failure> {
    let (script, repo, selector) = match reference {
        ModelRef::Path(path) => {
            let home = site.facts.login.home.as_deref().unwrap_or("/");
            let path = at_home(home, path);
            let name = model::stem(&path);
            return Ok((path, name));
        }
        ModelRef::Alias(Alias::SmolLm2) => (pinned_script()?, None, None),
        ModelRef::Hub {
            repo,
            revision,
            selector,
        } => {
            let revision = revision.as_deref().unwrap_or(DEFAULT_REVISION);
            let script = hub_script(repo, revision);
            (script, Some(repo), selector.as_deref())
        }
    };
    let output = site
        .session()
        .run("look for the model", &script, SHORT)
        .await
        .map_err(|error| error.failure(site.name()))?;
    let text = output.text();
    let answer = Answer::of(&text);
    let not_here = || {
        let looked = answer.looked.unwrap_or("its caches");
        site.failed(
            "model",
            format!(
                "{reference} is not in {looked}; fetch it there, name its path, or leave --source out"
            ),
        )
    };
    let Some(repo) = repo else {
        let path = answer.files.first().ok_or_else(not_here)?;
        return Ok(((*path).to_owned(), SMOLLM2.name.to_owned()));
    };
    if answer.files.is_empty() {
        return Err(not_here());
    }
    let index =
        model::pick(repo, selector, &answer.files).map_err(|error| site.failed("model", error))?;
    let file = answer.files.get(index).copied().ok_or_else(not_here)?;
    let folder = answer.folder.ok_or_else(not_here)?;
    Ok((format!("{folder}/{file}"), model::stem(file)))
}

/// A path there: absolute as it is, else from the home folder, as copying programs have it.
fn at_home(home: &str, path: &Path) -> String {
    let text = path.to_string_lossy();
    let text = text.strip_prefix("~/").unwrap_or(&text);
    let text = text.strip_prefix("./").unwrap_or(text);
    PathBuf::from(home).join(text).display().to_string()
}

/// Where the caches are, in a script: as the programs that fill them decide.
const CACHES: &str = "cache=${XDG_CACHE_HOME:-$HOME/.cache}\n\
    hub=${HF_HUB_CACHE:-${HF_HOME:-$cache/huggingface}/hub}\n";

/// Lists the model files of a repository's revision in the hub's cache.
fn hub_script(repo: &RepoId, revision: &str) -> String {
    let commit = revision.len() == 40 && revision.bytes().all(|b| b.is_ascii_hexdigit());
    let commit = if commit {
        quote(revision)
    } else {
        let file = quote(&format!("refs/{revision}"));
        format!("$(head -c 64 \"$repo\"/{file} 2>/dev/null)")
    };
    format!(
        "{CACHES}repo=$hub/{folder}\n\
         printf 'looked %s\\n' \"$hub\"\n\
         commit={commit}\n\
         case $commit in ''|*[!0-9a-f]*) exit 0;; esac\n\
         cd \"$repo/snapshots/$commit\" 2>/dev/null || exit 0\n\
         printf 'folder %s\\n' \"$repo/snapshots/$commit\"\n\
         find -L . -type f -name '*.[gG][gG][uU][fF]' | head -n 1000 | sed 's|^\\./|file |'\n",
        folder = quote(&repo.folder()),
    )
}

/// Finds the model known by name in either cache.
fn pinned_script() -> Result<String, Failure> {
    let repo = RepoId::parse(SMOLLM2.repo)
        .map_err(|error| Failure::internal(error.to_string()))?
        .folder();
    let (sha256, commit, file) = (SMOLLM2.sha256, SMOLLM2.commit, SMOLLM2.file);
    Ok(format!(
        "{CACHES}printf 'looked %s\\n' \"$cache/windlass/models or $hub\"\n\
         for f in \"$cache/windlass/models/{sha256}/{file}\" \
         \"$hub/{repo}/snapshots/{commit}/{file}\" \"$hub/{repo}/blobs/{sha256}\"; do\n\
         \x20 if [ -f \"$f\" ]; then printf 'file %s\\n' \"$f\"; exit 0; fi\n\
         done\n"
    ))
}

/// What the scripts print.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer<'a> {
    looked: Option<&'a str>,
    folder: Option<&'a str>,
    files: Vec<&'a str>,
}

impl<'a> Answer<'a> {
    fn of(text: &'a str) -> Self {
        let mut answer = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("looked", path)) => answer.looked = Some(path),
                Some(("folder", path)) => answer.folder = Some(path),
                Some(("file", path)) => answer.files.push(path),
                _ => {}
            }
        }
        answer
    }
}

/// What the file is, without its digest, and the digest that its name in a cache promises.
async fn look(site: &Site, path: &str) -> Result<(SourceFile, Option<String>), Failure> {
    let quoted = quote(path);
    let script = format!(
        "p={quoted}\n\
         if [ ! -e \"$p\" ]; then echo absent\n\
         elif [ ! -f \"$p\" ]; then echo other\n\
         elif [ ! -r \"$p\" ]; then echo unreadable\n\
         else\n\
         \x20 printf 'link %s\\n' \"$(readlink \"$p\" 2>/dev/null)\"\n\
         \x20 printf 'stat %s\\n' \"$(stat -L -c '%s %Y %Z %i' \"$p\" 2>/dev/null || stat -L -f '%z %m %c %i' \"$p\")\"\n\
         fi\n"
    );
    let output = run(site.session(), site.base(), "look at the model", &script)
        .await
        .map_err(|error| error.failure(site.name()))?;
    seen(path, &output.text()).map_err(|reason| {
        let user = match (site.base().root, &site.facts.login.user) {
            (false, Some(user)) => format!(" as {user}"),
            _ => String::new(),
        };
        site.failed("model", reason.replace("{user}", &user))
    })
}

/// Reads what the look printed. The place of the user's name in a reason is `{user}`.
fn seen(path: &str, text: &str) -> Result<(SourceFile, Option<String>), String> {
    let mut promised = None;
    for line in text.lines() {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("absent", _) => {
                return Err(format!(
                    "there is no file {path}, or it cannot be seen{{user}}"
                ));
            }
            ("other", _) => return Err(format!("{path} is no file")),
            ("unreadable", _) => {
                return Err(format!(
                    "{path} cannot be read{{user}}: permission denied; let that user read it"
                ));
            }
            ("link", target) => {
                let name = target.rsplit('/').next().unwrap_or_default();
                promised = Some(name.to_owned()).filter(|name| is_digest(name));
            }
            ("stat", figures) => {
                let mut figures = figures.split_whitespace();
                let mut next = || figures.next()?.parse::<i64>().ok();
                let stamp = (|| Some((next()?, next()?, next()?, next()?)))();
                let Some((bytes, modified, changed, inode)) = stamp else {
                    return Err(format!("the size and time of {path} cannot be read"));
                };
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                if bytes > MAX_FILE {
                    return Err(format!("{path} has {bytes} bytes"));
                }
                let file = SourceFile {
                    path: path.to_owned(),
                    bytes,
                    modified,
                    changed,
                    inode: u64::try_from(inode).unwrap_or_default(),
                    sha256: String::new(),
                };
                return Ok((file, promised));
            }
            _ => {}
        }
    }
    Err(format!("{path} could not be looked at"))
}

/// Reads the header: the file's beginning, as much as it takes.
async fn header(site: &Site, file: &SourceFile) -> Result<Gguf, Failure> {
    let mut want = HEADER;
    loop {
        want = want.min(file.bytes).min(MAX_HEADER);
        let bytes = beginning(site, &file.path, want).await?;
        match Gguf::parse(&bytes, file.bytes) {
            Ok(header) => return Ok(header),
            Err(GgufError::NeedMore { at_least })
                if bytes.len() as u64 == want && want < file.bytes.min(MAX_HEADER) =>
            {
                want = at_least.max(want.saturating_mul(2));
            }
            Err(error) => {
                let reason = format!("{}: {error}", file.path);
                let mut failure = site.failed("model", reason);
                failure.kind = FailureKind::Model;
                return Err(failure);
            }
        }
    }
}

async fn beginning(site: &Site, path: &str, want: u64) -> Result<Vec<u8>, Failure> {
    let script = format!("exec head -c {want} < {}", quote(path));
    let stream = site
        .session()
        .open("read the model's header", &script, site.base().root)
        .await
        .map_err(|error| error.failure(site.name()))?;
    let mut bytes = Vec::new();
    let mut from = stream.stdout.take(want);
    let failed = |why: String| {
        site.failed(
            "model",
            format!("the header of {path} cannot be read: {why}"),
        )
    };
    loop {
        match timeout(PATIENCE, from.read_buf(&mut bytes)).await {
            Ok(Ok(0)) => return Ok(bytes),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_) => {
                return Err(failed(format!("nothing came for {} s", PATIENCE.as_secs())));
            }
        }
    }
}

/// Has the host read the whole file.
async fn digest(site: &Site, file: &SourceFile) -> Result<String, Failure> {
    let path = quote(&file.path);
    let script = format!(
        "if command -v sha256sum >/dev/null 2>&1; then sha256sum < {path}\nelse shasum -a 256 < {path}; fi\n"
    );
    let caps = Caps {
        time: SHORT.time + Duration::from_secs(file.bytes / SLOWEST_DISK),
        ..SHORT
    };
    let what = "read the model for its digest";
    let output = site
        .session()
        .run_as(site.base().root, what, &script, caps)
        .await
        .map_err(|error| error.failure(site.name()))?;
    let text = output.text();
    match text.split_whitespace().next() {
        Some(word) if output.ok() && is_digest(word) => Ok(word.to_owned()),
        _ => Err(site.failed(
            "model",
            format!(
                "the digest of {} cannot be taken: {}",
                file.path,
                output.last_words()
            ),
        )),
    }
}

type Digests = BTreeMap<String, SourceFile>;

fn read(folder: &Path) -> Digests {
    use std::io::Read;
    let read = || -> io::Result<Digests> {
        let mut text = Vec::new();
        fs::File::open(folder.join(DIGESTS))?
            .take(MOST_DIGESTS)
            .read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    };
    // A cache that cannot be read means that there is more to do, nothing else.
    read().unwrap_or_default()
}

/// The digest taken before, when the file is as it was then.
fn known(folder: &Path, key: &str, file: &SourceFile) -> Option<String> {
    let before = read(folder).remove(key)?;
    let as_before = SourceFile {
        sha256: before.sha256.clone(),
        ..file.clone()
    };
    (before == as_before && is_digest(&before.sha256)).then_some(before.sha256)
}

fn remember(folder: &Path, key: &str, file: &SourceFile) -> io::Result<()> {
    let mut digests = read(folder);
    digests.insert(key.to_owned(), file.clone());
    private_folder(folder)?;
    let partial = folder.join(format!("{DIGESTS}.{}.part", std::process::id()));
    let mut out = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&partial)?;
    out.write_all(&serde_json::to_vec_pretty(&digests)?)?;
    out.sync_all()?;
    fs::rename(&partial, folder.join(DIGESTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_a_path_there_or_a_model_of_its_caches() {
        for (text, wanted) in [
            ("/data/m.gguf", "/data/m.gguf"),
            ("~/m.gguf", "/home/ai/m.gguf"),
            ("~/models/m", "/home/ai/models/m"),
            ("./m.gguf", "/home/ai/m.gguf"),
            ("sub/m.gguf", "/home/ai/sub/m.gguf"),
        ] {
            let ModelRef::Path(path) = reference(text).unwrap() else {
                panic!("{text}");
            };
            assert_eq!(at_home("/home/ai", &path), wanted, "{text}");
        }
        for text in ["org/name:Q4_0", "org/name:sub/m.gguf"] {
            assert!(
                matches!(reference(text).unwrap(), ModelRef::Hub { .. }),
                "{text}"
            );
        }
        assert!(matches!(reference("smollm2").unwrap(), ModelRef::Alias(_)));
        assert_eq!(reference("smolm2").unwrap_err().kind, FailureKind::Usage);
    }

    #[test]
    fn what_a_host_says_of_a_file_is_read_and_refusals_name_the_path() {
        let digest = "ab".repeat(32);
        let text = format!("link ../../blobs/{digest}\nstat 98362432 1700000000 1700000001 12\n");
        let (file, promised) = seen("/m", &text).unwrap();
        assert_eq!((file.bytes, file.modified), (98_362_432, 1_700_000_000));
        assert_eq!((file.changed, file.inode), (1_700_000_001, 12));
        assert_eq!(promised, Some(digest));
        let (_, promised) = seen("/m", "link \nstat 1 2 3 4\n").unwrap();
        assert_eq!(promised, None);
        for (text, wanted) in [
            ("absent\n", "no file /m"),
            ("other\n", "/m is no file"),
            ("unreadable\n", "permission"),
            ("", "/m could not"),
            ("stat \n", "size and time of /m"),
            ("stat -1 2 3 4\n", "/m has"),
            ("stat 1 x 3 4\n", "size and time of /m"),
        ] {
            let error = seen("/m", text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    /// Runs a script here with a home of its own.
    fn here(home: &Path, script: &str) -> String {
        let output = std::process::Command::new("/bin/sh")
            .args(["-c", script])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", home)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_caches_of_a_home_are_searched_as_the_programs_that_fill_them_lay_them_out() {
        let home = tempfile::tempdir().unwrap();
        let repo = RepoId::parse("org/name").unwrap();
        let folder = home.path().join(".cache/huggingface/hub/models--org--name");
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let snapshot = folder.join("snapshots").join(commit);
        fs::create_dir_all(snapshot.join("sub")).unwrap();
        fs::create_dir_all(folder.join("refs")).unwrap();
        fs::create_dir_all(folder.join("blobs")).unwrap();
        fs::write(folder.join("refs/main"), commit).unwrap();
        fs::write(folder.join("blobs/b"), "x").unwrap();
        std::os::unix::fs::symlink("../../../blobs/b", snapshot.join("sub/m Q4_0.gguf")).unwrap();
        std::os::unix::fs::symlink("../../blobs/gone", snapshot.join("gone.gguf")).unwrap();
        for revision in ["main", commit] {
            let text = here(home.path(), &hub_script(&repo, revision));
            let answer = Answer::of(&text);
            assert_eq!(answer.files, ["sub/m Q4_0.gguf"], "{text}");
            assert_eq!(answer.folder, Some(&*snapshot.display().to_string()));
        }
        for revision in ["other", "../../x"] {
            let text = here(home.path(), &hub_script(&repo, revision));
            assert!(Answer::of(&text).files.is_empty(), "{text}");
            assert!(text.starts_with("looked "), "{text}");
        }
        assert!(
            Answer::of(&here(home.path(), &pinned_script().unwrap()))
                .files
                .is_empty()
        );
        let own = home
            .path()
            .join(".cache/windlass/models")
            .join(SMOLLM2.sha256);
        fs::create_dir_all(&own).unwrap();
        let own = own.join(SMOLLM2.file);
        fs::write(&own, "x").unwrap();
        let text = here(home.path(), &pinned_script().unwrap());
        assert_eq!(Answer::of(&text).files, [&*own.display().to_string()]);
    }

    #[test]
    fn a_digest_is_taken_from_the_cache_only_for_the_very_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = SourceFile {
            path: "/m".into(),
            bytes: 5,
            modified: 1,
            changed: 2,
            inode: 3,
            sha256: "ab".repeat(32),
        };
        remember(folder.path(), "h:/m", &file).unwrap();
        let mut now = file.clone();
        now.sha256.clear();
        assert_eq!(known(folder.path(), "h:/m", &now), Some(file.sha256));
        assert_eq!(known(folder.path(), "other:/m", &now), None);
        now.changed = 4;
        assert_eq!(known(folder.path(), "h:/m", &now), None);
        fs::write(folder.path().join(DIGESTS), "{").unwrap();
        assert_eq!(known(folder.path(), "h:/m", &now), None);
    }
}
