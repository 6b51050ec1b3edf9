//! The files of known hosts on this machine. Must not know what is in them.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::KnownHosts;

/// The most that is read of a file, bytes.
const MOST: u64 = 16 << 20;

/// Reads these files, in this order. One that does not exist is empty; one that cannot be read is
/// remembered as such.
pub fn read<P: AsRef<Path>>(files: impl IntoIterator<Item = P>) -> KnownHosts {
    files
        .into_iter()
        .map(|file| one(file.as_ref()))
        .fold(KnownHosts::default(), KnownHosts::and)
}

fn one(path: &Path) -> KnownHosts {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        fs::File::open(path)?
            .take(MOST + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST {
            return Err(io::Error::other(format!(
                "it is larger than {} MiB",
                MOST >> 20
            )));
        }
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => KnownHosts::parse(path, &bytes),
        // A folder of the path that is a file, or a link to nowhere, holds nothing either.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            KnownHosts::default()
        }
        Err(error) => KnownHosts::unreadable(path, error.to_string()),
    }
}

/// Adds a line to a file, which is made (0600, its folder 0700) when it is not there. Nothing else
/// in it is touched; a last line without an end gets one first.
///
/// # Errors
/// When the file is a link (a link would let someone else choose what is written to), or cannot be
/// written.
pub fn append(path: &Path, line: &str) -> io::Result<()> {
    if let Some(folder) = path.parent()
        && !folder.as_os_str().is_empty()
    {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_symlink()) {
        return Err(io::Error::other(format!(
            "{} is a link; add the line yourself: {line}",
            path.display()
        )));
    }
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let begin = if last == [b'\n'] { "" } else { "\n" };
    // One write, so that two who add a line at once do not mix theirs.
    file.write_all(format!("{begin}{line}\n").as_bytes())?;
    file.sync_all()
}
