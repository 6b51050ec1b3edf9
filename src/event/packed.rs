//! Wide fields of a summary, kept as text until they are written: what hundreds of hosts have to say
//! takes a tenth of the memory that it takes as values. Must not know what it holds.

use serde::ser::{Error, SerializeMap};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Fields whose values are objects with an entry for each host. They are not read back: a summary
/// that was read has them among its other fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed(Vec<(String, Entries)>);

/// The entries of one field, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entries(Vec<(String, Box<str>)>);

impl Packed {
    /// A field without entries yet.
    pub fn field(&mut self, name: &str) {
        self.0.push((name.to_owned(), Entries::default()));
    }

    /// Adds an entry to the field that was begun last.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn push(&mut self, key: &str, value: &impl Serialize) -> serde_json::Result<()> {
        let text = serde_json::to_string(value)?;
        if let Some((_, entries)) = self.0.last_mut() {
            entries.0.push((key.to_owned(), text.into()));
        }
        Ok(())
    }
}

impl Serialize for Packed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, entries)| (name, entries)))
    }
}

impl Serialize for Entries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, text) in &self.0 {
            // One at a time.
            let value: Value = serde_json::from_str(text).map_err(S::Error::custom)?;
            map.serialize_entry(key, &value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Summary;
    use serde_json::json;

    #[test]
    fn packed_fields_are_written_as_any_other_and_read_back_among_them() {
        let mut packed = Packed::default();
        packed.field("facts");
        packed.push("h2", &json!({"b": 1.5, "a": null})).unwrap();
        packed.push("h1", &json!([1, "x"])).unwrap();
        packed.field("none");
        let summary = Summary {
            command: "facts".into(),
            exit: 0,
            seconds: 1.0,
            hosts: std::collections::BTreeMap::new(),
            error: None,
            fields: serde_json::Map::new(),
            packed,
        };
        let text = serde_json::to_string(&summary).unwrap();
        let wanted = "\"facts\":{\"h2\":{\"b\":1.5,\"a\":null},\"h1\":[1,\"x\"]},\"none\":{}}";
        assert!(text.ends_with(wanted), "{text}");
        let read: Summary = serde_json::from_str(&text).unwrap();
        assert_eq!(read.fields["facts"]["h1"], json!([1, "x"]));
        assert_eq!(read.packed, Packed::default());
    }
}
