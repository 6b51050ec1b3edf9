//! The inventory as a file: finding, loading, replacing it whole, and which inventories' commands
//! may run. Must not know what stands in it.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::fault::{Fault, position};
use super::host::{Found, Inventory};
use crate::event::{Asker, Failure, FailureKind, Scope};
use crate::paths::{Paths, private_folder};
use crate::secret::Secret;

/// Name of the file where none is given.
pub const NAME: &str = "inventory.toml";
/// Longest file read, in bytes.
const LONGEST: u64 = 4 << 20;

/// Why there is no inventory.
#[derive(Debug, Error)]
pub enum LoadError {
    /// None was found.
    #[error(
        "there is no inventory, neither ./{NAME} nor {0}: write one with `windlass inventory add NAME address=ADDRESS`, or name one with --inventory"
    )]
    Nowhere(PathBuf),
    /// It cannot be read.
    #[error("the inventory {path} cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its text is invalid.
    #[error("{}", fault_lines(.path, .faults))]
    Faults {
        /// The file.
        path: PathBuf,
        /// All that is wrong.
        faults: Vec<Fault>,
    },
}

impl LoadError {
    /// As a run's failure: exit status 2.
    pub fn failure(&self) -> Failure {
        Failure::new(FailureKind::Config, self.to_string())
    }
}

/// Faults as `FILE:LINE:COLUMN: …`, a line each.
pub fn fault_lines(path: &Path, faults: &[Fault]) -> String {
    let all: Vec<String> = faults
        .iter()
        .map(|fault| format!("{}:{fault}", path.display()))
        .collect();
    all.join("\n")
}

/// Where the inventory is: the named file, else in the working folder, else in the configuration
/// folder. A named one need not be there.
///
/// # Errors
/// When none is named and none is there.
pub fn find(named: Option<&Path>, paths: &Paths) -> Result<(PathBuf, Found), LoadError> {
    let own = paths.config.join(NAME);
    if let Some(path) = named {
        return Ok((path.to_owned(), Found::Named));
    }
    // A broken link is there, and reading it says what is wrong.
    if fs::symlink_metadata(NAME).is_ok() {
        return Ok((PathBuf::from(NAME), Found::Here));
    }
    if fs::symlink_metadata(&own).is_ok() {
        return Ok((own, Found::Configuration));
    }
    Err(LoadError::Nowhere(own))
}

/// The text of an inventory.
///
/// # Errors
/// When it cannot be read, is too long, or is no text.
pub fn read(path: &Path) -> Result<String, LoadError> {
    let failed = |source: io::Error| LoadError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > LONGEST {
        return Err(failed(io::Error::other("it is longer than 4 MiB")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text =
            String::from_utf8_lossy(error.as_bytes().get(..valid).unwrap_or_default()).into_owned();
        let (line, column) = position(&text, text.len());
        LoadError::Faults {
            path: path.to_owned(),
            faults: vec![Fault {
                line,
                column,
                message: "this is not UTF-8: save the file as UTF-8".into(),
                nearest: None,
            }],
        }
    })
}

impl Inventory {
    /// Finds, reads and checks the inventory: the named file, else `./inventory.toml`, else the one
    /// in the configuration folder.
    ///
    /// # Errors
    /// When there is none, or all that is wrong with it.
    pub fn load(named: Option<&Path>, paths: &Paths) -> Result<Self, LoadError> {
        let (path, found) = find(named, paths)?;
        let text = read(&path)?;
        let mut inventory =
            Self::parse(&path, &text).map_err(|faults| LoadError::Faults { path, faults })?;
        inventory.found = found;
        Ok(inventory)
    }

    /// The commands that give secrets, without repetition.
    fn commands(&self) -> Vec<&[String]> {
        let mut all: Vec<&[String]> = self
            .hosts
            .iter()
            .flat_map(|host| [&host.ssh.password, &host.sudo_password])
            .chain([&self.cluster.api.key])
            .filter_map(|secret| match secret {
                Some(Secret::Command(words)) => Some(words.as_slice()),
                _ => None,
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What stands for this inventory's commands in the list of trusted ones: their digest and the
    /// file's real path. A command that is changed or added is trusted anew; another edit needs no
    /// new trust.
    fn trust_line(&self) -> io::Result<String> {
        let path = fs::canonicalize(&self.path)?;
        let path = path.to_str().filter(|path| !path.contains(['\n', '\r']));
        let path = path.ok_or_else(|| io::Error::other("its path is no plain text"))?;
        let mut digest = Sha256::new();
        for command in self.commands() {
            for word in command {
                digest.update((word.len() as u64).to_le_bytes());
                digest.update(word);
            }
            digest.update(u64::MAX.to_le_bytes());
        }
        let hex: String = digest
            .finalize()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        Ok(format!("{hex}  {path}"))
    }

    /// Whether the commands in this inventory may run without asking: there is none, it was named
    /// by the user, lies in the configuration folder, or was trusted before.
    pub fn commands_allowed(&self, paths: &Paths) -> bool {
        if self.found != Found::Here || self.commands().is_empty() {
            return true;
        }
        let Ok(line) = self.trust_line() else {
            return false;
        };
        // A list that cannot be read trusts nothing.
        fs::read_to_string(trusted_list(paths))
            .is_ok_and(|list| list.lines().any(|known| known == line))
    }

    /// Asks once whether this inventory's commands may run, and remembers a yes. To be called
    /// before any secret of it is fetched.
    ///
    /// # Errors
    /// When they may not, or nobody can answer. Leave given beforehand (`--yes`) is no answer to
    /// this.
    pub async fn allow_commands(&self, asker: &Asker, paths: &Paths) -> Result<(), Failure> {
        if self.commands_allowed(paths) {
            return Ok(());
        }
        let named = format!(
            "name it with --inventory {} to let them run",
            self.path.display()
        );
        let refused = |why: &str| {
            Failure::new(
                FailureKind::Config,
                format!(
                    "the inventory {} takes secrets from commands, {why}: {named}",
                    self.path.display()
                ),
            )
        };
        let shown: Vec<String> = self
            .commands()
            .into_iter()
            .map(|words| format!("{words:?}"))
            .collect();
        let question = format!(
            "the inventory {} takes secrets from commands that would run here: {}. Let them run, now and from now on?",
            self.path.display(),
            shown.join(", ")
        );
        match asker.ask(Scope::run(), question, &["y", "n"], false).await {
            Some(answer) if answer.trim() == "y" => {}
            Some(_) => return Err(refused("which you did not allow")),
            None => {
                return Err(refused(
                    "which run only from an inventory that was named, lies in the configuration folder, or was trusted before",
                ));
            }
        }
        let remembered = self.trust_line().and_then(|line| {
            private_folder(&paths.state)?;
            let mut list = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(trusted_list(paths))?;
            list.write_all(format!("{line}\n").as_bytes())
        });
        remembered.map_err(|error| {
            Failure::new(
                FailureKind::Io,
                format!(
                    "that {} is trusted cannot be remembered in {}: {error}",
                    self.path.display(),
                    trusted_list(paths).display()
                ),
            )
        })
    }
}

fn trusted_list(paths: &Paths) -> PathBuf {
    paths.state.join("trusted-inventories")
}

/// Why an edited inventory was not written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// Someone else changed it.
    #[error("the inventory {0} was changed by another meanwhile: try again")]
    Changed(PathBuf),
    /// It cannot be written.
    #[error("the inventory {path} cannot be written: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl WriteError {
    /// As a run's failure: exit status 1.
    pub fn failure(&self) -> Failure {
        Failure::new(FailureKind::Io, self.to_string())
    }
}

/// Replaces the inventory's text as a whole: a reader sees the old text or the new one, also after
/// a power cut. `old` is the text the new one was made from, `None` for a new file. Mode and owner
/// stay, and a link goes on pointing to the file.
///
/// # Errors
/// When it was changed meanwhile or cannot be written; the old one is then as it was.
pub fn replace(path: &Path, old: Option<&str>, new: &str) -> Result<(), WriteError> {
    let failed = |source: io::Error| WriteError::Write {
        path: path.to_owned(),
        source,
    };
    let Some(old) = old else {
        return create(path, new).map_err(failed);
    };
    let real = fs::canonicalize(path).map_err(failed)?;
    let meta = fs::metadata(&real).map_err(failed)?;
    // Renaming would put a new file in the place of one that its owner made read-only.
    OpenOptions::new().write(true).open(&real).map_err(failed)?;
    let (beside, mut file) = new_beside(&real, 0o600).map_err(failed)?;
    let written = (|| {
        file.write_all(new.as_bytes())?;
        file.set_permissions(fs::Permissions::from_mode(meta.mode() & 0o7777))?;
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (meta.uid(), meta.gid()) {
            std::os::unix::fs::fchown(&file, Some(meta.uid()), Some(meta.gid()))?;
        }
        file.sync_all()
    })();
    let done = written.map_err(failed).and_then(|()| {
        // The moment between this look and the renaming is all that another could use.
        match fs::read(&real) {
            Ok(now) if now == old.as_bytes() => fs::rename(&beside, &real).map_err(failed),
            Ok(_) => Err(WriteError::Changed(path.to_owned())),
            Err(error) => Err(failed(error)),
        }
    });
    if done.is_err() {
        // What is left is only a copy that nobody looks for.
        let _ = fs::remove_file(&beside);
        return done;
    }
    sync_folder(&real).map_err(failed)
}

/// A new file, never over another.
fn create(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder)?;
    }
    let (beside, mut file) = new_beside(path, 0o644)?;
    let done = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        // A link fails where there is a file already; renaming would replace it.
        .and_then(|()| fs::hard_link(&beside, path));
    let _ = fs::remove_file(&beside);
    done?;
    sync_folder(path)
}

/// A new file beside another, under a name of its own.
pub(super) fn new_beside(path: &Path, mode: u32) -> io::Result<(PathBuf, File)> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("it is no file"))?
        .to_string_lossy();
    loop {
        let random = RandomState::new().hash_one(std::process::id());
        let beside = path.with_file_name(format!(".{name}.{random:016x}"));
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&beside)
        {
            Ok(file) => return Ok((beside, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}
