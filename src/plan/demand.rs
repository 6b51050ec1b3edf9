//! What a model takes in memory on each stage: its pieces, keys and values, and what the worker
//! works with. Follows what the worker's engine allocates. Pure; knows no hosts.

use serde::{Deserialize, Serialize};
use windlass_gguf::{Array, Gguf, Metadata, Slice, Value, model_size, piece_len};

use super::{Parts, PlanError};

/// Tokens of context a sequence may have unless told otherwise; less when the model was made for
/// less.
pub const DEFAULT_CONTEXT: u32 = 4096;
/// Sequences of full context for which there is room unless told otherwise.
pub const DEFAULT_CONCURRENCY: u32 = 8;
/// Positions in a KV block, as the engine has it.
pub const BLOCK: u32 = 32;
/// Most rows in a micro-batch.
pub const BATCH_ROWS: u32 = 256;

/// Bytes of a float. Keys, values, hidden states and logits are all held as `f32`.
const FLOAT: u64 = 4;
/// Rows that share a pass over a sequence's keys, each with scores of its own, on every thread.
const TILE_ROWS: u64 = 8;
/// Micro-batches of hidden states in memory at once: the eight that the credit of a hop allows,
/// the one being computed and the one being read.
const FRAMES: u64 = 10;
/// Program, threads' stacks, TLS, allocator and counters, in bytes. Workers of a 135M model were
/// seen with 3 MiB of anonymous memory beside keys and values, and 12 MiB of program.
const BASE: u64 = 32 << 20;
/// Bytes for each token of the vocabulary on the head: its text in the metadata, in the table, and
/// as bytes (a 24-byte string and an allocation of 32 each), and its place in the table by text.
/// With [`PER_MERGE`] about a third above what was seen with 49152 tokens and as many merges.
const PER_TOKEN: u64 = 192;
/// Bytes for each merge on the head: its text in the metadata, and its place in the table.
const PER_MERGE: u64 = 112;
/// Mapped bytes for each byte of page table: 8 bytes for 4096.
const PAGE_TABLE: u64 = 512;

/// KV blocks for this many sequences of full context; a sequence's last block may be part empty.
pub fn kv_blocks(context: u32, concurrency: u32) -> u32 {
    concurrency.saturating_mul(context.div_ceil(BLOCK))
}

/// What a stage needs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// Its piece files, which are mapped and read at every step.
    pub pieces: u64,
    /// Keys and values when all blocks are in use.
    pub kv: u64,
    /// All else: scratch, buffers, tokenizer, the program itself.
    pub working: u64,
}

impl Need {
    /// All together.
    pub fn total(&self) -> u64 {
        self.pieces
            .saturating_add(self.kv)
            .saturating_add(self.working)
    }
}

/// Sizes of the model that memory depends on, in numbers of floats, tokens or bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    hidden: u64,
    ffn: u64,
    heads: u64,
    kv_heads: u64,
    key_length: u64,
    value_length: u64,
    rope_dims: u64,
    vocab: u64,
    /// Bytes of the tokenizer on the head.
    tokenizer: u64,
    /// Positions the model was made for.
    context: u32,
}

/// What a model takes with a given context and concurrency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Name of the model, for messages.
    pub model: String,
    /// Tensor bytes of its parts.
    pub parts: Parts,
    /// Tokens of context a sequence may have.
    pub context: u32,
    /// Sequences of full context for which there is room.
    pub concurrency: u32,
    /// Bytes of piece files: sums of layers before each layer, and of all.
    layers_before: Vec<u64>,
    metadata: u64,
    embedding: u64,
    output: u64,
    shape: Shape,
}

/// Larger numbers are refused, so that products of three fit 64 bits.
const MAX_SIZE: u64 = 1 << 24;

impl Demand {
    /// What the model with this header and digest takes. `context`: the default, or as much as the
    /// model was made for, when `None`.
    ///
    /// # Errors
    /// When the header lacks a size, the model cannot be cut, or was made for less context.
    pub fn of(
        model: &str,
        header: &Gguf,
        source_sha256: &str,
        context: Option<u32>,
        concurrency: u32,
    ) -> Result<Self, PlanError> {
        let size = model_size(header)?;
        let shape = Shape::of(header)?;
        let piece = |slice| piece_len(header, source_sha256, slice);
        let mut layers_before = vec![0u64];
        let mut sum = 0u64;
        for layer in 0..size.layers {
            sum = sum.saturating_add(piece(Slice::Layer(layer))?);
            layers_before.push(sum);
        }
        let context = context.unwrap_or(DEFAULT_CONTEXT.min(shape.context));
        let demand = Self {
            model: model.to_owned(),
            parts: Parts::of(&size),
            context,
            concurrency,
            layers_before,
            metadata: piece(Slice::Metadata)?,
            embedding: piece(Slice::Embedding)?,
            output: piece(Slice::Output)?,
            shape,
        };
        demand.checked()
    }

    fn checked(self) -> Result<Self, PlanError> {
        let blocks = u64::from(self.concurrency) * u64::from(self.context.div_ceil(BLOCK));
        if self.context == 0 || self.context > self.shape.context {
            return Err(PlanError::Context {
                model: self.model,
                asked: self.context,
                most: self.shape.context,
            });
        }
        if self.concurrency == 0 || u32::try_from(blocks).is_err() {
            return Err(PlanError::Concurrency {
                asked: self.concurrency,
                context: self.context,
            });
        }
        Ok(self)
    }

    /// The same with another context, which is not checked against the model's.
    #[must_use]
    pub fn with_context(&self, context: u32) -> Self {
        Self {
            context,
            ..self.clone()
        }
    }

    /// Positions the model was made for.
    pub fn most_context(&self) -> u32 {
        self.shape.context
    }

    /// KV blocks of each stage.
    pub fn kv_blocks(&self) -> u32 {
        kv_blocks(self.context, self.concurrency)
    }

    /// Bytes of one layer's keys and values in one block.
    pub fn kv_block_bytes(&self) -> u64 {
        let s = &self.shape;
        FLOAT * u64::from(BLOCK) * s.kv_heads * (s.key_length + s.value_length)
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.parts.layers.len()
    }

    /// What a stage with the layers `from..to` needs. `first`: it is the head, which embeds and
    /// holds the tokenizer; `last`: it computes logits and samples.
    pub fn need(&self, from: usize, to: usize, first: bool, last: bool, threads: u32) -> Need {
        let before = |i: usize| self.layers_before.get(i).copied().unwrap_or(0);
        let mut pieces = before(to).saturating_sub(before(from));
        if first {
            pieces = pieces.saturating_add(self.metadata);
        }
        if first || (last && self.parts.tied_output) {
            pieces = pieces.saturating_add(self.embedding);
        }
        if last {
            pieces = pieces.saturating_add(self.output);
        }
        let layers = to.saturating_sub(from) as u64;
        let kv = layers
            .saturating_mul(self.kv_block_bytes())
            .saturating_mul(u64::from(self.kv_blocks()));
        Need {
            pieces,
            kv,
            working: self
                .working(layers, first, last, threads)
                .saturating_add(pieces / PAGE_TABLE),
        }
    }

    /// Bytes besides pieces, their page tables, keys and values.
    fn working(&self, layers: u64, first: bool, last: bool, threads: u32) -> u64 {
        let s = &self.shape;
        let rows = u64::from(BATCH_ROWS);
        let (q, k, v) = (
            s.heads * s.key_length,
            s.kv_heads * s.key_length,
            s.kv_heads * s.value_length,
        );
        let attention = s.heads * s.value_length;
        let widest = [s.hidden, s.ffn, q, k, v]
            .into_iter()
            .max()
            .unwrap_or_default();
        // Norm and result are as wide as the hidden state; attention's outputs lie there twice, by
        // head and by row; gate and up; a product's transpose; sine and cosine for each pair.
        let floats = 2 * s.hidden + q + k + v + 2 * attention + 2 * s.ffn + widest + s.rope_dims;
        // Activations rounded to 8 bits, in blocks of 32 with scale and sum and in blocks of 256
        // with sums of 16: less than two bytes a number each.
        let rounded = 4 * s.hidden.max(s.ffn).max(attention);
        let scratch = rows * (FLOAT * floats + rounded);
        let frames = FRAMES * rows * FLOAT * s.hidden;
        let norms = FLOAT * s.hidden * (2 * layers + 1);
        let scores = [
            u64::from(threads.max(1)),
            TILE_ROWS,
            s.heads.div_ceil(s.kv_heads.max(1)),
            u64::from(self.context.next_multiple_of(BLOCK)),
        ]
        .into_iter()
        .fold(FLOAT, u64::saturating_mul);
        let mut bytes = [scratch, frames, norms, scores]
            .into_iter()
            .fold(BASE, u64::saturating_add);
        if last {
            // Logits and their transpose for every sequence that may sample in one micro-batch,
            // the candidates of every sampler (a float and an id), and one row as it was before
            // sampling.
            let sampling = u64::from(self.concurrency.min(BATCH_ROWS));
            let logits = sampling * (2 * FLOAT * s.vocab + FLOAT * s.hidden);
            let candidates = u64::from(self.concurrency).saturating_mul(8 * s.vocab);
            bytes = [logits, candidates, FLOAT * s.vocab]
                .into_iter()
                .fold(bytes, u64::saturating_add);
        }
        if first {
            bytes = bytes.saturating_add(s.tokenizer);
        }
        bytes
    }
}

impl Shape {
    /// With the same defaults as the engine's.
    fn of(header: &Gguf) -> Result<Self, PlanError> {
        let metadata = header.metadata();
        let bounded = |key: &str, value: u64| {
            if value == 0 || value > MAX_SIZE {
                return Err(PlanError::Size {
                    key: metadata.arch_key(key)?,
                    found: value,
                });
            }
            Ok(value)
        };
        let size = |key: &str| bounded(key, metadata.arch_u64(key)?);
        let size_or = |key: &str, default: u64| match metadata.get_arch_u64(key)? {
            Some(value) => bounded(key, value),
            None => Ok(default),
        };
        let hidden = size("embedding_length")?;
        let heads = size("attention.head_count")?;
        let head = (hidden / heads).max(1);
        let key_length = size_or("attention.key_length", head)?;
        let embedding = header.require_tensor("token_embd.weight")?;
        let rows = embedding.dims.get(1).copied().unwrap_or(1);
        let context = size("context_length")?;
        Ok(Self {
            hidden,
            ffn: size("feed_forward_length")?,
            heads,
            kv_heads: size_or("attention.head_count_kv", heads)?,
            key_length,
            value_length: size_or("attention.value_length", head)?,
            rope_dims: size_or("rope.dimension_count", key_length)?,
            vocab: size_or("vocab_size", 1)?.max(rows).min(MAX_SIZE),
            tokenizer: tokenizer(metadata),
            context: u32::try_from(context).unwrap_or(u32::MAX),
        })
    }
}

/// Bytes that the tokenizer takes, its texts three times over.
fn tokenizer(metadata: &Metadata) -> u64 {
    let list = |key: &str| match metadata.get(key) {
        Some(Value::Array(Array::String(texts))) => {
            let bytes: u64 = texts.iter().map(|text| text.len() as u64).sum();
            (texts.len() as u64, bytes)
        }
        _ => (0, 0),
    };
    let (tokens, text) = list("tokenizer.ggml.tokens");
    let (merges, merged) = list("tokenizer.ggml.merges");
    PER_TOKEN * tokens + PER_MERGE * merges + 3 * (text + merged)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A model whose piece bytes and shape are given by hand.
    pub fn made(layers: &[u64], embedding: u64, output: u64, tied_output: bool) -> Demand {
        let mut layers_before = vec![0];
        let mut sum = 0;
        for bytes in layers {
            sum += bytes;
            layers_before.push(sum);
        }
        Demand {
            model: "made".into(),
            parts: Parts {
                layers: layers.to_vec(),
                embedding,
                output,
                tied_output,
            },
            context: 64,
            concurrency: 1,
            layers_before,
            metadata: 0,
            embedding,
            output,
            shape: Shape {
                hidden: 1,
                ffn: 1,
                heads: 1,
                kv_heads: 1,
                key_length: 1,
                value_length: 1,
                rope_dims: 0,
                vocab: 1,
                tokenizer: 0,
                context: 4096,
            },
        }
    }

    /// Sizes of published models: (hidden, feed-forward, heads, key heads, head length, tokens).
    fn shaped(demand: Demand, sizes: [u64; 6]) -> Demand {
        let [hidden, ffn, heads, kv_heads, head, vocab] = sizes;
        Demand {
            shape: Shape {
                hidden,
                ffn,
                heads,
                kv_heads,
                key_length: head,
                value_length: head,
                rope_dims: head,
                vocab,
                tokenizer: 0,
                context: 131_072,
            },
            ..demand
        }
    }

    #[test]
    fn keys_and_values_are_twice_the_published_half_precision_figures() {
        // Published bytes of keys and values for each token at 16 bits, all layers.
        let table = [
            // SmolLM2-135M: 30 layers, 3 key heads of 64.
            (30, [576, 1536, 9, 3, 64, 49_152], 23_040),
            // Llama-3.1-8B: 32 layers, 8 key heads of 128.
            (32, [4096, 14_336, 32, 8, 128, 128_256], 131_072),
            // Llama-3.3-70B: 80 layers, 8 key heads of 128.
            (80, [8192, 28_672, 64, 8, 128, 128_256], 327_680),
        ];
        for (layers, sizes, published) in table {
            let mut demand = shaped(made(&vec![1; layers], 0, 0, false), sizes);
            (demand.context, demand.concurrency) = (4096, 8);
            assert_eq!(demand.kv_blocks(), 8 * 128);
            let need = demand.need(0, layers, true, true, 1);
            assert_eq!(need.kv, 8 * 4096 * 2 * published, "{sizes:?}");
        }
    }

    #[test]
    fn a_context_that_ends_within_a_block_takes_the_whole_block() {
        assert_eq!(kv_blocks(33, 3), 6);
        assert_eq!(kv_blocks(32, 3), 3);
        assert_eq!(kv_blocks(1, 1), 1);
        assert_eq!(kv_blocks(u32::MAX, u32::MAX), u32::MAX);
    }

    #[test]
    fn working_memory_by_hand() {
        let mut demand = shaped(made(&[10_240; 4], 512, 1024, false), [8, 16, 4, 2, 2, 100]);
        (demand.context, demand.concurrency) = (40, 3);
        // q 8, k 4, v 4, attention 8, widest 16:
        // 2*8 + 8 + 4 + 4 + 2*8 + 2*16 + 16 + 2 = 98 floats and 4*16 bytes a row.
        let scratch = 256 * (4 * 98 + 64);
        let frames = 10 * 256 * 4 * 8;
        let norms = 4 * 8 * (2 * 2 + 1);
        // Two threads, 8 rows, 2 heads for each key head, 64 positions in two blocks.
        let scores = 2 * 8 * 2 * 64 * 4;
        let middle = (32 << 20) + scratch + frames + norms + scores;
        assert_eq!(
            demand.need(0, 2, false, false, 2),
            Need {
                pieces: 20_480,
                kv: 3 * 2 * 2 * (32 * 2 * 4 * 4),
                working: middle + 20_480 / 512,
            }
        );
        // Three sequences sample: 2 x 100 logits and a state of 8; 8 bytes for each candidate.
        let last = 3 * (8 * 100 + 4 * 8) + 3 * 8 * 100 + 4 * 100;
        let need = demand.need(2, 4, false, true, 2);
        assert_eq!(need.pieces, 20_480 + 1024);
        assert_eq!(need.working, middle + last + (20_480 + 1024) / 512);
        demand.shape.tokenizer = 777;
        let need = demand.need(0, 2, true, false, 2);
        assert_eq!(need.pieces, 20_480 + 512);
        assert_eq!(need.working, middle + 777 + (20_480 + 512) / 512);
    }

    #[test]
    fn a_tied_embedding_counts_on_both_ends_and_once_on_one_stage() {
        let demand = made(&[10, 10], 100, 1, true);
        assert_eq!(demand.need(0, 1, true, false, 1).pieces, 110);
        assert_eq!(demand.need(1, 2, false, true, 1).pieces, 111);
        assert_eq!(demand.need(0, 2, true, true, 1).pieces, 121);
    }

    #[test]
    fn a_context_beyond_the_models_is_refused_with_the_most() {
        let mut demand = made(&[1], 0, 0, false);
        demand.context = 5000;
        let error = demand.clone().checked().unwrap_err().to_string();
        assert!(error.contains("5000") && error.contains("4096"), "{error}");
        (demand.context, demand.concurrency) = (4096, u32::MAX);
        assert!(demand.clone().checked().is_err());
        demand.concurrency = 0;
        assert!(demand.checked().is_err());
    }

    #[test]
    fn sizes_beyond_any_machine_do_not_overflow() {
        let huge = [MAX_SIZE; 6];
        let mut demand = shaped(made(&[u64::MAX / 2], 0, 0, false), huge);
        (demand.context, demand.concurrency) = (u32::MAX, u32::MAX);
        assert_eq!(demand.need(0, 1, true, true, u32::MAX).total(), u64::MAX);
    }
}
