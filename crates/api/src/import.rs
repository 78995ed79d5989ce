//! A folder of the host, copied into a volume.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Failure;

/// Asks the daemon to copy a folder, which it reads itself: with its own rights, which are those of the socket's owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImportRequest {
    /// Absolute.
    pub dir: PathBuf,
    /// Within the volume; its top where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    #[serde(default)]
    pub cross: bool,
    #[serde(default)]
    pub delete: bool,
    #[serde(default)]
    pub overwrite: bool,
    #[serde(default)]
    pub verify: bool,
    #[serde(default)]
    pub dry_run: bool,
}

/// One line of the answer: how far it is, again and again, and at last the outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ImportEvent {
    Progress(ImportProgress),
    Done(ImportReport),
    Failed(Failure),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImportProgress {
    /// `copying`, `flushing` or `verifying`.
    pub phase: String,
    /// All there are in the folder, once they are counted.
    pub files_total: Option<u64>,
    pub bytes_total: Option<u64>,
    /// Dealt with: copied, or found unchanged.
    pub files_seen: u64,
    pub bytes_seen: u64,
    pub files_copied: u64,
    pub bytes_copied: u64,
    pub files_verified: u64,
    pub bytes_verified: u64,
    pub faults: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImportReport {
    pub pool: String,
    pub volume: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    pub dry_run: bool,
    pub directories: u64,
    pub files_copied: u64,
    /// Holes left out.
    pub bytes_copied: u64,
    pub symlinks: u64,
    /// Named pipes, sockets and devices.
    pub specials: u64,
    /// Further names of files.
    pub links: u64,
    /// Files that needed new attributes only.
    pub attributes: u64,
    pub unchanged: u64,
    pub removed: u64,
    pub files_verified: u64,
    pub bytes_verified: u64,
    /// Bytes that the volume still takes.
    pub available_bytes: u64,
    /// Left out on purpose, or kept.
    pub left_out: Vec<ImportFault>,
    /// Could not be copied, or differ: the first thousand.
    pub faults: Vec<ImportFault>,
    pub faults_total: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImportFault {
    /// Below the folder; bytes that are no text are shown as \xNN.
    pub path: String,
    pub why: String,
}
