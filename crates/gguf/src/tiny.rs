//! Random small models of the llama architecture with real metadata and a usable tokenizer, for
//! tests of readers, engines and cutting. The weights mean nothing; they come from a counter-based
//! generator, so the same specification always gives the same bytes.
#![allow(
    clippy::indexing_slicing,
    reason = "blocks of 32 values are made by `as_chunks`"
)]

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use half::f16;

use crate::error::{GgufError, Result};
use crate::metadata::{Array, Metadata, Value};
use crate::types::TensorType;
use crate::write::{GgufWriter, TensorSpec};

/// Which tokenizer a tiny model carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TinyTokenizer {
    /// Sentence pieces with byte fallback ("llama").
    Spm,
    /// Byte-level pair merging ("gpt2").
    Bpe,
}

/// A tiny model's shape and content.
#[derive(Clone, Debug)]
pub struct TinySpec {
    /// Number of layers.
    pub layers: u32,
    /// Width of the hidden state.
    pub embd: u32,
    /// Width of the feed-forward part.
    pub ffn: u32,
    /// Attention heads.
    pub heads: u32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u32,
    /// Values per head, even; need not be `embd / heads`.
    pub head_dim: u32,
    /// Tokens in the vocabulary; filled up with unused ones. At least what the tokenizer has.
    pub vocab: u32,
    /// Context length.
    pub context: u32,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// Whether to add llama-3 rope scaling as the tensor `rope_freqs.weight`.
    pub rope_freqs: bool,
    /// Whether the output uses the embedding's matrix (no `output.weight`).
    pub tied: bool,
    /// Type of the weight matrices: F32, F16, Q8_0, Q4_0 or Q4_1. Matrices whose rows are not
    /// whole blocks are F16 instead; norms and rope factors are always F32.
    pub ty: TensorType,
    /// The tokenizer.
    pub tokenizer: TinyTokenizer,
    /// `tokenizer.ggml.pre` of a byte-level tokenizer.
    pub pre: String,
    /// Seed of the weights.
    pub seed: u64,
}

impl Default for TinySpec {
    fn default() -> Self {
        TinySpec {
            layers: 3,
            embd: 70,
            ffn: 118,
            heads: 5,
            kv_heads: 1,
            head_dim: 22,
            vocab: 320,
            context: 512,
            rope_base: 10_000.0,
            rope_freqs: false,
            tied: false,
            ty: TensorType::F32,
            tokenizer: TinyTokenizer::Spm,
            pre: "smollm".into(),
            seed: 1,
        }
    }
}

/// Writes the model to `path`.
///
/// # Errors
/// When the specification cannot be met, or the file cannot be written.
pub fn tiny_llama(spec: &TinySpec, path: &Path) -> Result<()> {
    check(spec)?;
    let vocabulary = match spec.tokenizer {
        TinyTokenizer::Spm => spm_vocabulary(),
        TinyTokenizer::Bpe => bpe_vocabulary(),
    };
    let least = vocabulary.tokens.len();
    if (spec.vocab as usize) < least {
        return Err(bad(format!(
            "the tokenizer has {least} tokens, the vocabulary only {}",
            spec.vocab
        )));
    }
    let metadata = metadata(spec, vocabulary);
    let tensors = tensors(spec);
    let specs: Vec<TensorSpec> = tensors.iter().map(|t| t.spec.clone()).collect();
    let file = File::create(path).map_err(GgufError::io("create", path))?;
    let mut writer = GgufWriter::begin(BufWriter::new(file), path, &metadata, &specs)?;
    for (stream, tensor) in tensors.iter().enumerate() {
        let row = tensor.spec.dims.first().copied().unwrap_or(1);
        let rows: u64 = tensor.spec.dims.iter().skip(1).product();
        for r in 0..rows {
            let values: Vec<f32> = (r * row..(r + 1) * row)
                .map(|i| match tensor.fill {
                    Fill::Uniform(width) => width * uniform(spec.seed, stream as u64, i),
                    Fill::Norm => 1.0 + 0.2 * uniform(spec.seed, stream as u64, i),
                    Fill::RopeFactors => rope_factor(spec, i),
                })
                .collect();
            writer.data(&encode(tensor.spec.ty, &values))?;
        }
    }
    writer.finish()?;
    Ok(())
}

fn bad(reason: String) -> GgufError {
    GgufError::BadSpec { reason }
}

fn check(spec: &TinySpec) -> Result<()> {
    let sizes = [
        ("layers", spec.layers),
        ("embd", spec.embd),
        ("ffn", spec.ffn),
        ("heads", spec.heads),
        ("kv heads", spec.kv_heads),
        ("head dim", spec.head_dim),
        ("context", spec.context),
    ];
    for (name, size) in sizes {
        if !(1..=1 << 16).contains(&size) {
            return Err(bad(format!("{name} is {size}, not between 1 and 65536")));
        }
    }
    if !spec.heads.is_multiple_of(spec.kv_heads) || !spec.head_dim.is_multiple_of(2) {
        return Err(bad(
            "kv heads must divide heads, and the head size must be even".into(),
        ));
    }
    match spec.ty {
        TensorType::F32
        | TensorType::F16
        | TensorType::Q8_0
        | TensorType::Q4_0
        | TensorType::Q4_1 => Ok(()),
        other => Err(bad(format!(
            "weights of type {other}; F32, F16, Q8_0, Q4_0, Q4_1 exist"
        ))),
    }
}

/// A number in [-1, 1) from the position alone: the finaliser of SplitMix64 (Steele, Lea and
/// Flood 2014) over seed, stream and index.
fn uniform(seed: u64, stream: u64, index: u64) -> f32 {
    let mut z = mix(mix(seed).wrapping_add(stream)).wrapping_add(index);
    z = mix(z);
    // The top 24 bits fit an f32 exactly.
    (z >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

enum Fill {
    /// Uniform between minus and plus this.
    Uniform(f32),
    /// Around one.
    Norm,
    /// Divisors of the rotary frequencies.
    RopeFactors,
}

struct Tensor {
    spec: TensorSpec,
    fill: Fill,
}

fn tensors(spec: &TinySpec) -> Vec<Tensor> {
    let matrix = |name: String, row: u32, rows: u32, gain: f32| {
        let ty = match spec.ty.row_bytes(row.into()) {
            Some(_) => spec.ty,
            None => TensorType::F16,
        };
        Tensor {
            spec: TensorSpec {
                name,
                dims: vec![row.into(), rows.into()],
                ty,
            },
            // Keeps the variance of a product with a unit-variance vector at gain².
            fill: Fill::Uniform(gain * (3.0 / row as f32).sqrt()),
        }
    };
    let vector = |name: String, len: u32, fill: Fill| Tensor {
        spec: TensorSpec {
            name,
            dims: vec![len.into()],
            ty: TensorType::F32,
        },
        fill,
    };
    let (embd, q, kv) = (
        spec.embd,
        spec.heads * spec.head_dim,
        spec.kv_heads * spec.head_dim,
    );
    let mut all = vec![matrix(
        "token_embd.weight".into(),
        embd,
        spec.vocab,
        (embd as f32 / 3.0).sqrt(),
    )];
    if spec.rope_freqs {
        all.push(vector(
            "rope_freqs.weight".into(),
            spec.head_dim / 2,
            Fill::RopeFactors,
        ));
    }
    for n in 0..spec.layers {
        let name = |part: &str| format!("blk.{n}.{part}.weight");
        all.extend([
            vector(name("attn_norm"), embd, Fill::Norm),
            matrix(name("attn_q"), embd, q, 2.0),
            matrix(name("attn_k"), embd, kv, 2.0),
            matrix(name("attn_v"), embd, kv, 1.0),
            matrix(name("attn_output"), q, embd, 1.0),
            vector(name("ffn_norm"), embd, Fill::Norm),
            matrix(name("ffn_gate"), embd, spec.ffn, 1.0),
            matrix(name("ffn_up"), embd, spec.ffn, 1.0),
            matrix(name("ffn_down"), spec.ffn, embd, 1.0),
        ]);
    }
    all.push(vector("output_norm.weight".into(), embd, Fill::Norm));
    if !spec.tied {
        all.push(matrix("output.weight".into(), embd, spec.vocab, 2.0));
    }
    all
}

/// Llama 3's scaling by parts: frequencies whose wavelength exceeds the original context are
/// divided by 8, short ones kept, those between interpolated (low factor 1, high factor 4). The
/// original context is taken as a quarter of this model's, so that tests of a few tokens see it.
fn rope_factor(spec: &TinySpec, i: u64) -> f32 {
    let (factor, low, high) = (8.0, 1.0, 4.0);
    let original = f64::from(spec.context) / 4.0;
    let exponent = 2.0 * i as f64 / f64::from(spec.head_dim);
    let wavelength = 2.0 * std::f64::consts::PI * f64::from(spec.rope_base).powf(exponent);
    let divisor = if wavelength < original / high {
        1.0
    } else if wavelength > original / low {
        factor
    } else {
        let smooth = (original / wavelength - low) / (high - low);
        1.0 / ((1.0 - smooth) / factor + smooth)
    };
    divisor as f32
}

/// Stores values in the given type, by plain rounding.
fn encode(ty: TensorType, values: &[f32]) -> Vec<u8> {
    let (blocks, _) = values.as_chunks::<32>();
    match ty {
        TensorType::F16 => values
            .iter()
            .flat_map(|v| f16::from_f32(*v).to_le_bytes())
            .collect(),
        TensorType::Q8_0 => blocks.iter().flat_map(encode_q8_0).collect(),
        TensorType::Q4_0 => blocks.iter().flat_map(encode_q4_0).collect(),
        TensorType::Q4_1 => blocks.iter().flat_map(encode_q4_1).collect(),
        _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

/// The largest magnitude becomes 127.
fn encode_q8_0(x: &[f32; 32]) -> Vec<u8> {
    let d = f16::from_f32(x.iter().fold(0f32, |m, v| m.max(v.abs())) / 127.0);
    let mut out = d.to_le_bytes().to_vec();
    out.extend(
        x.iter()
            .map(|v| (divide(*v, d.to_f32()).round() as i8) as u8),
    );
    out
}

/// The value of largest magnitude becomes level 0, which stands for -8.
fn encode_q4_0(x: &[f32; 32]) -> Vec<u8> {
    let extreme = x
        .iter()
        .fold(0f32, |m, v| if v.abs() > m.abs() { *v } else { m });
    let d = f16::from_f32(extreme / -8.0);
    let level = |v: f32| (divide(v, d.to_f32()) + 8.0).round().clamp(0.0, 15.0) as u8;
    let mut out = d.to_le_bytes().to_vec();
    out.extend((0..16).map(|j| level(x[j]) | level(x[j + 16]) << 4));
    out
}

/// The smallest value becomes level 0, the largest level 15.
fn encode_q4_1(x: &[f32; 32]) -> Vec<u8> {
    let smallest = x.iter().fold(f32::INFINITY, |m, v| m.min(*v));
    let largest = x.iter().fold(f32::NEG_INFINITY, |m, v| m.max(*v));
    let d = f16::from_f32((largest - smallest) / 15.0);
    let m = f16::from_f32(smallest);
    let level = |v: f32| divide(v - m.to_f32(), d.to_f32()).round().clamp(0.0, 15.0) as u8;
    let mut out = d.to_le_bytes().to_vec();
    out.extend(m.to_le_bytes());
    out.extend((0..16).map(|j| level(x[j]) | level(x[j + 16]) << 4));
    out
}

fn divide(v: f32, by: f32) -> f32 {
    if by == 0.0 { 0.0 } else { v / by }
}

fn metadata(spec: &TinySpec, vocabulary: Vocabulary) -> Metadata {
    let mut m = Metadata::new();
    let text = |s: &str| Value::String(s.into());
    m.insert("general.architecture", text("llama"));
    m.insert("general.name", text("tiny random llama"));
    let file_type = match spec.ty {
        TensorType::F16 => 1,
        TensorType::Q4_0 => 2,
        TensorType::Q4_1 => 3,
        TensorType::Q8_0 => 7,
        _ => 0,
    };
    m.insert("general.file_type", Value::U32(file_type));
    m.insert("general.quantization_version", Value::U32(2));
    m.insert("llama.context_length", Value::U32(spec.context));
    m.insert("llama.embedding_length", Value::U32(spec.embd));
    m.insert("llama.block_count", Value::U32(spec.layers));
    m.insert("llama.feed_forward_length", Value::U32(spec.ffn));
    m.insert("llama.attention.head_count", Value::U32(spec.heads));
    m.insert("llama.attention.head_count_kv", Value::U32(spec.kv_heads));
    m.insert("llama.attention.key_length", Value::U32(spec.head_dim));
    m.insert("llama.attention.value_length", Value::U32(spec.head_dim));
    m.insert("llama.attention.layer_norm_rms_epsilon", Value::F32(1.0e-5));
    m.insert("llama.rope.freq_base", Value::F32(spec.rope_base));
    m.insert("llama.rope.dimension_count", Value::U32(spec.head_dim));
    m.insert("llama.vocab_size", Value::U32(spec.vocab));

    let Vocabulary {
        mut tokens,
        mut scores,
        mut kinds,
        merges,
        bos,
        eos,
        template,
    } = vocabulary;
    for n in tokens.len()..spec.vocab as usize {
        tokens.push(format!("<|unused_{n}|>"));
        scores.push(-1.0e4);
        kinds.push(UNUSED);
    }
    match spec.tokenizer {
        TinyTokenizer::Spm => {
            m.insert("tokenizer.ggml.model", text("llama"));
            m.insert("tokenizer.ggml.pre", text("default"));
            m.insert("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
            m.insert("tokenizer.ggml.unknown_token_id", Value::U32(0));
            m.insert("tokenizer.ggml.add_space_prefix", Value::Bool(true));
        }
        TinyTokenizer::Bpe => {
            m.insert("tokenizer.ggml.model", text("gpt2"));
            m.insert("tokenizer.ggml.pre", text(&spec.pre));
            m.insert("tokenizer.ggml.merges", Value::Array(Array::String(merges)));
            m.insert("tokenizer.ggml.add_space_prefix", Value::Bool(false));
        }
    }
    m.insert(
        "tokenizer.ggml.add_bos_token",
        Value::Bool(spec.tokenizer == TinyTokenizer::Spm),
    );
    m.insert("tokenizer.ggml.add_eos_token", Value::Bool(false));
    m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    m.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)));
    m.insert("tokenizer.ggml.bos_token_id", Value::U32(bos));
    m.insert("tokenizer.ggml.eos_token_id", Value::U32(eos));
    m.insert("tokenizer.chat_template", text(template));
    m
}

/// Token kinds as numbered in `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

struct Vocabulary {
    tokens: Vec<String>,
    scores: Vec<f32>,
    kinds: Vec<i32>,
    merges: Vec<String>,
    bos: u32,
    eos: u32,
    template: &'static str,
}

/// Pairs whose joining makes the multi-letter tokens, in order of rank; "_" stands for the space.
const PAIRS: &str = "_ t|h e|i n|_t he|_ a|o n|_ s|e r|r e|_ w|n d|o u|_a nd|in g|_ o|_o f|\
                     _t o|_ h|_h e|e n|a t|_s p|_w as";

fn pairs(space: char) -> Vec<(String, String)> {
    PAIRS
        .split('|')
        .filter_map(|pair| pair.split_once(' '))
        .map(|(a, b)| {
            let with_space = |s: &str| s.replace('_', &space.to_string());
            (with_space(a), with_space(b))
        })
        .collect()
}

fn spm_vocabulary() -> Vocabulary {
    let space = '\u{2581}';
    let mut tokens = Vec::new();
    let mut scores = Vec::new();
    let mut kinds = Vec::new();
    let mut add = |token: String, score: f32, kind: i32| {
        if !tokens.contains(&token) {
            tokens.push(token);
            scores.push(score);
            kinds.push(kind);
        }
    };
    add("<unk>".into(), 0.0, UNKNOWN);
    add("<s>".into(), 0.0, CONTROL);
    add("</s>".into(), 0.0, CONTROL);
    for byte in 0..=255u8 {
        add(format!("<0x{byte:02X}>"), 0.0, BYTE);
    }
    // "was" is reached by "_w as", whose second half needs its own pair.
    let mut rank = 0.0;
    let joined = pairs(space).into_iter().map(|(a, b)| a + &b);
    for token in joined.chain(["as".to_owned()]) {
        add(token, -rank, NORMAL);
        rank += 1.0;
    }
    for letter in std::iter::once(space).chain('a'..='z') {
        add(letter.to_string(), -rank, NORMAL);
        rank += 1.0;
    }
    Vocabulary {
        tokens,
        scores,
        kinds,
        merges: Vec::new(),
        bos: 1,
        eos: 2,
        template: "{% for message in messages %}{% if message.role not in ['system', 'user', 'assistant'] %}\
                   {{ raise_exception('unknown role ' + message.role) }}{% endif %}\
                   {{ '[' + message.role + '] ' + message.content }}\
                   {{ eos_token if message.role == 'assistant' else '\\n' }}{% endfor %}\
                   {% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}",
    }
}

/// The letter that stands for a byte in byte-level vocabularies: itself where it prints, else the
/// next free one from U+0100 on.
fn byte_letter(byte: u8) -> char {
    let prints = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if prints(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|b| !prints(*b)).count() as u32;
    char::from_u32(0x100 + rank).unwrap_or('\u{fffd}')
}

fn bpe_vocabulary() -> Vocabulary {
    let space = byte_letter(b' ');
    let mut tokens: Vec<String> = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        .map(String::from)
        .to_vec();
    let mut kinds = vec![CONTROL; tokens.len()];
    let bytes = (0..=255u8).map(|b| byte_letter(b).to_string());
    let mut merges = Vec::new();
    let mut joined = Vec::new();
    let with_as = [("a".to_owned(), "s".to_owned())];
    for (a, b) in with_as.into_iter().chain(pairs(space)) {
        merges.push(format!("{a} {b}"));
        joined.push(a + &b);
    }
    for token in bytes.chain(joined) {
        tokens.push(token);
        kinds.push(NORMAL);
    }
    Vocabulary {
        scores: vec![0.0; tokens.len()],
        tokens,
        kinds,
        merges,
        bos: 0,
        eos: 2,
        template: "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}\
                   {{ message.content + '<|im_end|>' + '\\n' }}{% endfor %}\
                   {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    }
}
