//! AVX2 kernels for weights in blocks of 32. Their plain twin is in [`super::legacy`]; both give the
//! same bits.
#![allow(
    clippy::indexing_slicing,
    reason = "fixed-size arrays, and slices cut to one length at entry"
)]

use std::arch::x86_64::*;

use super::floats::sum_lanes;
use super::legacy::{Legacy, Q8Row, Q8Rows};

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

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile<F: Legacy, const R: usize, const C: usize>(
    w: [&[F::Block]; R],
    x: [Q8Row<'_>; C],
) -> [[f32; C]; R] {
    let blocks = x.first().map_or(0, |x| x.d.len());
    let w = w.map(|w| &w[..blocks]);
    let x = x.map(|x| Q8Row {
        q: &x.q[..blocks],
        d: &x.d[..blocks],
        s: &x.s[..blocks],
    });
    let ones = _mm256_set1_epi16(1);
    let mut sums = [[_mm256_setzero_ps(); C]; R];
    for b in 0..blocks {
        for r in 0..R {
            let block = &w[r][b];
            // SAFETY: this function runs only where AVX2 is.
            #[allow(unsafe_code, reason = "calling a function compiled for features held here")]
            let numbers = unsafe { F::wide(block) };
            let scale = _mm256_set1_ps(F::scale(block));
            if F::SIGNED {
                let size = _mm256_abs_epi8(numbers);
                for c in 0..C {
                    let signed = _mm256_sign_epi8(load(&x[c].q[b]), numbers);
                    let dots = _mm256_madd_epi16(_mm256_maddubs_epi16(size, signed), ones);
                    let factor = _mm256_mul_ps(scale, _mm256_set1_ps(x[c].d[b]));
                    sums[r][c] = _mm256_fmadd_ps(factor, _mm256_cvtepi32_ps(dots), sums[r][c]);
                }
            } else {
                let eighth = _mm256_set1_ps(F::offset(block) * 0.125);
                for c in 0..C {
                    let dots = _mm256_madd_epi16(
                        _mm256_maddubs_epi16(numbers, load(&x[c].q[b])),
                        ones,
                    );
                    let factor = _mm256_mul_ps(scale, _mm256_set1_ps(x[c].d[b]));
                    let sum = _mm256_fmadd_ps(factor, _mm256_cvtepi32_ps(dots), sums[r][c]);
                    sums[r][c] = _mm256_fmadd_ps(eighth, _mm256_set1_ps(x[c].s[b]), sum);
                }
            }
        }
    }
    sums.map(|row| {
        row.map(|sum| {
            let mut lanes = [0.0; 8];
            // SAFETY: the array has room for the register; the store needs no alignment.
            #[allow(unsafe_code, reason = "unaligned vector store to an array")]
            unsafe {
                _mm256_storeu_ps(lanes.as_mut_ptr(), sum);
            }
            sum_lanes(lanes)
        })
    })
}

/// Products of `R` weight rows with all rows of `x`, `C` at a time.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn strip<F: Legacy, const R: usize, const C: usize>(
    w: [&[F::Block]; R],
    x: &Q8Rows,
    out: &mut [f32],
) {
    let rows = x.rows();
    let whole = rows - rows % C;
    for c in (0..whole).step_by(C) {
        let values = tile::<F, R, C>(w, std::array::from_fn(|i| x.row(c + i)));
        for (r, row) in values.iter().enumerate() {
            out[r * rows + c..r * rows + c + C].copy_from_slice(row);
        }
    }
    for c in whole..rows {
        let values = tile::<F, R, 1>(w, [x.row(c)]);
        for (r, [value]) in values.iter().enumerate() {
            out[r * rows + c] = *value;
        }
    }
}

/// See [`super::legacy::dot_rows`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn dot_rows<F: Legacy>(weights: &[u8], row_bytes: usize, x: &Q8Rows, out: &mut [f32]) {
    const R: usize = 4;
    let rows = x.rows();
    let mut groups = weights.chunks_exact(R * row_bytes);
    let mut outs = out.chunks_exact_mut(R * rows);
    for (group, out) in groups.by_ref().zip(outs.by_ref()) {
        let w: [&[F::Block]; R] =
            std::array::from_fn(|i| F::blocks(&group[i * row_bytes..(i + 1) * row_bytes]));
        if rows < 4 {
            strip::<F, R, 1>(w, x, out);
        } else {
            let (a, b) = out.split_at_mut(2 * rows);
            strip::<F, 2, 4>([w[0], w[1]], x, a);
            strip::<F, 2, 4>([w[2], w[3]], x, b);
        }
    }
    for (w, out) in groups
        .remainder()
        .chunks_exact(row_bytes)
        .zip(outs.into_remainder().chunks_exact_mut(rows))
    {
        strip::<F, 1, 4>([F::blocks(w)], x, out);
    }
}
