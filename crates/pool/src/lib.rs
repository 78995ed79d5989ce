//! Disks into one object store: labels, placement, mirror and parity, journal, repair.
//!
//! ```text
//! store.rs, upload.rs        the ObjectStore face           journal/       the LogStore face
//! write.rs  read.rs  repair.rs  tombstones.rs               label.rs       who belongs to the pool
//! placement.rs geometry.rs parity.rs shard.rs   (pure)      recover.rs     from names to the index
//! change.rs settle.rs        other disks, other layouts     members.rs     disks by slot
//! stray.rs  what lies in a wrong place
//! core.rs  index.rs  member.rs                              filedisk.rs    real files, behind disk.rs
//! work.rs   threads, or turns in a simulator                watch.rs       disks that do not answer
//! reserve.rs  room that a full pool gives up                patient.rs     the same, while nobody uses them yet
//! salvage/                   what is left of a pool, read only
//! ```
//!
//! Absences: no module but `filedisk.rs` touches a file; nothing here knows what a filesystem is;
//! nothing is ever overwritten in place (the journal's ring excepted), so there is no write hole.
#![forbid(unsafe_code)]

mod activity;
mod adopt;
mod attributes;
mod buffer;
mod change;
mod core;
mod counted;
mod create;
pub mod disk;
mod error;
pub mod filedisk;
mod forecast;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod geometry;
mod history;
mod index;
pub mod inspect;
mod journal;
mod label;
mod layout;
mod member;
mod members;
mod metrics;
pub mod parity;
mod patient;
mod placement;
mod pool;
mod read;
mod recover;
mod repair;
mod reserve;
pub mod salvage;
mod scrub;
mod settle;
mod shard;
mod sidecar;
mod status;
mod store;
mod stray;
mod tombstones;
mod upload;
pub mod watch;
pub mod work;
mod write;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use change::{Change, ChangePlan, Worth};
pub use create::{CreateOptions, Plan, PlannedDisk};
pub use error::PoolError;
pub use history::{Event, EventKind};
pub use layout::{DISKS_MAX, Layout, ParseLayoutError};
pub use member::DiskState;
pub use pool::{OpenOptions, Pool};
pub use scrub::{Damage, Gone, ScrubPhase, ScrubStatus, Users};
pub use settle::Moving;
pub use status::{DiskStatus, FoundDisk, FoundPool, PoolState, PoolStatus};
