//! Cables can be pulled, go silent, be slow; firewalls drop.

use super::{Cut, Kind, Lab, absent};

/// Whether a host can reach an address within two seconds.
fn pings(lab: &Lab, host: &str, address: &str) -> bool {
    let script = format!("ping -c 1 -W 2 {address}");
    lab.try_sh(host, &script).status.success()
}

fn connects(lab: &Lab, address: &str, port: u16) -> bool {
    lab.controller("bash")
        .args(["-c", &format!("exec 3<>/dev/tcp/{address}/{port}")])
        .args(["bash"])
        .spawn()
        .and_then(|mut child| {
            // A dropped connection is only ever noticed by waiting.
            let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
            while std::time::Instant::now() < end {
                if let Some(status) = child.try_wait()? {
                    return Ok(status.success());
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            child.kill()?;
            child.wait()?;
            Ok(false)
        })
        .unwrap()
}

#[test]
fn a_cut_link_is_seen_and_a_silent_one_is_not() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::NoSystemd), ("h2", Kind::NoSystemd)]);
    let carrier = || lab.sh("h1", "cat /sys/class/net/eth0/carrier");
    let peer = lab.hosts().host("h2").unwrap().address();
    assert!(pings(&lab, "h1", &peer));
    assert_eq!(carrier(), "1\n");

    lab.cut("h1", Cut::Pulled);
    assert_eq!(carrier(), "0\n");
    assert!(!pings(&lab, "h1", &peer));
    lab.mend("h1");
    lab.wait_for("h1", &format!("ping -c 1 -W 1 {peer}"));
    assert_eq!(carrier(), "1\n");

    lab.cut("h1", Cut::Silent);
    assert_eq!(carrier(), "1\n");
    assert!(!pings(&lab, "h1", &peer));
    assert!(!pings(
        &lab,
        "h2",
        &lab.hosts().host("h1").unwrap().address()
    ));
    lab.mend("h1");
    assert!(pings(&lab, "h1", &peer));
}

#[test]
fn a_filtered_port_drops_and_the_others_answer() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::NoSystemd)]);
    let address = lab.hosts().host("h1").unwrap().address();
    lab.sh("h1", "iperf3 -s -D -p 47600 </dev/null >/dev/null 2>&1");
    lab.wait_for("h1", "ss -Hltn sport = :47600 | grep -q .");
    assert!(connects(&lab, &address, 47600));
    lab.filter("h1", 47600);
    assert!(!connects(&lab, &address, 47600));
    assert!(connects(&lab, &address, 22));
    // From the host itself the port is open, as with any firewall.
    assert!(
        lab.try_sh("h1", "iperf3 -c 127.0.0.1 -p 47600 -n 1K")
            .status
            .success()
    );
    lab.mend("h1");
    assert!(connects(&lab, &address, 47600));
}

#[test]
fn a_power_cut_says_goodbye_to_nobody() {
    if absent() {
        return;
    }
    let mut lab = Lab::up(&[("h1", Kind::NoSystemd), ("h2", Kind::NoSystemd)]);
    let address = lab.hosts().host("h1").unwrap().address();
    // A connection from h2 that would end at once on a FIN or a reset.
    lab.sh(
        "h2",
        &format!(
            "setsid bash -c 'exec 3<>/dev/tcp/{address}/22; read -r line <&3; echo open > /tmp/a; \
             cat <&3 > /dev/null; echo ended > /tmp/a' </dev/null >/dev/null 2>&1 &"
        ),
    );
    lab.wait_for("h2", "grep -q open /tmp/a");
    lab.kill("h1");
    assert!(!pings(&lab, "h2", &address));
    assert_eq!(lab.sh("h2", "cat /tmp/a"), "open\n");
    lab.start("h1");
    lab.wait_for("h2", &format!("ping -c 1 -W 1 {address}"));
    assert_eq!(lab.sh("h2", "cat /tmp/a"), "open\n");
}

#[test]
fn a_delayed_cable_delays_both_ways_and_loses_nothing() {
    if absent() {
        return;
    }
    let mut lab = Lab::with(
        &[("h1", Kind::NoSystemd), ("h2", Kind::NoSystemd)],
        |wanted| {
            wanted.delays.push(("h2".into(), 5000));
            wanted.rate = Some("1gbit".into());
        },
    );
    let address = lab.hosts().host("h2").unwrap().address();
    let round_trip = |lab: &Lab| -> f64 {
        let said = lab.sh("h1", &format!("ping -c 5 -i 0.05 {address}"));
        let figures = said.rsplit(" = ").next().unwrap();
        figures.split('/').next().unwrap().parse().unwrap()
    };
    assert!(round_trip(&lab) >= 10.0);
    // Big frames, checksums left to the cable: what arrives is what was sent.
    let digest = |host: &str, file: &str| {
        let said = lab.sh(host, &format!("sha256sum {file}"));
        said.split(' ').next().unwrap().to_owned()
    };
    let output = lab
        .ssh("root", &address)
        .arg("head -c 20000000 /dev/urandom | tee /root/sent | sha256sum; cat /root/sent | sha256sum")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let received = lab
        .controller("bash")
        .arg("-c")
        .arg(format!(
            "ssh -F none -o BatchMode=yes -o UserKnownHostsFile={} -i {} root@{address} cat /root/sent | sha256sum",
            lab.known_hosts().display(),
            lab.hosts().place().identity().display()
        ))
        .output()
        .unwrap();
    let received = String::from_utf8_lossy(&received.stdout).into_owned();
    assert_eq!(
        received.split(' ').next().unwrap(),
        digest("h2", "/root/sent")
    );
    // The delay survives a power cut and can be changed.
    lab.kill("h2");
    lab.start("h2");
    assert!(round_trip(&lab) >= 10.0);
    lab.delay("h2", 0, None);
    lab.wait_for("h1", &format!("ping -c 1 -W 1 {address}"));
}
