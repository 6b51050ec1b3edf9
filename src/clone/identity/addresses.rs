//! Fixed addresses of a source, and what stands in their place on its copy. Pure.

use std::net::IpAddr;

use crate::facts::Interface;

/// The addresses that the inventory has for source and target, as pairs; and with each pair those of the
/// other family where the two interfaces that have it have one of that family too.
pub fn pairs(
    known: &[(&str, &str)],
    from: &[Interface],
    to: &[Interface],
) -> Vec<(IpAddr, IpAddr)> {
    let bare = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    let mut all: Vec<(IpAddr, IpAddr)> = Vec::new();
    let mut add = |old: IpAddr, new: IpAddr| {
        let same_kind = old.is_ipv4() == new.is_ipv4();
        if same_kind && old != new && !old.is_loopback() && all.iter().all(|(one, _)| *one != old) {
            all.push((old, new));
        }
    };
    for (old, new) in known {
        let (Some(old), Some(new)) = (bare(old), bare(new)) else {
            continue;
        };
        add(old, new);
        let other = |interfaces: &[Interface], own: IpAddr| {
            let of = interfaces
                .iter()
                .find(|one| one.addresses.iter().any(|a| a.ip == own))?;
            let fixed = |ip: &IpAddr| match ip {
                IpAddr::V4(ip) => !ip.is_link_local(),
                // fe80::/10 comes from the hardware.
                IpAddr::V6(ip) => ip.segments().first().is_some_and(|s| s & 0xffc0 != 0xfe80),
            };
            let mut others = of
                .addresses
                .iter()
                .filter(|one| one.dynamic != Some(true))
                .map(|one| one.ip)
                .filter(|ip| ip.is_ipv4() != own.is_ipv4() && fixed(ip));
            let one = others.next()?;
            others.next().is_none().then_some(one)
        };
        if let (Some(old), Some(new)) = (other(from, old), other(to, new)) {
            add(old, new);
        }
    }
    all
}

/// The edits of `sed` by which fixed addresses of the source become the target's, each as a whole.
pub fn moved(addresses: &[(IpAddr, IpAddr)]) -> String {
    let edit = |(old, new): &(IpAddr, IpAddr)| {
        let (old, new) = (old.to_string().replace('.', "\\."), new.to_string());
        let other = "[^0-9a-fA-F.:]";
        format!(
            "s#^{old}$#{new}#\ns#^{old}\\({other}\\)#{new}\\1#\ns#\\({other}\\){old}$#\\1{new}#\ns#\\({other}\\){old}\\({other}\\)#\\1{new}\\2#g\n"
        )
    };
    addresses.iter().map(edit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Address;

    fn interface(addresses: &[&str]) -> Interface {
        let address = |ip: &&str| Address {
            ip: ip.parse().unwrap(),
            prefix: None,
            dynamic: None,
        };
        Interface {
            addresses: addresses.iter().map(address).collect(),
            ..Interface::default()
        }
    }

    #[test]
    fn an_address_that_the_inventory_does_not_know_is_paired_by_its_interface() {
        let from = [interface(&["192.0.2.1", "fe80::1", "fd00::1"])];
        let to = [interface(&["fd00::2", "fe80::2", "192.0.2.2"])];
        let known = [("192.0.2.1", "192.0.2.2"), ("[fd01::1]", "a.name")];
        let texts = |pairs: Vec<(IpAddr, IpAddr)>| -> Vec<String> {
            pairs.iter().map(|(a, b)| format!("{a} {b}")).collect()
        };
        assert_eq!(
            texts(pairs(&known, &from, &to)),
            ["192.0.2.1 192.0.2.2", "fd00::1 fd00::2"]
        );
        // Two of them: which is which cannot be told.
        let two = [interface(&["192.0.2.1", "fd00::1", "fd00::9"])];
        assert_eq!(texts(pairs(&known, &two, &to)), ["192.0.2.1 192.0.2.2"]);
        assert!(pairs(&[("192.0.2.1", "192.0.2.1")], &[], &[]).is_empty());
    }

    #[test]
    fn a_fixed_address_becomes_the_target_s_and_longer_ones_stay() {
        let moves = [
            ("192.0.2.1".parse().unwrap(), "192.0.2.22".parse().unwrap()),
            ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()),
        ];
        let text = "Address=192.0.2.1/24\naddresses: [192.0.2.1/24, \"fd00::1/64\"]\n192.0.2.11 192.0.2.1\n192x0.2.1\nfd00::1\nfd00::1:1\n";
        let output = std::process::Command::new("sh")
            .args([
                "-c",
                "printf %s \"$1\" | sed \"$2\"",
                "sh",
                text,
                &moved(&moves),
            ])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            "Address=192.0.2.22/24\naddresses: [192.0.2.22/24, \"fd00::2/64\"]\n192.0.2.11 192.0.2.22\n192x0.2.1\nfd00::2\nfd00::1:1\n"
        );
    }
}
