//! Installs the Debian packages labs need, and leaves the machine's own sshd off.

use std::path::Path;

use windlass_lab::{is_root, missing_packages};

use crate::chores::{Done, command, run, succeeds};

/// Installs what hosts in namespaces need.
pub fn install() -> Done {
    install_missing(missing_packages)
}

/// Installs what is missing, and then what is missing since: some packages remove another version's
/// companions, which are to come back in theirs (qemu-system-x86 does so with qemu-utils).
pub fn install_missing(missing: impl Fn() -> Vec<&'static str>) -> Done {
    install_these(&missing())?;
    install_these(&missing())
}

fn install_these(missing: &[&str]) -> Done {
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() {
        println!(
            "\nskipped: packages of the lab (only root can install them): {}",
            missing.join(" ")
        );
        return Ok(());
    }
    if !succeeds(command("apt-get").arg("--version")) {
        return Err(format!(
            "a lab needs these packages, and there is no apt-get: {}",
            missing.join(" ")
        ));
    }
    println!("\nthe lab needs packages: {}", missing.join(" "));
    // A server that comes with the lab's package is for the hosts of the lab alone: masked before
    // it can be started, disabled after.
    let mask = Path::new("/etc/systemd/system/ssh.service");
    let masked = missing.contains(&"openssh-server") && mask.symlink_metadata().is_err();
    if masked {
        let _ = std::fs::create_dir_all("/etc/systemd/system");
        std::os::unix::fs::symlink("/dev/null", mask)
            .map_err(|error| format!("{}: {error}", mask.display()))?;
    }
    let installed = with_apt(missing);
    if masked {
        std::fs::remove_file(mask).map_err(|error| format!("{}: {error}", mask.display()))?;
        succeeds(command("systemctl").args(["disable", "ssh.service", "ssh.socket"]));
    }
    installed
}

fn with_apt(packages: &[&str]) -> Done {
    let install = || {
        let mut apt = command("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive")
            .args(["install", "-y", "--no-install-recommends"])
            .args(packages);
        apt
    };
    // The lists may be missing or old.
    run(command("apt-get").args(["update", "-qq"]))?;
    run(&mut install())
}
