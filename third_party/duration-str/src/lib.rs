//! The two functions that slatedb names in its settings' serde attributes. Both fail: no settings file is read.

use std::time::Duration;

use serde::de::{Deserializer, Error};

const REFUSED: &str = "larder is built without settings files of slatedb (third_party/duration-str)";

/// Always an error.
pub fn deserialize_duration<'de, D: Deserializer<'de>>(_: D) -> Result<Duration, D::Error> {
    Err(D::Error::custom(REFUSED))
}

/// Always an error.
pub fn deserialize_option_duration<'de, D: Deserializer<'de>>(_: D) -> Result<Option<Duration>, D::Error> {
    Err(D::Error::custom(REFUSED))
}
