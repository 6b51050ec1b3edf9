//! How answers are written: the chat form and the completion form, whole and in chunks.
//!
//! Values in, serialisable values out; must not know sockets or sequences.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use windlass_wire::api::{
    ChatChoice, ChatChunk, ChatLogprobs, ChatResponse, ChunkChoice, CompletionChoice,
    CompletionLogprobs, CompletionResponse, Delta, ResponseMessage, Timings, TokenLogprob,
    TopLogprob, Usage,
};

use super::error::ApiError;
use super::generate::{Piece, TokenEntry};
use super::language::Language;

/// Which of the two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
}

/// What all chunks of an answer share.
#[derive(Clone)]
pub struct Shape {
    /// The form.
    pub form: Form,
    /// Id of the answer.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Name of the model.
    pub model: String,
    /// Whether log-probabilities are written.
    pub logprobs: bool,
    /// Whether chunks have a `usage`.
    pub include_usage: bool,
    /// Names tokens.
    pub language: Arc<dyn Language>,
}

/// An answer that is complete.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Its text.
    pub text: String,
    /// Its tokens, when log-probabilities are wanted.
    pub tokens: Vec<TokenEntry>,
    /// `stop` or `length`.
    pub finish: &'static str,
}

impl Answer {
    /// Appends a piece.
    pub fn add(&mut self, piece: Piece) {
        self.text.push_str(&piece.text);
        self.tokens.extend(piece.tokens);
        if let Some(finish) = piece.finish {
            self.finish = finish;
        }
    }
}

impl Shape {
    /// The response in one piece, as JSON.
    pub fn whole(
        &self,
        answers: Vec<Answer>,
        usage: Usage,
        timings: Timings,
    ) -> Result<Vec<u8>, ApiError> {
        let answers = (0..).zip(answers);
        match self.form {
            Form::Chat => json(&ChatResponse {
                id: self.id.clone(),
                object: "chat.completion".to_owned(),
                created: self.created,
                model: self.model.clone(),
                choices: answers
                    .map(|(index, answer)| ChatChoice {
                        index,
                        message: ResponseMessage {
                            role: "assistant".to_owned(),
                            content: Some(answer.text),
                            refusal: None,
                        },
                        logprobs: self.chat_logprobs(&answer.tokens),
                        finish_reason: answer.finish.to_owned(),
                    })
                    .collect(),
                usage,
                timings: Some(timings),
            }),
            Form::Completion => json(&CompletionResponse {
                id: self.id.clone(),
                object: "text_completion".to_owned(),
                created: self.created,
                model: self.model.clone(),
                choices: answers
                    .map(|(index, answer)| CompletionChoice {
                        index,
                        logprobs: self.completion_logprobs(&answer.tokens),
                        text: answer.text,
                        finish_reason: Some(answer.finish.to_owned()),
                    })
                    .collect(),
                usage: Some(Some(usage)),
                timings: Some(timings),
            }),
        }
    }

    /// The chunks that send a piece; `timings` go with the end of the last answer.
    pub fn chunks(&self, piece: &Piece, timings: Option<Timings>) -> Result<Vec<u8>, ApiError> {
        let mut out = Vec::new();
        match self.form {
            Form::Chat => {
                let mut send = |delta, tokens: &[TokenEntry], finish: Option<&str>, timings| {
                    let choice = ChunkChoice {
                        index: piece.index,
                        delta,
                        logprobs: if tokens.is_empty() {
                            None
                        } else {
                            self.chat_logprobs(tokens)
                        },
                        finish_reason: finish.map(str::to_owned),
                    };
                    event(&mut out, &self.chat_chunk(vec![choice], None, timings))
                };
                if piece.first {
                    let delta = Delta {
                        role: Some("assistant".to_owned()),
                        content: Some(String::new()),
                    };
                    send(delta, &[], None, None)?;
                }
                if !piece.text.is_empty() || !piece.tokens.is_empty() {
                    let delta = Delta {
                        role: None,
                        content: Some(piece.text.clone()),
                    };
                    send(delta, &piece.tokens, None, None)?;
                }
                if piece.finish.is_some() {
                    send(Delta::default(), &[], piece.finish, timings)?;
                }
            }
            Form::Completion => {
                let choice = CompletionChoice {
                    text: piece.text.clone(),
                    index: piece.index,
                    logprobs: if piece.tokens.is_empty() {
                        None
                    } else {
                        self.completion_logprobs(&piece.tokens)
                    },
                    finish_reason: piece.finish.map(str::to_owned),
                };
                event(
                    &mut out,
                    &self.completion_chunk(vec![choice], None, timings),
                )?;
            }
        }
        Ok(out)
    }

    /// What ends a stream that went well.
    pub fn end(&self, usage: Usage) -> Result<Vec<u8>, ApiError> {
        let mut out = Vec::new();
        if self.include_usage {
            match self.form {
                Form::Chat => event(&mut out, &self.chat_chunk(vec![], Some(usage), None))?,
                Form::Completion => {
                    event(&mut out, &self.completion_chunk(vec![], Some(usage), None))?;
                }
            }
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
        Ok(out)
    }

    fn chat_chunk(
        &self,
        choices: Vec<ChunkChoice>,
        usage: Option<Usage>,
        timings: Option<Timings>,
    ) -> ChatChunk {
        ChatChunk {
            id: self.id.clone(),
            object: "chat.completion.chunk".to_owned(),
            created: self.created,
            model: self.model.clone(),
            choices,
            usage: self.include_usage.then_some(usage),
            timings,
        }
    }

    fn completion_chunk(
        &self,
        choices: Vec<CompletionChoice>,
        usage: Option<Usage>,
        timings: Option<Timings>,
    ) -> CompletionResponse {
        CompletionResponse {
            id: self.id.clone(),
            object: "text_completion".to_owned(),
            created: self.created,
            model: self.model.clone(),
            choices,
            usage: self.include_usage.then_some(usage),
            timings,
        }
    }

    fn chat_logprobs(&self, tokens: &[TokenEntry]) -> Option<ChatLogprobs> {
        self.logprobs.then(|| ChatLogprobs {
            content: Some(
                tokens
                    .iter()
                    .map(|TokenEntry { sampled, .. }| {
                        let bytes = self.language.piece(sampled.id);
                        TokenLogprob {
                            token: spell(&bytes, ""),
                            logprob: finite(sampled.logprob),
                            bytes: Some(bytes),
                            top_logprobs: sampled
                                .top
                                .iter()
                                .map(|&(id, logprob)| {
                                    let bytes = self.language.piece(id);
                                    TopLogprob {
                                        token: spell(&bytes, ""),
                                        logprob: finite(logprob),
                                        bytes: Some(bytes),
                                    }
                                })
                                .collect(),
                        }
                    })
                    .collect(),
            ),
            refusal: None,
        })
    }

    fn completion_logprobs(&self, tokens: &[TokenEntry]) -> Option<CompletionLogprobs> {
        if !self.logprobs {
            return None;
        }
        let spell = |id| spell(&self.language.piece(id), "bytes:");
        let mut all = CompletionLogprobs::default();
        for TokenEntry { sampled, offset } in tokens {
            let token = spell(sampled.id);
            let mut top = BTreeMap::new();
            for &(id, logprob) in &sampled.top {
                // Best first: of alternatives with one text, the best stays.
                top.entry(spell(id)).or_insert(finite(logprob));
            }
            top.entry(token.clone()).or_insert(finite(sampled.logprob));
            all.tokens.push(token);
            all.token_logprobs.push(finite(sampled.logprob));
            all.top_logprobs.push(top);
            all.text_offset.push(*offset);
        }
        Some(all)
    }
}

/// The data line of a failure, which ends a stream without `[DONE]`.
pub fn error_event(error: &ApiError) -> Vec<u8> {
    let mut out = Vec::new();
    if event(&mut out, &error.body()).is_err() {
        out.clear();
    }
    out
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value).map_err(ApiError::internal)
}

fn event(out: &mut Vec<u8>, value: &impl Serialize) -> Result<(), ApiError> {
    out.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut *out, value).map_err(ApiError::internal)?;
    out.extend_from_slice(b"\n\n");
    Ok(())
}

/// A token's bytes as text; bytes that are no UTF-8 by themselves as `\xNN` after `mark`.
fn spell(bytes: &[u8], mark: &str) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold(mark.to_owned(), |text, byte| {
            text + &format!("\\x{byte:02x}")
        }),
    }
}

/// JSON has no infinities; the API writes -9999 for "never".
fn finite(logprob: f32) -> f64 {
    if logprob.is_finite() {
        f64::from(logprob)
    } else {
        -9999.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_are_half_a_character_are_spelt_in_hex() {
        assert_eq!(spell("é".as_bytes(), "bytes:"), "é");
        assert_eq!(spell(&[0xe2, 0x80], ""), "\\xe2\\x80");
        assert_eq!(spell(&[0xe2, 0x80], "bytes:"), "bytes:\\xe2\\x80");
    }

    #[test]
    fn impossible_tokens_have_a_log_probability_json_can_hold() {
        assert_eq!(finite(f32::NEG_INFINITY), -9999.0);
        assert_eq!(finite(f32::NAN), -9999.0);
        assert_eq!(finite(-0.5), -0.5);
    }
}
