//! Frames over a secure stream: whole frames in, whole frames out, every length checked first.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use windlass_wire::frame::{
    FrameType, HEADER_BYTES, Header, ROW_BYTES, RowEntry, WireDtype, decode_rows, encode_rows,
};

use super::NetError;
use super::secure::{SecureReader, SecureWriter};

/// One frame, decoded.
#[derive(Debug)]
pub struct Frame {
    /// Its header.
    pub header: Header,
    /// Its row table.
    pub rows: Vec<RowEntry>,
    /// Hidden states, rows x hidden; empty for other types.
    pub hidden: Vec<f32>,
    /// Payload of other types.
    pub message: Vec<u8>,
}

/// Reads frames of a model whose hidden states have a known width.
pub struct FrameReader<R = SecureReader> {
    stream: R,
    hidden: usize,
    /// Buffers given back by the executor, so a steady state allocates nothing.
    spare: Vec<f32>,
}

impl<R: Read> FrameReader<R> {
    /// `hidden`: floats in a row; 0 refuses hidden states.
    pub fn new(stream: R, hidden: usize) -> Self {
        Self {
            stream,
            hidden,
            spare: Vec::new(),
        }
    }

    /// The stream below.
    pub fn stream(&self) -> &R {
        &self.stream
    }

    /// Gives a buffer back for the next frame.
    pub fn recycle(&mut self, buffer: Vec<f32>) {
        if buffer.capacity() > self.spare.capacity() {
            self.spare = buffer;
        }
    }

    /// The next frame. [`NetError::Closed`] between frames, [`NetError::Truncated`] inside one.
    pub fn read(&mut self) -> Result<Frame, NetError> {
        let mut head = [0u8; HEADER_BYTES];
        self.fill_start(&mut head)?;
        let header = Header::decode(&head)?;
        if header.kind == FrameType::Hidden {
            header.check_hidden(self.hidden)?;
        }
        let mut table = vec![0u8; header.rows as usize * ROW_BYTES];
        self.fill(&mut table)?;
        let rows = decode_rows(&table)?;
        let mut hidden = Vec::new();
        let mut message = Vec::new();
        if header.kind == FrameType::Hidden {
            hidden = std::mem::take(&mut self.spare);
            hidden.clear();
            hidden.resize(rows.len() * self.hidden, 0.0);
            self.fill(bytemuck::cast_slice_mut(&mut hidden))?;
        } else if header.payload > 0 {
            // Grows as bytes come: a claim alone takes no memory.
            let read = (&mut self.stream)
                .take(header.payload)
                .read_to_end(&mut message)
                .map_err(lost)?;
            if (read as u64) < header.payload {
                return Err(NetError::Truncated);
            }
        }
        Ok(Frame {
            header,
            rows,
            hidden,
            message,
        })
    }

    fn fill_start(&mut self, head: &mut [u8]) -> Result<(), NetError> {
        let mut got = 0;
        while let Some(rest) = head.get_mut(got..).filter(|r| !r.is_empty()) {
            match self.stream.read(rest).map_err(lost)? {
                0 if got == 0 => return Err(NetError::Closed),
                0 => return Err(NetError::Truncated),
                n => got += n,
            }
        }
        Ok(())
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<(), NetError> {
        self.stream.read_exact(out).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => NetError::Truncated,
            _ => lost(e),
        })
    }
}

fn lost(error: std::io::Error) -> NetError {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, UnexpectedEof};
    match error.kind() {
        ConnectionReset | ConnectionAborted | UnexpectedEof => NetError::Closed,
        _ => NetError::Io {
            operation: "read from the peer".into(),
            source: error,
        },
    }
}

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

#[cfg(target_endian = "big")]
compile_error!("hidden states go over the wire as they lie in memory: little-endian");
