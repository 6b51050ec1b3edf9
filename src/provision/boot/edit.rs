//! A change of a text as the one place in which two texts differ. Must not know what the texts are.

use serde::{Deserialize, Serialize};

/// At this byte, this text becomes that one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// Bytes before it.
    pub at: usize,
    /// What is there before.
    pub old: String,
    /// What is there after.
    pub new: String,
}

impl Edit {
    /// From one text to another; `None` when they are the same.
    pub fn between(old: &str, new: &str) -> Option<Self> {
        if old == new {
            return None;
        }
        let mut at = 0;
        for ((i, a), b) in old.char_indices().zip(new.chars()) {
            if a != b {
                break;
            }
            at = i + a.len_utf8();
        }
        let (a, b) = (old.get(at..)?, new.get(at..)?);
        let mut end = 0;
        for (x, y) in a.chars().rev().zip(b.chars().rev()) {
            if x != y {
                break;
            }
            end += x.len_utf8();
        }
        Some(Self {
            at,
            old: a.get(..a.len() - end)?.to_owned(),
            new: b.get(..b.len() - end)?.to_owned(),
        })
    }

    /// The changed text; `None` when the text is not the one that the change was made for.
    pub fn apply(&self, text: &str) -> Option<String> {
        replaced(text, self.at, &self.old, &self.new)
    }

    /// The text before the change; `None` when the text is not what the change made.
    pub fn undo(&self, text: &str) -> Option<String> {
        replaced(text, self.at, &self.new, &self.old)
    }
}

fn replaced(text: &str, at: usize, old: &str, new: &str) -> Option<String> {
    let (before, rest) = text.split_at_checked(at)?;
    let after = rest.strip_prefix(old)?;
    Some(format!("{before}{new}{after}"))
}

/// The text with a range of its bytes replaced; the text as it was where that range is none.
pub(super) fn spliced(text: &str, range: std::ops::Range<usize>, new: &str) -> String {
    match (text.get(..range.start), text.get(range.end..)) {
        (Some(before), Some(after)) => format!("{before}{new}{after}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_change_leads_from_one_text_to_the_other_and_back(
            a in "[ab\u{e4}\n]{0,12}", b in "[ab\u{e4}\n]{0,12}",
        ) {
            match Edit::between(&a, &b) {
                None => prop_assert_eq!(&a, &b),
                Some(edit) => {
                    prop_assert_eq!(edit.apply(&a), Some(b.clone()));
                    prop_assert_eq!(edit.undo(&b), Some(a.clone()));
                }
            }
        }
    }

    #[test]
    fn a_text_that_was_changed_otherwise_is_left_alone() {
        let edit = Edit::between("a=1\n", "a=2\n").unwrap();
        assert_eq!(
            (edit.at, edit.old.as_str(), edit.new.as_str()),
            (2, "1", "2")
        );
        assert_eq!(edit.undo("a=3\n"), None);
        assert_eq!(edit.undo(""), None);
    }
}
