//! AVX2 kernels for weights in blocks of 32. Their plain twin is in [`super::legacy`]; both give the
//! same bits.
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "fixed-size arrays, and slices cut to one length at entry"
)]

use std::arch::x86_64::*;

use super::floats::sum_lanes;
use super::legacy::{Legacy, Packed, Q8Rows, SIDE};

/// 16 bytes from byte `at` of a block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn sixteen<const N: usize>(block: &[u8; N], at: usize) -> __m128i {
    let bytes = &block[at..at + 16];
    // SAFETY: the slice has 16 bytes; the load needs no alignment.
    #[allow(unsafe_code, reason = "unaligned vector load of a checked slice")]
    unsafe {
        _mm_loadu_si128(bytes.as_ptr().cast())
    }
}

/// 32 bytes from byte `at` of a block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn thirty_two<const N: usize>(block: &[u8; N], at: usize) -> __m256i {
    let bytes = &block[at..at + 32];
    // SAFETY: the slice has 32 bytes; the load needs no alignment.
    #[allow(unsafe_code, reason = "unaligned vector load of a checked slice")]
    unsafe {
        _mm256_loadu_si256(bytes.as_ptr().cast())
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load(block: &[i8; 32]) -> __m256i {
    // SAFETY: the array has 32 bytes; the load needs no alignment.
    #[allow(unsafe_code, reason = "unaligned vector load of an array")]
    unsafe {
        _mm256_loadu_si256(block.as_ptr().cast())
    }
}

/// Low halves of 16 bytes, then high halves.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn nibbles(bytes: __m128i) -> __m256i {
    let both = _mm256_set_m128i(_mm_srli_epi16::<4>(bytes), bytes);
    _mm256_and_si256(both, _mm256_set1_epi8(15))
}

/// Nibbles with a fifth bit each from `high`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn fifth_bits(high: [u8; 4], low: __m128i) -> __m256i {
    let all = _mm256_set1_epi32(i32::from_le_bytes(high));
    let spread = _mm256_shuffle_epi8(
        all,
        _mm256_setr_epi64x(
            0,
            0x0101_0101_0101_0101,
            0x0202_0202_0202_0202,
            0x0303_0303_0303_0303,
        ),
    );
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
    _mm256_or_si256(nibbles(low), _mm256_and_si256(set, _mm256_set1_epi8(16)))
}

/// Value of a half-precision number.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn half(bits: [u8; 2]) -> f32 {
    _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(
        u16::from_le_bytes(bits),
    ))))
}

/// Values of two half-precision numbers side by side.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn halves(bits: [u8; 4]) -> (f32, f32) {
    let both = _mm_cvtph_ps(_mm_cvtsi32_si128(i32::from_le_bytes(bits)));
    (_mm_cvtss_f32(both), _mm_cvtss_f32(_mm_movehdup_ps(both)))
}

/// A weight row as the kernels read it.
trait Source: Copy {
    /// Whether the numbers are signed and there is no offset.
    const SIGNED: bool;
    /// Number of blocks.
    fn len(self) -> usize;
    /// Numbers, scale and offset of block `b`.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    #[allow(
        unsafe_code,
        reason = "needs processor features that the caller checks"
    )]
    unsafe fn block(self, b: usize) -> (__m256i, f32, f32);
}

/// Blocks where they lie: for few activation rows.
struct InPlace<'a, F: Legacy>(&'a [F::Block]);

/// Blocks taken apart once: for many activation rows.
struct Apart<'a, F: Legacy> {
    blocks: &'a [Unpacked],
    format: std::marker::PhantomData<F>,
}

#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Unpacked {
    numbers: [i8; 32],
    scale: f32,
    offset: f32,
}

impl<F: Legacy> Clone for InPlace<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F: Legacy> Copy for InPlace<'_, F> {}
impl<F: Legacy> Clone for Apart<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F: Legacy> Copy for Apart<'_, F> {}

impl<F: Legacy> Source for InPlace<'_, F> {
    const SIGNED: bool = F::SIGNED;
    #[inline(always)]
    fn len(self) -> usize {
        self.0.len()
    }
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    #[allow(
        unsafe_code,
        reason = "needs processor features that the caller checks"
    )]
    unsafe fn block(self, b: usize) -> (__m256i, f32, f32) {
        let block = &self.0[b];
        // SAFETY: the features are those of this function.
        unsafe { F::wide(block) }
    }
}

impl<F: Legacy> Source for Apart<'_, F> {
    const SIGNED: bool = F::SIGNED;
    #[inline(always)]
    fn len(self) -> usize {
        self.blocks.len()
    }
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    #[allow(
        unsafe_code,
        reason = "needs processor features that the caller checks"
    )]
    unsafe fn block(self, b: usize) -> (__m256i, f32, f32) {
        let block = &self.blocks[b];
        (load(&block.numbers), block.scale, block.offset)
    }
}

/// Sums of the products of four neighbours each; `sizes` are the numbers' absolute values.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dots<const SIGNED: bool>(numbers: __m256i, sizes: __m256i, x: __m256i) -> __m256 {
    let pairs = if SIGNED {
        _mm256_maddubs_epi16(sizes, _mm256_sign_epi8(x, numbers))
    } else {
        _mm256_maddubs_epi16(numbers, x)
    };
    _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn lanes(sum: __m256) -> [f32; 8] {
    let mut lanes = [0.0; 8];
    // SAFETY: the array has room for the register; the store needs no alignment.
    #[allow(unsafe_code, reason = "unaligned vector store to an array")]
    unsafe {
        _mm256_storeu_ps(lanes.as_mut_ptr(), sum);
    }
    lanes
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn four(values: &[f32; SIDE]) -> __m128 {
    // SAFETY: the array has 16 bytes; the load needs no alignment.
    #[allow(unsafe_code, reason = "unaligned vector load of an array")]
    unsafe {
        _mm_loadu_ps(values.as_ptr())
    }
}

/// Products of `R` weight rows with four activation rows. Row `r` of the result is for weight row
/// `r`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile_four<S: Source, const R: usize>(w: [S; R], x: &[Packed<SIDE>]) -> [[f32; SIDE]; R] {
    let mut sums = [[_mm256_setzero_ps(); SIDE]; R];
    let mut offsets = [_mm_setzero_ps(); R];
    let mut count = x.len();
    for w in &w {
        count = count.min(w.len());
    }
    for b in 0..count {
        let x = &x[b];
        let d = four(&x.d);
        for r in 0..R {
            // SAFETY: the features are those of this function.
            #[allow(
                unsafe_code,
                reason = "calling a function compiled for features held here"
            )]
            let (numbers, scale, offset) = unsafe { w[r].block(b) };
            let sizes = _mm256_abs_epi8(numbers);
            let factors = _mm_mul_ps(_mm_set1_ps(scale), d);
            let factors = _mm256_set_m128(factors, factors);
            let each = [
                _mm256_permute_ps::<0b00_00_00_00>(factors),
                _mm256_permute_ps::<0b01_01_01_01>(factors),
                _mm256_permute_ps::<0b10_10_10_10>(factors),
                _mm256_permute_ps::<0b11_11_11_11>(factors),
            ];
            for c in 0..SIDE {
                let q = load(&x.q[c]);
                let dots = if S::SIGNED {
                    dots::<true>(numbers, sizes, q)
                } else {
                    dots::<false>(numbers, sizes, q)
                };
                sums[r][c] = _mm256_fmadd_ps(each[c], dots, sums[r][c]);
            }
            offsets[r] = _mm_fmadd_ps(_mm_set1_ps(offset), four(&x.s), offsets[r]);
        }
    }
    let mut out = [[0.0; SIDE]; R];
    for r in 0..R {
        let mut plus = [0.0; SIDE];
        // SAFETY: the array has room for the register; the store needs no alignment.
        #[allow(unsafe_code, reason = "unaligned vector store to an array")]
        unsafe {
            _mm_storeu_ps(plus.as_mut_ptr(), offsets[r]);
        }
        for c in 0..SIDE {
            out[r][c] = sum_lanes(lanes(sums[r][c])) + plus[c];
        }
    }
    out
}

/// Products of `R` weight rows with one activation row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile_one<S: Source, const R: usize>(w: [S; R], x: &[Packed<1>]) -> [f32; R] {
    let mut sums = [_mm256_setzero_ps(); R];
    let mut offsets = [0.0f32; R];
    let mut count = x.len();
    for w in &w {
        count = count.min(w.len());
    }
    for b in 0..count {
        let x = &x[b];
        let q = load(&x.q[0]);
        for r in 0..R {
            // SAFETY: the features are those of this function.
            #[allow(
                unsafe_code,
                reason = "calling a function compiled for features held here"
            )]
            let (numbers, scale, offset) = unsafe { w[r].block(b) };
            let dots = if S::SIGNED {
                dots::<true>(numbers, _mm256_abs_epi8(numbers), q)
            } else {
                dots::<false>(numbers, numbers, q)
            };
            sums[r] = _mm256_fmadd_ps(_mm256_set1_ps(scale * x.d[0]), dots, sums[r]);
            if !S::SIGNED {
                offsets[r] = offset.mul_add(x.s[0], offsets[r]);
            }
        }
    }
    let mut out = [0.0; R];
    for r in 0..R {
        out[r] = sum_lanes(lanes(sums[r])) + offsets[r];
    }
    out
}

/// Products of `R` weight rows with all rows of `x`; `out` is one row for each weight row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn strip<S: Source, const R: usize>(w: [S; R], x: &Q8Rows, out: &mut [f32]) {
    let rows = x.rows();
    let (fours, ones) = x.groups();
    let mut at = 0;
    for x in fours {
        let values = tile_four::<S, R>(w, x);
        for r in 0..R {
            out[r * rows + at..r * rows + at + SIDE].copy_from_slice(&values[r]);
        }
        at += SIDE;
    }
    for x in ones {
        let values = tile_one::<S, R>(w, x);
        for r in 0..R {
            out[r * rows + at] = values[r];
        }
        at += 1;
    }
}

/// From this many activation rows on, taking weight blocks apart once pays.
const MANY: usize = 8;

thread_local! {
    static APART: std::cell::RefCell<Vec<Unpacked>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// See [`super::legacy::dot_rows`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn dot_rows<F: Legacy>(weights: &[u8], row_bytes: usize, x: &Q8Rows, out: &mut [f32]) {
    let rows = x.rows();
    if rows == 0 {
        return;
    }
    if rows >= MANY {
        // Taken, not borrowed, so that no closure stands between the kernel and its features.
        let mut scratch = APART.take();
        let pairs = weights.chunks(2 * row_bytes);
        for (pair, out) in pairs.zip(out.chunks_mut(2 * rows)) {
            take_apart::<F>(pair, &mut scratch);
            let format = std::marker::PhantomData::<F>;
            if pair.len() == 2 * row_bytes {
                let (a, b) = scratch.split_at(scratch.len() / 2);
                let w = [Apart { blocks: a, format }, Apart { blocks: b, format }];
                strip::<Apart<'_, F>, 2>(w, x, out);
            } else {
                let blocks = &scratch[..];
                strip::<Apart<'_, F>, 1>([Apart { blocks, format }], x, out);
            }
        }
        APART.set(scratch);
        return;
    }
    const R: usize = 4;
    let mut groups = weights.chunks_exact(R * row_bytes);
    let mut outs = out.chunks_exact_mut(R * rows);
    for (group, out) in groups.by_ref().zip(outs.by_ref()) {
        let row = |i: usize| InPlace::<F>(F::blocks(&group[i * row_bytes..(i + 1) * row_bytes]));
        if rows < SIDE {
            strip::<_, R>([row(0), row(1), row(2), row(3)], x, out);
        } else {
            let (a, b) = out.split_at_mut(2 * rows);
            strip::<_, 2>([row(0), row(1)], x, a);
            strip::<_, 2>([row(2), row(3)], x, b);
        }
    }
    for (w, out) in groups
        .remainder()
        .chunks_exact(row_bytes)
        .zip(outs.into_remainder().chunks_exact_mut(rows))
    {
        strip::<_, 1>([InPlace::<F>(F::blocks(w))], x, out);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn take_apart<F: Legacy>(weights: &[u8], out: &mut Vec<Unpacked>) {
    let blocks = F::blocks(weights);
    let empty = Unpacked {
        numbers: [0; 32],
        scale: 0.0,
        offset: 0.0,
    };
    out.resize(blocks.len(), empty);
    for (block, out) in blocks.iter().zip(out.iter_mut()) {
        // SAFETY: the features are those of this function; the array has room for the register,
        // and the store needs no alignment.
        #[allow(unsafe_code, reason = "features held here; vector store to an array")]
        unsafe {
            let (numbers, scale, offset) = F::wide(block);
            _mm256_storeu_si256(out.numbers.as_mut_ptr().cast(), numbers);
            (out.scale, out.offset) = (scale, offset);
        }
    }
}
