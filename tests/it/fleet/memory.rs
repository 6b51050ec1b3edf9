//! The memory of GPUs on hosts that boot by GRUB: the lab plays the boot loader, which takes what a
//! stand-in for update-grub made of /etc/default/grub.

use serde_json::{Value, json};

use super::controller::{Ran, run};
use crate::lab::{Kind, Lab, absent};

const GIB: u64 = 1 << 30;
/// 8 GiB in pages of 4 KiB.
pub(super) const SET: &str = "ttm.pages_limit=2097152";
/// With what an editor of such files may trip over.
const GRUB: &str = "# it's a `file'\nGRUB_TIMEOUT=0\nGRUB_CMDLINE_LINUX_DEFAULT='quiet splash'\nGRUB_CMDLINE_LINUX=\"rd.luks.uuid=luks-1 rd.luks.uuid=luks-2\"\n# no newline follows";

/// Makes a host one that boots by GRUB and has an AMD APU.
pub(super) fn with_grub(lab: &mut Lab, host: &str) {
    let script = format!(
        "mkdir -p /etc/default /boot/grub && printf %s {grub} >/etc/default/grub && \
         chmod 640 /etc/default/grub && chown daemon:games /etc/default/grub && \
         cat >/usr/sbin/update-grub <<'E'\n#!/bin/sh\nset -e\n. /etc/default/grub\n\
         echo 'Generating grub configuration file ...'\n\
         [ ! -e /etc/lab-fails ] || {{ echo 'grub-probe: error: cannot find a device' >&2; exit 1; }}\n\
         [ ! -e /etc/lab-ignores ] || GRUB_CMDLINE_LINUX_DEFAULT=quiet\n\
         printf 'menuentry x {{\\n\\tlinux /vmlinuz root=/dev/vda1 %s %s\\n}}\\n' \
         \"$GRUB_CMDLINE_LINUX\" \"$GRUB_CMDLINE_LINUX_DEFAULT\" >/boot/grub/grub.cfg\nE\n\
         chmod 755 /usr/sbin/update-grub && update-grub && : >/etc/lab-amdgpu",
        grub = windlass::ssh::quote(GRUB)
    );
    lab.sh(host, &script);
    lab.reboot(host);
}

/// The file's owner, mode, times and bytes.
pub(super) fn grub(lab: &Lab, host: &str) -> String {
    lab.sh(
        host,
        "stat -c '%U %G %a %Y' /etc/default/grub; cat /etc/default/grub",
    )
}

fn of(ran: &Ran, host: &str) -> Value {
    ran.summary["memory"][host].clone()
}

fn counted(ran: &Ran, host: &str, what: &str) -> Value {
    ran.summary["hosts"][host][what].clone()
}

#[test]
fn memory_is_set_by_grub_waits_for_a_reboot_and_is_given_back_byte_for_byte() {
    if absent() {
        return;
    }
    let mut lab = Lab::up(&[("h1", Kind::SudoFree)]);
    with_grub(&mut lab, "h1");
    let before = grub(&lab, "h1");
    let cfg = lab.sh("h1", "cat /boot/grub/grub.cfg");

    // A check changes nothing, not even a folder.
    let ran = run(&lab, &["memory", "set", "8GiB", "--check", "--diff"]).ended(0);
    assert_eq!(counted(&ran, "h1", "would_change"), json!(1));
    assert_eq!(
        of(&ran, "h1")["parameters"],
        json!({"ttm.pages_limit": "2097152"})
    );
    assert_eq!(grub(&lab, "h1"), before);
    lab.sh("h1", "[ ! -e /var/lib/windlass ]");
    let ran = run(&lab, &["memory", "set", "8GiB"]).ended(2);
    assert!(ran.message().contains("--yes"), "{}", ran.message());
    assert_eq!(grub(&lab, "h1"), before);

    let ran = run(&lab, &["memory", "set", "8GiB", "--yes"]).ended(5);
    assert!(ran.message().contains("reboot"), "{}", ran.message());
    assert_eq!(counted(&ran, "h1", "changed"), json!(1));
    let set = grub(&lab, "h1");
    assert!(set.starts_with("daemon games 640 "), "{set}");
    let wanted = GRUB.replace("'quiet splash'", &format!("'quiet splash {SET}'"));
    assert!(set.ends_with(&wanted), "{set}");
    assert!(lab.sh("h1", "cat /boot/grub/grub.cfg").contains(SET));
    assert_eq!(lab.sh("h1", "stat -c %a /var/lib/windlass/undo/*"), "700\n");
    let ran = run(&lab, &["memory", "show"]).ended(5);
    assert_eq!(of(&ran, "h1")["pending"].as_array().unwrap().len(), 1);

    // Twice changes nothing.
    let ran = run(&lab, &["memory", "set", "8GiB", "--yes"]).ended(5);
    assert_eq!(counted(&ran, "h1", "changed"), json!(0));
    assert_eq!(grub(&lab, "h1"), set);

    // Written by a run that was killed then, or by hand: the loader's own file is made anew.
    lab.sh(
        "h1",
        "printf '\\tlinux /vmlinuz ro\\n' >/boot/grub/grub.cfg; touch -d '-1 hour' /boot/grub/grub.cfg",
    );
    let ran = run(&lab, &["memory", "set", "8GiB", "--yes"]).ended(5);
    assert_eq!(counted(&ran, "h1", "changed"), json!(1));
    assert_eq!(grub(&lab, "h1"), set);
    assert!(lab.sh("h1", "cat /boot/grub/grub.cfg").contains(SET));
    let ran = run(&lab, &["memory", "set", "8GiB", "--yes"]).ended(5);
    assert_eq!(counted(&ran, "h1", "changed"), json!(0));

    lab.reboot("h1");
    let ran = run(&lab, &["memory", "show"]).ended(0);
    assert_eq!(of(&ran, "h1")["in_force_bytes"], json!(8 * GIB));
    assert_eq!(of(&ran, "h1")["mechanism"], json!("/etc/default/grub"));
    run(&lab, &["memory", "set", "8GiB", "--yes"]).ended(0);

    // A hand that was there since is not overwritten.
    lab.sh(
        "h1",
        "cp -p /etc/default/grub /root/set; echo '# mine' >>/etc/default/grub",
    );
    let ran = run(&lab, &["memory", "reset", "--yes"]).ended(1);
    assert!(ran.message().contains("someone else"), "{}", ran.message());
    lab.sh(
        "h1",
        "tail -n 1 /etc/default/grub | grep -q '# mine'; cp -p /root/set /etc/default/grub",
    );

    run(&lab, &["memory", "reset", "--check"]).ended(0);
    assert_eq!(grub(&lab, "h1"), set);
    run(&lab, &["memory", "reset", "--yes"]).ended(5);
    assert_eq!(grub(&lab, "h1"), before);
    assert_eq!(lab.sh("h1", "cat /boot/grub/grub.cfg"), cfg);
    lab.reboot("h1");
    let ran = run(&lab, &["memory", "reset", "--yes"]).ended(0);
    assert_eq!(counted(&ran, "h1", "ok"), json!(1));
    assert_ne!(
        of(&run(&lab, &["memory", "show"]).ended(0), "h1")["in_force_bytes"],
        json!(8 * GIB)
    );
}

#[test]
fn hosts_are_rebooted_one_after_the_other_and_judged_by_what_runs_then() {
    if absent() {
        return;
    }
    let mut lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    for host in ["h1", "h2"] {
        with_grub(&mut lab, host);
    }
    let before = grub(&lab, "h2");
    let boots = |lab: &Lab| ["h1", "h2"].map(|host| lab.hosts().boot_id(host).unwrap());
    let first = boots(&lab);
    run(&lab, &["memory", "set", "8GiB", "--yes", "--reboot"]).ended(0);
    let second = boots(&lab);
    let ran = run(&lab, &["memory", "show"]).ended(0);
    for (number, host) in ["h1", "h2"].into_iter().enumerate() {
        assert_ne!(first[number], second[number]);
        assert_eq!(of(&ran, host)["in_force_bytes"], json!(8 * GIB));
    }
    run(&lab, &["memory", "reset", "--yes", "--reboot"]).ended(0);
    assert_eq!(grub(&lab, "h2"), before);
    assert!(!lab.sh("h2", "cat /proc/cmdline").contains("ttm"));

    // A boot that does not take it is seen, and rolled back.
    lab.sh("h1", ": >/etc/lab-ignores");
    let ran = run(&lab, &["memory", "set", "8GiB", "--yes", "--reboot"]).ended(1);
    assert!(
        ran.message()
            .contains("/proc/cmdline has no ttm.pages_limit"),
        "{}",
        ran.message()
    );
    assert!(ran.message().contains("put back"), "{}", ran.message());
    assert!(grub(&lab, "h1").ends_with(GRUB));
    assert_eq!(grub(&lab, "h2"), before);
    assert_eq!(counted(&ran, "h2", "skipped"), json!(1));
}

#[test]
fn a_host_that_does_not_come_back_is_told_of_with_what_to_type_and_others_are_left() {
    if absent() {
        return;
    }
    let mut lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    for host in ["h1", "h2"] {
        with_grub(&mut lab, host);
    }
    let before = grub(&lab, "h2");
    lab.sh(
        "h1",
        "cp /usr/bin/systemctl /usr/bin/systemctl.real && rm /usr/bin/systemctl && \
         printf '#!/bin/sh\\n[ \"$1\" != reboot ] || set -- poweroff\\nexec /usr/bin/systemctl.real \"$@\"\\n' >/usr/bin/systemctl && \
         chmod 755 /usr/bin/systemctl",
    );
    let ran = run(
        &lab,
        &[
            "memory",
            "set",
            "8GiB",
            "--yes",
            "--reboot",
            "--reboot-timeout",
            "8",
        ],
    )
    .ended(1);
    let said = ran.message();
    for wanted in [
        "did not come back within 8 s",
        SET,
        "cp -a /var/lib/windlass/undo/",
        "update-grub",
    ] {
        assert!(said.contains(wanted), "no {wanted}: {said}");
    }
    assert_eq!(counted(&ran, "h2", "skipped"), json!(1));
    assert_eq!(grub(&lab, "h2"), before);
    lab.start("h1");
    run(&lab, &["memory", "reset", "--yes", "--limit", "h1"]).ended(5);
    assert!(grub(&lab, "h1").ends_with(GRUB));
}

#[test]
fn a_tool_that_fails_leaves_all_files_as_they_were_and_its_words_are_shown() {
    if absent() {
        return;
    }
    let mut lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    with_grub(&mut lab, "h1");
    let before = grub(&lab, "h1");
    lab.sh("h1", ": >/etc/lab-fails");
    // h2 shows no GPU.
    let ran = run(&lab, &["memory", "set", "8GiB", "--yes"]).ended(1);
    let said = format!("{}\n{}", ran.message(), ran.stderr);
    assert_eq!(counted(&ran, "h1", "failed"), json!(1));
    assert_eq!(counted(&ran, "h2", "failed"), json!(1));
    assert!(said.contains("--for amdgpu"), "{said}");
    let ran = run(&lab, &["memory", "set", "8GiB", "--yes", "--limit", "h1"]).ended(1);
    for wanted in ["`update-grub` failed", "cannot find a device", "put back"] {
        assert!(
            ran.message().contains(wanted),
            "no {wanted}: {}",
            ran.message()
        );
    }
    assert_eq!(grub(&lab, "h1"), before);
    lab.sh(
        "h1",
        "! ls /var/lib/windlass/undo/*/memory.json 2>/dev/null",
    );
    let ran = run(&lab, &["memory", "reset", "--yes", "--limit", "h1"]).ended(0);
    assert_eq!(counted(&ran, "h1", "ok"), json!(1));

    // More than the machine has is refused before anything is done.
    let ran = run(&lab, &["memory", "set", "9TiB", "--yes", "--limit", "h1"]).ended(1);
    assert!(ran.message().contains("the most is"), "{}", ran.message());
    run(&lab, &["memory", "set", "much", "--yes"]).ended(2);

    // A name that no module knows is said, and its right one.
    lab.sh(
        "h1",
        "rm /etc/lab-fails; sed -i 's/quiet splash/amdgpu.gtt_size=122880/' /etc/default/grub; update-grub",
    );
    lab.reboot("h1");
    let ran = run(&lab, &["memory", "show", "--limit", "h1"]).ended(1);
    assert!(
        ran.message().contains("amdgpu.gttsize is meant"),
        "{}",
        ran.message()
    );
}
