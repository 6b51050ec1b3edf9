//! Merging by scores: of all neighbours whose joined text is a token, the best-scored merges
//! first, leftmost on a tie; what never became a token is spelled in bytes.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

use windlass_gguf::Metadata;

use super::error::TextError;
use super::vocab::{Kind, Vocab, byte_name};

/// The stand-in for a space.
const SPACE: &str = "\u{2581}";

/// A tokenizer by scores.
#[derive(Debug)]
pub(super) struct Spm {
    /// Text to (token, score).
    tokens: HashMap<String, (u32, f32)>,
    /// Length of the longest text, in bytes.
    longest: usize,
    /// Token of each byte.
    bytes: Vec<Option<u32>>,
    /// A space is put before text that begins or follows a special token.
    pub(super) space_prefix: bool,
}

/// A part of the text, and its neighbours.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    end: usize,
    before: Option<usize>,
    after: Option<usize>,
}

/// A possible merge, ordered by preference.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Where the joined text ends; differs once a side has merged otherwise.
    end: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then(Reverse(self.left).cmp(&Reverse(other.left)))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

impl Spm {
    /// Reads the scores.
    ///
    /// # Errors
    /// When they are absent or do not match the tokens.
    pub(super) fn read(metadata: &Metadata, vocab: &Vocab) -> Result<Spm, TextError> {
        let key = "tokenizer.ggml.scores";
        let scores = metadata
            .get_f32_array(key)?
            .ok_or(TextError::Missing { key })?;
        if scores.len() != vocab.len() || scores.iter().any(|s| s.is_nan()) {
            return Err(TextError::Vocabulary {
                reason: format!(
                    "`{key}` must have a number for each of the {} tokens",
                    vocab.len()
                ),
            });
        }
        vocab.ids()?;
        let mut tokens = HashMap::with_capacity(vocab.len());
        let mut bytes = vec![None; 256];
        for (id, (text, score)) in (0..).zip(vocab.texts.iter().zip(scores)) {
            match vocab.kind(id) {
                // Plain text never spells a control token.
                Kind::Control | Kind::Unknown => {}
                Kind::Byte => {
                    if let Some(entry) = byte_name(text).and_then(|b| bytes.get_mut(usize::from(b)))
                    {
                        *entry = Some(id);
                    }
                }
                Kind::Normal | Kind::User | Kind::Unused => {
                    tokens.insert(text.clone(), (id, *score + 0.0));
                }
            }
        }
        Ok(Spm {
            longest: tokens.keys().map(String::len).max().unwrap_or(0),
            tokens,
            bytes,
            space_prefix: metadata
                .get_bool("tokenizer.ggml.add_space_prefix")?
                .unwrap_or(true),
        })
    }

    /// Appends the tokens of a text without special tokens. `first` says that it begins the whole
    /// or follows a special token.
    pub(super) fn encode(
        &self,
        text: &str,
        first: bool,
        out: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        let prefix = if first && self.space_prefix {
            SPACE
        } else {
            ""
        };
        let text = format!("{prefix}{}", text.replace(' ', SPACE));
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(index, (start, c))| Symbol {
                start,
                end: start + c.len_utf8(),
                before: index.checked_sub(1),
                after: (start + c.len_utf8() < text.len()).then_some(index + 1),
            })
            .collect();
        let mut queue = BinaryHeap::new();
        for index in 1..symbols.len() {
            self.offer(&text, &symbols, Some(index - 1), Some(index), &mut queue);
        }
        while let Some(pair) = queue.pop() {
            self.merge(&text, &mut symbols, &pair, &mut queue);
        }
        for symbol in symbols.iter().filter(|s| s.start < s.end) {
            let part = text.get(symbol.start..symbol.end).unwrap_or_default();
            match self.tokens.get(part) {
                Some((id, _)) => out.push(*id),
                None => self.spell(part, out)?,
            }
        }
        Ok(())
    }

    /// Appends the byte tokens of a text.
    fn spell(&self, part: &str, out: &mut Vec<u32>) -> Result<(), TextError> {
        for byte in part.bytes() {
            let id = self.bytes.get(usize::from(byte)).copied().flatten();
            out.push(id.ok_or(TextError::NoToken { byte })?);
        }
        Ok(())
    }

    /// Queues the pair if its joined text is a token.
    fn offer(
        &self,
        text: &str,
        symbols: &[Symbol],
        left: Option<usize>,
        right: Option<usize>,
        queue: &mut BinaryHeap<Pair>,
    ) {
        let (Some(left), Some(right)) = (left, right) else {
            return;
        };
        let (Some(a), Some(b)) = (symbols.get(left), symbols.get(right)) else {
            return;
        };
        // Longer texts are not hashed, which keeps long inputs linear.
        if b.end - a.start > self.longest {
            return;
        }
        if let Some((_, score)) = text.get(a.start..b.end).and_then(|t| self.tokens.get(t)) {
            queue.push(Pair {
                score: *score,
                left,
                right,
                end: b.end,
            });
        }
    }

    /// Merges the pair, unless a side has merged otherwise since, and queues the new neighbours.
    fn merge(&self, text: &str, symbols: &mut [Symbol], pair: &Pair, queue: &mut BinaryHeap<Pair>) {
        let (Some(a), Some(b)) = (
            symbols.get(pair.left).copied(),
            symbols.get(pair.right).copied(),
        ) else {
            return;
        };
        let gone = a.start == a.end || b.start == b.end;
        if gone || a.end != b.start || b.end != pair.end {
            return;
        }
        if let Some(kept) = symbols.get_mut(pair.left) {
            kept.end = b.end;
            kept.after = b.after;
        }
        if let Some(merged) = symbols.get_mut(pair.right) {
            merged.start = merged.end;
        }
        if let Some(next) = b.after.and_then(|at| symbols.get_mut(at)) {
            next.before = Some(pair.left);
        }
        self.offer(text, symbols, a.before, Some(pair.left), queue);
        self.offer(text, symbols, Some(pair.left), b.after, queue);
    }
}
