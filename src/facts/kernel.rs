//! The kernel, from uname(1) and /proc/cmdline, and what programs are built for.

use serde::{Deserialize, Serialize};

use super::script::{Sections, some};

/// The kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kernel {
    /// Release, e.g. `6.14.0-1014-oem`.
    pub release: Option<String>,
    /// Which build of it.
    pub version: Option<String>,
    /// The machine it is built for, as it says: `x86_64`, `aarch64`, `armv7l`, `arm64`.
    pub machine: Option<String>,
    /// The host's own name.
    pub hostname: Option<String>,
    /// The command line it was started with.
    pub command_line: Option<String>,
}

/// Reads the sections `uname` and `command_line`.
pub fn parse(sections: &Sections<'_>) -> Kernel {
    let mut lines = sections.get("uname").lines().skip(1).map(some);
    let mut line = || lines.next().flatten();
    Kernel {
        release: line(),
        machine: line(),
        hostname: line(),
        version: line(),
        command_line: some(sections.get("command_line")),
    }
}

/// What programs are built for: what the host's own shell is, else the kernel.
pub fn architecture(sections: &Sections<'_>) -> Option<String> {
    let header: Vec<u8> = sections
        .get("shell")
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    elf(&header).or_else(|| {
        let machine = sections.get("uname").lines().nth(2)?.trim();
        Some(
            match machine {
                "amd64" => "x86_64",
                "arm64" => "aarch64",
                "i386" | "i486" | "i586" => "i686",
                other if other.starts_with("armv") => "arm",
                "" => return None,
                other => other,
            }
            .to_owned(),
        )
    })
}

/// The first 20 bytes of a program: class and machine, as in the System V ABI.
fn elf(header: &[u8]) -> Option<String> {
    if !header.starts_with(b"\x7fELF") {
        return None;
    }
    let wide = *header.get(4)? == 2;
    let pair = [*header.get(18)?, *header.get(19)?];
    let machine = match header.get(5)? {
        2 => u16::from_be_bytes(pair),
        _ => u16::from_le_bytes(pair),
    };
    let name = match (machine, wide) {
        (62, true) => "x86_64",
        (3, _) => "i686",
        (183, _) => "aarch64",
        (40, _) => "arm",
        (243, true) => "riscv64",
        (258, true) => "loongarch64",
        (21, true) => "powerpc64",
        (22, true) => "s390x",
        _ => return None,
    };
    Some(name.to_owned())
}
