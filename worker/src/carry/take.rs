//! The end that takes: listens, lets in only the end that gives, and feeds a program with what comes.

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use rustls::Connection;
use sha2::{Digest, Sha256};
use windlass_wire::carry::{
    CHUNK, DATA, END, End, GIVE_UP, GIVER, HAVE, LAST, PACKED, Sum, TAKEN, Taking,
};
use windlass_wire::host::Listening;

use super::read::hex;
use super::tree::Tree;
use super::{Program, read_frame, tell, write_frame};
use crate::host::{address, probe};
use crate::net::identity::StageTls;
use crate::net::secure::{SecureReader, SecureWriter, establish};

/// How often the giving end is told what was taken, bytes.
const TELL: u64 = 1 << 20;
/// How often it is looked whether someone connects.
const LOOK: Duration = Duration::from_millis(50);
/// How long the other end has to read the last word.
const PARTING: Duration = Duration::from_secs(5);

/// Takes; `false` when it has said why it could not.
pub fn run(order: &End, output: &mut impl Write) -> bool {
    let listener = match listen(order, output) {
        Some(listener) => listener,
        None => return false,
    };
    let last = match all(order, &listener) {
        Ok(sum) => Taking::Done { sum },
        Err(reason) => Taking::Failed { reason },
    };
    tell(output, &last);
    let whole = matches!(last, Taking::Done { .. });
    // Should the other end not have heard it, it comes again and asks. The controller ends this.
    if let (true, Ok(tls)) = (whole, StageTls::new(&order.deployment, &order.identity)) {
        loop {
            let patience = Duration::from_secs(order.patience);
            match accept(&tls, &listener, patience) {
                Ok((_reader, mut writer)) => {
                    let _ = say(&mut writer, &last);
                }
                Err(_) => break,
            }
        }
    }
    whole
}

fn listen(order: &End, output: &mut impl Write) -> Option<TcpListener> {
    let (said, listener) = match address::parse(&order.address, order.port) {
        Err(reason) => (Listening::Failed { reason }, None),
        Ok(address) => match TcpListener::bind(address) {
            Ok(listener) => {
                let address = listener.local_addr().unwrap_or(address).to_string();
                (Listening::Bound { address }, Some(listener))
            }
            Err(error) => (probe::not_bound(address, &error), None),
        },
    };
    tell(output, &said);
    listener
}

/// What has come so far.
struct Taken {
    to: Option<ChildStdin>,
    program: Program,
    digest: Sha256,
    bytes: u64,
    told: u64,
}

fn all(order: &End, listener: &TcpListener) -> Result<Sum, String> {
    let tls =
        StageTls::new(&order.deployment, &order.identity).map_err(|error| error.to_string())?;
    let have = match order.again {
        true => list(order)?,
        false => Vec::new(),
    };
    let mut program = Program::start(&order.program, Stdio::piped(), Stdio::null())?;
    let mut taken = Taken {
        to: program.child.stdin.take(),
        program,
        digest: Sha256::new(),
        bytes: 0,
        told: 0,
    };
    let patience = Duration::from_secs(order.patience);
    loop {
        let (mut reader, mut writer) = accept(&tls, listener, patience).inspect_err(|_| {
            taken.program.kill();
        })?;
        let came = greet(&mut writer, &have, taken.bytes)
            .map_err(|_| Broken::Line)
            .and_then(|()| taken.some(&mut reader, &mut writer));
        let ended = match came {
            Ok(sum) => Ok(sum),
            Err(Broken::Line) => continue,
            Err(Broken::Over(reason)) => Err(reason),
        };
        let last = match &ended {
            Ok(sum) => Taking::Done { sum: sum.clone() },
            Err(reason) => Taking::Failed {
                reason: reason.clone(),
            },
        };
        if say(&mut writer, &last).is_ok() {
            part(&mut reader);
        }
        return ended;
    }
}

fn say(writer: &mut SecureWriter, last: &Taking) -> io::Result<()> {
    let text = serde_json::to_vec(last).map_err(io::Error::other)?;
    write_frame(writer, LAST, &[&text])
}

/// Takes what still comes until the other end, which has read the last word then, closes: closed with
/// something unread, the connection is reset, and the word is lost on its way.
fn part(reader: &mut SecureReader) {
    let end = Instant::now() + PARTING;
    let mut rest = Vec::new();
    if reader.wait_at_most(PARTING).is_ok() {
        while Instant::now() < end && read_frame(reader, &mut rest).is_ok() {}
    }
}

fn greet(writer: &mut SecureWriter, have: &[Vec<u8>], bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        for list in have {
            write_frame(writer, HAVE, &[list])?;
        }
    }
    write_frame(writer, TAKEN, &[&bytes.to_le_bytes()])
}

/// The files that are there already, in lists of a frame's size.
fn list(order: &End) -> Result<Vec<Vec<u8>>, String> {
    use std::os::unix::fs::MetadataExt;
    let tree = Tree::new(&order.folder, &order.leave)?;
    let mut lists = Vec::new();
    let mut list = Vec::new();
    tree.walk(&mut |entry| {
        let metadata = &entry.metadata;
        if metadata.is_file() {
            let mut one = entry.path.clone();
            let (bytes, seconds, nanos) = (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
            one.extend(format!("\0{bytes}\0{seconds}\0{nanos}\0").bytes());
            if list.len() + one.len() > CHUNK {
                lists.push(std::mem::take(&mut list));
            }
            list.extend(one);
        }
        Ok(())
    })?;
    lists.push(list);
    Ok(lists)
}

/// The next connection of the end that gives, within `patience`. Others are closed.
fn accept(
    tls: &StageTls,
    listener: &TcpListener,
    patience: Duration,
) -> Result<(SecureReader, SecureWriter), String> {
    let words = |error: io::Error| error.to_string();
    listener.set_nonblocking(true).map_err(words)?;
    let end = Instant::now() + patience;
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                if let Ok(line) = proven(tls, socket) {
                    return Ok(line);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LOOK),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
        if Instant::now() >= end {
            return Err(format!(
                "the sending host did not come back within {} s",
                patience.as_secs()
            ));
        }
    }
}

fn proven(tls: &StageTls, socket: TcpStream) -> Result<(SecureReader, SecureWriter), String> {
    socket
        .set_nonblocking(false)
        .map_err(|error| error.to_string())?;
    let session = tls.accept().map_err(|error| error.to_string())?;
    let (reader, writer) =
        establish(Connection::Server(session), socket).map_err(|error| error.to_string())?;
    let certificate = reader.peer_certificate().ok_or("it shows no certificate")?;
    tls.check_stage(&certificate, GIVER)
        .map_err(|error| error.to_string())?;
    reader.wait_forever().map_err(|error| error.to_string())?;
    Ok((reader, writer))
}

/// Why taking stopped.
enum Broken {
    /// The connection broke: another may come.
    Line,
    /// It is over.
    Over(String),
}

impl Taken {
    /// Takes what one connection brings, to the end of the stream or of the connection.
    fn some(
        &mut self,
        reader: &mut SecureReader,
        writer: &mut SecureWriter,
    ) -> Result<Sum, Broken> {
        let mut payload = Vec::new();
        loop {
            let kind = read_frame(reader, &mut payload).map_err(|_| Broken::Line)?;
            match kind {
                DATA => self.feed(&payload)?,
                PACKED => {
                    let chunk = unpack(&payload).map_err(Broken::Over)?;
                    self.feed(&chunk)?;
                }
                GIVE_UP => {
                    self.program.kill();
                    let text = String::from_utf8_lossy(&payload).into_owned();
                    return Err(Broken::Over(format!("the sending host gave up: {text}")));
                }
                END => {
                    let theirs: Sum = serde_json::from_slice(&payload)
                        .map_err(|error| Broken::Over(error.to_string()))?;
                    return self.end(&theirs).map_err(Broken::Over);
                }
                _ => {
                    return Err(Broken::Over(
                        "the sending host says what is not known here".to_owned(),
                    ));
                }
            }
            if self.bytes - self.told >= TELL {
                self.told = self.bytes;
                write_frame(writer, TAKEN, &[&self.bytes.to_le_bytes()])
                    .map_err(|_| Broken::Line)?;
            }
        }
    }

    fn feed(&mut self, chunk: &[u8]) -> Result<(), Broken> {
        self.digest.update(chunk);
        self.bytes += chunk.len() as u64;
        let written = match &mut self.to {
            Some(to) => to.write_all(chunk),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(|_| {
            // It ended early; its own words tell why.
            self.to = None;
            let (status, said) = self.program.end();
            Broken::Over(self.program.failed(status, &said))
        })
    }

    fn end(&mut self, theirs: &Sum) -> Result<Sum, String> {
        self.to = None;
        let (status, said) = self.program.end();
        if status != Some(0) {
            return Err(self.program.failed(status, &said));
        }
        let own = Sum {
            bytes: self.bytes,
            sha256: hex(&self.digest.clone().finalize()),
        };
        match own == *theirs {
            true => Ok(own),
            false => Err(format!(
                "{} bytes came with another digest than the {} that were sent",
                own.bytes, theirs.bytes
            )),
        }
    }
}

fn unpack(payload: &[u8]) -> Result<Vec<u8>, String> {
    let bad = || "the sending host says what cannot be unpacked".to_owned();
    let (head, block) = payload.split_first_chunk::<4>().ok_or_else(bad)?;
    let length = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
    if length > CHUNK {
        return Err(bad());
    }
    lz4_flex::block::decompress(block, length).map_err(|_| bad())
}
