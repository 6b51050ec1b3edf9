//! What must not be the same on two machines, and the texts that name partitions. Pure.

pub mod addresses;
pub mod fstab;

use std::net::IpAddr;

/// Files and folders of the copy that are removed: what they are, then patterns of a shell below the new
/// root. What needs them makes them anew.
pub const REMOVED: &[(&str, &[&str])] = &[
    ("SSH host keys", &["etc/ssh/ssh_host_*"]),
    (
        "random seed",
        &[
            "var/lib/systemd/random-seed",
            "var/lib/urandom/random-seed",
            "boot/loader/random-seed",
            "boot/efi/loader/random-seed",
            "efi/loader/random-seed",
        ],
    ),
    (
        "DHCP leases and identifiers",
        &[
            "var/lib/dhcp/*.leases",
            "var/lib/dhcp/*.lease",
            "var/lib/dhclient/*",
            "var/lib/dhcpcd/*.lease",
            "var/lib/dhcpcd/duid",
            "etc/dhcpcd.duid",
            "var/lib/NetworkManager/*.lease",
            "var/lib/NetworkManager/secret_key",
            "var/lib/NetworkManager/seen-bssids",
            "var/lib/NetworkManager/timestamps",
        ],
    ),
    (
        "names of network interfaces by hardware address",
        &[
            "etc/udev/rules.d/70-persistent-net.rules",
            "etc/udev/rules.d/75-persistent-net-generator.rules",
        ],
    ),
    (
        "Tailscale",
        &[
            "var/lib/tailscale/tailscaled.state",
            "var/lib/tailscale/tailscaled.log.conf",
            "var/lib/tailscale/certs/*",
        ],
    ),
    (
        "other overlay networks",
        &["var/lib/zerotier-one/identity.*"],
    ),
    (
        "containers",
        &[
            "etc/docker/key.json",
            "var/lib/docker/engine-id",
            "etc/rancher/node/password",
            "var/lib/kubelet/pki/*",
        ],
    ),
    (
        "storage initiators",
        &[
            "etc/iscsi/initiatorname.iscsi",
            "etc/nvme/hostid",
            "etc/nvme/hostnqn",
        ],
    ),
    (
        "systemd's credential key",
        &["var/lib/systemd/credential.secret"],
    ),
    ("windlass", &["var/lib/windlass/*"]),
];

/// What of the source would travel and is secret: what it is, then patterns below its root.
pub const SECRETS: &[(&str, &[&str])] = &[
    ("private SSH keys", &["root/.ssh/id_*", "home/*/.ssh/id_*"]),
    (
        "GnuPG keys",
        &[
            "root/.gnupg/private-keys-v1.d",
            "home/*/.gnupg/private-keys-v1.d",
        ],
    ),
    ("WireGuard", &["etc/wireguard/*.conf"]),
    (
        "WLAN and VPN passwords",
        &[
            "etc/NetworkManager/system-connections/*",
            "etc/wpa_supplicant/*.conf",
            "etc/netplan/*wifi*",
        ],
    ),
    (
        "private TLS keys",
        &["etc/ssl/private/*.key", "etc/letsencrypt/archive/*"],
    ),
    ("Kerberos", &["etc/krb5.keytab"]),
    (
        "tokens of model hubs",
        &[
            "root/.cache/huggingface/token",
            "home/*/.cache/huggingface/token",
        ],
    ),
    (
        "cloud and registry logins",
        &[
            "root/.aws/credentials",
            "home/*/.aws/credentials",
            "root/.docker/config.json",
            "home/*/.docker/config.json",
            "root/.kube/config",
            "home/*/.kube/config",
            "root/.config/gcloud",
            "home/*/.config/gcloud",
            "root/.netrc",
            "home/*/.netrc",
        ],
    ),
    (
        "password stores",
        &["home/*/.local/share/keyrings", "home/*/.password-store"],
    ),
];

/// What is kept though it names a machine, and must be looked at: what it is, then patterns below the
/// source's root of files that say so with the words after them.
pub const FIXED: &[(&str, &[&str], &str)] = &[
    (
        "a fixed address",
        &[
            "etc/network/interfaces",
            "etc/network/interfaces.d/*",
            "etc/netplan/*",
            "etc/systemd/network/*.network",
            "etc/NetworkManager/system-connections/*",
        ],
        "^[[:space:]]*(address|addresses:|Address=|address1=|iface .* static)",
    ),
    (
        "a hardware address",
        &[
            "etc/netplan/*",
            "etc/systemd/network/*",
            "etc/NetworkManager/system-connections/*",
            "etc/udev/rules.d/*",
        ],
        "(macaddress:|MACAddress=|mac-address=|ATTR.address.==)",
    ),
];

/// The text of `/etc/hosts` with one name in place of another where a line is about the machine itself;
/// what other machines know by that name stays.
pub fn hosts(text: &str, old: &str, new: &str) -> String {
    if old.is_empty() {
        return text.to_owned();
    }
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let (body, comment) = line.split_at(line.find('#').unwrap_or(line.len()));
        let address = body.split_whitespace().next().unwrap_or_default();
        if !address.parse::<IpAddr>().is_ok_and(|one| one.is_loopback()) {
            out.push_str(line);
            continue;
        }
        let mut word = String::new();
        for c in body.chars() {
            if c.is_whitespace() {
                out.push_str(&renamed(&word, old, new));
                word.clear();
                out.push(c);
            } else {
                word.push(c);
            }
        }
        out.push_str(&renamed(&word, old, new));
        out.push_str(comment);
    }
    out
}

/// `old` and `old.domain` by their new name.
fn renamed(word: &str, old: &str, new: &str) -> String {
    match word.strip_prefix(old) {
        Some(rest) if rest.is_empty() || rest.starts_with('.') => format!("{new}{rest}"),
        _ => word.to_owned(),
    }
}

/// Whether a text may be a host's name.
pub fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(fits)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 64 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_hosts_is_replaced_as_a_word_alone() {
        let text =
            "127.0.0.1 localhost\n127.0.1.1\thalo.lan halo halo2 # halo\n192.0.2.7 halo\n::1 xhalo";
        assert_eq!(
            hosts(text, "halo", "spark"),
            "127.0.0.1 localhost\n127.0.1.1\tspark.lan spark halo2 # halo\n192.0.2.7 halo\n::1 xhalo"
        );
        assert_eq!(hosts(text, "", "spark"), text);
    }

    #[test]
    fn names_that_no_host_may_have_are_none() {
        for (name, good) in [
            ("halo2", true),
            ("halo2.lan", true),
            ("", false),
            ("-a", false),
            ("a_b", false),
            ("a b", false),
            ("a..b", false),
        ] {
            assert_eq!(is_name(name), good, "{name}");
        }
    }
}
