//! Lanes of 32-bit floats: dot products with F32, F16 and BF16 weights, sums, exponentials.
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "fixed-size arrays and slices whose lengths the callers check at entry"
)]

use half::{bf16, f16};

/// Partial sums of every kernel here.
pub const LANES: usize = 8;

/// Sum of the lanes, in a fixed order.
#[inline(always)]
pub fn sum_lanes(lanes: [f32; LANES]) -> f32 {
    let a = [
        lanes[0] + lanes[4],
        lanes[1] + lanes[5],
        lanes[2] + lanes[6],
        lanes[3] + lanes[7],
    ];
    (a[0] + a[2]) + (a[1] + a[3])
}

/// e to the power of `x`, within 2 ulp from -87 to 88; smaller and larger values are held there.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 88.0);
    let rounded = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = rounded - ROUND;
    // ln 2 in two parts, so that the remainder is exact.
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4_f32;
    for c in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        0.5,
    ] {
        p = p.mul_add(r, c);
    }
    let p = p.mul_add(r * r, r) + 1.0;
    let scale = f32::from_bits(rounded.to_bits().wrapping_shl(23).wrapping_add(0x3f80_0000));
    p * scale
}

/// Numbers that a weight row may be stored as.
pub trait Stored: Sync {
    /// Bytes of eight numbers.
    type Eight: Sync;
    /// Bytes of one number.
    const BYTES: usize;
    /// Cuts bytes into eights and a rest.
    fn eights(bytes: &[u8]) -> (&[Self::Eight], &[u8]);
    /// Eight numbers.
    fn load(eight: &Self::Eight) -> [f32; LANES];
    /// One number, from the start of `bytes`.
    fn one(bytes: &[u8]) -> f32;
}

/// 32-bit floats.
pub struct F32;
/// Half-precision floats.
pub struct F16;
/// The upper halves of 32-bit floats.
pub struct Bf16;

macro_rules! stored {
    ($name:ident, $bytes:literal, $eight:literal, $number:ty, $convert:expr) => {
        impl Stored for $name {
            type Eight = [u8; $eight];
            const BYTES: usize = $bytes;
            #[inline(always)]
            fn eights(bytes: &[u8]) -> (&[Self::Eight], &[u8]) {
                bytes.as_chunks()
            }
            #[inline(always)]
            fn load(eight: &Self::Eight) -> [f32; LANES] {
                let (numbers, _) = eight.as_chunks::<$bytes>();
                let mut out = [0.0; LANES];
                for (o, n) in out.iter_mut().zip(numbers) {
                    *o = $convert(<$number>::from_le_bytes(*n));
                }
                out
            }
            #[inline(always)]
            fn one(bytes: &[u8]) -> f32 {
                bytes
                    .first_chunk::<$bytes>()
                    .map_or(0.0, |n| $convert(<$number>::from_le_bytes(*n)))
            }
        }
    };
}

stored!(F32, 4, 32, f32, |x: f32| x);
stored!(F16, 2, 16, u16, |x: u16| half_bits(x));
stored!(Bf16, 2, 16, u16, |x: u16| f32::from_bits(
    u32::from(x) << 16
));

/// Value of a half-precision number, by integer and exact float steps that vectorise.
#[inline(always)]
pub fn half_bits(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff);
    let sign = u32::from(bits & 0x8000) << 16;
    // The exponent is moved by 112 through an exact multiplication, which also gets the
    // subnormals right; infinities and NaN keep their exponent of all ones.
    let value = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let special = if magnitude >= 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(value.to_bits() | special | sign)
}

#[inline(always)]
fn dots_body<S: Stored, const N: usize>(row: &[u8], x: [&[f32]; N]) -> [f32; N] {
    let (eights, rest) = S::eights(row);
    let mut sums = [[0.0f32; LANES]; N];
    let parts = x.map(|x| x.as_chunks::<LANES>());
    let count = parts.iter().fold(eights.len(), |n, p| n.min(p.0.len()));
    for i in 0..count {
        let w = S::load(&eights[i]);
        for (sum, part) in sums.iter_mut().zip(&parts) {
            let x = &part.0[i];
            for lane in 0..LANES {
                sum[lane] = w[lane].mul_add(x[lane], sum[lane]);
            }
        }
    }
    for (sum, part) in sums.iter_mut().zip(&parts) {
        for (lane, (&x, w)) in part.1.iter().zip(rest.chunks_exact(S::BYTES)).enumerate() {
            sum[lane] = S::one(w).mul_add(x, sum[lane]);
        }
    }
    sums.map(sum_lanes)
}

macro_rules! dots {
    ($name:ident, $stored:ty) => {
        by_tier! {
            fn $name [const N: usize] (row: &[u8], x: [&[f32]; N]) -> [f32; N] {
                dots_body::<$stored, N>(row, x)
            }
        }
    };
}
dots!(dots_f32, F32);
dots!(dots_f16, F16);
dots!(dots_bf16, Bf16);

/// How a plain-number tensor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// 32-bit floats.
    F32,
    /// Half precision.
    F16,
    /// Upper halves of 32-bit floats.
    Bf16,
}

/// Dot products of a weight row with `rows` rows of `x`, each as long as the weight row.
pub fn dot_rows(kind: Plain, row: &[u8], x: &[f32], columns: usize, out: &mut [f32]) {
    const TILE: usize = 4;
    let mut rows = x.chunks_exact(columns.max(1));
    let (tiles, rest) = out.as_chunks_mut::<TILE>();
    for tile in tiles {
        let xs: [&[f32]; TILE] = std::array::from_fn(|_| rows.next().unwrap_or(&[]));
        *tile = match kind {
            Plain::F32 => dots_f32(row, xs),
            Plain::F16 => dots_f16(row, xs),
            Plain::Bf16 => dots_bf16(row, xs),
        };
    }
    for (o, x) in rest.iter_mut().zip(rows) {
        [*o] = match kind {
            Plain::F32 => dots_f32(row, [x]),
            Plain::F16 => dots_f16(row, [x]),
            Plain::Bf16 => dots_bf16(row, [x]),
        };
    }
}

/// Reads plain numbers.
pub fn decode(kind: Plain, bytes: &[u8], out: &mut [f32]) {
    match kind {
        Plain::F32 => {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *o = f32::from_le_bytes(*b);
            }
        }
        Plain::F16 => {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *o = f16::from_le_bytes(*b).to_f32();
            }
        }
        Plain::Bf16 => {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *o = bf16::from_le_bytes(*b).to_f32();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_half_has_the_value_of_the_reference_conversion() {
        for bits in 0..=u16::MAX {
            let (ours, reference) = (half_bits(bits), f16::from_bits(bits).to_f32());
            assert!(
                ours.to_bits() == reference.to_bits() || (ours.is_nan() && reference.is_nan()),
                "{bits:#x}: {ours} {reference}"
            );
        }
    }

    #[test]
    fn exp_is_within_two_ulp_of_the_double_precision_one() {
        let mut x = -86.9f32;
        while x < 87.9 {
            let (ours, truth) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((ours / truth - 1.0).abs() < 2.4e-7, "{x}: {ours} {truth}");
            x += 0.0137;
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NEG_INFINITY) < 1e-37);
    }

    proptest! {
        #[test]
        fn rows_together_equal_rows_alone_and_the_plain_twin(
            columns in 1usize..70,
            rows in 1usize..11,
            seed: u64,
        ) {
            let mut rng = seed | 1;
            let mut next = || {
                rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (rng >> 40) as f32 / 8388608.0 - 1.0
            };
            let w: Vec<f32> = (0..columns).map(|_| next()).collect();
            let x: Vec<f32> = (0..columns * rows).map(|_| next()).collect();
            for kind in [Plain::F32, Plain::F16, Plain::Bf16] {
                let bytes: Vec<u8> = w.iter().flat_map(|&v| match kind {
                    Plain::F32 => v.to_le_bytes().to_vec(),
                    Plain::F16 => f16::from_f32(v).to_le_bytes().to_vec(),
                    Plain::Bf16 => bf16::from_f32(v).to_le_bytes().to_vec(),
                }).collect();
                let mut together = vec![0.0; rows];
                dot_rows(kind, &bytes, &x, columns, &mut together);
                let mut plain = vec![0.0; columns];
                decode(kind, &bytes, &mut plain);
                for (r, x) in x.chunks(columns).enumerate() {
                    let mut alone = [0.0];
                    dot_rows(kind, &bytes, x, columns, &mut alone);
                    prop_assert_eq!(alone[0].to_bits(), together[r].to_bits());
                    let [twin] = match kind {
                        Plain::F32 => dots_body::<F32, 1>(&bytes, [x]),
                        Plain::F16 => dots_body::<F16, 1>(&bytes, [x]),
                        Plain::Bf16 => dots_body::<Bf16, 1>(&bytes, [x]),
                    };
                    prop_assert_eq!(alone[0].to_bits(), twin.to_bits());
                    let exact: f64 = plain.iter().zip(x).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                    prop_assert!((f64::from(twin) - exact).abs() < 1e-5, "{} {}", twin, exact);
                }
            }
        }
    }
}
