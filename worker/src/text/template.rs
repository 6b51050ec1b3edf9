//! The chat template of a model file: a conversation to the prompt that asks for the next message.
//!
//! Templates are programs from the file. They run without any access to the host, within a bound
//! of work, and a file without one is refused: no template is ever guessed.

use std::fmt;

use jiff::Zoned;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, ErrorKind, context};
use serde::Serialize;
use windlass_gguf::Metadata;

use super::error::TextError;
use super::json::{Style, to_json};
use super::tokenizer::Tokenizer;

/// Steps a template may take for one conversation; making 64 bytes of text is one step too.
const STEPS: u64 = 4_000_000;
/// Longest template read, in bytes.
const LONGEST: usize = 1 << 20;
const NAME: &str = "chat_template";

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// Who speaks, as "system", "user", "assistant".
    pub role: String,
    /// What is said.
    pub content: String,
}

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    begin: Option<String>,
    end: Option<String>,
    unknown: Option<String>,
}

/// The words of a template that refuses a conversation.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

impl ChatTemplate {
    /// Reads the template from a model file's metadata.
    ///
    /// # Errors
    /// When the file has none, or it is not valid.
    pub fn from_metadata(
        metadata: &Metadata,
        tokenizer: &Tokenizer,
    ) -> Result<ChatTemplate, TextError> {
        let source = metadata
            .get_str("tokenizer.chat_template")?
            .filter(|s| !s.is_empty())
            .ok_or(TextError::NoTemplate)?;
        let name = |id: Option<u32>| id.map(|id| tokenizer.name(id).to_string());
        let mut template = ChatTemplate::from_source(source, Zoned::now)?;
        template.begin = name(tokenizer.bos());
        template.end = name(tokenizer.eos());
        template.unknown = name(tokenizer.unknown());
        Ok(template)
    }

    fn from_source(source: &str, clock: fn() -> Zoned) -> Result<ChatTemplate, TextError> {
        if source.len() > LONGEST {
            return Err(TextError::Template {
                reason: format!("it is longer than {LONGEST} bytes"),
            });
        }
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|e| TextError::Template {
                reason: e.to_string(),
            })?;
        environment.set_syntax(syntax);
        environment.set_fuel(Some(STEPS));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", move |format: &str| {
            strftime(format, &clock())
        });
        environment.add_filter("tojson", tojson);
        environment.add_test("iterable", is_iterable);
        environment
            .add_template_owned(NAME, without_marks(source))
            .map_err(|e| TextError::Template {
                reason: e.to_string(),
            })?;
        Ok(ChatTemplate {
            environment,
            begin: None,
            end: None,
            unknown: None,
        })
    }

    /// The prompt for a conversation. `add_generation_prompt` appends what introduces the
    /// assistant's answer.
    ///
    /// # Errors
    /// [`TextError::Refused`] with the template's own words when it refuses the conversation,
    /// [`TextError::Render`] when it fails.
    pub fn render(
        &self,
        messages: &[ChatMessage],
        add_generation_prompt: bool,
    ) -> Result<String, TextError> {
        let or_undefined =
            |name: &Option<String>| name.as_deref().map(Value::from).unwrap_or_default();
        let context = context! {
            messages => Value::from(messages.iter().map(as_value).collect::<Vec<_>>()),
            add_generation_prompt,
            bos_token => or_undefined(&self.begin),
            eos_token => or_undefined(&self.end),
            unk_token => or_undefined(&self.unknown),
            tools => (),
            documents => (),
        };
        self.environment
            .get_template(NAME)
            .and_then(|t| t.render(context))
            .map_err(|e| failure(&e))
    }
}

fn as_value(message: &ChatMessage) -> Value {
    Value::from_pairs([
        ("role", message.role.as_str()),
        ("content", message.content.as_str()),
    ])
}

fn failure(error: &minijinja::Error) -> TextError {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return TextError::Refused {
                message: message.clone(),
            };
        }
        source = cause.source();
    }
    TextError::Render {
        reason: error.to_string(),
    }
}

fn invalid(reason: String) -> minijinja::Error {
    minijinja::Error::new(ErrorKind::InvalidOperation, reason)
}

fn raise_exception(message: &str) -> Result<Value, minijinja::Error> {
    Err(invalid(message.to_string()).with_source(Raised(message.to_string())))
}

/// As Python has it: text is iterable, nothing (`none`) is not.
fn is_iterable(value: &Value) -> bool {
    !matches!(
        value.kind(),
        ValueKind::None | ValueKind::Bool | ValueKind::Number | ValueKind::Invalid
    )
}

fn strftime(format: &str, now: &Zoned) -> Result<String, minijinja::Error> {
    jiff::fmt::strtime::format(format, now)
        .map_err(|e| invalid(format!("strftime_now({format:?}): {e}")))
}

fn tojson(value: &Value, options: Kwargs) -> Result<Value, minijinja::Error> {
    if value.is_undefined() {
        return Err(invalid("tojson of an undefined value".into()));
    }
    let style = Style {
        indent: options.get("indent")?,
        ascii: options
            .get::<Option<bool>>("ensure_ascii")?
            .unwrap_or(false),
        sorted: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        separators: match options.get::<Option<Vec<String>>>("separators")?.as_deref() {
            None => None,
            Some([comma, colon]) => Some((comma.clone(), colon.clone())),
            Some(_) => return Err(invalid("tojson: separators must be two".into())),
        },
    };
    options.assert_all_used()?;
    let value = serde_json::to_value(value).map_err(|e| invalid(format!("tojson: {e}")))?;
    Ok(Value::from_safe_string(to_json(&value, &style)))
}

/// Replaces the marks around what an assistant says, which only training needs, by a block of no
/// effect, so that white space around them is treated as before.
fn without_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("{%") {
        out.push_str(before);
        out.push_str("{%");
        rest = after;
        let Some((tag, after)) = after.split_once("%}") else {
            break;
        };
        let plain = |c: char| matches!(c, '-' | '+') || c.is_whitespace();
        let name = tag.trim_matches(plain);
        let with = match name {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => continue,
        };
        out.push_str(&tag.replacen(name, with, 1));
        out.push_str("%}");
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::super::goldens;
    use super::*;

    fn fixed() -> Zoned {
        "2026-03-05T09:07:00[UTC]".parse().unwrap()
    }

    fn template(source: &str) -> ChatTemplate {
        let mut template = ChatTemplate::from_source(source, fixed).unwrap();
        template.begin = Some("<s>".into());
        template.end = Some("</s>".into());
        template
    }

    fn user(content: &str) -> Vec<ChatMessage> {
        vec![ChatMessage {
            role: "user".into(),
            content: content.into(),
        }]
    }

    #[test]
    fn conversations_render_as_jinja2_renders_them() {
        let golden = goldens::read("chat.json");
        let cases = golden["cases"].as_array().unwrap();
        assert!(cases.len() >= 30);
        for case in cases {
            let name = case["name"].as_str().unwrap();
            let source = golden["templates"][case["template"].as_str().unwrap()]
                .as_str()
                .unwrap();
            let messages: Vec<ChatMessage> = case["messages"]
                .as_array()
                .unwrap()
                .iter()
                .map(|m| ChatMessage {
                    role: m["role"].as_str().unwrap().into(),
                    content: m["content"].as_str().unwrap().into(),
                })
                .collect();
            let ask = case["add_generation_prompt"].as_bool().unwrap();
            match (
                template(source).render(&messages, ask),
                case["error"].as_str(),
            ) {
                (Ok(text), None) => assert_eq!(text, case["text"].as_str().unwrap(), "{name}"),
                (Err(TextError::Refused { message }), Some(error)) => {
                    assert_eq!(message, error, "{name}")
                }
                (other, _) => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_template_that_refuses_says_so_in_its_own_words() {
        let error = template("{{ raise_exception('only one system message') }}")
            .render(&user("hi"), true)
            .unwrap_err();
        assert!(
            matches!(error, TextError::Refused { ref message } if message == "only one system message")
        );
    }

    #[test]
    fn a_file_without_a_template_is_refused() {
        let tokenizer = goldens::tiny("spm");
        let error = ChatTemplate::from_metadata(&Metadata::new(), &tokenizer).unwrap_err();
        assert!(error.to_string().contains("/v1/completions"), "{error}");
    }

    #[test]
    fn a_template_that_does_not_parse_is_refused_with_its_line() {
        let error = ChatTemplate::from_source("a\n{% if %}", fixed).unwrap_err();
        assert!(error.to_string().contains(":2"), "{error}");
    }

    #[test]
    fn a_template_that_never_ends_is_stopped() {
        let loops =
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
        let error = template(loops).render(&user("hi"), true).unwrap_err();
        assert!(error.to_string().contains("fuel"), "{error}");
    }

    #[test]
    fn a_template_that_doubles_a_text_without_end_is_stopped() {
        let doubling = "{% set n = namespace(s='0123456789') %}{% for i in range(60) %}\
                        {% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s | length }}";
        assert!(template(doubling).render(&user("hi"), true).is_err());
    }

    #[test]
    fn a_date_format_that_is_not_one_is_an_error_and_no_panic() {
        let error = template("{{ strftime_now('%') }}")
            .render(&user("hi"), true)
            .unwrap_err();
        assert!(error.to_string().contains("strftime_now"), "{error}");
    }
}
