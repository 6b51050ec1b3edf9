//! Raw bytes from a channel into a file, hashed on their way: one thread reads and hashes, while the
//! bytes are still in its processor's cache, one writes. Must not know names or messages.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::sync::mpsc::{channel, sync_channel};

use sha2::{Digest, Sha256};

/// Bytes in a chunk.
const CHUNK: usize = 256 << 10;
/// Chunks at most, all together.
const CHUNKS: usize = 8;
/// Bytes that a pipe of this program is made to hold: as much as any user may.
#[cfg(target_os = "linux")]
const PIPE: libc::c_int = 1 << 20;

/// How it went.
pub struct Poured {
    /// Raw bytes that came, written or not.
    pub received: u64,
    /// The digest's state after the bytes written.
    pub hasher: Sha256,
    /// Where it broke.
    pub end: End,
}

/// How the bytes ended.
#[derive(Debug)]
pub enum End {
    /// All came and are written, not yet synced.
    Whole,
    /// The channel ended or broke first; what came is written.
    Broken(io::Error),
    /// The file could not be written. The channel may hold more.
    Unwritten(io::Error),
}

/// Makes a pipe hold more, so that those at its ends wait for each other less often. Whatever is no
/// pipe, or may not grow, stays as it is.
#[cfg(target_os = "linux")]
pub fn widen(end: &impl AsFd) {
    // SAFETY: the descriptor is open as long as `end` is borrowed, and this call takes a number.
    #[allow(unsafe_code, reason = "the standard library has no such call")]
    unsafe {
        libc::fcntl(end.as_fd().as_raw_fd(), libc::F_SETPIPE_SZ, PIPE);
    }
}

/// Pipes have one size elsewhere.
#[cfg(not(target_os = "linux"))]
pub fn widen(_end: &impl AsFd) {}

/// Takes `bytes` raw bytes from `input` into `file`, at its position.
pub fn pour(input: &mut impl Read, bytes: u64, file: &mut File, hasher: Sha256) -> Poured {
    let (to_write, writing) = sync_channel::<Vec<u8>>(CHUNKS);
    let (back, spare) = channel::<Vec<u8>>();
    let mut received = 0;
    let mut hasher = hasher;
    std::thread::scope(|scope| {
        let write = scope.spawn(move || {
            for chunk in writing {
                file.write_all(&chunk)?;
                let _ = back.send(chunk);
            }
            io::Result::Ok(())
        });
        let mut made = 0;
        let mut broken = None;
        while received < bytes && broken.is_none() {
            let mut chunk = match spare.try_recv() {
                Ok(chunk) => chunk,
                Err(_) if made < CHUNKS => {
                    made += 1;
                    vec![0; CHUNK]
                }
                Err(_) => match spare.recv() {
                    Ok(chunk) => chunk,
                    Err(_) => break, // the writer failed, and says why below
                },
            };
            let left = usize::try_from(bytes - received).unwrap_or(CHUNK);
            chunk.resize(left.min(CHUNK), 0);
            let (got, error) = fill(input, &mut chunk);
            chunk.truncate(got);
            received += got as u64;
            broken = error;
            hasher.update(&chunk);
            if to_write.send(chunk).is_err() {
                break;
            }
        }
        drop(to_write);
        let gone = || io::Error::other("a thread ended unexpectedly");
        let end = match (write.join().unwrap_or_else(|_| Err(gone())), broken) {
            (Err(error), _) => End::Unwritten(error),
            (Ok(()), Some(error)) => End::Broken(error),
            (Ok(()), None) => End::Whole,
        };
        Poured {
            received,
            hasher,
            end,
        }
    })
}

/// Reads until the buffer is full; how much came, and what kept the rest away.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut got = 0;
    while let Some(rest) = buffer.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => return (got, Some(io::ErrorKind::UnexpectedEof.into())),
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (got, Some(error)),
        }
    }
    (got, None)
}

/// Adds the bytes of a file, from its position to its end, to a digest.
///
/// # Errors
/// When it cannot be read.
pub fn hash_file(file: &mut File, hasher: &mut Sha256) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut total = 0;
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(total),
            Ok(got) => {
                hasher.update(chunk.get(..got).unwrap_or_default());
                total += got as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A digest in hexadecimal.
pub fn hex(hasher: Sha256) -> String {
    windlass_gguf::hex(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives bytes in pieces of odd sizes, then an error or an end.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.1 = self.1 % 70_001 + 997;
            let now = self.1.min(out.len()).min(self.0.len());
            out[..now].copy_from_slice(&self.0[..now]);
            self.0 = &self.0[now..];
            Ok(now)
        }
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 % 251) as u8).collect()
    }

    #[test]
    fn bytes_arrive_whole_and_hashed_and_no_more_are_taken_than_announced() {
        let all = bytes(3 * CHUNK + 17);
        let mut file = tempfile::tempfile().unwrap();
        let mut input = Dribble(&all, 0);
        let announced = all.len() as u64 - 10;
        let poured = pour(&mut input, announced, &mut file, Sha256::new());
        assert!(matches!(poured.end, End::Whole));
        assert_eq!(poured.received, announced);
        assert_eq!(input.0, &all[all.len() - 10..]);
        let mut wanted = Sha256::new();
        wanted.update(&all[..all.len() - 10]);
        assert_eq!(hex(poured.hasher), hex(wanted));
    }

    #[test]
    fn what_came_before_the_end_is_written() {
        let all = bytes(CHUNK + 5);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let poured = pour(
            &mut Dribble(&all, 0),
            u64::MAX,
            file.as_file_mut(),
            Sha256::new(),
        );
        assert!(matches!(poured.end, End::Broken(_)), "{:?}", poured.end);
        assert_eq!(std::fs::read(file.path()).unwrap(), all);
    }

    #[test]
    fn a_file_that_cannot_be_written_ends_it_without_reading_for_ever() {
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        let poured = pour(&mut io::repeat(1), u64::MAX, &mut full, Sha256::new());
        assert!(
            matches!(&poured.end, End::Unwritten(error) if error.kind() == io::ErrorKind::StorageFull),
            "{:?}",
            poured.end
        );
    }

    #[test]
    fn a_digest_is_the_one_of_the_standard() {
        // FIPS 180-4's example "abc".
        let mut hasher = Sha256::new();
        hasher.update(b"abc");
        assert_eq!(
            hex(hasher),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
