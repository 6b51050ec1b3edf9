//! `package`: packages that are there, are not, or are there in one version, by the host's own package
//! manager.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::argument::{Argument, Form};
use super::work::{Acted, Done, Work};
use super::{Kind, remote};
use crate::event::{Failure, Status};
use crate::playbook::expression::Template;
use crate::provision::align::script;
use crate::ssh::{Caps, quote};

/// How long a package manager may take; a task's `timeout` says less.
const LONG: Caps = Caps {
    stdout: 4 << 20,
    stderr: 1 << 20,
    time: Duration::from_secs(1800),
};

/// The kind.
#[derive(Debug)]
pub struct Package;

impl Kind for Package {
    fn name(&self) -> &'static str {
        "package"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            Argument::must("name", Form::Texts),
            Argument::may("state", Form::Text),
        ];
        ALL
    }

    fn main(&self) -> Option<&'static str> {
        Some("name")
    }

    fn check(&self, arguments: &[(String, Template)]) -> Option<String> {
        let literal = |name: &str| {
            let mut all = arguments.iter();
            all.find(|(given, _)| given == name)?.1.literal()
        };
        if let Some(names) = literal("name") {
            let one = [names.clone()];
            let names = names.as_array().map_or(one.as_slice(), Vec::as_slice);
            let mut names = names.iter().filter_map(|name| name.as_str());
            if let Some(fault) = names.find_map(|name| is_name(name).err()) {
                return Some(fault);
            }
        }
        Wanted::of(literal("state")?.as_str()?).err()
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let host = work.host()?;
            let failed = |why: String| work.failed(host.name(), why);
            let names = work.given.texts("name");
            for name in &names {
                is_name(name).map_err(failed)?;
            }
            let wanted =
                Wanted::of(work.given.text("state").unwrap_or("present")).map_err(failed)?;
            let look = look(&names);
            let said = remote::must(work, host, false, &look, "looking at packages").await?;
            let step = decide(&Found::parse(&said), &names, &wanted).map_err(failed)?;
            let Some(step) = step else {
                let words = format!("{}: as wanted", names.join(", "));
                return Ok(work.one(Done::new(Status::Ok, words)));
            };
            work.change(host.name(), &step.words, String::new);
            if work.context.check {
                return Ok(work.one(Done::change(true, step.words)));
            }
            let output = remote::run(work, host, true, &step.script, LONG).await?;
            if !output.ok() {
                return Err(failed(format!(
                    "{}: {}",
                    step.words,
                    remote::ended(&output)
                )));
            }
            // Some managers end well when there is no such package.
            let said = remote::must(work, host, false, &look, "looking at packages").await?;
            if decide(&Found::parse(&said), &names, &wanted)
                .map_err(failed)?
                .is_some()
            {
                let why = "the package manager ended well, and it is not so; its output says why";
                return Err(failed(format!("{}: {why}", step.words)));
            }
            Ok(work.one(Done::change(false, step.words)))
        }
        .boxed()
    }
}

/// How packages are to be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Present,
    Absent,
    Version(String),
}

impl Wanted {
    fn of(text: &str) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._:+~-^".contains(c);
        match text {
            "present" => Ok(Self::Present),
            "absent" => Ok(Self::Absent),
            version
                if version.starts_with(|c: char| c.is_ascii_digit())
                    && version.chars().all(fits) =>
            {
                Ok(Self::Version(version.to_owned()))
            }
            other => Err(format!(
                "state must be \"present\", \"absent\" or a version, and not {other:?}"
            )),
        }
    }
}

/// Whether a package manager takes this for a package, and for nothing else.
fn is_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._:+-".contains(c);
    match name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(fits) {
        // A name that ends so is an order of its own to apt-get.
        true if !name.ends_with('-') => Ok(()),
        _ => Err(format!("{name:?} is no name of a package")),
    }
}

/// Says which manager there is, and which of the packages are there.
fn look(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| quote(name)).collect();
    format!(
        "LC_ALL=C; export LC_ALL\n\
         if [ -e /run/ostree-booted ]; then echo 'installer rpm-ostree'; exit 0; fi\n\
         for tool in apt-get dnf zypper pacman; do\n\
         if command -v $tool >/dev/null 2>&1; then echo \"installer $tool\"; break; fi\ndone\n\
         for p in {}; do\n\
         if command -v dpkg-query >/dev/null 2>&1; then\n\
         dpkg-query -W -f 'package ${{db:Status-Status}} ${{Version}} \\n' -- \"$p\" 2>/dev/null\n\
         elif command -v rpm >/dev/null 2>&1; then\n\
         rpm -q --qf 'package installed %{{EPOCHNUM}}:%{{VERSION}}-%{{RELEASE}}\\n' -- \"$p\" 2>/dev/null | grep '^package inst'\n\
         elif command -v pacman >/dev/null 2>&1; then pacman -Q -- \"$p\" 2>/dev/null | sed 's/.* /package installed /'\n\
         fi | sed \"s|^package|package $p|\"\ndone\n:\n",
        names.join(" ")
    )
}

/// What a host says of packages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    installer: String,
    /// Versions by name; several where a package is there more than once.
    versions: BTreeMap<String, Vec<String>>,
}

impl Found {
    fn parse(said: &str) -> Self {
        let mut found = Self::default();
        for line in said.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["installer", tool] => (*tool).clone_into(&mut found.installer),
                ["package", name, "installed", version] => {
                    let version = version.strip_prefix("0:").unwrap_or(version);
                    let all = found.versions.entry((*name).to_owned()).or_default();
                    all.push(version.to_owned());
                }
                _ => {}
            }
        }
        found
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    script: String,
    words: String,
}

/// What is to be done on a host; `None` when all is as wanted.
fn decide(found: &Found, names: &[String], wanted: &Wanted) -> Result<Option<Step>, String> {
    let tool = found.installer.as_str();
    let has = |name: &String| found.versions.get(name);
    let open: Vec<&String> = names
        .iter()
        .filter(|name| match (wanted, has(name)) {
            (Wanted::Present, has) => has.is_none(),
            (Wanted::Absent, has) => has.is_some(),
            (Wanted::Version(version), has) => {
                has.is_none_or(|has| !has.iter().any(|own| is_version(own, version)))
            }
        })
        .collect();
    if open.is_empty() {
        return Ok(None);
    }
    let listed = open.iter().map(|name| name.as_str()).collect::<Vec<_>>();
    match tool {
        "apt-get" | "dnf" | "zypper" | "pacman" => {}
        "rpm-ostree" => {
            return Err(format!(
                "its system is made of images: by hand, sudo rpm-ostree {} {}, then reboot",
                if *wanted == Wanted::Absent {
                    "uninstall"
                } else {
                    "install"
                },
                listed.join(" ")
            ));
        }
        _ => {
            return Err(
                "it has none of apt-get, dnf, zypper, pacman, so no package is changed".into(),
            );
        }
    }
    let nothing = (BTreeMap::new(), BTreeSet::new());
    let script = match wanted {
        Wanted::Present => install(tool, &listed),
        Wanted::Absent if tool == "pacman" => {
            format!("exec pacman -R --noconfirm -- {}\n", quoted(&listed))
        }
        Wanted::Absent => {
            let gone = open.iter().map(|name| (*name).clone()).collect();
            script::packages(tool, &nothing.0, &gone)
        }
        Wanted::Version(_) if tool == "pacman" => {
            return Err(format!(
                "pacman has only the newest version of {} at hand: by hand, sudo pacman -U with the \
                 file of that version",
                listed.join(", ")
            ));
        }
        Wanted::Version(version) => {
            let all = open.iter().map(|name| ((*name).clone(), version.clone()));
            script::packages(tool, &all.collect(), &nothing.1)
        }
    };
    let words = match wanted {
        Wanted::Present => format!("installs {}", listed.join(", ")),
        Wanted::Absent => format!("removes {}", listed.join(", ")),
        Wanted::Version(version) => format!("brings {} to {version}", listed.join(", ")),
    };
    Ok(Some(Step { script, words }))
}

/// Whether a version that is there is the one that was named: the whole of it, or all but its epoch.
fn is_version(own: &str, named: &str) -> bool {
    own == named || own.split_once(':').is_some_and(|(_, rest)| rest == named)
}

fn quoted(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| quote(name)).collect();
    quoted.join(" ")
}

fn install(tool: &str, names: &[&str]) -> String {
    let names = quoted(names);
    match tool {
        "apt-get" => format!(
            "export DEBIAN_FRONTEND=noninteractive\n\
             apt-get -q update >/dev/null || echo 'the package lists could not be brought up to date' >&2\n\
             exec apt-get -q -y --no-install-recommends -o Dpkg::Options::=--force-confold \
             -o Dpkg::Options::=--force-confdef install -- {names}\n"
        ),
        "dnf" => format!("exec dnf -y --setopt=install_weak_deps=False install -- {names}\n"),
        "zypper" => format!("exec zypper -n install --no-recommends -- {names}\n"),
        _ => format!("exec pacman -S --needed --noconfirm -- {names}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tool: &str, there: &str, wanted: &str) -> Result<Option<String>, String> {
        let found = Found::parse(&format!("installer {tool}\n{there}"));
        let names = ["curl".to_owned(), "zstd".to_owned()];
        let step = decide(&found, &names, &Wanted::of(wanted).unwrap())?;
        Ok(step.map(|step| step.script.trim_end().to_owned()))
    }

    #[test]
    fn only_what_is_not_so_is_done_by_each_manager_in_its_own_form() {
        let curl = "package curl installed 0:8.5-1\n";
        let both = "package curl installed 8.5-1\npackage zstd installed 2:8.5-1\n";
        let table = [
            ("apt-get", curl, "present", "install -- zstd"),
            ("dnf", curl, "present", "install -- zstd"),
            ("zypper", curl, "present", "-- zstd"),
            (
                "pacman",
                curl,
                "present",
                "pacman -S --needed --noconfirm -- zstd",
            ),
            ("apt-get", curl, "absent", "install curl-"),
            ("dnf", curl, "absent", "dnf -y remove curl"),
            ("zypper", curl, "absent", "-- -curl"),
            (
                "pacman",
                both,
                "absent",
                "pacman -R --noconfirm -- curl zstd",
            ),
            ("apt-get", curl, "8.5-1", "install zstd=8.5-1"),
            ("dnf", both, "9.0-1", "install curl-9.0-1 zstd-9.0-1"),
        ];
        for (tool, there, wanted, end) in table {
            let script = of(tool, there, wanted).unwrap().unwrap();
            assert!(script.ends_with(end), "{tool} {wanted}: {script}");
        }
        for wanted in ["present", "8.5-1"] {
            assert_eq!(of("apt-get", both, wanted), Ok(None), "{wanted}");
        }
        assert_eq!(of("none", "", "absent"), Ok(None));
        // One whose settings alone are left is not there.
        assert_eq!(
            of("apt-get", "package curl config-files 1\n", "absent"),
            Ok(None)
        );
    }

    #[test]
    fn what_no_manager_does_is_a_line_to_type() {
        for (tool, wanted, part) in [
            ("pacman", "9.0-1", "pacman -U"),
            ("rpm-ostree", "present", "sudo rpm-ostree install curl zstd"),
            ("rpm-ostree", "1.0", "sudo rpm-ostree install"),
            ("none", "present", "none of apt-get"),
        ] {
            let said = of(tool, "", wanted).unwrap_err();
            assert!(said.contains(part), "{tool}: {said}");
        }
    }

    #[test]
    fn names_and_states_that_would_be_taken_for_something_else_are_refused() {
        for name in ["", "-y", "a b", "a;b", "curl-", "a=1"] {
            assert!(is_name(name).is_err(), "{name}");
        }
        for name in ["curl", "libc6:amd64", "g++-14", "python3.12"] {
            assert!(is_name(name).is_ok(), "{name}");
        }
        for state in ["latest", "presnt", "", "1 2", "1;2"] {
            assert!(Wanted::of(state).is_err(), "{state}");
        }
    }

    #[test]
    fn the_look_at_packages_is_understood_on_this_machine() {
        let names = ["dpkg".to_owned(), "no-such-package".to_owned()];
        for shell in ["dash", "bash"] {
            let ran = std::process::Command::new(shell)
                .args(["-c", &look(&names)])
                .output()
                .unwrap();
            assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
            let found = Found::parse(&String::from_utf8_lossy(&ran.stdout));
            if std::path::Path::new("/usr/bin/dpkg-query").exists() {
                assert_eq!(
                    found.versions.keys().collect::<Vec<_>>(),
                    ["dpkg"],
                    "{found:?}"
                );
            }
        }
    }
}
