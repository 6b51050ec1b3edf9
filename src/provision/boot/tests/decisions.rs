//! Which mechanism, which change, which names and sizes.

use super::super::change::{OWN, change, faults, wish};
use super::super::initramfs::Initramfs;
use super::super::mechanism::{Ground, Mechanism, mechanism};
use super::super::{names, size, tools};
use super::*;

const BY_GRUB: &str = "BOOT_IMAGE=/vmlinuz-6.18.9 root=UUID=1 ro quiet";
const BY_EFI: &str = "initrd=\\EFI\\x\\initrd.img root=UUID=1 rw";

fn host(line: &str, tools: &[&str]) -> Ground {
    Ground {
        tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
        command_line: line.to_owned(),
        release: "6.18.9".into(),
        ..Ground::default()
    }
}

fn with_grub(mut ground: Ground, text: &str) -> Ground {
    ground.grub = vec![File::new("/etc/default/grub", text)];
    ground
}

fn with_entry(mut ground: Ground) -> Ground {
    ground.entries = vec![File::new(
        "/boot/loader/entries/a.conf",
        "linux /v\noptions root=UUID=1 ro\n",
    )];
    ground
}

fn with_cmdline(mut ground: Ground) -> Ground {
    ground.kernel_cmdline = Some(File::new("/etc/kernel/cmdline", "root=UUID=1 rw\n"));
    ground
}

fn grub_way(apply: &str) -> Mechanism {
    Mechanism::Grub {
        apply: apply.to_owned(),
    }
}

fn install_way(apply: &str) -> Mechanism {
    Mechanism::KernelCmdline {
        apply: apply.to_owned(),
    }
}

#[test]
fn what_grub_was_told_and_never_made_anew_is_made_without_a_file_written() {
    let text = "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet ttm.pages_limit=31457280\"\n";
    let mut ground = with_grub(host(BY_GRUB, &["update-grub"]), text);
    let lines = |ground: &Ground| {
        let change = change(ground, &mechanism(ground).unwrap(), &pages()).unwrap();
        assert!(change.files.is_empty(), "{change:?}");
        change
            .lines
            .into_iter()
            .map(|line| line.line)
            .collect::<Vec<_>>()
    };
    // Made since: it waits for a reboot.
    assert!(lines(&ground).is_empty());
    ground.grub_stale = true;
    assert_eq!(lines(&ground), ["update-grub"]);
    // In force: what else was written there is not ours to make.
    ground.command_line = format!("{BY_GRUB} ttm.pages_limit=31457280");
    assert!(lines(&ground).is_empty());
}

#[test]
fn each_host_has_its_own_mechanism() {
    let fedora = with_entry(with_grub(
        host(BY_GRUB, &["grubby", "grub2-mkconfig", "dracut", "modprobe"]),
        "GRUB_CMDLINE_LINUX=\"rhgb\"\nGRUB_ENABLE_BLSCFG=true\n",
    ));
    let without_entries = Ground {
        grub_cfg: Some("/boot/grub2/grub.cfg".into()),
        ..with_grub(fedora.clone(), "GRUB_ENABLE_BLSCFG=\"false\"\n")
    };
    let ubuntu = with_grub(
        host(
            BY_GRUB,
            &[
                "update-grub",
                "grub-mkconfig",
                "update-initramfs",
                "modprobe",
            ],
        ),
        "",
    );
    let arch = Ground {
        grub_cfg: Some("/boot/grub/grub.cfg".into()),
        ..with_grub(
            host(BY_GRUB, &["grub-mkconfig", "mkinitcpio", "modprobe"]),
            "",
        )
    };
    let proxmox = |line: &str| Ground {
        proxmox: true,
        ..with_cmdline(with_grub(
            host(line, &["proxmox-boot-tool", "update-grub", "modprobe"]),
            "",
        ))
    };
    for (ground, wanted) in [
        (
            Ground {
                darwin: true,
                ..Ground::default()
            },
            Mechanism::Macos,
        ),
        (
            Ground {
                nixos: true,
                ..fedora.clone()
            },
            Mechanism::NixOs,
        ),
        (
            Ground {
                ostree: true,
                tools: vec!["rpm-ostree".into(), "grubby".into()],
                ..fedora.clone()
            },
            Mechanism::Ostree,
        ),
        (fedora, Mechanism::Grubby),
        (
            without_entries,
            grub_way("grub2-mkconfig -o /boot/grub2/grub.cfg"),
        ),
        (ubuntu.clone(), grub_way("update-grub")),
        (arch, grub_way("grub-mkconfig -o /boot/grub/grub.cfg")),
        // GRUB's files are there, but it is not what boots.
        (
            with_entry(Ground {
                command_line: BY_EFI.into(),
                ..ubuntu
            }),
            Mechanism::Entries,
        ),
        (
            with_entry(with_cmdline(host(BY_EFI, &["modprobe"]))),
            Mechanism::Entries,
        ),
        (
            with_cmdline(host(BY_EFI, &["mkinitcpio"])),
            install_way("mkinitcpio -P"),
        ),
        (
            with_cmdline(host(BY_EFI, &["kernel-install"])),
            install_way("kernel-install add 6.18.9 /usr/lib/modules/6.18.9/vmlinuz"),
        ),
        (proxmox(BY_EFI), install_way("proxmox-boot-tool refresh")),
        (proxmox(BY_GRUB), grub_way("proxmox-boot-tool refresh")),
        (
            host("root=x", &["modprobe", "dracut"]),
            Mechanism::Modprobe {
                initramfs: Some(Initramfs::Dracut),
            },
        ),
        (
            host("root=x", &["modprobe"]),
            Mechanism::Modprobe { initramfs: None },
        ),
    ] {
        assert_eq!(mechanism(&ground), Ok(wanted), "{ground:?}");
    }
    assert!(mechanism(&Ground::default()).is_err());
    let bootc = Ground {
        ostree: true,
        ..Ground::default()
    };
    assert!(
        mechanism(&bootc)
            .unwrap_err()
            .contains("ostree admin kargs")
    );
}

#[test]
fn an_initramfs_is_built_for_the_kernel_that_will_boot() {
    let of = |tools: &[&str]| {
        Initramfs::of(|tool| tools.contains(&tool)).map(|tool| tool.line("6.18.9"))
    };
    assert_eq!(
        of(&["dracut"]).as_deref(),
        Some("dracut --force --kver 6.18.9")
    );
    assert_eq!(
        of(&["update-initramfs", "dracut"]).as_deref(),
        Some("update-initramfs -u -k 6.18.9")
    );
    assert_eq!(of(&["mkinitcpio"]).as_deref(), Some("mkinitcpio -P"));
    assert_eq!(of(&[]), None);
}

#[test]
fn lines_of_tools_are_run_and_can_be_taken_back() {
    let lines = |found: Vec<tools::Line>| -> Vec<(String, String)> {
        found
            .into_iter()
            .map(|line| (line.line, line.undo))
            .collect()
    };
    assert_eq!(
        lines(tools::grubby(&pages(), "ro ttm.pages_limit=7")),
        [(
            "grubby --update-kernel=ALL --args=ttm.pages_limit=31457280".into(),
            "grubby --update-kernel=ALL --args=ttm.pages_limit=7".into()
        )]
    );
    assert_eq!(
        lines(tools::grubby(&pages(), "ro")),
        [(
            "grubby --update-kernel=ALL --args=ttm.pages_limit=31457280".into(),
            "grubby --update-kernel=ALL --remove-args=ttm.pages_limit".into()
        )]
    );
    assert_eq!(
        lines(tools::ostree(&pages(), "ro ttm.pages_limit=7")),
        [(
            "rpm-ostree kargs --delete-if-present=ttm.pages_limit=7 --append-if-missing=ttm.pages_limit=31457280".into(),
            "rpm-ostree kargs --delete-if-present=ttm.pages_limit=31457280 --append-if-missing=ttm.pages_limit=7".into()
        )]
    );
    assert!(tools::ostree(&pages(), "ttm.pages_limit=31457280").is_empty());
    let hand = tools::nixos(&pages()).join("\n");
    assert!(
        hand.contains("boot.kernelParams = [ \"ttm.pages_limit=31457280\" ];"),
        "{hand}"
    );
    let text = "boot.kernelParams = [\n \"quiet\" # \"no\"\n \"a=\\\"b\\\"\"\n];\nx = [ \"y\" ];\n";
    assert_eq!(tools::nixos_parameters(text), ["quiet", "a=\"b\""]);
    let plist = tools::macos_plist(117_760);
    assert!(plist.contains("<string>iogpu.wired_limit_mb=117760</string>"));
    assert_eq!(tools::macos_limit(&plist), Some(117_760));
    assert_eq!(
        tools::macos_now(1024, 0).undo,
        "/usr/sbin/sysctl iogpu.wired_limit_mb=0"
    );
}

#[test]
fn a_change_writes_files_and_runs_what_they_need_and_is_empty_when_all_is_so() {
    let mut ground = with_grub(
        host(BY_GRUB, &["update-grub"]),
        "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n",
    );
    let way = mechanism(&ground).unwrap();
    let made = change(&ground, &way, &pages()).unwrap();
    assert_eq!(made.files.len(), 1);
    assert_eq!(made.files[0].path, "/etc/default/grub");
    assert_eq!(made.lines[0].line, "update-grub");
    ground.grub[0].text = made.files[0].after.clone();
    assert!(change(&ground, &way, &pages()).unwrap().is_empty());

    let mut ground = with_cmdline(with_entry(host(BY_EFI, &[])));
    let made = change(&ground, &Mechanism::Entries, &pages()).unwrap();
    assert_eq!(made.files.len(), 2);
    assert!(made.lines.is_empty());
    ground.kernel_cmdline = Some(File::new("/etc/kernel/cmdline", "title x\nlinux /v\n"));
    let (path, refusal) = change(&ground, &Mechanism::Entries, &pages()).unwrap_err();
    assert!(
        refusal.of(&path).starts_with("/etc/kernel/cmdline:1: "),
        "{}",
        refusal.of(&path)
    );

    let mut beside = with_entry(host(BY_EFI, &["modprobe"]));
    beside.entries.extend([
        File::new(
            "/boot/loader/entries/windows.conf",
            "title Windows 11\nefi /EFI/Microsoft/Boot/bootmgfw.efi\noptions x\n",
        ),
        File::new(
            "/boot/loader/entries/memtest.conf",
            "title Memtest86+\nlinux /memtest86+/memtest.efi\n",
        ),
        File::new(
            "/boot/loader/entries/uki.conf",
            "title Arch\nuki /EFI/Linux/arch.efi\n",
        ),
    ]);
    assert_eq!(mechanism(&beside), Ok(Mechanism::Entries));
    let made = change(&beside, &Mechanism::Entries, &pages()).unwrap();
    let paths: Vec<&str> = made.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["/boot/loader/entries/a.conf"]);
    beside.entries.remove(0);
    assert_eq!(
        mechanism(&beside),
        Ok(Mechanism::Modprobe { initramfs: None })
    );
    beside.tools.clear();
    assert!(mechanism(&beside).is_err());

    let fedora = with_entry(host(BY_GRUB, &["grubby"]));
    let made = change(&fedora, &Mechanism::Grubby, &pages()).unwrap();
    assert_eq!(made.keep, ["/boot/loader/entries/a.conf"]);
    assert_eq!(made.lines.len(), 1);
    let nixos = host(BY_EFI, &[]);
    assert_eq!(
        change(&nixos, &Mechanism::NixOs, &pages())
            .unwrap()
            .hand
            .len(),
        2
    );
    let done = host("ttm.pages_limit=31457280", &[]);
    assert!(
        change(&done, &Mechanism::NixOs, &pages())
            .unwrap()
            .is_empty()
    );
}

#[test]
fn options_of_modules_are_changed_where_they_count_else_in_a_file_of_our_own() {
    let way = Mechanism::Modprobe {
        initramfs: Some(Initramfs::Mkinitcpio),
    };
    let mut ground = host("root=x", &["modprobe"]);
    let made = change(&ground, &way, &pages()).unwrap();
    assert_eq!(made.files[0].path, OWN);
    assert_eq!(made.files[0].before, None);
    assert_eq!(made.files[0].after, "options ttm pages_limit=31457280\n");
    assert_eq!(made.lines[0].line, "mkinitcpio -P");

    // Written, and not built into the image since; another file that is newer is not ours to build.
    ground.modprobe = vec![File::new(OWN, &made.files[0].after)];
    let lines = |ground: &Ground| change(ground, &way, &pages()).unwrap().lines;
    assert!(lines(&ground).is_empty());
    ground.newer = vec!["/etc/modprobe.d/other.conf".into()];
    assert!(lines(&ground).is_empty());
    ground.newer.push(OWN.into());
    assert_eq!(lines(&ground)[0].line, "mkinitcpio -P");

    ground.modprobe = vec![
        File::new("/etc/modprobe.d/a.conf", "options ttm pages_limit=1\n"),
        File::new("/etc/modprobe.d/b.conf", "options ttm pages_limit=2\n"),
    ];
    let made = change(&ground, &way, &pages()).unwrap();
    assert_eq!(made.files.len(), 1);
    assert_eq!(made.files[0].path, "/etc/modprobe.d/b.conf");

    ground.modprobe = vec![File::new(
        "/usr/lib/modprobe.d/z.conf",
        "options ttm pages_limit=2\n",
    )];
    let (path, refusal) = change(&ground, &way, &pages()).unwrap_err();
    assert!(path.starts_with("/usr/lib") && refusal.hand.is_some());
}

#[test]
fn names_that_no_module_knows_lead_to_the_right_ones() {
    for (wrong, right) in [
        ("amdgpu.gtt_size", Some("amdgpu.gttsize")),
        ("amdttm.pagpage_pool_size", Some("amdttm.page_pool_size")),
        ("ttm.page_limit", Some("ttm.pages_limit")),
        ("ttm_pages_limit", Some("ttm.pages_limit")),
        ("ttm.pages-limit", None),
        ("ttm.pages_limit", None),
        ("amdgpu.gttsize", None),
        ("amdgpu.cwsr_enable", None),
        ("amdgpu.something_quite_new", None),
        ("i915.enable_guc", None),
        ("quiet", None),
    ] {
        assert_eq!(names::meant(wrong).as_deref(), right, "{wrong}");
    }
}

#[test]
fn what_is_set_wrongly_is_said() {
    let mut ground = host("quiet amdgpu.gtt_size=122880", &[]);
    let said = faults(&ground).join("\n");
    assert!(said.contains("amdgpu.gttsize is meant"), "{said}");

    ground.command_line = "amdgpu.gttsize=131072 ttm.pages_limit=31457280".into();
    ground.modprobe = vec![File::new(
        "/etc/modprobe.d/x.conf",
        "options amdgpu gttsize=122800\noptions ttm pages_limit=31457280\n",
    )];
    ground.module = Some("amdttm".into());
    let said = faults(&ground);
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(
        said[0].contains("131072 in /proc/cmdline and 122800 in /etc/modprobe.d/x.conf"),
        "{said:?}"
    );
    assert!(said[1].contains("both set"), "{said:?}");
    assert!(
        said[2].contains("amdttm.pages_limit is what counts"),
        "{said:?}"
    );
    ground.module = Some("ttm".into());
    ground.command_line = "ttm.pages_limit=31457280".into();
    ground.modprobe.clear();
    assert!(faults(&ground).is_empty());
}

#[test]
fn the_live_module_decides_the_name_and_only_our_own_other_size_goes() {
    let mut ground = host("amdgpu.gttsize=131072", &[]);
    let said = wish(&ground, 5, &[], None).unwrap_err();
    assert!(
        said.contains("set in /proc/cmdline, and windlass did not set it"),
        "{said}"
    );
    let waits = Some(("/etc/default/grub", "131072".to_owned()));
    let said = wish(&host("quiet", &[]), 5, &[], waits).unwrap_err();
    assert!(said.contains("set in /etc/default/grub"), "{said}");
    let both = wish(&host("quiet", &[]), 5, &[], None).unwrap();
    assert_eq!(both.words(), "ttm.pages_limit=5 amdttm.pages_limit=5");
    assert!(both.remove.is_empty());
    ground.module = Some("amdttm".into());
    let ours = [Parameter::new("amdgpu.gttsize", "131072")];
    let one = wish(&ground, 5, &ours, None).unwrap();
    assert_eq!(one.words(), "amdttm.pages_limit=5");
    assert_eq!(one.remove, ["amdgpu.gttsize"]);
}

#[test]
fn sizes_leave_room_for_the_system() {
    const GIB: u64 = 1 << 30;
    // Figures that people set: 96, 120 and 124 GiB.
    for (gib, pages) in [(96, 25_165_824), (120, 31_457_280), (124, 32_505_856)] {
        assert_eq!(size::pages(gib * GIB, 4096), pages);
        assert_eq!(size::of_pages(pages, 4096), Some(gib * GIB));
    }
    assert_eq!(size::pages(120 * GIB, 65_536), 1_966_080);
    let ram = 134_108_676_096; // 124.9 GiB
    assert_eq!(size::usual(ram), Ok(117 * GIB));
    assert_eq!(size::usual(32 * GIB), Ok(28 * GIB));
    assert!(size::usual(4 * GIB).is_err());
    assert_eq!(size::fits(120 * GIB, ram), Ok(()));
    assert!(size::fits(124 * GIB, ram).unwrap_err().contains("122GiB"));
    assert!(size::fits(0, ram).is_err());
    assert_eq!(size::mebibytes(115 * GIB), 117_760);
}
