//! Cuts a model file into pieces, each a valid GGUF version 3 file with one slice's tensors, and
//! keeps the manifest that lists them with their digests. Knows no hosts and no plan: the caller
//! says which slices are wanted.
//!
//! A file appears under its name only when it is complete and on disk: it is written beside it
//! with the ending `.partial`, synced and renamed. One cut works in a folder at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{GgufError, Result};
use crate::header::{Gguf, TensorInfo};
use crate::map::MappedGguf;
use crate::metadata::{Metadata, Value};
use crate::partial::{HashingFile, Partial, PartialPath};
use crate::slice::{Home, ModelSize, Slice, model_size, slice_of};
use crate::write::{GgufWriter, TensorSpec};

/// Metadata key of a piece: its slice as text.
pub const KEY_SLICE: &str = "windlass.piece.slice";
/// Metadata key of a piece: the digest of the file it was cut from.
pub const KEY_SOURCE: &str = "windlass.piece.source_sha256";

/// Bytes read, hashed and written at a time.
const CHUNK: usize = 1 << 20;
/// The largest manifest that is read, in bytes.
const MAX_MANIFEST: u64 = 16 << 20;

/// A piece's file name: `{first 16 hexadecimal digits of the source's digest}-{slice}.gguf`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PieceName {
    /// The digest's first 16 hexadecimal digits.
    pub source: String,
    /// The slice.
    pub slice: Slice,
}

impl PieceName {
    /// The name for a slice of the file with this digest (64 hexadecimal digits).
    pub fn new(source_sha256: &str, slice: Slice) -> Result<PieceName> {
        Ok(PieceName {
            source: short(&checked_digest(source_sha256)?),
            slice,
        })
    }

    /// The file name.
    pub fn file(&self) -> String {
        format!("{}-{}.gguf", self.source, self.slice)
    }
}

impl FromStr for PieceName {
    type Err = GgufError;

    fn from_str(text: &str) -> Result<PieceName> {
        let bad = || GgufError::BadPieceName { text: text.into() };
        let (source, rest) = text.split_once('-').ok_or_else(bad)?;
        let slice = rest.strip_suffix(".gguf").ok_or_else(bad)?;
        if source.len() != 16 || !is_lower_hex(source) {
            return Err(bad());
        }
        Ok(PieceName {
            source: source.into(),
            slice: slice.parse().map_err(|_| bad())?,
        })
    }
}

/// One piece as the manifest lists it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct PieceEntry {
    /// What it holds.
    pub slice: Slice,
    /// File name, without folder.
    pub file: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the whole file, 64 hexadecimal digits.
    pub sha256: String,
}

/// All pieces of one source in one folder.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// SHA-256 of the file that was cut, 64 hexadecimal digits.
    pub source_sha256: String,
    /// `general.architecture`.
    pub architecture: String,
    /// Number of layers of the whole model.
    pub layers: u32,
    /// Whether the output uses the embedding's matrix.
    pub tied_output: bool,
    /// The pieces present, ordered by slice.
    pub pieces: Vec<PieceEntry>,
}

impl Manifest {
    /// The entry of a slice.
    pub fn piece(&self, slice: Slice) -> Option<&PieceEntry> {
        self.pieces.iter().find(|p| p.slice == slice)
    }
}

/// The manifest's file name: `{first 16 hexadecimal digits of the digest}-manifest.json`.
pub fn manifest_file_name(source_sha256: &str) -> Result<String> {
    Ok(format!(
        "{}-manifest.json",
        short(&checked_digest(source_sha256)?)
    ))
}

/// Reads and checks the manifest of a source in `dir`; `None` when there is none.
///
/// Checks form only: digests, that file names are the pieces' own and stay inside the folder, and
/// that it belongs to this source. [`verify_piece`] checks the files.
pub fn load_manifest(dir: &Path, source_sha256: &str) -> Result<Option<Manifest>> {
    let path = dir.join(manifest_file_name(source_sha256)?);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(GgufError::io("open", &path)(e)),
    };
    let mut text = Vec::new();
    file.take(MAX_MANIFEST + 1)
        .read_to_end(&mut text)
        .map_err(GgufError::io("read", &path))?;
    let bad = |reason: String| GgufError::BadManifest {
        path: path.display().to_string(),
        reason,
    };
    if text.len() as u64 > MAX_MANIFEST {
        return Err(bad(format!("it is longer than {MAX_MANIFEST} bytes")));
    }
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
    if manifest.source_sha256 != checked_digest(source_sha256)? {
        return Err(bad(format!(
            "it lists pieces of {}, not of {source_sha256}",
            manifest.source_sha256
        )));
    }
    let mut seen = BTreeSet::new();
    for piece in &manifest.pieces {
        let own = PieceName::new(source_sha256, piece.slice)?.file();
        if piece.file != own {
            return Err(bad(format!(
                "{:?} should be the file {own}, not {:?}",
                piece.slice, piece.file
            )));
        }
        if checked_digest(&piece.sha256)? != piece.sha256 {
            return Err(bad(format!("the digest of {own} is not in lower case")));
        }
        if !seen.insert(piece.slice)
            || matches!(piece.slice, Slice::Layer(n) if n >= manifest.layers)
        {
            return Err(bad(format!(
                "{} is listed twice or cannot exist",
                piece.slice
            )));
        }
    }
    Ok(Some(manifest))
}

/// Reads a whole piece and compares size and digest with its entry; errors name the file.
pub fn verify_piece(dir: &Path, entry: &PieceEntry) -> Result<()> {
    // The name may come from a peer: it must be a piece's, which cannot leave the folder.
    entry.file.parse::<PieceName>()?;
    let path = dir.join(&entry.file);
    let mut file = File::open(&path).map_err(GgufError::io("open", &path))?;
    let found = file.metadata().map_err(GgufError::io("read", &path))?.len();
    if found != entry.bytes {
        return Err(GgufError::SizeMismatch {
            path: path.display().to_string(),
            wanted: entry.bytes,
            found,
        });
    }
    let mut hasher = Sha256::new();
    io::copy(&mut file, &mut hasher).map_err(GgufError::io("read", &path))?;
    let found = hex(&hasher.finalize());
    if found != entry.sha256 {
        return Err(GgufError::DigestMismatch {
            path: path.display().to_string(),
            wanted: entry.sha256.clone(),
            found,
        });
    }
    Ok(())
}

/// Cuts the wanted slices of a mapped model into `dir` (made with mode 0700 when missing).
///
/// Pieces that the folder's manifest lists and that verify are kept and not written again; the
/// returned manifest, also written to the folder, lists these and the new ones.
/// `source_sha256` is the digest of the whole file; the caller vouches for it. `progress` gets the
/// tensor bytes written so far.
pub fn cut(
    source: &MappedGguf,
    source_sha256: &str,
    dir: &Path,
    wanted: &[Slice],
    progress: &mut dyn FnMut(u64),
) -> Result<Manifest> {
    let header = source.header();
    let job = Job::plan(header, source.path(), source_sha256, dir, wanted)?;
    let mut done = 0u64;
    let mut entries = Vec::new();
    for plan in &job.todo {
        let mut piece = OpenPiece::begin(&job, plan)?;
        for info in &plan.tensors {
            let bytes = source
                .bytes_of(info)
                .map_err(|error| error.in_file(source.path()))?;
            for chunk in bytes.chunks(CHUNK) {
                piece.writer.data(chunk)?;
                done += chunk.len() as u64;
                progress(done);
            }
        }
        entries.push(piece.complete()?.publish()?);
    }
    job.finish(entries)
}

/// Cuts the wanted slices out of a model file that arrives as a stream, in one pass and with
/// bounded memory (the header and one chunk). The pieces are byte for byte those of [`cut`].
///
/// `reader` starts at the file's first byte and must yield exactly `file_len` bytes with the
/// digest `source_sha256`; otherwise nothing is kept. When all wanted pieces are there already
/// (after the header was read), the rest is not read. `progress` gets the bytes read so far.
pub fn cut_stream(
    reader: &mut dyn Read,
    file_len: u64,
    source_sha256: &str,
    dir: &Path,
    wanted: &[Slice],
    progress: &mut dyn FnMut(u64),
) -> Result<Manifest> {
    let name = Path::new("the model's stream");
    let (header, start) = Gguf::read_from(reader, file_len, GgufError::io("read", name))
        .map_err(|error| error.in_file(name))?;
    let job = Job::plan(&header, name, source_sha256, dir, wanted)?;
    if job.todo.is_empty() {
        return job.finish(Vec::new());
    }
    let mut source = Stream {
        start: io::Cursor::new(start),
        reader,
        hasher: Sha256::new(),
        pos: 0,
        file_len,
        progress,
        buffer: vec![0; CHUNK],
    };
    // Which of the pieces each tensor goes to; a piece opens with its first tensor and is
    // completed with its last, so that few files are open at once.
    let mut order: Vec<&TensorInfo> = header.tensors().iter().collect();
    order.sort_by_key(|t| (t.offset, t.bytes));
    let mut targets: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut left: Vec<usize> = Vec::new();
    let mut open: BTreeMap<usize, OpenPiece> = BTreeMap::new();
    let mut complete: Vec<CompletePiece> = Vec::new();
    for (i, plan) in job.todo.iter().enumerate() {
        left.push(plan.tensors.len());
        for t in &plan.tensors {
            targets.entry(&t.name).or_default().push(i);
        }
        if plan.tensors.is_empty() {
            complete.push(OpenPiece::begin(&job, plan)?.complete()?);
        }
    }
    for info in order {
        let Some(pieces) = targets.get(info.name.as_str()) else {
            continue;
        };
        for i in pieces {
            if let (false, Some(plan)) = (open.contains_key(i), job.todo.get(*i)) {
                open.insert(*i, OpenPiece::begin(&job, plan)?);
            }
        }
        source.skip_to(header.data_start() + info.offset)?;
        source.pass(info.bytes, &mut |chunk| {
            for i in pieces {
                if let Some(piece) = open.get_mut(i) {
                    piece.writer.data(chunk)?;
                }
            }
            Ok(())
        })?;
        for i in pieces {
            if let Some(count) = left.get_mut(*i) {
                *count -= 1;
                if *count == 0
                    && let Some(piece) = open.remove(i)
                {
                    complete.push(piece.complete()?);
                }
            }
        }
    }
    source.skip_to(file_len)?;
    source.end(&job.source_sha256)?;
    let entries: Result<Vec<PieceEntry>> =
        complete.into_iter().map(CompletePiece::publish).collect();
    job.finish(entries?)
}

/// A source read once from front to back, hashed on the way.
struct Stream<'a> {
    /// What was read for the header.
    start: io::Cursor<Vec<u8>>,
    reader: &'a mut dyn Read,
    hasher: Sha256,
    pos: u64,
    file_len: u64,
    progress: &'a mut dyn FnMut(u64),
    buffer: Vec<u8>,
}

impl Stream<'_> {
    fn name() -> &'static Path {
        Path::new("the model's stream")
    }

    fn skip_to(&mut self, to: u64) -> Result<()> {
        self.pass(to.saturating_sub(self.pos), &mut |_| Ok(()))
    }

    /// Reads `count` bytes and gives them to `sink` in chunks.
    fn pass(&mut self, count: u64, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let end = self.pos.saturating_add(count);
        while self.pos < end {
            let most = usize::try_from(end - self.pos).unwrap_or(CHUNK).min(CHUNK);
            let Some(room) = self.buffer.get_mut(..most) else {
                return Ok(());
            };
            let mut source = Read::chain(&mut self.start, &mut *self.reader);
            let got = match source.read(room) {
                Ok(got) => got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(GgufError::io("read", Self::name())(e)),
            };
            let chunk = room.get(..got).unwrap_or(&[]);
            if chunk.is_empty() {
                return Err(GgufError::SizeMismatch {
                    path: Self::name().display().to_string(),
                    wanted: self.file_len,
                    found: self.pos,
                });
            }
            self.hasher.update(chunk);
            sink(chunk)?;
            self.pos += chunk.len() as u64;
            (self.progress)(self.pos);
        }
        Ok(())
    }

    /// Checks that the source ends here and had the digest that was promised.
    fn end(self, wanted: &str) -> Result<()> {
        let found = hex(&self.hasher.finalize());
        if found != wanted {
            return Err(GgufError::DigestMismatch {
                path: Self::name().display().to_string(),
                wanted: wanted.into(),
                found,
            });
        }
        Ok(())
    }
}

/// One cut: what is to be written where, with the folder locked until it ends.
struct Job {
    dir: PathBuf,
    source_sha256: String,
    /// The source's metadata without tokenizer arrays, for pieces that hold tensors.
    slim: Metadata,
    full: Metadata,
    manifest: Manifest,
    todo: Vec<PiecePlan>,
    /// The folder itself, locked.
    _lock: File,
}

struct PiecePlan {
    slice: Slice,
    /// In the order of the source's data.
    tensors: Vec<TensorInfo>,
}

impl Job {
    /// `name` is what errors about the source call it.
    fn plan(
        header: &Gguf,
        name: &Path,
        source_sha256: &str,
        dir: &Path,
        wanted: &[Slice],
    ) -> Result<Job> {
        let source_sha256 = checked_digest(source_sha256)?;
        let wanted: BTreeSet<Slice> = wanted.iter().copied().collect();
        let size = checked_size(header, &wanted).map_err(|error| error.in_file(name))?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(GgufError::io("create", dir))?;
        let lock = File::open(dir).map_err(GgufError::io("open", dir))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(GgufError::Busy {
                    path: dir.display().to_string(),
                });
            }
            Err(TryLockError::Error(e)) => return Err(GgufError::io("lock", dir)(e)),
        }
        // An unreadable manifest or a damaged piece only means that there is more to cut.
        let kept: Vec<PieceEntry> = load_manifest(dir, &source_sha256)
            .ok()
            .flatten()
            .map(|m| m.pieces)
            .unwrap_or_default()
            .into_iter()
            .filter(|p| size.slice(p.slice).is_some() && verify_piece(dir, p).is_ok())
            .collect();
        let mut todo = Vec::new();
        for slice in wanted {
            if kept.iter().any(|p| p.slice == slice) {
                continue;
            }
            todo.push(PiecePlan {
                slice,
                tensors: tensors_of(header, slice)?,
            });
        }
        Ok(Job {
            dir: dir.into(),
            slim: slim(header.metadata()),
            full: header.metadata().clone(),
            manifest: Manifest {
                source_sha256: source_sha256.clone(),
                architecture: size.architecture,
                layers: size.layers,
                tied_output: size.tied_output,
                pieces: kept,
            },
            source_sha256,
            todo,
            _lock: lock,
        })
    }

    /// Lists the new pieces beside the kept ones and writes the manifest.
    fn finish(self, new: Vec<PieceEntry>) -> Result<Manifest> {
        let mut manifest = self.manifest;
        manifest.pieces.extend(new);
        manifest.pieces.sort_by_key(|p| p.slice);
        let name = manifest_file_name(&manifest.source_sha256)?;
        let mut partial = Partial::create(&self.dir, &name)?;
        let path = partial.target.clone();
        let mut text = serde_json::to_vec_pretty(&manifest)
            .map_err(|e| GgufError::io("write", &path)(e.into()))?;
        text.push(b'\n');
        partial
            .file
            .write_all(&text)
            .map_err(GgufError::io("write", &path))?;
        partial
            .file
            .sync_all()
            .map_err(GgufError::io("write", &path))?;
        partial.publish()?;
        Ok(manifest)
    }
}

/// A slice's tensors, in the order of the source's data.
fn tensors_of(header: &Gguf, slice: Slice) -> Result<Vec<TensorInfo>> {
    let mut order: Vec<&TensorInfo> = header.tensors().iter().collect();
    order.sort_by_key(|t| (t.offset, t.bytes));
    let mut tensors = Vec::new();
    for t in order {
        let here = match slice_of(&t.name)? {
            Home::In(home) => home == slice,
            Home::EveryLayer => matches!(slice, Slice::Layer(_)),
        };
        if here {
            tensors.push(t.clone());
        }
    }
    Ok(tensors)
}

/// The metadata without the tokenizer's arrays.
fn slim(metadata: &Metadata) -> Metadata {
    let mut slim = Metadata::new();
    for (key, value) in metadata.iter() {
        let tokenizer_array = key.starts_with("tokenizer.") && matches!(value, Value::Array(_));
        if !tokenizer_array {
            slim.insert(key, value.clone());
        }
    }
    slim
}

/// A piece's metadata: the source's, and what it was cut from.
fn own_metadata(mut metadata: Metadata, source_sha256: &str, slice: Slice) -> Metadata {
    metadata.insert(KEY_SLICE, Value::String(slice.to_string()));
    metadata.insert(KEY_SOURCE, Value::String(source_sha256.to_owned()));
    metadata
}

/// What a slice's piece holds: its metadata, and its tensors in the order of the source's data.
pub(crate) fn describe(
    header: &Gguf,
    source_sha256: &str,
    slice: Slice,
) -> Result<(Metadata, Vec<TensorInfo>)> {
    let source_sha256 = checked_digest(source_sha256)?;
    checked_size(header, &BTreeSet::from([slice]))?;
    let base = match slice {
        Slice::Metadata => header.metadata().clone(),
        _ => slim(header.metadata()),
    };
    Ok((
        own_metadata(base, &source_sha256, slice),
        tensors_of(header, slice)?,
    ))
}

/// The source's parts, when it can be cut and has all wanted ones.
fn checked_size(header: &Gguf, wanted: &BTreeSet<Slice>) -> Result<ModelSize> {
    if let Some(slice) = header.metadata().get_str(KEY_SLICE)? {
        return Err(GgufError::AlreadyPiece {
            slice: slice.into(),
        });
    }
    let size = model_size(header)?;
    match wanted.iter().find(|s| size.slice(**s).is_none()) {
        None => Ok(size),
        Some(slice) => Err(GgufError::NoSuchSlice {
            slice: slice.to_string(),
            layers: size.layers,
        }),
    }
}

/// A piece being written.
struct OpenPiece {
    slice: Slice,
    writer: GgufWriter<HashingFile>,
}

/// A piece on disk under its temporary name; removed unless published.
struct CompletePiece {
    entry: PieceEntry,
    partial: PartialPath,
}

impl OpenPiece {
    fn begin(job: &Job, plan: &PiecePlan) -> Result<OpenPiece> {
        let name = PieceName::new(&job.source_sha256, plan.slice)?.file();
        let base = match plan.slice {
            Slice::Metadata => &job.full,
            _ => &job.slim,
        };
        let metadata = own_metadata(base.clone(), &job.source_sha256, plan.slice);
        let specs: Vec<TensorSpec> = plan
            .tensors
            .iter()
            .map(|t| TensorSpec {
                name: t.name.clone(),
                dims: t.dims.clone(),
                ty: t.ty,
            })
            .collect();
        let partial = Partial::create(&job.dir, &name)?;
        let path = partial.target.clone();
        let out = HashingFile {
            partial,
            hasher: Sha256::new(),
            bytes: 0,
        };
        Ok(OpenPiece {
            slice: plan.slice,
            writer: GgufWriter::begin(out, &path, &metadata, &specs)?,
        })
    }

    fn complete(self) -> Result<CompletePiece> {
        let out = self.writer.finish()?;
        let target = out.partial.target.clone();
        out.partial
            .file
            .sync_all()
            .map_err(GgufError::io("write", &target))?;
        let file = target
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        Ok(CompletePiece {
            entry: PieceEntry {
                slice: self.slice,
                file,
                bytes: out.bytes,
                sha256: hex(&out.hasher.finalize()),
            },
            partial: out.partial.close(),
        })
    }
}

impl CompletePiece {
    fn publish(self) -> Result<PieceEntry> {
        self.partial.publish()?;
        Ok(self.entry)
    }
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// The digest in lower case, when it is one.
fn checked_digest(text: &str) -> Result<String> {
    let lower = text.to_ascii_lowercase();
    if lower.len() == 64 && is_lower_hex(&lower) {
        Ok(lower)
    } else {
        Err(GgufError::BadDigest { text: text.into() })
    }
}

fn short(digest: &str) -> String {
    digest.chars().take(16).collect()
}

/// Bytes, a digest above all, as lower hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}
