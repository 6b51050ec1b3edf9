//! The folder of a deployment's control socket on this machine. Must not know what listens there.

use std::path::{Path, PathBuf};

use crate::event::{Failure, FailureKind};
use crate::paths::private_folder;

/// Longest path of a socket that every Unix takes, in bytes.
const LONGEST_SOCKET: usize = 100;

/// The folder of the control socket, removed when dropped.
#[derive(Debug)]
pub struct RuntimeFolder {
    folder: PathBuf,
    /// Where the socket goes.
    pub socket: PathBuf,
}

impl RuntimeFolder {
    /// Makes it for a deployment under the folder for sockets.
    ///
    /// # Errors
    /// When it cannot be made, or the socket's path would be too long.
    pub fn create(runtime: &Path, deployment: &str) -> Result<Self, Failure> {
        let failed = |path: &Path, error: &dyn std::fmt::Display| {
            Failure::new(
                FailureKind::Io,
                format!(
                    "the folder for the control socket {} cannot be used: {error}; set XDG_RUNTIME_DIR to a folder of yours",
                    path.display()
                ),
            )
            .at("start")
        };
        // A runtime folder far down a tree leaves no room for a socket's name.
        let short =
            std::env::temp_dir().join(format!("windlass-{}", rustix::process::getuid().as_raw()));
        let longest = runtime.as_os_str().len() + deployment.len() + "//control.sock".len();
        let runtime = if longest > LONGEST_SOCKET {
            &short
        } else {
            runtime
        };
        private_folder(runtime).map_err(|error| failed(runtime, &error))?;
        let folder = runtime.join(deployment);
        let socket = folder.join("control.sock");
        if socket.as_os_str().len() > LONGEST_SOCKET {
            let error = format!("the socket's path would be longer than {LONGEST_SOCKET} bytes");
            return Err(failed(&folder, &error));
        }
        private_folder(&folder).map_err(|error| failed(&folder, &error))?;
        Ok(Self { folder, socket })
    }
}

impl Drop for RuntimeFolder {
    fn drop(&mut self) {
        // What cannot be removed is an empty folder of this user; nothing better can be done.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_control_socket_is_private_and_goes_with_the_run() {
        let base = tempfile::tempdir().unwrap();
        let held = RuntimeFolder::create(base.path(), "demo-1").unwrap();
        let folder = held.folder.clone();
        std::fs::write(&held.socket, b"").unwrap();
        assert!(folder.is_dir());
        drop(held);
        assert!(!folder.exists());
    }

    #[test]
    fn a_runtime_folder_too_deep_for_a_socket_gives_way_to_the_temporary_one() {
        let base = tempfile::tempdir().unwrap();
        let deep = base.path().join("x".repeat(100));
        let name = format!("test-{}", std::process::id());
        let made = RuntimeFolder::create(&deep, &name).unwrap();
        assert!(made.socket.starts_with(std::env::temp_dir()));
        assert!(!deep.exists());
    }

    #[test]
    fn a_socket_path_too_long_for_the_system_is_refused_with_what_to_do() {
        let base = tempfile::tempdir().unwrap();
        let failure = RuntimeFolder::create(base.path(), &"x".repeat(100)).unwrap_err();
        assert!(failure.message.contains("XDG_RUNTIME_DIR"), "{failure}");
    }
}
