//! Attention of a few rows of one sequence over its key and value blocks, for one key head.
//!
//! A block holds [`BLOCK`] positions: keys as `[key_length][BLOCK]`, so that a block's scores are
//! vector sums over positions, and values as `[BLOCK][value_length]`.
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "fixed-size arrays and slices whose lengths are fixed at entry"
)]

use super::floats::{LANES, exp};
use crate::engine::kv::BLOCK;

/// One key head's part of a block.
#[derive(Clone, Copy, Debug)]
pub struct HeadBlock<'a> {
    /// `[key_length][BLOCK]`.
    pub keys: &'a [f32],
    /// `[BLOCK][value_length]`.
    pub values: &'a [f32],
}

/// Shapes of an attention head.
#[derive(Clone, Copy, Debug)]
pub struct HeadShape {
    /// Floats of a query or key.
    pub key_length: usize,
    /// Floats of a value.
    pub value_length: usize,
    /// Query heads for this key head.
    pub group: usize,
}

/// Writes a key into its block.
pub fn store_key(block: &mut [f32], slot: usize, key: &[f32]) {
    for (cell, &k) in block.iter_mut().skip(slot).step_by(BLOCK).zip(key) {
        *cell = k;
    }
}

/// Writes a value into its block.
pub fn store_value(block: &mut [f32], slot: usize, value: &[f32]) {
    for (cell, &v) in block.iter_mut().skip(slot * value.len()).zip(value) {
        *cell = v;
    }
}

/// Attention of consecutive rows of a sequence.
///
/// `queries` holds `rows * group` queries, already scaled; the queries of row `r` see the first
/// `first_pos + r + 1` positions of `blocks`. `out` gets as many heads of `value_length`.
/// `scores` is scratch.
pub fn attend(
    shape: HeadShape,
    blocks: &[HeadBlock<'_>],
    first_pos: usize,
    queries: &[f32],
    scores: &mut Vec<f32>,
    out: &mut [f32],
) {
    let count = queries.len() / shape.key_length.max(1);
    let stride = blocks.len() * BLOCK;
    scores.resize(count * stride, 0.0);
    attend_tier(shape, blocks, first_pos, queries, scores, out);
}

by_tier! {
    fn attend_tier(
        shape: HeadShape,
        blocks: &[HeadBlock<'_>],
        first_pos: usize,
        queries: &[f32],
        scores: &mut [f32],
        out: &mut [f32],
    ) {
        let HeadShape { key_length, value_length, group } = shape;
        let stride = blocks.len() * BLOCK;
        let seen = |query: usize| (first_pos + query / group + 1).min(stride);
        for (b, block) in blocks.iter().enumerate() {
            for (i, q) in queries.chunks_exact(key_length).enumerate() {
                if b * BLOCK < seen(i) {
                    let at = i * stride + b * BLOCK;
                    score_block(q, block.keys, &mut scores[at..at + BLOCK]);
                }
            }
        }
        for (i, scores) in scores.chunks_exact_mut(stride).enumerate() {
            softmax(&mut scores[..seen(i)]);
        }
        out.fill(0.0);
        for (b, block) in blocks.iter().enumerate() {
            for (i, out) in out.chunks_exact_mut(value_length).enumerate() {
                let count = seen(i).saturating_sub(b * BLOCK).min(BLOCK);
                let at = i * stride + b * BLOCK;
                mix_values(&scores[at..at + count], block.values, out);
            }
        }
    }
}

/// Scores of one query with all positions of a block.
#[inline(always)]
fn score_block(query: &[f32], keys: &[f32], out: &mut [f32]) {
    let mut sums = [0.0f32; BLOCK];
    for (&q, keys) in query.iter().zip(keys.as_chunks::<BLOCK>().0) {
        for (sum, &k) in sums.iter_mut().zip(keys) {
            *sum = q.mul_add(k, *sum);
        }
    }
    out.copy_from_slice(&sums);
}

/// Adds the values of a block, weighted, to `out`.
#[inline(always)]
fn mix_values(weights: &[f32], values: &[f32], out: &mut [f32]) {
    let length = out.len();
    const WIDE: usize = 4 * LANES;
    let (wide, rest) = out.as_chunks_mut::<WIDE>();
    let whole = wide.len() * WIDE;
    for (c, out) in wide.iter_mut().enumerate() {
        let mut sums = *out;
        for (&w, v) in weights.iter().zip(values.chunks_exact(length)) {
            let (v, _) = v[c * WIDE..].as_chunks::<WIDE>();
            for (sum, &v) in sums.iter_mut().zip(&v[0]) {
                *sum = w.mul_add(v, *sum);
            }
        }
        *out = sums;
    }
    if !rest.is_empty() {
        for (&w, v) in weights.iter().zip(values.chunks_exact(length)) {
            for (sum, &v) in rest.iter_mut().zip(&v[whole..]) {
                *sum = w.mul_add(v, *sum);
            }
        }
    }
}

/// Replaces scores by their exponentials over the sum of these.
#[inline(always)]
fn softmax(scores: &mut [f32]) {
    let (eights, rest) = scores.as_chunks_mut::<LANES>();
    let mut most = [f32::NEG_INFINITY; LANES];
    for eight in eights.iter() {
        for lane in 0..LANES {
            most[lane] = if eight[lane] > most[lane] {
                eight[lane]
            } else {
                most[lane]
            };
        }
    }
    let most = most
        .iter()
        .chain(rest.iter())
        .fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    let mut sums = [0.0f32; LANES];
    for eight in eights.iter_mut() {
        for lane in 0..LANES {
            eight[lane] = exp(eight[lane] - most);
            sums[lane] += eight[lane];
        }
    }
    for (sum, score) in sums.iter_mut().zip(rest.iter_mut()) {
        *score = exp(*score - most);
        *sum += *score;
    }
    let scale = 1.0 / super::floats::sum_lanes(sums);
    for score in scores.iter_mut() {
        *score *= scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn attention_equals_double_precision_and_rows_together_equal_rows_alone(
            key_length in 1usize..40, value_length in 1usize..70, group in 1usize..4,
            first_pos in 0usize..70, rows in 1usize..6, seed: u64,
        ) {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 40) as f32 / 8388608.0 - 1.0
            };
            let positions = first_pos + rows;
            let keys: Vec<Vec<f32>> = (0..positions).map(|_| (0..key_length).map(|_| next()).collect()).collect();
            let values: Vec<Vec<f32>> = (0..positions).map(|_| (0..value_length).map(|_| next()).collect()).collect();
            let queries: Vec<f32> = (0..rows * group * key_length).map(|_| 2.0 * next()).collect();
            // Cells beyond the positions hold garbage that must not count.
            let count = positions.div_ceil(BLOCK);
            let mut stored = vec![(vec![f32::NAN; key_length * BLOCK], vec![f32::NAN; value_length * BLOCK]); count];
            for p in 0..positions {
                store_key(&mut stored[p / BLOCK].0, p % BLOCK, &keys[p]);
                store_value(&mut stored[p / BLOCK].1, p % BLOCK, &values[p]);
            }
            let blocks: Vec<HeadBlock> = stored.iter().map(|(k, v)| HeadBlock { keys: k, values: v }).collect();
            let shape = HeadShape { key_length, value_length, group };
            let mut out = vec![0.0; rows * group * value_length];
            let mut scratch = Vec::new();
            attend(shape, &blocks, first_pos, &queries, &mut scratch, &mut out);
            for r in 0..rows {
                let mut alone = vec![0.0; group * value_length];
                let visible = (first_pos + r + 1).div_ceil(BLOCK);
                attend(shape, &blocks[..visible], first_pos + r, &queries[r * group * key_length..(r + 1) * group * key_length], &mut scratch, &mut alone);
                let together = &out[r * group * value_length..(r + 1) * group * value_length];
                prop_assert!(alone.iter().zip(together).all(|(a, b)| a.to_bits() == b.to_bits()));
                for g in 0..group {
                    let q = &queries[(r * group + g) * key_length..][..key_length];
                    let scores: Vec<f64> = (0..=first_pos + r)
                        .map(|p| keys[p].iter().zip(q).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>().exp())
                        .collect();
                    let sum: f64 = scores.iter().sum();
                    for d in 0..value_length {
                        let exact: f64 = scores.iter().enumerate().map(|(p, s)| s * f64::from(values[p][d])).sum::<f64>() / sum;
                        prop_assert!((exact - f64::from(together[g * value_length + d])).abs() < 1e-4);
                    }
                }
            }
        }
    }
}
