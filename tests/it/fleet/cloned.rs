//! A target rebooted into its copy: the lab plays the firmware, which starts what was copied, the medium
//! again, something else, or nothing.

use serde_json::json;

use super::clone::{Disk, MIB, clone, lacks, token, with_system};
use super::controller::{Ran, run};
use crate::lab::{Kind, Lab};

/// Has a host do something instead of a reboot, or right before it.
fn on_reboot(lab: &Lab, host: &str, what: &str) {
    lab.sh(
        host,
        &format!(
            "[ -e /usr/bin/systemctl.real ] || cp /usr/bin/systemctl /usr/bin/systemctl.real\n\
             rm -f /usr/bin/systemctl; cat >/usr/bin/systemctl <<'E'\n#!/bin/sh\n\
             if [ \"$1\" = reboot ]; then\n{what}\nfi\nexec /usr/bin/systemctl.real \"$@\"\nE\n\
             chmod 755 /usr/bin/systemctl"
        ),
    );
}

/// What makes the next boot the copy's, as far as a host of the lab can tell one: who it is, and where its
/// root lies.
fn as_the_copy(disk: &Disk) -> String {
    let (node, name) = (&disk.node, disk.name());
    let number = name.trim_start_matches("loop");
    let wait = disk.wait();
    format!(
        "mkdir -p /mnt/copy; {wait}; mount {node}p2 /mnt/copy\n\
         cp /mnt/copy/etc/ssh/ssh_host_* /etc/ssh/\n\
         for one in machine-id hostname windlass-clone; do cp /mnt/copy/etc/$one /etc/$one; done\n\
         umount /mnt/copy; rm -f /usr/bin/findmnt\n\
         cat >/usr/bin/findmnt <<'F'\n#!/bin/sh\n\
         [ -b {node} ] || mknod {node} b 7 {number}\n\
         [ -b {node}p2 ] || mknod {node}p2 b $(tr : ' ' </sys/block/{name}/{name}p2/dev)\n\
         echo {node}p2\nF\nchmod 755 /usr/bin/findmnt; sync -f /etc"
    )
}

fn rebooted(lab: &Lab, from: &Disk, to: &Disk, more: &[&str]) -> Ran {
    let token = token(lab, from, to);
    let all = ["--confirm", &token, "--reboot"];
    clone(lab, from, to, &[&all, more].concat())
}

fn makes_disks() -> bool {
    !lacks(&["sfdisk", "mkfs.ext4", "setfacl", "setcap", "setfattr"])
}

#[test]
fn the_copy_is_let_in_by_its_own_key_compared_and_known_from_then_on() {
    if !makes_disks() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    let (from, to) = (
        Disk::new(&lab, "h1", 300 * MIB),
        Disk::new(&lab, "h2", 300 * MIB),
    );
    with_system(&lab, "h1", &from, "ext4");
    on_reboot(&lab, "h2", &as_the_copy(&to));
    let boot = lab.hosts().boot_id("h2");
    let checked = clone(&lab, &from, &to, &["--check", "--reboot"]).ended(0);
    assert_eq!(checked.summary["reboot"], json!(null));
    assert_eq!(lab.hosts().boot_id("h2"), boot);

    let ran = rebooted(&lab, &from, &to, &["--update-inventory"]).ended(0);
    assert_ne!(lab.hosts().boot_id("h2"), boot);
    let said = &ran.summary;
    assert_eq!(said["reboot"]["root"], json!(format!("{}p2", to.node)));
    assert_eq!(said["verify"]["reference"], json!("h1"));
    assert_eq!(said["verify"]["drift"], json!([]), "{said:#}");
    let key = said["host_key"].as_str().unwrap();
    let own = lab.sh("h2", "cut -d ' ' -f 1,2 /etc/ssh/ssh_host_ed25519_key.pub");
    assert_eq!(own.trim(), key);
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let inventory = read(lab.inventory());
    assert!(inventory.contains(key), "{inventory}");
    let known = read(lab.known_hosts());
    assert!(known.contains(key), "{known}");
    // OpenSSH, which knows no inventory, knows it too.
    let address = lab.hosts().host("h2").unwrap().address();
    let output = lab.ssh("root", &address).arg("hostname").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    run(&lab, &["exec", "h2", "--", "true"]).ended(0);

    // Once more, as a task: it is the copy already.
    std::fs::write(
        lab.home().join("play.toml"),
        format!(
            "[[tasks]]\nname = \"clone\"\nregister = \"clone\"\nclone = {{ from = \"h1\", to = \"h2\", disk = \"{}\", source = \"{}\", reboot = true }}\n",
            to.node, from.node
        ),
    )
    .unwrap();
    let boot = lab.hosts().boot_id("h2");
    let ran = run(&lab, &["playbook", "run", "play.toml"]).ended(0);
    let counted = &ran.summary["hosts"]["h2"];
    assert_eq!(
        (&counted["ok"], &counted["changed"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(lab.hosts().boot_id("h2"), boot);

    // Under another name it is another copy: to be confirmed like any.
    lab.sh("h2", "echo other >/etc/hostname");
    to.shown(&lab, "h2");
    let ran = run(&lab, &["playbook", "run", "play.toml"]);
    assert_ne!(ran.code, 0);
    assert!(ran.message().contains("--confirm"), "{}", ran.message());

    // What differs from the source and is no identity is told, and the line to type without the flag.
    lab.sh(
        "h1",
        "printf 'vm.swappiness = 1\\n' >/etc/sysctl.d/99-made-up.conf",
    );
    let inventory = read(lab.inventory());
    let ran = rebooted(&lab, &from, &to, &[]).ended(5);
    let drift = ran.summary["verify"]["drift"].as_array().unwrap();
    assert_eq!(drift.len(), 1, "{drift:?}");
    assert_eq!(drift[0]["subject"], json!("sysctl"));
    assert_ne!(ran.summary["host_key"], json!(key));
    assert_eq!(read(lab.inventory()), inventory, "it was not asked for");
}

#[test]
fn a_task_clones_reboots_and_goes_on_with_the_copy() {
    if !makes_disks() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root), ("h3", Kind::Root)]);
    let (from, to) = (
        Disk::new(&lab, "h1", 300 * MIB),
        Disk::new(&lab, "h2", 300 * MIB),
    );
    with_system(&lab, "h1", &from, "ext4");
    on_reboot(&lab, "h2", &as_the_copy(&to));
    let token = token(&lab, &from, &to);
    std::fs::write(
        lab.home().join("play.toml"),
        format!(
            "[[tasks]]\nname = \"clone\"\nregister = \"clone\"\nclone = {{ from = \"h1\", to = \"h2\", disk = \"{}\", source = \"{}\", confirm = \"{token}\", reboot = true, reboot_timeout = \"60s\" }}\n\
             [[tasks]]\nname = \"who\"\nhosts = \"h2\"\ncommand = \"grep -q {{{{ results.clone.machine_id }}}} /etc/machine-id\"\n",
            to.node, from.node
        ),
    )
    .unwrap();
    let before = std::fs::read(lab.inventory()).unwrap();
    let checked = run(&lab, &["playbook", "run", "play.toml", "--check"]);
    assert_eq!(checked.summary["hosts"]["h2"]["changed"], json!(0));
    let ran = run(&lab, &["playbook", "run", "play.toml"]).ended(0);
    assert_eq!(
        ran.summary["hosts"]["h2"]["changed"],
        json!(2),
        "{:#}",
        ran.summary
    );
    assert_eq!(ran.summary["hosts"]["h1"]["changed"], json!(0));
    assert_eq!(ran.summary["hosts"]["h3"]["skipped"], json!(1));
    assert_eq!(
        std::fs::read(lab.inventory()).unwrap(),
        before,
        "it was not asked for"
    );
}

#[test]
fn a_machine_that_does_not_start_its_copy_is_told_of_with_what_to_do() {
    if !makes_disks() {
        return;
    }
    let mut lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    let (from, to) = (
        Disk::new(&lab, "h1", 300 * MIB),
        Disk::new(&lab, "h2", 300 * MIB),
    );
    with_system(&lab, "h1", &from, "ext4");
    let inventory = std::fs::read(lab.inventory()).unwrap();
    let known = std::fs::read(lab.known_hosts()).unwrap();
    let says = |ran: &Ran, wanted: &[&str]| {
        for wanted in wanted {
            let said = ran.message();
            assert!(said.contains(wanted), "no {wanted}: {said}");
        }
        assert_eq!(ran.summary["unfinished"], json!(false));
        assert_eq!(ran.summary["verify"], json!(null));
    };

    on_reboot(&lab, "h2", "set -- poweroff");
    let ran = rebooted(&lab, &from, &to, &["--reboot-timeout", "8"]).ended(1);
    let address = lab.hosts().host("h2").unwrap().address();
    let key = ran.summary["host_key"].as_str().unwrap().to_owned();
    says(
        &ran,
        &[
            "h2: it did not come back within 8 s",
            &to.node,
            &address,
            &format!("inventory set h2 ssh.host_key='{key}'"),
        ],
    );
    lab.start("h2");
    to.shown(&lab, "h2");

    // The medium again.
    on_reboot(&lab, "h2", ":");
    let ran = rebooted(&lab, &from, &to, &["--update-inventory"]).ended(1);
    let wanted = format!(
        "it started from the medium again: remove it or choose {} in its setup",
        to.node
    );
    says(&ran, &[&wanted]);
    to.shown(&lab, "h2");

    // The copy, which knows another login.
    on_reboot(
        &lab,
        "h2",
        &format!(
            "{}\nmv /root/.ssh/authorized_keys /root/keys",
            as_the_copy(&to)
        ),
    );
    lab.sh(
        "h2",
        "cp -a /etc/ssh /root/ssh; cp /etc/machine-id /root/id; cp /usr/bin/findmnt /root/findmnt",
    );
    let ran = rebooted(&lab, &from, &to, &["--reboot-timeout", "40"]).ended(1);
    says(&ran, &["does not let the login in", "those of h1"]);
    lab.sh(
        "h2",
        "cp -a /root/ssh/* /etc/ssh/; cp /root/id /etc/machine-id; cp /root/findmnt /usr/bin/findmnt; mv /root/keys /root/.ssh/authorized_keys\n\
         systemctl.real restart ssh",
    );
    to.shown(&lab, "h2");

    // Neither the copy nor the medium.
    on_reboot(
        &lab,
        "h2",
        "rm /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key",
    );
    let ran = rebooted(&lab, &from, &to, &["--update-inventory"]).ended(4);
    says(
        &ran,
        &[
            "h2",
            "host key",
            "neither the copy's key nor one from before",
        ],
    );
    assert_eq!(std::fs::read(lab.inventory()).unwrap(), inventory);
    assert_eq!(std::fs::read(lab.known_hosts()).unwrap(), known);
}
