//! Turns stored blocks into f32 values, from each format's definition. A plain reference, not a
//! fast path; knows no file and no shape beyond a run of whole blocks.
//!
//! In every block format `d` is the block's scale and `m` its offset, both half precision unless
//! said otherwise. Products are taken in f32, scale by scale from left to right.
#![allow(
    clippy::indexing_slicing,
    reason = "blocks have fixed sizes, checked once by `whole_blocks`"
)]

use half::{bf16, f16};

use crate::error::{GgufError, Result};
use crate::types::TensorType;

/// The sixteen values of the non-linear 4-bit formats (IQ4_NL, IQ4_XS).
const IQ4_VALUES: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];
/// Twice the sixteen values of a 4-bit float with 2 exponent bits (MXFP4).
const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Writes the values stored in `bytes` to `out`, which must have exactly their number.
///
/// # Errors
/// When the type has no dequantisation here, or `bytes` is not exactly the blocks of `out.len()`
/// values.
pub fn dequantize(ty: TensorType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    match ty {
        TensorType::F32 => blocks::<4, 1>(ty, bytes, out, |b, y| y[0] = f32::from_le_bytes(*b)),
        TensorType::F64 => {
            blocks::<8, 1>(ty, bytes, out, |b, y| y[0] = f64::from_le_bytes(*b) as f32)
        }
        TensorType::F16 => blocks::<2, 1>(ty, bytes, out, |b, y| y[0] = half(b, 0)),
        TensorType::BF16 => blocks::<2, 1>(ty, bytes, out, |b, y| {
            y[0] = bf16::from_le_bytes(*b).to_f32();
        }),
        TensorType::Q4_0 => blocks::<18, 32>(ty, bytes, out, q4_0),
        TensorType::Q4_1 => blocks::<20, 32>(ty, bytes, out, q4_1),
        TensorType::Q5_0 => blocks::<22, 32>(ty, bytes, out, q5_0),
        TensorType::Q5_1 => blocks::<24, 32>(ty, bytes, out, q5_1),
        TensorType::Q8_0 => blocks::<34, 32>(ty, bytes, out, q8_0),
        TensorType::Q2_K => blocks::<84, 256>(ty, bytes, out, q2_k),
        TensorType::Q3_K => blocks::<110, 256>(ty, bytes, out, q3_k),
        TensorType::Q4_K => blocks::<144, 256>(ty, bytes, out, q4_k),
        TensorType::Q5_K => blocks::<176, 256>(ty, bytes, out, q5_k),
        TensorType::Q6_K => blocks::<210, 256>(ty, bytes, out, q6_k),
        TensorType::IQ4_NL => blocks::<18, 32>(ty, bytes, out, iq4_nl),
        TensorType::IQ4_XS => blocks::<136, 256>(ty, bytes, out, iq4_xs),
        TensorType::MXFP4 => blocks::<17, 32>(ty, bytes, out, mxfp4),
        other => Err(GgufError::NoDequantizer { ty: other.name() }),
    }
}

/// Runs `one` over all blocks of `B` bytes holding `L` values each.
fn blocks<const B: usize, const L: usize>(
    ty: TensorType,
    bytes: &[u8],
    out: &mut [f32],
    one: impl Fn(&[u8; B], &mut [f32; L]),
) -> Result<()> {
    let wrong = GgufError::WrongLength {
        ty: ty.name(),
        bytes: bytes.len() as u64,
        elements: out.len() as u64,
    };
    let (blocks, rest) = bytes.as_chunks::<B>();
    let (values, odd) = out.as_chunks_mut::<L>();
    if !rest.is_empty() || !odd.is_empty() || blocks.len() != values.len() {
        return Err(wrong);
    }
    for (block, values) in blocks.iter().zip(values) {
        one(block, values);
    }
    Ok(())
}

/// The half-precision number at byte `at`.
fn half(b: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

/// The fifth bits of 32 values, one bit each.
fn high_bits(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// d, then 16 bytes: byte j holds value j in its low half and value j + 16 in its high half.
/// y = (q - 8) d.
fn q4_0(b: &[u8; 18], y: &mut [f32; 32]) {
    let d = half(b, 0);
    for (j, q) in b[2..].iter().enumerate() {
        y[j] = (f32::from(q & 15) - 8.0) * d;
        y[j + 16] = (f32::from(q >> 4) - 8.0) * d;
    }
}

/// d, m, then 16 bytes as in Q4_0. y = q d + m.
fn q4_1(b: &[u8; 20], y: &mut [f32; 32]) {
    let (d, m) = (half(b, 0), half(b, 2));
    for (j, q) in b[4..].iter().enumerate() {
        y[j] = f32::from(q & 15) * d + m;
        y[j + 16] = f32::from(q >> 4) * d + m;
    }
}

/// d, 32 fifth bits, then 16 bytes as in Q4_0. y = (q - 16) d.
fn q5_0(b: &[u8; 22], y: &mut [f32; 32]) {
    let (d, high) = (half(b, 0), high_bits(b, 2));
    for (j, q) in b[6..].iter().enumerate() {
        y[j] = (five_bits(q & 15, high, j) - 16.0) * d;
        y[j + 16] = (five_bits(q >> 4, high, j + 16) - 16.0) * d;
    }
}

/// d, m, 32 fifth bits, then 16 bytes as in Q4_0. y = q d + m.
fn q5_1(b: &[u8; 24], y: &mut [f32; 32]) {
    let (d, m, high) = (half(b, 0), half(b, 2), high_bits(b, 4));
    for (j, q) in b[8..].iter().enumerate() {
        y[j] = five_bits(q & 15, high, j) * d + m;
        y[j + 16] = five_bits(q >> 4, high, j + 16) * d + m;
    }
}

/// Four low bits with bit `j` of `high` above them.
fn five_bits(low: u8, high: u32, j: usize) -> f32 {
    f32::from(low | ((high >> j & 1) as u8) << 4)
}

/// d, then 32 signed bytes. y = q d.
fn q8_0(b: &[u8; 34], y: &mut [f32; 32]) {
    let d = half(b, 0);
    for (y, q) in y.iter_mut().zip(&b[2..]) {
        *y = f32::from(*q as i8) * d;
    }
}

/// 16 bytes of scale (low half) and offset (high half), one for each run of 16 values; 64 bytes of
/// 2-bit values; d; m. In each half of 128 values, value 32 s + l is bits 2s of byte l.
/// y = d scale q - m offset.
fn q2_k(b: &[u8; 84], y: &mut [f32; 256]) {
    let (scales, qs) = (&b[..16], &b[16..80]);
    let (d, m) = (half(b, 80), half(b, 82));
    for (i, y) in y.iter_mut().enumerate() {
        let (part, shift, l) = (i / 128, i % 128 / 32 * 2, i % 32);
        let scale = scales[i / 16];
        let q = qs[32 * part + l] >> shift & 3;
        *y = d * f32::from(scale & 15) * f32::from(q) - m * f32::from(scale >> 4);
    }
}

/// 32 bytes of third bits (bit i/32 of byte i%32), 64 bytes of low bits as in Q2_K, 12 bytes of
/// sixteen 6-bit scales (low four bits: two a byte in the first 8; high two bits: four a byte in
/// the last 4), d. y = d (scale - 32) (q - 4).
fn q3_k(b: &[u8; 110], y: &mut [f32; 256]) {
    let (third, qs, packed) = (&b[..32], &b[32..96], &b[96..108]);
    let d = half(b, 108);
    for (i, y) in y.iter_mut().enumerate() {
        let run = i / 16;
        let low = packed[run % 8] >> (run / 8 * 4) & 15;
        let high = packed[8 + run % 4] >> (run / 4 * 2) & 3;
        let scale = f32::from(low | high << 4) - 32.0;
        let (part, shift, l) = (i / 128, i % 128 / 32 * 2, i % 32);
        let low = qs[32 * part + l] >> shift & 3;
        let q = low | (third[l] >> (i / 32) & 1) << 2;
        *y = d * scale * (f32::from(q) - 4.0);
    }
}

/// Scale and offset of run `j` (of 8, 32 values each) in the 12 bytes Q4_K and Q5_K pack them into:
/// runs 0 to 3 take the low six bits of bytes j and j + 4; runs 4 to 7 take the halves of byte
/// j + 4, completed by the top two bits of bytes j - 4 and j.
fn scale_and_offset(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, offset) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        (
            packed[j + 4] & 15 | packed[j - 4] >> 6 << 4,
            packed[j + 4] >> 4 | packed[j] >> 6 << 4,
        )
    };
    (f32::from(scale), f32::from(offset))
}

/// d, m, 12 bytes of scales and offsets, 128 bytes: in each run of 64 values, value l is the low
/// half of byte l and value l + 32 its high half. y = d scale q - m offset.
fn q4_k(b: &[u8; 144], y: &mut [f32; 256]) {
    let (d, m, packed, qs) = (half(b, 0), half(b, 2), &b[4..16], &b[16..]);
    for (i, y) in y.iter_mut().enumerate() {
        let (scale, offset) = scale_and_offset(packed, i / 32);
        let q = qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
        *y = d * scale * f32::from(q) - m * offset;
    }
}

/// d, m, scales and offsets as in Q4_K, 32 bytes of fifth bits (bit i/32 of byte i%32), 128 bytes
/// as in Q4_K. y = d scale q - m offset.
fn q5_k(b: &[u8; 176], y: &mut [f32; 256]) {
    let (d, m, packed) = (half(b, 0), half(b, 2), &b[4..16]);
    let (fifth, qs) = (&b[16..48], &b[48..]);
    for (i, y) in y.iter_mut().enumerate() {
        let (scale, offset) = scale_and_offset(packed, i / 32);
        let low = qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
        let q = low | (fifth[i % 32] >> (i / 32) & 1) << 4;
        *y = d * scale * f32::from(q) - m * offset;
    }
}

/// 128 bytes of low halves, 64 bytes of high bit pairs, 16 signed scales (16 values each), d. In
/// each half of 128 values, value i takes the half i/64 of low byte i%64 and pair i/32 of high
/// byte i%32. y = d scale (q - 32).
fn q6_k(b: &[u8; 210], y: &mut [f32; 256]) {
    let (low, high, scales) = (&b[..128], &b[128..192], &b[192..208]);
    let d = half(b, 208);
    for (i, y) in y.iter_mut().enumerate() {
        let (part, r) = (i / 128, i % 128);
        let four = low[64 * part + r % 64] >> (r / 64 * 4) & 15;
        let two = high[32 * part + r % 32] >> (r / 32 * 2) & 3;
        let scale = f32::from(scales[i / 16] as i8);
        *y = d * scale * (f32::from(four | two << 4) - 32.0);
    }
}

/// As Q4_0, but each half byte picks one of [`IQ4_VALUES`].
fn iq4_nl(b: &[u8; 18], y: &mut [f32; 32]) {
    let d = half(b, 0);
    for (j, q) in b[2..].iter().enumerate() {
        y[j] = d * f32::from(IQ4_VALUES[usize::from(q & 15)]);
        y[j + 16] = d * f32::from(IQ4_VALUES[usize::from(q >> 4)]);
    }
}

/// d, 16 bits with the high two bits of eight 6-bit scales, 4 bytes with their low halves, 128
/// bytes: each run of 32 values as in IQ4_NL. y = d (scale - 32) value.
fn iq4_xs(b: &[u8; 136], y: &mut [f32; 256]) {
    let d = half(b, 0);
    let high = u16::from_le_bytes([b[2], b[3]]);
    for run in 0..8 {
        let low = b[4 + run / 2] >> (run % 2 * 4) & 15;
        let scale = f32::from(low | ((high >> (2 * run) & 3) as u8) << 4) - 32.0;
        for j in 0..16 {
            let q = b[8 + 16 * run + j];
            y[32 * run + j] = d * scale * f32::from(IQ4_VALUES[usize::from(q & 15)]);
            y[32 * run + j + 16] = d * scale * f32::from(IQ4_VALUES[usize::from(q >> 4)]);
        }
    }
}

/// One exponent byte e, then 16 bytes as in Q4_0 of 4-bit floats. y = 2^(e - 127) value.
fn mxfp4(b: &[u8; 17], y: &mut [f32; 32]) {
    // The table is doubled, so the scale is halved: 2^(e - 128), of which the two smallest are subnormal.
    let d = match b[0] {
        e @ 0..=1 => f32::from_bits(0x0020_0000 << e),
        e => f32::from_bits((u32::from(e) - 1) << 23),
    };
    for (j, q) in b[1..].iter().enumerate() {
        y[j] = d * f32::from(E2M1_DOUBLED[usize::from(q & 15)]);
        y[j + 16] = d * f32::from(E2M1_DOUBLED[usize::from(q >> 4)]);
    }
}
