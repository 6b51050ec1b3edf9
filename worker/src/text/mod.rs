//! Text to tokens and back: tokenizer, chat template, streaming decoder, stop strings.
//!
//! Everything is built from a model file's metadata. Must not know tensors, sockets or requests.
//!
//! - [`Tokenizer`]: from the parts [`pre`] (words), [`bpe`] and [`spm`] (merging), [`vocab`]
//! - [`ChatTemplate`]: a conversation to a prompt
//! - [`Detokenizer`]: ids to text as they come · [`StopMatcher`]: where the answer ends

mod bpe;
mod detokenize;
mod error;
mod json;
mod pre;
mod spm;
mod stop;
mod template;
mod tokenizer;
mod vocab;

#[cfg(test)]
mod goldens;

pub use detokenize::Detokenizer;
pub use error::TextError;
pub use stop::{StopMatcher, Stopping};
pub use template::{ChatMessage, ChatTemplate};
pub use tokenizer::Tokenizer;
