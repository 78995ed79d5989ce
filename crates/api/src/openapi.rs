//! The schema of the API, in the form of OpenAPI 3.1: what `larder api` prints, and `docs/api.json`.
//!
//! - `openapi.made_in_tests`: the document follows from the declarations and their types. A test
//!   makes it and compares, so the program has the file and not the code that makes it.

use serde_json::Value;

#[cfg(test)]
pub(crate) mod from_types;

const DOCUMENT: &str = include_str!("../../../docs/api.json");

pub fn document() -> Value {
    serde_json::from_str(DOCUMENT).expect("a test compares it with JSON")
}
