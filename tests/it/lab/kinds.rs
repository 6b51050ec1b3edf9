//! Every kind of host is what its name says, seen with OpenSSH's own tools.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use windlass_lab::{Login, Network, Sudo};

use super::{Kind, Lab, absent};

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// OpenSSH's way to a host of this kind: over another one, with a password.
fn way(lab: &Lab, name: &str) -> Command {
    let host = lab.hosts().host(name).unwrap();
    let traits = host.kind.traits();
    let place = lab.hosts().place();
    let mut command = lab.controller("ssh");
    let known = format!("UserKnownHostsFile={}", place.known_hosts().display());
    command.args(["-F", "none", "-o", "ConnectTimeout=60", "-o", &known]);
    if traits.login == Login::Key {
        command.args(["-o", "BatchMode=yes"]);
        command.arg("-i").arg(place.identity());
    } else {
        let program = lab.home().join("answer");
        fs::write(
            &program,
            format!("#!/bin/sh\ncat {}\n", place.password().display()),
        )
        .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        command
            .env("SSH_ASKPASS", program)
            .env("SSH_ASKPASS_REQUIRE", "force");
    }
    if traits.network == Network::Second {
        let jump = lab.hosts().host("root").unwrap().address();
        command.arg("-o").arg(format!(
            "ProxyCommand=ssh -F none -o BatchMode=yes -o {known} -i {} -W %h:%p root@{jump}",
            place.identity().display()
        ));
    }
    command.arg(format!("{}@{}", traits.user, host.address()));
    command
}

/// What a script says on a host, first on stdout, then on stderr.
fn says(lab: &Lab, name: &str, script: &str) -> String {
    text(&way(lab, name).arg(script).output().unwrap())
}

/// Questions to a host; every shell passes them on to `sh`, one login is enough for all.
const QUESTIONS: &[&str] = &[
    "hostname; id -un; cat /proc/1/comm",
    "head -1 | sudo -S -p word? id -un",
    "echo lab password 77 | sudo -S -p : id -un",
    "loginctl enable-linger && echo may",
    "ip -4 -o address show scope global",
];

fn is_what_its_name_says(lab: &Lab, name: &str, kind: Kind) {
    let traits = kind.traits();
    let script = format!("sh -c \"exec 2>&1; {}\"", QUESTIONS.join("; echo =; "));
    let output = way(lab, name).arg(script).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let answers: Vec<&str> = said.split("=\n").collect();
    let [itself, unasked, asked, linger, ipv4] = answers[..] else {
        panic!("{name}: {}", text(&output));
    };
    let first = if traits.systemd { "systemd" } else { "sshd" };
    let expected = format!("{name}\n{}\n{first}\n", traits.user);
    if traits.noise {
        assert!(itself.starts_with("Loading"), "{name}: {itself}");
        assert!(itself.ends_with(&expected), "{name}: {itself}");
        let aside = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(aside.contains("Authorised use only"), "{name}: {aside}");
        assert!(aside.contains("module not found"), "{name}: {aside}");
    } else {
        assert_eq!(itself, expected);
    }

    let expected = match traits.sudo {
        Sudo::Root => "",
        Sudo::Password | Sudo::Refused => "word?",
        Sudo::RequireTty => "must have a tty",
        Sudo::Free => "root\n",
        Sudo::Missing => "not found",
    };
    assert!(unasked.contains(expected), "{name}: {unasked}");
    let expected = match traits.sudo {
        Sudo::Root | Sudo::Password | Sudo::Free => "root\n",
        Sudo::RequireTty => "must have a tty",
        Sudo::Refused => "not in the sudoers file",
        Sudo::Missing => "not found",
    };
    assert!(asked.contains(expected), "{name}: {asked}");
    if traits.user == "ai" && traits.systemd {
        assert_eq!(linger.contains("may"), traits.linger, "{name}: {linger}");
    }
    assert_eq!(ipv4.contains("10."), traits.ipv4, "{name}: {ipv4}");

    let host = lab.hosts().host(name).unwrap();
    let by_key = || {
        let mut command = lab.ssh(traits.user, &host.address());
        command.arg("id").output().unwrap()
    };
    if traits.login != Login::Key {
        assert!(text(&by_key()).contains("Permission denied"), "{name}");
    }
    if traits.network == Network::Second {
        assert!(!by_key().status.success(), "{name}");
    }
}

#[test]
fn every_kind_is_what_its_name_says() {
    if absent() {
        return;
    }
    let wanted: Vec<(&str, Kind)> = Kind::ALL
        .iter()
        .map(|kind| (kind.traits().name, *kind))
        .collect();
    let lab = Lab::up(&wanted);
    // Every login takes most of a second, nearly all of it waiting.
    std::thread::scope(|scope| {
        for (name, kind) in &wanted {
            let lab = &lab;
            scope.spawn(move || is_what_its_name_says(lab, name, *kind));
        }
    });
    assert!(says(&lab, "fish", "echo $version $FISH_VERSION").contains('3'));
    assert!(says(&lab, "csh", "echo $tcsh").contains('6'));
    let sftp = |name: &str| {
        let host = lab.hosts().host(name).unwrap();
        let mut command = lab.controller("sftp");
        command
            .args(["-F", "none", "-o", "BatchMode=yes", "-b", "/dev/null", "-o"])
            .arg(format!(
                "UserKnownHostsFile={}",
                lab.known_hosts().display()
            ))
            .arg("-i")
            .arg(lab.hosts().place().identity())
            .arg(format!("root@{}", host.address()));
        command.output().unwrap().status.success()
    };
    assert!(sftp("root"));
    assert!(!sftp("no-sftp"));
}
