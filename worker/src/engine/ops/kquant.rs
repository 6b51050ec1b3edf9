//! Dot products with weights in blocks of 256 (Q2_K to Q6_K), by candle's kernels.
//!
//! candle's kernels take one activation row and one or four weight rows; which weight rows go
//! together depends on their number alone, never on the batch.

use candle_core::quantized::k_quants::{
    BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8K, GgmlType, QK_K,
};

/// Numbers in a block.
pub const BLOCK: usize = QK_K;

/// Formats, as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are the format's names")]
pub enum KKind {
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

/// Rows of activations in 8 bits.
#[derive(Debug, Default)]
pub struct Q8KRows {
    blocks: usize,
    data: Vec<BlockQ8K>,
}

impl Q8KRows {
    /// Takes rows of `columns` floats each (a multiple of [`BLOCK`]).
    pub fn fill(&mut self, x: &[f32], columns: usize) {
        self.blocks = columns / BLOCK;
        self.data.resize(x.len() / BLOCK, BlockQ8K::zeros());
        BlockQ8K::from_float(x, &mut self.data);
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.data.len() / self.blocks.max(1)
    }
}

/// candle's block types as they lie in a file.
///
/// # Safety
/// Implementors are `repr(C)` without padding, and every bit pattern is a value.
#[allow(unsafe_code, reason = "marks types that bytes may be read as")]
unsafe trait AsBytes: GgmlType + 'static {}
#[allow(
    unsafe_code,
    reason = "repr(C), fields of bytes and half floats, sizes asserted below"
)]
mod marked {
    use super::*;
    // SAFETY: `repr(C)` structs of integers and half-precision numbers, whose sizes are the sums
    // of their fields.
    unsafe impl AsBytes for BlockQ2K {}
    unsafe impl AsBytes for BlockQ3K {}
    unsafe impl AsBytes for BlockQ4K {}
    unsafe impl AsBytes for BlockQ5K {}
    unsafe impl AsBytes for BlockQ6K {}
}
const _: () = assert!(
    size_of::<BlockQ2K>() == 84
        && size_of::<BlockQ3K>() == 110
        && size_of::<BlockQ4K>() == 144
        && size_of::<BlockQ5K>() == 176
        && size_of::<BlockQ6K>() == 210
        && cfg!(target_endian = "little")
);

/// The blocks in `bytes`; none when the bytes are not aligned or not whole blocks.
fn blocks<T: AsBytes>(bytes: &[u8]) -> &[T] {
    if !bytes.as_ptr().cast::<T>().is_aligned() || !bytes.len().is_multiple_of(size_of::<T>()) {
        return &[];
    }
    // SAFETY: alignment and length were checked in the line before, every bit pattern is a value
    // of `T` (see `AsBytes`), and the result borrows `bytes`.
    #[allow(unsafe_code, reason = "checked cast of mapped bytes to plain blocks")]
    unsafe {
        std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>())
    }
}

/// Whether rows of this kind can be read in place at this address.
pub fn aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().cast::<BlockQ4K>().is_aligned()
}

/// Dot products of consecutive weight rows with all rows of `x`; see
/// [`super::legacy::dot_rows`]. The first weight row's number in its tensor is a multiple of 4.
pub fn dot_rows(kind: KKind, weights: &[u8], row_bytes: usize, x: &Q8KRows, out: &mut [f32]) {
    match kind {
        KKind::Q2K => run::<BlockQ2K>(weights, row_bytes, x, out),
        KKind::Q3K => run::<BlockQ3K>(weights, row_bytes, x, out),
        KKind::Q4K => run::<BlockQ4K>(weights, row_bytes, x, out),
        KKind::Q5K => run::<BlockQ5K>(weights, row_bytes, x, out),
        KKind::Q6K => run::<BlockQ6K>(weights, row_bytes, x, out),
    }
}

fn run<T: AsBytes + GgmlType<VecDotType = BlockQ8K>>(
    weights: &[u8],
    row_bytes: usize,
    x: &Q8KRows,
    out: &mut [f32],
) {
    let rows = x.rows();
    let columns = x.blocks * BLOCK;
    let mut groups = weights.chunks_exact(4 * row_bytes);
    let mut outs = out.chunks_exact_mut(4 * rows);
    for (group, out) in groups.by_ref().zip(outs.by_ref()) {
        let mut parts = group.chunks_exact(row_bytes).map(blocks::<T>);
        let (Some(a), Some(b), Some(c), Some(d)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        for (i, x) in x.data.chunks_exact(x.blocks).enumerate() {
            let values: [f32; 4] = T::vec_dot_4(columns, a, b, c, d, x).into();
            for (o, v) in out.iter_mut().skip(i).step_by(rows).zip(values) {
                *o = v;
            }
        }
    }
    for (w, out) in groups
        .remainder()
        .chunks_exact(row_bytes)
        .zip(outs.into_remainder().chunks_exact_mut(rows))
    {
        for (o, x) in out.iter_mut().zip(x.data.chunks_exact(x.blocks)) {
            *o = T::vec_dot(columns, blocks::<T>(w), x);
        }
    }
}

/// Reads blocks as floats.
pub fn decode(kind: KKind, bytes: &[u8], out: &mut [f32]) {
    match kind {
        KKind::Q2K => BlockQ2K::to_float(blocks(bytes), out),
        KKind::Q3K => BlockQ3K::to_float(blocks(bytes), out),
        KKind::Q4K => BlockQ4K::to_float(blocks(bytes), out),
        KKind::Q5K => BlockQ5K::to_float(blocks(bytes), out),
        KKind::Q6K => BlockQ6K::to_float(blocks(bytes), out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cast_blocks_equal_blocks_read_number_by_number() {
        let x: Vec<f32> = (0..BLOCK * 6)
            .map(|i| ((i * 37 % 101) as f32 - 50.0) / 40.0)
            .collect();
        let mut made = vec![BlockQ6K::zeros(); 6];
        BlockQ6K::from_float(&x, &mut made);
        let mut bytes = vec![0u8; 6 * 210];
        // Safe twin: fields are found by their offsets in the format (ql, qh, scales, d).
        let mut reference = vec![0.0; x.len()];
        BlockQ6K::to_float(&made, &mut reference);
        // SAFETY: plain blocks without padding, read as bytes.
        #[allow(unsafe_code, reason = "test reads the made blocks as bytes")]
        bytes.copy_from_slice(unsafe {
            std::slice::from_raw_parts(made.as_ptr().cast::<u8>(), 6 * 210)
        });
        for (b, block) in bytes.chunks(210).enumerate() {
            let d = half::f16::from_le_bytes([block[208], block[209]]).to_f32();
            for i in 0..BLOCK {
                let (half, j) = (i / 128, i % 128);
                let (quarter, l) = (j / 32, j % 32);
                let low = block[64 * half + (quarter % 2) * 32 + l] >> (4 * (quarter / 2)) & 15;
                let high = block[128 + 32 * half + l] >> (2 * quarter) & 3;
                let scale = block[192 + 8 * half + 2 * quarter + l / 16] as i8;
                let value = d * f32::from(scale) * (f32::from(low | high << 4) - 32.0);
                assert!((value - reference[b * BLOCK + i]).abs() < 1e-6);
            }
        }
        let mut ours = vec![0.0; x.len()];
        decode(KKind::Q6K, &bytes, &mut ours);
        assert_eq!(ours, reference);
    }

    #[test]
    fn unaligned_or_cut_bytes_give_no_blocks() {
        let bytes = vec![0u16; 144];
        // SAFETY: any u16 array may be read as bytes.
        #[allow(unsafe_code, reason = "test needs bytes of known alignment")]
        let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<u8>(), 288) };
        assert_eq!(blocks::<BlockQ4K>(bytes).len(), 2);
        assert_eq!(blocks::<BlockQ4K>(&bytes[1..145]).len(), 0);
        assert_eq!(blocks::<BlockQ4K>(&bytes[..143]).len(), 0);
    }
}
