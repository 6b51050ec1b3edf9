//! Any bytes as what a peer sends: headers, row tables and sampled tokens must end in a value or
//! an error, and a value must be the bytes it came from. The reader of a link, fed in portions of
//! any size, must say what a decoder of the whole says, in memory bounded by what came.
#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, ErrorKind, Read};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libfuzzer_sys::fuzz_target;
use windlass_wire::frame::{
    FrameError, FrameType, HEADER_BYTES, Header, MAX_ROWS, ROW_BYTES, RowEntry, WireDtype,
    decode_rows, encode_rows,
};
use windlass_wire::payload::{Admit, Hello, decode_sampled, encode_sampled};
use windlass_wire::reader::{FIRST_BYTES, FrameReader, ReadError};

fuzz_target!(|input: &[u8]| {
    parts(input);
    if let Some((plan, bytes)) = Plan::new(input) {
        if plan.made {
            link(&plan, &stream_of(bytes, plan.hidden));
        } else {
            link(&plan, bytes);
        }
    }
});

/// Each part alone, as if the parts before it were in order.
fn parts(input: &[u8]) {
    let _ = decode_rows(input);
    let _ = serde_json::from_slice::<Hello>(input);
    let _ = serde_json::from_slice::<Admit>(input);
    if let Some((count, bytes)) = input.split_first() {
        sampled(bytes, usize::from(*count));
        // A header whose fixed parts are right, so that the others are reached at once.
        let mut made = Header::new(FrameType::Hidden, 1).encode();
        for (to, from) in made.iter_mut().skip(6).zip(input) {
            *to = *from;
        }
        if let Ok(header) = Header::decode(&made) {
            assert_eq!(header.encode(), made);
            assert!(header.rows <= MAX_ROWS && header.payload <= header.kind.payload_cap());
        }
    }
}

fn sampled(bytes: &[u8], count: usize) {
    if let Ok(tokens) = decode_sampled(bytes, count) {
        assert_eq!(tokens.len(), count);
        let mut again = Vec::new();
        encode_sampled(&tokens, &mut again);
        assert_eq!(again, bytes);
    }
}

/// How a stream is read: the first bytes of the input say.
struct Plan<'a> {
    /// Whether the rest are choices of frames, or the stream itself.
    made: bool,
    /// Floats in a row.
    hidden: usize,
    /// How the stream ends.
    last: Option<ErrorKind>,
    /// Whether buffers go back to the reader.
    recycle: bool,
    /// Sizes of portions, over and over: 0 is a call interrupted by a signal, 255 all there is.
    portions: &'a [u8],
}

impl<'a> Plan<'a> {
    fn new(input: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let ([flags, count], rest) = input.split_first_chunk::<2>()?;
        let (portions, rest) = rest.split_at_checked(usize::from(count % 16))?;
        let plan = Self {
            made: flags & 1 != 0,
            hidden: [0, 1, 3, 576, 8192, 1 << 16, 1 << 20, usize::MAX >> 3]
                [usize::from(flags >> 1 & 7)],
            last: [
                None,
                Some(ErrorKind::UnexpectedEof),
                Some(ErrorKind::ConnectionReset),
                Some(ErrorKind::TimedOut),
            ][usize::from(flags >> 4 & 3)],
            recycle: flags & 64 != 0,
            portions,
        };
        Some((plan, rest))
    }
}

/// A stream of frames whose headers are in order: six bytes choose each, its parts follow. What is
/// missing at the end is missing in the stream.
fn stream_of(mut bytes: &[u8], hidden: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    while let Some(([kind, rows, flags, size, more, step], rest)) = bytes.split_first_chunk::<6>() {
        let kind = KINDS[usize::from(*kind) % KINDS.len()];
        let mut header = Header {
            step: u64::from(*step),
            rows: u32::from(*rows) << (flags & 7),
            ..Header::new(kind, u32::from(*flags))
        };
        header.rows = header.rows.min(MAX_ROWS);
        let exact = (hidden as u64).saturating_mul(4 * u64::from(header.rows));
        if kind == FrameType::Hidden && exact <= kind.payload_cap() {
            header.dtype = WireDtype::F32;
            header.payload = exact;
        } else {
            let size = u64::from(*size) << (more & 31);
            header.payload = size.min(kind.payload_cap());
        }
        stream.extend_from_slice(&header.encode());
        let table = rest.len().min(header.rows as usize * ROW_BYTES);
        let (table, rest) = rest.split_at(table);
        // The top bit leaves the table as it is; otherwise its last two words are in order.
        stream.extend(
            table
                .iter()
                .enumerate()
                .map(|(at, byte)| match at % ROW_BYTES {
                    _ if flags & 128 != 0 => *byte,
                    0..8 => *byte,
                    8 => byte & 1,
                    _ => 0,
                }),
        );
        let payload = rest
            .len()
            .min(usize::try_from(header.payload).unwrap_or(usize::MAX));
        let (payload, rest) = rest.split_at(payload);
        stream.extend_from_slice(payload);
        bytes = rest;
    }
    stream.extend_from_slice(bytes);
    stream
}

const KINDS: [FrameType; 12] = [
    FrameType::Hello,
    FrameType::Welcome,
    FrameType::Hidden,
    FrameType::Tokens,
    FrameType::Admit,
    FrameType::Free,
    FrameType::Credit,
    FrameType::Telemetry,
    FrameType::Reset,
    FrameType::Fault,
    FrameType::Shutdown,
    FrameType::LinkLost,
];

/// What the whole stream holds at its start.
enum Whole<'a> {
    Frame(Header, Vec<RowEntry>, &'a [u8], &'a [u8]),
    /// No frame of ours, and why.
    Wrong(FrameError),
    /// The stream ends before the frame does.
    Cut,
    /// Nothing is left.
    End,
}

/// The decoder of the whole: knows all bytes, so it needs no buffer.
fn whole(bytes: &[u8], hidden: usize) -> Whole<'_> {
    if bytes.is_empty() {
        return Whole::End;
    }
    let Some((head, rest)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Whole::Cut;
    };
    let header = match Header::decode(head) {
        Ok(header) => header,
        Err(error) => return Whole::Wrong(error),
    };
    assert_eq!(header.encode(), head);
    if header.kind == FrameType::Hidden {
        if let Err(error) = header.check_hidden(hidden) {
            return Whole::Wrong(error);
        }
        assert!(hidden > 0 && header.payload == header.rows as u64 * hidden as u64 * 4);
    }
    let Some((table, rest)) = rest.split_at_checked(header.rows as usize * ROW_BYTES) else {
        return Whole::Cut;
    };
    let rows = match decode_rows(table) {
        Ok(rows) => rows,
        Err(error) => return Whole::Wrong(error),
    };
    let mut again = Vec::new();
    encode_rows(&rows, &mut again);
    assert_eq!(again, table);
    match usize::try_from(header.payload)
        .ok()
        .and_then(|length| rest.split_at_checked(length))
    {
        Some((payload, rest)) => Whole::Frame(header, rows, payload, rest),
        None => Whole::Cut,
    }
}

/// Reads the stream as a link does, and compares with the decoder of the whole.
fn link(plan: &Plan, stream: &[u8]) {
    let portions = Portions {
        bytes: stream,
        plan,
        call: 0,
    };
    let mut rest = stream;
    let mut reader = FrameReader::new(portions, plan.hidden);
    loop {
        let before = reader.stream().bytes.len();
        let start = HELD.load(Relaxed);
        MOST.store(start, Relaxed);
        let read = reader.read();
        let took = MOST.load(Relaxed).saturating_sub(start);
        let came = before - reader.stream().bytes.len();
        // Growing by doubling holds the old and the new; the table may be claimed before it comes.
        let bound = 4 * came + FIRST_BYTES + MAX_ROWS as usize * ROW_BYTES + (64 << 10);
        assert!(took <= bound, "{took} bytes taken for {came} that came");
        match (read, whole(rest, plan.hidden)) {
            (Ok(frame), Whole::Frame(header, rows, payload, after)) => {
                assert_eq!(frame.header, header);
                assert_eq!(frame.rows, rows);
                assert_eq!(came as u64, header.frame_bytes());
                if header.kind == FrameType::Hidden {
                    assert_eq!(frame.hidden.len(), rows.len() * plan.hidden);
                    let states = frame.hidden.iter().flat_map(|state| state.to_le_bytes());
                    assert!(states.eq(payload.iter().copied()));
                    assert!(frame.message.is_empty());
                } else {
                    assert_eq!(frame.message, payload);
                    assert!(frame.hidden.is_empty());
                    message(&header, payload);
                }
                if plan.recycle {
                    reader.recycle(frame.hidden);
                }
                rest = after;
                assert_eq!(reader.stream().bytes, rest);
            }
            (Err(ReadError::Frame(error)), Whole::Wrong(other)) => {
                assert_eq!(error, other);
                return;
            }
            (Err(ReadError::Truncated), Whole::Cut) => {
                assert!(plan.last != Some(ErrorKind::TimedOut));
                return;
            }
            (Err(ReadError::Closed), Whole::End) => {
                assert!(plan.last != Some(ErrorKind::TimedOut));
                return;
            }
            (Err(ReadError::Io(error)), Whole::Cut | Whole::End) => {
                assert_eq!(plan.last, Some(error.kind()));
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                return;
            }
            (Ok(frame), _) => panic!("a frame that is not there: {:?}", frame.header),
            (Err(error), _) => panic!("{error:?} is not what the bytes say"),
        }
    }
}

/// What the receiver of a message does with it.
fn message(header: &Header, payload: &[u8]) {
    match header.kind {
        FrameType::Hello => drop(serde_json::from_slice::<Hello>(payload)),
        FrameType::Admit => drop(serde_json::from_slice::<Admit>(payload)),
        FrameType::Tokens => sampled(payload, header.rows as usize),
        _ => {}
    }
}

/// The bytes of a stream, as a socket would hand them out.
struct Portions<'a> {
    bytes: &'a [u8],
    plan: &'a Plan<'a>,
    call: usize,
}

impl Read for Portions<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let sizes = self.plan.portions;
        // Past the first rounds nothing is interrupted, so a plan of zeros ends too.
        let size = match sizes.get(self.call % sizes.len().max(1)) {
            Some(0) if self.call < 64 => {
                self.call += 1;
                return Err(ErrorKind::Interrupted.into());
            }
            None | Some(0 | 255) => usize::MAX,
            Some(size) => usize::from(*size),
        };
        self.call += 1;
        let room = out.len().min(size);
        match (self.bytes.read(&mut out[..room])?, self.plan.last) {
            (0, Some(kind)) if room > 0 => Err(kind.into()),
            (n, _) => Ok(n),
        }
    }
}

/// Counts what is held, so that a claim that takes memory is seen however short it is held.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn count(grown: usize, shrunk: usize) {
    let held = HELD.fetch_add(grown, Relaxed) + grown;
    MOST.fetch_max(held, Relaxed);
    HELD.fetch_sub(shrunk, Relaxed);
}

// SAFETY: every call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
