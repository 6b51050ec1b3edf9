//! Tensors of mapped files as typed views, checked against the specification. Copies nothing but
//! the norms, which are a few kilobytes. Must not know how tensors are used.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use windlass_gguf::{Manifest, MappedGguf, Slice, load_manifest, manifest_file_name};

use super::error::EngineError;
use super::ops::kquant;
use super::ops::matrix::{Kernel, Matrix, SUPPORTED};
use super::spec::ModelSpec;

/// The most bytes of a manifest that are read.
const MAX_MANIFEST: u64 = 16 << 20;

/// A matrix in a mapped file.
#[derive(Clone, Debug)]
pub struct Weight {
    file: Arc<MappedGguf>,
    range: Range<usize>,
    kernel: Kernel,
    row_bytes: usize,
    rows: usize,
    columns: usize,
}

impl Weight {
    /// The matrix, for kernels.
    pub fn matrix(&self) -> Matrix<'_> {
        Matrix {
            bytes: self.file.bytes().get(self.range.clone()).unwrap_or(&[]),
            kernel: self.kernel,
            row_bytes: self.row_bytes,
            rows: self.rows,
            columns: self.columns,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Writes row `i` as floats to `out`, which is as long as a row. No such row: zeros.
    pub fn decode_row(&self, i: usize, out: &mut [f32]) {
        let start = i.saturating_mul(self.row_bytes);
        let bytes = self
            .matrix()
            .bytes
            .get(start..start.saturating_add(self.row_bytes));
        match bytes {
            Some(bytes) => self.kernel.decode(bytes, out),
            None => out.fill(0.0),
        }
    }
}

/// One layer's tensors.
#[derive(Debug)]
pub struct Layer {
    /// Norm before attention.
    pub attn_norm: Vec<f32>,
    /// Queries.
    pub q: Weight,
    /// Keys.
    pub k: Weight,
    /// Values.
    pub v: Weight,
    /// From heads back to the hidden state.
    pub o: Weight,
    /// Norm before the feed-forward part.
    pub ffn_norm: Vec<f32>,
    /// Gate.
    pub gate: Weight,
    /// Up.
    pub up: Weight,
    /// Down.
    pub down: Weight,
}

/// The tensors one stage holds.
#[derive(Debug)]
pub struct StageWeights {
    /// Token embedding, on the first stage.
    pub embedding: Option<Weight>,
    /// The layers held, in order.
    pub layers: Vec<Layer>,
    /// Final norm and output matrix, on the last stage.
    pub output: Option<(Vec<f32>, Weight)>,
    /// Divisors of the rotation frequencies.
    pub rope_freqs: Option<Vec<f32>>,
}

/// Mapped files of one model, with what the whole model is.
#[derive(Debug)]
pub struct Mapped {
    files: Vec<Arc<MappedGguf>>,
    /// The specification.
    pub spec: ModelSpec,
    /// Digest of the whole model; empty for a single file.
    pub model_sha256: String,
}

/// Which part of a model is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// First layer.
    pub first_layer: u32,
    /// Number of layers.
    pub layers: u32,
    /// Whether with the embedding.
    pub first: bool,
    /// Whether with the output.
    pub last: bool,
}

impl Mapped {
    /// Maps one whole file.
    pub fn file(path: &Path) -> Result<Mapped, EngineError> {
        let file = MappedGguf::open(path)?;
        Ok(Mapped {
            spec: ModelSpec::from_metadata(file.header().metadata())?,
            files: vec![Arc::new(file)],
            model_sha256: String::new(),
        })
    }

    /// Maps and checks only the pieces of one part. A file that differs from the manifest in a
    /// single byte is refused by name.
    pub fn pieces(dir: &Path, manifest: &str, part: Part) -> Result<Mapped, EngineError> {
        let manifest = read_manifest(dir, manifest)?;
        let mut slices = Vec::new();
        if part.first || (part.last && manifest.tied_output) {
            slices.push(Slice::Embedding);
        }
        let end = part.first_layer.saturating_add(part.layers);
        if end > manifest.layers {
            return Err(EngineError::Layers {
                first: part.first_layer,
                end,
                available: manifest.layers,
            });
        }
        slices.extend((part.first_layer..end).map(Slice::Layer));
        if part.last {
            slices.push(Slice::Output);
        }
        let mut files = Vec::new();
        for slice in slices {
            let entry = manifest.piece(slice).ok_or_else(|| EngineError::Piece {
                file: dir.join(manifest_name(&manifest)),
                reason: format!("it lists no piece {slice}"),
            })?;
            files.push(Arc::new(checked_piece(
                &dir.join(&entry.file),
                entry.bytes,
                &entry.sha256,
            )?));
        }
        let any = files.first().ok_or(EngineError::Layers {
            first: part.first_layer,
            end,
            available: manifest.layers,
        })?;
        Ok(Mapped {
            spec: ModelSpec::from_metadata(any.header().metadata())?,
            model_sha256: manifest.source_sha256,
            files,
        })
    }

    /// Bytes of the mapped files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes().len() as u64).sum()
    }

    /// The tensors of a part, each checked.
    pub fn weights(&self, part: Part) -> Result<StageWeights, EngineError> {
        let spec = &self.spec;
        self.refuse_unknown_tensors()?;
        let (hidden, ffn) = (spec.hidden, spec.ffn);
        let (q, k, v) = (
            spec.heads * spec.key_length,
            spec.kv_heads * spec.key_length,
            spec.kv_heads * spec.value_length,
        );
        let end = part.first_layer.saturating_add(part.layers);
        let layers = (part.first_layer..end)
            .map(|n| {
                let name = |what: &str| format!("blk.{n}.{what}.weight");
                Ok(Layer {
                    attn_norm: self.vector(&name("attn_norm"), hidden)?,
                    q: self.weight(&name("attn_q"), q, hidden)?,
                    k: self.weight(&name("attn_k"), k, hidden)?,
                    v: self.weight(&name("attn_v"), v, hidden)?,
                    o: self.weight(&name("attn_output"), hidden, spec.heads * spec.value_length)?,
                    ffn_norm: self.vector(&name("ffn_norm"), hidden)?,
                    gate: self.weight(&name("ffn_gate"), ffn, hidden)?,
                    up: self.weight(&name("ffn_up"), ffn, hidden)?,
                    down: self.weight(&name("ffn_down"), hidden, ffn)?,
                })
            })
            .collect::<Result<Vec<_>, EngineError>>()?;
        let embedding = || self.vocabulary_matrix("token_embd.weight");
        let output = if part.last {
            let matrix = match self.find("output.weight") {
                Some(_) => self.vocabulary_matrix("output.weight")?,
                None => embedding()?,
            };
            Some((self.vector("output_norm.weight", hidden)?, matrix))
        } else {
            None
        };
        let rope_freqs = match self.find("rope_freqs.weight") {
            Some(_) => {
                let divisors = self.vector("rope_freqs.weight", spec.rope_dims / 2)?;
                if let Some(bad) = divisors.iter().find(|d| !(d.is_finite() && **d > 0.0)) {
                    return Err(EngineError::Metadata {
                        key: "rope_freqs.weight".into(),
                        found: bad.to_string(),
                        expected: "positive numbers".into(),
                    });
                }
                Some(divisors)
            }
            None => None,
        };
        Ok(StageWeights {
            embedding: part.first.then(embedding).transpose()?,
            layers,
            output,
            rope_freqs,
        })
    }

    fn find(&self, name: &str) -> Option<&Arc<MappedGguf>> {
        self.files
            .iter()
            .find(|f| f.header().tensor(name).is_some())
    }

    /// A tensor that no step reads would silently change the answers.
    fn refuse_unknown_tensors(&self) -> Result<(), EngineError> {
        const GLOBAL: [&str; 4] = ["token_embd", "output_norm", "output", "rope_freqs"];
        const LAYER: [&str; 9] = [
            "attn_norm",
            "attn_q",
            "attn_k",
            "attn_v",
            "attn_output",
            "ffn_norm",
            "ffn_gate",
            "ffn_up",
            "ffn_down",
        ];
        for tensor in self.files.iter().flat_map(|f| f.header().tensors()) {
            let known = tensor.name.strip_suffix(".weight").is_some_and(|name| {
                match name.strip_prefix("blk.") {
                    Some(rest) => rest
                        .split_once('.')
                        .is_some_and(|(_, what)| LAYER.contains(&what)),
                    None => GLOBAL.contains(&name),
                }
            });
            if !known {
                return Err(EngineError::UnexpectedTensor {
                    tensor: tensor.name.clone(),
                    architecture: self.spec.architecture.clone(),
                });
            }
        }
        Ok(())
    }

    /// A matrix with one row for each token; the metadata's size of the vocabulary, if any, binds.
    fn vocabulary_matrix(&self, name: &str) -> Result<Weight, EngineError> {
        let rows = match self.spec.vocab {
            Some(vocab) => vocab as u64,
            None => self
                .find(name)
                .and_then(|f| f.header().tensor(name))
                .and_then(|t| t.dims.get(1).copied())
                .unwrap_or(1),
        };
        self.weight(
            name,
            usize::try_from(rows).unwrap_or(usize::MAX),
            self.spec.hidden,
        )
    }

    fn weight(&self, name: &str, rows: usize, columns: usize) -> Result<Weight, EngineError> {
        let file = self.find(name).ok_or_else(|| EngineError::MissingTensor {
            tensor: name.into(),
        })?;
        let info = file.header().require_tensor(name)?;
        let mut expected = vec![columns as u64, rows as u64];
        let same = info.dims == expected || (rows == 1 && info.dims == [columns as u64]);
        if !same {
            if rows == 1 {
                expected.pop();
            }
            return Err(EngineError::Shape {
                tensor: name.into(),
                expected,
                found: info.dims.clone(),
            });
        }
        let bad_type = || EngineError::Type {
            tensor: name.into(),
            found: info.ty.name(),
            supported: SUPPORTED,
        };
        let kernel = Kernel::of(info.ty).ok_or_else(bad_type)?;
        let row_bytes = info
            .ty
            .row_bytes(columns as u64)
            .and_then(|n| usize::try_from(n).ok())
            .ok_or_else(bad_type)?;
        let bytes = file.tensor_bytes(name)?;
        if row_bytes.checked_mul(rows) != Some(bytes.len()) {
            return Err(EngineError::Length {
                what: "bytes of a tensor",
                found: bytes.len(),
                expected: row_bytes.saturating_mul(rows),
            });
        }
        if matches!(kernel, Kernel::K(_)) && !kquant::aligned(bytes) {
            return Err(EngineError::Piece {
                file: file.path().into(),
                reason: format!("tensor {name} starts at an odd address"),
            });
        }
        let start = bytes.as_ptr().addr() - file.bytes().as_ptr().addr();
        Ok(Weight {
            range: start..start + bytes.len(),
            file: Arc::clone(file),
            kernel,
            row_bytes,
            rows,
            columns,
        })
    }

    /// A small tensor, as floats.
    fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, EngineError> {
        let weight = self.weight(name, 1, length)?;
        let mut out = vec![0.0; length];
        weight.decode_row(0, &mut out);
        Ok(out)
    }
}

fn manifest_name(manifest: &Manifest) -> PathBuf {
    manifest_file_name(&manifest.source_sha256)
        .unwrap_or_default()
        .into()
}

fn read_manifest(dir: &Path, name: &str) -> Result<Manifest, EngineError> {
    #[derive(serde::Deserialize)]
    struct Head {
        source_sha256: String,
    }
    let path = dir.join(name);
    let bad = |reason: String| EngineError::Piece {
        file: path.clone(),
        reason,
    };
    let mut text = Vec::new();
    File::open(&path)
        .and_then(|f| f.take(MAX_MANIFEST).read_to_end(&mut text))
        .map_err(|e| bad(e.to_string()))?;
    let head: Head = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
    if manifest_file_name(&head.source_sha256)? != name {
        return Err(bad("it is the manifest of another model".into()));
    }
    load_manifest(dir, &head.source_sha256)?.ok_or_else(|| bad("it is gone".into()))
}

/// Maps a piece and checks the mapped bytes, so that what was checked is what is used.
fn checked_piece(path: &Path, bytes: u64, sha256: &str) -> Result<MappedGguf, EngineError> {
    let bad = |reason: String| EngineError::Piece {
        file: path.into(),
        reason,
    };
    let file = MappedGguf::open(path)?;
    let found = file.bytes().len() as u64;
    if found != bytes {
        return Err(bad(format!(
            "it has {found} bytes, the manifest says {bytes}"
        )));
    }
    let digest: String = Sha256::digest(file.bytes())
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    if digest != sha256 {
        return Err(bad(format!(
            "its SHA-256 is {digest}, the manifest says {sha256}"
        )));
    }
    Ok(file)
}
