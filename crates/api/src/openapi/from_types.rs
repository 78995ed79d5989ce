//! The document, made from the declarations (`openapi.made_in_tests`).
#![allow(clippy::unwrap_used)]

use hyper::Method;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::endpoint::{Declared, Form, status_of};
use crate::setting::{EXAMPLE, Kind, Setting};
use crate::share::SETTINGS;
use crate::{Failure, FailureKind, STREAM_BYTES_HEADER, ShareChange, ShareStatus, endpoints};

/// Of the paths, which begin with it.
const VERSION: &str = "1";

fn made() -> Value {
    let mut schemas = SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
        .into_generator();
    let failure = schemas.subschema_for::<Failure>();
    let mut paths = Map::new();
    for one in endpoints::all() {
        // A schema has no word for the rest of a path.
        let path = paths.entry(one.path.replace("{*", "{")).or_insert_with(|| json!({}));
        path[one.method.as_str().to_ascii_lowercase()] = operation(&one, &mut schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "larder",
            "version": VERSION,
            "description": "The API of larder's daemon: HTTP/1.1 on the Unix socket larder.sock in its data folder.",
        },
        "paths": paths,
        "components": {
            "responses": { "Failure": { "description": statuses(), "content": { "application/json": { "schema": failure } } } },
            "schemas": schemas.take_definitions(true),
        },
    })
}

fn operation(one: &Declared, schemas: &mut SchemaGenerator) -> Value {
    let (caller, callers) = one.caller.words();
    let mut operation = json!({
        "operationId": one.name,
        "summary": one.about,
        "x-caller": caller,
        "description": callers,
        "responses": {
            "200": answer(one, schemas),
            "default": { "$ref": "#/components/responses/Failure" },
        },
    });
    let mut parameters = Vec::new();
    if one.path.contains('{') {
        let mut name = json!({ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } });
        if one.path.contains("{*") {
            name["description"] = json!("NAME or POOL/NAME; its slash stays as it is.");
        }
        parameters.push(name);
    }
    let request = (one.request)(schemas);
    match one.form {
        Form::Upload => {
            parameters.extend(query(&request, schemas));
            let bytes = json!({ "application/octet-stream": {} });
            operation["requestBody"] = json!({ "required": true, "content": bytes });
        }
        _ if is_nothing(&request) => {}
        _ => {
            let body = json!({ "application/json": { "schema": request } });
            operation["requestBody"] = json!({ "required": true, "content": body });
        }
    }
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    // A body of DELETE has no meaning of its own in HTTP. Here it has.
    if one.method == Method::DELETE && operation.get("requestBody").is_some() {
        operation["requestBody"]["description"] = json!("Sent with DELETE.");
    }
    operation
}

/// The schema of `()`.
fn is_nothing(schema: &Schema) -> bool {
    schema.get("type").is_some_and(|kind| kind == "null")
}

fn answer(one: &Declared, schemas: &mut SchemaGenerator) -> Value {
    let schema = (one.response)(schemas);
    let (description, content) = match one.form {
        Form::Json | Form::Upload => ("Done.", json!({ "application/json": { "schema": schema } })),
        Form::Text => ("Text.", json!({ "text/plain": { "schema": schema } })),
        Form::Lines => {
            ("Lines of JSON; the last is the outcome.", json!({ "application/x-ndjson": { "schema": schema } }))
        }
        Form::Download => ("A stream of bytes.", json!({ "application/octet-stream": {} })),
    };
    let mut answer = json!({ "description": description, "content": content });
    if one.form == Form::Download {
        let about = json!({ "description": "About how many bytes there are, where that is known.", "schema": { "type": "integer" } });
        answer["headers"] = json!({ STREAM_BYTES_HEADER: about });
    }
    answer
}

/// The properties of a request that travels in the query.
fn query(request: &Schema, schemas: &SchemaGenerator) -> Vec<Value> {
    let name = request.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    let schema = name.and_then(|name| schemas.definitions().get(name));
    let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    let one = |(name, schema): (&String, &Value)| json!({ "name": name, "in": "query", "schema": schema });
    properties.into_iter().flatten().map(one).collect()
}

pub(crate) fn of_answer(_: &mut SchemaGenerator) -> Schema {
    of_settings(&SETTINGS, ShareStatus::has_apart, false)
}

pub(crate) fn of_request(_: &mut SchemaGenerator) -> Schema {
    of_settings(&SETTINGS, ShareChange::has_apart, true)
}

/// `settings.declared_once`
fn of_settings(settings: &[&Setting], has_apart: fn(&Setting) -> bool, is_request: bool) -> Schema {
    let own = settings.iter().filter(|setting| !has_apart(setting));
    let properties: Map<String, Value> = own.map(|one| (one.name.to_owned(), of_setting(one, is_request))).collect();
    json_schema!({ "type": "object", "properties": properties })
}

fn of_setting(setting: &Setting, is_request: bool) -> Value {
    let (kind, more) = match setting.kind {
        Kind::Switch | Kind::Pair(..) => ("boolean", json!({})),
        Kind::Number | Kind::Days { .. } => ("integer", json!({ "format": "uint32", "minimum": 0 })),
        Kind::Word(..) | Kind::Some(..) | Kind::Size { .. } => ("string", json!({})),
        Kind::Networks { .. } | Kind::Names | Kind::Everybody => ("array", json!({ "items": { "type": "string" } })),
    };
    let mut schema = more;
    schema["type"] = if is_request { json!([kind, "null"]) } else { json!(kind) };
    schema["description"] = json!(setting.about);
    schema
}

/// `settings.declared_once`: what one declaration brings to requests and answers.
#[test]
fn a_declared_setting_is_asked_for_and_answered() {
    let schema = |is_request| of_settings(&[&EXAMPLE], ShareStatus::has_apart, is_request).to_value();
    assert_eq!(schema(false)["properties"]["waiting_tune"]["type"], "string");
    assert_eq!(schema(true)["properties"]["waiting_tune"]["description"], EXAMPLE.about);
    let mut change = ShareChange::default();
    change.set(&EXAMPLE, "harp".into());
    let asked = serde_json::to_value(&change).unwrap();
    assert_eq!(asked["waiting_tune"], "harp");
    assert_eq!(serde_json::from_value::<ShareChange>(asked).unwrap(), change);
    let told = json!({ "name": "s", "volume": "t/v", "networks": [], "users": [], "waiting_tune": "harp" });
    let status: ShareStatus = serde_json::from_value(told).unwrap();
    assert_eq!(EXAMPLE.sentence(&status.value(&EXAMPLE)).unwrap(), "clients hear harp while they wait");
    assert_eq!((EXAMPLE.word(&"harp".into()).as_deref(), EXAMPLE.word(&"none".into())), (Some("plays harp"), None));
}

/// The statuses of failures, by their kinds.
fn statuses() -> String {
    let of =
        |kind: &FailureKind| format!("{} ({})", status_of(*kind).as_u16(), json!(kind).as_str().unwrap_or_default());
    format!("A failure: {}.", FailureKind::ALL.iter().map(of).collect::<Vec<_>>().join(", "))
}

/// `endpoints.declared_once`, `openapi.made_in_tests`.
#[test]
fn the_schema_in_docs_is_that_of_the_declarations() {
    // The program has it: an indent is one byte.
    let mut text = Vec::new();
    let form = serde_json::ser::PrettyFormatter::with_indent(b"\t");
    made().serialize(&mut serde_json::Serializer::with_formatter(&mut text, form)).unwrap();
    let made = String::from_utf8(text).unwrap() + "\n";
    if std::env::var_os("LARDER_WRITE_SCHEMA").is_some() {
        return std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.json"), made).unwrap();
    }
    let hint = "docs/api.json is not what the declarations say; write it anew with: \
                LARDER_WRITE_SCHEMA=1 cargo test --release -p larder -p larder-api --lib the_schema_in_docs";
    assert!(super::DOCUMENT == made, "{hint}");
}
