//! What the API needs of a model's tokenizer and chat template.
//!
//! A seam: the served model's own stand behind it, and tests put a plain byte vocabulary there.

/// A message of a conversation, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// Its text.
    pub content: String,
}

/// Text to tokens and back.
pub trait Language: Send + Sync + 'static {
    /// Token ids of `text`. `add_special` puts the model's begin token where it wants one.
    fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, String>;

    /// The prompt that asks for the next message, special tokens spelled out.
    fn render(&self, messages: &[Message]) -> Result<String, String>;

    /// Tokens that end an answer.
    fn eog(&self) -> &[u32];

    /// The bytes a token stands for.
    fn piece(&self, id: u32) -> Vec<u8>;

    /// A decoder for one answer.
    fn decoder(&self) -> Box<dyn Decoder>;
}

/// Turns an answer's tokens into text as they come; never gives half a character.
pub trait Decoder: Send {
    /// Text that is certain after this token.
    fn push(&mut self, id: u32) -> String;

    /// What was held back, at the end.
    fn finish(&mut self) -> String;
}
