//! A structure decoded for people and scripts alike: the answers of `larder debug`.

use serde::Serialize;

/// One structure, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sheet {
    pub what: String,
    pub fields: Vec<Field>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Vec<String>>,
    /// Empty: all is well.
    pub faults: Vec<Fault>,
}

/// A field and where it lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_byte: Option<u64>,
    pub name: String,
    pub value: String,
}

/// A fault, and the first byte that it concerns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_byte: Option<u64>,
    pub why: String,
}

impl Sheet {
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    pub fn field(&mut self, at_byte: u64, name: &str, value: impl ToString) {
        self.fields.push(Field { at_byte: Some(at_byte), name: name.to_owned(), value: value.to_string() });
    }

    /// Something known that lies at no one place.
    pub fn note(&mut self, name: &str, value: impl ToString) {
        self.fields.push(Field { at_byte: None, name: name.to_owned(), value: value.to_string() });
    }

    pub fn fault(&mut self, at_byte: u64, why: impl Into<String>) {
        self.faults.push(Fault { at_byte: Some(at_byte), why: why.into() });
    }
}
