//! Dot products with weights in blocks of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
//!
//! Activations are rounded to 8 bits in blocks of 32 too, with 32-bit scales. A block contributes
//! `scale_w * scale_x * sum(q_w * q_x)` and `offset_w * sum(x)`, summed apart; its integer sums are
//! in eight lanes of four neighbours each, so that vector kernels and the plain twin here agree bit
//! for bit.
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "fixed-size arrays, and slices cut to one length at entry"
)]

use super::floats::{LANES, half_bits, sum_lanes};

/// Numbers in a block.
pub const BLOCK: usize = 32;

/// A block of `C` rows of activations in 8 bits, side by side.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Packed<const C: usize> {
    /// The numbers, by row.
    pub q: [[i8; BLOCK]; C],
    /// Scales of the rows' blocks.
    pub d: [f32; C],
    /// Scaled sums of the rows' blocks.
    pub s: [f32; C],
}

impl<const C: usize> Packed<C> {
    const ZERO: Self = Packed {
        q: [[0; BLOCK]; C],
        d: [0.0; C],
        s: [0.0; C],
    };
}

/// Rows that lie side by side, so that a kernel streams through one piece of memory.
pub(super) const SIDE: usize = 4;

/// Rows of activations in 8 bits: four side by side as long as there are four, then single ones.
#[derive(Debug, Default)]
pub struct Q8Rows {
    rows: usize,
    blocks: usize,
    fours: Vec<Packed<SIDE>>,
    ones: Vec<Packed<1>>,
}

impl Q8Rows {
    /// Takes rows of `columns` floats each (a multiple of [`BLOCK`]).
    pub fn fill(&mut self, x: &[f32], columns: usize) {
        self.blocks = columns / BLOCK;
        self.rows = x.len() / columns.max(1);
        let fours = self.rows / SIDE;
        self.fours.resize(fours * self.blocks, Packed::ZERO);
        self.ones
            .resize((self.rows - fours * SIDE) * self.blocks, Packed::ZERO);
        let (head, tail) = x.split_at(fours * SIDE * columns);
        pack_fours(head, columns, &mut self.fours);
        pack_ones(tail, columns, &mut self.ones);
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Groups of four rows, then single rows; each is one packed block for each block of a row.
    pub(super) fn groups(
        &self,
    ) -> (
        std::slice::ChunksExact<'_, Packed<SIDE>>,
        std::slice::ChunksExact<'_, Packed<1>>,
    ) {
        let blocks = self.blocks.max(1);
        (
            self.fours.chunks_exact(blocks),
            self.ones.chunks_exact(blocks),
        )
    }
}

by_tier! {
    fn pack_fours(x: &[f32], columns: usize, out: &mut [Packed<SIDE>]) {
        pack(x, columns, out);
    }
}

by_tier! {
    fn pack_ones(x: &[f32], columns: usize, out: &mut [Packed<1>]) {
        pack(x, columns, out);
    }
}

#[inline(always)]
fn pack<const C: usize>(x: &[f32], columns: usize, out: &mut [Packed<C>]) {
    let groups = out.chunks_exact_mut((columns / BLOCK).max(1));
    for (out, x) in groups.zip(x.chunks_exact(columns * C)) {
        for (c, x) in x.chunks_exact(columns).enumerate() {
            for (packed, x) in out.iter_mut().zip(x.as_chunks::<BLOCK>().0) {
                (packed.d[c], packed.s[c]) = quantize(x, &mut packed.q[c]);
            }
        }
    }
}

/// Rounds a block to 8 bits; returns its scale and the scaled sum of the rounded numbers.
#[inline(always)]
fn quantize(x: &[f32; BLOCK], q: &mut [i8; BLOCK]) -> (f32, f32) {
    let mut most = [0.0f32; LANES];
    for part in x.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            let size = part[lane].abs();
            most[lane] = if size > most[lane] { size } else { most[lane] };
        }
    }
    let most = most.iter().fold(0.0f32, |a, &b| a.max(b));
    let scale = most / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    // Adding 1.5 * 2^23 rounds to an integer, ties to even, and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let mut sum = 0i32;
    for (q, &x) in q.iter_mut().zip(x) {
        let bits = (x * inverse + ROUND).to_bits();
        *q = bits as i8;
        sum += i32::from(bits as i8);
    }
    (scale, scale * sum as f32)
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
    /// The numbers in one register, scale and offset.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    #[allow(
        unsafe_code,
        reason = "needs a processor feature that the caller checks"
    )]
    unsafe fn wide(block: &Self::Block) -> (std::arch::x86_64::__m256i, f32, f32);
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
        (if i < 16 {
            bytes[i] & 15
        } else {
            bytes[i - 16] >> 4
        }) as i8
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
            #[allow(
                unsafe_code,
                reason = "needs a processor feature that the caller checks"
            )]
            unsafe fn wide(block: &Self::Block) -> (std::arch::x86_64::__m256i, f32, f32) {
                $wide(block)
            }
        }
    };
}

legacy!(
    Q4_0,
    18,
    false,
    |b: &[u8; 18]| -8.0 * half_at(b, 0),
    |b: &[u8; 18]| nibbles(&b[2..]),
    |b: &[u8; 18]| {
        let scale = super::x86::half([b[0], b[1]]);
        let numbers = super::x86::nibbles(super::x86::sixteen(b, 2));
        (numbers, scale, -8.0 * scale)
    }
);
legacy!(
    Q4_1,
    20,
    false,
    |b: &[u8; 20]| half_at(b, 2),
    |b: &[u8; 20]| nibbles(&b[4..]),
    |b: &[u8; 20]| {
        let (scale, offset) = super::x86::halves([b[0], b[1], b[2], b[3]]);
        (
            super::x86::nibbles(super::x86::sixteen(b, 4)),
            scale,
            offset,
        )
    }
);
legacy!(
    Q5_0,
    22,
    false,
    |b: &[u8; 22]| -16.0 * half_at(b, 0),
    |b: &[u8; 22]| fifth_bits(&b[2..6], &b[6..]),
    |b: &[u8; 22]| {
        let scale = super::x86::half([b[0], b[1]]);
        let high = [b[2], b[3], b[4], b[5]];
        let numbers = super::x86::fifth_bits(high, super::x86::sixteen(b, 6));
        (numbers, scale, -16.0 * scale)
    }
);
legacy!(
    Q5_1,
    24,
    false,
    |b: &[u8; 24]| half_at(b, 2),
    |b: &[u8; 24]| fifth_bits(&b[4..8], &b[8..]),
    |b: &[u8; 24]| {
        let (scale, offset) = super::x86::halves([b[0], b[1], b[2], b[3]]);
        let high = [b[4], b[5], b[6], b[7]];
        let numbers = super::x86::fifth_bits(high, super::x86::sixteen(b, 8));
        (numbers, scale, offset)
    }
);
legacy!(
    Q8_0,
    34,
    true,
    |_: &[u8; 34]| 0.0,
    |b: &[u8; 34]| std::array::from_fn(|i| b[2 + i] as i8),
    |b: &[u8; 34]| {
        let scale = super::x86::half([b[0], b[1]]);
        (super::x86::thirty_two(b, 2), scale, 0.0)
    }
);

/// Products of `R` weight rows with `C` activation rows: the plain twin of the vector kernels.
#[inline(always)]
pub(super) fn tile_plain<F: Legacy, const R: usize, const C: usize>(
    w: [&[F::Block]; R],
    x: &[Packed<C>],
) -> [[f32; C]; R] {
    let mut out = [[0.0; C]; R];
    for (w, out) in w.iter().zip(&mut out) {
        let mut sums = [[0.0f32; LANES]; C];
        let mut offsets = [0.0f32; C];
        for (block, x) in w.iter().zip(x) {
            let (scale, offset, numbers) = (F::scale(block), F::offset(block), F::numbers(block));
            for c in 0..C {
                let factor = scale * x.d[c];
                for lane in 0..LANES {
                    let mut dot = 0i32;
                    for i in 4 * lane..4 * lane + 4 {
                        dot += i32::from(numbers[i]) * i32::from(x.q[c][i]);
                    }
                    sums[c][lane] = factor.mul_add(dot as f32, sums[c][lane]);
                }
                offsets[c] = offset.mul_add(x.s[c], offsets[c]);
            }
        }
        for c in 0..C {
            out[c] = sum_lanes(sums[c]) + offsets[c];
        }
    }
    out
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
        #[allow(
            unsafe_code,
            reason = "calling a function compiled for checked features"
        )]
        return unsafe { super::x86::dot_rows::<F>(weights, row_bytes, x, out) };
    }
    for (w, out) in weights
        .chunks_exact(row_bytes)
        .zip(out.chunks_exact_mut(x.rows().max(1)))
    {
        row_plain::<F>(w, x, out);
    }
}

/// Products of one weight row with all rows of `x`.
fn row_plain<F: Legacy>(w: &[u8], x: &Q8Rows, out: &mut [f32]) {
    let (fours, ones) = x.groups();
    let (wide, rest) = out.as_chunks_mut::<SIDE>();
    for (out, x) in wide.iter_mut().zip(fours) {
        [*out] = tile_plain::<F, 1, SIDE>([F::blocks(w)], x);
    }
    for (out, x) in rest.iter_mut().zip(ones) {
        [[*out]] = tile_plain::<F, 1, 1>([F::blocks(w)], x);
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
            self.0 = self
                .0
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
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

    fn plain(kind: LegacyKind, w: &[u8], x: &[f32]) -> f32 {
        let mut acts = Q8Rows::default();
        acts.fill(x, x.len());
        let mut out = [0.0];
        match kind {
            LegacyKind::Q4_0 => row_plain::<Q4_0>(w, &acts, &mut out),
            LegacyKind::Q4_1 => row_plain::<Q4_1>(w, &acts, &mut out),
            LegacyKind::Q5_0 => row_plain::<Q5_0>(w, &acts, &mut out),
            LegacyKind::Q5_1 => row_plain::<Q5_1>(w, &acts, &mut out),
            LegacyKind::Q8_0 => row_plain::<Q8_0>(w, &acts, &mut out),
        }
        out[0]
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
                        let twin = plain(kind, w, &x[c * blocks * BLOCK..][..blocks * BLOCK]);
                        prop_assert_eq!(out[r * rows + c].to_bits(), twin.to_bits(), "{:?}", kind);
                        let mut floats = vec![0.0; blocks * BLOCK];
                        decode(kind, w, &mut floats);
                        let exact: f64 = floats.iter().zip(&x[c * floats.len()..])
                            .map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                        // Rounding an activation moves it by half a step of at most 3 / 127.
                        let bound: f64 = floats.iter().map(|w| f64::from(w.abs()) * 1.5 / 127.0).sum();
                        prop_assert!((exact - f64::from(twin)).abs() <= bound + 1e-3);
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
