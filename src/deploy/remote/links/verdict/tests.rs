//! Findings of a link, by hand-made ends and measurements.

use super::*;

fn end(host: &str, interface: &str, speed: u32) -> End {
    End {
        host: host.to_owned(),
        interface: Some(interface.to_owned()),
        speed_mbit: Some(speed),
        mtu_bytes: Some(1500),
        boot_id: Some(format!("boot of {host}")),
        ..End::default()
    }
}

fn through(interface: &str) -> Vec<Carrier> {
    vec![Carrier {
        interface: interface.to_owned(),
        received: 600,
        sent: 600,
        ..Carrier::default()
    }]
}

fn measured(there: f64, back: f64) -> Measured {
    Measured {
        trips: Trips {
            count: 1000,
            least: 60.0,
            median: 70.0,
            p99: 90.0,
        },
        packets: Packets {
            own: Some(1500),
            back: Some(1500),
            there: Some(1500),
            answered: true,
        },
        there_mbit: there,
        back_mbit: back,
        bytes: 1000,
        carriers: [through("eth0"), through("eth0")],
    }
}

fn before(mbit: f64, trip: f64) -> Before {
    Before {
        time: "2026-11-01T10:00:00Z".to_owned(),
        there_mbit: mbit,
        back_mbit: mbit,
        round_trip_us: trip,
    }
}

type Case = (
    &'static str,
    fn(&mut End, &mut End, &mut Measured, &mut Before),
    &'static [Kind],
    &'static [&'static str],
);

#[test]
fn every_fault_is_found_and_a_healthy_link_has_none() {
    use Kind::*;
    let table: [Case; 22] = [
        ("healthy", |_, _, _, _| {}, &[], &[]),
        (
            "10 GbE at 1 Gb/s",
            |_, _, m, b| {
                (m.there_mbit, m.back_mbit) = (941.0, 940.0);
                *b = before(940.0, 70.0);
            },
            &[NarrowPort],
            &["halo2: ", "halo1", "940 Mb/s", "10 Gb/s", "eth0", "ethtool"],
        ),
        (
            "200 Gb/s card that moves 13",
            |a, b, m, old| {
                (a.speed_mbit, b.speed_mbit) = (Some(200_000), Some(200_000));
                (m.there_mbit, m.back_mbit) = (12_900.0, 13_100.0);
                *old = before(12_900.0, 70.0);
            },
            &[FarBelow],
            &["12.9 Gb/s", "200 Gb/s", "take its power away"],
        ),
        (
            "a 200 Gb/s card that one host keeps busy",
            |a, b, m, _| {
                (a.speed_mbit, b.speed_mbit) = (Some(200_000), Some(200_000));
                (m.there_mbit, m.back_mbit) = (70_000.0, 90_000.0);
            },
            &[],
            &[],
        ),
        (
            "half of 10 GbE and less, of no port's speed",
            |_, _, m, old| {
                (m.there_mbit, m.back_mbit) = (3_300.0, 3_400.0);
                *old = before(3_400.0, 70.0);
            },
            &[FarBelow],
            &["3.3 Gb/s", "ip -s link"],
        ),
        (
            "no speed said",
            |a, b, m, old| {
                (a.speed_mbit, b.speed_mbit) = (None, None);
                (m.there_mbit, m.back_mbit) = (100.0, 100.0);
                *old = before(100.0, 70.0);
            },
            &[],
            &[],
        ),
        (
            "one machine",
            |a, b, _, _| b.boot_id = a.boot_id.clone(),
            &[Loopback],
            &["halo1: ", "halo2", "one machine", "inventory"],
        ),
        (
            "bytes on lo",
            |_, _, m, _| m.carriers[1] = through("lo"),
            &[Loopback],
            &["through lo"],
        ),
        (
            "unknown boots are not the same",
            |a, b, _, _| (a.boot_id, b.boot_id) = (None, None),
            &[],
            &[],
        ),
        (
            "tailscale",
            |a, b, m, _| {
                (a.interface, b.interface) = (Some("tailscale0".into()), Some("tailscale0".into()));
                m.carriers = [through("tailscale0"), through("tailscale0")];
            },
            &[Overlay, Overlay],
            &["tailscale0", "Tailscale", "`data`"],
        ),
        (
            "a wireguard of another name, under a plain data address",
            |_, _, m, _| {
                m.carriers[0] = through("mesh0");
                m.carriers[0][0].kind = Some("wireguard".into());
            },
            &[Overlay],
            &["halo1: ", "mesh0", "WireGuard"],
        ),
        (
            "radio",
            |_, b, m, _| {
                b.interface = Some("wlp1s0".into());
                b.wireless = true;
                m.carriers[1] = through("wlp1s0");
            },
            &[Wireless],
            &["halo2: ", "wlp1s0", "radio"],
        ),
        (
            "another interface took it",
            |_, _, m, _| m.carriers[0] = through("eth1"),
            &[OtherInterface],
            &["eth0", "eth1", "ip route get"],
        ),
        (
            "a bridge over the interface is no other one",
            |a, _, m, _| {
                a.interface = Some("br0".into());
                m.carriers[0] = [through("eth0"), through("br0")].concat();
            },
            &[],
            &[],
        ),
        (
            "unequal ends",
            |_, b, m, old| {
                b.speed_mbit = Some(1_000);
                (m.there_mbit, m.back_mbit) = (940.0, 940.0);
                *old = before(940.0, 70.0);
            },
            &[EndsApart],
            &["halo2: eth0", "1 Gb/s", "10 Gb/s", "cable"],
        ),
        (
            "lopsided",
            |_, _, m, old| {
                (m.there_mbit, m.back_mbit) = (9_400.0, 6_000.0);
                (old.there_mbit, old.back_mbit) = (9_400.0, 6_000.0);
            },
            &[Lopsided],
            &["halo2: ", "6 Gb/s", "9.4 Gb/s", "duplex"],
        ),
        (
            "other MTU",
            |_, b, m, _| {
                b.mtu_bytes = Some(1400);
                m.packets.back = Some(1400);
            },
            &[MtuDiffers],
            &[
                "halo2: eth0",
                "1400",
                "1500",
                "ip link set dev eth0 mtu 1500",
            ],
        ),
        (
            "a switch that takes less than both ends",
            |a, b, m, _| {
                (a.mtu_bytes, b.mtu_bytes) = (Some(9000), Some(9000));
                m.packets.own = Some(9000);
            },
            &[PacketLost],
            &["9000", "1500", "switch"],
        ),
        (
            "no datagram passes: nothing is known",
            |_, _, m, _| m.packets = Packets::default(),
            &[],
            &[],
        ),
        (
            "control and data share an interface, and there is another",
            |a, b, _, _| {
                a.shares_control = true;
                a.other = Some(("eth1".into(), "169.254.7.1".into()));
                b.other = Some(("eth1".into(), "169.254.7.2".into()));
            },
            &[SharesControl],
            &[
                "eth0",
                "eth1",
                "`data` of halo1 to 169.254.7.1",
                "169.254.7.2",
            ],
        ),
        (
            "slower than before",
            |_, _, m, _| m.there_mbit = 7_500.0,
            &[Slower],
            &[
                "halo1: ",
                "7.5 Gb/s",
                "9.4 Gb/s",
                "2026-11-01T10:00:00Z",
                "--forget",
            ],
        ),
        (
            "longer trips than before",
            |_, _, m, _| m.trips.median = 400.0,
            &[LongerTrips],
            &["400 µs", "70 µs"],
        ),
    ];
    for (name, change, kinds, words) in table {
        let (mut a, mut b) = (end("halo1", "eth0", 10_000), end("halo2", "eth0", 10_000));
        let (mut m, mut old) = (measured(9_410.0, 9_380.0), before(9_400.0, 70.0));
        change(&mut a, &mut b, &mut m, &mut old);
        let found = judge(&a, &b, Some(&m), Some(&old));
        let got: Vec<Kind> = found.iter().map(|finding| finding.kind).collect();
        assert_eq!(got, kinds, "{name}: {found:#?}");
        let text: String = found.iter().map(|f| format!("{}\n", f.message)).collect();
        for word in words {
            assert!(text.contains(word), "{name}: {word}: {text}");
        }
        for finding in &found {
            let prefix = format!("{}: ", finding.host);
            assert!(finding.message.starts_with(&prefix), "{}", finding.message);
        }
    }
}

#[test]
fn what_is_no_cable_is_told_by_its_name_or_by_the_kernel() {
    for (name, kind, wanted) in [
        ("tailscale0", None, true),
        ("wg0", None, true),
        ("wg-mesh", None, true),
        ("tun0", None, true),
        ("tap1", None, true),
        ("ztabcdef12", None, true),
        ("docker0", None, true),
        ("br-0123456789ab", None, true),
        ("mesh", Some("wireguard"), true),
        ("x", Some("vxlan"), true),
        ("eth0", None, false),
        ("enp1s0f0np0", None, false),
        ("br0", Some("bridge"), false),
        ("br-lan", None, false),
        ("bond0", Some("bond"), false),
        ("thunderbolt0", None, false),
        ("tunnelbear", None, false),
        ("wgreat", None, false),
    ] {
        assert_eq!(overlay(name, kind).is_some(), wanted, "{name}");
    }
}

#[test]
fn what_is_known_beforehand_is_told_without_a_measurement() {
    let (a, mut b) = (end("h1", "eth0", 10_000), end("h2", "wg0", 1_000));
    b.mtu_bytes = Some(1420);
    let kinds: Vec<Kind> = judge(&a, &b, None, Some(&before(9.0, 1.0)))
        .iter()
        .map(|finding| finding.kind)
        .collect();
    assert_eq!(kinds, [Kind::Overlay, Kind::EndsApart, Kind::MtuDiffers]);
}
