//! From what differs to what is done about it on one host: changes that windlass makes, and lines for
//! what it does not. Pure; must not know how a change is made.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::change::{Change, STATIC};
use super::hand::{ByHand, by_hand, closed_there};
use super::parameters::Parameters;
use crate::facts::{Settings, settings};
use crate::provision::boot::initramfs::Initramfs;
use crate::provision::boot::{Ground, Mechanism};
use crate::provision::boot::{cmdline, grub, mechanism};
use crate::provision::drift::parameters::comparable;
use crate::provision::drift::subjects::masked;
use crate::provision::drift::{ABSENT, Comparison, Needs, Row};

/// What is to be done on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Changes, in their order.
    pub changes: Vec<Change>,
    /// What is left to a person.
    pub by_hand: Vec<ByHand>,
    /// Why a reboot is needed for the changes to take effect; `None` when none is.
    pub reboot: Option<String>,
}

/// Why a reboot is waited for that a person can do without.
const AT_ONCE: &str =
    "the kernel's settings are read when it starts (or now: sudo sysctl --system)";

impl Plan {
    /// Why its changes are in force with the next start and not before.
    pub fn waits(&self) -> Option<String> {
        self.reboot.clone().filter(|why| why != AT_ONCE)
    }
}

/// A host to be changed.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its name.
    pub host: &'a str,
    /// Its settings.
    pub settings: &'a Settings,
    /// The user that logs in.
    pub user: &'a str,
    /// The interface that carries the data path, where that is known.
    pub interface: Option<&'a str>,
    /// What decides how its kernel parameters are set, where that was looked at; see
    /// [`needs_ground`].
    pub ground: Option<&'a Ground>,
}

/// Whether the plan of a host asks how its kernel parameters are set, and what holds modules' options.
pub fn needs_ground(comparison: &Comparison, host: &str) -> bool {
    let mut rows = comparison.rows.iter();
    let asks = |row: &Row| ["parameters", "modules"].contains(&row.subject.as_str());
    rows.any(|row| asks(row) && row.differs.contains(host))
}

/// What a host's next boot brings that the reference does not have, and that is not in force yet: the
/// files of GRUB were written since it started. As rows like those that a comparison after that boot
/// would have. What waits on the reference in the same way is left out; of other ways to boot nothing is
/// known beforehand.
pub fn next_boot(
    comparison: &Comparison,
    host: &str,
    ground: &Ground,
    reference: Option<&Ground>,
) -> Vec<Row> {
    let written = |ground: &Ground| match mechanism::mechanism(ground) {
        Ok(Mechanism::Grub { .. }) => {
            let values = grub::read(&ground.grub).ok()?;
            Some(comparable(&values.command_line()))
        }
        _ => None,
    };
    let Some(next) = written(ground) else {
        return Vec::new();
    };
    let there = reference.and_then(written).unwrap_or_default();
    let now = comparable(&ground.command_line);
    let known = |name: &str| {
        let mut rows = comparison.rows.iter();
        rows.any(|row| {
            let key = row.key.as_deref().unwrap_or_default();
            row.subject == "parameters" && cmdline::same_name(key, name)
        })
    };
    next.into_iter()
        // What only a shell can tell is not known here.
        .filter(|(name, value)| !format!("{name}{value}").contains(grub::UNKNOWN))
        .filter(|(name, value)| now.get(name) != Some(value) && there.get(name) != Some(value))
        .filter(|(name, _)| !known(name))
        .map(|(name, value)| {
            let wanted = now.get(&name).cloned().unwrap_or_else(|| ABSENT.to_owned());
            let values = [(host, value), (comparison.reference.as_str(), wanted)];
            Row {
                subject: "parameters".to_owned(),
                key: Some(name),
                needs: Needs::Equal,
                values: values
                    .map(|(host, value)| (host.to_owned(), Some(value)))
                    .into(),
                differs: [host.to_owned()].into(),
                unknown: BTreeSet::new(),
                why: String::new(),
                mend: String::new(),
            }
        })
        .collect()
}

/// Plans one host's changes by a comparison with a reference whose settings these are.
pub fn plan(comparison: &Comparison, host: Subject<'_>, reference: &Settings) -> Plan {
    let mut plan = Plan::default();
    let (mut install, mut remove) = (BTreeMap::new(), BTreeSet::new());
    let mut files = BTreeSet::new();
    let mut groups = Vec::new();
    let mut parameters = Parameters::new(host.ground);
    let rows = comparison.rows.iter();
    for row in rows.filter(|row| row.differs.contains(host.host)) {
        let own = value(row, host.host);
        let wanted = value(row, &comparison.reference);
        match (row.subject.as_str(), row.key.as_deref(), wanted) {
            ("packages", Some(name), Some(wanted))
                if installs(host.settings) && by_name(name, own, wanted) =>
            {
                if wanted == ABSENT {
                    remove.insert(name.to_owned());
                } else {
                    install.insert(name.to_owned(), wanted.to_owned());
                }
            }
            ("modules" | "sysctl", Some(name), _) => {
                let found = touched(name, host.settings, reference);
                if found.is_empty() {
                    plan.by_hand.push(by_hand(row, host, &comparison.reference));
                }
                files.extend(found);
            }
            ("parameters", Some(name), Some(wanted)) => {
                if let Err(line) = parameters.want(name, own.unwrap_or_default(), wanted) {
                    let mut one = by_hand(row, host, &comparison.reference);
                    one.line = line.unwrap_or(one.line);
                    plan.by_hand.push(one);
                }
            }
            ("services", Some(unit), Some(wanted)) => plan.changes.push(Change::Unit {
                unit: unit.to_owned(),
                from: own.unwrap_or_default().to_owned(),
                to: wanted.to_owned(),
            }),
            ("sleep", _, Some(wanted)) => {
                let (close, open) = ways(own.unwrap_or_default(), wanted);
                plan.changes.extend(close.iter().map(|way| Change::Unit {
                    unit: format!("{way}.target"),
                    from: STATIC.to_owned(),
                    to: "masked".to_owned(),
                }));
                if close.is_empty() || !open.is_empty() {
                    let mut one = by_hand(row, host, &comparison.reference);
                    if !open.is_empty() {
                        one.line = closed_there(&comparison.reference, &open);
                    }
                    plan.by_hand.push(one);
                }
            }
            ("groups", Some(group), Some(wanted)) => groups.push(Change::Group {
                user: host.user.to_owned(),
                group: group.to_owned(),
                member: wanted != ABSENT,
            }),
            _ => plan.by_hand.push(by_hand(row, host, &comparison.reference)),
        }
    }
    let modules = files
        .iter()
        .any(|path: &String| path.starts_with(settings::MODPROBE));
    if modules {
        plan.reboot = Some("modules take their options when they are loaded".into());
    }
    if plan.reboot.is_none() && files.iter().any(|path| path.contains("sysctl")) {
        plan.reboot = Some(AT_ONCE.into());
    }
    let set = parameters.changes();
    if !set.is_empty() || parameters.waiting {
        plan.reboot = Some("the kernel takes its parameters when it starts".into());
    }
    plan.changes.extend(set);
    plan.changes
        .extend(files.into_iter().map(|path| Change::File {
            was: host.settings.files.get(&path).cloned(),
            text: reference.files.get(&path).cloned(),
            path,
        }));
    if modules {
        plan.changes.extend(host.ground.and_then(early));
    }
    if let Some(installer) = host.settings.installer.clone()
        && !(install.is_empty() && remove.is_empty())
    {
        if install
            .keys()
            .any(|name| name.starts_with("linux-image") || name.starts_with("kernel"))
        {
            plan.reboot = Some("the kernel is another".into());
        }
        // Services and groups may come with packages, so these are first.
        plan.changes.insert(
            0,
            Change::Packages {
                installer,
                install,
                remove,
            },
        );
    }
    // A group that is not there fails, and nothing after it is done.
    plan.changes.extend(groups);
    plan
}

/// Builds the early file system anew, whose drivers have a copy of the options of modules.
fn early(ground: &Ground) -> Option<Change> {
    // Images of ostree are the system's own.
    if ground.ostree || !ground.early {
        return None;
    }
    let line = Initramfs::of(|tool| ground.has(tool))?.line(&ground.release);
    Some(Change::Line {
        undo: line.clone(),
        line,
    })
}

/// Ways to sleep that are closed on the reference and open on the host, and the other way round.
fn ways<'a>(own: &'a str, wanted: &'a str) -> (Vec<&'a str>, Vec<&'a str>) {
    let (Some(own), Some(wanted)) = (masked(own), masked(wanted)) else {
        return (Vec::new(), Vec::new());
    };
    let less = |a: &BTreeSet<&'a str>, b: &BTreeSet<&'a str>| a.difference(b).copied().collect();
    (less(&wanted, &own), less(&own, &wanted))
}

/// What a row says of a host.
pub(super) fn value<'a>(row: &'a Row, host: &str) -> Option<&'a str> {
    row.values.get(host)?.as_deref()
}

/// Installers that bring a package to a given version. The others have only the newest at hand.
fn installs(settings: &Settings) -> bool {
    let installer = settings.installer.as_deref();
    installer.is_some_and(|installer| ["apt-get", "dnf", "zypper"].contains(&installer))
}

/// Whether a package is brought about by its name, safely.
fn by_name(name: &str, own: Option<&str>, wanted: &str) -> bool {
    let may_run = wanted == ABSENT && is_kernel(name);
    single(wanted) && own.is_none_or(single) && !may_run
}

/// Debian's packages of one kernel: the running one's are not removed, and the whole transaction fails.
pub(super) fn is_kernel(name: &str) -> bool {
    ["linux-image-", "linux-modules-"]
        .iter()
        .any(|kernel| name.starts_with(kernel))
}

/// Of several versions at once (kernels of rpm), none is brought about by name.
pub(super) fn single(version: &str) -> bool {
    !version.contains(' ')
}

/// The files that set a name on the host or on the reference and are not the same there.
fn touched(name: &str, own: &Settings, reference: &Settings) -> BTreeSet<String> {
    let sets = |files: &BTreeMap<String, String>| -> BTreeSet<String> {
        let setting = files
            .iter()
            .filter(|(path, text)| settings::names_set(path, text).contains(name));
        setting.map(|(path, _)| path.clone()).collect()
    };
    let mut found = sets(&own.files);
    found.extend(sets(&reference.files));
    found.retain(|path| own.files.get(path) != reference.files.get(path));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provision::boot::grub::File;
    use crate::provision::drift::Needs;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    }

    fn row(subject: &str, key: Option<&str>, reference: &str, own: &str) -> Row {
        Row {
            subject: subject.into(),
            key: key.map(str::to_owned),
            needs: Needs::Equal,
            values: [("a", reference), ("b", own)]
                .map(|(host, value)| (host.to_owned(), Some(value.to_owned())))
                .into(),
            differs: ["b".to_owned()].into(),
            unknown: BTreeSet::new(),
            why: "why".into(),
            mend: "do it".into(),
        }
    }

    fn planned(rows: Vec<Row>, own: &Settings, reference: &Settings) -> Plan {
        let comparison = Comparison {
            reference: "a".into(),
            rows,
            ..Comparison::default()
        };
        let host = Subject {
            host: "b",
            settings: own,
            user: "ai",
            interface: Some("enp1s0"),
            ground: None,
        };
        plan(&comparison, host, reference)
    }

    #[test]
    fn packages_are_one_transaction_and_come_first_and_groups_last() {
        let own = Settings {
            installer: Some("apt-get".into()),
            ..Settings::default()
        };
        let rows = vec![
            row("services", Some("x.service"), "enabled", "disabled"),
            row("packages", Some("zstd"), "1.5", "1.4"),
            row("packages", Some("odd"), ABSENT, "1"),
            row("groups", Some("render"), "member", ABSENT),
            row("services", Some("y.service"), "masked", "disabled"),
        ];
        let found = planned(rows, &own, &Settings::default());
        let words: Vec<String> = found.changes.iter().map(Change::words).collect();
        assert_eq!(
            words,
            [
                "packages zstd 1.5, without odd",
                "x.service enabled (was disabled)",
                "y.service masked (was disabled)",
                "ai into the group render",
            ]
        );
        assert_eq!((found.by_hand, found.reboot), (Vec::new(), None));
    }

    #[test]
    fn kernels_that_are_packages_are_left_to_a_person() {
        let own = Settings {
            installer: Some("apt-get".into()),
            ..Settings::default()
        };
        let rows = vec![
            row("packages", Some("linux-image-6.17-amd64"), ABSENT, "6.17-1"),
            row("packages", Some("linux-modules-6.17"), ABSENT, "6.17-1"),
            row("packages", Some("kernel"), "6.18-1", "6.17-1 6.18-1"),
            row("packages", Some("kernel-core"), "6.17-1 6.18-1", "6.18-1"),
        ];
        let found = planned(rows, &own, &Settings::default());
        assert!(found.changes.is_empty(), "{:?}", found.changes);
        let lines: Vec<&str> = found.by_hand.iter().map(|one| one.line.as_str()).collect();
        assert_eq!(
            lines,
            [
                "sudo apt-get remove linux-image-6.17-amd64, once another kernel runs",
                "sudo apt-get remove linux-modules-6.17, once another kernel runs",
                "have 6.18-1 of kernel in place of 6.17-1 6.18-1, and keep the one that runs",
                "have 6.17-1 6.18-1 of kernel-core in place of 6.18-1, and keep the one that runs",
            ]
        );
        let rows = vec![row("packages", Some("linux-image-6.18"), "6.18-1", ABSENT)];
        assert_eq!(planned(rows, &own, &Settings::default()).changes.len(), 1);
    }

    #[test]
    fn files_that_set_what_differs_become_the_reference_s_and_others_stay() {
        let path = "/etc/modprobe.d/ttm.conf";
        let own = Settings {
            files: map(&[
                (path, "options ttm pages_limit=1\n"),
                ("/etc/modprobe.d/own.conf", "options ttm pages_limit=2\n"),
                ("/etc/modprobe.d/z.conf", "options snd a=1\n"),
            ]),
            ..Settings::default()
        };
        let reference = Settings {
            files: map(&[(path, "options ttm pages_limit=9\n")]),
            ..Settings::default()
        };
        let found = planned(
            vec![row("modules", Some("ttm pages_limit"), "9", "2")],
            &own,
            &reference,
        );
        let wanted = [
            Change::File {
                path: "/etc/modprobe.d/own.conf".into(),
                was: Some("options ttm pages_limit=2\n".into()),
                text: None,
            },
            Change::File {
                path: path.into(),
                was: Some("options ttm pages_limit=1\n".into()),
                text: Some("options ttm pages_limit=9\n".into()),
            },
        ];
        assert_eq!(found.changes, wanted);
        assert!(found.reboot.is_some());
    }

    #[test]
    fn options_of_modules_come_into_the_early_file_system_where_there_is_one() {
        let own = Settings {
            files: map(&[("/etc/modprobe.d/x.conf", "options ttm pages_limit=2\n")]),
            ..Settings::default()
        };
        let lines = |early: bool, ostree: bool| {
            let ground = Ground {
                tools: vec!["update-initramfs".into()],
                release: "6.18".into(),
                early,
                ostree,
                ..Ground::default()
            };
            let comparison = Comparison {
                reference: "a".into(),
                rows: vec![row("modules", Some("ttm pages_limit"), ABSENT, "2")],
                ..Comparison::default()
            };
            assert!(needs_ground(&comparison, "b"));
            let host = Subject {
                host: "b",
                settings: &own,
                user: "ai",
                interface: None,
                ground: Some(&ground),
            };
            let changes = plan(&comparison, host, &Settings::default()).changes;
            let words: Vec<String> = changes.iter().map(Change::words).collect();
            words.join("; ")
        };
        let file = "/etc/modprobe.d/x.conf removed";
        assert_eq!(
            lines(true, false),
            format!("{file}; runs update-initramfs -u -k 6.18")
        );
        assert_eq!(lines(false, false), file);
        assert_eq!(lines(true, true), file);
    }

    #[test]
    fn what_windlass_does_not_change_is_a_line_to_type() {
        let own = Settings {
            installer: Some("pacman".into()),
            ..Settings::default()
        };
        let rows = vec![
            row("packages", Some("zstd"), "1.5", "1.4"),
            row("data_mtu", None, "9000", "1500"),
            row("kernel", None, "6.18", "6.17"),
        ];
        let found = planned(rows, &own, &Settings::default());
        assert!(found.changes.is_empty());
        let lines: Vec<&str> = found.by_hand.iter().map(|one| one.line.as_str()).collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0].starts_with("sudo pacman")
                && lines[1].starts_with("sudo ip link set dev enp1s0 mtu 9000; ")
                && lines[2] == "do it",
            "{lines:?}"
        );
    }

    #[test]
    fn a_larger_packet_is_a_line_for_what_configures_the_network_there() {
        let line = |units: &[(&str, &str)], packages: &[(&str, &str)]| {
            let own = Settings {
                units: Some(map(units)),
                packages: Some(map(packages).into()),
                ..Settings::default()
            };
            let rows = vec![row("data_mtu", None, "9000", "1500")];
            planned(rows, &own, &Settings::default()).by_hand[0]
                .line
                .clone()
        };
        let networkd = ("systemd-networkd.service", "enabled");
        for (units, packages, wanted) in [
            (
                vec![("NetworkManager.service", "enabled"), networkd],
                vec![("netplan.io", "1")],
                "nmcli connection modify",
            ),
            (
                vec![networkd],
                vec![("netplan.io", "1")],
                "sudo netplan set ethernets.enp1s0.mtu=9000",
            ),
            (vec![networkd], vec![], "MTUBytes=9000 under [Link]"),
            (
                vec![
                    ("networking.service", "enabled"),
                    ("NetworkManager.service", "disabled"),
                ],
                vec![],
                "mtu 9000 under enp1s0 in /etc/network/interfaces",
            ),
            (
                vec![],
                vec![],
                "9000 for enp1s0 in the network's configuration",
            ),
        ] {
            let line = line(&units, &packages);
            assert!(
                line.starts_with("sudo ip link set dev enp1s0 mtu 9000; ") && line.contains(wanted),
                "{line}"
            );
        }
    }

    #[test]
    fn ways_to_sleep_are_closed_as_on_the_reference_and_never_opened() {
        let of = |reference: &str, own: &str| {
            let rows = vec![row("sleep", None, reference, own)];
            let found = planned(rows, &Settings::default(), &Settings::default());
            let words: Vec<String> = found.changes.iter().map(Change::words).collect();
            let lines: Vec<String> = found.by_hand.into_iter().map(|one| one.line).collect();
            (words.join("; "), lines.join("; "))
        };
        let none = "nothing masked";
        for (reference, own, changes, by_hand) in [
            (
                "masked: sleep suspend",
                none,
                "sleep.target masked (was static); suspend.target masked (was static)",
                "",
            ),
            (
                none,
                "masked: sleep suspend",
                "",
                "on a: sudo systemctl mask sleep.target suspend.target",
            ),
            (
                "masked: hibernate sleep",
                "masked: sleep suspend",
                "hibernate.target masked (was static)",
                "on a: sudo systemctl mask suspend.target",
            ),
            // What no version of windlass says.
            ("possible", none, "", "do it"),
        ] {
            assert_eq!(
                of(reference, own),
                (changes.to_owned(), by_hand.to_owned()),
                "{reference}, {own}"
            );
        }
    }

    #[test]
    fn what_the_next_boot_brings_is_seen_in_the_files_of_grub() {
        let host = |default: &str, running: &str| Ground {
            tools: vec!["update-grub".into()],
            command_line: format!("BOOT_IMAGE=/v root=/dev/sda1 ro {running}"),
            grub: vec![File::new(
                "/etc/default/grub",
                format!("GRUB_CMDLINE_LINUX_DEFAULT=\"{default}\"\n"),
            )],
            ..Ground::default()
        };
        let rows = |rows: Vec<Row>, own: &Ground, reference: Option<&Ground>| {
            let comparison = Comparison {
                reference: "a".into(),
                rows,
                ..Comparison::default()
            };
            let found = next_boot(&comparison, "b", own, reference).into_iter();
            let shown = found.map(|row| {
                let of = |host: &str| value(&row, host).unwrap().to_owned();
                let key = row.key.clone().unwrap();
                format!("{key}: {} for {}", of("a"), of("b"))
            });
            shown.collect::<Vec<_>>().join(", ")
        };
        let own = host("quiet new=1 other=2 gone", "quiet other=1 typed");
        assert_eq!(
            rows(vec![], &own, None),
            "gone: absent for set, new: absent for 1, other: 1 for 2"
        );
        // What differs already, and what waits on both.
        let known = vec![row("parameters", Some("other"), "3", "1")];
        let reference = host("quiet new=1", "quiet");
        assert_eq!(rows(known, &own, Some(&reference)), "gone: absent for set");
        // What a shell would tell, and ways to boot of which nothing is known.
        let shell = host("quiet a=$(cat /x)", "quiet");
        assert_eq!(rows(vec![], &shell, None), "");
        let mut ostree = own.clone();
        ostree.ostree = true;
        ostree.tools = vec!["rpm-ostree".into()];
        assert_eq!(rows(vec![], &ostree, None), "");
    }

    #[test]
    fn kernel_parameters_are_set_by_the_host_s_own_way_and_else_a_line_to_type() {
        let grub = "/etc/default/grub";
        let ground = Ground {
            tools: vec!["update-grub".into()],
            grub: vec![File::new(
                grub,
                "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet iommu=pt old=1\"\n",
            )],
            ..Ground::default()
        };
        let rows = || {
            vec![
                row("parameters", Some("ttm.pages_limit"), "31457280", ABSENT),
                row("parameters", Some("old"), ABSENT, "1"),
                row("parameters", Some("iommu"), "off", "pt"),
                row("parameters", Some("odd"), "a b", ABSENT),
            ]
        };
        let own = Settings::default();
        let of = |ground| {
            let comparison = Comparison {
                reference: "a".into(),
                rows: rows(),
                ..Comparison::default()
            };
            assert!(needs_ground(&comparison, "b") && !needs_ground(&comparison, "c"));
            let host = Subject {
                host: "b",
                settings: &own,
                user: "ai",
                interface: None,
                ground,
            };
            plan(&comparison, host, &Settings::default())
        };
        let found = of(Some(&ground));
        let wanted = [
            Change::File {
                path: grub.into(),
                was: Some("GRUB_CMDLINE_LINUX_DEFAULT=\"quiet iommu=pt old=1\"\n".into()),
                text: Some(
                    "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet iommu=off ttm.pages_limit=31457280\"\n"
                        .into(),
                ),
            },
            Change::Line {
                line: "update-grub".into(),
                undo: "update-grub".into(),
            },
        ];
        assert_eq!(found.changes, wanted);
        let by_hand: Vec<Option<&str>> =
            found.by_hand.iter().map(|one| one.key.as_deref()).collect();
        assert_eq!(by_hand, [Some("odd")]);
        assert!(found.reboot.is_some());

        let found = of(None);
        assert_eq!((found.changes.len(), found.by_hand.len()), (0, 4));
        assert_eq!(found.reboot, None);
        assert_eq!(
            found.by_hand[0].line,
            "set ttm.pages_limit=31457280 among the kernel's parameters, and reboot"
        );
    }
}
