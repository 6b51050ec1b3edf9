//! Room on the file systems of the folders that matter, from df(1) and /proc/mounts.

use serde::{Deserialize, Serialize};

use super::script::{Sections, parts, says, value};

/// Which folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Room {
    /// `/`.
    Root,
    /// Where temporary files go.
    Tmp,
    /// Where windlass keeps its own with root.
    System,
    /// Where it keeps its own without.
    User,
    /// One that was asked of.
    Asked,
}

/// The file system of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystem {
    /// Which folder.
    pub room: Room,
    /// The folder; it may not exist yet.
    pub folder: String,
    /// It, or the nearest one above it that exists.
    pub nearest: Option<String>,
    /// Whether this login may write there.
    pub writable: Option<bool>,
    /// Where the file system is mounted.
    pub mount: Option<String>,
    /// What is mounted there: a device, or a name.
    pub device: Option<String>,
    /// Its kind, e.g. `ext4`.
    pub kind: Option<String>,
    /// Whether it can only be read.
    pub read_only: Option<bool>,
    /// Whether programs may not be run from it.
    pub no_exec: Option<bool>,
    /// Its size, bytes.
    pub total_bytes: Option<u64>,
    /// What this login may still use of it, bytes.
    pub free_bytes: Option<u64>,
}

/// Reads the sections `rooms` and `mounts`.
pub fn parse(sections: &Sections<'_>) -> Vec<FileSystem> {
    let mounts = sections.find("mounts");
    parts(sections.get("rooms"), "room")
        .into_iter()
        .filter_map(|(name, text)| {
            let room = match name {
                "root" => Room::Root,
                "tmp" => Room::Tmp,
                "system" => Room::System,
                "user" => Room::User,
                "asked" => Room::Asked,
                _ => return None,
            };
            let df = text.lines().find_map(df).unwrap_or_default();
            let mounted = mounts
                .zip(df.mount.as_deref())
                .and_then(|(text, mount)| mounted(text, mount));
            let option = |name: &str| {
                mounted
                    .as_ref()
                    .map(|(_, options)| options.split(',').any(|own| own == name))
            };
            Some(FileSystem {
                room,
                folder: value(text, "folder").unwrap_or_default().to_owned(),
                nearest: value(text, "at").map(str::to_owned),
                writable: Some(says(text, "writable")),
                kind: mounted.as_ref().map(|(kind, _)| kind.clone()),
                read_only: option("ro"),
                no_exec: option("noexec"),
                mount: df.mount,
                device: df.device,
                total_bytes: df.total,
                free_bytes: df.free,
            })
        })
        .collect()
}

/// A line of df(1).
#[derive(Default)]
pub(super) struct Df {
    device: Option<String>,
    mount: Option<String>,
    total: Option<u64>,
    /// Bytes that this login may still use.
    pub(super) free: Option<u64>,
}

/// A line of `df -kP`: device, size, used, available, capacity, mount point, of which the first and
/// the last may hold blanks.
pub(super) fn df(line: &str) -> Option<Df> {
    let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
    // The capacity is the only word with a percent sign behind three numbers.
    let at = words.iter().enumerate().position(|(index, word)| {
        let is_number = |word: &&str| word.parse::<i64>().is_ok();
        let is_capacity = word
            .strip_suffix('%')
            .is_some_and(|number| number.parse::<u64>().is_ok())
            || *word == "-";
        is_capacity
            && index >= 4
            && words
                .get(index - 3..index)
                .is_some_and(|three| three.iter().all(is_number))
    })?;
    // Below nothing is nothing: a full file system with a reserve may show a negative number.
    let kibibytes = |index: usize| {
        let number: i64 = words.get(index)?.parse().ok()?;
        u64::try_from(number.max(0)).ok()?.checked_mul(1024)
    };
    Some(Df {
        device: words.get(..at - 3).map(|words| words.join(" ")),
        mount: words
            .get(at + 1..)
            .map(|words| words.join(" "))
            .filter(|mount| !mount.is_empty()),
        total: kibibytes(at - 3),
        free: kibibytes(at - 1),
    })
}

/// Kind and options of what is mounted there; what was mounted last is on top.
fn mounted(text: &str, mount: &str) -> Option<(String, String)> {
    text.lines().rev().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (at, kind, options) = (words.next()?, words.next()?, words.next()?);
        (plain(at) == mount).then(|| (kind.to_owned(), options.to_owned()))
    })
}

/// A mount point without the kernel's escapes for blanks: `\040` and the like.
fn plain(text: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_owned(), |text, (escape, c)| text.replace(escape, c))
}
