//! What the API needs of a model's tokenizer and chat template.
//!
//! A seam: [`ModelLanguage`] stands behind it, and tests put a plain byte vocabulary there.

use std::sync::Arc;

use windlass_gguf::Metadata;

pub use crate::text::ChatMessage;
use crate::text::{ChatTemplate, Detokenizer, TextError, Tokenizer};

/// Text to tokens and back.
pub trait Language: Send + Sync + 'static {
    /// Token ids of `text`. `add_special` puts the model's begin token where it wants one.
    fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, String>;

    /// The prompt that asks for the next message, special tokens spelled out.
    fn render(&self, messages: &[ChatMessage]) -> Result<String, String>;

    /// Tokens that end an answer.
    fn eog(&self) -> &[u32];

    /// The bytes a token stands for.
    fn piece(&self, id: u32) -> Vec<u8>;

    /// A decoder for one answer; `continues` when its text goes on after the prompt's.
    fn decoder(&self, continues: bool) -> Box<dyn Decoder>;
}

/// Turns an answer's tokens into text as they come; never gives half a character.
pub trait Decoder: Send {
    /// Text that is certain after this token.
    fn push(&mut self, id: u32) -> String;

    /// What was held back, at the end.
    fn finish(&mut self) -> String;
}

/// A served model's own tokenizer and template.
#[derive(Debug)]
pub struct ModelLanguage {
    tokenizer: Arc<Tokenizer>,
    /// Or why there is none: then only `/v1/completions` works.
    template: Result<ChatTemplate, String>,
}

impl ModelLanguage {
    /// Reads both from a model file's metadata.
    ///
    /// # Errors
    /// When the tokenizer cannot be used. A missing template is an error only to who asks for it.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, TextError> {
        let tokenizer = Tokenizer::from_metadata(metadata)?;
        let template = ChatTemplate::from_metadata(metadata, &tokenizer).map_err(|e| e.to_string());
        Ok(Self {
            tokenizer: Arc::new(tokenizer),
            template,
        })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }
}

impl Language for ModelLanguage {
    fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, String> {
        self.tokenizer
            .encode(text, add_special, true)
            .map_err(|e| e.to_string())
    }

    fn render(&self, messages: &[ChatMessage]) -> Result<String, String> {
        let template = self
            .template
            .as_ref()
            .map_err(|reason| format!("this model cannot chat, use /v1/completions: {reason}"))?;
        template.render(messages, true).map_err(|e| e.to_string())
    }

    fn eog(&self) -> &[u32] {
        self.tokenizer.eog()
    }

    fn piece(&self, id: u32) -> Vec<u8> {
        self.tokenizer.piece(id).to_vec()
    }

    fn decoder(&self, continues: bool) -> Box<dyn Decoder> {
        let tokenizer = self.tokenizer.clone();
        Box::new(if continues {
            Detokenizer::continuing(tokenizer)
        } else {
            Detokenizer::new(tokenizer)
        })
    }
}

impl Decoder for Detokenizer {
    fn push(&mut self, id: u32) -> String {
        Detokenizer::push(self, id)
    }

    fn finish(&mut self) -> String {
        Detokenizer::finish(self)
    }
}
