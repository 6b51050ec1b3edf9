//! What must be so on a host before anything is sent: decided from what is known of it. Pure.

use std::time::Duration;

use crate::figures::size;

/// Most that a host's clock may differ from this machine's.
pub const MOST_SKEW: Duration = Duration::from_secs(1);
/// Room left free on a host's disk beyond what is sent there, bytes.
pub const RESERVE: u64 = 64 << 20;

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// One word for scripts: `disk`, `clock`, `memory`, `port`, `link`, `arch`.
    pub step: &'static str,
    /// One sentence with figures and what to type.
    pub message: String,
}

/// Whether what is to be sent fits on the disk that holds `path`.
///
/// `free` is in bytes; unknown is no breach, for the receiver asks again.
pub fn disk(path: &str, needed: u64, free: Option<u64>) -> Option<Breach> {
    let free = free?;
    let wanted = needed.saturating_add(RESERVE);
    (needed > 0 && free < wanted).then(|| Breach {
        step: "disk",
        message: format!(
            "{path} has {} free and {} are needed ({} to send, {} kept free): free {} there, or give this host fewer layers with memory_limit",
            size(free),
            size(wanted),
            size(needed),
            size(RESERVE),
            size(wanted - free),
        ),
    })
}

/// Whether the host's clock is near enough to this machine's. `skew` is host minus here in seconds,
/// `error` half of the shortest round trip it was measured over.
pub fn clock(skew: Option<f64>, error: f64) -> Option<Breach> {
    let skew = skew?;
    (skew.abs() - error > MOST_SKEW.as_secs_f64()).then(|| Breach {
        step: "clock",
        message: format!(
            "its clock is {:.1} s {} this machine's, and more than {} s is refused (certificates and logs would not agree): run `timedatectl set-ntp true` there, or set the clock of the machine that is wrong",
            skew.abs(),
            if skew > 0.0 { "ahead of" } else { "behind" },
            MOST_SKEW.as_secs(),
        ),
    })
}

/// A data port that is taken.
pub fn port_taken(address: &str, port: u16, by: Option<&str>) -> Breach {
    Breach {
        step: "port",
        message: format!(
            "port {port} of its data address {address} is taken{}: stop that, or set another `data_port` for this host in the inventory",
            by.map(|by| format!(" by {by}")).unwrap_or_default(),
        ),
    }
}

/// A data address that the host does not have.
pub fn no_address(address: &str, has: &[String]) -> Breach {
    Breach {
        step: "port",
        message: format!(
            "it has no address {address}; it has {}: correct `data` for this host in the inventory",
            if has.is_empty() {
                "none".to_owned()
            } else {
                has.join(", ")
            },
        ),
    }
}

/// A data address that leads every host to itself, with more than one machine taking part. `data` is what
/// the inventory says.
pub fn loopback(data: &str, address: &str) -> Breach {
    let leads = if data == address {
        format!("{address} is")
    } else {
        format!("{data} leads to {address} here,")
    };
    Breach {
        step: "data",
        message: format!(
            "its data address {leads} a loopback address, which no other host can reach: set `data` for this host in the inventory to the address of the interface between the hosts"
        ),
    }
}

/// What a connection to a data address came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Refused: nothing listens, or a firewall rejects.
    Refused,
    /// No answer.
    Silent,
    /// No route.
    NoRoute,
    /// Something else answered.
    Stranger,
}

/// A data path between two stages that does not work. `from` and `to` are hosts' names.
pub fn link(
    from: &str,
    to: &str,
    address: &str,
    port: u16,
    source: Option<&str>,
    how: Reached,
) -> Breach {
    let allow = source.map_or_else(
        || format!("`sudo nft insert rule inet filter input tcp dport {port} accept`"),
        |source| {
            let family = if source.contains(':') { "ip6" } else { "ip" };
            format!("`sudo nft insert rule inet filter input {family} saddr {source} tcp dport {port} accept` (ufw: `sudo ufw allow from {source} to any port {port} proto tcp`)")
        },
    );
    let message = match how {
        Reached::Silent => format!(
            "{from} gets no answer from {to} at {address} port {port}: a firewall drops it, or the cable does not lead there. On {to}: {allow}"
        ),
        Reached::Refused => format!(
            "{from} is refused by {to} at {address} port {port} although a listener stands there: a firewall rejects it, or {address} belongs to another machine. On {to}: {allow}"
        ),
        Reached::NoRoute => format!(
            "{from} has no route to {to} at {address}: give both hosts a `data` address on one network, or correct the one in the inventory"
        ),
        Reached::Stranger => format!(
            "another machine than {to} answers {from} at {address} port {port}: correct `data` for {to} in the inventory"
        ),
    };
    Breach {
        step: "link",
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_too_small_is_named_with_path_needed_and_free() {
        // 100 MiB to send and 64 MiB kept free are 104.9 + 67.1 = 172.0 MB; 120 MiB are 125.8 MB.
        let breach = disk("/var/lib/windlass", 100 << 20, Some(120 << 20)).unwrap();
        for wanted in [
            "/var/lib/windlass",
            "125.8 MB free",
            "172.0 MB are needed",
            "free 46.1 MB",
        ] {
            assert!(
                breach.message.contains(wanted),
                "{wanted}: {}",
                breach.message
            );
        }
        assert_eq!(disk("/x", 100 << 20, Some(164 << 20)), None);
        assert_eq!(disk("/x", 100 << 20, None), None);
        assert_eq!(disk("/x", 0, Some(0)), None, "nothing is to be sent");
    }

    #[test]
    fn a_clock_more_than_a_second_off_is_refused_beyond_the_measurement_s_own_error() {
        let table = [
            (Some(0.0), 0.01, false),
            (Some(0.99), 0.0, false),
            (Some(1.01), 0.0, true),
            (Some(-1.5), 0.2, true),
            (Some(1.2), 0.3, false),
            (Some(-600.0), 0.1, true),
            (None, 0.0, false),
        ];
        for (skew, error, wanted) in table {
            assert_eq!(clock(skew, error).is_some(), wanted, "{skew:?} ± {error}");
        }
        let text = clock(Some(-600.0), 0.1).unwrap().message;
        assert!(text.contains("600.0 s behind"), "{text}");
    }

    #[test]
    fn a_loopback_address_is_named_with_what_leads_to_it_and_no_firewall() {
        let plain = loopback("127.0.0.1", "127.0.0.1").message;
        assert!(plain.contains("127.0.0.1 is a loopback address"), "{plain}");
        let named = loopback("halo1", "127.0.1.1").message;
        assert!(named.contains("halo1 leads to 127.0.1.1 here"), "{named}");
        assert!(plain.contains("set `data`") && !plain.contains("firewall"));
    }

    #[test]
    fn every_fault_of_a_link_names_both_hosts_and_what_to_type() {
        for how in [
            Reached::Refused,
            Reached::Silent,
            Reached::NoRoute,
            Reached::Stranger,
        ] {
            let breach = link("h1", "h2", "10.0.0.2", 47600, Some("10.0.0.1"), how);
            for wanted in ["h1", "h2", "10.0.0.2"] {
                assert!(
                    breach.message.contains(wanted),
                    "{how:?}: {}",
                    breach.message
                );
            }
        }
        let filtered = link(
            "h1",
            "h2",
            "10.0.0.2",
            47600,
            Some("10.0.0.1"),
            Reached::Silent,
        );
        assert!(
            filtered
                .message
                .contains("ip saddr 10.0.0.1 tcp dport 47600 accept")
        );
        let six = link(
            "h1",
            "h2",
            "fd00::2",
            47600,
            Some("fd00::1"),
            Reached::Silent,
        );
        assert!(six.message.contains("ip6 saddr fd00::1"));
    }
}
