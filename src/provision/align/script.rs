//! Changes as scripts for `sh`, and what is kept on the host to take them back. Pure; must not know
//! sessions.
//!
//! Each run keeps a folder on the host, [`folder`], that only root reads: `record.json`, written
//! before the first change, and the files as they were, with owner, mode and times.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::plan::Change;
use crate::facts::Settings;
use crate::ssh::quote;

/// Where runs keep what takes them back.
const FOLDER: &str = "/var/lib/windlass/undo";
/// The lock of runs that change a host; the worker's `lock` takes the same.
const LOCK: &str = "/var/lib/windlass/lock";
/// The version of the record's form.
pub const VERSION: u32 = 2;

/// What a run did on a host, and how things were before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The form: [`VERSION`].
    pub v: u32,
    /// The run.
    pub run: String,
    /// Its changes, in their order.
    pub changes: Vec<Change>,
    /// Settings before it, without the files.
    pub before: Settings,
}

impl Record {
    /// From its text.
    ///
    /// # Errors
    /// When it is none, or of another form.
    pub fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Form {
            v: u32,
        }
        let not = |error: serde_json::Error| format!("it is not understood: {error}");
        // The form first: what another one holds is not known here.
        match serde_json::from_str::<Form>(text).map_err(not)?.v {
            VERSION => serde_json::from_str(text).map_err(not),
            other => Err(format!(
                "it is of form {other}, and this windlass knows {VERSION}: use the one that wrote it"
            )),
        }
    }
}

/// The folder of a run.
pub fn folder(run: &str) -> String {
    format!("{FOLDER}/{run}")
}

/// Takes the lock, says so, and holds it until the input ends.
pub fn lock(holder: &str) -> String {
    format!(
        "umask 077\nmkdir -p {parent} && exec 9<>{lock} || {{ echo failed; exit 1; }}\n\
         command -v flock >/dev/null || {{ echo absent; cat >/dev/null; exit 0; }}\n\
         if flock -n 9; then printf '%s\\n' {holder} >{lock}; echo held; cat >/dev/null; : >{lock}; \
         else printf 'taken '; head -n 1 {lock}; fi\n",
        parent = "/var/lib/windlass",
        lock = LOCK,
        holder = quote(holder),
    )
}

/// Keeps the files that will be changed, then writes the record. Nothing is changed before both are on
/// the disk.
///
/// # Errors
/// When the record cannot be written as text.
pub fn begin(record: &Record) -> Result<String, String> {
    let text = serde_json::to_string(record).map_err(|error| error.to_string())?;
    let folder = quote(&folder(&record.run));
    let mut script = format!("set -e\numask 077\nmkdir -p {folder}/files\n");
    for (number, change) in record.changes.iter().enumerate() {
        if let Change::File { path, .. } | Change::Kept { path } = change {
            script.push_str(&keep(&record.run, number, path));
        }
    }
    script.push_str(&format!(
        "printf '%s\\n' {} >{folder}/record.new\nsync\nmv {folder}/record.new {folder}/record.json\n",
        quote(&text)
    ));
    Ok(script)
}

/// Prints a run's record; says nothing when there is none.
pub fn read(run: &str) -> String {
    format!("cat {}/record.json 2>/dev/null || :\n", quote(&folder(run)))
}

/// Says that a run was taken back: its record is another file then.
pub fn ended(run: &str) -> String {
    let folder = quote(&folder(run));
    format!("mv {folder}/record.json {folder}/undone.json\n")
}

/// Runs that can be taken back, the newest first.
pub fn list() -> String {
    format!(
        "cd {FOLDER} 2>/dev/null || exit 0\nls -t */record.json 2>/dev/null | sed 's|/record.json||'\n"
    )
}

/// Makes a change.
pub fn apply(change: &Change) -> String {
    match change {
        Change::Packages {
            installer,
            install,
            remove,
        } => packages(installer, install, remove),
        Change::File { path, text } => file(path, text.as_deref()),
        Change::Line { line, .. } => format!("{line}\n"),
        Change::Kept { .. } => ":\n".to_owned(),
        Change::Unit { unit, from, to } => self::unit(unit, from, to),
        Change::Group {
            user,
            group,
            member,
        } => self::group(user, group, *member),
    }
}

/// Takes a change back. `None` for what is done when the others are back: packages, which are compared
/// with what was there before, and lines with the files they write ([`undo_late`]).
pub fn undo(run: &str, number: usize, change: &Change) -> Option<String> {
    match change {
        Change::Packages { .. } | Change::Line { .. } | Change::Kept { .. } => None,
        Change::File { path, .. } => Some(restore(run, number, path)),
        Change::Unit { unit, from, to } => Some(self::unit(unit, to, from)),
        Change::Group {
            user,
            group,
            member,
        } => Some(self::group(user, group, !member)),
    }
}

/// Scripts that take lines back, the last first, and then give back the files that they write: byte for
/// byte, whatever the tool made of them.
pub fn undo_late(record: &Record) -> Vec<String> {
    let changes = || record.changes.iter().enumerate();
    let lines = changes().rev().filter_map(|(_, change)| match change {
        Change::Line { undo, .. } => Some(format!("{undo}\n")),
        _ => None,
    });
    let files = changes().filter_map(|(number, change)| match change {
        Change::Kept { path } => Some(restore(&record.run, number, path)),
        _ => None,
    });
    lines.chain(files).collect()
}

/// The lines that a person types on the host's console to have it boot as it did before.
pub fn by_hand(record: &Record) -> String {
    let mut lines = Vec::new();
    for (number, change) in record.changes.iter().enumerate() {
        if let Change::File { path, .. } | Change::Kept { path } = change {
            let (path, kept) = (quote(path), quote(&kept(&record.run, number)));
            lines.push(format!(
                "if [ -e {kept} ]; then cp -a {kept} {path}; else rm -f {path}; fi"
            ));
        }
    }
    for change in record.changes.iter().rev() {
        if let Change::Line { undo, .. } = change {
            lines.push(undo.clone());
        }
    }
    lines.push("reboot".to_owned());
    lines.join("\n  ")
}

/// One transaction of a package manager.
pub fn packages(
    installer: &str,
    install: &BTreeMap<String, String>,
    remove: &BTreeSet<String>,
) -> String {
    let words = |words: Vec<String>| {
        words
            .iter()
            .map(|word| quote(word))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let versions = |sign: &str| -> Vec<String> {
        install
            .iter()
            .map(|(name, version)| format!("{name}{sign}{version}"))
            .collect()
    };
    match installer {
        // In one run of apt-get, `name-` removes.
        "apt-get" => {
            let mut all = versions("=");
            all.extend(remove.iter().map(|name| format!("{name}-")));
            format!(
                "export DEBIAN_FRONTEND=noninteractive\n\
                 apt-get -q update >/dev/null || echo 'the package lists could not be brought up to date' >&2\n\
                 exec apt-get -q -y --allow-downgrades --allow-change-held-packages --no-install-recommends \
                 -o Dpkg::Options::=--force-confold -o Dpkg::Options::=--force-confdef install {}\n",
                words(all)
            )
        }
        "dnf" => {
            let removed: Vec<String> = remove.iter().cloned().collect();
            let mut script = "set -e\n".to_owned();
            if !install.is_empty() {
                script.push_str(&format!(
                    "dnf -y --allowerasing --setopt=install_weak_deps=False install {}\n",
                    words(versions("-"))
                ));
            }
            if !removed.is_empty() {
                script.push_str(&format!("dnf -y remove {}\n", words(removed)));
            }
            script
        }
        _ => {
            let removed: Vec<String> = remove.iter().map(|name| format!("-{name}")).collect();
            let mut all = versions("=");
            all.extend(removed);
            format!(
                "exec zypper -n install --oldpackage --no-recommends -- {}\n",
                words(all)
            )
        }
    }
}

fn kept(run: &str, number: usize) -> String {
    format!("{}/files/{number}", folder(run))
}

/// Keeps a file as it is, or that there is none. A link stays a link.
fn keep(run: &str, number: usize, path: &str) -> String {
    let (kept, path) = (kept(run, number), quote(path));
    let absent = quote(&format!("{kept}.absent"));
    let kept = quote(&kept);
    format!("if [ -e {path} ] || [ -L {path} ]; then cp -a {path} {kept}; else : >{absent}; fi\n")
}

/// Replaces a file in one step: what reads it sees the old or the new. Owner and mode stay.
fn file(path: &str, text: Option<&str>) -> String {
    let new = quote(&format!("{path}.windlass-new"));
    let path = quote(path);
    match text {
        None => format!("rm -f {path}\n"),
        Some(text) => format!(
            "set -e\numask 022\nmkdir -p \"$(dirname {path})\"\n\
             if [ -f {path} ]; then cp -aL {path} {new}; fi\n\
             printf '%s' {} >{new}\nsync\nmv {new} {path}\n",
            quote(text)
        ),
    }
}

/// Gives back what was kept; does nothing where nothing was.
fn restore(run: &str, number: usize, path: &str) -> String {
    let kept = kept(run, number);
    let (absent, kept) = (quote(&format!("{kept}.absent")), quote(&kept));
    let new = quote(&format!("{path}.windlass-new"));
    let path = quote(path);
    format!(
        "set -e\nif [ -e {absent} ]; then rm -f {path}; elif [ -e {kept} ] || [ -L {kept} ]; then \
         cp -a {kept} {new}; sync; mv {new} {path}; fi\n"
    )
}

fn unit(unit: &str, from: &str, to: &str) -> String {
    let unit = quote(unit);
    let unmask = match from {
        "masked" => format!("systemctl unmask {unit}\n"),
        _ => String::new(),
    };
    let verb = match to {
        "enabled" => "enable",
        "masked" => "mask",
        _ => "disable",
    };
    format!("set -e\n{unmask}systemctl {verb} {unit}\n")
}

fn group(user: &str, group: &str, member: bool) -> String {
    let (user, group) = (quote(user), quote(group));
    match member {
        true => format!("exec usermod -aG {group} {user}\n"),
        // One who is not in it need not leave.
        false => format!(
            "case \" $(id -nG {user}) \" in *\" \"{group}\" \"*) exec gpasswd -d {user} {group} ;; esac\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_manager_is_told_versions_and_removals_in_its_own_form() {
        let install = [("zstd".to_owned(), "1.5-2".to_owned())].into();
        let remove = ["odd one".to_owned()].into();
        for (installer, wanted) in [
            ("apt-get", "install zstd=1.5-2 'odd one-'\n"),
            ("dnf", "install zstd-1.5-2\ndnf -y remove 'odd one'\n"),
            ("zypper", "-- zstd=1.5-2 '-odd one'\n"),
        ] {
            let script = packages(installer, &install, &remove);
            assert!(script.ends_with(wanted), "{installer}: {script}");
        }
    }

    #[test]
    fn lines_are_taken_back_after_files_and_what_they_write_is_given_back_last() {
        let kept = Change::Kept {
            path: "/boot/x".into(),
        };
        let line = |name: &str| Change::Line {
            line: format!("do {name}"),
            undo: format!("undo {name}"),
        };
        let record = Record {
            v: VERSION,
            run: "r1".into(),
            changes: vec![kept, line("a"), line("b")],
            before: Settings::default(),
        };
        assert!(begin(&record).unwrap().contains("cp -a /boot/x"));
        assert_eq!(apply(&record.changes[1]), "do a\n");
        for (number, change) in record.changes.iter().enumerate() {
            assert_eq!(undo("r1", number, change), None);
        }
        let late = undo_late(&record);
        assert_eq!(late[..2], ["undo b\n", "undo a\n"]);
        assert!(late[2].contains("/boot/x.windlass-new"), "{late:?}");
        let typed = by_hand(&record);
        let at = |part: &str| {
            typed
                .find(part)
                .unwrap_or_else(|| panic!("{part}: {typed}"))
        };
        assert!(at("/boot/x") < at("undo b") && at("undo a") < at("reboot"));
    }

    #[test]
    fn a_record_of_another_form_is_refused_by_its_number() {
        let old =
            r#"{"v":1,"run":"r","changes":[{"change":"boot_loader","tool":"x"}],"before":{}}"#;
        let said = Record::parse(old).unwrap_err();
        assert!(said.contains("form 1"), "{said}");
        assert!(Record::parse("{").is_err());
    }

    fn sh(script: &str) {
        let ran = std::process::Command::new("sh")
            .args(["-c", script])
            .output()
            .unwrap();
        assert!(
            ran.status.success(),
            "{script}\n{}",
            String::from_utf8_lossy(&ran.stderr)
        );
    }

    #[test]
    fn files_are_kept_replaced_and_given_back_with_their_mode_and_time() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let home = tempfile::tempdir().unwrap();
        let undo_folder = home.path().join("undo").display().to_string();
        let run = |script: String| sh(&script.replace(FOLDER, &undo_folder));
        let path = |name: &str| home.path().join("etc").join(name);
        let change = |name: &str, text: Option<&str>| Change::File {
            path: path(name).display().to_string(),
            text: text.map(str::to_owned),
        };
        std::fs::create_dir(home.path().join("etc")).unwrap();
        for name in ["it's.conf", "gone.conf", "left.conf"] {
            std::fs::write(path(name), "old\n").unwrap();
            let mode = std::fs::Permissions::from_mode(0o640);
            std::fs::set_permissions(path(name), mode).unwrap();
        }
        let seen = |name: &str| {
            let meta = std::fs::metadata(path(name)).unwrap();
            let text = std::fs::read_to_string(path(name)).unwrap();
            (text, meta.mode(), meta.mtime(), meta.mtime_nsec())
        };
        let before = seen("it's.conf");
        let record = Record {
            v: VERSION,
            run: "r1".into(),
            changes: vec![
                change("it's.conf", Some("new 'quoted' $x\n")),
                change("gone.conf", None),
                change("made.conf", Some("x\n")),
                change("left.conf", Some("never\n")),
            ],
            before: Settings::default(),
        };
        run(begin(&record).unwrap());
        // The last one is not reached.
        for change in record.changes.iter().take(3) {
            run(apply(change));
            run(apply(change));
        }
        let new = seen("it's.conf");
        assert_eq!((new.0.as_str(), new.1), ("new 'quoted' $x\n", before.1));
        assert!(!path("gone.conf").exists() && path("made.conf").exists());

        for _ in 0..2 {
            for (number, change) in record.changes.iter().enumerate().rev() {
                run(undo("r1", number, change).unwrap());
            }
            assert_eq!(seen("it's.conf"), before);
            assert_eq!(seen("gone.conf").0, "old\n");
            assert!(!path("made.conf").exists());
            assert_eq!(seen("left.conf").0, "old\n");
        }
        assert_eq!(
            std::fs::read_dir(home.path().join("etc")).unwrap().count(),
            3
        );
    }
}
