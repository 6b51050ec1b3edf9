//! Frames of the data plane and of the control connections between stages.
//!
//! A frame is a 64-byte little-endian header, then `rows` entries of 16 bytes, then the payload.
//! Lengths are checked against caps before anything is allocated, and against each other: a
//! peer's word is taken for nothing. Must not know sockets or what a model is.

use thiserror::Error;

/// First four bytes of every frame, `WNDL` read as little-endian.
pub const MAGIC: u32 = u32::from_le_bytes(*b"WNDL");
/// Version of this format. Another major version is refused.
pub const VERSION: u16 = 1;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of one row-table entry.
pub const ROW_BYTES: usize = 16;
/// Most rows one frame may carry.
pub const MAX_ROWS: u32 = 8192;
/// Most payload bytes of a frame with hidden states.
pub const MAX_HIDDEN_BYTES: u64 = 512 << 20;
/// Most payload bytes of any other frame.
pub const MAX_MESSAGE_BYTES: u64 = 16 << 20;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameType {
    /// The first frame on a connection: who speaks. Payload: [`crate::payload::Hello`] as JSON.
    Hello = 1,
    /// The answer to a hello: the sender accepts. No payload.
    Welcome = 2,
    /// Hidden states of a micro-batch, from one stage to the next.
    Hidden = 3,
    /// Sampled tokens, from the last stage to the head.
    Tokens = 4,
    /// A sequence begins. Payload: [`crate::payload::Admit`]. Travels through all stages.
    Admit = 5,
    /// Sequences end and free their blocks. Rows name them. Travels through all stages.
    Free = 6,
    /// The receiver took `step` frames since the last credit. Against the data's direction.
    Credit = 7,
    /// Telemetry of a stage, to the head. Payload JSON.
    Telemetry = 8,
    /// The head starts a new epoch: forget all sequences.
    Reset = 9,
    /// A stage reports a failure, to the head. Payload: text.
    Fault = 10,
    /// The head ends the deployment.
    Shutdown = 11,
    /// A stage lost its link to the stage numbered `step`; to the head. Payload: text.
    LinkLost = 12,
    /// The head begins the round numbered `step`: connect to the next stage for it.
    Form = 13,
    /// A stage's links of the round numbered `step` stand; to the head.
    Formed = 14,
}

impl FrameType {
    fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::Hello,
            2 => Self::Welcome,
            3 => Self::Hidden,
            4 => Self::Tokens,
            5 => Self::Admit,
            6 => Self::Free,
            7 => Self::Credit,
            8 => Self::Telemetry,
            9 => Self::Reset,
            10 => Self::Fault,
            11 => Self::Shutdown,
            12 => Self::LinkLost,
            13 => Self::Form,
            14 => Self::Formed,
            _ => return None,
        })
    }

    /// The most payload bytes a frame of this type may carry.
    pub fn payload_cap(self) -> u64 {
        match self {
            Self::Hidden => MAX_HIDDEN_BYTES,
            Self::Tokens | Self::Admit => MAX_MESSAGE_BYTES,
            Self::Hello | Self::Telemetry | Self::Fault | Self::LinkLost => 1 << 20,
            Self::Welcome
            | Self::Free
            | Self::Credit
            | Self::Reset
            | Self::Shutdown
            | Self::Form
            | Self::Formed => 0,
        }
    }
}

/// Element type of hidden states on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WireDtype {
    /// The payload holds no hidden states.
    None = 0,
    /// 4-byte floats: bit-exact with one process.
    F32 = 1,
}

/// One row of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RowEntry {
    /// Sequence the row belongs to, unique within an epoch.
    pub seq: u32,
    /// Position of the row's token in its sequence, from 0.
    pub pos: u32,
    /// [`RowEntry::SAMPLE`] or 0.
    pub flags: u32,
}

impl RowEntry {
    /// The last stage samples a token from this row.
    pub const SAMPLE: u32 = 1;

    /// Whether the last stage samples from this row.
    pub fn samples(&self) -> bool {
        self.flags & Self::SAMPLE != 0
    }
}

/// The fixed part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: FrameType,
    /// Grows by one when the head re-plans; frames of an older epoch are dropped.
    pub epoch: u32,
    /// Which micro-batch slot the frame belongs to.
    pub lane: u16,
    /// Element type of the payload.
    pub dtype: WireDtype,
    /// Counts the head's micro-batches; in a credit, the number of frames taken.
    pub step: u64,
    /// Entries in the row table.
    pub rows: u32,
    /// Bytes after the row table.
    pub payload: u64,
}

/// Why bytes are not a frame of ours.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// Not our protocol at all.
    #[error("not a windlass frame (it starts with {0:#010x})")]
    Magic(u32),
    /// Our protocol, of another version.
    #[error(
        "frame of protocol version {0}; this worker speaks {VERSION}: put the same build on every host"
    )]
    Version(u16),
    /// A type this version does not know.
    #[error("unknown frame type {0}")]
    Type(u8),
    /// An element type this version does not know.
    #[error("unknown element type {0}")]
    Dtype(u8),
    /// More rows than allowed.
    #[error("frame claims {0} rows; at most {MAX_ROWS} are taken")]
    Rows(u32),
    /// More payload than the type may have.
    #[error("{kind:?} frame claims {claimed} payload bytes; at most {cap} are taken")]
    Payload {
        /// Type of the frame.
        kind: FrameType,
        /// Bytes the header claims.
        claimed: u64,
        /// Bytes the type may have.
        cap: u64,
    },
    /// The row table's length field disagrees with the row count, or reserved bytes are set.
    #[error("malformed header: {0}")]
    Malformed(&'static str),
    /// Fewer bytes than the structure needs.
    #[error("{what} needs {needed} bytes, got {got}")]
    Short {
        /// What was read.
        what: &'static str,
        /// Bytes needed.
        needed: usize,
        /// Bytes there.
        got: usize,
    },
    /// The payload does not fit the header.
    #[error(
        "hidden states of {rows} rows of {hidden} floats are {expected} bytes, the frame has {got}"
    )]
    HiddenSize {
        /// Rows in the frame.
        rows: u32,
        /// Floats a row has in this model.
        hidden: usize,
        /// Bytes expected.
        expected: u64,
        /// Bytes claimed.
        got: u64,
    },
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], FrameError> {
    bytes
        .get(at..at + N)
        .and_then(|s| s.try_into().ok())
        .ok_or(FrameError::Short {
            what: "header",
            needed: HEADER_BYTES,
            got: bytes.len(),
        })
}

impl Header {
    /// A header without rows or payload.
    pub fn new(kind: FrameType, epoch: u32) -> Self {
        Self {
            kind,
            epoch,
            lane: 0,
            dtype: WireDtype::None,
            step: 0,
            rows: 0,
            payload: 0,
        }
    }

    /// The header's bytes. Reserved bytes are zero.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0u8; HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(to) = out.get_mut(at..at + bytes.len()) {
                to.copy_from_slice(bytes);
            }
        };
        put(0, &MAGIC.to_le_bytes());
        put(4, &VERSION.to_le_bytes());
        put(6, &[self.kind as u8, 0]);
        put(8, &self.epoch.to_le_bytes());
        put(12, &self.lane.to_le_bytes());
        put(14, &[self.dtype as u8, 0]);
        put(16, &self.step.to_le_bytes());
        put(24, &self.rows.to_le_bytes());
        put(28, &(self.rows * ROW_BYTES as u32).to_le_bytes());
        put(32, &self.payload.to_le_bytes());
        out
    }

    /// Reads and checks a header; nothing is allocated.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let magic = u32::from_le_bytes(take(bytes, 0)?);
        if magic != MAGIC {
            return Err(FrameError::Magic(magic));
        }
        let version = u16::from_le_bytes(take(bytes, 4)?);
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        let [kind, flags] = take(bytes, 6)?;
        let kind = FrameType::from_u8(kind).ok_or(FrameError::Type(kind))?;
        let [dtype, reserved] = take(bytes, 14)?;
        let dtype = match dtype {
            0 => WireDtype::None,
            1 => WireDtype::F32,
            other => return Err(FrameError::Dtype(other)),
        };
        let tail: [u8; 24] = take(bytes, 40)?;
        if flags != 0 || reserved != 0 || tail != [0; 24] {
            return Err(FrameError::Malformed("reserved bytes are set"));
        }
        let rows = u32::from_le_bytes(take(bytes, 24)?);
        if rows > MAX_ROWS {
            return Err(FrameError::Rows(rows));
        }
        if u32::from_le_bytes(take(bytes, 28)?) != rows * ROW_BYTES as u32 {
            return Err(FrameError::Malformed(
                "row table length disagrees with the row count",
            ));
        }
        let payload = u64::from_le_bytes(take(bytes, 32)?);
        let cap = kind.payload_cap();
        if payload > cap {
            return Err(FrameError::Payload {
                kind,
                claimed: payload,
                cap,
            });
        }
        Ok(Self {
            kind,
            epoch: u32::from_le_bytes(take(bytes, 8)?),
            lane: u16::from_le_bytes(take(bytes, 12)?),
            dtype,
            step: u64::from_le_bytes(take(bytes, 16)?),
            rows,
            payload,
        })
    }

    /// Bytes of the whole frame.
    pub fn frame_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.rows) * ROW_BYTES as u64 + self.payload
    }

    /// Checks that a frame of hidden states holds `rows` rows of `hidden` floats; of 0, none does.
    pub fn check_hidden(&self, hidden: usize) -> Result<(), FrameError> {
        let expected = u64::from(self.rows).saturating_mul((hidden as u64).saturating_mul(4));
        if hidden == 0 || self.payload != expected || self.dtype != WireDtype::F32 {
            return Err(FrameError::HiddenSize {
                rows: self.rows,
                hidden,
                expected,
                got: self.payload,
            });
        }
        Ok(())
    }
}

/// Appends the row table to `out`.
pub fn encode_rows(rows: &[RowEntry], out: &mut Vec<u8>) {
    for row in rows {
        out.extend_from_slice(&row.seq.to_le_bytes());
        out.extend_from_slice(&row.pos.to_le_bytes());
        out.extend_from_slice(&row.flags.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }
}

/// Reads a row table of whole entries.
pub fn decode_rows(bytes: &[u8]) -> Result<Vec<RowEntry>, FrameError> {
    let (entries, rest) = bytes.as_chunks::<ROW_BYTES>();
    if !rest.is_empty() {
        return Err(FrameError::Malformed("row table is cut"));
    }
    entries
        .iter()
        .map(|e| {
            let [a, b, c, d] = [0, 4, 8, 12].map(|at| {
                e.get(at..at + 4)
                    .and_then(|s| s.try_into().ok())
                    .map_or(0, u32::from_le_bytes)
            });
            if c & !RowEntry::SAMPLE != 0 || d != 0 {
                return Err(FrameError::Malformed("unknown row flags"));
            }
            Ok(RowEntry {
                seq: a,
                pos: b,
                flags: c,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Header {
        Header {
            lane: 3,
            dtype: WireDtype::F32,
            step: 7,
            rows: 1,
            payload: 2304,
            ..Header::new(FrameType::Hidden, 9)
        }
    }

    #[test]
    fn header_bytes_are_the_documented_ones() {
        let bytes = sample().encode();
        assert_eq!(&bytes[..8], b"WNDL\x01\x00\x03\x00");
        assert_eq!(&bytes[8..16], &[9, 0, 0, 0, 3, 0, 1, 0]);
        assert_eq!(
            &bytes[24..40],
            &[1, 0, 0, 0, 16, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(sample().frame_bytes(), 64 + 16 + 2304);
    }

    #[test]
    fn a_frame_claiming_a_tebibyte_is_refused_before_allocation() {
        let mut bytes = sample().encode();
        bytes[32..40].copy_from_slice(&(1u64 << 40).to_le_bytes());
        let error = Header::decode(&bytes).unwrap_err();
        assert!(error.to_string().contains("1099511627776"), "{error}");
    }

    #[test]
    fn another_version_and_unknown_types_are_refused_by_number() {
        let mut bytes = sample().encode();
        bytes[4] = 2;
        assert_eq!(Header::decode(&bytes), Err(FrameError::Version(2)));
        bytes[4] = 1;
        bytes[6] = 200;
        assert_eq!(Header::decode(&bytes), Err(FrameError::Type(200)));
    }

    #[test]
    fn row_count_and_table_length_must_agree() {
        let mut bytes = sample().encode();
        bytes[24] = 2;
        assert!(matches!(
            Header::decode(&bytes),
            Err(FrameError::Malformed(_))
        ));
    }

    #[test]
    fn hidden_states_of_another_width_are_refused() {
        assert!(sample().check_hidden(576).is_ok());
        assert!(sample().check_hidden(575).is_err());
        assert!(sample().check_hidden(usize::MAX).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Header::decode(&bytes);
            let _ = decode_rows(&bytes);
        }

        #[test]
        fn headers_round_trip(epoch: u32, lane: u16, step: u64, rows in 0..=MAX_ROWS, payload in 0..=MAX_HIDDEN_BYTES) {
            let header = Header { kind: FrameType::Hidden, epoch, lane, dtype: WireDtype::F32, step, rows, payload };
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn rows_round_trip(rows in proptest::collection::vec((any::<u32>(), any::<u32>(), 0u32..2), 0..20)) {
            let rows: Vec<_> = rows.into_iter().map(|(seq, pos, flags)| RowEntry { seq, pos, flags }).collect();
            let mut bytes = Vec::new();
            encode_rows(&rows, &mut bytes);
            prop_assert_eq!(decode_rows(&bytes), Ok(rows));
        }
    }
}
