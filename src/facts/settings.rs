//! What a host's owner has installed and set: packages, services, modules' options, kernel settings.
//! Larger than the other facts, so it is read only where hosts are compared. Must not know what
//! matters of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::script::{self, Sections, parts};
use crate::ssh::{Caps, Session, SshError, quote};

/// The script without what is set before it.
const SCRIPT: &str = include_str!("settings.sh");

/// Where modprobe(8) reads what it is told.
pub const MODPROBE: &str = "/etc/modprobe.d/";

/// What it may take at most: 4 MiB (some ten thousand packages), 30 s.
const CAPS: Caps = Caps {
    stdout: 4 << 20,
    stderr: 64 << 10,
    time: Duration::from_secs(30),
};

/// What is installed and set. What the host does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// What installs packages: `apt-get`, `dnf`, `zypper`, `pacman`, `rpm-ostree`.
    pub installer: Option<String>,
    /// Installed packages with their versions; the name holds the architecture where it is not
    /// the machine's own. Several versions of one package are parted by blanks, lowest text first.
    #[serde(serialize_with = "plain")]
    pub packages: Option<Arc<BTreeMap<String, String>>>,
    /// Whether a unit of systemd is `enabled`, `disabled` or `masked`; others are left out.
    pub units: Option<BTreeMap<String, String>>,
    /// What modprobe(8) is told in /etc/modprobe.d: `module parameter` with its value,
    /// `blacklist module` with `yes`.
    pub modprobe: Option<BTreeMap<String, String>>,
    /// What sysctl(8) is told to set in /etc.
    pub sysctl: Option<BTreeMap<String, String>>,
    /// The files of modprobe.d and sysctl.d that the two are read from, by path.
    pub files: BTreeMap<String, String>,
}

impl Settings {
    /// From the script's sections.
    pub fn parse(sections: &Sections<'_>) -> Self {
        let of = |name: &str| sections.find(name).map(files);
        let (module_files, sysctl_files) = (of("modprobe"), of("sysctl"));
        fn texts(files: &BTreeMap<String, String>) -> impl Iterator<Item = &str> {
            files.values().map(String::as_str)
        }
        Self {
            installer: sections.find("installer").and_then(script::some),
            // No system is without packages: its list could not be read then.
            packages: sections
                .find("packages")
                .map(packages)
                .filter(|list| !list.is_empty())
                .map(Arc::new),
            units: sections.find("units").map(units),
            modprobe: module_files.as_ref().map(|files| modprobe(texts(files))),
            sysctl: sysctl_files.as_ref().map(|files| sysctl(texts(files))),
            files: [module_files, sysctl_files]
                .into_iter()
                .flatten()
                .flatten()
                .collect(),
        }
    }
}

/// The lists of packages of the hosts that were read: the same one is kept once. Of hundreds of hosts
/// they are the most that is known.
#[derive(Debug, Default)]
pub struct Shared(Mutex<Vec<Arc<BTreeMap<String, String>>>>);

impl Shared {
    /// Most different lists that are looked through.
    const MOST: usize = 16;

    /// Takes an equal list in place of the host's own.
    pub fn take(&self, settings: &mut Settings) {
        let Some(own) = &mut settings.packages else {
            return;
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.iter().find(|other| *other == own) {
            Some(same) => *own = Arc::clone(same),
            None if known.len() < Self::MOST => known.push(Arc::clone(own)),
            None => {}
        }
    }
}

fn plain<S: Serializer>(
    list: &Option<Arc<BTreeMap<String, String>>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    list.as_deref().serialize(serializer)
}

/// Reads a host's settings, in one round trip.
///
/// # Errors
/// When the script could not be run to its end, or its answer was cut off.
pub async fn gather(session: &Session) -> Result<Settings, SshError> {
    let what = "reading what is installed";
    let broken = |reason: String| SshError::Broken {
        what: what.to_owned(),
        reason,
    };
    let mark = script::mark().map_err(broken)?;
    let script = format!("mark={}\n{SCRIPT}", quote(&mark));
    let output = session.run(what, &script, CAPS).await?;
    let text = output.text();
    let sections = Sections::parse(&text, &mark).map_err(broken)?;
    Ok(Settings::parse(&sections))
}

/// Packages with their versions, as [`Settings::packages`]: lines of a state, `name:architecture` and a
/// version.
pub fn packages(text: &str) -> BTreeMap<String, String> {
    let mut found: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some("installed"), Some(name), Some(version)) =
            (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (name, arch) = name.split_once(':').unwrap_or((name, ""));
        // Keys that packages are signed with, which rpm lists among them.
        if name == "gpg-pubkey" {
            continue;
        }
        let version = version.strip_prefix("0:").unwrap_or(version);
        found.entry((name, arch)).or_default().insert(version);
    }
    let several: BTreeSet<&str> = {
        let mut seen = BTreeSet::new();
        found
            .keys()
            .map(|(name, _)| *name)
            .filter(|name| !seen.insert(*name))
            .collect()
    };
    let neutral = |arch: &str| matches!(arch, "" | "all" | "noarch" | "(none)");
    // The machine's own is that of most packages.
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for &(_, arch) in found.keys() {
        if !neutral(arch) {
            *counts.entry(arch).or_default() += 1;
        }
    }
    let most = counts.iter().rev().max_by_key(|(_, count)| **count);
    let native = most.map_or("", |(arch, _)| *arch);
    found
        .iter()
        .map(|((name, arch), versions)| {
            let foreign = *arch != native && (several.contains(name) || !neutral(arch));
            let name = match foreign {
                true => format!("{name}:{arch}"),
                false => (*name).to_owned(),
            };
            let versions: Vec<&str> = versions.iter().copied().collect();
            (name, versions.join(" "))
        })
        .collect()
}

fn units(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, state) = (words.next()?, words.next()?);
            ["enabled", "disabled", "masked"]
                .contains(&state)
                .then(|| (name.to_owned(), state.to_owned()))
        })
        .collect()
}

/// The files with their texts.
fn files(text: &str) -> BTreeMap<String, String> {
    let files = parts(text, "file").into_iter();
    files
        .map(|(path, text)| {
            let lines = text.lines().filter_map(|line| line.strip_prefix('|'));
            let text = lines.map(|line| format!("{line}\n")).collect();
            (path.to_owned(), text)
        })
        .collect()
}

/// Names that a text of a modprobe.d or sysctl.d file sets, as in [`Settings`]; none for other files.
pub fn names_set(path: &str, text: &str) -> BTreeSet<String> {
    let read = match path {
        path if path.starts_with(MODPROBE) => modprobe([text]),
        path if path.starts_with("/etc/sysctl") => sysctl([text]),
        _ => BTreeMap::new(),
    };
    read.into_keys().collect()
}

/// The texts' lines without comments and without those that are continued apart.
fn lines<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut lines = Vec::new();
    for text in texts {
        let mut whole = String::new();
        for line in text.lines() {
            match line.strip_suffix('\\') {
                Some(begun) => whole.push_str(begun),
                None => {
                    whole.push_str(line);
                    lines.push(std::mem::take(&mut whole));
                }
            }
        }
        lines.push(whole);
    }
    lines.retain(|line| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with(['#', ';'])
    });
    lines
}

fn modprobe<'a>(texts: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for line in lines(texts) {
        let mut words = line.split_whitespace();
        let (Some(what), Some(module)) = (words.next(), words.next()) else {
            continue;
        };
        // In names of modules, `-` and `_` are the same.
        let module = module.replace('-', "_");
        match what {
            "options" => {
                for option in words {
                    let (name, value) = option.split_once('=').unwrap_or((option, "set"));
                    found.insert(format!("{module} {name}"), value.to_owned());
                }
            }
            "blacklist" => {
                found.insert(format!("blacklist {module}"), "yes".to_owned());
            }
            "install" | "softdep" => {
                let rest: Vec<&str> = words.collect();
                found.insert(format!("{what} {module}"), rest.join(" "));
            }
            _ => {}
        }
    }
    found
}

fn sysctl<'a>(texts: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, String> {
    lines(texts)
        .iter()
        .filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            let name = name.trim().trim_start_matches('-').replace('/', ".");
            Some((name, value.split_whitespace().collect::<Vec<_>>().join(" ")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        Settings::parse(&Sections::parse(text, "#facts-fixture").unwrap())
    }

    fn map(pairs: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
        let pairs = pairs
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        Some(pairs.collect())
    }

    #[test]
    fn packages_of_every_manager_are_names_with_versions() {
        let of = |lines: &str| {
            settings(&format!(
                "\n#facts-fixture packages\n{lines}\n#facts-fixture end\n"
            ))
            .packages
            .map(Arc::unwrap_or_clone)
        };
        let debian = "installed zstd:amd64 1.5.4+dfsg2-5\nconfig-files old:amd64 1\n\
                      installed libc6:amd64 2.36-9\ninstalled libc6:i386 2.36-9\n";
        assert_eq!(
            of(debian),
            map(&[
                ("zstd", "1.5.4+dfsg2-5"),
                ("libc6", "2.36-9"),
                ("libc6:i386", "2.36-9")
            ])
        );
        let fedora = "installed kernel:x86_64 0:6.18.9-200.fc43\ninstalled kernel:x86_64 0:6.17.1-300.fc43\n\
                      installed gpg-pubkey:(none) 0:aa-bb\ninstalled dnf:noarch 1:5.2-1.fc43\n";
        assert_eq!(
            of(fedora),
            map(&[
                ("kernel", "6.17.1-300.fc43 6.18.9-200.fc43"),
                ("dnf", "1:5.2-1.fc43")
            ])
        );
        assert_eq!(
            of("installed linux 6.18.9.arch1-1\n"),
            map(&[("linux", "6.18.9.arch1-1")])
        );
        assert_eq!(settings("\n#facts-fixture end\n").packages, None);
    }

    #[test]
    fn an_empty_list_of_packages_is_one_that_could_not_be_read() {
        for lines in ["", "error: rpmdb: no database\n"] {
            let text = format!("\n#facts-fixture packages\n{lines}\n#facts-fixture end\n");
            assert_eq!(settings(&text).packages, None, "{lines}");
        }
    }

    #[test]
    fn only_packages_of_another_architecture_than_most_have_it_in_their_names() {
        let found = packages(
            "installed zlib:x86_64 1\ninstalled glibc:i686 2\ninstalled glibc:x86_64 2\n\
             installed wine:i686 9\ninstalled data:noarch 3\ninstalled bash:x86_64 5\n",
        );
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["bash", "data", "glibc", "glibc:i686", "wine:i686", "zlib"]
        );
    }

    #[test]
    fn equal_lists_of_packages_are_kept_once_and_others_stay() {
        let shared = Shared::default();
        let of = |version: &str| {
            let line = format!("installed zstd:amd64 {version}");
            let mut own = settings(&format!(
                "\n#facts-fixture packages\n{line}\n#facts-fixture end\n"
            ));
            shared.take(&mut own);
            own.packages.unwrap()
        };
        let (first, other, again) = (of("1.5"), of("1.4"), of("1.5"));
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(other["zstd"], "1.4");
    }

    #[test]
    fn files_are_read_with_comments_continued_lines_and_either_sign_in_names() {
        let text = "\n#facts-fixture modprobe\nfile /etc/modprobe.d/a.conf\n\
                    |# options ttm pages_limit=1\n|options ttm pages_limit=31457280 \\\n|  page_pool_size=15728640\n\
                    |blacklist snd-hda-intel\n|options amdgpu ppfeaturemask\n\n\
                    file /etc/modprobe.d/b.conf\n|softdep amdgpu pre: ttm\n\n\
                    \n#facts-fixture sysctl\nfile /etc/sysctl.d/9.conf\n|; x\n|net.core.rmem_max =  67108864\n\
                    |-vm/swappiness=10\n|net.ipv4.tcp_rmem=4096  87380 6291456\n\n\
                    \n#facts-fixture units\nssh.service  enabled enabled\nsleep.target masked -\na.mount generated -\n\
                    \n#facts-fixture end\n";
        let found = settings(text);
        assert_eq!(
            found.modprobe,
            map(&[
                ("ttm pages_limit", "31457280"),
                ("ttm page_pool_size", "15728640"),
                ("blacklist snd_hda_intel", "yes"),
                ("amdgpu ppfeaturemask", "set"),
                ("softdep amdgpu", "pre: ttm"),
            ])
        );
        assert_eq!(
            found.sysctl,
            map(&[
                ("net.core.rmem_max", "67108864"),
                ("vm.swappiness", "10"),
                ("net.ipv4.tcp_rmem", "4096 87380 6291456"),
            ])
        );
        assert_eq!(
            found.units,
            map(&[("ssh.service", "enabled"), ("sleep.target", "masked")])
        );
    }

    #[test]
    fn the_script_writes_nothing_to_stderr_and_ends_with_its_mark_on_this_machine() {
        let script = format!("mark='#facts-fixture'\n{SCRIPT}");
        for shell in ["dash", "bash"] {
            let ran = std::process::Command::new(shell)
                .args(["-c", &script])
                .output()
                .unwrap();
            assert!(ran.status.success() && ran.stderr.is_empty(), "{shell}");
            let text = String::from_utf8_lossy(&ran.stdout).into_owned();
            let found = settings(&text);
            assert!(
                found.modprobe.is_some() && found.sysctl.is_some(),
                "{shell}: {text}"
            );
            if cfg!(target_os = "linux") && std::path::Path::new("/usr/bin/dpkg-query").exists() {
                assert!(found.packages.unwrap().contains_key("dpkg"), "{shell}");
            }
        }
    }
}
