//! Lists kept as TOML beside the code, read into types. Must not know what they list.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use toml_edit::{DocumentMut, Item, Table, Value};

/// Reads a list.
///
/// # Errors
/// When the text is no TOML, or not what the type wants.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let document: DocumentMut = text.parse().map_err(|error| format!("{error}"))?;
    serde_json::from_value(table(document.as_table())).map_err(|error| error.to_string())
}

fn table(table: &Table) -> Json {
    let fields = table
        .iter()
        .map(|(name, item)| (name.to_owned(), self::item(item)));
    Json::Object(fields.collect::<Map<_, _>>())
}

fn item(item: &Item) -> Json {
    match item {
        Item::None => Json::Null,
        Item::Value(value) => self::value(value),
        Item::Table(table) => self::table(table),
        Item::ArrayOfTables(tables) => Json::Array(tables.iter().map(self::table).collect()),
    }
}

fn value(value: &Value) -> Json {
    match value {
        Value::String(text) => Json::String(text.value().clone()),
        Value::Integer(number) => Json::from(*number.value()),
        Value::Float(number) => Json::from(*number.value()),
        Value::Boolean(flag) => Json::Bool(*flag.value()),
        Value::Datetime(time) => Json::String(time.value().to_string()),
        Value::Array(items) => Json::Array(items.iter().map(self::value).collect()),
        Value::InlineTable(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (name.to_owned(), self::value(value)));
            Json::Object(fields.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_lists_and_values_of_every_kind_are_read() {
        let read: Json =
            read("a = 1\nb = [\"x\", true]\n[[c]]\nd = 1.5\n[c.e]\nf = { g = 2 }\n").unwrap();
        let wanted = serde_json::json!({
            "a": 1, "b": ["x", true], "c": [{ "d": 1.5, "e": { "f": { "g": 2 } } }]
        });
        assert_eq!(read, wanted);
        assert!(super::read::<Json>("a = ").is_err());
        assert!(super::read::<Vec<u8>>("a = 1").is_err());
    }
}
