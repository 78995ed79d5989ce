//! A share as it is written: the keys of its place, and the settings that are declared
//! (`settings.declared_once`).

use std::fmt;

use larder_api::setting::{Kind, Setting};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::nearest::plainly;
use super::spanned::Spanned;

#[derive(Debug)]
pub(super) struct RawShare {
    pub(super) name: Spanned<String>,
    pub(super) volume: Option<Spanned<String>>,
    pub(super) folder: Option<Spanned<String>>,
    /// By their keys.
    pub(super) settings: Vec<(Spanned<String>, Spanned<RawValue>)>,
}

/// The keys that are no settings, and what they mean.
pub(super) const PLACE: [(&str, &str); 3] = [
    ("name", "NFS export /NAME, SMB share \\\\HOST\\NAME."),
    ("volume", "POOL/NAME. A share without a volume is a folder of this machine."),
    ("folder", "A folder of the volume; or, without a volume, the absolute path of a folder of this machine."),
];

/// Any value that a setting has.
#[derive(Debug)]
pub(super) enum RawValue {
    Plain(Value),
    List(Vec<Spanned<String>>),
    /// `{ days = 30 }`
    Days(u32),
}

impl RawValue {
    /// As the setting has it.
    pub(super) fn read(&self, setting: &Setting) -> Result<Value, String> {
        let value = match self {
            Self::Plain(value) => value.clone(),
            Self::List(list) => list.iter().map(|entry| entry.get_ref().as_str()).collect(),
            Self::Days(days) => (*days).into(),
        };
        let given = || format!("{} is {}, not {value}", setting.key, setting.kind.form());
        match (self, setting.kind) {
            (Self::Plain(Value::String(word)), Kind::Pair(words, _)) if words.contains(&word.as_str()) => {
                Ok((*word == words[1]).into())
            }
            (Self::Plain(Value::Bool(_)), Kind::Pair(..)) | (Self::Plain(Value::Number(_)), Kind::Days { .. }) => {
                Err(given())
            }
            (Self::Days(_), kind) if !matches!(kind, Kind::Days { .. }) => Err(given()),
            _ => setting.check(value),
        }
    }

    /// The entries of a list.
    pub(super) fn entries(&self) -> &[Spanned<String>] {
        match self {
            Self::List(list) => list,
            _ => &[],
        }
    }
}

impl<'de> Deserialize<'de> for RawShare {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Keys)
    }
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = RawShare;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the table of a share")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawShare, A::Error> {
        let (mut name, mut volume, mut folder, mut settings) = (None, None, None, Vec::new());
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            match key.get_ref().as_str() {
                "name" => name = Some(map.next_value()?),
                "volume" => volume = Some(map.next_value()?),
                "folder" => folder = Some(map.next_value()?),
                _ => settings.push((key, map.next_value()?)),
            }
        }
        let name = name.ok_or_else(|| A::Error::missing_field("name"))?;
        Ok(RawShare { name, volume, folder, settings })
    }
}

/// The setting of a key among those that are declared, or the complaint about it.
pub(super) fn declared(key: &str, settings: &[&'static Setting]) -> Result<&'static Setting, String> {
    settings.iter().find(|setting| setting.key == key).copied().ok_or_else(|| {
        let keys = PLACE.iter().map(|(key, _)| *key).chain(settings.iter().map(|setting| setting.key));
        let keys: Vec<String> = keys.map(|key| format!("`{key}`")).collect();
        plainly(&format!("unknown field `{key}`, expected one of {}", keys.join(", ")))
    })
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = RawValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a truth value, a number, a text, a list or { days = 30 }")
    }

    fn visit_bool<E>(self, value: bool) -> Result<RawValue, E> {
        Ok(RawValue::Plain(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<RawValue, E> {
        Ok(RawValue::Plain(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<RawValue, E> {
        Ok(RawValue::Plain(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RawValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            entries.push(entry);
        }
        Ok(RawValue::List(entries))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawValue, A::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            days: u32,
        }
        let table = Table::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        Ok(RawValue::Days(table.days))
    }
}
