//! The kernel's command line as values to compare: what names this very machine's disks is left out.
//! Must not know which parameters matter.

use std::collections::BTreeMap;

use crate::provision::boot::cmdline::words;

/// Names of parameters that name a disk, an image or a host, so that identical machines differ in them.
const OWN: &[&str] = &[
    "BOOT_IMAGE",
    "cryptdevice",
    "cryptkey",
    "hostname",
    // NixOS starts with a program by a path that holds a hash of the host's own configuration.
    "init",
    "initrd",
    "ip",
    "luks.name",
    "luks.uuid",
    "nfsroot",
    "ostree",
    "rd.luks.name",
    "rd.luks.uuid",
    "rd.lvm.lv",
    "rd.md.uuid",
    "resume",
    "resume_offset",
    "root",
    "systemd.hostname",
    "systemd.machine_id",
];

/// The parameters of a command line with their values, in order where one is repeated; a parameter
/// without a value has the value `set`. In names, `-` and `_` are the same.
pub fn comparable(line: &str) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let words = words(line).into_iter().take_while(|word| word.name != "--");
    for word in words.filter(|word| !OWN.contains(&word.name.as_str())) {
        let entry = found.entry(word.name.replace('-', "_")).or_default();
        if !entry.is_empty() {
            entry.push(' ');
        }
        entry.push_str(word.value.as_deref().unwrap_or("set"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_the_machine_is_left_out_and_repeated_parameters_stay_in_order() {
        let table: [(&str, &[(&str, &str)]); 5] = [
            (
                "init=/nix/store/0a1b-nixos-system-halo-25.11/init quiet",
                &[("quiet", "set")],
            ),
            (
                "BOOT_IMAGE=/vmlinuz-6.1 root=UUID=1-2 ro quiet ttm.pages_limit=31457280\n",
                &[
                    ("quiet", "set"),
                    ("ro", "set"),
                    ("ttm.pages_limit", "31457280"),
                ],
            ),
            (
                "console=tty0 console=ttyS0,115200 amd-iommu=off",
                &[("amd_iommu", "off"), ("console", "tty0 ttyS0,115200")],
            ),
            (
                r#"dyndbg="module a +p; module b +p" -- single"#,
                &[("dyndbg", "module a +p; module b +p")],
            ),
            ("", &[]),
        ];
        for (line, wanted) in table {
            let wanted = wanted
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
            assert_eq!(comparable(line), wanted.collect(), "{line}");
        }
    }
}
