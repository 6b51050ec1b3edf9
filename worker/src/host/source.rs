//! `source`: makes pieces of a model file on this host for others, and sends them on credit. What it
//! says and hears is described in [`windlass_wire::source`]. Must not know who gets the pieces.

use std::io::{self, BufRead, Write};

use windlass_gguf::{OpenGguf, Slice, piece_len, write_piece};
use windlass_wire::host::read_line;
use windlass_wire::source::{CREDIT, FromSource, SourceFile, ToSource};

use super::say;

/// Opens a model file, which must be the one that the controller looked at; the sentence says why
/// it is not.
///
/// # Errors
/// A sentence that names the path.
pub fn open(wanted: &SourceFile) -> Result<OpenGguf, String> {
    let source = OpenGguf::open(&wanted.path).map_err(|error| error.to_string())?;
    let is = source.stamp();
    let same = (is.bytes, is.modified.0, is.changed.0, is.inode)
        == (wanted.bytes, wanted.modified, wanted.changed, wanted.inode);
    if same {
        Ok(source)
    } else {
        Err(format!(
            "{} was changed since its digest was taken; run the command again when nothing writes to it",
            wanted.path
        ))
    }
}

/// Answers until the input ends; `false` when it has said why it could not.
///
/// # Errors
/// When the channel breaks, the controller breaks the protocol, or a piece cannot be made to its
/// end.
pub fn run(mut input: impl BufRead, mut output: impl Write) -> io::Result<bool> {
    let first = match read_line(&mut input)? {
        None => return Ok(true),
        Some(ToSource::Open { file }) => file,
        Some(_) => return protocol("the first line must name a file"),
    };
    let source = match open(&first) {
        Ok(source) => source,
        Err(reason) => {
            say(&mut output, &FromSource::Failed { reason })?;
            return Ok(false);
        }
    };
    say(&mut output, &FromSource::Opened)?;
    let mut credit = CREDIT;
    loop {
        let (slice, offset) = match read_line(&mut input)? {
            None => return Ok(true),
            Some(ToSource::More { bytes }) => {
                credit = credit.saturating_add(bytes);
                continue;
            }
            Some(ToSource::Piece { slice, offset }) => (slice, offset),
            Some(ToSource::Open { .. }) => return protocol("a file is open already"),
        };
        let length = slice.parse::<Slice>().and_then(|slice| {
            let bytes = piece_len(source.header(), &first.sha256, slice)?;
            Ok((slice, bytes))
        });
        let (slice, bytes) = match length {
            Ok((slice, bytes)) if offset <= bytes => (slice, bytes),
            Ok((_, bytes)) => {
                return protocol(&format!("{slice} has {bytes} bytes, not {offset}"));
            }
            Err(error) => {
                let reason = format!("{}: {error}", first.path);
                say(&mut output, &FromSource::Failed { reason })?;
                return Ok(false);
            }
        };
        let bytes = bytes - offset;
        say(&mut output, &FromSource::Bytes { bytes })?;
        let mut out = OnCredit {
            input: &mut input,
            output: &mut output,
            credit: &mut credit,
        };
        let entry = write_piece(&source, &first.sha256, slice, offset, &mut out)
            .map_err(io::Error::other)?;
        let made = FromSource::Made {
            bytes: entry.bytes,
            sha256: entry.sha256,
        };
        say(&mut output, &made)?;
    }
}

fn protocol<T>(what: &str) -> io::Result<T> {
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the controller broke the protocol: {what}"),
    ))
}

/// Writes only as much as the controller allowed, and waits for more.
struct OnCredit<'a, I, O> {
    input: &'a mut I,
    output: &'a mut O,
    credit: &'a mut u64,
}

impl<I: BufRead, O: Write> Write for OnCredit<'_, I, O> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while *self.credit == 0 {
            match read_line(self.input)? {
                Some(ToSource::More { bytes }) => *self.credit = bytes,
                Some(_) => return protocol("only more credit was due"),
                None => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
        let most = usize::try_from(*self.credit).unwrap_or(usize::MAX);
        let now = bytes.get(..most).unwrap_or(bytes);
        let written = self.output.write(now)?;
        *self.credit -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sha2::{Digest, Sha256};
    use windlass_gguf::{TinySpec, tiny_llama};
    use windlass_wire::host::line;

    use super::*;

    fn model(folder: &Path) -> SourceFile {
        let path = folder.join("tiny.gguf");
        tiny_llama(&TinySpec::default(), &path).unwrap();
        let stamp = *OpenGguf::open(&path).unwrap().stamp();
        let digest = Sha256::digest(std::fs::read(&path).unwrap());
        SourceFile {
            path: path.display().to_string(),
            bytes: stamp.bytes,
            modified: stamp.modified.0,
            changed: stamp.changed.0,
            inode: stamp.inode,
            sha256: windlass_gguf::hex(&digest),
        }
    }

    fn said(asked: &[ToSource]) -> (io::Result<bool>, Vec<u8>) {
        let input: Vec<u8> = asked.iter().flat_map(line).collect();
        let mut output = Vec::new();
        let ended = run(input.as_slice(), &mut output);
        (ended, output)
    }

    fn piece(slice: &str, offset: u64) -> ToSource {
        ToSource::Piece {
            slice: slice.into(),
            offset,
        }
    }

    #[test]
    fn a_piece_comes_from_its_offset_on_with_the_digest_of_all_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = model(folder.path());
        let source = open(&file).unwrap();
        let mut wanted = Vec::new();
        let entry = write_piece(&source, &file.sha256, Slice::Layer(1), 0, &mut wanted).unwrap();
        let open = ToSource::Open { file };
        let (ended, output) = said(&[open, piece("layer-0001", 10)]);
        assert!(ended.unwrap());
        let mut from = output.as_slice();
        assert_eq!(read_line(&mut from).unwrap(), Some(FromSource::Opened));
        let bytes = entry.bytes - 10;
        let due = FromSource::Bytes { bytes };
        assert_eq!(read_line(&mut from).unwrap(), Some(due));
        let (raw, mut rest) = from.split_at(bytes as usize);
        assert!(raw == &wanted[10..]);
        let made = FromSource::Made {
            bytes: entry.bytes,
            sha256: entry.sha256,
        };
        assert_eq!(read_line(&mut rest).unwrap(), Some(made));
    }

    #[test]
    fn no_more_is_sent_than_was_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let file = model(folder.path());
        let source = open(&file).unwrap();
        let mut credit = 7;
        let more = line(&ToSource::More { bytes: 5 });
        let (mut input, mut output) = (more.as_slice(), Vec::new());
        let mut out = OnCredit {
            input: &mut input,
            output: &mut output,
            credit: &mut credit,
        };
        // The controller goes away after twelve bytes.
        let ended = write_piece(&source, &file.sha256, Slice::Output, 0, &mut out);
        assert!(ended.is_err());
        assert_eq!(output.len(), 12);
    }

    #[test]
    fn a_file_that_is_gone_foreign_or_another_than_before_is_refused_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = model(folder.path());
        let foreign = folder.path().join("foreign.gguf");
        std::fs::write(&foreign, "no model").unwrap();
        let at = |path: &str| SourceFile {
            path: path.into(),
            ..file.clone()
        };
        for (file, wanted) in [
            (at("/nowhere/x.gguf"), "No such file"),
            (at(&foreign.display().to_string()), "not a GGUF"),
            (at("/"), "regular file"),
            (
                SourceFile {
                    inode: file.inode + 1,
                    ..file.clone()
                },
                "changed since",
            ),
        ] {
            let path = file.path.clone();
            let (ended, output) = said(&[ToSource::Open { file }]);
            assert!(!ended.unwrap());
            let Some(FromSource::Failed { reason }) = read_line(&mut output.as_slice()).unwrap()
            else {
                panic!("{output:?}");
            };
            assert!(
                reason.contains(wanted) && reason.contains(&path),
                "{reason}"
            );
        }
    }

    #[test]
    fn a_slice_that_the_model_has_not_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = model(folder.path());
        let open = ToSource::Open { file };
        for slice in ["layer-9999", "../etc"] {
            let (ended, output) = said(&[open.clone(), piece(slice, 0)]);
            assert!(!ended.unwrap(), "{slice}");
            assert!(String::from_utf8_lossy(&output).contains("failed"));
        }
        let (ended, _) = said(&[open, piece("output", 1 << 40)]);
        assert!(ended.unwrap_err().to_string().contains("protocol"));
    }
}
