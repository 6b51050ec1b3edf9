//! Arguments of tasks: which a kind takes, and what values fit. Pure.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::playbook::expression::Condition;

/// An argument of a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Argument {
    /// Its key.
    pub name: &'static str,
    /// What fits.
    pub form: Form,
    /// Whether it must be given.
    pub required: bool,
}

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// Text that is not empty; numbers are taken as they are written.
    Text,
    /// Text, also empty.
    Content,
    /// A whole number from here to there.
    Whole(i64, i64),
    /// True or false.
    Flag,
    /// A time: a number of seconds, or text as `500ms`, `30s`, `5m`, `2h`.
    Time,
    /// A list of texts, or one text.
    Texts,
    /// A list of whole numbers from here to there, or one.
    Wholes(i64, i64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of these words, or one.
    Words(&'static [&'static str]),
    /// An expression that is true or false; no `{{ }}` in it.
    Condition,
    /// A list of such expressions, or one.
    Conditions,
}

impl Argument {
    /// One that must be given.
    pub const fn must(name: &'static str, form: Form) -> Self {
        Self {
            name,
            form,
            required: true,
        }
    }

    /// One that may be given.
    pub const fn may(name: &'static str, form: Form) -> Self {
        Self {
            name,
            form,
            required: false,
        }
    }
}

/// A value that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// What would fit, as the end of "it must be …".
    pub wanted: String,
    /// The nearest valid word.
    pub nearest: Option<String>,
}

impl Unfit {
    fn new(wanted: impl Into<String>) -> Self {
        Self {
            wanted: wanted.into(),
            nearest: None,
        }
    }
}

impl Form {
    /// Whether texts of it are expressions and no templates.
    pub fn is_condition(self) -> bool {
        matches!(self, Self::Condition | Self::Conditions)
    }

    /// The value as it is used.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn fit(self, value: &Value) -> Result<Value, Unfit> {
        match self {
            Self::Text => match text(value) {
                Some(text) if !text.is_empty() => Ok(text.into()),
                _ => Err(Unfit::new("text that is not empty")),
            },
            Self::Content => text(value)
                .map(Value::from)
                .ok_or_else(|| Unfit::new("text")),
            Self::Whole(least, most) => whole(value, least, most)
                .map(Value::from)
                .ok_or_else(|| Unfit::new(format!("a whole number from {least} to {most}"))),
            Self::Flag => match value {
                Value::Bool(_) => Ok(value.clone()),
                Value::String(text) if text == "true" => Ok(true.into()),
                Value::String(text) if text == "false" => Ok(false.into()),
                _ => Err(Unfit::new("true or false")),
            },
            Self::Time => time(value)
                .map(|time| time.as_secs_f64().into())
                .ok_or_else(|| {
                    Unfit::new("a time: seconds, or text as \"500ms\", \"30s\", \"5m\", \"2h\"")
                }),
            Self::Texts => list(value)
                .into_iter()
                // Among several, one may be empty: it is a word of a command.
                .map(|item| match (value, item) {
                    (Value::Array(all), Value::String(text)) if all.len() > 1 => {
                        Ok(text.clone().into())
                    }
                    _ => Self::Text.fit(item),
                })
                .collect::<Result<Vec<_>, _>>()
                .map(Value::from)
                .map_err(|_| Unfit::new("a list of texts")),
            Self::Wholes(least, most) => {
                let wanted =
                    || Unfit::new(format!("a list of whole numbers from {least} to {most}"));
                let items = list(value);
                if items.is_empty() {
                    return Err(wanted());
                }
                items
                    .into_iter()
                    .map(|item| whole(item, least, most).map(Value::from).ok_or_else(wanted))
                    .collect::<Result<Vec<_>, _>>()
                    .map(Value::from)
            }
            Self::Word(words) => word(value, words),
            Self::Words(words) => {
                let items = list(value);
                if items.is_empty() {
                    return Err(Unfit::new(format!("a list of {}", words.join(", "))));
                }
                items
                    .into_iter()
                    .map(|item| word(item, words))
                    .collect::<Result<Vec<_>, _>>()
                    .map(Value::from)
            }
            Self::Condition | Self::Conditions => {
                let items = list(value);
                if items.is_empty() || (self == Self::Condition && value.is_array()) {
                    return Err(Unfit::new("an expression, as \"vars.n > 1\""));
                }
                for item in &items {
                    let source = match item {
                        Value::String(source) => source.clone(),
                        Value::Bool(value) => value.to_string(),
                        _ => return Err(Unfit::new("an expression, as \"vars.n > 1\"")),
                    };
                    Condition::new(&source).map_err(|error| {
                        Unfit::new(format!("an expression, and {}", error.message))
                    })?;
                }
                Ok(items
                    .into_iter()
                    .map(|item| text(item).unwrap_or_default())
                    .collect::<Vec<_>>()
                    .into())
            }
        }
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

fn whole(value: &Value, least: i64, most: i64) -> Option<i64> {
    let number = match value {
        Value::Number(number) => number.as_i64()?,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    (least..=most).contains(&number).then_some(number)
}

fn list(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        one => vec![one],
    }
}

fn word(value: &Value, words: &[&'static str]) -> Result<Value, Unfit> {
    let given = text(value).unwrap_or_default();
    if words.contains(&given.as_str()) {
        return Ok(given.into());
    }
    Err(Unfit {
        wanted: format!("one of {}", words.join(", ")),
        nearest: crate::nearest::nearest(&given, words.iter().copied()).map(str::to_owned),
    })
}

/// A time from a number of seconds or text with a unit; not below zero, 30 days at most.
pub fn time(value: &Value) -> Option<Duration> {
    const MOST: f64 = 30.0 * 86_400.0;
    let seconds = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => {
            let text = text.trim();
            let units = [
                ("ms", 0.001),
                ("s", 1.0),
                ("m", 60.0),
                ("h", 3_600.0),
                ("", 1.0),
            ];
            let (digits, unit) = units
                .into_iter()
                .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))?;
            digits.trim().parse::<f64>().ok()? * unit
        }
        _ => return None,
    };
    (0.0..=MOST)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

/// Arguments as a task is given them: rendered, and each fit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given(pub Map<String, Value>);

impl Given {
    /// A text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// A text that must be there; empty otherwise.
    pub fn must(&self, name: &str) -> &str {
        self.text(name).unwrap_or_default()
    }

    /// A flag; false when not given.
    pub fn flag(&self, name: &str) -> bool {
        self.given_flag(name).unwrap_or(false)
    }

    /// A flag, when given.
    pub fn given_flag(&self, name: &str) -> Option<bool> {
        self.0.get(name).and_then(Value::as_bool)
    }

    /// A whole number.
    pub fn whole(&self, name: &str) -> Option<i64> {
        self.0.get(name).and_then(Value::as_i64)
    }

    /// The same as a count.
    pub fn count(&self, name: &str) -> Option<u32> {
        self.whole(name)
            .and_then(|number| u32::try_from(number).ok())
    }

    /// A time.
    pub fn time(&self, name: &str) -> Option<Duration> {
        self.0.get(name).and_then(time)
    }

    /// A list of texts; empty when not given.
    pub fn texts(&self, name: &str) -> Vec<String> {
        self.0
            .get(name)
            .into_iter()
            .flat_map(list)
            .filter_map(text)
            .collect()
    }

    /// A list of counts; empty when not given.
    pub fn counts(&self, name: &str) -> Vec<u32> {
        self.0
            .get(name)
            .into_iter()
            .flat_map(list)
            .filter_map(Value::as_u64)
            .filter_map(|number| u32::try_from(number).ok())
            .collect()
    }

    /// Conditions; empty when not given.
    pub fn conditions(&self, name: &str) -> Vec<Condition> {
        self.texts(name).into_iter().map(Condition).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_fit_their_form_or_say_what_would() {
        let words: &[&str] = &["started", "stopped"];
        let table = [
            (Form::Text, json!("a"), Some(json!("a"))),
            (Form::Text, json!(""), None),
            (Form::Text, json!(7), Some(json!("7"))),
            (Form::Text, json!(["a"]), None),
            (Form::Content, json!(""), Some(json!(""))),
            (Form::Whole(1, 9), json!(9), Some(json!(9))),
            (Form::Whole(1, 9), json!("3"), Some(json!(3))),
            (Form::Whole(1, 9), json!(0), None),
            (Form::Whole(1, 9), json!(2.5), None),
            (Form::Flag, json!("true"), Some(json!(true))),
            (Form::Flag, json!(1), None),
            (Form::Time, json!("500ms"), Some(json!(0.5))),
            (Form::Time, json!("5m"), Some(json!(300.0))),
            (Form::Time, json!(2), Some(json!(2.0))),
            (Form::Time, json!("2 days"), None),
            (Form::Time, json!(-1), None),
            (Form::Time, json!("nans"), None),
            (Form::Texts, json!("a"), Some(json!(["a"]))),
            (Form::Texts, json!(["a", ""]), Some(json!(["a", ""]))),
            (Form::Texts, json!([""]), None),
            (Form::Wholes(1, 64), json!([1, 8]), Some(json!([1, 8]))),
            (Form::Wholes(1, 64), json!([]), None),
            (Form::Wholes(1, 64), json!([1, 65]), None),
            (Form::Word(words), json!("stopped"), Some(json!("stopped"))),
            (Form::Word(words), json!("stoped"), None),
            (Form::Words(words), json!([]), None),
            (Form::Condition, json!("a > 1"), Some(json!(["a > 1"]))),
            (Form::Condition, json!(true), Some(json!(["true"]))),
            (Form::Condition, json!("a >"), None),
            (Form::Conditions, json!(["a", "b"]), Some(json!(["a", "b"]))),
        ];
        for (form, value, wanted) in table {
            assert_eq!(form.fit(&value).ok(), wanted, "{form:?} {value}");
        }
        let unfit = Form::Word(words).fit(&json!("stoped")).unwrap_err();
        assert_eq!(unfit.nearest.as_deref(), Some("stopped"));
    }
}
