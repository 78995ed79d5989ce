//! Disks into one object store: labels, placement, mirror and parity, journal, repair.
//!
//! ```text
//! store.rs, upload.rs        the ObjectStore face           journal/       the LogStore face
//! write.rs  read.rs  repair.rs  tombstones.rs               label.rs       who belongs to the pool
//! placement.rs geometry.rs parity.rs shard.rs   (pure)      recover.rs     from names to the index
//! core.rs  index.rs  member.rs                              filedisk.rs    real files, behind disk.rs
//! ```
//!
//! Absences: no module but `filedisk.rs` touches a file; nothing here knows what a filesystem is;
//! nothing is ever overwritten in place (the journal's ring excepted), so there is no write hole.
#![forbid(unsafe_code)]

mod adopt;
mod attributes;
mod buffer;
mod core;
mod create;
pub mod disk;
mod error;
pub mod filedisk;
mod geometry;
mod index;
mod journal;
mod label;
mod layout;
mod member;
pub mod parity;
mod placement;
mod pool;
mod read;
mod recover;
mod repair;
mod shard;
mod status;
mod store;
mod tombstones;
mod upload;
mod write;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use create::{CreateOptions, Plan, PlannedDisk};
pub use error::PoolError;
pub use layout::{DISKS_MAX, Layout, ParseLayoutError};
pub use member::DiskState;
pub use pool::{OpenOptions, Pool};
pub use status::{DiskStatus, FoundDisk, FoundPool, PoolState, PoolStatus};
