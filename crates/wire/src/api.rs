//! Requests and responses of the HTTP API on the head, in the OpenAI form.
//!
//! Plain data: names and shapes follow OpenAI's API reference, and what goes beyond it is marked
//! as an extension. Ranges and refusals are decided by the head; nothing here knows HTTP.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One string, or several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl OneOrMany {
    /// The strings, in order.
    pub fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

/// The prompt of `/v1/completions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Prompt {
    /// One text.
    Text(String),
    /// One prompt of token ids.
    Ids(Vec<u32>),
    /// Several texts, each answered by itself.
    Texts(Vec<String>),
    /// Several prompts of token ids.
    IdLists(Vec<Vec<u32>>),
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Text.
    Text(String),
    /// Parts; the head takes those of type `text`.
    Parts(Vec<ContentPart>),
}

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContentPart {
    /// `text`, or a type the head refuses by name.
    #[serde(rename = "type")]
    pub kind: String,
    /// The text of a part of type `text`.
    pub text: Option<String>,
}

/// One message of a conversation, as a client sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestMessage {
    /// `system`, `developer`, `user` or `assistant`.
    pub role: String,
    /// What it says; may be absent only where the head then refuses the message by name.
    #[serde(default)]
    pub content: Option<Content>,
    /// Calls of tools; refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Value>,
}

/// What a stream carries besides tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamOptions {
    /// Whether a last chunk without choices states the usage.
    #[serde(default)]
    pub include_usage: Option<bool>,
}

/// Fields that `/v1/chat/completions` and `/v1/completions` share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CommonRequest {
    /// Name of the model; required.
    pub model: Option<String>,
    /// Most tokens to generate, for each choice; absent: as many as the context holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<i64>,
    /// Newer name of `max_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_completion_tokens: Option<i64>,
    /// 0 (greedy) to 2; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Over 0, to 1; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Extension: keep the k most probable tokens; 0 or -1 keeps all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<i64>,
    /// Extension: keep tokens at least this probable relative to the best, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f64>,
    /// Answers per prompt; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<i64>,
    /// Texts that end an answer and are not part of it; at most 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<OneOrMany>,
    /// Same seed, same answer; choice `i` uses `seed + i`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Token id (as text) to what is added to its logit, -100 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logit_bias: Option<BTreeMap<String, f64>>,
    /// -2 to 2; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// -2 to 2; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// Extension: over 0, to 10; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetition_penalty: Option<f64>,
    /// Whether the answer comes in chunks as it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// Only with `stream`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<StreamOptions>,
    /// Extension: end tokens are never chosen, so the answer has exactly `max_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_eos: Option<bool>,
    /// Refused, as the next ones, unless it asks for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Value>,
    /// Refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_outputs: Option<Value>,
    /// Refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guided_json: Option<Value>,
    /// Refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guided_regex: Option<Value>,
    /// Refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guided_choice: Option<Value>,
    /// Refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guided_grammar: Option<Value>,
    /// Refused above 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_of: Option<Value>,
}

/// Body of `/v1/chat/completions`. Unknown fields are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatRequest {
    /// The conversation so far; required.
    pub messages: Option<Vec<RequestMessage>>,
    /// Whether the log-probability of each token is returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<bool>,
    /// Alternatives per token; beyond OpenAI's 20, up to the vocabulary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_logprobs: Option<i64>,
    /// Refused, as the next ones, unless it asks for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Value>,
    /// Refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<Value>,
    /// Refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<Value>,
    /// Refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function_call: Option<Value>,
    /// Refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<Value>,
    /// Refused unless `["text"]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modalities: Option<Value>,
    /// Refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Value>,
    /// Refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web_search_options: Option<Value>,
    /// The rest.
    #[serde(flatten)]
    pub common: CommonRequest,
}

/// Body of `/v1/completions`. Unknown fields are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompletionRequest {
    /// What is to be continued; required.
    pub prompt: Option<Prompt>,
    /// Alternatives per token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<i64>,
    /// Whether the answer repeats the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo: Option<bool>,
    /// Refused, unless empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suffix: Option<Value>,
    /// The rest.
    #[serde(flatten)]
    pub common: CommonRequest,
}

/// Counts of tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompts, each prompt once.
    pub prompt_tokens: u64,
    /// Tokens generated, over all choices.
    pub completion_tokens: u64,
    /// Sum of both.
    pub total_tokens: u64,
    /// What of the prompt was at hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptTokensDetails>,
}

/// Part of [`Usage`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptTokensDetails {
    /// Prompt tokens that needed no computing.
    pub cached_tokens: u64,
}

/// Extension: how long a request took. With several choices, counts are sums and times the longest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Prompt tokens, as in [`Usage`].
    pub prompt_n: u64,
    /// Milliseconds of prefill.
    pub prompt_ms: f64,
    /// Tokens generated.
    pub predicted_n: u64,
    /// Milliseconds from the first to the last token.
    pub predicted_ms: f64,
    /// Milliseconds before prefill began.
    pub queue_ms: f64,
    /// Milliseconds from the request's arrival to its first token.
    pub ttft_ms: f64,
    /// (tokens − choices) over `predicted_ms`; absent when that is 0.
    pub tokens_per_second: Option<f64>,
}

/// A token with its log-probability, in the chat form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// Its text; bytes that are no UTF-8 by themselves are written `\xNN`.
    pub token: String,
    /// Natural logarithm of its probability; -9999 for none.
    pub logprob: f64,
    /// Its bytes.
    pub bytes: Option<Vec<u8>>,
    /// The most probable tokens here, best first.
    pub top_logprobs: Vec<TopLogprob>,
}

/// An alternative to a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopLogprob {
    /// As in [`TokenLogprob`].
    pub token: String,
    /// As in [`TokenLogprob`].
    pub logprob: f64,
    /// As in [`TokenLogprob`].
    pub bytes: Option<Vec<u8>>,
}

/// Log-probabilities of a chat choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatLogprobs {
    /// One entry for each token of the content.
    pub content: Option<Vec<TokenLogprob>>,
    /// Always null.
    pub refusal: Option<Vec<TokenLogprob>>,
}

/// Log-probabilities of a completion choice; four lists of equal length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompletionLogprobs {
    /// The tokens' texts; bytes that are no UTF-8 by themselves are written `bytes:\xNN`.
    pub tokens: Vec<String>,
    /// Their log-probabilities.
    pub token_logprobs: Vec<f64>,
    /// For each, text of alternative to log-probability. Alternatives with one text share a key.
    pub top_logprobs: Vec<BTreeMap<String, f64>>,
    /// For each, the number of characters before it.
    pub text_offset: Vec<u64>,
}

/// The answer's message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseMessage {
    /// `assistant`.
    pub role: String,
    /// The answer.
    pub content: Option<String>,
    /// Always null.
    pub refusal: Option<String>,
}

/// One answer of a chat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatChoice {
    /// From 0.
    pub index: u32,
    /// The answer.
    pub message: ResponseMessage,
    /// When asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// `stop` or `length`.
    pub finish_reason: String,
}

/// Response of `/v1/chat/completions` in one piece.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatResponse {
    /// `chatcmpl-…`.
    pub id: String,
    /// `chat.completion`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Name of the model.
    pub model: String,
    /// The answers.
    pub choices: Vec<ChatChoice>,
    /// Counts.
    pub usage: Usage,
    /// Extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

/// What a chunk adds to a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// In the first chunk of a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Text to append.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// One choice in a chunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChunkChoice {
    /// Which answer this belongs to.
    pub index: u32,
    /// What is new.
    pub delta: Delta,
    /// Of the tokens that are new, when asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// In the last chunk of a choice.
    pub finish_reason: Option<String>,
}

/// A chunk of a streamed chat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatChunk {
    /// The same in all chunks.
    pub id: String,
    /// `chat.completion.chunk`.
    pub object: String,
    /// The same in all chunks.
    pub created: u64,
    /// Name of the model.
    pub model: String,
    /// One, or none in the chunk that states the usage.
    pub choices: Vec<ChunkChoice>,
    /// Absent unless asked for; then null in all chunks but the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<Usage>>,
    /// Extension: in the chunk that ends the last choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

/// One answer of a completion, whole or a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompletionChoice {
    /// The text, or what a chunk adds to it.
    pub text: String,
    /// Which answer: prompt times `n` plus choice.
    pub index: u32,
    /// When asked for.
    pub logprobs: Option<CompletionLogprobs>,
    /// `stop` or `length`; null in chunks but a choice's last.
    pub finish_reason: Option<String>,
}

/// Response of `/v1/completions`, whole or a chunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompletionResponse {
    /// `cmpl-…`.
    pub id: String,
    /// `text_completion`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Name of the model.
    pub model: String,
    /// The answers.
    pub choices: Vec<CompletionChoice>,
    /// Absent in a stream unless asked for; then null in all chunks but the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<Usage>>,
    /// Extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

/// Answer of `/v1/models`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelList {
    /// `list`.
    pub object: String,
    /// The models; a deployment serves one.
    pub data: Vec<ModelCard>,
}

/// A model that is served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelCard {
    /// The name to put in requests.
    pub id: String,
    /// `model`.
    pub object: String,
    /// When serving began, seconds since 1970.
    pub created: u64,
    /// `windlass`.
    pub owned_by: String,
    /// Extension: tokens a sequence may have.
    pub max_model_len: u32,
    /// Extension: size of the vocabulary.
    pub vocab_size: u32,
}

/// Body of every error, and the data line that ends a stream in error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// For people.
    pub message: String,
    /// `invalid_request_error`, `authentication_error`, `server_error`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// The field at fault.
    pub param: Option<String>,
    /// For programs.
    pub code: Option<String>,
}

/// Answer of `/health`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// `ok`, or the state that keeps the head from answering.
    pub status: String,
    /// Why it is not `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_prompt_form_of_the_reference_is_read() {
        for (given, wanted) in [
            (json!("a"), Prompt::Text("a".into())),
            (
                json!(["a", "b"]),
                Prompt::Texts(vec!["a".into(), "b".into()]),
            ),
            (json!([1, 2]), Prompt::Ids(vec![1, 2])),
            (
                json!([[1], [2, 3]]),
                Prompt::IdLists(vec![vec![1], vec![2, 3]]),
            ),
        ] {
            assert_eq!(serde_json::from_value::<Prompt>(given).unwrap(), wanted);
        }
        assert!(serde_json::from_value::<Prompt>(json!([1, "a"])).is_err());
        assert!(serde_json::from_value::<Prompt>(json!([-1])).is_err());
    }

    #[test]
    fn unknown_fields_are_ignored_and_shared_ones_found() {
        let request: ChatRequest = serde_json::from_value(json!({
            "model": "m", "messages": [{"role": "user", "content": "x", "name": "n"}],
            "stop": "a", "max_tokens": 3, "user": "u", "something_new": {"a": [1]},
            "stream_options": {"include_usage": true}
        }))
        .unwrap();
        assert_eq!(request.common.max_tokens, Some(3));
        assert_eq!(request.common.stop, Some(OneOrMany::One("a".into())));
        assert_eq!(request.messages.map(|m| m.len()), Some(1));
    }

    #[test]
    fn usage_in_chunks_is_absent_null_or_stated() {
        let chunk = |usage| CompletionResponse {
            id: "x".into(),
            object: "text_completion".into(),
            created: 1,
            model: "m".into(),
            choices: vec![],
            usage,
            timings: None,
        };
        let text = |c: &CompletionResponse| serde_json::to_string(c).unwrap();
        assert!(!text(&chunk(None)).contains("usage"));
        assert!(text(&chunk(Some(None))).contains("\"usage\":null"));
        assert!(text(&chunk(Some(Some(Usage::default())))).contains("\"prompt_tokens\":0"));
    }
}
