//! The tokenizer of a model file, as its metadata describes it.

use windlass_gguf::Metadata;

use super::bpe::Bpe;
use super::error::TextError;
use super::spm::Spm;
use super::vocab::{Family, Kind, Vocab};

/// Tokenizer models known by name.
const KNOWN: &str = "gpt2, llama";

/// Text to tokens and back.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    model: Model,
    add_begin: bool,
    add_end: bool,
}

#[derive(Debug)]
enum Model {
    Bpe(Bpe),
    Spm(Spm),
}

/// A piece of a text.
enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

impl Tokenizer {
    /// Reads the tokenizer from a model file's metadata.
    ///
    /// # Errors
    /// When the file has none, names a model or pre-tokenizer that is not supported, or its
    /// vocabulary contradicts itself.
    pub fn from_metadata(metadata: &Metadata) -> Result<Tokenizer, TextError> {
        let key = "tokenizer.ggml.model";
        let name = metadata.get_str(key)?.ok_or(TextError::Missing { key })?;
        let (vocab, model, add_begin) = match name {
            "gpt2" => {
                let vocab = Vocab::read(metadata, Family::Bytes)?;
                let bpe = Bpe::read(metadata, &vocab)?;
                let begin = bpe.pre.begin;
                (vocab, Model::Bpe(bpe), begin)
            }
            "llama" => {
                let vocab = Vocab::read(metadata, Family::Pieces)?;
                let spm = Spm::read(metadata, &vocab)?;
                (vocab, Model::Spm(spm), true)
            }
            _ => {
                return Err(TextError::UnknownModel {
                    name: name.chars().take(80).collect(),
                    known: KNOWN.into(),
                });
            }
        };
        let flag = |key| metadata.get_bool(key);
        let tokenizer = Tokenizer {
            add_begin: flag("tokenizer.ggml.add_bos_token")?.unwrap_or(add_begin),
            add_end: flag("tokenizer.ggml.add_eos_token")?.unwrap_or(false),
            vocab,
            model,
        };
        for (wanted, id, what) in [
            (tokenizer.add_begin, tokenizer.bos(), "begin"),
            (tokenizer.add_end, tokenizer.eos(), "end"),
        ] {
            if wanted && id.is_none() {
                return Err(TextError::Vocabulary {
                    reason: format!("the {what} token is to be added, but the file names none"),
                });
            }
        }
        Ok(tokenizer)
    }

    /// Token ids of `text`.
    ///
    /// `add_special` adds the begin and end tokens the model wants, never a second time where the
    /// text itself spells them. `parse_special` takes control tokens spelled in the text as
    /// tokens; without it they are plain text.
    ///
    /// # Errors
    /// When the vocabulary cannot express a byte of the text.
    pub fn encode(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<u32>, TextError> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        let mut after_token = true;
        for fragment in self.fragments(text, parse_special) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(part) => match &self.model {
                    Model::Bpe(bpe) => bpe.encode(part, &mut ids)?,
                    Model::Spm(spm) => spm.encode(part, after_token, &mut ids)?,
                },
            }
            after_token = matches!(fragment, Fragment::Token(_));
        }
        if let Some(begin) = self.bos().filter(|_| add_special && self.add_begin)
            && ids.first() != Some(&begin)
        {
            ids.insert(0, begin);
        }
        if let Some(end) = self.eos().filter(|_| add_special && self.add_end)
            && ids.last() != Some(&end)
        {
            ids.push(end);
        }
        Ok(ids)
    }

    /// The text a token adds to an answer, as bytes, which may be part of a character; nothing
    /// for a special token.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        if self.is_special(id) {
            return &[];
        }
        self.vocab.bytes(id)
    }

    /// The bytes a token stands for; a special token's name.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.vocab.bytes(id)
    }

    /// Whether the token is never text (control tokens, and the one for unknown text).
    pub fn is_special(&self, id: u32) -> bool {
        self.vocab.is_special(id)
    }

    /// Number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.vocab.roles.begin
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.vocab.roles.end
    }

    /// All tokens that end a generation, ascending: end of text, of a turn, of a message.
    pub fn eog(&self) -> &[u32] {
        &self.vocab.ends
    }

    /// Whether `encode` with `add_special` begins with the begin token.
    pub fn adds_bos(&self) -> bool {
        self.add_begin
    }

    /// Whether a text's first token carries a space that is not part of the text.
    pub(super) fn space_prefix(&self) -> bool {
        match &self.model {
            Model::Spm(spm) => spm.space_prefix,
            Model::Bpe(_) => false,
        }
    }

    /// The name of a token as templates print it.
    pub(super) fn name(&self, id: u32) -> &str {
        self.vocab.text(id)
    }

    /// The unknown token.
    pub(super) fn unknown(&self) -> Option<u32> {
        self.vocab.roles.unknown
    }

    /// Splits out special tokens, the longest first.
    fn fragments<'t>(&self, text: &'t str, parse_special: bool) -> Vec<Fragment<'t>> {
        let mut parts = Vec::new();
        if !text.is_empty() {
            parts.push(Fragment::Text(text));
        }
        for id in &self.vocab.specials {
            let name = self.vocab.text(*id);
            let wanted = parse_special || self.vocab.kind(*id) == Kind::User;
            if !wanted || !text.contains(name) {
                continue;
            }
            let mut next = Vec::with_capacity(parts.len() + 2);
            for part in parts {
                let Fragment::Text(mut rest) = part else {
                    next.push(part);
                    continue;
                };
                while let Some((left, right)) = rest.split_once(name) {
                    next.extend(Some(left).filter(|t| !t.is_empty()).map(Fragment::Text));
                    next.push(Fragment::Token(*id));
                    rest = right;
                }
                next.extend(Some(rest).filter(|t| !t.is_empty()).map(Fragment::Text));
            }
            parts = next;
        }
        parts
    }
}
