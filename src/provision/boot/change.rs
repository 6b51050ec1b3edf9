//! From what is wanted to what is to be written and run on a host, by its own mechanism. Must not know
//! how it gets there.

use super::grub::{File, Refused};
use super::tools::{self, Line};
use super::{
    Ground, Mechanism, Parameter, Refusal, Wish, cmdline, entry, grub, kernel_install, modprobe,
    names,
};

/// The file of modprobe.d that is windlass's own.
pub const OWN: &str = "/etc/modprobe.d/windlass-gpu-memory.conf";

/// A file as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its path.
    pub path: String,
    /// Its text now; `None` when it is not there.
    pub before: Option<String>,
    /// Its text then.
    pub after: String,
}

/// What is to be done on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Files to be written. Those that stay as they are, are not among them.
    pub files: Vec<Written>,
    /// Lines to be run after that.
    pub lines: Vec<Line>,
    /// Files that those lines write too, and that are given back with the others.
    pub keep: Vec<String>,
    /// What a person is to do, where windlass does not.
    pub hand: Vec<String>,
}

impl Change {
    /// Whether all is as wanted.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.lines.is_empty() && self.hand.is_empty()
    }

    fn file(&mut self, path: &str, before: Option<&str>, after: String) {
        if before != Some(after.as_str()) {
            self.files.push(Written {
                path: path.to_owned(),
                before: before.map(str::to_owned),
                after,
            });
        }
    }
}

/// What is to be done for a wish on a host with Linux.
///
/// # Errors
/// When a file cannot be changed safely, with its path.
pub fn change(ground: &Ground, mechanism: &Mechanism, wish: &Wish) -> Result<Change, Refused> {
    let mut change = Change::default();
    match mechanism {
        Mechanism::Macos => {
            return Err((
                "sysctl".to_owned(),
                Refusal::new(None, "a Mac has no kernel parameters of this kind"),
            ));
        }
        Mechanism::NixOs => {
            if cmdline::edit(&ground.command_line, wish) != ground.command_line {
                change.hand = tools::nixos(wish);
            }
        }
        Mechanism::Ostree => {
            let now = ground.kargs.as_deref().unwrap_or(&ground.command_line);
            change.lines = tools::ostree(wish, now);
        }
        Mechanism::Grubby => {
            let entries = || ground.entries.iter().chain(&ground.kernel_cmdline);
            // One entry that is otherwise is enough to run it.
            let fits = |file: &File| match entry::read(&file.text) {
                Ok(entry) if !entry::from_environment(&entry) => {
                    cmdline::edit(&entry.options, wish) == entry.options
                }
                _ => cmdline::edit(&ground.command_line, wish) == ground.command_line,
            };
            if ground.entries.is_empty() || !ground.entries.iter().all(fits) {
                change.lines = tools::grubby(wish, &ground.command_line);
                change.keep = entries().map(|file| file.path.clone()).collect();
                change
                    .keep
                    .extend(ground.grub.first().map(|file| file.path.clone()));
            }
        }
        Mechanism::Grub { apply } => {
            let edited = grub::edit(&ground.grub, wish)?;
            for (old, new) in ground.grub.iter().zip(edited) {
                change.file(&old.path, Some(&old.text), new.text);
            }
            run_for_files(&mut change, apply);
            // The files were written by a run that was killed then, or by hand, and nothing was made
            // of them.
            let runs = cmdline::edit(&ground.command_line, wish) == ground.command_line;
            if change.files.is_empty() && ground.grub_stale && !runs {
                change.lines.push(again(apply));
            }
        }
        Mechanism::Entries => {
            let ours = |file: &&File| entry::edited(&file.text);
            for file in ground.entries.iter().filter(ours) {
                let new = entry::edit(&file.text, wish)
                    .map_err(|refusal| (file.path.clone(), refusal))?;
                change.file(&file.path, Some(&file.text), new);
            }
            if let Some(file) = &ground.kernel_cmdline {
                let new = kernel_install::edit(&file.text, wish)
                    .map_err(|refusal| (file.path.clone(), refusal))?;
                change.file(&file.path, Some(&file.text), new);
            }
        }
        Mechanism::KernelCmdline { apply } => {
            if let Some(file) = &ground.kernel_cmdline {
                let new = kernel_install::edit(&file.text, wish)
                    .map_err(|refusal| (file.path.clone(), refusal))?;
                change.file(&file.path, Some(&file.text), new);
            }
            run_for_files(&mut change, apply);
        }
        Mechanism::Modprobe { initramfs } => {
            options(ground, wish, &mut change)?;
            if let Some(tool) = initramfs {
                let line = tool.line(&ground.release);
                run_for_files(&mut change, &line);
                // As with GRUB's files: the image may have been built before a value was written.
                if change.files.is_empty() && unbuilt(ground, wish) {
                    change.lines.push(again(&line));
                }
            }
        }
    }
    Ok(change)
}

/// Whether a value that is wished stands in a file of modprobe.d that was written after the image of the
/// early file system, which may hold a copy.
fn unbuilt(ground: &Ground, wish: &Wish) -> bool {
    let texts: Vec<&str> = ground.modprobe.iter().map(|file| &*file.text).collect();
    wish.set.iter().any(|parameter| {
        modprobe::value(&texts, &parameter.name)
            .and_then(|(at, _)| ground.modprobe.get(at))
            .is_some_and(|file| ground.newer.contains(&file.path))
    })
}

/// A line to be run after files were written, and again when they are given back.
fn run_for_files(change: &mut Change, apply: &str) {
    if !change.files.is_empty() {
        change.lines.push(again(apply));
    }
}

/// A line that is run to go back, too.
fn again(apply: &str) -> Line {
    Line {
        line: apply.to_owned(),
        undo: apply.to_owned(),
    }
}

/// Files of modprobe.d: a parameter is changed where the value that counts stands, else in a file of
/// windlass's own.
fn options(ground: &Ground, wish: &Wish, change: &mut Change) -> Result<(), Refused> {
    let mut files = ground.modprobe.clone();
    if !files.iter().any(|file| file.path == OWN) {
        files.push(File::new(OWN, ""));
    }
    for parameter in &wish.set {
        let texts: Vec<&str> = files.iter().map(|file| file.text.as_str()).collect();
        let found = modprobe::value(&texts, &parameter.name);
        let at = match &found {
            Some((_, found)) if found.value == parameter.value => continue,
            Some((at, found)) => {
                let path = files.get(*at).map(|file| file.path.clone());
                let path = path.unwrap_or_default();
                if !path.starts_with("/etc/") {
                    let hand = format!(
                        "a file of the same name in /etc/modprobe.d takes its place; put there: \
                         options {}",
                        parameter.name.replacen('.', " ", 1)
                    );
                    let why = format!("{} is set in a file of the system's packages", found.full());
                    return Err((
                        path,
                        Refusal::new(found.line, why)
                            .by_hand(format!("{hand}={}", parameter.value)),
                    ));
                }
                *at
            }
            None => files.iter().position(|file| file.path == OWN).unwrap_or(0),
        };
        edit_one(&mut files, at, &one(parameter))?;
    }
    let gone = Wish {
        remove: wish.remove.clone(),
        ..Wish::default()
    };
    for at in 0..files.len() {
        if files
            .get(at)
            .is_some_and(|file| file.path.starts_with("/etc/"))
        {
            edit_one(&mut files, at, &gone)?;
        }
    }
    for file in files {
        let before = ground.modprobe.iter().find(|old| old.path == file.path);
        if before.is_none() && file.text.is_empty() {
            continue;
        }
        change.file(&file.path, before.map(|old| old.text.as_str()), file.text);
    }
    Ok(())
}

fn one(parameter: &Parameter) -> Wish {
    Wish {
        set: vec![parameter.clone()],
        ..Wish::default()
    }
}

fn edit_one(files: &mut [File], at: usize, wish: &Wish) -> Result<(), Refused> {
    if let Some(file) = files.get_mut(at) {
        file.text =
            modprobe::edit(&file.text, wish).map_err(|refusal| (file.path.clone(), refusal))?;
    }
    Ok(())
}

/// A parameter that has to do with GPU memory, and where it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// `/proc/cmdline`, or a file's path.
    pub place: String,
    /// The full name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// What is set for GPU memory, right or wrong.
pub fn settings(ground: &Ground) -> Vec<Setting> {
    let module = |name: &str| {
        let plain = name.replace('-', "_");
        ["ttm.", "amdttm.", "amdgpu."]
            .iter()
            .any(|own| plain.starts_with(own))
            || names::meant(name).is_some()
    };
    let memory = |name: &str| {
        let right = names::meant(name).unwrap_or_else(|| name.replace('-', "_"));
        let parameter = right.rsplit('.').next().unwrap_or_default();
        ["pages_limit", "page_pool_size", "gttsize"].contains(&parameter)
    };
    let mut found: Vec<Setting> = cmdline::words(&ground.command_line)
        .into_iter()
        .filter(|word| !word.for_init && module(&word.name) && memory(&word.name))
        .map(|word| Setting {
            place: "/proc/cmdline".to_owned(),
            name: word.name,
            value: word.value.unwrap_or_default(),
        })
        .collect();
    for file in &ground.modprobe {
        let options = modprobe::read(&file.text).into_iter();
        found.extend(
            options
                .filter(|option| module(&option.full()) && memory(&option.full()))
                .map(|option| Setting {
                    place: file.path.clone(),
                    name: option.full(),
                    value: option.value,
                }),
        );
    }
    found
}

/// What is wrong with the settings, a sentence each: names that no module has, values of one parameter
/// that differ, a size said twice by two parameters, a module that is not the one loaded.
pub fn faults(ground: &Ground) -> Vec<String> {
    let settings = settings(ground);
    let mut faults = Vec::new();
    for setting in &settings {
        if let Some(right) = names::meant(&setting.name) {
            faults.push(format!(
                "{} has {}={}: no module knows that name, so it is ignored; {right} is meant",
                setting.place, setting.name, setting.value
            ));
        }
    }
    let same = |a: &Setting, b: &Setting| cmdline::same_name(&a.name, &b.name);
    for (number, one) in settings.iter().enumerate() {
        let before = settings.get(..number).unwrap_or_default();
        if let Some(first) = before
            .iter()
            .find(|other| same(other, one) && other.value != one.value)
        {
            faults.push(format!(
                "{} is {} in {} and {} in {}; the command line counts before files, and in files the \
                 last value",
                one.name, first.value, first.place, one.value, one.place
            ));
        }
    }
    let has = |name: &str| {
        settings
            .iter()
            .find(|own| cmdline::same_name(&own.name, name))
    };
    for limit in ["ttm.pages_limit", "amdttm.pages_limit"] {
        if let (Some(limit), Some(size)) = (has(limit), has("amdgpu.gttsize")) {
            faults.push(format!(
                "{} and {} are both set ({} and {}): take out amdgpu.gttsize, which newer drivers no \
                 longer want",
                limit.name, size.name, limit.place, size.place
            ));
        }
    }
    if let Some(module) = &ground.module {
        let name = format!("{module}.pages_limit");
        let twin = names::twin(&name).unwrap_or_default();
        if let (None, Some(other)) = (has(&name), has(&twin)) {
            faults.push(format!(
                "{} is set in {}, but the module that is loaded is {module}: {name} is what counts",
                other.name, other.place
            ));
        }
    }
    faults
}

/// The other parameter for the size. Both together are not to be set.
pub const OTHER_SIZE: &str = "amdgpu.gttsize";

/// The wish for so many pages. `ours`: parameters that earlier runs of windlass set here. `next`: where
/// the next boot takes its command line from, and what it has there for the other size.
///
/// # Errors
/// When someone else set the other size: where, and what to do.
pub fn wish(
    ground: &Ground,
    pages: u64,
    ours: &[Parameter],
    next: Option<(&str, String)>,
) -> Result<Wish, String> {
    let modules: Vec<&str> = match ground.module.as_deref() {
        Some(module) => vec![module],
        // The other one ignores what is not its own.
        None => vec!["ttm", "amdttm"],
    };
    let mut wish = Wish {
        set: modules
            .iter()
            .map(|module| Parameter::new(format!("{module}.pages_limit"), pages.to_string()))
            .collect(),
        remove: Vec::new(),
    };
    let waiting = next.into_iter().map(|(place, value)| Setting {
        place: place.to_owned(),
        name: OTHER_SIZE.to_owned(),
        value,
    });
    let now = settings(ground).into_iter();
    // Where it waits is where it is to be taken out.
    for setting in waiting.chain(now) {
        if !cmdline::same_name(&setting.name, OTHER_SIZE) {
            continue;
        }
        let own = ours
            .iter()
            .any(|own| own.name == OTHER_SIZE && own.value == setting.value);
        if !own {
            return Err(format!(
                "{OTHER_SIZE}={} is set in {}, and windlass did not set it: take it out first and \
                 reboot, since it and {} are not to be set together; then run `windlass memory set` \
                 again",
                setting.value,
                setting.place,
                wish.set
                    .first()
                    .map_or("ttm.pages_limit", |limit| limit.name.as_str()),
            ));
        }
        if wish.remove.is_empty() {
            wish.remove.push(OTHER_SIZE.to_owned());
        }
    }
    Ok(wish)
}
