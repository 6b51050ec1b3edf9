//! Changes as scripts for `sh`, and what is kept on the host to take them back. Pure; must not know
//! sessions.
//!
//! Each run keeps a folder on the host, [`folder`], that only root reads: `record.json`, written before
//! the first change; by the number of a change `files/N`, the file as it was with owner, mode and times
//! (or `N.absent`), and `N.at`, where it really lies; `after/N`, as the run left it; `packages.before`
//! and `packages.after`. Until the next start /run/windlass-reboot says that one is waited for.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::change::{Change, STATIC};
use crate::ssh::quote;

/// Where runs keep what takes them back.
const FOLDER: &str = "/var/lib/windlass/undo";
/// Why a host is to be rebooted, a file per run. The next start takes it away.
const REBOOT: &str = "/run/windlass-reboot";
/// The version of the record's form.
pub const VERSION: u32 = 3;

/// A file's real place: a link of the owner's is followed, so that it stays one. One into what packages
/// bring, or to a device (which masks a file), is no place to write to.
const REAL: &str = "real() {\n\
     r=$1\n\
     if [ -L \"$1\" ]; then r=$(readlink -f -- \"$1\") || r=$1; fi\n\
     case $r in /usr/*|/dev/*|/proc/*|/sys/*|/run/*|/nix/*) r=$1 ;; esac\n\
     [ -f \"$r\" ] || r=$1\n\
     printf '%s\\n' \"$r\"\n}\n";

/// Prints the packages that are installed, as [`crate::facts::settings::packages`] reads them. Without
/// Debian's own list its tools are only another package there.
const INSTALLED: &str = "if [ -s /var/lib/dpkg/status ] && command -v dpkg-query >/dev/null; then\n\
     dpkg-query -W -f '${db:Status-Status} ${Package}:${Architecture} ${Version}\\n'\n\
     else rpm -qa --qf 'installed %{NAME}:%{ARCH} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n'; fi";

/// What a run did on a host, and how things were before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The form: [`VERSION`].
    pub v: u32,
    /// The run.
    pub run: String,
    /// Its changes, in their order.
    pub changes: Vec<Change>,
    /// Why they are in force with the next start only; `None` when they are at once.
    pub reboot: Option<String>,
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

    /// Its files with the numbers of their changes.
    fn files(&self) -> impl Iterator<Item = (usize, &Change, &str)> {
        let all = self.changes.iter().enumerate();
        all.filter_map(|(number, change)| match change {
            Change::File { path, .. } | Change::Kept { path } => {
                Some((number, change, path.as_str()))
            }
            _ => None,
        })
    }

    fn installs(&self) -> bool {
        let installs = |change: &Change| matches!(change, Change::Packages { .. });
        self.changes.iter().any(installs)
    }
}

/// The folder of a run.
pub fn folder(run: &str) -> String {
    format!("{FOLDER}/{run}")
}

/// Looks that files are still as they were when the change was planned, keeps those that will be
/// changed, then writes the record. Nothing is changed before all that is on the disk.
///
/// # Errors
/// When the record cannot be written as text.
pub fn begin(record: &Record) -> Result<String, String> {
    let text = serde_json::to_string(record).map_err(|error| error.to_string())?;
    let folder = quote(&folder(&record.run));
    let mut script = format!("set -e\numask 077\n{REAL}");
    for change in &record.changes {
        if let Change::File {
            path,
            was: Some(was),
            ..
        } = change
        {
            script.push_str(&unchanged(path, was));
        }
    }
    script.push_str(&format!(
        "if [ -e {folder}/record.json ]; then echo 'this run was recorded already' >&2; exit 1; fi\n\
         mkdir -p {folder}/files {folder}/after\n"
    ));
    for (number, change, path) in record.files() {
        script.push_str(&keep(&record.run, number, change, path));
    }
    if record.installs() {
        script.push_str(&format!(
            "{{ {INSTALLED}\n}} </dev/null >{folder}/packages.before\n"
        ));
    }
    script.push_str(&format!(
        "printf '%s\\n' {} >{folder}/record.new\nsync\nmv {folder}/record.new {folder}/record.json\n",
        quote(&text)
    ));
    if let Some(why) = &record.reboot {
        script.push_str(&waits(&record.run, why));
    }
    Ok(script)
}

/// Ends with a sentence unless a file is as it was looked at. Ends of lines do not count.
fn unchanged(path: &str, was: &str) -> String {
    // What is no text was not read as it is.
    if was.contains('\u{fffd}') {
        return String::new();
    }
    let said =
        format!("{path} was changed since it was looked at, so nothing is done: run it again");
    format!(
        "if [ \"$(tr -d '\\r' <{path})\" != \"$(printf '%s' {was})\" ]; then echo {said} >&2; exit 1; fi\n",
        path = quote(path),
        was = quote(&was.replace('\r', "")),
        said = quote(&said),
    )
}

/// Says until the next start that one is waited for.
fn waits(run: &str, why: &str) -> String {
    format!(
        "if [ -d /run ]; then (umask 022; mkdir -p {REBOOT}; printf '%s\\n' {why} >{mark}); fi\n",
        why = quote(why),
        mark = quote(&format!("{REBOOT}/{run}")),
    )
}

/// Prints why the host is to be rebooted; says nothing when it is not.
pub fn pending() -> String {
    format!("cat {REBOOT}/* 2>/dev/null | head -n 1\n")
}

/// Prints a run's record; says nothing when there is none.
pub fn read(run: &str) -> String {
    format!("cat {}/record.json 2>/dev/null || :\n", quote(&folder(run)))
}

/// Prints the packages as they were before the run's, and those as it left them, each behind a line
/// that says which; the second are missing when it was cut off.
pub fn packages_kept(run: &str) -> String {
    let folder = quote(&folder(run));
    format!(
        "cd {folder}\nfor which in before after; do\n\
         if [ -e packages.$which ]; then echo \"= $which\"; cat packages.$which; fi\ndone\n"
    )
}

/// Says that a run was taken back: its record is another file then. Prints why a reboot is waited for;
/// one that the run itself waited for is not any more.
pub fn ended(record: &Record) -> String {
    let folder = quote(&folder(&record.run));
    let reboot = match &record.reboot {
        None => String::new(),
        Some(why) => {
            let mark = quote(&format!("{REBOOT}/{}", record.run));
            let back = waits(&format!("{}-back", record.run), why);
            format!(
                "if [ -e {mark} ]; then rm -f {mark}\nelse\n{back}printf '%s\\n' {}\nfi\n",
                quote(why)
            )
        }
    };
    format!("set -e\n{reboot}mv {folder}/record.json {folder}/undone.json\n")
}

/// Runs that can be taken back, the newest first.
pub fn list() -> String {
    format!(
        "cd {FOLDER} 2>/dev/null || exit 0\nls -t */record.json 2>/dev/null | sed 's|/record.json||'\n"
    )
}

/// Makes a change of a run.
pub fn apply(run: &str, number: usize, change: &Change) -> String {
    match change {
        Change::Packages {
            installer,
            install,
            remove,
        } => through(run, &packages(installer, install, remove), true),
        Change::File { path, text, .. } => file(run, number, path, text.as_deref()),
        Change::Line { line, .. } => through(run, &format!("{line}\n"), false),
        Change::Kept { .. } => ":\n".to_owned(),
        Change::Unit { unit, from, to } => self::unit(unit, from, to),
        Change::Group {
            user,
            group,
            member,
        } => self::group(user, group, *member),
    }
}

/// A script of the host's own tools that goes on when nobody listens any more: one that is killed
/// halfway leaves half a system. Its last lines are said when it ends. Meanwhile the run is [`busy`].
fn through(run: &str, script: &str, installs: bool) -> String {
    let folder = quote(&folder(run));
    let list = match installs {
        true => format!(
            "{{ {INSTALLED}\n}} </dev/null >{folder}/packages.new && mv {folder}/packages.new {folder}/packages.after\n"
        ),
        false => String::new(),
    };
    format!(
        "trap '' HUP\nexec 8>>{folder}/busy\nflock 8\n\
         (\n{script}) </dev/null >{folder}/said 2>{folder}/said.err 8>&-\nrc=$?\n{list}\
         said={folder}/said.err; [ -s \"$said\" ] || said={folder}/said\ntail -n 20 \"$said\" >&2\nexit $rc\n"
    )
}

/// Fails with a sentence while tools of a run are at work on the host.
pub fn busy(run: &str) -> String {
    let folder = quote(&folder(run));
    format!(
        "exec 8>>{folder}/busy\nflock -n 8 || {{ echo 'what that run began on this host is still at work: \
         try again when it has ended' >&2; exit 1; }}\n"
    )
}

/// Keeps what lines wrote, as they left it.
pub fn remember(record: &Record) -> String {
    let mut script = "set -e\numask 077\n".to_owned();
    for (number, change, _) in record.files() {
        if matches!(change, Change::Kept { .. }) {
            let (at, after) = (at(&record.run, number), after(&record.run, number));
            script.push_str(&format!(
                "p=$({at})\nif [ -e \"$p\" ]; then cp -a -- \"$p\" {after}; else : >{after}.absent; fi\n"
            ));
        }
    }
    script
}

/// Prints, a line each, what is neither as a run left it nor as it was before: `file N`, with the number
/// of its change, or `unit N` and the unit's state.
pub fn changed_since(record: &Record) -> String {
    let mut script = REAL.to_owned();
    script.push_str("who() { stat -c '%u %g %a' -- \"$1\" 2>/dev/null; }\n");
    for (number, change, path) in record.files() {
        let (kept, after) = (
            quote(&kept(&record.run, number)),
            after(&record.run, number),
        );
        let at = at(&record.run, number);
        let real = real(change, path);
        // What a line wrote is not known when the run was cut off; it is kept before it is replaced.
        let cut_off = match change {
            Change::Kept { .. } => {
                let folder = quote(&folder(&record.run));
                format!(
                    "elif [ -e {folder}/undoing ] || {{ [ ! -e {after} ] && [ ! -e {after}.absent ]; }}; then :\n"
                )
            }
            _ => String::new(),
        };
        script.push_str(&format!(
            "p=$({at})\ngone() {{ [ ! -e \"$p\" ] && [ ! -L \"$p\" ]; }}\n\
             mine() {{ [ ! -e {kept} ] || [ -L {kept} ] || [ \"$(who \"$p\")\" = \"$(who {kept})\" ]; }}\n\
             if [ \"$({real})\" != \"$p\" ]; then echo file {number}\n\
             elif [ -L {kept} ] && [ \"$(readlink \"$p\")\" = \"$(readlink {kept})\" ]; then :\n\
             elif [ -e {kept}.absent ] && gone; then :\n\
             elif [ -e {after}.absent ] && gone; then :\n\
             elif [ -f {kept} ] && [ ! -L {kept} ] && cmp -s \"$p\" {kept} && mine; then :\n\
             elif [ -f {after} ] && [ ! -L \"$p\" ] && cmp -s \"$p\" {after} && mine; then :\n\
             {cut_off}else echo file {number}; fi\n"
        ));
    }
    for (number, change) in record.changes.iter().enumerate() {
        if let Change::Unit { unit, from, to } = change {
            script.push_str(&format!(
                "s=$(systemctl is-enabled -- {unit} 2>/dev/null) || :\n\
                 case \"$s\" in {from}|{to}|not-found|'') ;; *) echo \"unit {number} $s\" ;; esac\n",
                unit = quote(unit),
                from = quote(from),
                to = quote(to),
            ));
        }
    }
    script.push_str(":\n");
    script
}

/// Says that a run is being taken back: what its lines write may be neither as it was nor as it was left.
pub fn undoing(run: &str) -> String {
    format!(": >{}/undoing\n", quote(&folder(run)))
}

/// Takes a change back. `None` for what is done when the others are back: packages, which are compared
/// with what was there before, and lines with the files they write ([`undo_late`]).
pub fn undo(run: &str, number: usize, change: &Change) -> Option<String> {
    match change {
        Change::Packages { .. } | Change::Line { .. } | Change::Kept { .. } => None,
        Change::File { .. } => Some(restore(run, number)),
        Change::Unit { unit, from, to } => Some(unit_back(unit, from, to)),
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
        Change::Line { undo, .. } => Some(through(&record.run, &format!("{undo}\n"), false)),
        _ => None,
    });
    let files = changes().filter_map(|(number, change)| match change {
        Change::Kept { .. } => Some(restore(&record.run, number)),
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
    match installer {
        // In one run of apt-get, `name-` removes.
        "apt-get" => {
            let added = install
                .iter()
                .map(|(name, version)| format!("{name}={version}"));
            let removed = remove.iter().map(|name| format!("{name}-"));
            format!(
                "export DEBIAN_FRONTEND=noninteractive\n\
                 apt-get -q update >/dev/null || echo 'the package lists could not be brought up to date' >&2\n\
                 exec apt-get -q -y --allow-downgrades --allow-change-held-packages --no-install-recommends \
                 -o Dpkg::Options::=--force-confold -o Dpkg::Options::=--force-confdef install {}\n",
                words(added.chain(removed).collect())
            )
        }
        "dnf" => {
            let removed: Vec<String> = remove.iter().map(|name| dotted(name)).collect();
            // The architecture stands behind the version.
            let added = install.iter().map(|(name, version)| {
                let (name, arch) = name.split_once(':').unwrap_or((name, ""));
                match arch {
                    "" => format!("{name}-{version}"),
                    arch => format!("{name}-{version}.{arch}"),
                }
            });
            let mut script = "set -e\n".to_owned();
            if !install.is_empty() {
                script.push_str(&format!(
                    "dnf -y --allowerasing --setopt=install_weak_deps=False install {}\n",
                    words(added.collect())
                ));
            }
            if !removed.is_empty() {
                script.push_str(&format!("dnf -y remove {}\n", words(removed)));
            }
            script
        }
        _ => {
            let added = install
                .iter()
                .map(|(name, version)| format!("{}={version}", dotted(name)));
            let removed = remove.iter().map(|name| format!("-{}", dotted(name)));
            format!(
                "exec zypper -n install --oldpackage --no-recommends -- {}\n",
                words(added.chain(removed).collect())
            )
        }
    }
}

/// A package's name with its architecture behind a dot, as the managers of rpm write it.
fn dotted(name: &str) -> String {
    name.replacen(':', ".", 1)
}

/// Brings packages back by their manager, as part of taking a run back.
pub fn packages_back(
    run: &str,
    installer: &str,
    install: &BTreeMap<String, String>,
    remove: &BTreeSet<String>,
) -> String {
    through(run, &packages(installer, install, remove), false)
}

/// Where a run keeps a file as it was.
pub fn kept(run: &str, number: usize) -> String {
    format!("{}/files/{number}", folder(run))
}

/// Where a run keeps a file as it left it, for `sh`.
pub fn after(run: &str, number: usize) -> String {
    quote(&format!("{}/after/{number}", folder(run)))
}

/// Prints where a file really lies.
fn at(run: &str, number: usize) -> String {
    format!("cat {}", quote(&format!("{}.at", kept(run, number))))
}

/// Prints where a file that is changed really lies: to remove one is to remove a link.
fn real(change: &Change, path: &str) -> String {
    match change {
        Change::File { text: None, .. } => format!("printf '%s\\n' {}", quote(path)),
        _ => format!("real {}", quote(path)),
    }
}

/// Keeps a file as it is, or that there is none, and what it will be where that is known.
fn keep(run: &str, number: usize, change: &Change, path: &str) -> String {
    let kept = quote(&kept(run, number));
    let after = after(run, number);
    let later = match change {
        Change::File { text: None, .. } => format!(": >{after}.absent\n"),
        Change::File {
            text: Some(text), ..
        } => format!("printf '%s' {} >{after}\n", quote(text)),
        _ => String::new(),
    };
    format!(
        "p=$({real})\nprintf '%s\\n' \"$p\" >{kept}.at\n\
         if [ -e \"$p\" ] || [ -L \"$p\" ]; then cp -a -- \"$p\" {kept}; else : >{kept}.absent; fi\n{later}",
        real = real(change, path),
    )
}

/// Replaces a file in one step: what reads it sees the old or the new. Owner and mode stay.
fn file(run: &str, number: usize, path: &str, text: Option<&str>) -> String {
    let at = at(run, number);
    match text {
        None => format!("rm -f -- {}\n", quote(path)),
        Some(text) => format!(
            "set -e\numask 022\np=$({at})\nnew=$p.windlass-new\nmkdir -p -- \"${{p%/*}}\"\nrm -f -- \"$new\"\n\
             if [ -f \"$p\" ] && [ ! -L \"$p\" ]; then cp -a -- \"$p\" \"$new\"; else made=1; fi\n\
             printf '%s' {} >\"$new\"\nsync \"$new\" 2>/dev/null || sync\nmv -f -- \"$new\" \"$p\"\n\
             if [ -n \"${{made:-}}\" ] && command -v restorecon >/dev/null; then restorecon \"$p\" || :; fi\n",
            quote(text)
        ),
    }
}

/// Gives back what was kept; does nothing where nothing was. What stood there meanwhile is kept too.
fn restore(run: &str, number: usize) -> String {
    let (kept, at) = (quote(&kept(run, number)), at(run, number));
    let found = quote(&format!("{}/found", folder(run)));
    format!(
        "set -e\np=$({at})\nnew=$p.windlass-new\n\
         if [ -e \"$p\" ] || [ -L \"$p\" ]; then\nmkdir -p {found}\n\
         if [ ! -e {found}/{number} ] && [ ! -L {found}/{number} ]; then cp -a -- \"$p\" {found}/{number}; fi\nfi\n\
         if [ -e {kept}.absent ]; then rm -f -- \"$p\"\n\
         elif [ -e {kept} ] || [ -L {kept} ]; then rm -f -- \"$new\"; cp -a -- {kept} \"$new\"\n\
         sync \"$new\" 2>/dev/null || sync; mv -f -- \"$new\" \"$p\"; fi\n"
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
        // Nothing starts it at boot, so there is nothing to take out.
        STATIC => return format!("set -e\n{unmask}"),
        _ => "disable",
    };
    format!("set -e\n{unmask}systemctl {verb} {unit}\n")
}

/// Gives a unit's state back; nothing where it was never changed, or is gone.
fn unit_back(unit: &str, from: &str, to: &str) -> String {
    format!(
        "s=$(systemctl is-enabled -- {name} 2>/dev/null) || :\n\
         case \"$s\" in {from}|not-found|'') exit 0 ;; esac\n{back}",
        name = quote(unit),
        from = quote(from),
        back = self::unit(unit, to, from),
    )
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
mod tests;
