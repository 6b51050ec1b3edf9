//! The basic answers of macOS, into the same facts. What is not asked there stays unknown.

use super::link::{self, Kind};
use super::script::{Sections, some};
use super::{Address, Facts, Interface};

/// Fills in what the sections `sw_vers`, `sysctl`, `vm_stat` and `ifconfig` say.
pub fn fill(facts: &mut Facts, sections: &Sections<'_>) {
    let software = |name| key(sections.get("sw_vers"), name);
    facts.os.id = Some("macos".into());
    facts.os.version = software("ProductVersion");
    facts.os.build = software("BuildVersion");
    facts.os.name = software("ProductName")
        .zip(facts.os.version.clone())
        .map(|(name, version)| format!("{name} {version}"));

    let sysctl = |name| key(sections.get("sysctl"), name);
    let number = |name| sysctl(name).and_then(|value| value.parse::<u64>().ok());
    facts.cpu.model = sysctl("machdep.cpu.brand_string");
    facts.cpu.cores = number("hw.physicalcpu").and_then(|count| u32::try_from(count).ok());
    facts.cpu.threads = number("hw.ncpu").and_then(|count| u32::try_from(count).ok());
    facts.cpu.usable_threads = facts.cpu.threads;
    facts.cpu.flags = flags(sections);
    facts.memory.total_bytes = number("hw.memsize");
    let page = number("hw.pagesize");
    let pages = |name: &str| {
        let count: u64 = key(sections.get("vm_stat"), name)?
            .trim_end_matches('.')
            .parse()
            .ok()?;
        count.checked_mul(page?)
    };
    facts.memory.free_bytes = pages("Pages free");
    // What the system gives up before it swaps: free, read ahead, and not used for a while.
    facts.memory.available_bytes = [
        "Pages free",
        "Pages inactive",
        "Pages speculative",
        "Pages purgeable",
    ]
    .iter()
    .try_fold(0_u64, |sum, name| sum.checked_add(pages(name)?));
    facts.machine.vendor = Some("Apple".into());
    facts.machine.product = sysctl("hw.model");
    facts.machine.boot_id = sysctl("kern.bootsessionuuid");
    facts.init.process = Some("launchd".into());
    facts.init.systemd = Some(false);
    facts.interfaces = interfaces(sections.get("ifconfig"));
    for interface in facts.interfaces.iter_mut().flatten() {
        let port = hardware_port(sections.get("hardware_ports"), &interface.name);
        interface.wireless = port == Some("Wi-Fi");
        interface.kind = match port {
            Some("Wi-Fi") => Some(Kind::Wireless),
            Some(port) if port.starts_with("Thunderbolt Bridge") => Some(Kind::Bridge),
            Some(port) if port.starts_with("Thunderbolt") && !port.contains("Ethernet") => {
                Some(Kind::Thunderbolt)
            }
            Some(_) => Some(Kind::Ethernet),
            // Of a card that no port is named for, the name alone tells nothing: Wi-Fi is `en0` too.
            None => link::by_name(&interface.name).filter(|kind| *kind != Kind::Ethernet),
        };
    }
    if let Some(interfaces) = &mut facts.interfaces {
        link::mark_repeated(interfaces);
    }
}

/// The value of `name: value`.
fn key(text: &str, name: &str) -> Option<String> {
    text.lines()
        .find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))
        .and_then(some)
}

/// What the processor can do, by the names Linux has for it.
fn flags(sections: &Sections<'_>) -> Option<Vec<String>> {
    let text = sections.get("sysctl");
    if let Some(leaf) = key(text, "machdep.cpu.leaf7_features") {
        let has = |name: &str| leaf.split_whitespace().any(|word| word == name);
        return Some(
            [("AVX2", "avx2"), ("AVX512F", "avx512f")]
                .iter()
                .filter(|(name, _)| has(name))
                .map(|(_, flag)| (*flag).to_owned())
                .collect(),
        );
    }
    let arm = [
        ("hw.optional.arm.FEAT_DotProd", "asimddp"),
        ("hw.optional.arm.FEAT_I8MM", "i8mm"),
        ("hw.optional.arm.FEAT_BF16", "bf16"),
    ];
    arm.iter()
        .any(|(name, _)| key(text, name).is_some())
        .then(|| {
            // Every Apple processor has the vector unit.
            let more = arm
                .iter()
                .filter(|(name, _)| key(text, name).as_deref() == Some("1"))
                .map(|(_, flag)| (*flag).to_owned());
            std::iter::once("asimd".to_owned()).chain(more).collect()
        })
}

/// Interfaces as ifconfig(8) lists them.
fn interfaces(text: &str) -> Option<Vec<Interface>> {
    let mut found: Vec<Interface> = Vec::new();
    for line in text.lines() {
        if !line.starts_with(char::is_whitespace) {
            let Some((name, rest)) = line.split_once(": ") else {
                continue;
            };
            found.push(Interface {
                name: name.to_owned(),
                mtu_bytes: rest
                    .split_once("mtu ")
                    .and_then(|(_, mtu)| mtu.trim().parse().ok()),
                ..Interface::default()
            });
            continue;
        }
        let Some(interface) = found.last_mut() else {
            continue;
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["ether", mac, ..] => interface.mac = Some((*mac).to_owned()),
            ["inet", ip, "netmask", mask, ..] | ["inet", ip, "-->", _, "netmask", mask, ..] => {
                if let Ok(ip) = ip.parse() {
                    let prefix = mask
                        .strip_prefix("0x")
                        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
                        .and_then(|mask| u8::try_from(mask.leading_ones()).ok());
                    interface.addresses.push(Address {
                        ip,
                        prefix,
                        dynamic: None,
                    });
                }
            }
            ["inet6", ip, "prefixlen", prefix, ..] => {
                // Addresses of one link name it behind a percent sign.
                if let Ok(ip) = ip.split('%').next().unwrap_or(ip).parse() {
                    let prefix = prefix.parse().ok();
                    interface.addresses.push(Address {
                        ip,
                        prefix,
                        dynamic: None,
                    });
                }
            }
            ["status:", "active"] => interface.up = Some(true),
            ["status:", "inactive"] => interface.up = Some(false),
            ["media:", ..] => {
                interface.device = true;
                interface.speed_mbit = speed(line);
                interface.full_duplex =
                    match (line.contains("full-duplex"), line.contains("half-duplex")) {
                        (true, false) => Some(true),
                        (false, true) => Some(false),
                        _ => None,
                    };
            }
            _ => {}
        }
    }
    (!found.is_empty()).then_some(found)
}

/// What macOS calls the port of an interface: a line `Hardware Port: NAME` before `Device: en0`.
fn hardware_port<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut port = None;
    for line in text.lines() {
        if let Some(found) = line.strip_prefix("Hardware Port: ") {
            port = Some(found.trim());
        } else if line.strip_prefix("Device: ").map(str::trim) == Some(name) {
            return port;
        }
    }
    None
}

/// Megabits a second in `media: autoselect (10Gbase-T <full-duplex>)`.
fn speed(line: &str) -> Option<u32> {
    let media = line
        .split(['(', ' '])
        .find(|word| word.to_lowercase().contains("base"))?;
    let digits: String = media
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    // `2500Base-T` and `2.5Gbase-T` are both written.
    let number: f64 = digits.parse().ok()?;
    let mbit = match media.get(digits.len()..)?.starts_with('G') {
        true => number * 1000.0,
        false => number,
    };
    (1.0..1e9).contains(&mbit).then_some(mbit as u32)
}
