//! How systems are set up, what their tools say, and what is read from that. The fixtures have a
//! section for each answer.

use std::net::IpAddr;

use super::boot_firmware::FirmwareKind;
use super::link::{self, Kind};
use super::packaging::SystemKind;
use super::tools::{ethtool, free, ip, iperf3, lscpu};
use super::tuning::Limit;
use super::*;

macro_rules! sections {
    ($name:literal) => {
        Sections::parse(
            include_str!(concat!("../../tests/fixtures/facts/", $name, ".txt")),
            "#facts-fixture",
        )
        .unwrap()
    };
}

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn spark() -> Facts {
    Facts::parse(&sections!("spark-system"))
}

fn named<'a>(facts: &'a Facts, name: &str) -> &'a Interface {
    let mut all = facts.interfaces.iter().flatten();
    all.find(|own| own.name == name).unwrap()
}

#[test]
fn a_link_slower_than_its_card_is_told_with_who_limits_it() {
    let facts = spark();
    let wired = named(&facts, "enP7s7");
    assert_eq!(
        (wired.speed_mbit, wired.max_mbit, wired.partner_mbit),
        (Some(1000), Some(10_000), Some(1000))
    );
    assert_eq!(
        (wired.full_duplex, wired.autonegotiation, wired.port.clone()),
        (Some(true), Some(true), text("Twisted Pair"))
    );
    assert_eq!(
        (wired.driver.clone(), wired.driver_version.clone()),
        (text("r8127"), text("11.015.00-NAPI"))
    );
    assert_eq!(
        (wired.master.clone(), wired.firmware_version.clone()),
        (text("br0"), None)
    );
    // ethtool knows better than sysfs.
    let fast = named(&facts, "enp1s0f0np0");
    assert_eq!(
        (fast.speed_mbit, fast.max_mbit),
        (Some(100_000), Some(200_000))
    );
    assert_eq!(fast.firmware_version, text("28.45.4028 (MT_0000000001)"));
    // A card that ethtool was not asked of has what sysfs says.
    let twin = named(&facts, "enP2p1s0f0np0");
    assert_eq!((twin.speed_mbit, twin.max_mbit), (Some(200_000), None));
}

#[test]
fn interfaces_are_told_apart_by_kind() {
    let facts = spark();
    for (name, kind) in [
        ("br0", Kind::Bridge),
        ("enP7s7", Kind::Ethernet),
        ("lo", Kind::Loopback),
        ("tailscale0", Kind::Overlay),
        ("thunderbolt0", Kind::Thunderbolt),
        ("vnet3", Kind::Virtual),
        ("wlP9s9", Kind::Wireless),
    ] {
        assert_eq!(named(&facts, name).kind, Some(kind), "{name}");
    }
    for (name, text, kind) in [
        ("eth0", "type 1\n", Some(Kind::Virtual)),
        ("eth0", "type 1\ndevice\n", Some(Kind::Ethernet)),
        ("ib0", "type 32\ndevice\n", Some(Kind::Infiniband)),
        (
            "office",
            "devtype wireguard\ntype 65534\n",
            Some(Kind::Overlay),
        ),
        (
            "ztabcdef12",
            "type 1\ntun_flags 0x1002\n",
            Some(Kind::Overlay),
        ),
        ("x", "type 1\ntun_flags what\n", Some(Kind::Virtual)),
        ("bond0", "devtype bond\ntype 1\n", Some(Kind::Bond)),
        ("eth0.5", "devtype vlan\ntype 1\n", Some(Kind::Vlan)),
        ("docker0", "type 1\n", Some(Kind::Bridge)),
        ("mystery", "", None),
        ("mystery", "device\n", Some(Kind::Ethernet)),
    ] {
        assert_eq!(link::kind(name, text), kind, "{name} {text}");
    }
    for (name, kind) in [
        ("lo0", Some(Kind::Loopback)),
        ("utun12", Some(Kind::Overlay)),
        ("wg-home", Some(Kind::Overlay)),
        ("wgood", None),
        ("wlp3s0", Some(Kind::Wireless)),
        ("br-12ab", Some(Kind::Bridge)),
        ("bridge100", Some(Kind::Bridge)),
        ("broken", None),
        ("enP2p1s0f0np0", Some(Kind::Ethernet)),
        ("", None),
    ] {
        assert_eq!(link::by_name(name), kind, "{name}");
    }
}

#[test]
fn addresses_of_one_link_may_carry_and_overlays_and_loopback_may_not() {
    let facts = spark();
    let may = |name: &str| {
        let interface = named(&facts, name);
        let mut all = interface.addresses.iter();
        all.any(|address| interface.may_carry(address))
    };
    assert!(may("thunderbolt0") && may("enp1s0f0np0") && may("br0"));
    assert!(!may("tailscale0") && !may("lo"));
    let given = named(&facts, "br0").addresses[0].dynamic;
    let fixed = named(&facts, "thunderbolt0").addresses[0].dynamic;
    assert_eq!((given, fixed), (Some(true), Some(false)));
}

#[test]
fn an_address_on_two_interfaces_is_marked_on_both() {
    let facts = spark();
    // Not those of one link, which are each interface's own, nor the overlay's.
    for (name, repeated) in [
        ("enp1s0f0np0", vec![address("10.77.0.7")]),
        ("enP2p1s0f0np0", vec![address("10.77.0.7")]),
        ("tailscale0", Vec::new()),
        ("br0", Vec::new()),
    ] {
        assert_eq!(named(&facts, name).repeated, repeated, "{name}");
    }
}

#[test]
fn firmware_and_kernels_are_told() {
    let facts = spark();
    assert_eq!(facts.boot_firmware.kind, Some(FirmwareKind::Uefi));
    assert_eq!(facts.boot_firmware.secure_boot, Some(true));
    for (answer, kind, secure) in [
        ("kind bios\n", Some(FirmwareKind::Bios), Some(false)),
        (
            "kind device_tree\n",
            Some(FirmwareKind::DeviceTree),
            Some(false),
        ),
        (
            "kind uefi\nsecure_boot 6 0 0 0 0\n",
            Some(FirmwareKind::Uefi),
            Some(false),
        ),
        (
            "kind uefi\nsecure_boot 6 0 0\n",
            Some(FirmwareKind::Uefi),
            None,
        ),
        ("kind uefi\n", Some(FirmwareKind::Uefi), None),
        ("", None, None),
    ] {
        let found = boot_firmware::parse(answer);
        assert_eq!((found.kind, found.secure_boot), (kind, secure), "{answer}");
    }
    let kernels: Vec<_> = facts
        .kernels
        .as_ref()
        .unwrap()
        .iter()
        .map(|one| (one.release.as_str(), one.modules, one.image, one.running))
        .collect();
    assert_eq!(
        kernels,
        [
            ("6.8.0-1040-nvidia-64k", true, false, false),
            ("6.17.0-1009-nvidia", true, true, false),
            ("6.17.0-1021-nvidia", true, true, true),
            ("6.17.0-1030-nvidia", false, true, false),
        ]
    );
    // Images named after their package, and one that runs though its modules are gone.
    let arch = kernels::parse(
        Some("asked\nmodules 6.17.5-arch1-1\npackage linux\nimage vmlinuz-linux\nimage vmlinuz-linux-lts\n"),
        Some("6.17.1-arch1-1"),
    )
    .unwrap();
    let arch: Vec<_> = arch
        .iter()
        .map(|one| (one.release.as_str(), one.modules, one.image, one.running))
        .collect();
    assert_eq!(
        arch,
        [
            ("6.17.1-arch1-1", false, false, true),
            ("6.17.5-arch1-1", true, true, false),
        ]
    );
    assert_eq!(kernels::parse(None, Some("1")), None);
    assert_eq!(kernels::parse(Some("\n"), Some("1")), None);
}

#[test]
fn each_distribution_is_known_with_how_it_is_made() {
    let all = sections!("os-releases");
    let read = |name: &str| {
        let own = format!("\n#m os\n{}\n#m end\n", all.get(name));
        let os = os::parse(&Sections::parse(&own, "#m").unwrap());
        let kind = packaging::parse(Some("asked\n"), &os).system_kind;
        (os, kind)
    };
    for (name, id, version, codename, like, kind) in [
        (
            "debian",
            "debian",
            text("12"),
            text("bookworm"),
            "",
            SystemKind::Ordinary,
        ),
        (
            "ubuntu",
            "ubuntu",
            text("26.04"),
            text("resolute"),
            "debian",
            SystemKind::Ordinary,
        ),
        (
            "fedora",
            "fedora",
            text("43"),
            None,
            "",
            SystemKind::Ordinary,
        ),
        (
            "kinoite",
            "fedora",
            text("43"),
            None,
            "",
            SystemKind::Ostree,
        ),
        (
            "image",
            "bluefin",
            text("42"),
            None,
            "fedora",
            SystemKind::Ostree,
        ),
        ("arch", "arch", None, None, "", SystemKind::Ordinary),
        (
            "cachyos",
            "cachyos",
            None,
            None,
            "arch",
            SystemKind::Ordinary,
        ),
        (
            "nixos",
            "nixos",
            text("25.11"),
            text("xantusia"),
            "",
            SystemKind::Nixos,
        ),
        (
            "tumbleweed",
            "opensuse-tumbleweed",
            text("20251101"),
            None,
            "opensuse suse",
            SystemKind::Ordinary,
        ),
        (
            "leap",
            "opensuse-leap",
            text("16.0"),
            None,
            "suse opensuse",
            SystemKind::Ordinary,
        ),
    ] {
        let (os, found) = read(name);
        assert_eq!(os.id, text(id), "{name}");
        assert_eq!((os.version, os.codename), (version, codename), "{name}");
        assert_eq!(os.id_like.join(" "), like, "{name}");
        assert_eq!(found, Some(kind), "{name}");
    }
    assert_eq!(read("debian").0.full_version, text("12.11"));
    assert_eq!(read("kinoite").0.ostree, text("43.20251101.0"));
    assert_eq!(read("cachyos").0.image_version, text("2025.10.01"));
    assert_eq!(read("nixos").0.image_version, None);
    let own = format!("\n#m dgx\n{}\n#m end\n", all.get("dgx"));
    let dgx = os::parse(&Sections::parse(&own, "#m").unwrap());
    assert_eq!(
        (dgx.build, dgx.made_for),
        (text("7.5.2"), text("DGX Station"))
    );
}

#[test]
fn the_package_manager_is_the_one_the_system_is_made_with() {
    let os = |id: &str| Os {
        id: text(id),
        ..Os::default()
    };
    for (answer, os, manager, kind) in [
        (
            "asked\ntool apt-get\ntool brew\ntool nix\n",
            os("debian"),
            Some("apt"),
            Some(SystemKind::Ordinary),
        ),
        (
            "asked\ntool dnf\ntool yum\n",
            os("fedora"),
            Some("dnf"),
            Some(SystemKind::Ordinary),
        ),
        (
            "asked\ntool rpm-ostree\ntool dnf\nostree\n",
            os("fedora"),
            Some("rpm-ostree"),
            Some(SystemKind::Ostree),
        ),
        (
            "asked\ntool nix\nnixos\n",
            os("nixos"),
            Some("nix"),
            Some(SystemKind::Nixos),
        ),
        (
            "asked\ntool transactional-update\ntool zypper\n",
            os("opensuse-microos"),
            Some("zypper"),
            Some(SystemKind::Transactional),
        ),
        (
            "asked\ntool brew\n",
            os("macos"),
            Some("brew"),
            Some(SystemKind::Ordinary),
        ),
        ("asked\n", os("lfs"), None, Some(SystemKind::Ordinary)),
        ("", os("debian"), None, None),
    ] {
        let found = packaging::parse(Some(answer), &os);
        assert_eq!(found.manager.as_deref(), manager, "{answer}");
        assert_eq!(found.system_kind, kind, "{answer}");
    }
    assert_eq!(packaging::parse(None, &Os::default()), Packaging::default());
    assert_eq!(spark().packaging.managers, ["apt", "nix"]);
}

#[test]
fn ways_to_sleep_that_are_open_and_closed_are_told() {
    let sleep = spark().sleep;
    // The target that all ways lead to is masked.
    assert_eq!(sleep.possible, Some(false));
    assert_eq!(sleep.masked, ["sleep", "suspend"]);
    assert_eq!(sleep.lid, Some(true));
    assert_eq!(sleep.lid_switch, text("ignore"));
    assert_eq!(sleep.idle_action, text("ignore"));
    let read = |answer: &str| {
        let own = format!("\n#m sleep\n{answer}\n#m end\n");
        sleep::parse(&Sections::parse(&own, "#m").unwrap())
    };
    for (answer, possible) in [
        ("target sleep\ntarget suspend\n", Some(true)),
        (
            "target sleep\nmasked suspend\nmasked hibernate\n",
            Some(false),
        ),
        (
            "target sleep\ntarget suspend\n/etc/systemd/sleep.conf:AllowSuspend=no\n",
            Some(false),
        ),
        (
            "target sleep\ntarget suspend\n/etc/systemd/sleep.conf.d/a.conf:AllowSuspend=no\n/etc/systemd/sleep.conf.d/b.conf:AllowSuspend=yes\n",
            Some(true),
        ),
        ("lid\n", None),
        ("", None),
    ] {
        assert_eq!(read(answer).possible, possible, "{answer}");
    }
    assert_eq!(read("target sleep\n").lid_switch, None);
    assert_eq!(read("").lid, None);
}

#[test]
fn who_keeps_the_clock_is_told_and_whether_it_is_right() {
    let sync = spark().sync;
    assert_eq!(
        (sync.by, sync.synchronised, sync.stratum),
        (text("chrony"), Some(true), Some(4))
    );
    assert_eq!(sync.offset_seconds, Some(-0.00025));
    assert_eq!(
        (sync.zone, sync.hardware_is_local),
        (text("Europe/Vienna"), Some(false))
    );
    let read =
        |answer: &str| sync::parse(&Sections::parse(&format!("{answer}\n#m end\n"), "#m").unwrap());
    let sync = read("\n#m sync\nzone Europe/Rome\ntimesyncd\n");
    assert_eq!(
        (sync.by, sync.synchronised, sync.zone),
        (text("systemd-timesyncd"), Some(true), text("Europe/Rome"))
    );
    let sync =
        read("\n#m timedatectl\nNTPSynchronized=no\nTimeUSec=Mon 2026-10-05 10:00:00 CEST\n");
    assert_eq!(
        (sync.by, sync.synchronised, sync.zone),
        (None, Some(false), text("CEST"))
    );
    let sync = read(
        "\n#m ntpq\nassocid=0 status=0615 leap_none, sync_ntp, 1 event,\nversion=\"ntpd\", stratum=3,\noffset=-0.5, frequency=1.0\n",
    );
    assert_eq!(
        (sync.by, sync.synchronised, sync.offset_seconds),
        (text("ntpd"), Some(true), Some(-0.0005))
    );
    let sync = read(
        "\n#m chronyc\nStratum         : 0\nLeap status     : Not synchronised\n\n#m timedatectl\nNTPSynchronized=yes\n",
    );
    assert_eq!(sync.synchronised, Some(false));
    let sync = read("\n#m chronyc\n506 Cannot talk to daemon\n");
    assert_eq!(sync, Sync::default());
}

#[test]
fn sudo_is_told_without_asking_for_a_password() {
    let all = sections!("sudo");
    // Present, anything as root, with a password, only at a terminal.
    for (name, wanted) in [
        ("free", [Some(true), Some(true), Some(false), Some(false)]),
        (
            "password",
            [Some(true), Some(true), Some(true), Some(false)],
        ),
        ("some", [Some(true), Some(false), None, Some(false)]),
        (
            "unauthenticated",
            [Some(true), Some(true), Some(false), Some(true)],
        ),
        (
            "wants_password",
            [Some(true), None, Some(true), Some(false)],
        ),
        ("terminal", [Some(true), None, None, Some(true)]),
        ("forbidden", [Some(true), Some(false), None, None]),
        ("missing", [Some(false), None, None, None]),
        ("root", [None; 4]),
        ("nothing", [Some(true), None, None, None]),
    ] {
        let sudo = sudo::parse(all.get(name));
        let found = [sudo.present, sudo.any_command, sudo.password, sudo.terminal];
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn a_host_is_known_by_its_number_and_its_public_keys() {
    let identity = spark().identity;
    assert_eq!(
        identity.machine_id,
        text("00112233445566778899aabbccddee77")
    );
    let keys: Vec<_> = identity
        .host_keys
        .iter()
        .flatten()
        .map(|key| (key.algorithm.as_str(), key.fingerprint.as_str()))
        .collect();
    // By ssh-keygen -lf.
    assert_eq!(
        keys,
        [
            (
                "ecdsa-sha2-nistp256",
                "SHA256:f/4IWNAzbJqZQhlQBs3x1ZH9s9ayRcDfCitid8wPyWU"
            ),
            (
                "ssh-ed25519",
                "SHA256:aI65l1RAz5/Mx4yyvGMdXc84WlJuTOSv0S4ycfk3iJA"
            ),
        ]
    );
}

#[test]
fn settings_that_matter_for_speed_are_told() {
    let tuning = spark().tuning;
    assert_eq!(tuning.governors, ["performance", "schedutil"]);
    assert_eq!(tuning.platform_profile, text("balanced"));
    assert_eq!(
        (
            tuning.hugepages.total,
            tuning.hugepages.free,
            tuning.hugepages.size_bytes
        ),
        (Some(16), Some(4), Some(2 << 20))
    );
    assert_eq!(tuning.transparent_hugepages, text("madvise"));
    let swaps = tuning.swaps.unwrap();
    assert_eq!(
        (
            swaps[0].name.as_str(),
            swaps[0].zram,
            swaps[0].size_bytes,
            swaps[0].used_bytes,
            swaps[0].priority
        ),
        (
            "/swap.img",
            false,
            Some(17_179_865_088),
            Some(1 << 20),
            Some(-2)
        )
    );
    assert_eq!((swaps.len(), swaps[1].zram), (2, true));
    assert_eq!(
        (tuning.zram_bytes, tuning.zswap),
        (Some(8 << 30), Some(true))
    );
    assert_eq!((tuning.swappiness, tuning.cgroup), (Some(60), Some(2)));
    // 12289 is 1 + 4096 + 8192: proprietary, out of tree, unsigned.
    assert_eq!(tuning.taint, text("POE"));
    assert_eq!(
        tuning.memlock,
        Some(Limit {
            soft: Some(8 << 20),
            hard: None
        })
    );
    assert_eq!(
        tuning.open_files,
        Some(Limit {
            soft: Some(1024),
            hard: Some(1 << 20)
        })
    );
    let none = Facts::parse(&sections!("sudo")).tuning;
    assert_eq!(none, Tuning::default());
}

#[test]
fn a_mac_tells_its_ports_its_sleep_and_its_zone() {
    let facts = Facts::parse(&sections!("mac-mini-office"));
    for (name, kind, speed, duplex) in [
        ("lo0", Some(Kind::Loopback), None, None),
        ("en0", Some(Kind::Ethernet), Some(2500), Some(true)),
        ("en1", Some(Kind::Wireless), None, None),
        ("en2", Some(Kind::Thunderbolt), None, Some(true)),
        ("bridge0", Some(Kind::Bridge), None, None),
        ("utun3", Some(Kind::Overlay), None, None),
    ] {
        let found = named(&facts, name);
        assert_eq!(
            (found.kind, found.speed_mbit, found.full_duplex),
            (kind, speed, duplex),
            "{name}"
        );
    }
    assert_eq!(named(&facts, "en1").repeated, [address("192.168.5.9")]);
    assert_eq!(named(&facts, "utun3").addresses[0].prefix, Some(32));
    assert_eq!(
        (facts.sleep.possible, facts.sleep.after_minutes),
        (Some(true), Some(10))
    );
    assert_eq!(facts.sync.zone, text("America/Lima"));
    assert_eq!(facts.packaging.manager, text("brew"));
    assert_eq!(facts.sudo.password, Some(true));
    assert_eq!((facts.kernels, facts.boot_firmware.kind), (None, None));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in "(?s).{0,400}") {
        every_parser(&text);
    }

    #[test]
    fn no_lines_of_known_words_make_a_parser_panic(
        lines in proptest::collection::vec(
            "(interface x|Settings for|Speed:|Supported link modes:|link/|inet6?|[0-9]:|\\[SUM\\]|\\[ *5\\]|0\\.0-|Gbits/sec|sender|receiver|\\{|\\[|\"end\":|Model name:|Mem:|total free|modules|image vmlinuz-|package|masked|/etc/systemd/logind.conf:|swap Filename|swap|tainted|present|\\(ALL\\)| may run the following commands on |Max locked memory|host_key|stratum=|Stratum|Leap status|-|ALL|: | |\\t|[0-9a-z./=,]{1,9}){0,12}",
            0..16,
        )
    ) {
        every_parser(&lines.join("\n"));
    }

    #[test]
    fn damaged_answers_of_tools_make_no_parser_panic(at in 0_usize..6000, byte in 0_u8..=255) {
        for text in [
            include_str!("../../tests/fixtures/facts/ethtool.txt"),
            include_str!("../../tests/fixtures/facts/ip.txt"),
            include_str!("../../tests/fixtures/facts/iperf3.txt"),
            include_str!("../../tests/fixtures/facts/lscpu.txt"),
            include_str!("../../tests/fixtures/facts/sudo.txt"),
            include_str!("../../tests/fixtures/facts/spark-system.txt"),
        ] {
            let mut bytes = text.as_bytes().to_vec();
            if let Some(slot) = bytes.get_mut(at) {
                *slot = byte;
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            every_parser(&text);
            if let Ok(sections) = Sections::parse(&text, "#facts-fixture") {
                for name in ["json", "json_stream", "full", "brief", "clusters"] {
                    every_parser(sections.get(name));
                }
                Facts::parse(&sections);
            }
        }
    }
}

fn every_parser(text: &str) {
    ethtool::parse(text);
    ip::parse(text);
    iperf3::parse(text).bits_per_second();
    lscpu::parse(text).model();
    free::parse(text);
    sudo::parse(&format!("present\n{text}"));
    sync::timedatectl(text);
    crate::ssh::openssh::read(text).cause();
    crate::ssh::refusal::refusal(text);
    crate::ssh::refusal::asked(text);
    let names = [
        "boot_firmware",
        "kernels",
        "packaging",
        "sleep",
        "pmset",
        "sync",
        "timedatectl",
        "chronyc",
        "ntpq",
        "sudo",
        "identity",
        "tuning",
        "memory",
        "machine",
        "ethtool",
        "ip",
        "interfaces",
        "ifconfig",
        "hardware_ports",
    ];
    for system in ["Linux", "Darwin"] {
        let mut answer = format!("\n#m uname\n{system}\n1\n");
        for name in names {
            answer.push_str(&format!("\n#m {name}\n{text}"));
        }
        if let Ok(sections) = Sections::parse(&format!("{answer}\n#m end\n"), "#m") {
            Facts::parse(&sections);
        }
    }
}
