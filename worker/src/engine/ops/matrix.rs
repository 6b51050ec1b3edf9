//! `y = x · Wᵀ` for weights of any supported type, read where they lie.
//!
//! Weight rows are the outer loop, so that a batch reads the weights once; threads share weight
//! rows. Each value of `y` is one dot product that depends on its two rows only.

use windlass_gguf::TensorType;

use super::floats::{self, Plain};
use super::kquant::{self, KKind, Q8KRows};
use super::legacy::{self, LegacyKind, Q8Rows};
use super::tier::Runner;

/// Names of the types that kernels read.
pub const SUPPORTED: &str =
    "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K";

/// Which kernels read a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Plain numbers.
    Plain(Plain),
    /// Blocks of 32.
    Legacy(LegacyKind),
    /// Blocks of 256.
    K(KKind),
}

impl Kernel {
    /// The kernels for a type; `None` when there are none.
    pub fn of(ty: TensorType) -> Option<Kernel> {
        Some(match ty {
            TensorType::F32 => Kernel::Plain(Plain::F32),
            TensorType::F16 => Kernel::Plain(Plain::F16),
            TensorType::BF16 => Kernel::Plain(Plain::Bf16),
            TensorType::Q4_0 => Kernel::Legacy(LegacyKind::Q4_0),
            TensorType::Q4_1 => Kernel::Legacy(LegacyKind::Q4_1),
            TensorType::Q5_0 => Kernel::Legacy(LegacyKind::Q5_0),
            TensorType::Q5_1 => Kernel::Legacy(LegacyKind::Q5_1),
            TensorType::Q8_0 => Kernel::Legacy(LegacyKind::Q8_0),
            TensorType::Q2_K => Kernel::K(KKind::Q2K),
            TensorType::Q3_K => Kernel::K(KKind::Q3K),
            TensorType::Q4_K => Kernel::K(KKind::Q4K),
            TensorType::Q5_K => Kernel::K(KKind::Q5K),
            TensorType::Q6_K => Kernel::K(KKind::Q6K),
            _ => return None,
        })
    }

    /// Reads a part of a row as floats.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Kernel::Plain(kind) => floats::decode(kind, bytes, out),
            Kernel::Legacy(kind) => legacy::decode(kind, bytes, out),
            Kernel::K(kind) => kquant::decode(kind, bytes, out),
        }
    }
}

/// Weights in their file's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// All rows, one behind the other.
    pub bytes: &'a [u8],
    /// How they are read.
    pub kernel: Kernel,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Number of rows: length of a row of `y`.
    pub rows: usize,
    /// Numbers in a row: length of a row of `x`.
    pub columns: usize,
}

/// Rows that matrices are multiplied with, and their rounded forms, each made when first needed.
#[derive(Debug, Default)]
pub struct Activations {
    q8: Q8Rows,
    q8_made: bool,
    q8k: Q8KRows,
    q8k_made: bool,
    by_weight: Vec<f32>,
}

impl Activations {
    /// Forgets the rounded forms: `x` has changed.
    pub fn changed(&mut self) {
        (self.q8_made, self.q8k_made) = (false, false);
    }

    /// Writes `x · Wᵀ` to `y`. `x` holds whole rows of `matrix.columns`, and must be the same as in
    /// the last call unless [`Activations::changed`] was called since.
    pub fn multiply(&mut self, run: &Runner, matrix: Matrix<'_>, x: &[f32], y: &mut Vec<f32>) {
        let batch = x.len() / matrix.columns.max(1);
        y.resize(batch * matrix.rows, 0.0);
        if batch == 0 || matrix.rows == 0 {
            return;
        }
        match matrix.kernel {
            Kernel::Legacy(_) if !self.q8_made => {
                self.q8.fill(x, matrix.columns);
                self.q8_made = true;
            }
            Kernel::K(_) if !self.q8k_made => {
                self.q8k.fill(x, matrix.columns);
                self.q8k_made = true;
            }
            _ => {}
        }
        let (q8, q8k) = (&self.q8, &self.q8k);
        // A few chunks for each thread, in whole groups of four rows.
        let chunk = if run.threads() == 1 {
            64
        } else {
            (matrix.rows / (4 * run.threads())).clamp(16, 256)
        }
        .next_multiple_of(4);
        let work = |i: usize, out: &mut [f32]| {
            let start = i * chunk * matrix.row_bytes;
            let end = start + out.len() / batch * matrix.row_bytes;
            let weights = matrix.bytes.get(start..end).unwrap_or(&[]);
            match matrix.kernel {
                Kernel::Plain(kind) => {
                    for (w, out) in weights
                        .chunks_exact(matrix.row_bytes)
                        .zip(out.chunks_exact_mut(batch))
                    {
                        floats::dot_rows(kind, w, x, matrix.columns, out);
                    }
                }
                Kernel::Legacy(kind) => {
                    legacy::dot_rows(kind, weights, matrix.row_bytes, q8, out);
                }
                Kernel::K(kind) => kquant::dot_rows(kind, weights, matrix.row_bytes, q8k, out),
            }
        };
        if batch == 1 {
            run.chunks(y, chunk, work);
            return;
        }
        self.by_weight.resize(y.len(), 0.0);
        run.chunks(&mut self.by_weight, chunk * batch, work);
        transpose(&self.by_weight, batch, y);
    }
}

/// Writes columns of `from` (rows of `width`) as rows of `to`.
#[allow(
    clippy::indexing_slicing,
    reason = "both sides are cut to whole tiles before"
)]
fn transpose(from: &[f32], width: usize, to: &mut [f32]) {
    const TILE: usize = 8;
    let height = from.len() / width.max(1);
    for top in (0..height).step_by(TILE) {
        let tall = TILE.min(height - top);
        let band = &from[top * width..(top + tall) * width];
        for left in (0..width).step_by(TILE) {
            for column in left..width.min(left + TILE) {
                let out = &mut to[column * height + top..column * height + top + tall];
                for (o, row) in out.iter_mut().zip(band.chunks_exact(width)) {
                    *o = row[column];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::quantized::k_quants::{BlockQ4K, BlockQ6K, GgmlType};
    use proptest::prelude::*;

    fn floats_from(seed: u64, count: usize) -> Vec<f32> {
        let mut state = seed;
        (0..count)
            .map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (state >> 40) as f32 / 8388608.0 - 1.0
            })
            .collect()
    }

    fn k_bytes<T: GgmlType>(x: &[f32]) -> Vec<u8> {
        let mut blocks = vec![T::zeros(); x.len() / BLOCK];
        T::from_float(x, &mut blocks);
        // SAFETY: plain blocks without padding, read as bytes.
        #[allow(unsafe_code, reason = "test reads the made blocks as bytes")]
        unsafe {
            std::slice::from_raw_parts(blocks.as_ptr().cast::<u8>(), size_of_val(&blocks[..]))
        }
        .to_vec()
    }
    use super::kquant::BLOCK;

    /// Weight rows of one type, with ordinary scales.
    fn weights(ty: TensorType, rows: usize, columns: usize, seed: u64) -> Vec<u8> {
        let x = floats_from(seed, rows * columns);
        match ty {
            TensorType::F32 => x.iter().flat_map(|v| v.to_le_bytes()).collect(),
            TensorType::F16 => x
                .iter()
                .flat_map(|&v| half::f16::from_f32(v).to_le_bytes())
                .collect(),
            TensorType::Q4_K => k_bytes::<BlockQ4K>(&x),
            TensorType::Q6_K => k_bytes::<BlockQ6K>(&x),
            _ => {
                let bytes = ty.block_bytes().unwrap() as usize;
                let mut out: Vec<u8> = x.iter().map(|v| v.to_bits() as u8).collect();
                out.resize(rows * columns / 32 * bytes, 0x5a);
                for block in out.chunks_mut(bytes) {
                    block[..2].copy_from_slice(&[0x34, 0x2c]);
                    if matches!(ty, TensorType::Q4_1 | TensorType::Q5_1) {
                        block[2..4].copy_from_slice(&[0x11, 0xb0]);
                    }
                }
                out
            }
        }
    }

    #[test]
    fn kernels_are_there_for_exactly_the_types_that_are_listed_as_supported() {
        let listed = windlass_gguf::support::TENSOR_TYPES;
        for ty in TensorType::ALL {
            assert_eq!(Kernel::of(*ty).is_some(), listed.contains(ty), "{ty}");
        }
        let names: Vec<String> = listed.iter().map(|ty| ty.name()).collect();
        assert_eq!(SUPPORTED, names.join(", "));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_batch_equals_its_rows_one_by_one_for_every_type_and_thread_count(
            seed: u64, batch in 1usize..19, rows in 1usize..90, threads in 1u32..4,
        ) {
            let one = Runner::new(1).unwrap();
            let run = Runner::new(threads).unwrap();
            for ty in [
                TensorType::F32, TensorType::F16, TensorType::Q4_0, TensorType::Q4_1,
                TensorType::Q5_0, TensorType::Q5_1, TensorType::Q8_0, TensorType::Q4_K,
                TensorType::Q6_K,
            ] {
                let columns = 512;
                let bytes = weights(ty, rows, columns, seed);
                let matrix = Matrix {
                    bytes: &bytes,
                    kernel: Kernel::of(ty).unwrap(),
                    row_bytes: ty.row_bytes(columns as u64).unwrap() as usize,
                    rows,
                    columns,
                };
                let x = floats_from(seed ^ 99, batch * columns);
                let (mut together, mut alone) = (Vec::new(), Vec::new());
                Activations::default().multiply(&run, matrix, &x, &mut together);
                for (x, expected) in x.chunks(columns).zip(together.chunks(rows)) {
                    Activations::default().multiply(&one, matrix, x, &mut alone);
                    prop_assert!(alone.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits()), "{ty}");
                }
                let mut row = vec![0.0; columns];
                for (r, w) in bytes.chunks(matrix.row_bytes).enumerate() {
                    matrix.kernel.decode(w, &mut row);
                    let exact: f64 = row.iter().zip(&x).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                    let size: f64 = row.iter().map(|&a| f64::from(a.abs())).sum();
                    prop_assert!((f64::from(together[r]) - exact).abs() < 1e-2 * size + 1e-4, "{ty} {exact} {}", together[r]);
                }
            }
        }
    }
}
