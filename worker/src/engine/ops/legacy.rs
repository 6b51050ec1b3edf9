//! Dot products with weights in blocks of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
//!
//! Activations are rounded to 8 bits in blocks of 32 too, with 32-bit scales. A block contributes
//! `scale_w * scale_x * sum(q_w * q_x) + offset_w * sum(x)`, its integer sums in eight lanes of
//! four neighbours each, so that vector kernels and the plain twin here agree bit for bit.
#![allow(
    clippy::indexing_slicing,
    reason = "fixed-size arrays, and slices cut to one length at entry"
)]

use super::floats::{LANES, half_bits, sum_lanes};

/// Numbers in a block.
pub const BLOCK: usize = 32;

/// Rows of activations in 8 bits.
#[derive(Debug, Default)]
pub struct Q8Rows {
    blocks: usize,
    q: Vec<[i8; BLOCK]>,
    d: Vec<f32>,
    s: Vec<f32>,
}

/// One row of activations in 8 bits: blocks, their scales, and the scaled sums of the blocks.
#[derive(Clone, Copy)]
pub struct Q8Row<'a> {
    pub(super) q: &'a [[i8; BLOCK]],
    pub(super) d: &'a [f32],
    pub(super) s: &'a [f32],
}

impl Q8Rows {
    /// Takes rows of `columns` floats each (a multiple of [`BLOCK`]).
    pub fn fill(&mut self, x: &[f32], columns: usize) {
        self.blocks = columns / BLOCK;
        let blocks = x.len() / BLOCK;
        self.q.resize(blocks, [0; BLOCK]);
        self.d.resize(blocks, 0.0);
        self.s.resize(blocks, 0.0);
        quantize(x, &mut self.q, &mut self.d, &mut self.s);
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.d.len() / self.blocks.max(1)
    }

    /// Row `i`.
    #[inline(always)]
    pub fn row(&self, i: usize) -> Q8Row<'_> {
        let range = i * self.blocks..(i + 1) * self.blocks;
        Q8Row {
            q: &self.q[range.clone()],
            d: &self.d[range.clone()],
            s: &self.s[range],
        }
    }
}

by_tier! {
    fn quantize(x: &[f32], q: &mut [[i8; BLOCK]], d: &mut [f32], s: &mut [f32]) {
        let (blocks, _) = x.as_chunks::<BLOCK>();
        for (((x, q), d), s) in blocks.iter().zip(q).zip(d).zip(s) {
            let mut most = [0.0f32; LANES];
            for part in x.as_chunks::<LANES>().0 {
                for lane in 0..LANES {
                    most[lane] = most[lane].max(part[lane].abs());
                }
            }
            let most = most.iter().fold(0.0f32, |a, &b| a.max(b));
            let scale = most / 127.0;
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            let mut sum = 0i32;
            for (q, &x) in q.iter_mut().zip(x) {
                let rounded = (x * inverse).round_ties_even() as i32;
                *q = rounded as i8;
                sum += rounded;
            }
            *d = scale;
            *s = scale * sum as f32;
        }
    }
}

/// A block format.
pub trait Legacy: Sync {
    /// Bytes of a block.
    type Block: Sync;
    /// Whether the numbers are signed; the others are 0 to 31 and have an offset.
    const SIGNED: bool;
    /// Cuts a row's bytes into blocks.
    fn blocks(bytes: &[u8]) -> &[Self::Block];
    /// Factor of the numbers.
    fn scale(block: &Self::Block) -> f32;
    /// Added to each product of scale and number; 0 when signed.
    fn offset(block: &Self::Block) -> f32;
    /// The numbers.
    fn numbers(block: &Self::Block) -> [i8; BLOCK];
    /// The numbers in one register.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "needs a processor feature that the caller checks")]
    unsafe fn wide(block: &Self::Block) -> std::arch::x86_64::__m256i;
}

/// 4 bits, symmetric around 8.
pub struct Q4_0;
/// 4 bits with an offset.
pub struct Q4_1;
/// 5 bits, symmetric around 16.
pub struct Q5_0;
/// 5 bits with an offset.
pub struct Q5_1;
/// 8 bits.
pub struct Q8_0;

#[inline(always)]
fn half_at(bytes: &[u8], at: usize) -> f32 {
    half_bits(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

#[inline(always)]
fn nibbles(bytes: &[u8]) -> [i8; BLOCK] {
    std::array::from_fn(|i| {
        (if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 }) as i8
    })
}

#[inline(always)]
fn fifth_bits(high: &[u8], low: &[u8]) -> [i8; BLOCK] {
    let mut out = nibbles(low);
    for (i, o) in out.iter_mut().enumerate() {
        *o |= ((high[i / 8] >> (i % 8) & 1) << 4) as i8;
    }
    out
}

macro_rules! legacy {
    ($name:ident, $bytes:literal, $signed:literal, $offset:expr, $numbers:expr, $wide:expr) => {
        impl Legacy for $name {
            type Block = [u8; $bytes];
            const SIGNED: bool = $signed;
            #[inline(always)]
            fn blocks(bytes: &[u8]) -> &[Self::Block] {
                bytes.as_chunks().0
            }
            #[inline(always)]
            fn scale(block: &Self::Block) -> f32 {
                half_at(block, 0)
            }
            #[inline(always)]
            fn offset(block: &Self::Block) -> f32 {
                $offset(block)
            }
            #[inline(always)]
            fn numbers(block: &Self::Block) -> [i8; BLOCK] {
                $numbers(block)
            }
            #[cfg(target_arch = "x86_64")]
            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(unsafe_code, reason = "needs a processor feature that the caller checks")]
            unsafe fn wide(block: &Self::Block) -> std::arch::x86_64::__m256i {
                $wide(block)
            }
        }
    };
}

legacy!(
    Q4_0, 18, false,
    |b: &[u8; 18]| -8.0 * half_at(b, 0),
    |b: &[u8; 18]| nibbles(&b[2..]),
    |b: &[u8; 18]| super::x86::nibbles(super::x86::sixteen(b, 2))
);
legacy!(
    Q4_1, 20, false,
    |b: &[u8; 20]| half_at(b, 2),
    |b: &[u8; 20]| nibbles(&b[4..]),
    |b: &[u8; 20]| super::x86::nibbles(super::x86::sixteen(b, 4))
);
legacy!(
    Q5_0, 22, false,
    |b: &[u8; 22]| -16.0 * half_at(b, 0),
    |b: &[u8; 22]| fifth_bits(&b[2..6], &b[6..]),
    |b: &[u8; 22]| super::x86::fifth_bits(
        [b[2], b[3], b[4], b[5]],
        super::x86::sixteen(b, 6)
    )
);
legacy!(
    Q5_1, 24, false,
    |b: &[u8; 24]| half_at(b, 2),
    |b: &[u8; 24]| fifth_bits(&b[4..8], &b[8..]),
    |b: &[u8; 24]| super::x86::fifth_bits(
        [b[4], b[5], b[6], b[7]],
        super::x86::sixteen(b, 8)
    )
);
legacy!(
    Q8_0, 34, true,
    |_: &[u8; 34]| 0.0,
    |b: &[u8; 34]| std::array::from_fn(|i| b[2 + i] as i8),
    |b: &[u8; 34]| super::x86::thirty_two(b, 2)
);

/// Products of `R` weight rows with `C` activation rows: the plain twin of the vector kernels.
#[inline(always)]
pub(super) fn tile_plain<F: Legacy, const R: usize, const C: usize>(
    w: [&[F::Block]; R],
    x: [Q8Row<'_>; C],
) -> [[f32; C]; R] {
    let mut sums = [[[0.0f32; LANES]; C]; R];
    for (w, sums) in w.iter().zip(&mut sums) {
        for (b, block) in w.iter().enumerate() {
            let (scale, eighth, numbers) =
                (F::scale(block), F::offset(block) * 0.125, F::numbers(block));
            for (x, sum) in x.iter().zip(sums.iter_mut()) {
                let factor = scale * x.d[b];
                for lane in 0..LANES {
                    let mut dot = 0i32;
                    for i in 4 * lane..4 * lane + 4 {
                        dot += i32::from(numbers[i]) * i32::from(x.q[b][i]);
                    }
                    sum[lane] = factor.mul_add(dot as f32, sum[lane]);
                    if !F::SIGNED {
                        sum[lane] = eighth.mul_add(x.s[b], sum[lane]);
                    }
                }
            }
        }
    }
    sums.map(|row| row.map(sum_lanes))
}

/// Block formats, as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are the format's names")]
pub enum LegacyKind {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
}

/// Dot products of consecutive weight rows, of `row_bytes` each, with all rows of `x`.
///
/// `out` is one row of `x.rows()` values for each weight row. Weight rows are as long as rows of
/// `x`: the caller checks.
pub fn dot_rows(kind: LegacyKind, weights: &[u8], row_bytes: usize, x: &Q8Rows, out: &mut [f32]) {
    match kind {
        LegacyKind::Q4_0 => dispatch::<Q4_0>(weights, row_bytes, x, out),
        LegacyKind::Q4_1 => dispatch::<Q4_1>(weights, row_bytes, x, out),
        LegacyKind::Q5_0 => dispatch::<Q5_0>(weights, row_bytes, x, out),
        LegacyKind::Q5_1 => dispatch::<Q5_1>(weights, row_bytes, x, out),
        LegacyKind::Q8_0 => dispatch::<Q8_0>(weights, row_bytes, x, out),
    }
}

fn dispatch<F: Legacy>(weights: &[u8], row_bytes: usize, x: &Q8Rows, out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if super::tier::has_avx2() {
        // SAFETY: the processor has the features, checked in the line before.
        #[allow(unsafe_code, reason = "calling a function compiled for checked features")]
        return unsafe { super::x86::dot_rows::<F>(weights, row_bytes, x, out) };
    }
    let rows = x.rows();
    for (w, out) in weights.chunks_exact(row_bytes).zip(out.chunks_exact_mut(rows)) {
        for (i, o) in out.iter_mut().enumerate() {
            [[*o]] = tile_plain::<F, 1, 1>([F::blocks(w)], [x.row(i)]);
        }
    }
}

/// Reads blocks as floats.
pub fn decode(kind: LegacyKind, bytes: &[u8], out: &mut [f32]) {
    fn run<F: Legacy>(bytes: &[u8], out: &mut [f32]) {
        for (block, out) in F::blocks(bytes).iter().zip(out.as_chunks_mut::<BLOCK>().0) {
            let (scale, offset) = (F::scale(block), F::offset(block));
            for (o, n) in out.iter_mut().zip(F::numbers(block)) {
                *o = f32::from(n) * scale + offset;
            }
        }
    }
    match kind {
        LegacyKind::Q4_0 => run::<Q4_0>(bytes, out),
        LegacyKind::Q4_1 => run::<Q4_1>(bytes, out),
        LegacyKind::Q5_0 => run::<Q5_0>(bytes, out),
        LegacyKind::Q5_1 => run::<Q5_1>(bytes, out),
        LegacyKind::Q8_0 => run::<Q8_0>(bytes, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::quantized::k_quants::{
        BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, GgmlType,
    };
    use proptest::prelude::*;

    const KINDS: [(LegacyKind, usize); 5] = [
        (LegacyKind::Q4_0, 18),
        (LegacyKind::Q4_1, 20),
        (LegacyKind::Q5_0, 22),
        (LegacyKind::Q5_1, 24),
        (LegacyKind::Q8_0, 34),
    ];

    struct Rng(u64);
    impl Rng {
        fn next(&mut self) -> u32 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 32) as u32
        }
        fn float(&mut self) -> f32 {
            self.next() as f32 / 2147483648.0 - 1.0
        }
        /// Blocks of random numbers with scale and offset of ordinary size.
        fn blocks(&mut self, kind: LegacyKind, bytes: usize, count: usize) -> Vec<u8> {
            let mut out = Vec::new();
            for _ in 0..count {
                let start = out.len();
                out.extend((0..bytes).map(|_| self.next() as u8));
                let halves = match kind {
                    LegacyKind::Q4_1 | LegacyKind::Q5_1 => 2,
                    _ => 1,
                };
                for i in 0..halves {
                    let v = half::f16::from_f32(self.float() / 16.0).to_le_bytes();
                    out[start + 2 * i..start + 2 * i + 2].copy_from_slice(&v);
                }
            }
            out
        }
    }

    fn plain(kind: LegacyKind, w: &[u8], x: Q8Row<'_>) -> f32 {
        match kind {
            LegacyKind::Q4_0 => tile_plain::<Q4_0, 1, 1>([Q4_0::blocks(w)], [x])[0][0],
            LegacyKind::Q4_1 => tile_plain::<Q4_1, 1, 1>([Q4_1::blocks(w)], [x])[0][0],
            LegacyKind::Q5_0 => tile_plain::<Q5_0, 1, 1>([Q5_0::blocks(w)], [x])[0][0],
            LegacyKind::Q5_1 => tile_plain::<Q5_1, 1, 1>([Q5_1::blocks(w)], [x])[0][0],
            LegacyKind::Q8_0 => tile_plain::<Q8_0, 1, 1>([Q8_0::blocks(w)], [x])[0][0],
        }
    }

    proptest! {
        #[test]
        fn every_grouping_of_rows_gives_the_plain_twins_bits(
            seed: u64, weight_rows in 1usize..11, rows in 1usize..14, blocks in 1usize..6,
        ) {
            let mut rng = Rng(seed);
            let x: Vec<f32> = (0..rows * blocks * BLOCK).map(|_| rng.float() * 3.0).collect();
            let mut acts = Q8Rows::default();
            acts.fill(&x, blocks * BLOCK);
            for (kind, bytes) in KINDS {
                let w = rng.blocks(kind, bytes, weight_rows * blocks);
                let mut out = vec![0.0; weight_rows * rows];
                dot_rows(kind, &w, blocks * bytes, &acts, &mut out);
                for (r, w) in w.chunks(blocks * bytes).enumerate() {
                    for c in 0..rows {
                        let twin = plain(kind, w, acts.row(c));
                        prop_assert_eq!(out[r * rows + c].to_bits(), twin.to_bits(), "{:?}", kind);
                        let mut floats = vec![0.0; blocks * BLOCK];
                        decode(kind, w, &mut floats);
                        let exact: f64 = floats.iter().zip(&x[c * floats.len()..])
                            .map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                        prop_assert!((exact - f64::from(twin)).abs() < 0.05 * blocks as f64);
                    }
                }
            }
        }
    }

    /// Products of the extreme numbers must not saturate the 16-bit sums.
    #[test]
    fn extreme_numbers_do_not_saturate() {
        for sign in [1.0, -1.0] {
            let mut acts = Q8Rows::default();
            acts.fill(&[sign * 127.0; BLOCK], BLOCK);
            let mut w = vec![0x00, 0x3c];
            w.extend([0x80u8; BLOCK]);
            let mut out = [0.0];
            dot_rows(LegacyKind::Q8_0, &w, 34, &acts, &mut out);
            assert_eq!(out[0], -128.0 * 127.0 * 32.0 * sign);
            let mut w = vec![0x00, 0x3c, 0, 0];
            w.extend([0xffu8; 20]);
            dot_rows(LegacyKind::Q5_1, &w, 24, &acts, &mut out);
            assert_eq!(out[0], 31.0 * 127.0 * 32.0 * sign);
        }
    }

    #[test]
    fn decoded_numbers_equal_candles() {
        fn reference<T: GgmlType>(x: &[f32], bytes: usize) -> (Vec<u8>, Vec<f32>) {
            let mut blocks = vec![T::zeros(); x.len() / BLOCK];
            T::from_float(x, &mut blocks);
            let mut floats = vec![0.0; x.len()];
            T::to_float(&blocks, &mut floats);
            assert_eq!(size_of::<T>(), bytes);
            // SAFETY: plain blocks without padding, read as bytes.
            #[allow(unsafe_code, reason = "test reads the reference's blocks as bytes")]
            let raw = unsafe {
                std::slice::from_raw_parts(blocks.as_ptr().cast::<u8>(), size_of_val(&blocks[..]))
            };
            (raw.to_vec(), floats)
        }
        let mut rng = Rng(5);
        let x: Vec<f32> = (0..4 * BLOCK).map(|_| rng.float()).collect();
        for (kind, bytes) in KINDS {
            let (raw, floats) = match kind {
                LegacyKind::Q4_0 => reference::<BlockQ4_0>(&x, bytes),
                LegacyKind::Q4_1 => reference::<BlockQ4_1>(&x, bytes),
                LegacyKind::Q5_0 => reference::<BlockQ5_0>(&x, bytes),
                LegacyKind::Q5_1 => reference::<BlockQ5_1>(&x, bytes),
                LegacyKind::Q8_0 => reference::<BlockQ8_0>(&x, bytes),
            };
            let mut ours = vec![0.0; x.len()];
            decode(kind, &raw, &mut ours);
            for (a, b) in ours.iter().zip(&floats) {
                assert!((a - b).abs() < 1e-6, "{kind:?} {a} {b}");
            }
        }
    }
}
