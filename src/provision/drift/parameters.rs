//! The kernel's command line as values to compare: what names this very machine's disks is left out.
//! Must not know which parameters matter.

use std::collections::BTreeMap;

/// Names of parameters that name a disk, an image or a host, so that identical machines differ in them.
const OWN: &[&str] = &[
    "BOOT_IMAGE",
    "cryptdevice",
    "cryptkey",
    "hostname",
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
    for word in words(line) {
        let (name, value) = word.split_once('=').unwrap_or((&word, "set"));
        // What follows is for the first process.
        if name == "--" {
            break;
        }
        if OWN.contains(&name) {
            continue;
        }
        let entry = found.entry(name.replace('-', "_")).or_default();
        if !entry.is_empty() {
            entry.push(' ');
        }
        entry.push_str(value);
    }
    found
}

/// Words between blanks; blanks within double quotes do not part.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for c in line.chars() {
        if c == '"' {
            quoted = !quoted;
        }
        if c.is_whitespace() && !quoted {
            words.push(std::mem::take(&mut word));
        } else {
            word.push(c);
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_the_machine_is_left_out_and_repeated_parameters_stay_in_order() {
        let table: [(&str, &[(&str, &str)]); 4] = [
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
                &[("dyndbg", r#""module a +p; module b +p""#)],
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
