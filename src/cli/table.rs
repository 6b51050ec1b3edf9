//! Lines in columns for people. Knows nothing of what stands in them.

/// Rows under a heading, columns two spaces apart. Columns named in `right` (from 0) are figures
/// and end at the same place.
pub fn table(heading: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    let head: Vec<String> = heading.iter().map(|text| (*text).to_owned()).collect();
    let all = || std::iter::once(&head).chain(rows);
    let widths: Vec<usize> = (0..heading.len())
        .map(|column| {
            let cells = all().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in all() {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if column > 0 {
                line.push_str("  ");
            }
            if right.contains(&column) {
                line.push_str(&format!("{cell:>width$}"));
            } else {
                line.push_str(&format!("{cell:<width$}"));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn columns_line_up_and_no_line_ends_in_spaces() {
        let row = |a: &str, b: &str, c: &str| vec![a.to_owned(), b.to_owned(), c.to_owned()];
        let text = table(
            &["HOST", "BYTES", "NOTE"],
            &[row("hälo1", "9", ""), row("b", "12345678", "x")],
            &[1],
        );
        assert_eq!(
            text,
            "HOST      BYTES  NOTE\nhälo1         9\nb      12345678  x\n"
        );
    }
}
