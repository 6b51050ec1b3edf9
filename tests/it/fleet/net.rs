//! The links between hosts: every fault planted in the lab is found, and a healthy link has none.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::controller::{Ran, run};
use crate::lab::{Cut, Kind, Lab, absent};

/// Hosts on cables of 1 Gb/s that say so.
fn up(hosts: &[(&str, Kind)]) -> Lab {
    let lab = Lab::with(hosts, |wanted| wanted.rate = Some("1gbit".to_owned()));
    for (host, _) in hosts {
        says(&lab, host, "eth0", 1_000);
    }
    lab
}

/// Has an interface say a speed.
fn says(lab: &Lab, host: &str, interface: &str, speed: u32) {
    lab.sh(
        host,
        &format!(
            "[ -e /sys/class/net/{interface} ] || exit 0; umount /sys/class/net/{interface}/speed 2>/dev/null; echo {speed} >/run/speed-{interface} \
             && mount --bind /run/speed-{interface} /sys/class/net/{interface}/speed"
        ),
    );
}

/// Limits what leaves a host's interface.
fn limit(lab: &Lab, host: &str, interface: &str, rate: &str) {
    lab.sh(
        host,
        &format!("tc qdisc replace dev {interface} root tbf rate {rate} burst 256k latency 20ms"),
    );
}

fn net(lab: &Lab, arguments: &[&str]) -> Ran {
    run(lab, &[&["net", "--seconds", "1"], arguments].concat())
}

fn kinds(link: &Value) -> Vec<&str> {
    let findings = link["findings"].as_array().unwrap();
    findings
        .iter()
        .map(|f| f["kind"].as_str().unwrap())
        .collect()
}

#[track_caller]
fn found(ran: &Ran, kind: &str, words: &[&str]) {
    let link = &ran.summary["links"][0];
    assert_eq!(kinds(link), [kind], "{:#}", ran.summary);
    let message = link["findings"][0]["message"].as_str().unwrap();
    for word in words {
        assert!(message.contains(word), "{word}: {message}");
    }
}

#[test]
fn a_healthy_link_has_no_finding_and_each_planted_fault_is_the_one_found() {
    if absent() {
        return;
    }
    let lab = up(&[("h1", Kind::Root), ("h2", Kind::SudoFree)]);

    let checked = net(&lab, &["--check"]).ended(0);
    assert_eq!(checked.summary["links"][0]["there_mbit"], Value::Null);
    assert_eq!(
        lab.sh("h1", "ls /var/lib | grep -c '^windlass$' || true")
            .trim(),
        "0"
    );

    let ran = net(&lab, &[]).ended(0);
    let link = &ran.summary["links"][0];
    assert_eq!(kinds(link), [""; 0], "{link:#}");
    assert_eq!(link["nominal_mbit"], 1_000);
    assert_eq!(link["packet_bytes"], 1_500, "{link:#}");
    assert_eq!(link["interfaces"], serde_json::json!(["eth0", "eth0"]));
    for way in ["there_mbit", "back_mbit"] {
        let rate = link[way].as_f64().unwrap();
        assert!((500.0..1_050.0).contains(&rate), "{way} {rate}");
    }
    assert!(link["round_trip_us"]["count"].as_u64().unwrap() > 10);

    // Slower than the last run, both times it is looked at: the fault does not become the measure.
    limit(&lab, "h1", "eth0", "600mbit");
    limit(&lab, "h2", "eth0", "600mbit");
    for _ in 0..2 {
        let ran = net(&lab, &[]).ended(5);
        let link = &ran.summary["links"][0];
        // What a queue makes of the round trips is another finding, of the moment.
        let mut kinds = kinds(link);
        kinds.retain(|kind| *kind != "longer_trips");
        assert_eq!(kinds, ["slower", "slower"], "{link:#}");
        assert_eq!(ran.summary["error"]["kind"], "drift");
    }

    // What says 1 Gb/s and carries a tenth.
    limit(&lab, "h1", "eth0", "100mbit");
    limit(&lab, "h2", "eth0", "100mbit");
    let ran = net(&lab, &["--forget"]).ended(5);
    found(&ran, "narrow_port", &["eth0", "100 Mb/s", "1 Gb/s"]);

    // One direction.
    limit(&lab, "h1", "eth0", "1gbit");
    limit(&lab, "h2", "eth0", "600mbit");
    let ran = net(&lab, &["--forget"]).ended(5);
    found(&ran, "lopsided", &["h2: from it to h1"]);

    // Far below, of no port's speed; a card of 200 Gb/s is told to be started cold.
    says(&lab, "h1", "eth0", 200_000);
    says(&lab, "h2", "eth0", 200_000);
    limit(&lab, "h1", "eth0", "700mbit");
    limit(&lab, "h2", "eth0", "700mbit");
    let ran = net(&lab, &["--forget"]).ended(5);
    found(&ran, "far_below", &["200 Gb/s", "take its power away"]);
    says(&lab, "h1", "eth0", 1_000);
    says(&lab, "h2", "eth0", 1_000);
    limit(&lab, "h1", "eth0", "1gbit");
    limit(&lab, "h2", "eth0", "1gbit");

    lab.sh("h2", "ip link set dev eth0 mtu 1400");
    let ran = net(&lab, &["--forget"]).ended(5);
    found(&ran, "mtu_differs", &["h2: eth0", "1400", "1500"]);
    lab.sh("h2", "ip link set dev eth0 mtu 1500");

    // Both say 9000, and the switch between them takes 1500.
    for host in ["h1", "h2"] {
        lab.sh(host, "ip link set dev eth0 mtu 9000");
    }
    // Whether TCP stops for it hangs on where its segments are cut: here the kernel may hand them over
    // whole. Either way it is the finding, and where TCP stopped, also the reason.
    let ran = net(&lab, &["--forget"]);
    found(&ran, "packet_lost", &["9000", "1500"]);
    match ran.summary["links"][0]["error"].as_str() {
        Some(error) => assert!(
            ran.code == 1 && error.contains("full packets are lost"),
            "{error}"
        ),
        None => assert_eq!(ran.code, 5),
    }
    for host in ["h1", "h2"] {
        lab.sh(host, "ip link set dev eth0 mtu 1500");
    }

    lab.filter("h2", 47600);
    let ran = net(&lab, &["--forget"]).ended(1);
    assert_eq!(ran.summary["error"]["step"], "link");
    for word in ["h1", "h2", "47600", "nft insert rule"] {
        assert!(ran.message().contains(word), "{word}: {}", ran.message());
    }
    lab.mend("h2");

    // Nothing of it is left.
    for host in ["h1", "h2"] {
        lab.wait_for(host, "! pgrep windlass-worker");
    }
}

#[test]
fn an_overlay_a_shared_interface_and_one_machine_under_two_names_are_found() {
    if absent() {
        return;
    }
    // The third host gives the lab its second network.
    let lab = up(&[
        ("h1", Kind::Root),
        ("h2", Kind::Root),
        ("h3", Kind::BehindJump),
    ]);
    let set = |host: &str, value: &str| {
        let set = lab
            .windlass(&["inventory", "set", host, value])
            .output()
            .unwrap();
        assert!(set.status.success(), "{set:?}");
    };
    let two = |arguments: &[&str]| net(&lab, &[&["h1,h2", "--forget"], arguments].concat());
    for host in ["h1", "h2"] {
        says(&lab, host, "eth1", 1_000);
    }
    two(&[]).ended(0);

    for (host, address) in [("h1", "10.77.0.11"), ("h2", "10.77.0.12")] {
        set(host, &format!("data={address}"));
    }
    let ran = two(&[]).ended(5);
    found(
        &ran,
        "shares_control",
        &["eth0", "eth1", "10.78.0.11", "10.78.0.12"],
    );

    for (host, number) in [("h1", 11), ("h2", 12)] {
        lab.sh(
            host,
            "ip link set eth1 down; ip link set eth1 name tailscale0; ip link set tailscale0 up",
        );
        lab.sh(
            host,
            &format!("ip addr replace 10.78.0.{number}/24 dev tailscale0"),
        );
        set(host, &format!("data=10.78.0.{number}"));
    }
    let ran = two(&[]).ended(5);
    let link = &ran.summary["links"][0];
    assert_eq!(kinds(link), ["overlay", "overlay"], "{link:#}");
    assert_eq!(link["interfaces"][0], "tailscale0");

    set("h2", "address=10.77.0.11");
    let ran = two(&[]).ended(5);
    found(&ran, "loopback", &["h1", "h2", "one machine"]);
}

#[test]
fn a_link_that_dies_in_the_middle_is_one_sentence_and_the_others_are_measured() {
    if absent() {
        return;
    }
    let lab = up(&[("h1", Kind::Root), ("h2", Kind::Root), ("h3", Kind::Root)]);
    let mut child = lab
        .windlass(&["--json", "net", "--seconds", "4"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut summary = Value::Null;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let in_first = event["scope"]["task"] == "link to h2" && event["scope"]["host"] == "h1";
        if in_first && event["event"] == "transfer" && event["done"].as_u64() > Some(1 << 20) {
            lab.cut("h2", Cut::Silent);
        }
        summary = event;
    }
    child.wait().unwrap();
    crate::schema::check(&summary);
    assert_eq!(summary["exit"], 1, "{summary:#}");
    let links = summary["links"].as_array().unwrap();
    assert_eq!(links.len(), 3);
    let of = |from: &str, to: &str| {
        let found = links.iter().find(|l| l["from"] == from && l["to"] == to);
        found.unwrap()
    };
    let error = of("h1", "h2")["error"].as_str().unwrap();
    assert!(error.contains("the link to h2 broke while"), "{error}");
    assert!(error.contains("nothing moved for 3 s"), "{error}");
    assert!(of("h2", "h3")["error"].is_string());
    assert_eq!(of("h1", "h3")["error"], Value::Null, "{summary:#}");
    assert!(of("h1", "h3")["there_mbit"].as_f64().unwrap() > 100.0);
}
