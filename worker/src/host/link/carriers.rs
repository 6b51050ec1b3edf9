//! The interfaces of this host as the kernel counts them. Empty where there is no sysfs.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use windlass_wire::link::Carrier;

/// Most interfaces looked at.
const MOST: usize = 256;
/// Most bytes read of a file of the kernel's.
const MAX_FILE: u64 = 4096;

/// Every interface with its counters since the boot.
pub(super) fn read() -> Vec<Carrier> {
    below(Path::new("/sys/class/net"))
}

fn below(folder: &Path) -> Vec<Carrier> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut all: Vec<Carrier> = entries
        .flatten()
        .take(MOST)
        .filter_map(|entry| one(&entry.path(), entry.file_name().to_str()?))
        .collect();
    all.sort_by(|a, b| a.interface.cmp(&b.interface));
    all
}

fn one(folder: &Path, name: &str) -> Option<Carrier> {
    let number = |file: &str| text(&folder.join(file))?.trim().parse::<u64>().ok();
    let small = |file: &str| number(file).and_then(|value| u32::try_from(value).ok());
    Some(Carrier {
        interface: name.to_owned(),
        received: number("statistics/rx_bytes")?,
        sent: number("statistics/tx_bytes")?,
        mtu_bytes: small("mtu"),
        // Without a link it is -1, unknown, or cannot be read.
        speed_mbit: small("speed").filter(|speed| *speed > 0 && *speed < u32::MAX),
        kind: if folder.join("wireless").exists() {
            Some("wlan".to_owned())
        } else {
            text(&folder.join("uevent"))?
                .lines()
                .find_map(|line| line.strip_prefix("DEVTYPE="))
                .map(str::to_owned)
        },
    })
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path)
        .ok()?
        .take(MAX_FILE)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

/// What went through each interface between two readings; those through which nothing went are left
/// out.
pub(super) fn between(before: &[Carrier], after: Vec<Carrier>) -> Vec<Carrier> {
    after
        .into_iter()
        .map(|mut carrier| {
            if let Some(old) = before.iter().find(|old| old.interface == carrier.interface) {
                carrier.received = carrier.received.saturating_sub(old.received);
                carrier.sent = carrier.sent.saturating_sub(old.sent);
            }
            carrier
        })
        .filter(|carrier| carrier.received > 0 || carrier.sent > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_with_what_the_kernel_says_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, files: &[(&str, &str)]| {
            let at = folder.path().join(name);
            fs::create_dir_all(at.join("statistics")).unwrap();
            for (file, text) in files {
                fs::write(at.join(file), text).unwrap();
            }
        };
        make(
            "eth0",
            &[
                ("statistics/rx_bytes", "100\n"),
                ("statistics/tx_bytes", "200\n"),
                ("mtu", "9000\n"),
                ("speed", "10000\n"),
                ("uevent", "INTERFACE=eth0\nIFINDEX=2\n"),
            ],
        );
        make(
            "mesh0",
            &[
                ("statistics/rx_bytes", "1\n"),
                ("statistics/tx_bytes", "2\n"),
                ("mtu", "1420\n"),
                ("speed", "-1\n"),
                ("uevent", "DEVTYPE=wireguard\nINTERFACE=mesh0\n"),
            ],
        );
        make("broken", &[("mtu", "1500\n")]);
        let all = below(folder.path());
        let names: Vec<&str> = all.iter().map(|c| c.interface.as_str()).collect();
        assert_eq!(names, ["eth0", "mesh0"]);
        assert_eq!(
            (all[0].mtu_bytes, all[0].speed_mbit),
            (Some(9000), Some(10_000))
        );
        assert_eq!(all[0].kind, None);
        assert_eq!(
            (all[1].speed_mbit, all[1].kind.as_deref()),
            (None, Some("wireguard"))
        );
        assert_eq!(below(Path::new("/nonexistent")), []);
    }

    #[test]
    fn only_what_went_since_the_first_reading_counts() {
        let carrier = |name: &str, received, sent| Carrier {
            interface: name.to_owned(),
            received,
            sent,
            ..Carrier::default()
        };
        let before = [carrier("eth0", 10, 20), carrier("lo", 5, 5)];
        let after = vec![
            carrier("eth0", 110, 20),
            carrier("lo", 5, 5),
            carrier("new0", 0, 7),
        ];
        let got = between(&before, after);
        assert_eq!(got, [carrier("eth0", 100, 0), carrier("new0", 0, 7)]);
    }
}
