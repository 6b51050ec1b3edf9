//! Where windlass keeps things on a host, and as whom it runs there: decided from what is known of
//! the host. Pure.

use crate::ssh::quote;

/// User that workers run as where windlass may choose.
pub const USER: &str = "windlass";
/// Folder with root or sudo.
pub const SYSTEM_FOLDER: &str = "/var/lib/windlass";

/// What keeps a worker running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// A unit of the system's systemd.
    SystemUnit,
    /// A unit of the login user's systemd, with linger.
    UserUnit,
    /// A process of ours, which does not survive a reboot.
    Process,
}

impl Keeper {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::SystemUnit => "system unit",
            Self::UserUnit => "user unit with linger",
            Self::Process => "supervised process (does not survive a reboot)",
        }
    }
}

/// What is known of a host when its base is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Number of the login user.
    pub uid: u32,
    /// Its home folder.
    pub home: String,
    /// `XDG_DATA_HOME`, when set there to an absolute path.
    pub data_home: Option<String>,
    /// Whether commands can be run as root.
    pub root: bool,
    /// Whether pid 1 is systemd.
    pub systemd: bool,
    /// Whether the login user has a systemd of its own that can linger.
    pub user_systemd: bool,
}

/// Where things are on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The folder.
    pub folder: String,
    /// Whether what is done there is done as root.
    pub root: bool,
    /// What keeps the worker.
    pub keeper: Keeper,
}

impl Base {
    /// Chooses.
    pub fn choose(known: &Known) -> Self {
        if known.root {
            return Self {
                folder: SYSTEM_FOLDER.to_owned(),
                root: true,
                keeper: if known.systemd {
                    Keeper::SystemUnit
                } else {
                    Keeper::Process
                },
            };
        }
        let data = known
            .data_home
            .clone()
            .filter(|path| path.starts_with('/'))
            .unwrap_or_else(|| format!("{}/.local/share", known.home.trim_end_matches('/')));
        Self {
            folder: format!("{data}/windlass"),
            root: false,
            keeper: if known.user_systemd {
                Keeper::UserUnit
            } else {
                Keeper::Process
            },
        }
    }

    /// The folder of a worker's program.
    pub fn program_folder(&self, sha256: &str) -> String {
        let short: String = sha256.chars().take(16).collect();
        format!("{}/bin/{short}", self.folder)
    }

    /// A worker's program.
    pub fn program(&self, sha256: &str) -> String {
        format!("{}/windlass-worker", self.program_folder(sha256))
    }

    /// The folder of a model's pieces.
    pub fn pieces(&self, model_sha256: &str) -> String {
        let short: String = model_sha256.chars().take(16).collect();
        format!("{}/pieces/{short}", self.folder)
    }

    /// The folder of a cluster's deployment.
    pub fn deployment(&self, cluster: &str) -> String {
        format!("{}/deployments/{cluster}", self.folder)
    }

    /// A script that runs a worker's subcommand in place of the shell.
    pub fn worker(&self, sha256: &str, arguments: &[&str]) -> String {
        let mut line = format!("exec {}", quote(&self.program(sha256)));
        for argument in arguments {
            line.push(' ');
            line.push_str(&quote(argument));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        Known {
            uid: 1000,
            home: "/home/ai".into(),
            data_home: None,
            root: false,
            systemd: true,
            user_systemd: true,
        }
    }

    #[test]
    fn the_base_follows_what_the_login_may_do() {
        let table = [
            (
                Known {
                    root: true,
                    uid: 0,
                    ..known()
                },
                "/var/lib/windlass",
                Keeper::SystemUnit,
            ),
            (
                Known {
                    root: true,
                    ..known()
                },
                "/var/lib/windlass",
                Keeper::SystemUnit,
            ),
            (
                Known {
                    root: true,
                    systemd: false,
                    user_systemd: false,
                    ..known()
                },
                "/var/lib/windlass",
                Keeper::Process,
            ),
            (known(), "/home/ai/.local/share/windlass", Keeper::UserUnit),
            (
                Known {
                    user_systemd: false,
                    data_home: Some("/data".into()),
                    ..known()
                },
                "/data/windlass",
                Keeper::Process,
            ),
            // A relative value is invalid by the XDG text.
            (
                Known {
                    data_home: Some("data".into()),
                    ..known()
                },
                "/home/ai/.local/share/windlass",
                Keeper::UserUnit,
            ),
        ];
        for (known, folder, keeper) in table {
            let base = Base::choose(&known);
            assert_eq!(
                (base.folder.as_str(), base.keeper),
                (folder, keeper),
                "{known:?}"
            );
        }
    }

    #[test]
    fn folders_with_spaces_are_quoted_where_a_shell_reads_them() {
        let base = Base::choose(&Known {
            home: "/home/a b".into(),
            ..known()
        });
        assert_eq!(
            base.worker(&"0f".repeat(32), &["receive", "--folder", "/x y"]),
            "exec '/home/a b/.local/share/windlass/bin/0f0f0f0f0f0f0f0f/windlass-worker' receive --folder '/x y'"
        );
    }
}
