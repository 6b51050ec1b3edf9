//! Byte-pair merging: within a word, the pair of lowest rank merges first, leftmost on a tie.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use windlass_gguf::Metadata;

use super::error::TextError;
use super::pre::Pre;
use super::vocab::{Kind, Vocab, letter_of, plain_bytes};

/// A byte-pair tokenizer.
#[derive(Debug)]
pub(super) struct Bpe {
    pub(super) pre: Pre,
    /// Token of each byte.
    bytes: Vec<Option<u32>>,
    /// (left, right) to (rank, merged).
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Tokens by their bytes; empty unless whole words are looked up.
    words: HashMap<Vec<u8>, u32>,
}

/// A word's part: its token, and its neighbours as positions in the word.
#[derive(Clone, Copy)]
struct Symbol {
    token: u32,
    alive: bool,
    before: Option<usize>,
    after: Option<usize>,
}

type Queue = BinaryHeap<Reverse<(u32, usize, usize, u32, u32)>>;

impl Bpe {
    /// Reads the merges.
    ///
    /// # Errors
    /// When the list or the pre-tokenizer's name is absent, or a merge has no token.
    pub(super) fn read(metadata: &Metadata, vocab: &Vocab) -> Result<Bpe, TextError> {
        let key = "tokenizer.ggml.pre";
        let pre = Pre::named(metadata.get_str(key)?.ok_or(TextError::Missing { key })?)?;
        let key = "tokenizer.ggml.merges";
        let list = metadata
            .get_str_array(key)?
            .ok_or(TextError::Missing { key })?;
        let ids = vocab.ids()?;
        let mut merges = HashMap::with_capacity(list.len());
        for (rank, merge) in (0..).zip(list) {
            let pair = parts(merge).and_then(|(left, right)| {
                let whole = [left, right].concat();
                Some((*ids.get(left)?, *ids.get(right)?, *ids.get(whole.as_str())?))
            });
            let Some((left, right, whole)) = pair else {
                return Err(TextError::Vocabulary {
                    reason: format!("merge {rank}, {merge:?}, is not of two tokens to a third"),
                });
            };
            merges.entry((left, right)).or_insert((rank, whole));
        }
        let bytes = (0..=255)
            .map(|b| ids.get(letter_of(b).to_string().as_str()).copied())
            .collect();
        let words = if pre.whole_words {
            words(vocab)
        } else {
            HashMap::new()
        };
        Ok(Bpe {
            pre,
            bytes,
            merges,
            words,
        })
    }

    /// Appends the tokens of a text without special tokens.
    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), TextError> {
        for word in self.pre.split(text)? {
            match self.words.get(word.as_bytes()) {
                Some(id) => out.push(*id),
                None => self.encode_word(word.as_bytes(), out)?,
            }
        }
        Ok(())
    }

    fn encode_word(&self, word: &[u8], out: &mut Vec<u32>) -> Result<(), TextError> {
        let mut symbols = Vec::with_capacity(word.len());
        for (at, byte) in word.iter().enumerate() {
            let token = self.bytes.get(usize::from(*byte)).copied().flatten();
            symbols.push(Symbol {
                token: token.ok_or(TextError::NoToken { byte: *byte })?,
                alive: true,
                before: at.checked_sub(1),
                after: (at + 1 < word.len()).then_some(at + 1),
            });
        }
        let mut queue = Queue::new();
        for at in 1..symbols.len() {
            self.offer(&symbols, Some(at - 1), Some(at), &mut queue);
        }
        while let Some(Reverse((_, left, right, left_token, right_token))) = queue.pop() {
            let is =
                |at: usize, token| symbols.get(at).is_some_and(|s| s.alive && s.token == token);
            if is(left, left_token) && is(right, right_token) {
                self.merge(&mut symbols, left, right, &mut queue);
            }
        }
        out.extend(symbols.iter().filter(|s| s.alive).map(|s| s.token));
        Ok(())
    }

    /// Queues the pair if it merges.
    fn offer(
        &self,
        symbols: &[Symbol],
        left: Option<usize>,
        right: Option<usize>,
        queue: &mut Queue,
    ) {
        let (Some(left), Some(right)) = (left, right) else {
            return;
        };
        if let (Some(a), Some(b)) = (symbols.get(left), symbols.get(right))
            && let Some((rank, _)) = self.merges.get(&(a.token, b.token))
        {
            queue.push(Reverse((*rank, left, right, a.token, b.token)));
        }
    }

    /// Merges `right` into `left` and queues the new neighbours.
    fn merge(&self, symbols: &mut [Symbol], left: usize, right: usize, queue: &mut Queue) {
        let Some(gone) = symbols.get_mut(right) else {
            return;
        };
        gone.alive = false;
        let (right_token, after) = (gone.token, gone.after);
        let Some(kept) = symbols.get_mut(left) else {
            return;
        };
        if let Some((_, whole)) = self.merges.get(&(kept.token, right_token)) {
            kept.token = *whole;
        }
        kept.after = after;
        let before = kept.before;
        if let Some(next) = after.and_then(|at| symbols.get_mut(at)) {
            next.before = Some(left);
        }
        self.offer(symbols, before, Some(left), queue);
        self.offer(symbols, Some(left), after, queue);
    }
}

/// The two halves of a merge, which a space separates; the first half is never empty.
fn parts(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let at = first + merge.get(first..)?.find(' ')?;
    Some((merge.get(..at)?, merge.get(at + 1..)?))
}

fn words(vocab: &Vocab) -> HashMap<Vec<u8>, u32> {
    (0..)
        .zip(vocab.texts.iter().zip(&vocab.kinds))
        .filter(|(_, (_, kind))| matches!(kind, Kind::Normal | Kind::User))
        .filter_map(|(id, (text, _))| Some((plain_bytes(text)?, id)))
        .collect()
}
