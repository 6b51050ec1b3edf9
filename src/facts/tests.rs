//! Answers of hosts as fixtures, and the facts that are in them; what a clock's readings mean; and
//! this machine, read by the shells it has.

use std::net::IpAddr;
use std::process::{Command, Stdio};

use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../tests/fixtures/facts/", $name, ".txt"))
    };
}

fn facts(text: &str) -> Facts {
    Facts::parse(&Sections::parse(text, "#facts-fixture").unwrap())
}

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_fedora_host_with_an_integrated_gpu_is_read_whole() {
    let facts = facts(fixture!("strix-halo-fedora"));
    assert_eq!(facts.os.id, text("fedora"));
    assert_eq!((facts.os.version, facts.os.codename), (text("43"), None));
    assert_eq!(facts.os.variant, text("server"));
    assert_eq!(facts.kernel.release, text("6.17.4-200.fc43.x86_64"));
    assert_eq!(facts.kernel.hostname, text("halo1"));
    assert!(
        facts
            .kernel
            .command_line
            .unwrap()
            .ends_with("amdgpu.gttsize=114688")
    );
    assert_eq!(facts.arch, text("x86_64"));
    let libc = facts.libc.clone().unwrap();
    assert_eq!(
        (libc.name.as_str(), &libc.version),
        ("glibc", &text("2.42"))
    );
    assert_eq!(
        (libc.at_least(2, 42), libc.at_least(2, 43)),
        (Some(true), Some(false))
    );
    assert_eq!(
        (libc.at_least(1, 99), libc.at_least(3, 0)),
        (Some(true), Some(false))
    );
    assert_eq!(
        facts.cpu.model,
        text("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S")
    );
    assert_eq!(
        (facts.cpu.cores, facts.cpu.threads, facts.cpu.usable_threads),
        (Some(4), Some(8), Some(8))
    );
    assert_eq!(
        facts.cpu.flags.unwrap(),
        [
            "sse4_2",
            "avx",
            "f16c",
            "fma",
            "avx2",
            "avx_vnni",
            "avx512f",
            "avx512bw",
            "avx512vl",
            "avx512_vnni",
            "avx512_bf16"
        ]
    );
    // 123731968, 98765432 and 117440512 times 1024.
    assert_eq!(facts.memory.total_bytes, Some(126_701_535_232));
    assert_eq!(facts.memory.free_bytes, Some(101_135_802_368));
    assert_eq!(facts.memory.available_bytes, Some(120_259_084_288));
    assert_eq!(facts.clock.unix_ns, Some(1_790_000_000_250_000_000));
    assert_eq!(facts.init.process, text("systemd"));
    assert_eq!(
        (facts.init.systemd, facts.init.systemd_version),
        (Some(true), Some(258))
    );
    assert_eq!(
        (facts.init.user_manager, facts.init.linger),
        (Some(true), Some(true))
    );
    assert!(facts.login.has("sudo") && !facts.login.has("shasum") && !facts.login.is_root());
    assert_eq!(facts.login.groups, ["ai", "wheel", "video", "render"]);
    assert_eq!(facts.machine.product, text("NucBox_EVO-X2"));
    assert_eq!(facts.machine.uptime_seconds, Some(3600.25));
    let gpus = facts.gpus.unwrap();
    assert_eq!(gpus.len(), 1);
    assert_eq!(
        (gpus[0].vendor(), gpus[0].device_id),
        (Some("AMD"), Some(0x1586))
    );
    assert_eq!(
        (gpus[0].vram_total_bytes, gpus[0].gtt_total_bytes),
        (Some(512 << 20), Some(112 << 30))
    );
    assert_eq!(
        (gpus[0].vram_used_bytes, gpus[0].gtt_used_bytes),
        (Some(192 << 20), Some(32 << 20))
    );
    assert_eq!(
        (gpus[0].driver.clone(), gpus[0].slot.clone()),
        (text("amdgpu"), text("0000:c6:00.0"))
    );
}

#[test]
fn room_is_that_of_the_file_system_a_folder_is_on_or_would_be() {
    let facts = facts(fixture!("strix-halo-fedora"));
    let system = facts.room(Room::System).unwrap();
    assert_eq!(system.nearest, text("/var/lib"));
    assert_eq!(
        (system.mount.clone(), system.kind.clone()),
        (text("/"), text("xfs"))
    );
    // 976760832 and 564460544 times 1024.
    assert_eq!(system.total_bytes, Some(1_000_203_091_968));
    assert_eq!(system.free_bytes, Some(578_007_597_056));
    assert_eq!(
        (system.writable, system.read_only, system.no_exec),
        (Some(false), Some(false), Some(false))
    );
    assert_eq!(facts.room(Room::Tmp).unwrap().no_exec, Some(true));
    // A file system filled beyond the reserve shows a negative number.
    assert_eq!(facts.room(Room::User).unwrap().free_bytes, Some(0));
    let asked = facts.room(Room::Asked).unwrap();
    assert_eq!(asked.mount, text("/mnt/big disk"));
    assert_eq!(asked.device, text("//nas/share on top"));
    assert_eq!(
        (asked.kind.clone(), asked.read_only),
        (text("cifs"), Some(true))
    );
    assert_eq!(asked.free_bytes, Some(768_000_000));
}

#[test]
fn interfaces_have_their_addresses_and_speeds() {
    let facts = facts(fixture!("strix-halo-fedora"));
    let (wired, address) = facts.interface_of(ip("192.168.1.11")).unwrap();
    assert_eq!(
        (wired.name.as_str(), address.prefix),
        ("enp191s0", Some(24))
    );
    assert_eq!(
        (wired.up, wired.speed_mbit, wired.mtu_bytes),
        (Some(true), Some(2500), Some(1500))
    );
    assert!(wired.device && !wired.wireless);
    let (cable, address) = facts.interface_of(ip("10.10.0.1")).unwrap();
    assert_eq!(
        (cable.name.as_str(), cable.up, address.prefix),
        ("thunderbolt0", Some(false), None)
    );
    let named = |name: &str| {
        facts
            .interfaces
            .iter()
            .flatten()
            .find(|own| own.name == name)
            .unwrap()
    };
    assert_eq!(
        (
            named("lo").up,
            named("lo").mac.clone(),
            named("lo").addresses.len()
        ),
        (None, None, 2)
    );
    assert_eq!(
        (named("wlp192s0").speed_mbit, named("wlp192s0").wireless),
        (None, true)
    );
    assert!(facts.interface_of(ip("10.10.0.2")).is_none());
}

#[test]
fn listening_sockets_are_told_with_address_and_user() {
    let facts = facts(fixture!("strix-halo-fedora"));
    let listening = facts.listening.unwrap();
    let found: Vec<_> = listening
        .iter()
        .map(|one| (one.port, one.address.to_string(), one.uid))
        .collect();
    assert_eq!(
        found,
        [
            (22, "0.0.0.0".to_owned(), Some(0)),
            (22, "::".to_owned(), Some(0)),
            (8080, "127.0.0.1".to_owned(), Some(1000)),
            (47616, "fe80::2e2:4cff:5dfe:1".to_owned(), Some(990)),
        ]
    );
    let takes = |address: &str, port| listening.iter().any(|one| one.takes(ip(address), port));
    assert!(takes("10.0.0.4", 22) && takes("127.0.0.1", 8080) && takes("0.0.0.0", 8080));
    assert!(!takes("10.0.0.4", 8080) && !takes("127.0.0.1", 47600) && !takes("::1", 8080));
}

#[test]
fn an_arm_processor_is_named_by_its_kinds_of_cores() {
    let facts = facts(fixture!("spark-dgx-arm"));
    assert_eq!(facts.cpu.model, text("10x Cortex-X925, 10x Cortex-A725"));
    assert_eq!((facts.cpu.cores, facts.cpu.threads), (Some(20), Some(20)));
    let flags = facts.cpu.flags.unwrap();
    for flag in ["asimd", "asimddp", "i8mm", "bf16", "sve2"] {
        assert!(flags.iter().any(|own| own == flag), "{flag}");
    }
    assert_eq!(facts.os.build, text("7.3.1"));
    assert_eq!(
        (facts.arch, facts.libc.unwrap().version),
        (text("aarch64"), text("2.39"))
    );
    let gpus = facts.gpus.unwrap();
    assert_eq!(
        (gpus[0].vendor(), gpus[0].vram_total_bytes),
        (Some("NVIDIA"), None)
    );
    // Headings alone: nothing listens.
    assert_eq!(facts.listening, Some(Vec::new()));
    assert_eq!(
        (facts.init.user_manager, facts.init.linger),
        (Some(false), Some(false))
    );
    let data = facts
        .interfaces
        .iter()
        .flatten()
        .find(|own| own.name == "enp1s0f0np0")
        .unwrap();
    assert_eq!(
        (data.speed_mbit, data.mtu_bytes),
        (Some(200_000), Some(9000))
    );
}

#[test]
fn a_small_container_without_ip_or_systemd_is_read_from_proc() {
    let facts = facts(fixture!("alpine-container"));
    let libc = facts.libc.clone().unwrap();
    assert_eq!(
        (libc.name.as_str(), libc.version.clone()),
        ("musl", text("1.2.5"))
    );
    assert_eq!(libc.at_least(2, 17), Some(false));
    assert_eq!(
        (facts.init.systemd, facts.init.systemd_version),
        (Some(false), None)
    );
    assert_eq!(facts.init.process, text("sh"));
    assert_eq!(facts.clock.unix_ns, Some(1_790_000_000_000_000_000));
    assert_eq!(facts.clock.grain_ns, Some(1_000_000_000));
    assert_eq!(facts.cpu.flags, Some(Vec::new()));
    assert_eq!((facts.cpu.cores, facts.cpu.threads), (Some(2), Some(2)));
    let of = |address: &str| {
        let (interface, address) = facts.interface_of(ip(address)).unwrap();
        (interface.name.clone(), address.prefix)
    };
    assert_eq!(of("172.17.0.2"), ("eth0".into(), Some(16)));
    assert_eq!(of("10.5.8.9"), ("eth1".into(), Some(22)));
    assert_eq!(of("127.0.0.1"), ("lo".into(), Some(8)));
    assert_eq!(of("fd00::a2"), ("eth0".into(), Some(64)));
    assert!(facts.interface_of(ip("172.17.255.255")).is_none());
    // Neither table was there.
    assert_eq!((facts.listening, facts.gpus), (None, Some(Vec::new())));
    assert_eq!(facts.machine.machine_id, None);
}

#[test]
fn a_64_bit_kernel_with_32_bit_programs_is_told_by_its_programs() {
    let pi = facts(fixture!("raspberry-32-bit-programs"));
    assert_eq!(pi.kernel.machine, text("aarch64"));
    assert_eq!(pi.arch, text("arm"));
    assert_eq!(pi.cpu.model, text("4x Cortex-A72"));
    assert_eq!(pi.machine.product, text("Raspberry Pi 4 Model B Rev 1.4"));
    let board = facts(fixture!("armv7-board"));
    let libc = board.libc.clone().unwrap();
    assert_eq!(board.arch, text("arm"));
    assert_eq!((libc.name.as_str(), libc.version.clone()), ("glibc", None));
    assert_eq!(libc.at_least(2, 17), None);
    assert_eq!(board.memory.available_bytes, None);
    assert_eq!(board.cpu.model, text("2x Cortex-A7"));
    assert_eq!(board.cpu.flags, Some(vec!["neon".to_owned()]));
    assert!(board.rooms.is_empty() && board.gpus.is_none() && board.interfaces.is_none());
}

#[test]
fn a_mac_gives_basic_answers() {
    let facts = facts(fixture!("mac-studio"));
    assert_eq!(
        (facts.os.id, facts.os.name),
        (text("macos"), text("macOS 26.2"))
    );
    assert_eq!((facts.arch, facts.libc), (text("aarch64"), None));
    assert_eq!(facts.cpu.model, text("Apple M3 Ultra"));
    assert_eq!((facts.cpu.cores, facts.cpu.threads), (Some(32), Some(32)));
    assert_eq!(facts.cpu.flags.unwrap(), ["asimd", "asimddp", "i8mm"]);
    assert_eq!(facts.memory.total_bytes, Some(512 << 30));
    // 1000000 + 500000 + 20000 + 3000 pages of 16384.
    assert_eq!(facts.memory.available_bytes, Some(24_952_832_000));
    assert_eq!((facts.gpus, facts.listening), (None, None));
    let tmp = facts
        .rooms
        .iter()
        .find(|room| room.room == Room::Tmp)
        .unwrap();
    assert_eq!(
        (tmp.mount.clone(), tmp.free_bytes),
        (text("/System/Volumes/Data"), Some(1_536_000_000_000))
    );
    assert_eq!((tmp.kind.clone(), tmp.read_only), (None, None));
    let interfaces = facts.interfaces.unwrap();
    assert_eq!(interfaces.len(), 3);
    assert_eq!(
        (
            interfaces[1].speed_mbit,
            interfaces[1].mtu_bytes,
            interfaces[1].up
        ),
        (Some(10_000), Some(9000), Some(true))
    );
    assert_eq!(interfaces[1].addresses.len(), 2);
    assert_eq!(interfaces[1].addresses[1].prefix, Some(24));
    assert_eq!(
        (interfaces[2].up, interfaces[2].speed_mbit),
        (Some(false), None)
    );
    assert_eq!(facts.init.systemd, Some(false));
}

#[test]
fn a_host_is_told_in_one_line_and_room_is_found_by_folder() {
    let halo = facts(fixture!("strix-halo-fedora"));
    assert_eq!(
        halo.headline(),
        "Fedora Linux 43 (Server Edition), x86_64, 4 cores, 112.0 GiB available"
    );
    assert_eq!(halo.gpu_names(), ["AMD 1586 (amdgpu)"]);
    // 100000 and 2000 kB of two workers.
    assert_eq!(halo.memory.own_bytes, Some(104_448_000));
    assert_eq!(halo.login.sudo, Some(true));
    assert_eq!(halo.login.data_home, text("/home/ai/data"));
    assert_eq!(halo.free_bytes("/var/lib/windlass"), Some(578_007_597_056));
    assert_eq!(halo.free_bytes("/home/other"), Some(0));
    assert_eq!(halo.free_bytes("/homes"), Some(578_007_597_056));
    assert_eq!(halo.disk_total("/tmp/x"), Some(63_350_767_616));
    let board = facts(fixture!("armv7-board"));
    assert_eq!(
        (board.free_bytes("/"), board.login.sudo),
        (None, Some(false))
    );
    assert_eq!(Facts::default().headline(), "nothing is known");
}

#[test]
fn what_is_missing_is_unknown_and_leaves_the_rest_be() {
    let facts = facts(fixture!("bare"));
    let wanted = Facts {
        system: text("linux"),
        ..Facts::default()
    };
    assert_eq!(facts, wanted);
}

#[test]
fn an_answer_cut_off_or_of_another_system_is_no_facts() {
    let reason = |text| Sections::parse(text, "#facts-fixture").unwrap_err();
    assert!(reason(fixture!("cut-off")).contains("cut off"));
    assert!(reason(fixture!("windows-command-line")).contains("no answer"));
    assert!(reason("").contains("no answer"));
}

#[test]
fn facts_come_back_from_json_and_an_older_ones_gaps_are_unknown() {
    let facts = facts(fixture!("strix-halo-fedora"));
    let json = serde_json::to_string(&facts).unwrap();
    assert_eq!(serde_json::from_str::<Facts>(&json).unwrap(), facts);
    assert_eq!(
        serde_json::from_str::<Facts>("{}").unwrap(),
        Facts::default()
    );
}

#[test]
fn of_os_release_any_quotes_and_comments_are_read() {
    let os = |text: &str| {
        let text = format!("\n#m os\n{text}\n#m end\n");
        os::parse(&Sections::parse(&text, "#m").unwrap())
    };
    assert_eq!(
        os("# VERSION_ID=1\nVERSION_ID='2.0'\n").version,
        text("2.0")
    );
    assert_eq!(os("VERSION_ID=\"a \\\"b\\\"\"").version, text("a \"b\""));
    assert_eq!(
        os("VERSION_ID=TEMPLATE_VERSION_ID\nBUILD_ID=rolling").version,
        None
    );
    assert_eq!(os("VERSION_ID=1\nVERSION_ID=2\r\n").version, text("2"));
    assert_eq!(
        os("ID_LIKE=\"rhel centos fedora\"").id_like,
        ["rhel", "centos", "fedora"]
    );
    assert_eq!(os("NAME=\"Some Linux\"").name, text("Some Linux"));
    assert_eq!(os("VERSION_CODENAME=\"\"").codename, None);
}

#[test]
fn skew_is_the_middle_of_what_all_samples_allow() {
    let second = 1_000_000_000_u64;
    let sample = |sent, remote, received, grain| Sample {
        sent_ns: sent,
        remote_ns: remote,
        received_ns: received,
        grain_ns: grain,
    };
    assert_eq!(skew(&[]), None);
    // Asked at 100 s, answered at 100.2 s, the host said 105.1 s: 5 s ahead, give or take 0.1 s.
    let one = sample(100 * second, 105_100_000_000, 100_200_000_000, 1);
    let found = skew(&[one]).unwrap();
    assert_eq!(
        (found.ahead_ns, found.uncertain_ns),
        (5_000_000_000, 100_000_000)
    );
    // A quicker one narrows it: between 4.96 and 5.0 s.
    let two = sample(200 * second, 205 * second, 200_040_000_000, 1);
    let found = skew(&[one, two]).unwrap();
    assert_eq!(
        (found.ahead_ns, found.uncertain_ns),
        (4_980_000_000, 20_000_000)
    );
    // Behind, in whole seconds: the host's 97 is anything up to 98.
    let three = sample(100 * second, 97 * second, 100 * second, second);
    let found = skew(&[three]).unwrap();
    assert_eq!(
        (found.ahead_ns, found.uncertain_ns),
        (-2_500_000_001, 500_000_000)
    );
    // A clock that was set in between: the quickest counts.
    let four = sample(300 * second, 300 * second, 300_010_000_000, 1);
    let found = skew(&[one, four]).unwrap();
    assert_eq!(
        (found.ahead_ns, found.uncertain_ns),
        (-5_000_000, 5_000_000)
    );
    // A sample that ends before it began is none.
    assert_eq!(skew(&[sample(2, 1, 1, 1)]), None);
}

#[test]
fn a_clock_is_off_only_when_the_uncertainty_cannot_explain_it() {
    let skew = |ahead_ns, uncertain_ns| Skew {
        ahead_ns,
        uncertain_ns,
    };
    let second = Duration::from_secs(1);
    assert!(!skew(1_000_000_000, 0).exceeds(second));
    assert!(skew(1_000_000_001, 0).exceeds(second));
    assert!(skew(-1_600_000_000, 500_000_000).exceeds(second));
    assert!(!skew(-1_400_000_000, 500_000_000).exceeds(second));
    assert!(skew(i64::MIN, 0).exceeds(second));
    assert_eq!(skew(5_000_000_000, 1).text(), "5.000 s ahead of ours");
    assert_eq!(skew(-90_000_000, 1).text(), "0.090 s behind ours");
    assert_eq!(skew(-1_000_000, 2_000_000).text(), "within 0.002 s of ours");
}

#[test]
fn a_date_without_fractions_is_read_in_seconds() {
    assert_eq!(clock::reading("12.000000003\n"), Some((12_000_000_003, 1)));
    for text in ["12.%N", "12.N", "12.", "12"] {
        assert_eq!(
            clock::reading(text),
            Some((12_000_000_000, 1_000_000_000)),
            "{text}"
        );
    }
    for text in ["", "date: bad", "-1", "99999999999999999999"] {
        assert_eq!(clock::reading(text), None, "{text}");
    }
}

/// The script's answer by a shell of this machine; `None` when it is not there.
fn by(shell: &[&str]) -> Option<Facts> {
    let mut child = Command::new(shell[0])
        .args(&shell[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let mark = script::mark().unwrap();
    let script = script::script(&mark, Some("/nowhere at/all"));
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, script.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{shell:?}: {output:?}"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    Some(Facts::parse(&Sections::parse(&text, &mark).unwrap()))
}

#[test]
fn every_shell_of_this_machine_reads_the_same_facts() {
    let mut first: Option<Facts> = None;
    for shell in [
        &["sh"][..],
        &["dash"],
        &["bash", "--posix"],
        &["bash"],
        &["busybox", "ash"],
        &["zsh", "--emulate", "sh"],
        &["ksh"],
    ] {
        let Some(mut facts) = by(shell) else {
            eprintln!("skipped: no {shell:?} here");
            continue;
        };
        assert_eq!(facts.system, text("linux"), "{shell:?}");
        assert_eq!(facts.arch, text(std::env::consts::ARCH), "{shell:?}");
        assert!(facts.memory.available_bytes.unwrap() > 0, "{shell:?}");
        assert!(facts.memory.available_bytes <= facts.memory.total_bytes);
        assert!(facts.cpu.threads.unwrap() > 0 && facts.login.uid.is_some());
        assert!(
            facts.room(Room::Root).unwrap().free_bytes.is_some(),
            "{:?}",
            facts.rooms
        );
        assert_eq!(facts.room(Room::Asked).unwrap().folder, "/nowhere at/all");
        assert_eq!(facts.room(Room::Asked).unwrap().nearest, text("/"));
        let loopback = facts.interface_of(ip("127.0.0.1")).unwrap();
        assert_eq!(
            (loopback.0.name.as_str(), loopback.1.prefix),
            ("lo", Some(8))
        );
        // What changes from moment to moment.
        facts.memory = Memory::default();
        facts.clock = Clock::default();
        facts.machine.uptime_seconds = None;
        facts.listening = None;
        facts.interfaces = None;
        facts.tuning = Tuning::default();
        for room in &mut facts.rooms {
            room.free_bytes = None;
        }
        match &first {
            None => first = Some(facts),
            Some(first) => assert_eq!(*first, facts, "{shell:?}"),
        }
    }
    assert!(first.is_some());
}

#[test]
fn a_socket_that_listens_here_is_among_the_facts() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap();
    let facts = by(&["sh"]).unwrap();
    let found = facts.listening.unwrap();
    assert!(
        found.iter().any(|one| one.takes(own.ip(), own.port())),
        "{own}: {found:?}"
    );
}

#[tokio::test]
async fn this_machine_is_read_and_its_clock_is_ours() {
    let session = Session::local("here");
    let facts = gather(&session).await.unwrap();
    assert_eq!(facts.system, text("linux"));
    assert!(facts.room(Room::Asked).is_none());
    let (ahead, uncertain) = facts.clock.skew_seconds();
    assert!(ahead.unwrap().abs() <= uncertain, "{ahead:?} {uncertain}");
    let skew = clock::measure(&session).await.unwrap();
    assert!(!skew.exceeds(Duration::from_secs(1)), "{skew:?}");
}

proptest::proptest! {
    #[test]
    fn no_answer_makes_a_parser_panic(lines in proptest::collection::vec("[ -~\\t]{0,60}", 0..20)) {
        let body = lines.join("\n");
        let names = ["uname", "clock", "os", "dgx", "libc", "shell", "processors", "user", "rooms", "command_line", "cpuinfo", "cores", "memory", "workers", "mounts", "gpus", "interfaces", "ip", "tcp", "tcp6", "init", "machine", "sw_vers", "sysctl", "vm_stat", "ifconfig", "if_inet6", "fib_trie", "route"];
        let answer: String = names.iter().map(|name| format!("\n#m {name}\n{body}")).collect();
        Facts::parse(&Sections::parse(&format!("{answer}\n#m end\n"), "#m").unwrap());
        let darwin = answer.replace("\n#m uname\n", "\n#m uname\nDarwin\n");
        Facts::parse(&Sections::parse(&format!("{darwin}\n#m end\n"), "#m").unwrap());
    }

    #[test]
    fn damaged_answers_make_no_parser_panic(at in 0_usize..6000, byte in 32_u8..127) {
        let mut bytes = fixture!("strix-halo-fedora").as_bytes().to_vec();
        if let Some(slot) = bytes.get_mut(at) {
            *slot = byte;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Ok(sections) = Sections::parse(&text, "#facts-fixture") {
            Facts::parse(&sections);
        }
    }
}
