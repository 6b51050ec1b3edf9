//! Reads a tree to the last byte and tells a digest for every folder: two trees of the same digests hold
//! the same. Folders' own times are left out, since unpacking beside them changes those.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use windlass_wire::carry::{Read, Reading};

use super::tell;
use super::tree::{Entry, Tree};

/// Bytes read at a time.
const CHUNK: usize = 256 << 10;
/// How often progress is told.
const EVERY: Duration = Duration::from_millis(500);
/// Most bytes of the names of a file's attributes, and of one attribute.
const MOST_XATTR: usize = 64 << 10;

/// Attributes that count: the user's, capabilities and access lists. Others are the system's own and made
/// anew by it.
fn counts(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || name == b"security.capability"
        || name.starts_with(b"system.posix_acl_")
}

/// Reads; `false` when it has said why it could not.
pub fn run(order: &Read, output: &mut impl Write) -> bool {
    let mut reader = Reader {
        output,
        since: order.since.unwrap_or(u64::MAX),
        plain: order.plain,
        each: !order.each.is_empty(),
        first: BTreeMap::new(),
        files: 0,
        bytes: 0,
        told: Instant::now(),
        buffer: vec![0; CHUNK],
    };
    let done = Tree::new(&order.folder, &order.leave).and_then(|tree| match reader.each {
        true => reader.files(&tree, &order.each),
        false => reader.folders(&tree),
    });
    let last = match done {
        Ok(()) => Reading::Done {
            files: reader.files,
            bytes: reader.bytes,
        },
        Err(reason) => Reading::Failed { reason },
    };
    let whole = matches!(last, Reading::Done { .. });
    tell(output, &last);
    whole
}

struct Reader<'a, W> {
    output: &'a mut W,
    since: u64,
    plain: bool,
    /// Whether files are told one by one.
    each: bool,
    /// The first path of every file that has several.
    first: BTreeMap<u64, Vec<u8>>,
    files: u64,
    bytes: u64,
    told: Instant,
    buffer: Vec<u8>,
}

/// When a file's inode changed last, nanoseconds since 1970.
fn changed(metadata: &std::fs::Metadata) -> u64 {
    let seconds = u64::try_from(metadata.ctime()).unwrap_or(0);
    let nanos = u64::try_from(metadata.ctime_nsec()).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

impl<W: Write> Reader<'_, W> {
    fn folders(&mut self, tree: &Tree) -> Result<(), String> {
        let top = tree
            .top()
            .map_err(|error| format!("the folder is gone: {error}"))?;
        let mut left = vec![(Vec::new(), changed(&top))];
        while let Some((path, time)) = left.pop() {
            let mut digest = Sha256::new();
            let mut moved = time >= self.since;
            if path.is_empty() && !self.plain {
                for number in [top.mode(), top.uid(), top.gid()] {
                    digest.update(number.to_le_bytes());
                }
                self.attributes(&tree.at(b""), &mut digest)?;
            }
            let mut below = Vec::new();
            for entry in tree.list(&path)? {
                moved |= changed(&entry.metadata) >= self.since;
                self.entry(tree, &entry, &mut digest, &mut moved)?;
                if tree.enters(&entry) {
                    below.push((entry.path, changed(&entry.metadata)));
                }
            }
            // What was made or removed since the folder around it was read.
            moved |= std::fs::symlink_metadata(tree.at(&path))
                .map_or(true, |now| changed(&now) >= self.since);
            below.reverse();
            left.extend(below);
            let message = Reading::Folder {
                path: String::from_utf8_lossy(&path).into_owned(),
                sha256: hex(&digest.finalize()),
                changed: moved,
            };
            tell(self.output, &message);
        }
        Ok(())
    }

    /// Tells what lies in some folders one by one.
    fn files(&mut self, tree: &Tree, folders: &[String]) -> Result<(), String> {
        for folder in folders {
            let path = folder.as_bytes();
            // It may have become something else.
            if !std::fs::symlink_metadata(tree.at(path)).is_ok_and(|now| now.is_dir()) {
                continue;
            }
            for entry in tree.list(path)? {
                let mut digest = Sha256::new();
                let mut moved = changed(&entry.metadata) >= self.since;
                self.entry(tree, &entry, &mut digest, &mut moved)?;
                let message = Reading::File {
                    path: String::from_utf8_lossy(&entry.path).into_owned(),
                    sha256: hex(&digest.finalize()),
                    changed: moved,
                };
                tell(self.output, &message);
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        tree: &Tree,
        entry: &Entry,
        digest: &mut Sha256,
        moved: &mut bool,
    ) -> Result<(), String> {
        let at = tree.at(&entry.path);
        let metadata = &entry.metadata;
        let kind = metadata.file_type();
        self.files += 1;
        field(digest, entry.name());
        let (mode, uid, gid) = (metadata.mode(), metadata.uid(), metadata.gid());
        let numbers = match self.plain {
            true => [mode & libc::S_IFMT, 0, 0],
            false => [mode, uid, gid],
        };
        for number in numbers {
            digest.update(number.to_le_bytes());
        }
        if kind.is_symlink() {
            match std::fs::read_link(&at) {
                Ok(to) => field(digest, to.as_os_str().as_encoded_bytes()),
                Err(error) => return self.vanished(&at, &error, moved),
            }
            return Ok(());
        }
        if kind.is_block_device() || kind.is_char_device() {
            digest.update(metadata.rdev().to_le_bytes());
        }
        if !self.plain {
            self.attributes(&at, digest)?;
        }
        if !kind.is_file() {
            return Ok(());
        }
        if !self.plain {
            digest.update(metadata.mtime().to_le_bytes());
        }
        // Of some folders not all names are seen.
        if metadata.nlink() > 1 && !self.each {
            let path = entry.path.clone();
            if let Some(first) = self.first.get(&metadata.ino()) {
                field(digest, first);
                return Ok(());
            }
            self.first.insert(metadata.ino(), path);
        }
        match self.contents(&at, digest) {
            Ok(time) => {
                *moved |= time >= self.since;
                Ok(())
            }
            Err(error) => self.vanished(&at, &error, moved),
        }
    }

    /// A file that is gone while it is read changed; anything else is an error.
    fn vanished(&self, at: &Path, error: &io::Error, moved: &mut bool) -> Result<(), String> {
        if error.kind() == io::ErrorKind::NotFound && self.since != u64::MAX {
            *moved = true;
            return Ok(());
        }
        Err(format!("{}: {error}", at.display()))
    }

    /// Reads a file; when it changed last, as of the end of that.
    fn contents(&mut self, at: &Path, digest: &mut Sha256) -> io::Result<u64> {
        let mut file = File::open(at)?;
        let mut own = Sha256::new();
        let mut length = 0u64;
        loop {
            let got = match file.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            own.update(self.buffer.get(..got).unwrap_or_default());
            length += got as u64;
            self.bytes += got as u64;
            if self.told.elapsed() >= EVERY {
                self.told = Instant::now();
                tell(self.output, &Reading::Moved { bytes: self.bytes });
            }
        }
        digest.update(length.to_le_bytes());
        digest.update(own.finalize());
        Ok(changed(&file.metadata()?))
    }

    fn attributes(&self, at: &Path, digest: &mut Sha256) -> Result<(), String> {
        let mut names = vec![0u8; MOST_XATTR];
        let got = match rustix::fs::llistxattr(at, names.as_mut_slice()) {
            Ok(got) => got,
            // A file system without them, or a file that is gone: its bytes say more.
            Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOENT) => return Ok(()),
            Err(error) => return Err(format!("{}: {error}", at.display())),
        };
        let mut all: Vec<&[u8]> = names
            .get(..got)
            .unwrap_or_default()
            .split(|byte| *byte == 0)
            .filter(|name| counts(name))
            .collect();
        all.sort_unstable();
        let mut value = vec![0u8; MOST_XATTR];
        for name in all {
            let got = match rustix::fs::lgetxattr(at, name, value.as_mut_slice()) {
                Ok(got) => got,
                // Gone since they were listed.
                Err(rustix::io::Errno::NODATA | rustix::io::Errno::NOENT) => continue,
                Err(error) => return Err(format!("{}: {error}", at.display())),
            };
            field(digest, name);
            field(digest, value.get(..got).unwrap_or_default());
        }
        Ok(())
    }
}

fn field(digest: &mut Sha256, bytes: &[u8]) {
    digest.update((bytes.len() as u64).to_le_bytes());
    digest.update(bytes);
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
