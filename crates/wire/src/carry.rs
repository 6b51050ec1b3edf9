//! A stream of bytes from one host straight to another: what the controller orders, what both ends tell
//! it, and the frames that the ends exchange under TLS. What the bytes are is not known here.
//!
//! A frame is a kind (one byte), a length (four, little-endian) and so many bytes. The giving end sends
//! `DATA`, `PACKED`, `END` and `GIVE_UP`; the taking end `HAVE`, `TAKEN` and `LAST`. After every
//! connection the taking end says with `TAKEN` how many bytes it has, and the giving end goes on there.

use serde::{Deserialize, Serialize};

use crate::assignment::Identity;

/// Bytes of the stream as they are.
pub const DATA: u8 = b'D';
/// Bytes of the stream, packed: their number as four bytes, then an LZ4 block.
pub const PACKED: u8 = b'Z';
/// All was given: a [`Sum`] as JSON.
pub const END: u8 = b'E';
/// The giving end cannot go on: one sentence.
pub const GIVE_UP: u8 = b'A';
/// Files that are there already: path, bytes, seconds and nanoseconds of the last change, each ended by
/// a NUL.
pub const HAVE: u8 = b'H';
/// Bytes of the stream that were taken so far, eight of them.
pub const TAKEN: u8 = b'T';
/// How it ended for the taking end: a [`Taking`] as JSON.
pub const LAST: u8 = b'F';

/// Most bytes of the stream in a frame.
pub const CHUNK: usize = 256 << 10;
/// Most bytes in a frame: packing may make a chunk a little longer.
pub const MAX_FRAME: usize = 2 * CHUNK;
/// Stage of the end that gives, in its certificate's name.
pub const GIVER: u32 = 0;
/// Stage of the end that takes.
pub const TAKER: u32 = 1;

/// What both ends of a stream are told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct End {
    /// Name that the keys are bound to.
    pub deployment: String,
    /// Its own key, and whom to trust.
    pub identity: Identity,
    /// The taking end's address.
    pub address: String,
    /// The taking end's port; 0 takes any.
    pub port: u16,
    /// How long a connection that broke may be missing, seconds.
    pub patience: u64,
    /// The program whose output is given, or whose input is taken, with its arguments.
    pub program: Vec<String>,
    /// Folder of the files that it is about.
    pub folder: String,
    /// Paths below the folder that are left out, with all below them.
    pub leave: Vec<String>,
    /// Whether files that the taking end has already are not sent again.
    pub again: bool,
}

/// What a stream came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Its bytes.
    pub bytes: u64,
    /// Their SHA-256, hexadecimal.
    pub sha256: String,
}

/// What the giving end tells its controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Giving {
    /// It begins.
    Begins {
        /// This host's clock, nanoseconds since 1970.
        at: u64,
    },
    /// How far it is.
    Moved {
        /// Bytes of the stream that the other end has.
        bytes: u64,
        /// Bytes that went over the network for it.
        sent: u64,
    },
    /// The connection broke and is tried again.
    Again {
        /// Why.
        reason: String,
    },
    /// The other end has all of it.
    Done {
        /// What it was.
        sum: Sum,
        /// Bytes that went over the network for it.
        sent: u64,
        /// What the program complained of, yet not so that it failed.
        said: Vec<String>,
        /// Files that were not sent again.
        kept: u64,
    },
    /// It ended otherwise.
    Failed {
        /// One sentence.
        reason: String,
    },
}

/// What the taking end tells its controller, after [`crate::host::Listening`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Taking {
    /// All of it is taken, and its digest is that of the giving end.
    Done {
        /// What it was.
        sum: Sum,
    },
    /// It ended otherwise.
    Failed {
        /// One sentence.
        reason: String,
    },
}

/// What is to be read to the last byte and summed up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// The folder; only its own file system.
    pub folder: String,
    /// Paths below it that are left out, with all below them.
    pub leave: Vec<String>,
    /// What changed at this time or later is told as changed, nanoseconds since 1970.
    pub since: Option<u64>,
    /// Whether only names and bytes count: the file system has no owners, modes and attributes.
    pub plain: bool,
    /// Folders whose files are told one by one, and nothing else; none: all folders, each as one.
    #[serde(default)]
    pub each: Vec<String>,
}

/// What reading tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Reading {
    /// A folder with what lies in it, not with what lies deeper.
    Folder {
        /// Its path below the first one; that one is empty.
        path: String,
        /// Digest of the names in it with kinds, owners, modes, times, attributes and bytes.
        sha256: String,
        /// Whether something in it changed since the time given.
        changed: bool,
    },
    /// What lies in a folder, by itself.
    File {
        /// Its path below the first folder.
        path: String,
        /// Digest of its name, kind, owner, mode, time, attributes and bytes.
        sha256: String,
        /// Whether it changed since the time given.
        changed: bool,
    },
    /// How far it is.
    Moved {
        /// Bytes read.
        bytes: u64,
    },
    /// All was read.
    Done {
        /// Files of every kind, folders too.
        files: u64,
        /// Bytes read.
        bytes: u64,
    },
    /// It ended otherwise.
    Failed {
        /// One sentence.
        reason: String,
    },
}
