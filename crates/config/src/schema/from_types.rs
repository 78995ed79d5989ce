//! The schema, made from the file's types (`schema.made_in_tests`).
#![allow(clippy::unwrap_used)]

use std::borrow::Cow;

use larder_base::units::ByteSize;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::BUDGET_BYTES;
use crate::raw::{RawConfig, RawRecycle, RawUsers};
use crate::spanned::Spanned;

fn made() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<RawConfig>().to_value();
    without_null(&mut schema);
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("title".to_owned(), "larder.toml".into());
    }
    schema
}

/// TOML has no null: a key is there or not.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Array(list) => list.iter_mut().for_each(without_null),
        Value::Object(map) => {
            map.values_mut().for_each(without_null);
            if map.get("default").is_some_and(Value::is_null) {
                map.remove("default");
            }
            if let Some(Value::Array(types)) = map.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    map.insert("type".to_owned(), only);
                }
            }
            lift_only(map);
        }
        _ => {}
    }
}

/// An alternative of something and null is that something.
fn lift_only(map: &mut Map<String, Value>) {
    let Some(Value::Array(ways)) = map.get_mut("anyOf") else { return };
    ways.retain(|way| way.get("type").is_none_or(|name| name != "null"));
    if let [Value::Object(only)] = ways.as_slice() {
        let only = only.clone();
        map.remove("anyOf");
        for (key, value) in only {
            map.entry(key).or_insert(value);
        }
    }
}

/// The door's address in a file that does not name it.
pub(crate) fn listen_default(port: u16) -> String {
    format!("0.0.0.0:{port}")
}

pub(crate) fn strangers_default() -> String {
    ByteSize(BUDGET_BYTES as u64).to_string()
}

/// For defaults.
impl<T: Serialize> Serialize for Spanned<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.get_ref().serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl JsonSchema for RawRecycle {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Recycle".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "boolean" },
                {
                    "type": "object",
                    "properties": { "days": { "type": "integer", "minimum": 1, "description": "Days in .recycle." } },
                    "required": ["days"],
                    "additionalProperties": false,
                },
            ]
        })
    }
}

impl JsonSchema for RawUsers {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Users".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "const": "all" }, { "type": "array", "items": { "type": "string" } }] })
    }
}

/// `schema.made_in_tests`
#[test]
fn the_schema_in_docs_is_that_of_the_types() {
    let made = format!("{:#}\n", made());
    if std::env::var_os("LARDER_WRITE_SCHEMA").is_some() {
        return std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/larder.schema.json"), made).unwrap();
    }
    let hint = "docs/larder.schema.json is not what the types say; write it anew with: \
                LARDER_WRITE_SCHEMA=1 cargo test --release -p larder -p larder-config --lib the_schema_in_docs";
    assert!(super::SCHEMA == made, "{hint}");
}
