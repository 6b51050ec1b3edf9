//! Memory, as the table of free(1) shows it, with or without `-h`.

/// Memory, bytes, as exact as the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// All there is.
    pub total_bytes: Option<u64>,
    /// What programs use.
    pub used_bytes: Option<u64>,
    /// What nothing uses.
    pub free_bytes: Option<u64>,
    /// What programs can still get.
    pub available_bytes: Option<u64>,
    /// Swap space.
    pub swap_total_bytes: Option<u64>,
}

/// Reads the table. Columns are found by their headings: older ones have others.
pub fn parse(text: &str) -> Free {
    let heading: Vec<&str> = text
        .lines()
        .find(|line| line.contains("total") && line.contains("free"))
        .map(|line| line.split_whitespace().collect())
        .unwrap_or_default();
    let cell = |row: &str, column: &str| {
        let at = heading.iter().position(|name| *name == column)?;
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(row))?;
        bytes(line.split_whitespace().nth(at)?)
    };
    Free {
        total_bytes: cell("Mem:", "total"),
        used_bytes: cell("Mem:", "used"),
        free_bytes: cell("Mem:", "free"),
        available_bytes: cell("Mem:", "available"),
        swap_total_bytes: cell("Swap:", "total"),
    }
}

/// `119Gi`, `4.3Gi`, `512Mi`, `0B`; a bare number is in KiB.
fn bytes(word: &str) -> Option<u64> {
    let at = word
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(word.len());
    let (number, unit) = word.split_at_checked(at)?;
    let factor: f64 = match unit {
        "" | "Ki" => 1024.0,
        "B" => 1.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        "Ti" => 1_099_511_627_776.0,
        "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * factor;
    (bytes.is_finite() && bytes < 1e18).then_some(bytes.round() as u64)
}
