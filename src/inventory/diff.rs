//! The difference of two texts in the unified form that `diff -u` and `patch` know. Pure.

/// Unchanged lines shown around a change.
const AROUND: usize = 3;
/// Most cells of the table that finds the longest common part; beyond, all between the first and
/// the last changed line counts as changed.
const MOST_CELLS: usize = 16 << 20;

/// One line of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'t> {
    Same(&'t str),
    Gone(&'t str),
    New(&'t str),
}

/// The difference, with `name` in its head; empty when there is none.
pub fn unified(name: &str, old: &str, new: &str) -> String {
    if old == new {
        return String::new();
    }
    let lines = compared(old, new);
    let mut text = format!("--- {name}\n+++ {name}\n");
    let changed: Vec<usize> = lines
        .iter()
        .enumerate()
        .filter_map(|(index, line)| (!matches!(line, Line::Same(_))).then_some(index))
        .collect();
    let mut changes = changed.iter().copied().peekable();
    while let Some(first) = changes.next() {
        let mut last = first;
        while let Some(next) = changes.next_if(|next| *next <= last + 2 * AROUND + 1) {
            last = next;
        }
        let from = first.saturating_sub(AROUND);
        let to = (last + AROUND + 1).min(lines.len());
        hunk(&lines, from, to, &mut text);
    }
    text
}

fn hunk(lines: &[Line<'_>], from: usize, to: usize, text: &mut String) {
    let count = |lines: &[Line<'_>]| {
        lines
            .iter()
            .fold((0_usize, 0_usize), |(old, new), line| match line {
                Line::Same(_) => (old + 1, new + 1),
                Line::Gone(_) => (old + 1, new),
                Line::New(_) => (old, new + 1),
            })
    };
    let before = count(lines.get(..from).unwrap_or_default());
    let inside = lines.get(from..to).unwrap_or_default();
    let within = count(inside);
    let span = |before: usize, count: usize| match count {
        // A side without lines is named by the line before it.
        0 => format!("{before},0"),
        1 => format!("{}", before + 1),
        _ => format!("{},{count}", before + 1),
    };
    text.push_str(&format!(
        "@@ -{} +{} @@\n",
        span(before.0, within.0),
        span(before.1, within.1)
    ));
    for line in inside {
        let (sign, content) = match line {
            Line::Same(content) => (' ', content),
            Line::Gone(content) => ('-', content),
            Line::New(content) => ('+', content),
        };
        text.push(sign);
        text.push_str(content);
        if !content.ends_with('\n') {
            text.push_str("\n\\ No newline at end of file\n");
        }
    }
}

fn compared<'t>(old: &'t str, new: &'t str) -> Vec<Line<'t>> {
    let a: Vec<&str> = old.split_inclusive('\n').collect();
    let b: Vec<&str> = new.split_inclusive('\n').collect();
    let head = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let tail = a
        .iter()
        .skip(head)
        .rev()
        .zip(b.iter().skip(head).rev())
        .take_while(|(x, y)| x == y)
        .count();
    let middle = |all: &[&'t str]| -> Vec<&'t str> {
        all.get(head..all.len() - tail).unwrap_or_default().to_vec()
    };
    let mut lines: Vec<Line<'t>> = a.iter().take(head).map(|line| Line::Same(line)).collect();
    between(&middle(&a), &middle(&b), &mut lines);
    lines.extend(a.iter().skip(a.len() - tail).map(|line| Line::Same(line)));
    slide(&mut lines);
    lines
}

/// Moves changes down as far as they can stand: of a table that goes, the blank line behind it is
/// the one that goes with it, not the one before. GNU diff does the same.
fn slide(lines: &mut [Line<'_>]) {
    let mut at = 0;
    while at < lines.len() {
        let Some(first) = lines.get(at).copied() else {
            return;
        };
        let same_kind = |line: &Line<'_>| {
            matches!(
                (first, line),
                (Line::Gone(_), Line::Gone(_)) | (Line::New(_), Line::New(_))
            )
        };
        let run = lines
            .iter()
            .skip(at)
            .take_while(|line| same_kind(line))
            .count();
        if run == 0 {
            at += 1;
            continue;
        }
        let content = match first {
            Line::Same(content) | Line::Gone(content) | Line::New(content) => content,
        };
        let alone = at.checked_sub(1).is_none_or(|before| {
            lines
                .get(before)
                .is_none_or(|line| matches!(line, Line::Same(_)))
        });
        if alone && lines.get(at + run) == Some(&Line::Same(content)) {
            // The first of the run stays, and what was its like behind the run goes instead.
            lines.swap(at, at + run);
            at += 1;
        } else {
            at += run;
        }
    }
}

/// Compares two lists of lines by their longest common subsequence.
fn between<'t>(a: &[&'t str], b: &[&'t str], lines: &mut Vec<Line<'t>>) {
    let width = b.len() + 1;
    if (a.len() + 1).saturating_mul(width) > MOST_CELLS {
        lines.extend(a.iter().map(|line| Line::Gone(line)));
        lines.extend(b.iter().map(|line| Line::New(line)));
        return;
    }
    // Longest common part of what follows each pair of places.
    let mut table = vec![0_u32; (a.len() + 1) * width];
    let cell = |table: &[u32], i: usize, j: usize| table.get(i * width + j).copied().unwrap_or(0);
    for (i, x) in a.iter().enumerate().rev() {
        for (j, y) in b.iter().enumerate().rev() {
            let longest = if x == y {
                cell(&table, i + 1, j + 1) + 1
            } else {
                cell(&table, i + 1, j).max(cell(&table, i, j + 1))
            };
            if let Some(place) = table.get_mut(i * width + j) {
                *place = longest;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    loop {
        match (a.get(i), b.get(j)) {
            (Some(x), Some(y)) if x == y => {
                lines.push(Line::Same(x));
                i += 1;
                j += 1;
            }
            (Some(x), y) if y.is_none() || cell(&table, i + 1, j) >= cell(&table, i, j + 1) => {
                lines.push(Line::Gone(x));
                i += 1;
            }
            (_, Some(y)) => {
                lines.push(Line::New(y));
                j += 1;
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Written by GNU diff 3.10, `diff -u --label x --label x`.
    #[test]
    fn differences_are_those_of_gnu_diff() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\n";
        let new = "a\nB\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\n";
        assert_eq!(
            unified("x", old, new),
            "--- x\n+++ x\n@@ -1,5 +1,5 @@\n a\n-b\n+B\n c\n d\n e\n@@ -10,3 +10,4 @@\n j\n k\n l\n+m\n"
        );
        assert_eq!(
            unified("x", "a\nb", "a\nb\nc"),
            "--- x\n+++ x\n@@ -1,2 +1,3 @@\n a\n-b\n\\ No newline at end of file\n+b\n+c\n\\ No newline at end of file\n"
        );
        assert_eq!(unified("x", "", "a\n"), "--- x\n+++ x\n@@ -0,0 +1 @@\n+a\n");
        assert_eq!(unified("x", "a\n", "a\n"), "");
    }

    proptest::proptest! {
        #[test]
        fn both_texts_can_be_told_from_the_comparison(
            old in "([abc]?\n){0,12}[ab]?", new in "([abc]?\n){0,12}[ab]?",
        ) {
            let lines = compared(&old, &new);
            let side = |keep: fn(&Line<'_>) -> bool| -> String {
                lines.iter().filter(|line| keep(line)).map(|line| match line {
                    Line::Same(text) | Line::Gone(text) | Line::New(text) => *text,
                }).collect()
            };
            proptest::prop_assert_eq!(side(|line| !matches!(line, Line::New(_))), old.as_str());
            proptest::prop_assert_eq!(side(|line| !matches!(line, Line::Gone(_))), new.as_str());
        }
    }
}
