//! An answer's tokens to text, as they come.
//!
//! Characters may spread over tokens: bytes that may yet become a character are held back, bytes
//! that cannot are U+FFFD, exactly as decoding the whole at once would have it.

use std::sync::Arc;

use super::tokenizer::Tokenizer;

/// Decodes one answer.
#[derive(Debug)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    /// An unfinished character, at most three bytes.
    held: Vec<u8>,
    /// The next text may begin with a space that is not part of it.
    drop_space: bool,
}

impl Detokenizer {
    /// A decoder for a whole text: the space that some tokenizers put in front is dropped.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Detokenizer {
        Detokenizer {
            drop_space: tokenizer.space_prefix(),
            tokenizer,
            held: Vec::new(),
        }
    }

    /// A decoder for text that goes on after a prompt's: a leading space is kept.
    pub fn continuing(tokenizer: Arc<Tokenizer>) -> Detokenizer {
        Detokenizer {
            drop_space: false,
            tokenizer,
            held: Vec::new(),
        }
    }

    /// The text that is certain after this token; empty for special tokens and unfinished
    /// characters.
    pub fn push(&mut self, id: u32) -> String {
        let tokenizer = Arc::clone(&self.tokenizer);
        self.push_bytes(tokenizer.token_bytes(id))
    }

    /// What was held back, at the end of the answer.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }

    fn push_bytes(&mut self, mut bytes: &[u8]) -> String {
        if self.drop_space && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            self.drop_space = false;
        }
        self.held.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.held.len());
        let mut rest = self.held.as_slice();
        let keep = loop {
            let error = match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    break 0;
                }
                Err(e) => e,
            };
            let (valid, after) = rest.split_at(error.valid_up_to());
            text.push_str(&String::from_utf8_lossy(valid));
            let Some(bad) = error.error_len() else {
                break after.len();
            };
            text.push(char::REPLACEMENT_CHARACTER);
            rest = after.get(bad..).unwrap_or_default();
        };
        self.held.drain(..self.held.len() - keep);
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::goldens::tiny;
    use super::*;

    fn decode(chunks: &[&[u8]]) -> (Vec<String>, String) {
        let mut decoder = Detokenizer::continuing(Arc::new(tiny("spm")));
        let texts = chunks.iter().map(|c| decoder.push_bytes(c)).collect();
        (texts, decoder.finish())
    }

    #[test]
    fn an_unfinished_character_waits_for_its_bytes() {
        let (texts, rest) = decode(&[b"a\xF0", b"\x9F", b"\x98", b"\x80b"]);
        assert_eq!(texts, ["a", "", "", "😀b"]);
        assert_eq!(rest, "");
    }

    #[test]
    fn bytes_that_cannot_become_a_character_are_replaced_at_once() {
        let (texts, rest) = decode(&[b"\xFF", b"\xE2\x82", b"x", b"\xE2"]);
        assert_eq!(texts, ["\u{FFFD}", "", "\u{FFFD}x", ""]);
        assert_eq!(rest, "\u{FFFD}");
    }

    #[test]
    fn special_tokens_are_no_text() {
        let tokenizer = Arc::new(tiny("spm"));
        let mut decoder = Detokenizer::new(Arc::clone(&tokenizer));
        let bos = tokenizer.bos().unwrap();
        assert_eq!(decoder.push(bos), "");
        let ids = tokenizer.encode(" two  spaces", false, false).unwrap();
        let text: String = ids.iter().map(|id| decoder.push(*id)).collect();
        assert_eq!(text + &decoder.finish(), " two  spaces");
    }

    #[test]
    fn a_continued_text_keeps_its_leading_space() {
        let tokenizer = Arc::new(tiny("spm"));
        let ids = tokenizer.encode("word", false, false).unwrap();
        let mut decoder = Detokenizer::continuing(Arc::clone(&tokenizer));
        let text: String = ids.iter().map(|id| decoder.push(*id)).collect();
        assert_eq!(text, " word");
    }

    proptest! {
        #[test]
        fn any_cut_of_any_bytes_decodes_as_the_whole(
            chunks in prop::collection::vec(prop::collection::vec(
                prop_oneof![any::<u8>(), Just(0xE2), Just(0x82), Just(0xAC), Just(0xF0), Just(0x9F)],
                0..6), 0..12),
        ) {
            let whole: Vec<u8> = chunks.concat();
            let slices: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let (texts, rest) = decode(&slices);
            prop_assert_eq!(texts.concat() + &rest, String::from_utf8_lossy(&whole));
        }
    }
}
