//! A wanted file that is made of a model file on this host: no byte of it comes over the channel.

use std::io::{self, BufRead, Write};

use sha2::Sha256;
use windlass_gguf::{GgufError, OpenGguf, PieceEntry, Slice, write_piece};
use windlass_wire::host::FromReceiver;
use windlass_wire::source::SourceFile;

use super::super::intake::{End, Poured, hex, pour, widen};
use super::super::source;
use super::store::Arrived;
use super::{ReceiveError, Receiver, Result, part_of, protocol};

/// A model file that stays open between pieces.
pub(super) struct Opened {
    file: SourceFile,
    source: OpenGguf,
}

impl<I: BufRead, O: Write + Send> Receiver<'_, '_, I, O> {
    /// Makes one file.
    pub(super) fn make(
        &mut self,
        name: &str,
        bytes: u64,
        slice: &str,
        file: SourceFile,
    ) -> Result<()> {
        match self.wanted.get(name) {
            Some(wanted) if wanted.bytes == bytes => {}
            _ => return protocol(format!("{name} with {bytes} bytes was not wanted")),
        }
        let Ok(slice) = slice.parse::<Slice>() else {
            return protocol(format!("{slice:?} is no slice"));
        };
        let sha256 = file.sha256.clone();
        let opened = match self.opened.take().filter(|opened| opened.file == file) {
            Some(opened) => opened,
            None => match source::open(&file) {
                Ok(source) => Opened { file, source },
                Err(reason) => return self.unmade(name, reason),
            },
        };
        let path = self.folder.join(name);
        let part = part_of(&path);
        let (mut target, hasher) = match self.begin(name, &path, &part) {
            Ok(begun) => begun,
            Err(error) => return self.broken(name, &part, bytes, &error),
        };
        let made = through(&opened.source, &sha256, slice, bytes, &mut target, hasher);
        self.opened = Some(opened);
        let (poured, entry) = match made {
            Ok(made) => made,
            Err(error) => return self.broken(name, &part, bytes, &error),
        };
        if let End::Unwritten(error) = poured.end {
            return self.broken(name, &part, bytes, &error);
        }
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                self.forget(name, &part);
                return self.unmade(name, error.to_string());
            }
        };
        let digest = hex(poured.hasher);
        let wanted = self.wanted.get(name).and_then(|file| file.sha256.clone());
        let right = entry.sha256 == digest && wanted.is_none_or(|wanted| wanted == digest);
        if !right || entry.bytes != bytes {
            self.forget(name, &part);
            let reason = format!("{name} came out with the digest {digest} and is another piece");
            return self.unmade(name, reason);
        }
        self.store(Arrived {
            name: name.to_owned(),
            bytes,
            file: target,
            source: part,
            path,
            sha256: digest,
            received: 0,
        })
    }

    fn unmade(&mut self, name: &str, reason: String) -> Result<()> {
        self.settle()?;
        let bad = FromReceiver::Bad {
            file: name.to_owned(),
            reason: reason.clone(),
        };
        self.shared.say(&bad)?;
        Err(ReceiveError::Told(reason))
    }
}

/// Makes a piece into a file; the way of all pieces, by which it is hashed once more.
fn through(
    source: &OpenGguf,
    sha256: &str,
    slice: Slice,
    bytes: u64,
    target: &mut std::fs::File,
    hasher: Sha256,
) -> io::Result<(Poured, std::result::Result<PieceEntry, GgufError>)> {
    let (mut from, mut to) = io::pipe()?;
    widen(&to);
    Ok(std::thread::scope(|scope| {
        let making = scope.spawn(move || write_piece(source, sha256, slice, 0, &mut to));
        let poured = pour(&mut from, bytes, target, hasher);
        // Whoever still writes is not waited for.
        drop(from);
        let entry = making.join().unwrap_or_else(|_| {
            Err(GgufError::Changed {
                path: source.path().display().to_string(),
            })
        });
        (poured, entry)
    }))
}
