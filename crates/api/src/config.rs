//! A configuration as one file: what it would change, and its application.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// A larger configuration is refused. One with a thousand users, groups and shares has a quarter of it.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;

/// Asks what a file would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigText {
    /// The file's text, in TOML. Relative paths are relative to the folder of the daemon's own file.
    pub text: String,
    /// The file's name in complaints about it; the daemon's own file when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PathBuf>,
}

/// What a file would change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigPlan {
    /// The daemon's own file.
    pub file: PathBuf,
    /// Names what the daemon's file says now: an application is for this state and no other.
    pub base: String,
    pub changes: Vec<ConfigDifference>,
    /// What is valid and perhaps not meant.
    pub notes: Vec<String>,
}

impl ConfigPlan {
    /// The changes that no file makes.
    pub fn refused(&self) -> impl Iterator<Item = (&ConfigDifference, &Failure)> {
        self.changes.iter().filter_map(|change| Some((change, change.refused.as_ref()?)))
    }

    /// The entries that wait for the next start.
    pub fn at_next_start(&self) -> impl Iterator<Item = &ConfigDifference> {
        self.changes.iter().filter(|change| change.at_next_start)
    }

    /// Who is interrupted, and how.
    pub fn interrupts(&self) -> impl Iterator<Item = &str> {
        self.changes.iter().flat_map(|change| &change.interrupts).map(String::as_str)
    }
}

/// One entry that a file changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigDifference {
    /// `[listen]`, or `[[share]] files`.
    pub entry: String,
    pub how: ConfigHow,
    /// The keys that differ, where both files can be compared.
    pub keys: Vec<ConfigKey>,
    /// Who is interrupted when it is applied, and how.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<String>,
    /// It takes effect when larder starts again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_next_start: bool,
    /// A file does not change this: why, and the command that does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConfigHow {
    Added,
    Removed,
    Changed,
}

/// A key of an entry, with its values in TOML.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigKey {
    pub key: String,
    /// As the file has it; the default's value where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Applies a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigApply {
    pub text: String,
    /// As the plan named it.
    pub base: String,
    /// Also changes that wait for the next start are written.
    #[serde(default)]
    pub at_next_start: bool,
}

/// A file was applied, or is what was there already.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigApplied {
    pub plan: ConfigPlan,
    pub notes: Vec<String>,
}
