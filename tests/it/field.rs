//! What people met on machines like these: facts in that shape go through the pure code, and the
//! sentence that would have warned them comes out.

use std::net::IpAddr;

use windlass::deploy::remote::conditions;
use windlass::deploy::remote::links::pairs::{end, other_way};
use windlass::deploy::remote::links::verdict::{Kind, Measured, judge as judge_link};
use windlass::event::{FailureKind, Status};
use windlass::facts::script::Sections;
use windlass::facts::{Address, Facts, Interface, Settings, Skew};
use windlass::plan::Capacity;
use windlass::provision::boot::Ground;
use windlass::provision::boot::grub::File;
use windlass::provision::drift::{Judged, Seen, judge};
use windlass::provision::memory::look::{self, Card};
use windlass::provision::memory::plan::{pending, plan};
use windlass_wire::link::{Carrier, Packets, Trips};

const GIB: u64 = 1 << 30;

/// Facts of a host that answered with these sections.
fn facts(sections: &[(&str, &str)]) -> Facts {
    let mut text = String::new();
    for (name, lines) in sections {
        text.push_str(&format!("\n#mark {name}\n{lines}\n"));
    }
    text.push_str("\n#mark end\n");
    Facts::parse(&Sections::parse(&text, "#mark").unwrap())
}

/// The GPU of Strix Halo with what the firmware set aside and what it may use of main memory, bytes.
fn halo(vram: u64, gtt: u64) -> String {
    format!(
        "drm\ncard card1\nvendor 0x1002\ndevice 0x1586\ndriver amdgpu\nslot 0000:c6:00.0\n\
         vram_total {vram}\ngtt_total {gtt}\n"
    )
}

const UNAME: &str = "Linux\n6.18.9-200.fc43.x86_64\nx86_64\nhalo\n#1 SMP\n";

/// Hosts, each under its own name, compared with the first.
fn compared(hosts: &[(&str, &Facts, Option<IpAddr>)]) -> Judged {
    let settings = Settings::default();
    let named = |name: &str, facts: &Facts| {
        let mut facts = facts.clone();
        facts.kernel.hostname = Some(name.to_owned());
        facts
    };
    let named: Vec<Facts> = hosts
        .iter()
        .map(|(name, facts, _)| named(name, facts))
        .collect();
    let seen: Vec<Seen<'_>> = hosts
        .iter()
        .zip(&named)
        .map(|((host, _, data), facts)| Seen {
            host,
            facts,
            settings: Some(&settings),
            data: *data,
        })
        .collect();
    judge(hosts[0].0, &seen)
}

fn bad(judged: &Judged) -> Vec<String> {
    judged.bad.iter().map(|bad| bad.words()).collect()
}

/// Why and mend of the row of a subject.
fn row(judged: &Judged, subject: &str, key: Option<&str>) -> String {
    let mut rows = judged.comparison.rows.iter();
    let row = rows.find(|row| row.subject == subject && row.key.as_deref() == key);
    let row = row.unwrap_or_else(|| panic!("no row of {subject}: {:?}", judged.comparison.rows));
    format!("{:?} {}; {}", row.values, row.why, row.mend)
}

fn holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
}

#[test]
fn a_parameter_that_the_driver_does_not_have_fails_verify_and_the_right_name_is_said() {
    let line = "root=/dev/sda1 ro quiet amdgpu.gtt_size=122880";
    let host = facts(&[
        ("uname", UNAME),
        ("command_line", line),
        ("gpus", &halo(GIB / 2, 62 * GIB)),
        (
            "kernel_log",
            "readable\n[    3.6] amdgpu: unknown parameter 'gtt_size' ignored\n",
        ),
    ]);
    let judged = compared(&[("halo1", &host, None)]);
    // It stands on the command line and in the log, and is told once.
    let found = bad(&judged);
    assert_eq!(found.len(), 1, "{found:?}");
    holds(
        &found[0],
        &[
            "amdgpu.gtt_size 122880",
            "/proc/cmdline",
            "ignored in silence",
            "amdgpu.gttsize is meant",
            "windlass memory set",
        ],
    );
    assert_eq!(judged.failure().unwrap().kind, FailureKind::Drift);
    assert_eq!(judged.verdict("halo1").0, Status::Failed);

    // The log alone, where the name came from a file that could not be read.
    let host = facts(&[(
        "kernel_log",
        "readable\n[    3.6] amdgpu: unknown parameter 'gtt_size' ignored\n",
    )]);
    let found = bad(&compared(&[("halo1", &host, None)]));
    assert_eq!(found.len(), 1, "{found:?}");
    holds(&found[0], &["amdgpu.gtt_size", "correct the name"]);

    // And by who sets the memory.
    let seen = look::Seen {
        ground: Ground {
            tools: vec!["update-grub".into()],
            command_line: line.into(),
            grub: vec![File::new(
                "/etc/default/grub",
                "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet amdgpu.gtt_size=122880\"\n",
            )],
            module: Some("ttm".into()),
            ..Ground::default()
        },
        ram: Some(124 * GIB),
        page: 4096,
        cards: vec![Card {
            name: "card1".into(),
            driver: Some("amdgpu".into()),
            gtt: Some(62 * GIB),
        }],
        ..look::Seen::default()
    };
    let said = plan(&seen, Some(110 * GIB), None).unwrap().said.join("\n");
    holds(
        &said,
        &["amdgpu.gtt_size=122880", "amdgpu.gttsize is meant"],
    );
}

#[test]
fn a_fixed_firmware_package_does_not_hide_the_broken_firmware_that_is_loaded() {
    let host = |mes: &str| {
        facts(&[
            ("uname", UNAME),
            ("gpus", &halo(GIB / 2, 112 * GIB)),
            (
                "named_packages",
                "installed amd-gpu-firmware 20260110-1.fc43",
            ),
            (
                "firmware",
                &format!(
                    "loaded card1\nMES_KIQ feature version: 6, firmware version: 0x0000006f\n\
                     MES feature version: 1, firmware version: {mes}\n"
                ),
            ),
        ])
    };
    let (good, stale) = (host("0x00000080"), host("0x00000083"));
    let judged = compared(&[("halo1", &good, None), ("halo2", &stale, None)]);
    let found = bad(&judged);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(judged.bad[0].host, "halo2");
    holds(
        &found[0],
        &[
            "mes 0x83",
            "whatever the package says",
            "initramfs",
            "for the kernel that will boot",
            "rpm-ostree initramfs",
        ],
    );
    // Apart from what is known of it, the two are not the same machine.
    let row = row(&judged, "loaded_firmware", Some("mes"));
    holds(&row, &["0x80", "0x83", "dracut -f --kver"]);
    // Another chip has other numbers.
    let other = facts(&[
        (
            "gpus",
            "drm\ncard card1\nvendor 0x1002\ndevice 0x150e\nslot 0000:c6:00.0\n",
        ),
        (
            "firmware",
            "loaded card1\nMES feature version: 1, firmware version: 0x00000083\n",
        ),
    ]);
    assert_eq!(bad(&compared(&[("kunit", &other, None)])), [""; 0]);
}

#[test]
fn pools_that_add_up_to_more_than_there_is_are_capped_and_told() {
    let ram = 31 * GIB;
    let host = facts(&[
        ("uname", UNAME),
        ("memory", &format!("MemTotal: {} kB", ram / 1024)),
        (
            "gpus",
            &format!(
                "{}gc_major 11\ngc_minor 5\ngc_revision 1\n",
                halo(96 * GIB, 105 * GIB)
            ),
        ),
    ]);
    // Never the sum, and no more than there is of either.
    assert_eq!(host.gpus.as_ref().unwrap()[0].usable_bytes, Some(96 * GIB));
    let found = bad(&compared(&[("halo1", &host, None)])).join("\n");
    holds(
        &found,
        &[
            "gpu_shared_memory 105.0 GiB",
            "more main memory than the 31.0 GiB",
            "do not add up",
            "512 MB",
        ],
    );
}

#[test]
fn page_cache_counts_as_memory_that_can_be_had() {
    let meminfo = format!(
        "MemTotal: {} kB\nMemFree: {} kB\nMemAvailable: {} kB\n",
        119 << 20,
        5 << 20,
        100 << 20
    );
    let host = facts(&[("uname", UNAME), ("memory", &meminfo)]);
    holds(&host.headline(), &["100.0 GiB available"]);
    let available = host.memory.available_bytes.unwrap();
    let capacity = Capacity::of("spark", available, None, 20);
    assert_eq!(capacity.usable_bytes, 100 * GIB);
}

#[test]
fn a_line_of_the_log_about_memory_fails_no_host() {
    let quiet = facts(&[("uname", UNAME), ("kernel_log", "readable\n")]);
    let loud = facts(&[
        ("uname", UNAME),
        (
            "kernel_log",
            "readable\n[ 77.1] NVRM: made up: Out of memory [NV_ERR_NO_MEMORY] (0x51)\n",
        ),
    ]);
    assert_eq!(loud.kernel_log.as_ref().map(Vec::len), Some(1));
    let judged = compared(&[("spark1", &quiet, None), ("spark2", &loud, None)]);
    assert_eq!(judged.failure().map(|failure| failure.message), None);
    assert_eq!(judged.verdict("spark2"), (Status::Ok, "as spark1".into()));
}

/// An interface that is up, with one address.
fn interface(name: &str, speed: u32, ip: &str) -> Interface {
    Interface {
        name: name.into(),
        up: Some(true),
        device: true,
        speed_mbit: Some(speed),
        mtu_bytes: Some(1500),
        addresses: vec![Address {
            ip: ip.parse().unwrap(),
            prefix: Some(16),
            dynamic: None,
        }],
        ..Interface::default()
    }
}

fn cabled(boot: &str, interfaces: Vec<Interface>) -> Facts {
    let mut facts = Facts {
        interfaces: Some(interfaces),
        ..Facts::default()
    };
    facts.machine.boot_id = Some(boot.into());
    facts
}

#[test]
fn a_fast_card_that_came_up_badly_is_found_by_measuring_and_not_by_what_it_says() {
    let host = |boot: &str, ip: &str| cabled(boot, vec![interface("enp1s0f0np0", 200_000, ip)]);
    let (one, two) = (host("b1", "10.10.0.1"), host("b2", "10.10.0.2"));
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let from = end("spark1", &one, ip("10.10.0.1"), None);
    let to = end("spark2", &two, ip("10.10.0.2"), None);
    assert_eq!(judge_link(&from, &to, None, None), []);
    let carrier = || {
        vec![Carrier {
            interface: "enp1s0f0np0".into(),
            received: 600,
            sent: 600,
            ..Carrier::default()
        }]
    };
    let measured = Measured {
        trips: Trips {
            count: 1000,
            least: 20.0,
            median: 25.0,
            p99: 40.0,
        },
        packets: Packets {
            own: Some(1500),
            back: Some(1500),
            there: Some(1500),
            answered: true,
        },
        there_mbit: 12_900.0,
        back_mbit: 13_100.0,
        bytes: 1000,
        carriers: [carrier(), carrier()],
    };
    let found = judge_link(&from, &to, Some(&measured), None);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].kind, Kind::FarBelow);
    holds(
        &found[0].message,
        &["12.9 Gb/s", "200 Gb/s", "take its power away", "LnkSta"],
    );
}

#[test]
fn a_cable_with_link_local_addresses_alone_is_offered() {
    let host = |boot: &str, n: u8| {
        cabled(
            boot,
            vec![
                interface("en0", 1_000, &format!("192.168.1.{n}")),
                interface("en5", 40_000, &format!("169.254.7.{n}")),
            ],
        )
    };
    let (one, two) = (host("b1", 1), host("b2", 2));
    let ip = |n: u8| Some(IpAddr::from([192, 168, 1, n]));
    let mut from = end("mac1", &one, ip(1).unwrap(), ip(1));
    let mut to = end("mac2", &two, ip(2).unwrap(), ip(2));
    other_way((&mut from, &mut to), (&one, &two));
    let found = judge_link(&from, &to, None, None);
    let told = found
        .iter()
        .find(|finding| finding.kind == Kind::SharesControl);
    holds(&told.unwrap().message, &["en5", "169.254.7."]);
}

#[test]
fn data_that_falls_onto_a_tunnel_is_told_on_all_hosts_though_they_are_the_same() {
    let mut tunnel = interface("tailscale0", 0, "100.64.0.1");
    tunnel.kind = Some(windlass::facts::link::Kind::Overlay);
    tunnel.speed_mbit = None;
    let host = cabled("b1", vec![tunnel]);
    let data: IpAddr = "100.64.0.1".parse().unwrap();
    let found = bad(&compared(&[("mac1", &host, Some(data))]));
    assert_eq!(found.len(), 1, "{found:?}");
    holds(
        &found[0],
        &["data_kind overlay", "never quicker", "windlass net"],
    );
}

#[test]
fn the_one_host_whose_disk_is_too_small_is_told_with_its_figures_before_anything_is_sent() {
    let shard = 110 * GIB;
    let free = [399_u64, 255, 28, 288, 915, 684, 1229];
    let refused: Vec<String> = free
        .iter()
        .filter_map(|gib| conditions::disk("/var/lib/windlass", shard, Some(gib * GIB)))
        .map(|breach| breach.message)
        .collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    holds(
        &refused[0],
        &[
            "/var/lib/windlass has 30.1 GB free",
            "118.2 GB are needed",
            "memory_limit",
        ],
    );
}

#[test]
fn a_clock_that_is_behind_is_told_before_a_certificate_is_not_yet_valid() {
    let host = |seconds: i64| {
        let mut facts = facts(&[("uname", UNAME)]);
        facts.clock.skew = Some(Skew {
            ahead_ns: seconds * 1_000_000_000,
            uncertain_ns: 2_000_000,
        });
        facts
    };
    let (right, late) = (host(0), host(-600));
    let judged = compared(&[("spark1", &right, None), ("spark2", &late, None)]);
    let row = row(&judged, "clock", None);
    holds(
        &row,
        &[
            "599998 ms off",
            "certificate is not yet valid",
            "synchronisation",
        ],
    );
    // Not in sync by who keeps it, and within what is sure: no word.
    let near = host(1);
    let judged = compared(&[("spark1", &right, None), ("spark2", &near, None)]);
    assert!(judged.failure().is_none());
    let breach = conditions::clock(Some(-600.0), 0.002).unwrap();
    holds(
        &breach.message,
        &["600.0 s behind", "timedatectl set-ntp true"],
    );
}

#[test]
fn what_a_login_prints_is_not_taken_for_facts() {
    let banner = "Welcome to mini!\r\nARCH=mini\n#mark uname\nPlan9\nBECOME-SUCCESS-xyz\n";
    let answer = "\n#mark-7f3a uname\nLinux\n6.18.9\nx86_64\nhalo1\n#1 SMP\n\n#mark-7f3a end\n";
    let text = format!("{banner}{answer}Broadcast message from root\n");
    let facts = Facts::parse(&Sections::parse(&text, "#mark-7f3a").unwrap());
    assert_eq!(facts.system.as_deref(), Some("linux"));
    assert_eq!(facts.kernel.hostname.as_deref(), Some("halo1"));
    assert_eq!(facts.arch.as_deref(), Some("x86_64"));
    // Where the answer itself is missing, that is said.
    let said = Sections::parse(banner, "#mark-7f3a").unwrap_err();
    holds(&said, &["gave no answer"]);
}

#[test]
fn an_update_of_the_kernel_on_one_host_alone_is_told_with_the_driver_that_it_lost() {
    let host = |release: &str| {
        facts(&[
            ("uname", &format!("Linux\n{release}\nx86_64\nspark\n#1\n")),
            (
                "drivers",
                "asked\nmodule nvidia\nversion 580.126.09\njudged\ntaint OE\n",
            ),
            (
                "dkms",
                "nvidia/580.126.09, 6.17.0-1032-nvidia, aarch64: installed\n",
            ),
        ])
    };
    let (one, two) = (host("6.17.0-1032-nvidia"), host("7.0.0-1019-nvidia"));
    let judged = compared(&[("spark1", &one, None), ("spark2", &two, None)]);
    holds(
        &row(&judged, "kernel", None),
        &["7.0.0-1019", "make it the one that boots"],
    );
    let found = bad(&judged);
    assert_eq!(found.len(), 1, "{found:?}");
    holds(
        &found[0],
        &[
            "nvidia 580.126.09 not built for the running kernel",
            "dkms autoinstall",
        ],
    );
}

#[test]
fn a_kernel_that_breaks_rdma_is_told_where_rdma_is_used() {
    let host = facts(&[
        ("uname", "Linux\n7.0.0-1019-nvidia\naarch64\nspark\n#1\n"),
        (
            "gpus",
            "drm\ncard card1\nvendor 0x10de\ndevice 0x2e12\ndriver nvidia\n",
        ),
        (
            "rdma",
            "asked\nport rocep1s0f0 1\nstate 4: ACTIVE\nrate 200 Gb/sec (4X HDR)\n",
        ),
    ]);
    let found = bad(&compared(&[("spark1", &host, None)]));
    assert_eq!(found.len(), 1, "{found:?}");
    holds(
        &found[0],
        &["7.0.0-1019-nvidia", "ENOMEM", "6.17.0-1032-nvidia"],
    );
}

#[test]
fn the_iommu_off_on_one_host_alone_is_told_by_its_parameter() {
    let host = |line: &str| facts(&[("uname", UNAME), ("command_line", line)]);
    let (on, off) = (host("ro quiet"), host("ro quiet amd_iommu=off"));
    let judged = compared(&[("halo1", &on, None), ("halo2", &off, None)]);
    holds(
        &row(&judged, "parameters", Some("amd_iommu")),
        &[
            "off",
            "how fast it is reached",
            "set amd_iommu as on the reference",
        ],
    );
    assert_eq!(bad(&judged), [""; 0]);
}

#[test]
fn a_limit_that_waits_for_its_reboot_is_told_and_one_that_the_boot_did_not_take_too() {
    let ground = |line: &str| Ground {
        tools: vec!["update-grub".into()],
        command_line: line.into(),
        grub: vec![File::new(
            "/etc/default/grub",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet ttm.pages_limit=31457280\"\n",
        )],
        module: Some("ttm".into()),
        ..Ground::default()
    };
    let seen = look::Seen {
        ground: ground("BOOT_IMAGE=/vmlinuz quiet"),
        page: 4096,
        ..look::Seen::default()
    };
    assert_eq!(
        pending(&seen),
        ["ttm.pages_limit will be 31457280 after a reboot"]
    );
    // Booted with it, and the module has its own choice all the same.
    let host = facts(&[
        ("uname", UNAME),
        ("command_line", "quiet ttm.pages_limit=31457280"),
        ("gpus", &halo(GIB / 2, 62 * GIB)),
        (
            "gpu_memory",
            "asked\nmodule ttm\npage 4096\npages_limit 16252928\nholder amdgpu\n",
        ),
    ]);
    let found = bad(&compared(&[("halo1", &host, None)]));
    assert_eq!(found.len(), 1, "{found:?}");
    holds(
        &found[0],
        &["asks for 120.0 GiB", "the module has 62.0 GiB", "initramfs"],
    );
}

#[test]
fn memory_that_the_firmware_set_aside_is_told_although_all_hosts_have_it_so() {
    let host = facts(&[("uname", UNAME), ("gpus", &halo(64 * GIB, 31 * GIB))]);
    let judged = compared(&[("halo1", &host, None), ("halo2", &host, None)]);
    let found = bad(&judged);
    assert_eq!(found.len(), 2, "{found:?}");
    holds(
        &found[0],
        &["gpu_own_memory", "set the smallest part aside"],
    );
}
