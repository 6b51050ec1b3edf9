//! Kernel parameters that are to be as on the reference: a wish, and what the host's own way to them
//! makes of it. Pure; must not know how a way is gone.

use super::change::Change;
use crate::provision::boot::change::{self, Change as Boot};
use crate::provision::boot::mechanism::mechanism;
use crate::provision::boot::{Ground, Mechanism, Parameter, Wish};
use crate::provision::drift::ABSENT;

/// What is wanted of one host's kernel parameters, and what can be done about it.
pub struct Parameters<'a> {
    /// The host's way; why there is none, where that is known.
    way: Result<(&'a Ground, Mechanism), Option<String>>,
    wish: Wish,
    /// Whether something is set already, and waits for a reboot.
    pub waiting: bool,
}

impl<'a> Parameters<'a> {
    /// Of a host that was looked at; `None` when it was not.
    pub fn new(ground: Option<&'a Ground>) -> Self {
        let way = match ground {
            None => Err(None),
            Some(ground) => match mechanism(ground) {
                // Options of modules are not on the command line, which is what is compared.
                Ok(Mechanism::Modprobe { .. }) => Err(None),
                Ok(mechanism) => Ok((ground, mechanism)),
                Err(why) => Err(Some(why)),
            },
        };
        Self {
            way,
            wish: Wish::default(),
            waiting: false,
        }
    }

    /// Wants a parameter as the reference has it. `own`: what the host has of it.
    ///
    /// # Errors
    /// With what a person does, where windlass does not; `None`: as the rule says.
    pub fn want(&mut self, name: &str, own: &str, wanted: &str) -> Result<(), Option<String>> {
        let (ground, mechanism) = self.way.as_ref().map_err(Clone::clone)?;
        // A repeated parameter, and one whose value holds what a shell reads, are a person's.
        if !is_plain(own) || !is_plain(wanted) {
            return Err(None);
        }
        let mut one = Wish::default();
        match wanted {
            ABSENT => one.remove.push(name.to_owned()),
            "set" => one.set.push(Parameter::new(name, "")),
            value => one.set.push(Parameter::new(name, value)),
        }
        let refused =
            |(path, refusal): (String, crate::provision::boot::Refusal)| Some(refusal.of(&path));
        let alone = change::change(ground, mechanism, &one).map_err(refused)?;
        if !alone.hand.is_empty() {
            return Err(Some(alone.hand.join("; ")));
        }
        if alone.is_empty() && wanted == ABSENT {
            return Err(Some(format!(
                "{name} stands in nothing that its next boot goes by: reboot it; where {name} is still \
                 there then, another boot loader or a person sets it"
            )));
        }
        if alone.is_empty() {
            self.waiting = true;
            return Ok(());
        }
        let mut all = self.wish.clone();
        all.set.extend(one.set);
        all.remove.extend(one.remove);
        change::change(ground, mechanism, &all).map_err(refused)?;
        self.wish = all;
        Ok(())
    }

    /// What is done on the host: files first, then the lines of its own tools.
    pub fn changes(&self) -> Vec<Change> {
        let Ok((ground, mechanism)) = &self.way else {
            return Vec::new();
        };
        // Some tools have a line for a wish for nothing, too.
        if self.wish == Wish::default() {
            return Vec::new();
        }
        // It was possible when it was wanted.
        let Boot {
            files, lines, keep, ..
        } = change::change(ground, mechanism, &self.wish).unwrap_or_default();
        let files = files.into_iter().map(|file| Change::File {
            path: file.path,
            was: file.before,
            text: Some(file.after),
        });
        let keep = keep.into_iter().map(|path| Change::Kept { path });
        let lines = lines.into_iter().map(|line| Change::Line {
            line: line.line,
            undo: line.undo,
        });
        files.chain(keep).chain(lines).collect()
    }
}

/// Whether nothing that reads the value takes it for more than one.
fn is_plain(value: &str) -> bool {
    value
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_.,:=/@+%-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provision::boot::grub::File;

    const GRUB: &str = "/etc/default/grub";

    fn grub(text: &str) -> Ground {
        Ground {
            tools: vec!["update-grub".into()],
            command_line: "BOOT_IMAGE=/v quiet iommu=pt old=1 typed=1".into(),
            grub: vec![File::new(GRUB, text)],
            ..Ground::default()
        }
    }

    #[test]
    fn what_is_configured_already_waits_and_what_nothing_configures_is_a_person_s() {
        let ground = grub("GRUB_CMDLINE_LINUX_DEFAULT=\"quiet ttm.pages_limit=9\"\n");
        let mut own = Parameters::new(Some(&ground));
        own.want("ttm.pages_limit", ABSENT, "9").unwrap();
        assert!(own.waiting && own.changes().is_empty());
        let said = own.want("typed", "1", ABSENT).unwrap_err().unwrap();
        assert!(said.contains("typed") && said.contains("reboot"), "{said}");
        // A word without a value is set, and is set already.
        own.want("quiet", ABSENT, "set").unwrap();
        assert!(own.changes().is_empty());
        own.want("debug", ABSENT, "set").unwrap();
        let wanted = [
            Change::File {
                path: GRUB.into(),
                was: Some("GRUB_CMDLINE_LINUX_DEFAULT=\"quiet ttm.pages_limit=9\"\n".into()),
                text: Some("GRUB_CMDLINE_LINUX_DEFAULT=\"quiet ttm.pages_limit=9 debug\"\n".into()),
            },
            Change::Line {
                line: "update-grub".into(),
                undo: "update-grub".into(),
            },
        ];
        assert_eq!(own.changes(), wanted);
    }

    #[test]
    fn what_cannot_be_edited_safely_is_a_line_to_type_and_the_others_are_done() {
        let ground = grub("GRUB_CMDLINE_LINUX_DEFAULT=\"$(cat /etc/x)\"\n");
        let mut own = Parameters::new(Some(&ground));
        let said = own.want("a.b", ABSENT, "9").unwrap_err().unwrap();
        assert!(said.starts_with("/etc/default/grub:1: "), "{said}");
        assert!(said.contains("by hand"), "{said}");
        assert!(own.changes().is_empty());

        let ground = grub("GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n");
        let mut own = Parameters::new(Some(&ground));
        for (was, wanted) in [("tty0 ttyS0", "tty0"), (ABSENT, "a b"), (ABSENT, "$x")] {
            assert_eq!(own.want("console", was, wanted), Err(None), "{wanted}");
        }
        own.want("a.b", ABSENT, "9").unwrap();
        assert_eq!(own.changes().len(), 2);
    }

    #[test]
    fn each_way_has_its_own_lines_and_a_host_without_one_has_none() {
        let of = |ground: &Ground| {
            let mut own = Parameters::new(Some(ground));
            let said = own.want("a.b", ABSENT, "9");
            (said, own.changes())
        };
        let line = |line: &str, undo: &str| Change::Line {
            line: line.into(),
            undo: undo.into(),
        };
        let entry = "/boot/loader/entries/x.conf";
        let grubby = Ground {
            tools: vec!["grubby".into()],
            command_line: "BOOT_IMAGE=/v ro".into(),
            entries: vec![File::new(entry, "linux /v\noptions ro\n")],
            ..Ground::default()
        };
        let (said, changes) = of(&grubby);
        assert_eq!(said, Ok(()));
        let wanted = [
            Change::Kept { path: entry.into() },
            line(
                "grubby --update-kernel=ALL --args=a.b=9",
                "grubby --update-kernel=ALL --remove-args=a.b",
            ),
        ];
        assert_eq!(changes, wanted);
        let ostree = Ground {
            ostree: true,
            tools: vec!["rpm-ostree".into()],
            ..Ground::default()
        };
        let (_, changes) = of(&ostree);
        let wanted = line(
            "rpm-ostree kargs --append-if-missing=a.b=9",
            "rpm-ostree kargs --delete-if-present=a.b=9",
        );
        assert_eq!(changes, [wanted]);
        let nixos = Ground {
            nixos: true,
            ..Ground::default()
        };
        let (said, changes) = of(&nixos);
        assert!(said.unwrap_err().unwrap().contains("boot.kernelParams"));
        assert!(changes.is_empty());
        let modprobe = Ground {
            tools: vec!["modprobe".into()],
            ..Ground::default()
        };
        assert_eq!(of(&modprobe), (Err(None), Vec::new()));
        let none = of(&Ground::default()).0.unwrap_err().unwrap();
        assert!(none.contains("no way"), "{none}");
        assert_eq!(Parameters::new(None).want("a", ABSENT, "1"), Err(None));
    }
}
