//! Which part of a model a tensor belongs to, and how large each part is. Decides only; cuts nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{GgufError, Result};
use crate::header::Gguf;

/// A part of a model that can be held on its own. Ordered as in a forward pass.
///
/// As text: `metadata`, `embedding`, `layer-0003`, `output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Slice {
    /// All metadata, tokenizer included; no tensors.
    Metadata,
    /// The token embedding.
    Embedding,
    /// One layer, counted from 0.
    Layer(u32),
    /// The final norm and, unless tied to the embedding, the output matrix.
    Output,
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slice::Metadata => f.write_str("metadata"),
            Slice::Embedding => f.write_str("embedding"),
            Slice::Layer(n) => write!(f, "layer-{n:04}"),
            Slice::Output => f.write_str("output"),
        }
    }
}

impl FromStr for Slice {
    type Err = GgufError;

    fn from_str(text: &str) -> Result<Slice> {
        let slice = match text {
            "metadata" => Some(Slice::Metadata),
            "embedding" => Some(Slice::Embedding),
            "output" => Some(Slice::Output),
            other => other
                .strip_prefix("layer-")
                .and_then(|n| n.parse().ok())
                .map(Slice::Layer),
        };
        // Only the one canonical spelling, so that a slice has one file name.
        slice
            .filter(|s| s.to_string() == text)
            .ok_or_else(|| GgufError::BadSlice { text: text.into() })
    }
}

impl TryFrom<String> for Slice {
    type Error = GgufError;

    fn try_from(text: String) -> Result<Slice> {
        text.parse()
    }
}

impl From<Slice> for String {
    fn from(slice: Slice) -> String {
        slice.to_string()
    }
}

impl Slice {
    /// All slices of a model with this many layers, in order.
    pub fn all(layers: u32) -> Vec<Slice> {
        let mut all = vec![Slice::Metadata, Slice::Embedding];
        all.extend((0..layers).map(Slice::Layer));
        all.push(Slice::Output);
        all
    }
}

/// Where a tensor belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In one slice.
    In(Slice),
    /// Small and needed by every layer (rope factors): copied into each layer's piece.
    EveryLayer,
}

/// Where the tensor of this name belongs.
///
/// # Errors
/// A name that follows no known rule is an error: placing it by guess would lose it silently.
pub fn slice_of(tensor: &str) -> Result<Home> {
    let unknown = || GgufError::UnknownPlace {
        tensor: tensor.into(),
    };
    // The rope factors are named in full, so that a file holds at most three such tensors.
    if let "rope_freqs.weight" | "rope_factors_long.weight" | "rope_factors_short.weight" = tensor {
        return Ok(Home::EveryLayer);
    }
    let (first, rest) = tensor.split_once('.').unwrap_or((tensor, ""));
    Ok(match first {
        "token_embd" | "token_embd_norm" | "token_types" | "position_embd" => {
            Home::In(Slice::Embedding)
        }
        "output" | "output_norm" => Home::In(Slice::Output),
        "blk" => {
            let number = rest.split('.').next().unwrap_or("");
            let layer: u32 = number.parse().map_err(|_| unknown())?;
            if layer.to_string() != number {
                return Err(unknown());
            }
            Home::In(Slice::Layer(layer))
        }
        _ => return Err(unknown()),
    })
}

/// One slice's tensors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceSize {
    /// The slice.
    pub slice: Slice,
    /// Bytes of its tensors, without header and padding.
    pub bytes: u64,
    /// Names of its tensors in the order of the file's data.
    pub tensors: Vec<String>,
}

/// A model's parts with their sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSize {
    /// `general.architecture`.
    pub architecture: String,
    /// Number of layers.
    pub layers: u32,
    /// Whether the output uses the embedding's matrix (the file has no `output.weight`); the last
    /// stage then also needs the embedding slice.
    pub tied_output: bool,
    /// Bytes of the header: metadata and tensor table.
    pub header_bytes: u64,
    /// All slices in order, the metadata (without tensors) first.
    pub slices: Vec<SliceSize>,
}

impl ModelSize {
    /// One slice.
    pub fn slice(&self, slice: Slice) -> Option<&SliceSize> {
        self.slices
            .binary_search_by(|s| s.slice.cmp(&slice))
            .ok()
            .and_then(|i| self.slices.get(i))
    }

    /// Tensor bytes of one slice; 0 for one that does not exist.
    pub fn bytes(&self, slice: Slice) -> u64 {
        self.slice(slice).map_or(0, |s| s.bytes)
    }

    /// Tensor bytes of all slices; tensors that every layer holds count once for each.
    pub fn total(&self) -> u64 {
        self.slices
            .iter()
            .fold(0, |sum, s| sum.saturating_add(s.bytes))
    }
}

/// Sizes all parts of a model.
///
/// # Errors
/// When a tensor has an unknown type or place, a layer is empty or beyond the count in the
/// metadata, the embedding is missing, or the file is one of a split set.
pub fn model_size(gguf: &Gguf) -> Result<ModelSize> {
    let metadata = gguf.metadata();
    if let Some(count) = metadata.get_u64("split.count")?
        && count > 1
    {
        return Err(GgufError::SplitFile { count });
    }
    let architecture = metadata.arch()?.to_owned();
    let counted = metadata.arch_u64("block_count")?;
    let layers = u32::try_from(counted)
        .ok()
        .filter(|n| *n < u32::MAX)
        .ok_or_else(|| GgufError::OutOfRange {
            key: format!("{architecture}.block_count"),
            wanted: "number of layers",
            found: counted.to_string(),
        })?;
    gguf.require_tensor("token_embd.weight")?;

    let mut order: Vec<_> = gguf.tensors().iter().collect();
    order.sort_by_key(|t| (t.offset, t.bytes));
    let mut found: BTreeMap<Slice, SliceSize> = BTreeMap::new();
    let mut add = |slice: Slice, name: &str, bytes: u64| {
        let entry = found.entry(slice).or_insert_with(|| SliceSize {
            slice,
            bytes: 0,
            tensors: Vec::new(),
        });
        entry.bytes = entry.bytes.saturating_add(bytes);
        entry.tensors.push(name.to_owned());
    };
    // A first pass sees which layers exist, so that a hostile count allocates nothing.
    let mut present = std::collections::BTreeSet::new();
    for t in &order {
        if let Home::In(Slice::Layer(n)) = slice_of(&t.name)? {
            if n >= layers {
                return Err(GgufError::NoSuchLayer {
                    tensor: t.name.clone(),
                    layer: n.into(),
                    layers,
                });
            }
            present.insert(n);
        }
    }
    if let Some(layer) = (0..layers).find(|n| !present.contains(n)) {
        return Err(GgufError::EmptyLayer { layer, layers });
    }
    for t in &order {
        let bytes = t.known_bytes()?;
        match slice_of(&t.name)? {
            Home::In(slice) => add(slice, &t.name, bytes),
            Home::EveryLayer => {
                for n in 0..layers {
                    add(Slice::Layer(n), &t.name, bytes);
                }
            }
        }
    }
    add(Slice::Metadata, "", 0);
    add(Slice::Output, "", 0);
    let mut slices: Vec<SliceSize> = found.into_values().collect();
    for s in &mut slices {
        s.tensors.retain(|name| !name.is_empty());
    }
    Ok(ModelSize {
        tied_output: gguf.tensor("output.weight").is_none(),
        architecture,
        layers,
        header_bytes: gguf.data_start().min(gguf.file_len()),
        slices,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_to_their_slices() {
        let cases = [
            ("token_embd.weight", Home::In(Slice::Embedding)),
            ("blk.0.attn_q.weight", Home::In(Slice::Layer(0))),
            ("blk.31.ffn_down_exps.weight", Home::In(Slice::Layer(31))),
            ("output_norm.weight", Home::In(Slice::Output)),
            ("output.weight", Home::In(Slice::Output)),
            ("rope_freqs.weight", Home::EveryLayer),
        ];
        for (name, home) in cases {
            assert_eq!(slice_of(name).unwrap(), home, "{name}");
        }
    }

    #[test]
    fn a_name_without_a_rule_is_refused_by_name() {
        for name in [
            "",
            "blk",
            "blk.x.attn",
            "blk.01.attn",
            "blk.-1.a",
            "blk.99999999999.a",
            "v.blk.0.attn",
            "outputs.weight",
        ] {
            let text = slice_of(name).unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn slices_read_back_from_text_only_in_canonical_form() {
        for slice in Slice::all(3) {
            assert_eq!(slice.to_string().parse::<Slice>().unwrap(), slice);
            let json = serde_json::to_string(&slice).unwrap();
            assert_eq!(serde_json::from_str::<Slice>(&json).unwrap(), slice);
        }
        assert_eq!(Slice::Layer(3).to_string(), "layer-0003");
        assert_eq!("layer-12345".parse::<Slice>().unwrap(), Slice::Layer(12345));
        for text in [
            "layer-3",
            "layer-+003",
            "layer-",
            "Output",
            "layer-00003",
            "x",
        ] {
            assert!(text.parse::<Slice>().is_err(), "{text}");
        }
    }
}
