//! The schema, made from the file's types (`schema.made_in_tests`).
#![allow(clippy::unwrap_used)]

use std::borrow::Cow;

use larder_api::setting::{Kind, Setting};
use larder_api::share::SETTINGS;
use larder_base::units::ByteSize;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::BUDGET_BYTES;
use crate::edit::setting_value;
use crate::raw::RawConfig;
use crate::raw_share::{PLACE, RawShare};
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

impl JsonSchema for RawShare {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Share".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        of_share(&SETTINGS)
    }
}

/// `settings.declared_once`
pub(crate) fn of_share(settings: &[&Setting]) -> Schema {
    let place = PLACE.map(|(key, about)| (key.to_owned(), json!({ "type": "string", "description": about })));
    let settings = settings.iter().map(|setting| (setting.key.to_owned(), of_setting(setting)));
    let properties: Map<String, Value> = place.into_iter().chain(settings).collect();
    json_schema!({ "type": "object", "properties": properties, "required": ["name"], "additionalProperties": false })
}

fn of_setting(setting: &Setting) -> Value {
    let names = json!({ "type": "array", "items": { "type": "string" } });
    let mut schema = match setting.kind {
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Pair(words, _) => json!({ "type": "string", "enum": words }),
        Kind::Word(words, _) => json!({ "type": "string", "enum": words }),
        Kind::Some(..) => json!({ "type": "string" }),
        Kind::Number => json!({ "type": "integer", "format": "uint32", "minimum": 0 }),
        Kind::Days { most, .. } => {
            let days = json!({ "type": "integer", "minimum": 1, "maximum": most, "description": "Days in .recycle." });
            let table = json!({
                "type": "object", "properties": { "days": days }, "required": ["days"], "additionalProperties": false
            });
            json!({ "anyOf": [{ "type": "boolean" }, table] })
        }
        Kind::Size { .. } => json!({ "anyOf": [{ "type": "boolean" }, { "type": "string" }] }),
        Kind::Networks { .. } | Kind::Names => names,
        Kind::Everybody => json!({ "anyOf": [{ "const": "all" }, names] }),
    };
    schema["description"] = setting.about.into();
    // A list that is there says something, also where it is empty.
    let default = setting_value(setting, &setting.default()).filter(|_| !matches!(setting.kind, Kind::Names));
    if let Some(default) = default {
        schema["default"] = serde_json::from_str(&default.to_string()).unwrap();
    }
    if matches!(setting.kind, Kind::Days { .. } | Kind::Size { .. }) {
        schema["default"] = false.into();
    }
    schema
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

/// `settings.declared_once`: the lines of docs/config.md.
#[test]
fn the_schema_in_docs_has_the_lines_of_settings() {
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (from, to) = (page.find("\nusers = ").unwrap() + 1, page.find("\n\n[[mount]]").unwrap());
    let lines: Vec<String> = SETTINGS.into_iter().map(line).collect();
    let made = format!("{}{}{}", &page[..from], lines.join("\n"), &page[to..]);
    if std::env::var_os("LARDER_WRITE_SCHEMA").is_some() {
        return std::fs::write(PAGE, made).unwrap();
    }
    assert!(page == made, "docs/config.md is not what crates/api/src/share.rs declares; write it anew as the schema");
}

/// With its comment in lines of 100 columns.
fn line(setting: &Setting) -> String {
    let default = setting_value(setting, &setting.default()).map(|value| value.to_string());
    let usual = match setting.kind {
        Kind::Days { .. } | Kind::Size { .. } => "false".to_owned(),
        _ => default.unwrap_or_default(),
    };
    let example = if setting.example.is_empty() { &usual } else { setting.example };
    let is_shown = example == usual || ["", "[]"].contains(&usual.as_str());
    let usual = if is_shown { String::new() } else { format!(" [{usual}]") };
    let mut lines = vec![format!("{:<31} #", format!("{} = {example}", setting.key))];
    for word in format!("{}{usual}", setting.about.trim_end_matches('.')).split(' ') {
        if lines.last().unwrap().len() + word.len() >= 100 {
            lines.push(format!("{:31} #", ""));
        }
        let last = lines.last_mut().unwrap();
        *last = format!("{last} {word}");
    }
    lines.join("\n")
}
