//! Frames over a secure stream, and counts of what was sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use windlass_wire::frame::{FrameType, Header, RowEntry, WireDtype, encode_rows};
pub use windlass_wire::reader::Frame;

use super::NetError;
use super::secure::{SecureReader, SecureWriter};

/// Reads frames.
pub type FrameReader = windlass_wire::reader::FrameReader<SecureReader>;

/// What went through a writer, before encryption.
#[derive(Debug, Default)]
pub struct Sent {
    /// Frames of any type.
    pub frames: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Frames with hidden states or tokens.
    pub data_frames: AtomicU64,
    /// Their bytes.
    pub data_bytes: AtomicU64,
}

/// Payload bytes up to which copying is cheaper than a second record.
const ONE_RECORD: usize = 12 << 10;

/// Writes frames.
pub struct FrameWriter {
    stream: SecureWriter,
    head: Vec<u8>,
    sent: Arc<Sent>,
}

impl FrameWriter {
    /// Over a writing half.
    pub fn new(stream: SecureWriter) -> Self {
        Self {
            stream,
            head: Vec::new(),
            sent: Arc::default(),
        }
    }

    /// Goes on counting where another link stopped.
    pub fn count_on(&mut self, sent: Arc<Sent>) {
        self.sent = sent;
    }

    /// Counters, readable from other threads.
    pub fn sent(&self) -> Arc<Sent> {
        self.sent.clone()
    }

    /// A handle that ends the connection from another thread.
    pub fn closer(&self) -> Result<super::secure::Closer, NetError> {
        self.stream
            .closer()
            .map_err(NetError::io("duplicate a socket"))
    }

    /// Ends the connection.
    pub fn close(&mut self) {
        self.stream.close();
    }

    /// Sends hidden states: `hidden` is rows x width.
    pub fn hidden(
        &mut self,
        mut header: Header,
        rows: &[RowEntry],
        hidden: &[f32],
    ) -> Result<(), NetError> {
        header.kind = FrameType::Hidden;
        header.dtype = WireDtype::F32;
        self.write(header, rows, bytemuck::cast_slice(hidden))
    }

    /// Sends any frame; rows and payload lengths are filled in.
    pub fn write(
        &mut self,
        mut header: Header,
        rows: &[RowEntry],
        payload: &[u8],
    ) -> Result<(), NetError> {
        header.rows = rows.len() as u32;
        header.payload = payload.len() as u64;
        self.head.clear();
        self.head.extend_from_slice(&header.encode());
        encode_rows(rows, &mut self.head);
        // A small frame goes out as one TLS record: 22 bytes of framing, not 44.
        let small = payload.len() <= ONE_RECORD;
        if small {
            self.head.extend_from_slice(payload);
        }
        let rest = if small { &[] } else { payload };
        self.stream
            .write_all_parts(&[&self.head, rest])
            .map_err(|e| match e.kind() {
                std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset => {
                    NetError::Closed
                }
                _ => NetError::Io {
                    operation: "write to the peer".into(),
                    source: e,
                },
            })?;
        let bytes = header.frame_bytes();
        self.sent.frames.fetch_add(1, Relaxed);
        self.sent.bytes.fetch_add(bytes, Relaxed);
        if matches!(header.kind, FrameType::Hidden | FrameType::Tokens) {
            self.sent.data_frames.fetch_add(1, Relaxed);
            self.sent.data_bytes.fetch_add(bytes, Relaxed);
        }
        Ok(())
    }
}
