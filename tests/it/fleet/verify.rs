//! Whether hosts are the same where it matters: planted differences are found, each of them and
//! nothing else.

use std::collections::BTreeSet;

use serde_json::Value;

use super::controller::{Ran, run};
use crate::lab::{Cut, Kind, Lab, absent};

/// What a run found: subject, key and the hosts that differ.
pub(super) fn found(ran: &Ran) -> BTreeSet<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let rows = ran.summary["drift"].as_array().unwrap();
    rows.iter()
        .map(|row| {
            assert_eq!(row["unknown"], Value::Array(Vec::new()), "{row}");
            let hosts = row["differs"].as_array().unwrap().iter().map(text);
            let hosts: Vec<String> = hosts.collect();
            (text(&row["subject"]), text(&row["key"]), hosts.join(" "))
        })
        .collect()
}

/// Makes a repository of packages with made-up versions, the only one that the host has, and a shell
/// function that installs from it; and a service.
pub(super) const MADE_UP: &str = "set -e\n\
     mkdir -p /etc/modprobe.d /etc/sysctl.d /srv/repo; cd /srv/repo\n\
     for p in even_1.0 even_1.1 odd_2.0; do\n\
     name=${p%_*} version=${p#*_} d=$(mktemp -d); mkdir -p $d/DEBIAN\n\
     printf 'Package: %s\\nVersion: %s\\nArchitecture: all\\nMaintainer: nobody <n@example.org>\\nDescription: made up\\n' $name $version >$d/DEBIAN/control\n\
     dpkg-deb -b $d $p.deb >/dev/null\n\
     cat $d/DEBIAN/control >>Packages\n\
     printf 'Filename: ./%s.deb\\nSize: %s\\nSHA256: %s\\n\\n' $p $(stat -c %s $p.deb) $(sha256sum $p.deb | cut -d' ' -f1) >>Packages\n\
     done\n\
     rm -rf /etc/apt/sources.list /etc/apt/sources.list.d; mkdir /etc/apt/sources.list.d\n\
     echo 'deb [trusted=yes] file:/srv/repo ./' >/etc/apt/sources.list\n\
     apt-get -q update >/dev/null\n\
     made_up() { apt-get -q -y install $1=$2 >/dev/null; }\n\
     printf '[Service]\\nExecStart=/bin/true\\n[Install]\\nWantedBy=multi-user.target\\n' >/usr/lib/systemd/system/made-up.service\n";

/// The function alone.
pub(super) const AGAIN: &str = "made_up() { apt-get -q -y install $1=$2 >/dev/null; }\n";

#[test]
fn planted_differences_are_named_each_and_nothing_else() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[
        ("h1", Kind::Root),
        ("h2", Kind::Root),
        ("h3", Kind::Root),
        ("h4", Kind::Root),
    ]);
    let hosts = ["h1", "h2", "h3", "h4"];
    for host in hosts {
        let script = "made_up even 1.0\nsystemctl enable -q made-up.service\n";
        lab.sh(host, &format!("{MADE_UP}{script}"));
    }
    let same = run(&lab, &["verify"]).ended(0);
    assert_eq!(found(&same), BTreeSet::new(), "{:#}", same.summary);

    lab.sh(
        "h2",
        &format!(
            "{AGAIN}made_up even 1.1\n\
             printf 'options ttm pages_limit=31457280\\n' >/etc/modprobe.d/made-up.conf\n\
             printf 'vm.swappiness = 1\\n' >/etc/sysctl.d/99-made-up.conf\n\
             systemctl disable -q made-up.service\n\
             usermod -aG video root\n"
        ),
    );
    lab.sh(
        "h3",
        &format!(
            "{AGAIN}made_up odd 2.0\n\
             systemctl mask -q made-up.service\n\
             ip link set eth0 mtu 1400\n\
             hostname h2\n\
             cp /usr/lib/os-release /tmp/os; sed -i 's/^VERSION_ID=.*/VERSION_ID=\"11\"/' /tmp/os; cp /tmp/os /usr/lib/os-release\n"
        ),
    );
    lab.sh(
        "h4",
        "dpkg -r even >/dev/null\n\
         sed 's/$/ ttm.pages_limit=31457280 amdgpu.gtt_size=131072/' /proc/cmdline >/tmp/line; mount --bind /tmp/line /proc/cmdline\n\
         ip address add 10.77.99.9/32 dev lo\n",
    );
    lab.sh("h2", "ip address add 10.77.99.9/32 dev lo");
    // One machine copied from the other.
    let id = lab.sh("h1", "cat /etc/machine-id");
    lab.sh("h4", &format!("echo {} >/etc/machine-id", id.trim()));

    let ran = run(&lab, &["verify"]).ended(5);
    let wanted = [
        ("os_version", "", "h3"),
        ("parameters", "ttm.pages_limit", "h4"),
        ("parameters", "amdgpu.gtt_size", "h4"),
        ("data_mtu", "", "h3"),
        ("packages", "even", "h2 h4"),
        ("packages", "odd", "h3"),
        ("modules", "ttm pages_limit", "h2"),
        ("sysctl", "vm.swappiness", "h2"),
        ("services", "made-up.service", "h2 h3"),
        ("groups", "video", "h2"),
        ("hostname", "", "h2 h3"),
        ("machine_id", "", "h1 h4"),
        ("addresses", "10.77.99.9", "h2 h4"),
    ];
    let wanted: BTreeSet<(String, String, String)> = wanted
        .iter()
        .map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned()))
        .collect();
    assert_eq!(found(&ran), wanted);
    let bad = ran.summary["known_bad"].as_array().unwrap();
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert_eq!(
        (&bad[0]["host"], &bad[0]["value"]),
        (&"h4".into(), &"131072".into())
    );
    assert_eq!(ran.summary["error"]["kind"], "drift");

    // Against another the same differences stand the other way round.
    let ran = run(&lab, &["verify", "--against", "h3", "--limit", "h1,h3"]).ended(5);
    let rows = found(&ran);
    assert!(
        rows.contains(&("packages".into(), "odd".into(), "h1".into())),
        "{rows:?}"
    );
    run(&lab, &["verify", "--against", "h9"]).ended(3);
    // One that is gone does not keep the others from being compared.
    lab.cut("h4", Cut::Pulled);
    let ran = run(&lab, &["verify", "--limit", "h1,h4"]).ended(4);
    assert_eq!(ran.summary["error"]["host"], "h4");
    run(&lab, &["verify", "--limit", "h1,h4", "--against", "h4"]).ended(4);
}

/// What of a host's disk `align` may touch, with owner, mode and digest, and its packages.
pub(super) fn kept(lab: &Lab, host: &str) -> String {
    lab.sh(
        host,
        "cd /etc; find modprobe.d sysctl.d systemd/system group gshadow -type f -o -type l | sort | while read -r f; do \
         printf '%s %s ' \"$f\" \"$(stat -c '%U:%G %a' \"$f\")\"; if [ -L \"$f\" ]; then readlink \"$f\"; else sha256sum <\"$f\"; fi; done\n\
         dpkg-query -W",
    )
}

#[test]
fn what_can_be_mended_is_and_comes_back_byte_for_byte() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root), ("h3", Kind::Root)]);
    for host in ["h1", "h2", "h3"] {
        let script = "made_up even 1.0\nsystemctl enable -q made-up.service\n\
                      printf 'vm.swappiness = 10\\n' >/etc/sysctl.d/80-mine.conf\n";
        lab.sh(host, &format!("{MADE_UP}{script}"));
    }
    lab.sh(
        "h1",
        &format!(
            "{AGAIN}made_up odd 2.0\n\
             printf '# mine\\noptions ttm pages_limit=31457280\\n' >/etc/modprobe.d/gpu.conf\n\
             usermod -aG video root\n"
        ),
    );
    lab.sh(
        "h2",
        &format!(
            "{AGAIN}made_up even 1.1\n\
             printf 'options ttm pages_limit=1\\n' >/etc/modprobe.d/gpu.conf\n\
             chmod 640 /etc/modprobe.d/gpu.conf; chgrp video /etc/modprobe.d/gpu.conf\n\
             printf 'options ttm page_pool_size=5\\n' >/etc/modprobe.d/old.conf\n\
             printf 'vm.swappiness = 60\\n' >/etc/sysctl.d/80-mine.conf\n\
             systemctl disable -q made-up.service\n\
             ip link set eth0 mtu 1400\n"
        ),
    );
    lab.sh("h3", "systemctl mask -q made-up.service\n");
    let before = ["h2", "h3"].map(|host| kept(&lab, host));

    // Nobody said yes.
    let ran = run(&lab, &["align"]).ended(2);
    assert!(ran.message().contains("--yes"), "{}", ran.message());
    run(&lab, &["align", "--check"]).ended(0);
    assert_eq!(["h2", "h3"].map(|host| kept(&lab, host)), before);

    let ran = run(&lab, &["align", "--yes"]).ended(5);
    assert!(
        ran.message().contains("a reboot is pending on h2, h3"),
        "{}",
        ran.message()
    );
    let undo = ran.summary["undo"].as_str().unwrap().to_owned();
    let by_hand = &ran.summary["hosts_planned"]["h2"]["by_hand"];
    assert_eq!(by_hand[0]["subject"], "data_mtu", "{by_hand}");
    assert!(
        by_hand[0]["line"]
            .as_str()
            .unwrap()
            .starts_with("sudo ip link set dev eth0 mtu 1500; "),
        "{by_hand}"
    );

    let left = found(&run(&lab, &["verify"]).ended(5));
    let wanted = [("data_mtu".to_owned(), String::new(), "h2".to_owned())];
    assert_eq!(left, wanted.into());
    assert_eq!(
        lab.sh("h2", "cat /etc/modprobe.d/gpu.conf"),
        lab.sh("h1", "cat /etc/modprobe.d/gpu.conf")
    );
    run(&lab, &["verify", "--limit", "h1,h3"]).ended(0);
    // All that windlass does is done.
    let again = run(&lab, &["align", "--yes"]).ended(5);
    assert!(again.summary.get("undo").is_none(), "{:#}", again.summary);

    run(&lab, &["align", "--undo", "nosuchrun", "--yes"]).ended(3);
    run(&lab, &["align", "--undo", &undo]).ended(2);
    run(&lab, &["align", "--undo", &undo, "--yes"]).ended(0);
    assert_eq!(["h2", "h3"].map(|host| kept(&lab, host)), before);
    run(&lab, &["align", "--undo", &undo, "--yes"]).ended(3);
}

#[test]
fn a_kernel_parameter_is_set_where_grub_keeps_it_and_taken_back() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root), ("h3", Kind::Root)]);
    lab.sh(
        "h1",
        "sed 's/$/ ttm.pages_limit=31457280/' /proc/cmdline >/tmp/line; mount --bind /tmp/line /proc/cmdline",
    );
    // No host here has a boot loader: this one stands for it and writes down what it was given.
    lab.sh(
        "h2",
        "mkdir -p /etc/default/grub.d /boot/grub\n\
         printf 'GRUB_TIMEOUT=5\\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\" # mine\\n' >/etc/default/grub\n\
         printf '#!/bin/sh\\ncat /etc/default/grub >/boot/grub/grub.cfg\\n' >/usr/sbin/update-grub\n\
         chmod 755 /usr/sbin/update-grub; chmod 600 /etc/default/grub; update-grub",
    );
    let seen = |lab: &Lab| {
        lab.sh(
            "h2",
            "stat -c '%a %U %Y' /etc/default/grub; cat /etc/default/grub; cat /boot/grub/grub.cfg",
        )
    };
    let before = seen(&lab);
    let ran = run(&lab, &["align", "--yes"]).ended(5);
    let undo = ran.summary["undo"].as_str().unwrap().to_owned();
    let planned = &ran.summary["hosts_planned"];
    assert!(planned["h2"]["reboot"].is_string(), "{planned}");
    assert_eq!(
        planned["h3"]["by_hand"][0]["key"], "ttm.pages_limit",
        "{planned}"
    );
    let wanted =
        "GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet ttm.pages_limit=31457280\" # mine\n";
    assert_eq!(lab.sh("h2", "cat /etc/default/grub"), wanted);
    assert_eq!(lab.sh("h2", "cat /boot/grub/grub.cfg"), wanted);
    assert_eq!(lab.sh("h2", "stat -c %a /etc/default/grub").trim(), "600");
    // It is set and waits for the reboot: nothing is left to change.
    let again = run(&lab, &["align", "--yes"]).ended(5);
    assert!(again.summary.get("undo").is_none(), "{:#}", again.summary);
    assert!(again.summary["hosts_planned"]["h2"]["reboot"].is_string());

    // A tool that fails leaves a sentence, and the run can be taken back.
    run(&lab, &["align", "--undo", &undo, "--yes"]).ended(0);
    assert_eq!(seen(&lab), before);
    lab.sh(
        "h2",
        "printf '#!/bin/sh\\necho no room on /boot >&2; exit 1\\n' >/usr/sbin/update-grub",
    );
    let ran = run(&lab, &["align", "--yes"]).ended(1);
    assert!(
        ran.message().contains("h2") && ran.message().contains("no room on /boot"),
        "{}",
        ran.message()
    );
    let undo = ran.summary["undo"].as_str().unwrap().to_owned();
    lab.sh(
        "h2",
        "printf '#!/bin/sh\\ncat /etc/default/grub >/boot/grub/grub.cfg\\n' >/usr/sbin/update-grub",
    );
    run(&lab, &["align", "--undo", &undo, "--yes"]).ended(0);
    assert_eq!(seen(&lab), before);
}
