//! What a controller and `windlass-worker source` say to each other on a host that holds a model
//! file: pieces are made there and go to other hosts through the controller, which never holds the
//! model. One JSON object a line, and raw bytes only where a line announces them.
//!
//! ```text
//! controller                              host
//! Open{file}                          →
//!                                     ←   Opened | Failed{…} and the end
//! Piece{slice, offset}                →
//!                                     ←   Bytes{bytes}, then so many raw bytes of the piece's
//!                                         file, from the offset on
//!                                     ←   Made{bytes, sha256}
//! …
//! end of stdin                        →
//! ```
//!
//! - Raw bytes are sent on credit: at first [`CREDIT`] in all, and `More` gives more at any time. A
//!   controller that waits for a slow receiver gives none, so nothing piles up in a connection that
//!   also carries other channels.
//! - What goes wrong within raw bytes cannot be said on stdout. The program then ends before it has
//!   sent all, and says why on stderr.

use serde::{Deserialize, Serialize};

/// Raw bytes that may be under way without `More`.
pub const CREDIT: u64 = 2 << 20;

/// A model file on a host, as it was when the controller looked at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Its path there.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Time of change of its content, seconds since 1970.
    pub modified: i64,
    /// Time of change of its entry, seconds since 1970.
    pub changed: i64,
    /// Its number in the file system.
    pub inode: u64,
    /// Its digest, 64 hexadecimal digits.
    pub sha256: String,
}

/// From the controller to `source`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum ToSource {
    /// The file to make pieces from. First line.
    Open {
        /// The file.
        file: SourceFile,
    },
    /// Make a piece.
    Piece {
        /// Its slice, in the form of piece names.
        slice: String,
        /// Bytes of it that are not wanted.
        offset: u64,
    },
    /// More raw bytes may be sent.
    More {
        /// How many.
        bytes: u64,
    },
}

/// From `source` to the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum FromSource {
    /// The file is the one that was meant.
    Opened,
    /// So many raw bytes follow this line.
    Bytes {
        /// How many.
        bytes: u64,
    },
    /// The piece whose bytes just came.
    Made {
        /// Size of its file.
        bytes: u64,
        /// Digest of its whole file, 64 hexadecimal digits.
        sha256: String,
    },
    /// It cannot be done; the program ends.
    Failed {
        /// One sentence that names the path.
        reason: String,
    },
}
