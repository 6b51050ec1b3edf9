//! From a request's body to sequences that can be computed: every check and every default.
//!
//! Pure but for the tokenizer: takes bytes, gives a [`Plan`] or an error that names the field.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use windlass_wire::api::{ChatRequest, CommonRequest, CompletionRequest, Content, Prompt};
use windlass_wire::payload::Sampling;

use super::error::ApiError;
use super::language::{ChatMessage, Language};
use crate::head::handle::{Limits, Submission};

/// Most answers one request may ask for, over all its prompts.
pub const MAX_CHOICES: usize = 128;
/// Most stop strings.
const MAX_STOPS: usize = 16;
/// Most bytes of one stop string.
const MAX_STOP_BYTES: usize = 1024;
/// Most entries of a `logit_bias`.
const MAX_BIASES: usize = 1024;
/// Most alternatives that one request may bring, over all its tokens: they are held in memory.
const MAX_ALTERNATIVES: u64 = 4_000_000;

/// A checked request.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The sequences: for each prompt, `n` of them.
    pub sequences: Vec<Submission>,
    /// Tokens of the prompts, each counted once.
    pub prompt_tokens: u64,
    /// Texts that end an answer.
    pub stops: Vec<String>,
    /// Whether the answer's text goes on after the prompt's.
    pub continues: bool,
    /// Whether log-probabilities are returned.
    pub logprobs: bool,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Whether the stream states the usage.
    pub include_usage: bool,
}

/// What requests are checked against.
pub struct Context<'a> {
    /// Tokenizer and template.
    pub language: &'a dyn Language,
    /// The head's limits.
    pub limits: Limits,
    /// Name the model is served under.
    pub model: &'a str,
    /// Seed of a request that brings none.
    pub seed: u64,
}

impl Context<'_> {
    /// Checks a body of `/v1/chat/completions`.
    pub fn chat(&self, body: &[u8]) -> Result<Plan, ApiError> {
        let request: ChatRequest = parse(body)?;
        self.check_model(&request.common)?;
        for (field, value) in [
            ("tools", &request.tools),
            ("tool_choice", &request.tool_choice),
            ("functions", &request.functions),
            ("function_call", &request.function_call),
            ("audio", &request.audio),
            ("modalities", &request.modalities),
            ("prediction", &request.prediction),
            ("web_search_options", &request.web_search_options),
        ] {
            refuse(field, value)?;
        }
        let top = request.top_logprobs;
        let alternatives = match (request.logprobs.unwrap_or(false), top) {
            (false, Some(_)) => {
                return Err(ApiError::invalid(
                    "top_logprobs",
                    "`top_logprobs` needs `logprobs` to be true",
                ));
            }
            (false, None) => None,
            (true, top) => Some(self.alternatives("top_logprobs", top.unwrap_or(0))?),
        };
        let messages = messages(&request)?;
        let text = self.language.render(&messages).map_err(|reason| {
            ApiError::invalid("messages", format!("the chat template refuses: {reason}"))
        })?;
        // The template spells out every special token itself, the begin token too.
        let prompt = self.encode(&text, false, "messages")?;
        self.plan(&request.common, alternatives, vec![prompt], "messages")
    }

    /// Checks a body of `/v1/completions`.
    pub fn completion(&self, body: &[u8]) -> Result<Plan, ApiError> {
        let request: CompletionRequest = parse(body)?;
        self.check_model(&request.common)?;
        refuse("suffix", &request.suffix)?;
        if request.echo == Some(true) {
            return Err(ApiError::unsupported("echo"));
        }
        let alternatives = match request.logprobs {
            Some(count) => Some(self.alternatives("logprobs", count)?),
            None => None,
        };
        let encode = |texts: Vec<String>| {
            check_count(texts.len())?;
            texts
                .iter()
                .map(|text| self.encode(text, true, "prompt"))
                .collect::<Result<Vec<_>, _>>()
        };
        let prompts = match request.prompt {
            None => return Err(ApiError::invalid("prompt", "`prompt` is missing")),
            Some(Prompt::Text(text)) => encode(vec![text])?,
            Some(Prompt::Texts(texts)) => encode(texts)?,
            Some(Prompt::Ids(ids)) => vec![ids],
            Some(Prompt::IdLists(lists)) => lists,
        };
        self.plan(&request.common, alternatives, prompts, "prompt")
    }

    fn check_model(&self, common: &CommonRequest) -> Result<(), ApiError> {
        match &common.model {
            None => Err(ApiError::invalid(
                "model",
                format!("`model` is missing; this server serves `{}`", self.model),
            )),
            Some(name) if name != self.model => Err(ApiError::unknown_model(name, self.model)),
            Some(_) => Ok(()),
        }
    }

    fn encode(&self, text: &str, special: bool, param: &str) -> Result<Vec<u32>, ApiError> {
        self.language
            .encode(text, special)
            .map_err(|reason| ApiError::invalid(param, format!("cannot tokenize: {reason}")))
    }

    fn alternatives(&self, field: &str, count: i64) -> Result<u32, ApiError> {
        integer(field, count, 0, i64::from(self.limits.vocab))
    }

    fn plan(
        &self,
        common: &CommonRequest,
        alternatives: Option<u32>,
        prompts: Vec<Vec<u32>>,
        param: &str,
    ) -> Result<Plan, ApiError> {
        for (field, value) in [
            ("response_format", &common.response_format),
            ("structured_outputs", &common.structured_outputs),
            ("guided_json", &common.guided_json),
            ("guided_regex", &common.guided_regex),
            ("guided_choice", &common.guided_choice),
            ("guided_grammar", &common.guided_grammar),
            ("best_of", &common.best_of),
        ] {
            refuse(field, value)?;
        }
        let stream = common.stream.unwrap_or(false);
        if common.stream_options.is_some() && !stream {
            return Err(ApiError::invalid(
                "stream_options",
                "`stream_options` needs `stream` to be true",
            ));
        }
        let n = common
            .n
            .map_or(Ok(1), |n| integer("n", n, 1, MAX_CHOICES as i64))?;
        check_count(prompts.len())?;
        check_count(prompts.len().saturating_mul(n as usize))?;
        let answer = self.max_tokens(common)?;
        let base = self.sampling(common, alternatives)?;
        let ignore_eos = common.ignore_eos.unwrap_or(false);
        let eog = if ignore_eos {
            &[][..]
        } else {
            self.language.eog()
        };
        let mut sequences = Vec::new();
        let mut prompt_tokens = 0;
        let mut entries = 0u64;
        for prompt in prompts {
            let room = self.room(&prompt, answer, param)?;
            prompt_tokens += prompt.len() as u64;
            entries += u64::from(room) * u64::from(n) * u64::from(alternatives.unwrap_or(0));
            for choice in 0..n {
                sequences.push(Submission {
                    prompt: prompt.clone(),
                    sampling: Sampling {
                        seed: base.seed.wrapping_add(u64::from(choice)),
                        ..base.clone()
                    },
                    max_tokens: room,
                    eog: eog.to_vec(),
                });
            }
        }
        if entries > MAX_ALTERNATIVES {
            return Err(ApiError::invalid(
                if param == "prompt" {
                    "logprobs"
                } else {
                    "top_logprobs"
                },
                format!(
                    "{entries} alternatives are asked for over all tokens; at most \
                     {MAX_ALTERNATIVES} are given: lower `max_tokens` or their number"
                ),
            ));
        }
        Ok(Plan {
            sequences,
            prompt_tokens,
            stops: stops(common)?,
            continues: param == "prompt",
            logprobs: alternatives.is_some(),
            stream,
            include_usage: common
                .stream_options
                .as_ref()
                .and_then(|o| o.include_usage)
                .unwrap_or(false),
        })
    }

    /// Checks a prompt's ids and length; gives the tokens its answer may have.
    fn room(&self, prompt: &[u32], answer: Option<u32>, param: &str) -> Result<u32, ApiError> {
        let Limits { context, vocab } = self.limits;
        if prompt.is_empty() {
            return Err(ApiError::invalid(
                param,
                format!("`{param}` holds no token"),
            ));
        }
        if let Some(id) = prompt.iter().find(|&&id| id >= vocab) {
            return Err(ApiError::range(
                param,
                format_args!("the token id {id}"),
                format_args!("below the vocabulary's {vocab}"),
            ));
        }
        let room = u32::try_from(prompt.len())
            .ok()
            .and_then(|used| context.checked_sub(used))
            .unwrap_or(0);
        match answer {
            Some(answer) if answer <= room => Ok(answer),
            None if room > 0 => Ok(room),
            _ => Err(ApiError::context(
                context,
                prompt.len(),
                answer.unwrap_or(1),
                param,
            )),
        }
    }

    fn max_tokens(&self, common: &CommonRequest) -> Result<Option<u32>, ApiError> {
        let (field, value) = match (common.max_completion_tokens, common.max_tokens) {
            (Some(a), Some(b)) if a != b => {
                return Err(ApiError::invalid(
                    "max_tokens",
                    "`max_tokens` and `max_completion_tokens` differ; send one",
                ));
            }
            (Some(value), _) => ("max_completion_tokens", value),
            (None, Some(value)) => ("max_tokens", value),
            (None, None) => return Ok(None),
        };
        // Beyond the context is refused later, with the prompt's length.
        integer(field, value, 1, i64::from(u32::MAX)).map(Some)
    }

    fn sampling(&self, common: &CommonRequest, top: Option<u32>) -> Result<Sampling, ApiError> {
        let default = Sampling::default();
        let top_k = match common.top_k {
            None | Some(-1) => 0,
            Some(k) => integer("top_k", k, 0, i64::from(u32::MAX))?,
        };
        let banned = if common.ignore_eos.unwrap_or(false) {
            self.language.eog().to_vec()
        } else {
            Vec::new()
        };
        Ok(Sampling {
            temperature: number(
                "temperature",
                common.temperature,
                default.temperature,
                Range::closed(0.0, 2.0),
            )?,
            top_k,
            top_p: number("top_p", common.top_p, default.top_p, Range::above(0.0, 1.0))?,
            min_p: number(
                "min_p",
                common.min_p,
                default.min_p,
                Range::closed(0.0, 1.0),
            )?,
            seed: common.seed.map_or(self.seed, i64::cast_unsigned),
            repetition_penalty: number(
                "repetition_penalty",
                common.repetition_penalty,
                default.repetition_penalty,
                Range::above(0.0, 10.0),
            )?,
            frequency_penalty: number(
                "frequency_penalty",
                common.frequency_penalty,
                default.frequency_penalty,
                Range::closed(-2.0, 2.0),
            )?,
            presence_penalty: number(
                "presence_penalty",
                common.presence_penalty,
                default.presence_penalty,
                Range::closed(-2.0, 2.0),
            )?,
            logit_bias: self.biases(common)?,
            banned,
            top_logprobs: top,
        })
    }

    fn biases(&self, common: &CommonRequest) -> Result<Vec<(u32, f32)>, ApiError> {
        let Some(biases) = &common.logit_bias else {
            return Ok(Vec::new());
        };
        if biases.len() > MAX_BIASES {
            return Err(ApiError::range(
                "logit_bias",
                format_args!("{} entries long", biases.len()),
                format_args!("at most {MAX_BIASES}"),
            ));
        }
        biases
            .iter()
            .map(|(token, &bias)| {
                let id = token
                    .parse::<u32>()
                    .ok()
                    .filter(|&id| id < self.limits.vocab)
                    .ok_or_else(|| {
                        let shown: String = token.chars().take(40).collect();
                        ApiError::range(
                            "logit_bias",
                            format_args!("for `{shown}`"),
                            format_args!("for token ids below {}", self.limits.vocab),
                        )
                    })?;
                let range = Range::closed(-100.0, 100.0);
                let bias = number(&format!("logit_bias.{id}"), Some(bias), 0.0, range)?;
                Ok((id, bias))
            })
            .collect()
    }
}

/// Reads JSON, then the request's fields; errors tell the position or the field.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|e| ApiError::bad_request(format!("the body is not valid JSON: {e}")))?;
    let Value::Object(fields) = &value else {
        return Err(ApiError::bad_request("the body must be a JSON object"));
    };
    T::deserialize(&value).map_err(|whole| {
        for (name, value) in fields {
            let one = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
            if let Err(e) = T::deserialize(one) {
                return ApiError::invalid(name, format!("`{name}`: {}", readable(name, &e)));
            }
        }
        ApiError::bad_request(whole.to_string())
    })
}

/// What is wrong with a field; the words for forms that the reader only knows as a set.
fn readable(field: &str, error: &serde_json::Error) -> String {
    match field {
        "prompt" => "a string, a list of strings, a list of token ids or a list of such lists \
                     is expected"
            .to_owned(),
        "stop" => "a string or a list of strings is expected".to_owned(),
        "messages" if error.to_string().contains("untagged") => {
            "a message's `content` must be a string or a list of parts".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Refuses a field that is not supported, unless its value asks for nothing.
fn refuse(field: &str, value: &Option<Value>) -> Result<(), ApiError> {
    let Some(value) = value else { return Ok(()) };
    let harmless = match (field, value) {
        (_, Value::Array(list)) if list.is_empty() => true,
        ("modalities", Value::Array(list)) => list.iter().all(|v| v == "text"),
        ("tool_choice" | "function_call", Value::String(choice)) => {
            choice == "none" || choice == "auto"
        }
        ("response_format", Value::Object(format)) => {
            format.get("type").is_some_and(|kind| kind == "text")
        }
        ("best_of", Value::Number(best)) => best.as_u64() == Some(1),
        ("suffix", Value::String(suffix)) => suffix.is_empty(),
        _ => false,
    };
    if harmless {
        Ok(())
    } else {
        Err(ApiError::unsupported(field))
    }
}

fn messages(request: &ChatRequest) -> Result<Vec<ChatMessage>, ApiError> {
    let messages = request
        .messages
        .as_ref()
        .ok_or_else(|| ApiError::invalid("messages", "`messages` is missing"))?;
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "`messages` is empty"));
    }
    let mut checked = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = match message.role.as_str() {
            // The newer name of the same role; templates know the older one.
            "developer" => "system",
            role @ ("system" | "user" | "assistant") => role,
            other => {
                let shown: String = other.chars().take(40).collect();
                return Err(ApiError::range(
                    format!("messages[{at}].role"),
                    format_args!("`{shown}`"),
                    "one of `system`, `developer`, `user`, `assistant`",
                ));
            }
        };
        refuse(&format!("messages[{at}].tool_calls"), &message.tool_calls)?;
        let content = match &message.content {
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                let mut text = String::new();
                for (i, part) in parts.iter().enumerate() {
                    match (part.kind.as_str(), &part.text) {
                        ("text", Some(more)) => text.push_str(more),
                        ("text", None) => {
                            let field = format!("messages[{at}].content[{i}].text");
                            let message = format!("`{field}` is missing");
                            return Err(ApiError::invalid(field, message));
                        }
                        (other, _) => {
                            let shown: String = other.chars().take(40).collect();
                            return Err(ApiError::range(
                                format!("messages[{at}].content[{i}].type"),
                                format_args!("`{shown}`"),
                                "`text`: this server takes text only",
                            ));
                        }
                    }
                }
                text
            }
            None => {
                let field = format!("messages[{at}].content");
                let message = format!("`{field}` is missing");
                return Err(ApiError::invalid(field, message));
            }
        };
        checked.push(ChatMessage {
            role: role.to_owned(),
            content,
        });
    }
    Ok(checked)
}

fn stops(common: &CommonRequest) -> Result<Vec<String>, ApiError> {
    let stops = common.stop.clone().map_or(Vec::new(), |s| s.into_vec());
    if stops.len() > MAX_STOPS {
        return Err(ApiError::range(
            "stop",
            format_args!("{} strings", stops.len()),
            format_args!("at most {MAX_STOPS}"),
        ));
    }
    if let Some(long) = stops.iter().find(|stop| stop.len() > MAX_STOP_BYTES) {
        return Err(ApiError::range(
            "stop",
            format_args!("{} bytes long", long.len()),
            format_args!("at most {MAX_STOP_BYTES}"),
        ));
    }
    Ok(stops)
}

fn check_count(choices: usize) -> Result<(), ApiError> {
    if choices == 0 {
        return Err(ApiError::invalid("prompt", "`prompt` is an empty list"));
    }
    if choices > MAX_CHOICES {
        return Err(ApiError::range(
            "n",
            format_args!("such that {choices} answers are asked for"),
            format_args!("at most {MAX_CHOICES} over all prompts"),
        ));
    }
    Ok(())
}

fn integer(field: &str, value: i64, least: i64, most: i64) -> Result<u32, ApiError> {
    u32::try_from(value)
        .ok()
        .filter(|_| (least..=most).contains(&value))
        .ok_or_else(|| {
            ApiError::range(
                field,
                value,
                format_args!("an integer from {least} to {most}"),
            )
        })
}

#[derive(Clone, Copy)]
struct Range {
    least: f64,
    most: f64,
    open: bool,
}

impl Range {
    fn closed(least: f64, most: f64) -> Self {
        Self {
            least,
            most,
            open: false,
        }
    }

    fn above(least: f64, most: f64) -> Self {
        Self {
            open: true,
            ..Self::closed(least, most)
        }
    }
}

fn number(field: &str, value: Option<f64>, default: f32, range: Range) -> Result<f32, ApiError> {
    let Some(value) = value else {
        return Ok(default);
    };
    let Range { least, most, open } = range;
    let narrow = value as f32;
    // A value that vanishes in 32 bits would pass here and be out of range where it is used.
    let inside = (least..=most).contains(&value) && !(open && f64::from(narrow) <= least);
    if inside {
        Ok(narrow)
    } else {
        let from = if open { "over" } else { "from" };
        Err(ApiError::range(
            field,
            value,
            format_args!("{from} {least} to {most}"),
        ))
    }
}
