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
    // What no package manager and no file mends; and a parameter that its next boot brings and the
    // reference does not have.
    lab.sh(
        "h3",
        "sed -i 's/quiet splash/quiet splash made_up.next=1/' /etc/default/grub; update-grub\n\
         rm /etc/os-release; sed 's/^VERSION_ID=.*/VERSION_ID=\"11\"/' /usr/lib/os-release >/etc/os-release",
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

    // What is in force is so until the next start.
    let ran = run(&lab, &["align", "--undo", &undo, "--yes"]).ended(5);
    assert!(ran.message().contains("pending on h2"), "{}", ran.message());
    let after = ["h2", "h3"].map(|host| (kept(&lab, host), grub(&lab, host)));
    assert_eq!(after, before);
}

/// The runs that a host keeps.
fn runs(lab: &Lab, host: &str) -> String {
    lab.sh(host, "ls /var/lib/windlass/undo").trim().to_owned()
}

#[test]
fn four_hosts_with_every_kind_of_difference_are_mended_as_far_as_windlass_can_and_taken_back() {
    if absent() {
        return;
    }
    let names = ["h1", "h2", "h3", "h4"];
    let mut lab = lab(&names);
    for host in names {
        let script = "made_up even 1.0\nsystemctl enable -q made-up.service\n\
                      printf '# the owner wrote this\\nvm.swappiness = 10' >/etc/sysctl.d/80-mine.conf\n\
                      mv /etc/default/grub /etc/default/grub.real; ln -s grub.real /etc/default/grub\n";
        lab.sh(host, &format!("{MADE_UP}{script}"));
    }
    lab.sh(
        "h1",
        "printf 'options ttm page_pool_size=7\\n' >/etc/modprobe.d/gpu.conf; usermod -aG video root\n\
         systemctl mask -q sleep.target suspend.target",
    );
    lab.sh(
        "h2",
        &format!(
            "{AGAIN}made_up even 1.1\nmade_up odd 2.0\n\
             printf 'options ttm page_pool_size=1' >/etc/modprobe.d/gpu.conf\n\
             chmod 600 /etc/modprobe.d/gpu.conf; chgrp games /etc/modprobe.d/gpu.conf\n\
             printf 'blacklist made_up\\n' >/etc/modprobe.d/old.conf\n\
             printf 'vm.swappiness = 60' >/etc/sysctl.d/80-mine.conf\n\
             systemctl mask -q made-up.service suspend.target\n\
             ip link set eth0 mtu 1400\n"
        ),
    );
    lab.sh(
        "h3",
        "dpkg -r even >/dev/null; systemctl disable -q made-up.service\n\
         groupadd -f kvm; usermod -aG kvm root\n\
         systemctl mask -q sleep.target suspend.target hibernate.target\n\
         rm /etc/os-release; sed 's/^VERSION_ID=.*/VERSION_ID=\"11\"/' /usr/lib/os-release >/etc/os-release",
    );
    lab.sh(
        "h4",
        "sed -i 's/quiet splash/quiet splash made_up.old=1/' /etc/default/grub.real; update-grub",
    );
    lab.reboot("h4");
    let id = lab.sh("h1", "cat /etc/machine-id");
    lab.sh(
        "h4",
        &format!(
            "echo {} >/etc/machine-id; ip address add 10.77.99.9/32 dev lo",
            id.trim()
        ),
    );
    lab.sh("h2", "ip address add 10.77.99.9/32 dev lo");
    let others = ["h2", "h3", "h4"];
    let seen = |lab: &Lab, host: &str| {
        let link = lab.sh(host, "readlink /etc/default/grub; stat -c '%U %G %a %Y' /etc/default/grub.real; cat /etc/default/grub");
        (kept(lab, host), link)
    };
    let before = others.map(|host| seen(&lab, host));
    let rows = |ran: &Ran| -> Vec<String> {
        let all = found(ran).into_iter();
        all.map(|(subject, key, hosts)| format!("{subject} {key}: {hosts}"))
            .collect()
    };
    let ran = run(&lab, &["verify"]).ended(5);
    assert_eq!(
        rows(&ran),
        [
            "addresses 10.77.99.9: h2 h4",
            "data_mtu : h2",
            "gpu_memory_limit : h2 h3 h4",
            "gpu_shared_memory : h2 h3 h4",
            "groups kvm: h3",
            "groups video: h2 h3 h4",
            "machine_id : h1 h4",
            "modules blacklist made_up: h2",
            "modules ttm page_pool_size: h2 h3 h4",
            "os_version : h3",
            "packages even: h2 h3",
            "packages odd: h2",
            "parameters made_up.old: h4",
            "parameters ttm.pages_limit: h2 h3 h4",
            "services made-up.service: h2 h3",
            "sleep : h2 h3 h4",
            "sysctl vm.swappiness: h2",
        ]
    );

    let ran = run(&lab, &["align", "--yes", "--reboot"]).ended(5);
    let undo = ran.summary["undo"].as_str().unwrap().to_owned();
    for (host, subjects) in [
        ("h2", vec!["addresses"]),
        ("h3", vec!["os_version", "sleep"]),
        ("h4", vec!["machine_id"]),
    ] {
        let left = ran.summary["left"][host].as_array().unwrap();
        for subject in subjects {
            let row = left.iter().find(|row| row["subject"] == subject);
            // What the lab's hosts forget with a start is mended by it.
            if let Some(row) = row {
                assert!(!row["line"].as_str().unwrap().is_empty(), "{row}");
            } else {
                assert_eq!(subject, "addresses", "{host}: {left:?}");
            }
        }
    }
    let after = rows(&run(&lab, &["verify"]).ended(5));
    for row in &after {
        let by_hand = ["addresses", "data_mtu", "machine_id", "os_version", "sleep"];
        let subject = row.split(' ').next().unwrap();
        assert!(by_hand.contains(&subject), "{after:?}");
    }
    assert_eq!(
        lab.sh("h2", "readlink /etc/default/grub").trim(),
        "grub.real"
    );

    run(&lab, &["align", "--undo", &undo, "--yes"]).ended(5);
    assert_eq!(others.map(|host| seen(&lab, host)), before);
}

#[test]
fn what_someone_else_changed_since_is_neither_overwritten_nor_removed() {
    if absent() {
        return;
    }
    let names = ["h1", "h2"];
    let lab = lab(&names);
    for host in names {
        lab.sh(
            host,
            &format!("{MADE_UP}made_up even 1.0\nsystemctl enable -q made-up.service\n"),
        );
    }
    lab.sh("h1", &format!("{AGAIN}made_up even 1.1\n"));
    lab.sh("h2", "systemctl disable -q made-up.service");
    let before = (kept(&lab, "h2"), grub(&lab, "h2"));
    let ran = run(&lab, &["align", "--yes"]).ended(5);
    let undo = ran.summary["undo"].as_str().unwrap().to_owned();
    // It waits for its reboot, however often it is asked.
    let ran = run(&lab, &["align", "--yes"]).ended(5);
    assert!(ran.message().contains("pending on h2"), "{}", ran.message());

    let back = ["align", "--undo", &undo, "--yes"];
    lab.sh(
        "h2",
        "cp -p /etc/default/grub /root/set; echo '# mine' >>/etc/default/grub",
    );
    let theirs = (kept(&lab, "h2"), grub(&lab, "h2"));
    let said = run(&lab, &back).ended(1).message().to_owned();
    for part in [
        "/etc/default/grub was changed",
        "someone else",
        "type there: cat /var/lib",
    ] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    assert_eq!((kept(&lab, "h2"), grub(&lab, "h2")), theirs);
    let typed = said.rsplit("type there: ").next().unwrap();
    lab.sh("h2", &format!("{typed}; cp -p /root/set /etc/default/grub"));

    lab.sh("h2", "systemctl mask -q made-up.service");
    let said = run(&lab, &back).ended(1).message().to_owned();
    assert!(said.contains("made-up.service is masked"), "{said}");
    lab.sh(
        "h2",
        "systemctl unmask -q made-up.service; systemctl enable -q made-up.service",
    );

    // A package of a person's stays; and so does a version.
    lab.sh("h2", &format!("{AGAIN}made_up odd 2.0\n"));
    run(&lab, &back).ended(0);
    lab.sh("h2", "dpkg-query -W odd && dpkg -r odd >/dev/null");
    assert_eq!((kept(&lab, "h2"), grub(&lab, "h2")), before);

    let ran = run(&lab, &["align", "--yes"]).ended(5);
    let undo = ran.summary["undo"].as_str().unwrap().to_owned();
    lab.sh("h2", "dpkg -r even >/dev/null");
    let ran = run(&lab, &["align", "--undo", &undo, "--yes"]).ended(5);
    let said = ran.message();
    assert!(said.contains("even is not there now"), "{said}");
    assert_eq!(grub(&lab, "h2"), before.1);
}

#[test]
fn a_controller_that_is_killed_leaves_no_half_and_its_run_can_be_taken_back() {
    if absent() {
        return;
    }
    let names = ["h1", "h2"];
    let lab = lab(&names);
    // A package that takes its time to be set up.
    let slow = "cd /srv/repo; d=$(mktemp -d); mkdir -p $d/DEBIAN\n\
         printf 'Package: slow\\nVersion: 1.0\\nArchitecture: all\\nMaintainer: nobody <n@example.org>\\nDescription: made up\\n' >$d/DEBIAN/control\n\
         printf '#!/bin/sh\\n: >/root/begun\\nfor i in $(seq 60); do [ ! -e /root/go ] || break; sleep 1; done\\n' >$d/DEBIAN/postinst\n\
         chmod 755 $d/DEBIAN/postinst; dpkg-deb -b $d slow_1.0.deb >/dev/null; cat $d/DEBIAN/control >>Packages\n\
         printf 'Filename: ./slow_1.0.deb\\nSize: %s\\nSHA256: %s\\n\\n' $(stat -c %s slow_1.0.deb) $(sha256sum slow_1.0.deb | cut -d' ' -f1) >>Packages\n\
         apt-get -q update >/dev/null\n";
    for host in names {
        lab.sh(host, &format!("{MADE_UP}made_up even 1.0\n{slow}"));
    }
    lab.sh(
        "h1",
        &format!(": >/root/go\n{AGAIN}made_up slow 1.0; made_up even 1.1"),
    );
    let before = (kept(&lab, "h2"), grub(&lab, "h2"));
    let mut controller = lab.windlass(&["align", "--yes"]).spawn().unwrap();
    lab.wait_for("h2", "[ -e /root/begun ]");
    controller.kill().unwrap();
    controller.wait().unwrap();
    let id = runs(&lab, "h2");

    let back = ["align", "--undo", &id, "--yes"];
    let said = run(&lab, &back).ended(1).message().to_owned();
    assert!(said.contains("still at work"), "{said}");
    lab.sh("h2", ": >/root/go");
    let end = format!("[ -e /var/lib/windlass/undo/{id}/packages.after ]");
    lab.wait_for("h2", &end);
    assert_eq!(
        lab.sh("h2", "dpkg-query -W -f '${db:Status-Status} ' even slow"),
        "installed installed "
    );
    // The file was never reached.
    assert_eq!(grub(&lab, "h2"), before.1);
    run(&lab, &back).ended(0);
    assert_eq!((kept(&lab, "h2"), grub(&lab, "h2")), before);
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
    let mut lab = lab(&names);
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
    // What is in force is so until the next start.
    run(&lab, &["align", "--undo", undo, "--yes"]).ended(5);
    assert_eq!((kept(&lab, "h2"), grub(&lab, "h2")), before);

    // A file that is no text keeps from what depends on it, and from nothing else.
    lab.reboot("h2");
    lab.sh(
        "h2",
        "printf 'options made_up x=\\351\\n' >/etc/modprobe.d/latin.conf",
    );
    std::fs::write(
        &file,
        "[[tasks]]\nname = \"same\"\nregister = \"same\"\nalign = { against = \"h1\" }\n",
    )
    .unwrap();
    let ran = run(&lab, &play).ended(0);
    let same = &ran.summary["results"]["same"]["hosts"]["h2"];
    assert_ne!(same["by_hand"], 0, "{same}");
    let packages = lab.sh("h2", "dpkg-query -W odd even 2>/dev/null || :");
    assert_eq!(packages, "even\t1.1\n");

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
