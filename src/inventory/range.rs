//! Ranges in names and addresses: `halo[1-2]`, `node[01-16]`, `r[a-c]n[1-9:2]`, `x[1,3,5-7]`. Pure
//! text; must not know what is named.

use thiserror::Error;

/// Most names that one text may stand for.
pub const MOST_NAMES: usize = 4096;

/// Why a text with brackets stands for no names.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RangeError {
    /// A bracket without its other.
    #[error("\"{0}\" has a bracket without its other: write a range as name[1-5]")]
    Bracket(String),
    /// Something in brackets that is no range.
    #[error(
        "\"[{0}]\" is no range: write numbers or single letters, as [1-5], [01-16], [a-f], [1-9:2] or [1,3,5-7]"
    )]
    Item(String),
    /// From high to low.
    #[error("the range \"[{0}]\" goes down: write the smaller end first")]
    Down(String),
    /// Ends padded to different widths.
    #[error(
        "the ends of the range \"[{0}]\" are padded differently: write both as wide, as [01-16]"
    )]
    Padding(String),
    /// Too much.
    #[error("\"{0}\" stands for more than {MOST_NAMES} names")]
    Many(String),
}

/// A text as it is written: constant parts and ranges, each range as all it stands for.
enum Part {
    Text(String),
    Range(Vec<String>),
}

/// Whether a text has a range in it.
pub fn is_range(text: &str) -> bool {
    text.contains('[')
}

/// All that a text stands for, the last range turning fastest; itself when it has no range.
///
/// # Errors
/// When its brackets are no ranges, or it stands for too much.
pub fn expand(text: &str) -> Result<Vec<String>, RangeError> {
    let mut names = vec![String::new()];
    for part in parts(text)? {
        match part {
            Part::Text(constant) => names.iter_mut().for_each(|name| name.push_str(&constant)),
            Part::Range(items) => {
                if names.len().saturating_mul(items.len()) > MOST_NAMES {
                    return Err(RangeError::Many(text.to_owned()));
                }
                names = names
                    .iter()
                    .flat_map(|name| items.iter().map(move |item| format!("{name}{item}")))
                    .collect();
            }
        }
    }
    Ok(names)
}

/// The text for all but the element of this index; `None` when that cannot be written as one text:
/// when there are several ranges, none, or nothing would be left.
pub fn without(text: &str, index: usize) -> Option<String> {
    let mut wanted = expand(text).ok()?;
    if index >= wanted.len() {
        return None;
    }
    wanted.remove(index);
    let mut parts = parts(text).ok()?;
    let mut ranges = parts.iter_mut().filter_map(|part| match part {
        Part::Range(items) => Some(items),
        Part::Text(_) => None,
    });
    let items = ranges.next()?;
    if ranges.next().is_some() || items.len() < 2 {
        return None;
    }
    items.remove(index);
    let new: String = parts
        .iter()
        .map(|part| match part {
            Part::Text(constant) => constant.clone(),
            Part::Range(items) => format!("[{}]", written(items)),
        })
        .collect();
    (expand(&new).ok()? == wanted).then_some(new)
}

fn parts(text: &str) -> Result<Vec<Part>, RangeError> {
    let unmatched = || RangeError::Bracket(text.to_owned());
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, following) = after.split_once(']').ok_or_else(unmatched)?;
        if before.contains(']') {
            return Err(unmatched());
        }
        parts.push(Part::Text(before.to_owned()));
        parts.push(Part::Range(items(inside)?));
        rest = following;
    }
    if rest.contains(']') {
        return Err(unmatched());
    }
    parts.push(Part::Text(rest.to_owned()));
    Ok(parts)
}

/// All that the inside of a pair of brackets stands for.
fn items(inside: &str) -> Result<Vec<String>, RangeError> {
    let wrong = || RangeError::Item(inside.to_owned());
    let mut all = Vec::new();
    for item in inside.split(',') {
        let item = item.trim();
        let (span, step) = match item.split_once(':') {
            Some((span, step)) => {
                let step: u64 = digits(step).ok_or_else(wrong)?;
                if step == 0 || !span.contains('-') {
                    return Err(wrong());
                }
                (span, step)
            }
            None => (item, 1),
        };
        let (from, to) = span.split_once('-').unwrap_or((span, span));
        let many = || RangeError::Many(format!("[{inside}]"));
        if let (Some(first), Some(last)) = (digits(from), digits(to)) {
            let padded = |text: &str| text.len() > 1 && text.starts_with('0');
            if padded(to) && to.len() != from.len() {
                return Err(RangeError::Padding(inside.to_owned()));
            }
            let width = if padded(from) { from.len() } else { 0 };
            if first > last {
                return Err(RangeError::Down(inside.to_owned()));
            }
            if (last - first) / step >= MOST_NAMES as u64 {
                return Err(many());
            }
            let mut number = first;
            while number <= last {
                all.push(format!("{number:0width$}"));
                number += step;
            }
        } else {
            let (first, last) = (
                letter(from).ok_or_else(wrong)?,
                letter(to).ok_or_else(wrong)?,
            );
            if first.is_ascii_lowercase() != last.is_ascii_lowercase() {
                return Err(wrong());
            }
            if first > last {
                return Err(RangeError::Down(inside.to_owned()));
            }
            let step = usize::try_from(step).map_err(|_| wrong())?;
            all.extend(
                (first..=last)
                    .step_by(step)
                    .map(|byte| char::from(byte).to_string()),
            );
        }
        if all.len() > MOST_NAMES {
            return Err(many());
        }
    }
    Ok(all)
}

/// A number of at most 15 digits: sums of two cannot overflow.
fn digits(text: &str) -> Option<u64> {
    (!text.is_empty() && text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

fn letter(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [byte] if byte.is_ascii_alphabetic() => Some(*byte),
        _ => None,
    }
}

/// Items as the inside of brackets, neighbours joined.
fn written(items: &[String]) -> String {
    let mut runs: Vec<(String, String)> = Vec::new();
    for item in items {
        match runs.last_mut() {
            Some((_, last)) if next(last).as_ref() == Some(item) => *last = item.clone(),
            _ => runs.push((item.clone(), item.clone())),
        }
    }
    runs.iter()
        .map(|(first, last)| {
            if first == last {
                first.clone()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect::<Vec<_>>()
        .join(",")
}

/// What follows an item in a range of step 1 with the item's padding.
fn next(item: &str) -> Option<String> {
    if let Some(number) = digits(item) {
        let width = if item.starts_with('0') { item.len() } else { 0 };
        return Some(format!("{:0width$}", number + 1));
    }
    let byte = letter(item)?;
    letter(&char::from(byte.checked_add(1)?).to_string()).map(|next| char::from(next).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_stand_for_what_hand_expansion_gives() {
        let table = [
            ("halo1", "halo1"),
            ("halo[1-2]", "halo1 halo2"),
            ("n[08-11]", "n08 n09 n10 n11"),
            ("n[8-11]", "n8 n9 n10 n11"),
            ("n[098-101]", "n098 n099 n100 n101"),
            ("n[1-9:2]", "n1 n3 n5 n7 n9"),
            ("n[a-e:2]x", "nax ncx nex"),
            ("n[1,3,5-7]", "n1 n3 n5 n6 n7"),
            ("r[1-2]n[a-b]", "r1na r1nb r2na r2nb"),
            ("10.0.0.2[1-3]", "10.0.0.21 10.0.0.22 10.0.0.23"),
            ("fe80::[1-2]%eth0", "fe80::1%eth0 fe80::2%eth0"),
            ("n[5]", "n5"),
            ("n[0-2]", "n0 n1 n2"),
        ];
        for (text, wanted) in table {
            assert_eq!(expand(text).unwrap().join(" "), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_range_says_how_to_write_one() {
        let table = [
            ("n[1-", "bracket"),
            ("n1]", "bracket"),
            ("n]1[2]", "bracket"),
            ("n[]", "no range"),
            ("n[1,]", "no range"),
            ("n[1-2-3]", "no range"),
            ("n[::1]", "no range"),
            ("n[1:2]", "no range"),
            ("n[1-9:0]", "no range"),
            ("n[aa-b]", "no range"),
            ("n[a-F]", "no range"),
            ("n[1-f]", "no range"),
            ("n[5-1]", "goes down"),
            ("n[f-a]", "goes down"),
            ("n[1-05]", "padded"),
            ("n[1-4097]", "more than 4096"),
            ("n[1-99]m[1-99]", "more than 4096"),
            ("n[1-99999999999999999]", "no range"),
        ];
        for (text, wanted) in table {
            let error = expand(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        assert_eq!(expand("n[1-4096]").unwrap().len(), 4096);
    }

    #[test]
    fn an_element_taken_out_leaves_a_range_for_the_others() {
        let table = [
            ("mac[1-5]", 2, Some("mac[1-2,4-5]")),
            ("mac[1-5]", 0, Some("mac[2-5]")),
            ("mac[08-11]", 3, Some("mac[08-10]")),
            ("mac[1-2]", 1, Some("mac[1]")),
            ("mac[1-9:2]", 1, Some("mac[1,5,7,9]")),
            ("n[a-c]", 1, Some("n[a,c]")),
            ("mac[1]", 0, None),
            ("mac1", 0, None),
            ("r[1-2]n[1-2]", 0, None),
            ("mac[1-2]", 2, None),
        ];
        for (text, index, wanted) in table {
            assert_eq!(without(text, index).as_deref(), wanted, "{text} {index}");
        }
    }

    proptest! {
        #[test]
        fn taking_out_one_keeps_all_others(
            first in 0u64..200, count in 2u64..40, width in 0usize..4, step in 1u64..4, pick in 0usize..40,
        ) {
            let last = first + (count - 1) * step;
            let text = format!("n[{first:0width$}-{last:0width$}:{step}]");
            prop_assume!(expand(&text).is_ok());
            let mut all = expand(&text).unwrap();
            let pick = pick % all.len();
            let left = without(&text, pick).unwrap();
            all.remove(pick);
            prop_assert_eq!(expand(&left).unwrap(), all);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[a-c0-9\\[\\],:\\-%é]{0,24}") {
            let _ = expand(&text).map(|all| all.len() <= MOST_NAMES);
            let _ = without(&text, 1);
        }
    }
}
