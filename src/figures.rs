//! Figures as people read them: sizes and times. Knows nothing of where they are shown.

/// A size of files and transfers for people, e.g. `48.1 MB`.
pub fn size(bytes: u64) -> String {
    scaled(bytes, 1000.0, ["B", "kB", "MB", "GB", "TB"])
}

/// A size of memory for people, e.g. `1.9 GiB`.
pub fn memory(bytes: u64) -> String {
    scaled(bytes, 1024.0, ["B", "KiB", "MiB", "GiB", "TiB"])
}

/// A count with its noun, e.g. `1 host`, `2 hosts`.
pub fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn scaled(bytes: u64, step: f64, units: [&str; 5]) -> String {
    let mut value = bytes as f64;
    let [mut unit, larger @ ..] = units;
    for next in larger {
        // 999.95 would be shown as 1000.0.
        if value < step - 0.05 {
            break;
        }
        value /= step;
        unit = next;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// A measured rate for people, of megabits a second: `941 Mb/s`, `9.4 Gb/s`.
pub fn rate(mbit: f64) -> String {
    if mbit < 9.95 {
        format!("{mbit:.1} Mb/s")
    } else if mbit < 999.5 {
        format!("{mbit:.0} Mb/s")
    } else {
        let text = format!("{:.2}", mbit / 1000.0);
        format!("{} Gb/s", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// The speed that an interface says, of megabits a second: `2.5 Gb/s`.
pub fn speed(mbit: u32) -> String {
    rate(f64::from(mbit))
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
        let memories = [
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (2_040_109_466, "1.9 GiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (u64::MAX, "16777216.0 TiB"),
        ];
        for (bytes, wanted) in memories {
            assert_eq!(memory(bytes), wanted);
        }
        let rates = [
            (0.0, "0.0 Mb/s"),
            (941.4, "941 Mb/s"),
            (999.6, "1 Gb/s"),
            (2500.0, "2.5 Gb/s"),
            (9412.0, "9.41 Gb/s"),
            (200_000.0, "200 Gb/s"),
        ];
        for (value, wanted) in rates {
            assert_eq!(rate(value), wanted);
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
