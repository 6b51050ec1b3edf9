//! Takes frames off a stream of bytes: whole frames or an error, every length checked first.
//!
//! Memory grows as bytes come, not with what a header claims. Must not know what the stream is:
//! the worker gives it a TLS session, tests and the fuzzer give it bytes in odd portions.

use std::io::{self, ErrorKind, Read};

use thiserror::Error;

use crate::frame::{FrameError, FrameType, HEADER_BYTES, Header, ROW_BYTES, RowEntry, decode_rows};

/// Bytes of hidden states that are made room for before any has come.
pub const FIRST_BYTES: usize = 1 << 20;

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

/// Why no frame came. The stream is of no use after any of these.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The peer closed between frames.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer closed inside a frame.
    #[error("the peer closed the connection inside a frame")]
    Truncated,
    /// The bytes are no frame of ours.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The stream failed in another way.
    #[error("read from the peer: {0}")]
    Io(io::Error),
}

/// Reads frames of a model whose hidden states have a known width.
pub struct FrameReader<R> {
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

    /// The next frame. [`ReadError::Closed`] between frames, [`ReadError::Truncated`] inside one.
    pub fn read(&mut self) -> Result<Frame, ReadError> {
        let mut head = [0u8; HEADER_BYTES];
        self.fill_head(&mut head)?;
        let header = Header::decode(&head)?;
        if header.kind == FrameType::Hidden {
            header.check_hidden(self.hidden)?;
        }
        let mut table = vec![0u8; header.rows as usize * ROW_BYTES];
        self.stream.read_exact(&mut table).map_err(cut)?;
        let rows = decode_rows(&table)?;
        let mut hidden = Vec::new();
        let mut message = Vec::new();
        if header.kind == FrameType::Hidden {
            hidden = self.read_hidden(rows.len() * self.hidden)?;
        } else if header.payload > 0 {
            let read = (&mut self.stream)
                .take(header.payload)
                .read_to_end(&mut message)
                .map_err(cut)?;
            if (read as u64) < header.payload {
                return Err(ReadError::Truncated);
            }
        }
        Ok(Frame {
            header,
            rows,
            hidden,
            message,
        })
    }

    /// Reads `floats` floats, making room for no more than came so far, or for a first portion.
    fn read_hidden(&mut self, floats: usize) -> Result<Vec<f32>, ReadError> {
        let mut hidden = std::mem::take(&mut self.spare);
        hidden.clear();
        while hidden.len() < floats {
            let from = hidden.len();
            let to = floats.min((from * 2).max(FIRST_BYTES / size_of::<f32>()));
            hidden.reserve_exact(to - from);
            hidden.resize(to, 0.0);
            let room = hidden.get_mut(from..).unwrap_or_default();
            self.stream
                .read_exact(bytemuck::cast_slice_mut(room))
                .map_err(cut)?;
        }
        Ok(hidden)
    }

    /// Fills the header, telling an end before it from an end inside it.
    fn fill_head(&mut self, head: &mut [u8]) -> Result<(), ReadError> {
        let mut got = 0;
        while let Some(rest) = head.get_mut(got..).filter(|r| !r.is_empty()) {
            match self.stream.read(rest) {
                Ok(0) if got == 0 => return Err(ReadError::Closed),
                Ok(0) => return Err(ReadError::Truncated),
                Ok(n) => got += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if got == 0 && ended(&error) => return Err(ReadError::Closed),
                Err(error) => return Err(cut(error)),
            }
        }
        Ok(())
    }
}

/// Whether an error is a peer that went away, with or without goodbye.
fn ended(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::UnexpectedEof
    )
}

/// What an error inside a frame is.
fn cut(error: io::Error) -> ReadError {
    if ended(&error) {
        ReadError::Truncated
    } else {
        ReadError::Io(error)
    }
}

#[cfg(target_endian = "big")]
compile_error!("hidden states go over the wire as they lie in memory: little-endian");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{MAX_HIDDEN_BYTES, MAX_MESSAGE_BYTES, WireDtype, encode_rows};

    /// Bytes in portions of at most `portion`; then an end, clean or as `last` says.
    struct Portions<'a> {
        bytes: &'a [u8],
        portion: usize,
        last: Option<ErrorKind>,
        /// Every other call is interrupted by a signal.
        interrupted: Option<bool>,
        /// The largest room offered for one read.
        asked: usize,
    }

    impl<'a> Portions<'a> {
        fn new(bytes: &'a [u8], portion: usize) -> Self {
            Self {
                bytes,
                portion,
                last: None,
                interrupted: None,
                asked: 0,
            }
        }
    }

    impl Read for Portions<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.asked = self.asked.max(out.len());
            if let Some(now) = &mut self.interrupted {
                *now = !*now;
                if *now {
                    return Err(ErrorKind::Interrupted.into());
                }
            }
            let room = out.len().min(self.portion);
            match (self.bytes.read(&mut out[..room])?, self.last) {
                (0, Some(kind)) if room > 0 => Err(kind.into()),
                (n, _) => Ok(n),
            }
        }
    }

    const WIDTH: usize = 3;

    fn hidden_frame(rows: u32) -> (Vec<u8>, Vec<RowEntry>, Vec<f32>) {
        let table: Vec<_> = (0..rows)
            .map(|pos| RowEntry {
                seq: 7,
                pos,
                flags: pos & 1,
            })
            .collect();
        let states: Vec<f32> = (0..rows as usize * WIDTH).map(|i| i as f32 / 8.0).collect();
        let header = Header {
            dtype: WireDtype::F32,
            rows,
            payload: states.len() as u64 * 4,
            ..Header::new(FrameType::Hidden, 2)
        };
        let mut bytes = header.encode().to_vec();
        encode_rows(&table, &mut bytes);
        states
            .iter()
            .for_each(|s| bytes.extend_from_slice(&s.to_le_bytes()));
        (bytes, table, states)
    }

    fn fault_frame(text: &[u8]) -> Vec<u8> {
        let header = Header {
            payload: text.len() as u64,
            ..Header::new(FrameType::Fault, 2)
        };
        [header.encode().as_slice(), text].concat()
    }

    #[test]
    fn frames_are_the_same_in_portions_of_any_size() {
        let (first, rows, states) = hidden_frame(5);
        let stream = [first, fault_frame(b"out of memory")].concat();
        for portion in (1..80).chain([stream.len()]) {
            for interrupted in [None, Some(false)] {
                let mut reader = FrameReader::new(
                    Portions {
                        interrupted,
                        ..Portions::new(&stream, portion)
                    },
                    WIDTH,
                );
                let frame = reader.read().unwrap();
                assert_eq!((&frame.rows, &frame.hidden), (&rows, &states));
                assert!(frame.message.is_empty());
                reader.recycle(frame.hidden);
                let frame = reader.read().unwrap();
                assert_eq!(frame.message, b"out of memory");
                assert!(frame.hidden.is_empty());
                assert!(matches!(reader.read(), Err(ReadError::Closed)));
            }
        }
    }

    #[test]
    fn an_end_between_frames_is_told_from_one_inside_however_the_peer_ends() {
        let ends = [
            None,
            Some(ErrorKind::UnexpectedEof),
            Some(ErrorKind::ConnectionReset),
            Some(ErrorKind::ConnectionAborted),
        ];
        for whole in [hidden_frame(2).0, fault_frame(b"out of memory")] {
            for length in 0..whole.len() {
                for last in ends {
                    let stream = Portions {
                        last,
                        ..Portions::new(&whole[..length], 11)
                    };
                    let error = FrameReader::new(stream, WIDTH).read().unwrap_err();
                    match error {
                        ReadError::Closed => assert_eq!(length, 0),
                        ReadError::Truncated => assert_ne!(length, 0),
                        other => panic!("{length} {last:?}: {other:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn another_failure_of_the_stream_keeps_its_words() {
        let whole = fault_frame(b"out of memory");
        for length in [0, 5, HEADER_BYTES, HEADER_BYTES + 3] {
            let stream = Portions {
                last: Some(ErrorKind::InvalidData),
                ..Portions::new(&whole[..length], 64)
            };
            let error = FrameReader::new(stream, WIDTH).read().unwrap_err();
            assert_eq!(error.to_string(), "read from the peer: invalid data");
        }
    }

    #[test]
    fn a_claim_alone_takes_no_memory() {
        let rows = 8192;
        let width = MAX_HIDDEN_BYTES as usize / 4 / rows as usize;
        let hidden = Header {
            dtype: WireDtype::F32,
            rows,
            payload: MAX_HIDDEN_BYTES,
            ..Header::new(FrameType::Hidden, 2)
        };
        let tokens = Header {
            payload: MAX_MESSAGE_BYTES,
            ..Header::new(FrameType::Tokens, 2)
        };
        for header in [hidden, tokens] {
            let mut bytes = header.encode().to_vec();
            encode_rows(&vec![RowEntry::default(); header.rows as usize], &mut bytes);
            bytes.extend_from_slice(&[0; 100]);
            let mut reader = FrameReader::new(Portions::new(&bytes, 4096), width);
            assert!(matches!(reader.read(), Err(ReadError::Truncated)));
            assert!(reader.stream().asked <= FIRST_BYTES);
        }
    }

    #[test]
    fn hidden_states_over_several_portions_of_room_arrive_whole() {
        let rows = 8192;
        let width = 3 * FIRST_BYTES / 4 / rows as usize + 1;
        let states: Vec<f32> = (0..rows as usize * width).map(|i| i as f32).collect();
        let header = Header {
            dtype: WireDtype::F32,
            rows,
            payload: states.len() as u64 * 4,
            ..Header::new(FrameType::Hidden, 2)
        };
        let mut bytes = header.encode().to_vec();
        encode_rows(&vec![RowEntry::default(); rows as usize], &mut bytes);
        bytes.extend_from_slice(bytemuck::cast_slice(&states));
        let stream = bytes.repeat(2);
        let mut reader = FrameReader::new(Portions::new(&stream, 100_000), width);
        let frame = reader.read().unwrap();
        assert!(frame.hidden == states);
        assert_eq!(frame.hidden.capacity(), states.len());
        let place = frame.hidden.as_ptr();
        reader.recycle(frame.hidden);
        let frame = reader.read().unwrap();
        assert!(frame.hidden == states);
        assert_eq!(frame.hidden.as_ptr(), place);
    }

    #[test]
    fn a_reader_without_a_width_takes_no_hidden_states() {
        let empty = Header {
            dtype: WireDtype::F32,
            ..Header::new(FrameType::Hidden, 2)
        };
        for bytes in [hidden_frame(1).0, empty.encode().to_vec()] {
            let error = FrameReader::new(bytes.as_slice(), 0).read().unwrap_err();
            assert!(matches!(
                error,
                ReadError::Frame(FrameError::HiddenSize { .. })
            ));
        }
    }
}
