//! System, network and SSH: what was read from each file, by the names that the index has.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use windlass::facts::link::Kind;
use windlass::facts::script::Sections;
use windlass::facts::tools::{ethtool, free, ip, iperf3, lscpu};
use windlass::facts::{Facts, Interface, clock, packaging, sync};
use windlass::ssh::config::{self, Asked, File, Local, Refusal, Resolved, Source};
use windlass::ssh::fence::Fence;
use windlass::ssh::known_hosts::{KnownHosts, PublicKeyBlob, Verdict};
use windlass::ssh::{openssh, refusal};

use super::SEEN;

/// Findings by name.
#[derive(Default)]
struct Found(BTreeMap<String, String>);

impl Found {
    fn put(&mut self, name: &str, value: impl ToString) {
        self.0.insert(name.to_owned(), value.to_string());
    }

    fn or_none(&mut self, name: &str, value: Option<impl ToString>) {
        self.put(
            name,
            value.map_or("none".to_owned(), |value| value.to_string()),
        );
    }

    /// A finding that is no text to compare; without the condition it is left out and missed.
    fn seen(&mut self, name: &str, holds: bool) {
        self.put(name, if holds { SEEN } else { "not so" });
    }
}

/// What was read; `None` for a folder of another half.
pub fn values(folder: &str, file: &str, text: &str) -> Option<BTreeMap<String, String>> {
    let mut found = Found::default();
    match folder {
        "clock" => clock_values(text, &mut found),
        "ethtool" => ethtool_values(text, &mut found),
        "ip-addr" => addresses(file, text, &mut found),
        "iperf3" => iperf3_values(text, &mut found),
        "known-hosts" => known(text, &mut found),
        "lscpu" => lscpu_values(text, &mut found),
        "meminfo" => memory(text, &mut found),
        "motd-noise" => noise(file, text, &mut found),
        "os-release" => system(file, text, &mut found),
        "ssh-config" => configuration(text, &mut found),
        "ssh-errors" => openssh_words(text, &mut found),
        "sudo" => sudo_words(text, &mut found),
        _ => return None,
    }
    Some(found.0)
}

/// Facts of an answer that has these sections alone.
fn facts(sections: &[(&str, &str)]) -> Facts {
    let mut answer = String::new();
    for (name, text) in sections {
        answer.push_str(&format!("\n#recorded {name}\n{text}"));
    }
    answer.push_str("\n#recorded end\n");
    Facts::parse(&Sections::parse(&answer, "#recorded").unwrap())
}

fn yes(value: Option<bool>, yes: &str, no: &str) -> Option<String> {
    value.map(|value| if value { yes } else { no }.to_owned())
}

fn clock_values(text: &str, found: &mut Found) {
    let epoch = text.lines().find_map(|line| line.strip_prefix("epoch:"));
    let reading = epoch.and_then(clock::reading);
    found.or_none("epoch", reading.map(|(ns, _)| ns / 1_000_000_000));
    let sync = sync::timedatectl(text);
    found.or_none("ntp_synchronized", yes(sync.synchronised, "yes", "no"));
    found.or_none("local zone", sync.zone);
}

fn ethtool_values(text: &str, found: &mut Found) {
    // Several cards, each behind a heading of the caller's.
    if text.starts_with("-- ") {
        for part in text.split("-- ethtool ").skip(1) {
            let (name, text) = part.split_once(" --").unwrap();
            let card = ethtool::parse(text);
            let version = card.driver_version.unwrap_or_default();
            found.put(
                &format!("{name} driver"),
                format!("{} version={version}", card.driver.unwrap_or_default()),
            );
            if let Some(firmware) = card.firmware {
                found.put("firmware", firmware);
            }
        }
        return;
    }
    let card = ethtool::parse(text);
    let fastest = |modes: &[ethtool::Mode]| ethtool::fastest(modes).map(|mode| mode.name.clone());
    found.or_none("speed_mbps", card.speed_mbit);
    found.or_none("duplex", yes(card.full_duplex, "full", "half"));
    found.or_none("link", yes(card.link, "yes", "no"));
    found.or_none("autoneg", yes(card.autonegotiation, "on", "off"));
    found.or_none("port", card.port);
    found.or_none("advertised", fastest(&card.advertised));
    found.or_none("own max", fastest(&card.supported));
    found.or_none("partner max", fastest(&card.partner));
}

fn addresses(file: &str, text: &str, found: &mut Found) {
    if file.starts_with("mac-") {
        let facts = facts(&[("uname", "Darwin\n"), ("ifconfig", text)]);
        let card = facts.interfaces.iter().flatten().next().unwrap();
        let address = card.addresses.iter().find(|own| own.ip.is_ipv4()).unwrap();
        found.put(
            &format!("{} inet", card.name),
            format!("{}/{}", address.ip, address.prefix.unwrap()),
        );
        found.or_none("status", yes(card.up, "active", "inactive"));
        let duplex = yes(card.full_duplex, "full", "half").unwrap();
        let speed = card.speed_mbit.unwrap() / 1000;
        found.put("media", format!("{speed}Gbase-T {duplex}-duplex"));
        return;
    }
    let links = ip::parse(text);
    for link in &links {
        let state = link.state.clone().unwrap_or_default();
        let mtu = link.mtu_bytes.unwrap_or_default();
        if text.starts_with('[') {
            let up = if link.set_up == Some(true) {
                "UP"
            } else {
                "not up"
            };
            found.put(
                &format!("{} mtu", link.name),
                format!("{mtu}, operstate={state} although {up}"),
            );
            let master = link.master.as_deref().unwrap_or_default();
            found.put(
                &format!("{} operstate", link.name),
                format!("{state}, no carrier, master {master}"),
            );
            continue;
        }
        let Some(address) = link.addresses.iter().find(|own| own.ip.is_ipv4()) else {
            continue;
        };
        let prefix = address.prefix.unwrap();
        found.put(
            &link.name,
            match (link.name.as_str(), address.dynamic) {
                ("lo", _) => address.ip.to_string(),
                // The brief form has a state and no more.
                (_, None) => format!("{state} /{prefix}"),
                (_, Some(true)) => format!("{}/{prefix} dynamic", address.ip),
                (_, Some(false)) => format!("{}/{prefix}", address.ip),
            },
        );
    }
    let mtus: Vec<_> = links.iter().skip(1).map(|link| link.mtu_bytes).collect();
    if let [Some(one), Some(two)] = mtus.as_slice()
        && one == two
    {
        found.put("mtu", format!("{one} on both"));
    }
    if file.contains("br-addr") {
        let marks: String = links
            .iter()
            .map(|link| format!("interface {}\n", link.name))
            .collect();
        let facts = facts(&[("interfaces", &marks), ("ip", text)]);
        let all: Vec<&Interface> = facts.interfaces.iter().flatten().collect();
        let overlay = all
            .iter()
            .find(|own| own.kind == Some(Kind::Overlay))
            .unwrap();
        assert!(overlay.addresses.iter().all(|own| !overlay.may_carry(own)));
        let twins = all.iter().filter(|own| !own.repeated.is_empty()).count();
        // The sentence about the twins begins with the first one's name.
        found.seen("enp1s0f0np0", twins == 2 && overlay.repeated.is_empty());
    }
}

fn iperf3_values(text: &str, found: &mut Found) {
    let run = iperf3::parse(text);
    let gbits = run.bits_per_second().map(|bits| bits / 1e9);
    found.or_none("gbits", gbits);
    found.or_none("retransmits", run.retransmits);
    if run.failure.is_some() {
        found.put("state", "failed");
    }
    found.or_none("warning", run.warnings.first());
    // No receiver's line: neither a speed nor a zero.
    found.seen(
        "trap",
        run.received.is_none() && run.bits_per_second().is_none(),
    );
    if let (Some(sent), Some(received)) = (run.sent, run.received) {
        let gbits = sent.bits_per_second / 1e9;
        found.put("sent", format!("{gbits:.2} Gbit/s over {} s", sent.seconds));
        let (bits, seconds) = (received.bits_per_second, received.seconds);
        found.put("received", format!("{bits:.0} bit/s over {seconds:.3} s"));
    }
}

fn lscpu_values(text: &str, found: &mut Found) {
    let cpu = lscpu::parse(text);
    let kind = cpu.kinds.first().cloned().unwrap_or_default();
    found.or_none("arch", cpu.arch.clone());
    found.or_none("cpus", cpu.cpus);
    found.or_none("vendor", cpu.vendor.clone());
    found.or_none("model", cpu.model());
    found.or_none("sockets", cpu.sockets);
    found.or_none("clusters", kind.clusters);
    found.or_none("cores_per_cluster", kind.cores_per_cluster);
    found.or_none("cores_per_socket", kind.cores_per_socket);
    found.or_none("threads_per_core", kind.threads_per_core);
    found.or_none("max_mhz", kind.max_mhz);
    // Its sentence has no sign of equality.
    let wrapped = ["movbe", "rdtscp"];
    found.seen(
        "the",
        wrapped
            .iter()
            .all(|flag| cpu.flags.iter().any(|own| own == flag)),
    );
}

fn memory(text: &str, found: &mut Found) {
    if text.contains("available") {
        let table = free::parse(text);
        let gib = |bytes: Option<u64>| {
            bytes.map(|bytes| {
                let gib = (bytes as f64 / f64::from(1 << 30) * 10.0).round() / 10.0;
                format!("{gib}Gi")
            })
        };
        found.or_none("mem_total", gib(table.total_bytes));
        found.or_none("used", gib(table.used_bytes));
        found.or_none("free", gib(table.free_bytes));
        found.or_none("available", gib(table.available_bytes));
        found.or_none("swap_total", gib(table.swap_total_bytes));
        return;
    }
    let kib = |bytes: Option<u64>| bytes.map(|bytes| bytes / 1024);
    let read = |text: &str| facts(&[("memory", text)]).memory;
    let memory = read(text);
    found.or_none("MemTotal_kB", kib(memory.total_bytes));
    found.or_none("MemFree_kB", kib(memory.free_bytes));
    found.or_none("MemAvailable_kB", kib(memory.available_bytes));
    for (name, line) in ["before MemTotal_kB", "after MemTotal_kB"]
        .iter()
        .zip(text.lines())
    {
        found.or_none(name, kib(read(line).total_bytes));
    }
}

fn system(file: &str, text: &str, found: &mut Found) {
    let section = if file.starts_with("dgx") { "dgx" } else { "os" };
    let os = facts(&[(section, text)]).os;
    let kind = packaging::parse(None, &os).system_kind;
    let like = Some(os.id_like.join(" ")).filter(|like| !like.is_empty());
    found.or_none("id", os.id);
    found.or_none("id_like", like);
    found.or_none("version_id", os.version);
    found.or_none("codename", os.codename);
    found.or_none("full", os.full_version);
    found.or_none("build_id", os.build.clone());
    found.or_none("image_version", os.image_version);
    found.or_none("variant_id", os.variant);
    found.or_none("pretty", os.name);
    found.or_none("ostree_version", os.ostree);
    if section == "dgx" {
        found.or_none("dgx_name", os.made_for);
        found.or_none("ota", os.build);
    }
    found.put("immutable", kind.is_some_and(|kind| kind.immutable()));
}

fn sudo_words(text: &str, found: &mut Found) {
    let password = refusal::refusal(text) == Some(refusal::Refusal::Password);
    found.put("needs_password", password);
    found.or_none("user", refusal::asked(text));
    found.put("lecture", refusal::lectures(text));
    found.seen("cause", refusal::wants_terminal(text));
    found.seen("state", password && !refusal::wants_terminal(text));
}

fn openssh_words(text: &str, found: &mut Found) {
    let said = openssh::read(text);
    found.seen("state", said.changed);
    found.or_none("sent", said.shown.clone());
    let line = said
        .place
        .as_deref()
        .and_then(|place| place.rsplit_once(':'));
    if let (Some(kind), Some((_, line))) = (&said.known, line) {
        found.put("known", format!("{kind} in line {line}"));
    }
    found.seen(
        "final",
        said.denied && said.went_on && said.cause().is_some(),
    );
}

/// What a fence lets through of noise, a command's output behind its marker, and the last marker.
fn fenced(noise: &str, said: &str) -> (String, String) {
    let mut fence = Fence::new("begin-1f".to_owned(), Some("end-1f".to_owned()));
    let mut into = Vec::new();
    fence.push(noise.as_bytes(), &mut into);
    fence.push(b"begin-1f\n", &mut into);
    fence.push(format!("{said}end-1f").as_bytes(), &mut into);
    assert!(fence.ended());
    (fence.noise(), String::from_utf8(into).unwrap())
}

fn noise(file: &str, text: &str, found: &mut Found) {
    let payload = |text: &str| text.trim_end_matches(['\r', '\n']).to_owned();
    if file.contains("banner") {
        // No marker comes: all of it is noise.
        let mut fence = Fence::new("begin-1f".to_owned(), None);
        let mut into = Vec::new();
        fence.push(text.as_bytes(), &mut into);
        assert!(fence.noise().contains("Welcome"));
        let nothing = !fence.begun() && into.is_empty();
        found.put(
            "payload",
            if nothing {
                "none".into()
            } else {
                String::from_utf8(into).unwrap()
            },
        );
        return;
    }
    let (first, rest) = text.split_once('\n').unwrap();
    // The recorded marker is the fence's own here.
    if first.starts_with("SUDO-SUCCESS-") {
        let mut fence = Fence::new(first.to_owned(), None);
        let mut into = Vec::new();
        fence.push(text.as_bytes(), &mut into);
        found.put("marker", first);
        found.put("payload", payload(&String::from_utf8(into).unwrap()));
        return;
    }
    let (heard, said) = fenced(&format!("{first}\n"), rest);
    assert_eq!(heard, first.trim());
    found.put("payload", payload(&said));
}

fn known(text: &str, found: &mut Found) {
    let file = KnownHosts::parse("known_hosts", text.as_bytes());
    let key = |number: usize, skip: usize| {
        let line = text.lines().nth(number - 1)?;
        let word = line.split_whitespace().nth(skip)?;
        STANDARD.decode(word).ok()
    };
    let verdict = |host: &str, key: &Option<Vec<u8>>| {
        let blob = PublicKeyBlob::new(key.as_ref().unwrap()).unwrap();
        file.lookup(host, 22, &blob)
    };
    let line = |verdict: &Verdict| match verdict {
        Verdict::Match { line } | Verdict::Revoked { line } => line.line,
        _ => 0,
    };
    match text.lines().count() {
        1 => {
            let key = key(1, 2);
            let is = line(&verdict("example.com", &key)) == 1
                && verdict("localhost", &key) == Verdict::Unknown;
            found.put("hashed", is && !text.contains("example"));
            found.or_none("type", file.algorithms("example.com", 22).first());
            found.seen("matches", is);
        }
        2 => {
            let key = key(1, 2);
            found.seen("line 1", line(&verdict("localdomain", &key)) == 1);
            // Of this name both lines speak; without the first the second does.
            let second = text.lines().nth(1).unwrap();
            let alone = KnownHosts::parse("known_hosts", second.as_bytes());
            let blob = PublicKeyBlob::new(key.as_ref().unwrap()).unwrap();
            let local = alone.lookup("localhost", 22, &blob);
            let other = alone.lookup("localdomain", 22, &blob);
            found.seen("line 2", line(&local) == 1 && other == Verdict::Unknown);
        }
        _ => {
            let (first, revoked) = (key(1, 2), key(3, 3));
            found.seen("line 1", verdict("hash", &first) == Verdict::Unknown);
            found.seen(
                "line 2",
                verdict("a.example.com", &revoked) == Verdict::Unknown,
            );
            let bad = verdict("bad", &revoked);
            found.seen(
                "line 3",
                matches!(bad, Verdict::Revoked { .. }) && line(&bad) == 3,
            );
            let lan = line(&verdict("y.lan", &first)) == 4;
            found.seen(
                "line 4",
                lan && verdict("x.lan", &first) == Verdict::Unknown,
            );
            let cut = verdict("truncated-line", &first);
            found.seen("line 5", matches!(cut, Verdict::Unreadable { .. }));
        }
    }
}

/// One file, and others that are asked for.
struct Only(PathBuf, String, RefCell<Vec<PathBuf>>);

impl Source for Only {
    fn read(&self, path: &Path, _own: bool) -> io::Result<Option<String>> {
        self.2.borrow_mut().push(path.to_owned());
        Ok((path == self.0).then(|| self.1.clone()))
    }

    fn names(&self, _folder: &Path) -> Vec<String> {
        Vec::new()
    }
}

fn configuration(text: &str, found: &mut Found) {
    let path = PathBuf::from("/home/me/.ssh/config");
    let local = Local {
        user: "me".into(),
        uid: 1000,
        home: "/home/me".into(),
        variable: |_| None,
    };
    let read = |text: &str, host: &str| -> (Result<Resolved, Refusal>, Vec<PathBuf>) {
        let source = Only(path.clone(), text.to_owned(), RefCell::default());
        let asked = Asked {
            host,
            ..Asked::default()
        };
        let file = File {
            path: path.clone(),
            own: true,
        };
        let resolved = config::resolve(&source, &[file], &local, asked);
        (resolved, source.2.into_inner())
    };
    let resolve = |host: &str| read(text, host).0;
    let told = |host: &Resolved, keyword: &str| {
        let notices = host.notices.iter();
        notices
            .filter(|notice| notice.keyword.eq_ignore_ascii_case(keyword))
            .count()
    };
    if text.contains("targaryen") {
        let host = resolve("targaryen").unwrap();
        found.put(
            "targaryen: port",
            format!("{}, user={}", host.port, host.user),
        );
        let set = |host: &Resolved, keyword: &str, value: &'static str| match told(host, keyword) {
            0 => "not set",
            _ => value,
        };
        let host = resolve("martell").unwrap();
        let level = set(&host, "LogLevel", "set");
        found.put("martell: user", format!("{}, LogLevel {level}", host.user));
        let host = resolve("tyrell").unwrap();
        let level = set(&host, "LogLevel", "INFO");
        found.put("tyrell: user", format!("{}, LogLevel={level}", host.user));
        let host = resolve("stark").unwrap();
        let compression = set(&host, "Compression", "yes");
        found.put(
            "any other: user",
            format!("{}, Compression={compression}", host.user),
        );
    } else if text.contains("ProxyCommand") {
        found.put("server1: port", resolve("server1").unwrap().port);
        let host = resolve("elsewhere").unwrap();
        found.put(
            "Host * comes last with user",
            format!("{}, port={}", host.user, host.port),
        );
        // A command as the way there is refused with its line, for both names.
        let [one, two] = ["uk.gw.lan", "uk.lan"].map(|name| resolve(name).unwrap_err());
        found.seen(
            "uk.gw.lan and uk.lan",
            one == two && one.reason.contains("ProxyCommand") && one.place.line > 0,
        );
    } else {
        // What would lead somewhere else is refused with its line; without it the rest is followed.
        let refused = ["HostKeyAlias", "KnownHostsCommand"];
        let refusal = resolve("anything").unwrap_err();
        assert!(refusal.reason.contains(refused[0]), "{refusal}");
        let rest: String = text
            .lines()
            .filter(|line| !refused.iter().any(|word| line.contains(word)))
            .map(|line| format!("{line}\n"))
            .collect();
        let (host, asked) = read(&rest, "anything");
        let host = host.unwrap();
        let home = |name: &str| PathBuf::from("/home/me").join(name);
        let keys = [home(".ssh/id_one.key"), home(".ssh/id_two.key")];
        found.seen(
            "CertificateFile",
            host.identity_files == keys && told(&host, "CertificateFile") == 1,
        );
        found.seen("GlobalKnownHostsFile", host.global_known_hosts.len() == 2);
        found.seen("KexAlgorithms", told(&host, "KexAlgorithms") == 1);
        let included = [".ssh/config-extras", "foo/bar", ".ssh/config-extra-extras"];
        found.seen(
            "Include",
            included.iter().all(|name| asked.contains(&home(name))),
        );
    }
}
