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
    let seen = |host: &str| (files(&vms, host), running(&vms, host));
    let before = [seen("h1"), seen("h2")];
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
    let in_force = |host: &str| {
        let running = running(&vms, host);
        let (line, pages) = running.split_once('\n').unwrap();
        assert!(line.split(' ').any(|word| word == SET), "{line}");
        assert_eq!(pages.trim(), PAGES, "{host}");
    };

    // One that goes down for its reboot and does not come up again: the other is not begun with.
    let untouched = vms.boot("h2");
    vms.machines()
        .hang_at_reboot("h1")
        .unwrap_or_else(|error| panic!("{error}"));
    let ran = set(&["--reboot-timeout", "20"]).ended(1);
    let said = ran.message().to_owned();
    assert!(said.contains("did not come back within 20 s"), "{said}");
    assert_eq!(ran.summary["error"]["host"], "h1", "{said}");
    assert_eq!(ran.summary["hosts"]["h2"]["skipped"], json!(1));
    assert_eq!((seen("h2"), vms.boot("h2")), (before[1].clone(), untouched));

    vms.say("cutting h1's power and giving it back");
    vms.machines()
        .kill("h1")
        .and_then(|()| vms.machines().start("h1"))
        .unwrap_or_else(|error| panic!("{error}"));
    in_force("h1");

    // The same command goes on where it ended: one is set so already, and is not rebooted.
    let boots = [vms.boot("h1"), vms.boot("h2")];
    let ran = set(&[]).ended(0);
    assert_eq!(ran.summary["hosts"]["h1"]["ok"], json!(1));
    assert_eq!(ran.summary["hosts"]["h2"]["changed"], json!(1));
    assert_eq!(vms.boot("h1"), boots[0]);
    assert_ne!(vms.boot("h2"), boots[1]);
    in_force("h2");
    let ran = vms.run(&["memory", "show"]).ended(0);
    for host in ["h1", "h2"] {
        let bytes = &ran.summary["memory"][host]["in_force_bytes"];
        assert_eq!(*bytes, json!(512_u64 << 20), "{host}");
    }

    // One is given back with a reboot; on the other a person does what the report said.
    let reset = ["memory", "reset", "--yes", "--reboot", "--limit", "h2"];
    vms.run(&reset).ended(0);
    assert_eq!(seen("h2"), before[1]);
    in_force("h1");
    let lines: Vec<&str> = said.lines().skip(1).map(str::trim).collect();
    let (last, lines) = lines.split_last().unwrap();
    assert_eq!(*last, "reboot");
    assert!(lines.len() >= 2, "{said}");
    vms.sh("h1", &format!("set -e\n{}\n", lines.join("\n")));
    assert_eq!(files(&vms, "h1"), before[0].0);
}
