//! Hosts made the same with the reboots that this takes, by `align --reboot` and by tasks of playbooks:
//! the lab plays the boot loader.

use serde_json::{Value, json};

use super::controller::{Ran, run};
use super::memory::{SET, grub, with_grub};
use super::verify::{AGAIN, MADE_UP, found, kept};
use crate::lab::{Kind, Lab, absent};

/// Two hosts or three that boot by GRUB, the first with a parameter that the others lack.
fn lab(names: &[&str]) -> Lab {
    let hosts: Vec<(&str, Kind)> = names.iter().map(|name| (*name, Kind::Root)).collect();
    let mut lab = Lab::up(&hosts);
    for host in names {
        with_grub(&mut lab, host);
    }
    let set = format!("sed -i 's/quiet splash/quiet splash {SET}/' /etc/default/grub; update-grub");
    lab.sh("h1", &set);
    lab.reboot("h1");
    lab
}

fn boots(lab: &Lab, names: &[&str]) -> Vec<String> {
    let boots = names.iter().map(|host| lab.hosts().boot_id(host).unwrap());
    boots.collect()
}

fn status(ran: &Ran, host: &str, of: &str) -> Value {
    ran.summary["hosts"][host][of].clone()
}

#[test]
fn what_can_be_mended_is_in_force_after_reboots_and_comes_back_byte_for_byte() {
    if absent() {
        return;
    }
    let names = ["h1", "h2", "h3"];
    let lab = lab(&names);
    for host in names {
        lab.sh(host, &format!("{MADE_UP}made_up even 1.0\n"));
    }
    lab.sh("h2", &format!("{AGAIN}made_up even 1.1\n"));
    // What no package manager and no file mends.
    lab.sh(
        "h3",
        "rm /etc/os-release; sed 's/^VERSION_ID=.*/VERSION_ID=\"11\"/' /usr/lib/os-release >/etc/os-release",
    );
    let before = ["h2", "h3"].map(|host| (kept(&lab, host), grub(&lab, host)));
    let first = boots(&lab, &names);

    // Without the flag nothing is rebooted, and that is waited for.
    let ran = run(&lab, &["align", "--yes", "--limit", "h1,h2"]).ended(5);
    assert!(ran.message().contains("pending on h2"), "{}", ran.message());
    let undo = ran.summary["undo"].as_str().unwrap().to_owned();
    assert_eq!(boots(&lab, &names), first);
    run(&lab, &["align", "--undo", &undo, "--yes", "--limit", "h2"]).ended(0);
    assert_eq!((kept(&lab, "h2"), grub(&lab, "h2")), before[0]);

    let ran = run(&lab, &["align", "--yes", "--reboot"]).ended(5);
    let undo = ran.summary["undo"].as_str().unwrap().to_owned();
    assert!(!ran.message().contains("pending"), "{}", ran.message());
    let left = &ran.summary["left"];
    assert_eq!(left["h2"], json!([]), "{left}");
    assert_eq!(left["h3"][0]["subject"], "os_version", "{left}");
    assert!(left["h3"][0]["line"].is_string());
    let second = boots(&lab, &names);
    assert_eq!(first[0], second[0], "the reference is left");
    assert!(first[1] != second[1] && first[2] != second[2]);
    run(&lab, &["verify", "--limit", "h1,h2"]).ended(0);
    let rows = found(&run(&lab, &["verify"]).ended(5));
    let wanted = [("os_version".to_owned(), String::new(), "h3".to_owned())];
    assert_eq!(rows, wanted.into());
    // All is done: nobody is rebooted again.
    run(&lab, &["align", "--yes", "--reboot"]).ended(5);
    assert_eq!(boots(&lab, &names), second);

    run(&lab, &["align", "--undo", &undo, "--yes"]).ended(0);
    let after = ["h2", "h3"].map(|host| (kept(&lab, host), grub(&lab, host)));
    assert_eq!(after, before);
}

#[test]
fn a_host_that_stays_away_ends_the_reboots_with_what_to_type_there() {
    if absent() {
        return;
    }
    let names = ["h1", "h2", "h3"];
    let lab = lab(&names);
    let before = grub(&lab, "h3");
    let first = boots(&lab, &names);
    lab.sh(
        "h2",
        "cp /usr/bin/systemctl /usr/bin/systemctl.real && rm /usr/bin/systemctl && \
         printf '#!/bin/sh\\n[ \"$1\" != reboot ] || set -- poweroff\\nexec /usr/bin/systemctl.real \"$@\"\\n' >/usr/bin/systemctl && \
         chmod 755 /usr/bin/systemctl",
    );
    let ran = run(
        &lab,
        &["align", "--yes", "--reboot", "--reboot-timeout", "8"],
    )
    .ended(1);
    for wanted in [
        "h2: it did not come back within 8 s",
        "cp -a /var/lib/windlass/undo/",
        "update-grub",
    ] {
        assert!(ran.message().contains(wanted), "{}", ran.message());
    }
    assert_eq!(status(&ran, "h2", "failed"), json!(1));
    assert_eq!(status(&ran, "h3", "skipped"), json!(1));
    assert_eq!(grub(&lab, "h3"), before);
    assert_eq!(boots(&lab, &["h3"]), first[2..]);
}

#[test]
fn gpu_memory_is_shown_set_and_in_force_after_a_reboot_by_the_playbook() {
    if absent() {
        return;
    }
    let names = ["h1", "h2"];
    let mut lab = Lab::up(&names.map(|name| (name, Kind::Root)));
    for host in names {
        with_grub(&mut lab, host);
    }
    let before = names.map(|host| grub(&lab, host));
    let first = boots(&lab, &names);
    let play = ["playbook", "run", "gpu-memory", "--var", "size=8GiB"];
    let mut check = play.to_vec();
    check.push("--check");
    let ran = run(&lab, &check).ended(0);
    for host in names {
        // The memory and the reboot.
        assert_eq!(status(&ran, host, "would_change"), json!(2), "{host}");
    }
    assert_eq!(names.map(|host| grub(&lab, host)), before);
    lab.sh("h1", "[ ! -e /var/lib/windlass ]");

    let ran = run(&lab, &play).ended(0);
    let second = boots(&lab, &names);
    for (number, host) in names.into_iter().enumerate() {
        assert_ne!(first[number], second[number]);
        assert_eq!(status(&ran, host, "changed"), json!(2), "{host}");
        assert_eq!(status(&ran, host, "ok"), json!(3), "{host}");
        lab.sh(host, "[ ! -e ~/.local/state/windlass/marks ]");
    }
    let shown = run(&lab, &["memory", "show"]).ended(0);
    assert_eq!(
        shown.summary["memory"]["h2"]["in_force_bytes"],
        json!(8_u64 << 30)
    );
    // Twice changes nothing and reboots nobody.
    let ran = run(&lab, &play).ended(0);
    assert_eq!(status(&ran, "h1", "changed"), json!(0));
    assert_eq!(status(&ran, "h1", "skipped"), json!(1));
    assert_eq!(boots(&lab, &names), second);

    let file = lab.home().join("reset.toml");
    std::fs::write(
        &file,
        "[[tasks]]\nname = \"back\"\ngpu_memory = { state = \"reset\" }\n",
    )
    .unwrap();
    run(&lab, &["playbook", "run", file.to_str().unwrap()]).ended(0);
    assert_eq!(names.map(|host| grub(&lab, host)), before);
}

#[test]
fn packages_and_differences_are_tasks_and_a_check_changes_nothing() {
    if absent() {
        return;
    }
    let names = ["h1", "h2"];
    let lab = lab(&names);
    for host in names {
        lab.sh(host, &format!("{MADE_UP}made_up even 1.0\n"));
    }
    let before = (kept(&lab, "h2"), grub(&lab, "h2"));
    let file = lab.home().join("play.toml");
    std::fs::write(
        &file,
        "[[tasks]]\nname = \"odd\"\nhosts = \"h1\"\npackage = \"odd\"\n\
         [[tasks]]\nname = \"newer\"\nhosts = \"h1\"\npackage = { name = [\"even\"], state = \"1.1\" }\n\
         [[tasks]]\nname = \"same\"\nregister = \"same\"\nalign = { against = \"h1\" }\n\
         [[tasks]]\nname = \"reboot\"\nwhen = \"results.same.reboot\"\nreboot = { timeout = \"2m\" }\n\
         [[tasks]]\nname = \"verify\"\nverify = { against = \"h1\" }\n\
         [[tasks]]\nname = \"none\"\npackage = { name = \"odd\", state = \"absent\" }\n",
    )
    .unwrap();
    let play = ["playbook", "run", file.to_str().unwrap()];
    let mut check = play.to_vec();
    check.push("--check");
    run(&lab, &check);
    assert_eq!((kept(&lab, "h2"), grub(&lab, "h2")), before);
    assert!(!lab.sh("h1", "dpkg-query -W").contains("odd"));

    let first = boots(&lab, &names);
    let ran = run(&lab, &play).ended(0);
    let second = boots(&lab, &names);
    assert_eq!(first[0], second[0]);
    assert_ne!(first[1], second[1]);
    for host in names {
        let packages = lab.sh(host, "dpkg-query -W odd even 2>/dev/null || :");
        assert_eq!(packages, "even\t1.1\n", "{host}");
    }
    let undo = &ran.summary["results"]["same"]["hosts"]["h2"]["undo"];
    let undo = undo.as_str().unwrap();
    run(&lab, &["align", "--undo", undo, "--yes"]).ended(0);
    assert_eq!((kept(&lab, "h2"), grub(&lab, "h2")), before);

    std::fs::write(
        &file,
        "[[tasks]]\nname = \"nothing\"\npackage = \"no-such-package\"\n",
    )
    .unwrap();
    let ran = run(&lab, &play).ended(1);
    assert!(
        ran.message().contains("no-such-package"),
        "{}",
        ran.message()
    );
}
