//! What a stage needs of an engine. One implementation today: the CPU engine of this crate;
//! tests put a small made-up one in its place.

use windlass_wire::frame::RowEntry;

/// Layers that turn hidden states into hidden states, and the model's two ends.
///
/// Results for one row must not depend on the other rows of a call, bit for bit.
pub trait Compute: Send {
    /// Floats in a row of hidden states.
    fn hidden(&self) -> usize;
    /// Tokens in the vocabulary.
    fn vocab(&self) -> usize;
    /// Appends the embeddings of `ids` (ids x hidden). First stage only.
    fn embed(&mut self, ids: &[u32], out: &mut Vec<f32>) -> Result<(), String>;
    /// Runs the layers in place on `hidden` (rows x hidden), taking KV blocks as needed.
    fn forward(&mut self, rows: &[RowEntry], hidden: &mut [f32]) -> Result<(), String>;
    /// Replaces `out` by the logits (rows x vocabulary). Last stage only.
    fn logits(&mut self, hidden: &[f32], out: &mut Vec<f32>) -> Result<(), String>;
    /// Forgets a sequence and frees its blocks.
    fn free(&mut self, seq: u32);
    /// Forgets all sequences.
    fn reset(&mut self);
    /// KV blocks taken.
    fn kv_used(&self) -> u32;
    /// KV blocks in all.
    fn kv_total(&self) -> u32;
}

impl Compute for crate::engine::Engine {
    fn hidden(&self) -> usize {
        Self::hidden(self)
    }

    fn vocab(&self) -> usize {
        Self::vocab(self)
    }

    fn embed(&mut self, ids: &[u32], out: &mut Vec<f32>) -> Result<(), String> {
        Self::embed(self, ids, out).map_err(|e| e.to_string())
    }

    fn forward(&mut self, rows: &[RowEntry], hidden: &mut [f32]) -> Result<(), String> {
        Self::forward(self, rows, hidden).map_err(|e| e.to_string())
    }

    fn logits(&mut self, hidden: &[f32], out: &mut Vec<f32>) -> Result<(), String> {
        Self::logits(self, hidden, out).map_err(|e| e.to_string())
    }

    fn free(&mut self, seq: u32) {
        Self::free(self, seq);
    }

    fn reset(&mut self) {
        Self::reset(self);
    }

    fn kv_used(&self) -> u32 {
        Self::kv_used(self)
    }

    fn kv_total(&self) -> u32 {
        Self::kv_total(self)
    }
}
