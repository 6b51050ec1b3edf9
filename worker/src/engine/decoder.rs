//! Runs a stage's layers on rows of hidden states. Must not know sockets, lanes or text.
//!
//! A row's result depends on its sequence's earlier rows only: not on the rows beside it, the
//! chunking of a prompt, the number of threads, or how layers are shared among processes.

use std::path::{Path, PathBuf};

use windlass_wire::frame::RowEntry;

use super::error::EngineError;
use super::kv::{BLOCK, BlockPool};
use super::ops::attention::{HeadBlock, HeadShape, attend, store_key, store_value};
use super::ops::matrix::Activations;
use super::ops::{Runner, rows as row_ops, tier_name};
use super::spec::ModelSpec;
use super::weights::{Layer, Mapped, Part, StageWeights};

/// Rows of one sequence that share a pass over its keys and values.
const TILE_ROWS: usize = 8;

/// What a stage loads.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Folder of the pieces.
    pub pieces_dir: PathBuf,
    /// File name of the manifest in that folder.
    pub manifest: String,
    /// First layer.
    pub first_layer: u32,
    /// Number of layers.
    pub layers: u32,
    /// Whether the stage embeds tokens.
    pub first: bool,
    /// Whether the stage computes logits.
    pub last: bool,
    /// Tokens of context a sequence may have.
    pub context: u32,
    /// KV blocks of 32 positions, for all sequences together.
    pub kv_blocks: u32,
    /// Threads of the kernels.
    pub threads: u32,
}

/// How to load a whole file.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// First layer.
    pub first_layer: u32,
    /// Number of layers; `None`: all from the first.
    pub layers: Option<u32>,
    /// Tokens of context a sequence may have.
    pub context: u32,
    /// KV blocks of 32 positions, for all sequences together.
    pub kv_blocks: u32,
    /// Threads of the kernels.
    pub threads: u32,
}

impl Default for FileOptions {
    /// All layers, 512 tokens, one sequence, one thread.
    fn default() -> Self {
        FileOptions {
            first_layer: 0,
            layers: None,
            context: 512,
            kv_blocks: 16,
            threads: 1,
        }
    }
}

/// One stage of a model: mapped weights, KV blocks, scratch.
#[derive(Debug)]
pub struct Engine {
    spec: ModelSpec,
    weights: StageWeights,
    frequencies: Vec<f64>,
    piece_bytes: u64,
    model_sha256: String,
    context: u32,
    pool: BlockPool,
    /// Floats of each block, made when a block is first used: `[layer][keys, values]`.
    store: Vec<Box<[f32]>>,
    run: Runner,
    scratch: Scratch,
}

#[derive(Debug, Default)]
struct Scratch {
    activations: Activations,
    norm: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    /// `[kv head][row][group][value_length]`.
    heads: Vec<f32>,
    mixed: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    out: Vec<f32>,
    turns: Vec<[f32; 2]>,
}

/// Consecutive rows of one sequence in a batch.
#[derive(Clone, Copy, Debug)]
struct Tile {
    row: usize,
    rows: usize,
    seq: u32,
    pos: usize,
}

impl Engine {
    /// Maps and checks the stage's pieces.
    pub fn load(options: &EngineOptions) -> Result<Engine, EngineError> {
        let part = Part {
            first_layer: options.first_layer,
            layers: options.layers,
            first: options.first,
            last: options.last,
        };
        let mapped = Mapped::pieces(&options.pieces_dir, &options.manifest, part)?;
        Engine::build(
            mapped,
            part,
            options.context,
            options.kv_blocks,
            options.threads,
        )
    }

    /// Maps a whole model file, for tests and scoring.
    pub fn load_file(path: &Path, options: &FileOptions) -> Result<Engine, EngineError> {
        let mapped = Mapped::file(path)?;
        let available = mapped.spec.layers;
        let layers = options
            .layers
            .unwrap_or(available.saturating_sub(options.first_layer));
        let part = Part {
            first_layer: options.first_layer,
            layers,
            first: options.first_layer == 0,
            last: options.first_layer.saturating_add(layers) == available,
        };
        Engine::build(
            mapped,
            part,
            options.context,
            options.kv_blocks,
            options.threads,
        )
    }

    fn build(
        mapped: Mapped,
        part: Part,
        context: u32,
        kv_blocks: u32,
        threads: u32,
    ) -> Result<Engine, EngineError> {
        let available = mapped.spec.layers;
        let end = part.first_layer.saturating_add(part.layers);
        if part.layers == 0 || end > available {
            return Err(EngineError::Layers {
                first: part.first_layer,
                end,
                available,
            });
        }
        if context > mapped.spec.context {
            return Err(EngineError::Context {
                asked: context,
                available: mapped.spec.context,
            });
        }
        let weights = mapped.weights(part)?;
        Ok(Engine {
            frequencies: mapped.spec.rope_frequencies(weights.rope_freqs.as_deref()),
            piece_bytes: mapped.bytes(),
            model_sha256: mapped.model_sha256,
            spec: mapped.spec,
            weights,
            context,
            pool: BlockPool::new(kv_blocks),
            store: Vec::new(),
            run: Runner::new(threads)?,
            scratch: Scratch::default(),
        })
    }

    /// What the model is.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Floats of a hidden state.
    pub fn hidden(&self) -> usize {
        self.spec.hidden
    }

    /// Size of the vocabulary; 0 on a stage that neither embeds nor computes logits and whose
    /// metadata does not say.
    pub fn vocab(&self) -> usize {
        let held = self.weights.output.as_ref().map(|(_, w)| w);
        held.or(self.weights.embedding.as_ref())
            .map_or(self.spec.vocab.unwrap_or(0), |w| w.rows())
    }

    /// Bytes of the mapped files.
    pub fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// Digest of the model the pieces were cut from; empty for a whole file.
    pub fn model_sha256(&self) -> &str {
        &self.model_sha256
    }

    /// Instruction tier of the kernels, e.g. `x86-64/avx2`.
    pub fn tier(&self) -> &'static str {
        tier_name()
    }

    /// What computes, e.g. `CPU x86-64/avx2, 1 thread`.
    pub fn device(&self) -> String {
        let threads = self.run.threads();
        let plural = if threads == 1 { "" } else { "s" };
        format!("CPU {}, {threads} thread{plural}", tier_name())
    }

    /// KV blocks that sequences hold.
    pub fn kv_used(&self) -> u32 {
        self.pool.used()
    }

    /// KV blocks in all.
    pub fn kv_total(&self) -> u32 {
        self.pool.total()
    }

    /// Positions that the sequence holds.
    pub fn positions(&self, seq: u32) -> u32 {
        self.pool.positions(seq)
    }

    /// Frees a sequence's blocks; nothing happens when it holds none.
    pub fn free(&mut self, seq: u32) {
        self.pool.free(seq);
    }

    /// Frees all sequences' blocks.
    pub fn reset(&mut self) {
        self.pool.clear();
    }

    /// Writes the tokens' embeddings to `out`, one row each.
    pub fn embed(&self, ids: &[u32], out: &mut Vec<f32>) -> Result<(), EngineError> {
        let table = self
            .weights
            .embedding
            .as_ref()
            .ok_or(EngineError::NotHeld { what: "embedding" })?;
        let vocab = table.rows();
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= vocab) {
            return Err(EngineError::Token { id, vocab });
        }
        out.resize(ids.len() * self.spec.hidden, 0.0);
        for (row, &id) in out.chunks_exact_mut(self.spec.hidden).zip(ids) {
            table.decode_row(id as usize, row);
        }
        Ok(())
    }

    /// Runs the stage's layers on rows of hidden states, in place.
    ///
    /// The rows of a sequence continue it: their positions follow each other from
    /// [`Engine::positions`]. Rows of several sequences may stand in any order. Blocks are taken as
    /// needed. On an error nothing was changed.
    pub fn forward(&mut self, rows: &[RowEntry], hidden: &mut [f32]) -> Result<(), EngineError> {
        let expected = rows.len() * self.spec.hidden;
        if hidden.len() != expected {
            return Err(EngineError::Length {
                what: "hidden states",
                found: hidden.len(),
                expected,
            });
        }
        let tiles = self.admit(rows)?;
        self.turns(rows);
        let run = self.run.clone();
        run.enter(|| {
            for layer in 0..self.weights.layers.len() {
                self.layer(layer, &tiles, hidden);
            }
        });
        Ok(())
    }

    /// Writes the logits of rows of final hidden states to `out`, one row of [`Engine::vocab`] each.
    pub fn logits(&mut self, hidden: &[f32], out: &mut Vec<f32>) -> Result<(), EngineError> {
        let (norm, matrix) = self
            .weights
            .output
            .as_ref()
            .ok_or(EngineError::NotHeld { what: "output" })?;
        let width = self.spec.hidden;
        if !hidden.len().is_multiple_of(width) {
            return Err(EngineError::Length {
                what: "hidden states",
                found: hidden.len(),
                expected: hidden.len().next_multiple_of(width),
            });
        }
        let s = &mut self.scratch;
        norm_rows(hidden, norm, self.spec.rms_eps, &mut s.norm);
        s.activations.changed();
        s.activations
            .multiply(&self.run, matrix.matrix(), &s.norm, out);
        Ok(())
    }

    /// Checks positions, takes blocks, and cuts the batch into tiles.
    fn admit(&mut self, rows: &[RowEntry]) -> Result<Vec<Tile>, EngineError> {
        let mut wanted: Vec<(u32, u32)> = Vec::new();
        let mut tiles: Vec<Tile> = Vec::new();
        for (i, row) in rows.iter().enumerate() {
            let at = wanted.iter().position(|(seq, _)| *seq == row.seq);
            let at = at.unwrap_or_else(|| {
                wanted.push((row.seq, self.pool.positions(row.seq)));
                wanted.len() - 1
            });
            let Some((_, next)) = wanted.get_mut(at) else {
                continue;
            };
            if row.pos != *next {
                return Err(EngineError::Position {
                    seq: row.seq,
                    found: row.pos,
                    expected: *next,
                });
            }
            if row.pos >= self.context {
                return Err(EngineError::BeyondContext {
                    seq: row.seq,
                    pos: row.pos,
                    context: self.context,
                });
            }
            *next += 1;
            match tiles.last_mut() {
                Some(tile)
                    if tile.seq == row.seq
                        && tile.row + tile.rows == i
                        && tile.rows < TILE_ROWS =>
                {
                    tile.rows += 1;
                }
                _ => tiles.push(Tile {
                    row: i,
                    rows: 1,
                    seq: row.seq,
                    pos: row.pos as usize,
                }),
            }
        }
        self.pool.grow(&wanted)?;
        let top = wanted
            .iter()
            .flat_map(|(seq, _)| self.pool.blocks(*seq))
            .max();
        if let Some(&top) = top {
            let floats = self.weights.layers.len() * self.layer_floats();
            while self.store.len() <= top as usize {
                self.store.push(vec![0.0; floats].into_boxed_slice());
            }
        }
        Ok(tiles)
    }

    /// Floats of keys, and of keys and values, in one block of one layer.
    fn layer_floats(&self) -> usize {
        BLOCK * self.spec.kv_heads * (self.spec.key_length + self.spec.value_length)
    }

    /// Cosine and sine of each pair's angle, for each row.
    fn turns(&mut self, rows: &[RowEntry]) {
        self.scratch.turns.clear();
        for row in rows {
            for frequency in &self.frequencies {
                let (sin, cos) = (f64::from(row.pos) * frequency).sin_cos();
                self.scratch.turns.push([cos as f32, sin as f32]);
            }
        }
    }

    fn layer(&mut self, number: usize, tiles: &[Tile], hidden: &mut [f32]) {
        let Some(layer) = self.weights.layers.get(number) else {
            return;
        };
        let spec = &self.spec;
        let s = &mut self.scratch;
        let (run, acts) = (&self.run, &mut s.activations);

        norm_rows(hidden, &layer.attn_norm, spec.rms_eps, &mut s.norm);
        acts.changed();
        acts.multiply(run, layer.q.matrix(), &s.norm, &mut s.q);
        acts.multiply(run, layer.k.matrix(), &s.norm, &mut s.k);
        acts.multiply(run, layer.v.matrix(), &s.norm, &mut s.v);
        let (q_width, k_width) = (
            spec.heads * spec.key_length,
            spec.kv_heads * spec.key_length,
        );
        let pairs = self.frequencies.len();
        let rows =
            s.q.chunks_exact_mut(q_width)
                .zip(s.k.chunks_exact_mut(k_width));
        for (i, (q, k)) in rows.enumerate() {
            let turns = s.turns.get(i * pairs..(i + 1) * pairs).unwrap_or(&[]);
            row_ops::rope(q, spec.key_length, turns);
            row_ops::rope(k, spec.key_length, turns);
            let scale = 1.0 / (spec.key_length as f32).sqrt();
            q.iter_mut().for_each(|q| *q *= scale);
        }
        self.keep(number, tiles);
        self.attention(number, tiles);
        self.finish(number, hidden);
    }

    /// Writes the rows' keys and values into their blocks.
    fn keep(&mut self, number: usize, tiles: &[Tile]) {
        let spec = &self.spec;
        let (k_length, v_length) = (spec.key_length, spec.value_length);
        let (k_width, v_width) = (spec.kv_heads * k_length, spec.kv_heads * v_length);
        let floats = self.layer_floats();
        for tile in tiles {
            let blocks = self.pool.blocks(tile.seq);
            for r in 0..tile.rows {
                let (row, pos) = (tile.row + r, tile.pos + r);
                let block = blocks
                    .get(pos / BLOCK)
                    .and_then(|&b| self.store.get_mut(b as usize))
                    .and_then(|b| b.get_mut(number * floats..(number + 1) * floats));
                let keys = self.scratch.k.get(row * k_width..(row + 1) * k_width);
                let values = self.scratch.v.get(row * v_width..(row + 1) * v_width);
                let (Some(block), Some(keys), Some(values)) = (block, keys, values) else {
                    continue;
                };
                let (key_cells, value_cells) = block.split_at_mut(BLOCK * k_width);
                for (cells, key) in key_cells
                    .chunks_exact_mut(BLOCK * k_length)
                    .zip(keys.chunks_exact(k_length))
                {
                    store_key(cells, pos % BLOCK, key);
                }
                for (cells, value) in value_cells
                    .chunks_exact_mut(BLOCK * v_length)
                    .zip(values.chunks_exact(v_length))
                {
                    store_value(cells, pos % BLOCK, value);
                }
            }
        }
    }

    /// Attention of all rows; leaves the heads' outputs in `scratch.mixed`.
    fn attention(&mut self, number: usize, tiles: &[Tile]) {
        let spec = &self.spec;
        let shape = HeadShape {
            key_length: spec.key_length,
            value_length: spec.value_length,
            group: spec.group(),
        };
        let batch = self.scratch.q.len() / (spec.heads * spec.key_length);
        let row_floats = shape.group * shape.value_length;
        let q_width = spec.heads * spec.key_length;
        let q_group = shape.group * shape.key_length;
        let floats = self.layer_floats();
        let key_floats = BLOCK * spec.kv_heads * spec.key_length;
        let s = &mut self.scratch;
        s.heads.resize(spec.kv_heads * batch * row_floats, 0.0);
        let (queries, store, pool) = (&s.q, &self.store, &self.pool);

        // One tile of one key head.
        let work = |head: usize, tile: &Tile, out: &mut [f32]| {
            let visible = (tile.pos + tile.rows).div_ceil(BLOCK);
            let blocks: Vec<HeadBlock<'_>> = pool
                .blocks(tile.seq)
                .iter()
                .take(visible)
                .filter_map(|&b| {
                    let block = store
                        .get(b as usize)?
                        .get(number * floats..(number + 1) * floats)?;
                    let (keys, values) = block.split_at(key_floats);
                    Some(HeadBlock {
                        keys: keys.chunks_exact(BLOCK * shape.key_length).nth(head)?,
                        values: values.chunks_exact(BLOCK * shape.value_length).nth(head)?,
                    })
                })
                .collect();
            let gathered: Vec<f32> = (tile.row..tile.row + tile.rows)
                .filter_map(|row| {
                    let start = row * q_width + head * q_group;
                    queries.get(start..start + q_group)
                })
                .flatten()
                .copied()
                .collect();
            SCORES.with_borrow_mut(|scores| {
                attend(shape, &blocks, tile.pos, &gathered, scores, out);
            });
        };
        // The parts of the output, by tile and head, as the threads take them.
        let mut parts: Vec<(usize, &Tile, &mut [f32])> = Vec::new();
        for (head, mut out) in s.heads.chunks_exact_mut(batch * row_floats).enumerate() {
            for tile in tiles {
                let (part, rest) = out.split_at_mut(tile.rows * row_floats);
                parts.push((head, tile, part));
                out = rest;
            }
        }
        self.run
            .each(parts, |(head, tile, out)| work(head, tile, out));

        let width = spec.kv_heads * row_floats;
        s.mixed.resize(batch * width, 0.0);
        for (head, rows) in s.heads.chunks_exact(batch * row_floats).enumerate() {
            let outs = s.mixed.chunks_exact_mut(width);
            for (out, row) in outs.zip(rows.chunks_exact(row_floats)) {
                if let Some(out) = out.get_mut(head * row_floats..(head + 1) * row_floats) {
                    out.copy_from_slice(row);
                }
            }
        }
    }

    /// The part of a layer after attention.
    fn finish(&mut self, number: usize, hidden: &mut [f32]) {
        let Some(layer) = self.weights.layers.get(number) else {
            return;
        };
        let Layer {
            o,
            ffn_norm,
            gate,
            up,
            down,
            ..
        } = layer;
        let s = &mut self.scratch;
        let (run, acts) = (&self.run, &mut s.activations);
        acts.changed();
        acts.multiply(run, o.matrix(), &s.mixed, &mut s.out);
        row_ops::add(hidden, &s.out);
        norm_rows(hidden, ffn_norm, self.spec.rms_eps, &mut s.norm);
        acts.changed();
        acts.multiply(run, gate.matrix(), &s.norm, &mut s.gate);
        acts.multiply(run, up.matrix(), &s.norm, &mut s.up);
        row_ops::silu_mul(&mut s.gate, &s.up);
        acts.changed();
        acts.multiply(run, down.matrix(), &s.gate, &mut s.out);
        row_ops::add(hidden, &s.out);
    }
}

thread_local! {
    static SCORES: std::cell::RefCell<Vec<f32>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn norm_rows(x: &[f32], weight: &[f32], eps: f32, out: &mut Vec<f32>) {
    out.resize(x.len(), 0.0);
    let width = weight.len().max(1);
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        row_ops::rms_norm(x, weight, eps, out);
    }
}
