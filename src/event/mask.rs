//! Secrets that must not be shown or written. Must not know where they come from.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

/// What stands in a secret's place.
pub const MASK: &str = "••••";

/// Secrets shorter than this are not masked: they would blot out ordinary text.
const SHORTEST: usize = 6;

/// The secrets of a run, shared by all readers.
#[derive(Clone, Default)]
pub struct Masks(Arc<Mutex<Vec<String>>>);

impl std::fmt::Debug for Masks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Masks(…)")
    }
}

impl Masks {
    /// Masks this text from now on.
    pub fn add(&self, secret: impl Into<String>) {
        let secret = secret.into();
        let secret = secret.trim();
        if secret.len() >= SHORTEST {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !all.iter().any(|known| known == secret) {
                all.push(secret.to_owned());
                // A secret that contains another must go first.
                all.sort_by_key(|s| std::cmp::Reverse(s.len()));
            }
        }
    }

    /// The text without secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut result = Cow::Borrowed(text);
        for secret in all.iter() {
            if result.contains(secret.as_str()) {
                result = Cow::Owned(result.replace(secret.as_str(), MASK));
            }
        }
        result
    }

    /// Whether a secret may stand in a text of JSON, as JSON writes it; never a false no.
    pub fn may_be_in(&self, json: &str) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().any(|secret| {
            let written = serde_json::to_string(secret).unwrap_or_default();
            let inner = written.strip_prefix('"').and_then(|w| w.strip_suffix('"'));
            inner.is_none_or(|inner| json.contains(inner))
        })
    }

    /// Removes secrets from all strings in a value. Keys are ours and stay.
    pub fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.text(text) {
                    *text = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.value(field)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_wherever_it_stands() {
        let masks = Masks::default();
        masks.add("hf_abcdef\n");
        masks.add("hf_abcdefgh");
        masks.add("no");
        assert_eq!(
            masks.text("token hf_abcdef, no more"),
            "token ••••, no more"
        );
        assert_eq!(masks.text("hf_abcdefgh"), MASK);
        let mut value = serde_json::json!({"a": [{"b": "x hf_abcdef y"}], "n": 1});
        masks.value(&mut value);
        assert_eq!(value, serde_json::json!({"a": [{"b": "x •••• y"}], "n": 1}));
        assert!(!format!("{masks:?}").contains("hf_"));
    }

    #[test]
    fn a_secret_is_met_in_json_as_json_writes_it() {
        let masks = Masks::default();
        masks.add("a \"quoted\"\tone");
        let json = serde_json::json!({"said": "it is a \"quoted\"\tone, he said"});
        assert!(masks.may_be_in(&json.to_string()));
        assert!(!masks.may_be_in("{\"said\":\"a quoted one\"}"));
        assert!(!Masks::default().may_be_in("{}"));
    }
}
