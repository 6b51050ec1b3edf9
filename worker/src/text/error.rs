//! What can go wrong between text and tokens.

use windlass_gguf::GgufError;

/// A tokenizer or template that cannot be built or used.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The metadata holds a key of the wrong type.
    #[error("the model file's tokenizer cannot be read: {0}")]
    Metadata(#[from] GgufError),
    /// A key the tokenizer needs is absent.
    #[error("the model file has no `{key}`; use a file that carries its tokenizer")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// The tokenizer's kind is not one we know.
    #[error("the tokenizer model `{name}` is not supported; known are: {known}")]
    UnknownModel {
        /// As the file names it.
        name: String,
        /// Those supported, separated by commas.
        known: String,
    },
    /// The rule that splits text into words is not one we know.
    #[error("the pre-tokenizer `{name}` is not supported; known are: {known}")]
    UnknownPre {
        /// As the file names it.
        name: String,
        /// Those supported, separated by commas.
        known: String,
    },
    /// The vocabulary contradicts itself.
    #[error("the model file's vocabulary is not usable: {reason}")]
    Vocabulary {
        /// What is wrong, and where.
        reason: String,
    },
    /// The text has a byte that the vocabulary cannot express.
    #[error("the vocabulary has no token for the byte 0x{byte:02X} in the text")]
    NoToken {
        /// The byte.
        byte: u8,
    },
    /// A splitting rule failed on a text.
    #[error("the text could not be split into words: {reason}")]
    Split {
        /// What the rule's engine says.
        reason: String,
    },
    /// The file brings no chat template, and none is guessed.
    #[error(
        "the model file has no `tokenizer.chat_template`, so it cannot take conversations; \
         send a plain prompt to /v1/completions instead"
    )]
    NoTemplate,
    /// The template is not valid.
    #[error("the model file's chat template is not valid: {reason}")]
    Template {
        /// Where and why.
        reason: String,
    },
    /// The template failed on a conversation.
    #[error("the chat template failed on this conversation: {reason}")]
    Render {
        /// Where and why.
        reason: String,
    },
    /// The template refused the conversation by `raise_exception`.
    #[error("the chat template refuses this conversation: {message}")]
    Refused {
        /// The template's own words.
        message: String,
    },
}
