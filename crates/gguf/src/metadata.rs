//! A model file's metadata: ordered keys with typed values and getters that refuse a wrong type by
//! name. Does not parse bytes and knows no tensor.

use std::collections::HashMap;

use crate::error::{GgufError, Result};

/// One metadata value.
#[allow(missing_docs, reason = "the variants are the format's types")]
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array value, held compactly by element type.
#[allow(missing_docs, reason = "the variants are the format's types")]
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::String(v) => v.len(),
            Array::Array(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F64(v) => v.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element type's name, as "u32".
    pub fn type_name(&self) -> &'static str {
        match self {
            Array::U8(_) => "u8",
            Array::I8(_) => "i8",
            Array::U16(_) => "u16",
            Array::I16(_) => "i16",
            Array::U32(_) => "u32",
            Array::I32(_) => "i32",
            Array::F32(_) => "f32",
            Array::Bool(_) => "bool",
            Array::String(_) => "string",
            Array::Array(_) => "array",
            Array::U64(_) => "u64",
            Array::I64(_) => "i64",
            Array::F64(_) => "f64",
        }
    }
}

impl Value {
    /// The type's name, as "u32" or "array of string".
    pub fn type_name(&self) -> String {
        match self {
            Value::U8(_) => "u8".into(),
            Value::I8(_) => "i8".into(),
            Value::U16(_) => "u16".into(),
            Value::I16(_) => "i16".into(),
            Value::U32(_) => "u32".into(),
            Value::I32(_) => "i32".into(),
            Value::F32(_) => "f32".into(),
            Value::Bool(_) => "bool".into(),
            Value::String(_) => "string".into(),
            Value::Array(a) => format!("array of {}", a.type_name()),
            Value::U64(_) => "u64".into(),
            Value::I64(_) => "i64".into(),
            Value::F64(_) => "f64".into(),
        }
    }

    /// The value of any integer type; `None` for other types.
    fn integer(&self) -> Option<i128> {
        match self {
            Value::U8(v) => Some((*v).into()),
            Value::I8(v) => Some((*v).into()),
            Value::U16(v) => Some((*v).into()),
            Value::I16(v) => Some((*v).into()),
            Value::U32(v) => Some((*v).into()),
            Value::I32(v) => Some((*v).into()),
            Value::U64(v) => Some((*v).into()),
            Value::I64(v) => Some((*v).into()),
            _ => None,
        }
    }
}

/// Metadata in the file's order. Keys are unique.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Metadata {
    /// No keys.
    pub fn new() -> Metadata {
        Metadata::default()
    }

    /// Sets `key`, in its old place when it is there already, else at the end.
    pub fn insert(&mut self, key: impl Into<String>, value: Value) {
        let key = key.into();
        match self.index.get(&key).and_then(|i| self.entries.get_mut(*i)) {
            Some(entry) => entry.1 = value,
            None => {
                self.index.insert(key.clone(), self.entries.len());
                self.entries.push((key, value));
            }
        }
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index
            .get(key)
            .and_then(|i| self.entries.get(*i))
            .map(|(_, v)| v)
    }

    /// All keys with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A string; `None` when the key is missing.
    pub fn get_str(&self, key: &str) -> Result<Option<&str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(other) => Err(wrong_type(key, "string", other)),
        }
    }

    /// An integer of any width that is not negative; `None` when the key is missing.
    pub fn get_u64(&self, key: &str) -> Result<Option<u64>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let Some(n) = value.integer() else {
            return Err(wrong_type(key, "an integer", value));
        };
        match u64::try_from(n) {
            Ok(n) => Ok(Some(n)),
            Err(_) => Err(GgufError::OutOfRange {
                key: key.into(),
                wanted: "unsigned integer",
                found: n.to_string(),
            }),
        }
    }

    /// An integer of any width that fits 32 bits; `None` when the key is missing.
    pub fn get_u32(&self, key: &str) -> Result<Option<u32>> {
        match self.get_u64(key)? {
            None => Ok(None),
            Some(n) => u32::try_from(n)
                .map(Some)
                .map_err(|_| GgufError::OutOfRange {
                    key: key.into(),
                    wanted: "32-bit integer",
                    found: n.to_string(),
                }),
        }
    }

    /// A floating-point number of either width; `None` when the key is missing.
    pub fn get_f32(&self, key: &str) -> Result<Option<f32>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::F32(v)) => Ok(Some(*v)),
            Some(Value::F64(v)) => Ok(Some(*v as f32)),
            Some(other) => Err(wrong_type(key, "a floating-point number", other)),
        }
    }

    /// A boolean; `None` when the key is missing.
    pub fn get_bool(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(v)) => Ok(Some(*v)),
            Some(other) => Err(wrong_type(key, "bool", other)),
        }
    }

    /// An array of strings; `None` when the key is missing.
    pub fn get_str_array(&self, key: &str) -> Result<Option<&[String]>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::String(v))) => Ok(Some(v)),
            Some(other) => Err(wrong_type(key, "array of string", other)),
        }
    }

    /// An array of f32; `None` when the key is missing.
    pub fn get_f32_array(&self, key: &str) -> Result<Option<&[f32]>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::F32(v))) => Ok(Some(v)),
            Some(other) => Err(wrong_type(key, "array of f32", other)),
        }
    }

    /// An array of i32; `None` when the key is missing.
    pub fn get_i32_array(&self, key: &str) -> Result<Option<&[i32]>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::I32(v))) => Ok(Some(v)),
            Some(other) => Err(wrong_type(key, "array of i32", other)),
        }
    }

    /// A required string.
    pub fn str(&self, key: &str) -> Result<&str> {
        self.get_str(key)?.ok_or_else(|| missing(key))
    }

    /// A required integer.
    pub fn u64(&self, key: &str) -> Result<u64> {
        self.get_u64(key)?.ok_or_else(|| missing(key))
    }

    /// A required integer of 32 bits.
    pub fn u32(&self, key: &str) -> Result<u32> {
        self.get_u32(key)?.ok_or_else(|| missing(key))
    }

    /// A required floating-point number.
    pub fn f32(&self, key: &str) -> Result<f32> {
        self.get_f32(key)?.ok_or_else(|| missing(key))
    }

    /// A required array of strings.
    pub fn str_array(&self, key: &str) -> Result<&[String]> {
        self.get_str_array(key)?.ok_or_else(|| missing(key))
    }

    /// The architecture's name (`general.architecture`).
    pub fn arch(&self) -> Result<&str> {
        self.str("general.architecture")
    }

    /// `key` below the architecture's name: "block_count" gives "llama.block_count".
    pub fn arch_key(&self, key: &str) -> Result<String> {
        Ok(format!("{}.{key}", self.arch()?))
    }

    /// The required integer `{arch}.{key}`.
    pub fn arch_u64(&self, key: &str) -> Result<u64> {
        self.u64(&self.arch_key(key)?)
    }

    /// The required floating-point number `{arch}.{key}`.
    pub fn arch_f32(&self, key: &str) -> Result<f32> {
        self.f32(&self.arch_key(key)?)
    }

    /// The integer `{arch}.{key}`; `None` when the key is missing.
    pub fn get_arch_u64(&self, key: &str) -> Result<Option<u64>> {
        self.get_u64(&self.arch_key(key)?)
    }

    /// The floating-point number `{arch}.{key}`; `None` when the key is missing.
    pub fn get_arch_f32(&self, key: &str) -> Result<Option<f32>> {
        self.get_f32(&self.arch_key(key)?)
    }

    /// The string `{arch}.{key}`; `None` when the key is missing.
    pub fn get_arch_str(&self, key: &str) -> Result<Option<&str>> {
        self.get_str(&self.arch_key(key)?)
    }
}

fn missing(key: &str) -> GgufError {
    GgufError::MissingKey { key: key.into() }
}

fn wrong_type(key: &str, wanted: &'static str, found: &Value) -> GgufError {
    GgufError::WrongType {
        key: key.into(),
        wanted,
        found: found.type_name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_type_names_the_key_and_both_types() {
        let mut m = Metadata::new();
        m.insert("a.b", Value::Array(Array::String(vec![])));
        m.insert("n", Value::I32(-1));
        m.insert("big", Value::U64(1 << 40));
        let text = m.get_u64("a.b").unwrap_err().to_string();
        assert_eq!(
            text,
            "metadata key a.b is array of string, but an integer is needed"
        );
        let text = m.get_f32("n").unwrap_err().to_string();
        assert_eq!(
            text,
            "metadata key n is i32, but a floating-point number is needed"
        );
        assert!(m.get_bool("n").is_err() && m.get_str("n").is_err());
        assert!(matches!(m.get_u64("n"), Err(GgufError::OutOfRange { .. })));
        assert!(matches!(
            m.get_u32("big"),
            Err(GgufError::OutOfRange { .. })
        ));
        assert_eq!(m.get_u64("big").unwrap(), Some(1 << 40));
        assert_eq!(m.get_i32_array("none").unwrap(), None);
        assert!(m.get_i32_array("a.b").is_err() && m.get_f32_array("a.b").is_err());
    }

    #[test]
    fn a_missing_required_key_is_named_in_full() {
        let mut m = Metadata::new();
        assert_eq!(
            m.arch_u64("block_count").unwrap_err().to_string(),
            "metadata key general.architecture is missing"
        );
        m.insert("general.architecture", Value::String("llama".into()));
        assert_eq!(
            m.arch_u64("block_count").unwrap_err().to_string(),
            "metadata key llama.block_count is missing"
        );
        m.insert("llama.block_count", Value::U16(3));
        assert_eq!(m.arch_u64("block_count").unwrap(), 3);
    }

    #[test]
    fn setting_a_key_again_keeps_its_place() {
        let mut m = Metadata::new();
        m.insert("a", Value::U8(1));
        m.insert("b", Value::U8(2));
        m.insert("a", Value::U8(3));
        let all: Vec<_> = m.iter().collect();
        assert_eq!(all, [("a", &Value::U8(3)), ("b", &Value::U8(2))]);
    }
}
