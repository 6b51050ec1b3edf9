//! Switches, cables and firewalls of a lab. Every interface and address lies in a network namespace
//! of the lab's; the machine's own gets none.

use std::path::Path;
use std::time::Duration;

use crate::command::{Context, Result, feed, run, wrong};
use crate::kind::Network;
use crate::lab::Host;
use crate::place::Place;

/// How a link is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The cable is pulled: the host sees no carrier (with a delayed cable, only that nothing
    /// passes).
    Pulled,
    /// Packets vanish: nobody is told.
    Silent,
}

/// A cable: what it adds to the machine's own speed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cable {
    /// One-way delay, microseconds. Above 0 frames go through a wire in user space.
    pub delay: u64,
    /// Rate as `tc` writes it, e.g. `1gbit`.
    pub rate: Option<String>,
}

/// One end of a cable in a switch.
pub struct Port {
    /// Interface in the host.
    pub interface: &'static str,
    /// Interface in the switches' namespace.
    pub port: String,
    /// The switch.
    bridge: &'static str,
    /// Addresses with prefix lengths.
    addresses: Vec<String>,
    /// Hardware address: the same on every cable, or peers would go on asking for the old one.
    hardware: String,
}

/// The switches of the lab: the controller's network and the second one.
const BRIDGES: [&str; 2] = ["br1", "br2"];

/// Address of a member of a network: 10.77.0.N or fd77::N; 78 in the second network.
pub fn address(second: bool, ipv4: bool, number: u8) -> String {
    let network = if second { 78 } else { 77 };
    if ipv4 {
        format!("10.{network}.0.{number}")
    } else {
        format!("fd{network}::{number}")
    }
}

fn with_prefix(second: bool, ipv4: bool, number: u8) -> String {
    let length = if ipv4 { 24 } else { 64 };
    format!("{}/{length}", address(second, ipv4, number))
}

/// Hardware address of a member of a network.
pub fn hardware(second: bool, number: u8) -> String {
    format!("02:77:00:00:0{}:{number:02x}", u8::from(second))
}

/// Makes the switches and connects the controller.
pub fn up(place: &Place) -> Result<()> {
    let switches = place.netns("sw");
    let controller = place.netns("ctl");
    run("ip", &["netns", "add", &switches])?;
    run("ip", &["netns", "add", &controller])?;
    let mut lines = String::from("link set lo up\n");
    for bridge in BRIDGES {
        lines.push_str(&format!(
            "link add {bridge} type bridge mcast_snooping 0\nlink set {bridge} up\n"
        ));
    }
    feed("ip", &["-n", &switches, "-batch", "-"], &lines)?;
    let port = Port {
        interface: "eth0",
        port: "pctl".into(),
        bridge: BRIDGES[0],
        addresses: vec![with_prefix(false, true, 1), with_prefix(false, false, 1)],
        hardware: hardware(false, 1),
    };
    veth(place, "ctl", &port)?;
    configure(place, "ctl", &[port])
}

/// The ports of a host.
pub fn ports(host: &Host) -> Vec<Port> {
    let traits = host.kind.traits();
    let mut ports = Vec::new();
    let mut add = |second: bool| {
        let mut addresses = vec![with_prefix(second, false, host.number)];
        if traits.ipv4 {
            addresses.insert(0, with_prefix(second, true, host.number));
        }
        ports.push(Port {
            interface: if second { "eth1" } else { "eth0" },
            port: format!("p{}{}", host.number, if second { "b" } else { "a" }),
            bridge: if second { BRIDGES[1] } else { BRIDGES[0] },
            addresses,
            hardware: hardware(second, host.number),
        });
    };
    if traits.network == Network::Controllers {
        add(false);
    }
    if host.second {
        add(true);
    }
    ports
}

/// Makes the network namespace of a host.
pub fn add(place: &Place, host: &Host) -> Result<()> {
    run("ip", &["netns", "add", &place.netns(&host.name)]).map(drop)
}

/// Lays a plain cable.
pub fn veth(place: &Place, member: &str, port: &Port) -> Result<()> {
    run(
        "ip",
        &[
            "link",
            "add",
            port.interface,
            "netns",
            &place.netns(member),
            "type",
            "veth",
            "peer",
            "name",
            &port.port,
            "netns",
            &place.netns("sw"),
        ],
    )
    .map(drop)
}

/// Takes a plain cable away, if there is one.
pub fn unplug(place: &Place, port: &Port) {
    // A wire's end is gone with its wire.
    let _ = run("ip", &["-n", &place.netns("sw"), "link", "del", &port.port]);
}

/// Plugs cables that are laid into the switches and gives the member its addresses.
pub fn configure(place: &Place, member: &str, ports: &[Port]) -> Result<()> {
    let mut inside = String::from("link set lo up\n");
    let mut outside = String::new();
    for port in ports {
        inside.push_str(&format!(
            "link set {} address {}\n",
            port.interface, port.hardware
        ));
        for address in &port.addresses {
            // Duplicates cannot be, and looking for them takes a second.
            let nodad = if address.contains(':') { " nodad" } else { "" };
            inside.push_str(&format!(
                "addr replace {address} dev {}{nodad}\n",
                port.interface
            ));
        }
        inside.push_str(&format!("link set {} up\n", port.interface));
        outside.push_str(&format!(
            "link set {} master {} up\n",
            port.port, port.bridge
        ));
    }
    feed("ip", &["-n", &place.netns(member), "-batch", "-"], &inside)?;
    feed("ip", &["-n", &place.netns("sw"), "-batch", "-"], &outside)?;
    Ok(())
}

/// Limits the rate of a host's cables, both ways.
pub fn shape(place: &Place, host: &Host, rate: &str) -> Result<()> {
    for port in ports(host) {
        for (netns, interface) in [
            (place.netns(&host.name), port.interface),
            (place.netns("sw"), port.port.as_str()),
        ] {
            run(
                "tc",
                &[
                    "-n", &netns, "qdisc", "replace", "dev", interface, "root", "tbf", "rate",
                    rate, "burst", "256k", "latency", "20ms",
                ],
            )?;
        }
    }
    Ok(())
}

/// Raises or lowers the switch's ends of a host's cables.
pub fn carrier(place: &Place, host: &Host, up: bool) -> Result<()> {
    let state = if up { "up" } else { "down" };
    let lines: String = ports(host)
        .iter()
        .map(|port| format!("link set {} {state}\n", port.port))
        .collect();
    feed("ip", &["-n", &place.netns("sw"), "-batch", "-"], &lines).map(drop)
}

/// Drops all that passes a host's interfaces, or stops doing so.
pub fn silence(place: &Place, host: &Host, silent: bool) -> Result<()> {
    let mut rules = String::from("add table inet lab_silence\ndelete table inet lab_silence\n");
    if silent {
        rules.push_str(
            "table inet lab_silence {\n\
             chain input { type filter hook input priority -20; iifname != \"lo\" drop; }\n\
             chain output { type filter hook output priority -20; oifname != \"lo\" drop; }\n}\n",
        );
    }
    nft(place, host, &rules)
}

/// Drops what comes to a TCP port of a host; `None` lets everything pass again.
pub fn filter(place: &Place, host: &Host, port: Option<u16>) -> Result<()> {
    let rules = match port {
        Some(port) => format!(
            "table inet lab_filter {{\n\
             chain input {{ type filter hook input priority -10; }}\n}}\n\
             add rule inet lab_filter input iifname != \"lo\" tcp dport {port} drop\n"
        ),
        None => "add table inet lab_filter\ndelete table inet lab_filter\n".to_owned(),
    };
    nft(place, host, &rules)
}

fn nft(place: &Place, host: &Host, rules: &str) -> Result<()> {
    let netns = place.netns_path(&host.name);
    feed(
        "nsenter",
        &[&format!("--net={}", netns.display()), "nft", "-f", "-"],
        rules,
    )
    .map(drop)
}

/// Removes a network namespace, if it is there.
pub fn remove(place: &Place, of: &str) -> Result<()> {
    if !place.netns_path(of).exists() {
        return Ok(());
    }
    run("ip", &["netns", "del", &place.netns(of)]).map(drop)
}

/// Removes every network namespace of the lab.
pub fn down(place: &Place) -> Result<()> {
    let prefix = place.netns("");
    let Ok(entries) = std::fs::read_dir("/run/netns") else {
        return Ok(());
    };
    for entry in entries.flatten() {
        if let Some(name) = entry.file_name().to_str()
            && name.starts_with(&prefix)
        {
            run("ip", &["netns", "del", name])?;
        }
    }
    Ok(())
}

/// Runs `work` on a thread of its own inside a network namespace.
pub fn inside<T: Send>(netns: &Path, work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                enter(netns)?;
                Ok(work())
            })
            .join()
            .unwrap_or_else(|_| wrong("a thread in a network namespace ended in a panic"))
    })
}

/// Moves this thread into a network namespace, for good.
fn enter(netns: &Path) -> Result<()> {
    std::fs::File::open(netns)
        .and_then(|file| crate::sys::enter_network(&file))
        .during(netns.display())
}

/// Whether sshd answers at this host's own address, asked from inside its network.
pub fn sshd_answers(address: &str) -> bool {
    use std::io::Read;
    use std::net::{IpAddr, SocketAddr, TcpStream};
    let Ok(ip) = address.parse::<IpAddr>() else {
        return false;
    };
    let limit = Duration::from_secs(1);
    let Ok(mut stream) = TcpStream::connect_timeout(&SocketAddr::new(ip, 22), limit) else {
        return false;
    };
    let mut start = [0; 4];
    stream.set_read_timeout(Some(limit)).is_ok()
        && stream.read_exact(&mut start).is_ok()
        && start == *b"SSH-"
}
