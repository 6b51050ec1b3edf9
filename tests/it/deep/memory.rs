//! The memory of GPUs, set and given back through GRUB on machines whose kernel takes it or does not.

use serde_json::json;

use super::harness::Vms;

/// 512 MiB, and the same in pages of 4 KiB.
const SIZE: &str = "512MiB";
const PAGES: &str = "131072";
const SET: &str = "ttm.pages_limit=131072";

/// What may not be other than before, byte for byte: GRUB's files with owner, mode and time, and the
/// lines of grub.cfg that start a kernel.
fn files(vms: &Vms, host: &str) -> String {
    vms.sh(
        host,
        "cd /etc/default && stat -c '%n %U:%G %a %Y' grub grub.d/* && sha256sum grub grub.d/* && ls -A grub.d /etc/modprobe.d && \
         grep -n '^[[:space:]]*linux[[:space:]]' /boot/grub/grub.cfg",
    )
}

/// What the running kernel has.
fn running(vms: &Vms, host: &str) -> String {
    vms.sh(
        host,
        "cat /proc/cmdline /sys/module/ttm/parameters/pages_limit",
    )
}

#[test]
#[ignore = "boots virtual machines for minutes; cargo xtask deep runs it"]
fn memory_set_through_grub_is_in_the_kernel_after_a_reboot_and_comes_back_byte_for_byte() {
    let vms = Vms::up(&["h1", "h2"]);
    let hosts = ["h1", "h2"];
    let before = hosts.map(|host| (files(&vms, host), running(&vms, host)));
    let boots = hosts.map(|host| vms.boot(host));
    for (_, running) in &before {
        assert!(running.ends_with("\n0\n"), "{running}");
        assert!(!running.contains("ttm"), "{running}");
    }

    let set = |more: &[&str]| {
        let words = [
            "memory", "set", SIZE, "--for", "amdgpu", "--yes", "--reboot",
        ];
        vms.run(&[&words, more].concat())
    };
    let ran = set(&[]).ended(0);
    for (host, boot) in hosts.iter().zip(&boots) {
        assert_ne!(vms.boot(host), *boot);
        let running = running(&vms, host);
        let (line, pages) = running.split_once('\n').unwrap();
        assert!(line.split(' ').any(|word| word == SET), "{line}");
        assert_eq!(pages.trim(), PAGES);
        assert_eq!(ran.summary["hosts"][host]["changed"], json!(1));
    }
    let ran = vms.run(&["memory", "show"]).ended(0);
    assert_eq!(
        ran.summary["memory"]["h2"]["in_force_bytes"],
        json!(512_u64 << 20)
    );

    vms.run(&["memory", "reset", "--yes", "--reboot"]).ended(0);
    for (host, before) in hosts.iter().zip(&before) {
        assert_eq!((files(&vms, host), running(&vms, host)), *before, "{host}");
    }

    // One that goes down for its reboot and does not come up again.
    let untouched = vms.boot("h2");
    vms.machines()
        .hang_at_reboot("h1")
        .unwrap_or_else(|error| panic!("{error}"));
    let ran = set(&["--reboot-timeout", "40"]).ended(1);
    let said = ran.message();
    assert!(said.contains("did not come back within 40 s"), "{said}");
    assert_eq!(ran.summary["error"]["host"], "h1");
    assert_eq!(ran.summary["hosts"]["h2"]["skipped"], json!(1));
    assert_eq!(
        (files(&vms, "h2"), running(&vms, "h2"), vms.boot("h2")),
        (before[1].0.clone(), before[1].1.clone(), untouched)
    );

    // A person at its console does what the report says.
    vms.say("cutting h1's power and giving it back, then typing what the report says");
    vms.machines()
        .kill("h1")
        .and_then(|()| vms.machines().start("h1"))
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(running(&vms, "h1").contains(SET));
    let lines: Vec<&str> = said.lines().skip(1).map(str::trim).collect();
    let (last, lines) = lines.split_last().unwrap();
    assert_eq!(*last, "reboot");
    assert!(lines.len() >= 2, "{said}");
    vms.sh("h1", &format!("set -e\n{}\n", lines.join("\n")));
    assert_eq!(files(&vms, "h1"), before[0].0);
}
