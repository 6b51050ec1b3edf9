//! What is done to each row by itself: norm, rotation, gate, sums.
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "fixed-size arrays and slices whose lengths the callers check at entry"
)]

use super::floats::{LANES, exp};

by_tier! {
    /// Writes `x / sqrt(mean(x²) + eps) * weight` to `out`; all three of one length.
    pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let (eights, rest) = x.as_chunks::<LANES>();
        let mut sums = [0.0f64; LANES];
        for eight in eights {
            for lane in 0..LANES {
                let v = f64::from(eight[lane]);
                sums[lane] = v.mul_add(v, sums[lane]);
            }
        }
        for (sum, &v) in sums.iter_mut().zip(rest) {
            let v = f64::from(v);
            *sum = v.mul_add(v, *sum);
        }
        let [a, b, c, d, e, f, g, h] = sums;
        let sum = ((a + e) + (c + g)) + ((b + f) + (d + h));
        let mean = sum / x.len().max(1) as f64;
        let scale = (1.0 / (mean + f64::from(eps)).sqrt()) as f32;
        for ((o, &v), &w) in out.iter_mut().zip(x).zip(weight) {
            *o = v * scale * w;
        }
    }
}

by_tier! {
    /// Adds `y` to `x`.
    pub fn add(x: &mut [f32], y: &[f32]) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }
}

by_tier! {
    /// Replaces `gate` by `silu(gate) * up`.
    pub fn silu_mul(gate: &mut [f32], up: &[f32]) {
        for (g, &u) in gate.iter_mut().zip(up) {
            *g = *g / (1.0 + exp(-*g)) * u;
        }
    }
}

by_tier! {
    /// Rotates the leading pairs (2i, 2i+1) of each head of length `head` in `x`.
    ///
    /// `turns` holds the cosine and the sine of each pair's angle.
    pub fn rope(x: &mut [f32], head: usize, turns: &[[f32; 2]]) {
        for head in x.chunks_exact_mut(head.max(1)) {
            let (pairs, _) = head.as_chunks_mut::<2>();
            for ([a, b], &[cos, sin]) in pairs.iter_mut().zip(turns) {
                (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norm_divides_by_the_root_mean_square() {
        // mean of squares of (3, 4) is 12.5
        let mut out = [0.0; 2];
        rms_norm(&[3.0, 4.0], &[1.0, 2.0], 0.0, &mut out);
        let root = 12.5f32.sqrt();
        assert!((out[0] - 3.0 / root).abs() < 1e-6 && (out[1] - 8.0 / root).abs() < 1e-6);
    }

    #[test]
    fn rotation_turns_neighbouring_pairs_and_leaves_the_rest() {
        let mut x = [1.0, 0.0, 2.0, 0.0, 9.0, 0.0, 1.0, 0.0, 3.0, 8.0];
        rope(&mut x, 5, &[[0.0, 1.0], [0.6, 0.8]]);
        let expected = [0.0, 1.0, 1.2, 1.6, 9.0, -1.0, 0.0, -2.4, 1.8, 8.0];
        for (x, e) in x.iter().zip(expected) {
            assert!((x - e).abs() < 1e-6, "{x} {e}");
        }
    }

    #[test]
    fn gate_is_silu() {
        let mut gate: Vec<f32> = (-40..40).map(|i| i as f32 / 2.0).collect();
        let expected: Vec<f64> = gate
            .iter()
            .map(|&g| f64::from(g) / (1.0 + (-f64::from(g)).exp()) * 3.0)
            .collect();
        silu_mul(&mut gate, &[3.0; 80]);
        for (g, e) in gate.iter().zip(expected) {
            assert!(
                (f64::from(*g) - e).abs() <= 1e-6 * e.abs().max(1e-3),
                "{g} {e}"
            );
        }
    }
}
