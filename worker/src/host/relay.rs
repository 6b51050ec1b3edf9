//! `relay`: carries bytes between stdin, stdout and a Unix socket. Must not know what they say.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Connects and carries until the socket's side ends. The end of `input` is passed on, and what the
/// other side still says is carried.
///
/// # Errors
/// When nobody answers at the socket.
pub fn run(socket: &Path, mut input: File, mut output: File) -> io::Result<()> {
    let stream = UnixStream::connect(socket).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("nobody answers at {}: {error}", socket.display()),
        )
    })?;
    let mut to = stream.try_clone()?;
    // Not joined: stdin may stay open after the other side has ended.
    std::thread::Builder::new().spawn(move || {
        let _ = carry(&mut input, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    })?;
    carry(&mut &stream, &mut output)
}

/// Each read is written at once: an answer that streams must not wait for a full buffer.
fn carry(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        let got = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(buffer.get(..got).unwrap_or_default())?;
    }
}
