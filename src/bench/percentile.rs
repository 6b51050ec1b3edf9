//! Quantiles of measurements. Pure.

/// The quantile `q` (0 to 1) of some measurements, by linear interpolation between the two nearest:
/// with the values in order and counted from 0, it lies at position `q × (n − 1)`. This is what
/// numpy's `percentile` does unless told otherwise (type 7 of Hyndman and Fan). `None` for none.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * last as f64;
    let below = position.floor();
    let low = sorted.get(below as usize)?;
    let high = sorted.get(position.ceil() as usize)?;
    Some(low + (high - low) * (position - below))
}

/// The mean; `None` for none.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: Option<f64>, wanted: f64) {
        assert!((got.unwrap() - wanted).abs() < 1e-9, "{got:?} {wanted}");
    }

    #[test]
    fn quantiles_match_hand_arithmetic() {
        // 1 to 5: position 0.5 × 4 = 2 is the third value; 0.95 × 4 = 3.8 lies 0.8 of the way from
        // 4 to 5; 0.99 × 4 = 3.96.
        let five = [3.0, 1.0, 5.0, 2.0, 4.0];
        close(quantile(&five, 0.50), 3.0);
        close(quantile(&five, 0.95), 4.8);
        close(quantile(&five, 0.99), 4.96);
        // 10, 20, 30, 40: position 0.5 × 3 = 1.5; 0.95 × 3 = 2.85.
        let four = [10.0, 20.0, 30.0, 40.0];
        close(quantile(&four, 0.50), 25.0);
        close(quantile(&four, 0.95), 38.5);
        close(quantile(&four, 0.0), 10.0);
        close(quantile(&four, 1.0), 40.0);
        close(quantile(&[7.0], 0.99), 7.0);
        assert_eq!(quantile(&[], 0.5), None);
        close(mean(&four), 25.0);
        assert_eq!(mean(&[]), None);
    }
}
