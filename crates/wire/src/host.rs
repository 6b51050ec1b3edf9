//! What a controller and the worker's program on a host say to each other over a channel's stdin
//! and stdout: one JSON object a line, and raw bytes only where a line announces them.
//!
//! **Receiving pieces** (`receive --folder DIR [--verify]`):
//!
//! ```text
//! controller                              host
//! Want{files}                         →
//!                                     ←   Have{file, offset, complete, sha256}   for each, in order
//!                                     ←   Room{free} | Refused{…} and the end
//! File{file, offset, bytes}           →
//! bytes - offset raw bytes            →
//! Digest{sha256}                      →
//!                                     ←   Stored{…} | Bad{…}
//! …
//! Make{file, bytes, slice, source}    →   (in place of File, bytes and Digest)
//!                                     ←   Stored{…} | Bad{…}
//! End                                 →
//!                                     ←   Done{received}
//! ```
//!
//! - `Make` has the host make a piece from a model file of its own: nothing of it crosses the
//!   channel.
//! - What arrives is kept in `FILE.part`. When the channel breaks, the part stays, and `Have` gives
//!   its length the next time: `File` then says that offset, or 0 to begin anew. The digest is
//!   always that of the whole file.
//! - `offset` = the file's size without `complete` means: a file of that size is there, and nobody
//!   knows what its digest should be. `File` with that offset, no raw bytes, and the `Digest` has it
//!   checked in its place. A sender needs no special case for it.
//! - A file that stood in no `Want` is taken when it is at most [`MAX_EXTRA`] bytes, from offset 0:
//!   the manifest, which is known only when all pieces are. What a folder holds beside wanted files
//!   is left alone.
//! - The controller may send files without waiting for `Stored`. `Bad` because of a digest removes
//!   the file, and the transfer goes on with the next `File`. `Bad` because a disk is full or broken
//!   is the last line: the part stays, and the program ends without reading the rest.
//! - The folder is locked from `Want` to the end. Where another transfer holds it longer than a few
//!   seconds, `Refused` says so, with `needed` and `free` 0.
//!
//! **Probing a path** (`probe listen`, `probe connect`): on the connection the connecting side sends
//! [`PROBE_HELLO`]; the listening side answers its nonce and a line end, then sends every byte back
//! as it comes.
//!
//! **Others**: `lock --folder DIR --holder TEXT` says one [`Locked`] and, held, ends with its stdin.
//! `relay SOCKET` carries stdin to a Unix socket and its answer to stdout, each end passed on by
//! itself. `clock` answers each line on stdin with the nanoseconds since 1970, in decimal.
//! `describe` prints one [`Description`].
//!
//! Nothing that comes over the channel is trusted for length: a line is at most [`MAX_LINE`] bytes,
//! a list at most [`MAX_FILES`] long.

use std::io::{self, BufRead, Read};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::source::SourceFile;

/// Longest line, in bytes, its end included.
pub const MAX_LINE: usize = 1 << 20;
/// Most files in one transfer.
pub const MAX_FILES: usize = 4096;
/// Largest file taken that stood in no list, in bytes.
pub const MAX_EXTRA: u64 = 16 << 20;
/// Largest file wanted, in bytes.
pub const MAX_FILE: u64 = 1 << 44;
/// Bytes that stay free on a disk that pieces are sent to.
pub const DISK_RESERVE: u64 = 64 << 20;

/// Whether a text is a SHA-256 digest as this project writes them: 64 lower hexadecimal digits.
pub fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
/// What `probe connect` sends first.
pub const PROBE_HELLO: &[u8] = b"windlass probe\n";

/// A file wanted in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedFile {
    /// Name, without folder: ASCII letters, digits, `-`, `_`, `.`; not beginning with a dot.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// Its digest, when the controller knows it beforehand; 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// From the controller to `receive`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum ToReceiver {
    /// What the folder is to hold. First line.
    Want {
        /// The files.
        files: Vec<WantedFile>,
    },
    /// A file follows, from `offset` on: `bytes - offset` raw bytes come after this line.
    File {
        /// Name.
        file: String,
        /// Where it goes on.
        offset: u64,
        /// Size of the whole file.
        bytes: u64,
    },
    /// The digest of the whole file whose bytes just came.
    Digest {
        /// 64 hexadecimal digits.
        sha256: String,
    },
    /// A file is to be made there, from the beginning.
    Make {
        /// Name.
        file: String,
        /// Its size.
        bytes: u64,
        /// The slice of the model that it holds, in the form of piece names.
        slice: String,
        /// The model file.
        source: SourceFile,
    },
    /// Nothing more follows.
    End,
}

/// From `receive` to the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum FromReceiver {
    /// What there is of a wanted file.
    Have {
        /// Name.
        file: String,
        /// Bytes of a part that broke off; sending goes on there.
        offset: u64,
        /// Whether the file is there, whole and unchanged since its digest was checked (read just
        /// now where its stamp differs, or with `--verify`).
        complete: bool,
        /// Its digest, when complete.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sha256: Option<String>,
    },
    /// There is room for what is missing.
    Room {
        /// Bytes free on the folder's file system.
        free: u64,
    },
    /// Nothing is taken; the program ends.
    Refused {
        /// One sentence.
        reason: String,
        /// Bytes that are missing there; [`DISK_RESERVE`] more would have to be free.
        needed: u64,
        /// Bytes that are.
        free: u64,
        /// The folder.
        path: String,
    },
    /// A file is complete, its digest checked, on disk.
    Stored {
        /// Name.
        file: String,
        /// Raw bytes that came for it over this channel.
        received: u64,
        /// Its digest.
        sha256: String,
    },
    /// A file was not taken.
    Bad {
        /// Name.
        file: String,
        /// One sentence: disk full with path, needed and free; another digest; …
        reason: String,
    },
    /// The end: all raw bytes that came over this channel.
    Done {
        /// Bytes.
        received: u64,
    },
}

/// What `probe listen` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Listening {
    /// It listens, until its stdin ends.
    Bound {
        /// `ip:port`.
        address: String,
    },
    /// The port is taken.
    Busy {
        /// Process that holds it, `name (pid 12)`, when that can be told.
        by: Option<String>,
    },
    /// The host has no such address.
    NoAddress {
        /// The addresses it has.
        has: Vec<String>,
    },
    /// Something else.
    Failed {
        /// One sentence.
        reason: String,
    },
}

/// What `probe connect` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Connected {
    /// The listener with the right nonce answered.
    Reached {
        /// Round trip of one small message on the open connection, microseconds.
        micros: u64,
        /// Own address of the connection, without port.
        local: String,
    },
    /// Connection refused.
    Refused {
        /// Own address that the route to there begins with, when known.
        local: Option<String>,
    },
    /// No answer within the time given.
    Silent {
        /// Own address that the route to there begins with, when known.
        local: Option<String>,
    },
    /// No route there.
    NoRoute {
        /// The system's words.
        reason: String,
    },
    /// Something else answered.
    Stranger,
}

/// What `lock` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Locked {
    /// The lock is held until stdin ends.
    Held,
    /// Someone else holds it.
    Taken {
        /// The holder's own words.
        by: String,
    },
    /// It cannot be taken.
    Failed {
        /// One sentence.
        reason: String,
    },
}

/// What `describe` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Version of the worker.
    pub version: String,
    /// Architecture it was built for.
    pub arch: String,
    /// Operating system it was built for.
    pub system: String,
    /// Instruction tier it would compute with here.
    pub tier: String,
    /// Cores it may use.
    pub cores: u32,
    /// C library it was built for: `gnu`, `musl`, or empty.
    #[serde(default)]
    pub libc: String,
    /// Digest of the program's own file, 64 hexadecimal digits; empty when it cannot be read.
    #[serde(default)]
    pub sha256: String,
    /// Its process id, while it ran.
    #[serde(default)]
    pub pid: u32,
}

/// Reads one line as JSON; `None` at the end.
///
/// # Errors
/// When the stream breaks, or the line is too long or not what it must be. The text of the error
/// never holds the line: it may hold a key.
pub fn read_line<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let most = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
    from.by_ref().take(most).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        let kind = io::ErrorKind::InvalidData;
        return Err(if line.len() >= MAX_LINE {
            io::Error::new(kind, format!("a line is longer than {MAX_LINE} bytes"))
        } else {
            io::ErrorKind::UnexpectedEof.into()
        });
    }
    serde_json::from_slice(&line).map(Some).map_err(|error| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "a line is no known message: {:?} at column {}",
                error.classify(),
                error.column()
            ),
        )
    })
}

/// A message as a line.
pub fn line<T: Serialize>(message: &T) -> Vec<u8> {
    // These types hold nothing that JSON cannot.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Whether a name may be a file in a folder of pieces: none that leaves it, hides, or is a name of
/// the folder's own (`lock`, `checked.json`, what is not yet whole).
pub fn is_file_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let own = matches!(name, "lock" | "checked.json");
    let unfinished = name.ends_with(".part") || name.ends_with(".partial");
    !name.is_empty()
        && name.len() <= 200
        && !name.starts_with('.')
        && name.bytes().all(plain)
        && !own
        && !unfinished
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_back_and_the_end_is_none() {
        let sent = ToReceiver::File {
            file: "a".into(),
            offset: 1,
            bytes: 2,
        };
        let bytes = line(&sent);
        let mut from = bytes.as_slice();
        assert_eq!(read_line::<ToReceiver>(&mut from).unwrap(), Some(sent));
        assert_eq!(read_line::<ToReceiver>(&mut from).unwrap(), None);
    }

    #[test]
    fn endless_torn_and_foreign_lines_are_errors_that_do_not_repeat_them() {
        let endless = vec![b'a'; MAX_LINE + 5];
        for bytes in [
            &endless[..],
            b"{\"do\":\"end\"}",
            b"secret\n",
            b"{\"do\":\"secret\"}\n",
        ] {
            let error = read_line::<ToReceiver>(&mut &bytes[..]).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn names_that_leave_the_folder_or_hide_are_no_file_names() {
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            ".x",
            "a b",
            "a\0",
            "ä",
            "lock",
            "checked.json",
            "a.part",
            "a.partial",
            &"x".repeat(201),
        ] {
            assert!(!is_file_name(bad), "{bad:?}");
        }
        assert!(is_file_name("0123456789abcdef-layer-3.gguf"));
    }
}
