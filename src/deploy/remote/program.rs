//! Chooses the worker's program for a host and says why none fits. Reads only the first bytes of a
//! program file; must not connect.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;
use windlass_gguf::hex;

/// Largest program read, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// A worker's program on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its digest, 64 hexadecimal digits.
    pub sha256: String,
    /// What it runs on.
    pub needs: Needs,
}

/// What a program needs of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Operating system, `linux` or `macos`.
    pub system: &'static str,
    /// Architecture as `uname -m` names it on Linux.
    pub arch: &'static str,
    /// C library.
    pub libc: Libc,
}

/// The C library of a program or host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    /// glibc: on a program the oldest version it runs with, on a host its version.
    Gnu(u32, u32),
    /// musl.
    Musl,
    /// A program that needs none; a host that has another.
    Other,
}

impl std::fmt::Display for Libc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gnu(major, minor) => write!(f, "glibc {major}.{minor}"),
            Self::Musl => f.write_str("musl"),
            Self::Other => f.write_str("no glibc or musl"),
        }
    }
}

/// Why a program is none.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// Cannot be read.
    #[error("the worker's program {path} cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not a program windlass knows.
    #[error("{path} is no worker's program: {reason}")]
    Strange {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl Program {
    /// Reads a program file.
    ///
    /// # Errors
    /// When it cannot be read or is no program.
    pub fn read(path: &Path) -> Result<Self, ProgramError> {
        let failed = |source| ProgramError::Read {
            path: path.to_owned(),
            source,
        };
        let mut bytes = Vec::new();
        File::open(path)
            .map_err(failed)?
            .take(MOST_BYTES)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        let needs = needs(&bytes).map_err(|reason| ProgramError::Strange {
            path: path.to_owned(),
            reason,
        })?;
        let digest = Sha256::digest(&bytes);
        Ok(Self {
            path: path.to_owned(),
            bytes: bytes.len() as u64,
            sha256: hex(&digest),
            needs,
        })
    }
}

/// What the bytes of a program need: ELF (System V ABI, the machine's number; versions of glibc's
/// symbols as they stand in its string table), or Mach-O of arm64.
fn needs(bytes: &[u8]) -> Result<Needs, String> {
    if bytes.starts_with(&[0xcf, 0xfa, 0xed, 0xfe]) {
        return Ok(Needs {
            system: "macos",
            arch: "arm64",
            libc: Libc::Other,
        });
    }
    if !bytes.starts_with(b"\x7fELF") {
        return Err("it is neither an ELF nor a Mach-O file".to_owned());
    }
    let (Some(&[class, order]), Some(&[low, high])) = (
        bytes.get(4..6).and_then(|b| b.first_chunk()),
        bytes.get(18..20).and_then(|b| b.first_chunk()),
    ) else {
        return Err("it ends within its header".to_owned());
    };
    if class != 2 || order != 1 {
        return Err("it is not a 64-bit little-endian program".to_owned());
    }
    let arch = match u16::from_le_bytes([low, high]) {
        62 => "x86_64",
        183 => "aarch64",
        243 => "riscv64",
        other => return Err(format!("it is for a machine with the ELF number {other}")),
    };
    let has = |needle: &[u8]| find(bytes, needle).is_some();
    let libc = match newest_glibc(bytes) {
        Some((major, minor)) => Libc::Gnu(major, minor),
        None if has(b"/lib/ld-musl-") => Libc::Musl,
        None => Libc::Other,
    };
    Ok(Needs {
        system: "linux",
        arch,
        libc,
    })
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes
        .windows(needle.len())
        .position(|window| window == needle)
}

/// The newest `GLIBC_x.y` among the zero-terminated strings.
fn newest_glibc(bytes: &[u8]) -> Option<(u32, u32)> {
    const PREFIX: &[u8] = b"\0GLIBC_";
    let mut newest = None;
    let mut rest = bytes;
    while let Some(at) = find_fast(rest, PREFIX) {
        rest = rest.get(at + PREFIX.len()..).unwrap_or(&[]);
        let end = rest
            .iter()
            .take(16)
            .position(|byte| *byte == 0)
            .unwrap_or(0);
        let text = rest
            .get(..end)
            .and_then(|text| std::str::from_utf8(text).ok());
        let version = text.and_then(|text| {
            let mut parts = text.split('.').map(str::parse::<u32>);
            Some((parts.next()?.ok()?, parts.next()?.ok()?))
        });
        newest = newest.max(version);
    }
    newest
}

/// Like [`find`], skipping from one candidate's first letter to the next.
fn find_fast(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    let second = *needle.get(1)?;
    let mut from = 1;
    loop {
        let at = from + bytes.get(from..)?.iter().position(|byte| *byte == second)?;
        if bytes
            .get(at - 1..)
            .is_some_and(|rest| rest.starts_with(needle))
        {
            return Some(at - 1);
        }
        from = at + 1;
    }
}

/// Whether a program runs on a host of this system, architecture and C library; `None` where the
/// host's is unknown.
pub fn fits(needs: &Needs, system: &str, arch: &str, libc: Option<Libc>) -> bool {
    let same_arch = needs.arch == arch
        || matches!(
            (needs.arch, arch),
            ("aarch64", "arm64") | ("arm64", "aarch64")
        );
    needs.system == system
        && same_arch
        && match (needs.libc, libc) {
            (Libc::Other, _) => true,
            (Libc::Gnu(a, b), Some(Libc::Gnu(c, d))) => (c, d) >= (a, b),
            (Libc::Musl, Some(Libc::Musl)) => true,
            // Nothing is known against it; the program itself is asked before anything else is sent.
            (Libc::Gnu(..), None) => true,
            _ => false,
        }
}

/// Picks the program for a host.
///
/// # Errors
/// A sentence that names what the host is, what there is, and how to make one.
pub fn pick<'a>(
    programs: &'a [Program],
    system: &str,
    arch: &str,
    libc: Option<Libc>,
) -> Result<&'a Program, String> {
    programs
        .iter()
        .find(|program| fits(&program.needs, system, arch, libc))
        .ok_or_else(|| {
            let host = match libc {
                Some(libc) => format!("{system} {arch} with {libc}"),
                None => format!("{system} {arch}"),
            };
            let have: Vec<String> = programs
                .iter()
                .map(|p| format!("{} {} ({})", p.needs.system, p.needs.arch, p.needs.libc))
                .collect();
            format!(
                "no worker's program fits {host}; there is: {}. Build one there with `cargo build --release -p windlass-worker` and name it with --worker FILE",
                if have.is_empty() { "none".to_owned() } else { have.join(", ") }
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(machine: u16, strings: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0".to_vec();
        bytes.extend(machine.to_le_bytes());
        bytes.extend([0u8; 44]);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn machine_and_newest_glibc_are_read_from_a_program() {
        let needs_of = |m, s: &[u8]| needs(&elf(m, s)).unwrap();
        let got = needs_of(62, b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0");
        assert_eq!(
            got,
            Needs {
                system: "linux",
                arch: "x86_64",
                libc: Libc::Gnu(2, 34)
            }
        );
        assert_eq!(
            needs_of(183, b"\0/lib/ld-musl-aarch64.so.1\0").libc,
            Libc::Musl
        );
        assert_eq!(needs_of(183, b"").libc, Libc::Other);
    }

    #[test]
    fn what_is_no_program_is_said_to_be_none() {
        for bytes in [&b"#!/bin/sh\n"[..], b"\x7fELF", b"", &elf(8, b"")] {
            assert!(needs(bytes).is_err(), "{bytes:?}");
        }
        assert!(needs(&elf(8, b"")).unwrap_err().contains("ELF number 8"));
    }

    #[test]
    fn this_test_program_needs_this_machine() {
        let own = Program::read(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(own.needs.arch, std::env::consts::ARCH);
        assert_eq!(own.sha256.len(), 64);
    }

    #[test]
    fn a_program_is_refused_for_another_machine_or_an_older_library() {
        let gnu = |minor| Some(Libc::Gnu(2, minor));
        let table = [
            ("linux", "x86_64", gnu(36), true),
            ("linux", "x86_64", gnu(34), true),
            ("linux", "x86_64", gnu(31), false),
            ("linux", "x86_64", Some(Libc::Musl), false),
            ("linux", "x86_64", None, true),
            ("linux", "aarch64", gnu(36), false),
            ("linux", "armv7l", gnu(36), false),
            ("macos", "arm64", None, false),
        ];
        let programs = [Program {
            path: "w".into(),
            bytes: 1,
            sha256: String::new(),
            needs: Needs {
                system: "linux",
                arch: "x86_64",
                libc: Libc::Gnu(2, 34),
            },
        }];
        for (system, arch, libc, wanted) in table {
            let picked = pick(&programs, system, arch, libc);
            assert_eq!(picked.is_ok(), wanted, "{system} {arch} {libc:?}");
            if let Err(text) = picked {
                assert!(
                    text.contains(arch) && text.contains("--worker FILE"),
                    "{text}"
                );
            }
        }
    }
}
