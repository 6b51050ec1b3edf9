//! What a host holds of the pieces it should, for `--check`: found with `sh` alone, nothing written.
//! The worker's program, which decides when pieces are sent, comes to the same.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_gguf::Slice;
use windlass_gguf::checked::{RECORD_FILE, Record};
use windlass_wire::host::WantedFile;

use super::deployment::Place;
use super::install::{SHORT, failed};
use super::source::Source;
use crate::event::Failure;
use crate::ssh::{Caps, Output, SshError, quote};

/// Most bytes of a listing: names, figures and the record.
const LISTING: usize = 16 << 20;
/// Bytes a second that a host surely reads its pieces with.
const SLOWEST_DISK: u64 = 20 << 20;
/// What stands between the list of files and the record.
const RECORD: &str = "record";

/// What a host lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// Bytes that would have to be sent.
    pub bytes: u64,
    /// Files that are there and are not what they should be; their bytes are counted.
    pub damaged: Vec<String>,
}

/// Looks what a host lacks of these slices. Files whose time, number or size is not as it was when
/// their digest was checked are read; with `verify` all are.
///
/// # Errors
/// When the host cannot be asked.
pub async fn look(
    place: &Place,
    source: &Source,
    slices: &[Slice],
    verify: bool,
) -> Result<Lacking, Failure> {
    let folder = place.base.pieces(source.sha256());
    let script = listing_script(&folder);
    let caps = Caps {
        stdout: LISTING,
        ..SHORT
    };
    let of_ssh = |error: SshError| error.failure(place.session.host());
    let listing = run(place, "look at the pieces", &script, caps)
        .await
        .map_err(of_ssh)?
        .text();
    let there = There::of(&listing);
    let mut lacking = Lacking::default();
    let mut doubtful = Vec::new();
    for slice in slices {
        let wanted = source
            .wanted(*slice)
            .map_err(|error| failed(&place.session, "plan", error))?;
        match there.state(&wanted, verify) {
            State::Whole => {}
            State::Missing(bytes) => lacking.bytes = lacking.bytes.saturating_add(bytes),
            State::Doubtful(right) => doubtful.push((wanted, right)),
        }
    }
    if doubtful.is_empty() {
        return Ok(lacking);
    }
    let bytes: u64 = doubtful.iter().map(|(file, _)| file.bytes).sum();
    let caps = Caps {
        stdout: LISTING,
        time: SHORT.time + Duration::from_secs(bytes / SLOWEST_DISK),
        ..SHORT
    };
    let names = doubtful.iter().map(|(file, _)| file.file.as_str());
    let script = digests_script(&folder, names);
    let digests = run(place, "read pieces that changed", &script, caps)
        .await
        .map_err(of_ssh)?
        .text();
    let mut digests = digests.lines();
    for (file, right) in doubtful {
        let is = digests.next().unwrap_or_default();
        if is.split_whitespace().next() != Some(right.as_str()) {
            lacking.bytes = lacking.bytes.saturating_add(file.bytes);
            lacking.damaged.push(file.file);
        }
    }
    Ok(lacking)
}

async fn run(place: &Place, what: &str, script: &str, caps: Caps) -> Result<Output, SshError> {
    let root = place.base.root;
    place.session.run_as(root, what, script, caps).await
}

fn listing_script(folder: &str) -> String {
    format!(
        "cd {folder} 2>/dev/null || exit 0\n\
         for f in *.gguf *.part; do\n\
         \x20 if [ -f \"$f\" ] && [ ! -L \"$f\" ]; then\n\
         \x20   stat -c '%s %.9Y %i %n' \"$f\" 2>/dev/null || stat -f '%z %Fm %i %N' \"$f\"\n\
         \x20 fi\n\
         done\n\
         echo {RECORD}\n\
         cat {RECORD_FILE} 2>/dev/null\n\
         exit 0\n",
        folder = quote(folder),
    )
}

/// Prints a digest for each file, in order.
fn digests_script<'a>(folder: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(quote).collect();
    format!(
        "cd {folder} || exit 1\n\
         for f in {names}; do\n\
         \x20 if command -v sha256sum >/dev/null 2>&1; then sha256sum < \"$f\" || echo unreadable\n\
         \x20 else shasum -a 256 < \"$f\" || echo unreadable; fi\n\
         done\n",
        folder = quote(folder),
        names = names.join(" "),
    )
}

/// A file as it is: its size, and its time of change and number where they could be read.
type Figures = (u64, Option<((i64, i64), u64)>);

/// The folder of pieces as it was found.
#[derive(Debug, Default)]
struct There {
    files: BTreeMap<String, Figures>,
    record: Record,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// As it should be, as far as can be told.
    Whole,
    /// This many bytes are not there.
    Missing(u64),
    /// There, changed since it was checked; it should have this digest.
    Doubtful(String),
}

impl There {
    fn of(listing: &str) -> Self {
        let (files, record) = match listing.split_once(&format!("{RECORD}\n")) {
            Some((files, record)) => (files, record),
            None => (listing, ""),
        };
        Self {
            files: files.lines().filter_map(file).collect(),
            record: serde_json::from_str(record).unwrap_or_default(),
        }
    }

    fn state(&self, wanted: &WantedFile, verify: bool) -> State {
        let Some((bytes, stamp)) = self.files.get(&wanted.file) else {
            return self.part(wanted);
        };
        if *bytes != wanted.bytes {
            return self.part(wanted);
        }
        let seen = self.record.get(&wanted.file);
        let checked = seen.map(|seen| &seen.sha256);
        let Some(right) = wanted.sha256.as_ref().or(checked) else {
            // What its digest should be is found out when it is sent, without its bytes.
            return State::Whole;
        };
        let unchanged = seen.is_some_and(|seen| {
            seen.bytes == *bytes
                && Some((seen.changed, seen.inode)) == *stamp
                && seen.sha256 == *right
        });
        if unchanged && !verify {
            State::Whole
        } else {
            State::Doubtful(right.clone())
        }
    }

    fn part(&self, wanted: &WantedFile) -> State {
        let part = self.files.get(&format!("{}.part", wanted.file));
        let there = part.map_or(0, |(bytes, _)| *bytes);
        State::Missing(wanted.bytes.checked_sub(there).unwrap_or(wanted.bytes))
    }
}

/// A line of the listing: size, time, number, name.
fn file(line: &str) -> Option<(String, Figures)> {
    let mut words = line.splitn(4, ' ');
    let bytes = words.next()?.parse().ok()?;
    let (time, inode) = (words.next()?, words.next()?);
    let stamp = || {
        let (seconds, fraction) = time.split_once('.')?;
        let nanos: i64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
        Some(((seconds.parse().ok()?, nanos), inode.parse().ok()?))
    };
    Some((words.next()?.to_owned(), (bytes, stamp())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use windlass_gguf::checked::{Seen, write_record};

    use super::*;

    fn sh(script: &str) -> String {
        let output = Command::new("/bin/sh")
            .args(["-c", script])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn wanted(file: &str, bytes: u64) -> WantedFile {
        WantedFile {
            file: file.into(),
            bytes,
            sha256: None,
        }
    }

    #[test]
    fn a_folder_is_read_back_as_the_worker_would_see_it() {
        // The digests of the standard's examples "abc" and "".
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a.gguf", "b.gguf", "c.gguf"] {
            fs::write(at(name), "abc").unwrap();
        }
        fs::write(at("d.gguf.part"), "ab").unwrap();
        std::os::unix::fs::symlink(at("a.gguf"), at("e.gguf")).unwrap();
        let seen = |name: &str| (name.to_owned(), Seen::of(&at(name), abc).unwrap());
        let record = Record::from([seen("a.gguf"), seen("b.gguf")]);
        write_record(folder.path(), &record).unwrap();
        // Same size and number, another time.
        let later = std::time::SystemTime::now() + Duration::from_secs(5);
        let file = fs::OpenOptions::new()
            .write(true)
            .open(at("b.gguf"))
            .unwrap();
        file.set_modified(later).unwrap();
        let path = folder.path().display().to_string();
        let there = There::of(&sh(&listing_script(&path)));
        let doubtful = State::Doubtful(abc.to_owned());
        for (file, bytes, verify, state) in [
            ("a.gguf", 3, false, State::Whole),
            ("a.gguf", 3, true, doubtful),
            ("a.gguf", 5, false, State::Missing(5)),
            ("b.gguf", 3, false, State::Doubtful(abc.to_owned())),
            ("c.gguf", 3, false, State::Whole),
            ("d.gguf", 5, false, State::Missing(3)),
            ("e.gguf", 3, false, State::Missing(3)),
            ("f.gguf", 7, false, State::Missing(7)),
        ] {
            assert_eq!(there.state(&wanted(file, bytes), verify), state, "{file}");
        }
        let known = WantedFile {
            sha256: Some("00".repeat(32)),
            ..wanted("c.gguf", 3)
        };
        let state = there.state(&known, false);
        assert_eq!(state, State::Doubtful("00".repeat(32)));
        let digests = sh(&digests_script(
            &path,
            ["b.gguf", "no.gguf", "a.gguf"].into_iter(),
        ));
        let lines: Vec<&str> = digests.lines().map(|line| &line[..10]).collect();
        assert_eq!(lines, [&abc[..10], "unreadable", &abc[..10]]);
    }

    #[test]
    fn a_host_without_the_folder_lacks_everything_and_odd_lines_are_left_out() {
        let there = There::of(&sh(&listing_script("/nowhere/at/all")));
        assert_eq!(there.state(&wanted("a.gguf", 3), false), State::Missing(3));
        for line in ["", "x 1.0 2 a", "5 1.0", "\u{1F980}"] {
            assert_eq!(file(line), None, "{line}");
        }
        // Where times have no fraction, what was checked is read again.
        assert_eq!(file("5 17 2 a b"), Some(("a b".into(), (5, None))));
        assert_eq!(
            file("5 17.5 2 a").unwrap().1.1,
            Some(((17, 500_000_000), 2))
        );
    }
}
