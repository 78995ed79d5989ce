//! The JSON schema of the file, and the file with its defaults written out.
//!
//! - `schema.made_in_tests`: the schema follows from the file's types. A test makes it and
//!   compares, so the program has `docs/larder.schema.json` and not the code that makes it.
//! - `schema.defaults_are_true`: a default that the schema names is what the file means without that key. So a file
//!   with its defaults written out means the same. A default that depends on something else is in words and not in the
//!   schema, and a table that says something by being there (`x-means-something`) is not written.

use larder_api::Failure;
use serde_json::Value;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike};

#[cfg(test)]
pub(crate) mod from_types;

const SCHEMA: &str = include_str!("../../../docs/larder.schema.json");

/// Editors with support for TOML know its version, draft 7.
pub fn schema() -> Value {
    serde_json::from_str(SCHEMA).expect("a test compares it with JSON")
}

/// The text with each default behind the keys that are there (`schema.defaults_are_true`).
pub fn with_defaults(text: &str) -> Result<String, Failure> {
    let mut document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| Failure::invalid(error.to_string()))?;
    let schema = schema();
    for (key, part) in properties(&schema) {
        if is_tables(part) {
            fill_tables(document.get_mut(key), part);
        } else if properties(part).any(|(_, value)| value.get("default").is_some()) {
            if part.get("x-means-something").is_some() && !document.contains_key(key) {
                continue;
            }
            let item = document.entry(key).or_insert_with(|| Item::Table(Table::new()));
            if let Some(table) = item.as_table_mut() {
                fill(table, part);
            }
        }
    }
    Ok(document.to_string())
}

fn properties(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

fn is_tables(schema: &Value) -> bool {
    schema.get("items").is_some_and(|items| items.get("properties").is_some())
}

/// Tables that are written in one line stay as they are: a comment would end them.
fn fill_tables(item: Option<&mut Item>, schema: &Value) {
    let (Some(Item::ArrayOfTables(tables)), Some(items)) = (item, schema.get("items")) else { return };
    for table in tables.iter_mut() {
        fill(table, items);
    }
}

fn fill(table: &mut Table, schema: &Value) {
    for (key, part) in properties(schema) {
        if is_tables(part) {
            fill_tables(TableLike::get_mut(table, key), part);
        } else if let (false, Some(default)) = (table.contains_key(key), part.get("default").and_then(toml_of)) {
            let mut default = default;
            default.decor_mut().set_suffix(" # default");
            table.insert(key, Item::Value(default));
        }
    }
}

pub(super) fn toml_of(value: &Value) -> Option<toml_edit::Value> {
    match value {
        Value::Bool(word) => Some((*word).into()),
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(number) => number.as_i64().map(Into::into),
        Value::Array(list) => list.iter().map(toml_of).collect::<Option<Array>>().map(Into::into),
        Value::Object(map) if map.is_empty() => Some(InlineTable::new().into()),
        Value::Object(_) | Value::Null => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::*;
    use crate::Config;

    /// The example that docs/config.md has of every key. It is for no machine: some keys exclude others.
    fn documented() -> &'static str {
        let page = include_str!("../../../docs/config.md");
        page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap()
    }

    fn parse(text: &str) -> Config {
        Config::parse(text, Path::new("/etc/larder/larder.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// `schema.defaults_are_true`
    #[test]
    fn a_file_with_its_defaults_written_out_means_the_same() {
        let short = "[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n[[volume]]\nname = \"t/v\"\n[[share]]\nname = \"s\"\nvolume = \"t/v\"\n\
             [[user]]\nname = \"ann\"\nuid = 7\n[[group]]\nname = \"g\"\ngid = 8\n[[mount]]\ndir = \"/m\"\nvolume = \"t/v\"\n\
             [[store]]\nname = \"b\"\nurl = \"s3://bucket/p\"\n[[replicate]]\nvolume = \"t/v\"\nto = \"b/v\"\n[[replica]]\nname = \"b/r\"\n\
             [power]\nprice = 0.5\n[[power.part]]\nname = \"x\"\nidle_watts = 1.0\n[[power.source]]\nkind = \"nut\"\nups = \"u\"\n\
             [[power.price_at]]\nfrom = \"1:00\"\nto = \"2:00\"\nprice = 0.25\n[ups]\nsource = \"battery\"\nstop_after = \"10m\"\n";
        for text in ["", short, "# mine\n[listen]\nsmb = \"off\"  # why\n"] {
            let full = with_defaults(text).unwrap();
            assert_eq!(parse(&full), parse(text), "{full}");
            assert_eq!(with_defaults(&full).unwrap(), full);
        }
        let full = with_defaults(short).unwrap();
        for line in ["scrub = \"monthly\" # default", "anon_uid = 65534 # default", "nfs = \"0.0.0.0:12049\" # default"]
        {
            assert!(full.contains(line), "{line} in\n{full}");
        }
        let commented = with_defaults("# mine\n[listen]\nsmb = \"off\"  # why\n").unwrap();
        assert!(commented.starts_with("# mine\n[listen]\nsmb = \"off\"  # why\n"), "{commented}");
    }

    /// The schema knows each key that the file may have, says what it is, and knows no other.
    #[test]
    fn the_schema_knows_every_key() {
        fn check(place: &str, table: &dyn TableLike, schema: &Value) {
            assert_eq!(schema.get("additionalProperties"), Some(&Value::Bool(false)), "{place}");
            for (key, item) in table.iter() {
                let place = format!("{place}.{key}");
                let part = schema["properties"].get(key).unwrap_or_else(|| panic!("{place} is not in the schema"));
                assert!(part.get("description").is_some(), "{place} has no description");
                if let (Some(tables), Some(items)) = (item.as_array_of_tables(), part.get("items")) {
                    tables.iter().for_each(|table| check(&place, table, items));
                } else if let (Some(table), true) = (item.as_table_like(), part.get("properties").is_some()) {
                    check(&place, table, part);
                }
            }
        }
        let document: DocumentMut = documented().parse().unwrap();
        let schema = schema();
        check("", document.as_table(), &schema);
        assert!(!schema.to_string().contains("null"), "{schema:#}");
    }
}
