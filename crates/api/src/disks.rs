//! Disks that a pool could be made of, and the pools that they would make.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The disks of the machine, the folders that could become disks of a pool, and the pools that are on them. No disk was
/// asked for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DisksFound {
    pub disks: Vec<DiskFound>,
    pub folders: Vec<FolderFound>,
    /// Pools on mounted filesystems.
    pub pools: Vec<PoolOnDisks>,
}

/// A pool that was found by its labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolOnDisks {
    pub name: String,
    /// Its id, which it has wherever its disks are.
    pub id: String,
    pub layout: String,
    /// Folders of its disks that are there.
    pub folders: Vec<PathBuf>,
    /// How many of its disks are not there.
    pub missing: usize,
    /// Enough are there to open it.
    pub is_importable: bool,
}

/// A whole disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiskFound {
    /// Such as `/dev/sdb`.
    pub device: PathBuf,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub size_bytes: u64,
    /// Such as `hard disk` or `SATA SSD`; `null` where it cannot be known.
    pub kind: Option<String>,
    /// Such as `SATA` or `USB`.
    pub bus: String,
    pub rotational: Option<bool>,
    pub removable: bool,
    /// The machine starts from it.
    pub is_system: bool,
    /// What uses it now: mounts, swap, what is built on it.
    pub used: Vec<String>,
    /// What lies on it: filesystems with their labels, partitions.
    pub holds: Vec<String>,
    /// Whether anybody looked what lies on it; if not, it counts as full.
    pub is_contents_known: bool,
    /// What is known of its health and fitness without asking it.
    pub notes: Vec<DiskNote>,
    /// The reason why it is not offered.
    pub refused: Option<String>,
    /// It is empty, fit, and built in: a proposal.
    pub is_proposed: bool,
    /// What has to be typed before it is erased: its serial number, or its path.
    pub token: String,
}

/// A remark about a disk or folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiskNote {
    /// `note`, `warning` or `refuse`.
    pub level: String,
    pub text: String,
    pub action: Option<String>,
}

/// A folder on a mounted filesystem that could become a disk of a pool. It need not exist yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FolderFound {
    pub path: PathBuf,
    /// Where its filesystem is mounted.
    pub mount: Option<PathBuf>,
    pub filesystem: Option<String>,
    pub size_bytes: u64,
    pub available_bytes: u64,
    /// The disks below it, as people name them.
    pub disks: Vec<String>,
    pub notes: Vec<DiskNote>,
    /// The reason why it cannot become one.
    pub refused: Option<String>,
    /// The pool that it is a disk of, with all folders that its label names.
    pub pool: Option<PoolOnDisks>,
}

/// Disks for a new pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LayoutsRequest {
    /// Folders, one for each disk.
    #[serde(default)]
    pub folders: Vec<PathBuf>,
    /// Whole disks, on which a filesystem would be made.
    #[serde(default)]
    pub devices: Vec<PathBuf>,
}

/// The pools that disks could make, one for each layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LayoutsPreview {
    pub disks: Vec<PreviewedDisk>,
    /// All that there are, also those that are not possible.
    pub layouts: Vec<LayoutPreview>,
    /// Remarks about the disks beside each other.
    pub notes: Vec<DiskNote>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PreviewedDisk {
    /// A folder, or a whole disk.
    pub path: PathBuf,
    pub size_bytes: u64,
    pub kind: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LayoutPreview {
    /// Such as `raidz1`.
    pub layout: String,
    /// Why these disks cannot have it; then the figures are zero.
    pub refused: Option<String>,
    /// The one that is proposed for so many disks.
    pub is_proposed: bool,
    pub raw_bytes: u64,
    pub usable_bytes: u64,
    /// Disks that may fail at once without loss.
    pub failures_survived: u8,
    /// Units of data and of redundancy of an object.
    pub data: u8,
    pub parity: u8,
    pub warnings: Vec<String>,
    /// `null` where a kind of disk is not known.
    pub speed: Option<LayoutSpeed>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LayoutSpeed {
    /// Bytes per second.
    pub read: SpeedRange,
    pub write: SpeedRange,
    /// Reads of 4 KiB per second.
    pub random_read: SpeedRange,
    /// Where the figures come from.
    pub source: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SpeedRange {
    pub low: f64,
    pub high: f64,
}
