//! Errors of the crates below as failures of the API, in the one place where that is done; and pools that are not open, in the
//! place of their status.

use std::fmt;

use larder_api::{DiskStatus, Failure, FailureKind, PoolListed, PoolStatus};
use larder_fs::FsError;
pub use larder_keep::translate::{found_pool, history, pool_status};
use larder_keep::{KeepError, snapshot_words, translate};
use larder_pool::{Change, PoolError};
use larder_store::BucketError;

/// The same words, and the kind that scripts see.
pub fn as_failure(error: KeepError) -> Failure {
    let kind = match &error {
        KeepError::Invalid(_) => FailureKind::Invalid,
        KeepError::NotFound(_) => FailureKind::NotFound,
        KeepError::Exists(_) => FailureKind::Exists,
        KeepError::Busy(_) => FailureKind::Busy,
        KeepError::Locked(_) => FailureKind::Locked,
        KeepError::Denied(_) => FailureKind::Denied,
        KeepError::Unavailable(_) => FailureKind::Unavailable,
        KeepError::Internal(_) => FailureKind::Internal,
    };
    let words = error.into_words();
    Failure { kind, message: words.message, action: words.action }
}

pub fn pool_failure(error: &PoolError) -> Failure {
    as_failure(translate::pool_error(error))
}

pub fn volume_failure(what: impl fmt::Display, error: &FsError) -> Failure {
    as_failure(translate::volume_error(what, error))
}

pub fn bucket_failure(name: &str, error: &BucketError) -> Failure {
    as_failure(larder_keep::bucket::bucket_error(name, error))
}

pub fn snapshot_failure(full: &str, error: &FsError) -> Failure {
    as_failure(snapshot_words::snapshot_error(full, error))
}

pub fn has_clones(what: &str) -> Failure {
    as_failure(snapshot_words::has_clones(what))
}

pub fn change(change: larder_api::PoolChange) -> Result<Change, Failure> {
    translate::change(change).map_err(as_failure)
}

/// A pool of the configuration that could not be opened, in the place of its status.
pub fn unavailable_pool(name: &str, disks: &[std::path::PathBuf], failure: &Failure) -> PoolStatus {
    let disk = |path: &std::path::PathBuf| DiskStatus {
        path: path.clone(),
        id: String::new(),
        state: "UNKNOWN".to_owned(),
        read_errors: 0,
        write_errors: 0,
        checksum_errors: 0,
        size_bytes: 0,
        used_bytes: 0,
        free_bytes: 0,
        shares_room: false,
        leaving: false,
        note: None,
    };
    PoolStatus {
        name: name.to_owned(),
        id: String::new(),
        layout: "unknown".to_owned(),
        state: "UNAVAIL".to_owned(),
        status: Some(failure.message.clone()),
        action: failure.action.clone(),
        scan: None,
        scrub: None,
        damage: larder_api::Damage::default(),
        owed_objects: 0,
        total_bytes: 0,
        used_bytes: 0,
        available_bytes: 0,
        disks: disks.iter().map(disk).collect(),
        spares: Vec::new(),
        moving: None,
        notes: Vec::new(),
    }
}

pub fn unavailable_listed(name: &str, disks: Vec<std::path::PathBuf>) -> PoolListed {
    PoolListed {
        name: name.to_owned(),
        id: String::new(),
        layout: "unknown".to_owned(),
        state: "UNAVAIL".to_owned(),
        total_bytes: 0,
        used_bytes: 0,
        available_bytes: 0,
        disks,
    }
}
