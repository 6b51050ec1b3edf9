//! From what differs to what is done about it on one host: changes that windlass makes, and lines for
//! what it does not. Pure; must not know how a change is made.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::grub;
use crate::facts::{Settings, settings};
use crate::provision::drift::{ABSENT, Comparison, Row};
use crate::ssh::quote;

/// A change on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "change")]
pub enum Change {
    /// Packages to these versions, in one transaction.
    Packages {
        /// What installs them.
        installer: String,
        /// Name and version.
        install: BTreeMap<String, String>,
        /// What the reference does not have.
        remove: BTreeSet<String>,
    },
    /// A file as the reference has it; `None` removes it.
    File {
        /// Its path, below /etc.
        path: String,
        /// Its text.
        text: Option<String>,
    },
    /// A unit's state at boot.
    Unit {
        /// The unit.
        unit: String,
        /// `enabled`, `disabled` or `masked`.
        from: String,
        /// The same.
        to: String,
    },
    /// GRUB's configuration made anew from its files, with this tool. When the run is taken back, it is
    /// made after the files are back.
    BootLoader {
        /// `update-grub`, `grub2-mkconfig` or `grub-mkconfig`.
        tool: String,
    },
    /// The login's membership in a group.
    Group {
        /// The user.
        user: String,
        /// The group.
        group: String,
        /// Whether the user is to be in it.
        member: bool,
    },
}

impl Change {
    /// The change in a few words.
    pub fn words(&self) -> String {
        match self {
            Self::Packages {
                install, remove, ..
            } => {
                let install = install
                    .iter()
                    .map(|(name, version)| format!("{name} {version}"));
                let remove = remove.iter().map(|name| format!("without {name}"));
                let all: Vec<String> = install.chain(remove).collect();
                let shown: Vec<&str> = all.iter().take(6).map(String::as_str).collect();
                let more = match all.len().saturating_sub(6) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!("packages {}{more}", shown.join(", "))
            }
            Self::File {
                path,
                text: Some(_),
            } => format!("{path} as on the reference"),
            Self::File { path, text: None } => format!("{path} removed"),
            Self::BootLoader { tool } => format!("{tool} writes the boot loader's configuration"),
            Self::Unit { unit, from, to } => format!("{unit} {to} (was {from})"),
            Self::Group {
                user,
                group,
                member: true,
            } => format!("{user} into the group {group}"),
            Self::Group {
                user,
                group,
                member: false,
            } => format!("{user} out of the group {group}"),
        }
    }
}

/// What windlass does not change, and what a person types for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ByHand {
    /// The subject.
    pub subject: String,
    /// The key within it.
    pub key: Option<String>,
    /// What to type, or to do.
    pub line: String,
}

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

/// A host to be changed.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its name.
    pub host: &'a str,
    /// Its settings.
    pub settings: &'a Settings,
    /// The user that logs in.
    pub user: &'a str,
}

/// Plans one host's changes by a comparison with a reference whose settings these are.
pub fn plan(comparison: &Comparison, host: Subject<'_>, reference: &Settings) -> Plan {
    let mut plan = Plan::default();
    let (mut install, mut remove) = (BTreeMap::new(), BTreeSet::new());
    let mut files = BTreeSet::new();
    let mut grub = Grub::new(host.settings);
    let rows = comparison.rows.iter();
    for row in rows.filter(|row| row.differs.contains(host.host)) {
        let own = value(row, host.host);
        let wanted = value(row, &comparison.reference);
        match (row.subject.as_str(), row.key.as_deref(), wanted) {
            ("packages", Some(name), Some(wanted)) if installs(host.settings) && single(wanted) => {
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
                if let Err(line) = grub.set(name, wanted) {
                    let line =
                        line.unwrap_or_else(|| by_hand(row, host, &comparison.reference).line);
                    plan.by_hand.push(ByHand {
                        line,
                        ..by_hand(row, host, &comparison.reference)
                    });
                }
            }
            ("services", Some(unit), Some(wanted)) => plan.changes.push(Change::Unit {
                unit: unit.to_owned(),
                from: own.unwrap_or_default().to_owned(),
                to: wanted.to_owned(),
            }),
            ("groups", Some(group), Some(wanted)) => plan.changes.push(Change::Group {
                user: host.user.to_owned(),
                group: group.to_owned(),
                member: wanted != ABSENT,
            }),
            _ => plan.by_hand.push(by_hand(row, host, &comparison.reference)),
        }
    }
    if files
        .iter()
        .any(|path: &String| path.starts_with(settings::MODPROBE))
    {
        plan.reboot = Some("modules take their options when they are loaded".into());
    }
    if plan.reboot.is_none() && files.iter().any(|path| path.contains("sysctl")) {
        plan.reboot = Some(
            "the kernel's settings are read when it starts (or now: sudo sysctl --system)".into(),
        );
    }
    let waiting = grub.waiting;
    let before = plan.changes.len();
    plan.changes.extend(grub.changes());
    if plan.changes.len() > before || waiting {
        plan.reboot = Some("the kernel takes its parameters when it starts".into());
    }
    plan.changes
        .extend(files.into_iter().map(|path| Change::File {
            text: reference.files.get(&path).cloned(),
            path,
        }));
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
    plan
}

/// GRUB's files, edited.
struct Grub<'a> {
    settings: &'a Settings,
    edited: BTreeMap<String, String>,
    /// Whether something is set already, and waits for a reboot.
    waiting: bool,
}

impl<'a> Grub<'a> {
    fn new(settings: &'a Settings) -> Self {
        Self {
            settings,
            edited: BTreeMap::new(),
            waiting: false,
        }
    }

    /// The texts as they are by now, in the order in which GRUB's tools read them; what is read later
    /// wins.
    fn files(&self) -> Vec<(String, String)> {
        let own = self.settings.files.iter();
        own.filter(|(path, _)| path.starts_with("/etc/default/grub"))
            .map(|(path, text)| {
                let text = self.edited.get(path).unwrap_or(text);
                (path.clone(), text.clone())
            })
            .collect()
    }

    /// Sets a parameter, or takes it out where it is to be absent.
    ///
    /// # Errors
    /// With what a person types, where windlass does not edit; `None`: what the rule says.
    fn set(&mut self, name: &str, wanted: &str) -> Result<(), Option<String>> {
        // A repeated parameter, and one whose value holds what a shell reads, are a person's.
        let value = match wanted {
            ABSENT => None,
            "set" => Some(None),
            value => Some(Some(value)),
        };
        let argument = match value {
            Some(Some(value)) => quote(&format!("{name}={value}")),
            _ => quote(name),
        };
        match self.settings.boot.as_deref() {
            Some("grubby") => {
                let verb = if value.is_some() {
                    "args"
                } else {
                    "remove-args"
                };
                return Err(Some(format!(
                    "sudo grubby --update-kernel=ALL --{verb}={argument}, then reboot"
                )));
            }
            Some(_) => {}
            None => return Err(None),
        }
        let files = self.files();
        let holding: Vec<&(String, String)> = files
            .iter()
            .filter(|(_, text)| grub::value(text, name).is_some())
            .collect();
        let places: Vec<&(String, String)> = match value {
            None => holding,
            Some(_) => {
                let can = |(_, text): &&(String, String)| grub::edit(text, name, value).is_ok();
                let place = holding.last().copied().or_else(|| files.iter().rfind(can));
                place.or_else(|| files.first()).into_iter().collect()
            }
        };
        if places.is_empty() {
            // It comes from elsewhere: another boot loader, or a line typed at the start.
            return Err(None);
        }
        for (path, text) in places {
            let new =
                grub::edit(text, name, value).map_err(|error| Some(format!("{path}, {error}")))?;
            if new == *text {
                self.waiting = true;
            } else {
                self.edited.insert(path.clone(), new);
            }
        }
        Ok(())
    }

    fn changes(self) -> Vec<Change> {
        let tool = self.settings.boot.clone().unwrap_or_default();
        let mut changes: Vec<Change> = self
            .edited
            .into_iter()
            .map(|(path, text)| Change::File {
                path,
                text: Some(text),
            })
            .collect();
        if !changes.is_empty() {
            changes.push(Change::BootLoader { tool });
        }
        changes
    }
}

fn value<'a>(row: &'a Row, host: &str) -> Option<&'a str> {
    row.values.get(host)?.as_deref()
}

/// Installers that bring a package to a given version. The others have only the newest at hand.
fn installs(settings: &Settings) -> bool {
    let installer = settings.installer.as_deref();
    installer.is_some_and(|installer| ["apt-get", "dnf", "zypper"].contains(&installer))
}

/// Of several versions at once (kernels of rpm), none is brought about by name.
fn single(version: &str) -> bool {
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

fn by_hand(row: &Row, host: Subject<'_>, reference: &str) -> ByHand {
    let wanted = value(row, reference).unwrap_or_default();
    let key = row.key.as_deref().unwrap_or_default();
    let line = match (row.subject.as_str(), host.settings.installer.as_deref()) {
        ("hostname", _) => "sudo hostnamectl set-hostname NAME".to_owned(),
        ("machine_id", _) => {
            "on the copy: sudo rm /etc/machine-id && sudo systemd-machine-id-setup, then reboot"
                .to_owned()
        }
        ("data_mtu", _) => format!(
            "sudo ip link set INTERFACE mtu {} (and in the network's configuration, so that it stays)",
            quote(wanted)
        ),
        ("packages", Some("pacman")) => format!("sudo pacman -Syu {} on all hosts", quote(key)),
        ("packages", Some("rpm-ostree")) => {
            "sudo rpm-ostree deploy VERSION with the reference's version, then reboot".to_owned()
        }
        ("parameters", _) => match wanted {
            ABSENT => format!("take {key} out of the kernel's parameters, and reboot"),
            "set" => format!("add {key} to the kernel's parameters, and reboot"),
            value => format!("set {key}={value} among the kernel's parameters, and reboot"),
        },
        _ => {
            let mend = row.mend.as_str();
            mend.strip_prefix("windlass align; or ")
                .unwrap_or(mend)
                .to_owned()
        }
    };
    ByHand {
        subject: row.subject.clone(),
        key: row.key.clone(),
        line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        };
        plan(&comparison, host, reference)
    }

    #[test]
    fn packages_are_one_transaction_and_come_first() {
        let own = Settings {
            installer: Some("apt-get".into()),
            ..Settings::default()
        };
        let rows = vec![
            row("services", Some("x.service"), "enabled", "disabled"),
            row("packages", Some("zstd"), "1.5", "1.4"),
            row("packages", Some("odd"), ABSENT, "1"),
            row("groups", Some("render"), "member", ABSENT),
        ];
        let found = planned(rows, &own, &Settings::default());
        let words: Vec<String> = found.changes.iter().map(Change::words).collect();
        assert_eq!(
            words,
            [
                "packages zstd 1.5, without odd",
                "x.service enabled (was disabled)",
                "ai into the group render",
            ]
        );
        assert_eq!((found.by_hand, found.reboot), (Vec::new(), None));
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
                text: None,
            },
            Change::File {
                path: path.into(),
                text: Some("options ttm pages_limit=9\n".into()),
            },
        ];
        assert_eq!(found.changes, wanted);
        assert!(found.reboot.is_some());
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
                && lines[1].contains("mtu 9000")
                && lines[2] == "do it",
            "{lines:?}"
        );
    }

    #[test]
    fn kernel_parameters_are_edited_where_grub_keeps_them_and_else_a_line_to_type() {
        let text = "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet iommu=pt\"\n";
        let more = "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT old=1\"\n";
        let own = |boot: Option<&str>| Settings {
            boot: boot.map(str::to_owned),
            files: map(&[
                ("/etc/default/grub", text),
                ("/etc/default/grub.d/x.cfg", more),
            ]),
            ..Settings::default()
        };
        let rows = || {
            vec![
                row("parameters", Some("ttm.pages_limit"), "31457280", ABSENT),
                row("parameters", Some("old"), ABSENT, "1"),
                row("parameters", Some("iommu"), "off", "pt"),
                row("parameters", Some("odd"), "a b", ABSENT),
                row("parameters", Some("typed"), ABSENT, "1"),
            ]
        };
        let found = planned(rows(), &own(Some("update-grub")), &Settings::default());
        let file = |path: &str, text: &str| Change::File {
            path: path.into(),
            text: Some(text.into()),
        };
        let wanted = [
            file(
                "/etc/default/grub",
                "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet iommu=off\"\n",
            ),
            file(
                "/etc/default/grub.d/x.cfg",
                "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT ttm.pages_limit=31457280\"\n",
            ),
            Change::BootLoader {
                tool: "update-grub".into(),
            },
        ];
        assert_eq!(found.changes, wanted);
        let by_hand: Vec<Option<&str>> =
            found.by_hand.iter().map(|one| one.key.as_deref()).collect();
        assert_eq!(by_hand, [Some("odd"), Some("typed")]);
        assert!(found.reboot.is_some());

        let found = planned(rows(), &own(Some("grubby")), &Settings::default());
        assert!(found.changes.is_empty());
        let lines: Vec<&str> = found.by_hand.iter().map(|one| one.line.as_str()).collect();
        assert!(
            lines[0].contains("--args=ttm.pages_limit=31457280"),
            "{lines:?}"
        );
        assert!(lines[1].contains("--remove-args=old"), "{lines:?}");
        let found = planned(rows(), &own(None), &Settings::default());
        assert_eq!((found.changes.len(), found.by_hand.len()), (0, 5));
    }
}
