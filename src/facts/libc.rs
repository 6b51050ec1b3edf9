//! The C library that programs are loaded with.

use serde::{Deserialize, Serialize};

use super::script::{Sections, value};

const GLIBC: &str = "glibc";
const MUSL: &str = "musl";

/// The C library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Libc {
    /// `glibc` or `musl`.
    pub name: String,
    /// Its version, e.g. `2.39`.
    pub version: Option<String>,
}

impl Libc {
    /// Whether it is GNU's of this version or a later one; `None` when that cannot be told.
    pub fn at_least(&self, major: u32, minor: u32) -> Option<bool> {
        if self.name != GLIBC {
            return Some(false);
        }
        let mut numbers = self.version.as_ref()?.split('.').map(str::parse::<u32>);
        let own = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(own >= (major, minor))
    }
}

/// Reads the section `libc`; `None` when the host does not say which it has.
pub fn parse(sections: &Sections<'_>) -> Option<Libc> {
    let found = |name: &str, version| {
        let name = name.to_owned();
        Some(Libc { name, version })
    };
    let text = sections.get("libc");
    let first_number = |line: &str| {
        let word = line.split_whitespace().last()?;
        word.starts_with(|c: char| c.is_ascii_digit())
            .then(|| word.to_owned())
    };
    if let Some(version) = value(text, "glibc") {
        return found(GLIBC, first_number(version));
    }
    // musl's ldd says its name, and its version on the next line.
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("musl libc") {
            return found(MUSL, lines.next().and_then(first_number));
        }
        if line.starts_with("ldd (") {
            return found(GLIBC, first_number(line));
        }
    }
    // A loader alone tells which, not its version. Both may be there: then neither is sure.
    let loaders: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("loader "))
        .collect();
    let musl = loaders.iter().any(|line| line.contains("ld-musl-"));
    let glibc = loaders.iter().any(|line| line.contains("ld-linux"));
    match (musl, glibc) {
        (true, false) => found(MUSL, None),
        (false, true) => found(GLIBC, None),
        _ => None,
    }
}
