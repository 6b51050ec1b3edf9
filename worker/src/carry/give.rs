//! The end that gives: a program's output, in chunks that stay here until the other end has them.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls::Connection;
use sha2::{Digest, Sha256};
use windlass_wire::carry::{
    CHUNK, DATA, END, End, GIVE_UP, Giving, HAVE, LAST, PACKED, Sum, TAKEN, TAKER, Taking,
};

use super::read::hex;
use super::tree::Tree;
use super::{Program, read_frame, tell, write_frame};
use crate::host::address;
use crate::net::identity::StageTls;
use crate::net::secure::{SecureReader, SecureWriter, establish};

/// Most bytes that went out and that the other end has not said it has.
const WINDOW: usize = 32 << 20;
/// Chunks that are read ahead.
const AHEAD: usize = 16;
/// How long one connection is tried, and how long lies between tries.
const CONNECTING: Duration = Duration::from_secs(3);
const BETWEEN: Duration = Duration::from_millis(300);
/// How often progress is told.
const EVERY: Duration = Duration::from_millis(500);
/// How much a new measurement counts beside the ones before it.
const NEW: f64 = 0.1;

/// What is known of a file that the other end has: bytes, seconds and nanoseconds of its last change.
type Known = (u64, i64, i64);

/// Gives; `false` when it has said why it could not.
pub fn run(order: &End, output: &mut impl Write) -> bool {
    let mut giver = Giver {
        order,
        output,
        window: VecDeque::new(),
        held: 0,
        taken: 0,
        sent: 0,
        pace: Pace::default(),
        told: Instant::now(),
        have: BTreeMap::new(),
    };
    let last = match giver.all() {
        Ok(done) => done,
        Err(reason) => Giving::Failed { reason },
    };
    let whole = matches!(last, Giving::Done { .. });
    tell(giver.output, &last);
    whole
}

/// A chunk of the stream.
struct Chunk {
    /// Where it begins.
    at: u64,
    bytes: Vec<u8>,
}

/// A connection that stands.
struct Line {
    writer: SecureWriter,
    heard: Receiver<Heard>,
}

/// What the other end says.
enum Heard {
    Taken(u64),
    Have(Vec<u8>),
    Last(Taking),
    Gone(String),
}

/// What it takes to pack and to send, seconds a byte of the stream; none before the first time.
#[derive(Default)]
struct Pace {
    /// To pack.
    pack: Option<f64>,
    /// Bytes of a packed chunk for one byte of the stream.
    ratio: Option<f64>,
    /// To send one byte over the network.
    send: Option<f64>,
    /// Chunks until the other way is tried again.
    until: u32,
}

impl Pace {
    /// How many chunks go one way before the other is tried again.
    const TRY: u32 = 64;

    /// Whether the next chunk is packed: when that is faster than sending it as it is.
    fn packs(&mut self) -> bool {
        let (Some(pack), Some(ratio), Some(send)) = (self.pack, self.ratio, self.send) else {
            return true;
        };
        let better = faster(pack, ratio, send);
        if self.until == 0 {
            self.until = Self::TRY;
            return !better;
        }
        self.until -= 1;
        better
    }

    fn learn(of: &mut Option<f64>, value: f64) {
        *of = Some(of.map_or(value, |old| old + (value - old) * NEW));
    }
}

/// Whether packing and then sending less is faster than sending all. Pure.
fn faster(pack: f64, ratio: f64, send: f64) -> bool {
    pack + ratio * send < send
}

struct Giver<'a, W> {
    order: &'a End,
    output: &'a mut W,
    window: VecDeque<Chunk>,
    /// Bytes in the window.
    held: usize,
    /// What the other end has.
    taken: u64,
    /// Bytes that went over the network.
    sent: u64,
    pace: Pace,
    told: Instant,
    have: BTreeMap<Vec<u8>, Known>,
}

impl<W: Write> Giver<'_, W> {
    fn all(&mut self) -> Result<Giving, String> {
        let tls = StageTls::new(&self.order.deployment, &self.order.identity)
            .map_err(|error| error.to_string())?;
        let tree = Tree::new(&self.order.folder, &self.order.leave)?;
        let mut line = self.connect(&tls)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let at = now.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0));
        tell(self.output, &Giving::Begins { at });
        let mut program = Program::start(&self.order.program, Stdio::piped(), Stdio::piped())?;
        let (Some(stdin), Some(stdout)) = (program.child.stdin.take(), program.child.stdout.take())
        else {
            return Err("the program has no input and output".to_owned());
        };
        let have = std::mem::take(&mut self.have);
        let (walked, walk) = channel();
        std::thread::Builder::new()
            .spawn(move || walked.send(names(&tree, stdin, &have)))
            .map_err(|error| error.to_string())?;
        let (chunks, chunk) = sync_channel(AHEAD);
        std::thread::Builder::new()
            .spawn(move || read(stdout, &chunks))
            .map_err(|error| error.to_string())?;
        let sum = match self.stream(&tls, &mut line, &chunk) {
            Ok(sum) => sum,
            Err(reason) => {
                program.kill();
                line.writer.close();
                return Err(reason);
            }
        };
        let (status, said) = program.end();
        // The walk has ended, since its reader has.
        let walked = walk
            .recv()
            .unwrap_or_else(|_| Err("the walk over the files ended unexpectedly".to_owned()));
        // Status 1 of tar: files changed while they were read, which is what comparing is for.
        let bad = match (status, walked) {
            (Some(0 | 1), Ok(kept)) => Ok(kept),
            // Named files that are gone; the comparison knows them as changed.
            (Some(2), Ok(kept)) if program.only_changes() => Ok(kept),
            (Some(0 | 1), Err(reason)) => Err(reason),
            (status, _) => Err(program.failed(status, &said)),
        };
        let kept = match bad {
            Ok(kept) => kept,
            Err(reason) => {
                let _ = write_frame(&mut line.writer, GIVE_UP, &[reason.as_bytes()]);
                line.writer.close();
                return Err(reason);
            }
        };
        let end = serde_json::to_vec(&sum).map_err(|error| error.to_string())?;
        let last = self.settle(&tls, line, &end)?;
        match last {
            Taking::Done { sum: theirs } if theirs == sum => Ok(Giving::Done {
                sum,
                sent: self.sent,
                said,
                kept,
            }),
            Taking::Done { .. } => Err("the other end took other bytes than were given".to_owned()),
            Taking::Failed { reason } => Err(format!("the other end: {reason}")),
        }
    }

    /// Sends all chunks; the stream's sum.
    fn stream(
        &mut self,
        tls: &StageTls,
        line: &mut Line,
        chunks: &Receiver<io::Result<Vec<u8>>>,
    ) -> Result<Sum, String> {
        let mut digest = Sha256::new();
        let mut bytes = 0u64;
        loop {
            let chunk = match chunks.recv_timeout(EVERY) {
                Ok(chunk) => chunk,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    // The program may be long in finding what to send; the connection is looked after.
                    self.hear(tls, line, false)?;
                    self.tell_moved();
                    continue;
                }
            };
            let chunk = chunk.map_err(|error| format!("reading the program's output: {error}"))?;
            digest.update(&chunk);
            while self.held + chunk.len() > WINDOW {
                self.hear(tls, line, true)?;
            }
            self.hear(tls, line, false)?;
            let at = bytes;
            bytes += chunk.len() as u64;
            self.held += chunk.len();
            self.window.push_back(Chunk { at, bytes: chunk });
            if let Err(error) = self.send_last(line) {
                self.again(tls, line, &error.to_string())?;
            }
        }
        Ok(Sum {
            bytes,
            sha256: hex(&digest.finalize()),
        })
    }

    fn send_last(&mut self, line: &mut Line) -> io::Result<()> {
        match self.window.back() {
            Some(chunk) => {
                self.sent += send(&mut line.writer, &chunk.bytes, &mut self.pace)?;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Takes what the other end said; with `wait`, until it says something.
    fn hear(&mut self, tls: &StageTls, line: &mut Line, wait: bool) -> Result<(), String> {
        loop {
            let heard = if wait {
                match line.heard.recv_timeout(EVERY) {
                    Ok(heard) => Some(heard),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => {
                        Some(Heard::Gone("the connection ended".to_owned()))
                    }
                }
            } else {
                line.heard.try_recv().ok()
            };
            let Some(heard) = heard else { return Ok(()) };
            match heard {
                Heard::Taken(bytes) => self.took(bytes),
                Heard::Have(_) => {}
                Heard::Last(Taking::Failed { reason }) => {
                    return Err(format!("the other end: {reason}"));
                }
                Heard::Last(Taking::Done { .. }) => {
                    return Err("the other end ended before all was given".to_owned());
                }
                Heard::Gone(reason) => self.again(tls, line, &reason)?,
            }
            if wait {
                return Ok(());
            }
        }
    }

    /// Says that all was given, and waits for the last word of the other end.
    fn settle(&mut self, tls: &StageTls, mut line: Line, end: &[u8]) -> Result<Taking, String> {
        let mut said = write_frame(&mut line.writer, END, &[end]);
        loop {
            if let Err(error) = said {
                self.again(tls, &mut line, &error.to_string())?;
                said = write_frame(&mut line.writer, END, &[end]);
                continue;
            }
            match line.heard.recv() {
                Ok(Heard::Taken(bytes)) => self.took(bytes),
                Ok(Heard::Have(_)) => {}
                Ok(Heard::Last(last)) => {
                    // The other end waits for that.
                    line.writer.close();
                    return Ok(last);
                }
                Ok(Heard::Gone(reason)) => said = Err(io::Error::other(reason)),
                Err(_) => said = Err(io::Error::other("the connection ended")),
            }
        }
    }

    fn took(&mut self, bytes: u64) {
        self.taken = self.taken.max(bytes);
        while let Some(first) = self.window.front() {
            if first.at + first.bytes.len() as u64 > self.taken {
                break;
            }
            if let Some(gone) = self.window.pop_front() {
                self.held -= gone.bytes.len();
            }
        }
        self.tell_moved();
    }

    fn tell_moved(&mut self) {
        if self.told.elapsed() >= EVERY {
            self.told = Instant::now();
            let message = Giving::Moved {
                bytes: self.taken,
                sent: self.sent,
            };
            tell(self.output, &message);
        }
    }

    /// Connects anew and sends again what the other end lacks.
    fn again(&mut self, tls: &StageTls, line: &mut Line, reason: &str) -> Result<(), String> {
        // A last word may have come before the connection broke.
        while let Ok(heard) = line.heard.recv_timeout(EVERY) {
            match heard {
                Heard::Taken(bytes) => self.took(bytes),
                Heard::Last(Taking::Failed { reason }) => {
                    return Err(format!("the other end: {reason}"));
                }
                Heard::Gone(_) => break,
                Heard::Have(_) | Heard::Last(Taking::Done { .. }) => {}
            }
        }
        line.writer.close();
        let reason = reason.to_owned();
        tell(
            self.output,
            &Giving::Again {
                reason: reason.clone(),
            },
        );
        let end = Instant::now() + Duration::from_secs(self.order.patience);
        loop {
            let mut fresh = self
                .connect(tls)
                .map_err(|error| format!("the connection broke ({reason}), and {error}"))?;
            let mut sent = 0;
            let taken = self.taken;
            let mut all = self.window.iter();
            let broke = all.try_for_each(|chunk| {
                let skip = usize::try_from(taken.saturating_sub(chunk.at)).unwrap_or(usize::MAX);
                let rest = chunk.bytes.get(skip..).unwrap_or_default();
                sent += send(&mut fresh.writer, rest, &mut self.pace)?;
                io::Result::Ok(())
            });
            self.sent += sent;
            match broke {
                Ok(()) => {
                    *line = fresh;
                    return Ok(());
                }
                Err(error) if Instant::now() > end => {
                    return Err(format!("the connection broke again and again: {error}"));
                }
                Err(_) => {}
            }
        }
    }

    /// A connection to the other end, which has said what it has.
    fn connect(&mut self, tls: &StageTls) -> Result<Line, String> {
        let peer = address::parse(&self.order.address, self.order.port)?;
        let end = Instant::now() + Duration::from_secs(self.order.patience);
        loop {
            let tried = TcpStream::connect_timeout(&peer, CONNECTING)
                .map_err(|error| error.to_string())
                .and_then(|socket| {
                    let session = tls.connect(TAKER).map_err(|error| error.to_string())?;
                    establish(Connection::Client(session), socket)
                        .map_err(|error| error.to_string())
                })
                .and_then(|(reader, writer)| self.greeted(reader, writer));
            match tried {
                Ok(line) => return Ok(line),
                Err(error) if Instant::now() >= end => {
                    return Err(format!(
                        "{peer} was not reached for {} s: {error}",
                        self.order.patience
                    ));
                }
                Err(_) => std::thread::sleep(BETWEEN),
            }
        }
    }

    fn greeted(&mut self, reader: SecureReader, writer: SecureWriter) -> Result<Line, String> {
        reader.wait_forever().map_err(|error| error.to_string())?;
        let (hears, heard) = channel();
        std::thread::Builder::new()
            .spawn(move || listen(reader, &hears))
            .map_err(|error| error.to_string())?;
        let patience = Duration::from_secs(self.order.patience.max(1));
        loop {
            match heard.recv_timeout(patience) {
                Ok(Heard::Taken(bytes)) => {
                    self.took(bytes);
                    return Ok(Line { writer, heard });
                }
                Ok(Heard::Have(list)) => {
                    if self.order.again {
                        known(&list, &mut self.have);
                    }
                }
                Ok(Heard::Last(last)) => {
                    // It ended before; whoever asks next hears it.
                    let (hears, heard) = channel();
                    let _ = hears.send(Heard::Last(last));
                    return Ok(Line { writer, heard });
                }
                Ok(Heard::Gone(reason)) => return Err(reason),
                Err(_) => return Err("the other end said nothing".to_owned()),
            }
        }
    }
}

/// Files of a list, added to those that are known.
fn known(list: &[u8], all: &mut BTreeMap<Vec<u8>, Known>) {
    let mut fields = list.split(|byte| *byte == 0);
    while let (Some(path), Some(bytes), Some(seconds), Some(nanos)) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    {
        let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<i64>().ok();
        if let (Some(bytes), Some(seconds), Some(nanos)) =
            (number(bytes), number(seconds), number(nanos))
        {
            all.insert(
                path.to_vec(),
                (u64::try_from(bytes).unwrap_or(0), seconds, nanos),
            );
        }
    }
}

fn listen(mut reader: SecureReader, hears: &Sender<Heard>) {
    let mut payload = Vec::new();
    loop {
        let heard = match read_frame(&mut reader, &mut payload) {
            Ok(TAKEN) => match payload.as_slice().try_into() {
                Ok(bytes) => Heard::Taken(u64::from_le_bytes(bytes)),
                Err(_) => Heard::Gone("the other end says what is no number".to_owned()),
            },
            Ok(HAVE) => Heard::Have(payload.clone()),
            Ok(LAST) => match serde_json::from_slice(&payload) {
                Ok(last) => Heard::Last(last),
                Err(error) => Heard::Gone(error.to_string()),
            },
            Ok(_) => Heard::Gone("the other end says what is not known here".to_owned()),
            Err(error) => Heard::Gone(error.to_string()),
        };
        let over = matches!(heard, Heard::Gone(_));
        if hears.send(heard).is_err() || over {
            return;
        }
    }
}

/// Sends a chunk, packed when that is faster; bytes that went.
fn send(writer: &mut SecureWriter, chunk: &[u8], pace: &mut Pace) -> io::Result<u64> {
    let length = chunk.len();
    if length == 0 {
        return Ok(0);
    }
    #[allow(clippy::cast_precision_loss, reason = "a chunk is far below 2^52")]
    let each = |time: Duration, bytes: usize| time.as_secs_f64() / (bytes.max(1) as f64);
    let mut packed = None;
    if pace.packs() {
        let began = Instant::now();
        let block = lz4_flex::block::compress(chunk);
        Pace::learn(&mut pace.pack, each(began.elapsed(), length));
        #[allow(clippy::cast_precision_loss, reason = "a chunk is far below 2^52")]
        Pace::learn(&mut pace.ratio, block.len() as f64 / length as f64);
        packed = (block.len() + 4 < length).then_some(block);
    }
    let began = Instant::now();
    let went = match &packed {
        Some(block) => {
            let head = u32::try_from(length).map_err(io::Error::other)?;
            write_frame(writer, PACKED, &[&head.to_le_bytes(), block])?;
            block.len() + 4
        }
        None => {
            write_frame(writer, DATA, &[chunk])?;
            length
        }
    };
    Pace::learn(&mut pace.send, each(began.elapsed(), went));
    Ok(went as u64)
}

fn read(mut from: impl Read, chunks: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        match Read::take(&mut from, CHUNK as u64).read_to_end(&mut chunk) {
            Ok(0) => return,
            Ok(_) => {
                if chunks.send(Ok(chunk)).is_err() {
                    return;
                }
            }
            Err(error) => {
                let _ = chunks.send(Err(error));
                return;
            }
        }
    }
}

/// Names every file for the program, each ended by a NUL, without those that the other end has. How many
/// those were.
fn names(tree: &Tree, to: ChildStdin, have: &BTreeMap<Vec<u8>, Known>) -> Result<u64, String> {
    use std::os::unix::fs::MetadataExt;
    let mut to = io::BufWriter::with_capacity(64 << 10, to);
    let mut kept = 0;
    let mut over = false;
    let mut put = |path: &[u8]| -> Result<(), String> {
        // The dash and the dot keep a name from being taken for an option.
        let written = to
            .write_all(b"./")
            .and_then(|()| to.write_all(path))
            .and_then(|()| to.write_all(&[0]));
        // The program ended; its own words tell why.
        over |= written.is_err();
        written.map_err(|_| String::new())
    };
    let walked = put(b"").and_then(|()| {
        tree.walk(&mut |entry| {
            let metadata = &entry.metadata;
            // Of several names of one file all are sent, or one of them would be a file of its own.
            if metadata.is_file() && metadata.nlink() == 1 {
                let own = (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
                if have.get(&entry.path) == Some(&own) {
                    kept += 1;
                    return Ok(());
                }
            }
            put(&entry.path)
        })
    });
    match walked {
        Err(_) if over => Ok(kept),
        Err(reason) => Err(reason),
        Ok(()) => match to.flush() {
            Ok(()) | Err(_) => Ok(kept),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_pays_only_where_it_is_faster_than_the_link() {
        // 500 MB/s to pack to a half; links of 1 Gbit/s and of 25 Gbit/s.
        let pack = 1.0 / 500e6;
        assert!(faster(pack, 0.5, 1.0 / 120e6));
        assert!(!faster(pack, 0.5, 1.0 / 3e9));
        assert!(!faster(pack, 1.0, 1.0 / 120e6), "what cannot be packed");
    }

    #[test]
    fn both_ways_are_tried_now_and_then() {
        let mut pace = Pace {
            pack: Some(1e-9),
            ratio: Some(0.5),
            send: Some(1e-8),
            until: 2,
        };
        let ways: Vec<bool> = (0..4).map(|_| pace.packs()).collect();
        assert_eq!(ways, [true, true, false, true]);
    }

    #[test]
    fn a_list_of_files_is_read_up_to_where_it_is_cut() {
        let mut all = BTreeMap::new();
        known(b"a b\x005\x0010\x007\0c\x001\x002\x003\0d\x001", &mut all);
        assert_eq!(all.len(), 2);
        assert_eq!(all.get(&b"a b"[..]), Some(&(5, 10, 7)));
    }
}
