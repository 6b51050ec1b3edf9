//! Hosts are machines of their own, and a lab leaves nothing behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use windlass_lab::{Keeper, Lab as Hosts, Wanted};

use super::harness::{folder, small};
use super::{Cut, Kind, Lab, absent};

#[test]
fn hosts_are_machines_of_their_own() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root), ("h3", Kind::Root)]);
    let boot = "/proc/sys/kernel/random/boot_id";
    let mut seen = vec![fs::read_to_string(boot).unwrap()];
    for name in ["h1", "h2", "h3"] {
        assert_eq!(lab.sh(name, "hostname").trim(), name);
        assert_eq!(lab.sh(name, "cat /proc/1/comm").trim(), "systemd");
        for script in [
            format!("cat {boot}"),
            "cat /etc/machine-id".into(),
            "cat /etc/ssh/ssh_host_ed25519_key.pub".into(),
        ] {
            seen.push(lab.sh(name, &script));
        }
        // Through the front door: the key that the lab names, the user that it names.
        let host = lab.hosts().host(name).unwrap();
        let output = lab
            .ssh("root", &host.address())
            .arg("hostname")
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim(),
            name,
            "{output:?}"
        );
    }
    let different: BTreeSet<_> = seen.iter().collect();
    assert_eq!(different.len(), seen.len(), "{seen:?}");

    // A file and a setting of one host are not the others' nor the machine's.
    lab.sh("h1", "touch /etc/only-here /usr/bin/only-here");
    assert!(!lab.try_sh("h2", "ls /etc/only-here").status.success());
    assert!(!Path::new("/etc/only-here").exists());
    assert!(!Path::new("/usr/bin/only-here").exists());
    // Looked at, never tried: what root of a host could do here, it would do to the machine.
    let address = lab.hosts().host("h1").unwrap().address();
    let over_ssh = lab
        .ssh("root", &address)
        .arg("cat /proc/self/status")
        .output()
        .unwrap();
    for status in [
        lab.sh("h1", "cat /proc/self/status"),
        lab.sh("h1", "cat /proc/1/status"),
        String::from_utf8_lossy(&over_ssh.stdout).into_owned(),
    ] {
        for set in ["CapEff:", "CapBnd:"] {
            let line = status.lines().find(|line| line.starts_with(set)).unwrap();
            let bits = u64::from_str_radix(line[set.len()..].trim(), 16).unwrap();
            // Numbers from linux/capability.h.
            for (name, number) in [("module", 16), ("rawio", 17), ("time", 25), ("syslog", 34)] {
                assert_eq!(bits >> number & 1, 0, "{set} {name}");
            }
        }
    }
    assert!(
        !lab.try_sh("h1", "test -w /proc/sys/vm/swappiness")
            .status
            .success()
    );
    assert!(!lab.try_sh("h1", "test -w /sys/kernel").status.success());

    // Nothing of the lab is in the machine's own network.
    let own = Command::new("ip").arg("address").output().unwrap();
    let own = String::from_utf8_lossy(&own.stdout).into_owned();
    assert!(
        !own.contains("10.77.0.") && !own.contains("fd77::"),
        "{own}"
    );

    // Only what a host needs runs there, and none of it failed.
    lab.wait_for("h1", "systemctl is-system-running");
    assert_eq!(lab.sh("h1", "systemctl --failed --no-legend"), "");
    let units = lab.sh(
        "h1",
        "systemctl list-units --type=service --state=running --no-legend --plain",
    );
    for line in units.lines() {
        let unit = line.split(' ').next().unwrap();
        assert!(
            ["dbus", "ssh", "systemd-", "polkit", "user@"]
                .iter()
                .any(|known| unit.starts_with(known)),
            "{unit} runs on a fresh host"
        );
    }
}

#[test]
fn a_fresh_host_holds_neither_worker_nor_model() {
    if absent() {
        return;
    }
    let bait = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bait.gguf");
    fs::write(&bait, "GGUF").unwrap();
    let lab = Lab::up(&[("h1", Kind::Root)]);
    let search = |folders: &str| {
        format!(
            "find {folders} -name proc -prune -o -name sys -prune -o \
             \\( -name 'windlass*' -o -name '*.gguf' -o -name '*.safetensors' \
             -o -name 'candle*' \\) -print 2>/dev/null"
        )
    };
    // The search finds such things where they are.
    let here = Command::new("sh")
        .args(["-c", &search(env!("CARGO_TARGET_TMPDIR"))])
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&here.stdout).contains("bait.gguf"),
        "{here:?}"
    );
    assert_eq!(lab.sh("h1", &search("/")), "");
    for path in [
        env!("CARGO_MANIFEST_DIR"),
        env!("CARGO_TARGET_TMPDIR"),
        env!("CARGO_BIN_EXE_windlass"),
        "/var/lib/windlass",
    ] {
        let script = format!("[ ! -e '{path}' ] || [ -z \"$(ls -A '{path}')\" ]");
        assert!(lab.try_sh("h1", &script).status.success(), "{path}");
    }
    assert_eq!(
        lab.sh(
            "h1",
            "ls -A /root /home/ai /tmp/nothing-else 2>/dev/null; true"
        ),
        "/home/ai:\n\n/root:\n.ssh\n"
    );
    fs::remove_file(bait).unwrap();
}

/// A unit that writes which boot it runs in.
const UNIT: &str = "[Service]\n\
    ExecStart=/bin/sh -c 'cat /proc/sys/kernel/random/boot_id > %S/witness/boot; exec sleep 100000'\n\
    StateDirectory=witness\nRestart=always\n[Install]\nWantedBy=TARGET\n";

#[test]
fn an_enabled_unit_comes_back_after_a_power_cut_and_a_reboot() {
    if absent() {
        return;
    }
    let mut lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::NoSudo)]);
    let unit = UNIT.replace("TARGET", "multi-user.target");
    lab.sh(
        "h1",
        &format!(
            "cat > /etc/systemd/system/witness.service <<'E'\n{unit}\nE\n\
             systemctl daemon-reload; systemctl enable --now witness"
        ),
    );
    // As the user alone can do it: no root, no sudo, over SSH.
    let unit = UNIT.replace("TARGET", "default.target");
    let address = lab.hosts().host("h2").unwrap().address();
    let output = lab
        .ssh("ai", &address)
        .arg(format!(
            "loginctl enable-linger && mkdir -p ~/.config/systemd/user && \
             cat > ~/.config/systemd/user/witness.service <<'E'\n{unit}\nE\n\
             systemctl --user daemon-reload && systemctl --user enable --now witness"
        ))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let runs = |lab: &Lab| {
        for (host, folder) in [
            ("h1", "/var/lib/witness"),
            ("h2", "/home/ai/.config/witness"),
        ] {
            lab.wait_for(
                host,
                &format!("cmp {folder}/boot /proc/sys/kernel/random/boot_id && pgrep -x sleep"),
            );
        }
    };
    runs(&lab);
    lab.sh(
        "h1",
        "echo kept > /root/kept; setsid sleep 99999 >/dev/null 2>&1 &",
    );
    for host in ["h1", "h2"] {
        let before = lab.hosts().boot_id(host);
        lab.kill(host);
        assert!(!lab.hosts().is_on(host));
        lab.start(host);
        assert_ne!(lab.hosts().boot_id(host), before);
    }
    assert_eq!(lab.sh("h1", "cat /root/kept"), "kept\n");
    assert!(!lab.try_sh("h1", "pgrep -f [9]9999").status.success());
    runs(&lab);
    for host in ["h1", "h2"] {
        let before = lab.hosts().boot_id(host);
        lab.reboot(host);
        assert_ne!(lab.hosts().boot_id(host), before);
    }
    runs(&lab);
    // The journal knows all three boots.
    let boots = lab.sh(
        "h1",
        "journalctl --list-boots --no-pager | grep -c '^ *-*[0-9]'",
    );
    assert_eq!(boots.trim(), "3");
}

#[test]
fn a_small_disk_is_full_soon_and_keeps_what_it_took() {
    if absent() {
        return;
    }
    let mut lab = Lab::with(&[("h1", Kind::Root), ("h2", Kind::Root)], |wanted| {
        wanted.disks.push(small("h1", 32 << 20));
    });
    let fill =
        "mkdir -p /var/lib/windlass && dd if=/dev/zero of=/var/lib/windlass/f bs=1M count=40";
    let output = lab.try_sh("h1", fill);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("No space left"), "{said}");
    lab.sh(
        "h1",
        "rm /var/lib/windlass/f; echo here > /var/lib/windlass/small; sync",
    );
    lab.kill("h1");
    lab.start("h1");
    assert_eq!(lab.sh("h1", "cat /var/lib/windlass/small"), "here\n");

    // A host that ran already takes along what it holds.
    lab.sh("h2", fill);
    lab.sh(
        "h2",
        "rm /var/lib/windlass/f; echo there > /var/lib/windlass/small",
    );
    lab.disk("h2", 32 << 20);
    assert_eq!(lab.sh("h2", "cat /var/lib/windlass/small"), "there\n");
    assert!(!lab.try_sh("h2", fill).status.success());
}

#[test]
fn the_tool_runs_in_the_controllers_network_with_a_home_of_its_own() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::NoSystemd)]);
    let output = lab.windlass(&["paths", "--json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(&*lab.home().to_string_lossy()), "{said}");
    let output = lab.controller("ip").arg("address").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("10.77.0.1/24"), "{said}");
}

/// What there is of a lab outside its folder, by its folder and its identity.
fn traces(folder: &Path, id: &str) -> Vec<String> {
    let mut found = Vec::new();
    let text = folder.to_string_lossy();
    let mut names = |where_: &str| {
        for entry in fs::read_dir(where_).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(id) {
                found.push(format!("{where_}/{name}"));
            }
        }
    };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    names("/run/netns");
    for line in mounts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if words[2] == "cgroup2" {
            names(words[1]);
        }
    }
    for line in mounts.lines() {
        if line.contains(&*text) || line.contains(id) {
            found.push(line.to_owned());
        }
    }
    for entry in fs::read_dir("/sys/block").unwrap().flatten() {
        let backing = entry.path().join("loop/backing_file");
        if fs::read_to_string(backing).is_ok_and(|file| file.contains(&*text)) {
            found.push(entry.path().display().to_string());
        }
    }
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let line = String::from_utf8_lossy(&read("cmdline")).into_owned();
        let group = String::from_utf8_lossy(&read("cgroup")).into_owned();
        // A zombie has no command line any more.
        if !line.is_empty() && (line.contains(&*text) || group.contains(id)) {
            found.push(format!("process {}: {line}", entry.path().display()));
        }
    }
    found
}

#[test]
fn two_labs_live_side_by_side_and_leave_nothing() {
    if absent() {
        return;
    }
    let mut a = Lab::named("side-a", &[("h1", Kind::Root)], |wanted| {
        wanted.disks.push(small("h1", 16 << 20));
        wanted.delays.push(("h1".into(), 100));
    });
    let b = Lab::named("side-b", &[("h1", Kind::NoSystemd)], |_| {});
    a.sh("h1", "echo a > /root/which");
    b.sh("h1", "echo b > /root/which");
    let address = a.hosts().host("h1").unwrap().address();
    for (lab, which) in [(&a, "a\n"), (&b, "b\n")] {
        let output = lab.ssh("root", &address).arg("cat which").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), which, "{output:?}");
    }
    let (place_a, place_b) = (a.hosts().place().clone(), b.hosts().place().clone());
    assert!(traces(place_a.folder(), place_a.id()).len() > 5);
    // With a host that is off and a cut: no state hinders.
    a.cut("h1", Cut::Silent);
    a.kill("h1");
    drop(a);
    assert_eq!(traces(place_a.folder(), place_a.id()), [""; 0]);
    assert!(!place_a.folder().exists());
    assert_eq!(b.sh("h1", "cat /root/which"), "b\n");
    drop(b);
    assert_eq!(traces(place_b.folder(), place_b.id()), [""; 0]);
}

#[test]
fn a_lab_left_by_a_killed_run_is_cleaned_by_the_next() {
    if absent() {
        return;
    }
    let wanted = Wanted {
        hosts: vec![
            ("h1".into(), Kind::NoSystemd),
            ("h2".into(), Kind::NoSystemd),
        ],
        ..Wanted::default()
    };
    // Dropped without `down`, and its folder lost as well: all the next run knows is the path.
    let left = Hosts::up(&folder("left"), &wanted, Keeper::threads()).unwrap();
    let place = left.place().clone();
    drop(left);
    fs::remove_file(place.folder().join("hosts.txt")).unwrap();
    let lab = Lab::named("left", &[("other", Kind::NoSystemd)], |_| {});
    assert_eq!(lab.sh("other", "hostname"), "other\n");
    let names: Vec<String> = fs::read_dir("/run/netns")
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(place.id()))
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    drop(lab);
    // Once more with nothing there.
    Hosts::clear(&folder("left")).unwrap();
    assert_eq!(traces(place.folder(), place.id()), [""; 0]);
}

#[test]
fn a_lab_that_cannot_come_up_says_why_and_leaves_nothing() {
    if absent() {
        return;
    }
    let up = |hosts: &[(&str, Kind)], disk: Option<u64>| {
        let wanted = Wanted {
            hosts: hosts
                .iter()
                .map(|(name, kind)| ((*name).to_owned(), *kind))
                .collect(),
            disks: disk.map(|bytes| small("h1", bytes)).into_iter().collect(),
            ..Wanted::default()
        };
        Hosts::up(&folder("refused"), &wanted, Keeper::threads())
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    assert!(up(&[("h1", Kind::BehindJump)], None).contains("jump over"));
    assert!(up(&[("h1", Kind::Root), ("h1", Kind::Fish)], None).contains("h1"));
    assert!(up(&[("ctl", Kind::Root)], None).contains("ctl"));
    assert!(up(&[("h1", Kind::NoSystemd)], Some(1024)).contains("mke2fs"));
    let place = windlass_lab::Place::at(&folder("refused")).unwrap();
    assert_eq!(traces(place.folder(), place.id()), [""; 0]);
    assert!(!place.folder().exists());
}
