//! The folders windlass uses on this machine, by the XDG rules. Knows nothing of what lies in them.
//!
//! Environment variables with relative values are ignored, as the XDG text demands.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use etcetera::base_strategy::{BaseStrategy, Xdg};

/// Where windlass keeps things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Configuration: `inventory.toml` when none lies in the working folder.
    pub config: PathBuf,
    /// Data of deployments on this machine.
    pub data: PathBuf,
    /// Cache: pieces cut from models, worker binaries.
    pub cache: PathBuf,
    /// State: journals of runs.
    pub state: PathBuf,
    /// Sockets. The system's temporary folder when the session has no runtime folder.
    pub runtime: PathBuf,
}

impl Paths {
    /// The folders of this user.
    ///
    /// # Errors
    /// When the home folder is unknown.
    pub fn of_user() -> io::Result<Self> {
        let xdg = Xdg::new().map_err(|error| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("the home folder is unknown ({error}): set HOME"),
            )
        })?;
        Ok(Self::under(&xdg))
    }

    fn under(xdg: &Xdg) -> Self {
        let own = |base: PathBuf| base.join("windlass");
        Self {
            config: own(xdg.config_dir()),
            data: own(xdg.data_dir()),
            cache: own(xdg.cache_dir()),
            state: own(xdg
                .state_dir()
                .unwrap_or_else(|| xdg.home_dir().join(".local/state"))),
            runtime: xdg.runtime_dir().map_or_else(
                || std::env::temp_dir().join(format!("windlass-{}", user_id())),
                own,
            ),
        }
    }

    /// The journals.
    pub fn journals(&self) -> PathBuf {
        self.state.join("runs")
    }

    /// Names and folders, for showing.
    pub fn all(&self) -> [(&'static str, &Path); 5] {
        [
            ("config", &self.config),
            ("data", &self.data),
            ("cache", &self.cache),
            ("state", &self.state),
            ("runtime", &self.runtime),
        ]
    }
}

/// Number of the user this process runs as, as `/proc` tells it.
fn user_id() -> u32 {
    fs::metadata("/proc/self").map_or(0, |meta| meta.uid())
}

/// Makes a folder and its parents; the folder itself is then for its owner alone.
///
/// # Errors
/// When it cannot be made, is no folder, or belongs to another user, who could otherwise read or
/// replace what is put there.
pub fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_dir() {
        return Err(io::Error::other("it is not a folder"));
    }
    // Unix systems without /proc tell no user here; there the mode change below fails instead.
    if let Ok(own) = fs::metadata("/proc/self")
        && own.uid() != meta.uid()
    {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it belongs to user {}", meta.uid()),
        ));
    }
    if meta.mode() & 0o777 != 0o700 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_folder_is_closed_to_others_even_when_it_was_open() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("a/b");
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        private_folder(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_link_is_not_taken_for_a_private_folder() {
        let base = tempfile::tempdir().unwrap();
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        assert!(private_folder(&link).is_err());
    }
}
