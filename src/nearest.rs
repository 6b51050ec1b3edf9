//! The closest of a list of valid names, for errors that say what was probably meant.
//! Knows nothing of what is named: text in, text out.

/// The candidate with the smallest edit distance to `wanted`, letters compared without case.
/// `None` only for an empty list.
pub(crate) fn nearest<'a>(
    wanted: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    candidates
        .into_iter()
        .min_by_key(|candidate| distance(&wanted, &candidate.to_lowercase()))
}

/// Whether one may well have been written for the other: a third of the longer's letters, or two of
/// them, differ at most. Letters are compared without case.
pub(crate) fn alike(a: &str, b: &str) -> bool {
    let longer = a.chars().count().max(b.chars().count());
    distance(&a.to_lowercase(), &b.to_lowercase()) <= (longer / 3).max(2)
}

/// Levenshtein distance in characters: one row of the table at a time.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        // `diagonal` is the cell above and to the left, `left` the one just written.
        let mut diagonal = i;
        let mut left = i + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, y) in row.iter_mut().skip(1).zip(&b) {
            let best = (diagonal + usize::from(x != *y))
                .min(left + 1)
                .min(*cell + 1);
            diagonal = *cell;
            *cell = best;
            left = best;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{alike, distance, nearest};

    #[test]
    fn distances_match_hand_counted_edits() {
        for (a, b, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("smollm2", "smollm", 1),
        ] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    #[test]
    fn the_closest_name_wins_whatever_its_case() {
        assert_eq!(nearest("q4_km", ["Q8_0", "Q4_K_M", "Q4_0"]), Some("Q4_K_M"));
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn only_names_with_few_differences_are_alike() {
        assert!(alike("adress", "address") && alike("usr", "USER"));
        assert!(!alike("colour", "address") && !alike("memory", "memory_limit"));
    }
}
