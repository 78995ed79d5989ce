//! Object attributes as pairs of text, the form they have in shard headers.

use std::borrow::Cow;

use object_store::{Attribute, AttributeValue, Attributes};

const METADATA_PREFIX: &str = "m:";

/// Sorted, so that all shards of an object carry the same bytes.
pub fn to_pairs(attributes: &Attributes) -> Vec<(String, String)> {
    let mut pairs: Vec<_> =
        attributes.iter().filter_map(|(key, value)| Some((key_name(key)?, value.as_ref().to_owned()))).collect();
    pairs.sort();
    pairs
}

pub fn from_pairs(pairs: Vec<(String, String)>) -> Attributes {
    pairs.into_iter().filter_map(|(key, value)| Some((key_of(&key)?, AttributeValue::from(value)))).collect()
}

fn key_name(key: &Attribute) -> Option<String> {
    Some(match key {
        Attribute::ContentDisposition => "content-disposition".into(),
        Attribute::ContentEncoding => "content-encoding".into(),
        Attribute::ContentLanguage => "content-language".into(),
        Attribute::ContentType => "content-type".into(),
        Attribute::CacheControl => "cache-control".into(),
        Attribute::StorageClass => "storage-class".into(),
        Attribute::Metadata(name) => format!("{METADATA_PREFIX}{name}"),
        // The enum may grow; an unknown attribute cannot be kept.
        _ => return None,
    })
}

fn key_of(name: &str) -> Option<Attribute> {
    Some(match name {
        "content-disposition" => Attribute::ContentDisposition,
        "content-encoding" => Attribute::ContentEncoding,
        "content-language" => Attribute::ContentLanguage,
        "content-type" => Attribute::ContentType,
        "cache-control" => Attribute::CacheControl,
        "storage-class" => Attribute::StorageClass,
        other => Attribute::Metadata(Cow::Owned(other.strip_prefix(METADATA_PREFIX)?.to_owned())),
    })
}
