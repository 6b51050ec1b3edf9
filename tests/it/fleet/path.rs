//! The data path: what is wrong with it is found before anything is sent.

use super::controller::{SHA256, give_model, run};
use crate::lab::{Kind, Lab, absent};

#[test]
fn a_taken_port_a_filtered_one_and_a_wrong_address_are_found_before_the_push() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    if !give_model(lab.home()) {
        return;
    }
    let nothing_sent = |what: &str| {
        for host in ["h1", "h2"] {
            let count = lab.sh(
                host,
                &format!(
                    "ls /var/lib/windlass/pieces/{} 2>/dev/null | wc -l",
                    &SHA256[..16]
                ),
            );
            assert_eq!(count.trim(), "0", "{what}: pieces were sent to {host}");
        }
    };

    lab.sh(
        "h2",
        "nohup python3 -m http.server 47600 >/dev/null 2>&1 & n=0; until ss -ltn 2>/dev/null | grep -q 47600 || [ $n -gt 100 ]; do sleep 0.1; n=$((n+1)); done",
    );
    let ran = run(&lab, &["up", "smollm2"]).ended(1);
    assert_eq!(ran.summary["error"]["step"], "port");
    for wanted in ["h2", "47600", "python3"] {
        assert!(
            ran.message().contains(wanted),
            "{wanted}: {}",
            ran.message()
        );
    }
    nothing_sent("port taken");
    lab.sh("h2", "pkill -f '[h]ttp.server'");

    lab.filter("h2", 47600);
    let ran = run(&lab, &["up", "smollm2"]).ended(1);
    assert_eq!(ran.summary["error"]["step"], "link");
    for wanted in ["h1", "h2", "47600", "nft insert rule"] {
        assert!(
            ran.message().contains(wanted),
            "{wanted}: {}",
            ran.message()
        );
    }
    nothing_sent("filtered");
    lab.mend("h2");

    let set = |data: &str| {
        let value = format!("data={data}");
        let set = lab
            .windlass(&["inventory", "set", "h2", &value])
            .output()
            .unwrap();
        assert!(set.status.success(), "{set:?}");
    };
    set("127.0.0.1");
    for command in [&["up", "smollm2"][..], &["up", "smollm2", "--check"]] {
        let ran = run(&lab, command).ended(1);
        assert_eq!(ran.summary["error"]["step"], "data");
        let said = ran.message();
        assert!(
            said.contains("loopback") && said.contains("set `data`") && !said.contains("nft"),
            "{said}"
        );
    }
    nothing_sent("loopback");

    set("10.99.99.9");
    let ran = run(&lab, &["up", "smollm2"]).ended(1);
    assert!(ran.message().contains("10.99.99.9"), "{}", ran.message());
    nothing_sent("wrong address");
}
