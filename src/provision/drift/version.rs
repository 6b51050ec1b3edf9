//! Which of two versions is the newer: of kernels, packages, drivers. Must not know whose they are.

use std::cmp::Ordering;

/// Orders two versions by the rules of Debian's policy (section "Version"): an epoch before `:`
/// first, then runs of digits as numbers and runs of other characters by letters before signs, `~`
/// before the end. Kernels' releases and rpm's versions fall in order by them too.
pub fn compare(a: &str, b: &str) -> Ordering {
    let ((epoch_a, a), (epoch_b, b)) = (epoch(a), epoch(b));
    number(epoch_a, epoch_b).then_with(|| rest(a, b))
}

/// Whether a version lies in `[from, below)`; a bound that is not given does not bind.
pub fn within(version: &str, from: Option<&str>, below: Option<&str>) -> bool {
    from.is_none_or(|from| compare(version, from) != Ordering::Less)
        && below.is_none_or(|below| compare(version, below) == Ordering::Less)
}

fn epoch(version: &str) -> (&str, &str) {
    match version.split_once(':') {
        Some((epoch, rest)) if epoch.bytes().all(|byte| byte.is_ascii_digit()) => (epoch, rest),
        _ => ("", version),
    }
}

fn rest(mut a: &str, mut b: &str) -> Ordering {
    while !a.is_empty() || !b.is_empty() {
        let (word_a, after_a) = split(a, |c| !c.is_ascii_digit());
        let (word_b, after_b) = split(b, |c| !c.is_ascii_digit());
        let (digits_a, after_a) = split(after_a, |c| c.is_ascii_digit());
        let (digits_b, after_b) = split(after_b, |c| c.is_ascii_digit());
        let order = word(word_a, word_b).then_with(|| number(digits_a, digits_b));
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (after_a, after_b);
    }
    Ordering::Equal
}

fn split(text: &str, of: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !of(c)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

fn word(a: &str, b: &str) -> Ordering {
    let rank = |c: Option<char>| match c {
        Some('~') => (-1, '~'),
        None => (0, ' '),
        Some(c) if c.is_alphabetic() => (1, c),
        Some(c) => (2, c),
    };
    let (mut a, mut b) = (a.chars(), b.chars());
    loop {
        let (x, y) = (a.next(), b.next());
        let order = rank(x).cmp(&rank(y));
        if order != Ordering::Equal || (x.is_none() && y.is_none()) {
            return order;
        }
    }
}

/// Runs of digits of any length.
fn number(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stand_in_the_order_that_dpkg_and_kernels_have() {
        let rising = [
            "6.6.87",
            "6.14.0-1014-oem",
            "6.14.0-1018-oem",
            "6.17.1-300.fc43.x86_64",
            "6.18.4",
            "6.18.9-200.fc43.x86_64",
            "7.0.0-31-generic",
            "20251111-1",
            "20251125-1",
            "20260110-1~bpo",
            "20260110-1",
            "1:0.1",
            "1:1.0~rc2",
            "1:1.0",
            "1:1.0+b1",
            "2:0",
        ];
        for pair in rising.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        for (a, b) in [("1.0", "1.00"), ("0:1", "1"), ("", "0")] {
            assert_eq!(compare(a, b), Ordering::Equal, "{a} {b}");
        }
    }

    #[test]
    fn a_range_takes_its_first_and_not_its_end() {
        assert!(within("6.18.4", Some("6.18.4"), Some("6.19")));
        assert!(!within("6.19", Some("6.18.4"), Some("6.19")));
        assert!(!within("6.18.3", Some("6.18.4"), None));
        assert!(within("1", None, None));
    }
}
