//! What the tools print, and what is read from it. The fixtures have a section for each answer.

use super::tools::{ethtool, free, ip, iperf3, lscpu};
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

#[test]
fn ethtool_tells_both_ends_of_a_link() {
    let all = sections!("ethtool");
    let read = |name: &str| ethtool::parse(all.get(name));
    let fastest = |modes: &[ethtool::Mode]| ethtool::fastest(modes).map(|mode| mode.name.clone());
    let slow = read("slow_partner");
    assert_eq!((slow.speed_mbit, slow.link), (Some(1000), Some(true)));
    assert_eq!(
        [&slow.supported, &slow.advertised, &slow.partner].map(|modes| fastest(modes)),
        [
            text("10000baseT/Full"),
            text("10000baseT/Full"),
            text("1000baseT/Full")
        ]
    );
    assert_eq!((slow.supported.len(), slow.partner.len()), (4, 3));
    assert_eq!(
        (slow.driver, slow.firmware, slow.bus),
        (text("atlantic"), text("1.5.62"), text("0000:05:00.0"))
    );
    let none = read("no_link");
    assert_eq!(
        (
            none.speed_mbit,
            none.full_duplex,
            none.link,
            none.autonegotiation
        ),
        (None, None, Some(false), Some(false))
    );
    assert_eq!(
        (fastest(&none.supported), none.port),
        (text("25000baseSR/Full"), text("FIBRE"))
    );
    assert_eq!(read("speed_only").speed_mbit, Some(50_000));
    let never = read("never_linked");
    assert_eq!(
        (never.speed_mbit, never.full_duplex, never.firmware),
        (None, Some(false), None)
    );
    assert_eq!(read("absent"), ethtool::Card::default());
}

#[test]
fn addresses_are_read_from_every_form_of_ip() {
    let all = sections!("ip");
    let shown = |name: &str| -> Vec<String> {
        ip::parse(all.get(name))
            .iter()
            .map(|link| {
                let addresses: Vec<String> = link
                    .addresses
                    .iter()
                    .map(|own| format!("{}/{:?}/{:?}", own.ip, own.prefix, own.dynamic))
                    .collect();
                format!(
                    "{} {:?} {:?} {:?} {}",
                    link.name,
                    link.state.as_deref().unwrap_or("-"),
                    link.set_up,
                    link.mtu_bytes,
                    addresses.join(" ")
                )
            })
            .collect()
    };
    assert_eq!(
        shown("full"),
        [
            "lo \"UNKNOWN\" Some(true) Some(65536) 127.0.0.1/Some(8)/Some(false)",
            "ens3 \"UP\" Some(true) Some(9000) 10.1.2.3/Some(20)/Some(true) fd00:1::3/Some(64)/Some(false)",
            "ens3.7 \"DOWN\" Some(false) Some(1500) 10.9.0.1/None/Some(false)",
        ]
    );
    assert_eq!(
        shown("brief"),
        [
            "lo \"UNKNOWN\" None None 127.0.0.1/Some(8)/None ::1/Some(128)/None",
            "enp1s0f0np0 \"UP\" None None 10.20.0.4/Some(24)/None fe80::20:4/Some(64)/None",
            "enp1s0f1np1 \"UP\" None None 10.20.0.4/Some(24)/None",
            "cable0 \"UP\" None None 169.254.7.1/Some(16)/None",
            "tailscale0 \"UNKNOWN\" None None 100.64.0.9/Some(32)/None",
            "veth1 \"DOWN\" None None ",
        ]
    );
    assert_eq!(
        shown("one_line"),
        [
            "lo \"-\" None None 127.0.0.1/Some(8)/Some(false)",
            "eth0 \"-\" None None 10.20.0.5/Some(24)/Some(true) fe80::20:5/Some(64)/Some(false)",
        ]
    );
    assert_eq!(
        shown("json"),
        [
            "sw0 \"UNKNOWN\" Some(true) Some(1508) 10.30.0.1/Some(24)/Some(true)",
            "uplink \"LOWERLAYERDOWN\" Some(true) Some(1500) ",
            "ip6tnl0 \"DOWN\" Some(false) Some(1452) 10.40.0.1/None/Some(false)",
        ]
    );
    let links = ip::parse(all.get("json"));
    assert_eq!(
        (
            links[1].below.clone(),
            links[1].master.clone(),
            links[2].below.clone()
        ),
        (text("sw0"), text("br0"), None)
    );
    let full = ip::parse(all.get("full"));
    assert_eq!(
        (
            full[0].mac.clone(),
            full[1].mac.clone(),
            full[1].master.clone(),
            full[2].below.clone()
        ),
        (None, text("02:00:00:00:30:01"), text("bond0"), text("ens3"))
    );
    assert!(ip::parse(all.get("broken_json")).is_empty());
}

#[test]
fn iperf3_tells_what_was_received_or_nothing() {
    let all = sections!("iperf3");
    for (name, bits, retransmits, streams, failed) in [
        ("crash", None, None, None, true),
        ("server_only", None, None, Some(1), false),
        ("sums", Some(19.7e9), Some(7), Some(2), false),
        ("old_heading", Some(938e6), Some(17), Some(1), false),
        (
            "bytes",
            Some(125.0 * 1024.0 * 1024.0 * 8.0),
            Some(0),
            Some(1),
            false,
        ),
        ("both_ways", Some(7.99e9), Some(1), Some(1), false),
        ("refused", None, None, None, true),
        ("json", Some(9.4e9), Some(12), Some(2), false),
        ("json_short", None, Some(0), None, false),
        ("json_failed", None, None, None, true),
        ("json_stream", Some(1.9e9), Some(1), None, false),
        ("json_cut", None, None, None, false),
    ] {
        let run = iperf3::parse(all.get(name));
        assert_eq!(run.bits_per_second(), bits, "{name}");
        assert_eq!(run.retransmits, retransmits, "{name}");
        assert_eq!(run.streams, streams, "{name}");
        assert_eq!(run.failure.is_some(), failed, "{name}");
    }
    let run = iperf3::parse(all.get("server_only"));
    assert_eq!((run.received, run.sent), (None, None));
    let run = iperf3::parse(all.get("json_short"));
    assert_eq!(run.received.unwrap().bits_per_second, 700_000.5);
    let run = iperf3::parse(all.get("crash"));
    assert_eq!(run.warnings, ["JSON data too long, cut"]);
    let run = iperf3::parse(all.get("json"));
    assert_eq!(run.warnings, ["this build has no authentication"]);
    let run = iperf3::parse(all.get("json_failed"));
    assert_eq!(
        run.failure,
        text("unable to connect to server: No route to host")
    );
}

#[test]
fn lscpu_tells_kinds_of_cores_and_flags_over_several_lines() {
    let all = sections!("lscpu");
    let read = |name: &str| lscpu::parse(all.get(name));
    let arm = read("clusters");
    assert_eq!(arm.model(), text("Cortex-X925, Cortex-A725"));
    assert_eq!((arm.cpus, arm.sockets), (Some(8), None));
    assert_eq!(
        (
            arm.kinds[0].cores_per_cluster,
            arm.kinds[0].clusters,
            arm.kinds[0].max_mhz
        ),
        (Some(4), Some(1), Some(3900.0))
    );
    assert_eq!(arm.kinds[1].max_mhz, Some(2800.0));
    let wide = read("wrapped");
    assert_eq!(
        wide.flags,
        ["fpu", "vme", "fxsr_opt", "rdtscp", "avx2", "sha_ni"]
    );
    assert_eq!((wide.sockets, wide.nodes), (Some(1), Some(1)));
    assert_eq!(
        (
            wide.kinds[0].threads_per_core,
            wide.kinds[0].cores_per_socket
        ),
        (Some(2), Some(16))
    );
    assert_eq!(read("flat").model(), text("Made Up w/ Graphics 80"));
    let json = read("json");
    assert_eq!(
        (json.arch, json.vendor, json.kinds[0].cores_per_socket),
        (text("x86_64"), text("GenuineIntel"), Some(4))
    );
    assert_eq!(lscpu::parse("{\"lscpu\":3}"), lscpu::Lscpu::default());
}

#[test]
fn free_is_read_by_its_headings() {
    let all = sections!("free");
    let new = free::parse(all.get("human"));
    assert_eq!(
        (new.total_bytes, new.available_bytes, new.swap_total_bytes),
        (Some(62 << 30), Some(58 << 30), Some(8 << 30))
    );
    assert_eq!(new.used_bytes, Some(3_758_096_384));
    let old = free::parse(all.get("old"));
    assert_eq!(
        (old.total_bytes, old.free_bytes, old.available_bytes),
        (Some(1_024_000_000), Some(409_600_000), None)
    );
    assert_eq!(
        free::parse("free: command not found"),
        free::Free::default()
    );
}
