//! Pools that are not open, in the place of their status; and the words of `keep`, under one roof.

use larder_api::{DiskStatus, Failure, PoolListed, PoolStatus};
pub use larder_keep::bucket::bucket_error;
pub use larder_keep::snapshot_words::{has_clones, snapshot_error};
pub use larder_keep::translate::{change, found_pool, history, pool_error, pool_status, volume_error};

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
