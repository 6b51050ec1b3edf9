//! The kinds of hosts, as one table: how one logs in, what one may do there, where it is connected.

use crate::command::{LabError, Result};

/// A kind of host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Kind {
    /// systemd; root logs in by key.
    #[default]
    Root,
    /// User `ai` logs in by key; sudo asks for a password.
    SudoPassword,
    /// User `ai` logs in by key; sudo asks for nothing.
    SudoFree,
    /// As `SudoPassword`, and sudo wants a terminal.
    RequireTty,
    /// User `ai`; there is no sudo. The user may let services linger.
    NoSudo,
    /// User `ai`; sudo is there and refuses the user.
    NotSudoer,
    /// As `NoSudo`, and the user may not let services linger.
    NoLinger,
    /// The first process is sshd; root logs in by key.
    NoSystemd,
    /// As `NoSystemd`, for user `ai` without sudo.
    NoSystemdUser,
    /// Reached only from the lab's other hosts, over the second network.
    BehindJump,
    /// Has no IPv4 address.
    Ipv6Only,
    /// root's login shell is fish.
    Fish,
    /// root's login shell is csh.
    Csh,
    /// Speaks before, at and after every login.
    Banner,
    /// sshd offers no SFTP.
    NoSftp,
    /// root logs in by password.
    Password,
    /// root logs in by answering the server's questions.
    Keyboard,
}

/// How one logs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// By the lab's key.
    Key,
    /// By password only.
    Password,
    /// By keyboard-interactive only.
    Keyboard,
}

/// What sudo does for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sudo {
    /// The user is root and needs none.
    Root,
    /// It asks for the user's password.
    Password,
    /// The same, and it wants a terminal.
    RequireTty,
    /// It asks for nothing.
    Free,
    /// It refuses the user.
    Refused,
    /// It is not there.
    Missing,
}

/// Which networks a host is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The controller's, and the second one if the lab has it.
    Controllers,
    /// The second one only.
    Second,
}

/// What a kind means.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// Its name on command lines.
    pub name: &'static str,
    /// What it is for, in a few words.
    pub about: &'static str,
    /// User to log in as.
    pub user: &'static str,
    /// How.
    pub login: Login,
    /// The user's login shell.
    pub shell: &'static str,
    /// What sudo does.
    pub sudo: Sudo,
    /// Whether the first process is systemd; else it is sshd.
    pub systemd: bool,
    /// Whether users may let their services linger.
    pub linger: bool,
    /// Whether sshd offers SFTP.
    pub sftp: bool,
    /// Whether it speaks at login.
    pub noise: bool,
    /// Where it is connected.
    pub network: Network,
    /// Whether it has IPv4.
    pub ipv4: bool,
}

const ROOT: Traits = Traits {
    name: "root",
    about: "systemd; root logs in by key",
    user: "root",
    login: Login::Key,
    shell: "/bin/bash",
    sudo: Sudo::Root,
    systemd: true,
    linger: true,
    sftp: true,
    noise: false,
    network: Network::Controllers,
    ipv4: true,
};

const USER: Traits = Traits {
    user: "ai",
    sudo: Sudo::Password,
    ..ROOT
};

impl Kind {
    /// Every kind.
    pub const ALL: &[Kind] = &[
        Kind::Root,
        Kind::SudoPassword,
        Kind::SudoFree,
        Kind::RequireTty,
        Kind::NoSudo,
        Kind::NotSudoer,
        Kind::NoLinger,
        Kind::NoSystemd,
        Kind::NoSystemdUser,
        Kind::BehindJump,
        Kind::Ipv6Only,
        Kind::Fish,
        Kind::Csh,
        Kind::Banner,
        Kind::NoSftp,
        Kind::Password,
        Kind::Keyboard,
    ];

    /// What it means.
    pub const fn traits(self) -> Traits {
        match self {
            Kind::Root => ROOT,
            Kind::SudoPassword => Traits {
                name: "sudo-password",
                about: "user ai by key; sudo asks for a password",
                ..USER
            },
            Kind::SudoFree => Traits {
                name: "sudo-free",
                about: "user ai by key; sudo asks for nothing",
                sudo: Sudo::Free,
                ..USER
            },
            Kind::RequireTty => Traits {
                name: "requiretty",
                about: "user ai by key; sudo asks for a password and wants a terminal",
                sudo: Sudo::RequireTty,
                ..USER
            },
            Kind::NoSudo => Traits {
                name: "no-sudo",
                about: "user ai by key; no sudo; services may linger",
                sudo: Sudo::Missing,
                ..USER
            },
            Kind::NotSudoer => Traits {
                name: "not-sudoer",
                about: "user ai by key; sudo refuses; services may linger",
                sudo: Sudo::Refused,
                ..USER
            },
            Kind::NoLinger => Traits {
                name: "no-linger",
                about: "user ai by key; no sudo; services may not linger",
                sudo: Sudo::Missing,
                linger: false,
                ..USER
            },
            Kind::NoSystemd => Traits {
                name: "no-systemd",
                about: "the first process is sshd; root by key",
                systemd: false,
                ..ROOT
            },
            Kind::NoSystemdUser => Traits {
                name: "no-systemd-user",
                about: "the first process is sshd; user ai by key, no sudo",
                systemd: false,
                sudo: Sudo::Missing,
                ..USER
            },
            Kind::BehindJump => Traits {
                name: "behind-jump",
                about: "reached only from the lab's other hosts",
                network: Network::Second,
                ..ROOT
            },
            Kind::Ipv6Only => Traits {
                name: "ipv6-only",
                about: "has no IPv4 address",
                ipv4: false,
                ..ROOT
            },
            Kind::Fish => Traits {
                name: "fish",
                about: "root's login shell is fish",
                shell: "/usr/bin/fish",
                ..ROOT
            },
            Kind::Csh => Traits {
                name: "csh",
                about: "root's login shell is csh",
                shell: "/usr/bin/tcsh",
                ..ROOT
            },
            Kind::Banner => Traits {
                name: "banner",
                about: "speaks before, at and after every login",
                noise: true,
                ..ROOT
            },
            Kind::NoSftp => Traits {
                name: "no-sftp",
                about: "sshd offers no SFTP",
                sftp: false,
                ..ROOT
            },
            Kind::Password => Traits {
                name: "password",
                about: "root by password only",
                login: Login::Password,
                ..ROOT
            },
            Kind::Keyboard => Traits {
                name: "keyboard",
                about: "root by keyboard-interactive only",
                login: Login::Keyboard,
                ..ROOT
            },
        }
    }

    /// The kind of this name.
    ///
    /// # Errors
    /// When there is none; the error lists them.
    pub fn parse(name: &str) -> Result<Self> {
        let names = || Kind::ALL.iter().map(|kind| kind.traits().name);
        Kind::ALL
            .iter()
            .copied()
            .find(|kind| kind.traits().name == name)
            .ok_or_else(|| {
                LabError(format!(
                    "there is no kind {name}; there are {}",
                    names().collect::<Vec<_>>().join(", ")
                ))
            })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_name() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.traits().name).unwrap(), *kind);
        }
        let error = Kind::parse("rooot").unwrap_err().to_string();
        assert!(error.contains("no-systemd"), "{error}");
    }
}
