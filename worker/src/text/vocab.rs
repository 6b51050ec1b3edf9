//! The token table of a model file: texts, kinds, bytes, and which tokens begin and end a text.
//!
//! Must not know how text is split or merged.

use std::collections::{BTreeSet, HashMap};

use windlass_gguf::Metadata;

use super::error::TextError;

/// How a vocabulary writes its tokens' texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Bytes in the printable alphabet of [`letter_of`].
    Bytes,
    /// Text with spaces as U+2581, and tokens `<0x00>` to `<0xFF>` for the rest.
    Pieces,
}

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Plain text.
    Normal,
    /// Stands for what has no token.
    Unknown,
    /// Steers the model, is never text.
    Control,
    /// Added text that is never split.
    User,
    /// Never produced, stands for nothing.
    Unused,
    /// One byte.
    Byte,
}

/// Tokens with a role.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Roles {
    pub(super) begin: Option<u32>,
    pub(super) end: Option<u32>,
    pub(super) unknown: Option<u32>,
}

/// The table.
#[derive(Debug)]
pub(super) struct Vocab {
    pub(super) texts: Vec<String>,
    pub(super) kinds: Vec<Kind>,
    pub(super) roles: Roles,
    /// Tokens that end a generation, ascending.
    pub(super) ends: Vec<u32>,
    /// Tokens split out of the text before anything else, longest first.
    pub(super) specials: Vec<u32>,
    /// Bytes each token stands for, special tokens with their own text.
    bytes: Vec<Vec<u8>>,
}

/// Roles that the file gives by key, or a token has by its name: (key, names).
const TURN_END: (&str, &[&str]) = (
    "tokenizer.ggml.eot_token_id",
    &[
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    ],
);
const MESSAGE_END: (&str, &[&str]) = ("tokenizer.ggml.eom_token_id", &["<|eom_id|>"]);
const FILL_PAD: (&str, &[&str]) = (
    "tokenizer.ggml.fim_pad_token_id",
    &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
);
const FILL_REPO: (&str, &[&str]) = (
    "tokenizer.ggml.fim_rep_token_id",
    &[
        "<|fim_repo|>",
        "<|repo_name|>",
        "<fim-repo>",
        "<REPO>",
        "<reponame>",
    ],
);
const FILL_FILE: (&str, &[&str]) = ("tokenizer.ggml.fim_sep_token_id", &["<|file_sep|>"]);

/// Tokens that end a generation whatever the keys say.
const END_NAMES: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

impl Vocab {
    /// Reads the table.
    ///
    /// # Errors
    /// When the token list is absent, empty or repeats a text, or the kinds do not match it.
    pub(super) fn read(metadata: &Metadata, family: Family) -> Result<Vocab, TextError> {
        let key = "tokenizer.ggml.tokens";
        let texts = metadata
            .get_str_array(key)?
            .filter(|t| !t.is_empty())
            .ok_or(TextError::Missing { key })?;
        if u32::try_from(texts.len()).is_err() {
            return Err(unusable("it has more than 4 G tokens".into()));
        }
        let texts: Vec<String> = (0..)
            .zip(texts)
            .map(|(id, t): (u32, &String)| match t.is_empty() {
                // Never matched by text, but keeps ids apart.
                true => format!("[EMPTY_{id}]"),
                false => t.clone(),
            })
            .collect();
        let kinds = kinds(metadata, texts.len())?;
        let mut vocab = Vocab {
            roles: roles(metadata, family, texts.len())?,
            kinds,
            texts,
            ends: Vec::new(),
            specials: Vec::new(),
            bytes: Vec::new(),
        };
        let ids = vocab.ids()?;
        let (ends, controls, users) = vocab.find_ends(metadata, &ids)?;
        for id in controls {
            vocab.set_kind(id, Kind::Control);
        }
        for id in users {
            vocab.set_kind(id, Kind::User);
        }
        vocab.ends = ends.into_iter().collect();
        vocab.specials = (0..)
            .zip(&vocab.kinds)
            .filter(|(_, k)| matches!(k, Kind::Control | Kind::User | Kind::Unknown))
            .map(|(id, _)| id)
            .collect();
        let texts = &vocab.texts;
        vocab
            .specials
            .sort_by_key(|id| std::cmp::Reverse(texts.get(*id as usize).map_or(0, String::len)));
        vocab.bytes = vocab
            .texts
            .iter()
            .zip(&vocab.kinds)
            .map(|(text, kind)| bytes_of(text, *kind, family))
            .collect();
        Ok(vocab)
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The token's kind; unused when there is no such token.
    pub(super) fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Unused)
    }

    /// The token's text as the file has it.
    pub(super) fn text(&self, id: u32) -> &str {
        self.texts.get(id as usize).map_or("", String::as_str)
    }

    /// The bytes the token stands for; a special token's text.
    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether the token is never text.
    pub(super) fn is_special(&self, id: u32) -> bool {
        matches!(self.kind(id), Kind::Control | Kind::Unknown)
    }

    /// Ids by text.
    ///
    /// # Errors
    /// When two tokens have the same text.
    pub(super) fn ids(&self) -> Result<HashMap<&str, u32>, TextError> {
        let mut ids = HashMap::with_capacity(self.texts.len());
        for (id, text) in (0..).zip(&self.texts) {
            if let Some(other) = ids.insert(text.as_str(), id) {
                return Err(unusable(format!(
                    "tokens {other} and {id} are both {text:?}"
                )));
            }
        }
        Ok(ids)
    }

    fn set_kind(&mut self, id: u32, kind: Kind) {
        if let Some(k) = self.kinds.get_mut(id as usize) {
            *k = kind;
        }
    }

    /// The tokens that end a generation, those to be taken as control tokens though the file says
    /// otherwise, and those to be taken as text.
    fn find_ends(
        &self,
        metadata: &Metadata,
        ids: &HashMap<&str, u32>,
    ) -> Result<(BTreeSet<u32>, Vec<u32>, Vec<u32>), TextError> {
        let mut ends = BTreeSet::new();
        let mut controls = Vec::new();
        ends.extend(self.roles.end);
        for (key, names) in [TURN_END, MESSAGE_END, FILL_PAD, FILL_REPO, FILL_FILE] {
            match role(metadata, key, self.len())? {
                Some(id) => ends.extend([id]),
                None => {
                    let found = names.iter().filter_map(|n| ids.get(n)).min().copied();
                    ends.extend(found);
                    controls.extend(found);
                }
            }
        }
        let named = END_NAMES.iter().filter_map(|n| ids.get(n)).copied();
        for id in named {
            ends.insert(id);
            controls.push(id);
        }
        // In dialogues by channels, `<|end|>` closes a message and not the answer, and the
        // channel marks are part of what is said.
        let mut users: Vec<u32> = ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"]
            .iter()
            .filter_map(|n| ids.get(n).copied())
            .collect();
        let has = |name: &str| ids.contains_key(name);
        let by_channels = (has("<|return|>") && has("<|call|>"))
            || ((has("<|call|>") || has("<|calls|>")) && has("<|flush|>"));
        if let Some(id) = ids.get("<|end|>").filter(|_| by_channels) {
            ends.remove(id);
            users.push(*id);
        }
        Ok((ends, controls, users))
    }
}

fn unusable(reason: String) -> TextError {
    TextError::Vocabulary { reason }
}

fn kinds(metadata: &Metadata, tokens: usize) -> Result<Vec<Kind>, TextError> {
    let Some(types) = metadata.get_i32_array("tokenizer.ggml.token_type")? else {
        return Ok(vec![Kind::Normal; tokens]);
    };
    if types.len() != tokens {
        return Err(unusable(format!(
            "`tokenizer.ggml.token_type` has {} entries for {tokens} tokens",
            types.len()
        )));
    }
    Ok(types
        .iter()
        .map(|t| match t {
            1 => Kind::Normal,
            2 => Kind::Unknown,
            3 => Kind::Control,
            4 => Kind::User,
            6 => Kind::Byte,
            _ => Kind::Unused,
        })
        .collect())
}

/// The token that `key` names.
///
/// # Errors
/// When there is no such token.
fn role(metadata: &Metadata, key: &str, tokens: usize) -> Result<Option<u32>, TextError> {
    let Some(id) = metadata.get_u64(key)? else {
        return Ok(None);
    };
    match u32::try_from(id) {
        // Written by some converters for "there is none".
        Ok(u32::MAX) => Ok(None),
        Ok(small) if (small as usize) < tokens => Ok(Some(small)),
        _ => Err(unusable(format!(
            "`{key}` is {id}, but there are {tokens} tokens"
        ))),
    }
}

fn roles(metadata: &Metadata, family: Family, tokens: usize) -> Result<Roles, TextError> {
    let role = |key, default: u32| -> Result<Option<u32>, TextError> {
        let default = (family == Family::Pieces && (default as usize) < tokens).then_some(default);
        Ok(role(metadata, key, tokens)?.or(default))
    };
    Ok(Roles {
        begin: role("tokenizer.ggml.bos_token_id", 1)?,
        end: role("tokenizer.ggml.eos_token_id", 2)?,
        unknown: role("tokenizer.ggml.unknown_token_id", 0)?,
    })
}

fn bytes_of(text: &str, kind: Kind, family: Family) -> Vec<u8> {
    match (kind, family) {
        (Kind::Unused, _) => Vec::new(),
        (Kind::Control | Kind::Unknown | Kind::User, _) => text.as_bytes().to_vec(),
        (Kind::Byte, _) => byte_name(text).map_or_else(|| text.as_bytes().to_vec(), |b| vec![b]),
        (Kind::Normal, Family::Pieces) => text.replace('\u{2581}', " ").into_bytes(),
        (Kind::Normal, Family::Bytes) => {
            plain_bytes(text).unwrap_or_else(|| text.as_bytes().to_vec())
        }
    }
}

/// The byte that a name as `<0x0A>` stands for.
pub(super) fn byte_name(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
        .then(|| u8::from_str_radix(hex, 16).ok())?
}

/// The bytes that a text of the printable alphabet stands for; none when a letter is not in it.
pub(super) fn plain_bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(byte_of).collect()
}

/// The letter that stands for a byte: printable Latin-1 for itself, the others in order from
/// U+0100 on.
pub(super) fn letter_of(byte: u8) -> char {
    let shift = match byte {
        0x00..=0x20 => 0x100,
        0x7F..=0xA0 => 0x100 + 0x21 - 0x7F,
        0xAD => 0x143 - 0xAD,
        _ => 0,
    };
    char::from_u32(u32::from(byte) + shift).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn byte_of(letter: char) -> Option<u8> {
    let byte = match u32::from(letter) {
        c @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => c,
        c @ 0x100..=0x120 => c - 0x100,
        c @ 0x121..=0x142 => c - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printable_alphabet_has_a_letter_for_each_byte_and_back() {
        let letters: BTreeSet<char> = (0..=255).map(letter_of).collect();
        assert_eq!(letters.len(), 256);
        assert!((0..=255).all(|b| byte_of(letter_of(b)) == Some(b)));
        assert_eq!(letter_of(b' '), 'Ġ');
        assert_eq!(letter_of(b'\n'), 'Ċ');
        assert_eq!(byte_of('€'), None);
    }

    #[test]
    fn byte_names_are_read_strictly() {
        assert_eq!(byte_name("<0x0A>"), Some(10));
        assert_eq!(byte_name("<0xfF>"), Some(255));
        assert_eq!(byte_name("<0x+1>"), None);
        assert_eq!(byte_name("<0x1>"), None);
        assert_eq!(byte_name("<0x001>"), None);
    }
}
