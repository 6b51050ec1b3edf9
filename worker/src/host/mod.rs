//! What a controller asks of a host besides running a stage: takes pieces, tries and measures paths, locks,
//! relays, tells the time, keeps a worker running. One subcommand a file; each talks over stdin and
//! stdout in the forms of [`windlass_wire::host`].
//!
//! Must not know engines, stages or the API.

pub mod address;
pub mod busy;
pub mod describe;
pub mod intake;
pub mod link;
pub mod lock;
pub mod probe;
pub mod receive;
pub mod relay;
pub mod source;
pub mod supervise;

use std::fs::{DirBuilder, File};
use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// Stdout without a buffer: what is written is out.
///
/// # Errors
/// When it is closed.
pub fn stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Writes a message as a line.
///
/// # Errors
/// When whoever read is gone.
pub fn say<T: Serialize>(output: &mut impl Write, message: &T) -> io::Result<()> {
    output.write_all(&windlass_wire::host::line(message))?;
    output.flush()
}

/// Makes a folder that only its owner can open, with those above it that are missing.
///
/// # Errors
/// When it cannot be made.
pub fn private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Answers each line with the nanoseconds since 1970, until the input ends.
///
/// # Errors
/// When either side breaks.
pub fn clock(input: &mut impl BufRead, output: &mut impl Write) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if io::Read::take(&mut *input, 4096).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos());
        output.write_all(format!("{now}\n").as_bytes())?;
        output.flush()?;
    }
}

/// A number of bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let number = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", number / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", number / 1_048_576.0),
        _ => format!("{:.1} GiB", number / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_answered_with_a_later_time() {
        let mut out = Vec::new();
        clock(&mut &b"a\n\nb"[..], &mut out).unwrap();
        let times: Vec<u128> = String::from_utf8(out)
            .unwrap()
            .lines()
            .map(|line| line.parse().unwrap())
            .collect();
        assert_eq!(times.len(), 3);
        assert!(times.is_sorted() && times[0] > 1_600_000_000_000_000_000);
    }

    #[test]
    fn sizes_are_shown_in_binary_units() {
        for (bytes, wanted) in [
            (5, "5 bytes"),
            (1536, "1.5 KiB"),
            (64 << 20, "64.0 MiB"),
            (3 << 30, "3.0 GiB"),
        ] {
            assert_eq!(size(bytes), wanted);
        }
    }
}
