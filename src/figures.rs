//! Figures as people read them: sizes and times. Knows nothing of where they are shown.

/// A size for people, e.g. `48.1 MB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = UNITS[0];
    for next in UNITS.into_iter().skip(1) {
        // 999.95 would be shown as 1000.0.
        if value < 999.95 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// Seconds for people, e.g. `0.4 s`, `2m05s`.
pub fn seconds(seconds: f64) -> String {
    if seconds < 0.0005 {
        "0 ms".to_owned()
    } else if seconds < 0.9995 {
        format!("{:.0} ms", seconds * 1000.0)
    } else if seconds < 59.95 {
        format!("{seconds:.1} s")
    } else {
        let whole = seconds.round() as u64;
        format!("{}m{:02}s", whole / 60, whole % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_keep_one_shape_at_the_borders() {
        let sizes = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (98_362_432, "98.4 MB"),
            (205_000_000_000, "205.0 GB"),
        ];
        for (bytes, wanted) in sizes {
            assert_eq!(size(bytes), wanted);
        }
        let times = [
            (0.0, "0 ms"),
            (0.0123, "12 ms"),
            (0.9996, "1.0 s"),
            (59.94, "59.9 s"),
            (59.96, "1m00s"),
            (125.0, "2m05s"),
        ];
        for (value, wanted) in times {
            assert_eq!(seconds(value), wanted);
        }
    }
}
