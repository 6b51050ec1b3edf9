//! The files that make a host itself: names, users, keys, sshd, sudo, what systemd starts.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Context, Result, run};
use crate::hide;
use crate::kind::{Login, Sudo, Traits};
use crate::lab::Host;
use crate::place::Place;
use crate::upper::Upper;

/// The password of every user who has one: a lab can be reached from nowhere else.
pub const PASSWORD: &str = "lab password 77";
/// Its hash, made with crypt(3), method SHA-512.
const PASSWORD_HASH: &str = "$6$2xO16x0f3aPpB7po$j0WS6oP5JIMR12QVqluRtpZ.icbsTPvaYb5GujgmC0iD6Q8G3VcsP7fZzjtH6hxON7p1T.PodGbamG4RZUcMQ0";

/// Number of user and group `ai`.
const AI: u32 = 1000;

/// Writes all files of a new host; its public key is returned as `known_hosts` wants it.
pub fn write(place: &Place, host: &Host, all: &[Host], hidden: &[PathBuf]) -> Result<String> {
    let folder = place.host(&host.name);
    for name in ["work", "root"] {
        let path = folder.join(name);
        fs::create_dir_all(&path).during(path.display())?;
    }
    let upper = Upper::new(folder.join("upper"))?;
    let traits = host.kind.traits();
    hide::hide(&upper, hidden)?;
    identity(&upper, host, all)?;
    users(&upper, traits)?;
    let authorized = fs::read_to_string(place.identity().with_extension("pub"))
        .during("the lab's public key")?;
    logins(&upper, traits, &authorized)?;
    services(&upper, traits)?;
    let key = folder.join("upper/etc/ssh/ssh_host_ed25519_key");
    new_key(&key, &host.name)?;
    sshd(&upper, traits)?;
    fs::write(
        folder.join("cmdline"),
        "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro quiet\n",
    )
    .during(folder.display())?;
    for (name, text) in [
        ("init.sh", include_str!("init.sh")),
        ("power.sh", include_str!("power.sh")),
    ] {
        fs::write(folder.join(name), text).during(folder.display())?;
    }
    public_key(&key)
}

/// Type and key of a pair's public half, as known_hosts has them.
pub fn public_key(key: &Path) -> Result<String> {
    let public = fs::read_to_string(key.with_extension("pub")).during(key.display())?;
    Ok(public
        .split_whitespace()
        .take(2)
        .collect::<Vec<_>>()
        .join(" "))
}

/// Makes a key pair.
pub fn new_key(path: &Path, comment: &str) -> Result<()> {
    let text = path.to_string_lossy();
    run(
        "ssh-keygen",
        &["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", &text],
    )?;
    Ok(())
}

fn identity(upper: &Upper, host: &Host, all: &[Host]) -> Result<()> {
    upper.file("/etc/hostname", &format!("{}\n", host.name), 0o644)?;
    let machine_id: String = fs::read_to_string("/proc/sys/kernel/random/uuid")
        .during("a machine id")?
        .replace('-', "");
    upper.file("/etc/machine-id", &machine_id, 0o444)?;
    let mut hosts = String::from("127.0.0.1 localhost\n::1 localhost\n");
    for other in all {
        for address in other.addresses() {
            hosts.push_str(&format!("{address} {}\n", other.name));
        }
    }
    upper.file("/etc/hosts", &hosts, 0o644)?;
    upper.file("/etc/fstab", "", 0o644)?;
    upper.file("/etc/motd", "", 0o644)?;
    upper.file("/etc/environment", "", 0o644)?;
    upper.file(
        "/etc/default/grub",
        "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"\"\n",
        0o644,
    )
}

/// The machine's system users, root and `ai`; no person of the machine's has an account.
fn users(upper: &Upper, traits: Traits) -> Result<()> {
    let read = |path: &str| fs::read_to_string(path).during(path);
    let passwd = system_lines(&read("/etc/passwd")?);
    let group = system_lines(&read("/etc/group")?);
    let names = |text: &str| -> Vec<String> {
        let first = |line: &str| Some(line.split(':').next()?.to_owned());
        text.lines().filter_map(first).collect()
    };
    let only = |text: &str, known: &[String]| -> String {
        text.lines()
            .filter(|line| {
                known
                    .iter()
                    .any(|name| line.split(':').next() == Some(name))
            })
            .map(|line| format!("{line}\n"))
            .collect()
    };
    let is_root = traits.user == "root";
    let passwd: String = passwd
        .lines()
        .map(|line| match line.split(':').next() {
            Some("root") => format!(
                "root:x:0:0:root:/root:{}\n",
                if is_root { traits.shell } else { "/bin/bash" }
            ),
            _ => format!("{line}\n"),
        })
        .collect();
    let shadow = only(&read("/etc/shadow")?, &names(&passwd));
    let has_password = !is_root && !matches!(traits.sudo, Sudo::Missing | Sudo::Free);
    let shadow: String = shadow
        .lines()
        .map(|line| match line.split(':').next() {
            Some("root") if is_root && traits.login != Login::Key => {
                format!("root:{PASSWORD_HASH}:19000:0:99999:7:::\n")
            }
            Some("root") => "root:*:19000:0:99999:7:::\n".to_owned(),
            _ => format!("{line}\n"),
        })
        .collect();
    let hash = if has_password { PASSWORD_HASH } else { "*" };
    let shell = if is_root { "/bin/bash" } else { traits.shell };
    upper.file(
        "/etc/passwd",
        &format!("{passwd}ai:x:{AI}:{AI}:ai:/home/ai:{shell}\n"),
        0o644,
    )?;
    upper.file(
        "/etc/shadow",
        &format!("{shadow}ai:{hash}:19000:0:99999:7:::\n"),
        0o600,
    )?;
    let gshadow = only(&read("/etc/gshadow")?, &names(&group));
    upper.file("/etc/group", &format!("{group}ai:x:{AI}:\n"), 0o644)?;
    upper.file("/etc/gshadow", &format!("{gshadow}ai:!::\n"), 0o600)?;
    // Room for users and groups that packages or the tool under test add.
    for path in ["/etc/subuid", "/etc/subgid"] {
        upper.file(path, "", 0o644)?;
    }
    let rule = match traits.sudo {
        Sudo::Password => "ai ALL=(ALL:ALL) ALL\n",
        Sudo::RequireTty => "Defaults requiretty\nai ALL=(ALL:ALL) ALL\n",
        Sudo::Free => "ai ALL=(ALL:ALL) NOPASSWD: ALL\n",
        Sudo::Root | Sudo::Refused | Sudo::Missing => "",
    };
    upper.file(
        "/etc/sudoers",
        &format!(
            "Defaults env_reset\nDefaults secure_path=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\nroot ALL=(ALL:ALL) ALL\n{rule}"
        ),
        0o440,
    )?;
    if traits.sudo == Sudo::Missing {
        upper.absent("/usr/bin/sudo")?;
    }
    Ok(())
}

/// Lines of `passwd` or `group` whose number is below those of people, and nobody's.
fn system_lines(text: &str) -> String {
    text.lines()
        .filter(|line| {
            let number: Option<u32> = line.split(':').nth(2).and_then(|word| word.parse().ok());
            let name = line.split(':').next().unwrap_or("");
            number.is_some_and(|number| number < AI || number == 65534) && name != "windlass"
        })
        .map(|line| format!("{line}\n"))
        .collect()
}

fn logins(upper: &Upper, traits: Traits, authorized: &str) -> Result<()> {
    upper.opaque("/home/ai", 0o700)?;
    let (home, owner) = match traits.user {
        "root" => ("/root", 0),
        _ => ("/home/ai", AI),
    };
    if traits.login == Login::Key {
        upper.opaque(&format!("{home}/.ssh"), 0o700)?;
        upper.file(&format!("{home}/.ssh/authorized_keys"), authorized, 0o600)?;
        upper.give(&format!("{home}/.ssh"), owner, owner)?;
        upper.give(&format!("{home}/.ssh/authorized_keys"), owner, owner)?;
    }
    if traits.noise {
        upper.file(
            &format!("{home}/.bashrc"),
            "echo 'Loading the environment {\"v\":1} ...'\nprintf 'no newline at the end'\necho 'warning: module not found' >&2\n",
            0o644,
        )?;
        upper.file(
            "/etc/ssh/banner",
            "*******************************\n* Authorised use only.        *\n*******************************\n",
            0o644,
        )?;
        upper.file("/etc/motd", "Welcome. 3 updates can be applied.\n", 0o644)?;
    }
    upper.give("/home/ai", AI, AI)
}

fn sshd(upper: &Upper, traits: Traits) -> Result<()> {
    let yes = |value: bool| if value { "yes" } else { "no" };
    let root = traits.user == "root";
    let mut text = format!(
        "HostKey /etc/ssh/ssh_host_ed25519_key\n\
         PermitRootLogin {}\n\
         PubkeyAuthentication {}\n\
         PasswordAuthentication {}\n\
         KbdInteractiveAuthentication {}\n\
         UsePAM yes\n\
         PrintMotd {}\n\
         PrintLastLog no\n\
         MaxStartups 100\n\
         AcceptEnv LANG LC_*\n",
        yes(root),
        yes(traits.login == Login::Key),
        yes(traits.login == Login::Password),
        yes(traits.login == Login::Keyboard),
        yes(traits.noise),
    );
    if traits.sftp {
        text.push_str("Subsystem sftp /usr/lib/openssh/sftp-server\n");
    }
    if traits.noise {
        text.push_str("Banner /etc/ssh/banner\n");
    }
    upper.file("/etc/ssh/sshd_config", &text, 0o644)
}

/// What systemd starts and keeps: sshd, its journal, and nothing that only this machine is meant to run.
fn services(upper: &Upper, traits: Traits) -> Result<()> {
    // Where it exists the journal outlives the boot.
    upper.merged("/var/log/journal")?;
    upper.link(
        "/etc/systemd/system/multi-user.target.wants/ssh.service",
        "/lib/systemd/system/ssh.service",
    )?;
    let mut masked = vec![
        "console-getty.service",
        "getty.target",
        "systemd-firstboot.service",
        "systemd-resolved.service",
        "systemd-timesyncd.service",
        "systemd-udevd.service",
        "systemd-udev-trigger.service",
        "systemd-hwdb-update.service",
        "timers.target",
    ];
    if !traits.linger {
        // Without it only root may ask for lingering.
        masked.push("polkit.service");
    }
    for unit in masked {
        upper.link(&format!("/etc/systemd/system/{unit}"), "/dev/null")?;
    }
    let generators = Path::new("/usr/lib/systemd/system-generators");
    for entry in fs::read_dir(generators)
        .during(generators.display())?
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("systemd-") {
            upper.link(
                &format!("/etc/systemd/system-generators/{name}"),
                "/dev/null",
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_of_the_machine_have_no_account_on_a_host() {
        let text = "root:x:0:0::/root:/bin/zsh\nsshd:x:101:65534::/run/sshd:/bin/false\n\
                    me:x:1000:1000::/home/me:/bin/sh\nwindlass:x:998:998::/:/bin/false\n\
                    nobody:x:65534:65534::/:/bin/false\nbroken\n";
        let kept: Vec<String> = system_lines(text)
            .lines()
            .map(|line| line.split(':').next().unwrap_or("").to_owned())
            .collect();
        assert_eq!(kept, ["root", "sshd", "nobody"]);
    }
}
