//! What a controller is told about the lab: an inventory and the hosts' keys.

use crate::kind::{Kind, Login, Network, Sudo};
use crate::lab::Host;
use crate::place::Place;

/// The inventory of these hosts.
pub fn inventory(place: &Place, hosts: &[Host]) -> String {
    let mut text = format!("[cluster]\nname = \"{}\"\n", place.name());
    // Workers meet where all of them are.
    let second = hosts.iter().any(|host| host.second);
    let ipv4 = hosts.iter().all(|host| host.kind.traits().ipv4);
    for host in hosts {
        let traits = host.kind.traits();
        let password = format!("{{ file = \"{}\" }}", place.password().display());
        text.push_str(&format!("\n# {}\n[hosts.{}]\n", traits.about, host.name));
        let address = host.address();
        text.push_str(&format!("address = \"{address}\"\n"));
        let data = crate::network::address(second, ipv4, host.number);
        if data != address {
            text.push_str(&format!("data = \"{data}\"\n"));
        }
        text.push_str(&format!("user = \"{}\"\n", traits.user));
        let mut ssh = vec![format!(
            "known_hosts = \"{}\"",
            place.known_hosts().display()
        )];
        match traits.login {
            Login::Key => ssh.insert(0, format!("identity = \"{}\"", place.identity().display())),
            Login::Password | Login::Keyboard => ssh.push(format!("password = {password}")),
        }
        if traits.network == Network::Second
            && let Some(jump) = jump(hosts)
        {
            ssh.push(format!("jump = \"{}\"", jump.name));
        }
        text.push_str(&format!("ssh = {{ {} }}\n", ssh.join(", ")));
        if matches!(traits.sudo, Sudo::Password | Sudo::RequireTty) {
            text.push_str(&format!("sudo = {{ password = {password} }}\n"));
        }
    }
    text
}

/// The host over which those on the second network are reached.
pub fn jump(hosts: &[Host]) -> Option<&Host> {
    let fits = |host: &&Host| {
        let traits = host.kind.traits();
        traits.network == Network::Controllers && traits.login == Login::Key && traits.ipv4
    };
    hosts
        .iter()
        .find(|host| host.kind == Kind::Root)
        .or_else(|| hosts.iter().find(fits))
}

/// The hosts' keys, one line for each address; `keys` are type and key, in the hosts' order.
pub fn known_hosts(hosts: &[Host], keys: &[String]) -> String {
    hosts
        .iter()
        .zip(keys)
        .flat_map(|(host, key)| {
            host.addresses()
                .into_iter()
                .map(move |address| format!("{address} {key}\n"))
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::path::Path;

    fn hosts(kinds: &[Kind]) -> Vec<Host> {
        Host::number(
            &kinds
                .iter()
                .enumerate()
                .map(|(at, kind)| (format!("h{}", at + 1), *kind))
                .collect::<Vec<_>>(),
        )
        .unwrap()
    }

    #[test]
    fn hosts_of_one_network_and_family_need_no_data_address() {
        let place = Place::at(Path::new("/tmp/one")).unwrap();
        let text = inventory(&place, &hosts(&[Kind::Root, Kind::SudoPassword]));
        assert_eq!(
            text,
            "[cluster]\nname = \"one\"\n\
             \n# systemd; root logs in by key\n[hosts.h1]\naddress = \"10.77.0.11\"\nuser = \"root\"\n\
             ssh = { identity = \"/tmp/one/id\", known_hosts = \"/tmp/one/known_hosts\" }\n\
             \n# user ai by key; sudo asks for a password\n[hosts.h2]\naddress = \"10.77.0.12\"\nuser = \"ai\"\n\
             ssh = { identity = \"/tmp/one/id\", known_hosts = \"/tmp/one/known_hosts\" }\n\
             sudo = { password = { file = \"/tmp/one/password\" } }\n"
        );
    }

    #[test]
    fn workers_meet_on_the_network_and_in_the_family_that_all_have() {
        let place = Place::at(Path::new("/tmp/one")).unwrap();
        let all = hosts(&[Kind::Password, Kind::Root, Kind::BehindJump, Kind::Ipv6Only]);
        let text = inventory(&place, &all);
        for line in [
            "address = \"10.77.0.11\"\ndata = \"fd78::11\"",
            "address = \"10.78.0.13\"\ndata = \"fd78::13\"",
            "address = \"fd77::14\"\ndata = \"fd78::14\"",
            "jump = \"h2\"",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        let keys = vec!["ssh-ed25519 AAAA".to_owned(); 4];
        let known = known_hosts(&all, &keys);
        assert!(known.contains("10.78.0.13 ssh-ed25519 AAAA\n"), "{known}");
        assert!(!known.contains("10.77.0.13"), "{known}");
        assert!(!known.contains("10.77.0.14"), "{known}");
    }
}
