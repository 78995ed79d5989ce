//! A configuration as one file: what it would change, and its application.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Failure, VolumeSecret};

/// A larger configuration is refused. One with a thousand users, groups and shares has a quarter of it.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;

/// Asks what a file would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigText {
    /// The file's text, in TOML. Relative paths are relative to the folder of the daemon's own file.
    pub text: String,
    /// The file's name in complaints about it; the daemon's own file when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PathBuf>,
}

/// What a file would change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ConfigHow {
    Added,
    Removed,
    Changed,
}

/// A key of an entry, with its values in TOML.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigKey {
    pub key: String,
    /// As the file has it; the default's value where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Applies a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigApply {
    pub text: String,
    /// As the plan named it.
    pub base: String,
    /// Also changes that wait for the next start are written.
    #[serde(default)]
    pub at_next_start: bool,
}

/// A file was applied, or is what was there already.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigApplied {
    pub plan: ConfigPlan,
    pub notes: Vec<String>,
}

/// What a box keeps of itself in its pools: the versions that are there, and what opens them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigHistory {
    /// The box, through all its lives.
    pub box_id: String,
    /// Counts the machines that the box has been.
    pub life: u32,
    /// What opens the record on another machine.
    pub opens_with: Vec<String>,
    /// The newest first.
    pub versions: Vec<ConfigVersion>,
    /// Versions that cannot be read, and pools without the newest.
    pub notes: Vec<String>,
}

/// The box as it was at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigVersion {
    pub number: u64,
    pub written_secs: u64,
    /// The name of the machine that wrote it.
    pub machine: String,
    pub life: u32,
    /// What differs from the version before.
    pub changes: Vec<String>,
}

/// One version, without its secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigVersionText {
    pub version: ConfigVersion,
    /// Its larder.toml.
    pub text: String,
    /// The files that it has beside that.
    pub files: Vec<String>,
}

/// Makes the box what it was at one time, or what the record beside a replica says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigRestore {
    /// A version of this box.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// A replica here, POOL/NAME: the box that sends into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What opens the record beside the replica: the password of an owner of that box, or its recovery key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<VolumeSecret>,
    /// As the dry run named it; needed to restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Only says what would change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Also changes that wait for the next start are written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_next_start: bool,
}

/// A recovery key of the box, which the answer alone has. The one before opens nothing any more.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BoxRecoveryKey {
    pub recovery_key: String,
}

impl std::fmt::Debug for BoxRecoveryKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BoxRecoveryKey")
    }
}

/// The sealed record of a box that sends a volume here, to be kept beside its replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SentRecord {
    /// The volume at the sender, as POOL/NAME.
    pub volume: String,
    pub box_id: String,
    pub life: String,
    pub number: u64,
    /// The keyring, as it lies in the sender's pool.
    pub keyring: String,
    /// The sealed version, as it lies in the sender's pool, in hexadecimal digits.
    pub sealed: String,
}

/// A box that was found on disks, and what it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BoxFound {
    pub name: String,
    pub number: u64,
    pub life: u32,
    pub written_secs: u64,
    /// The name of the machine that it was.
    pub machine: String,
    /// Pools with their layout, and what is missing of them.
    pub pools: Vec<String>,
    pub users: Vec<String>,
    pub shares: Vec<String>,
    pub doors: Vec<String>,
    /// What will not be as it was.
    pub notes: Vec<String>,
}
