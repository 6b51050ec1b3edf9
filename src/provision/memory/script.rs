//! What is done on a host, as scripts for `sh`, and what is kept there to take it back. Pure; must not
//! know sessions.
//!
//! Each run keeps a folder, [`folder`], that only root reads: `memory.json`, written before the first
//! change; `files/N`, each file as it was with owner, mode, times and what else the file system has for
//! it, or `files/N.absent`; `after/N`, as the run is to leave it, and then as it left it.

use serde::{Deserialize, Serialize};

use crate::ssh::quote;

/// Where runs keep what takes them back.
const FOLDER: &str = "/var/lib/windlass/undo";
/// Version of the record's form.
pub const VERSION: u32 = 1;

/// A file's real place: a link is followed, so that it stays one.
const REAL: &str =
    "real() { if [ -L \"$1\" ]; then readlink -f -- \"$1\"; else printf '%s\\n' \"$1\"; fi; }\n";

/// What a run did on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The form: [`VERSION`].
    pub v: u32,
    /// The run.
    pub run: String,
    /// Parameters it set, with their values.
    pub set: Vec<(String, String)>,
    /// Files that it changed, or that a line of its did; kept by their numbers.
    pub files: Vec<String>,
    /// Lines it ran, and what takes each back.
    pub lines: Vec<(String, String)>,
}

impl Record {
    /// From its text.
    ///
    /// # Errors
    /// When it is none, or of a newer form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let record: Self =
            serde_json::from_str(text).map_err(|error| format!("it is not understood: {error}"))?;
        match record.v {
            VERSION => Ok(record),
            other => Err(format!(
                "it is of form {other}, and this windlass knows {VERSION}: use a newer one"
            )),
        }
    }
}

/// The folder of a run.
pub fn folder(run: &str) -> String {
    format!("{FOLDER}/{run}")
}

/// Where a run keeps a file as it was.
pub fn kept(run: &str, number: usize) -> String {
    format!("{}/files/{number}", folder(run))
}

fn after(run: &str, number: usize) -> String {
    format!("{}/after/{number}", folder(run))
}

/// Keeps every file of the record, and the texts that the first of them are to have, so that also a run
/// that is killed then can tell another's hand; then writes the record. All is on the disk when it ends.
///
/// # Errors
/// When the record cannot be written as text.
pub fn begin<'a>(
    record: &Record,
    texts: impl IntoIterator<Item = &'a str>,
) -> Result<String, String> {
    let text = serde_json::to_string(record).map_err(|error| error.to_string())?;
    let folder = quote(&folder(&record.run));
    let mut script = format!("set -e\numask 077\n{REAL}mkdir -p {folder}/files {folder}/after\n");
    for (number, path) in record.files.iter().enumerate() {
        let (path, kept) = (quote(path), quote(&kept(&record.run, number)));
        script.push_str(&format!(
            "p=$(real {path})\nif [ -e \"$p\" ]; then cp -a -- \"$p\" {kept}; else : >{kept}.absent; fi\n"
        ));
    }
    for (number, text) in texts.into_iter().enumerate() {
        let after = quote(&after(&record.run, number));
        script.push_str(&format!("printf '%s' {} >{after}\n", quote(text)));
    }
    script.push_str(&format!(
        "printf '%s\\n' {} >{folder}/memory.new\nsync\nmv {folder}/memory.new {folder}/memory.json\n",
        quote(&text)
    ));
    Ok(script)
}

/// Writes a file in one step: what reads it sees the old or the new. Owner, mode and the like stay; a
/// new one is root's, and everybody may read it.
pub fn write(path: &str, text: &str) -> String {
    format!(
        "set -e\numask 022\n{REAL}p=$(real {path})\nnew=$p.windlass-new\ntrap 'rm -f -- \"$new\"' EXIT\n\
         mkdir -p -- \"${{p%/*}}\"\nrm -f -- \"$new\"\n\
         if [ -e \"$p\" ]; then cp -a -- \"$p\" \"$new\"; else : >\"$new\"; made=1; fi\n\
         printf '%s' {text} >\"$new\"\nsync \"$new\" 2>/dev/null || sync\nmv -f -- \"$new\" \"$p\"\n\
         sync \"${{p%/*}}\" 2>/dev/null || sync\n\
         if [ -n \"${{made:-}}\" ] && command -v restorecon >/dev/null; then restorecon \"$p\" || :; fi\n",
        path = quote(path),
        text = quote(text),
    )
}

/// Remembers files as the run left them.
pub fn remember(record: &Record) -> String {
    let mut script = format!("set -e\numask 077\n{REAL}");
    for (number, path) in record.files.iter().enumerate() {
        let (path, after) = (quote(path), quote(&after(&record.run, number)));
        script.push_str(&format!(
            "p=$(real {path})\nrm -f {after}\nif [ -e \"$p\" ]; then cp -a -- \"$p\" {after}; fi\n"
        ));
    }
    script
}

/// For `sh`, whether a file is a loader entry that is gone: an update took its kernel away, and it with
/// it. That is nobody's change, and an entry without its kernel is not brought back.
fn went_with_its_kernel(path: &str) -> &'static str {
    match path.contains("/loader/entries/") && path.ends_with(".conf") {
        true => "[ ! -e \"$p\" ] && [ ! -L \"$p\" ]",
        false => "false",
    }
}

/// Prints the paths that someone else changed since the run: those that are neither as it left them
/// nor as they were before.
pub fn changed_since(record: &Record) -> String {
    let mut script = REAL.to_owned();
    for (number, path) in record.files.iter().enumerate() {
        let kept = quote(&kept(&record.run, number));
        let after = quote(&after(&record.run, number));
        let went = went_with_its_kernel(path);
        let path = quote(path);
        script.push_str(&format!(
            "p=$(real {path})\n\
             if {went}; then :\n\
             elif [ ! -e {after} ] || cmp -s \"$p\" {after}; then :\n\
             elif [ -e {kept}.absent ] && [ ! -e \"$p\" ]; then :\n\
             elif cmp -s \"$p\" {kept}; then :\nelse printf '%s\\n' {path}; fi\n"
        ));
    }
    script
}

/// Gives a run's files back as they were. Doing it twice is as once.
pub fn restore(record: &Record) -> String {
    let mut script = format!("set -e\n{REAL}");
    for (number, path) in record.files.iter().enumerate() {
        let kept = quote(&kept(&record.run, number));
        script.push_str(&format!(
            "p=$(real {path})\n\
             if [ -e {kept}.absent ]; then rm -f -- \"$p\"\n\
             elif {went}; then :\n\
             elif [ -e {kept} ]; then new=$p.windlass-new; rm -f -- \"$new\"; cp -a -- {kept} \"$new\"\n\
             sync \"$new\" 2>/dev/null || sync; mv -f -- \"$new\" \"$p\"; fi\n",
            path = quote(path),
            went = went_with_its_kernel(path),
        ));
    }
    script.push_str("sync\n");
    script
}

/// Says that a run was taken back: its record has another name then.
pub fn ended(run: &str) -> String {
    let folder = quote(&folder(run));
    format!("mv {folder}/memory.json {folder}/memory.undone.json\n")
}

/// The lines that a person types on the host's console to have it as it was.
pub fn by_hand(record: &Record) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (number, path) in record.files.iter().enumerate() {
        let (path, kept) = (quote(path), quote(&kept(&record.run, number)));
        lines.push(format!(
            "if [ -e {kept} ]; then cp -a {kept} {path}; else rm -f {path}; fi"
        ));
    }
    lines.extend(record.lines.iter().rev().map(|(_, undo)| undo.clone()));
    lines.push("reboot".to_owned());
    lines.join("\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn sh(script: &str) -> String {
        let ran = std::process::Command::new("sh")
            .args(["-c", script])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{script}\n{said}");
        String::from_utf8(ran.stdout).unwrap()
    }

    #[test]
    fn files_come_back_with_bytes_mode_time_and_links_and_strange_hands_are_seen() {
        let home = tempfile::tempdir().unwrap();
        let undo = home.path().join("undo").display().to_string();
        let run = |script: String| sh(&script.replace(FOLDER, &undo));
        let path = |name: &str| home.path().join(name).display().to_string();
        std::fs::write(path("grub's"), "a\nno end").unwrap();
        std::fs::set_permissions(path("grub's"), std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("grub's", path("link")).unwrap();
        let seen = || {
            let meta = std::fs::metadata(path("grub's")).unwrap();
            let text = std::fs::read_to_string(path("grub's")).unwrap();
            (text, meta.mode(), meta.mtime(), meta.mtime_nsec())
        };
        let before = seen();
        let record = Record {
            v: VERSION,
            run: "r1".into(),
            files: vec![path("link"), path("sub/new.conf")],
            ..Record::default()
        };
        let texts = ["new 'x' $y\\n\n", "n"].map(str::to_owned);
        let both = || texts.iter().map(String::as_str);
        run(begin(&record, both()).unwrap());
        // Killed before the first, between them, after both: nobody else was there.
        for (file, text) in record.files.iter().zip(both()) {
            assert_eq!(run(changed_since(&record)), "");
            run(write(file, text));
            run(write(file, text));
        }
        assert_eq!(run(changed_since(&record)), "");
        // Killed, and somebody was.
        std::fs::write(path("sub/new.conf"), "mine").unwrap();
        assert_eq!(
            run(changed_since(&record)),
            format!("{}\n", path("sub/new.conf"))
        );
        run(write(&path("sub/new.conf"), "n"));
        run(remember(&record));
        assert_eq!((seen().0.as_str(), seen().1), ("new 'x' $y\\n\n", before.1));
        assert!(
            std::fs::symlink_metadata(path("link"))
                .unwrap()
                .is_symlink()
        );
        assert_eq!(run(changed_since(&record)), "");
        std::fs::write(path("sub/new.conf"), "other").unwrap();
        assert_eq!(
            run(changed_since(&record)),
            format!("{}\n", path("sub/new.conf"))
        );
        for _ in 0..2 {
            run(restore(&record));
            assert_eq!(run(changed_since(&record)), "");
        }
        assert_eq!(seen(), before);
        assert!(!home.path().join("sub/new.conf").exists());
        run(ended("r1"));
        let left = std::fs::read_dir(home.path()).unwrap().count();
        assert_eq!(left, 4);
    }

    #[test]
    fn a_loader_entry_that_went_with_its_kernel_is_nobodys_change_and_stays_gone() {
        let home = tempfile::tempdir().unwrap();
        let undo = home.path().join("undo").display().to_string();
        let run = |script: String| sh(&script.replace(FOLDER, &undo));
        let entries = home.path().join("loader/entries");
        std::fs::create_dir_all(&entries).unwrap();
        let paths = ["old.conf", "new.conf"].map(|name| entries.join(name));
        let record = Record {
            v: VERSION,
            run: "r1".into(),
            files: paths
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
            ..Record::default()
        };
        for path in &paths {
            std::fs::write(path, "linux /v\noptions ro\n").unwrap();
        }
        run(begin(&record, []).unwrap());
        for path in &record.files {
            run(write(path, "linux /v\noptions ro set=1\n"));
        }
        run(remember(&record));
        std::fs::remove_file(&paths[0]).unwrap();
        assert_eq!(run(changed_since(&record)), "");
        run(restore(&record));
        assert!(!paths[0].exists());
        let text = std::fs::read_to_string(&paths[1]).unwrap();
        assert_eq!(text, "linux /v\noptions ro\n");
    }

    #[test]
    fn a_record_of_a_newer_form_is_refused() {
        assert!(
            Record::parse("{\"v\":2,\"run\":\"x\",\"set\":[],\"files\":[],\"lines\":[]}").is_err()
        );
        assert!(Record::parse("{").is_err());
    }
}
