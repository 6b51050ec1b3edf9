//! Test hosts in namespaces of this machine: each has its own disk, network, processes, systemd and
//! sshd, and can lose power or its cable. Used by hand through `cargo xtask lab` and by tests. For what
//! needs a kernel of its own there are virtual machines ([`Vms`]), which are slow.
//!
//! A lab lives in one folder; everything it makes outside that folder (network namespaces, control
//! groups, processes, mounts) is found again by an identity derived from the folder's path, so a
//! lab left behind by a killed process is cleaned up by the next one in the same folder, and labs in
//! different folders never meet. Nothing is put into the machine's own network namespace. Must not
//! know the orchestrator or the worker.
#![cfg(target_os = "linux")]

mod cgroup;
mod command;
mod files;
mod hide;
mod inventory;
mod kind;
mod lab;
mod network;
mod place;
mod power;
mod sys;
mod upper;
mod vm;
mod wire;

pub use command::{LabError, Result};
pub use kind::{Kind, Login, Network, Sudo, Traits};
pub use lab::{Disk, Host, Lab, Wanted};
pub use network::Cut;
pub use place::Place;
pub use vm::{Firmware, Hardware, Image, PACKAGES as VM_PACKAGES, Vms, refusal as vm_refusal};
pub use wire::{Keeper, serve as serve_wire};

/// Debian packages that a lab and its tests need, and the program by which each is known to be there.
pub const PACKAGES: &[(&str, &str)] = &[
    ("openssh-server", "/usr/sbin/sshd"),
    ("openssh-client", "/usr/bin/ssh-keygen"),
    ("iproute2", "/usr/sbin/tc"),
    ("iputils-ping", "/usr/bin/ping"),
    ("iperf3", "/usr/bin/iperf3"),
    ("nftables", "/usr/sbin/nft"),
    ("procps", "/usr/bin/pgrep"),
    ("systemd", "/usr/lib/systemd/systemd"),
    ("libpam-systemd", "/usr/share/doc/libpam-systemd"),
    ("dbus", "/usr/bin/dbus-daemon"),
    ("polkitd", "/usr/lib/polkit-1/polkitd"),
    ("e2fsprogs", "/usr/sbin/mke2fs"),
    ("fdisk", "/usr/sbin/sfdisk"),
    ("btrfs-progs", "/usr/sbin/mkfs.btrfs"),
    ("acl", "/usr/bin/setfacl"),
    ("attr", "/usr/bin/setfattr"),
    ("libcap2-bin", "/usr/sbin/setcap"),
    ("sudo", "/usr/bin/sudo"),
    ("fish", "/usr/bin/fish"),
    ("tcsh", "/usr/bin/tcsh"),
    ("tmux", "/usr/bin/tmux"),
];

/// The packages of [`PACKAGES`] that are missing on this machine.
pub fn missing_packages() -> Vec<&'static str> {
    missing_of(PACKAGES)
}

/// Those of a list of packages and their programs that are missing on this machine.
pub fn missing_of(packages: &'static [(&'static str, &'static str)]) -> Vec<&'static str> {
    packages
        .iter()
        .filter(|(_, program)| !std::path::Path::new(program).exists())
        .map(|(package, _)| *package)
        .collect()
}

/// Whether this process is root's, which a lab needs.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Why no lab can be made on this machine; `None` when one can.
pub fn refusal() -> Option<String> {
    if !is_root() {
        return Some("a lab needs root".into());
    }
    let missing = missing_packages();
    if !missing.is_empty() {
        return Some(format!(
            "a lab needs these Debian packages: {}; `cargo xtask lab packages` installs them",
            missing.join(" ")
        ));
    }
    cgroup::root().err().map(|error| error.to_string())
}
