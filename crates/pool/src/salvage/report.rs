//! The report of a salvage: which disks and how many objects were found, before any data is read.

use std::path::PathBuf;

use serde::Serialize;
use uuid::Uuid;

/// One of the directories given.
#[derive(Clone, Debug, Serialize)]
pub struct SalvagedDisk {
    /// The directory.
    pub path: PathBuf,
    /// `None`: its label cannot be read.
    pub id: Option<Uuid>,
    /// A remark, empty when all is well.
    pub note: String,
    /// Shard files on it, by their names.
    pub shards: u64,
}

/// The findings before any data is read.
#[derive(Clone, Debug, Serialize)]
pub struct SalvageReport {
    /// The pool's id.
    pub pool: Uuid,
    /// `None`: no label can be read.
    pub name: Option<String>,
    /// The layout of new objects; `None` if no label can be read.
    pub layout: Option<String>,
    /// The directories that hold this pool's disks.
    pub disks: Vec<SalvagedDisk>,
    /// Members that are not among the disks given, with their last place.
    pub missing: Vec<PathBuf>,
    /// Objects of which at least one shard was found.
    pub objects: u64,
    /// How many of these have fewer shards than reading them takes.
    pub objects_incomplete: u64,
    /// Sentences about directories that were passed over.
    pub notes: Vec<String>,
}
