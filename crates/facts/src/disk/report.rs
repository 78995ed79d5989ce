//! The report of a check. The serialised form is versioned: fields are added, never renamed.

use std::path::PathBuf;

use serde::Serialize;

use super::flush::FlushRate;
use crate::machine::{BlockDevice, Mount, Smart};

/// Severity, the mildest first (`disk.refusal_protects_data`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    Note,
    Warning,
    Refuse,
}

impl Level {
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Refuse => "refuse",
        }
    }
}

/// One thing found about one disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    /// Stable, for scripts: `smr`, `same-disk`, `read-only`.
    pub code: &'static str,
    pub what: String,
    /// Why it matters here; empty where it goes without saying.
    pub why: String,
    /// The way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

impl Finding {
    pub(super) fn new(level: Level, code: &'static str, what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { level, code, what: what.into(), why: why.into(), action: None }
    }

    #[must_use]
    pub(super) fn action(mut self, action: impl Into<String>) -> Self {
        self.action = Some(action.into());
        self
    }
}

/// A fact that could not be found out (`facts.unknown_is_said`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unknown {
    pub what: String,
    pub why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// Room on a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Space {
    pub total_bytes: u64,
    pub available_bytes: u64,
    pub block_bytes: u64,
    /// 0 where the filesystem makes them as needed.
    pub inodes: u64,
    pub inodes_free: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct DiskReport {
    /// As it was given.
    pub given: PathBuf,
    /// Device and number of the folder: two paths with the same are one place.
    #[serde(skip)]
    pub place: Option<(u64, u64)>,
    /// A block device itself instead of a folder.
    pub is_device: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<Mount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<Space>,
    /// The layers between the folder and the disks, from the top.
    pub layers: Vec<String>,
    pub devices: Vec<DeviceReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush: Option<FlushRate>,
    /// The worst first.
    pub findings: Vec<Finding>,
    pub unknown: Vec<Unknown>,
}

#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    #[serde(flatten)]
    pub device: BlockDevice,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smart: Option<Smart>,
}

impl DiskReport {
    pub fn verdict(&self) -> Level {
        self.findings.iter().map(|f| f.level).max().unwrap_or(Level::Ok)
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    pub version: u32,
    /// The worst of all findings.
    pub verdict: Level,
    pub disks: Vec<DiskReport>,
}

impl CheckReport {
    pub const VERSION: u32 = 1;
}
