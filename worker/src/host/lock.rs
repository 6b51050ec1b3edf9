//! `lock`: holds a host for one run at a time. The lock is the kernel's, so it dies with the process
//! however that ends; the file's text only names the holder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use windlass_wire::host::Locked;

use super::{private_folder, say};

/// Name of the lock's file.
const FILE: &str = "lock";
/// Longest text of a holder, in bytes.
const MAX_HOLDER: usize = 1024;
/// How long a holder that has just taken the lock may need to write its name.
const NAMING: Duration = Duration::from_secs(1);
/// How often a lock that is held is tried, and the pause between.
const TRIES: u32 = 3;
const BETWEEN: Duration = Duration::from_secs(1);

/// Opens a file to lock, and to write the holder's name into.
///
/// # Errors
/// When it cannot be made.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
}

/// Writes who holds a locked file.
///
/// # Errors
/// When it cannot be written.
pub fn sign(mut file: &File, holder: &str) -> io::Result<()> {
    file.set_len(0)?;
    io::Seek::rewind(&mut file)?;
    file.write_all(plain(holder).as_bytes())
}

/// Who holds a file that is locked, in the holder's own words.
pub fn holder(path: &Path) -> String {
    let began = Instant::now();
    loop {
        let mut text = Vec::new();
        if let Ok(file) = File::open(path) {
            let _ = file.take(MAX_HOLDER as u64).read_to_end(&mut text);
        }
        let text = plain(&String::from_utf8_lossy(&text));
        if !text.is_empty() {
            return text;
        }
        if began.elapsed() > NAMING {
            return "someone who left no name".to_owned();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One line, no control characters: it is printed on terminals.
fn plain(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = text.chars().map(clean).take(MAX_HOLDER / 4).collect();
    text.trim().to_owned()
}

/// Takes the lock of a folder, says how that went, and holds it until the input ends. One that is held
/// is tried for a moment more: a run that was just ended, or killed, gives its lock back only when its
/// host has noticed.
///
/// # Errors
/// When nobody listens.
pub fn run(
    folder: &Path,
    name: &str,
    input: &mut impl Read,
    output: &mut impl Write,
) -> io::Result<bool> {
    let path = folder.join(FILE);
    let failed = |error: io::Error| Locked::Failed {
        reason: format!("the lock {} cannot be taken: {error}", path.display()),
    };
    let file = match private_folder(folder).and_then(|()| open(&path)) {
        Ok(file) => file,
        Err(error) => return say(output, &failed(error)).map(|()| false),
    };
    let mut tries = TRIES;
    while let Err(error) = file.try_lock() {
        tries -= 1;
        match error {
            TryLockError::WouldBlock if tries > 0 => std::thread::sleep(BETWEEN),
            TryLockError::WouldBlock => {
                let by = holder(&path);
                return say(output, &Locked::Taken { by }).map(|()| false);
            }
            TryLockError::Error(error) => {
                return say(output, &failed(error)).map(|()| false);
            }
        }
    }
    if let Err(error) = sign(&file, name) {
        return say(output, &failed(error)).map(|()| false);
    }
    say(output, &Locked::Held)?;
    io::copy(input, &mut io::sink())?;
    // The name goes before the lock: who comes next must not read it.
    file.set_len(0)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_wire::host::read_line;

    fn said(bytes: &[u8]) -> Locked {
        read_line(&mut &*bytes).unwrap().unwrap()
    }

    #[test]
    fn a_lock_names_its_holder_and_is_free_when_its_input_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (mut theirs, keep) = io::pipe().unwrap();
        let (told, mut tells) = io::pipe().unwrap();
        let path = folder.path().to_owned();
        let first = std::thread::spawn(move || run(&path, "a\u{1b}[2J@b", &mut theirs, &mut tells));
        let mut told = io::BufReader::new(told);
        assert_eq!(read_line(&mut told).unwrap(), Some(Locked::Held));

        let mut out = Vec::new();
        assert!(!run(folder.path(), "second", &mut io::empty(), &mut out).unwrap());
        let by = "a [2J@b".to_owned();
        assert_eq!(said(&out), Locked::Taken { by });

        drop(keep);
        assert!(first.join().unwrap().unwrap());
        let mut out = Vec::new();
        assert!(run(folder.path(), "second", &mut io::empty(), &mut out).unwrap());
        assert_eq!(said(&out), Locked::Held);
    }

    #[test]
    fn a_folder_that_cannot_be_is_said() {
        let mut out = Vec::new();
        run(Path::new("/dev/null/x"), "a", &mut io::empty(), &mut out).unwrap();
        assert!(matches!(said(&out), Locked::Failed { reason } if reason.contains("/dev/null/x")));
    }
}
